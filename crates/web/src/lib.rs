//! A blocking HTTP/1.1 client: connections that are kept, TLS by the host's roots or one pinned key, bounds on all that a server sends.
//!
//! A `Client` speaks to one origin. A request's body is in memory, or sent by the caller piece by piece (`Upload`); a response's
//! body is read by the caller, from the socket into the caller's memory. Whoever waits can be told to stop (`Stop`).
//!
//! Invariants: no time is set for a body, only for progress (`PROGRESS_MAX`), unless the caller sets one (`Client::until`) or this
//! process is to stop; a head is at most `HEAD_BYTES_MAX` long; a certificate is always checked; no redirect is followed, so that
//! nothing that proves who asks goes to another host.
//! Not here: retries, signatures, and what a status means.

pub mod date;
pub mod xml;
mod error;
mod origin;
mod trust;
mod stop;
mod connection;
mod body;
mod client;
mod upload;
mod width;
mod crew;

pub use client::{Client, Request, Response};
pub use connection::{CONNECT_MAX, HEAD_BYTES_MAX, PROGRESS_MAX};
pub use crew::Crew;
pub use error::{Error, ErrorKind, Result};
pub use origin::Origin;
pub use stop::Stop;
pub use trust::Trust;
pub use upload::{Begun, Upload};
pub use width::{WIDTH, each_in_parallel, in_parallel};
