//! Messages of an endpoint that has several hosts (docs/protocol.md section 22): who they are, and what the one that heads them tells the others.
//!
//! They are requests like those about jobs: each has a number, and an `OrderTaken` ends the answer. Field numbers are the protocol's.
//! Not here: who is a host, and what one believes (`daemon`).

/// `HostRecord.state` and `Standing.state`.
pub const ACTIVE: u32 = 1;
/// It finishes what it has, and gets no more.
pub const DRAINING: u32 = 2;

/// Asks for the hosts of the endpoint.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AskHosts {
    #[prost(uint32, tag = "1")]
    pub number: u32,
}

/// Those hosts, the one that answers among them; none where the endpoint is one host.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Hosts {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    #[prost(message, repeated, tag = "2")]
    pub hosts: Vec<HostRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HostRecord {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(bytes = "vec", tag = "2")]
    pub pin: Vec<u8>,
    /// `HOST:PORT`.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub addresses: Vec<Vec<u8>>,
    #[prost(uint32, tag = "4")]
    pub state: u32,
}

/// A host says that it is there, and asks who these clients are.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Attend {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// Where clients reach it: `HOST:PORT`.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub addresses: Vec<Vec<u8>>,
    /// Jobs that it has.
    #[prost(uint32, tag = "3")]
    pub jobs: u32,
    #[prost(bytes = "vec", repeated, tag = "4")]
    pub pins: Vec<Vec<u8>>,
}

/// What becomes of the host, and which of the clients are enrolled at this moment.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Standing {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    #[prost(uint32, tag = "2")]
    pub state: u32,
    #[prost(message, repeated, tag = "3")]
    pub clients: Vec<ClientRecord>,
}

/// What a client may, as in `Terms`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClientRecord {
    #[prost(bytes = "vec", tag = "1")]
    pub pin: Vec<u8>,
    /// What logs call it; whose share it lives from.
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub account: String,
    #[prost(bool, tag = "4")]
    pub may_read: bool,
    #[prost(bool, tag = "5")]
    pub may_write: bool,
    /// Below the root; empty for all of it.
    #[prost(bytes = "vec", tag = "6")]
    pub path: Vec<u8>,
    #[prost(uint32, tag = "7")]
    pub class_max: u32,
}
