//! Answers one question about files through a `Reach`.
//!
//! Invariants:
//! - What fails on one path is a record; only what the asking side may not do, or asks wrongly, ends the answer.
//! - Records come in the order of the question's paths, and below each in the order of `store::Shelf`.
//! - Nothing is held but what a `Shelf` and `digest` bound: an answer of any length takes the same memory.

use super::digest::{Opener, Reading, digest_all};
use super::list;
use super::reach::{DIRECTORIES_OPEN_MAX, Emit, NotReached, Reach, failure, reached};
use model::FailureKind;
use model::files::{Doomed, FileKind, FileStatus, Found, Question, Record, SumAlgorithm, Tally};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use store::{Error, How, Slots, SourceFile, Stopped, Visit};
use wire::{CloseCode, Refusal};

/// Answers a question; returns what was found, made or removed.
pub fn answer(
    question: &Question,
    reach: &dyn Reach,
    is_stopped: Stopped<'_>,
    emit: Emit<'_>,
) -> Result<Tally, Refusal> {
    match question {
        Question::List { paths, levels, digest: None } => list::list(paths, *levels, reach, is_stopped, emit),
        Question::List { paths, levels, digest: Some(algorithm) } => {
            sum(paths, *levels, *algorithm, reach, is_stopped, emit)
        }
        Question::Usage { paths, levels } => usage(paths, *levels, reach, is_stopped, emit),
        Question::Make { paths, with_parents } => make(paths, *with_parents, reach, emit),
        Question::Remove { objects, is_recursive, may_be_directory } => {
            let removal = Removal { is_recursive: *is_recursive, may_be_directory: *may_be_directory };
            removal.run(objects, reach, is_stopped, emit)
        }
        Question::Rename { from, to, may_replace } => rename(from, to, *may_replace, reach, emit),
    }
}

fn usage(
    paths: &[Vec<u8>],
    levels: u32,
    reach: &dyn Reach,
    is_stopped: Stopped<'_>,
    emit: Emit<'_>,
) -> Result<Tally, Refusal> {
    let slots = Slots::new(DIRECTORIES_OPEN_MAX);
    let mut total = Tally::default();
    for (asked, path) in (0..).zip(paths) {
        let target = match reached(reach, asked, path, How::Look, &mut total, emit)? {
            Ok(target) => target,
            Err(true) => continue,
            Err(false) => break,
        };
        // The directories on the way, the outermost first; what is no directory ends up in `outside`.
        let (mut open, mut outside): (Vec<Tally>, Tally) = Default::default();
        let mut goes_on = true;
        let record =
            |path: &[u8], tally| Record { asked, path: path.to_vec(), is_last: false, found: Found::Usage(tally) };
        target.walk(model::files::ALL_LEVELS, &slots, &mut |visit| {
            goes_on = !is_stopped()
                && match visit {
                    Visit::Object { status, .. } if status.is_directory() => {
                        open.push(Tally { allocated_bytes: status.allocated_bytes, ..Tally::default() });
                        true
                    }
                    Visit::Object { path, status, .. } => {
                        open.last_mut().unwrap_or(&mut outside).count(&status);
                        !path.is_empty() || emit(record(path, outside))
                    }
                    Visit::Left { path } => {
                        let tally = open.pop().unwrap_or_default();
                        let depth = open.len() as u64;
                        let above = open.last_mut().unwrap_or(&mut outside);
                        above.add(&tally);
                        above.directories += 1;
                        depth > u64::from(levels) || emit(record(path, tally))
                    }
                    Visit::Failed { path, error } => {
                        open.last_mut().unwrap_or(&mut outside).failed += 1;
                        emit(failure(asked, path, &error))
                    }
                };
            goes_on
        });
        open.iter().for_each(|tally| outside.add(tally));
        total.add(&outside);
        if !goes_on {
            break;
        }
    }
    Ok(total)
}

