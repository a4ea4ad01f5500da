//! Streams between simulated hosts: bytes arrive later, in pieces, damaged, or not at all.
//!
//! One pipe is one direction of a connection. Bytes stay in order; what is lost is everything from some point on. The
//! product's streams are under TLS, so damage here is damage after it: in a host's memory.

use super::faults::{Course, Fired};
use mover::stream::{Breaker, Stream};
use os::sync::{Condvar, Mutex};
use os::time::Instant;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Bytes on the way at most, as a socket's buffers bound them.
const WINDOW_BYTES: usize = 64 << 10;

/// What a pipe does wrong, by the number of the byte at which it begins.
#[derive(Clone, Default, Debug)]
pub struct PipeFaults {
    /// Both ends see the connection break.
    pub cut_at: Option<u64>,
    /// One bit of this byte is turned.
    pub flip_at: Option<u64>,
    pub delay: Duration,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(Option<Instant>, Vec<u8>)>,
    queued_bytes: usize,
    sent_bytes: u64,
    is_closed: bool,
    is_cut: bool,
    faults: PipeFaults,
    fired: Fired,
}

pub struct Pipe {
    state: Mutex<State>,
    changed: Condvar,
    course: Arc<Course>,
}

impl Pipe {
    pub fn new(faults: PipeFaults, course: &Arc<Course>) -> Arc<Pipe> {
        let state = Mutex::new(State { faults, ..State::default() });
        Arc::new(Pipe { state, changed: Condvar::new(), course: course.clone() })
    }

    /// Breaks the pipe now.
    pub fn cut(&self) {
        let mut state = self.state.lock().unwrap();
        state.is_cut = true;
        state.queue.clear();
        self.changed.notify_all();
    }

    fn is_cut(&self) -> bool {
        self.state.lock().unwrap().is_cut
    }

    pub fn fired(&self) -> Fired {
        self.state.lock().unwrap().fired
    }

    /// `is_bounded` says that the sender waits for room.
    pub fn send(&self, bytes: &[u8], is_bounded: bool) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        while is_bounded && state.queued_bytes >= WINDOW_BYTES && !state.is_cut {
            state = self.changed.wait(state).unwrap();
        }
        if state.is_cut {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let (first, end) = (state.sent_bytes, state.sent_bytes + bytes.len() as u64);
        state.sent_bytes = end;
        let mut bytes = bytes.to_vec();
        if let Some(at) = state.faults.flip_at.filter(|at| (first..end).contains(at)) {
            bytes[(at - first) as usize] ^= 1 << (at % 8);
            state.fired = state.fired.max(self.course.fired());
        }
        if let Some(at) = state.faults.cut_at.filter(|at| *at < end) {
            bytes.truncate(at.saturating_sub(first) as usize);
            state.is_closed = true;
            state.is_cut = true;
            state.fired = state.fired.max(self.course.fired());
        }
        let arrives = Instant::now() + state.faults.delay;
        if !bytes.is_empty() {
            state.queued_bytes += bytes.len();
            state.queue.push_back((Some(arrives), bytes));
        }
        self.changed.notify_all();
        Ok(())
    }

    pub fn close(&self) {
        self.state.lock().unwrap().is_closed = true;
        self.changed.notify_all();
    }

    /// The next bytes, at least one; none at the declared end.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.state.lock().unwrap();
        loop {
            if state.is_cut && state.queue.is_empty() {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            let now = Instant::now();
            let due = state.queue.front().and_then(|(arrives, _)| *arrives);
            match due {
                Some(arrives) if arrives <= now => break,
                Some(arrives) => state = self.changed.wait_timeout(state, arrives - now).unwrap().0,
                None if state.is_closed => return Ok(0),
                None => state = self.changed.wait(state).unwrap(),
            }
        }
        let (arrives, bytes) = state.queue.pop_front().expect("something is due");
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        if count < bytes.len() {
            state.queue.push_front((arrives, bytes[count..].to_vec()));
        }
        state.queued_bytes -= count;
        self.changed.notify_all();
        Ok(count)
    }
}

/// One end of a data stream.
pub struct SimulatedStream {
    pub outgoing: Arc<Pipe>,
    pub incoming: Arc<Pipe>,
}

impl Stream for SimulatedStream {
    fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        parts.iter().try_for_each(|part| self.outgoing.send(part, true))
    }

    fn recv_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.incoming.recv(&mut buffer[filled..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        self.outgoing.close();
        Ok(())
    }

    fn is_broken(&self) -> bool {
        self.outgoing.is_cut()
    }

    fn breaker(&self) -> Breaker {
        let pipes = [self.outgoing.clone(), self.incoming.clone()];
        Arc::new(move || pipes.iter().for_each(|pipe| pipe.cut()))
    }

    fn send_blocked_ns(&self) -> u64 {
        0
    }

    fn recv_blocked_ns(&self) -> u64 {
        0
    }
}
