//! What connections may hold before and after their peer is known.
//!
//! A stranger is a connection whose peer has proved neither an enrolled key nor the credential. Strangers have a bounded
//! number of places; when all are taken, a newcomer waits for one, and the oldest has to leave if it has kept its place
//! longer than an honest handshake takes. So a burst of an honest client's streams gets through, and silent connections
//! cannot keep others out.
//!
//! Invariant: places are given back when a `Pass` is dropped, also by a thread that panics.

use model::Pin;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const STRANGERS_MAX: usize = 64;
/// A stranger may keep its place this long while others wait: two round trips to the other side of the earth.
const GIVE_WAY_AFTER: Duration = Duration::from_millis(750);
/// Connections of one peer: two sessions of 256 streams with room to spare.
const CONNECTIONS_OF_PEER_MAX: usize = 1024;

pub struct Gate {
    places: Mutex<Places>,
    changed: Condvar,
    /// Connections of everybody.
    connections_max: usize,
}

#[derive(Default)]
struct Places {
    next_number: u64,
    connections: usize,
    /// In order of their arrival.
    strangers: BTreeMap<u64, Stranger>,
    by_peer: HashMap<Pin, usize>,
    is_closed: bool,
}

struct Stranger {
    since: Instant,
    address: SocketAddr,
    pin: Option<Pin>,
    /// A second handle of the connection, to end it.
    socket: TcpStream,
}

/// A connection's place.
pub struct Pass {
    gate: Arc<Gate>,
    number: u64,
    pin: Option<Pin>,
}

/// Why a connection gets no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Full {
    #[error("the endpoint has as many connections as it takes")]
    Connections,
    #[error("this peer has as many connections as it may have")]
    Peer,
    #[error("the endpoint shuts down")]
    Closed,
    #[error("no descriptor is left")]
    Descriptors,
}

impl Gate {
    pub fn new(connections_max: usize) -> Arc<Gate> {
        Arc::new(Gate { places: Mutex::default(), changed: Condvar::new(), connections_max })
    }

    /// Gives an accepted connection a stranger's place; waits for at most `GIVE_WAY_AFTER`.
    pub fn enter(self: &Arc<Gate>, socket: &TcpStream, address: SocketAddr) -> Result<Pass, Full> {
        let socket = socket.try_clone().map_err(|_| Full::Descriptors)?;
        let mut places = self.lock();
        loop {
            if places.is_closed {
                return Err(Full::Closed);
            }
            if places.connections >= self.connections_max {
                return Err(Full::Connections);
            }
            if places.strangers.len() < STRANGERS_MAX {
                break;
            }
            let oldest = places.strangers.first_entry().expect("all places are taken");
            match GIVE_WAY_AFTER.checked_sub(oldest.get().since.elapsed()) {
                None => oldest.remove().end(),
                Some(left) => places = self.wait(places, left),
            }
        }
        let number = places.next_number;
        places.next_number += 1;
        places.connections += 1;
        places.strangers.insert(number, Stranger { since: Instant::now(), address, pin: None, socket });
        Ok(Pass { gate: self.clone(), number, pin: None })
    }

    /// Notes the key that the peer of `pass` has proved to own. Ask `admit` next, should the key be enrolled.
    pub fn identified(&self, pass: &mut Pass, pin: Pin) -> Result<(), Full> {
        let mut places = self.lock();
        let of_peer = places.by_peer.entry(pin).or_default();
        if *of_peer >= CONNECTIONS_OF_PEER_MAX {
            return Err(Full::Peer);
        }
        *of_peer += 1;
        pass.pin = Some(pin);
        if let Some(stranger) = places.strangers.get_mut(&pass.number) {
            stranger.pin = Some(pin);
        }
        Ok(())
    }

    /// Connections that proved this key are strangers no longer.
    pub fn admit(&self, pin: Pin) {
        self.lock().strangers.retain(|_, stranger| stranger.pin != Some(pin));
        self.changed.notify_all();
    }

