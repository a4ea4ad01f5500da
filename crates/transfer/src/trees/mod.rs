//! What is done with trees beside copying them: comparing two, and removing from one what the other has.
//!
//! Both only ask questions (`model::files`) of whatever has the trees, so that they are the same on this host, at endpoints, and for
//! an endpoint that works in a client's name.
//!
//! Not here: answering (`mover::files`), copying, and showing what is found.

mod compare;
mod moved;

use crate::error::Result;
pub use compare::{Met, compare};
use model::DigestAlgorithm;
use model::files::{FileKind, Found, Question, Record, SumAlgorithm, Tally};
use model::selection::Selection;
pub use moved::{Delivery, PATHS_AT_ONCE, Stayed};

/// Whatever has files that can be asked about.
pub trait Answers: Sync {
    /// Asks, and hands over what is answered; `each` returns false when it has enough.
    ///
    /// # Errors
    /// Where it is not answered, or not to its end.
    fn ask(&self, question: &Question, each: &mut dyn FnMut(Record) -> bool) -> Result<Tally>;
}

/// A path of something that answers, and what is below it.
#[derive(Clone, Copy)]
pub struct Tree<'a> {
    pub at: &'a dyn Answers,
    pub path: &'a [u8],
}

impl Tree<'_> {
    pub fn below(&self, path: &[u8]) -> Vec<u8> {
        join(self.path, path)
    }
}

/// What is chosen of listings. A path is looked at as `cp` gives it to an object at its destination: it begins with the name of what
/// was named, unless its contents were.
#[derive(Clone, Copy)]
pub struct Chosen<'a> {
    pub selection: &'a Selection,
    pub is_everything: bool,
    /// What stands before the paths of the listing.
    pub prefix: &'a [u8],
}

impl Chosen<'_> {
    /// A directory that was named is always looked into, and what failed is told whatever is chosen.
    pub fn takes(&self, record: &Record) -> bool {
        let Found::Object { status, .. } = &record.found else { return true };
        if self.is_everything || record.path.is_empty() && status.is_directory() {
            return true;
        }
        let file = (status.kind == FileKind::File).then_some((status.size_bytes, status.modified.seconds));
        self.selection.takes(&join(self.prefix, &record.path), status.is_directory(), file)
    }
}

pub fn join(base: &[u8], path: &[u8]) -> Vec<u8> {
    let separator: &[u8] = if base.is_empty() || path.is_empty() || base.ends_with(b"/") { b"" } else { b"/" };
    [base, separator, path].concat()
}

/// A path without the slashes behind it; `/` stays.
pub fn without_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(path.len().min(1), |at| at + 1);
    &path[..end]
}

/// The last name of a path, if it has one.
pub fn name_of(path: &[u8]) -> Option<&[u8]> {
    let name = without_slashes(path).rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    (!matches!(name, b"" | b"." | b"..")).then_some(name)
}

/// The digest of a transfer as one of lists.
pub fn sum_of(digest: DigestAlgorithm) -> SumAlgorithm {
    match digest {
        DigestAlgorithm::Crc64Nvme => SumAlgorithm::Crc64Nvme,
        DigestAlgorithm::Blake3 => SumAlgorithm::Blake3,
    }
}

/// Whether a path leads to a directory.
pub fn is_directory(tree: Tree<'_>) -> Result<bool> {
    let path = match tree.path {
        b"" => Vec::new(),
        path if path.ends_with(b"/") => path.to_vec(),
        path => [path, b"/"].concat(),
    };
    let question = Question::List { paths: vec![path], levels: 0, digest: None };
    let mut is_directory = false;
    tree.at.ask(&question, &mut |record| {
        is_directory |= matches!(&record.found, Found::Object { status, .. } if status.is_directory());
        true
    })?;
    Ok(is_directory)
}
