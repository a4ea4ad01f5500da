//! How many streams a job gets: as many busy lanes as cores, and more where distance makes lanes wait.
//!
//! The rule, in order; the largest of 1 to 3 is taken, 4 to 6 overrule it:
//! 1. **Cores.** One lane for each core of the smaller side. A lane runs to completion and keeps a core busy; on two
//!    cores 2 lanes moved 21.4 Gbit/s, 4 lanes 18.1 and 8 lanes 16.7: more runnable lanes than cores only cost.
//! 2. **Window.** A stream carries at most its window for each round trip. Enough streams for the windows together to
//!    carry what the cores could move: `streams x window / RTT >= cores x LANE_BITS_PER_SECOND`, up to `STREAMS_FOR_WINDOW_MAX`.
//! 3. **Loss.** At least `LOSS_BASED_STREAMS_MIN` streams from `LOSS_BASED_RTT_US_MIN` on, except with BBR.
//! 4. A number that was asked for is taken instead.
//! 5. Never more than the other side takes, nor than `STREAMS_CHOSEN_MAX`.
//! 6. One, where the data has one order.
//!
//! Where a job uses several network paths, the cores, a number that was asked for and `STREAMS_CHOSEN_MAX` are shared among them.
//!
//! The path's capacity and its loss are not known before the first byte and are no input: on a path thinner than the
//! cores the streams beyond what it needs lie idle in their sockets, which costs memory and no rate. Not here: changing
//! the number while a transfer runs (`adapt`).

use model::quantity::{ByteCount, Rate};

/// What one busy core moves with TLS and digest on: 19.5 Gbit/s were measured with both ends on two shared cores. A
/// receiver that has its cores to itself reaches 13.6 (0.59 CPU s/GB); the lower figure is taken because `window_bytes`
/// already errs towards more streams.
const LANE_BITS_PER_SECOND: u64 = 10_000_000_000;

/// The part of a socket buffer that is payload under way: one half, at both ends.
///
/// The kernel charges a buffer with `truesize`, payload plus what holds it. Sending: a full 4 MiB buffer held 71 %
/// payload and took more only after it had drained to 47 % (measured on loopback; `sk_stream_is_writeable` asks for a
/// third of free space), so that what is under way moves between these two. Receiving: the advertised window is the
/// buffer times the expected share of payload, by default one half (`tcp_adv_win_scale` = 1, and since Linux 6.6 the
/// socket's own `scaling_ratio`, which starts at 50 % or less).
const BUFFER_BYTES_PER_WINDOW_BYTE: u64 = 2;

/// More streams are never chosen: 64 of 2 MiB cover 10 Gbit/s at 100 ms, and each costs a thread and its blocks at both
/// ends.
pub const STREAMS_CHOSEN_MAX: u32 = 64;

/// For windows no more are opened at first: whether the path is that fast is not known yet, and opening twice as many costs a short
/// transfer up to a fifth of its rate. The tuner adds more where windows hold the streams back (docs/decisions/069).
const STREAMS_FOR_WINDOW_MAX: u32 = 32;

/// Round trip from which a loss-based congestion control is given several streams. After one loss a CUBIC stream of
/// 10 Gbit/s (segments of 1448 bytes) is back after 0.5 s at 1 ms, 12 s at 5 ms (both in its Reno-friendly region,
/// where the time grows with the square of the RTT) and 19 s at 10 ms (`K` below). Shorter paths lie mostly within one
/// site, where loss is rare and the cores bring several streams anyway.
const LOSS_BASED_RTT_US_MIN: u64 = 10_000;