    /// Where a stranger with this key comes from.
    pub fn address_of(&self, pin: Pin) -> Option<IpAddr> {
        let places = self.lock();
        places.strangers.values().find(|stranger| stranger.pin == Some(pin)).map(|stranger| stranger.address.ip())
    }

    /// Ends all strangers, and lets nobody in any more.
    pub fn close(&self) {
        let mut places = self.lock();
        places.is_closed = true;
        std::mem::take(&mut places.strangers).into_values().for_each(Stranger::end);
        self.changed.notify_all();
    }

    /// Holds counts only, which are right after each statement: a panic elsewhere does not harm them.
    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, places: MutexGuard<'a, Places>, patience: Duration) -> MutexGuard<'a, Places> {
        self.changed.wait_timeout(places, patience).unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Stranger {
    fn end(self) {
        // Already gone is as good.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut places = self.gate.lock();
        places.strangers.remove(&self.number);
        places.connections -= 1;
        if let Some(pin) = self.pin
            && let Some(of_peer) = places.by_peer.get_mut(&pin)
        {
            *of_peer -= 1;
            if *of_peer == 0 {
                places.by_peer.remove(&pin);
            }
        }
        drop(places);
        self.gate.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    fn pairs(count: usize) -> Vec<(TcpStream, TcpStream, SocketAddr)> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, address) = listener.accept().unwrap();
            (client, server, address)
        };
        (0..count).map(|_| connect()).collect()
    }

    #[test]
    fn the_oldest_silent_stranger_makes_room_for_a_newcomer() {
        let gate = Gate::new(1000);
        let mut pairs = pairs(STRANGERS_MAX + 1);
        let passes: Vec<_> = pairs.iter().take(STRANGERS_MAX).map(|(_, s, a)| gate.enter(s, *a).unwrap()).collect();
        let (_, newest, address) = &pairs[STRANGERS_MAX];
        let before = Instant::now();
        let newcomer = gate.enter(newest, *address).unwrap();
        assert!(before.elapsed() <= GIVE_WAY_AFTER + Duration::from_millis(500));
        assert_eq!(pairs[0].0.read(&mut [0]).unwrap(), 0, "the first one's connection has ended");
        pairs[1].0.set_nonblocking(true).unwrap();
        assert!(pairs[1].0.read(&mut [0]).is_err(), "the second one's has not");
        drop((passes, newcomer));
        assert_eq!(gate.lock().connections, 0);
    }

    #[test]
    fn known_peers_take_no_strangers_place() {
        let gate = Gate::new(1000);
        let pin = Pin([1; 32]);
        let pairs = pairs(3 * STRANGERS_MAX);
        let mut passes = Vec::new();
        for (_, socket, address) in &pairs {
            let mut pass = gate.enter(socket, *address).unwrap();
            gate.identified(&mut pass, pin).unwrap();
            assert_eq!(gate.address_of(pin), Some(address.ip()));
            gate.admit(pin);
            passes.push(pass);
        }
        assert_eq!(gate.address_of(pin), None);
        let places = gate.lock();
        assert_eq!((places.strangers.len(), places.connections), (0, passes.len()));
        drop(places);
    }

    #[test]
    fn connections_are_bounded_in_all_and_for_each_peer() {
        let gate = Gate::new(2);
        let pairs = pairs(3);
        let (_, socket, address) = &pairs[0];
        let mut first = gate.enter(socket, *address).unwrap();
        let second = gate.enter(socket, *address).unwrap();
        assert_eq!(gate.enter(socket, *address).err(), Some(Full::Connections));
        drop(second);
        gate.lock().by_peer.insert(Pin([2; 32]), CONNECTIONS_OF_PEER_MAX);
        assert_eq!(gate.identified(&mut first, Pin([2; 32])), Err(Full::Peer));
        gate.identified(&mut first, Pin([3; 32])).unwrap();
        drop(first);
        assert!(!gate.lock().by_peer.contains_key(&Pin([3; 32])));
        gate.close();
        assert_eq!(gate.enter(socket, *address).err(), Some(Full::Closed));
    }
}
