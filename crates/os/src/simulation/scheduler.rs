//! Who runs next, and what time it is.
//!
//! Every thread of a world is a real one that waits for its turn. A turn ends where the thread waits, and now and then
//! where it takes a lock; the next one is drawn from those that can go on. When none can, time moves to the earliest
//! moment that someone waits for.

use super::disk::Disk;
use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Every step takes this long, so that a thread that asks the clock in a loop comes to an end.
const STEP_NS: u64 = 1_000;
/// One in so many steps gives way to another thread.
const TURN_STEPS: u64 = 6;

thread_local! {
    static CURRENT: RefCell<Option<Context>> = const { RefCell::new(None) };
}

/// Where the calling thread is simulated.
#[derive(Clone)]
pub struct Context {
    pub world: Arc<World>,
    pub host: Arc<Host>,
    slot: usize,
}

/// `None` for a thread of the real host.
pub fn current() -> Option<Context> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// One boot of a host.
pub struct Host {
    is_alive: AtomicBool,
    disk: Option<Arc<dyn Disk>>,
    boot_id: [u8; 16],
}

impl Host {
    pub fn boot_id(&self) -> [u8; 16] {
        self.boot_id
    }

    pub fn is_alive(&self) -> bool {
        self.is_alive.load(SeqCst)
    }

    pub(super) fn disk(&self) -> Option<&Arc<dyn Disk>> {
        self.disk.as_ref()
    }
}

/// What a thread waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wait {
    Lock(usize),
    Condition(usize),
    End(usize),
    Time,
}

enum Status {
    Ready,
    Waiting { on: Wait, until_ns: Option<u64> },
    Ended,
}

struct Slot {
    name: String,
    host: Arc<Host>,
    status: Status,
    is_timed_out: bool,
    turn: Arc<Turn>,
}

/// The right to run, handed from thread to thread.
#[derive(Default)]
struct Turn {
    is_mine: Mutex<bool>,
    given: Condvar,
}

impl Turn {
    fn give(&self) {
        *locked(&self.is_mine) = true;
        self.given.notify_one();
    }

    fn take(&self) {
        let mut is_mine = locked(&self.is_mine);
        while !*is_mine {
            is_mine = self.given.wait(is_mine).unwrap_or_else(PoisonError::into_inner);
        }
        *is_mine = false;
    }
}

struct State {
    random: u64,
    now_ns: u64,
    steps: u64,
    slots: Vec<Slot>,
    /// Nobody can go on, and nobody waits for time.
    is_stuck: bool,
}

pub struct World {
    state: Mutex<State>,
    steps_max: u64,
}

