//! An endpoint of several hosts: one of them, the head, knows the others and enrols the clients (docs/hosts.md).
//!
//! `book` is what is kept of hosts, `member` what a host does to be one and how it learns who clients are, from the `head` or from a
//! coordinator that all hosts share (`shared`), `known` what a client keeps of the hosts of an endpoint.
//!
//! Invariants:
//! - A host can act for the endpoint's clients as far as the head says, and lets nobody in whom the head does not know.
//! - No byte of a file passes through the head because it is the head.
//!
//! Not here: what the hosts do together (`crew`), and what keeps a late one from publishing (`store::posix::fence`).

pub mod book;
pub mod known;
mod head;
mod member;
mod shared;
#[cfg(test)]
pub(crate) mod watched;

pub use book::{HostBook, Listed};
pub use head::is_member as has_head;
pub(crate) use head::{Attendant, Joined, is_member};
pub use known::Site;
pub(crate) use member::Membership;
pub(crate) use shared::Coordinated;
pub use shared::Shared;
