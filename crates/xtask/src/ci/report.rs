//! Where the time went: the table at the end, and the same as JSON for whoever compares two runs.

use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result};
use serde_json::json;

use super::step::Done;
use super::surroundings::Surroundings;

const SLOWEST_SHOWN: usize = 24;

pub struct Report {
    pub steps: Vec<Done>,
    pub seconds: f64,
}

impl Report {
    pub fn passed(&self) -> usize {
        self.steps.iter().map(|step| step.outcome.passed).sum()
    }

    pub fn failed(&self) -> usize {
        self.steps.iter().map(|step| step.outcome.failed).sum()
    }

    /// Steps in their order, builds summed apart, and the slowest test programs and tests.
    pub fn table(&self, surroundings: &Surroundings) -> String {
        let mut text = format!("\n{:24} {:>8} {:>10}\n", "step", "seconds", "processor");
        let mut row = |name: &str, seconds: f64, processor: f64| {
            writeln!(text, "{name:24} {seconds:>8.1} {processor:>10.1}").expect("writing to a string cannot fail");
        };
        for step in &self.steps {
            row(step.name, step.seconds, step.processor_seconds);
        }
        let builds = || self.steps.iter().filter(|step| step.is_build);
        let compiling = builds().map(|step| step.seconds).sum::<f64>();
        row("compiling, together", compiling, builds().map(|step| step.processor_seconds).sum());
        row("everything else", self.seconds - compiling, 0.0);
        row("all", self.seconds, 0.0);
        text += "\nslowest test programs and tests\n";
        let mut ran = surroundings.ran.lock().expect("no step panics").clone();
        ran.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (name, seconds) in ran.iter().take(SLOWEST_SHOWN) {
            writeln!(text, "{seconds:>8.1}  {name}").expect("writing to a string cannot fail");
        }
        text
    }

    /// Writes `steps.json` beside the logs.
    pub fn keep(&self, surroundings: &Surroundings) -> Result<()> {
        let steps = self.steps.iter().map(|step| {
            json!({ "name": step.name, "is_build": step.is_build, "seconds": step.seconds,
                "processor_seconds": step.processor_seconds, "passed": step.outcome.passed,
                "failed": step.outcome.failed, "note": step.outcome.note })
        });
        let ran = surroundings.ran.lock().expect("no step panics");
        let programs = ran.iter().map(|(name, seconds)| json!({ "name": name, "seconds": seconds }));
        let processors = std::thread::available_parallelism().map_or(0, usize::from);
        let all = json!({ "commit": surroundings.commit, "seed": surroundings.seed, "processors": processors,
            "extent": format!("{:?}", surroundings.extent), "seconds": self.seconds, "passed": self.passed(),
            "failed": self.failed(), "steps": steps.collect::<Vec<_>>(), "programs": programs.collect::<Vec<_>>() });
        for path in [surroundings.logs.join("steps.json"), surroundings.out.join("steps.json")] {
            fs::write(&path, format!("{all:#}\n")).with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }
}
