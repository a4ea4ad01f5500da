//! etcd as the coordinator of an endpoint's hosts, through its JSON gateway over HTTP/1.1 (`/v3/kv/range`, `/v3/kv/txn`, `/v3/lease/...`,
//! `/v3/auth/authenticate`), as etcd 3.4 and later have it.
//!
//! `gateway` asks one member after the other and knows users; `answer` takes apart what they say; `engine` is the coordinator.
//!
//! Invariants:
//! - Nothing waits for longer than `PATIENCE`, and no answer is longer than `ANSWER_BYTES_MAX`.
//! - What was lost on the way counts neither as done nor as not done: the value is read again.
//! - A password goes over TLS or stays on this host; it is in no error and no `Debug` output.
//!
//! Not here: what the values mean (`daemon`), and watching: hosts ask every few seconds.

mod answer;
mod gateway;
mod engine;

pub use engine::Etcd;
pub use gateway::{Config, PATIENCE};
