//! Ctrl-C, SIGTERM, and SIGHUP where it is not ignored: the first asks the command to stop in order, the second stops it at once.
//!
//! Programs that run others pass on a signal that the terminal has sent to all of them already: what follows the first
//! within `ECHO` is the same signal.
//!
//! Invariant: a command that does not come to its end within `PATIENCE` of the first signal is ended too, because a thread
//! may stand in a read that never returns.

use crate::exit::{self, Result};
use model::Exit;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const ECHO: Duration = Duration::from_millis(300);
/// Longer than the slowest orderly stop: a checkpoint that waits for a disk.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether the user asked to stop. Clones share it.
#[derive(Clone)]
pub struct Interrupt {
    shared: Arc<Shared>,
}

struct Shared {
    /// Set inside the handler, so that it is true before anything else learns of the signal.
    is_set: Arc<AtomicBool>,
    /// The last signal; 0 before it.
    signal: Arc<AtomicUsize>,
    lock: Mutex<()>,
    came: Condvar,
}

impl Interrupt {
    /// Watches for the signals from here on.
    pub fn watch() -> Result<Interrupt> {
        let failed = |e| exit::error(Exit::Failed, format!("watch for signals: {}", exit::plain(&e)), "try again");
        let is_set = Arc::new(AtomicBool::new(false));
        crate::stores::stop_by(&is_set);
        let last = Arc::new(AtomicUsize::new(0));
        let watched = watched();
        for signal in watched.iter().copied() {
            signal_hook::flag::register_usize(signal, last.clone(), signal as usize).map_err(failed)?;
            signal_hook::flag::register(signal, is_set.clone()).map_err(failed)?;
        }
        let shared = Arc::new(Shared { is_set, signal: last, lock: Mutex::new(()), came: Condvar::new() });
        let mut signals = Signals::new(&watched).map_err(failed)?;
        let for_thread = shared.clone();
        let watch = move || {
            let mut first: Option<Instant> = None;
            for signal in signals.forever() {
                match first {
                    None => for_thread.receive(signal),
                    Some(first) if first.elapsed() < ECHO => {}
                    Some(_) => std::process::exit(128 + signal),
                }
                first.get_or_insert_with(Instant::now);
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(watch).map_err(failed)?;
        Ok(Interrupt { shared })
    }

    /// One that no signal sets. A second signal still ends the program.
    pub fn never() -> Interrupt {
        let (is_set, signal, lock, came) = Default::default();
        Interrupt { shared: Arc::new(Shared { is_set, signal, lock, came }) }
    }

    pub fn is_set(&self) -> bool {
        self.shared.is_set.load(SeqCst)
    }

    /// The flag itself, for whoever watches one.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.shared.is_set
    }

    /// Standard input, as far as it can be trusted while signals come.
    pub fn stdin(&self) -> Stdin {
        Stdin { interrupt: self.clone() }
    }

    /// Waits for the duration; true when the signal came meanwhile.
    pub fn wait(&self, duration: Duration) -> bool {
        let deadline = Instant::now() + duration;
        let mut held = self.shared.lock.lock().unwrap();
        while !self.is_set() {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
            held = self.shared.came.wait_timeout(held, left).unwrap().0;
        }
        true
    }

    /// The code of a command that stopped because of the signal.
    pub fn exit(&self) -> Exit {
        let signal = self.shared.signal.load(SeqCst);
        let is_terminated = [SIGTERM, SIGHUP].iter().any(|terminates| *terminates as usize == signal);
        if is_terminated { Exit::Terminated } else { Exit::Interrupted }
    }
}

/// A terminal that goes away stops a command, unless the user had it ignore that (`nohup`).
fn watched() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    let is_ignored = mask.is_none_or(|mask| mask >> (SIGHUP - 1) & 1 == 1);
    [SIGINT, SIGTERM].into_iter().chain((!is_ignored).then_some(SIGHUP)).collect()
}

/// Standard input, whose end does not count when the user stops the whole pipeline: the program that fills the pipe
/// dies of the same Ctrl-C, and what it wrote until then is not all it meant to write.
pub struct Stdin {
    interrupt: Interrupt,
}

/// The two programs are signalled within microseconds of each other.
const SIGNAL_PATIENCE: Duration = Duration::from_millis(20);

impl Read for Stdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = io::stdin().lock().read(buffer)?;
        if read == 0 && !buffer.is_empty() && self.interrupt.wait(SIGNAL_PATIENCE) {
            return Err(io::Error::other("stopped before the outcome was certain"));
        }
        Ok(read)
    }
}

impl Shared {
    fn receive(&self, signal: i32) {
        drop(self.lock.lock().unwrap());
        self.came.notify_all();
        let end = move || {
            std::thread::sleep(PATIENCE);
            std::process::exit(128 + signal);
        };
        // Without the thread only the second signal ends a command that hangs.
        let _ = std::thread::Builder::new().name("patience".into()).spawn(end);
    }
}
