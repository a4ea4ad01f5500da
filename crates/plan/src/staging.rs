//! A buffer between a path and slower storage: when it is full, when everything was received, when everything is durable.
//!
//! A fluid: bytes enter at one rate and drain at another, and wait in between up to the buffer's capacity; a full buffer takes
//! what drains. Not here: rates that change, storage that stands still now and then.

/// Bytes, and bytes a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Staging {
    pub capacity_bytes: f64,
    pub in_bytes_per_second: f64,
    pub out_bytes_per_second: f64,
    pub volume_bytes: f64,
}

/// Seconds from the first byte on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StagingTimes {
    /// When the buffer would be full, were there enough bytes; none where it drains as fast as it fills.
    pub fill_seconds: Option<f64>,
    pub received_seconds: f64,
    pub durable_seconds: f64,
}

impl Staging {
    pub fn times(&self) -> StagingTimes {
        let Staging { capacity_bytes, in_bytes_per_second: fast, out_bytes_per_second: slow, volume_bytes } = *self;
        let fill_seconds = (fast > slow).then(|| capacity_bytes / (fast - slow));
        let at_full_rate = volume_bytes / fast;
        let received_seconds = match fill_seconds {
            Some(fill) if at_full_rate > fill => fill + (volume_bytes - fast * fill) / slow,
            _ => at_full_rate,
        };
        StagingTimes { fill_seconds, received_seconds, durable_seconds: received_seconds.max(volume_bytes / slow) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(volume_bytes: f64) -> StagingTimes {
        let (capacity_bytes, in_bytes_per_second, out_bytes_per_second) = (4e12, 10e9, 4e9);
        Staging { capacity_bytes, in_bytes_per_second, out_bytes_per_second, volume_bytes }.times()
    }

    /// G3.
    #[test]
    fn a_full_buffer_takes_what_drains() {
        let large = times(10e12);
        assert!((large.fill_seconds.unwrap() - 666.67).abs() < 0.01);
        assert!((large.received_seconds - 1500.0).abs() < 1e-6 && (large.durable_seconds - 2500.0).abs() < 1e-6);
        let small = times(5e12);
        assert!((small.received_seconds - 500.0).abs() < 1e-6 && (small.durable_seconds - 1250.0).abs() < 1e-6);
    }

    #[test]
    fn a_buffer_that_drains_as_fast_as_it_fills_is_never_full() {
        let staging =
            Staging { capacity_bytes: 1e9, in_bytes_per_second: 1e9, out_bytes_per_second: 2e9, volume_bytes: 4e9 };
        let expected = StagingTimes { fill_seconds: None, received_seconds: 4.0, durable_seconds: 4.0 };
        assert_eq!(staging.times(), expected);
    }

    #[test]
    fn without_a_buffer_the_slower_side_sets_the_pace() {
        let staging =
            Staging { capacity_bytes: 0.0, in_bytes_per_second: 10e9, out_bytes_per_second: 4e9, volume_bytes: 8e9 };
        assert_eq!(staging.times().received_seconds, 2.0);
    }
}
