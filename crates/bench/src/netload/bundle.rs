//! The folder that a run leaves: `README.md`, `summary.json`, `intervals.csv`, and pictures in `plots/`.
//!
//! Every figure of the summary can be computed again from the intervals, which hold the omitted part too.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde::Serialize;

use super::interval::{StreamInterval, Totals};
use super::outcome::Outcome;
use super::slowdown::Slowdown;
use super::{Load, picture};
use crate::environment::Environment;
use crate::error::{Error, Result};

/// Writes the folder, replacing the files of an earlier one. `regenerate` is the command that makes it again.
pub fn write(outcome: &Outcome, regenerate: &str, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
    let environment = Environment::read();
    for (name, text) in [
        ("intervals.csv", csv(outcome)),
        ("summary.json", json(outcome, &environment)),
        ("README.md", readme(outcome, &environment, regenerate)),
    ] {
        let path = dir.join(name);
        fs::write(&path, text).map_err(Error::io("write", &path))?;
    }
    let plots = dir.join("plots");
    picture::plots(outcome).iter().try_for_each(|plot| plot.write(&plots))
}

/// One line for each stream and interval.
fn csv(outcome: &Outcome) -> String {
    let mut text = String::from(
        "from_seconds,seconds,is_omitted,stream,way,bytes,bits_per_second,retransmitted_segments,sent_segments,rtt_us,\
         rtt_us_min,cwnd_segments,mss_bytes,delivery_bits_per_second,busy_share,rwnd_limited_share,\
         sndbuf_limited_share\n",
    );
    for interval in &outcome.intervals {
        for stream in &interval.streams {
            let (at, way) = (interval, super::outcome::name(stream.way));
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:.6},{:.6},{},{},{way},{},{:.0},{},{},{},{},{},{},{:.0},{:.4},{:.4},{:.4}",
                at.from_seconds,
                at.seconds,
                at.is_omitted,
                stream.stream,
                stream.bytes,
                stream.bits_per_second,
                stream.retransmitted_segments,
                stream.sent_segments,
                stream.rtt_us,
                stream.rtt_us_min,
                stream.cwnd_segments,
                stream.mss_bytes,
                stream.delivery_bits_per_second,
                stream.busy_share,
                stream.rwnd_limited_share,
                stream.sndbuf_limited_share,
            );
        }
    }
    text
}

fn json(outcome: &Outcome, environment: &Environment) -> String {
    #[derive(Serialize)]
    struct Summary<'a> {
        load: &'a Load,
        server: &'a str,
        client_kernel: &'a str,
        server_kernel: &'a str,
        client_congestion: &'a str,
        server_congestion: &'a str,
        seconds: f64,
        bits_per_second: f64,
        totals: &'a [Totals],
        streams: &'a [StreamInterval],
        slowdowns: &'a [Slowdown],
        void: &'a [String],
        environment: &'a Environment,
    }
    let peers = &outcome.peers;
    let summary = Summary {
        load: &outcome.load,
        server: &peers.address,
        client_kernel: &peers.client_kernel,
        server_kernel: &peers.server_kernel,
        client_congestion: &peers.client_congestion,
        server_congestion: &peers.server_congestion,
        seconds: outcome.seconds,
        bits_per_second: outcome.bits_per_second(),
        totals: &outcome.totals,
        streams: &outcome.streams,
        slowdowns: &outcome.slowdowns,
        void: &outcome.void,
        environment,
    };
    serde_json::to_string_pretty(&summary).expect("plain values have a JSON form") + "\n"
}

fn readme(outcome: &Outcome, environment: &Environment, regenerate: &str) -> String {
    let load = &outcome.load;
    let tls = if load.is_encrypted { "TLS 1.3 records as in a transfer" } else { "clear text" };
    let mut text = format!(
        "# Memory to memory\n\n{} streams in each direction, {tls}, {:.1} s counted after {:.1} s left out, {} UTC.\n\n{}\n\nMade \
         by `{regenerate}`. Rates are the receiver's; the rest is what the \
         sender's kernel says. `intervals.csv` has a line for each stream and interval.\n\n",
        load.streams,
        outcome.seconds,
        load.omitted.as_secs_f64(),
        environment.started,
        environment.lines().iter().map(|line| format!("- {line}")).collect::<Vec<_>>().join("\n")
    );
    text.push_str("| direction | Gbit/s | sent again | round trip min / last | CPU s per GB, both ends |\n|---|---|---|---|---|\n");
    for totals in &outcome.totals {
        let _ = writeln!(
            text,
            "| {} | {:.3} | {} ({:.4} %) | {:.2} / {:.2} ms | {:.3} |",
            super::outcome::name(totals.way),
            totals.bits_per_second / 1e9,
            totals.retransmitted_segments,
            totals.retransmitted_share() * 100.0,
            totals.rtt_us_min as f64 / 1e3,
            totals.rtt_us as f64 / 1e3,
            totals.cpu_seconds_per_gb()
        );
    }
    for slowdown in &outcome.slowdowns {
        let (from, seconds) = (slowdown.from_seconds, slowdown.seconds);
        let _ = write!(text, "\n- stream {}, {from:.1} s, for {seconds:.1} s: {}", slowdown.stream, slowdown.cause);
    }
    for reason in &outcome.void {
        let _ = write!(text, "\n\nVoid: {reason}.");
    }
    text.push('\n');
    text
}
