//! One look at all jobs of an endpoint: what each moves, what it can use, what it gets.
//!
//! Time and jobs come in, so that tests can make both up.
//!
//! Not here: who looks, and when (`super`).

use super::INTERVAL;
use super::contracts::{Terms, Way};
use model::quantity::RATE_MIN;
use model::{Class, mutant};
use mover::Snapshot;
use mover::session::{LOWER_EFFORT, Who};
use plan::GivingWay;
use plan::giving_way::Seen;
use plan::shares::{Bound, Claim, Share, divide};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;
use transfer::Direction;

/// A job that moves less than this part of what it may have cannot use more.
const USED: f64 = 0.85;
/// It may want so much more at the next look.
const GROWTH: f64 = 1.5;
/// So much everybody may want: below it nothing can be told from a measurement.
const DEMAND_MIN: f64 = (1 << 20) as f64;
/// A rate that is higher by less is the same: a job is not told of each trembling of the others.
const TREMBLING: f64 = 0.01;
/// Looks over which it is judged what a job is held up by.
const LOOKS_JUDGED: usize = 5;
/// What a job is held up by where others could let it go faster.
const HELD_UP: [&str; 5] = ["network", "buffers", "cpu", "cpu-sender", "cpu-receiver"];

/// A job as the division sees it.
pub trait Governed {
    fn id(&self) -> u64;
    fn who(&self) -> &Arc<Who>;
    /// Content leaves this host with it.
    fn is_sender(&self) -> bool;
    /// Since it began, on all its streams.
    fn moved_bytes(&self) -> u64;
    fn snapshot(&self) -> Snapshot;
    fn set_rate(&self, bytes_per_second: Option<u64>);
    fn mark(&self, code_point: u8);
}

/// What holds a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Held {
    /// Nothing: it has what it can use.
    Free,
    Link,
    Contract(String),
    /// It gives way to a higher class.
    GivesWay,
}

/// In words for a person.
impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Held::Free => f.write_str("it has what it can use"),
            Held::Link => f.write_str("its share of the link"),
            Held::Contract(name) => write!(f, "the contract {name}"),
            Held::GivesWay => f.write_str("it gives way to a higher class"),
        }
    }
}

/// What a job was given.
#[derive(Clone, Debug)]
pub struct Allotment {
    pub who: Arc<Who>,
    pub way: Way,
    /// Bytes a second that it moves, as far as it was measured.
    pub moves: f64,
    /// What it may have; nothing where it is not held.
    pub rate: Option<u64>,
    pub by: Held,
}

#[derive(Default)]
pub struct Division {
    jobs: HashMap<u64, Job>,
    ways: [GivingWay; 2],
    /// What each class may have, as of the last judgement.
    may: [[Option<f64>; 3]; 2],
    judged: Option<Instant>,
}

/// What is kept of a job from look to look.
#[derive(Default)]
struct Job {
    last: Option<(Instant, u64)>,
    moves: f64,
    /// What it was told.
    told: Option<u64>,
    snapshots: VecDeque<Snapshot>,
}

impl Division {
    /// Gives each job its rate. Those that were there before are measured and judged once in `INTERVAL`, however often this is called.
    pub fn look<G: Governed>(&mut self, jobs: &[G], terms: &Terms, minute: u32, now: Instant) -> Vec<Allotment> {
        let is_there = |id: &u64| jobs.iter().any(|job| job.id() == *id);
        self.jobs.retain(|id, _| is_there(id));
        let is_due = self.judged.is_none_or(|judged| now.saturating_duration_since(judged) >= INTERVAL * 9 / 10);
        if is_due {
            self.judged = Some(now);
        }
        let mut allotted = Vec::new();
        for way in Way::ALL {
            let mut of_way: Vec<_> = jobs.iter().filter(|job| job.is_sender() == (way == Way::Out)).collect();
            of_way.iter().for_each(|job| mark(*job, terms, way));
            // In an order that does not depend on when they began: equal jobs get equal shares.
            of_way.sort_by_key(|job| job.id());
            allotted.extend(self.look_one_way(&of_way, terms, minute, is_due.then_some(now), way));
        }
        allotted
    }