fn make(paths: &[Vec<u8>], with_parents: bool, reach: &dyn Reach, emit: Emit<'_>) -> Result<Tally, Refusal> {
    let mut tally = Tally::default();
    for (asked, path) in (0..).zip(paths) {
        let target = match reached(reach, asked, path, How::Make { with_parents }, &mut tally, emit)? {
            Ok(target) => target,
            Err(true) => continue,
            Err(false) => break,
        };
        match target.make(with_parents) {
            Ok(is_new) => tally.directories += u64::from(is_new),
            Err(error) => {
                tally.failed += 1;
                if !emit(failure(asked, b"", &error)) {
                    break;
                }
            }
        }
    }
    Ok(tally)
}

struct Removal {
    is_recursive: bool,
    may_be_directory: bool,
}

impl Removal {
    fn run(
        &self,
        objects: &[Doomed],
        reach: &dyn Reach,
        is_stopped: Stopped<'_>,
        emit: Emit<'_>,
    ) -> Result<Tally, Refusal> {
        let mut tally = Tally::default();
        let is_over = AtomicBool::new(false);
        let is_stopped = &|| is_over.load(Relaxed) || is_stopped();
        for (asked, object) in (0..).zip(objects) {
            if is_stopped() {
                break;
            }
            let target = match reached(reach, asked, &object.path, How::Take, &mut tally, emit)? {
                Ok(target) => target,
                Err(true) => continue,
                Err(false) => break,
            };
            let mut failed = |path: &[u8], error: Error| {
                if !emit(failure(asked, path, &error)) {
                    is_over.store(true, Relaxed);
                }
            };
            match self.is_recursive && object.version.is_none() {
                true => tally.add(&target.remove_tree(is_stopped, &mut failed)),
                false => match target.remove(object.version.as_ref(), self.may_be_directory) {
                    Ok(removed) => tally.add(&removed),
                    Err(error) => {
                        tally.failed += 1;
                        failed(b"", error);
                    }
                },
            }
        }
        Ok(tally)
    }
}

fn rename(from: &[u8], to: &[u8], may_replace: bool, reach: &dyn Reach, emit: Emit<'_>) -> Result<Tally, Refusal> {
    let mut tally = Tally::default();
    let Ok(old) = reached(reach, 0, from, How::Take, &mut tally, emit)? else { return Ok(tally) };
    let Ok(new) = reached(reach, 1, to, How::Take, &mut tally, emit)? else { return Ok(tally) };
    match old.look().and_then(|status| old.rename(&*new, may_replace).map(|()| status)) {
        Ok(status) => tally.count(&status),
        Err(error) => {
            tally.failed += 1;
            emit(failure(0, b"", &error));
        }
    }
    Ok(tally)
}

fn sum(
    paths: &[Vec<u8>],
    levels: u32,
    algorithm: SumAlgorithm,
    reach: &dyn Reach,
    is_stopped: Stopped<'_>,
    emit: Emit<'_>,
) -> Result<Tally, Refusal> {
    let summing =
        Summing { paths, levels, reach, is_stopped, slots: Slots::new(DIRECTORIES_OPEN_MAX), ended: Mutex::default() };
    let mut tally = Tally::default();
    let begun = digest_all(algorithm, &summing, &mut |item, sum| {
        let found = match (&item.what, sum) {
            (What::Failed(kind, text), _) => Found::Failed { kind: *kind, text: text.clone() },
            (What::Object(_), Some(Err(e))) => Found::Failed { kind: e.kind, text: e.message() },
            (What::Object(status), sum) => {
                tally.count(status);
                Found::Object { status: status.clone(), sum: sum.and_then(Result::ok) }
            }
        };
        tally.failed += u64::from(matches!(found, Found::Failed { .. }));
        !is_stopped() && emit(Record { asked: item.asked, path: item.path.clone(), is_last: item.is_last, found })
    });
    match (summing.ended.into_inner().unwrap(), begun) {
        (Some(refusal), _) => Err(refusal),
        (None, Err(e)) => Err(Refusal::new(CloseCode::Internal, &format!("start a thread: {e}"))),
        (None, Ok(())) => Ok(tally),
    }
}

