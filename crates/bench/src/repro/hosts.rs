//! One transfer by several hosts that share storage: how the rate follows their number and what one costs that is
//! killed, stopped or cut off (S0 figure 12), and hosts of three sites into four (S3 figure 3).
//!
//! Every copy is compared by a program that is not ours before its time counts. Raw: `hosts.jsonl`, one line a run with
//! the program's last event.

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::context::Context;
use super::endpoints::{Ended, Endpoints};
use super::judge::{Check, median, shown};
use super::outage;
use crate::error::{Error, Result};

const MBIT: u64 = 1_000_000;
const NUMBERS: [usize; 5] = [1, 2, 4, 8, 16];
/// What each host brings at its rate, in seconds; less where source and destination would not fit into memory of 20 GB
/// beside the programs. At 50 Mbit/s they take 12 GB.
const SCALING_SECONDS: u64 = 60;
const SCALING_BYTES_MAX: u64 = 16_000_000_000;
const SCALING_RECEIVERS: usize = 2;
const FILE_BYTES: u64 = 2 << 20;
/// Of a run's time, when one of four hosts fails, and how long such a one counts as there.
const FAILS_AFTER: f64 = 0.4;
const LEASE_SECONDS: f64 = 15.0;
/// A copy with such a one is given up after so many times what one takes without, and so much more.
const SLOWER_MAX: f64 = 10.0;
const LATE: Duration = Duration::from_secs(120);
/// The host that fails, alone at its site, so that it can be cut off.
const LONE: &str = "lone";
/// Site, hosts, units of rate of each host and of the site's circuit, round trip in milliseconds: the challenge's own relations.
const SITES: [(&str, usize, u64, u64, u64); 3] =
    [("alcf", 20, 20, 200, 55), ("llnl", 3, 34, 100, 19), ("nersc", 2, 100, 200, 19)];
const FLOOR: (&str, usize, u64) = ("floor", 4, 400);
const CHALLENGE_SECONDS: u64 = 64;
/// A second of a host at its rate, as the files of the challenge were.
const CHALLENGE_FILE_BYTES: u64 = 2 << 20;

/// What becomes of one of four hosts, until the copy has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Killed,
    Stopped,
    Cut,
}

const FAULTS: [Fault; 3] = [Fault::Killed, Fault::Stopped, Fault::Cut];

impl Fault {
    fn word(self) -> &'static str {
        match self {
            Fault::Killed => "killed",
            Fault::Stopped => "stopped",
            Fault::Cut => "cut off",
        }
    }

    fn come(self, stand: &mut Endpoints) -> Result<()> {
        match self {
            Fault::Killed => stand.kill(LONE),
            Fault::Stopped => signal(stand, Signal::STOP)?,
            Fault::Cut => stand.cut(LONE, true)?,
        }
        Ok(())
    }

    fn end(self, stand: &mut Endpoints) -> Result<()> {
        match self {
            Fault::Killed => stand.serve(LONE, &format!("home-{LONE}"), "from", &[]),
            Fault::Stopped => signal(stand, Signal::CONT),
            Fault::Cut => stand.cut(LONE, false),
        }
    }
}

