//! Where connections stay until they say something: many silent ones cost a descriptor each, and no thread (F014).
//!
//! A client of ours speaks first and at once. Whoever connects and is silent waits here for a bounded time, in a bounded
//! number of places; when they are taken, the address that holds most of them has to give up the one it has had for longest, so
//! that one address cannot push the others out.
//!
//! Not here: how many of those that speak may be in their handshake.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr, TcpStream};
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
    /// How many of them each address has.
    held: HashMap<IpAddr, usize>,
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
        let (silent, ready, held) = (VecDeque::new(), VecDeque::new(), HashMap::new());
        Lobby { listener, silent, ready, held, silent_max, patience }
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
            self.dismiss(0);
        }
    }

    fn dismiss(&mut self, at: usize) {
        if let Some(silent) = self.silent.remove(at) {
            self.forget(silent.peer);
        }
    }

    fn forget(&mut self, peer: SocketAddr) {
        let address = address_of(peer);
        if let Some(held) = self.held.get_mut(&address) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&address);
            }
        }
    }

    /// Of the address that has most places, the one that has been silent for longest leaves; false when nobody is here.
    fn make_room(&mut self) -> bool {
        let most = self.held.values().copied().max().unwrap_or(0);
        let is_of_most = |silent: &Silent| self.held.get(&address_of(silent.peer)) == Some(&most);
        let Some(at) = self.silent.iter().position(is_of_most) else { return false };
        self.dismiss(at);
        true
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
            if has_spoken {
                self.forget(silent.peer);
                self.ready.push_back((silent.tcp, silent.peer));
            } else {
                self.silent.push_back(silent);
            }
        }
        if is_knocking { self.let_in() } else { Ok(true) }
    }

    fn let_in(&mut self) -> Result<bool, Error> {
        for _ in 0..ACCEPTED_AT_ONCE {
            match self.listener.accept_now()? {
                Accepted::Connection(tcp, peer) => {
                    if self.silent.len() >= self.silent_max {
                        self.make_room();
                    }
                    *self.held.entry(address_of(peer)).or_default() += 1;
                    self.silent.push_back(Silent { since: Instant::now(), tcp, peer });
                }
                Accepted::Nobody => break,
                // Its descriptor serves the one that knocks.
                Accepted::Exhausted if self.make_room() => {}
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

/// Whose a place is: an address, or with IPv6 the network of 64 bits in which a host has as many addresses as it likes.
fn address_of(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
        address => address,
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

    /// One that connects again and again takes its own places, and no one else's.
    #[test]
    fn the_address_that_holds_most_places_gives_one_up() {
        let (mut lobby, connect) = lobby(8, FOR_EVER);
        let address = lobby.listener.local_addr();
        let from = |ip: &str| {
            use socket2::{Domain, Socket, Type};
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.bind(&format!("{ip}:0").parse::<SocketAddr>().unwrap().into()).unwrap();
            socket.connect(&address.into()).unwrap();
            TcpStream::from(socket)
        };
        // The first to come, and silent for longest.
        let mut few: Vec<_> = (0..3).map(|_| from("127.0.0.2")).collect();
        let mut many: Vec<_> = (0..40).map(|_| connect()).collect();
        let mut speaking = connect();
        speaking.write_all(b"x").unwrap();
        lobby.next_speaking().unwrap().unwrap();
        let of = |lobby: &Lobby, ip: &str| {
            let ip: IpAddr = ip.parse().unwrap();
            assert_eq!(
                lobby.held.get(&ip).copied().unwrap_or(0),
                lobby.silent.iter().filter(|silent| silent.peer.ip() == ip).count()
            );
            lobby.held.get(&ip).copied().unwrap_or(0)
        };
        assert_eq!(of(&lobby, "127.0.0.2"), 3);
        assert!((4..=5).contains(&of(&lobby, "127.0.0.1")));
        few.iter_mut().for_each(|tcp| {
            tcp.set_nonblocking(true).unwrap();
            assert_eq!(tcp.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        });
        assert_eq!(many[0].read(&mut [0]).unwrap(), 0);
        lobby.patience = Duration::ZERO;
        lobby.dismiss_silent();
        assert!(lobby.held.is_empty());
    }

    #[test]
    fn networks_of_ipv6_and_mapped_addresses_count_as_one() {
        let of = |ip: &str| address_of(SocketAddr::new(ip.parse().unwrap(), 1));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1:2:3"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.7"), of("192.0.2.7"));
    }

    #[test]
    fn a_stopped_listener_ends_the_wait() {
        let (mut lobby, connect) = lobby(3, FOR_EVER);
        let _silent = connect();
        lobby.listener.stopper().stop();
        assert!(lobby.next_speaking().unwrap().is_none());
    }
}
