//! What is held against the hosts, written apart from what they do; and which faults came.
//!
//! Invariants of the contract that are looked for: a name holds one version of its file, whole (I1, I8); nothing of a
//! slice appears after another one took it over, nor anything older over something newer (I4); a bundle counts once
//! (I3), and only where what it stands for is there (I7).

use model::JobId;
use std::collections::BTreeSet;

pub const KILL: &str = "hosts: one is killed in the middle of its part";
pub const KILL_IN_CALL: &str = "hosts: one is killed in the middle of a call to storage";
pub const STOP: &str = "hosts: one stands still";
pub const STOP_IN_CALL: &str = "hosts: one stands still in the middle of a call to storage";
pub const OWNER: &str = "hosts: one goes on with what others have";
pub const CUT: &str = "hosts: two do not reach each other";
pub const ORDER: &str = "hosts: an order is lost, or comes twice";
pub const COMMAND: &str = "hosts: the command dies and is given again";
pub const CHANGE: &str = "hosts: the source changes meanwhile";
pub const CLOCKS: &str = "hosts: clocks are hours apart";
pub const ANSWER: &str = "hosts: an answer of etcd is lost";
pub const SILENCE: &str = "hosts: etcd does not answer";
pub const LEASE: &str = "hosts: a lease ends and two commands are at work";

/// Every class of fault that a seed may draw here.
pub const CLASSES: [(&str, &[&str]); 13] = [
    (KILL, &["F109"]),
    (KILL_IN_CALL, &["F109"]),
    (STOP, &[]),
    (STOP_IN_CALL, &[]),
    (OWNER, &["F110"]),
    (CUT, &[]),
    (ORDER, &[]),
    (COMMAND, &[]),
    (CHANGE, &[]),
    (CLOCKS, &[]),
    (ANSWER, &["F112"]),
    (SILENCE, &["F113"]),
    (LEASE, &["F114"]),
];

pub struct Judge {
    /// By file: the version that has its name; 0 before there is one.
    shown: Vec<u64>,
    /// Slices that another one has taken over.
    void: BTreeSet<JobId>,
    is_over: bool,
    fired: BTreeSet<&'static str>,
    broken: Option<String>,
}

impl Judge {
    pub fn new(files: usize) -> Judge {
        Judge { shown: vec![0; files], void: BTreeSet::new(), is_over: false, fired: BTreeSet::new(), broken: None }
    }

    pub fn fire(&mut self, class: &'static str) {
        self.fired.insert(class);
    }

    pub fn has_fired(&self, class: &str) -> bool {
        self.fired.contains(class)
    }

    /// The first counts.
    pub fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    pub fn broken(&self) -> Option<&String> {
        self.broken.as_ref()
    }

    /// A slice has begun that takes over from these: from here on nothing appears of them.
    pub fn take_over(&mut self, slices: &[JobId]) {
        self.void.extend(slices);
    }

    /// A step is done of a slice: somebody else may have what it is of.
    pub fn goes_on(&mut self, slice: JobId) {
        if self.void.contains(&slice) {
            self.fire(OWNER);
        }
    }

    /// Everything is delivered, and whoever is late is void.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// A file has got its name by a slice: with this version of it, or with something else.
    pub fn appears(&mut self, slice: JobId, file: usize, version: Option<u64>, newest: u64) {
        let Some(before) = self.shown.get(file).copied() else {
            return self.breaks(format!("I5: f{file} is no file of the source"));
        };
        if self.void.contains(&slice) {
            self.breaks(format!("I4: f{file} appears of {slice}, which was taken over"));
        }
        if self.is_over {
            self.breaks(format!("I4: f{file} appears of {slice} after the job's end"));
        }
        match version {
            Some(version) if version < before => {
                self.breaks(format!("I4: version {version} of f{file} appears over version {before}, of {slice}"));
            }
            Some(version) if (1..=newest).contains(&version) => self.shown[file] = version,
            _ => self.breaks(format!("I8: what appears as f{file} was never its content ({version:?})")),
        }
    }

    /// The word of a slice counts that these files are there, as they were when it was handed out or newer.
    pub fn counts(&mut self, slice: JobId, files: &[usize], least: &[u64]) {
        if let Some(file) = files.iter().find(|file| self.shown[**file] < least[**file]) {
            let (there, wanted) = (self.shown[*file], least[*file]);
            self.breaks(format!("I7: {slice} counts, and f{file} is there as version {there}, not {wanted}"));
        }
    }

    /// In the end a file is there as this version.
    pub fn is_delivered(&mut self, file: usize, there: Option<u64>, wanted: u64) {
        if there != Some(wanted) {
            self.breaks(format!("I7: the job has ended, and f{file} is there as version {there:?}, not {wanted}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: JobId = JobId([1; 16]);
    const OTHER: JobId = JobId([2; 16]);

    fn broken(act: impl FnOnce(&mut Judge)) -> String {
        let mut judge = Judge::new(2);
        judge.appears(ONE, 0, Some(2), 2);
        assert_eq!(judge.broken(), None);
        act(&mut judge);
        judge.broken().cloned().unwrap_or_default()
    }

    #[test]
    fn whatever_appears_that_must_not_is_found() {
        assert!(broken(|judge| judge.appears(OTHER, 0, Some(1), 2)).starts_with("I4: version 1"));
        assert!(broken(|judge| judge.appears(OTHER, 0, Some(3), 2)).starts_with("I8"));
        assert!(broken(|judge| judge.appears(OTHER, 1, None, 2)).starts_with("I8"));
        assert!(broken(|judge| judge.appears(OTHER, 2, Some(1), 2)).starts_with("I5"));
        let late = broken(|judge| {
            judge.take_over(&[ONE]);
            judge.appears(OTHER, 1, Some(1), 2);
            assert_eq!(judge.broken(), None);
            judge.appears(ONE, 1, Some(2), 2);
        });
        assert!(late.contains("was taken over"), "{late}");
        let after = broken(|judge| {
            judge.end();
            judge.appears(OTHER, 1, Some(1), 2);
        });
        assert!(after.contains("after the job's end"), "{after}");
    }

    #[test]
    fn a_word_counts_only_where_what_it_says_is_there() {
        assert_eq!(broken(|judge| judge.counts(ONE, &[0], &[2, 1])), "");
        assert!(broken(|judge| judge.counts(ONE, &[0, 1], &[2, 1])).starts_with("I7"));
        assert_eq!(broken(|judge| judge.is_delivered(0, Some(2), 2)), "");
        assert!(broken(|judge| judge.is_delivered(0, Some(2), 3)).starts_with("I7"));
        assert!(broken(|judge| judge.is_delivered(1, None, 1)).starts_with("I7"));
    }

    #[test]
    fn two_believe_that_they_own_a_part_when_one_goes_on_with_what_another_has_begun_to_take_over() {
        let mut judge = Judge::new(1);
        judge.goes_on(ONE);
        assert!(!judge.has_fired(OWNER));
        judge.take_over(&[ONE]);
        judge.goes_on(ONE);
        assert!(judge.has_fired(OWNER));
    }
}
