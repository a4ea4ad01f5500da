//! One seed: jobs, people, executors, faults, and what is held against every state.

use super::recurring::{Hours, Recurring};
use super::site::{Attempt, Reply, Request, Site, Stage};
use crate::random::Random;
use model::order::{Reason, Role};
use model::{Class, JobId};
use queue::{Action, Answer, Claims, Common, Ended, Facts, Job, Limits, News, Now, Queue, Status, Taken, Verb, Work};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const SITES: [&str; 3] = ["a", "b", "c"];
const JOBS_MAX: u8 = 24;
const STEPS: usize = 300;
/// Steps without faults within which everything has to end.
const CALM_STEPS: usize = 6000;

pub struct World {
    random: Random,
    now: Now,
    queue: Queue,
    /// What is written down of each job.
    disk: BTreeMap<JobId, Job>,
    removed: BTreeSet<JobId>,
    /// The hub's memory of the orders that are out: where, and when they were taken.
    out: HashMap<Attempt, (usize, Option<u64>)>,
    sites: Vec<Site>,
    /// Jobs that an executor brought to their end with everything done, and that nobody asked for again.
    done: BTreeSet<JobId>,
    wiped: BTreeSet<JobId>,
    /// Jobs handed in, those included that were not written down.
    made: u8,
    recurring: Recurring,
    classes: BTreeSet<&'static str>,
    is_calm: bool,
    verbose: bool,
    pub orders_begun: u64,
}

type Held = Result<(), String>;

impl World {
    pub fn new(seed: u64, verbose: bool) -> World {
        let site = |_: &&str| Site { is_up: true, takes_orders: true, ..Site::default() };
        let mut world = World {
            random: Random::new(seed),
            now: Now { ms: 0, unix_ms: 1_700_000_000_000 },
            queue: Queue::new(Limits::default(), Box::new(Hours)),
            disk: BTreeMap::new(),
            removed: BTreeSet::new(),
            out: HashMap::new(),
            sites: SITES.iter().map(site).collect(),
            done: BTreeSet::new(),
            wiped: BTreeSet::new(),
            made: 0,
            recurring: Recurring::default(),
            classes: BTreeSet::from(["no fault but delays"]),
            is_calm: false,
            verbose,
            orders_begun: 0,
        };
        world.sites[2].takes_orders = world.random.below(4) > 0;
        world.recurring = Recurring::new(&mut world.random, world.now);
        world.recurring.restore(&mut world.queue);
        if !world.recurring.is_empty() {
            world.classes.insert("schedules");
        }
        world
    }

    pub fn jobs(&self) -> u64 {
        (self.disk.len() + self.removed.len()) as u64
    }

    pub fn fired(&self) -> Vec<(&'static str, &'static [&'static str])> {
        // None of these is a numbered fault: what those of a queue expect is looked at by tests of their own.
        self.classes.iter().map(|class| (*class, &[][..])).collect()
    }

    pub fn run(&mut self) -> Held {
        for _ in 0..STEPS {
            self.event()?;
        }
        self.is_calm = true;
        for site in 0..self.sites.len() {
            self.sites[site].is_up = true;
        }
        let paused: Vec<_> = self.disk.values().filter(|job| job.status == Status::Paused).map(|job| job.id).collect();
        paused.into_iter().try_for_each(|id| self.steer(id, Verb::Resume))?;
        for step in 0..CALM_STEPS {
            if self.disk.values().all(|job| job.status.is_end()) {
                return Ok(());
            }
            let pause = [50, 200, 60_000, 700_000][(step % 40 == 39) as usize * self.random.below(4) as usize];
            self.pass(pause);
            self.calm_step()?;
            // What waits for people gets them.
            let stuck =
                self.disk.values().find(|job| job.reason == queue::Reason::Credentials || job.status == Status::Paused);
            if let Some((id, verb)) =
                stuck.map(|job| (job.id, if job.status == Status::Paused { Verb::Resume } else { Verb::Retry }))
            {
                self.steer(id, verb)?;
            }
        }
        let open: Vec<_> = self.disk.values().filter(|job| !job.status.is_end()).collect();
        let first = open[0];
        Err(format!(
            "{} jobs never ended; the first is {} {} {:?} at {:?}, attempt {}, {:?}",
            open.len(),
            first.status,
            first.reason,
            first.goal,
            first.role,
            first.attempt,
            self.queue.why(first.id)
        ))
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>9} {}", self.now.ms, what());
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now = Now { ms: self.now.ms + ms, unix_ms: self.now.unix_ms + ms as i64 };
    }

