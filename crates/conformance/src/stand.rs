//! How a store presents itself to the suite.

use crate::Ability;
use crate::check::Fault;
use crate::job::{self, Seen};
use model::{FailureKind, Name, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Error, How, Shelf, Sink, Source};

/// A kind of store, of which each check gets a place of its own.
pub trait Stand: Sync {
    fn name(&self) -> String;

    /// What the store cannot do. It has to do all else.
    fn lacks(&self) -> &[Ability];

    /// A new and empty place.
    fn place(&self) -> Box<dyn Place>;
}

/// A source, and what it has to list: paths with what is there.
pub struct Stocked {
    pub source: Arc<dyn Source>,
    pub objects: BTreeMap<Vec<u8>, Seen>,
}

/// An empty tree for one check. What a store lacks need not be there.
pub trait Place: Send + Sync {
    /// The place as a destination. Each is an attempt of its own, and several are there at once.
    fn sink(&self) -> Option<Arc<dyn Sink>> {
        None
    }

    /// All that is published.
    fn source(&self) -> Option<Arc<dyn Source>> {
        None
    }

    /// A source with something in it. `with_links`: symbolic links as well.
    fn stocked(&self, with_links: bool) -> Result<Stocked, Fault> {
        job::stock(self, with_links)
    }

    /// The file at a path, read by the store's own means or by others; `None` where there is none.
    fn content(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let source = self.source().ok_or_else(|| Fault::new("the place has no source, and no content of its own"))?;
        Ok(job::listing(&*source)?.remove(path).and_then(Seen::into_content))
    }

    /// What a path from the root of the place leads to; the empty one leads to the root itself.
    fn shelf(&self, path: &[u8], how: How) -> store::Result<Box<dyn Shelf>> {
        let _ = how;
        Err(Error::of_kind(
            FailureKind::Other,
            "open",
            path,
            "the place has no shelf, though its stand does not lack one",
        ))
    }

    /// Whether the store has a way to say this name at all. One that it cannot say it has to refuse.
    fn can_say(&self, name: &Name) -> bool {
        let _ = name;
        true
    }

    /// A time as the store keeps it: whole, or without what it has no room for.
    fn kept(&self, time: Timestamp) -> Timestamp {
        time
    }

    /// Puts a file at the top of the place, as a program that knows nothing of the store. It replaces what is there.
    fn put(&self, name: &Name, content: &[u8]) {
        let _ = (name, content);
    }

    /// Removes what has a name at the top of the place, as another program.
    fn remove(&self, name: &Name) {
        let _ = name;
    }

    /// What the place holds beside what is published: staging, journals, uploads.
    fn left(&self) -> Vec<String> {
        Vec::new()
    }
}
