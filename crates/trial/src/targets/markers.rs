//! Markers of a copy between two WebDAV servers: what they come to depends on their lines and not on where they are cut, the
//! last word on the end counts, and a line without end is given up.

use super::bytes::Bytes;
use dav::said::{MARKER_BYTES_MAX, Markers};

/// Of a failure, as it is shown.
const TEXT_CHARACTERS_MAX: usize = 200;

pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let piece = usize::from(bytes.u8()) + 1;
    let said = bytes.rest();
    let whole = heard(said, said.len().max(1));
    assert_eq!(heard(said, piece), whole, "what markers come to depends on where they are cut");
    assert_eq!(whole.is_ok(), is_done(said), "markers come to {whole:?}");
    if let Err(text) = whole {
        assert!(text.chars().count() <= TEXT_CHARACTERS_MAX && text.chars().all(|c| !c.is_control()), "{text:?}");
    }
}

/// What markers come to that arrive in such pieces.
fn heard(said: &[u8], piece: usize) -> Result<(), String> {
    let mut markers = Markers::default();
    for piece in said.chunks(piece) {
        markers.take(piece).map_err(|failure| failure.to_string())?;
    }
    markers.end().map_err(|failure| failure.to_string())
}

/// Whether the last line that tells of the end tells of a success, or none does.
fn is_done(said: &[u8]) -> bool {
    let lines = || said.split(|byte| *byte == b'\n');
    let end = |line: &[u8]| {
        let line = String::from_utf8_lossy(line).trim().to_ascii_lowercase();
        let words = [("success", true), ("failure", false), ("failed", false), ("aborted", false)];
        words.into_iter().find(|(word, _)| line.starts_with(word)).map(|(_, is_good)| is_good)
    };
    lines().all(|line| line.len() <= MARKER_BYTES_MAX) && lines().rev().find_map(end).unwrap_or(true)
}
