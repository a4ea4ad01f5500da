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
mod run;
mod step;
mod surroundings;
mod tools;

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};

use surroundings::Surroundings;
pub use surroundings::{Extent, Options};

/// Runs the steps, prints `N passed, N failed` last, and says whether nothing failed.
pub fn run(options: Options) -> Result<bool> {
    let surroundings = Surroundings::new(options)?;
    fs::write(surroundings.checked(), plan::checked(&surroundings.workspace.packages))
        .context("write the build's settings")?;
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