    fn look_one_way<G: Governed>(
        &mut self,
        jobs: &[&G],
        terms: &Terms,
        minute: u32,
        due: Option<Instant>,
        way: Way,
    ) -> Vec<Allotment> {
        let classes = Class::ALL.map(|class| jobs.iter().any(|job| job.who().class == class));
        let are_mixed = classes.iter().filter(|is_there| **is_there).count() > 1;
        let rates: Vec<_> =
            terms.terms.iter().map(|term| term.rate.as_ref().and_then(|rate| rate.rate_at(minute))).collect();
        let is_held = terms.link.is_some()
            || terms.terms.iter().zip(&rates).any(|(term, rate)| {
                (rate.is_some() || term.guarantee.is_some()) && jobs.iter().any(|job| term.is_of(job.who(), way))
            });
        if !are_mixed && !is_held {
            (self.ways[way as usize], self.may[way as usize]) = Default::default();
            return jobs.iter().map(|job| self.let_go(*job, way)).collect();
        }
        if let Some(now) = due {
            jobs.iter().for_each(|job| self.measure(*job, now, are_mixed));
            self.may[way as usize] = if are_mixed { self.give_way(jobs, way) } else { [None; 3] };
        }
        let may = self.may[way as usize];
        let (bounds, held) = bounds(jobs, terms, &rates, way, may);
        let claims: Vec<_> = jobs.iter().map(|job| self.claim(*job)).collect();
        let shares = given_out(&claims, &bounds);
        let allot = |(job, share): (&&G, &Share)| self.allot(*job, share, &held, way);
        jobs.iter().zip(&shares).map(allot).collect()
    }

    fn let_go<G: Governed>(&mut self, job: &G, way: Way) -> Allotment {
        if self.jobs.remove(&job.id()).is_some_and(|kept| kept.told.is_some()) {
            job.set_rate(None);
        }
        Allotment { who: job.who().clone(), way, moves: 0.0, rate: None, by: Held::Free }
    }

    fn measure<G: Governed>(&mut self, job: &G, now: Instant, is_judged: bool) {
        let kept = self.jobs.entry(job.id()).or_default();
        let moved = job.moved_bytes();
        if let Some((then, before)) = kept.last {
            let seconds = now.saturating_duration_since(then).as_secs_f64().max(1e-3);
            kept.moves = (kept.moves + moved.saturating_sub(before) as f64 / seconds) / 2.0;
        }
        kept.last = Some((now, moved));
        if is_judged {
            kept.snapshots.push_back(job.snapshot());
            if kept.snapshots.len() > LOOKS_JUDGED {
                kept.snapshots.pop_front();
            }
        }
    }

    fn give_way<G: Governed>(&mut self, jobs: &[&G], way: Way) -> [Option<f64>; 3] {
        let mut seen = [Seen::default(); 3];
        for job in jobs {
            let Some(kept) = self.jobs.get(&job.id()) else { continue };
            let class = &mut seen[job.who().class as usize - 1];
            class.is_there = true;
            class.rate += kept.moves;
            class.is_held_up |= kept.is_held_up(way);
        }
        self.ways[way as usize].look(seen)
    }

    fn claim<G: Governed>(&self, job: &G) -> Claim {
        let who = job.who();
        let kept = self.jobs.get(&job.id());
        let demand = kept.and_then(|kept| kept.told.map(|told| (kept.moves, told as f64)));
        let demand = match demand {
            Some((moves, told)) if moves < told * USED => (moves * GROWTH).max(DEMAND_MIN),
            _ => f64::INFINITY,
        };
        Claim { class: who.class, user: user_number(&who.user), demand }
    }

