//! A run as lines for people and as events for programs (docs/bench-net.md lists them, a test pins them).

use crate::exit::{self, Error};
use crate::output::{grouped, line};
use bench::netload::{
    Direction, Interval, Load, Outcome, Peers, Served, Slowdown, StreamInterval, Totals, Trouble, Way,
};
use model::Exit;
use model::quantity::{ByteCount, Rate};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const VERSION: u32 = 1;
/// Streams with a row each; of more, the sums say what matters and `--out` has the rest.
const ROWS_MAX: usize = 32;
const SLOWDOWNS_MAX: usize = 20;

/// What is about to be measured.
pub fn start(load: &Load, peers: &Peers) -> String {
    let way = match load.direction {
        Direction::Forward => "to",
        Direction::Reverse => "from",
        Direction::Both => "to and from",
    };
    let streams = if load.streams == 1 { "1 stream".into() } else { format!("{} streams", load.streams) };
    let kind = if load.is_encrypted { "sealed like a transfer's (protects nothing)" } else { "of clear text" };
    let omitted = if load.omitted.is_zero() {
        String::new()
    } else {
        format!(" after {} s left out", load.omitted.as_secs_f64())
    };
    format!(
        "{streams} {kind} {way} {}, {} s{omitted}, {}",
        peers.address,
        load.duration.as_secs_f64(),
        congestion(load, peers)
    )
}

/// One line for each direction.
pub fn interval(interval: &Interval) -> Vec<String> {
    let to = interval.from_seconds + interval.seconds;
    let omitted = if interval.is_omitted { "  (left out)" } else { "" };
    let one = |totals: &Totals| {
        format!(
            "{:7.2} - {to:7.2} s  {:<7}  {:>11}  {:>7} again  rtt {:>8}{omitted}",
            interval.from_seconds,
            name(totals.way),
            rate(totals.bits_per_second),
            grouped(totals.retransmitted_segments),
            ms(totals.rtt_us)
        )
    };
    interval.totals.iter().map(one).collect()
}

/// The table of streams and sums, then what went badly.
pub fn outcome(outcome: &Outcome) -> Vec<String> {
    let mut lines = vec![String::new(), table_head()];
    if outcome.streams.len() <= ROWS_MAX {
        lines.extend(outcome.streams.iter().map(row));
    }
    for totals in &outcome.totals {
        lines.push(format!(
            "{:>6}  {:<7}  {:>11}  {:>9}  {:>8.4} %  {:>9}  {:>9}",
            "all",
            name(totals.way),
            rate(totals.bits_per_second),
            grouped(totals.retransmitted_segments),
            totals.retransmitted_share() * 100.0,
            ms(totals.rtt_us_min),
            ms(totals.rtt_us)
        ));
    }
    lines.push(String::new());
    for totals in &outcome.totals {
        let per_gb = |seconds: f64| seconds / (totals.bytes.max(1) as f64 / 1e9);
        lines.push(format!(
            "{}: {} arrived in {:.2} s; {:.1} segments sent again per minute; CPU {:.3} s per GB (sender {:.3}, \
             receiver {:.3})",
            name(totals.way),
            ByteCount(totals.bytes),
            outcome.seconds,
            totals.retransmitted_segments as f64 * 60.0 / outcome.seconds.max(1e-6),
            totals.cpu_seconds_per_gb(),
            per_gb(totals.sender_cpu_seconds),
            per_gb(totals.receiver_cpu_seconds)
        ));
    }
    lines.extend(outcome.slowdowns.iter().take(SLOWDOWNS_MAX).map(slowdown));
    if outcome.slowdowns.len() > SLOWDOWNS_MAX {
        lines.push(format!("and {} more; --out lists them", outcome.slowdowns.len() - SLOWDOWNS_MAX));
    }
    lines.extend(outcome.void.iter().map(|reason| format!("void: {reason}")));
    lines
}

/// A session that a server has ended.
pub fn served(served: &Served) -> String {
    let what = match &served.load {
        Some(load) => format!("{} streams, {} s", load.streams, load.duration.as_secs_f64()),
        None => "no run".into(),
    };
    let problem = if served.problem.is_empty() { String::new() } else { format!(": {}", exit::plain(&served.problem)) };
    format!("{}: {what}{problem}", served.peer)
}

/// Writes events to standard output until nobody reads them.
#[derive(Default)]
pub struct Json {
    is_closed: AtomicBool,
}

impl Json {
    pub fn start(&self, load: &Load, peers: &Peers) {
        self.write(
            "start",
            &Start {
                server: &peers.address,
                streams: load.streams,
                direction: load.direction,
                seconds: load.duration.as_secs_f64(),
                omitted_seconds: load.omitted.as_secs_f64(),
                interval_seconds: load.interval.as_secs_f64(),
                is_encrypted: load.is_encrypted,
                congestion: congestion(load, peers),
                pacing_bits_per_second: load.pacing_bits_per_second,
                block_bytes: load.block_bytes,
                client_kernel: &peers.client_kernel,
                server_kernel: &peers.server_kernel,
            },
        );
    }

