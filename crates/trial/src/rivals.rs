//! `trial rivals`: the same outside faults on thalweg, rsync, globus-url-copy, xrdcp and cp, each with its safest settings.
//!
//! Owns: how often which fault meets which tool, the counts, and the table. A tool that is not installed is named with its
//! package and left out. Only our own program's results count as survived or violated.

mod fault;
mod stage;
mod tool;

use crate::outside::ground;
use crate::outside::tree::{self, Files};
use crate::record::{Outcome, Tally};
use anyhow::{Context, Result, ensure};
use fault::{FAULTS, Fault, Left, Trial};
use serde::Serialize;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tool::{TOOLS, Tool};

const LARGE_FILES: u64 = 3;
const LARGE_FILE_BYTES: u64 = 12 << 20;
const SMALL_FILES: u64 = 300;
const SMALL_FILE_BYTES: u64 = 48 << 10;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Trials of each fault with each tool
    #[arg(long, default_value_t = 2)]
    trials: u64,
    /// Only these tools
    #[arg(long, value_delimiter = ',')]
    tool: Vec<String>,
    /// Of the moments at which faults come, and of content
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Tools at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Our own program [default: thalweg beside this program]
    #[arg(long)]
    program: Option<PathBuf>,
}

/// All that is known of one tool.
#[derive(Serialize)]
struct Row {
    tool: &'static str,
    version: String,
    settings: &'static str,
    usual_seconds: f64,
    /// Why it could not be tried.
    left_out: Option<String>,
    trials: BTreeMap<Fault, Vec<Left>>,
}

