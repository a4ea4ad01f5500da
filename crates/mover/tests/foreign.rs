//! A destination that no file system stands behind and that is no part of `store`: what the traits ask of a sink is enough.

use model::options::{Compare, Deletion, Fsync, Verify};
use model::{Entry, Fidelity, JobId, Name, TransferOptions};
use mover::local::{LocalSpec, copy};
use mover::{Ending, Memory, Progress, Report};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use store::posix::PosixSource;
use store::{
    Abilities, Decision, End, Found, Order, PublishRule, Result, Sink, SinkFacts, SinkLane, Source, SourceLane,
    SourceObject, Staged, StagedFile, ToPublish,
};

/// Objects by path, whole or not at all.
#[derive(Default)]
struct Bucket {
    objects: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    staged: Mutex<HashMap<u64, Vec<u8>>>,
    directories: Mutex<HashMap<u64, Vec<u8>>>,
    last: AtomicU64,
    asked_at_once_max: AtomicUsize,
    published_at_once_max: AtomicUsize,
    /// A sync does not come back as long as this holds.
    hangs: AtomicBool,
    is_syncing: AtomicBool,
    let_go: AtomicUsize,
    is_discarded: AtomicBool,
}

#[derive(Clone)]
struct Door(Arc<Bucket>);

impl Sink for Door {
    fn facts(&self) -> Result<SinkFacts> {
        Ok(SinkFacts {
            file_system: "bucket",
            is_memory_backed: false,
            cannot_sync: false,
            free_bytes: u64::MAX,
            free_inodes: None,
            order: Order::Any,
            part_rule: None,
            shares_on: None,
            confirms: false,
            can: Abilities::NONE,
        })
    }

    fn enter(&self, _: &Name) -> Result<()> {
        Ok(())
    }

    fn make_directory(&self, entry: &Entry) -> Result<()> {
        let path = self.path(entry);
        self.0.directories.lock().unwrap().insert(entry.id.0, path);
        Ok(())
    }

    fn make_symlink(&self, _: &Entry, _: PublishRule) -> Result<bool> {
        Ok(true)
    }

    fn decide(&self, entry: &Entry) -> Result<Decision> {
        let objects = self.0.objects.lock().unwrap();
        Ok(if objects.contains_key(&self.path(entry)) { Decision::Same } else { Decision::Absent })
    }

    fn decide_group(&self, group: &mut dyn Iterator<Item = &Entry>, found: &mut Vec<Result<Decision>>) {
        found.extend(group.map(|entry| self.decide(entry)));
        self.0.asked_at_once_max.fetch_max(found.len(), Relaxed);
    }

    fn lane(&self, _: bool) -> Result<Box<dyn SinkLane>> {
        Ok(Box::new(Parcel { door: self.clone(), bytes: Vec::new(), rule: PublishRule::NoReplace }))
    }

    fn begin(&self, _: &Entry, _: &str) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        Ok((Arc::new(Upload { door: self.clone(), bytes: Mutex::default() }), Vec::new()))
    }

    fn has_journal(&self, _: &Entry, _: &str) -> bool {
        false
    }

    fn sync_group(&self, _: &mut dyn Iterator<Item = Staged>) -> Result<bool> {
        Ok(true)
    }

    fn publish(&self, entry: &Entry, staged: Staged) -> Result<()> {
        let bytes = self.0.staged.lock().unwrap().remove(&staged.number()).expect("staged once");
        self.0.objects.lock().unwrap().insert(self.path(entry), bytes);
        Ok(())
    }

    /// Answers come in an order of their own.
    fn publish_group(&self, group: &[ToPublish<'_>], published: &mut dyn FnMut(usize, Result<()>) -> bool) {
        self.0.published_at_once_max.fetch_max(group.len(), Relaxed);
        for (place, one) in group.iter().enumerate().rev() {
            if !published(place, self.publish(one.entry, one.staged)) {
                return;
            }
        }
    }

    fn discard(&self, staged: Staged) {
        self.0.staged.lock().unwrap().remove(&staged.number());
    }

    fn reread(&self, _: &Entry, _: Staged, _: &mut dyn FnMut(&[u8])) -> Result<()> {
        panic!("a job that asks for it is refused");
    }

    fn sync_names(&self) -> Result<()> {
        Ok(())
    }

    fn finish_directory(&self, _: &Entry) -> Result<()> {
        Ok(())
    }

    fn close(&self) {}

    fn path(&self, entry: &Entry) -> Vec<u8> {
        let above = self.0.directories.lock().unwrap().get(&entry.parent.0).cloned().unwrap_or_default();
        let slash: &[u8] = if above.is_empty() { b"" } else { b"/" };
        [&above, slash, entry.name.as_bytes()].concat()
    }
}

