//! What every store has to do, as named checks against the traits of `store`; and a store in memory that does it.
//!
//! A store outside this workspace depends on this crate in its tests, describes itself as a [`Stand`], and runs
//!
//! ```text
//! let report = conformance::run(&MyStand);
//! eprintln!("{report}");
//! report.assert_conforms();
//! ```
//!
//! Invariants: a check that does not apply is reported with the ability that the store lacks, and never as passed; a store
//! that panics in a check has failed it. That each check can fail is proved by `tests/flaws.rs`.
//! `coordinators` does the same for the databases that hosts of an endpoint may share.
//! Not here: speed, durability after a power loss (see `trial`), and stores themselves but the one in `memory`.

mod ability;
mod stand;
mod check;
mod job;
mod checks;
pub mod memory;
pub mod coordinators;

pub use ability::Ability;
pub use check::{Check, Fault, Report, Verdict, checks, judge, list, run};
pub use job::Seen;
pub use stand::{Place, Stand, Stocked};
