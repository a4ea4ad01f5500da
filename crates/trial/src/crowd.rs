//! `trial crowd`: greedy clients of the real endpoint, and honest ones beside them.
//!
//! A trial is one kind of greed by clients of one ticket (`greed`), which keep what they get. While they do, another key of
//! their ticket and a client of another ticket make a small copy, or ask for a list. It survived when both got what they asked
//! for in time, and when the endpoint's peak of resident memory stayed below the bound of docs/operating.md (I12). The other
//! client must be served at its first try; the other key, whose share the greedy have taken, may be told to try again until
//! one of them has been idle for long enough.
//!
//! Not here: peers that break the protocol (`hostile`). These keep to it.

mod greed;

use crate::hostile::peer::Target;
use crate::job::{Bed, Direction, Ground, GroundArgs, PATIENCE, check_words};
use crate::process::{Ended, Process};
use crate::record::{Outcome, Tally};
use anyhow::{Context, Result, bail};
use daemon::Ticket;
use greed::{GREEDS, Greed};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// An honest client has what it asked for within this time. That it starts within a second is what is promised; a loaded
/// machine in a debug build gets more, and the figure is told.
const WAIT_MAX: Duration = Duration::from_secs(15);
/// What a process takes that is not charged: the program, its threads, the allocator's slack.
const UNCHARGED_BYTES: u64 = 192 << 20;
const MEMORY_BYTES: usize = 24 << 20;
/// Names in the directory that lists are asked of: more than may wait unread.
const LISTED_NAMES: u32 = 40_000;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    ground: GroundArgs,
    /// Directories that each greedy job describes, if it is let
    #[arg(long, value_name = "N", default_value_t = 400_000)]
    pub directories: u64,
    /// Keys of one ticket
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub keys: usize,
    /// --memory of the endpoint, in MiB
    #[arg(long, value_name = "MIB")]
    memory: Option<usize>,
    /// Only the greed of this name
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

pub fn run(args: &Args) -> Result<Tally> {
    let started = Instant::now();
    let ground = Ground::new(&args.ground, "1MiB", fill)?;
    let bed = Bed::new(&ground, Direction::Push, |_| Ok(()))?;
    let greeds: Vec<_> =
        GREEDS.iter().filter(|greed| args.only.as_ref().is_none_or(|only| only == greed.name)).collect();
    if greeds.is_empty() {
        let names: Vec<_> = GREEDS.iter().map(|greed| greed.name).collect();
        bail!("no greed has this name; there are: {}", names.join(", "));
    }
    let mut tally = Tally::new("trial crowd");
    let mut runs = 0;
    for greed in greeds {
        let stage = Stage::build(&bed, args, &mut runs)?;
        let mut figures = Vec::new();
        let outcome = match stage.play(greed, args, &mut figures) {
            Ok(()) => Outcome::Survived,
            Err(why) => Outcome::Violated(why),
        };
        tally.figures.extend(figures.into_iter().map(|(name, figure)| (format!("{}: {name}", greed.name), figure)));
        let replay = format!("trial crowd --only '{}'", greed.name);
        tally.count(&format!("crowd: {}", greed.name), greed.faults, &outcome, &replay);
    }
    tally.seconds = started.elapsed().as_secs_f64();
    Ok(tally)
}

fn fill(source: &Path) -> Result<()> {
    let content: Vec<u8> = (0..1_u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(source.join("small"), content).context("make the source")
}

/// An endpoint of its own, with two tickets and two honest clients.
struct Stage<'a> {
    bed: &'a Bed<'a>,
    endpoint: Process,
    memory_bytes: usize,
    target: Target,
    run: u32,
}

/// The honest clients: where each has its home, what it is to the greedy ones, and how often it may have to try again.
const HONEST: [(&str, &str, &str); 2] =
    [("client", "another key of the ticket", "20"), ("stranger", "a client of another ticket", "0")];

