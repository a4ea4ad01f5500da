//! Copies within this host what was written down as JSON, at the rate of a command line: `local_copy JSON RATE`.

use model::pace::Timetable;
use std::error::Error;
use std::sync::Arc;
use transfer::{Ended, Means, Steering, Transfer, TransferSpec};

pub fn local_copy(written: &str, rate: &str) -> Result<Ended, Box<dyn Error>> {
    let spec: TransferSpec = serde_json::from_str(written)?;
    let transfer = Transfer::start(spec, Means::local())?;
    transfer.steer(Steering::Pace(Some(Arc::new(Timetable::parse(rate)?))));
    let ended = transfer.wait();
    ended.error.clone().map_or(Ok(ended), |error| Err(error.into()))
}

pub fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [written, rate] = &words[..] else { return Err("local_copy JSON RATE".into()) };
    let ended = local_copy(written, rate)?;
    println!("{} files, {} of them there already", ended.files_ok, ended.files_skipped);
    Ok(())
}
