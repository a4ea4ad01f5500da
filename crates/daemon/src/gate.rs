//! What connections may hold before and after their peer is known.
//!
//! A stranger is a connection whose peer has proved neither an enrolled key nor the credential. Strangers have a bounded
//! number of places; when all are taken, the oldest of the address that has most of them leaves at once for a newcomer.
//! So nobody waits, whoever comes from an address with fewer places keeps them, however many connections others open, and
//! among connections of one address those that came last get through.
//!
//! Those whose key is known share the rest (`mover::shares`): what one client leaves free is there for others.
//!
//! Invariants: places are given back when a `Pass` is dropped, also by a thread that panics; nothing here waits.

use model::Pin;
use mover::shares::{Full as Share, Holder, Shares};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// As many as one job may have streams: they may all be in their handshake at once.
const STRANGERS_MAX: usize = 256;
/// Connections of one peer: two sessions of 256 streams with room to spare.
const CONNECTIONS_OF_PEER_MAX: usize = 1024;
/// The part of an IPv6 address that belongs to one customer.
const IPV6_SITE_BITS: u32 = 64;

pub struct Gate {
    places: Mutex<Places>,
    /// Connections of everybody.
    connections_max: usize,
    strangers_max: usize,
}

struct Places {
    next_number: u64,
    connections: usize,
    /// In order of their arrival.
    strangers: BTreeMap<u64, Stranger>,
    /// Connections that have proved a key.
    known: Shares,
    /// By their numbers.
    holders: HashMap<u64, Holder>,
    is_closed: bool,
}

struct Stranger {
    address: SocketAddr,
    pin: Option<Pin>,
    /// A second handle of the connection, to end it.
    socket: TcpStream,
}

/// A connection's place.
pub struct Pass {
    gate: Arc<Gate>,
    number: u64,
}

/// Why a connection gets no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Full {
    #[error("the endpoint has as many connections as it allows")]
    Connections,
    #[error("this peer, or its ticket, has as many connections as it is allowed")]
    Peer,
    #[error("the endpoint shuts down")]
    Closed,
    #[error("no descriptor is left")]
    Descriptors,
}

impl Gate {
    pub fn new(connections_max: usize) -> Arc<Gate> {
        // Where descriptors are few, strangers leave most of them to those who are known.
        let strangers_max = (connections_max / 4).clamp(1, STRANGERS_MAX);
        let known = (connections_max - strangers_max.min(connections_max - 1)).max(1) as u64;
        let places = Places {
            next_number: 0,
            connections: 0,
            strangers: BTreeMap::new(),
            known: Shares::new(known, CONNECTIONS_OF_PEER_MAX as u64),
            holders: HashMap::new(),
            is_closed: false,
        };
        Arc::new(Gate { places: Mutex::new(places), connections_max, strangers_max })
    }

    /// Gives an accepted connection a stranger's place.
    pub fn enter(self: &Arc<Gate>, socket: &TcpStream, address: SocketAddr) -> Result<Pass, Full> {
        let socket = socket.try_clone().map_err(|_| Full::Descriptors)?;
        let mut places = self.lock();
        if places.is_closed {
            return Err(Full::Closed);
        }
        if places.connections >= self.connections_max {
            return Err(Full::Connections);
        }
        if places.strangers.len() >= self.strangers_max {
            places.make_room();
        }
        let number = places.next_number;
        places.next_number += 1;
        places.connections += 1;
        places.strangers.insert(number, Stranger { address, pin: None, socket });
        Ok(Pass { gate: self.clone(), number })
    }

    /// Notes the key that the peer of `pass` has proved to own, and the account that it lives from: the ticket it came by, or
    /// one of its own for a key that is not enrolled. Ask `admit` next, should the key be enrolled.
    pub fn identified(&self, pass: &mut Pass, pin: Pin, account: Option<&str>) -> Result<(), Full> {
        let holder = holder(account.map_or_else(|| unknown(pin), str::to_owned), pin);
        let mut places = self.lock();
        places.known.take(Some(&holder), 1, false).map_err(|_: Share| Full::Peer)?;
        places.holders.insert(pass.number, holder);
        if let Some(stranger) = places.strangers.get_mut(&pass.number) {
            stranger.pin = Some(pin);
        }
        Ok(())
    }