/// What a question's paths hold, to be read.
struct Summing<'a> {
    paths: &'a [Vec<u8>],
    levels: u32,
    reach: &'a dyn Reach,
    is_stopped: Stopped<'a>,
    slots: Arc<Slots>,
    /// Why the answer ends early.
    ended: Mutex<Option<Refusal>>,
}

struct Item {
    asked: u32,
    path: Vec<u8>,
    is_last: bool,
    what: What,
    /// Where a file is opened; let go of when it was.
    opener: Mutex<Option<store::Opener>>,
}

enum What {
    Object(FileStatus),
    Failed(FailureKind, String),
}

impl Summing<'_> {
    fn list_one(&self, asked: u32, path: &[u8], emit: &mut dyn FnMut(Item) -> bool) -> bool {
        let failed = |path: &[u8], error: &Error| {
            let what = What::Failed(error.kind, error.message());
            Item { asked, path: path.to_vec(), is_last: false, what, opener: Mutex::default() }
        };
        let target = match self.reach.reach(path, How::Look) {
            Ok(target) => target,
            Err(NotReached::Failed(error)) => return emit(failed(b"", &error)),
            Err(NotReached::Refused(refusal)) => {
                self.ended.lock().unwrap().get_or_insert(refusal);
                return false;
            }
        };
        let mut goes_on = true;
        target.walk(self.levels, &self.slots, &mut |visit| {
            goes_on = !(self.is_stopped)()
                && match visit {
                    Visit::Object { path, status, is_last, opener } => {
                        let opener = Mutex::new((status.kind == FileKind::File).then(opener));
                        let what = What::Object(status);
                        emit(Item { asked, path: path.to_vec(), is_last, what, opener })
                    }
                    Visit::Left { .. } => true,
                    Visit::Failed { path, error } => emit(failed(path, &error)),
                };
            goes_on
        });
        goes_on
    }
}

