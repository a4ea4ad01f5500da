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
    next: Option<Record>,
    /// What could not be read: nothing is known of what is below it.
    unread: Option<Vec<u8>>,
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
            let both = self.advance(&mut first, 0) && self.advance(&mut second, 1);
            if !both {
                return;
            }
            let goes_on = match (&first.next, &second.next) {
                (None, None) => return,
                (Some(one), Some(two)) => match order(&one.path, &two.path) {
                    Ordering::Equal => self.both(first.next.take(), second.next.take()),
                    Ordering::Less => self.only(first.next.take(), &second, true),
                    Ordering::Greater => self.only(second.next.take(), &first, false),
                },
                (Some(_), None) => self.only(first.next.take(), &second, true),
                (None, Some(_)) => self.only(second.next.take(), &first, false),
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Reads a side's next object; failures are told on the way. False when what was named cannot be read at all.
    fn advance(&mut self, side: &mut Side, which: usize) -> bool {
        while side.next.is_none() {
            let Ok(record) = side.records.recv() else { return !self.is_broken.load(Relaxed) };
            if matches!(record.found, Found::Failed { .. }) {
                let goes_on = (self.tell)(Met::Unread { side: which, record: &record });
                if record.path.is_empty() || !goes_on {
                    return false;
                }
                side.unread = Some(record.path);
                continue;
            }
            // Both sides are compared from what was named on, whatever it is called.
            let is_taken = record.path.is_empty() || self.chosen.takes(&record);
            side.next = Some(record).filter(|_| is_taken);
        }
        true
    }

    /// An object of one side alone.
    fn only(&mut self, record: Option<Record>, other: &Side, is_missing: bool) -> bool {
        let Some(record) = record else { return true };
        let is_unknown = |unread: &Vec<u8>| {
            record.path.strip_prefix(&unread[..]).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        if other.unread.as_ref().is_some_and(is_unknown) {
            return true;
        }
        (self.tell)(if is_missing { Met::Missing(&record.path) } else { Met::Extra(&record.path) })
    }

    fn both(&mut self, first: Option<Record>, second: Option<Record>) -> bool {
        let (Some(first), Some(second)) = (first, second) else { return true };
        let (Found::Object { status: one, sum: one_sum }, Found::Object { status: two, sum: two_sum }) =
            (&first.found, &second.found)
        else {
            return true;
        };
        match difference((one, one_sum.as_ref()), (two, two_sum.as_ref())) {
            None => (self.tell)(Met::Same(one)),
            Some(why) => (self.tell)(Met::Differs { path: &first.path, why: &why }),
        }
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

    #[test]
    fn what_is_in_a_directory_stands_right_behind_it() {
        let mut paths: Vec<&[u8]> = vec![b"a-b", b"a/y", b"", b"a", b"a\x01", b"a/x/z", b"a/x"];
        paths.sort_by(|one, two| order(one, two));
        let expected: [&[u8]; 7] = [b"", b"a", b"a/x", b"a/x/z", b"a/y", b"a\x01", b"a-b"];
        assert_eq!(paths, expected);
    }
}
