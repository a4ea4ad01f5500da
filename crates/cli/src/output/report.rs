//! What failed, listed in a file in the form that `--files-from` takes (docs/json.md).
//!
//! Invariant: a list that is there is replaced as a whole, and only by a run that came to every file: a retry reads it, and what
//! it has not come to yet stands nowhere else.

use super::{counted, note, shown};
use model::name::Escaped;
use model::{Failure, FailureKind};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use transfer::Ended;

pub struct Report<'a> {
    file: &'a Path,
    /// This run made it.
    is_new: bool,
    /// It holds what an earlier run wrote.
    holds_earlier: bool,
}

impl<'a> Report<'a> {
    /// Opens the file and changes nothing in it. That it cannot be written is better known now than after hours.
    pub fn open(file: &'a Path) -> io::Result<Report<'a>> {
        let is_new = !file.exists();
        let opened = File::options().write(true).create(true).truncate(false).open(file)?;
        Ok(Report { file, is_new, holds_earlier: opened.metadata()?.len() > 0 })
    }

    /// Lists what failed. `is_whole`: the run came to every file.
    pub fn finish(&self, ended: &Ended, is_whole: bool) -> io::Result<()> {
        let failed: Vec<&Failure> =
            ended.failures.iter().filter(|failure| failure.kind != FailureKind::Special).collect();
        let name = shown(self.file);
        if !is_whole && self.holds_earlier {
            note(&format!("{name} is left as it was: this run ended before it came to every file"));
            return Ok(());
        }
        if !is_whole && failed.is_empty() {
            // An empty list would say that nothing is left to do.
            return if self.is_new { fs::canonicalize(self.file).and_then(fs::remove_file) } else { Ok(()) };
        }
        self.write(&list(&failed, ended.failures_not_kept))?;
        if !is_whole {
            note(&format!("{name} lists only what failed before the run ended"));
        } else if ended.failures_not_kept > 0 {
            let (kept, more) = (counted(failed.len() as u64, "path", "paths"), ended.failures_not_kept);
            note(&format!(
                "{name} is not complete: it lists {kept}, and {} more failed; only the whole command retries them all",
                super::grouped(more)
            ));
        }
        Ok(())
    }

    fn write(&self, list: &[u8]) -> io::Result<()> {
        use ErrorKind::{CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
        // What a link leads to is replaced, and not the link.
        let real = fs::canonicalize(self.file).ok().filter(|real| real.is_file());
        match real.map(|real| replace(&real, list)) {
            Some(Ok(())) => Ok(()),
            Some(Err(e))
                if !matches!(e.kind(), PermissionDenied | ReadOnlyFilesystem | ResourceBusy | CrossesDevices) =>
            {
                Err(e)
            }
            // A device, a FIFO, or a file in a directory that nothing may be renamed in.
            _ => fs::write(self.file, list),
        }
    }
}

/// Writes beside the file and renames.
fn replace(file: &Path, list: &[u8]) -> io::Result<()> {
    // In a directory that others may write to, a name that could be foreseen might be a link by now.
    let random = u64::from_le_bytes(net::random_bytes());
    let beside = file.with_file_name(format!(".thalweg-report-{random:016x}"));
    let mut new = File::create_new(&beside)?;
    let written = fs::metadata(file)
        .and_then(|old| new.set_permissions(old.permissions()))
        .and_then(|()| new.write_all(list))
        .and_then(|()| new.sync_all())
        .and_then(|()| fs::rename(&beside, file));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// A path a line, as its bytes are, reasons in lines that begin with `# `. If a path holds a line feed, every path ends with a NUL
/// byte instead and there are no reasons (`--files-from0`).
fn list(failed: &[&Failure], not_kept: u64) -> Vec<u8> {
    let needs_nul = failed.iter().any(|failure| failure.path.contains(&b'\n'));
    let mut list = Vec::new();
    for failure in failed {
        if !needs_nul {
            let why = format!("# {}: {}\n", failure.kind, Escaped(failure.message.as_bytes()));
            list.extend_from_slice(why.as_bytes());
        }
        // A list of files takes a first `#` for a comment.
        if failure.path.first().is_some_and(|b| b"#;".contains(b)) {
            list.extend_from_slice(b"./");
        }
        list.extend_from_slice(&failure.path);
        list.push(if needs_nul { 0 } else { b'\n' });
    }
    if not_kept > 0 && !needs_nul {
        list.extend_from_slice(format!("# and {not_kept} more\n").as_bytes());
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Location, TransferSpec};
    use std::os::unix::fs::PermissionsExt;
    use transfer::Direction;

    fn ended(paths: &[&str]) -> Ended {
        let spec = TransferSpec::new(vec![Location::Local(b"t/".to_vec())], Location::Local(b"copy".to_vec()));
        let failure = |path: &&str| Failure {
            path: path.as_bytes().to_vec(),
            kind: FailureKind::Permission,
            message: "why".into(),
        };
        let failures = paths.iter().map(failure).collect();
        Ended { failures, ..Ended::before_the_start(&spec, Direction::Local) }
    }

    #[test]
    fn a_run_that_did_not_come_to_every_file_takes_nothing_from_a_list() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("failed");
        let finish = |paths: &[&str], is_whole| Report::open(&file).unwrap().finish(&ended(paths), is_whole).unwrap();
        let read = || fs::read_to_string(&file).unwrap();
        finish(&[], false);
        assert!(!file.exists(), "an empty list says that nothing is left to do");
        finish(&["a"], false);
        assert_eq!(read(), "# permission: why\na\n");
        let none: &[&str] = &[];
        for paths in [none, &["b"]] {
            finish(paths, false);
            assert_eq!(read(), "# permission: why\na\n");
        }
        finish(&["b", "#c"], true);
        assert_eq!(read(), "# permission: why\nb\n# permission: why\n./#c\n");
        finish(&[], true);
        assert_eq!((read(), fs::read_dir(dir.path()).unwrap().count()), (String::new(), 1));
    }

    #[test]
    fn a_list_keeps_its_mode_and_the_link_that_leads_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("failed"), dir.path().join("link"));
        fs::write(&file, b"old\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        Report::open(&link).unwrap().finish(&ended(&["a"]), true).unwrap();
        assert!(link.is_symlink() && fs::read(&file).unwrap().ends_with(b"\na\n"));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
