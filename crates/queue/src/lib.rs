//! Which job runs next, and what becomes of each: events and time in, actions out.
//!
//! A `Queue` is told of jobs, of what people want of them and of what executors say. It answers with changes, which its owner
//! writes down, and with actions, which its owner carries out once they are written down.
//!
//! In reading order:
//! - `status`: what may follow what
//! - `job`: what is known of one
//! - `queue`: the queue itself
//! - `book`, `pool`: how a million are kept
//! - `submit`: jobs that come in
//! - `steer`, `change`: what people do
//! - `choose`: who is next; `yielding` makes room for what is urgent
//! - `share`: who has had how much
//! - `slots`: what each endpoint and pair carries
//! - `heard`: what executors say
//! - `fault`: what an error leads to
//! - `calendar`: when jobs may run
//! - `timers`: what time does
//! - `schedule`, `firing`: when one begins again
//!
//! Invariants:
//! - A job has at most one executor: another gets it only after the first said that it stopped, or that it does not know it.
//!   No time-out takes its place (I4).
//! - Each change of a job's state is one of `status::may_follow`.
//! - A job that is open can be chosen, or waits for something that has a timer or an event of its own.
//! - What an executor says of another attempt than the one it was last given changes nothing.
//!
//! Not here: clocks, files, sockets, and what a job copies (`hub`).

mod status;
mod job;
mod fault;
mod share;
mod slots;
mod calendar;
mod book;
mod pool;
mod queue;
mod choose;
mod yielding;
mod submit;
mod steer;
mod change;
mod heard;
mod timers;
mod schedule;
mod firing;
#[cfg(test)]
mod tests;

pub use calendar::{Always, Calendar, Now, Opening, Slots};
pub use choose::EndpointState;
pub use fault::{Fault, pause_ms};
pub use firing::Firing;
pub use heard::{Answer, Ended, News};
pub use job::{Claims, Common, Facts, Job, State, Work};
pub use queue::{Action, Limits, Queue};
pub use schedule::Schedule;
pub use slots::Health;
pub use status::{Goal, Reason, Status, Verb, may_follow};
pub use submit::{Refused, Taken};