pub fn run(args: &Args, out: Option<&Path>) -> Result<Tally> {
    ensure!(rustix::process::geteuid().is_root(), "network namespaces need root");
    let started = Instant::now();
    let program = ground::program(args.program.as_deref())?;
    let dir = ground::directory()?;
    // Servers that give up root have to pass.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
    let source = dir.path().join("source");
    let files = make_source(&source, args.seed)?;
    let is_meant = |tool: &Tool| args.tool.is_empty() || args.tool.iter().any(|name| name == tool.name());
    let tools: Vec<_> = TOOLS.into_iter().filter(is_meant).collect();
    ensure!(!tools.is_empty(), "none of these tools is known: {}", args.tool.join(", "));
    let mut rows = Vec::new();
    for some in tools.chunks(args.jobs.max(1)) {
        let of_tool = |tool: Tool| row(args, tool, &program, dir.path(), &source, &files);
        let done: Vec<Result<Row>> = std::thread::scope(|scope| {
            let threads: Vec<_> = some.iter().map(|tool| scope.spawn(move || of_tool(*tool))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread of a tool does not panic")).collect()
        });
        rows.extend(done.into_iter().collect::<Result<Vec<_>>>()?);
    }
    let mut tally = counted(&rows, args);
    tally.seconds = started.elapsed().as_secs_f64();
    if let Some(out) = out {
        std::fs::create_dir_all(out).with_context(|| format!("make {}", out.display()))?;
        let json = serde_json::to_string_pretty(&rows).context("encode the rows")?;
        for (name, text) in [("rivals-trials.json", json + "\n"), ("rivals.md", table(&rows))] {
            let path = out.join(name);
            std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
    }
    print!("{}", table(&rows));
    Ok(tally)
}

fn make_source(source: &Path, seed: u64) -> Result<Files> {
    let mut files = tree::make(source, SMALL_FILES, SMALL_FILE_BYTES, seed)?;
    for index in 0..LARGE_FILES {
        let below = PathBuf::from(format!("large/f{index}"));
        let known = tree::write(&source.join(&below), LARGE_FILE_BYTES, seed + 1000 + index)?;
        files.insert(below, known);
    }
    Ok(files)
}

fn row(args: &Args, tool: Tool, program: &Path, dir: &Path, source: &Path, files: &Files) -> Result<Row> {
    let mut row = Row {
        tool: tool.name(),
        version: String::new(),
        settings: tool.settings(),
        usual_seconds: 0.0,
        left_out: None,
        trials: BTreeMap::new(),
    };
    match tool.version(program) {
        Ok(version) => row.version = version,
        Err(_) => {
            row.left_out = Some(format!("not installed; Debian: {}", tool.packages()));
            return Ok(row);
        }
    }
    let mut number = 0;
    let mut trial = |share: f64, seed: u64, work: &dyn Fn(&Trial) -> Result<Left>| {
        number += 1;
        let dir = dir.join(format!("{}-{number}", tool.name()));
        let trial = Trial { tool, program, dir: &dir, source, files, share, seed };
        let left = work(&trial).with_context(|| format!("{} in {}", tool.name(), dir.display()))?;
        let _ = std::fs::remove_dir_all(&dir);
        Ok::<_, anyhow::Error>(left)
    };
    let usual = std::cell::Cell::new(0.0);
    let undisturbed = |trial: &Trial| {
        usual.set(trial.undisturbed()?);
        Ok(Left::default())
    };
    if let Err(error) = trial(0.0, args.seed, &undisturbed) {
        ensure!(tool != Tool::Thalweg, "{error:#}");
        row.left_out = Some(format!("{error:#}"));
        return Ok(row);
    }
    row.usual_seconds = usual.get();
    for fault in FAULTS.into_iter().filter(|fault| fault.meets(tool)) {
        for index in 0..args.trials {
            let seed = args.seed + index;
            let left = trial(share(fault, seed), seed, &|trial| trial.run(fault))?;
            eprintln!("{} {}: {left:?}", tool.name(), fault.name());
            row.trials.entry(fault).or_default().push(left);
        }
    }
    Ok(row)
}

/// When a fault comes: the same moments for every tool.
fn share(fault: Fault, seed: u64) -> f64 {
    let mut bytes = [0; 4];
    tree::noise(seed.wrapping_mul(31).wrapping_add(fault as u64)).fill(&mut bytes);
    0.05 + 0.9 * f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

/// Our own program keeps its contract; the others are only told of.
fn counted(rows: &[Row], args: &Args) -> Tally {
    let mut tally = Tally::new("trial rivals --trials 10");
    for row in rows {
        for (fault, trials) in &row.trials {
            let name = format!("{}, {}", row.tool, fault.name());
            if row.tool == Tool::Thalweg.name() {
                for (index, left) in trials.iter().enumerate() {
                    let replay = format!("trial rivals --tool thalweg --trials 1 --seed {}", args.seed + index as u64);
                    tally.count(&name, fault.ids(), &judged(left), &replay);
                }
            }
            tally.figures.insert(name, cell(*fault, trials));
        }
        if let Some(why) = &row.left_out {
            tally.figures.insert(row.tool.to_owned(), format!("left out: {why}"));
        }
    }
    tally
}

fn judged(left: &Left) -> Outcome {
    let broken = [
        (left.wrong > 0, "I1: a half, mixed or damaged object at a final name"),
        (left.is_lie(), "I7: success reported with something missing or wrong"),
        (left.outside_touched > 0, "I5: something outside the root was touched"),
        (left.is_mended == Some(false), "I11: the same command given again did not finish"),
        (left.is_stuck, "I11: the command did not end in time"),
    ];
    match broken.into_iter().find(|(is_broken, _)| *is_broken) {
        _ if !left.has_fired => Outcome::Inert,
        Some((_, what)) => Outcome::Violated(format!("{what}: {left:?}")),
        None => Outcome::Survived,
    }
}

/// What a reader of the table wants to know of a tool under a fault.
fn cell(fault: Fault, trials: &[Left]) -> String {
    let fired: Vec<_> = trials.iter().filter(|left| left.has_fired).collect();
    let n = fired.len();
    if n == 0 {
        return "did not fire".into();
    }
    let count = |of: &dyn Fn(&Left) -> bool| fired.iter().filter(|left| of(left)).count();
    let wrong = count(&|left| left.wrong > 0);
    let files: u64 = fired.iter().map(|left| left.wrong).sum();
    let lies = count(&|left| left.is_lie());
    let stuck = count(&|left| left.is_stuck);
    let more = if stuck > 0 { format!("; did not end {stuck} of {n}") } else { String::new() };
    let text = match fault {
        Fault::KillReceiver | Fault::KillSender => {
            let mended = count(&|left| left.is_mended == Some(true));
            let foreign = count(&|left| left.foreign > 0);
            format!(
                "half files {wrong} of {n} ({files} files); other names left {foreign}; run again: right {mended} of {n}"
            )
        }
        Fault::DiskFull => {
            format!("half files {wrong} of {n} ({files} files); success claimed {lies} of {n}")
        }
        Fault::BitFlip => {
            let right = count(&|left| left.code == Some(0) && left.wrong == 0 && left.absent == 0);
            format!("right in the end {right} of {n}; damaged file left {wrong} of {n}, unnoticed {lies}")
        }
        Fault::SourceChanges => format!("mixed file {wrong} of {n}, success claimed {lies} of {n}"),
        Fault::DestinationSwapped => {
            let touched = count(&|left| left.outside_touched > 0);
            let outside: u64 = fired.iter().map(|left| left.outside_touched).sum();
            format!("outside written {touched} of {n} ({outside} files), success claimed {lies}")
        }
    };
    text + &more
}

/// What each tool leaves behind, in Markdown.
fn table(rows: &[Row]) -> String {
    let mut text = String::from("| what happens |");
    let shown: Vec<_> = rows.iter().filter(|row| row.left_out.is_none()).collect();
    for row in &shown {
        text += &format!(" {} |", row.tool);
    }
    text += &format!("\n|---|{}\n", "---|".repeat(shown.len()));
    for fault in FAULTS {
        text += &format!("| {} |", fault.name());
        for row in &shown {
            text += &format!(" {} |", row.trials.get(&fault).map_or("-".into(), |trials| cell(fault, trials)));
        }
        text += "\n";
    }
    text += "\n| tool | version | settings |\n|---|---|---|\n";
    for row in rows {
        let settings = row.left_out.as_deref().unwrap_or(row.settings);
        text += &format!("| {} | {} | {settings} |\n", row.tool, row.version);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lie_is_success_with_something_missing_and_only_fired_trials_count() {
        let well = Left { has_fired: true, code: Some(0), complete: 3, ..Left::default() };
        let lie = Left { absent: 1, ..well.clone() };
        assert!(lie.is_lie() && !well.is_lie() && !Left { code: Some(1), ..lie.clone() }.is_lie());
        assert_eq!(judged(&Left { has_fired: false, ..lie.clone() }), Outcome::Inert);
        assert_eq!(judged(&well), Outcome::Survived);
        assert!(matches!(judged(&lie), Outcome::Violated(_)));
        assert_eq!(cell(Fault::SourceChanges, &[well, lie]), "mixed file 0 of 2, success claimed 1 of 2");
    }

    #[test]
    fn faults_come_at_the_same_moments_for_every_tool_and_within_the_copy() {
        let shares: Vec<_> = (0..100).map(|seed| share(Fault::KillSender, seed)).collect();
        assert!(shares.iter().all(|share| (0.05..=0.95).contains(share)));
        assert_ne!(shares[0], shares[1]);
    }
}
