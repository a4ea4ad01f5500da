//! What the users want: every user the same mix of jobs, so that what each of them gets can be compared.

use crate::outside::tree::{self, Files};
use crate::random::Random;
use anyhow::Result;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const USERS: [&str; 5] = ["anna", "bert", "cleo", "dora", "emil"];
const CLASSES: [&str; 3] = ["normal", "high", "low"];
pub const MOVE: &str = "move";
pub const CHECK: &str = "check";
const FOLLOW: &str = "follow";
/// Kind, number of files, bytes of each, and whether it goes from the first endpoint to the second.
const MIX: [(&str, u64, u64, bool); 7] = [
    ("copy", 200, 16 << 10, true),
    (MOVE, 40, 64 << 10, true),
    (CHECK, 20, 100 << 10, true),
    (FOLLOW, 3, 1 << 20, true),
    ("copy", 1, 12 << 20, true),
    ("copy", 6, 1 << 20, false),
    ("sync", 20, 200 << 10, true),
];
/// Of the jobs, so many are there from the beginning.
const AT_ONCE: f64 = 0.6;
/// Of what those move, so much is there when users are compared: all of them still have more to come.
const COMPARED_AT: f64 = 0.8;

struct Wish {
    kind: &'static str,
    files: Files,
    user: &'static str,
    job: String,
    source: PathBuf,
    destination: PathBuf,
}

pub struct Work {
    wishes: Vec<Wish>,
}

/// Each user has its turn, and then all have the next of the mix.
fn turn(number: usize) -> usize {
    number / USERS.len()
}

/// That a job moves.
fn moved_bytes(number: usize) -> u64 {
    match MIX[turn(number) % MIX.len()] {
        (CHECK, ..) => 0,
        (_, files, bytes, _) => files * bytes,
    }
}

/// That so many jobs move.
pub fn bytes_of(count: usize) -> u64 {
    (0..count).map(moved_bytes).sum()
}

fn at_once(count: usize) -> usize {
    (count as f64 * AT_ONCE) as usize
}

/// How much has arrived when users are compared, of so many jobs.
pub fn compared_bytes(count: usize) -> u64 {
    ((bytes_of(at_once(count)) as f64 * COMPARED_AT) as u64).max(1)
}

impl Work {
    /// Makes the sources, and where something is to be compared both sides; `root` says where an endpoint has its files.
    pub fn make(root: &dyn Fn(&str) -> PathBuf, count: usize, seed: u64) -> Result<Work> {
        let wish = |number: usize| {
            let (kind, files, bytes, is_forth) = MIX[turn(number) % MIX.len()];
            let (from, to) = if is_forth { ("sitea", "siteb") } else { ("siteb", "sitea") };
            let (source, destination) =
                (root(from).join(format!("from{number}")), root(to).join(format!("to{number}")));
            let make = |at: &Path| tree::make(at, files, bytes, seed.wrapping_add(number as u64 * 7919));
            let files = make(&source)?;
            if kind == CHECK {
                make(&destination)?;
            }
            let job = job(kind, [from, to], number).to_string();
            Ok(Wish { kind, files, user: USERS[number % USERS.len()], job, source, destination })
        };
        Ok(Work { wishes: (0..count).map(wish).collect::<Result<_>>()? })
    }

    pub fn len(&self) -> usize {
        self.wishes.len()
    }

    /// Of one job.
    pub fn largest(&self) -> u64 {
        self.wishes.iter().map(Wish::bytes).max().unwrap_or(0)
    }

    /// What is not as it should be when its job has ended: the destination has what the source had, and nothing else; a source that was
    /// moved has nothing, and any other is as it was.
    pub fn wrong(&self, number: usize) -> Result<Option<String>> {
        let Wish { kind, files, source, destination, .. } = &self.wishes[number];
        let is_there = |at: &Path| tree::compare(at, files, &Files::new());
        let seen = is_there(destination)?;
        if !seen.is_complete() || !seen.foreign.is_empty() {
            return Ok(Some(format!("job {number}, {kind}: at the destination {seen:?}")));
        }
        let left = if *kind == MOVE { tree::compare(source, &Files::new(), &Files::new())? } else { is_there(source)? };
        let is_good = left.is_complete() && left.foreign.is_empty();
        Ok((!is_good).then(|| format!("job {number}, {kind}: at the source {left:?}")))
    }