    fn calm_step(&mut self) -> Held {
        for site in 0..self.sites.len() {
            let mut random = Random::new(self.random.below(u64::MAX));
            self.sites[site].work(&mut random, true);
            while !self.sites[site].requests.is_empty() {
                self.deliver(site)?;
            }
            while !self.sites[site].replies.is_empty() {
                self.answer(site)?;
            }
            self.look(site);
        }
        self.step()?;
        self.commit(true)?;
        self.recurring.check(self.now)
    }

    fn event(&mut self) -> Held {
        let pause = [1, 50, 500, 5_000, 60_000][self.random.below(5) as usize];
        self.pass(pause);
        let site = self.random.below(3) as usize;
        match self.random.below(24) {
            0..=2 => self.submit()?,
            3 => self.people()?,
            4..=7 => self.deliver(site)?,
            8..=11 => self.answer(site)?,
            12..=15 => {
                let mut random = Random::new(self.random.below(u64::MAX));
                self.sites[site].work(&mut random, false);
            }
            16..=18 => self.look(site),
            19 => self.cut(site)?,
            20 => self.sites[site].is_up = true,
            21 if self.random.below(3) == 0 => self.crash()?,
            22 if self.random.below(20) == 0 => self.wipe(site),
            23 if self.random.below(4) == 0 => {
                self.classes.insert("the clock jumps");
                self.now.unix_ms += self.random.below(200_000_000) as i64 - 100_000_000;
            }
            22 => self.recurring.toggle(&mut self.random, &mut self.queue, self.now),
            _ => {}
        }
        self.step()?;
        if self.random.below(60) == 0 {
            // What was not written down did not happen.
            return self.crash();
        }
        // A crash between what is written down and what is done about it.
        let acts = self.random.below(40) > 0;
        self.commit(acts)?;
        self.recurring.check(self.now)?;
        if !acts {
            self.crash()?;
        }
        Ok(())
    }

    /// Lets time do what it does.
    fn step(&mut self) -> Held {
        let World { recurring, queue, random, disk, made, now, .. } = self;
        let is_open = |id: JobId| disk.get(&id).is_some_and(|job| !job.status.is_end());
        recurring.fire(queue, *now, &is_open, &mut |queue| {
            if *made >= JOBS_MAX {
                return None;
            }
            *made += 1;
            let number = *made;
            let (id, facts) = (JobId([number; 16]), facts(random, number));
            let taken = queue.submit(*now, Job::new(id, number.into(), facts, Vec::new()));
            (taken == Ok(Taken::New)).then_some(id)
        })?;
        self.queue.step(self.now);
        Ok(())
    }

    fn submit(&mut self) -> Held {
        if self.made >= JOBS_MAX {
            return Ok(());
        }
        self.made += 1;
        let number = self.made;
        let facts = facts(&mut self.random, number);
        let open: Vec<_> = self.disk.values().filter(|job| !job.status.is_end()).map(|job| job.id).collect();
        let after = open.into_iter().filter(|_| self.random.below(8) == 0).collect();
        let id = JobId([number; 16]);
        let taken = self.queue.submit(self.now, Job::new(id, number.into(), facts, after));
        self.say(|| format!("submit {number}: {taken:?}"));
        if taken == Ok(Taken::New) { Ok(()) } else { Err(format!("a job was not taken: {taken:?}")) }
    }

    fn people(&mut self) -> Held {
        let jobs: Vec<_> = self.disk.keys().copied().collect();
        let Some(id) = jobs.get(self.random.below(jobs.len().max(1) as u64) as usize).copied() else { return Ok(()) };
        if self.random.below(6) == 0 {
            return self.change(id);
        }
        let verb = Verb::ALL[self.random.below(Verb::ALL.len() as u64) as usize];
        self.steer(id, verb)
    }

    /// Another place among the open ones; whoever carries it out goes on.
    fn change(&mut self, id: JobId) -> Held {
        let Some(job) = self.queue.get(id) else { return Ok(()) };
        let class = Class::ALL[self.random.below(3) as usize];
        let mut facts = job.facts.clone();
        (facts.priority, facts.class) = (self.random.below(5) as i8, class);
        let changed = self.queue.change(self.now, id, facts);
        self.say(|| format!("change {}: {changed:?}", id.0[0]));
        changed.map_err(|e| format!("an open job was not changed: {e:?}"))?;
        self.commit(true)
    }

