//! The control connection: bounded messages, each read or written by a deadline, and never past a request to stop.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::protocol::MESSAGE_BYTES_MAX;

/// How often a waiting read looks whether it should stop.
const SLICE: Duration = Duration::from_millis(100);
/// A message is small and the peer reads at once: a write that takes longer has no peer.
const WRITE_WAIT: Duration = Duration::from_secs(30);

/// One end; reading and writing may happen in different threads.
pub struct Control<'a> {
    socket: TcpStream,
    stop: &'a AtomicBool,
}

impl<'a> Control<'a> {
    pub fn new(socket: TcpStream, stop: &'a AtomicBool) -> io::Result<Control<'a>> {
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(WRITE_WAIT))?;
        Ok(Control { socket, stop })
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub fn send(&self, message: &impl Serialize) -> io::Result<()> {
        let mut bytes = vec![0; 4];
        serde_json::to_writer(&mut bytes, message)?;
        let length = bytes.len() - 4;
        assert!(length <= MESSAGE_BYTES_MAX, "lanes are bounded, and with them messages");
        bytes[..4].copy_from_slice(&(length as u32).to_be_bytes());
        (&self.socket).write_all(&bytes)
    }

    /// The next message. `Interrupted` when asked to stop, `InvalidData` for one that is too long or not understood.
    pub fn receive<T: DeserializeOwned>(&self, deadline: Instant) -> io::Result<T> {
        let mut length = [0; 4];
        self.read_exact(&mut length, deadline)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, format!("a message of {length} bytes")));
        }
        let mut bytes = vec![0; length];
        self.read_exact(&mut bytes, deadline)?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    pub fn read_exact(&self, buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
        read_exact(&self.socket, buffer, deadline, self.stop)
    }

    /// Ends all waiting at both ends.
    pub fn cut(&self) {
        // The peer may have been faster.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Fills `buffer` by the deadline, however slowly the peer sends. `Interrupted` once `stop` is set.
pub fn read_exact(mut socket: &TcpStream, buffer: &mut [u8], deadline: Instant, stop: &AtomicBool) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::new(ErrorKind::Interrupted, "asked to stop"));
        }
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left.min(SLICE)))?;
        match socket.read(&mut buffer[filled..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => filled += bytes,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let (near, far) = pair();
        let stop = AtomicBool::new(false);
        let (near, far) = (Control::new(near, &stop).unwrap(), Control::new(far, &stop).unwrap());
        near.send(&("a", 7)).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        assert_eq!(far.receive::<(String, u32)>(deadline).unwrap(), ("a".to_owned(), 7));
    }

    #[test]
    fn a_long_length_is_refused_before_anything_is_allocated() {
        let (mut near, far) = pair();
        let stop = AtomicBool::new(false);
        let far = Control::new(far, &stop).unwrap();
        near.write_all(&u32::MAX.to_be_bytes()).unwrap();
        let error = far.receive::<u32>(Instant::now() + Duration::from_secs(10)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn a_peer_that_stays_silent_costs_no_more_than_the_deadline_and_a_stop_ends_it_earlier() {
        let (_near, far) = pair();
        let stop = AtomicBool::new(false);
        let far = Control::new(far, &stop).unwrap();
        let silent = far.receive::<u32>(Instant::now() + Duration::from_millis(20)).unwrap_err();
        assert_eq!(silent.kind(), ErrorKind::TimedOut);
        stop.store(true, Ordering::Relaxed);
        let stopped = far.receive::<u32>(Instant::now() + Duration::from_secs(100)).unwrap_err();
        assert_eq!(stopped.kind(), ErrorKind::Interrupted);
    }
}