    fn allot<G: Governed>(&mut self, job: &G, share: &Share, held: &[Held], way: Way) -> Allotment {
        let kept = self.jobs.entry(job.id()).or_default();
        let rate = share.rate.is_finite().then(|| (share.rate as u64).max(RATE_MIN));
        let is_same = match (rate, kept.told) {
            (Some(rate), Some(told)) => (told..=told.saturating_add((told as f64 * TREMBLING) as u64)).contains(&rate),
            (rate, told) => rate == told,
        };
        if !is_same {
            job.set_rate(rate);
            kept.told = rate;
        }
        let by = share.by.and_then(|bound| held.get(bound)).cloned().unwrap_or(Held::Free);
        Allotment { who: job.who().clone(), way, moves: kept.moves, rate: kept.told, by }
    }
}

impl Job {
    fn is_held_up(&self, way: Way) -> bool {
        let direction = if way == Way::Out { Direction::Push } else { Direction::Pull };
        let Some(last) = self.snapshots.back() else { return false };
        let first = self.snapshots.front().filter(|_| self.snapshots.len() > 1);
        HELD_UP.contains(&transfer::bottleneck(first, last, direction).stage)
    }
}

/// The bounds that hold at this moment, and what each is called.
fn bounds<G: Governed>(
    jobs: &[&G],
    terms: &Terms,
    rates: &[Option<u64>],
    way: Way,
    may: [Option<f64>; 3],
) -> (Vec<Bound>, Vec<Held>) {
    let (mut bounds, mut held) = (Vec::new(), Vec::new());
    let of =
        |is_in: &dyn Fn(&Who) -> bool| -> Vec<usize> { (0..jobs.len()).filter(|at| is_in(jobs[*at].who())).collect() };
    for (term, rate) in terms.terms.iter().zip(rates) {
        if rate.is_some() || term.guarantee.is_some() {
            let of = of(&|who| term.is_of(who, way));
            let rate = rate.map_or(f64::INFINITY, |rate| rate as f64);
            bounds.push(Bound { of, rate, guarantee: term.guarantee.unwrap_or(0) as f64 });
            held.push(Held::Contract(term.name.clone()));
        }
    }
    for class in Class::ALL {
        if let Some(rate) = may[class as usize - 1] {
            bounds.push(Bound { of: of(&|who| who.class == class), rate, guarantee: 0.0 });
            held.push(Held::GivesWay);
        }
    }
    if let Some(link) = terms.link {
        bounds.push(Bound { of: of(&|_| true), rate: link as f64, guarantee: 0.0 });
        held.push(Held::Link);
    }
    (bounds, held)
}

/// The shares, and on top of them what nobody seems to be able to use: whoever can use it after all has it at once.
fn given_out(claims: &[Claim], bounds: &[Bound]) -> Vec<Share> {
    let mut shares = divide(claims, bounds);
    if mutant::is_on("idle-share-is-lost") {
        return shares;
    }
    let used = |bound: &Bound| bound.of.iter().map(|at| shares[*at].rate).sum::<f64>();
    let left = |bound: &Bound| {
        let rate = if bound.rate.is_finite() { (bound.rate - used(bound)).max(0.0) } else { bound.rate };
        Bound { of: bound.of.clone(), rate, guarantee: 0.0 }
    };
    let left: Vec<_> = bounds.iter().map(left).collect();
    let anything: Vec<_> = claims.iter().map(|claim| Claim { demand: f64::INFINITY, ..claim.clone() }).collect();
    let more = divide(&anything, &left);
    for (share, more) in shares.iter_mut().zip(more).filter(|(share, _)| share.rate.is_finite()) {
        share.rate += more.rate;
    }
    shares
}

fn mark<G: Governed>(job: &G, terms: &Terms, way: Way) {
    let agreed = terms.terms.iter().filter(|term| term.is_of(job.who(), way)).find_map(|term| term.dscp);
    let low = (job.who().class == Class::Low).then_some(LOWER_EFFORT);
    job.mark(agreed.or(low).unwrap_or(0));
}

/// Users that have the same number share; that two have it by chance costs them nothing but that.
fn user_number(user: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    user.hash(&mut hasher);
    hasher.finish()
}
