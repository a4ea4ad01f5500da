//! Addresses as messages 100 and 101 have them, and what an endpoint tells of its own.
//!
//! Not here: what a client makes of them (`ways`).

use net::route::{self, LocalAddress};
use std::net::IpAddr;
use wire::limits::ADDRESSES_MAX;
use wire::message::{AddressRecord, Addresses, AskAddresses};

/// A card that nothing is known of.
pub const UNKNOWN: u32 = 0;

pub fn bytes_of(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

pub fn ip_of(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => None,
    }
}

/// What an endpoint answers: its own addresses, and by which card it would answer each of the client's.
pub fn told(own: Vec<LocalAddress>, asked: &AskAddresses) -> Addresses {
    let of_interface = |number: u32| own.iter().find(|own| own.interface == number).map_or(UNKNOWN, |own| own.card);
    let record = |address: &LocalAddress| {
        let answers_by = |to: &Vec<u8>| {
            let route = ip_of(to).and_then(|to| route::leaves_by(address.ip, to).ok());
            route.map_or(UNKNOWN, |route| of_interface(route.interface))
        };
        AddressRecord {
            ip: bytes_of(address.ip),
            card: address.card,
            answers_by: asked.from.iter().map(answers_by).collect(),
        }
    };
    Addresses { addresses: own.iter().take(ADDRESSES_MAX).map(record).collect() }
}
