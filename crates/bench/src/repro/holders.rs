//! Several holders of one set, each behind a link of its own: what a reader gets of the sum of their rates, and what it costs when one of
//! them has other bytes or is killed; and what others that read from several servers get of the same three.
//!
//! Every copy is compared with the set before its time counts. Raw: `holders.jsonl`, one line a run with the program's last event.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::context::Context;
use super::endpoints::{Ended, Endpoints};
use super::judge::{Check, median, shown};
use crate::error::{Error, Kind, Result};
use crate::tool::sources::Several;

const HOLDERS: [&str; 3] = ["one", "two", "three"];
/// The share of a run's time after which a holder is killed.
const KILLED_AFTER: f64 = 0.4;
/// What all holders together need for the set.
/// Long enough that a chunk of 8 MiB at the slowest holder's rate is little beside it.
const RUN_SECONDS: u64 = 16;
const MBIT: u64 = 1_000_000;
/// After so many chunks of other content a holder is left.
const BAD_CHUNKS_MAX: f64 = 3.0;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Alone(usize),
    All,
    Poisoned,
    Killed,
    /// All, by another program.
    By(Several),
}

impl Case {
    fn name(self) -> String {
        match self {
            Case::Alone(holder) => format!("alone-{}", HOLDERS[holder]),
            Case::All => "all".into(),
            Case::Poisoned => "one-poisoned".into(),
            Case::Killed => "one-killed".into(),
            Case::By(other) => format!("all-by-{}", other.name()),
        }
    }
}

struct Stand<'a> {
    endpoints: Endpoints<'a>,
    bytes: u64,
}

/// What came of the runs.
#[derive(Default)]
struct Runs {
    seconds: Vec<(Case, f64)>,
    late: Vec<(Case, String)>,
    bad_chunks: Vec<u64>,
}

