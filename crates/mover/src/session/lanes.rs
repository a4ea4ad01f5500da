//! The paths of one job at the asking side, and on each its lanes.
//!
//! Invariants: the job goes on as long as one path carries it; where there is one path alone, nothing here costs anything.
//!
//! Not here: the lanes of a path (`path_lanes`), which ways are paths (`ways`, `plan`), streams that nobody answers on (`watch`).

use super::asking::Asker;
use super::connector::Path;
use super::losses::Follower;
use super::path_lanes::{LaneJob, PathLanes};
use super::path_supervision::{LookOut, Shares};
use super::running::{Job, Running};
use super::sample::sample;
use super::ways::{self, Found};
use crate::job::Ending;
use crate::limits::{CONTROL_SILENCE, WAY_ALIVE};
use crate::report::PathReport;
use model::PathWish;
use plan::{Adaptation, PathStep, StreamSample};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The lanes of one job.
pub(super) struct Lanes {
    job: LaneJob,
    pub paths: Vec<PathLanes>,
    /// What was looked for and why some of it is not used.
    left_out: Vec<String>,
    are_ways_found: bool,
    /// Where the user leaves the paths to the program.
    look_out: Option<LookOut>,
    shares: Shares,
    began: Instant,
    pub started_max: u32,
    is_welcome_known: bool,
}

impl Lanes {
    pub fn new(asker: Arc<Asker>, running: Arc<Running>, number: u32, is_sequential: bool) -> Lanes {
        let job = LaneJob { asker, running, number, is_sequential, next_stream: Arc::default() };
        let known = job.asker.connector.paths().to_vec();
        let count = known.len();
        let of_path = |(place, path)| PathLanes::new(job.clone(), path, place, count);
        let paths = known.into_iter().enumerate().map(of_path).collect();
        let may_look_out = job.asker.takes_more_paths() && job.asker.tuning.paths == PathWish::Auto && !is_sequential;
        let mut lanes = Lanes {
            job,
            paths,
            left_out: Vec::new(),
            are_ways_found: false,
            look_out: may_look_out.then(LookOut::default),
            shares: Shares::default(),
            began: Instant::now(),
            started_max: 0,
            is_welcome_known: false,
        };
        lanes.tell_of_several();
        lanes.start_missing();
        lanes
    }

    pub fn ending(&self, patience: Duration) -> Option<Ending> {
        match &self.job.running.job {
            Job::Send(job) => job.end.wait(patience),
            Job::Receive(job) => job.end.wait(patience),
        }
    }

    /// Replaces lanes that died, starts more once the endpoint has told of itself, and more where they carry more.
    pub fn maintain(&mut self) {
        if !self.is_welcome_known && self.job.asker.welcome.get().is_some() {
            self.is_welcome_known = true;
            let count = self.paths.len();
            self.paths.iter_mut().for_each(|path| path.choose(count));
        }
        self.look_for_ways();
        self.try_paths();
        self.job.running.look_at_losses();
        let is_bbr_tried = self.job.running.losses.as_ref().is_some_and(Follower::is_trying);
        if !is_bbr_tried && !self.look_out.as_ref().is_some_and(|look_out| look_out.trials.is_trying()) {
            self.paths.iter_mut().for_each(PathLanes::adapt);
        }
        self.shares.compare(&self.paths, &self.job.running);
        if self.paths.iter().all(PathLanes::is_down) {
            let why = self.paths[0].state.last_failure().unwrap_or_default();
            return self.job.running.job.stop(Ending::Lost(format!("no data stream could be kept open: {why}")));
        }
        self.start_missing();
    }

    /// Takes the paths that the user asked for, as soon as the endpoint has told its addresses.
    fn look_for_ways(&mut self) {
        if self.are_ways_found || !self.is_welcome_known {
            return;
        }
        match self.job.asker.addresses() {
            Ok(None) => {}
            Ok(Some(told)) => {
                self.are_ways_found = true;
                let Found { paths, left_out } = ways::find(&self.job.asker, &told, self.job.is_sender());
                self.left_out = left_out;
                match &mut self.look_out {
                    Some(look_out) => look_out.candidates = Some(paths.into()),
                    None => self.add(paths),
                }
            }
            Err(why) => {
                self.are_ways_found = true;
                self.left_out.push(why.to_owned());
            }
        }
    }

    /// One decision at a time: no path is tried while a number of streams is, nor the other way round.
    fn try_paths(&mut self) {
        let Some(mut look_out) = self.look_out.take() else { return };
        let is_adapting = self.paths.iter().filter_map(|path| path.adaptation.as_ref()).any(Adaptation::is_trying);
        if self.is_welcome_known && !is_adapting {
            self.step(&mut look_out);
        }
        // Where nothing is left to be tried, nothing is looked at any more.
        if look_out.trials.is_over() {
            self.left_out.append(&mut look_out.story);
        } else {
            self.look_out = Some(look_out);
        }
    }

