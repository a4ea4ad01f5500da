//! `trial network`: the real program over networks that fail, each in its own way (`profiles.toml`).
//!
//! Owns: which trials run, several at a time, and their counts and figures. A trial is one profile, one set of files and
//! one seed. Not here: the profiles' fields (`profile`), what is done to the network (`bed`, `inject`), the judgement
//! (`run`).

mod bed;
mod inject;
mod profile;
mod run;

use crate::outside::{ground, tree};
use crate::record::{Outcome, Tally};
use anyhow::{Context, Result, bail, ensure};
use profile::Profile;
use run::{Measured, Set, Trial};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// A loss process that hit nothing is tried again with other seeds.
const SEEDS_MAX: u64 = 3;
const SMALL_FILE_BYTES: u64 = 4 << 10;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Only these profiles of the list
    #[arg(long, value_delimiter = ',')]
    profile: Vec<String>,
    /// All forty profiles instead of the five that continuous integration has time for
    #[arg(long)]
    all: bool,
    /// Sets of files: small (4 KiB each), medium (8 files), large (one)
    #[arg(long, value_delimiter = ',', default_value = "small,large")]
    sizes: Vec<String>,
    /// 1: 4000 small files, 8 files of 4 MiB, one of 256 MiB; less is a share of that
    #[arg(long, default_value_t = 0.1)]
    scale: f64,
    /// Trials of each profile and set, with consecutive seeds
    #[arg(long, default_value_t = 1)]
    trials: u64,
    /// The first seed, of losses and content
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Trials at the same time
    #[arg(long, default_value_t = 3)]
    jobs: usize,
    /// The program under trial [default: thalweg beside this program]
    #[arg(long)]
    program: Option<PathBuf>,
}

struct Campaign {
    args: Args,
    program: PathBuf,
    dir: tempfile::TempDir,
    sets: Vec<Set>,
    profiles: Vec<Profile>,
}

pub fn run(args: &Args, out: Option<&Path>) -> Result<Tally> {
    ensure!(rustix::process::geteuid().is_root(), "network namespaces need root");
    let started = Instant::now();
    let campaign = Campaign::new(args)?;
    let results = campaign.run()?;
    let mut tally = Tally::new("trial network --all --sizes small,medium,large --scale 1");
    let mut measured = Vec::new();
    for (profile, outcome, one) in results {
        tally.count(&profile.name, &profile.faults(), &outcome, &campaign.replay(&one));
        measured.push(one);
    }
    tally.plan_all();
    // A bound that no set could break would hold nothing.
    let is_judged = |one: &Measured| one.sent_twice_bytes.is_none() || one.sent_twice_bytes_max.is_some();
    let judged = measured.iter().filter(|one| one.attempts > 1 && is_judged(one)).count();
    ensure!(
        judged > 0 || measured.iter().all(|one| one.attempts <= 1),
        "I10 could be broken in none of the trials: a larger --scale or set is needed"
    );
    tally.seconds = started.elapsed().as_secs_f64();
    tally.figures = figures(&measured);
    tally.figures.insert("interrupted jobs whose repeated bytes were judged".to_owned(), judged.to_string());
    if let Some(dir) = out {
        std::fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
        let path = dir.join("network-trials.json");
        let text = serde_json::to_string_pretty(&measured).context("encode trials")?;
        std::fs::write(&path, text + "\n").with_context(|| format!("write {}", path.display()))?;
    }
    Ok(tally)
}

impl Campaign {
    fn new(args: &Args) -> Result<Campaign> {
        let program = ground::program(args.program.as_deref())?;
        let all = Profile::all()?;
        for name in &args.profile {
            ensure!(all.iter().any(|profile| profile.name == *name), "there is no profile {name:?}");
        }
        let is_meant = |profile: &Profile| match args.profile.is_empty() {
            false => args.profile.contains(&profile.name),
            true => (args.all || profile.ci) && !profile.only_by_name,
        };
        let profiles = all.into_iter().filter(is_meant).collect();
        let dir = ground::directory()?;
        let make = |name: &String| make_set(dir.path(), name, args.scale, args.seed);
        let sets = args.sizes.iter().map(make).collect::<Result<_>>()?;
        Ok(Campaign { args: args.clone(), program, dir, sets, profiles })
    }