pub fn run(context: &mut Context) -> Result<()> {
    let rate = context.options.bits_per_second.unwrap_or(250 * MBIT);
    // Unequal, as holders are.
    let rates = [rate, rate, rate / 2];
    let mut stand = Stand::build(context, rates)?;
    let out = context.dir.clone();
    fs::create_dir_all(&out).map_err(Error::io("create", &out))?;
    let path = out.join("holders.jsonl");
    let mut raw = File::create(&path).map_err(Error::io("create", &path))?;
    let mut runs = Runs::default();
    let mut cases = vec![Case::Alone(0), Case::Alone(1), Case::Alone(2), Case::All, Case::Poisoned, Case::Killed];
    cases.extend(installed(context).into_iter().map(Case::By));
    // The first round warms memory and is left out.
    for round in 0..=context.options.rounds.unwrap_or(5) {
        for case in cases.clone() {
            let together = runs.seconds.iter().rev().find(|(of, _)| *of == Case::All).map(|(_, seconds)| *seconds);
            let ended = match stand.run(case, together.unwrap_or(RUN_SECONDS as f64) * KILLED_AFTER) {
                // What becomes of others is no claim.
                Err(error) if matches!(case, Case::By(_)) && error.kind != Kind::Cancelled => {
                    context.note(format!("{} left out: {}", case.name(), error.chain()));
                    cases.retain(|other| *other != case);
                    continue;
                }
                ended => ended?,
            };
            let took = ended.seconds;
            runs.bad_chunks.extend((case == Case::Poisoned).then(|| bad_chunks(&ended.event)));
            let head = format!(r#"{{"case":"{}","round":{round},"seconds":{took:.3}"#, case.name());
            writeln!(raw, "{head},{}}}", ended.raw()).map_err(Error::io("write", &path))?;
            if round > 0 {
                runs.seconds.push((case, took));
                let run = format!("{}, round {round}", case.name());
                runs.late.extend(ended.late(&run).map(|reason| (case, reason)));
            }
        }
    }
    judge(context, &runs, stand.bytes);
    Ok(())
}

/// Those others that can race here; of the rest is said what is missing.
fn installed(context: &mut Context) -> Vec<Several> {
    let mut there = Vec::new();
    for other in Several::ALL {
        match other.version() {
            Ok(version) => {
                context.note(format!("{}: {version}", other.name()));
                there.push(other);
            }
            Err(error) => context.note(format!("{} left out: {}", other.name(), error.chain())),
        }
    }
    there
}

fn judge(context: &mut Context, runs: &Runs, bytes: u64) {
    let of = |case: Case| {
        let took = runs.seconds.iter().filter(|(of, _)| *of == case);
        median(took.map(|(_, took)| bytes as f64 * 8.0 / took))
    };
    // Each is held against those that are alone.
    let late_in = |case: Case| -> Vec<String> {
        let is_part = |of: Case| of == case || matches!(of, Case::Alone(_));
        runs.late.iter().filter(|(of, _)| is_part(*of)).map(|(_, reason)| reason.clone()).collect()
    };
    let alone: Vec<f64> = (0..HOLDERS.len()).filter_map(|holder| of(Case::Alone(holder))).collect();
    let sum: f64 = alone.iter().sum();
    let check = Check::at_least("three holders / the sum of each alone", 0.95, of(Case::All).map(|rate| rate / sum));
    context.check(check.beside(&late_in(Case::All)));
    let good = sum - alone.get(1).copied().unwrap_or(0.0);
    let claim = "one of three poisoned: rate / the sum of the two good ones";
    let check = Check::at_least(claim, 0.95, of(Case::Poisoned).map(|rate| rate / good));
    context.check(check.beside(&late_in(Case::Poisoned)));
    let most = runs.bad_chunks.iter().max().map(|most| *most as f64);
    let claim = "one of three poisoned: bad chunks until it is left, most of a run";
    context.check(Check::within(claim, 1.0, BAD_CHUNKS_MAX, most).of_any_machine());
    // Until it is killed it brings its share.
    let left = KILLED_AFTER * sum + (1.0 - KILLED_AFTER) * good;
    let claim = "one of three killed at 0.4: rate / what the links allow";
    let check = Check::at_least(claim, 0.9, of(Case::Killed).map(|rate| rate / left));
    context.check(check.beside(&late_in(Case::Killed)));
    for other in Several::ALL {
        if let Some((ours, theirs)) = of(Case::All).zip(of(Case::By(other))) {
            let claim = format!("three holders: rate / that of {} from the same three", other.name());
            let said = format!("{} (it has {} of the sum)", shown(ours / theirs), shown(theirs / sum));
            context.check(Check::told(claim, "", said).beside(&late_in(Case::By(other))));
        }
    }
    context.note("holders and reader share the processors of one machine; ours with TLS and BLAKE3, others without");
}

impl<'a> Stand<'a> {
    fn build(context: &Context<'a>, rates: [u64; 3]) -> Result<Stand<'a>> {
        let mut text = "[site.reader]\n[link.reader]\nbetween = [\"reader\", \"core\"]\nrtt = \"200us\"\nrate = \"10Gbit\"\nqueue = \"1bdp\"\n".to_owned();
        for (holder, rate) in HOLDERS.iter().zip(rates) {
            text.push_str(&format!("[site.{holder}]\n[link.to-{holder}]\nbetween = [\"{holder}\", \"core\"]\n"));
            text.push_str(&format!("rtt = \"20ms\"\nrate = \"{}kbit\"\nqueue = \"1bdp\"\n", rate / 1000));
        }
        let bytes = rates.iter().sum::<u64>() / 8 * RUN_SECONDS;
        let stand = Stand { endpoints: Endpoints::new(context, "holders", &text, "reader", 3 * bytes)?, bytes };
        for holder in HOLDERS.iter().chain(&["two-poisoned"]) {
            let root = stand.path(holder);
            fs::create_dir(&root).map_err(Error::io("create", &root))?;
            let path = root.join("set");
            if let "two" | "three" = *holder {
                fs::hard_link(stand.path("one/set"), &path).map_err(Error::io("link", &path))?;
                continue;
            }
            let seed = context.options.seed + u64::from(*holder == "two-poisoned");
            write_set(&path, bytes, seed).map_err(Error::io("write", &path))?;
        }
        Ok(stand)
    }

    fn path(&self, below: &str) -> PathBuf {
        self.endpoints.path(below)
    }

    fn run(&mut self, case: Case, killed_after: f64) -> Result<Ended> {
        let delivered = self.path("delivered");
        let _ = fs::remove_dir_all(&delivered);
        let ended = match case {
            Case::By(other) => self.run_other(other)?,
            _ => self.run_ours(case, killed_after)?,
        };
        let is_same = same(&self.path("one/set"), &delivered.join("set")).unwrap_or(false);
        if !is_same {
            return Err(Error::new(Kind::Failed, "copy", case.name(), "what was delivered is not the set"));
        }
        Ok(ended)
    }

    fn run_ours(&mut self, case: Case, killed_after: f64) -> Result<Ended> {
        for (holder, name) in HOLDERS.into_iter().enumerate() {
            let root = if case == Case::Poisoned && holder == 1 { "two-poisoned" } else { name };
            self.endpoints.serve(HOLDERS[holder], &format!("home-{root}"), root, &[])?;
        }
        let mut args = vec!["--fsync", "never", "--digest", "blake3"];
        let sources = HOLDERS.map(|holder| format!("{holder}:set"));
        match case {
            Case::Alone(holder) => args.push(&sources[holder]),
            _ => sources.iter().for_each(|source| args.extend(["--replica", source])),
        }
        args.push("delivered/");
        let running = self.endpoints.start(&args)?;
        if case == Case::Killed {
            std::thread::sleep(Duration::from_secs_f64(killed_after));
            self.endpoints.kill(HOLDERS[1]);
        }
        self.endpoints.end(running, &case.name())
    }

    /// From servers of its own at the same holders.
    fn run_other(&self, other: Several) -> Result<Ended> {
        let (mut running, mut servers) = (Vec::new(), Vec::new());
        for holder in HOLDERS {
            let (address, tree) = (self.endpoints.lab.address_v4(holder)?, self.path(holder));
            let name = format!("{}-{holder}", other.name());
            let (server, ready) = other.server(address, &tree, &self.path(&name))?;
            running.push(self.endpoints.beside(holder, &server, &ready, &name)?);
            servers.push((address, tree));
        }
        let to = self.path("delivered");
        fs::create_dir(&to).map_err(Error::io("create", &to))?;
        let client = other.client(&servers, "set", self.bytes, &to)?;
        let client = self.endpoints.launch(self.endpoints.lab.exec("reader", &client)?)?;
        let ended = self.endpoints.end(client, other.name())?;
        // It tells of no events.
        Ok(Ended { event: "null".into(), ..ended })
    }
}

/// Chunks of other content than the first holder's, of all holders, by the last event.
fn bad_chunks(event: &str) -> u64 {
    let done: Value = serde_json::from_str(event).unwrap_or_default();
    let sources = done["sources"].as_array().into_iter().flatten();
    sources.filter_map(|source| source["bad_chunks"].as_u64()).sum()
}

/// The same bytes for the same seed; the time is the same for all.
fn write_set(path: &Path, bytes: u64, seed: u64) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let mut state = seed.wrapping_mul(2) + 1;
    let mut block = vec![0u8; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        for word in block.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let part = left.min(block.len() as u64);
        file.write_all(&block[..part as usize])?;
        left -= part;
    }
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000))
}

fn same(one: &Path, other: &Path) -> std::io::Result<bool> {
    Ok(Command::new("cmp").arg("-s").arg(one).arg(other).status()?.success())
}