/// Streams that a loss-based congestion control gets over distance.
///
/// A single loss at full rate: CUBIC gives up 0.3 of the stream's window `W` and regains it in `K = cbrt(0.3 W / 0.4)`
/// seconds, 36 s for one stream of 10 Gbit/s at 74 ms. With n streams one n-th of the rate dips, for `K / cbrt(n)`: the
/// loss costs `n^(-4/3)` of what it cost one stream (Reno: `n^-2`). Four make it a sixth, start two doublings
/// further up in slow start, and still share a queue fairly with others.
///
/// Steady random loss: a Reno stream carries `1.22 x MSS / (RTT x sqrt(p))` (Mathis), 19 Mbit/s at 74 ms, MSS 1448 and
/// one loss in 10,000 segments; CUBIC's window is `1.054 x (RTT / p)^0.75` segments, 23 Mbit/s there. Both hold for a
/// stream, so that n streams carry n times as much, and 1 Gbit/s would need 43. So many are not opened on suspicion:
/// they would crowd out others wherever nothing is lost. On a path that loses, `adapt` adds them once the loss is seen.
///
/// BBR paces by the rate it has measured and does not take single losses for congestion (from version 2 on below 2 %):
/// it needs none of this.
const LOSS_BASED_STREAMS_MIN: u32 = 4;

/// What the number of streams is chosen from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamInputs {
    /// 0 when it was not measured: then distance is not considered.
    pub rtt_us: u64,
    /// Ceiling of the sender's socket buffer (`tcp_wmem[2]`, or what was granted).
    pub send_buffer_bytes_max: u64,
    /// Ceiling of the receiver's (`tcp_rmem[2]`), where it is known.
    pub receive_buffer_bytes_max: Option<u64>,
    pub processors_here: u32,
    /// 0 = not known yet: taken to be as many as here.
    pub processors_there: u32,
    pub asked: Option<u32>,
    /// Taken instead of what the cores, the window and the loss law want; by a plan.
    pub planned: Option<u32>,
    /// What both ends take.
    pub streams_max: u32,
    /// The data has one order (a pipe): a second stream could only wait.
    pub is_sequential: bool,
    /// Name of the congestion control, empty when it is not known.
    pub congestion: String,
    /// Network paths of the job, and which of them this is.
    pub paths: u32,
    pub path: u32,
}

/// A number of streams and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamChoice {
    pub streams: u32,
    /// One sentence, with the numbers.
    pub reason: String,
    /// Payload that one stream can have under way.
    pub window_bytes_per_stream: u64,
    /// Window over RTT; `u64::MAX` where that is more than a lane moves anyway.
    pub rate_bits_per_second_per_stream: u64,
}

/// Chooses the number of streams.
pub fn streams(inputs: &StreamInputs) -> StreamChoice {
    let window_bytes = window_bytes(inputs);
    let rate = rate_bits_per_second(window_bytes, inputs.rtt_us);
    let (wanted, why) = match inputs.planned {
        Some(planned) => (planned.div_ceil(inputs.paths.max(1)).max(1), "by the plan".to_owned()),
        None => wanted(inputs, window_bytes, rate),
    };
    let paths = inputs.paths.max(1);
    let cap = inputs.streams_max.clamp(1, (STREAMS_CHOSEN_MAX / paths).max(1));
    let (streams, reason) = if inputs.is_sequential {
        (u32::from(inputs.path == 0), "1 stream, because this data has one order".to_owned())
    } else if let Some(asked) = inputs.asked {
        let streams = share(asked.clamp(1, inputs.streams_max.max(1)), paths, inputs.path);
        let capped =
            if paths == 1 && asked > streams { format!(" (the most allowed here, of {asked})") } else { String::new() };
        (streams, format!("{} asked for{capped}; the automatic choice would be {}", counted(streams), wanted.min(cap)))
    } else if wanted > cap {
        (cap, format!("{}, the most allowed here ({wanted} wanted): {why}", counted(cap)))
    } else {
        (wanted, format!("{}: {why}", counted(wanted)))
    };
    StreamChoice { streams, reason, window_bytes_per_stream: window_bytes, rate_bits_per_second_per_stream: rate }
}

/// Round trips of the table that explains the choice.
const TABLE_RTT_MS: [u64; 10] = [0, 1, 2, 10, 20, 50, 74, 100, 200, 300];

/// The same hosts over paths of different length, for whoever wants the choice explained.
pub fn stream_table(inputs: &StreamInputs) -> Vec<(String, StreamChoice)> {
    let row = |ms: &u64| (format!("{ms} ms"), streams(&StreamInputs { rtt_us: ms * 1000, ..inputs.clone() }));
    TABLE_RTT_MS.iter().map(row).collect()
}

