//! Sends files to an endpoint that `thalweg endpoint add` made known: `push SRC NAME:PATH`.

use daemon::{Known, Paths};
use model::Location;
use std::error::Error;
use transfer::{Ended, Means, Transfer, TransferSpec};

pub fn push(known: Known, source: &str, destination: &str) -> Result<Ended, Box<dyn Error>> {
    let spec = TransferSpec::new(vec![Location::parse(source.as_ref())?], Location::parse(destination.as_ref())?);
    let ended = Transfer::start(spec, Means::new(known))?.wait();
    match &ended.error {
        Some(error) => Err(error.clone().into()),
        None => Ok(ended),
    }
}

pub fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [source, destination] = &words[..] else { return Err("push SRC NAME:PATH".into()) };
    let ended = push(Known::of(&Paths::from_env()?)?, source, destination)?;
    println!("{} files, {} bytes", ended.files_ok, ended.bytes);
    Ok(())
}
