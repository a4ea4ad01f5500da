//! The threads of an emulator: each runs one back end's engine for a group of paths that share no channel with another.
//!
//! Owns: waiting (for packets, for the next packet's time, for commands), real-time priority, and the account of CPU time.
//!
//! Invariants: the engine is touched by its own thread only, so that no lock stands between a packet and its time; a
//! command waits at most one turn.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::time::{ClockId, clock_gettime};

use super::channel::{Channel, Counts};
use super::lateness::Lateness;
use super::{Emulator, Snapshot};
use crate::impairment::Impairment;
use crate::sys::realtime::become_realtime;

/// Turns that follow each other faster than this are put off to it: falling asleep and waking for every packet costs more
/// than the packet.
const PAUSE_NS: u64 = 50_000;

/// What a back end does on its thread.
pub trait Engine: Send + 'static {
    /// Readable when packets wait.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Takes in what has arrived and lets go what is due; bounded, so that commands are heard.
    fn turn(&mut self) -> io::Result<()>;

    /// When the next packet is due, on `now_ns`'s clock.
    fn next_ns(&self) -> Option<u64>;

    fn channels(&mut self) -> &mut [Channel];

    /// A channel was set to something else.
    fn changed(&mut self) {}

    fn lateness(&self) -> &Lateness;

    /// Packets lost because the emulator did not keep up.
    fn overruns(&self) -> u64;
}

/// The clock of all schedules. It begins with its first use, because schedules count in picoseconds: of those, 64 bits hold
/// 213 days.
pub fn now_ns() -> u64 {
    static BEGIN_NS: OnceLock<u64> = OnceLock::new();
    let now_ns = nanoseconds(ClockId::Monotonic);
    // Not 0, so that what has never happened lies before everything.
    now_ns - BEGIN_NS.get_or_init(|| now_ns - 1)
}

/// The threads of one emulator.
pub struct Workers {
    workers: Vec<Worker>,
    channel_count: usize,
}

struct Worker {
    /// Of the whole laboratory, in the order of the engine's own.
    channels: Vec<usize>,
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    failure: Arc<Mutex<Option<String>>>,
}

enum Command {
    Set { channel: usize, impairment: Impairment, round_trip: Duration },
    Snapshot(Sender<Snapshot>),
    Stop,
}

impl Workers {
    pub fn new(channel_count: usize) -> Workers {
        Workers { workers: Vec::new(), channel_count }
    }

    /// Starts a thread; `channels[i]` is the laboratory's index of the engine's channel `i`.
    pub fn start<E: Engine>(&mut self, engine: E, channels: Vec<usize>) -> io::Result<()> {
        let (sender, receiver) = channel();
        let wake = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let woken = Arc::clone(&wake);
        let failure = Arc::new(Mutex::new(None));
        let told = Arc::clone(&failure);
        let thread = Builder::new().name("emulator".into()).spawn(move || {
            // Without the right to it the run goes on, and its lateness tells what that cost.
            let _ = become_realtime();
            if let Err(error) = run(engine, &receiver, &woken) {
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            }
        })?;
        self.workers.push(Worker { channels, commands: sender, wake, thread: Some(thread), failure });
        Ok(())
    }
}

impl Emulator for Workers {
    fn set(&self, channel: usize, impairment: Impairment, round_trip: Duration) {
        for worker in &self.workers {
            if let Some(own) = worker.channels.iter().position(|index| *index == channel) {
                worker.send(Command::Set { channel: own, impairment, round_trip });
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        let mut whole = Snapshot { counts: vec![Counts::default(); self.channel_count], ..Snapshot::default() };
        for worker in &self.workers {
            let (sender, receiver) = channel();
            worker.send(Command::Snapshot(sender));
            let Ok(part) = receiver.recv() else {
                whole.failure = Some(format!("an emulator thread has ended: {}", worker.failure()));
                continue;
            };
            whole.at_ns = whole.at_ns.max(part.at_ns);
            whole.cpu_seconds_by_thread.push(part.cpu_seconds);
            for (index, counts) in worker.channels.iter().zip(part.counts) {
                whole.counts[*index] = counts;
            }
            whole.lateness.merge(&part.lateness);
            whole.overruns += part.overruns;
            whole.cpu_seconds += part.cpu_seconds;
        }
        whole
    }
}

impl Worker {
    fn send(&self, command: Command) {
        // A worker that has ended is found by its silence.
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl Worker {
    fn failure(&self) -> String {
        let told = self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        told.unwrap_or_else(|| "it panicked".into())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run<E: Engine>(mut engine: E, commands: &Receiver<Command>, wake: &OwnedFd) -> io::Result<()> {
    let mut turned_ns = 0;
    let mut pause_until_ns = None;
    loop {
        if wait(&engine, wake, pause_until_ns)? && !obey(&mut engine, commands, wake) {
            return Ok(());
        }
        let now_ns = now_ns();
        pause_until_ns = (now_ns - turned_ns < PAUSE_NS).then_some(now_ns + PAUSE_NS);
        turned_ns = now_ns;
        engine.turn()?;
    }
}

/// Until a packet comes or is due, or, in a pause, until its end. Returns whether there are commands.
fn wait<E: Engine>(engine: &E, wake: &OwnedFd, pause_until_ns: Option<u64>) -> io::Result<bool> {
    let timeout = pause_until_ns.or_else(|| engine.next_ns()).map(|next_ns| {
        let left = Duration::from_nanos(next_ns.saturating_sub(now_ns()));
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
    });
    let mut polled = vec![PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN)];
    if pause_until_ns.is_none() {
        polled.extend(engine.descriptors().into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    }
    match rustix::event::poll(&mut polled, timeout.as_ref()) {
        Ok(_) => Ok(polled[0].revents().contains(PollFlags::IN)),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns whether to go on.
fn obey<E: Engine>(engine: &mut E, commands: &Receiver<Command>, wake: &OwnedFd) -> bool {
    let _ = rustix::io::read(wake, &mut [0; 8]);
    for command in commands.try_iter() {
        match command {
            Command::Set { channel, impairment, round_trip } => {
                engine.channels()[channel].set(now_ns(), impairment, round_trip);
                engine.changed();
            }
            Command::Snapshot(reply) => {
                let counts = engine.channels().iter().map(|channel| channel.counts).collect();
                let cpu_seconds = nanoseconds(ClockId::ThreadCPUTime) as f64 / 1e9;
                let (at_ns, lateness, overruns) = (now_ns(), engine.lateness().clone(), engine.overruns());
                // Whoever asked may have gone.
                let _ = reply.send(Snapshot { at_ns, counts, lateness, overruns, cpu_seconds, ..Snapshot::default() });
            }
            Command::Stop => return false,
        }
    }
    true
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
