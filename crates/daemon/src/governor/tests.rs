//! The division over jobs, a link and a time that are made up.

use super::contracts::{Contracts, Terms, Way};
use super::division::{Division, Governed, Held};
use model::progress::Stage;
use model::{Class, JobId, Pin};
use mover::session::Who;
use mover::{Progress, Snapshot};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(250);
const LINK: f64 = 10e6;

/// A job that takes what it wants, may have, and finds.
struct Fake {
    id: u64,
    who: Arc<Who>,
    wants: Cell<f64>,
    moved: Cell<f64>,
    rate: Cell<Option<u64>>,
    told: Cell<u32>,
    snapshot: RefCell<Snapshot>,
    mark: Cell<u8>,
}

impl Fake {
    fn new(id: u64, class: Class, wants: f64) -> Fake {
        let who =
            Who { job: JobId([1; 16]), peer: Pin([id as u8; 32]), user: format!("u{id}"), name: "n".into(), class };
        let snapshot = RefCell::new(Progress::new().snapshot());
        let (moved, rate, told, mark) = (Cell::new(0.0), Cell::new(None), Cell::new(0), Cell::new(0));
        Fake { id, who: Arc::new(who), wants: Cell::new(wants), moved, rate, told, snapshot, mark }
    }

    fn wish(&self) -> f64 {
        self.wants.get().min(self.rate.get().map_or(f64::INFINITY, |rate| rate as f64))
    }

    /// A quarter of a second at a rate; what it did not find it waited for, at the network.
    fn pass(&self, found: f64) {
        self.moved.set(self.moved.get() + found * TICK.as_secs_f64());
        let mut snapshot = self.snapshot.borrow_mut();
        let ns = TICK.as_nanos() as u64;
        let is_held_up = found < self.wish() * 0.999;
        let (stage, cpu_ns) = match () {
            () if is_held_up => (Stage::Send, ns / 20),
            () if self.wish() < self.wants.get() => (Stage::Limit, ns / 20),
            () => (Stage::Read, ns / 20),
        };
        (snapshot.here.lanes, snapshot.there.lanes) = (2, 2);
        snapshot.here.stage_ns[stage as usize] += 2 * ns;
        snapshot.here.cpu_ns += cpu_ns;
        snapshot.there.stage_ns[Stage::Receive as usize] += 2 * ns;
        snapshot.stream_facts.busy_us += ns / 1000;
        snapshot.stream_facts.rtt_us_min = 10_000;
        snapshot.elapsed += TICK;
    }
}

impl Governed for &Fake {
    fn id(&self) -> u64 {
        self.id
    }
    fn who(&self) -> &Arc<Who> {
        &self.who
    }
    fn is_sender(&self) -> bool {
        true
    }
    fn moved_bytes(&self) -> u64 {
        self.moved.get() as u64
    }
    fn snapshot(&self) -> Snapshot {
        self.snapshot.borrow().clone()
    }
    fn set_rate(&self, bytes_per_second: Option<u64>) {
        self.rate.set(bytes_per_second);
        self.told.set(self.told.get() + 1);
    }
    fn mark(&self, code_point: u8) {
        self.mark.set(code_point);
    }
}

/// A link that all jobs share without knowing of classes: a job with more streams gets more of it.
struct Link {
    division: Division,
    now: Instant,
    minute: u32,
}

impl Link {
    fn new() -> Link {
        Link { division: Division::default(), now: Instant::now(), minute: 0 }
    }

    /// Some looks; returns what each job moved on average in the last second.
    fn run(&mut self, jobs: &[&Fake], streams: &[f64], terms: &Terms, looks: u32) -> Vec<f64> {
        let mut found = Vec::new();
        for look in 0..looks {
            if look + 4 == looks {
                found = jobs.iter().map(|job| job.moved.get()).collect();
            }
            self.division.look(jobs, terms, self.minute, self.now);
            let mut left = LINK;
            let mut order: Vec<_> = (0..jobs.len()).collect();
            let weigh = |at: &usize| jobs[*at].wish() / streams[*at];
            order.sort_by(|a, b| weigh(a).total_cmp(&weigh(b)));
            for (done, at) in order.iter().enumerate() {
                let all: f64 = order[done..].iter().map(|at| streams[*at]).sum();
                let got = jobs[*at].wish().min(left * streams[*at] / all);
                left -= got;
                jobs[*at].pass(got);
            }
            self.now += TICK;
        }
        jobs.iter().zip(found).map(|(job, before)| job.moved.get() - before).collect()
    }
}

fn terms(text: &str) -> Terms {
    toml::from_str::<Contracts>(text).unwrap().understood().unwrap()
}

#[test]
fn jobs_of_one_class_without_a_contract_are_left_alone() {
    let jobs = [Fake::new(1, Class::Normal, LINK), Fake::new(2, Class::Normal, LINK)];
    let jobs: Vec<_> = jobs.iter().collect();
    Link::new().run(&jobs, &[1.0, 8.0], &Terms::default(), 40);
    assert!(jobs.iter().all(|job| job.told.get() == 0 && job.mark.get() == 0));
}