struct Parcel {
    door: Door,
    bytes: Vec<u8>,
    rule: PublishRule,
}

impl SinkLane for Parcel {
    fn create(&mut self, _: &Entry, rule: PublishRule) -> Result<()> {
        self.bytes.clear();
        self.rule = rule;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn seal(&mut self, _: &Entry, _: bool) -> Result<Staged> {
        let number = self.door.0.last.fetch_add(1, Relaxed);
        self.door.0.staged.lock().unwrap().insert(number, std::mem::take(&mut self.bytes));
        Ok(Staged::new(0, number, self.rule))
    }

    fn abandon(&mut self) {
        self.bytes.clear();
    }

    fn publish(&mut self, entry: &Entry, staged: Staged) -> Result<()> {
        self.door.publish(entry, staged)
    }
}

struct Upload {
    door: Door,
    bytes: Mutex<Vec<u8>>,
}

impl StagedFile for Upload {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut held = self.bytes.lock().unwrap();
        let end = offset as usize + bytes.len();
        if held.len() < end {
            held.resize(end, 0);
        }
        held[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<usize> {
        Ok(0)
    }

    fn append_journal(&self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn truncate_journal(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn checkpoint(&self) -> Result<()> {
        Ok(())
    }

    fn reread(&self, _: &mut dyn FnMut(&[u8])) -> Result<()> {
        panic!("a job that asks for it is refused");
    }

    fn make_durable(&self, _: &Entry) -> Result<()> {
        while self.door.0.hangs.load(Relaxed) {
            self.door.0.is_syncing.store(true, Relaxed);
            std::thread::yield_now();
        }
        Ok(())
    }

    fn publish(&self, entry: &Entry, _: PublishRule) -> Result<()> {
        let bytes = std::mem::take(&mut *self.bytes.lock().unwrap());
        self.door.0.objects.lock().unwrap().insert(self.door.path(entry), bytes);
        Ok(())
    }

    fn discard(&self) {
        self.door.0.is_discarded.store(true, Relaxed);
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.door.0.let_go.fetch_add(1, Relaxed);
    }
}

fn sent(source: Arc<dyn Source>, door: &Door, options: TransferOptions) -> Result<Report> {
    sent_until(source, door, options, &|| false)
}

fn sent_until(
    source: Arc<dyn Source>,
    door: &Door,
    options: TransferOptions,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<Report> {
    let spec = LocalSpec {
        id: JobId([1; 16]),
        options,
        rename_to: None,
        lanes: Some(2),
        lanes_first: None,
        is_sequential: false,
        memory: Memory::default(),
    };
    copy(spec, source, Arc::new(door.clone()), Progress::new(), None, &is_over)
}

/// Small files in directories, one that travels alone, and one of several chunks.
fn files() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let content = |seed: usize, length: usize| (0..length).map(|at| ((at * seed) >> 5) as u8).collect::<Vec<u8>>();
    let small = (0..500).map(|n| (format!("d{}/f{n}", n % 3).into_bytes(), content(n, n * 7)));
    let large = [("alone", 700_000), ("large", (9 << 20) + 77)];
    small.chain(large.map(|(name, length)| (name.into(), content(31, length)))).collect()
}

fn source(root: &Path, files: &BTreeMap<Vec<u8>, Vec<u8>>) -> Arc<PosixSource> {
    for (path, bytes) in files {
        let path = root.join(std::str::from_utf8(path).unwrap());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    let mut source = PosixSource::new();
    source.add_local(format!("{}/", root.display()).as_bytes()).unwrap();
    Arc::new(source)
}

#[test]
fn a_tree_arrives_in_a_store_of_another_crate_and_is_asked_about_and_published_in_groups() {
    let dir = tempfile::tempdir().unwrap();
    let files = files();
    for fsync in [Fsync::Batch, Fsync::File, Fsync::Never] {
        let door = Door(Arc::default());
        let options = || TransferOptions { fsync, chunk_bytes: 1 << 20, ..TransferOptions::default() };
        let report = sent(source(dir.path(), &files), &door, options()).unwrap();
        assert!(matches!(report.ending, Ending::Finished(_)), "{:?}", report.ending);
        assert_eq!(report.snapshot.counts.files_done, files.len() as u64);
        assert!(*door.0.objects.lock().unwrap() == files, "{fsync:?}");
        assert!(door.0.staged.lock().unwrap().is_empty());
        assert!(door.0.asked_at_once_max.load(Relaxed) > 1);
        assert_eq!(door.0.published_at_once_max.load(Relaxed) > 0, fsync == Fsync::Batch);
        let again = sent(source(dir.path(), &files), &door, options()).unwrap();
        assert_eq!(again.snapshot.counts.files_skipped, files.len() as u64);
    }
}

#[test]
fn a_job_that_needs_what_the_store_cannot_do_is_refused_before_anything_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let files = files();
    let deletion = Some(Deletion { is_at_root: true, removals_max: None });
    let hard_links = Fidelity { hard_links: true, ..Fidelity::default() };
    for (options, named) in [
        (TransferOptions { deletion, ..TransferOptions::default() }, "--delete"),
        (TransferOptions { compare: Compare::Checksum, ..TransferOptions::default() }, "--compare checksum"),
        (TransferOptions { verify: Verify::Reread, ..TransferOptions::default() }, "--verify reread"),
        (TransferOptions { fidelity: hard_links, ..TransferOptions::default() }, "--hard-links"),
    ] {
        let door = Door(Arc::default());
        let refused = sent(source(dir.path(), &files), &door, options).expect_err(named);
        assert!(refused.to_string().contains(named), "{refused}");
        assert!(door.0.objects.lock().unwrap().is_empty() && door.0.directories.lock().unwrap().is_empty());
    }
}

/// One of its files is said to be still being written.
struct Written(Arc<PosixSource>);

impl Source for Written {
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> Result<()> {
        self.0.scan(&mut |found| match found {
            Found::Object(object) if object.entry.name.as_bytes() == b"alone" => {
                emit(Found::Object(SourceObject { end: End::Growing, ..object }))
            }
            found => emit(found),
        })
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        self.0.lane()
    }

    fn path(&self, object: &SourceObject) -> Vec<u8> {
        self.0.path(object)
    }

    fn look_again(&self, object: &SourceObject) -> Result<SourceObject> {
        self.0.look_again(object)
    }
}

#[test]
fn what_is_still_being_written_is_copied_as_it_was_listed() {
    let dir = tempfile::tempdir().unwrap();
    let files = files();
    let door = Door(Arc::default());
    let source = Arc::new(Written(source(dir.path(), &files)));
    let report = sent(source, &door, TransferOptions::default()).unwrap();
    assert!(matches!(report.ending, Ending::Finished(_)), "{:?}", report.ending);
    assert_eq!(report.snapshot.counts.files_done, files.len() as u64);
    assert!(*door.0.objects.lock().unwrap() == files);
}

/// Another attempt may be at work by then, and have published something newer.
#[test]
fn what_a_job_that_ended_waits_to_be_durable_gets_no_name() {
    let dir = tempfile::tempdir().unwrap();
    let files = BTreeMap::from([(b"large".to_vec(), vec![7; (9 << 20) + 77])]);
    let door = Door(Arc::default());
    door.0.hangs.store(true, Relaxed);
    let options = TransferOptions { fsync: Fsync::Batch, chunk_bytes: 1 << 20, ..TransferOptions::default() };
    let is_over = || door.0.is_syncing.load(Relaxed);
    let report = sent_until(source(dir.path(), &files), &door, options, &is_over).unwrap();
    assert!(!matches!(report.ending, Ending::Finished(_)), "{:?}", report.ending);
    door.0.hangs.store(false, Relaxed);
    while door.0.let_go.load(Relaxed) == 0 {
        std::thread::yield_now();
    }
    assert!(door.0.objects.lock().unwrap().is_empty());
    assert!(!door.0.is_discarded.load(Relaxed), "it is complete, and stays for the next attempt");
}
