//! Drives the watch against a model of one path: what the host's congestion control carries there, what one stream with BBR carries and
//! loses, and the queue that is seen meanwhile.

use super::*;

const MBIT: f64 = 125_000.0;
const RTT_US: u64 = 74_000;
const SEGMENT_BYTES: f64 = 1448.0;

/// What a path makes of the streams at one moment.
#[derive(Clone, Copy)]
struct Path {
    /// Rate and share that is lost with the host's congestion control, and with BBR for one stream.
    own: (f64, f64),
    bbr: (f64, f64),
    /// For each further stream with BBR, until the first figure is reached.
    more: f64,
    queue_us: u64,
    rtt_us: u64,
    do_windows_limit: bool,
}

/// A path of 1 Gbit/s that loses one segment in a thousand.
fn lossy() -> Path {
    let (own, bbr) = ((300.0 * MBIT, 0.001), (950.0 * MBIT, 0.004));
    Path { own, bbr, more: 0.0, queue_us: 0, rtt_us: RTT_US, do_windows_limit: false }
}

/// The same with a queue so short that it looks like losses of the path: BBR takes what others had, and loses much.
fn short_queue() -> Path {
    Path { own: (150.0 * MBIT, 0.002), bbr: (900.0 * MBIT, 0.04), ..lossy() }
}

#[derive(Default)]
struct Run {
    watch: LossWatch,
    sent: Sent,
    /// Streams with BBR, whenever they changed, in seconds.
    changes: Vec<(f64, u32)>,
    bytes: f64,
    segments: f64,
    again: f64,
    left_bytes: Option<u64>,
}

impl Run {
    fn on(&mut self, path: &Path, seconds: f64) {
        const STEP_S: f64 = 0.05;
        for _ in 0..(seconds / STEP_S).round() as u64 {
            let streams = self.watch.streams();
            let (rate, lost) = match streams {
                0 => path.own,
                n => (path.bbr.0 + path.more * f64::from(n - 1), path.bbr.1),
            };
            self.bytes += rate * STEP_S;
            self.segments += rate * STEP_S / SEGMENT_BYTES;
            self.again += rate * STEP_S / SEGMENT_BYTES * lost;
            let step_us = (STEP_S * 1e6) as u64;
            self.sent = Sent {
                at_us: self.sent.at_us + step_us,
                streams: 8,
                bytes: self.bytes as u64,
                segments: self.segments as u64,
                segments_again: self.again as u64,
                rtt_us_min: path.rtt_us,
                rtt_us: path.rtt_us + path.queue_us,
                rtt_var_us: 0,
                busy_us: self.sent.busy_us + step_us,
                window_limited_us: self.sent.window_limited_us + step_us * u64::from(path.do_windows_limit),
                left_bytes: self.left_bytes,
            };
            self.watch.step(&self.sent, &|| Ok(()));
            if self.watch.streams() != streams {
                self.changes.push((self.sent.at_us as f64 / 1e6, self.watch.streams()));
            }
        }
    }
}

fn run(path: &Path, seconds: f64) -> Run {
    let mut run = Run::default();
    run.on(path, seconds);
    run
}

#[test]
fn a_path_that_loses_by_itself_gets_one_stream_with_bbr_within_three_seconds() {
    let run = run(&lossy(), 60.0);
    let [(at, 1)] = run.changes[..] else { panic!("{:?}", run.changes) };
    assert!(at <= 3.0, "{at}");
    assert!(run.watch.note().unwrap().contains("BBR for one stream, because 0."));
    assert!(!run.watch.are_losses_congestion(run.sent.at_us));
}

#[test]
fn without_losses_or_with_a_queue_nothing_is_tried() {
    let clean = Path { own: (300.0 * MBIT, 0.0), ..lossy() };
    let full = Path { queue_us: RTT_US / 2, ..lossy() };
    for path in [clean, full] {
        let run = run(&path, 60.0);
        assert!(run.changes.is_empty() && run.watch.note().is_none(), "{:?}", run.changes);
    }
}

#[test]
fn what_slow_start_lost_is_no_reason() {
    let mut run = run(&lossy(), 0.6);
    run.on(&Path { own: (900.0 * MBIT, 0.0), ..lossy() }, 30.0);
    assert_eq!(run.changes, []);
}

