//! S0 figure 11: large objects to a store and back, near and far. The store is the S3 gateway versitygw at the far end of a link, in
//! place of a cloud's; the clients are those of `bench compare --store s3`.
//!
//! Raw: a folder for each round trip, as a race leaves it.

use super::context::Context;
use super::judge::{Check, median, shown};
use super::paths::OURS;
use crate::compare::{self, Way};
use crate::error::Result;
use crate::sample::{Sample, State};
use crate::sweep::Condition;
use crate::workspace::remove_tree;

const MBIT: u64 = 1_000_000;
/// The first is what the others are held against.
const ROUND_TRIPS_MS: [u64; 3] = [1, 50, 150];
/// What the publication reports of near and far: of its own program, and of aws-cli.
const PUBLISHED: [(&str, f64); 2] = [("zx", 0.57), ("aws-cli", 0.32)];
/// The near store moves an object in so long.
const RUN_SECONDS: u64 = 18;

pub fn run(context: &mut Context) -> Result<()> {
    let bits_per_second = context.options.bits_per_second.unwrap_or(500 * MBIT);
    let mib = (bits_per_second / 8 * RUN_SECONDS) >> 20;
    let set = format!("1x{}MiB", mib.max(64));
    let mut samples: Vec<(u64, Sample)> = Vec::new();
    for ms in ROUND_TRIPS_MS {
        let out = context.dir.join(format!("rtt-{ms}ms"));
        let is_resumed = compare::is_unfinished(&out);
        if !is_resumed {
            // What is finished is measured again: another program may have made it.
            remove_tree(&out)?;
        }
        let condition = Condition { bits_per_second: Some(bits_per_second), rtt_us: ms * 1000, ..Condition::default() };
        let options = compare::Options {
            sets: vec![set.clone()],
            variants: vec![context.variant()],
            rivals: Vec::new(),
            store: Some("s3".to_owned()),
            ways: vec![Way::Put, Way::Fetch],
            is_resumed,
            rounds: context.options.rounds.unwrap_or(3),
            scenario: Some(condition.scenario(context.options.seed)?),
            with_ceilings: false,
            out: Some(out),
            work_dir: context.options.work_dir.clone(),
            seed: context.options.seed,
            regenerate: context.options.regenerate.clone(),
            ..compare::Options::default()
        };
        let cancel = context.cancel();
        let report = compare::run(&options, cancel, context.progress())?;
        report.missing.iter().for_each(|missing| context.note(format!("left out: {missing}")));
        let counted = report.samples.into_iter().filter(|sample| sample.state == State::Counted);
        samples.extend(counted.map(|sample| (ms, sample)));
    }
    judge(context, &set, &samples);
    let published = PUBLISHED.map(|(name, ratio)| format!("{name} {ratio}")).join(", ");
    context.note(format!(
        "published far / near: {published}, between clouds; here a gateway over a directory, in one machine"
    ));
    context.note(format!(
        "{} Mbit/s each way; the time of a run includes the start of its connections",
        bits_per_second / MBIT
    ));
    Ok(())
}

fn judge(context: &mut Context, set: &str, samples: &[(u64, Sample)]) {
    let mut tools: Vec<&str> = samples.iter().map(|(_, sample)| &sample.tool[..]).collect();
    tools.sort_unstable();
    tools.dedup();
    for (way, name) in [("there", set.to_owned()), ("back", format!("{set} back"))] {
        let rate = |tool: &str, ms: u64| {
            let alike = samples.iter().filter(|(of, sample)| *of == ms && sample.tool == tool && sample.set == name);
            median(alike.map(|(_, sample)| sample.gbit_per_second()))
        };
        for tool in &tools {
            let near = rate(tool, ROUND_TRIPS_MS[0]);
            for ms in &ROUND_TRIPS_MS[1..] {
                let ratio = rate(tool, *ms).zip(near).map(|(far, near)| far / near);
                let claim = format!("{tool}, {way}: rate at {ms} ms / at {} ms", ROUND_TRIPS_MS[0]);
                context.check(match *tool == OURS {
                    true => Check::at_least(claim, 0.9, ratio),
                    false => Check::told(claim, "", ratio.map_or("no counted run".to_owned(), shown)),
                });
            }
        }
    }
}
