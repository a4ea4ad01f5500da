//! How the jobs of one endpoint share what there is: weighted max-min fairness by class, then by user, then by job, under any
//! number of bounds, each of which may also guarantee a rate.
//!
//! All jobs are filled at once, as vessels that stand in each other: the classes rise at the speeds of their weights, within a
//! class each of its users rises as fast as the others, and so does each job of a user. A job stops where it has what it can
//! use, or where a bound that it is in is used up; what it would have got goes to its neighbours, the nearest first. So nobody
//! can be given more without taking it from someone who has, by weight, no more.
//!
//! Guarantees are filled first, in the same way; what is left is shared on top of them.
//!
//! Invariants: no bound is exceeded; nothing that a job can use lies idle; the same input gives the same answer; time is linear
//! in jobs and bounds for each of the moments at which some job stops.
//!
//! Not here: what a job can use (`daemon::governor` estimates it), and keeping to rates (`mover::pace`).

use model::Class;
use std::collections::HashMap;

/// A job that wants a part.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    pub class: Class,
    /// Any number that stands for whoever asked for the job.
    pub user: u64,
    /// Bytes a second that it can use; infinite where that is not known.
    pub demand: f64,
}

/// What several jobs together may have.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Places in the list of claims.
    pub of: Vec<usize>,
    /// Bytes a second; infinite for no bound.
    pub rate: f64,
    /// Bytes a second that they get before anybody else gets anything; 0 for none.
    pub guarantee: f64,
}

/// What a job gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Bytes a second; infinite where no bound holds the job.
    pub rate: f64,
    /// The bound that was used up and stopped it; nothing where it has what it can use.
    pub by: Option<usize>,
}

/// Shares nearer than this part of a bound are the same: what is left is rounding.
const EQUAL: f64 = 1e-9;

/// What each of the claims gets.
pub fn divide(claims: &[Claim], bounds: &[Bound]) -> Vec<Share> {
    let mut filling = Filling::new(claims, bounds);
    let guaranteed = bounds.iter().map(|bound| amount(bound.guarantee)).map(|rate| rate.min(f64::MAX));
    let guaranteed: Vec<_> = guaranteed.collect();
    if guaranteed.iter().any(|rate| *rate > 0.0) {
        filling.fill(&guaranteed);
    }
    filling.fill(&vec![0.0; bounds.len()]);
    filling.shares
}

/// What is no amount is none.
fn amount(rate: f64) -> f64 {
    if rate > 0.0 { rate } else { 0.0 }
}

struct Filling<'a> {
    claims: &'a [Claim],
    bounds: &'a [Bound],
    /// For each claim the number of its class and user, and for each of these its class.
    user_of: Vec<usize>,
    users: Vec<Class>,
    /// For each claim the bounds that it is in.
    within: Vec<Vec<usize>>,
    /// What is left of each bound.
    left: Vec<f64>,
    shares: Vec<Share>,
}

