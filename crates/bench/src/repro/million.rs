//! A million small files over a long path: into a cluster of three hosts that share storage, and from three replicas; by the command, and on
//! the order of a hub at a third site; once undisturbed, and once with each process killed and the path cut.
//!
//! Every copy is compared by a program that is not ours before its time counts. Raw: `million.jsonl`, one line a run with the program's
//! last event or the hub's last word; `chain.jsonl` has every answer of the hub; `set-up.json` has the machine and the programs.
//!
//! Not here: processes that are killed and come back (`chain`).

mod chain;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use serde_json::json;

use super::context::Context;
use super::endpoints::{Ended, Endpoints};
use super::judge::{Check, median};
use crate::environment::{Environment, Program};
use crate::error::{Error, Kind, Result};
use crate::tool::version_of;
use chain::{CUT, Chain, FAR, HERE, OFFICE, disturbances, told};
use lab::record::reasons_since;

const MBIT: u64 = 1_000_000;
const RTT_MS: u64 = 74;
const FILES: u64 = 1_000_000;
const FILE_BYTES: u64 = 1024;
/// What a file takes in memory beside its content: a page, its inode and its name.
const FILE_COST_BYTES: u64 = 6 << 10;
/// What a facility allows beside the slowest leg alone, which here is the copy by the command.
const MAKESPAN_MAX: f64 = 1.15;

const CASES: [(&str, &[&str]); 4] = [
    ("to one host", &["from/set/", "far1:set/"]),
    ("into three hosts", &["--to-hosts", "far2,far3", "from/set/", "far1:set/"]),
    ("from one host", &["far1:set/", "back/"]),
    ("from three replicas", &["--replica", "far1:set/", "--replica", "far2:set/", "--replica", "far3:set/", "back/"]),
];
const REPLICAS: usize = 3;
const DISTURBED: [&str; 3] =
    ["from three replicas, disturbed", "into three hosts, ordered", "into three hosts, ordered, disturbed"];

/// What runs of one kind took, and why the laboratory may have had a part in that.
#[derive(Default)]
struct Runs {
    seconds: Vec<f64>,
    late: Vec<String>,
}

impl Runs {
    fn median(&self) -> Option<f64> {
        median(self.seconds.iter().copied())
    }
}

/// The lines of `million.jsonl`, and what the claims are made of.
struct Record {
    raw: File,
    round: u32,
    files: u64,
}

