//! Several holders of one set, each behind a link of its own: what a reader gets of the sum of their rates, and what it costs when one of
//! them has other bytes or is killed.
//!
//! Every copy is compared with the set before its time counts. Raw: `holders.jsonl`, one line a run with the program's last event.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use lab::Lab;
use lab::scenario::Scenario;

use super::context::Context;
use super::judge::{Check, median};
use crate::error::{Error, Kind, Result};
use crate::process::{Ready, Server};
use crate::workspace::{Pauses, Workspace};

const HOLDERS: [&str; 3] = ["one", "two", "three"];
/// The share of a run's time after which a holder is killed.
const KILLED_AFTER: f64 = 0.4;
/// What all holders together need for the set.
const RUN_SECONDS: u64 = 8;
const MBIT: u64 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Alone(usize),
    All,
    Poisoned,
    Killed,
}

impl Case {
    fn name(self) -> String {
        match self {
            Case::Alone(holder) => format!("alone-{}", HOLDERS[holder]),
            Case::All => "all".into(),
            Case::Poisoned => "one-poisoned".into(),
            Case::Killed => "one-killed".into(),
        }
    }
}

struct Stand<'a> {
    lab: Lab,
    workspace: Workspace,
    program: PathBuf,
    cancel: &'a AtomicBool,
    servers: Vec<Option<Server>>,
    bytes: u64,
}

pub fn run(context: &mut Context) -> Result<()> {
    let rate = context.options.bits_per_second.unwrap_or(250 * MBIT);
    // Unequal, as holders are.
    let rates = [rate, rate, rate / 2];
    let cancel = context.cancel();
    let mut stand = Stand::build(context, rates, cancel)?;
    let out = context.dir.clone();
    fs::create_dir_all(&out).map_err(Error::io("create", &out))?;
    let path = out.join("holders.jsonl");
    let mut raw = File::create(&path).map_err(Error::io("create", &path))?;
    let mut seconds: Vec<(Case, f64)> = Vec::new();
    let cases = [Case::Alone(0), Case::Alone(1), Case::Alone(2), Case::All, Case::Poisoned, Case::Killed];
    // The first round warms memory and is left out.
    for round in 0..=context.options.rounds.unwrap_or(5) {
        for case in cases {
            let killed_after = seconds.iter().rev().find(|(of, _)| *of == Case::All).map(|(_, seconds)| *seconds);
            let (took, event) = stand.run(case, killed_after.unwrap_or(RUN_SECONDS as f64) * KILLED_AFTER)?;
            writeln!(
                raw,
                r#"{{"case":"{}","round":{round},"seconds":{took:.3},"done":{}}}"#,
                case.name(),
                event.trim()
            )
            .map_err(Error::io("write", &path))?;
            if round > 0 {
                seconds.push((case, took));
            }
        }
    }
    let of = |case: Case| {
        let rates = seconds.iter().filter(|(of, _)| *of == case).map(|(_, took)| stand.bytes as f64 * 8.0 / took);
        median(rates)
    };
    let alone: Vec<f64> = (0..HOLDERS.len()).filter_map(|holder| of(Case::Alone(holder))).collect();
    let sum: f64 = alone.iter().sum();
    context.check(Check::at_least("three holders / the sum of each alone", 0.95, of(Case::All).map(|rate| rate / sum)));
    let good = sum - alone.get(1).copied().unwrap_or(0.0);
    let claim = "one of three poisoned: rate / the sum of the two good ones";
    context.check(Check::at_least(claim, 0.95, of(Case::Poisoned).map(|rate| rate / good)));
    // Until it is killed it brings its share.
    let left = KILLED_AFTER * sum + (1.0 - KILLED_AFTER) * good;
    let claim = "one of three killed at 0.4: rate / what the links allow";
    context.check(Check::at_least(claim, 0.9, of(Case::Killed).map(|rate| rate / left)));
    context.note("holders and reader share the processors of one machine; TLS and BLAKE3 throughout");
    Ok(())
}

