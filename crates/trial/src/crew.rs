//! `trial crew`: copies between two endpoints of several hosts, and at a random moment of each one of the hosts is
//! killed, stopped or cut off.
//!
//! Held against it: the destination is the source byte for byte, at the latest when the same command was given again;
//! all that is listed is done or skipped; no file goes back to an older version, also when the host goes on after
//! others have done its work; staging is empty in the end; and it takes no longer than an undisturbed copy and the
//! lease of a host.
//!
//! Not here: the hosts and what they suffer (`houses`), what a seed draws (`plan`), and files that are looked at all
//! the time (`versions`).

mod houses;
mod plan;
mod versions;

use crate::check::{self, Kind, Tree};
use crate::outside::process::Finished;
use crate::outside::{ground, tree};
use crate::record::{Outcome, Tally};
use anyhow::{Context, Result, ensure};
use houses::{Fault, Houses};
use plan::{PAUSE_MIN_SECONDS, Plan, SLOWER_MAX};
use serde::Serialize;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use versions::{NEW, OLD, OWNERS, Watch, put};

/// The content is the same for all seeds, so that a trial of one is what it was among many.
const CONTENT_SEED: u64 = 1;
/// Small files, and others that go as a whole: number and bytes of each. The large one is sent in ranges by all hosts.
const SMALL: (u64, u64) = (200, 4 << 10);
const MIDDLE: (u64, u64) = (12, 2 << 20);
const LARGE_BYTES: u64 = 72 << 20;
/// A copy that takes more than so many times what it may is a violation: all hosts share one machine with whatever else
/// it does.
const MARGIN: f64 = 2.0;
const PATIENCE: Duration = Duration::from_secs(600);
const SWEPT_LIMIT: Duration = Duration::from_secs(60);
/// What a host that goes on has to begin again with what it had.
const SETTLE: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(20);
/// With so many trials each class is to fire.
const PLANNED_FROM: u64 = 30;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Copies, one fault each
    #[arg(long, value_name = "N", default_value_t = 3)]
    trials: u64,
    /// Of the first trial; each has the next one
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A host stands still or is cut off for 2 s up to this; beyond 15 s others take its work over
    #[arg(long, value_name = "S", default_value_t = 4)]
    pause_max_seconds: u64,
    /// The program [default: thalweg beside this program]
    #[arg(long)]
    program: Option<PathBuf>,
}

/// A line of `crew-trials.jsonl`.
#[derive(Serialize)]
struct Record {
    seed: u64,
    class: String,
    host: &'static str,
    /// When the fault came, of the first command; none where that was over before.
    came_seconds: Option<f64>,
    /// How long the host was away.
    away_seconds: f64,
    /// Of all commands together.
    seconds: f64,
    undisturbed_seconds: f64,
    bound_seconds: f64,
    /// Exit codes of the commands.
    codes: Vec<Option<i32>>,
    /// Others took parts over.
    has_lost: bool,
    outcome: String,
}

pub fn run(args: &Args, out: Option<&Path>) -> Result<Tally> {
    ensure!(rustix::process::geteuid().is_root(), "network namespaces need root");
    ensure!(args.pause_max_seconds >= PAUSE_MIN_SECONDS, "--pause-max-seconds is at least {PAUSE_MIN_SECONDS}");
    let started = Instant::now();
    let program = ground::program(args.program.as_deref())?;
    let dir = ground::directory()?;
    let new = make_source(&dir.path().join("from/x"))?;
    let mut houses = Houses::build(&program, dir.path(), CONTENT_SEED)?;
    let calm_seconds = undisturbed(&mut houses, dir.path(), &new)?;
    let mut lines = out.map(create).transpose()?;
    let (mut tally, mut within) = (Tally::new("trial crew --trials 100 --pause-max-seconds 90"), 0);
    for seed in args.seed..args.seed + args.trials {
        houses.await_all()?;
        let plan = Plan::of(seed, args.pause_max_seconds);
        let mut trial = Trial::begin(&mut houses, dir.path(), &new, &format!("y{seed}"))?;
        let tries = trial.carry_out(&plan, calm_seconds)?;
        let Told { faults, outcome, record } = trial.end(&plan, &tries, calm_seconds);
        let class = &record.class;
        eprintln!("seed {seed}: {class}, host {}: {:.1} s, {}", record.host, record.seconds, record.outcome);
        if let Some(lines) = &mut lines {
            writeln!(lines, "{}", serde_json::to_string(&record).context("encode a trial")?)
                .context("write a trial")?;
        }
        within += u64::from(record.seconds <= record.bound_seconds);
        let replay = format!("trial crew --trials 1 --pause-max-seconds {} --seed {seed}", args.pause_max_seconds);
        tally.count(class, faults, &outcome, &replay);
        tally.allow(class, &["KEEP", "RETRY"]);
        if outcome == Outcome::Survived {
            tally.ended(class, if tries.len() == 1 { "KEEP" } else { "RETRY" });
        }
    }
    if args.trials >= PLANNED_FROM {
        tally.plan_all();
    }
    tally.figures.insert("undisturbed copy".into(), format!("{calm_seconds:.1} s"));
    let bound = format!("copies within {SLOWER_MAX} times that and the lease");
    tally.figures.insert(bound, format!("{within} of {}", args.trials));
    tally.seconds = started.elapsed().as_secs_f64();
    Ok(tally)
}

