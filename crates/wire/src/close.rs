//! Why one side ends a session or refuses a job: numbered, so that the other side can decide (docs/protocol.md 9).

use crate::limits::TEXT_BYTES_MAX;
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum CloseCode {
    /// Everything asked was done.
    Done = 0,
    /// Bytes that are not this protocol. The peer's fault; do not retry.
    Malformed = 1,
    /// A right message at a wrong time. The peer's fault; do not retry.
    WrongState = 2,
    /// More than was granted. The peer's fault; do not retry.
    Limit = 3,
    /// No common version or a needed feature is missing. Nobody's fault; do not retry.
    Version = 4,
    /// Not known here, or not allowed to do this. Do not retry.
    Authentication = 5,
    /// Too many sessions or streams. Retry later.
    Busy = 6,
    /// The path named does not exist. Do not retry.
    NotFound = 7,
    /// Not allowed by the endpoint's configuration or by its file system. Do not retry.
    Forbidden = 8,
    /// No space at the destination. Retry when there is.
    NoSpace = 9,
    /// This side has a problem of its own. Retry later.
    Internal = 10,
    /// The user stopped it, or this side shuts down. Retry at will.
    Cancelled = 11,
    /// Nothing moved for too long. Retry.
    NoProgress = 12,
    /// As much was sent as the receiver asked for (message 70). Go on at will.
    Reached = 13,
}

impl CloseCode {
    pub const ALL: [CloseCode; 14] = [
        CloseCode::Done,
        CloseCode::Malformed,
        CloseCode::WrongState,
        CloseCode::Limit,
        CloseCode::Version,
        CloseCode::Authentication,
        CloseCode::Busy,
        CloseCode::NotFound,
        CloseCode::Forbidden,
        CloseCode::NoSpace,
        CloseCode::Internal,
        CloseCode::Cancelled,
        CloseCode::NoProgress,
        CloseCode::Reached,
    ];

    /// Unknown codes of a newer peer read as `Internal`: something went wrong there.
    pub fn from_number(number: u32) -> CloseCode {
        Self::ALL.into_iter().find(|c| *c as u32 == number).unwrap_or(CloseCode::Internal)
    }

    pub fn may_retry(self) -> bool {
        matches!(self, CloseCode::Busy | CloseCode::Internal | CloseCode::NoProgress)
    }
}

/// The beginning of a text, as far as one may be long on the wire and in what is kept of a peer's words.
pub fn bounded(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A close that this side decided on, or heard of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub code: CloseCode,
    pub text: String,
}

impl Refusal {
    pub fn new(code: CloseCode, text: &str) -> Refusal {
        Refusal { code, text: bounded(text).to_owned() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text may be a peer's: it must not control the terminal.
        write!(f, "{}", model::name::Escaped(self.text.as_bytes()))
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(bounded("why"), "why");
        let long = format!("{}\u{20ac}", "x".repeat(TEXT_BYTES_MAX - 2));
        assert_eq!(bounded(&long).len(), TEXT_BYTES_MAX - 2);
        assert_eq!(Refusal::new(CloseCode::Internal, &"x".repeat(5000)).text.len(), TEXT_BYTES_MAX);
    }
}
