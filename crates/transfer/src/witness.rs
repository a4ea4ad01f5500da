//! What became of each object: failures are kept for the end, deliveries go to the manifest, and all is told to the watcher.
//!
//! The manifest is written beside its final name and renamed when the run is over, however it ended: it lists what was
//! delivered. Kept failures are bounded; all are counted.

use crate::error::{Error, Result, reason};
use crate::watcher::Watcher;
use model::manifest;
use model::{Change, DigestAlgorithm, Failure, FailureKind};
use mover::{Delivered, Followed, Observer};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Failures kept with their paths.
const KEPT_MAX: usize = 100_000;

pub struct Witness {
    state: Mutex<State>,
    manifest: Option<Mutex<Manifest>>,
    watcher: Arc<dyn Watcher>,
    wants_changes: bool,
}

#[derive(Default)]
struct State {
    failures: Vec<Failure>,
    failed: u64,
    not_kept: u64,
    kinds: BTreeSet<FailureKind>,
}

/// What a run leaves behind.
pub struct Witnessed {
    pub failures: Vec<Failure>,
    /// Objects that failed; special files are only skipped.
    pub failed: u64,
    pub not_kept: u64,
    pub kinds: BTreeSet<FailureKind>,
    /// The manifest could not be written. What was delivered is delivered.
    pub manifest_error: Option<Error>,
}

impl Witness {
    /// `wants_changes`: the watcher is told of each.
    pub fn new(
        manifest: Option<&Path>,
        digest: DigestAlgorithm,
        watcher: Arc<dyn Watcher>,
        wants_changes: bool,
    ) -> Result<Witness> {
        let create = |path| Manifest::create(path, digest).map_err(|e| Error::from_written("write manifest", path, &e));
        let manifest = manifest.map(create).transpose()?.map(Mutex::new);
        Ok(Witness { state: Mutex::default(), manifest, watcher, wants_changes })
    }

    /// Forgets the failures of the attempt before: the next one meets them again if they still are.
    pub fn start_attempt(&self) {
        *self.state.lock().unwrap() = State::default();
    }

    /// Something was not delivered in this attempt.
    pub fn has_failed(&self) -> bool {
        self.state.lock().unwrap().failed > 0
    }

    /// What kinds of failures there were in this attempt.
    pub fn kinds(&self) -> BTreeSet<FailureKind> {
        self.state.lock().unwrap().kinds.clone()
    }

    /// Ends the manifest and hands out what was kept.
    pub fn finish(&self) -> Witnessed {
        let manifest_error = self.manifest.as_ref().and_then(|manifest| {
            let mut manifest = manifest.lock().unwrap();
            manifest.finish().err().map(|e| Error::from_written("write manifest", &manifest.path, &e))
        });
        let State { failures, failed, not_kept, kinds } = std::mem::take(&mut *self.state.lock().unwrap());
        Witnessed { failures, failed, not_kept, kinds, manifest_error }
    }
}

impl Observer for Witness {
    fn wants_delivered(&self) -> bool {
        self.manifest.is_some()
    }

    fn delivered(&self, batch: &[Delivered]) {
        let Some(manifest) = &self.manifest else { return };
        let mut manifest = manifest.lock().unwrap();
        for delivered in batch {
            manifest.write(manifest::line(&delivered.digest, delivered.size_bytes, &delivered.path).as_bytes());
        }
    }

    fn wants_changes(&self) -> bool {
        self.wants_changes
    }

    fn changed(&self, changes: &[Change]) {
        self.watcher.changed(changes);
    }

    fn followed(&self, event: &Followed) {
        self.watcher.followed(event);
    }

    fn failed(&self, failure: &Failure) {
        let failure = &Failure { message: reason(&failure.message).to_owned(), ..failure.clone() };
        self.watcher.failed(failure);
        let mut state = self.state.lock().unwrap();
        state.kinds.insert(failure.kind);
        state.failed += u64::from(failure.kind != FailureKind::Special);
        if state.failures.len() < KEPT_MAX {
            state.failures.push(failure.clone());
        } else {
            state.not_kept += 1;
        }
    }
}

/// A manifest on its way to its name.
struct Manifest {
    path: PathBuf,
    staging: PathBuf,
    writer: BufWriter<File>,
    /// The first failure; nothing is written after it.
    failure: Option<io::Error>,
    is_finished: bool,
}

impl Manifest {
    fn create(path: &Path, digest: DigestAlgorithm) -> io::Result<Manifest> {
        if path.file_name().is_none() || path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // The rename would replace what stands there: a device or a FIFO is gone then, and a link's target is not written.
        if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a link, a device or a FIFO is there and is not replaced",
            ));
        }
        // In a directory that others may write to, a name that could be foreseen might be a link by now.
        let random = u64::from_le_bytes(net::random_bytes());
        let staging = path.with_file_name(format!(".thalweg-manifest-{random:016x}"));
        let mut writer = BufWriter::with_capacity(256 << 10, File::create_new(&staging)?);
        let written = writer.write_all(manifest::first_line(digest).as_bytes());
        let failure = written.err();
        Ok(Manifest { path: path.to_owned(), staging, writer, failure, is_finished: false })
    }

    fn write(&mut self, line: &[u8]) {
        if self.failure.is_none() {
            self.failure = self.writer.write_all(line).err();
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.writer.flush()?;
        self.writer.get_ref().sync_all()?;
        fs::rename(&self.staging, &self.path)?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for Manifest {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_file(&self.staging);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watcher::Unwatched;

    fn failure(kind: FailureKind) -> Failure {
        Failure { path: b"a".to_vec(), kind, message: "why".into() }
    }

    fn unwatched(manifest: Option<&Path>) -> Result<Witness> {
        Witness::new(manifest, DigestAlgorithm::Crc64Nvme, Arc::new(Unwatched), false)
    }

    #[test]
    fn special_files_are_kept_but_do_not_count_as_failed() {
        let witness = unwatched(None).unwrap();
        witness.failed(&failure(FailureKind::Permission));
        witness.start_attempt();
        witness.failed(&failure(FailureKind::Special));
        witness.failed(&Failure { message: "look at: why".into(), ..failure(FailureKind::Changed) });
        let found = witness.finish();
        assert!(found.failures.iter().all(|failure| failure.message == "why"), "{:?}", found.failures);
        assert_eq!((found.failures.len(), found.failed, found.not_kept), (2, 1, 0));
        assert!(!found.kinds.contains(&FailureKind::Permission));
    }

    #[test]
    fn the_manifest_appears_when_the_run_is_over_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        let digest = DigestAlgorithm::Crc64Nvme;
        let witness = unwatched(Some(&path)).unwrap();
        let delivered = Delivered { path: b"x/y".to_vec(), size_bytes: 3, digest: digest.of_object(b"abc") };
        witness.delivered(&[delivered]);
        assert!(!path.exists());
        assert!(witness.finish().manifest_error.is_none());
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# thalweg manifest 1 crc64nvme\n") && text.ends_with(" 3 x/y\n"), "{text}");
        drop(unwatched(Some(&path)).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(unwatched(Some(dir.path())).is_err());
    }

    /// As root, a device under that name would be gone for the whole host.
    #[test]
    fn a_manifest_replaces_neither_a_device_nor_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (link, socket) = (dir.path().join("link"), dir.path().join("socket"));
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [link, socket] {
            let error = unwatched(Some(&path)).err().unwrap();
            assert!(error.text.ends_with("a link, a device or a FIFO is there and is not replaced"), "{error}");
            assert!(!fs::symlink_metadata(&path).unwrap().is_file());
        }
    }
}
