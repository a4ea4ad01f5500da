//! The service that keeps jobs until they are done: takes them in, gives them as orders to endpoints, remembers what came of them.
//!
//! In reading order:
//! - `hub`: the handle that others hold, with `submission`, `rehearsal`, `scheduling` and `granting`; the interface over HTTP is a
//!   client of it
//! - `job_file`: what a job is; `strict` reads its JSON
//! - `access`, `rule`: who may do what
//! - `owner`: the one thread that has the queue and the database
//! - `intake`: takes jobs in
//! - `dispatch`: gives orders
//! - `courier`: speaks with an endpoint; `crews` has several hosts of one carry a job out
//! - `hearing`: hears of orders
//! - `recurring`: begins what has a schedule
//! - `telling`, `outbox`: tell of jobs, by way of `channels` and `delivery`
//! - `store`: the database, with `database`, `rows`, `schedules` and `audit`
//! - `reader`: answers questions without holding anybody up
//! - `events`, `subscription`: tell of changes
//! - `samples`, `series`: rates
//! - `retention`: forgets
//! - `windows`, `times`, `almanac`: time zones
//! - `figures`, `metrics`: what Prometheus is told
//!
//! Invariants:
//! - The hub owns a job, an endpoint owns its order: what was given goes on without the hub, and the executor's word wins. What several
//!   hosts carry out are orders for parts of it, which the hub hands out one after the other.
//! - A change of a job and the event that tells of it are one transaction; nothing is answered or done before it is durable.
//! - What could not be written down did not happen: the queue is then read back from the database.
//! - One hub has a state directory. Nothing is given to an endpoint before it said what it has of ours.
//! - No content passes through here, and no storage is opened.
//!
//! Not here: who is next (`queue`), HTTP (`api`), what an order does (`daemon`).

mod strict;
mod job_file;
mod channels;
mod delivery;
mod windows;
mod times;
mod almanac;
mod events;
mod database;
mod rows;
mod schedules;
mod audit;
mod retention;
mod store;
mod reader;
mod rule;
mod access;
mod subscription;
mod series;
mod samples;
mod order;
mod refusal;
mod crews;
mod courier;
mod figures;
mod owner;
mod intake;
mod dispatch;
mod hearing;
mod recurring;
mod outbox;
mod telling;
mod hub;
mod submission;
mod rehearsal;
mod scheduling;
mod terms;
mod metrics;
mod granting;
#[cfg(test)]
mod scene;

pub use access::{Access, LIFETIME_MAX, Principal, RuleView, Scope, Scopes, TokenView};
pub use audit::{Head, Verified, Wanted as AuditWanted, verify as verify_audit};
pub use channels::Channels;
pub use daemon::metrics::Page as MetricsPage;
pub use daemon::{Error, private_file};
pub use events::{Event, Missed};
pub use hub::{Hub, Options};
pub use job_file::JobFile;
pub use queue::Verb;
pub use reader::{Counts, EndpointView, FailureView, Filter, JobView, Page};
pub use recurring::ScheduleVerb;
pub use rehearsal::{Predicted, RehearsalView};
pub use retention::Keep;
pub use samples::{Total, Watch};
pub use schedules::{ScheduleFile, ScheduleView};
pub use series::{Point, Series};
pub use strict::parse as parse_json;
pub use submission::{Submitted, Taken};
pub use subscription::Subscription;
pub use terms::{ContractChange, ContractView, ShareView, TermsView};
pub use times::Times;

pub type Result<T> = std::result::Result<T, Error>;

/// Milliseconds since 1970.
fn unix_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
