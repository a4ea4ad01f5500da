//! The race: every set, every tool, in alternation, verified, sampled.
//!
//! Invariants:
//! - Tools alternate within a round, and every second round reverses their order: neither a slow drift of the machine nor
//!   what the run before left in caches favours one of them.
//! - Before every run the memory that the delivery needs is touched and given back; the delivery's folder is fresh.
//! - The first round is discarded. A sample counts only if the client succeeded and every digest of the delivery agrees.
//! - What a killed race left behind, processes included, is removed before the next begins.
//! - A tool that is missing or that fails `FAILURES_MAX` times in a row is left out and named; the rest goes on.

mod journal;
pub(crate) mod race;
pub(crate) mod record;
pub(crate) mod run;

pub use crate::workspace::Pauses;
pub(crate) use journal::is_unfinished;
pub use race::run;
pub(crate) use race::{enlist, shown_file_system};
pub use record::{Report, SetRecord, ToolRecord};

use std::path::PathBuf;
use std::time::Duration;

use lab::scenario::Scenario;
use serde::Serialize;

use crate::tool::{self, Variant};
use crate::{dataset, image};

/// Which way the sets go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// From the client's host to the server's.
    Put,
    /// Back: from what the first tool of the race has put there.
    Fetch,
}

pub const SETS_DEFAULT: [&str; 3] = ["large", "small", "tiny"];
pub const ROUNDS_DEFAULT: u32 = 5;

#[derive(Clone, Debug)]
pub struct Options {
    /// Names or specifications of `dataset`.
    pub sets: Vec<String>,
    /// Builds or settings of our program; may be empty.
    pub variants: Vec<Variant>,
    /// Of `tool::RIVALS`.
    pub rivals: Vec<String>,
    /// Files that describe more rivals.
    pub adapters: Vec<PathBuf>,
    /// The server of a store, of `tool::STORES`, is the far end, in place of each tool's own; `rivals` are those that know it.
    pub store: Option<String>,
    pub ways: Vec<Way>,
    /// Go on with the race that was interrupted with the same `out`.
    pub is_resumed: bool,
    /// Counted rounds; one more is run and discarded.
    pub rounds: u32,
    /// A client that takes longer is killed.
    pub limit: Duration,
    /// What lies between the two hosts; `direct` if `None`.
    pub scenario: Option<Scenario>,
    /// Also measure the network and the file system alone.
    pub with_ceilings: bool,
    /// Where the report goes, after every set; nowhere if `None`.
    pub out: Option<PathBuf>,
    /// Where data sets and deliveries lie; a tmpfs if `None`.
    pub work_dir: Option<PathBuf>,
    /// Every run delivers to a new file system of this kind in place of the working directory's.
    pub image: Option<image::Options>,
    pub pauses: Pauses,
    pub seed: u64,
    /// The command line that repeats this race, for the report.
    pub regenerate: String,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            sets: SETS_DEFAULT.map(str::to_owned).to_vec(),
            variants: Vec::new(),
            rivals: tool::RIVALS_DEFAULT.map(str::to_owned).to_vec(),
            adapters: Vec::new(),
            store: None,
            ways: vec![Way::Put],
            is_resumed: false,
            rounds: ROUNDS_DEFAULT,
            limit: Duration::from_secs(120),
            scenario: None,
            with_ceilings: true,
            out: None,
            work_dir: None,
            image: None,
            pauses: Pauses::default(),
            seed: dataset::SEED_DEFAULT,
            regenerate: String::new(),
        }
    }
}
