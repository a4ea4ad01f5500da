//! The time of a calibration: how long its runs have to be, and by when each part is to be measured.
//!
//! Invariant: a run is begun only where it should end in the time of its part, so that with the quick profile all of them end within a
//! minute, and within 80 s over the longest paths. Only what a part cannot do without, its first run, is made in any case.
//!
//! Not here: what a run moves (`probe`).

use super::{Prober, SLOW_TIMES};
use crate::commands::calibrate::Profile;
use plan::calibration::{Part, Run, warm_up_seconds};

/// No warm-up takes a larger share of the time in which runs are repeated.
const WARM_UPS_IN_BUDGET: f64 = 15.0;
/// The warm-up over up to 100 ms. A longer one makes every run longer, and so the time for all of them.
const WARM_UP_USUAL: f64 = 2.0;
/// The time for everything, in times in which runs are repeated: 55 s of the quick profile, beside which the host is looked at and what was
/// written is removed.
const WHOLE_IN_BUDGETS: f64 = 11.0 / 9.0;

/// By when a part and all before it are to be measured, as a share of the time for everything. What a part does not need is the next one's.
fn share(part: Part) -> f64 {
    match part {
        Part::Engine => 0.15,
        Part::Network => 0.55,
        Part::Write => 0.85,
        Part::Metadata => 0.94,
        Part::Read => 1.0,
    }
}

fn ends_seconds(profile: &Profile, part: Part, warm_up: f64) -> f64 {
    let run = profile.run.as_secs_f64();
    let longer = (warm_up.max(WARM_UP_USUAL) + run) / (WARM_UP_USUAL + run);
    profile.budget.as_secs_f64() * WHOLE_IN_BUDGETS * longer * share(part)
}

impl Prober<'_> {
    /// How long runs over the path tell nothing of its rate.
    pub(super) fn warm_up(&self) -> f64 {
        warm_up_seconds(self.rtt_seconds).min(self.profile.budget.as_secs_f64() / WARM_UPS_IN_BUDGET)
    }

    /// Each run takes several times what the profile wants: there is time for one of a kind.
    pub(super) fn is_mostly_warm_up(&self) -> bool {
        self.warm_up() > self.profile.run.as_secs_f64()
    }

    /// Whether a run of so many seconds should end in the time of its part.
    pub(super) fn has_time(&self, part: Part, seconds: f64) -> bool {
        self.started.elapsed().as_secs_f64() + seconds <= ends_seconds(&self.profile, part, self.warm_up())
    }

    /// Nothing is repeated any more, so that the rest ends in time.
    pub(super) fn is_late(&self) -> bool {
        self.started.elapsed() > self.profile.budget
    }

    /// Where most runs take so much longer than they should that repeating them would take the time of what tells more: the ways of using
    /// storage. One that stood still once is outvoted by its repetitions.
    pub(super) fn has_no_time_for_repetitions(&self, runs: &[Run]) -> bool {
        let slow = self.warm_up() + SLOW_TIMES * self.profile.run.as_secs_f64();
        let are_slow = runs.iter().filter(|run| run.seconds > slow).count() * 2 > runs.len();
        self.is_late() || are_slow && self.started.elapsed() > self.profile.budget / 4
    }

    /// Says what of a part was left out because the time ran out.
    pub(super) fn note_omitted(&mut self, part: Part, is_repetition: bool) {
        let what = if is_repetition { "repetitions were omitted" } else { "not every number of streams was tried" };
        let longer = if self.profile.name == "quick" { "; --profile standard takes longer" } else { "" };
        self.notes.push(format!("{}: {what}, because the time ran out{longer}", part.word()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::calibrate::PROFILES;

    #[test]
    fn a_quick_calibration_ends_within_a_minute_and_over_the_longest_paths_within_80_s() {
        let all = |rtt_seconds: f64| {
            let warm_up = warm_up_seconds(rtt_seconds).min(PROFILES[0].budget.as_secs_f64() / WARM_UPS_IN_BUDGET);
            ends_seconds(&PROFILES[0], Part::Read, warm_up)
        };
        assert!([0.0, 0.02, 0.074, 0.1].into_iter().all(|rtt_seconds| (54.9..55.1).contains(&all(rtt_seconds))));
        assert!(all(0.2) > 70.0 && all(1.0) < 77.0, "{} {}", all(0.2), all(1.0));
    }

    #[test]
    fn every_part_has_time_of_its_own() {
        let order = [Part::Engine, Part::Network, Part::Write, Part::Metadata, Part::Read];
        for profile in PROFILES {
            for warm_up in [0.0, WARM_UP_USUAL, profile.budget.as_secs_f64() / WARM_UPS_IN_BUDGET] {
                let ends = order.map(|part| ends_seconds(&profile, part, warm_up));
                let each = ends.windows(2).map(|pair| pair[1] - pair[0]);
                let least = each.fold(ends[0], f64::min);
                assert!(least > profile.run.as_secs_f64() + warm_up / 2.0, "{}: {ends:?}", profile.name);
            }
        }
    }
}
