//! How far lower classes give way where nobody has said what the link carries: while a job of a higher class is held up by the
//! network or by processors, the classes below it fall, by half each time, to what their weight is of all weights (low to 5 %);
//! then they come back in steps of 10 %.
//!
//! Where it did not help the higher class that the lower ones gave way, they share nothing with it: they are let go, and it is
//! tried again later.
//!
//! Invariants: the highest class that is there is never held; a class that is held gets its part at least; without anybody to
//! give way to, a class is free again within `1 / STEP` looks.
//!
//! Not here: the division among the jobs of a class (`shares`), and what a job is held up by (`bottleneck`).

use model::{Class, mutant};

const CLASSES: usize = Class::ALL.len();
/// What comes back at a time.
const STEP: f64 = 0.1;
/// Looks between two steps while a higher class is there, which may want what comes back: twice as many after each time that it
/// did.
const LOOKS_BETWEEN_STEPS: u32 = 4;
const LOOKS_BETWEEN_STEPS_MAX: u32 = 64;
/// The highest total counts; it is forgotten by this part at each look.
const FORGOTTEN: f64 = 0.01;
/// After so many looks at the least, the higher class has to be faster by this factor, or it did not help.
const LOOKS_TO_HELP: u32 = 12;
const HELPED: f64 = 1.1;
/// So many looks nobody is asked to give way where it did not help.
const LOOKS_OF_REST: u32 = 120;

/// What is seen of one class at a look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// It has jobs.
    pub is_there: bool,
    /// One of them could go faster if the network or the processors let it.
    pub is_held_up: bool,
    /// Bytes a second of all of them.
    pub rate: f64,
}

/// The classes of one direction, by their order.
#[derive(Clone, Debug)]
pub struct GivingWay {
    parts: [f64; CLASSES],
    capacity: f64,
    looks_between_steps: u32,
    looks_to_step: u32,
    has_stepped: bool,
    /// Since when the higher classes are given way to: in looks, and how fast they were.
    pressed: Option<(u32, f64)>,
    rest: u32,
}

impl Default for GivingWay {
    fn default() -> GivingWay {
        GivingWay {
            parts: [1.0; CLASSES],
            capacity: 0.0,
            looks_between_steps: LOOKS_BETWEEN_STEPS,
            looks_to_step: 0,
            has_stepped: false,
            pressed: None,
            rest: 0,
        }
    }
}

impl GivingWay {
    /// What each class may have in all from now until the next look, a quarter of a second later: bytes a second, or nothing where
    /// it is free.
    pub fn look(&mut self, seen: [Seen; CLASSES]) -> [Option<f64>; CLASSES] {
        let total: f64 = seen.iter().map(|class| class.rate).sum();
        self.capacity = total.max(self.capacity * (1.0 - FORGOTTEN));
        let top = (0..CLASSES).rev().find(|at| seen[*at].is_there).unwrap_or(0);
        let pressing = (1..CLASSES).rev().find(|at| seen[*at].is_there && seen[*at].is_held_up);
        let pressing = pressing.filter(|_| self.may_press(&seen, top));
        self.count_to_step(pressing.is_some(), (0..top).any(|at| seen[at].is_there));
        for at in 0..CLASSES {
            let is_below = pressing.is_some_and(|pressing| at < pressing) && !mutant::is_on("low-never-gives-way");
            let may_step = at >= top || self.looks_to_step == 0 || self.rest > 0;
            self.parts[at] = match () {
                () if is_below => (self.parts[at] / 2.0).max(least(at)),
                () if may_step => (self.parts[at] + STEP).min(1.0),
                () => self.parts[at],
            };
        }
        std::array::from_fn(|at| (self.parts[at] < 1.0 && at < top).then(|| self.parts[at] * self.capacity))
    }

    fn count_to_step(&mut self, is_pressed: bool, are_mixed: bool) {
        if !are_mixed {
            (self.looks_between_steps, self.looks_to_step, self.has_stepped) = (LOOKS_BETWEEN_STEPS, 0, false);
        } else if is_pressed {
            if std::mem::take(&mut self.has_stepped) {
                // What came back was wanted.
                self.looks_between_steps = (self.looks_between_steps * 2).min(LOOKS_BETWEEN_STEPS_MAX);
            }
            self.looks_to_step = self.looks_between_steps;
        } else {
            self.looks_to_step = self.looks_to_step.checked_sub(1).unwrap_or(self.looks_between_steps);
            self.has_stepped |= self.looks_to_step == 0;
        }
    }