/// To all that runs on the host that fails.
fn signal(stand: &Endpoints, signal: Signal) -> Result<()> {
    let listed = Command::new("ip").args(["netns", "pids"]).arg(stand.lab.namespace(LONE)?).output();
    let listed = listed.map_err(Error::io("run", "ip"))?;
    let pids = String::from_utf8_lossy(&listed.stdout).into_owned();
    for pid in pids.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
        kill_process(pid, signal).map_err(Error::io("signal", LONE))?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Case {
    hosts: usize,
    is_one_file: bool,
    fault: Option<Fault>,
}

const FOUR: Case = Case { hosts: 4, is_one_file: false, fault: None };

impl Case {
    fn name(self) -> String {
        let what = if self.is_one_file { "one file" } else { "many files" };
        let fails = self.fault.map_or(String::new(), |fault| format!(", one {}", fault.word()));
        let hosts = if self.hosts == 1 { "host" } else { "hosts" };
        format!("{} {hosts}, {what}{fails}", self.hosts)
    }
}

fn link(site: &str, bits_per_second: u64, rtt_ms: u64) -> String {
    let kbit = bits_per_second / 1000;
    let rate = format!("rate = \"{kbit}kbit\"\nqueue = \"1bdp\"\n");
    format!("[link.{site}]\nbetween = [\"{site}\", \"core\"]\nrtt = \"{rtt_ms}ms\"\n{rate}")
}

fn names(site: &str, hosts: usize) -> Vec<String> {
    match hosts {
        1 => vec![site.to_owned()],
        _ => (1..=hosts).map(|number| format!("{site}{number}")).collect(),
    }
}

struct Raw(File);

impl Raw {
    fn new(context: &Context) -> Result<Raw> {
        fs::create_dir_all(&context.dir).map_err(Error::io("create", &context.dir))?;
        let path = context.dir.join("hosts.jsonl");
        Ok(Raw(File::create(&path).map_err(Error::io("create", &path))?))
    }

    fn add(&mut self, case: &str, round: u32, bytes: u64, ended: &Ended) -> Result<()> {
        let seconds = ended.seconds;
        let head = format!(r#"{{"case":"{case}","round":{round},"seconds":{seconds:.3},"set_bytes":{bytes}"#);
        writeln!(self.0, "{head},{}}}", ended.raw()).map_err(Error::io("write", "hosts.jsonl"))
    }
}

/// S0 figure 12. The outage comes first: the events of the laboratory after it take the place of its own.
pub fn cluster(context: &mut Context) -> Result<()> {
    let outage = outage::run(context);
    scaling(context).and(outage)
}

fn scaling(context: &mut Context) -> Result<()> {
    let rate = context.options.bits_per_second.unwrap_or(50 * MBIT);
    let most = *NUMBERS.last().expect("there are some");
    let senders = names("h", most);
    // A laboratory has 16 links at most.
    let held = format!("host-rate = \"{}kbit\"\n", rate / 1000);
    let mut text = format!("[site.h]\nhosts = {most}\n{held}[site.sink]\nhosts = {SCALING_RECEIVERS}\n[site.desk]\n");
    let wide = 10_000 * MBIT;
    text.push_str(&(link("h", wide, 10) + &link("sink", wide, 1) + &link("desk", wide, 1)));
    text.push_str(&format!("[site.{LONE}]\n{held}{}", link(LONE, wide, 10)));
    let second_of_all = 2 * most as u64 * (rate / 8).max(1);
    let of_host = rate / 8 * SCALING_SECONDS.min(SCALING_BYTES_MAX / second_of_all).max(1);
    let mut stand = Endpoints::new(context, "hosts", &text, "desk", 2 * most as u64 * of_host)?;
    let receivers = names("sink", SCALING_RECEIVERS);
    serve_all(&mut stand, &senders, "from", None)?;
    serve_all(&mut stand, &names(LONE, 1), "from", None)?;
    serve_all(&mut stand, &receivers, "to", None)?;
    let mut raw = Raw::new(context)?;
    let mut cases: Vec<Case> = [false, true]
        .into_iter()
        .flat_map(|is_one_file| NUMBERS.map(|hosts| Case { hosts, is_one_file, fault: None }))
        .collect();
    cases.extend(FAULTS.map(|fault| Case { fault: Some(fault), ..FOUR }));
    let mut seconds: Vec<(Case, f64)> = Vec::new();
    let mut late: Vec<(Case, String)> = Vec::new();
    for round in 1..=context.options.rounds.unwrap_or(3) {
        for case in &cases {
            let bytes = of_host * case.hosts as u64;
            let (files, of_file) = if case.is_one_file { (1, bytes) } else { (bytes / FILE_BYTES, FILE_BYTES) };
            stand.done("desk", "home-client", &["gen", &format!("{files}x{of_file}"), "from/set"])?;
            let undisturbed = seconds.iter().rev().find(|(of, _)| *of == FOUR).map_or(0.0, |(_, took)| *took);
            let fault = case.fault.map(|fault| (fault, undisturbed * FAILS_AFTER));
            let mut working = senders[..case.hosts].to_vec();
            if fault.is_some() {
                working[case.hosts - 1] = LONE.to_owned();
            }
            let ended = copy(&mut stand, &working, &receivers, fault, &case.name())?;
            let took = ended.seconds;
            raw.add(&case.name(), round, files * of_file, &ended)?;
            let done: Value = serde_json::from_str(&ended.event).unwrap_or_default();
            let has_lost = done["hosts"].as_array().into_iter().flatten().any(|host| host["lost"].as_u64() > Some(0));
            // A host that fails when it has nothing says nothing.
            if has_lost || case.fault.is_none() {
                seconds.push((*case, took));
                late.extend(ended.late(&format!("{}, round {round}", case.name())).map(|reason| (*case, reason)));
            }
            (context.progress())(&format!("{}: {took:.1} s", case.name()));
        }
    }
    judge_scaling(context, &seconds, &late);
    let of_rate = of_host * 8 / rate.max(1);
    context.note(format!(
        "each host has {} Mbit/s of its own, 11 ms away, and brings {of_rate} s of it; all share one machine",
        rate / MBIT
    ));
    Ok(())
}

fn judge_scaling(context: &mut Context, seconds: &[(Case, f64)], late: &[(Case, String)]) {
    let of = |case: Case| median(seconds.iter().filter(|(of, _)| *of == case).map(|(_, took)| *took));
    let late_in = |cases: [Case; 2]| -> Vec<String> {
        late.iter().filter(|(of, _)| cases.contains(of)).map(|(_, reason)| reason.clone()).collect()
    };
    for is_one_file in [false, true] {
        let one = Case { hosts: 1, is_one_file, fault: None };
        let alone = of(one);
        for hosts in NUMBERS.into_iter().skip(1) {
            let case = Case { hosts, is_one_file, fault: None };
            // Each has as much to bring as the one that is alone.
            let share = alone.zip(of(case)).map(|(alone, took)| alone / took);
            let check = Check::at_least(format!("{}: rate / the number of hosts", case.name()), 0.95, share);
            context.check(check.beside(&late_in([one, case])));
        }
    }
    for fault in FAULTS {
        let failing = Case { fault: Some(fault), ..FOUR };
        let over = of(FOUR).zip(of(failing)).map(|(calm, took)| (took - LEASE_SECONDS) / calm);
        let claim = format!("one of four {} at 0.4: (time - 15 s of lease) / time of four", fault.word());
        context.check(Check::at_most(claim, 1.2, over).beside(&late_in([FOUR, failing])));
    }
}

/// S3 figure 3, and the challenge as a whole.
pub fn challenge(context: &mut Context) -> Result<()> {
    let unit = context.options.bits_per_second.unwrap_or(500 * MBIT) / FLOOR.2;
    let mut text = format!("[site.{}]\nhosts = {}\n[site.desk]\n{}", FLOOR.0, FLOOR.1, link("desk", 1000 * MBIT, 1));
    text.push_str(&link(FLOOR.0, FLOOR.2 * unit, 1));
    for (site, hosts, _, circuit, rtt_ms) in SITES {
        text.push_str(&format!("[site.{site}]\nhosts = {hosts}\n{}", link(site, circuit * unit, rtt_ms)));
    }
    let files = FLOOR.2 * unit / 8 * CHALLENGE_SECONDS / CHALLENGE_FILE_BYTES;
    let bytes = files * CHALLENGE_FILE_BYTES;
    let mut stand = Endpoints::new(context, "sc09", &text, "desk", 2 * bytes)?;
    let mut senders = Vec::new();
    for (site, hosts, of_host, _, _) in SITES {
        let own = names(site, hosts);
        serve_all(&mut stand, &own, "from", Some(of_host * unit))?;
        senders.extend(own);
    }
    let receivers = names(FLOOR.0, FLOOR.1);
    serve_all(&mut stand, &receivers, "to", None)?;
    stand.done("desk", "home-client", &["gen", &format!("{files}x{CHALLENGE_FILE_BYTES}"), "from/set"])?;
    let mut raw = Raw::new(context)?;
    let (mut shares, mut spreads, mut late) = (Vec::new(), SITES.map(|_| Vec::new()), Vec::<String>::new());
    for round in 1..=context.options.rounds.unwrap_or(1) {
        let ended = copy_again(&mut stand, &senders, &receivers, "the challenge")?;
        raw.add("the challenge", round, bytes, &ended)?;
        late.extend(ended.late(&format!("round {round}")));
        shares.push(bytes as f64 * 8.0 / ended.seconds / (FLOOR.2 * unit) as f64);
        let done: Value = serde_json::from_str(&ended.event).unwrap_or_default();
        for ((site, hosts, ..), spread) in SITES.iter().zip(&mut spreads) {
            spread.extend(spread_of(&done, site, *hosts));
        }
    }
    context.check(Check::at_least("rate / the circuit to the floor", 0.95, median(shares)).beside(&late));
    for ((site, hosts, ..), spread) in SITES.iter().zip(spreads) {
        let claim = format!("bytes of the {hosts} hosts at {site}, most / least");
        context.check(Check::at_most(claim, 1.2, median(spread)).beside(&late));
    }
    let rates = SITES.map(|(site, hosts, of_host, circuit, _)| {
        format!("{site}: {hosts} x {} behind {}", of_host * unit / MBIT, circuit * unit / MBIT)
    });
    context.note(format!("Mbit/s: {}, into {} hosts behind {}", rates.join("; "), FLOOR.1, FLOOR.2 * unit / MBIT));
    context.note(format!("the publication's hour had {} of its circuit on average", shown(0.75)));
    Ok(())
}

/// Endpoints with one directory in common, each limited to a rate if there is one.
fn serve_all(stand: &mut Endpoints, hosts: &[String], root: &str, rate: Option<u64>) -> Result<()> {
    let path = stand.path(root);
    fs::create_dir_all(&path).map_err(Error::io("create", &path))?;
    for host in hosts {
        let home = format!("home-{host}");
        if let Some(rate) = rate {
            let rate = format!("{}kbit", rate / 1000);
            stand.done(host, &home, &["contract", "add", "card", "--direction", "out", "--rate", &rate])?;
        }
        stand.serve(host, &home, root, &[])?;
    }
    Ok(())
}

/// Copies the set once, and removes it at both ends.
fn copy(
    stand: &mut Endpoints,
    senders: &[String],
    receivers: &[String],
    fault: Option<(Fault, f64)>,
    what: &str,
) -> Result<Ended> {
    let done = one(stand, senders, receivers, fault, what);
    for path in ["from/set", "to/set"] {
        let _ = fs::remove_dir_all(stand.path(path));
    }
    done
}

/// Copies the set once, and leaves it where it was.
fn copy_again(stand: &mut Endpoints, senders: &[String], receivers: &[String], what: &str) -> Result<Ended> {
    let done = one(stand, senders, receivers, None, what);
    let _ = fs::remove_dir_all(stand.path("to/set"));
    done
}

fn one(
    stand: &mut Endpoints,
    senders: &[String],
    receivers: &[String],
    fault: Option<(Fault, f64)>,
    what: &str,
) -> Result<Ended> {
    let (others, to_others) = (senders[1..].join(","), receivers[1..].join(","));
    let ends = [format!("{}:set/", senders[0]), format!("{}:set/", receivers[0])];
    let mut args = vec!["--fsync", "never"];
    if !others.is_empty() {
        args.extend(["--hosts", &others, "--to-hosts", &to_others]);
    }
    args.extend(ends.iter().map(String::as_str));
    let mut running = stand.start(&args)?;
    if let Some((fault, after)) = fault {
        running.limit = Duration::from_secs_f64(SLOWER_MAX * after / FAILS_AFTER) + LATE;
        stand.pass(Duration::from_secs_f64(after));
        fault.come(stand)?;
    }
    let done = stand.end(running, what);
    fault.map_or(Ok(()), |(fault, _)| fault.end(stand))?;
    let done = done?;
    match stand.are_same("from/set", "to/set")? {
        true => Ok(done),
        false => Err(Error::new(crate::error::Kind::Failed, "copy", what, "what was delivered is not the set")),
    }
}

/// The most bytes of a host of a site by the least; nothing where hosts are missing.
fn spread_of(done: &Value, site: &str, hosts: usize) -> Option<f64> {
    let of_site = |host: &&Value| host["name"].as_str().is_some_and(|name| name.starts_with(site));
    let bytes: Vec<f64> =
        done["hosts"].as_array()?.iter().filter(of_site).map(|host| host["bytes"].as_f64().unwrap_or(0.0)).collect();
    let (least, most) = (bytes.iter().copied().fold(f64::MAX, f64::min), bytes.iter().copied().fold(0.0, f64::max));
    (bytes.len() == hosts && most > 0.0).then(|| most / least)
}