impl<'a> Stage<'a> {
    fn build(bed: &'a Bed<'a>, args: &Args, runs: &mut u32) -> Result<Stage<'a>> {
        *runs += 1;
        let run = *runs;
        let state = bed.dir.join(format!("server-{run}"));
        let root = bed.dir.join("root");
        let memory_bytes = args.memory.map_or(MEMORY_BYTES, |mib| mib << 20);
        fs::create_dir_all(&state).context("make a state directory")?;
        let mut command = bed.command("server");
        command.args(["serve", "--listen", "127.0.0.1:0", "--memory", &memory_bytes.to_string()]);
        command.arg("--ticket-file").arg(state.join("ticket")).arg("--state-dir").arg(&state).arg("--root").arg(root);
        let endpoint = Process::start(command, &bed.dir, &format!("serve-{run}"), None)?;
        if endpoint.first_line(PATIENCE).is_none_or(|line| !line.starts_with("ready on ")) {
            bail!("the endpoint did not start: {}", fs::read_to_string(&endpoint.errors).unwrap_or_default());
        }
        let mut new = bed.command("server");
        new.args(["ticket", "new", "--state-dir"]).arg(&state).arg("--ticket-file").arg(state.join("other"));
        finished(new, bed, &format!("ticket-{run}"))?;
        for ((home, ..), ticket) in HONEST.iter().zip(["ticket", "other"]) {
            fs::create_dir_all(bed.dir.join(home)).context("make a home")?;
            let mut add = bed.command(home);
            add.args(["endpoint", "add", "lab", "--replace", "--ticket-file"]).arg(state.join(ticket));
            finished(add, bed, &format!("add-{home}-{run}"))?;
        }
        let text = fs::read_to_string(state.join("ticket")).context("read the ticket")?;
        let target = Target::by(Ticket::parse(&text).context("read the ticket")?);
        Ok(Stage { bed, endpoint, memory_bytes, target, run })
    }

    /// The greedy take what they get; then the honest come.
    fn play(&self, greed: &Greed, args: &Args, figures: &mut Vec<(String, String)>) -> Result<(), String> {
        if greed.asks {
            let listed = self.bed.dir.join("root/listed");
            fs::create_dir_all(&listed).map_err(|e| e.to_string())?;
            for number in 0..LISTED_NAMES {
                fs::write(listed.join(format!("{number:05}")), "").map_err(|e| e.to_string())?;
            }
        }
        let held = (greed.act)(&self.target, args)?;
        figures.push(("got".to_owned(), held.got.clone()));
        for (home, who, retries) in HONEST {
            let seconds = match greed.asks {
                true => self.ask(home),
                false => self.copy(home, retries),
            };
            let seconds = seconds.map_err(|why| format!("{who}: {why}"))?;
            figures.push((format!("seconds that {who} took"), format!("{seconds:.2}")));
            if seconds > WAIT_MAX.as_secs_f64() {
                return Err(format!("{who} took {seconds:.2} s"));
            }
        }
        let peak = self.peak_bytes().map_err(|e| format!("the endpoint is gone: {e:#}"))?;
        let bound = self.memory_bytes as u64 + mover::memory::held_bytes_max(self.memory_bytes) + UNCHARGED_BYTES;
        figures.push((
            "peak and bound of the endpoint's memory, MiB".to_owned(),
            format!("{} {}", peak >> 20, bound >> 20),
        ));
        drop(held);
        check_words(&fs::read_to_string(&self.endpoint.errors).unwrap_or_default())?;
        if peak > bound { Err(format!("I12: {} MiB resident, {} allowed", peak >> 20, bound >> 20)) } else { Ok(()) }
    }

    /// A small copy; seconds to its end, until it is durable.
    fn copy(&self, home: &str, retries: &str) -> Result<f64, String> {
        let mut command = self.bed.command(home);
        command.args(["cp", "--retries", retries, "--progress", "none", "--streams", "1"]);
        command.arg(self.bed.ground.source.join("small")).arg(format!("lab:in/{home}-{}", self.run));
        let begun = Instant::now();
        let ended = ended(command, self.bed, &format!("cp-{home}-{}", self.run)).map_err(|e| format!("{e:#}"))?;
        let seconds = begun.elapsed().as_secs_f64();
        if ended.code != Some(0) {
            return Err(format!("its copy failed: {}", ended.errors.trim()));
        }
        let copied = self.bed.dir.join("root/in").join(format!("{home}-{}", self.run));
        if fs::read(copied).ok() != fs::read(self.bed.ground.source.join("small")).ok() {
            return Err("its copy is not what was sent".to_owned());
        }
        Ok(seconds)
    }

    /// A list of a small directory; seconds to its end.
    fn ask(&self, home: &str) -> Result<f64, String> {
        let mut command = self.bed.command(home);
        command.args(["ls", "lab:in"]);
        let begun = Instant::now();
        let ended = ended(command, self.bed, &format!("ls-{home}-{}", self.run)).map_err(|e| format!("{e:#}"))?;
        match ended.code {
            Some(0) => Ok(begun.elapsed().as_secs_f64()),
            _ => Err(format!("its list failed: {}", ended.errors.trim())),
        }
    }

    /// The most that the endpoint had resident so far.
    fn peak_bytes(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.endpoint.id))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no peak")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
    }
}

fn ended(command: std::process::Command, bed: &Bed<'_>, name: &str) -> Result<Ended> {
    Process::start(command, &bed.dir, name, None)?.wait(PATIENCE)?.with_context(|| format!("hang: {name} did not end"))
}

fn finished(command: std::process::Command, bed: &Bed<'_>, name: &str) -> Result<()> {
    let ended = ended(command, bed, name)?;
    if ended.code != Some(0) {
        bail!("{name}: {}", ended.errors.trim());
    }
    Ok(())
}