impl Reading for Summing<'_> {
    type Item = Item;

    fn list(&self, emit: &mut dyn FnMut(Item) -> bool) {
        for (asked, path) in (0..).zip(self.paths) {
            if !self.list_one(asked, path, emit) {
                return;
            }
        }
    }

    fn is_read(&self, item: &Item) -> bool {
        matches!(&item.what, What::Object(status) if status.kind == FileKind::File)
    }

    fn size_bytes(&self, item: &Item) -> u64 {
        match &item.what {
            What::Object(status) => status.size_bytes,
            What::Failed(..) => 0,
        }
    }

    fn opener(&self) -> Opener<'_, Item> {
        Box::new(|item| {
            let opener = item.opener.lock().unwrap().take();
            let gone = || Error::of_kind(FailureKind::Other, "open file", b"", "it was opened before");
            opener.ok_or_else(gone)?()
        })
    }

    fn settle(&self, item: &Item, file: &dyn SourceFile) -> store::Result<()> {
        let What::Object(status) = &item.what else { return Ok(()) };
        let found = file.generation()?;
        let seen = status.version();
        let is_same = (found.size_bytes, found.modified, found.version.changed(), found.version.object())
            == (seen.size_bytes, seen.modified, seen.changed, seen.inode);
        match is_same {
            true => Ok(()),
            false => Err(Error::of_kind(FailureKind::Changed, "read file", b"", "it changed while it was read")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reach::Here;
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn bytes(path: &Path) -> Vec<u8> {
        path.as_os_str().as_encoded_bytes().to_vec()
    }

    fn ask(question: &Question) -> (Tally, Vec<Record>) {
        let mut records = Vec::new();
        let tally = answer(question, &Here, &|| false, &mut |record| {
            records.push(record);
            true
        });
        (tally.unwrap(), records)
    }

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("t/a/b")).unwrap();
        for (path, size) in [("t/a/x", 10), ("t/a/b/y", 20), ("t/z", 30)] {
            fs::write(dir.path().join(path), vec![b'x'; size]).unwrap();
        }
        symlink("../nowhere", dir.path().join("t/l")).unwrap();
        dir
    }

    fn shown(records: &[Record]) -> Vec<String> {
        let show = |record: &Record| {
            let path = String::from_utf8_lossy(&record.path).into_owned();
            match &record.found {
                Found::Object { status, sum } => {
                    let sum = sum.as_ref().map_or(String::new(), |sum| format!(" {sum}"));
                    format!("{path} {}{sum}", status.kind.name())
                }
                Found::Usage(tally) => format!("{path} {} {} {}", tally.files, tally.directories, tally.bytes),
                Found::Failed { text, .. } => format!("{path} {text}"),
            }
        };
        records.iter().map(show).collect()
    }

    #[test]
    fn lists_and_sums_say_what_is_there() {
        let dir = tree();
        let paths = vec![bytes(&dir.path().join("t")), bytes(&dir.path().join("none"))];
        let (tally, found) = ask(&Question::List { paths: paths.clone(), levels: 1, digest: None });
        let expected =
            [" directory", "a directory", "l symlink", "z file", " open: No such file or directory"].map(str::to_owned);
        assert_eq!(shown(&found)[..4], expected[..4]);
        assert!(matches!(&found[4].found, Found::Failed { kind: FailureKind::NotFound, .. }), "{found:?}");
        assert_eq!((tally.files, tally.directories, tally.failed, found[4].asked), (2, 2, 1, 1));
        let digest = Some(SumAlgorithm::Adler32);
        let (tally, found) = ask(&Question::List { paths: paths[..1].to_vec(), levels: u32::MAX, digest });
        let sums = [
            " directory",
            "a directory",
            "a/b directory",
            "a/b/y file 62840961",
            "a/x file 19d204b1",
            "l symlink",
            "z file da160e11",
        ];
        assert_eq!(shown(&found), sums);
        assert_eq!((tally.bytes, tally.files), (60, 4));
    }

    #[test]
    fn usage_is_told_from_the_inside_out() {
        let dir = tree();
        let paths = vec![bytes(&dir.path().join("t")), bytes(&dir.path().join("t/z"))];
        let (tally, found) = ask(&Question::Usage { paths: paths.clone(), levels: u32::MAX });
        assert_eq!(shown(&found), ["a/b 1 0 20", "a 2 1 30", " 4 2 60", " 1 0 30"]);
        assert_eq!((tally.files, tally.directories, tally.bytes), (5, 3, 90));
        let (_, found) = ask(&Question::Usage { paths, levels: 0 });
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn directories_are_made_and_what_is_asked_goes() {
        let dir = tree();
        let path = |name: &str| bytes(&dir.path().join(name));
        let (tally, found) = ask(&Question::Make { paths: vec![path("n/m"), path("o")], with_parents: false });
        assert_eq!((tally.directories, tally.failed, found.len()), (1, 1, 1));
        let (tally, found) = ask(&Question::Make { paths: vec![path("n/m/"), path("o")], with_parents: true });
        assert_eq!((tally.directories, found.len()), (1, 0), "{found:?}");
        let doomed = |name: &str| Doomed { path: path(name), version: None };
        let objects = vec![doomed("n"), doomed("t/z"), doomed("t"), doomed("none")];
        let removal =
            |is_recursive| Question::Remove { objects: objects.clone(), is_recursive, may_be_directory: false };
        let (tally, found) = ask(&removal(false));
        assert_eq!((tally.files, tally.directories, found.len()), (1, 0, 3));
        let (tally, found) = ask(&removal(true));
        assert_eq!((tally.files, tally.directories, found.len()), (3, 5, 2));
        assert!(dir.path().join("o").is_dir() && !dir.path().join("t").exists());
        let (tally, _) = ask(&Question::Rename { from: path("o"), to: path("p"), may_replace: false });
        assert_eq!((tally.directories, dir.path().join("p").is_dir()), (1, true));
    }
}