    fn steer(&mut self, id: JobId, verb: Verb) -> Held {
        let Some(job) = self.disk.get(&id).cloned() else { return Ok(()) };
        if job.status.is_end() {
            self.queue.restore(self.now, job.clone());
        }
        let steered = self.queue.steer(self.now, id, verb);
        self.say(|| format!("{verb} {}: {steered:?}", id.0[0]));
        if steered.is_ok() && verb == Verb::Retry && job.status.is_end() {
            self.done.remove(&id);
        }
        let is_removed = steered.is_ok() && verb == Verb::Remove;
        self.commit(true)?;
        if is_removed {
            self.disk.remove(&id);
            self.removed.insert(id);
        }
        self.queue.let_go(id);
        Ok(())
    }

    /// Asks a site what it has, as the hub does as long as it has something there.
    fn look(&mut self, site: usize) {
        if self.sites[site].is_up {
            let as_of = self.sites[site].clock;
            self.sites[site].requests.push(Request::Look { as_of });
        }
    }

    /// A request arrives, any of those that are on their way.
    fn deliver(&mut self, site: usize) -> Held {
        let count = self.sites[site].requests.len();
        if !self.sites[site].is_up || count == 0 {
            return Ok(());
        }
        let request = self.sites[site].requests.remove(self.random.below(count as u64) as usize);
        self.serve(site, request)
    }

    fn serve(&mut self, site: usize, request: Request) -> Held {
        self.say(|| format!("{} gets {request:?}", SITES[site]));
        let begun = self.sites[site].serve(request, &mut self.random, self.is_calm);
        if let Some((id, attempt)) = begun {
            self.orders_begun += 1;
            if self.done.contains(&id) {
                return Err(format!("job {} was done, and attempt {attempt} of it begins", id.0[0]));
            }
        }
        self.check()
    }

    /// A reply arrives, any of those that are on their way.
    fn answer(&mut self, site: usize) -> Held {
        let count = self.sites[site].replies.len();
        if !self.sites[site].is_up || count == 0 {
            return Ok(());
        }
        let reply = self.sites[site].replies.remove(self.random.below(count as u64) as usize);
        self.say(|| format!("{} says {reply:?}", SITES[site]));
        match reply {
            Reply::Taken(attempt) => self.note_taken(site, attempt),
            Reply::Refused((id, attempt), exit) => {
                let answer = Answer::Refused { code: exit as i32, text: "no".into(), hint: String::new() };
                self.queue.heard(self.now, id, attempt, answer);
            }
            Reply::TakesNone((id, attempt)) => {
                self.queue.heard(self.now, id, attempt, Answer::TakesNone { text: "none".into() });
            }
            Reply::Census { as_of, told } => self.census(site, as_of, told),
        }
        self.commit(true)
    }

    fn note_taken(&mut self, site: usize, attempt: Attempt) {
        self.sites[site].clock += 1;
        if let Some((_, taken)) = self.out.get_mut(&attempt) {
            *taken = Some(self.sites[site].clock);
        }
    }

    fn census(&mut self, site: usize, as_of: u64, told: Vec<(Attempt, Stage)>) {
        let seen: BTreeSet<Attempt> = told.iter().map(|(attempt, _)| *attempt).collect();
        for ((id, attempt), stage) in told {
            let work = Work { files_listed: 1, files_done: 0, ..Work::default() };
            let answer = match stage {
                Stage::Ended(exit) => {
                    Answer::Ended(Ended { code: exit as i32, text: "why".into(), hint: String::new(), work })
                }
                _ => Answer::News(News {
                    status: stage.status(),
                    reason: if let Stage::Waiting(reason) = stage { reason } else { Reason::None },
                    text: "because".into(),
                    until: None,
                    work: Work { files_listed: 0, ..work },
                }),
            };
            let is_ours = self.out.get(&(id, attempt)).is_some_and(|(at, _)| *at == site);
            if !is_ours && !stage.is_active() {
                self.sites[site].requests.push(Request::Forget((id, attempt)));
            }
            self.queue.heard(self.now, id, attempt, answer);
        }
        let missing = |(attempt, (at, taken)): (&Attempt, &(usize, Option<u64>))| {
            (*at == site && !seen.contains(attempt) && taken.is_some_and(|taken| taken <= as_of)).then_some(*attempt)
        };
        let missing: Vec<_> = self.out.iter().filter_map(missing).collect();
        for (id, attempt) in missing {
            self.queue.heard(self.now, id, attempt, Answer::Unknown);
        }
        match self.sites[site].takes_orders {
            true => self.queue.reached(SITES[site]),
            false => self.queue.takes_no_orders(SITES[site]),
        }
    }

