//! A buffer between a path and slower storage: when it is full, when everything was received, when everything is durable.
//!
//! A fluid: bytes enter at one rate and drain at another, and wait in between up to the buffer's capacity; a full buffer takes
//! what drains. Storage that stands still now and then has its mean rate, and needs a buffer for what comes meanwhile
//! (`Stalling`); both ends together, and a finite volume, are calculated in short steps (`Legs`).
//!
//! Not here: what a device takes when it is read and written at once, and producers.

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

/// Storage that moves at a rate and stands still for a part of every period.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stalling {
    pub bytes_per_second: f64,
    pub stall_seconds: f64,
    pub period_seconds: f64,
}

impl Stalling {
    /// Storage that never stands still.
    pub fn steady(bytes_per_second: f64) -> Stalling {
        Stalling { bytes_per_second, stall_seconds: 0.0, period_seconds: 1.0 }
    }

    pub fn mean_bytes_per_second(&self) -> f64 {
        self.bytes_per_second * self.moving()
    }

    fn moving(&self) -> f64 {
        1.0 - self.stall_seconds / self.period_seconds
    }

    /// What it moves from one moment to another; each period ends with standing still.
    fn moves(&self, from: f64, to: f64) -> f64 {
        let moved = |until: f64| {
            let (periods, into) = ((until / self.period_seconds).floor(), until % self.period_seconds);
            periods * self.moving() * self.period_seconds + into.min(self.period_seconds - self.stall_seconds)
        };
        self.bytes_per_second * (moved(to) - moved(from))
    }
}

/// The long-distance leg, with what of a buffer it takes that cannot be counted on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Leg {
    /// What it carries alone.
    pub bytes_per_second: f64,
    /// Until content that arrived has made room again: a round trip and a sync.
    pub delay_seconds: f64,
    pub chunk_bytes: f64,
    pub lanes: f64,
    pub segment_bytes: f64,
    /// What the receiving host's sockets take once nobody takes from them, of all lanes: their largest windows. Where that is little
    /// beside a buffer, or not known, 0 is on the safe side.
    pub window_bytes: f64,
}

impl Leg {
    /// What is on its way, in lanes, and in a segment that is only begun.
    pub fn overhead_bytes(&self) -> f64 {
        self.bytes_per_second * self.delay_seconds + (self.lanes + 1.0) * self.chunk_bytes + self.segment_bytes
    }

    /// The smallest buffer before `sink` that leaves the leg undisturbed; none does where storage is slower on average.
    pub fn smallest_buffer_bytes(&self, sink: &Stalling) -> Option<f64> {
        let needed = self.bytes_per_second * sink.stall_seconds + self.overhead_bytes() - self.window_bytes;
        (sink.mean_bytes_per_second() >= self.bytes_per_second).then_some(needed.max(0.0))
    }

    /// What it carries for long with a buffer of so many bytes before `sink`.
    pub fn carried_bytes_per_second(&self, sink: &Stalling, buffer_bytes: f64) -> f64 {
        let buffered = (buffer_bytes + self.window_bytes - self.overhead_bytes()).max(0.0) / sink.period_seconds;
        let carried = self.bytes_per_second * sink.moving() + buffered;
        carried.min(sink.mean_bytes_per_second()).min(self.bytes_per_second)
    }
}

/// A volume from one storage to another, with a buffer at each end of the leg between them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Legs {
    pub source: Stalling,
    pub source_buffer_bytes: f64,
    pub leg: Leg,
    pub sink_buffer_bytes: f64,
    pub sink: Stalling,
    pub volume_bytes: f64,
}

/// When each leg was through, and the most that lay in each buffer, with what sockets held before it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LegTimes {
    pub read_seconds: f64,
    pub received_seconds: f64,
    pub delivered_seconds: f64,
    pub source_peak_bytes: f64,
    pub sink_peak_bytes: f64,
}

/// One step of the calculation; longer ones where there would be more than `STEPS_MAX`.
const STEP_SECONDS: f64 = 0.01;
const STEPS_MAX: f64 = 4e6;

