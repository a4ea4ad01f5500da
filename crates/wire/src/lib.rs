//! The Thalweg protocol as bytes and values: framing, messages, negotiation, and what a peer may say when.
//!
//! `docs/protocol.md` is the specification; sections are cited where they are implemented. Nothing here knows sockets,
//! threads or clocks: bytes and values in, values and bytes out. Everything that comes from a peer is validated here
//! before anything is allocated for it.

pub mod limits;
pub mod frame;
pub mod message;
pub mod bounds;
mod session;
mod objects;
mod inquiry;
mod selection;
pub mod fidelity;
mod pace;
pub mod close;
mod growth;
mod orders;
mod addresses;
pub mod hosts;
mod terms;
pub mod handshake;
pub mod listing;
pub mod files;
pub mod data;
pub mod parcel;
pub mod credit;

pub use close::{CloseCode, Refusal, bounded};
pub use frame::{FrameHeader, FrameReader, FrameType};
pub use message::Message;
