//! Gates on congestion control under loss: Reno (V5) and CUBIC (V6) against their laws. Many streams at once, so that a
//! few seconds hold enough losses; each has the path to itself, because nothing queues.

use std::time::Duration;

use super::Finding;
use super::bench::{Bench, Load, gbit, percent};
use super::statistics::{
    CUBIC_FACTOR, CUBIC_RFC_FACTOR, binomial_99, cubic_window_segments, exponent, mathis_bits_per_second,
};
use crate::error::Result;
use crate::flow::Flow;

/// No stream comes near it: losses are the only limit.
const RATE: u64 = 10_000_000_000;
const MTU_BYTES: u32 = 1500;
const STREAMS: usize = 16;
/// The window of CUBIC remembers several losses, which come every few seconds: more streams see more of them.
const CUBIC_STREAMS: usize = 32;
const MATHIS_PERCENT_MAX: f64 = 30.0;
const CUBIC_PERCENT_MAX: f64 = 20.0;
const EXPONENT_DEVIATION_MAX: f64 = 0.05;

/// One measurement under loss.
struct Point {
    round_trip: Duration,
    streams: usize,
    load: Load,
    /// Losses per segment that the emulator made.
    p: f64,
    per_stream_bits_per_second: f64,
    /// As many losses as asked for, and none of another cause.
    is_clean: bool,
    asked: f64,
}

pub fn reno(bench: &mut Bench) -> Result<Finding> {
    let (near, far) = (Duration::from_millis(20), Duration::from_millis(80));
    let mut points = vec![point(bench, "reno", 1e-4, near, 12.0)?, point(bench, "reno", 1e-3, near, 10.0)?];
    points.push(point(bench, "reno", 1e-3, far, 10.0)?);
    let deviations: Vec<f64> = points.iter().map(|p| percent(p.per_stream_bits_per_second, p.mathis())).collect();
    let is_good = deviations.iter().all(|d| d.abs() <= MATHIS_PERCENT_MAX) && points.iter().all(|p| p.is_clean);
    let of_p = exponent(&[0, 1].map(|i| (points[i].p, points[i].per_stream_bits_per_second)));
    let of_round_trip = exponent(
        &[1, 2]
            .map(|i| (points[i].round_trip.as_secs_f64(), points[i].per_stream_bits_per_second * points[i].p.sqrt())),
    );
    let mut details: Vec<String> = points.iter().map(Point::line).collect();
    details.push(format!(
        "exponents: of loss {:.3} (law -0.5), of round trip {:.3} (law -1); within {EXPONENT_DEVIATION_MAX} expected, not judged \
         by two points each",
        of_p.unwrap_or(f64::NAN),
        of_round_trip.unwrap_or(f64::NAN)
    ));
    for name in ["cubic", "bbr"] {
        for p in [1e-4, 1e-3] {
            let beside = point(bench, name, p, near, 4.0);
            details.push(
                beside.map_or_else(|error| format!("{name}: {error}"), |point| format!("{name} {}", point.line())),
            );
        }
    }
    let show = |p: &Point, d: &f64| format!("{} ({d:+.0} %)", gbit(p.per_stream_bits_per_second));
    Ok(Finding::new(
        is_good,
        points.iter().zip(&deviations).map(|(p, d)| show(p, d)).collect::<Vec<_>>().join("; "),
        points.iter().map(|p| gbit(p.mathis())).collect::<Vec<_>>().join("; "),
        format!("{MATHIS_PERCENT_MAX} %; losses in the 99 % interval, of no other cause"),
    )
    .with(details))
}

pub fn cubic(bench: &mut Bench) -> Result<Finding> {
    let round_trip = Duration::from_millis(100);
    let point = point(bench, "cubic", 1e-4, round_trip, 18.0)?;
    let segments = |bits_per_second: f64| {
        bits_per_second / 8.0 * round_trip.as_secs_f64() / f64::from(point.load.received.mss_bytes().max(1))
    };
    let measured = segments(point.per_stream_bits_per_second);
    let wanted = cubic_window_segments(CUBIC_FACTOR, round_trip.as_secs_f64(), point.p);
    let deviation = percent(measured, wanted);
    Ok(Finding::new(
        deviation.abs() <= CUBIC_PERCENT_MAX && point.is_clean,
        format!("window {measured:.0} segments ({deviation:+.0} %), {}", gbit(point.per_stream_bits_per_second)),
        format!("{wanted:.0} segments"),
        format!("{CUBIC_PERCENT_MAX} %"),
    )
    .with(vec![
        format!(
            "by the factor of RFC 9438, for evenly spaced losses: {:.0} segments",
            cubic_window_segments(CUBIC_RFC_FACTOR, round_trip.as_secs_f64(), point.p)
        ),
        point.line(),
    ]))
}

fn point(bench: &mut Bench, name: &str, loss: f64, round_trip: Duration, seconds: f64) -> Result<Point> {
    let mut scenario = bench.scenario(round_trip, Some(RATE));
    scenario.mtu_bytes = MTU_BYTES;
    scenario.links[0].directions[0].loss = loss;
    let scenario = bench.per_segment(scenario);
    let lab = bench.up(scenario)?;
    // Slow start ends with the first loss, far above the law; it takes some losses to come down.
    let is_long = round_trip >= Duration::from_millis(100);
    let (streams, omitted) = if is_long { (CUBIC_STREAMS, 20) } else { (STREAMS, 4) };
    let flow = Flow {
        streams,
        congestion_control: Some(name.into()),
        ..Flow::lasting(Duration::from_secs_f64(seconds), Duration::from_secs(omitted))
    };
    let load = Load::run(&lab, &flow)?;
    let counts = &load.counts;
    // Netem counts no segments: then there is only what it was asked for.
    let is_counted = counts.segments > 0;
    let (low, high) = binomial_99(counts.segments, loss);
    Ok(Point {
        round_trip,
        streams,
        p: if is_counted { counts.lost_asked as f64 / counts.segments as f64 } else { loss },
        per_stream_bits_per_second: load.received.bits_per_second() / streams as f64,
        is_clean: !is_counted || (low..=high).contains(&counts.lost_asked) && load.overruns + counts.queue_drops == 0,
        asked: loss,
        load,
    })
}

impl Point {
    fn mathis(&self) -> f64 {
        mathis_bits_per_second(self.load.received.mss_bytes(), self.round_trip.as_secs_f64(), self.p)
    }

    fn line(&self) -> String {
        let counts = &self.load.counts;
        let (low, high) = binomial_99(counts.segments, self.asked);
        format!(
            "{} ms: {} streams of {} each, Mathis {}; {} segments, {} losses drawn ({low} to {high} for {}), {} segments \
             dropped, {} found the queue full, {} the emulator; MSS {}, min RTT {:.2} ms, {} retransmitted since the start",
            self.round_trip.as_millis(),
            self.streams,
            gbit(self.per_stream_bits_per_second),
            gbit(self.mathis()),
            counts.segments,
            counts.lost_asked,
            self.asked,
            counts.lost_made,
            counts.queue_drops,
            self.load.overruns,
            self.load.received.mss_bytes(),
            self.load.received.streams.first().map_or(0.0, |stream| f64::from(stream.rtt_us_min) / 1e3),
            self.load.received.retransmitted_segments(),
        )
    }
}
