//! What a flow is to send.

use std::time::Duration;

/// What to send.
#[derive(Clone, PartialEq, Debug)]
pub struct Flow {
    pub streams: usize,
    /// Of the counted part.
    pub duration: Duration,
    /// Sent before that, and not counted.
    pub omitted: Duration,
    /// None: that of the route.
    pub congestion_control: Option<String>,
    /// The receive window of each stream is exactly this; the receiving host's buffers are set so that it can be.
    pub window_bytes: Option<u32>,
    /// Each stream leaves its host at this rate at most.
    pub pacing_bits_per_second: Option<u64>,
}

impl Flow {
    /// One stream with the congestion control of the route and nothing in its way.
    pub fn lasting(duration: Duration, omitted: Duration) -> Flow {
        Flow {
            streams: 1,
            duration,
            omitted,
            congestion_control: None,
            window_bytes: None,
            pacing_bits_per_second: None,
        }
    }
}
