//! What several hosts need of a database that outlives each of them: few small values under names, changed only by whoever saw them
//! last, and leases for what is to end with its owner.
//!
//! Invariants of every engine:
//! - A change is made once or not at all, and its answer is true: where an answer was lost, the engine has read again.
//! - What is read is not older than what was answered before, by whatever member.
//! - Everything is bounded: values by `VALUE_BYTES_MAX`, lists by what the caller allows, waiting by the engine.
//!
//! What they all have to do is checked by `conformance::coordinators`. Not here: what the values mean (`daemon`).

use std::fmt::Debug;

/// More than any record takes; etcd takes requests of 1.5 MiB.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Keys that are read at once.
pub const KEYS_MAX: usize = 64;

pub type Answer<T> = Result<T, Fault>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// Nobody answers, or not in time, or there is no majority. It may work later.
    Silent,
    /// It answers, and does not let this host.
    Refused,
    /// What it answers makes no sense.
    Malformed,
    /// It cannot be asked as it is set up.
    Settings,
}

/// What went wrong, and what to do. Holds no secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    pub kind: FaultKind,
    pub text: String,
    pub advice: String,
}

/// A value as it was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    pub value: Vec<u8>,
    /// Grows with each change.
    pub revision: u64,
    /// The value ends with it.
    pub lease: Option<Lease>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Lease(pub i64);

/// Which history the database tells. After it was restored from a copy, what this host knows of it may never have been.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct History {
    /// 0 until it has answered.
    pub cluster: u64,
    pub revision: u64,
    /// How often it was seen to begin anew or to go back.
    pub turns: u64,
}

pub trait Coordinator: Send + Sync + Debug {
    /// The values of at most `KEYS_MAX` keys at one moment.
    fn get(&self, keys: &[String]) -> Answer<Vec<Option<Held>>>;

    /// The keys that begin so, in order.
    fn list(&self, prefix: &str, most: usize) -> Answer<Vec<String>>;

    /// Puts, replaces or removes a value if it is still as it was seen; false if it is not.
    fn change(&self, key: &str, seen: Option<&Held>, new: Option<&[u8]>, lease: Option<Lease>) -> Answer<bool>;

    fn grant(&self, seconds: u64) -> Answer<Lease>;

    /// False if it is gone, with all that was to end with it.
    fn renew(&self, lease: Lease) -> Answer<bool>;

    /// Until it ends if nobody renews it, and what it was granted for; nothing if it is gone.
    fn left_seconds(&self, lease: Lease) -> Answer<Option<(u64, u64)>>;

    /// Ends it now.
    fn end(&self, lease: Lease) -> Answer<()>;

    fn history(&self) -> History;

    /// Tells what was seen of it by an earlier process.
    fn recall(&self, history: History);
}
