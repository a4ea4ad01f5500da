//! What a server does that keeps files in directories under paths, whatever protocol it speaks.
//!
//! Not here: how it is reached, and what a store makes of it (`source`, `sink`, `shelf`).

use super::attributes::Attributes;
use super::held::Small;
use model::Name;
use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex};
use store::{Directories, Seen, SinkFacts, SourceFile, SourceLane};

/// Names of one directory.
pub const NAMES_MAX: usize = 2_000_000;
/// Names that are none are told of, the first of them.
pub const ODD_MAX: usize = 100;
/// A server could go on for ever.
pub const DEPTH_MAX: usize = 256;
/// Requests of one kind that are under way at once.
pub const WIDTH: usize = 64;

pub struct Child {
    pub name: Name,
    pub attributes: Attributes,
    /// Of a link, where it was asked for.
    pub target: Vec<u8>,
}

#[derive(Default)]
pub struct Children {
    pub found: Vec<Child>,
    /// What is no name, and why.
    pub odd: Vec<String>,
}

impl Children {
    /// Keeps a name, if it is one, and is not of our own staging.
    pub fn add(&mut self, bytes: &[u8], attributes: Attributes, target: Vec<u8>) {
        match Name::new(bytes) {
            _ if matches!(bytes, b"." | b"..") || bytes.starts_with(store::STAGING_PREFIX) => {}
            Ok(name) => self.found.push(Child { name, attributes, target }),
            Err(why) if self.odd.len() < ODD_MAX => {
                let shown = shown(&bytes[..bytes.len().min(100)]);
                self.odd.push(format!("the server lists {shown:?}, which is no file name: {why}"));
            }
            Err(_) => {}
        }
    }

    /// Puts the names in their order, and leaves each there once.
    pub fn sort(&mut self) {
        self.found.sort_by(|a, b| a.name.cmp(&b.name));
        let count = self.found.len();
        self.found.dedup_by(|a, b| a.name == b.name);
        if self.found.len() < count {
            self.odd.push("a name stands in the directory twice".to_owned());
        }
    }
}

/// Why a request came to nothing.
pub trait Faulty: Clone + Send {
    fn on(&self, operation: &'static str, subject: &[u8]) -> store::Error;
    fn is_absent(&self) -> bool;
    /// The conversation is over.
    fn is_lost(&self) -> bool;
    /// The server goes beyond a bound.
    fn beyond(why: &'static str) -> Self;
}

/// A staged file that is to get a name.
pub struct Rename<'a> {
    pub from: &'a [u8],
    pub to: &'a [u8],
    /// Whatever has the name is replaced in the same step.
    pub is_over: bool,
}

pub type Asked<T, R> = std::result::Result<T, <R as Remote>::Fault>;

pub trait Remote: Send + Sync + Sized + 'static {
    type Fault: Faulty;

    /// Of the protocol, for messages.
    const PROTOCOL: &'static str;
    /// What names of staged files begin with.
    const STAGED_PREFIX: &'static str;
    /// Why nothing can be replaced where `replaces` says so.
    const NO_REPLACING: &'static str;

    fn name(&self) -> &str;
    fn attempts(&self) -> &Attempts;

    /// What stands at a path; of a link, the link itself.
    fn look(&self, path: &[u8]) -> Asked<Attributes, Self>;
    /// As `look`, behind links.
    fn look_behind(&self, path: &[u8]) -> Asked<Attributes, Self>;
    fn look_all(&self, paths: &[Vec<u8>]) -> Vec<Asked<Attributes, Self>>;
    fn link_target(&self, path: &[u8]) -> Asked<Vec<u8>, Self>;
    fn children(&self, path: &[u8], with_targets: bool) -> Asked<Children, Self>;

    fn make(&self, path: &[u8]) -> Asked<(), Self>;
    fn make_link(&self, target: &[u8], path: &[u8]) -> Asked<(), Self>;
    fn remove_all(&self, paths: &[Vec<u8>]) -> Vec<Asked<(), Self>>;
    fn remove_directory(&self, path: &[u8]) -> Asked<(), Self>;
    /// Gives names, all at once as far as that goes.
    fn rename_all(&self, renames: &[Rename<'_>]) -> Vec<Asked<(), Self>>;
    /// It can give a name that something has in one step.
    fn replaces(&self) -> Asked<bool, Self>;
    /// Whatever `attributes` tell.
    fn set(&self, path: &[u8], attributes: &Attributes) -> Asked<(), Self>;

    fn open(self: &Arc<Self>, path: Vec<u8>) -> store::Result<Arc<dyn SourceFile>>;
    fn lane(self: &Arc<Self>, directories: Arc<Directories>) -> Box<dyn SourceLane>;

    /// Reads a file of so many bytes from its start to its end. More are an error, or told of: a server could go on for ever.
    fn read_all(self: &Arc<Self>, path: &[u8], bytes_max: u64, each: &mut dyn FnMut(&[u8])) -> store::Result<()>;

    fn facts(&self, root: &[u8]) -> store::Result<SinkFacts>;
    /// What whoever reads the result has to know of the way that content took.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
    /// What the protocol tells of the server, for whoever asks what it is good for.
    fn seen(&self) -> Vec<Seen>;
    /// Small files that are decided on, sent and published together: over distance each group costs the same, however many are in it.
    fn group_files(&self) -> usize {
        WIDTH
    }
    /// Sends what was not sent of some small files; with `sync` they lie safely there afterwards. What fails singly is kept in them.
    ///
    /// # Errors
    /// When nothing can be sent any more.
    fn send(self: &Arc<Self>, group: &mut [(u64, Small)], sync: bool) -> store::Result<()>;
    /// Makes names durable, as far as one file that has got its name can stand for all.
    fn sync_names(&self, newest: &[u8]) -> store::Result<()>;

    fn remove(&self, path: &[u8]) -> Asked<(), Self> {
        self.remove_all(&[path.to_vec()]).remove(0)
    }

    /// As `look`; nothing where nothing is.
    fn find(&self, path: &[u8]) -> Asked<Option<Attributes>, Self> {
        absent(self.look(path))
    }
}

/// The stems that attempts of this process have at a server.
pub struct Attempts {
    /// Part of the names of what this process stages there.
    pub mark: String,
    held: Mutex<HashSet<String>>,
}

impl Default for Attempts {
    fn default() -> Attempts {
        let mark = format!("{:016x}", RandomState::new().build_hasher().finish());
        Attempts { mark, held: Mutex::default() }
    }
}

impl Attempts {
    /// Takes a stem for one attempt; false where another has it.
    pub fn hold(&self, stem: &str) -> bool {
        self.held.lock().unwrap().insert(stem.to_owned())
    }

    pub fn release(&self, stem: &str) {
        self.held.lock().unwrap().remove(stem);
    }
}

pub fn absent<T, F: Faulty>(found: Result<T, F>) -> Result<Option<T>, F> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(fault) if fault.is_absent() => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// A path below a directory.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}

/// A path for an error, so that it cannot control a terminal.
pub fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().filter(|c| !model::name::is_unsafe(*c)).collect()
}
