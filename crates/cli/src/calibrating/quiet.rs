//! Whether other programs use this host's processors. Looked at while this one rests.

use crate::exit::Result;
use crate::interrupt::Interrupt;
use std::time::Duration;

const WINDOW: Duration = Duration::from_millis(500);
/// How often a host may show itself busy before that is taken as its state.
const LOOKS_MAX: u32 = 4;
const BUSY_SHARE_MAX: f64 = 0.10;
const STEAL_SHARE_MAX: f64 = 0.01;

/// Shares of the machine's processor time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    busy: f64,
    steal: f64,
}

impl Load {
    pub fn is_loaded(self) -> bool {
        self.busy > BUSY_SHARE_MAX || self.steal > STEAL_SHARE_MAX
    }

    pub fn words(self) -> String {
        if self.busy > BUSY_SHARE_MAX {
            return format!("other programs used {:.0} % of this host's processors", 100.0 * self.busy);
        }
        format!("other virtual machines took {:.1} % of this host's processors", 100.0 * self.steal)
    }
}

/// Looks until the host is quiet, or has not been for some seconds.
pub fn wait(interrupt: &Interrupt) -> Result<Load> {
    let mut load = look();
    for _ in 1..LOOKS_MAX {
        if !load.is_loaded() || interrupt.is_set() {
            break;
        }
        load = look();
    }
    if interrupt.is_set() { Err(crate::transfer::stopped(interrupt)) } else { Ok(load) }
}

pub fn look() -> Load {
    let before = ticks();
    std::thread::sleep(WINDOW);
    of(&before, &ticks())
}

/// user, nice, system, idle, iowait, irq, softirq, steal
fn ticks() -> Vec<f64> {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    text.split_whitespace().skip(1).take(8).filter_map(|field| field.parse().ok()).collect()
}

fn of(before: &[f64], after: &[f64]) -> Load {
    let passed: Vec<f64> = before.iter().zip(after).map(|(before, after)| (after - before).max(0.0)).collect();
    let (total, at) = (passed.iter().sum::<f64>().max(1.0), |field: usize| passed.get(field).copied().unwrap_or(0.0));
    Load { busy: (at(0) + at(1) + at(2) + at(5) + at(6)) / total, steal: at(7) / total }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_theft_count_and_waiting_does_not() {
        let none = [0.0; 8];
        let load = of(&none, &[30.0, 0.0, 10.0, 50.0, 10.0, 0.0, 0.0, 0.0]);
        assert!(load.is_loaded() && load.words().contains("40 %"), "{}", load.words());
        assert!(!of(&none, &[5.0, 0.0, 4.0, 50.0, 41.0, 0.0, 0.0, 0.0]).is_loaded());
        let stolen = of(&none, &[1.0, 0.0, 0.0, 90.0, 0.0, 0.0, 0.0, 9.0]);
        assert!(stolen.is_loaded() && stolen.words().contains("virtual machines took 9.0 %"), "{}", stolen.words());
    }
}