impl Legs {
    /// None where something moves nothing at all.
    pub fn times(&self) -> Option<LegTimes> {
        let Legs { source, leg, sink, volume_bytes: volume, .. } = *self;
        let slowest = source.mean_bytes_per_second().min(sink.mean_bytes_per_second()).min(leg.bytes_per_second);
        let is_number = slowest.is_finite() && volume.is_finite();
        if !is_number || slowest <= 0.0 {
            return None;
        }
        // Three legs one after the other, at the rate of the slowest, and a period.
        let longest = 3.0 * volume / slowest + source.period_seconds + sink.period_seconds;
        let step = STEP_SECONDS.max(longest / STEPS_MAX);
        let (mut read, mut received, mut delivered) = (0.0_f64, 0.0_f64, 0.0_f64);
        let mut times = LegTimes {
            read_seconds: 0.0,
            received_seconds: 0.0,
            delivered_seconds: 0.0,
            source_peak_bytes: 0.0,
            sink_peak_bytes: 0.0,
        };
        // Without a buffer, a step's worth passes from one leg to the next.
        let least = leg.bytes_per_second * step;
        let source_room = self.source_buffer_bytes.max(least);
        let sink_room = (self.sink_buffer_bytes + leg.window_bytes - leg.overhead_bytes()).max(least);
        let mut at = 0.0;
        while delivered < volume * (1.0 - 1e-9) {
            let next = at + step;
            let filled = source.moves(at, next).min(source_room - (read - received)).min(volume - read).max(0.0);
            let sent =
                (leg.bytes_per_second * step).min(read + filled - received).min(sink_room - (received - delivered));
            let drained = sink.moves(at, next).min(received + sent.max(0.0) - delivered);
            (read, received, delivered) = (read + filled, received + sent.max(0.0), delivered + drained);
            times.source_peak_bytes = times.source_peak_bytes.max(read - received);
            times.sink_peak_bytes = times.sink_peak_bytes.max(received - delivered);
            for (moved, seconds) in [(read, &mut times.read_seconds), (received, &mut times.received_seconds)] {
                if moved < volume * (1.0 - 1e-9) {
                    *seconds = next;
                }
            }
            at = next;
            if at > longest * 2.0 {
                return None;
            }
        }
        times.delivered_seconds = at;
        Some(times)
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

    const MIB: f64 = 1048576.0;

    /// E8: a sink of 100 MB/s that stands still for 5 of 20 s, a path of 61 MB/s and 74 ms, one lane.
    fn e8() -> (Leg, Stalling) {
        let (lanes, segment_bytes) = (1.0, 4.0 * MIB);
        let (bytes_per_second, delay_seconds, chunk_bytes) = (61e6, 0.12, 8.0 * MIB);
        let leg = Leg { bytes_per_second, delay_seconds, chunk_bytes, lanes, segment_bytes, window_bytes: 0.0 };
        (leg, Stalling { bytes_per_second: 100e6, stall_seconds: 5.0, period_seconds: 20.0 })
    }

    #[test]
    fn the_six_sizes_of_e8_carry_what_the_design_says() {
        let (leg, sink) = e8();
        let smallest = leg.smallest_buffer_bytes(&sink).unwrap() / MIB;
        assert!((smallest - 318.0).abs() < 1.0, "{smallest}");
        for (size, share) in [(48.0, 0.77), (96.0, 0.81), (160.0, 0.86), (224.0, 0.92), (288.0, 0.97), (352.0, 1.0)] {
            let carried = leg.carried_bytes_per_second(&sink, size * MIB) / leg.bytes_per_second;
            assert!((carried - share).abs() < 0.006, "{size} MiB: {carried}");
        }
    }

    #[test]
    fn short_steps_agree_with_the_line_and_its_knee() {
        let (leg, sink) = e8();
        for size in [48.0, 96.0, 160.0, 224.0, 288.0, 352.0] {
            let sink_buffer_bytes = size * MIB;
            let (source, volume_bytes) = (Stalling::steady(1e9), 16384.0 * MIB);
            let legs = Legs { source, source_buffer_bytes: 0.0, leg, sink_buffer_bytes, sink, volume_bytes };
            let times = legs.times().unwrap();
            let carried = volume_bytes / times.received_seconds;
            let line = leg.carried_bytes_per_second(&sink, sink_buffer_bytes);
            assert!((carried / line - 1.0).abs() < 0.03, "{size} MiB: {carried} and {line}");
            assert!(times.sink_peak_bytes <= sink_buffer_bytes && times.delivered_seconds >= times.received_seconds);
        }
    }

    #[test]
    fn what_sockets_take_counts_as_so_much_more_buffer() {
        let (leg, sink) = e8();
        let open = Leg { window_bytes: 48.0 * MIB, ..leg };
        let smallest = |leg: Leg| leg.smallest_buffer_bytes(&sink).unwrap() / MIB;
        assert!((smallest(leg) - smallest(open) - 48.0).abs() < 1e-6);
        let carried = |leg: Leg, size: f64| leg.carried_bytes_per_second(&sink, size * MIB);
        assert_eq!(carried(open, 48.0), carried(leg, 96.0));
        let times = |leg, size| {
            let (source, volume_bytes) = (Stalling::steady(1e9), 4096.0 * MIB);
            let sink_buffer_bytes = size * MIB;
            Legs { source, source_buffer_bytes: 0.0, leg, sink_buffer_bytes, sink, volume_bytes }.times().unwrap()
        };
        assert_eq!(times(open, 48.0).received_seconds, times(leg, 96.0).received_seconds);
        // A window that takes a whole stall needs no buffer, and not less than none.
        assert_eq!(smallest(Leg { window_bytes: 1e12, ..leg }), 0.0);
    }

    #[test]
    fn a_buffer_at_the_source_bridges_its_stalls_and_a_slower_sink_sets_the_end() {
        let (chunk_bytes, segment_bytes, window_bytes) = (1e6, 1e6, 0.0);
        let leg =
            Leg { bytes_per_second: 50e6, delay_seconds: 0.1, chunk_bytes, lanes: 4.0, segment_bytes, window_bytes };
        let source = Stalling { bytes_per_second: 100e6, stall_seconds: 3.0, period_seconds: 15.0 };
        let with = |source_buffer_bytes, sink: f64| {
            let sink_buffer_bytes = 5e9;
            let sink = Stalling::steady(sink);
            Legs { source, source_buffer_bytes, leg, sink_buffer_bytes, sink, volume_bytes: 3e9 }.times().unwrap()
        };
        let (without, bridged) = (with(0.0, 1e9), with(200e6, 1e9));
        assert!((bridged.received_seconds - 60.0).abs() < 1.0, "{bridged:?}");
        assert!(without.received_seconds > 70.0, "{without:?}");
        let slow = with(200e6, 20e6);
        assert!((slow.delivered_seconds - 150.0).abs() < 2.0 && (slow.received_seconds - 60.0).abs() < 1.0, "{slow:?}");
        let still = Stalling { bytes_per_second: 1e6, stall_seconds: 1.0, period_seconds: 1.0 };
        let leg = Leg { bytes_per_second: 1.0, ..leg };
        let legs = Legs {
            source: still,
            source_buffer_bytes: 0.0,
            leg,
            sink_buffer_bytes: 0.0,
            sink: still,
            volume_bytes: 9.0,
        };
        assert_eq!(legs.times(), None);
    }

    #[test]
    fn storage_slower_than_the_path_on_average_has_no_buffer_that_is_large_enough() {
        let (leg, sink) = e8();
        assert_eq!(leg.smallest_buffer_bytes(&Stalling { bytes_per_second: 70e6, ..sink }), None);
        let carried = leg.carried_bytes_per_second(&Stalling { bytes_per_second: 70e6, ..sink }, 1e12);
        assert!((carried - 52.5e6).abs() < 1.0);
    }
}
