//! Continuous integration, entire: every step in order, one line each, and at the end where the time went.
//!
//! Two cores and a cold cache must do, and compiling is most of the work, so there are two builds of this workspace and
//! no more (`plan`): one with overflow checks, assertions and clippy, of which every test and trial is made, and the
//! product. Both are in the release profile and share what is compiled of packages from outside, and the C in them.
//! What is larger runs with `--full`, which keeps its counts.
//! Invariants: a step that fails does not stop the ones after it; output goes to a log for each step, shown on failure;
//! what is drawn at random comes from one seed, which the commit decides and `--seed` repeats.

mod plan;
mod programs;
mod report;
mod step;
mod tools;

use std::fs;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::workspace::Workspace;
use programs::Program;
use step::{Outcome, Step};

/// How much of continuous integration to run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Extent {
    /// No product, no end-to-end tests; needs neither root nor other programs.
    Quick,
    /// What every commit passes.
    Usual,
    /// That, and what takes hours or tools that few hosts have.
    Full,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub extent: Extent,
    /// Of everything drawn at random; the commit's if not given.
    pub seed: Option<u64>,
    /// Where the counts of trials are kept, below the build's folder if not given.
    pub out: Option<PathBuf>,
}

/// What the steps share.
struct Surroundings {
    workspace: Workspace,
    extent: Extent,
    logs: PathBuf,
    out: PathBuf,
    product: PathBuf,
    commit: String,
    seed: u64,
    /// Every test program, once they are built.
    programs: Mutex<Vec<Program>>,
    /// What ran, and for how many seconds.
    ran: Mutex<Vec<(String, f64)>>,
}

/// Runs the steps, prints `N passed, N failed` last, and says whether nothing failed.
pub fn run(options: Options) -> Result<bool> {
    let surroundings = Surroundings::new(options)?;
    let steps = plan::steps(&surroundings);
    println!("commit {}, seed {}", surroundings.commit, surroundings.seed);
    let began = Instant::now();
    let mut done = Vec::new();
    // Steps that mostly wait run at the same time.
    for group in steps.chunk_by(|a, b| a.is_beside && b.is_beside) {
        let ended: Result<Vec<_>> = std::thread::scope(|scope| {
            let threads: Vec<_> = group.iter().map(|step| scope.spawn(|| step.timed(&surroundings))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a step does not panic")).collect()
        });
        done.extend(ended?);
    }
    let report = report::Report { steps: done, seconds: began.elapsed().as_secs_f64() };
    report.keep(&surroundings)?;
    print!("{}", report.table(&surroundings));
    println!("{} passed, {} failed", report.passed(), report.failed());
    Ok(report.failed() == 0)
}

impl Surroundings {
    fn new(options: Options) -> Result<Surroundings> {
        let workspace = Workspace::read()?;
        let logs = workspace.target.join("ci");
        let out =
            options.out.map_or_else(|| Ok(logs.join("trials")), std::path::absolute).context("name the folder")?;
        for folder in [&logs, &out] {
            fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        }
        fs::write(logs.join(plan::CHECKED), plan::checked(&workspace.packages))
            .context("write the build's settings")?;
        let product = workspace.target.join("release/thalweg");
        let commit = commit(&workspace)?;
        // Another seed for each commit, and the same one for the same commit.
        let drawn = u64::from_str_radix(commit.get(..8).unwrap_or_default(), 16).unwrap_or(1);
        let seed = options.seed.unwrap_or(drawn);
        let (programs, ran) = Default::default();
        Ok(Surroundings { workspace, extent: options.extent, logs, out, product, commit, seed, programs, ran })
    }
}

/// The commit at hand, or nothing that is one in sources without their history.
fn commit(workspace: &Workspace) -> Result<String> {
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*", "rev-parse", "HEAD"]).current_dir(&workspace.root);
    let said = git.output().context("run git")?;
    let commit = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    Ok(if said.status.success() { commit } else { "unknown".to_owned() })
}

/// One line when a step ends; steps that run beside each other come in the order in which they end.
fn tell(step: &Step, outcome: &Outcome, seconds: f64) -> Result<()> {
    let verdict = if outcome.failed == 0 { "ok" } else { "FAILED" };
    let mut text = format!("{:24} {verdict:6} {seconds:7.1} s  {}\n", step.name, outcome.note);
    outcome.details.iter().for_each(|line| text += &format!("    {line}\n"));
    stdout().lock().write_all(text.as_bytes()).context("print")
}