/// What the cores, the window and the loss law want, before any limit.
fn wanted(inputs: &StreamInputs, window_bytes: u64, rate: u64) -> (u32, String) {
    let cores = cores(inputs);
    let rtt = milliseconds(inputs.rtt_us);
    let of_all = streams_for_window(inputs.rtt_us, window_bytes, cores);
    let by_window = of_all.min(STREAMS_FOR_WINDOW_MAX.max(cores));
    let is_loss_based = !inputs.congestion.starts_with("bbr") && inputs.rtt_us >= LOSS_BASED_RTT_US_MIN;
    let by_loss = if is_loss_based { LOSS_BASED_STREAMS_MIN } else { 1 };
    if by_window > cores.max(by_loss) {
        let why = format!(
            "a stream has at most {} in flight (half of what its socket buffer may hold), {} at {rtt}, \
             and {} can move {}",
            ByteCount(window_bytes),
            shown(rate),
            cores_text(cores),
            shown(u64::from(cores).saturating_mul(LANE_BITS_PER_SECOND)),
        );
        let to_begin = if by_window < of_all {
            format!("; {of_all} streams would carry that, and no more than {by_window} are opened at first")
        } else {
            String::new()
        };
        return (by_window, why + &to_begin);
    }
    if by_loss > cores {
        let name = if inputs.congestion.is_empty() { "the congestion control" } else { &inputs.congestion };
        return (
            by_loss,
            format!("at {rtt} {name} needs long to recover from a loss, and several streams lose less by it"),
        );
    }
    let reach = match (inputs.rtt_us, rate) {
        (0, _) => String::new(),
        (_, u64::MAX) => format!(", and at {rtt} a window of {} does not limit a stream", ByteCount(window_bytes)),
        _ => format!(", and at {rtt} they carry {} each", shown(rate)),
    };
    let smaller = if inputs.processors_there == 0 { "this side" } else { "the smaller side" };
    (cores, format!("one for each core of {smaller}{reach}"))
}

/// What one of several paths gets of a number that was asked for: all together get no more.
fn share(asked: u32, paths: u32, path: u32) -> u32 {
    asked / paths + u32::from(path < asked % paths)
}

fn cores(inputs: &StreamInputs) -> u32 {
    let here = inputs.processors_here.max(1);
    let cores = if inputs.processors_there == 0 { here } else { here.min(inputs.processors_there) };
    (cores / inputs.paths.max(1)).max(1)
}

fn window_bytes(inputs: &StreamInputs) -> u64 {
    let receive = inputs.receive_buffer_bytes_max.unwrap_or(u64::MAX);
    (inputs.send_buffer_bytes_max.min(receive) / BUFFER_BYTES_PER_WINDOW_BYTE).max(1)
}

fn rate_bits_per_second(window_bytes: u64, rtt_us: u64) -> u64 {
    let bits_per_second = u128::from(window_bytes) * 8_000_000 / u128::from(rtt_us.max(1));
    if rtt_us == 0 || bits_per_second >= u128::from(LANE_BITS_PER_SECOND) { u64::MAX } else { bits_per_second as u64 }
}

/// The smallest number of streams whose windows together carry what the cores move.
fn streams_for_window(rtt_us: u64, window_bytes: u64, cores: u32) -> u32 {
    let bits_per_second = u128::from(cores) * u128::from(LANE_BITS_PER_SECOND);
    let under_way_bits = bits_per_second.saturating_mul(u128::from(rtt_us)) / 1_000_000;
    let streams = under_way_bits.div_ceil(u128::from(window_bytes) * 8);
    u32::try_from(streams).unwrap_or(u32::MAX)
}

fn counted(streams: u32) -> String {
    if streams == 1 { "1 stream".to_owned() } else { format!("{streams} streams") }
}

fn cores_text(cores: u32) -> String {
    if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") }
}

fn shown(bits_per_second: u64) -> String {
    Rate { bytes_per_second: bits_per_second as f64 / 8.0 }.to_string()
}

