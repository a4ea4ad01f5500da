//! A decoder of the protocol, written from `docs/protocol.md` and `docs/protocol.proto` and not from the program.
//!
//! Takes the plaintext of the streams of one session in the order of a relay between the two sides, follows both of them,
//! and refuses whatever the specification does not allow: what either side of a recording says is held against it. Shares
//! no code with the program; the hash BLAKE3 is taken as given.
//!
//! A digest that does not match is a refusal too, though the protocol goes on with a `Resend`: in a recording it is damage.
//!
//! Not here: time (a recording has none), and TLS itself (the recorder adds pins and exporter values).

pub mod content;
pub mod crc64;
pub mod frame;
pub mod job;
pub mod object;
pub mod protobuf;
pub mod recording;
pub mod schema;
pub mod session;
pub mod sha256;

pub use object::{Outcome, Published};
pub use recording::Recording;

use session::Session;

/// Where and why a recording was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The number of the event, or none at the end of the recording.
    pub event: Option<usize>,
    pub reason: String,
}

/// Decodes a session and gives its transcript and what it leaves at the receiver.
///
/// `earlier` is what an interrupted session before this one left behind.
pub fn decode(recording: &Recording, earlier: &Outcome) -> Result<(Vec<String>, Outcome), Refusal> {
    let at = |event| move |reason| Refusal { event, reason };
    let mut session = Session::new(recording, earlier).map_err(at(None))?;
    for (number, event) in recording.events.iter().enumerate() {
        session.event(event).map_err(at(Some(number)))?;
    }
    session.finish().map_err(at(None))
}