    /// Connections that proved this key are strangers no longer, and are counted in their account; those that it has no
    /// room for end.
    pub fn admit(&self, pin: Pin, account: &str) {
        let mut places = self.lock();
        let unknown = holder(unknown(pin), pin);
        if places.known.of(&unknown.client, pin).1 > 0 {
            places.move_to(&unknown, &holder(account.to_owned(), pin));
        }
        places.strangers.retain(|_, stranger| stranger.pin != Some(pin));
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
    }

    /// Holds counts only, which are right after each statement: a panic elsewhere does not harm them.
    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The account of a key that is not enrolled.
fn unknown(pin: Pin) -> String {
    format!("?{pin}")
}

fn holder(client: String, key: Pin) -> Holder {
    Holder { client: client.into(), key, name: "".into() }
}

impl Places {
    fn move_to(&mut self, from: &Holder, to: &Holder) {
        let numbers: Vec<_> =
            self.holders.iter().filter(|(_, held)| *held == from).map(|(number, _)| *number).collect();
        for number in numbers {
            self.known.give(Some(from), 1);
            match self.known.take(Some(to), 1, false) {
                Ok(()) => _ = self.holders.insert(number, to.clone()),
                Err(_) => {
                    self.holders.remove(&number);
                    self.strangers.remove(&number).into_iter().for_each(Stranger::end);
                }
            }
        }
    }

