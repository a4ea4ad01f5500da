//! A store in memory: the second one that is complete, and the first that is no file system.
//!
//! Objects are values: a new content is a new object, and whoever has the old one open keeps it. With rules of its own it acts
//! as object stores do: parts in order and of one size, and publishing on the condition that what stands there is what was
//! decided on. Delays and faults come by kind of call and count; with a flaw it breaks one rule on purpose.
//!
//! Invariant: what is staged is no part of the tree, and whatever is published appears under the one lock of the tree.
//! Not here: durability. Nothing survives the process, and a checkpoint only counts as a call.

mod tree;
mod fault;
mod source;
mod sink;
mod lane;
mod large;
mod shelf;
mod stand;

pub use fault::{Call, Flaw};
pub use stand::MemoryStand;

use crate::check::Fault;
use crate::job::{Seen, listing};
use fault::Faults;
use model::{FailureKind, Name, Timestamp};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use store::{Sink, Source};
use tree::{Body, Tree};

/// In which order the bytes of a large object have to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    #[default]
    Any,
    /// As parts of this many bytes, one after another; only the last is shorter. A part that is not full is lost with its
    /// attempt.
    Parts(usize),
}

/// How a store in memory differs from a plain one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    pub order: Order,
    /// An object replaces another only if that is the version that its sink decided on.
    pub is_conditional: bool,
    /// It says that it outlives a power loss, so that jobs wait for groups as they do with a disk.
    pub is_synced: bool,
}

/// A tree in memory. Clones are the same tree.
#[derive(Clone, Default)]
pub struct Memory(Arc<Shared>);

#[derive(Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    pub rules: Rules,
    pub faults: Faults,
    pub flaw: Option<Flaw>,
}

#[derive(Default)]
pub(crate) struct State {
    pub tree: Tree,
    /// Small objects that are sealed, or under way, by number.
    pub staged: HashMap<u64, Vec<u8>>,
    /// Large objects by stem.
    pub uploads: BTreeMap<String, Upload>,
    /// Numbers for whatever needs one.
    pub next: u64,
}

/// A large object in staging.
#[derive(Default)]
pub(crate) struct Upload {
    pub data: Vec<u8>,
    /// Of what comes in parts: bytes in parts that are complete.
    pub in_parts: usize,
    pub journal: Vec<u8>,
    /// An attempt works on it.
    pub is_held: bool,
}

impl State {
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Shared {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }
}

impl Memory {
    pub fn new(rules: Rules) -> Memory {
        Memory::with_flaw(rules, None)
    }

    /// A store that breaks one rule, for tests of the suite.
    pub fn with_flaw(rules: Rules, flaw: Option<Flaw>) -> Memory {
        Memory(Arc::new(Shared { rules, flaw, ..Shared::default() }))
    }

    /// Everything in it.
    pub fn source(&self) -> Arc<dyn Source> {
        Arc::new(source::MemorySource::new(self.0.clone()))
    }

    /// A destination for one job.
    pub fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(sink::MemorySink::new(self.0.clone()))
    }

    /// Puts a file at a path, with the directories that it needs, in place of what is there.
    ///
    /// # Panics
    /// When the path is none, or a file stands on the way.
    pub fn put(&self, path: &str, content: &[u8]) {
        let names = model::name::relative_path(path.as_bytes()).expect("a path of names");
        let (last, above) = names.split_last().expect("a path that names something");
        let mut state = self.0.state();
        let mut at = tree::ROOT;
        for name in above {
            at = match state.tree.child(at, name) {
                Some(below) => below,
                None => state.tree.insert(at, name, Body::Directory(BTreeMap::new()), 0o755, Timestamp::default()),
            };
        }
        let modified = Timestamp { seconds: 1_000_000_000 + state.number() as i64, nanoseconds: 0 };
        state.tree.insert(at, last, Body::File(content.into()), 0o644, modified);
    }

    pub fn remove(&self, name: &Name) {
        self.0.state().tree.remove(tree::ROOT, name);
    }

    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.0.state();
        let names = model::name::relative_path(path.as_bytes()).ok()?;
        let number = names.iter().try_fold(tree::ROOT, |at, name| state.tree.child(at, name))?;
        match &state.tree.object(number)?.body {
            Body::File(content) => Some(content.to_vec()),
            _ => None,
        }
    }

    /// Every path with what is there.
    pub fn listing(&self) -> Result<BTreeMap<Vec<u8>, Seen>, Fault> {
        listing(&*self.source())
    }

    /// What is staged, sealed or uploaded and not published.
    pub fn left(&self) -> Vec<String> {
        let state = self.0.state();
        let staged = state.staged.keys().map(|number| format!("staged object {number}"));
        staged.chain(state.uploads.keys().map(|stem| format!("upload {stem}"))).collect()
    }

    /// Whether an attempt works on a large object.
    pub fn is_held(&self) -> bool {
        self.0.state().uploads.values().any(|upload| upload.is_held)
    }

    /// Lets calls of this kind fail: after so many that work, so many times.
    pub fn fail(&self, call: Call, after: u64, times: u64, kind: FailureKind) {
        self.0.faults.fail(call, after, times, kind);
    }

    /// Delays each call of this kind.
    pub fn delay(&self, call: Call, by: Duration) {
        self.0.faults.delay(call, by);
    }

    /// Calls of this kind so far, those that failed among them.
    pub fn calls(&self, call: Call) -> u64 {
        self.0.faults.calls(call)
    }
}
