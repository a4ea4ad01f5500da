//! `thalweg lab up` and `down`, and the process between them that holds the laboratory.

use super::error::of_lab;
use super::inspect;
use super::run::{describe, self_check};
use super::scenario::Wanted;
use crate::exit::{Error, Result, error, of_file, usage};
use crate::interrupt::Interrupt;
use crate::output::{line, note};
use lab::Lab;
use lab::control::{Control, Request, ask};
use lab::lease::{self, Lease};
use lab::scenario::Scenario;
use model::Exit;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// For a holder that was told to end, which kills what runs in its laboratory first.
const END_PATIENCE: Duration = Duration::from_secs(20);

/// Build a laboratory that stays until `thalweg lab down`
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg lab up continent --name far --set wan.loss=0.01%")]
pub struct Up {
    #[command(flatten)]
    wanted: Wanted,
}

/// Remove laboratories
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg lab down far\n\
\x20   thalweg lab down --all")]
pub struct Down {
    /// Which laboratory; may be omitted if there is only one
    #[arg(value_name = "NAME", conflicts_with = "all")]
    names: Vec<String>,
    /// All of this user's, and leftovers of killed ones
    #[arg(long)]
    all: bool,
    /// Write what the laboratory did, as JSON
    #[arg(long, value_name = "FILE", conflicts_with = "all", env = "THALWEG_RECORD")]
    record: Option<PathBuf>,
}

/// Hold a laboratory, whose scenario comes on standard input
#[derive(clap::Args, Debug)]
pub struct Hold {}

/// What the holder says once, when the laboratory stands or cannot be built.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    Ready { token: String, lines: Vec<String> },
    Failed { message: String, hint: Option<String>, exit: i32 },
}

pub fn up(args: &Up) -> Result<Exit> {
    let scenario = args.wanted.read()?;
    scenario.check(lab::laboratory::memory_available_bytes()).map_err(|e| of_lab(e.into()))?;
    if let Some((lease, _)) = inspect::living().into_iter().find(|(_, name)| *name == scenario.name) {
        let message = format!("a laboratory named {} is up (process {})", scenario.name, lease.pid());
        return Err(usage(
            message,
            format!("give this one a `--name`, or remove that with `thalweg lab down {}`", scenario.name),
        ));
    }
    let failed = |e: std::io::Error| of_file("start", "the holder of the laboratory", &e);
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(["lab", "hold"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    // The terminal's signals are for us.
    command.process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    stdin.map_or(Ok(()), |mut stdin| stdin.write_all(scenario.to_toml().as_bytes())).map_err(failed)?;
    let mut text = String::new();
    stdout.map_or(Ok(0), |stdout| BufReader::new(stdout).read_line(&mut text)).map_err(failed)?;
    match serde_json::from_str(&text) {
        Ok(Word::Ready { lines, .. }) => {
            for text in &lines {
                line(text);
            }
            Ok(Exit::Done)
        }
        Ok(Word::Failed { message, hint, exit }) => {
            let exit = if exit == Exit::Usage as i32 { Exit::Usage } else { Exit::Failed };
            Err(Error { hint, ..Error::new(exit, message) })
        }
        Err(_) => Err(error(
            Exit::Failed,
            "the process that holds the laboratory ended before setup was complete",
            "`thalweg lab down --all` removes what may be left; then try again",
        )),
    }
}

pub fn hold(_: &Hold) -> Result<Exit> {
    if let Err(error) = lab::unprivileged::become_root().map_err(of_lab) {
        say(&Word::Failed { message: error.message, hint: error.hint, exit: error.exit as i32 });
        return Ok(error.exit);
    }
    let interrupt = Interrupt::watch()?;
    let mut text = String::new();
    std::io::stdin().take(1 << 20).read_to_string(&mut text).map_err(|e| of_file("read", "the scenario", &e))?;
    let built = Scenario::from_toml(&text).map_err(|e| of_lab(e.into())).and_then(build);
    let (lab, control, round_trips) = match built {
        Ok(built) => built,
        Err(error) => {
            say(&Word::Failed { message: error.message, hint: error.hint, exit: error.exit as i32 });
            return Ok(error.exit);
        }
    };
    let mut lines = vec![format!("{} is up ({})", lab.scenario().name, lab.lease().token)];
    lines.extend(lab.choice().map(|choice| format!("back end {}: {}", choice.backend.name(), choice.reason)));
    lines.extend(round_trips.iter().map(describe));
    lines.extend(lab.topology().hosts.iter().map(|host| {
        let addresses: Vec<_> = host.interfaces.iter().map(|interface| interface.v4.to_string()).collect();
        format!("{:8} {}  (namespace {})", host.name, addresses.join(" "), lab.lease().namespace(&host.name))
    }));
    say(&Word::Ready { token: lab.lease().token.clone(), lines });
    let lease = lab.lease().clone();
    let watch = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while !interrupt.wait(Duration::from_secs(3600)) {}
        let _ = ask(&lease, &Request::Down);
    });
    watch.map_err(|e| {
        error(Exit::Failed, format!("start a thread: {e}"), "raise the limit on processes, and try again")
    })?;
    control.serve(&lab, &round_trips);
    Ok(Exit::Done)
}