    /// Ends the oldest stranger of the address that has most places.
    fn make_room(&mut self) {
        let mut by_origin: HashMap<IpAddr, usize> = HashMap::new();
        for stranger in self.strangers.values() {
            *by_origin.entry(origin(stranger.address)).or_default() += 1;
        }
        let most = by_origin.values().max().copied();
        let oldest =
            self.strangers.iter().find(|(_, stranger)| by_origin.get(&origin(stranger.address)).copied() == most);
        if let Some(number) = oldest.map(|(number, _)| *number) {
            self.strangers.remove(&number).into_iter().for_each(Stranger::end);
        }
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
        if let Some(holder) = places.holders.remove(&self.number) {
            places.known.give(Some(&holder), 1);
        }
    }
}

/// What counts as one address: an IPv4 address, or the site of an IPv6 address.
fn origin(address: SocketAddr) -> IpAddr {
    match address.ip().to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << (128 - IPV6_SITE_BITS))).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    const STRANGERS: usize = 30;

    fn pairs(count: usize) -> Vec<(TcpStream, TcpStream, SocketAddr)> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, address) = listener.accept().unwrap();
            (client, server, address)
        };
        (0..count).map(|_| connect()).collect()
    }

    /// Whether the endpoint has ended the connection.
    fn is_ended(client: &mut TcpStream) -> bool {
        client.set_nonblocking(true).unwrap();
        client.read(&mut [0]).is_ok_and(|bytes| bytes == 0)
    }

    #[test]
    fn the_oldest_stranger_of_one_address_makes_room_for_a_newcomer() {
        let gate = Gate::new(4 * STRANGERS);
        let mut pairs = pairs(STRANGERS + 1);
        let passes: Vec<_> = pairs.iter().map(|(_, socket, address)| gate.enter(socket, *address).unwrap()).collect();
        assert!(is_ended(&mut pairs[0].0) && !is_ended(&mut pairs[1].0) && !is_ended(&mut pairs[STRANGERS].0));
        assert_eq!((gate.strangers_max, gate.lock().strangers.len()), (STRANGERS, STRANGERS));
        drop(passes);
        assert_eq!(gate.lock().connections, 0);
    }

    #[test]
    fn connections_of_one_address_take_no_place_from_those_of_another() {
        let gate = Gate::new(4 * STRANGERS);
        let mut pairs = pairs(STRANGERS + 20);
        let at = |text: &str| format!("{text}:4000").parse::<SocketAddr>().unwrap();
        let mut passes = Vec::new();
        let mut enter = |(_, socket, _): &(TcpStream, TcpStream, SocketAddr), from: &str| {
            passes.push(gate.enter(socket, at(from)).unwrap());
        };
        enter(&pairs[0], "192.0.2.9");
        // All in one site, and one that came by IPv4 to a socket of IPv6.
        enter(&pairs[1], "[2001:db8:1:2::1]");
        enter(&pairs[2], "[::ffff:192.0.2.9]");
        for (n, pair) in pairs.iter().enumerate().skip(3) {
            enter(pair, &format!("[2001:db8:1:1::{n:x}]"));
        }
        let ended: Vec<_> = pairs.iter_mut().map(|(client, ..)| is_ended(client)).collect();
        assert_eq!(ended.iter().position(|ended| *ended), Some(3), "the flood's own oldest left first");
        assert_eq!(ended.iter().filter(|ended| **ended).count(), 20);
        assert_eq!(origin(at("192.0.2.9")), origin(at("[::ffff:192.0.2.9]")));
    }

    #[test]
    fn few_descriptors_are_not_all_left_to_strangers() {
        let gate = Gate::new(8);
        let pairs = pairs(8);
        let passes: Vec<_> = pairs.iter().map(|(_, s, a)| gate.enter(s, *a).unwrap()).collect();
        assert_eq!((gate.lock().strangers.len(), passes.len()), (2, 8));
        assert_eq!(Gate::new(1 << 20).strangers_max, STRANGERS_MAX);
    }

    #[test]
    fn known_peers_take_no_strangers_place() {
        let gate = Gate::new(4 * STRANGERS);
        let pin = Pin([1; 32]);
        let pairs = pairs(2 * STRANGERS);
        let mut passes = Vec::new();
        for (_, socket, address) in &pairs {
            let mut pass = gate.enter(socket, *address).unwrap();
            gate.identified(&mut pass, pin, Some("serve")).unwrap();
            assert_eq!(gate.address_of(pin), Some(address.ip()));
            gate.admit(pin, "serve");
            passes.push(pass);
        }
        assert_eq!(gate.address_of(pin), None);
        let places = gate.lock();
        assert_eq!((places.strangers.len(), places.connections), (0, passes.len()));
        drop(places);
    }

    #[test]
    fn connections_are_bounded_in_all_and_one_client_leaves_some_for_others() {
        let gate = Gate::new(2);
        let pairs = pairs(40);
        let (_, socket, address) = &pairs[0];
        let first = gate.enter(socket, *address).unwrap();
        let second = gate.enter(socket, *address).unwrap();
        assert_eq!(gate.enter(socket, *address).err(), Some(Full::Connections));
        drop((first, second));
        gate.close();
        assert_eq!(gate.enter(socket, *address).err(), Some(Full::Closed));

        let gate = Gate::new(40);
        let mut passes: Vec<_> = pairs.iter().map(|(_, s, a)| gate.enter(s, *a).unwrap()).collect();
        let mut come = |key: u8, ticket: &str| {
            let mut pass = passes.pop().unwrap();
            let come = gate.identified(&mut pass, Pin([key; 32]), Some(ticket));
            come.map(|()| pass)
        };
        let mut held = Vec::new();
        while let Ok(pass) = come(1, "serve") {
            held.push(pass);
        }
        assert!((15..=24).contains(&held.len()), "{}", held.len());
        // Another key of the ticket, and another ticket, get in.
        held.push(come(2, "serve").unwrap());
        held.push(come(3, "t").unwrap());
        drop((held, passes));
        assert_eq!(gate.lock().known.free(), 30);
        // A key that enrols brings its connections into the account.
        let mut pass = gate.enter(socket, *address).unwrap();
        gate.identified(&mut pass, Pin([9; 32]), None).unwrap();
        gate.admit(Pin([9; 32]), "t");
        assert_eq!(gate.lock().known.of("t", Pin([9; 32])), (1, 1));
    }
}
