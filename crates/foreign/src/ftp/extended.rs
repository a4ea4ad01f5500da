//! MODE E (GFD.20): blocks that say where they belong, over several data connections that stay open from file to file.
//!
//! Invariants:
//! - A file counts as sent when every connection that carried a block of it has said that it ends, and the server that it
//!   has all.
//! - Of a file that comes no more is held than it may have.

use super::fault::{Fault, Result};
use super::line::PATIENCE;
use super::server::Lease;
use super::session::command;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The sender ends on this connection, for this file.
const END_OF_DATA: u8 = 8;
/// The count of connections that end stands in place of the offset.
const END_OF_FILE: u8 = 64;
const HEAD_BYTES: usize = 17;
/// Data connections of a large file.
pub const CHANNELS: usize = 4;

/// What stands before a block.
pub fn head(descriptor: u8, count: u64, offset: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[0] = descriptor;
    head[1..9].copy_from_slice(&count.to_be_bytes());
    head[9..].copy_from_slice(&offset.to_be_bytes());
    head
}

/// Writes to a data connection. A server that can take no more says so on its control connection and just stops to read: whoever is held
/// up looks there.
pub fn write(channel: &mut TcpStream, mut bytes: &[u8], look: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let lost = |e: &std::io::Error| Fault::Lost(format!("the data connection was lost: {e}").into());
    let mut since = Instant::now();
    while !bytes.is_empty() {
        match channel.write(bytes) {
            Ok(count) => {
                bytes = &bytes[count..];
                since = Instant::now();
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => {
                look()?;
                let is_held_up = matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                if !is_held_up || since.elapsed() > PATIENCE {
                    return Err(lost(&e));
                }
            }
        }
    }
    Ok(())
}

/// A small file as one block, with its end.
pub fn whole(bytes: &[u8]) -> Vec<u8> {
    let end = head(END_OF_FILE | END_OF_DATA, 0, 1);
    match bytes.is_empty() {
        true => end.to_vec(),
        false => [&head(0, bytes.len() as u64, 0), bytes, &end].concat(),
    }
}

/// A file of no more bytes than this, on the one connection that it comes on: blocks in their order, and its end.
pub fn read(channel: &mut impl Read, bytes_max: usize) -> Result<Vec<u8>> {
    let lost = |e: std::io::Error| Fault::Lost(format!("the data connection was lost: {e}").into());
    let (mut bytes, mut ends) = (Vec::new(), 0);
    while ends != END_OF_DATA | END_OF_FILE {
        let mut head = [0; HEAD_BYTES];
        channel.read_exact(&mut head).map_err(lost)?;
        let number = |at: usize| head[at..at + 8].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let (descriptor, count, offset) = (head[0], number(1), number(9));
        let room = (bytes_max - bytes.len()) as u64;
        let fits = match descriptor & END_OF_FILE {
            0 => offset == bytes.len() as u64 && count <= room,
            _ => (count, offset) == (0, 1),
        };
        // Each of them brings content or an end, so that they end.
        let is_idle = descriptor == 0 && count == 0 || descriptor & ends != 0;
        if !fits || is_idle || descriptor & !(END_OF_DATA | END_OF_FILE) != 0 {
            return Err(Fault::Malformed("its blocks are not those of the file, one behind another"));
        }
        let start = bytes.len();
        bytes.resize(start + count as usize, 0);
        channel.read_exact(&mut bytes[start..]).map_err(lost)?;
        ends |= descriptor;
    }
    Ok(bytes)
}

/// A large file on its way. Any thread writes any part of it.
pub struct Stripes {
    lease: Mutex<Lease>,
    channels: Vec<Mutex<TcpStream>>,
    next: AtomicUsize,
}

impl Stripes {
    /// Begins to send to a path. What is there is kept if it `is_continued`.
    pub fn begin(mut lease: Lease, path: &[u8], is_continued: bool) -> Result<Stripes> {
        let store = if is_continued { "ESTO A 0" } else { "STOR" };
        lease.line.send(&[command(store, path)])?;
        lease.begun()?;
        let channels = std::mem::take(&mut lease.channels).into_iter().map(Mutex::new).collect();
        Ok(Stripes { lease: Mutex::new(lease), channels, next: AtomicUsize::new(0) })
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let first = self.next.fetch_add(1, Relaxed);
        let count = self.channels.len();
        let free = (0..count).find_map(|step| self.channels[(first + step) % count].try_lock().ok());
        let mut channel = match free {
            Some(free) => free,
            None => self.channels[first % count].lock().unwrap_or_else(PoisonError::into_inner),
        };
        let head = head(0, bytes.len() as u64, offset);
        let lease = || self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        let written =
            [&head[..], bytes].iter().try_for_each(|part| write(&mut channel, part, &mut || lease().not_early()));
        written.inspect_err(|_| lease().line.is_lost = true)
    }

    /// All is written: says so on each connection, and hears that the server has it.
    pub fn end(self) -> Result<()> {
        let mut lease = self.lease.into_inner().unwrap_or_else(PoisonError::into_inner);
        let channels = self.channels.into_iter().map(|one| one.into_inner().unwrap_or_else(PoisonError::into_inner));
        let mut channels: Vec<TcpStream> = channels.collect();
        lease.not_early()?;
        let count = channels.len() as u64;
        for (number, channel) in channels.iter_mut().enumerate() {
            let last = number + 1 == count as usize;
            let end = if last { head(END_OF_FILE | END_OF_DATA, 0, count) } else { head(END_OF_DATA, 0, 0) };
            channel.write_all(&end).map_err(|e| lease.line.lose(&format!("the data connection was lost: {e}")))?;
        }
        match lease.ended() {
            Ok(()) => {
                lease.channels = channels;
                Ok(())
            }
            Err(fault) => {
                // What is left on the connections belongs to nothing.
                lease.line.is_lost = true;
                Err(fault)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_the_bytes_of_the_specification() {
        assert_eq!(head(8, 3, 0x0102), [8, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 1, 2]);
        let sent = whole(b"abc");
        assert_eq!((sent.len(), &sent[17..20], sent[20], sent[36]), (37, &b"abc"[..], 72, 1));
        assert_eq!(whole(b""), head(72, 0, 1));
    }

    #[test]
    fn what_is_sent_is_read_and_nothing_else_is() {
        let abc = [&head(0, 2, 0)[..], b"ab", &head(8, 1, 2), b"c", &head(64, 0, 1)].concat();
        let read = |mut sent: &[u8], bytes_max| read(&mut sent, bytes_max);
        for (sent, content) in [(&abc, &b"abc"[..]), (&whole(b"abc"), &b"abc"[..]), (&whole(b""), &b""[..])] {
            assert_eq!(read(sent, 3).unwrap(), content);
        }
        assert!(matches!(read(&abc[..abc.len() - 1], 3), Err(Fault::Lost(_))));
        let malformed = |sent: &[u8]| matches!(read(sent, 3), Err(Fault::Malformed(_)));
        assert!(malformed(&whole(b"abcd")), "longer than it may be");
        assert!(malformed(&head(0, u64::MAX, 0)) && malformed(&head(0, 1, 1)), "elsewhere");
        assert!(malformed(&head(0, 0, 0)) && malformed(&[head(8, 0, 0), head(8, 0, 0)].concat()), "without an end");
        assert!(malformed(&head(72, 0, 2)) && malformed(&head(16, 0, 0)), "of another kind");
    }
}