    /// Whether it makes sense to have the lower classes give way, by what came of it so far.
    fn may_press(&mut self, seen: &[Seen; CLASSES], top: usize) -> bool {
        let rate = seen[top].rate;
        let has_lower = (0..top).any(|at| seen[at].is_there);
        if self.rest > 0 || !has_lower {
            self.rest = self.rest.saturating_sub(1);
            self.pressed = None;
            return false;
        }
        let (looks, before) = self.pressed.map_or((0, rate), |(looks, before)| (looks + 1, before));
        self.pressed = Some((looks, before));
        if looks == LOOKS_TO_HELP && rate < before * HELPED {
            self.rest = LOOKS_OF_REST;
            return false;
        }
        true
    }
}

/// The part of a class by weight among all classes.
fn least(at: usize) -> f64 {
    let all: u32 = Class::ALL.iter().map(|class| class.weight()).sum();
    f64::from(Class::ALL[at].weight()) / f64::from(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: f64 = 1000.0;
    const LOOKS_IN_TWO_SECONDS: usize = 8;

    fn seen(rate: f64, is_held_up: bool) -> Seen {
        Seen { is_there: true, is_held_up, rate }
    }

    /// A link that two classes share: the lower one gets half or what it may, the higher one the rest, as far as it wants.
    fn share(may: Option<f64>, high_wants: f64) -> (f64, f64) {
        let low = may.unwrap_or(LINK / 2.0).min(LINK / 2.0);
        let high = high_wants.min(LINK - low);
        (may.unwrap_or(LINK).min(LINK - high), high)
    }

    fn run(way: &mut GivingWay, looks: usize, high_wants: Option<f64>) -> (f64, f64) {
        let mut may = None;
        let mut rates = (LINK / 2.0, LINK / 2.0);
        for _ in 0..looks {
            let high = high_wants.map_or(Seen::default(), |wants| seen(rates.1, rates.1 < wants));
            may = way.look([seen(rates.0, true), Seen::default(), high])[0];
            rates = share(may, high_wants.unwrap_or(0.0));
        }
        let _ = may;
        rates
    }

    #[test]
    fn low_falls_to_a_twentieth_within_two_seconds_and_high_gets_the_rest() {
        let mut way = GivingWay::default();
        let (low, high) = run(&mut way, LOOKS_IN_TWO_SECONDS, Some(f64::INFINITY));
        assert!(low <= LINK * 0.05 && high >= LINK * 0.95, "{low} and {high}");
        let (low, high) = run(&mut way, 400, Some(f64::INFINITY));
        assert!(low >= LINK * 0.04 && high >= LINK * 0.9, "{low} and {high} a hundred seconds later");
    }

    #[test]
    fn low_comes_back_in_steps_when_high_is_gone() {
        let mut way = GivingWay::default();
        run(&mut way, 40, Some(f64::INFINITY));
        let rates: Vec<_> = (0..12).map(|_| way.look([seen(1.0, true), Seen::default(), Seen::default()])[0]).collect();
        assert!(rates.iter().all(Option::is_none), "nobody is there to give way to: {rates:?}");
        assert_eq!(way.parts[0], 1.0);
    }

    #[test]
    fn what_high_does_not_want_is_lows() {
        let mut way = GivingWay::default();
        let (low, high) = run(&mut way, 200, Some(100.0));
        assert_eq!((low, high), (900.0, 100.0));
    }

    #[test]
    fn whoever_gives_way_in_vain_is_let_go() {
        // High is held up elsewhere: whatever low does, it has 100.
        let mut way = GivingWay::default();
        let mut held = 0;
        for _ in 0..400 {
            held += usize::from(way.look([seen(500.0, true), Seen::default(), seen(100.0, true)])[0].is_some());
        }
        assert!(held < 400 / 5, "low was held for {held} of 400 looks");
    }

    #[test]
    fn the_highest_class_that_is_there_is_never_held() {
        let mut way = GivingWay::default();
        for _ in 0..100 {
            assert_eq!(way.look([seen(1.0, true), seen(5.0, true), Seen::default()])[1], None);
            assert_eq!(GivingWay::default().look([seen(1.0, true), Seen::default(), Seen::default()]), [None; 3]);
        }
    }
}