#[test]
fn a_queue_that_is_too_short_for_it_sends_it_away_for_longer_each_time() {
    let mut run = run(&short_queue(), 20.0);
    let [(from, 1), (to, 0)] = run.changes[..] else { panic!("{:?}", run.changes) };
    assert!(to - from < 4.0, "others are crowded out for {} s", to - from);
    assert!(run.watch.are_losses_congestion(run.sent.at_us));
    run.on(&short_queue(), 3_600.0);
    let tries: Vec<_> = run.changes.iter().filter(|(_, streams)| *streams > 0).map(|(at, _)| *at).collect();
    assert!(tries.len() == 5 && tries[4] - tries[3] > 1_900.0, "{tries:?}");
    assert!(run.watch.note().unwrap().contains("it lost too much"));
}

#[test]
fn what_brings_nothing_is_taken_back() {
    let bound_elsewhere = Path { own: (300.0 * MBIT, 0.001), bbr: (310.0 * MBIT, 0.001), ..lossy() };
    assert_eq!(run(&bound_elsewhere, 30.0).watch.streams(), 0);
}

#[test]
fn a_round_trip_that_becomes_shorter_shows_that_others_had_a_queue_stand() {
    let seemed = Path { rtt_us: 2 * RTT_US, ..lossy() };
    let mut run = run(&seemed, 20.0);
    assert_eq!(run.watch.streams(), 1);
    run.on(&Path { rtt_us: RTT_US, ..seemed }, 3.0);
    assert_eq!(run.watch.streams(), 0);
    assert!(run.watch.note().unwrap().contains("others had kept a queue full"));
}

#[test]
fn it_goes_when_losses_multiply_and_when_there_are_none_any_more() {
    let mut begun = run(&lossy(), 20.0);
    begun.on(&Path { bbr: (900.0 * MBIT, 0.05), ..lossy() }, 3.0);
    assert_eq!(begun.watch.streams(), 0);

    let mut begun = run(&lossy(), 20.0);
    let mended = Path { own: (900.0 * MBIT, 0.0), bbr: (950.0 * MBIT, 0.0), ..lossy() };
    begun.on(&mended, 20.0);
    assert_eq!(begun.watch.streams(), 1, "a pause between bursts");
    begun.on(&mended, 15.0);
    assert_eq!(begun.watch.streams(), 0);
    // That was no failure: it comes back at once.
    begun.on(&lossy(), 3.0);
    assert_eq!(begun.watch.streams(), 1);
}

#[test]
fn where_windows_hold_it_back_more_streams_have_it_as_long_as_they_bring_more() {
    let stock = Path {
        own: (100.0 * MBIT, 0.001),
        bbr: (200.0 * MBIT, 0.001),
        more: 200.0 * MBIT,
        do_windows_limit: true,
        ..lossy()
    };
    assert_eq!(run(&stock, 60.0).watch.streams(), 8, "all that there are");
    let full = Path { more: 0.0, ..stock };
    let run = run(&full, 60.0);
    assert_eq!(run.changes.iter().map(|(_, streams)| *streams).collect::<Vec<_>>(), [1, 2, 1]);
}

/// A job that begins with what an earlier one found.
fn known(path: &Path, seconds: f64) -> Run {
    let Finding::Lossy(found) = run(&lossy(), 20.0).watch.finding() else { panic!("nothing was found") };
    let mut run = Run::default();
    run.watch.begin_as_known(found, &|| Ok(()));
    run.on(path, seconds);
    run
}

#[test]
fn what_an_earlier_job_found_is_used_from_the_start_and_goes_where_it_is_wrong() {
    let run = known(&lossy(), 20.0);
    let [(at, 1)] = run.changes[..] else { panic!("{:?}", run.changes) };
    assert!(at < 1.5 && !run.watch.is_trying(), "all have it until they know their rates: {at}");
    assert!(matches!(run.watch.finding(), Finding::Lossy(_)));
    for wrong in [short_queue(), Path { bbr: (310.0 * MBIT, 0.001), ..lossy() }] {
        let run = known(&wrong, 5.0);
        assert_eq!((run.watch.streams(), run.watch.finding()), (0, Finding::NotLossy));
    }
    // A path with another round trip is a new one, and finds out at once.
    let run = known(&Path { rtt_us: RTT_US / 2, ..lossy() }, 20.0);
    assert!(run.watch.note().unwrap().contains("the round trip is shorter than it was"));
    assert!(run.watch.streams() == 1 && matches!(run.watch.finding(), Finding::Lossy(_)));
    // In a second and a half nothing can be found out, and what was known stays.
    assert_eq!(known(&short_queue(), 1.5).watch.finding(), Finding::Nothing);
    let mut refused = LossWatch::default();
    let Finding::Lossy(found) = run.watch.finding() else { unreachable!() };
    refused.begin_as_known(found, &|| Err("not allowed".to_owned()));
    assert!(refused.streams() == 0 && refused.note().is_none());
}

