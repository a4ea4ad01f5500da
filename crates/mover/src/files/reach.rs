//! What paths of a question lead to, and the records that answer it.

use model::files::{Found, Record, Tally};
use store::{Error, How, Shelf};
use wire::Refusal;

/// Directories that one answer keeps open: those of the walk, and those of files that wait to be read.
pub(super) const DIRECTORIES_OPEN_MAX: usize = 128;

/// Why a path was not reached.
#[derive(Debug)]
pub enum NotReached {
    /// Ends the answer.
    Refused(Refusal),
    /// Of this path alone.
    Failed(Error),
}

impl From<Error> for NotReached {
    fn from(error: Error) -> NotReached {
        NotReached::Failed(error)
    }
}

/// Finds what paths lead to, as far as whoever asks may go.
pub trait Reach: Sync {
    fn reach(&self, path: &[u8], how: How) -> Result<Box<dyn Shelf>, NotReached>;
}

/// Paths of this host, as the user of this process named them: nothing is out of reach but what the system forbids.
pub struct Here;

impl Reach for Here {
    fn reach(&self, path: &[u8], how: How) -> Result<Box<dyn Shelf>, NotReached> {
        store::here(path, how).map_err(NotReached::Failed)
    }
}

/// Takes a record; false ends the answer.
pub type Emit<'a> = &'a mut dyn FnMut(Record) -> bool;

pub(super) fn failure(asked: u32, path: &[u8], error: &Error) -> Record {
    let found = Found::Failed { kind: error.kind, text: error.message() };
    Record { asked, path: path.to_vec(), is_last: false, found }
}

/// Reaches a path. Where it alone fails, that is a record, and the inner error is what `emit` said to it.
pub(super) fn reached(
    reach: &dyn Reach,
    asked: u32,
    path: &[u8],
    how: How,
    tally: &mut Tally,
    emit: Emit<'_>,
) -> Result<Result<Box<dyn Shelf>, bool>, Refusal> {
    match reach.reach(path, how) {
        Ok(target) => Ok(Ok(target)),
        Err(NotReached::Refused(refusal)) => Err(refusal),
        Err(NotReached::Failed(error)) => {
            tally.failed += 1;
            Ok(Err(emit(failure(asked, b"", &error))))
        }
    }
}