impl<'a> Stand<'a> {
    fn build(context: &Context, rates: [u64; 3], cancel: &'a AtomicBool) -> Result<Stand<'a>> {
        let mut text = "[site.reader]\n".to_owned();
        for (holder, rate) in HOLDERS.iter().zip(rates) {
            text.push_str(&format!("[site.{holder}]\n[link.to-{holder}]\nbetween = [\"reader\", \"{holder}\"]\n"));
            text.push_str(&format!("rtt = \"20ms\"\nrate = \"{}kbit\"\nqueue = \"1bdp\"\n", rate / 1000));
        }
        let scenario = Scenario::from_toml(&text).map_err(|e| Error::usage("the laboratory", e.to_string()))?;
        let pauses = Pauses { memory: Duration::ZERO, quiet_max: Duration::ZERO };
        let workspace = Workspace::create(context.options.work_dir.as_deref(), pauses)?;
        let bytes = rates.iter().sum::<u64>() / 8 * RUN_SECONDS;
        workspace.check_space(5 * bytes + (64 << 20))?;
        let stand = Stand {
            lab: Lab::up(scenario)?,
            workspace,
            program: context.options.program.clone(),
            cancel,
            servers: HOLDERS.iter().map(|_| None).collect(),
            bytes,
        };
        for holder in HOLDERS.iter().chain(&["two-poisoned"]) {
            let root = stand.path(holder);
            fs::create_dir(&root).map_err(Error::io("create", &root))?;
            let path = root.join("set");
            let seed = context.options.seed + u64::from(*holder == "two-poisoned");
            write_set(&path, bytes, seed).map_err(Error::io("write", &path))?;
        }
        Ok(stand)
    }

    fn path(&self, below: &str) -> PathBuf {
        self.workspace.path().join(below)
    }

    fn command(&self, host: &str, home: &str, args: &[&str]) -> Result<Command> {
        let mut command = self.lab.command(host, &self.program)?;
        let home = self.path(home);
        command.args(args).current_dir(self.workspace.path()).env("HOME", &home).env("THALWEG_CONFIG", "/dev/null");
        for name in ["CONFIG_HOME", "STATE_HOME", "CACHE_HOME", "DATA_HOME", "RUNTIME_DIR"] {
            command.env(format!("XDG_{name}"), home.join(name.to_ascii_lowercase()));
        }
        Ok(command)
    }

    /// (Re)starts a holder with the set of `root`, and has the reader know it.
    fn serve(&mut self, holder: usize, root: &str) -> Result<()> {
        self.servers[holder] = None;
        let host = HOLDERS[holder];
        let (ticket, log) = (self.path(&format!("ticket-{host}")), self.path(&format!("log-{host}")));
        let _ = fs::remove_file(&ticket);
        let address = self.lab.address_v4(host)?.to_string();
        let ticket_name = ticket.display().to_string();
        let args = [
            "serve",
            "--listen",
            "0.0.0.0:7740",
            "--advertise",
            &address,
            "--root",
            root,
            "--ticket-file",
            &ticket_name,
        ];
        let mut command = self.command(host, &format!("home-{root}"), &args)?;
        self.servers[holder] = Some(Server::start(&mut command, &Ready::Exists(ticket.clone()), &log, self.cancel)?);
        let args = ["endpoint", "add", host, "--ticket-file", &ticket_name, "--replace"];
        let added = self.command("reader", "home-reader", &args)?.output().map_err(Error::io("run", &self.program))?;
        if !added.status.success() {
            let said = String::from_utf8_lossy(&added.stderr).into_owned();
            return Err(Error::new(Kind::Failed, "add endpoint", host, said));
        }
        Ok(())
    }

    /// Seconds, and the last event.
    fn run(&mut self, case: Case, killed_after: f64) -> Result<(f64, String)> {
        for (holder, name) in HOLDERS.into_iter().enumerate() {
            let root = if case == Case::Poisoned && holder == 1 { "two-poisoned" } else { name };
            self.serve(holder, root)?;
        }
        let delivered = self.path("delivered");
        let _ = fs::remove_dir_all(&delivered);
        let mut args = vec!["cp", "--json", "--fsync", "never", "--digest", "blake3"];
        let sources = HOLDERS.map(|holder| format!("{holder}:set"));
        match case {
            Case::Alone(holder) => args.push(&sources[holder]),
            _ => sources.iter().for_each(|source| args.extend(["--replica", source])),
        }
        args.push("delivered/");
        let mut command = self.command("reader", "home-reader", &args)?;
        let started = Instant::now();
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.map_err(Error::io("run", &self.program))?;
        let output = child.stdout.take().expect("it is piped");
        let reader =
            std::thread::spawn(move || BufReader::new(output).lines().map_while(std::result::Result::ok).last());
        if case == Case::Killed {
            std::thread::sleep(Duration::from_secs_f64(killed_after));
            self.servers[1] = None;
        }
        let status = child.wait().map_err(Error::io("wait for", &self.program))?;
        let seconds = started.elapsed().as_secs_f64();
        let event = reader.join().ok().flatten().unwrap_or_default();
        let is_same = same(&self.path("one/set"), &delivered.join("set")).unwrap_or(false);
        if !status.success() || !is_same {
            let cause = if is_same { event } else { "what was delivered is not the set".to_owned() };
            return Err(Error::new(Kind::Failed, "copy", case.name(), cause));
        }
        Ok((seconds, event))
    }
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