/// `74 ms`, `1.5 ms`, `0.04 ms`.
pub(crate) fn milliseconds(us: u64) -> String {
    let ms = us as f64 / 1000.0;
    match us {
        0 => "0 ms".to_owned(),
        1..1_000 => format!("{ms:.2} ms"),
        1_000..10_000 => format!("{ms:.1} ms"),
        _ => format!("{ms:.0} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn host() -> StreamInputs {
        StreamInputs {
            rtt_us: 0,
            send_buffer_bytes_max: 4 * MIB,
            receive_buffer_bytes_max: None,
            processors_here: 2,
            processors_there: 2,
            asked: None,
            planned: None,
            streams_max: 64,
            is_sequential: false,
            congestion: "cubic".to_owned(),
            paths: 1,
            path: 0,
        }
    }

    fn chosen(change: impl FnOnce(&mut StreamInputs)) -> StreamChoice {
        let mut inputs = host();
        change(&mut inputs);
        streams(&inputs)
    }

    fn table_of(change: impl FnOnce(&mut StreamInputs)) -> Vec<u32> {
        let mut inputs = host();
        change(&mut inputs);
        stream_table(&inputs).iter().map(|(_, choice)| choice.streams).collect()
    }

    #[test]
    fn a_short_path_gets_as_many_streams_as_the_smaller_side_has_cores() {
        let choice = chosen(|i| (i.rtt_us, i.processors_here, i.processors_there) = (200, 16, 6));
        assert_eq!(choice.streams, 6);
        assert_eq!(choice.rate_bits_per_second_per_stream, u64::MAX);
        assert!(choice.reason.contains("6 streams: one for each core of the smaller side"), "{}", choice.reason);
        assert_eq!(chosen(|i| (i.processors_here, i.processors_there) = (3, 0)).streams, 3);
        assert_eq!(chosen(|i| (i.processors_here, i.processors_there) = (0, 0)).streams, 1);
    }

    #[test]
    fn the_table_of_choices_is_the_documented_one() {
        // 0, 1, 2, 10, 20, 50, 74, 100, 200, 300 ms
        assert_eq!(table_of(|_| ()), [2, 2, 3, 12, 24, 32, 32, 32, 32, 32], "stock 4 MiB");
        assert_eq!(table_of(|i| i.congestion = "bbr".into()), [2, 2, 3, 12, 24, 32, 32, 32, 32, 32], "stock, bbr");
        let tuned = |i: &mut StreamInputs| i.send_buffer_bytes_max = 64 * MIB;
        assert_eq!(table_of(tuned), [2, 2, 2, 4, 4, 4, 6, 8, 15, 23], "64 MiB");
        let tuned = |i: &mut StreamInputs| i.send_buffer_bytes_max = 1024 * MIB;
        assert_eq!(table_of(tuned), [2, 2, 2, 4, 4, 4, 4, 4, 4, 4], "1 GiB");
        let tuned = |i: &mut StreamInputs| (i.send_buffer_bytes_max, i.congestion) = (1024 * MIB, "bbr".into());
        assert_eq!(table_of(tuned), [2, 2, 2, 2, 2, 2, 2, 2, 2, 2], "1 GiB, bbr");
    }

    #[test]
    fn windows_together_carry_what_the_cores_move() {
        let choice = chosen(|i| (i.rtt_us, i.send_buffer_bytes_max) = (74_000, 64 * MIB));
        assert_eq!(choice.window_bytes_per_stream, 32 * MIB);
        assert_eq!(choice.rate_bits_per_second_per_stream, 32 * MIB * 8_000_000 / 74_000);
        assert!(u64::from(choice.streams) * choice.rate_bits_per_second_per_stream >= 2 * LANE_BITS_PER_SECOND);
        assert_eq!(
            choice.reason,
            "6 streams: a stream has at most 32.0 MiB in flight (half of what its socket buffer may hold), \
             3.63 Gbit/s at 74 ms, and 2 cores can move 20.0 Gbit/s"
        );
    }

    #[test]
    fn the_smaller_of_the_two_buffers_is_the_window() {
        let choice = chosen(|i| (i.rtt_us, i.receive_buffer_bytes_max) = (2_000, Some(MIB)));
        assert_eq!(choice.window_bytes_per_stream, MIB / 2);
        assert_eq!(choice.streams, 10);
    }

    #[test]
    fn a_cap_and_a_request_are_told() {
        let capped = chosen(|i| (i.rtt_us, i.streams_max) = (100_000, 16));
        assert_eq!(capped.streams, 16);
        assert!(capped.reason.starts_with("16 streams, the most allowed here (32 wanted)"), "{}", capped.reason);
        let asked = chosen(|i| (i.rtt_us, i.asked) = (100_000, Some(3)));
        assert_eq!((asked.streams, &asked.reason[..]), (3, "3 streams asked for; the automatic choice would be 32"));
        let too_many = chosen(|i| (i.asked, i.streams_max) = (Some(900), 64));
        assert_eq!(too_many.streams, 64);
        assert!(too_many.reason.contains("the most allowed here, of 900"), "{}", too_many.reason);
    }

    #[test]
    fn paths_share_cores_and_what_was_asked_for() {
        let of_four = |path, asked| {
            chosen(|i| (i.paths, i.path, i.asked, i.processors_here, i.processors_there) = (4, path, asked, 8, 8))
        };
        assert_eq!(of_four(0, None).streams, 2);
        assert_eq!([0, 1, 2, 3].map(|path| of_four(path, Some(6)).streams), [2, 2, 1, 1]);
        assert_eq!(of_four(3, Some(2)).streams, 0);
        let far = chosen(|i| (i.paths, i.rtt_us) = (4, 100_000));
        assert_eq!(far.streams, STREAMS_CHOSEN_MAX / 4);
    }

    #[test]
    fn ordered_data_gets_one_stream_whatever_was_asked() {
        let choice = chosen(|i| (i.rtt_us, i.asked, i.is_sequential) = (100_000, Some(8), true));
        assert_eq!(choice.streams, 1);
        assert!(choice.reason.contains("one order"));
    }

    #[test]
    fn a_loss_based_control_gets_a_floor_over_distance() {
        let distant = |name: &str| {
            let choose = |i: &mut StreamInputs| (i.rtt_us, i.send_buffer_bytes_max) = (20_000, 1024 * MIB);
            chosen(|i| (choose(i), i.congestion = name.to_owned()).1)
        };
        assert_eq!(distant("cubic").streams, 4);
        assert!(distant("cubic").reason.contains("cubic needs long to recover"), "{}", distant("cubic").reason);
        assert_eq!(distant("reno").streams, 4);
        assert_eq!(distant("").streams, 4);
        assert_eq!(distant("bbr").streams, 2);
        assert_eq!(distant("bbr3").streams, 2);
    }

    #[test]
    fn round_trips_read_as_people_write_them() {
        let shown: Vec<_> = [0, 40, 1_500, 9_960, 74_012].map(milliseconds).into();
        assert_eq!(shown, ["0 ms", "0.04 ms", "1.5 ms", "10.0 ms", "74 ms"]);
    }

    proptest! {
        #[test]
        fn any_host_gets_a_number_within_bounds(
            rtt_us: u64, send: u64, receive: Option<u64>, here: u32, there: u32, asked: Option<u32>, max: u32,
            is_sequential: bool, congestion in "[a-z]{0,6}",
        ) {
            let inputs = StreamInputs {
                rtt_us, send_buffer_bytes_max: send, receive_buffer_bytes_max: receive, processors_here: here,
                processors_there: there, asked, planned: None, streams_max: max, is_sequential, congestion, paths: 1, path: 0,
            };
            let choice = streams(&inputs);
            prop_assert!(choice.streams >= 1 && choice.streams <= max.max(1));
            prop_assert!(asked.is_some() || choice.streams <= STREAMS_CHOSEN_MAX);
            prop_assert!(!choice.reason.is_empty() && !choice.reason.contains('\n'));
            prop_assert_eq!(stream_table(&inputs).len(), TABLE_RTT_MS.len());
        }

        #[test]
        fn distance_never_takes_streams_away(a in 0u64..500_000, b in 0u64..500_000, send in 1u64..1 << 31) {
            let at = |rtt_us| streams(&StreamInputs { rtt_us, send_buffer_bytes_max: send, ..host() }).streams;
            prop_assert!(at(a.min(b)) <= at(a.max(b)));
        }
    }
}
