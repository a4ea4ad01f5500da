//! Fetches files from an endpoint that is known, and says how it goes: `pull NAME:PATH DST`.

use daemon::{Known, Paths};
use model::Location;
use std::error::Error;
use std::time::Duration;
use transfer::{Ended, Means, Observed, Transfer, TransferSpec};

pub fn pull(known: Known, from: &str, to: &str, look: impl Fn(Observed)) -> Result<Ended, Box<dyn Error>> {
    let spec = TransferSpec::new(vec![Location::parse(from.as_ref())?], Location::parse(to.as_ref())?);
    let transfer = Transfer::start(spec, Means::new(known))?;
    while !transfer.wait_timeout(Duration::from_secs(1)) {
        look(transfer.observe());
    }
    let ended = transfer.wait();
    ended.error.clone().map_or(Ok(ended), |error| Err(error.into()))
}

pub fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [from, to] = &words[..] else { return Err("pull NAME:PATH DST".into()) };
    let ended = pull(Known::of(&Paths::from_env()?)?, from, to, |seen| {
        if let Some(sample) = seen.sample {
            println!("attempt {}: {} at {}", seen.attempt, sample.reached_bytes(), sample.rate_now);
        }
    })?;
    println!("{} files in {:.1} s", ended.files_ok, ended.seconds);
    Ok(())
}