    /// The session ends: what was on its way to the site arrives or does not, what was on its way back is lost.
    fn cut(&mut self, site: usize) -> Held {
        if !self.sites[site].is_up {
            return Ok(());
        }
        self.classes.insert("sessions are cut");
        self.say(|| format!("{} is cut off", SITES[site]));
        let requests = std::mem::take(&mut self.sites[site].requests);
        for request in requests {
            if self.random.below(2) == 0 {
                self.serve(site, request)?;
            }
            if let Request::HandIn(attempt) = request {
                // Its fate is not known.
                self.note_taken(site, attempt);
            }
        }
        let replies = std::mem::take(&mut self.sites[site].replies);
        for reply in replies {
            if let Reply::Taken(attempt) | Reply::Refused(attempt, _) | Reply::TakesNone(attempt) = reply {
                self.note_taken(site, attempt);
            }
        }
        self.sites[site].is_up = false;
        self.queue.unreached(self.now, SITES[site], "cut off");
        self.commit(true)
    }

    /// The hub ends without a word, and another reads what was written down.
    fn crash(&mut self) -> Held {
        self.classes.insert("the hub crashes");
        self.say(|| "the hub crashes".to_owned());
        for site in 0..self.sites.len() {
            let requests = std::mem::take(&mut self.sites[site].requests);
            for request in requests {
                if self.random.below(2) == 0 {
                    self.serve(site, request)?;
                }
            }
            self.sites[site].replies.clear();
            self.sites[site].clock = 0;
        }
        self.queue = Queue::new(Limits::default(), Box::new(Hours));
        self.out.clear();
        let open: Vec<Job> = self.disk.values().filter(|job| !job.status.is_end()).cloned().collect();
        for job in open {
            if let Some(executor) = job.executor() {
                let site = SITES.iter().position(|name| **name == **executor).unwrap_or(0);
                self.out.insert((job.id, job.attempt), (site, Some(0)));
            }
            self.queue.restore(self.now, job);
        }
        self.recurring.restore(&mut self.queue);
        for missing in self.queue.missing() {
            let has_succeeded = self.disk.get(&missing).is_some_and(|job| job.status == Status::Succeeded);
            self.queue.after_ended(self.now, missing, has_succeeded);
        }
        self.commit(true)
    }

    /// A site loses its state directory: what it had is neither at work nor known any more.
    fn wipe(&mut self, site: usize) {
        self.classes.insert("an endpoint loses its state");
        self.say(|| format!("{} forgets everything", SITES[site]));
        self.wiped.extend(self.sites[site].orders.keys().map(|(id, _)| *id));
        self.sites[site].orders.clear();
    }

    /// Writes down what changed, then does what follows, or nothing of it.
    fn commit(&mut self, acts: bool) -> Held {
        let (changes, actions) = self.queue.take();
        for job in changes {
            self.note_change(job)?;
        }
        self.recurring.commit()?;
        if acts {
            actions.into_iter().for_each(|action| self.act(action));
        }
        self.check()
    }

    fn note_change(&mut self, job: Job) -> Held {
        self.say(|| format!("job {} is {} {} {:?} {:?}", job.id.0[0], job.status, job.reason, job.role, job.goal));
        if let Some(before) = self.disk.get(&job.id) {
            if before.status != job.status && !is_legal(before.status, job.status) {
                return Err(format!("job {} went from {} to {}", job.id.0[0], before.status, job.status));
            }
            if job.attempt < before.attempt {
                return Err(format!(
                    "job {} went back from attempt {} to {}",
                    job.id.0[0], before.attempt, job.attempt
                ));
            }
        }
        let key = (job.id, job.attempt);
        match job.executor() {
            Some(executor) => {
                let site = SITES.iter().position(|name| **name == **executor).unwrap_or(0);
                self.out.entry(key).or_insert((site, None));
            }
            None => _ = self.out.remove(&key),
        }
        if job.status == Status::Succeeded {
            self.done.insert(job.id);
        }
        self.disk.insert(job.id, job);
        Ok(())
    }

