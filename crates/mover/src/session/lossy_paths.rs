//! Paths that lose by themselves, as jobs of this process found them, for those that come later.
//!
//! Invariants: at most `PATHS_MAX` are known, the latest; what was found before `AGE_MAX` is not, however often it was used: what is found
//! anew is measured anew.
//!
//! Not here: what makes a path one of them (`plan::LossWatch`), keeping them from one process to the next (`cli`).

use plan::{Finding, LossyPath};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub const PATHS_MAX: usize = 1_000;
const AGE_MAX: Duration = Duration::from_secs(86_400);
/// More is lost on no path that a trial keeps.
const LOST_MAX: f64 = 0.5;

/// Paths by the address at their other end, with when each was found, in seconds since 1970.
pub type Paths = BTreeMap<IpAddr, (u64, LossyPath)>;

#[derive(Default)]
struct Memory {
    paths: Paths,
    /// What was found in this process, `None` where a path turned out to be no such one.
    news: BTreeMap<IpAddr, Option<(u64, LossyPath)>>,
}

static MEMORY: Mutex<Memory> = Mutex::new(Memory { paths: BTreeMap::new(), news: BTreeMap::new() });

/// Takes over what an earlier process knew, as far as it makes sense.
pub fn learn(paths: Paths) {
    let now = now();
    let mut memory = memory();
    for (address, known) in paths.into_iter().filter(|(_, known)| is_good(known, now)) {
        let kept = memory.paths.entry(address).or_insert(known);
        *kept = if kept.0 < known.0 { known } else { *kept };
    }
    forget_the_oldest(&mut memory.paths);
}

/// Forgets everything, so that each job finds out anew.
pub fn forget() {
    *memory() = Memory::default();
}

fn is_good((time, path): &(u64, LossyPath), now: u64) -> bool {
    *time <= now && path.rate > 0.0 && (0.0..=LOST_MAX).contains(&path.lost_allowed)
}

/// Changes what an earlier process knew by what was found in this one since the last time; false where that was nothing.
pub fn update(paths: &mut Paths) -> bool {
    let news = std::mem::take(&mut memory().news);
    for (address, known) in &news {
        match known {
            Some(known) => drop(paths.insert(*address, *known)),
            None => drop(paths.remove(address)),
        }
    }
    forget_the_oldest(paths);
    !news.is_empty()
}

pub(super) fn known(address: IpAddr) -> Option<LossyPath> {
    let (time, path) = memory().paths.get(&address).copied()?;
    (now().saturating_sub(time) < AGE_MAX.as_secs()).then_some(path)
}

/// Keeps what a job has found by now.
pub(super) fn note(address: IpAddr, finding: Finding) {
    let known = match finding {
        Finding::Nothing => return,
        Finding::Lossy(path) => Some((now(), path)),
        Finding::NotLossy => None,
    };
    let mut memory = memory();
    match known {
        Some((_, path)) if memory.paths.get(&address).is_some_and(|(_, before)| *before == path) => return,
        Some(known) => drop(memory.paths.insert(address, known)),
        None => drop(memory.paths.remove(&address)),
    }
    // An endpoint tells nobody.
    if memory.news.len() < PATHS_MAX {
        memory.news.insert(address, known);
    }
    forget_the_oldest(&mut memory.paths);
}

fn forget_the_oldest(paths: &mut Paths) {
    while paths.len() > PATHS_MAX {
        let oldest = paths.iter().min_by_key(|(_, (time, _))| *time).map(|(address, _)| *address);
        oldest.and_then(|address| paths.remove(&address));
    }
}

fn memory() -> MutexGuard<'static, Memory> {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: LossyPath = LossyPath { rate: 1e6, lost_allowed: 0.03, rtt_us: 74_000 };

    #[test]
    fn what_a_job_found_is_known_to_the_next_one_until_another_finds_otherwise() {
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        note(address, Finding::Nothing);
        assert_eq!(known(address), None);
        note(address, Finding::Lossy(PATH));
        assert_eq!(known(address), Some(PATH));
        let mut kept = Paths::new();
        assert!(update(&mut kept) && kept[&address].1 == PATH);
        assert!(!update(&mut Paths::new()), "it was told");
        note(address, Finding::NotLossy);
        assert_eq!(known(address), None);
        assert!(update(&mut kept) && !kept.contains_key(&address));
    }

    #[test]
    fn what_is_old_is_not_known_and_the_oldest_are_forgotten() {
        let address: IpAddr = "192.0.2.2".parse().unwrap();
        let odd = LossyPath { lost_allowed: 9.0, ..PATH };
        for known_before in [(now() - AGE_MAX.as_secs(), PATH), (now() + 60, PATH), (now(), odd)] {
            learn([(address, known_before)].into());
            assert_eq!(known(address), None, "{known_before:?}");
        }
        learn([(address, (now() - 60, PATH))].into());
        assert_eq!(known(address), Some(PATH));
        let of = |n: u32| (IpAddr::from((n + (10 << 24)).to_be_bytes()), (n.into(), PATH));
        let mut paths: Paths = (0..PATHS_MAX as u32 + 3).map(of).collect();
        forget_the_oldest(&mut paths);
        assert_eq!((paths.len(), paths.values().map(|(time, _)| *time).min()), (PATHS_MAX, Some(3)));
    }
}