#[test]
fn a_high_job_gets_nine_tenths_of_what_it_wants_beside_a_greedy_low_one() {
    for wants in [LINK, LINK * 0.5, LINK * 0.1] {
        let (high, low) = (Fake::new(1, Class::High, wants), Fake::new(2, Class::Low, f64::INFINITY));
        let mut link = Link::new();
        link.run(&[&low], &[16.0], &Terms::default(), 8);
        link.run(&[&high, &low], &[1.0, 16.0], &Terms::default(), 8);
        let before = high.moved.get();
        let rates = link.run(&[&high, &low], &[1.0, 16.0], &Terms::default(), 4);
        assert!(wants < LINK || rates[0] >= wants * 0.9, "after two seconds it has {} of {wants}", rates[0]);
        let rates = link.run(&[&high, &low], &[1.0, 16.0], &Terms::default(), 400);
        let average = (high.moved.get() - before) / 101.0;
        assert!(average >= wants * 0.9, "in a hundred seconds it has {average} of {wants}");
        assert!(rates[1] > LINK * 0.04, "low starves with {}", rates[1]);
        assert_eq!(low.mark.get(), 1);
        link.run(&[&low], &[16.0], &Terms::default(), 1);
        assert_eq!(low.rate.get(), None, "nobody is left to give way to");
    }
}

#[test]
fn a_cap_is_kept_is_given_up_by_who_cannot_use_it_and_changes_at_its_minute() {
    let terms = terms("[contract.a]\ndirection = 'out'\nrate = '00:00,4MB 08:00,2MB 20:00,off'\n");
    let jobs = [Fake::new(1, Class::Normal, LINK), Fake::new(2, Class::Normal, LINK)];
    let jobs: Vec<_> = jobs.iter().collect();
    let mut link = Link::new();
    let cap = terms.terms[0].rate.as_ref().unwrap().rate_at(0).unwrap() as f64;
    let rates = link.run(&jobs, &[1.0, 8.0], &terms, 8);
    assert!((rates[0] - cap / 2.0).abs() < cap * 0.01 && (rates[1] - cap / 2.0).abs() < cap * 0.01, "{rates:?}");
    jobs[0].wants.set(100e3);
    let rates = link.run(&jobs, &[1.0, 8.0], &terms, 20);
    assert!(rates[1] > cap - 1.2e6 && rates[0] + rates[1] <= cap * 1.01, "{rates:?}");
    jobs[0].wants.set(LINK);
    link.minute = 8 * 60;
    let rates = link.run(&jobs, &[1.0, 8.0], &terms, 5);
    assert!(((rates[0] + rates[1]) / (cap / 2.0) - 1.0).abs() < 0.03, "a second after eight: {rates:?}");
    link.minute = 20 * 60;
    link.run(&jobs, &[1.0, 8.0], &terms, 1);
    assert!(jobs.iter().all(|job| job.rate.get().is_none()));
}

#[test]
fn short_jobs_one_after_another_are_held_like_one_that_lasts() {
    let terms = terms("[contract.a]\ndirection = 'out'\nrate = '4MB'\n");
    let lasts = Fake::new(1, Class::Normal, LINK);
    let mut link = Link::new();
    link.run(&[&lasts], &[1.0], &terms, 8);
    for id in 2..60 {
        let short = Fake::new(id, Class::Normal, LINK);
        link.now += TICK / 25;
        link.division.look(&[&lasts, &short], &terms, 0, link.now);
        let (a, b) = (lasts.rate.get().unwrap(), short.rate.get().unwrap());
        assert!(a + b <= 4_100_000 && b >= 1_900_000, "{a} and {b} a second of 4 MB");
    }
}

#[test]
fn what_nobody_uses_is_had_at_once_by_whoever_can_use_it() {
    let terms = terms("[contract.a]\ndirection = 'out'\nrate = '4MB'\n");
    let jobs = [Fake::new(1, Class::Normal, 100e3), Fake::new(2, Class::Normal, 100e3)];
    let jobs: Vec<_> = jobs.iter().collect();
    let mut link = Link::new();
    link.run(&jobs, &[1.0, 1.0], &terms, 20);
    jobs[1].wants.set(LINK);
    let before = jobs[1].moved.get();
    link.run(&jobs, &[1.0, 1.0], &terms, 1);
    let rate = (jobs[1].moved.get() - before) / TICK.as_secs_f64();
    assert!(rate >= 1.9e6, "at its first look it has {rate} of the 4 MB/s, which nobody used");
}

#[test]
fn the_division_says_what_holds_each_job() {
    let terms = terms("link = '10MB'\n[contract.b]\npeer = '01010101'\nrate = '1MB'\ndscp = 10\n");
    let jobs = [Fake::new(1, Class::Normal, LINK), Fake::new(2, Class::Normal, LINK)];
    let jobs: Vec<_> = jobs.iter().collect();
    let allotted = Division::default().look(&jobs, &terms, 0, Instant::now());
    assert_eq!(allotted.iter().map(|one| one.by.clone()).collect::<Vec<_>>(), [Held::Contract("b".into()), Held::Link]);
    assert!(allotted.iter().all(|one| one.way == Way::Out && one.rate.is_some()));
    assert_eq!((jobs[0].mark.get(), jobs[1].mark.get()), (10, 0));
}

#[test]
fn five_hundred_jobs_are_looked_at_in_a_fraction_of_the_time_between_two_looks() {
    let class = |id: u64| Class::ALL[id as usize % 3];
    let jobs: Vec<_> = (0..512).map(|id| Fake::new(id, class(id), (id as f64 + 1.0) * 1e4)).collect();
    let jobs: Vec<_> = jobs.iter().collect();
    let terms = terms("link = '10MB'\n[contract.b]\nclass = 'low'\nrate = '1MB'\n");
    let mut division = Division::default();
    for _ in 0..4 {
        let allotted = division.look(&jobs, &terms, 0, Instant::now());
        let sum: u64 = allotted.iter().filter_map(|one| one.rate).sum();
        assert!(sum <= 10_600_000 && allotted.len() == 512, "{sum}");
        assert!(allotted.iter().all(|one| one.rate.is_some_and(|rate| rate >= 1024)));
    }
}