    fn step(&mut self, look_out: &mut LookOut) {
        let at_us = self.began.elapsed().as_micros() as u64;
        let sample = sample(&self.job.asker.session, &self.job.running, None, at_us);
        if look_out.trials.is_trying() && self.paths.len() == look_out.opened {
            // The path that was asked for is not open: the endpoint's answer is waited for.
            return self.open_next(look_out, &sample);
        }
        let step = look_out.trials.step(&sample);
        if step == PathStep::Add {
            look_out.opened = self.paths.len();
            return self.open_next(look_out, &sample);
        }
        let last = self.paths.last().expect("a job has a path");
        if let Some(why) = look_out.note(&last.path.name, &step) {
            last.give_up(why);
        }
    }

    /// Opens the next path that was found. The first time it has to be found.
    fn open_next(&mut self, look_out: &mut LookOut, sample: &StreamSample) {
        if look_out.candidates.is_none() && self.job.asker.asked.get().is_none() {
            match ways::has_several_cards() {
                true => return ways::ask(&self.job.asker),
                false => return look_out.trials.give_up(),
            }
        }
        match look_out.candidates.as_mut().map(VecDeque::pop_front) {
            Some(Some(path)) => {
                self.add(vec![path]);
                look_out.trials.settle(sample);
            }
            Some(None) => look_out.trials.give_up(),
            None if self.are_ways_found => look_out.trials.give_up(),
            None => {}
        }
    }

    fn add(&mut self, paths: Vec<Path>) {
        let count = self.paths.len() + paths.len();
        for path in paths {
            self.paths.push(PathLanes::new(self.job.clone(), path, self.paths.len(), count));
        }
        self.paths.iter_mut().for_each(|path| path.choose(count));
        self.tell_of_several();
    }

    fn tell_of_several(&self) {
        if let Job::Send(job) = &self.job.running.job
            && self.paths.len() > 1
        {
            job.use_several_paths();
        }
    }

    fn start_missing(&mut self) {
        let is_patient = self.paths.len() > 1;
        self.paths.iter_mut().for_each(|path| path.start_missing(is_patient));
        self.started_max = self.started_max.max(self.paths.iter().map(PathLanes::alive).sum());
    }

    /// Gives lanes time to end by themselves.
    pub fn wait(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        while self.paths.iter().any(|path| path.busy() > 0) && Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// A session that is lost goes on by a path that carried data to the last, if the control stream had another one.
    pub fn note_standby(&self) {
        if self.paths.len() < 2 {
            return;
        }
        let latest = self.job.running.watch.latest_way();
        if let Some(path) = latest.and_then(|place| self.paths.get(place)) {
            self.job.asker.tuning.standby.set(path.path.clone());
        }
    }

    /// Nothing is heard on the control stream although data is acknowledged on another path: the session goes on by that one.
    pub fn is_control_silent(&self) -> bool {
        self.paths.len() > 1
            && self.job.asker.session.silent_for() >= CONTROL_SILENCE
            && self.job.running.watch.last_progress().is_some_and(|last| last.elapsed() < WAY_ALIVE)
    }

    /// What was chosen, and why.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for path in &self.paths {
            let of_path = |text: String| match self.paths.len() {
                1 => text,
                _ => format!("path {}: {text}", path.path.name),
            };
            notes.push(of_path(path.choice.reason.clone()));
            notes.extend(path.adaptation.as_ref().and_then(Adaptation::note).map(of_path));
            notes.extend(path.given_up().map(|why| of_path(format!("given up: {why}"))));
        }
        notes.extend(self.job.running.losses.as_ref().and_then(Follower::note));
        notes.extend(self.look_out.iter().flat_map(|look_out| look_out.story.iter().cloned()));
        notes.extend(self.left_out.iter().cloned());
        notes
    }

    pub fn logs(&self) -> Vec<plan::Log> {
        self.paths.iter().filter_map(|path| path.adaptation.as_ref().map(Adaptation::log)).collect()
    }

    pub fn reports(&self) -> Vec<PathReport> {
        let report = |path: &PathLanes| {
            let ends = path.state.ends.get();
            PathReport {
                name: path.path.name.clone(),
                local: ends.map(|(local, _)| local.ip().to_canonical().to_string()),
                remote: ends.map_or(path.path.remote.clone(), |(_, remote)| remote.to_string()),
                bytes: path.state.bytes.load(Relaxed),
                streams: path.started_max,
                failure: path.given_up().cloned().or_else(|| path.state.last_failure()),
            }
        };
        self.paths.iter().map(report).collect()
    }
}