impl Record {
    fn add(&mut self, context: &mut Context, case: &str, ended: &Ended, runs: &mut Runs) -> Result<()> {
        let (took, round, files) = (ended.seconds, self.round, self.files);
        let head = format!(r#"{{"case":"{case}","round":{round},"seconds":{took:.3},"files":{files}"#);
        writeln!(self.raw, "{head},{}}}", ended.raw()).map_err(Error::io("write", "million.jsonl"))?;
        runs.seconds.push(took);
        runs.late.extend(ended.late(&format!("{case}, round {round}")));
        (context.progress())(&format!("{case}: {took:.1} s"));
        Ok(())
    }
}

pub fn run(context: &mut Context) -> Result<()> {
    let rate = context.options.bits_per_second.unwrap_or(1000 * MBIT);
    let files = context.options.bytes.map_or(FILES, |bytes| bytes / FILE_BYTES);
    let link = |name: &str, rtt_ms| {
        format!(
            "[link.{name}]\nbetween = [\"{name}\", \"core\"]\nrtt = \"{rtt_ms}ms\"\nrate = \"{}kbit\"\nqueue = \"1bdp\"\n",
            rate / 1000
        )
    };
    let sites = format!("[site.{HERE}]\n[site.{OFFICE}]\n[site.far]\nhosts = {}\n", FAR.len());
    let text = [sites, link(HERE, RTT_MS), link(OFFICE, 2), link(CUT, 1)].concat();
    let mut stand = Endpoints::new(context, "million", &text, HERE, 3 * files * FILE_COST_BYTES)?;
    for folder in ["root", "from"].map(|name| stand.path(name)) {
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
    }
    for host in FAR {
        stand.serve(host, &format!("home-{host}"), "root", &[])?;
    }
    stand.done(HERE, "home-client", &["gen", &format!("{files}x{FILE_BYTES}"), "from/set"])?;
    keep_set_up(context, rate, files)?;
    let path = context.dir.join("million.jsonl");
    let raw = File::create(&path).map_err(Error::io("create", &path))?;
    let _ = fs::remove_file(context.dir.join("chain.jsonl"));
    let mut record = Record { raw, round: 0, files };
    let (mut calm, mut rough) = (CASES.map(|_| Runs::default()), DISTURBED.map(|_| Runs::default()));
    let rounds = 1..=context.options.rounds.unwrap_or(1);
    let ended = rounds.into_iter().try_for_each(|round| {
        record.round = round;
        one_round(context, &mut stand, &mut record, &mut calm, &mut rough)
    });
    // What was not reached is void.
    judge(context, files, &calm, &rough);
    judge_told(context)?;
    ended
}

fn one_round<'a>(
    context: &mut Context<'a>,
    stand: &mut Endpoints<'a>,
    record: &mut Record,
    calm: &mut [Runs],
    rough: &mut [Runs],
) -> Result<()> {
    for ((case, args), runs) in CASES.iter().zip(&mut *calm) {
        let ended = copy(stand, case, args)?;
        record.add(context, case, &ended, runs)?;
    }
    FAR.into_iter().for_each(|host| stand.kill(host));
    replicas(context, stand, record, calm, &mut rough[0])?;
    ordered(context, stand, record, &mut rough[1..])?;
    for host in FAR {
        stand.serve(host, &format!("home-{host}"), "root", &[])?;
    }
    Ok(())
}

/// Fetches from three holders while each of them, and the command, is killed once.
fn replicas<'a>(
    context: &mut Context<'a>,
    stand: &Endpoints<'a>,
    record: &mut Record,
    calm: &[Runs],
    runs: &mut Runs,
) -> Result<()> {
    let (case, args) = CASES[REPLICAS];
    let undisturbed = calm[REPLICAS].median().unwrap_or(0.0);
    let _ = fs::remove_dir_all(stand.path("back"));
    let mut chain = Chain::of_holders(context, stand)?;
    let events = disturbances(&FAR, undisturbed);
    let ended = chain.copy(&[&["--fsync", "never"], args].concat(), events, undisturbed)?;
    check_same(stand, "back", case)?;
    record.add(context, DISTURBED[0], &ended, runs)
}

/// Has a hub order the same into an endpoint of three hosts: undisturbed, and while each process is killed once.
fn ordered<'a>(context: &mut Context<'a>, stand: &Endpoints<'a>, record: &mut Record, runs: &mut [Runs]) -> Result<()> {
    // By the hub itself, once that is known.
    let mut alone = 0.0;
    let mut chain = Chain::ordered(context, stand)?;
    for (number, runs) in runs.iter_mut().enumerate() {
        let case = DISTURBED[1 + number];
        let _ = fs::remove_dir_all(stand.path("root/set"));
        let processes = [HERE, FAR[0], FAR[1], FAR[2], OFFICE];
        let events = if number == 0 { Vec::new() } else { disturbances(&processes, alone) };
        let before = stand.lab.snapshot();
        let (seconds, job) = chain.order(&format!("{case}, round {}", record.round), events, alone)?;
        if job["code"] != 0 {
            return Err(Error::new(Kind::Failed, "order", case, job.to_string()));
        }
        check_same(stand, "root/set", case)?;
        let by_several = job["report"]["hosts"].as_array().is_some_and(|hosts| !hosts.is_empty());
        if number == 0 && !by_several {
            return Err(Error::new(Kind::Failed, "order", case, format!("one host did it alone: {job}")));
        }
        if number == 0 {
            alone = seconds;
        }
        let void = reasons_since(&stand.lab, before.as_ref());
        record.add(context, case, &Ended { seconds, event: job.to_string(), void }, runs)?;
    }
    Ok(())
}

