//! `trial sender`: an endpoint that sends what nobody asked for, against the real program that fetches from it.
//!
//! A trial is one lie by a hostile endpoint (`lies`) to one command under one seed. It survived when the program ended as it
//! has to, with an error that names the object where one was unasked, and nothing but what was asked for was written: not to
//! the destination, not beside it, not through a link. Honest answers are among the kinds: a client that takes nothing at all
//! would not pass either.

mod liar;
mod lies;

use crate::job::{Bed, Direction, Ground, GroundArgs, PATIENCE, check_words};
use crate::process::Process;
use crate::random::Random;
use crate::record::{Outcome, Tally};
use crate::{check, tree};
use anyhow::{Context, Result, bail};
use liar::Liar;
use lies::{LIES, Lie, Told};
use std::fs;
use std::path::Path;
use std::time::Instant;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    ground: GroundArgs,
    /// Trials of each kind of lie
    #[arg(long, value_name = "N", default_value_t = 6)]
    trials: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the lie of this name
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

/// What stands at each destination before; a lie that is believed changes it.
const KEPT: [(&str, &str); 3] = [(".bashrc", "mine"), (".ssh/authorized_keys", "mine"), ("old", "mine")];
/// How a program says that it was sent something else.
const UNASKED: &str = "which was not asked for; the job was ended, and nothing of it was written";

pub fn run(args: &Args) -> Result<Tally> {
    let started = Instant::now();
    let ground = Ground::new(&args.ground, "1MiB", |source| Ok(fs::write(source.join("f"), "f")?))?;
    let bed = Bed::new(&ground, Direction::Pull, tree::fill_older)?;
    let liar = Liar::start(&bed.dir.join("lies"))?;
    fs::write(bed.dir.join("ticket"), liar.ticket()).context("write the ticket")?;
    let mut add = bed.command("client");
    add.args(["endpoint", "add", "evil", "--ticket-file"]).arg(bed.dir.join("ticket"));
    let added = Process::start(add, &bed.dir, "add", None)?.wait(PATIENCE)?;
    if added.as_ref().is_none_or(|ended| ended.code != Some(0)) {
        bail!("the endpoint could not be added: {}", added.map_or_else(String::new, |ended| ended.errors));
    }
    let lies: Vec<_> = LIES.iter().filter(|lie| args.only.as_ref().is_none_or(|only| only == lie.name)).collect();
    if lies.is_empty() {
        bail!("no lie has this name; there are: {}", LIES.map(|lie| lie.name).join(", "));
    }
    let mut tally = Tally::new("trial sender --trials 1000");
    for lie in lies {
        for seed in args.seed..args.seed + args.trials {
            let told = (lie.tell)(&mut Random::new(seed));
            let outcome = match attempt(&bed, &liar, told)? {
                Ok(()) => Outcome::Survived,
                Err(why) => Outcome::Violated(why),
            };
            let replay = format!("trial sender --trials 1 --seed {seed} --only '{}'", lie.name);
            tally.count(&format!("endpoint: {}", lie.name), lie.faults, &outcome, &replay);
        }
    }
    tally.seconds = started.elapsed().as_secs_f64();
    Ok(tally)
}

/// Runs one command against the lie, and looks at what became of this host.
fn attempt(bed: &Bed<'_>, liar: &Liar, told: Told) -> Result<Result<(), String>> {
    let to = bed.dir.join("to");
    let _ = fs::remove_dir_all(&to);
    for (path, text) in KEPT {
        let path = to.join(path);
        fs::create_dir_all(path.parent().expect("it lies in the destination"))?;
        fs::write(path, text)?;
    }
    fs::write(bed.dir.join("list"), told.list.join("\n"))?;
    let outside = bed.dir.join("outside");
    let before = (check::tree(&to)?, check::tree(&outside)?);
    liar.say(told.entries(&outside));
    let mut command = bed.command("client");
    command.args(told.command.iter().map(|word| if *word == "TO" { "to/" } else { *word }));
    let Some(ended) = Process::start(command, &bed.dir, "lied-to", None)?.wait(PATIENCE)? else {
        return Ok(Err("hang: the program did not end".to_owned()));
    };
    let found = || {
        check_words(&ended.errors)?;
        check::unchanged(&outside, &before.1)?;
        let expected = match told.code {
            None => true,
            Some(code) => ended.code == Some(code),
        };
        let said = ended.errors.trim();
        if !expected {
            return Err(format!("it ended with {:?} instead of {:?}: {said}", ended.code, told.code));
        }
        if let Some(unasked) = &told.unasked
            && !(said.contains(&format!("endpoint evil sent {unasked}, ")) && said.contains(UNASKED))
        {
            return Err(format!("it does not say that {unasked} was sent: {said}"));
        }
        let after = check::tree(&to).map_err(|e| format!("the checker could not read: {e}"))?;
        if let Some((path, _)) = before.0.iter().find(|(path, object)| after.get(*path) != Some(object)) {
            return Err(format!("I5: {} is not what it was", path.display()));
        }
        let is_new = |path: &Path| !before.0.contains_key(path);
        match after.keys().find(|path| is_new(path) && !told.may_write(path)) {
            Some(path) => Err(format!("I5: {} was written", path.display())),
            None => told.arrived(&to),
        }
    };
    Ok(found())
}

impl Lie {
    const fn new(name: &'static str, faults: &'static [&'static str], tell: fn(&mut Random) -> Told) -> Lie {
        Lie { name, faults, tell }
    }
}
