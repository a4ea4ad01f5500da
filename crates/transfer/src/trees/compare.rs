//! Whether two trees hold the same. Both sides read their own files; only digests travel.
//!
//! Both sides list in the same order, so that the lists are compared while they come: memory does not grow with the trees.

use super::{Chosen, Tree};
use crate::error::{Error, Kind, Result};
use model::files::{ALL_LEVELS, FileKind, FileStatus, Found, Question, Record, Sum, SumAlgorithm};
use model::name::Escaped;
use std::cmp::Ordering;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, sync_channel};

/// Records that one side may be ahead of the other.
const AHEAD_MAX: usize = 4096;

/// What is met on the way through both trees.
pub enum Met<'a> {
    Same(&'a FileStatus),
    /// In the second tree.
    Missing(&'a [u8]),
    /// In the second tree alone.
    Extra(&'a [u8]),
    Differs {
        path: &'a [u8],
        why: &'a str,
    },
    /// Could not be read, in the first tree or in the second one.
    Unread {
        side: usize,
        record: &'a Record,
    },
}

/// Compares until both lists end, or `tell` returns false.
///
/// # Errors
/// Where one of the two could not be listed to its end.
pub fn compare(
    sides: [Tree<'_>; 2],
    digest: Option<SumAlgorithm>,
    chosen: Chosen<'_>,
    tell: &mut dyn FnMut(Met<'_>) -> bool,
) -> Result<()> {
    let is_broken = AtomicBool::new(false);
    let asked = std::thread::scope(|scope| {
        let (mut threads, mut streams) = (Vec::new(), Vec::new());
        for side in sides {
            let (sender, receiver) = sync_channel(AHEAD_MAX);
            let is_broken = &is_broken;
            streams.push(receiver);
            let list = move || {
                let question = Question::List { paths: vec![side.path.to_vec()], levels: ALL_LEVELS, digest };
                let answer = side.at.ask(&question, &mut |record| sender.send(record).is_ok());
                // Said before the list ends, so that its end is not taken for that of the tree.
                is_broken.fetch_or(answer.is_err(), Relaxed);
                answer.map(drop)
            };
            let begun = std::thread::Builder::new().name("list".to_owned()).spawn_scoped(scope, list);
            // A list without a thread is over before it begins.
            is_broken.fetch_or(begun.is_err(), Relaxed);
            threads.push(begun);
        }
        let second = streams.pop().expect("one for each side");
        let first = streams.pop().expect("one for each side");
        Comparison { chosen, tell, is_broken: &is_broken }.run(first, second);
        let bug = || Err(Error::new(Kind::Fault, "", "a listing ended unexpectedly, which is a bug"));
        let ended = threads.into_iter().map(|begun| match begun {
            Ok(thread) => thread.join().unwrap_or_else(|_| bug()),
            Err(e) => Err(Error::new(Kind::Temporary, "", format!("start a thread: {e}"))),
        });
        ended.collect::<Vec<_>>()
    });
    asked.into_iter().collect()
}

/// One side's list, as far as it was read.
struct Side {
    records: Receiver<Record>,
    /// An object, or what could not be read, where it stands in the list.
    next: Option<Record>,
    /// What could not be read: nothing is known of what is below it.
    unread: Option<Vec<u8>>,
}

impl Side {
    /// Whether anything is known of this path.
    fn knows(&self, path: &[u8]) -> bool {
        let is_below = |unread: &Vec<u8>| {
            path.strip_prefix(&unread[..]).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        !self.unread.as_ref().is_some_and(is_below)
    }
}

struct Comparison<'a, 'b> {
    chosen: Chosen<'a>,
    tell: &'a mut dyn FnMut(Met<'_>) -> bool,
    /// A list ended before its tree did.
    is_broken: &'b AtomicBool,
}

impl Comparison<'_, '_> {
    fn run(&mut self, first: Receiver<Record>, second: Receiver<Record>) {
        let side = |records| Side { records, next: None, unread: None };
        let (mut first, mut second) = (side(first), side(second));
        loop {
            if !(self.advance(&mut first) && self.advance(&mut second)) {
                return;
            }
            let ordered = match (&first.next, &second.next) {
                (None, None) => return,
                (Some(one), Some(two)) => order(&one.path, &two.path),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
            };
            let goes_on = match ordered {
                Ordering::Equal => self.both(&mut first, &mut second),
                Ordering::Less => self.only(0, &mut first, &second),
                Ordering::Greater => self.only(1, &mut second, &first),
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Reads what is next on a side. False where its list broke off.
    fn advance(&self, side: &mut Side) -> bool {
        while side.next.is_none() {
            let Ok(record) = side.records.recv() else { return !self.is_broken.load(Relaxed) };
            // Both sides are compared from what was named on, whatever it is called.
            let is_taken = record.path.is_empty() || self.chosen.takes(&record);
            side.next = Some(record).filter(|_| is_taken);
        }
        true
    }

    /// What one side alone has.
    fn only(&mut self, which: usize, side: &mut Side, other: &Side) -> bool {
        let Some(record) = side.next.take() else { return true };
        if matches!(record.found, Found::Failed { .. }) {
            return self.unread(which, side, record);
        }
        let path = &record.path;
        !other.knows(path) || (self.tell)(if which == 0 { Met::Missing(path) } else { Met::Extra(path) })
    }

    fn both(&mut self, first: &mut Side, second: &mut Side) -> bool {
        let (Some(one), Some(two)) = (first.next.take(), second.next.take()) else { return true };
        if let (Found::Object { status: a, sum: a_sum }, Found::Object { status: b, sum: b_sum }) =
            (&one.found, &two.found)
        {
            return match difference((a, a_sum.as_ref()), (b, b_sum.as_ref())) {
                None => (self.tell)(Met::Same(a)),
                Some(why) => (self.tell)(Met::Differs { path: &one.path, why: &why }),
            };
        }
        let is_failed = |record: &Record| matches!(record.found, Found::Failed { .. });
        let mut failed = [(0, first, one), (1, second, two)].into_iter().filter(|(_, _, record)| is_failed(record));
        failed.all(|(which, side, record)| self.unread(which, side, record))
    }

    /// Tells what could not be read. False when that is all that was named, or nobody wants to hear more.
    fn unread(&mut self, which: usize, side: &mut Side, record: Record) -> bool {
        let goes_on = (self.tell)(Met::Unread { side: which, record: &record }) && !record.path.is_empty();
        if side.knows(&record.path) {
            side.unread = Some(record.path);
        }
        goes_on
    }
}

/// The order in which both sides list: names by their bytes, what is in a directory right behind it.
fn order(one: &[u8], two: &[u8]) -> Ordering {
    let key = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    one.iter().map(key).cmp(two.iter().map(key))
}

fn difference(one: (&FileStatus, Option<&Sum>), two: (&FileStatus, Option<&Sum>)) -> Option<String> {
    let ((a, a_sum), (b, b_sum)) = (one, two);
    match (&a.kind, &b.kind) {
        (FileKind::File, FileKind::File) if a.size_bytes != b.size_bytes => {
            Some(format!("{} and {} bytes", a.size_bytes, b.size_bytes))
        }
        (FileKind::File, FileKind::File) => (a_sum != b_sum).then(|| "content".to_owned()),
        (FileKind::Symlink(here), FileKind::Symlink(there)) => {
            (here != there).then(|| format!("link to {} and {}", Escaped(here), Escaped(there)))
        }
        (here, there) => (here != there).then(|| format!("{} and {}", here.name(), there.name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trees::Answers;
    use model::FailureKind;
    use model::files::Tally;
    use model::selection::Selection;

    #[test]
    fn what_is_in_a_directory_stands_right_behind_it() {
        let mut paths: Vec<&[u8]> = vec![b"a-b", b"a/y", b"", b"a", b"a\x01", b"a/x/z", b"a/x"];
        paths.sort_by(|one, two| order(one, two));
        let expected: [&[u8]; 7] = [b"", b"a", b"a/x", b"a/x/z", b"a/y", b"a\x01", b"a-b"];
        assert_eq!(paths, expected);
    }

    /// A tree that answers with these records.
    struct Listed(Vec<(&'static str, Found)>);

    impl Answers for Listed {
        fn ask(&self, _: &Question, each: &mut dyn FnMut(Record) -> bool) -> Result<Tally> {
            for (path, found) in &self.0 {
                each(Record { asked: 0, path: path.as_bytes().to_vec(), is_last: false, found: found.clone() });
            }
            Ok(Tally::default())
        }
    }

    fn object(kind: FileKind) -> Found {
        let (mode, size_bytes, allocated_bytes, owner, group, links, inode, device) = Default::default();
        let (modified, changed) = Default::default();
        let status = FileStatus {
            kind,
            mode,
            size_bytes,
            allocated_bytes,
            owner,
            group,
            links,
            inode,
            device,
            modified,
            changed,
        };
        Found::Object { status, sum: None }
    }

    fn met(first: &Listed, second: &Listed) -> Vec<String> {
        let selection = Selection::default();
        let chosen = Chosen { selection: &selection, is_everything: true, prefix: b"" };
        let [first, second] = [first, second].map(|at| Tree { at, path: b"" });
        let mut told = Vec::new();
        let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        compare([first, second], None, chosen, &mut |met| {
            told.push(match met {
                Met::Same(_) => return true,
                Met::Missing(path) => format!("missing {}", shown(path)),
                Met::Extra(path) => format!("extra {}", shown(path)),
                Met::Differs { path, .. } => format!("differs {}", shown(path)),
                Met::Unread { side, record } => format!("unread {side} {}", shown(&record.path)),
            });
            true
        })
        .unwrap();
        told
    }

    #[test]
    fn what_one_side_cannot_read_is_neither_missing_nor_extra() {
        let (file, directory) = (|| object(FileKind::File), || object(FileKind::Directory));
        let failed = || Found::Failed { kind: FailureKind::Permission, text: "no".to_owned() };
        let tree = |below: &[(&'static str, Found)]| Listed([&[("", directory())], below].concat());
        let whole = || tree(&[("f1", file()), ("f2", file()), ("g", file()), ("h", file())]);
        let unreadable = tree(&[("f1", failed()), ("f2", failed()), ("g", file())]);
        assert_eq!(met(&whole(), &unreadable), ["unread 1 f1", "unread 1 f2", "missing h"]);
        assert_eq!(met(&unreadable, &whole()), ["unread 0 f1", "unread 0 f2", "extra h"]);
        assert_eq!(met(&unreadable, &unreadable), ["unread 0 f1", "unread 1 f1", "unread 0 f2", "unread 1 f2"]);
        // A directory that cannot be listed, and one that cannot be listed to its end.
        let deep = tree(&[("d", directory()), ("d/x", file()), ("d/y", file())]);
        let shut = tree(&[("d", directory()), ("d", failed()), ("e", failed())]);
        assert_eq!(met(&deep, &shut), ["unread 1 d", "unread 1 e"]);
        let cut = tree(&[("d", directory()), ("d/x", file()), ("d", failed()), ("d/x", failed())]);
        assert_eq!(met(&deep, &cut), ["unread 1 d", "unread 1 d/x"]);
        // What was named itself.
        let gone = Listed(vec![("", failed())]);
        assert_eq!(met(&whole(), &gone), ["unread 1 "]);
    }
}