impl<'a> Filling<'a> {
    fn new(claims: &'a [Claim], bounds: &'a [Bound]) -> Filling<'a> {
        let mut within = vec![Vec::new(); claims.len()];
        for (at, bound) in bounds.iter().enumerate() {
            for claim in bound.of.iter().filter(|claim| **claim < claims.len()) {
                if within[*claim].last() != Some(&at) {
                    within[*claim].push(at);
                }
            }
        }
        let is_held = |within: &Vec<usize>| within.iter().any(|bound| bounds[*bound].rate != f64::INFINITY);
        let free = |within: &Vec<usize>| Share { rate: if is_held(within) { 0.0 } else { f64::INFINITY }, by: None };
        let shares = within.iter().map(free).collect();
        let left = bounds.iter().map(|bound| amount(bound.rate)).collect();
        let (mut known, mut users) = (HashMap::new(), Vec::new());
        let number = |claim: &Claim| {
            *known.entry((claim.class, claim.user)).or_insert_with(|| {
                users.push(claim.class);
                users.len() - 1
            })
        };
        let user_of = claims.iter().map(number).collect();
        Filling { claims, bounds, user_of, users, within, left, shares }
    }

    /// Raises all jobs that can still be raised; where guarantees are given, only those that are in one, and as far as it goes.
    fn fill(&mut self, guaranteed: &[f64]) {
        let is_first = guaranteed.iter().any(|rate| *rate > 0.0);
        let mut owed = guaranteed.to_vec();
        let mut rising = vec![true; self.claims.len()];
        self.shares.iter_mut().for_each(|share| share.by = None);
        // At each round some job or some bound is done with.
        for _ in 0..=self.claims.len() + 2 * self.bounds.len() {
            for (claim, rises) in rising.iter_mut().enumerate() {
                *rises = *rises && self.may_rise(claim, is_first.then_some(&owed));
            }
            let speeds = self.speeds(&rising);
            let Some(time) = self.until_the_next_stop(&rising, &speeds, is_first.then_some(&owed)) else { return };
            for claim in (0..rising.len()).filter(|claim| rising[*claim]) {
                let more = speeds[claim] * time;
                self.shares[claim].rate += more;
                for bound in &self.within[claim] {
                    self.left[*bound] -= more;
                    owed[*bound] -= more;
                }
            }
        }
    }

    /// Whether a job can be given more, noting the bound where one forbids it.
    fn may_rise(&mut self, claim: usize, owed: Option<&Vec<f64>>) -> bool {
        let share = &mut self.shares[claim];
        let demand = amount(self.claims[claim].demand);
        if share.rate.is_infinite() || share.rate >= demand * (1.0 - EQUAL) {
            return false;
        }
        let (left, bounds) = (&self.left, self.bounds);
        let is_used_up =
            |bound: &&usize| left[**bound].is_finite() && left[**bound] <= amount(bounds[**bound].rate) * EQUAL;
        if let Some(bound) = self.within[claim].iter().find(is_used_up) {
            share.by = Some(*bound);
            return false;
        }
        let is_owed = |bound: &usize, owed: &Vec<f64>| owed[*bound] > bounds[*bound].guarantee * EQUAL;
        owed.is_none_or(|owed| self.within[claim].iter().any(|bound| is_owed(bound, owed)))
    }

    /// How fast each job rises: the part of its class by weight, of its user in that, of itself in that, among those that rise.
    fn speeds(&self, rising: &[bool]) -> Vec<f64> {
        let mut jobs = vec![0.0; self.users.len()];
        let risen = || self.user_of.iter().zip(rising).filter(|(_, rises)| **rises);
        risen().for_each(|(user, _)| jobs[*user] += 1.0);
        let mut users = [0.0; Class::ALL.len() + 1];
        let counted = self.users.iter().zip(&jobs).filter(|(_, jobs)| **jobs > 0.0);
        counted.for_each(|(class, _)| users[*class as usize] += 1.0);
        let speed = |user: usize| {
            let class = self.users[user];
            f64::from(class.weight()) / users[class as usize] / jobs[user]
        };
        self.user_of.iter().zip(rising).map(|(user, rises)| if *rises { speed(*user) } else { 0.0 }).collect()
    }

    /// When the next job has what it can use, or the next bound is used up; nothing where none rises any more.
    fn until_the_next_stop(&self, rising: &[bool], speeds: &[f64], owed: Option<&Vec<f64>>) -> Option<f64> {
        let mut next: Option<f64> = None;
        let mut stop = |time: f64| next = Some(next.map_or(time, |next| next.min(time)));
        let mut of_bound = vec![0.0; self.bounds.len()];
        for claim in (0..rising.len()).filter(|claim| rising[*claim]) {
            let missing = amount(self.claims[claim].demand) - self.shares[claim].rate;
            if missing.is_finite() {
                stop(missing.max(0.0) / speeds[claim]);
            }
            self.within[claim].iter().for_each(|bound| of_bound[*bound] += speeds[claim]);
        }
        for (bound, speed) in of_bound.iter().enumerate().filter(|(_, speed)| **speed > 0.0) {
            if self.left[bound].is_finite() {
                stop(self.left[bound].max(0.0) / speed);
            }
            if let Some(owed) = owed.map(|owed| owed[bound]).filter(|owed| *owed > 0.0) {
                stop(owed / speed);
            }
        }
        next
    }
}

#[cfg(test)]
#[path = "shares_tests.rs"]
mod tests;
