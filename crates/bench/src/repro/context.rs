//! What an item works with: its folder, its share of the time, sweeps that continue, claims, plots.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::judge::{Check, Verdict};
use super::{Done, Item, Options, index};
use crate::error::{Error, Kind, Result};
use crate::plot::Plot;
use crate::sample::Sample;
use crate::sweep::{self, Axes, Figures, Outcome};
use crate::tool::{self, Variant};

/// The time that an item's plan was made for, in seconds.
const BUDGET_FILE: &str = "budget.txt";

pub struct Context<'a> {
    pub item: &'static Item,
    pub options: &'a Options,
    pub dir: PathBuf,
    budget: Duration,
    cancel: &'a AtomicBool,
    progress: &'a mut dyn FnMut(&str),
    doubts: Vec<String>,
    checks: Vec<Check>,
    notes: Vec<String>,
    plots: Vec<Plot>,
    /// Of the sweep that ran last.
    pub samples: Vec<Sample>,
    started: Instant,
}

impl<'a> Context<'a> {
    pub fn new(
        item: &'static Item,
        options: &'a Options,
        budget: Duration,
        cancel: &'a AtomicBool,
        progress: &'a mut dyn FnMut(&str),
        doubts: Vec<String>,
    ) -> Context<'a> {
        let dir = options.out.join(item.id);
        let (checks, notes, plots, started) = (Vec::new(), Vec::new(), Vec::new(), Instant::now());
        Context {
            item,
            options,
            dir,
            budget,
            cancel,
            progress,
            doubts,
            checks,
            notes,
            plots,
            samples: Vec::new(),
            started,
        }
    }

    /// Set when the caller asks to stop.
    pub fn cancel(&self) -> &'a AtomicBool {
        self.cancel
    }

    /// Tells whoever waits how far an item has come.
    pub fn progress(&mut self) -> &mut dyn FnMut(&str) {
        self.progress
    }

    /// The item's part of the caller's time, if the caller has set one.
    pub fn budget(&self) -> Option<Duration> {
        self.options.budget.map(|_| self.budget)
    }

    /// The rate of the item's links unless the caller named another.
    pub fn rate(&self, own: u64) -> Vec<Option<u64>> {
        vec![Some(self.options.bits_per_second.unwrap_or(own))]
    }

    /// Our program with its defaults.
    pub fn variant(&self) -> Variant {
        Variant::new(&self.options.program)
    }

    /// Rivals between hosts that are installed, of those the published study stands for.
    pub fn rivals(&mut self, wanted: &[&str]) -> Vec<String> {
        let mut there = Vec::new();
        for name in wanted {
            match tool::rival(name).and_then(|tool| tool.version()) {
                Ok(_) => there.push((*name).to_owned()),
                Err(error) => self.note(format!("{name} left out: {}", error.chain())),
            }
        }
        there
    }

    /// Runs, or continues, a sweep with a part of the item's time; `name` is its folder, or none for the item's own.
    pub fn sweep(
        &mut self,
        name: Option<&str>,
        share: f64,
        axes: Axes,
        change: impl FnOnce(&mut sweep::Options),
    ) -> Result<Figures> {
        let mut options = sweep::Options {
            axes,
            variants: vec![self.variant()],
            out: name.map_or(self.dir.clone(), |name| self.dir.join(name)),
            budget: Some(self.budget.mul_f64(share)),
            work_dir: self.options.work_dir.clone(),
            seed: self.options.seed,
            regenerate: self.options.regenerate.clone(),
            ..sweep::Options::default()
        };
        options.rounds = self.options.rounds.unwrap_or(options.rounds);
        change(&mut options);
        self.keep_plan(&mut options)?;
        let outcome: Outcome = sweep::run(&options, self.cancel, self.progress)?;
        if outcome.is_cancelled {
            return Err(Error::cancelled("reproduce", self.item.id));
        }
        let Outcome { settled, planned, .. } = outcome;
        self.notes.extend(outcome.plan.cut.iter().map(|cut| format!("cut to fit the budget: {cut}")));
        if !outcome.is_complete {
            self.note(format!("{settled} of {planned} runs settled; the same command goes on"));
        }
        self.samples = outcome.report.samples;
        Ok(Figures::of(&self.samples))
    }

    /// Begins with what another item has measured, where it has and this one has not.
    pub fn adopt(&self, id: &str) -> Result<()> {
        let other = self.options.out.join(id);
        if other == self.dir || self.dir.join("plan.json").exists() || !other.join("plan.json").exists() {
            return Ok(());
        }
        std::fs::create_dir_all(&self.dir).map_err(Error::io("create", &self.dir))?;
        for name in [BUDGET_FILE, "samples.jsonl", "plan.json"] {
            std::fs::copy(other.join(name), self.dir.join(name)).map_err(Error::io("copy", other.join(name)))?;
        }
        Ok(())
    }

    /// The share of the time differs a little from run to run, and the plan follows from it: what was begun with another
    /// share is continued with that.
    fn keep_plan(&self, options: &mut sweep::Options) -> Result<()> {
        let path = options.out.join(BUDGET_FILE);
        if let Some(seconds) = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok()) {
            options.budget = Some(Duration::from_secs(seconds));
            return Ok(());
        }
        let seconds = options.budget.map_or(0, |budget| budget.as_secs().max(1));
        options.budget = Some(Duration::from_secs(seconds));
        std::fs::create_dir_all(&options.out).map_err(Error::io("create", &options.out))?;
        std::fs::write(&path, format!("{seconds}\n")).map_err(Error::io("write", &path))
    }

    pub fn check(&mut self, check: Check) {
        self.checks.push(check);
    }

    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub fn plot(&mut self, plot: Plot) {
        self.plots.push(plot);
    }

    /// Writes plots and verdicts. Doubts about the laboratory take those away in which time has a part.
    pub fn finish(mut self, failure: Option<&Error>) -> Result<Done> {
        let failure = failure.filter(|error| error.kind != Kind::Cancelled).map(Error::chain);
        if !self.doubts.is_empty() {
            let doubts = format!("the laboratory did not pass: {}", self.doubts.join("; "));
            self.note(format!("{doubts}; verdicts on rates and times are void"));
            for check in self.checks.iter_mut().filter(|check| check.is_of_time && check.verdict != Verdict::Told) {
                check.verdict = Verdict::Void;
            }
        }
        std::fs::create_dir_all(&self.dir).map_err(Error::io("create", &self.dir))?;
        for plot in &self.plots {
            plot.write(&self.dir.join("plots"))?;
        }
        let done = Done {
            id: self.item.id.to_owned(),
            title: self.item.title.to_owned(),
            checks: self.checks,
            notes: self.notes,
            plots: self.plots,
            failure,
            seconds: self.started.elapsed().as_secs_f64(),
        };
        index::write_item(self.item, &done, &self.dir)?;
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Outcome, catalog};
    use super::*;

    #[test]
    fn a_doubted_laboratory_excuses_a_time_and_no_wrong_byte() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new(dir.path(), "thalweg");
        let cancel = AtomicBool::new(false);
        let mut progress = |_: &str| ();
        let item = catalog::find("facility").unwrap();
        let doubts = vec!["gate V2".to_owned()];
        let mut finished = |wrong_bytes: f64| {
            let mut context = Context::new(item, &options, Duration::ZERO, &cancel, &mut progress, doubts.clone());
            context.check(Check::at_most("makespan", 1.15, Some(2.0)));
            context.check(Check::at_most("wrong bytes", 0.0, Some(wrong_bytes)).of_any_machine());
            let done = context.finish(None).unwrap();
            let verdicts: Vec<_> = done.checks.iter().map(|check| check.verdict).collect();
            (verdicts, Outcome { done: vec![done], is_cancelled: false }.holds())
        };
        assert_eq!(finished(0.0), (vec![Verdict::Void, Verdict::Pass], true));
        assert_eq!(finished(1.0), (vec![Verdict::Void, Verdict::Fail], false));
    }
}
