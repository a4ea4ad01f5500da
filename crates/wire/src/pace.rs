//! How a job gets on: what its user set, and where its lanes' time went.
//!
//! Field numbers are the protocol's (docs/protocol.proto). Not here: what a side does about it (`mover`).

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Pace {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    /// What all data streams of the job may carry; 0 is no limit.
    #[prost(uint64, tag = "2")]
    pub bytes_per_second: u64,
    /// Bytes of content that the job may send in all; 0 is no limit.
    #[prost(uint64, tag = "3")]
    pub payload_bytes_max: u64,
    /// Data streams that work at most, while the others rest; 0 is no limit.
    #[prost(uint32, tag = "4")]
    pub streams: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Times {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    #[prost(uint32, tag = "2")]
    pub lanes: u32,
    #[prost(uint32, tag = "3")]
    pub processors: u32,
    /// Nanoseconds by the number of a `model::progress::Stage`.
    #[prost(uint64, repeated, tag = "4")]
    pub stage_ns: Vec<u64>,
    #[prost(uint64, tag = "5")]
    pub cpu_ns: u64,
    /// Sums of TCP_INFO over the sending streams of this side.
    #[prost(uint64, tag = "6")]
    pub retransmits: u64,
    #[prost(uint64, tag = "7")]
    pub busy_us: u64,
    #[prost(uint64, tag = "8")]
    pub receive_window_limited_us: u64,
    #[prost(uint64, tag = "9")]
    pub send_buffer_limited_us: u64,
    #[prost(uint64, tag = "10")]
    pub rtt_us_min: u64,
    /// How long the lanes could have run and had no processor.
    #[prost(uint64, tag = "11")]
    pub cpu_wait_ns: u64,
    /// Of the thread that commits groups.
    #[prost(uint64, tag = "12")]
    pub commit_sync_ns: u64,
    #[prost(uint64, tag = "13")]
    pub commit_publish_ns: u64,
    /// Congestion control of the sending streams of this side; empty where it has none.
    #[prost(string, tag = "14")]
    pub congestion: String,
    /// Size of the buffer that the job has on this side; 0 where it has none.
    #[prost(uint64, tag = "15")]
    pub buffer_bytes: u64,
    /// What of the job waits in it.
    #[prost(uint64, tag = "16")]
    pub buffer_waiting_bytes: u64,
    /// Changes whenever this side got on with the job; an older one tells none.
    #[prost(uint64, tag = "17")]
    pub headway: u64,
}
