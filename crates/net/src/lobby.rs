//! Where connections stay until they say something: many silent ones cost a descriptor each, and no thread (F014).
//!
//! A client of ours speaks first and at once. Whoever connects and is silent waits here for a bounded time, in a bounded
//! number of places; when they are taken, the one that has been silent for longest has to leave.
//!
//! Not here: how many of those that speak may be in their handshake.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::error::Error;
use crate::listen::{Accepted, EXHAUSTED_PAUSE, Listener, poll};

/// Connections taken from the backlog before those that wait are looked at again.
const ACCEPTED_AT_ONCE: usize = 64;

/// A listener, and the connections of it that have not said anything.
pub struct Lobby {
    listener: Listener,
    /// In order of their arrival.
    silent: VecDeque<Silent>,
    /// They have spoken, or ended.
    ready: VecDeque<(TcpStream, SocketAddr)>,
    silent_max: usize,
    patience: Duration,
}

struct Silent {
    since: Instant,
    tcp: TcpStream,
    peer: SocketAddr,
}

impl Lobby {
    /// `silent_max` connections may wait, each for `patience`.
    pub fn new(listener: Listener, silent_max: usize, patience: Duration) -> Lobby {
        Lobby { listener, silent: VecDeque::new(), ready: VecDeque::new(), silent_max, patience }
    }

    /// Waits for the next connection that has said something; `None` once the listener is stopped.
    pub fn next_speaking(&mut self) -> Result<Option<(TcpStream, SocketAddr)>, Error> {
        loop {
            if let Some(speaking) = self.ready.pop_front() {
                return Ok(Some(speaking));
            }
            self.dismiss_silent();
            if !self.wait()? {
                return Ok(None);
            }
        }
    }

    fn dismiss_silent(&mut self) {
        while self.silent.front().is_some_and(|silent| silent.since.elapsed() >= self.patience) {
            self.silent.pop_front();
        }
    }

    /// Waits until something happens, and sorts who is here. False when the listener was stopped.
    fn wait(&mut self) -> Result<bool, Error> {
        let oldest = self.silent.front().map(|silent| self.patience.saturating_sub(silent.since.elapsed()));
        let stop = self.listener.stop_fd();
        let mut fds = vec![PollFd::from_borrowed_fd(stop, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(self.silent.iter().map(|silent| PollFd::new(&silent.tcp, PollFlags::IN)));
        poll(&mut fds, oldest).map_err(|e| self.listener.failed(e))?;
        let mut happened = fds.iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>().into_iter();
        let is_stopped = happened.next() == Some(true);
        let is_knocking = happened.next() == Some(true);
        if is_stopped {
            return Ok(false);
        }
        for (silent, has_spoken) in std::mem::take(&mut self.silent).into_iter().zip(happened) {
            match has_spoken {
                true => self.ready.push_back((silent.tcp, silent.peer)),
                false => self.silent.push_back(silent),
            }
        }
        if is_knocking { self.let_in() } else { Ok(true) }
    }

    fn let_in(&mut self) -> Result<bool, Error> {
        for _ in 0..ACCEPTED_AT_ONCE {
            match self.listener.accept_now()? {
                Accepted::Connection(tcp, peer) => {
                    if self.silent.len() >= self.silent_max {
                        self.silent.pop_front();
                    }
                    self.silent.push_back(Silent { since: Instant::now(), tcp, peer });
                }
                Accepted::Nobody => break,
                // Its descriptor serves the one that knocks.
                Accepted::Exhausted if self.silent.pop_front().is_some() => {}
                Accepted::Exhausted => {
                    let stop = self.listener.stop_fd();
                    let mut fds = [PollFd::from_borrowed_fd(stop, PollFlags::IN)];
                    poll(&mut fds, Some(EXHAUSTED_PAUSE)).map_err(|e| self.listener.failed(e))?;
                    break;
                }
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    const FOR_EVER: Duration = Duration::from_secs(3600);

    fn lobby(silent_max: usize, patience: Duration) -> (Lobby, impl Fn() -> TcpStream) {
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr();
        (Lobby::new(listener, silent_max, patience), move || TcpStream::connect(address).unwrap())
    }

    #[test]
    fn who_speaks_comes_before_who_came_first_and_is_silent() {
        let (mut lobby, connect) = lobby(10, FOR_EVER);
        let silent: Vec<_> = (0..5).map(|_| connect()).collect();
        let mut speaking = connect();
        speaking.write_all(b"x").unwrap();
        let (mut tcp, peer) = lobby.next_speaking().unwrap().unwrap();
        assert_eq!(peer, speaking.local_addr().unwrap());
        tcp.set_nonblocking(false).unwrap();
        tcp.read_exact(&mut [0]).unwrap();
        assert_eq!(lobby.silent.len(), silent.len());
        drop(silent);
        // One that ends is handed out too, for the log.
        lobby.next_speaking().unwrap().unwrap();
    }

    #[test]
    fn the_oldest_silent_connection_leaves_when_the_places_are_taken_or_its_time_is_over() {
        let (mut lobby, connect) = lobby(3, FOR_EVER);
        let mut silent: Vec<_> = (0..5).map(|_| connect()).collect();
        let mut speaking = connect();
        speaking.write_all(b"x").unwrap();
        lobby.next_speaking().unwrap().unwrap();
        // The one that spoke may have been let in before it was heard.
        assert!((2..=3).contains(&lobby.silent.len()));
        assert_eq!(silent[0].read(&mut [0]).unwrap(), 0);
        lobby.patience = Duration::ZERO;
        lobby.dismiss_silent();
        assert!(silent.iter_mut().all(|tcp| tcp.read(&mut [0]).unwrap() == 0));
    }

    #[test]
    fn a_stopped_listener_ends_the_wait() {
        let (mut lobby, connect) = lobby(3, FOR_EVER);
        let _silent = connect();
        lobby.listener.stopper().stop();
        assert!(lobby.next_speaking().unwrap().is_none());
    }
}
