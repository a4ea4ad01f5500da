//! Messages of jobs that an endpoint carries out in a client's name (docs/protocol.md section 18).
//!
//! Every request of a client has a number and gets one `OrderTaken` with it, after everything else that answers it. Field numbers
//! are the protocol's. Not here: what an endpoint makes of them (`daemon`).

/// A job, given to the endpoint that is to carry it out. It is written down there before it is answered.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Order {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub job_id: Vec<u8>,
    /// 1: the endpoint sends to the other one. 2: it fetches from there.
    #[prost(uint32, tag = "3")]
    pub role: u32,
    /// The other endpoint: its key, 32 bytes; what the client calls it; where it listens.
    #[prost(bytes = "vec", tag = "4")]
    pub peer_pin: Vec<u8>,
    #[prost(string, tag = "5")]
    pub peer_name: String,
    #[prost(bytes = "vec", repeated, tag = "6")]
    pub addresses: Vec<Vec<u8>>,
    /// What lets the endpoint in there.
    #[prost(bytes = "vec", tag = "7")]
    pub warrant: Vec<u8>,
    /// The transfer in its written form (docs/embedding.md). Its locations name the endpoints as the client does.
    #[prost(string, tag = "8")]
    pub transfer: String,
    /// 1 copy, 2 sync, 3 move.
    #[prost(uint32, tag = "9")]
    pub kind: u32,
    /// What the client calls the endpoint itself.
    #[prost(string, tag = "10")]
    pub own_name: String,
}

/// The end of every answer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OrderTaken {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// 0 when it was done.
    #[prost(uint32, tag = "2")]
    pub code: u32,
    #[prost(string, tag = "3")]
    pub text: String,
    /// How often the job was begun anew, from 1.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
}

/// How a job stands.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OrderNews {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub job_id: Vec<u8>,
    /// Number of a `model::order::Status`.
    #[prost(uint32, tag = "3")]
    pub status: u32,
    /// Number of a `model::order::Reason`; what it is, in words.
    #[prost(uint32, tag = "4")]
    pub reason: u32,
    #[prost(string, tag = "5")]
    pub text: String,
    #[prost(uint32, tag = "6")]
    pub attempt: u32,
    #[prost(uint32, tag = "7")]
    pub kind: u32,
    #[prost(string, tag = "8")]
    pub source: String,
    #[prost(string, tag = "9")]
    pub destination: String,
    /// Seconds since 1970.
    #[prost(uint64, tag = "10")]
    pub created: u64,
    #[prost(uint64, tag = "11")]
    pub files_listed: u64,
    #[prost(uint64, tag = "12")]
    pub files_done: u64,
    #[prost(uint64, tag = "13")]
    pub files_skipped: u64,
    #[prost(uint64, tag = "14")]
    pub files_failed: u64,
    #[prost(uint64, tag = "15")]
    pub bytes_listed: u64,
    #[prost(uint64, tag = "16")]
    pub bytes_done: u64,
    #[prost(uint64, tag = "17")]
    pub bytes_per_second: u64,
    #[prost(bool, tag = "18")]
    pub is_listing_complete: bool,
    /// When it is tried again, in seconds since 1970; 0 where that is not known.
    #[prost(uint64, tag = "19")]
    pub until: u64,
    #[prost(uint32, tag = "20")]
    pub role: u32,
    /// What limits the rate at the moment; empty where that is not known.
    #[prost(string, tag = "21")]
    pub bottleneck: String,
    /// At the destination or on their way there: a large file is not done before its end.
    #[prost(uint64, tag = "22")]
    pub bytes_reached: u64,
}

/// What failed in a job, in the order in which it did.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OrderEvents {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub job_id: Vec<u8>,
    #[prost(message, repeated, tag = "3")]
    pub failures: Vec<OrderFailure>,
    /// Those that are not kept.
    #[prost(uint64, tag = "4")]
    pub untold: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct OrderFailure {
    /// Relative to the destination.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Number of a `model::FailureKind`.
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    #[prost(string, tag = "3")]
    pub text: String,
}

/// What a job is to come to.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OrderSteer {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub job_id: Vec<u8>,
    /// Number of a `model::order::Steer`.
    #[prost(uint32, tag = "3")]
    pub steer: u32,
    /// In the place of the one before it; empty where that goes on to hold.
    #[prost(bytes = "vec", tag = "4")]
    pub warrant: Vec<u8>,
    /// With `rate`: how fast the job may be from now on, in the words of a transfer's `bwlimit`; empty for no limit.
    #[prost(string, tag = "5")]
    pub bwlimit: String,
    /// With `class`: what it counts from now on, as in `Options`; 0 for what is usual.
    #[prost(uint32, tag = "6")]
    pub class: u32,
}

/// Asks for a job of this client, or for all of them.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OrderAsk {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// Empty: all.
    #[prost(bytes = "vec", tag = "2")]
    pub job_id: Vec<u8>,
    /// Failures as well.
    #[prost(bool, tag = "3")]
    pub wants_events: bool,
    /// The transfer and the other endpoint as well, of one job: in `OrderEnded.order`.
    #[prost(bool, tag = "4")]
    pub wants_order: bool,
}

/// How a job ended, or what it was.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OrderEnded {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub job_id: Vec<u8>,
    /// The exit code that the command would have had.
    #[prost(uint32, tag = "3")]
    pub code: u32,
    #[prost(string, tag = "4")]
    pub text: String,
    #[prost(string, tag = "5")]
    pub hint: String,
    #[prost(uint64, tag = "6")]
    pub files_done: u64,
    #[prost(uint64, tag = "7")]
    pub files_skipped: u64,
    #[prost(uint64, tag = "8")]
    pub files_failed: u64,
    #[prost(uint64, tag = "9")]
    pub directories: u64,
    #[prost(uint64, tag = "10")]
    pub bytes: u64,
    #[prost(uint64, tag = "11")]
    pub bytes_sent: u64,
    #[prost(uint64, tag = "12")]
    pub removed: u64,
    #[prost(uint64, tag = "13")]
    pub milliseconds: u64,
    /// What limited it.
    #[prost(string, tag = "14")]
    pub bottleneck: String,
    #[prost(message, optional, tag = "15")]
    pub order: Option<Order>,
    /// As in `Finished`.
    #[prost(string, tag = "16")]
    pub durable: String,
}

/// A warrant of this client does not hold any more.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Revoke {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub warrant_id: Vec<u8>,
}