    /// Who wants it, and the job file.
    pub fn job(&self, number: usize) -> (&'static str, &str) {
        (self.wishes[number].user, &self.wishes[number].job)
    }

    /// When each is handed in, the next one last. At first one user hands in after the other: who is served in the order of arrival gets
    /// more than those who come later.
    pub fn due(&self, until: Duration, random: &mut Random) -> Vec<(Duration, usize)> {
        let at_once = at_once(self.len());
        let mut when = |number: usize| match number < at_once {
            true => Duration::ZERO,
            false => Duration::from_millis(random.below(until.as_millis() as u64)),
        };
        let mut due: Vec<_> = (0..self.len()).map(|number| (when(number), number)).collect();
        due.sort_by_key(|(when, number)| Reverse((*when, number % USERS.len(), *number)));
        due
    }
}

impl Wish {
    fn bytes(&self) -> u64 {
        self.files.values().map(|known| known.bytes).sum()
    }
}

fn job(kind: &str, [from, to]: [&str; 2], number: usize) -> Value {
    // What is compared is named; of everything else it is the contents.
    let slash = if kind == CHECK { "" } else { "/" };
    let class = CLASSES[turn(number) / MIX.len() % CLASSES.len()];
    let mut job = json!({"kind": kind, "class": class, "labels": {"number": number.to_string()},
        "source": format!("{from}:from{number}{slash}"), "destination": format!("{to}:to{number}{slash}")});
    if kind == FOLLOW {
        job["options"] = json!({"until": "quiet:1s", "end": ["idle:1s"]});
    }
    job
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(dir: &Path, count: usize) -> Work {
        Work::make(&|site| dir.join(site), count, 3).unwrap()
    }

    #[test]
    fn every_user_wants_the_same_and_at_first_one_hands_in_after_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let work = work(dir.path(), 10);
        let of = |user: &str| {
            (0..10).filter(|number| work.job(*number).0 == user).map(|number| work.wishes[number].bytes()).sum::<u64>()
        };
        assert!(USERS.iter().all(|user| of(user) == of("anna")));
        assert_eq!(USERS.iter().map(|user| of(user)).sum::<u64>(), bytes_of(10));
        let due = work.due(Duration::from_secs(60), &mut Random::new(1));
        let first: Vec<_> = due.iter().rev().take(6).copied().collect();
        assert_eq!((due.len(), first), (10, [0, 5, 1, 2, 3, 4].map(|number| (Duration::ZERO, number)).to_vec()));
        assert!(due.iter().rev().skip(6).all(|(when, number)| *number >= 6 && *when < Duration::from_secs(60)));
    }

    /// Otherwise nothing is said of the queue where users have the same.
    #[test]
    fn who_is_served_in_the_order_of_arrival_has_no_equal_shares_when_users_are_compared() {
        let mut arrived: Vec<_> = (0..at_once(200)).collect();
        arrived.sort_by_key(|number| (number % USERS.len(), *number));
        let mut served = [0_u64; USERS.len()];
        for number in arrived {
            if served.iter().sum::<u64>() < compared_bytes(200) {
                served[number % USERS.len()] += moved_bytes(number);
            }
        }
        let least = *served.iter().min().unwrap();
        assert!((least as f64) < 0.1 * served.iter().sum::<u64>() as f64, "{served:?}");
    }

    #[test]
    fn a_moved_source_is_empty_a_compared_one_is_not_and_nothing_else_is_right() {
        let dir = tempfile::tempdir().unwrap();
        // So that the third of the mix has a turn.
        let work = work(dir.path(), 2 * USERS.len() + 1);
        let number = |kind: &str| work.wishes.iter().position(|wish| wish.kind == kind).unwrap();
        let wrong = |number: usize| work.wrong(number).unwrap();
        assert_eq!(wrong(number(CHECK)), None, "both sides are there from the beginning");
        let moved = number(MOVE);
        assert!(wrong(moved).unwrap().contains("at the destination"));
        tree::make(&work.wishes[moved].destination, 40, 64 << 10, 3 + moved as u64 * 7919).unwrap();
        assert!(wrong(moved).unwrap().contains("at the source"));
        std::fs::remove_dir_all(&work.wishes[moved].source).unwrap();
        assert_eq!(wrong(moved), None);
        let copied = number("copy");
        std::fs::rename(&work.wishes[copied].source, &work.wishes[copied].destination).unwrap();
        assert!(wrong(copied).unwrap().contains("at the source"));
    }
}
