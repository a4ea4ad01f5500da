//! `thalweg plan buffer`: when a buffer before slower storage is full, and when everything is received and durable.

use super::values::rate_above_zero;
use crate::exit::{Result, usage};
use crate::output::line;
use model::Exit;
use model::quantity::{duration, parse_bytes};
use plan::staging::Staging;
use serde_json::json;

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