fn create(dir: &Path) -> Result<File> {
    fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
    let path = dir.join("crew-trials.jsonl");
    File::create(&path).with_context(|| format!("create {}", path.display()))
}

fn make_source(root: &Path) -> Result<Tree> {
    for (name, (count, bytes)) in [("small", SMALL), ("middle", MIDDLE), ("large", (1, LARGE_BYTES))] {
        tree::make(&root.join(name), count, bytes, CONTENT_SEED)?;
    }
    put(root, NEW)?;
    check::tree(root).context("read the source")
}

/// What a copy takes in which nothing happens. It has to be right.
fn undisturbed(houses: &mut Houses, dir: &Path, new: &Tree) -> Result<f64> {
    let mut trial = Trial::begin(houses, dir, new, "calm")?;
    let ended = trial.run("copy-calm", None)?;
    trial.judge(ended.as_ref());
    trial.await_swept();
    let broken = trial.broken();
    ensure!(broken.is_empty(), "a copy in which nothing happens: {}", broken.join("; "));
    Ok(ended.map_or(0.0, |ended| ended.seconds))
}

/// One copy, from what is there before to what is there long after.
struct Trial<'a> {
    houses: &'a mut Houses,
    new: &'a Tree,
    /// Below the root of the endpoint that receives, and from here.
    to: String,
    destination: PathBuf,
    root: PathBuf,
    old: Tree,
    watch: Watch,
    broken: Vec<String>,
    /// When the fault came, when that was in the copy's time, and when it was taken back.
    came: Option<(Instant, f64)>,
    mended: Option<Instant>,
}

/// What came of a trial.
struct Told {
    faults: &'static [&'static str],
    outcome: Outcome,
    record: Record,
}

