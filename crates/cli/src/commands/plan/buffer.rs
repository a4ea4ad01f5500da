//! `thalweg plan buffer`: when a buffer before slower storage is full, and when everything is received and durable.

use super::values::rate_above_zero;
use crate::exit::{Result, usage};
use crate::output::line;
use model::Exit;
use model::quantity::{ByteCount, Rate, duration, parse_bytes};
use plan::staging::{Leg, Legs, Staging, Stalling};
use serde_json::json;
use std::time::Duration;

/// Calculate a buffer before slower storage: when it is full, when all is received, when all is durable
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg plan buffer --capacity 4TB --in 10GB --out 4GB --volume 10TB\n\
\x20   thalweg plan buffer --capacity 800GiB --in 25Gbit --out 1.1GB --volume 20TB --json")]
pub struct Args {
    /// How much the buffer holds
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, env = "THALWEG_CAPACITY")]
    capacity: u64,
    /// How fast data comes
    #[arg(long = "in", value_name = "RATE", value_parser = rate_above_zero, env = "THALWEG_IN")]
    in_rate: f64,
    /// How fast the storage behind the buffer takes it
    #[arg(long = "out", value_name = "RATE", value_parser = rate_above_zero, env = "THALWEG_OUT")]
    out_rate: f64,
    /// How much there is in all
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, env = "THALWEG_VOLUME")]
    volume: u64,
    /// Storage that stands still now and then: 5s/20s for 5 of every 20 seconds; --out is its rate when it moves. The
    /// answer then also has what a path of the rate --in carries on average with 4 streams and chunks of 8 MiB, and how large the
    /// buffer must be to leave it undisturbed
    #[arg(long, value_name = "TIME/TIME", value_parser = stall, env = "THALWEG_STALL")]
    stall: Option<(Duration, Duration)>,
    /// Print the answer as one JSON object
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

pub fn run(args: &Args) -> Result<Exit> {
    if args.volume == 0 {
        return Err(usage("--volume 0: nothing would be moved", "name the size of what is to be moved"));
    }
    let staging = Staging {
        capacity_bytes: args.capacity as f64,
        in_bytes_per_second: args.in_rate,
        out_bytes_per_second: args.out_rate,
        volume_bytes: args.volume as f64,
    };
    let stalling = args.stall.map(|(length, period)| Stalling {
        bytes_per_second: args.out_rate,
        stall_seconds: length.as_secs_f64(),
        period_seconds: period.as_secs_f64(),
    });
    if let Some(sink) = stalling {
        return stalls(args, sink);
    }
    let times = staging.times();
    if args.json {
        let answer = json!({
            "v": 1,
            "fill_seconds": times.fill_seconds,
            "received_seconds": times.received_seconds,
            "durable_seconds": times.durable_seconds,
        });
        line(&answer.to_string());
        return Ok(Exit::Done);
    }
    let full = match times.fill_seconds {
        None => "never: it drains as fast as it fills".to_owned(),
        Some(seconds) if seconds > times.received_seconds => {
            format!("never with this volume (it would take {})", duration(seconds))
        }
        Some(seconds) => format!("after {}", duration(seconds)),
    };
    line(&format!("full      {full}"));
    line(&format!("received  after {}", duration(times.received_seconds)));
    line(&format!("durable   after {}", duration(times.durable_seconds)));
    Ok(Exit::Done)
}

/// For how long, in how long.
fn stall(text: &str) -> std::result::Result<(Duration, Duration), String> {
    let wrong = || format!("{text:?} is not a stall such as 5s/20s (5 s in every 20 s)");
    let (length, period) = text.split_once('/').ok_or_else(wrong)?;
    let read = |text: &str| text.strip_suffix('s').and_then(|number| number.parse().ok()).map(Duration::from_secs);
    let (length, period) = (read(length).ok_or_else(wrong)?, read(period).ok_or_else(wrong)?);
    if length < period { Ok((length, period)) } else { Err(wrong()) }
}

/// From the end of a chunk to the room that it makes again: a round trip of an ocean, and a sync.
const DELAY_SECONDS: f64 = 0.2;
const LANES: f64 = 4.0;

fn stalls(args: &Args, sink: Stalling) -> Result<Exit> {
    let chunk_bytes = model::options::CHUNK_BYTES_DEFAULT as f64;
    let segment_bytes = (args.capacity as f64 / 16.0).min((64 << 20) as f64);
    let (bytes_per_second, sink_buffer_bytes) = (args.in_rate, args.capacity as f64);
    // What sockets hold depends on hosts that are not asked here.
    let (delay_seconds, lanes, window_bytes) = (DELAY_SECONDS, LANES, 0.0);
    let leg = Leg { bytes_per_second, delay_seconds, chunk_bytes, lanes, segment_bytes, window_bytes };
    let (source, volume_bytes) = (Stalling::steady(args.in_rate * 10.0), args.volume as f64);
    let legs = Legs { source, source_buffer_bytes: 0.0, leg, sink_buffer_bytes, sink, volume_bytes };
    let times = legs.times().ok_or_else(|| usage("nothing would arrive", "name rates above zero"))?;
    let (smallest, carried) =
        (leg.smallest_buffer_bytes(&sink), leg.carried_bytes_per_second(&sink, sink_buffer_bytes));
    if args.json {
        let answer = json!({
            "v": 1,
            "received_seconds": times.received_seconds,
            "durable_seconds": times.delivered_seconds,
            "carried_bytes_per_second": carried,
            "smallest_bytes": smallest.map(|bytes| bytes.ceil()),
            "peak_bytes": times.sink_peak_bytes,
        });
        line(&answer.to_string());
        return Ok(Exit::Done);
    }
    line(&format!("received  after {}", duration(times.received_seconds)));
    line(&format!("durable   after {}", duration(times.delivered_seconds)));
    line(&format!("carried   {} in the long run", Rate::over(carried as u64, 1.0)));
    match smallest {
        Some(bytes) => line(&format!("smallest  {} leave the path undisturbed", ByteCount(bytes.ceil() as u64))),
        None => line("smallest  no buffer is large enough: the storage is slower than the path on average"),
    };
    Ok(Exit::Done)
}