    fn act(&mut self, action: Action) {
        self.say(|| format!("{action:?}"));
        let position = |endpoint: &str| SITES.iter().position(|name| *name == endpoint).unwrap_or(0);
        let (site, request) = match action {
            Action::Probe { endpoint } => {
                let site = position(&endpoint);
                match self.sites[site].is_up {
                    true => self.look(site),
                    false => self.queue.unreached(self.now, &endpoint, "away"),
                }
                return;
            }
            Action::HandIn { id, attempt, role, endpoint } => {
                debug_assert!(matches!(role, Role::Sends | Role::Fetches));
                let site = position(&endpoint);
                if !self.sites[site].is_up {
                    self.queue.unreached(self.now, &endpoint, "away");
                    self.queue.heard(self.now, id, attempt, Answer::Unknown);
                    return;
                }
                (site, Request::HandIn((id, attempt)))
            }
            // What an executor makes of a rate is not played here.
            Action::SetRate { .. } => return,
            Action::Stop { id, attempt, endpoint } => (position(&endpoint), Request::Stop((id, attempt))),
            Action::Renew { id, attempt, endpoint } => (position(&endpoint), Request::Renew((id, attempt))),
            Action::Forget { id, attempt, endpoint } => (position(&endpoint), Request::Forget((id, attempt))),
            // A site that lets nobody in is not modelled: its executor is told to stop in any case.
            Action::Revoke { .. } => return,
        };
        if self.sites[site].is_up {
            self.sites[site].requests.push(request);
        }
    }

    /// What holds in every state.
    fn check(&self) -> Held {
        let mut active: BTreeMap<JobId, Vec<(usize, u32)>> = BTreeMap::new();
        for (at, site) in self.sites.iter().enumerate() {
            for ((id, attempt), _) in site.orders.iter().filter(|(_, stage)| stage.is_active()) {
                active.entry(*id).or_default().push((at, *attempt));
            }
        }
        for (id, places) in &active {
            if places.len() > 1 {
                return Err(format!("job {} has {} executors at work: {places:?}", id.0[0], places.len()));
            }
            let known = self.disk.get(id).and_then(|job| job.role.map(|_| job.attempt));
            if known != Some(places[0].1) {
                return Err(format!("job {} is at work as {places:?}, and the hub knows {known:?}", id.0[0]));
            }
        }
        self.check_places(&active)
    }

    /// No two executors write below one place.
    fn check_places(&self, active: &BTreeMap<JobId, Vec<(usize, u32)>>) -> Held {
        let jobs: Vec<&Job> = active.keys().filter_map(|id| self.disk.get(id)).collect();
        for (at, one) in jobs.iter().enumerate() {
            let within = |a: &[u8], b: &[u8]| a == b || a.strip_prefix(b).is_some_and(|rest| rest.starts_with(b"/"));
            let clash = jobs[at + 1..].iter().find(|other| {
                let clashes = |a| other.facts.claims.iter().any(|b| within(a, b) || within(b, a));
                one.facts.to == other.facts.to && one.facts.claims.iter().any(clashes)
            });
            if let Some(other) = clash {
                return Err(format!("jobs {} and {} write to one place", one.id.0[0], other.id.0[0]));
            }
        }
        Ok(())
    }
}

fn facts(random: &mut Random, number: u8) -> Facts {
    let from = random.below(3) as usize;
    let to = (from + 1 + random.below(2) as usize) % 3;
    let claims = [&b"x"[..], b"x/y", b"z"];
    let common = Common {
        owner: ["anna", "bert"][random.below(2) as usize].into(),
        project: "".into(),
        class: Class::ALL[random.below(3) as usize],
        priority: random.below(3) as i8,
        from: SITES[from].into(),
        to: SITES[to].into(),
        start_by: None,
        finish_by: None,
        windows: None,
        is_standing: number.is_multiple_of(8),
        is_rehearsal: false,
    };
    let claims = Claims::new(&claims[random.below(3) as usize..][..1]);
    Facts { common: common.into(), claims, nature: [number; 16] }
}

/// Written apart from `queue::may_follow`, from the table of docs/hub.md.
fn is_legal(before: Status, after: Status) -> bool {
    let allowed: &[&str] = match before.word() {
        "queued" => &["running", "waiting", "paused", "failed", "cancelled"],
        "waiting" => &["queued", "running", "stopping", "paused", "succeeded", "partial", "failed", "cancelled"],
        "running" => &["queued", "waiting", "stopping", "succeeded", "partial", "failed", "cancelled"],
        "stopping" => &["queued", "waiting", "paused", "succeeded", "partial", "failed", "cancelled"],
        "paused" => &["queued", "waiting", "failed", "cancelled"],
        _ => &["queued", "waiting"],
    };
    allowed.contains(&after.word())
}
