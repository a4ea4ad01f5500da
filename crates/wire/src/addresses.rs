//! Addresses of an endpoint, for clients that look for more than one path to it.
//!
//! Field numbers are the protocol's (docs/protocol.proto). Not here: which addresses a host has, and what a client makes of them.

/// Asks for the addresses of the endpoint.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AskAddresses {
    /// Addresses that the client may use: 4 or 16 bytes each.
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub from: Vec<Vec<u8>>,
}

/// Where the endpoint can be reached besides the address that the client used. The port is the same.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Addresses {
    #[prost(message, repeated, tag = "1")]
    pub addresses: Vec<AddressRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AddressRecord {
    /// 4 or 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub ip: Vec<u8>,
    /// The network card it belongs to: a number that means nothing elsewhere and is the same for addresses of one card.
    #[prost(uint32, tag = "2")]
    pub card: u32,
    /// By which card an answer from this address leaves, for each of the client's addresses in their order; 0 for none.
    #[prost(uint32, repeated, tag = "3")]
    pub answers_by: Vec<u32>,
}