impl<'a> Trial<'a> {
    fn begin(houses: &'a mut Houses, dir: &Path, new: &'a Tree, to: &str) -> Result<Trial<'a>> {
        let root = dir.join("to");
        let destination = root.join(to);
        put(&destination, OLD)?;
        let old = check::tree(&destination).context("read the destination")?;
        let watch = Watch::begin(&destination);
        let (to, broken) = (to.to_owned(), Vec::new());
        Ok(Trial { houses, new, to, destination, root, old, watch, broken, came: None, mended: None })
    }

    /// The command with the fault, and once more if it ended with an error; then the host goes on.
    fn carry_out(&mut self, plan: &Plan, calm_seconds: f64) -> Result<Vec<Option<Finished>>> {
        let at = Duration::from_secs_f64(calm_seconds * plan.comes_at);
        let mut tries = vec![self.run(&format!("copy-{}", self.to), Some((plan, at)))?];
        if tries[0].as_ref().is_some_and(|ended| ended.code != Some(0)) {
            self.mend(plan)?;
            self.houses.await_all()?;
            tries.push(self.run(&format!("copy-{}-again", self.to), None)?);
        }
        self.judge(tries.last().and_then(Option::as_ref));
        self.go_on_late(plan)?;
        self.await_swept();
        Ok(tries)
    }

    /// Gives the command, and looks on until it has ended. The fault comes at its time, and goes after its pause.
    fn run(&mut self, name: &str, plan: Option<(&Plan, Duration)>) -> Result<Option<Finished>> {
        let mut running = self.houses.copy(&self.to, name)?;
        while !running.has_ended() && running.started.elapsed() < PATIENCE {
            match (plan, self.came) {
                (Some((plan, at)), None) if running.started.elapsed() >= at => {
                    self.houses.disturb(plan.fault, plan.host)?;
                    self.came = Some((Instant::now(), running.started.elapsed().as_secs_f64()));
                }
                // A host that was killed is started when all is over.
                (Some((plan, _)), Some((came, _))) if plan.fault != Fault::Kill && came.elapsed() >= plan.pause => {
                    self.mend(plan)?;
                }
                _ => {}
            }
            self.watch.look();
            std::thread::park_timeout(LOOK);
        }
        self.watch.look();
        Ok(running.finish(Instant::now(), || {}))
    }

    fn mend(&mut self, plan: &Plan) -> Result<()> {
        if self.came.is_none() || self.mended.is_some() {
            return Ok(());
        }
        self.houses.mend(plan.fault, plan.host)?;
        self.mended = Some(Instant::now());
        Ok(())
    }

    /// What must hold when the command has ended well.
    fn judge(&mut self, ended: Option<&Finished>) {
        let Some(ended) = ended else {
            return self.broken.push(format!("hang: the copy did not end within {} s", PATIENCE.as_secs()));
        };
        let Finished { code: Some(0), stdout, .. } = ended else {
            return self.broken.push(format!("the same command ended with {:?}: {}", ended.code, ended.stderr.trim()));
        };
        let objects = self.new.values().filter(|object| object.kind != Kind::Directory).count() as u64;
        self.broken.extend(check::done(stdout, 0, objects).err());
        self.broken.extend(check::complete(&self.destination, &self.old, self.new).err());
    }

    /// A host that still is away goes on with what it had, when its work was done by others and the owner has changed
    /// what came of it.
    fn go_on_late(&mut self, plan: &Plan) -> Result<()> {
        let Some((came, _)) = self.came.filter(|_| self.mended.is_none()) else { return Ok(()) };
        if self.broken.is_empty() {
            put(&self.destination, OWNERS)?;
            overwrite_front(&self.destination.join("large/d000/f000000"))?;
        }
        let before = check::tree(&self.destination).context("read the destination")?;
        while plan.fault != Fault::Kill && came.elapsed() < plan.pause {
            std::thread::park_timeout(LOOK);
        }
        self.mend(plan)?;
        // The pause is the trial: whatever the host still does, it does now.
        std::thread::sleep(SETTLE);
        let changed = check::unchanged(&self.destination, &before).err();
        self.broken.extend(changed.map(|why| format!("I4: a late host has changed something: {why}")));
        Ok(())
    }

    /// Waits until no file is left in staging. Marks of parts that were taken over stay for days: empty directories.
    fn await_swept(&mut self) {
        let deadline = Instant::now() + SWEPT_LIMIT;
        let left = loop {
            match check::staged(&self.root).into_iter().find(|path| path.is_file()) {
                Some(_) if Instant::now() < deadline => std::thread::park_timeout(LOOK),
                left => break left,
            }
        };
        self.broken.extend(left.map(|path| format!("I20: {} stays in staging", path.display())));
    }

    /// All that was broken so far.
    fn broken(&mut self) -> Vec<String> {
        let mut broken = std::mem::take(&mut self.broken);
        broken.extend(self.watch.broken.take());
        broken.extend(self.houses.said_wrong());
        broken
    }

    fn end(mut self, plan: &Plan, tries: &[Option<Finished>], calm_seconds: f64) -> Told {
        let _ = fs::remove_dir_all(&self.destination);
        let seconds = tries.iter().flatten().map(|ended| ended.seconds).sum::<f64>();
        let bound_seconds = plan.bound_seconds(calm_seconds);
        let mut broken = self.broken();
        if seconds > MARGIN * bound_seconds {
            broken.push(format!("I11: it took {seconds:.1} s, and {calm_seconds:.1} s when nothing happened"));
        }
        let has_lost = has_lost(tries);
        // A command that ended with an error felt it, and nobody took anything over.
        let has_hurt = has_lost || tries.len() > 1;
        let away = self.came.zip(self.mended).map_or(Duration::ZERO, |((came, _), mended)| mended - came);
        let has_fired = self.came.is_some() && (has_hurt || plan.fault != Fault::Kill);
        let outcome = match broken.is_empty() {
            false => Outcome::Violated(broken.join("; ")),
            true if has_fired => Outcome::Survived,
            true => Outcome::Inert,
        };
        let (class, faults) = plan.class(away, has_lost);
        let record = Record {
            seed: plan.seed,
            class,
            host: plan.host.name,
            came_seconds: self.came.map(|(_, seconds)| seconds),
            away_seconds: away.as_secs_f64(),
            seconds,
            undisturbed_seconds: calm_seconds,
            bound_seconds,
            codes: tries.iter().map(|ended| ended.as_ref().and_then(|ended| ended.code)).collect(),
            has_lost,
            outcome: match &outcome {
                Outcome::Violated(why) => why.clone(),
                Outcome::Survived => "survived".to_owned(),
                Outcome::Inert => "inert".to_owned(),
            },
        };
        Told { faults, outcome, record }
    }
}

/// Whether others took parts over, in any of the commands.
fn has_lost(tries: &[Option<Finished>]) -> bool {
    tries.iter().flatten().any(|ended| lost(&ended.stdout) > 0)
}

/// Parts that others took over, by the last event.
fn lost(events: &str) -> u64 {
    let done: Value = events.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    done["hosts"].as_array().into_iter().flatten().filter_map(|host| host["lost"].as_u64()).sum()
}

fn overwrite_front(path: &Path) -> Result<()> {
    let opened = File::options().write(true).open(path);
    let written = opened.and_then(|mut file| file.write_all(&[OWNERS; 64 << 10]));
    written.with_context(|| format!("write to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_were_lost_are_those_of_all_hosts() {
        assert_eq!(lost("{}\n{\"event\":\"done\",\"hosts\":[{\"lost\":2},{\"lost\":1},{}]}\n"), 3);
        assert_eq!(lost("nothing"), 0);
    }

    #[test]
    fn a_command_that_was_given_again_has_taken_nothing_over_by_that() {
        let ended = |code: i32, lost: u64| {
            let stdout = format!("{{\"hosts\":[{{\"lost\":{lost}}}]}}\n");
            Some(Finished { code: Some(code), stdout, stderr: String::new(), seconds: 1.0 })
        };
        assert!(!has_lost(&[ended(5, 0), ended(0, 0)]));
        assert!(!has_lost(&[None]));
        assert!(has_lost(&[ended(5, 0), ended(0, 1)]));
    }
}