    /// Every profile with every set, `jobs` at a time, in the order of the list.
    fn run(&self) -> Result<Vec<(&Profile, Outcome, Measured)>> {
        let seeds = self.args.seed..self.args.seed + self.args.trials;
        let of_profile = |profile| self.sets.iter().map(move |set| (profile, set));
        let pairs: Vec<_> = self.profiles.iter().flat_map(of_profile).collect();
        let wanted: Vec<_> =
            pairs.iter().flat_map(|(profile, set)| seeds.clone().map(move |seed| (*profile, *set, seed))).collect();
        let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let worker = || -> Result<()> {
            loop {
                let index = next.fetch_add(1, Relaxed);
                let Some((profile, set, seed)) = wanted.get(index) else { return Ok(()) };
                let ran = self
                    .one(index, profile, set, *seed)
                    .with_context(|| format!("profile {}, {} files, seed {seed}", profile.name, set.name))?;
                results.lock().expect("no thread panics with it").extend(ran.into_iter().map(|ran| (index, ran)));
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.args.jobs.max(1)).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| bail!("a trial panicked")))
        })?;
        let mut results = results.into_inner().expect("no thread panics with it");
        results.sort_by_key(|(index, _)| *index);
        Ok(results.into_iter().map(|(index, (outcome, measured))| (wanted[index].0, outcome, measured)).collect())
    }

    /// One trial, and others with the following seeds while the fault does not come.
    fn one(&self, index: usize, profile: &Profile, set: &Set, seed: u64) -> Result<Vec<(Outcome, Measured)>> {
        let mut tried = Vec::new();
        for seed in (0..SEEDS_MAX).map(|more| seed + more * self.args.trials) {
            let dir = self.dir.path().join(format!("{index}-{seed}"));
            let (outcome, measured) = Trial { profile, set, program: &self.program, dir: &dir, seed }.run()?;
            eprintln!("{}", line_of(&measured));
            let is_inert = outcome == Outcome::Inert;
            if !matches!(outcome, Outcome::Violated(_)) {
                let _ = std::fs::remove_dir_all(&dir);
            }
            tried.push((outcome, measured));
            if !is_inert {
                break;
            }
        }
        Ok(tried)
    }

    fn replay(&self, one: &Measured) -> String {
        let (profile, size, scale, seed) = (&one.profile, &one.size, self.args.scale, one.seed);
        format!("trial network --profile {profile} --sizes {size} --scale {scale} --seed {seed}")
    }
}

/// A source that takes about three seconds on its path, six if it is large.
fn make_set(dir: &Path, name: &str, scale: f64, seed: u64) -> Result<Set> {
    let scaled = |whole: u64| ((whole as f64 * scale) as u64).max(1);
    let (name, count, bytes, seconds) = match name {
        "small" => ("small", scaled(4000), SMALL_FILE_BYTES, 3),
        "medium" => ("medium", 8, scaled(4 << 20), 3),
        "large" => ("large", 1, scaled(256 << 20), 6),
        _ => bail!("there is no set {name:?}; there are small, medium and large"),
    };
    let source = dir.join("sources").join(name);
    let files = tree::make(&source, count, bytes, seed)?;
    let bytes = count * bytes;
    Ok(Set { name, source, files, bytes, bits_per_second: bytes * 8 / seconds })
}

fn line_of(one: &Measured) -> String {
    let recovery = one.recovery_seconds.map_or(String::new(), |seconds| format!(", recovered in {seconds:.1} s"));
    let share = one.rate_share.map_or(String::new(), |share| format!(", {:.0} % of the rate", share * 100.0));
    let twice = one.sent_twice_bytes.map_or(String::new(), |bytes| format!(", {bytes} bytes twice"));
    let second = one.second_seconds.map_or(String::new(), |seconds| format!(", second run {seconds:.1} s"));
    let (profile, size, outcome, fired, seconds) = (&one.profile, &one.size, &one.outcome, one.fired, one.seconds);
    let tries = one.attempts;
    format!(
        "{profile}/{size}: {outcome}, fired {fired}, {seconds:.1} s, {tries} attempts{recovery}{share}{twice}{second}"
    )
}

fn figures(measured: &[Measured]) -> BTreeMap<String, String> {
    let line = |one: &Measured| {
        let text = line_of(one);
        let (name, rest) = text.split_once(": ").unwrap_or((&text, ""));
        (format!("{name} seed {}", one.seed), rest.to_owned())
    };
    measured.iter().filter(|one| one.fired > 0).map(line).collect()
}