fn build(scenario: Scenario) -> Result<(Lab, Control, Vec<lab::probe::RoundTrips>)> {
    let lab = Lab::up(scenario).map_err(of_lab)?;
    let round_trips = self_check(&lab).map_err(of_lab)?;
    let control = Control::open(&lab).map_err(of_lab)?;
    Ok((lab, control, round_trips))
}

pub fn down(args: &Down) -> Result<Exit> {
    if args.all {
        let removed: Vec<_> = inspect::living().iter().map(|(lease, name)| remove(lease, name, None)).collect();
        let _lock = lease::lock().map_err(of_lab)?;
        for token in lease::remove_leftovers() {
            line(&format!("removed what was left of {token}"));
        }
        return removed.into_iter().collect::<Result<()>>().map(|()| Exit::Done);
    }
    let names: Vec<Option<&str>> = match &args.names[..] {
        [] => vec![None],
        names => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    for name in names {
        let (lease, name) = inspect::find(name)?;
        remove(&lease, &name, args.record.as_deref())?;
    }
    Ok(Exit::Done)
}

/// Asks the holder to end, and waits until it has.
fn remove(lease: &Lease, name: &str, record_file: Option<&Path>) -> Result<()> {
    let record = match ask(lease, &Request::Down) {
        Ok(record) => record,
        Err(_) => {
            // It holds the laboratory for a command of its own, which it ends when it is told to.
            note(&format!("{name} is held by process {} for a command of its own, which is ended", lease.pid()));
            let holder = rustix::process::Pid::from_raw(lease.pid() as i32).filter(|_| lease.is_holder_alive());
            holder.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM));
            return Ok(());
        }
    };
    let has_ended = ends_within(lease.pid(), END_PATIENCE);
    if let Some(path) = record_file {
        super::run::write_record(&record, path)?;
    }
    record.void.iter().for_each(|reason| note(&format!("void: {reason}")));
    if !has_ended {
        let message = format!("{name} is not down yet: process {} is still removing it", lease.pid());
        return Err(error(Exit::Temporary, message, "`thalweg lab status` shows when it is gone"));
    }
    line(&format!("{name} is down"));
    Ok(())
}

/// Whether a process is over within this time; one that cannot be watched is taken to be.
fn ends_within(pid: u32, patience: Duration) -> bool {
    let handle = rustix::process::Pid::from_raw(pid as i32)
        .and_then(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok());
    let Some(handle) = handle else { return true };
    let mut polled = [rustix::event::PollFd::new(&handle, rustix::event::PollFlags::IN)];
    let timeout =
        rustix::event::Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
    !matches!(rustix::event::poll(&mut polled, Some(&timeout)), Ok(0))
}

fn say(word: &Word) {
    if let Ok(text) = serde_json::to_string(word) {
        line(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_goes_on_is_not_taken_for_one_that_has_ended() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(!ends_within(child.id(), Duration::from_millis(10)));
        child.kill().unwrap();
        assert!(ends_within(child.id(), END_PATIENCE));
        child.wait().unwrap();
    }
}
