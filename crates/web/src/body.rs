//! The body of an answer: how its end is known, and what is left of it.

use crate::connection::{Connection, HEADERS_MAX, Head};
use crate::error::Result;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    /// So many bytes are left.
    Length(u64),
    /// So many are left of the chunk under way; with 0 the next one's length follows.
    Chunked {
        left: u64,
        is_first: bool,
    },
    /// Everything until the connection ends.
    ToClose,
    Ended,
}

impl Body {
    pub fn of(method: &str, head: &Head, connection: &Connection) -> Result<Body> {
        if method == "HEAD" || head.status == 204 || head.status == 304 {
            return Ok(Body::Ended);
        }
        let value = |name| head.headers.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.trim());
        if let Some(coding) = value("transfer-encoding").next_back() {
            return match coding.eq_ignore_ascii_case("chunked") {
                true => Ok(Body::Chunked { left: 0, is_first: true }),
                false => Err(connection.malformed("its answer comes in a transfer coding that is not known")),
            };
        }
        let mut lengths = value("content-length");
        match lengths.next() {
            None => Ok(Body::ToClose),
            Some(length) if lengths.any(|other| other != length) => {
                Err(connection.malformed("its answer has two lengths"))
            }
            Some(length) => match length.parse() {
                Ok(0) => Ok(Body::Ended),
                Ok(length) if length.to_string().len() == length_digits(value("content-length").next()) => {
                    Ok(Body::Length(length))
                }
                _ => Err(connection.malformed("the length of its answer is no number")),
            },
        }
    }

    /// Reads some of it; 0 at its end alone.
    pub fn read(&mut self, connection: &mut Connection, buffer: &mut [u8]) -> Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if let Body::Chunked { left: 0, is_first } = *self {
            *self = next_chunk(connection, is_first)?;
        }
        let left = match *self {
            Body::Ended => return Ok(0),
            Body::Length(left) | Body::Chunked { left, .. } => left,
            Body::ToClose => u64::MAX,
        };
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = connection.read(&mut buffer[..wanted])?;
        match (*self, read) {
            (Body::ToClose, 0) => *self = Body::Ended,
            (Body::ToClose, _) => {}
            (_, 0) => return Err(connection.lost()),
            (Body::Chunked { .. }, _) => *self = Body::Chunked { left: left - read as u64, is_first: false },
            _ if left == read as u64 => *self = Body::Ended,
            _ => *self = Body::Length(left - read as u64),
        }
        Ok(read)
    }
}

fn length_digits(text: Option<&str>) -> usize {
    text.map_or(0, |text| text.trim_start_matches('0').len())
}

/// The chunk behind the one that was read; the end of the body with all that follows it.
fn next_chunk(connection: &mut Connection, is_first: bool) -> Result<Body> {
    if !is_first && !connection.line()?.is_empty() {
        return Err(connection.malformed("a chunk of its answer is longer than it says"));
    }
    let line = connection.line()?;
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let digits = std::str::from_utf8(digits).ok().filter(|text| text.len() <= 16 && !text.starts_with('+'));
    let length = digits.and_then(|text| u64::from_str_radix(text, 16).ok());
    match length {
        None => Err(connection.malformed("the length of a chunk of its answer is no number")),
        Some(0) => {
            for _ in 0..HEADERS_MAX {
                if connection.line()?.is_empty() {
                    return Ok(Body::Ended);
                }
            }
            Err(connection.malformed("its answer ends in more headers than any does"))
        }
        Some(left) => Ok(Body::Chunked { left, is_first: false }),
    }
}