    pub fn interval(&self, interval: &Interval) {
        self.write("interval", interval);
    }

    pub fn done(&self, outcome: &Outcome) {
        self.write(
            "done",
            &Done {
                seconds: outcome.seconds,
                bits_per_second: outcome.bits_per_second(),
                totals: &outcome.totals,
                cpu_seconds_per_gb: outcome.totals.iter().map(Totals::cpu_seconds_per_gb).collect(),
                streams: &outcome.streams,
                slowdowns: &outcome.slowdowns,
                void: &outcome.void,
                code: Exit::Done as i32,
            },
        );
    }

    pub fn error(&self, error: &Error) {
        let hint = error.hint.as_deref().unwrap_or_else(|| exit::hint_for(error.exit));
        self.write("error", &Problem { message: &error.message, hint, code: error.exit as i32 });
    }

    fn write(&self, event: &'static str, fields: &impl Serialize) {
        #[derive(Serialize)]
        struct Line<'a, T> {
            v: u32,
            event: &'static str,
            #[serde(flatten)]
            fields: &'a T,
        }
        if self.is_closed.load(Relaxed) {
            return;
        }
        let text = serde_json::to_string(&Line { v: VERSION, event, fields }).expect("plain values have a JSON form");
        if !line(&text) {
            self.is_closed.store(true, Relaxed);
        }
    }
}

#[derive(Serialize)]
struct Start<'a> {
    server: &'a str,
    streams: u32,
    direction: Direction,
    seconds: f64,
    omitted_seconds: f64,
    interval_seconds: f64,
    is_encrypted: bool,
    congestion: String,
    pacing_bits_per_second: Option<u64>,
    block_bytes: u32,
    client_kernel: &'a str,
    server_kernel: &'a str,
}

#[derive(Serialize)]
struct Done<'a> {
    seconds: f64,
    bits_per_second: f64,
    totals: &'a [Totals],
    cpu_seconds_per_gb: Vec<f64>,
    streams: &'a [StreamInterval],
    slowdowns: &'a [Slowdown],
    void: &'a [String],
    code: i32,
}

#[derive(Serialize)]
struct Problem<'a> {
    message: &'a str,
    hint: &'a str,
    code: i32,
}

/// Of those who send.
fn congestion(load: &Load, peers: &Peers) -> String {
    match load.direction {
        Direction::Forward => peers.client_congestion.clone(),
        Direction::Reverse => peers.server_congestion.clone(),
        Direction::Both if peers.client_congestion == peers.server_congestion => peers.client_congestion.clone(),
        Direction::Both => format!("{} and {}", peers.client_congestion, peers.server_congestion),
    }
}

fn table_head() -> String {
    format!(
        "{:>6}  {:<7}  {:>11}  {:>9}  {:>10}  {:>9}  {:>9}  {:>7}  {:>6}  {:>6}  {:>6}",
        "stream", "way", "received", "again", "share", "rtt min", "rtt", "cwnd", "busy", "rwnd", "sndbuf"
    )
}

fn row(stream: &StreamInterval) -> String {
    let share = stream.retransmitted_segments as f64 / stream.sent_segments.max(1) as f64 * 100.0;
    format!(
        "{:>6}  {:<7}  {:>11}  {:>9}  {share:>8.4} %  {:>9}  {:>9}  {:>7}  {:>4.0} %  {:>4.0} %  {:>4.0} %",
        stream.stream,
        name(stream.way),
        rate(stream.bits_per_second),
        grouped(stream.retransmitted_segments),
        ms(stream.rtt_us_min),
        ms(stream.rtt_us),
        grouped(stream.cwnd_segments),
        stream.busy_share * 100.0,
        stream.rwnd_limited_share * 100.0,
        stream.sndbuf_limited_share * 100.0
    )
}

fn slowdown(slowdown: &Slowdown) -> String {
    let what = match slowdown.trouble {
        Trouble::Stall => "stood still",
        Trouble::Dip => "fell below half its rate",
    };
    format!(
        "stream {} {what} at {:.2} s for {:.2} s: {}",
        slowdown.stream, slowdown.from_seconds, slowdown.seconds, slowdown.cause
    )
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Forward => "forward",
        Way::Reverse => "reverse",
    }
}

fn rate(bits_per_second: f64) -> String {
    Rate { bytes_per_second: bits_per_second / 8.0 }.to_string()
}

fn ms(us: u64) -> String {
    match us {
        0..1000 => format!("{us} us"),
        _ => format!("{:.2} ms", us as f64 / 1e3),
    }
}