/// What unwinds the threads of a host that died.
struct Died;

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// Runs `main` as the first thread of a new world, on a host that nothing kills. Returns when every thread ended.
    /// After `steps_max` steps every other host dies.
    pub fn run<T>(seed: u64, steps_max: u64, main: impl FnOnce(&Arc<World>) -> T) -> T {
        let random = seed ^ 0x9e37_79b9_7f4a_7c15;
        let state = State { random, now_ns: 1_000_000_000, steps: 0, slots: Vec::new(), is_stuck: false };
        let world = Arc::new(World { state: Mutex::new(state), steps_max });
        let host = world.host(None, [0; 16]);
        let slot = world.add("main", &host);
        let context = Context { world: world.clone(), host, slot };
        CURRENT.set(Some(context.clone()));
        let result = catch_unwind(AssertUnwindSafe(|| main(&world)));
        world.kill_others(&context.host);
        for other in 0.. {
            let Some(is_ended) = world.is_ended(other) else { break };
            if locked(&world.state).is_stuck {
                break;
            }
            if other != slot && !is_ended {
                world.wait(&context, Wait::End(other), None);
            }
        }
        CURRENT.set(None);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    pub fn host(self: &Arc<World>, disk: Option<Arc<dyn Disk>>, boot_id: [u8; 16]) -> Arc<Host> {
        Arc::new(Host { is_alive: AtomicBool::new(true), disk, boot_id })
    }

    pub fn now_ns(&self) -> u64 {
        locked(&self.state).now_ns
    }

    pub fn steps(&self) -> u64 {
        locked(&self.state).steps
    }

    pub fn random(&self) -> u64 {
        next_random(&mut locked(&self.state).random)
    }

    /// Stops a host: its calls fail from now on, and its threads end at their next step.
    pub fn kill(&self, host: &Arc<Host>) {
        host.is_alive.store(false, SeqCst);
        let mut state = locked(&self.state);
        for slot in state.slots.iter_mut().filter(|slot| Arc::ptr_eq(&slot.host, host)) {
            if matches!(slot.status, Status::Waiting { .. }) {
                slot.status = Status::Ready;
            }
        }
    }

    fn kill_others(&self, but: &Arc<Host>) {
        let hosts: Vec<_> = locked(&self.state).slots.iter().map(|slot| slot.host.clone()).collect();
        for host in hosts.iter().filter(|host| !Arc::ptr_eq(host, but)) {
            self.kill(host);
        }
    }

    /// Whether no thread of the host is left.
    pub fn is_empty(&self, host: &Arc<Host>) -> bool {
        let state = locked(&self.state);
        state.slots.iter().all(|slot| !Arc::ptr_eq(&slot.host, host) || matches!(slot.status, Status::Ended))
    }

    /// Threads that have not ended, and what they wait for; for reports.
    pub fn stuck(&self) -> String {
        let state = locked(&self.state);
        let live = state.slots.iter().filter(|slot| !matches!(slot.status, Status::Ended));
        let show = |slot: &Slot| match &slot.status {
            Status::Waiting { on, .. } => format!("{} waits for {on:?}", slot.name),
            _ => format!("{} runs", slot.name),
        };
        live.map(show).collect::<Vec<_>>().join(", ")
    }

    pub fn sleep(&self, duration: Duration) {
        let context = current().expect("a thread of this world");
        self.wait(&context, Wait::Time, Some(duration));
    }

    fn is_ended(&self, slot: usize) -> Option<bool> {
        locked(&self.state).slots.get(slot).map(|slot| matches!(slot.status, Status::Ended))
    }

    fn add(&self, name: &str, host: &Arc<Host>) -> usize {
        let mut state = locked(&self.state);
        let turn = Arc::new(Turn::default());
        let slot = Slot { name: name.to_owned(), host: host.clone(), status: Status::Ready, is_timed_out: false, turn };
        state.slots.push(slot);
        state.slots.len() - 1
    }

    /// A place where another thread may go on instead.
    pub(crate) fn step(&self, context: &Context) {
        die_with(&context.host);
        let mut state = locked(&self.state);
        state.now_ns += STEP_NS;
        state.steps += 1;
        if state.steps == self.steps_max {
            let first = state.slots[0].host.clone();
            drop(state);
            self.kill_others(&first);
            die_with(&context.host);
            return;
        }
        if next_random(&mut state.random).is_multiple_of(TURN_STEPS) {
            self.switch(state, context.slot);
            die_with(&context.host);
        }
    }

    /// Waits until someone wakes `on` or time is over; true for the latter.
    pub(crate) fn wait(&self, context: &Context, on: Wait, patience: Option<Duration>) -> bool {
        die_with(&context.host);
        let mut state = locked(&self.state);
        let until_ns = patience.map(|patience| state.now_ns.saturating_add(patience.as_nanos() as u64));
        state.steps += 1;
        let slot = &mut state.slots[context.slot];
        slot.is_timed_out = false;
        slot.status = Status::Waiting { on, until_ns };
        self.switch(state, context.slot);
        die_with(&context.host);
        let state = locked(&self.state);
        let (is_timed_out, is_stuck) = (state.slots[context.slot].is_timed_out, state.is_stuck);
        drop(state);
        assert!(!is_stuck, "nothing can go on: {}", self.stuck());
        is_timed_out
    }

    pub(crate) fn wake(&self, what: &Wait, at_most: usize) {
        let mut state = locked(&self.state);
        let waiting = |slot: &&mut Slot| matches!(&slot.status, Status::Waiting { on, .. } if on == what);
        state.slots.iter_mut().filter(waiting).take(at_most).for_each(|slot| slot.status = Status::Ready);
    }

    /// Hands the turn to a thread that can go on, and waits until it comes back.
    fn switch(&self, mut state: MutexGuard<'_, State>, from: usize) {
        let next = pick(&mut state);
        if next == from {
            return;
        }
        let (mine, turn) = (state.slots[from].turn.clone(), state.slots[next].turn.clone());
        drop(state);
        turn.give();
        mine.take();
    }

    /// The calling thread is over.
    fn end(&self, slot: usize) {
        self.wake(&Wait::End(slot), usize::MAX);
        let mut state = locked(&self.state);
        state.slots[slot].status = Status::Ended;
        let next = pick(&mut state);
        let turn = state.slots[next].turn.clone();
        drop(state);
        turn.give();
    }
}