#[test]
fn where_there_is_too_little_to_send_nothing_is_judged_and_streams_are_tuned_again() {
    let Finding::Lossy(found) = run(&lossy(), 20.0).watch.finding() else { panic!("nothing was found") };
    let mut idle = LossWatch::default();
    idle.begin_as_known(found, &|| Ok(()));
    for step in 1..200_u64 {
        let (at_us, bytes) = (step * 50_000, step * 1_000_000);
        let sent = Sent { at_us, bytes, segments: step * 700, rtt_us_min: RTT_US, rtt_us: RTT_US, ..Sent::default() };
        idle.step(&Sent { streams: 8, busy_us: at_us / 10, ..sent }, &|| Ok(()));
    }
    assert!(!idle.is_trying() && idle.streams() == 0);
    assert_eq!(idle.finding(), Finding::Nothing);
}

#[test]
fn a_job_that_is_about_to_end_and_a_path_within_a_site_are_left_alone() {
    let mut ending = Run { left_bytes: Some((100.0 * MBIT) as u64), ..Run::default() };
    ending.on(&lossy(), 30.0);
    assert_eq!(ending.changes, []);
    for rtt_us in [200, RTT_US_MIN - 1] {
        assert_eq!(run(&Path { rtt_us, ..lossy() }, 30.0).changes, []);
    }
    // Nor does one begin with what an earlier program found there.
    let mut known = LossWatch::default();
    known.begin_as_known(LossyPath { rate: 1e7, lost_allowed: 0.03, rtt_us: RTT_US_MIN - 1 }, &|| Ok(()));
    assert!(known.streams() == 0 && known.note().is_none());
}

#[test]
fn what_carries_less_than_before_is_no_congestion_but_goes() {
    let mut run = run(&lossy(), 20.0);
    run.on(&Path { bbr: (200.0 * MBIT, 0.001), ..lossy() }, 3.0);
    assert_eq!(run.watch.streams(), 0);
    assert!(!run.watch.are_losses_congestion(run.sent.at_us), "more streams may help");
}

#[test]
fn a_stream_that_takes_the_place_of_another_has_a_slow_start_of_its_own() {
    let mut run = run(&lossy(), 20.0);
    run.watch.has_changed(run.sent.at_us);
    run.on(&Path { bbr: (200.0 * MBIT, 0.06), ..lossy() }, 0.8);
    run.on(&lossy(), 10.0);
    assert_eq!(run.watch.streams(), 1);
}

#[test]
fn no_samples_make_it_panic_and_where_it_cannot_be_used_that_is_asked_once() {
    let mut watch = LossWatch::default();
    for sent in [Sent { at_us: u64::MAX, bytes: u64::MAX, ..Sent::default() }, Sent { bytes: 1, ..Sent::default() }] {
        watch.step(&sent, &|| Ok(()));
        watch.step(&Sent { segments: u64::MAX, segments_again: u64::MAX, rtt_us_min: u64::MAX, ..sent }, &|| Ok(()));
    }
    let asked = std::cell::Cell::new(0);
    let check = || {
        asked.set(asked.get() + 1);
        Err("not allowed".to_owned())
    };
    let mut watch = LossWatch::default();
    for second in 1..1_000u64 {
        let sent = Sent {
            at_us: second * 1_000_000,
            bytes: second << 20,
            segments: second * 1_000,
            segments_again: second,
            ..Sent::default()
        };
        watch.step(&Sent { rtt_us_min: RTT_US, rtt_us: RTT_US, ..sent }, &check);
    }
    assert_eq!((watch.streams(), asked.get()), (0, 1));
    assert!(watch.note().unwrap().ends_with("with an empty queue: not allowed"));
}