fn judge(context: &mut Context, files: u64, calm: &[Runs], rough: &[Runs]) {
    let ratio = |one: &Runs, several: &Runs| one.median().zip(several.median()).map(|(one, several)| one / several);
    let late = |of: [&Runs; 2]| of.map(|runs| runs.late.clone()).concat();
    let [to_one, to_three, from_one, from_three] = [0, 1, 2, 3].map(|case| &calm[case]);
    for (claim, one, several) in [
        ("into three hosts: rate beside one", to_one, to_three),
        ("from three replicas: rate beside one host", from_one, from_three),
    ] {
        context.check(Check::at_least(claim, 0.95, ratio(one, several)).beside(&late([one, several])));
    }
    for (runs, case, alone) in [
        (&rough[0], DISTURBED[0], from_three),
        (&rough[1], DISTURBED[1], to_three),
        (&rough[2], DISTURBED[2], to_three),
    ] {
        let claim = format!("{case}: makespan / undisturbed, by the command");
        context.check(Check::at_most(claim, MAKESPAN_MAX, ratio(runs, alone)).beside(&late([runs, alone])));
    }
    let alone = [("into three hosts", to_three), ("from three replicas", from_three)];
    for (claim, runs) in alone {
        let rate = runs.median().map_or("-".to_owned(), |took| format!("{:.0} files/s", files as f64 / took));
        context.check(Check::told(claim, "", rate).beside(&runs.late));
    }
    context.note("all hosts share the processors of one machine, which limit small files: several hosts cost no more than one is what can be seen here");
    context.note("disturbed: each process is killed with -9 once and started again, and the path is cut for 3 s; a hub takes no replicas, so that those are fetched by the command, which is killed and given again");
}

/// What the hub told of its jobs.
fn judge_told(context: &mut Context) -> Result<()> {
    let path = context.dir.join("chain.jsonl");
    let raw = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
    let mut sums = [0; 3];
    for round in 1..=context.options.rounds.unwrap_or(1) {
        for case in &DISTURBED[1..] {
            let told = told(&raw, &format!("{case}, round {round}"));
            sums.iter_mut().zip(told).for_each(|(sum, more)| *sum += more);
        }
    }
    let [mute, all, fell] = sums;
    let claim = "answers of the hub for a running job that do not say what is waited for";
    let words = (format!("{mute} of {all}"), mute == 0 && all > 0);
    context.check(Check::of(claim, "0, and answers", Some(words)).of_any_machine());
    let claim = "times that the hub tells of fewer bytes than before, over all attempts";
    context.check(Check::at_most(claim, 0.0, Some(fell as f64)).of_any_machine());
    Ok(())
}

fn keep_set_up(context: &Context, bits_per_second: u64, files: u64) -> Result<()> {
    let environment = Environment { program: Program::read(&context.options.program), ..Environment::read() };
    let reader = version_of(Path::new("diff"), "--version", "diffutils")?;
    let set_up = json!({"environment": environment, "reader": reader, "files": files, "file_bytes": FILE_BYTES,
        "bits_per_second": bits_per_second, "rtt_ms": RTT_MS, "far_hosts": FAR.len()});
    let path = context.dir.join("set-up.json");
    let text = serde_json::to_string_pretty(&set_up).expect("plain values serialise") + "\n";
    fs::write(&path, text).map_err(Error::io("write", &path))
}

fn copy(stand: &Endpoints, case: &str, args: &[&str]) -> Result<Ended> {
    let _ = fs::remove_dir_all(stand.path("back"));
    let is_back = args.last() == Some(&"back/");
    if !is_back {
        let _ = fs::remove_dir_all(stand.path("root/set"));
    }
    let running = stand.start(&[&["--fsync", "never"], args].concat())?;
    let done = stand.end(running, case)?;
    check_same(stand, if is_back { "back" } else { "root/set" }, case)?;
    Ok(done)
}

fn check_same(stand: &Endpoints, to: &str, case: &str) -> Result<()> {
    match stand.are_same("from/set", to)? {
        true => Ok(()),
        false => Err(Error::new(Kind::Failed, "copy", case, "what was delivered is not the set")),
    }
}
