//! What the users want: every user the same mix of jobs, so that what each of them gets can be compared.

use crate::outside::tree::{self, Files};
use crate::random::Random;
use anyhow::Result;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

pub const USERS: [&str; 5] = ["anna", "bert", "cleo", "dora", "emil"];
const CLASSES: [&str; 3] = ["normal", "high", "low"];
/// Kind, number of files, bytes of each, and whether it goes from the first endpoint to the second.
const MIX: [(&str, u64, u64, bool); 4] = [
    ("copy", 200, 16 << 10, true),
    ("copy", 1, 12 << 20, true),
    ("sync", 20, 200 << 10, true),
    ("copy", 6, 1 << 20, false),
];
/// Of the jobs, so many are there from the beginning.
const AT_ONCE: f64 = 0.6;

struct Wish {
    files: Files,
    user: &'static str,
    job: String,
    destination: String,
}

pub struct Work {
    wishes: Vec<Wish>,
}

impl Work {
    /// Makes the sources below `dir`.
    pub fn make(dir: &Path, count: usize, seed: u64) -> Result<Work> {
        let wish = |number: usize| {
            let turn = number / USERS.len();
            let (kind, files, bytes, is_forth) = MIX[turn % MIX.len()];
            let (from, to) = if is_forth { ("sitea", "siteb") } else { ("siteb", "sitea") };
            let source = dir.join(format!("root-{from}/from{number}"));
            let files = tree::make(&source, files, bytes, seed.wrapping_add(number as u64 * 7919))?;
            let job = json!({"kind": kind, "source": format!("{from}:from{number}/"), "destination": format!("{to}:to{number}/"),
                "class": CLASSES[turn / MIX.len() % CLASSES.len()], "labels": {"number": number.to_string()}});
            let destination = format!("root-{to}/to{number}");
            Ok(Wish { files, user: USERS[number % USERS.len()], job: job.to_string(), destination })
        };
        Ok(Work { wishes: (0..count).map(wish).collect::<Result<_>>()? })
    }

    pub fn len(&self) -> usize {
        self.wishes.len()
    }

    pub fn bytes(&self) -> u64 {
        self.wishes.iter().map(Wish::bytes).sum()
    }

    /// Of one job.
    pub fn largest(&self) -> u64 {
        self.wishes.iter().map(Wish::bytes).max().unwrap_or(0)
    }

    pub fn files(&self, number: usize) -> &Files {
        &self.wishes[number].files
    }

    /// Below the folder that has everything.
    pub fn destination(&self, number: usize) -> &str {
        &self.wishes[number].destination
    }

    /// Who wants it, and the job file.
    pub fn job(&self, number: usize) -> (&'static str, &str) {
        (self.wishes[number].user, &self.wishes[number].job)
    }

    /// When each is handed in, the next one last.
    pub fn due(&self, until: Duration, random: &mut Random) -> Vec<(Duration, usize)> {
        let at_once = (self.len() as f64 * AT_ONCE) as usize;
        let mut when = |number: usize| match number < at_once {
            true => Duration::ZERO,
            false => Duration::from_millis(random.below(until.as_millis() as u64)),
        };
        let mut due: Vec<_> = (0..self.len()).map(|number| (when(number), number)).collect();
        due.sort_by(|a, b| b.cmp(a));
        due
    }
}

impl Wish {
    fn bytes(&self) -> u64 {
        self.files.values().map(|known| known.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_user_wants_the_same_and_the_first_jobs_come_first() {
        let dir = tempfile::tempdir().unwrap();
        let work = Work::make(dir.path(), 10, 3).unwrap();
        let of = |user: &str| {
            (0..10).filter(|number| work.job(*number).0 == user).map(|number| work.wishes[number].bytes()).sum::<u64>()
        };
        assert!(USERS.iter().all(|user| of(user) == of("anna")));
        let due = work.due(Duration::from_secs(60), &mut Random::new(1));
        assert_eq!((due.len(), due[9]), (10, (Duration::ZERO, 0)));
        assert!(due.iter().rev().skip(6).all(|(when, number)| *number >= 6 && *when < Duration::from_secs(60)));
    }
}
