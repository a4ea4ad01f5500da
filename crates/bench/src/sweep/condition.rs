//! What a sweep varies besides the work: the path between the hosts and the streams that tools may use.
//!
//! Invariant: the text of a condition is stable and names everything that sets it apart, so that figures of different
//! conditions can never be taken for one another.

use std::fmt;
use std::time::Duration;

use lab::scenario::quantity::{show_duration, show_probability, show_rate};
use lab::scenario::{HostSettings, QueueLimit, Scenario};
use serde::{Deserialize, Serialize};

use super::shown_size;
use crate::error::{Error, Result};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Condition {
    /// Of the wire; none: no limit.
    pub bits_per_second: Option<u64>,
    pub rtt_us: u64,
    /// Probability that a segment is lost, in each direction.
    pub loss: f64,
    /// Mean segments that are lost in a row. With 1 losses are independent, and it is not written, as in plans of earlier versions.
    #[serde(default = "one_segment", skip_serializing_if = "is_one_segment")]
    pub loss_burst_segments: f64,
    pub congestion_control: String,
    /// None: each tool's own choice.
    pub streams: Option<u32>,
    /// Socket limits as distributions ship them.
    pub has_stock_hosts: bool,
    /// The largest buffers that a connection may have, in both hosts; none: those of the hosts' settings.
    pub window_bytes: Option<u64>,
    /// Client commands at once, each with the whole set.
    pub clients: u32,
}

impl Default for Condition {
    fn default() -> Self {
        Condition {
            bits_per_second: Some(1_000_000_000),
            rtt_us: 74_000,
            loss: 0.0,
            loss_burst_segments: one_segment(),
            congestion_control: "cubic".into(),
            streams: None,
            has_stock_hosts: false,
            window_bytes: None,
            clients: 1,
        }
    }
}

impl Condition {
    pub fn round_trip(&self) -> Duration {
        Duration::from_micros(self.rtt_us)
    }

    /// Two sites and one link with a queue of one bandwidth-delay product.
    pub fn scenario(&self, seed: u64) -> Result<Scenario> {
        let unknown = || Error::usage("preset continent", "this build of the laboratory does not have it");
        let mut scenario = Scenario::preset("continent").ok_or_else(unknown)?;
        scenario.name = "sweep".into();
        scenario.seed = seed;
        scenario.congestion_control = self.congestion_control.clone();
        scenario.host_settings = if self.has_stock_hosts { HostSettings::Stock } else { HostSettings::Tuned };
        for direction in &mut scenario.links[0].directions {
            direction.delay = self.round_trip() / 2;
            direction.bits_per_second = self.bits_per_second;
            direction.queue = QueueLimit::BandwidthDelayProducts(1.0);
            direction.loss = self.loss;
            direction.loss_burst_segments = self.loss_burst_segments;
        }
        Ok(scenario)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, rtt) = (show_rate(self.bits_per_second), show_duration(self.round_trip()));
        let loss = if self.loss == 0.0 { "0".to_owned() } else { show_probability(self.loss) };
        let streams = self.streams.map_or("auto".to_owned(), |streams| streams.to_string());
        write!(f, "rate={rate} rtt={rtt} loss={loss} cc={} streams={streams}", self.congestion_control)?;
        if !is_one_segment(&self.loss_burst_segments) {
            write!(f, " loss-burst={}", self.loss_burst_segments)?;
        }
        if self.has_stock_hosts {
            f.write_str(" hosts=stock")?;
        }
        if let Some(bytes) = self.window_bytes {
            write!(f, " window={}", shown_size(bytes))?;
        }
        if self.clients > 1 { write!(f, " clients={}", self.clients) } else { Ok(()) }
    }
}

fn one_segment() -> f64 {
    1.0
}

fn is_one_segment(segments: &f64) -> bool {
    *segments == one_segment()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_condition_names_everything_it_varies() {
        assert_eq!(Condition::default().to_string(), "rate=1Gbit rtt=74ms loss=0 cc=cubic streams=auto");
        let other = Condition {
            bits_per_second: None,
            rtt_us: 0,
            loss: 1e-4,
            loss_burst_segments: 8.0,
            congestion_control: "bbr".into(),
            streams: Some(4),
            has_stock_hosts: true,
            window_bytes: Some(2 << 20),
            clients: 8,
        };
        let text = "rate=unlimited rtt=0s loss=0.01% cc=bbr streams=4 loss-burst=8 hosts=stock window=2MiB clients=8";
        assert_eq!(other.to_string(), text);
        let written = serde_json::to_string(&Condition::default()).unwrap();
        assert!(!written.contains("burst"), "{written}");
        assert_eq!(serde_json::from_str::<Condition>(&written).unwrap(), Condition::default());
    }

    #[test]
    fn a_condition_becomes_a_link_with_a_queue_of_one_product() {
        let lossy = Condition { rtt_us: 20_000, loss: 0.001, loss_burst_segments: 3.0, ..Condition::default() };
        let scenario = lossy.scenario(7).unwrap();
        let direction = &scenario.links[0].directions[1];
        assert_eq!((direction.delay, direction.loss), (Duration::from_millis(10), 0.001));
        assert_eq!(direction.loss_burst_segments, 3.0);
        assert_eq!(direction.queue_bytes(scenario.round_trip_max()), 2_500_000);
        assert_eq!((scenario.seed, scenario.check(4 << 30)), (7, Ok(())));
    }
}
