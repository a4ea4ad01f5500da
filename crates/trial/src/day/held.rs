//! What a process holds, from its first start to its last end: descriptors and memory, life by life.
//!
//! Invariants: every life that lasts long enough is judged, not the last one alone; what a process holds while it works is no leak, so
//! it is judged when nothing has run for a while; a process of which no life could be judged is not called flat.

use crate::outside::process::Running;
use std::fs;
use std::time::Duration;

/// Beyond which what a process holds at rest, beside what it held when it had settled, is a leak.
const DESCRIPTORS_MORE_MAX: u64 = 24;
const MEMORY_MORE_KIB_MAX: u64 = 32 << 10;

/// What a process holds at a moment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Held {
    pub descriptors: u64,
    pub memory_kib: u64,
    /// How old it is.
    pub seconds: f64,
}

impl Held {
    /// None of a process that has ended.
    pub fn by(running: &Running) -> Option<Held> {
        let (pid, seconds) = (running.pid(), running.started.elapsed().as_secs_f64());
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let memory_kib = line.trim().trim_end_matches(" kB").parse().ok()?;
        Some(Held { descriptors: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64, memory_kib, seconds })
    }

    /// The least, or the most, of each.
    fn each(self, other: Held, of: fn(u64, u64) -> u64) -> Held {
        let (descriptors, memory_kib) = (self.descriptors, self.memory_kib);
        Held {
            descriptors: of(descriptors, other.descriptors),
            memory_kib: of(memory_kib, other.memory_kib),
            seconds: other.seconds,
        }
    }
}

/// Every look at one process, and whether nothing had run for a while.
#[derive(Default)]
pub struct Lives(Vec<Vec<(Held, bool)>>);

impl Lives {
    pub fn begin(&mut self) {
        self.0.push(Vec::new());
    }

    pub fn note(&mut self, held: Held, is_at_rest: bool) {
        if let Some(life) = self.0.last_mut() {
            life.push((held, is_at_rest));
        }
    }

    /// In words how it was, and what is wrong with that. By the age `settled` a process has grown to what it needs.
    pub fn judge(&self, settled: Duration) -> (String, Option<String>) {
        let judged: Vec<[Held; 2]> = self.0.iter().filter_map(|life| ends(life, settled.as_secs_f64())).collect();
        let most = self.0.iter().flatten().map(|(held, _)| *held).reduce(|a, b| a.each(b, u64::max));
        let more = |of: fn(&Held) -> u64| judged.iter().map(|[first, last]| of(last).saturating_sub(of(first))).max();
        let [descriptors, memory_kib] = [more(|held| held.descriptors), more(|held| held.memory_kib)];
        let (Some(descriptors), Some(memory_kib), Some(most)) = (descriptors, memory_kib, most) else {
            let line = format!("none of {} lives was judged", self.0.len());
            return (line, Some("never ran for so long and came to rest that it could be judged".into()));
        };
        let line = format!(
            "{} of {} lives judged; at rest up to {descriptors} descriptors and {memory_kib} KiB more than when settled; \
             the most at any moment: {} descriptors, {} KiB",
            judged.len(),
            self.0.len(),
            most.descriptors,
            most.memory_kib
        );
        let is_more = descriptors > DESCRIPTORS_MORE_MAX || memory_kib > MEMORY_MORE_KIB_MAX;
        let wrong = is_more.then(|| format!("holds more than it did: {line}"));
        (line, wrong)
    }
}

/// The least that a process held when it had just settled, and the most that it held at rest from then on.
fn ends(life: &[(Held, bool)], settled: f64) -> Option<[Held; 2]> {
    let until = 1.5 * settled;
    let first = life.iter().filter(|(held, _)| (settled..=until).contains(&held.seconds)).map(|(held, _)| *held);
    let last = life.iter().filter(|(held, is_at_rest)| *is_at_rest && held.seconds > until).map(|(held, _)| *held);
    Some([first.reduce(|a, b| a.each(b, u64::min))?, last.reduce(|a, b| a.each(b, u64::max))?])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLED: Duration = Duration::from_secs(10);

    /// One look a second, from the first on.
    fn lives(of: &[&[(u64, bool)]]) -> Lives {
        let look = |(second, (descriptors, is_at_rest)): (usize, &(u64, bool))| {
            (Held { descriptors: *descriptors, memory_kib: 1000 * descriptors, seconds: second as f64 }, *is_at_rest)
        };
        Lives(of.iter().map(|life| life.iter().enumerate().map(look).collect()).collect())
    }

    #[test]
    fn a_leak_of_an_earlier_life_is_no_less_one_than_that_of_the_last() {
        let flat = [(20, true); 30];
        let mut leaks = flat;
        leaks[20..].fill((20 + DESCRIPTORS_MORE_MAX + 1, true));
        assert_eq!(lives(&[&flat, &flat]).judge(SETTLED).1, None);
        for both in [[&flat[..], &leaks[..]], [&leaks[..], &flat[..]]] {
            let (line, wrong) = lives(&both).judge(SETTLED);
            assert!(line.starts_with("2 of 2 lives judged; at rest up to 25 descriptors"), "{line}");
            assert!(wrong.unwrap().starts_with("holds more"));
        }
    }

    #[test]
    fn what_is_held_while_something_runs_or_before_a_process_has_settled_is_no_leak() {
        let mut busy = [(20, true); 30];
        busy[..5].fill((1, true));
        busy[20..].fill((400, false));
        assert_eq!(lives(&[&busy]).judge(SETTLED).1, None);
    }

    #[test]
    fn a_process_that_was_never_judged_is_not_flat() {
        for life in [&[(20, true); 15][..], &[(20, false); 30][..], &[][..]] {
            assert!(lives(&[life]).judge(SETTLED).1.unwrap().starts_with("never ran"), "{life:?}");
        }
    }
}
