//! An endpoint that has nothing of its own: named sets are fetched from its origins when they are asked for, once for all who ask, and
//! served chunk by chunk while they come.
//!
//! `origins` knows the sets, `hold` the files that are here, `shelf` is the account of both, `source` and `sink` are the two ends that
//! transfers see, `upstream` fetches.
//!
//! Invariants:
//! - A set goes to those alone whom its note names, whatever else is in the cache.
//! - Content is kept under its digest, and compared with it whenever it is read. That of a set with readers of its own is no other set's.
//! - What a set's readers are is looked up again while they read.
//!
//! Not here: who is a client and what its ticket reaches (`host`).

mod hold;
mod origins;
mod shelf;
mod sink;
mod source;
mod upstream;

use crate::endpoints::Endpoint;
use crate::error::{Error, Result};
use hold::{Hold, OfSet};
use model::set::{DIRECTORY, Readers};
use model::{Exit, Name, Pin, Selection};
use net::Identity;
use origins::Origins;
use source::CachedSet;
use std::path::Path;
use std::sync::Arc;
use store::Source;
use store::open::OpenSource;
use store::posix::{PosixSource, beneath};

/// What is said to questions about files.
pub const ONLY_SETS: &str = "this endpoint is a cache of sets; `thalweg fetch NAME DIR --from` it brings one";

/// What an endpoint is asked to be a cache of.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    pub origins: Vec<Endpoint>,
    /// Of the files that are kept.
    pub size_bytes: u64,
}

pub struct Cache {
    hold: Arc<Hold>,
    origins: Arc<Origins>,
}

/// What a path at a cache means.
struct Asked {
    set: String,
    /// The set's own note and catalogue, and not its files.
    is_own: bool,
}

impl Cache {
    /// Opens what was kept below `root`. Its origins know it by `identity`; what it knows of sets lies below `state`.
    pub fn open(root: &Path, options: &CacheOptions, identity: &Identity, state: &Path) -> Result<Cache> {
        let hold = Hold::open(root, options.size_bytes)?;
        let origins = Arc::new(Origins::new(options.origins.clone(), identity.clone(), state));
        upstream::start(&hold, &origins)?;
        Ok(Cache { hold, origins })
    }

    /// Whoever waits for content hears that there is no more.
    pub fn end(&self) {
        self.hold.end();
    }

    /// Whether somebody may fetch a set, as far as it is known; has it looked up again where that was long ago.
    pub fn check(&self, reader: Option<Pin>, names: &[Name]) -> Result<()> {
        let asked = asked(names)?;
        self.origins.refresh(&asked.set, self.hold.is_over());
        let kept = self.origins.found(&asked.set)?;
        let note = kept.map(|kept| kept.note()).transpose()?.flatten();
        note.map_or(Ok(()), |(_, note)| admit(&note.name, &note.readers, reader))
    }

    /// A set, or what its publisher signed of it.
    pub fn source(&self, reader: Option<Pin>, names: &[Name], selection: &Arc<Selection>) -> Result<OpenSource> {
        let asked = asked(names)?;
        let set = self.origins.set(&asked.set, self.hold.is_over())?;
        admit(&set.0.note.name, &set.0.note.readers, reader)?;
        let source = if asked.is_own { self.own(&asked.set, selection)? } else { self.files(set, selection) };
        Ok(OpenSource { source, is_single: false })
    }

    fn files(&self, set: OfSet, selection: &Selection) -> Arc<dyn Source> {
        Arc::new(CachedSet::new(self.hold.clone(), set, selection))
    }

    fn own(&self, set: &str, selection: &Arc<Selection>) -> Result<Arc<dyn Source>> {
        let path = self.origins.kept(set)?.path().clone();
        let failed = |e| Error::of_file("open", &path, e);
        let mut source = PosixSource::new();
        source.add_contents_of(beneath::open_directory(&path).map_err(failed)?).map_err(failed)?;
        source.select(selection.clone());
        Ok(Arc::new(source))
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.end();
    }
}

fn asked(names: &[Name]) -> Result<Asked> {
    let at = names.iter().position(|name| name.as_bytes() == DIRECTORY.as_bytes());
    let of_set = &names[..at.unwrap_or(names.len())];
    let set = String::from_utf8(model::name::join(of_set)).ok().filter(|set| model::set::is_name(set));
    let is_own = at.is_some();
    match set {
        Some(set) if at.is_none_or(|at| at + 1 == names.len()) => Ok(Asked { set, is_own }),
        _ => Err(Error::new(Exit::Refused, ONLY_SETS)),
    }
}

fn admit(set: &str, readers: &Readers, reader: Option<Pin>) -> Result<()> {
    if *readers == Readers::Public || reader.is_some_and(|pin| readers.admit(pin)) || model::mutant::is_on("any-reader")
    {
        return Ok(());
    }
    let who = reader.map_or_else(String::new, |pin| format!(", by its key {pin}"));
    let text = format!(
        "this client is not one of the readers of the set {set}; its publisher can let it in with \
         `thalweg publish --readers`{who}"
    );
    Err(Error::new(Exit::Refused, text))
}

#[cfg(test)]
mod tests;
