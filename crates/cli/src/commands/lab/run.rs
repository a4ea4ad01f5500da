//! `thalweg lab run`: a laboratory for one command.

use super::error::of_lab;
use super::scenario::Wanted;
use crate::exit::{Result, of_file, of_written};
use crate::interrupt::Interrupt;
use crate::output::note;
use lab::Lab;
use lab::probe::{RoundTrips, round_trips};
use lab::record::Record;
use lab::unprivileged::become_root;
use model::Exit;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Datagrams over each pair of sites, and the time between two of them: the check takes about half a second.
const PROBES: usize = 40;
const PROBE_INTERVAL: Duration = Duration::from_millis(10);
/// More pairs than this are checked in part, so that a check stays below five seconds.
const PAIRS_MAX: usize = 6;

/// Build a laboratory, check it, run a command on one of its hosts, and remove it
///
/// The command runs at the first site; it reaches the others by name (`ping b`). The exit code is the command's. A run
/// in which the emulator could not keep up is called void on standard error.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg lab run continent -- ping -c 5 b\n\
\x20   thalweg lab run lossy --set wan.loss=0.1% --record run.json -- sh -c './server & ./client b'")]
pub struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// The site or host at which the command runs [default: the first]
    #[arg(long, value_name = "SITE", env = "THALWEG_AT")]
    at: Option<String>,
    /// Write what the laboratory did, as JSON
    #[arg(long, value_name = "FILE", env = "THALWEG_RECORD")]
    record: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(args: &Args) -> Result<Exit> {
    let scenario = args.wanted.read()?;
    become_root().map_err(of_lab)?;
    // The terminal sends Ctrl-C to the command too; here it must not keep the laboratory from being removed.
    let interrupt = Interrupt::watch()?;
    let lab = Lab::up(scenario).map_err(of_lab)?;
    let round_trips = self_check(&lab).map_err(of_lab)?;
    if let Some(wrong) = round_trips.iter().find(|probe| !probe.is_as_expected()) {
        note(&format!("warning: {}", describe(wrong)));
    }
    let first = lab.scenario().sites[0].name.clone();
    let host = args.at.as_deref().unwrap_or(&first);
    let mut command = lab.command(host, &args.command[0]).map_err(of_lab)?;
    command.args(&args.command[1..]);
    let status = wait(&mut command, &interrupt).map_err(|e| of_file("run", &args.command[0], &e))?;
    let record = Record::of(&lab, round_trips);
    drop(lab);
    for reason in &record.void {
        note(&format!("void: {reason}"));
    }
    if let Some(path) = &args.record {
        write_record(&record, path)?;
    }
    std::process::exit(status);
}

pub fn write_record(record: &Record, path: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(record).map_err(|e| of_file("write", path, &e.into()))?;
    std::fs::write(path, text + "\n").map_err(|e| of_written("write", path, &e))
}

/// Round trips between the first hosts of the sites that can reach each other, all pairs at once.
pub fn self_check(lab: &Lab) -> Result<Vec<RoundTrips>, lab::Error> {
    let mut pairs = Vec::new();
    for path in &lab.topology().paths {
        let host = |port: &usize| lab.topology().ports().find(|(_, p)| p.port == *port).map(|(host, _)| &host.name);
        let (Some(from), Some(to)) = (path.from_ports.first().and_then(host), path.to_ports.first().and_then(host))
        else {
            continue;
        };
        if from < to && !pairs.contains(&(from, to)) {
            pairs.push((from, to));
        }
    }
    pairs.truncate(PAIRS_MAX);
    std::thread::scope(|scope| {
        let probe = |(from, to): (&'_ String, &'_ String)| round_trips(lab, from, to, PROBES, PROBE_INTERVAL);
        let begin = |pair| std::thread::Builder::new().spawn_scoped(scope, move || probe(pair)).map_err(|_| pair);
        let begun: Vec<_> = pairs.into_iter().map(begin).collect();
        let ended = begun.into_iter().map(|begun| match begun {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // Where no thread is to be had, this one asks.
            Err(pair) => probe(pair),
        });
        ended.collect()
    })
}

pub fn describe(probe: &RoundTrips) -> String {
    format!(
        "{} to {}: round trip {:.2} ms (asked for {:.2}), {} of {} answered",
        probe.from,
        probe.to,
        probe.median_us / 1e3,
        probe.expected_us / 1e3,
        probe.received,
        probe.sent
    )
}

/// The command's exit code, or 128 + the signal that ended it.
fn wait(command: &mut Command, interrupt: &Interrupt) -> std::io::Result<i32> {
    use std::os::unix::process::ExitStatusExt;
    let mut child = command.spawn()?;
    // A signal to this process alone is passed on; one from the terminal has reached the command already.
    let pid = rustix::process::Pid::from_child(&child);
    let watched = interrupt.clone();
    let watch = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while !watched.wait(Duration::from_secs(3600)) {}
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    });
    if let Err(e) = watch {
        let _ = child.kill();
        let _ = child.wait();
        return Err(e);
    }
    let status = child.wait()?;
    Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}
