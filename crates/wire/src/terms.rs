//! Messages of what an endpoint lets a client do, and of how it shares its rates out (docs/protocol.md section 18).
//!
//! They are a request like those about jobs: it has a number, and an `OrderTaken` ends the answer. Field numbers are the protocol's.
//! Not here: what an endpoint agrees to (`daemon`).

/// Asks for the terms, having changed the endpoint's contracts first if that is wanted.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AskTerms {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// The contracts are to be these.
    #[prost(bool, tag = "2")]
    pub is_change: bool,
    /// As in docs/rates.md: TOML.
    #[prost(string, tag = "3")]
    pub contracts: String,
    /// Of the contracts that these are to replace: `Terms.version`.
    #[prost(uint64, tag = "4")]
    pub version: u64,
}

/// What the client may, and what holds for all if it may manage that.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Terms {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    #[prost(bool, tag = "2")]
    pub may_read: bool,
    #[prost(bool, tag = "3")]
    pub may_write: bool,
    /// Below the root; empty for all of it.
    #[prost(bytes = "vec", tag = "4")]
    pub path: Vec<u8>,
    /// As in `Options`.
    #[prost(uint32, tag = "5")]
    pub class_max: u32,
    /// Seconds since 1970; 0 where it has no end.
    #[prost(uint64, tag = "6")]
    pub expires: u64,
    /// It sees and changes what follows, which is empty where it may not.
    #[prost(bool, tag = "7")]
    pub may_manage: bool,
    #[prost(string, tag = "8")]
    pub contracts: String,
    #[prost(uint64, tag = "9")]
    pub version: u64,
    #[prost(message, repeated, tag = "10")]
    pub shares: Vec<ShareRecord>,
}

/// A job that runs there.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ShareRecord {
    #[prost(bytes = "vec", tag = "1")]
    pub job_id: Vec<u8>,
    /// At its other end: a pin.
    #[prost(bytes = "vec", tag = "2")]
    pub peer: Vec<u8>,
    /// Whoever asked for it; the ticket of that one.
    #[prost(string, tag = "3")]
    pub client: String,
    #[prost(string, tag = "4")]
    pub user: String,
    #[prost(uint32, tag = "5")]
    pub class: u32,
    /// Content leaves the endpoint with it.
    #[prost(bool, tag = "6")]
    pub is_sent: bool,
    /// Bytes a second: what it moves, as far as it is measured, and what it may have; 0 where nothing holds it.
    #[prost(uint64, tag = "7")]
    pub moves: u64,
    #[prost(uint64, tag = "8")]
    pub rate: u64,
    /// What holds it, in words.
    #[prost(string, tag = "9")]
    pub by: String,
}
