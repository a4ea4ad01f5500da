//! `trial flips`: one bit flipped on the way from the source's digest to the final name (F075), at six stages.
//!
//! | stage | where the bit is | found by |
//! |---|---|---|
//! | a | the sender's buffer, after its digest was taken | the receiver's digest |
//! | b | the receiver's frame, opened and not yet verified; and the sealed bytes on the wire | digest, checks of the frame, TLS |
//! | c | the receiver's buffer, after it was verified | `--verify reread` |
//! | d | the staged file on its storage | `--verify reread` |
//! | e | the extent log on its storage | its checksums |
//! | f | a record of the log on its way there | its checksums |
//!
//! A bit that flips in the source's memory before the digest is out of scope: nothing can tell it from what was stored.
//! Survived means: nothing but the source's bytes stands under a final name, and the transfer went on to its end.

mod damage;
mod joined;
mod frames;
mod storage;
mod journal;

use crate::record::Tally;
use anyhow::{Context, Result};
use damage::Set;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// End-to-end trials of one flip each cost as much as thousands of flips in one job.
const FLIPS_PER_JOB_OF_ONE: u64 = 200;

#[derive(clap::Args)]
pub struct Arguments {
    /// Flips of each stage that takes many in one job; the others get a two-hundredth
    #[arg(long, default_value_t = 2000)]
    flips: u64,
    /// Of every random choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the trees are made [default: shared memory, else the temporary directory]
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// What the stages work on.
struct Bed {
    seed: u64,
    /// What runs a trial again, with the seed left out.
    again: String,
    place: PathBuf,
    small: Set,
    large: Set,
}

pub fn run(arguments: &Arguments) -> Result<Tally> {
    let started = Instant::now();
    let memory = Path::new("/dev/shm");
    let default = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let place = tempfile::tempdir_in(arguments.dir.as_ref().unwrap_or(&default)).context("make a directory")?;
    let bed = Bed {
        seed: arguments.seed,
        again: format!("trial flips --flips {}", arguments.flips),
        small: Set::many_small(&place.path().join("small"))?,
        large: Set::one_large(&place.path().join("large"))?,
        place: place.path().to_owned(),
    };
    let mut tally = Tally::new(&format!("{} --seed {}", bed.again, bed.seed));
    let (many, few) = (arguments.flips, (arguments.flips / FLIPS_PER_JOB_OF_ONE).max(4));
    frames::content(&bed, many, &mut tally)?;
    frames::structure(&bed, few, &mut tally)?;
    frames::sealed(&bed, few, &mut tally)?;
    storage::buffer_and_file(&bed, many, &mut tally)?;
    journal::bytes(&bed, many, &mut tally);
    journal::resumed(&bed, few, &mut tally)?;
    journal::of_another_version(&bed, &mut tally)?;
    tally.plan_all();
    tally.seconds = started.elapsed().as_secs_f64();
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flips_at_every_stage_are_found() {
        let tally = run(&Arguments { flips: 300, seed: 7, dir: None }).unwrap();
        assert_eq!(tally.violated(), 0, "{}", tally.text());
        assert!(tally.classes.values().all(|class| class.survived > 0), "{}", tally.text());
    }
}