/// Draws who goes on; moves the time when nobody can.
fn pick(state: &mut State) -> usize {
    loop {
        let is_ready = |slot: &Slot| matches!(slot.status, Status::Ready);
        let ready = state.slots.iter().filter(|slot| is_ready(slot)).count() as u64;
        if ready > 0 {
            let chosen = (next_random(&mut state.random) % ready) as usize;
            let mut numbered = state.slots.iter().enumerate().filter(|(_, slot)| is_ready(slot));
            return numbered.nth(chosen).expect("fewer than there are").0;
        }
        let until = |slot: &Slot| match slot.status {
            Status::Waiting { until_ns, .. } => until_ns,
            _ => None,
        };
        let Some(earliest) = state.slots.iter().filter_map(until).min() else {
            // The first thread says so.
            state.is_stuck = true;
            state.slots[0].status = Status::Ready;
            return 0;
        };
        state.now_ns = state.now_ns.max(earliest);
        for slot in state.slots.iter_mut().filter(|slot| until(slot).is_some_and(|ns| ns <= earliest)) {
            slot.status = Status::Ready;
            slot.is_timed_out = true;
        }
    }
}

/// A thread that is already ending goes on, so that what it holds is given back.
fn die_with(host: &Host) {
    if !host.is_alive() && !std::thread::panicking() {
        resume_unwind(Box::new(Died));
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub struct JoinHandle<T> {
    real: Option<std::thread::JoinHandle<()>>,
    simulated: Option<(Arc<World>, usize)>,
    result: Arc<Mutex<Option<std::thread::Result<T>>>>,
}

impl<T> JoinHandle<T> {
    /// # Errors
    /// What the thread panicked with.
    pub fn join(mut self) -> std::thread::Result<T> {
        if let (Some((world, slot)), Some(context)) = (&self.simulated, current()) {
            while world.is_ended(*slot) == Some(false) {
                world.wait(&context, Wait::End(*slot), None);
            }
        } else if let Some(real) = self.real.take() {
            real.join()?;
        }
        locked(&self.result).take().unwrap_or_else(|| Err(Box::new(Died) as Box<dyn Any + Send>))
    }

    pub fn is_finished(&self) -> bool {
        match &self.simulated {
            Some((world, slot)) => world.is_ended(*slot) == Some(true),
            None => self.real.as_ref().is_none_or(std::thread::JoinHandle::is_finished),
        }
    }
}

/// Starts a thread on the host of the calling one.
pub fn spawn<T: Send + 'static>(name: &str, run: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
    match current() {
        Some(context) => {
            die_with(&context.host);
            Ok(spawn_on(&context.world, &context.host, name, run))
        }
        None => {
            let result = Arc::new(Mutex::new(None));
            let told = result.clone();
            let body = move || *locked(&told) = Some(catch_unwind(AssertUnwindSafe(run)));
            let builder = std::thread::Builder::new().name(name.to_owned());
            Ok(JoinHandle { real: Some(builder.spawn(body)?), simulated: None, result })
        }
    }
}

/// Starts a thread on a host of the world.
pub fn spawn_on<T: Send + 'static>(
    world: &Arc<World>,
    host: &Arc<Host>,
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let slot = world.add(name, host);
    let turn = locked(&world.state).slots[slot].turn.clone();
    let result = Arc::new(Mutex::new(None));
    let context = Context { world: world.clone(), host: host.clone(), slot };
    let told = result.clone();
    let body = move || {
        turn.take();
        CURRENT.set(Some(context.clone()));
        let ran = catch_unwind(AssertUnwindSafe(|| {
            die_with(&context.host);
            run()
        }));
        *locked(&told) = Some(ran);
        CURRENT.set(None);
        context.world.end(context.slot);
    };
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(body).expect("the system gives a thread");
    JoinHandle { real: None, simulated: Some((world.clone(), slot)), result }
}
