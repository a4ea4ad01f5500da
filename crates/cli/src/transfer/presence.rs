//! What others can see of a running transfer: a status file for `thalweg top`, and a snapshot on SIGUSR1.
//!
//! The status file lies in a directory of this user's alone (`PrivateDirectory`) and is replaced as a whole at most once a
//! second, the first time when the transfer has lasted a while; it goes when the transfer ends. A process that dies leaves
//! one behind, which `top` sweeps: the file names the process and when it started. Nothing here can fail a transfer.

use crate::output::progress;
use crate::output::{duration, json};
use daemon::Paths;
use daemon::trust::PrivateDirectory;
use model::JobId;
use mover::Progress;
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGUSR1;
use signal_hook::iterator::{Handle, Signals};
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use transfer::{Direction, History, Sample};

/// Shorter transfers have no file: nobody could read it in time.
const FIRST_AFTER: Duration = Duration::from_millis(250);
const INTERVAL: Duration = Duration::from_secs(1);

/// A status file.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Status {
    pub v: u32,
    pub pid: u32,
    /// When the process started, in the kernel's clock ticks since the host did: a number used again has another.
    pub started_ticks: u64,
    /// Seconds since 1970.
    pub started: u64,
    pub command: String,
    pub direction: String,
    pub job: String,
    pub sources: Vec<String>,
    pub destination: String,
    pub attempt: u32,
    /// The fields of a `progress` event (docs/json.md).
    pub progress: serde_json::Value,
    /// The same for people: how much, how fast.
    pub amounts: String,
    pub pace: String,
}

/// Where the status files of this user lie.
pub fn directory(paths: &Paths) -> PathBuf {
    paths.runtime.join("transfers")
}

/// When a process started, from the 22nd field of its `stat`; nothing when there is none.
pub fn started_ticks(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name, which may hold anything.
    text.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// What the transfer is.
pub struct Subject<'a> {
    pub command: &'a str,
    pub direction: Direction,
    pub job: JobId,
    pub sources: Vec<String>,
    pub destination: String,
}

/// Shows a transfer to others until it is dropped.
pub struct Presence {
    attempt: Arc<Mutex<Option<Attempt>>>,
    wake: Option<SyncSender<()>>,
    signals: Option<Handle>,
    thread: Option<JoinHandle<()>>,
}

/// The attempt that runs, with the moments that its rate is told from.
struct Attempt {
    number: u32,
    progress: Arc<Progress>,
    history: History,
}

impl Presence {
    pub fn start(subject: &Subject<'_>, paths: Option<&Paths>) -> Presence {
        let pid = std::process::id();
        let status = Status {
            v: 1,
            pid,
            started_ticks: started_ticks(pid).unwrap_or(0),
            started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            command: subject.command.to_owned(),
            direction: subject.direction.name().to_owned(),
            job: subject.job.to_string(),
            sources: subject.sources.clone(),
            destination: subject.destination.clone(),
            attempt: 0,
            progress: serde_json::Value::Null,
            amounts: String::new(),
            pace: String::new(),
        };
        let attempt: Arc<Mutex<Option<Attempt>>> = Arc::default();
        let (wake, woken) = sync_channel(1);
        let place = paths.map(directory);
        let mut shown = Shown { status, attempt: attempt.clone(), place, directory: None, is_written: false };
        let run = move || {
            let mut pause = FIRST_AFTER;
            loop {
                match woken.recv_timeout(pause) {
                    Ok(()) => shown.print(),
                    Err(RecvTimeoutError::Timeout) => shown.write(),
                    Err(RecvTimeoutError::Disconnected) => return shown.remove(),
                }
                pause = INTERVAL;
            }
        };
        let thread = std::thread::Builder::new().name("presence".into()).spawn(run).ok();
        let signals = watch(wake.clone());
        Presence { attempt, wake: Some(wake), signals, thread }
    }

    /// From here on this attempt is shown.
    pub fn show(&self, number: u32, progress: &Arc<Progress>, direction: Direction) {
        let attempt = Attempt { number, progress: progress.clone(), history: History::new(direction) };
        *self.attempt.lock().unwrap() = Some(attempt);
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // Its thread holds the other end of the channel, and ends.
        if let Some(signals) = &self.signals {
            signals.close();
        }
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Wakes the presence whenever SIGUSR1 comes. Without the thread the signal is still caught and harms nothing.
fn watch(wake: SyncSender<()>) -> Option<Handle> {
    let mut signals = Signals::new([SIGUSR1]).ok()?;
    let handle = signals.handle();
    let run = move || {
        for _ in signals.forever() {
            // One that waits already shows the same.
            if let Err(TrySendError::Disconnected(())) = wake.try_send(()) {
                return;
            }
        }
    };
    let _ = std::thread::Builder::new().name("snapshot".into()).spawn(run);
    Some(handle)
}

struct Shown {
    status: Status,
    attempt: Arc<Mutex<Option<Attempt>>>,
    /// Where the file is to lie, until it is first written.
    place: Option<PathBuf>,
    /// Nothing once it could not be written.
    directory: Option<PrivateDirectory>,
    is_written: bool,
}

impl Shown {
    fn sample(&mut self) -> Option<Sample> {
        let mut held = self.attempt.lock().unwrap();
        let attempt = held.as_mut()?;
        self.status.attempt = attempt.number;
        Some(attempt.history.sample(attempt.progress.snapshot()))
    }

    fn print(&mut self) {
        let Some(sample) = self.sample() else { return };
        let Status { command, sources, destination, attempt, .. } = &self.status;
        let after = duration(sample.seconds);
        progress::beside_bar(&[
            format!("snapshot: {command} {} {destination}, attempt {attempt}, {after}", sources.join(" ")),
            format!("snapshot: {}", progress::amounts(&sample)),
            format!("snapshot: {}", progress::pace(&sample)),
        ]);
    }

    fn write(&mut self) {
        let Some(sample) = self.sample() else { return };
        self.status.progress = json::progress_fields(&sample);
        self.status.amounts = progress::amounts(&sample);
        self.status.pace = progress::pace(&sample);
        // A directory that cannot be trusted is one that cannot be written to.
        let made = self.place.take().and_then(|place| PrivateDirectory::make(&place).ok());
        let Some(directory) = made.or_else(|| self.directory.take()) else { return };
        if self.replace(&directory).is_ok() {
            self.is_written = true;
            self.directory = Some(directory);
        }
    }

    fn replace(&self, directory: &PrivateDirectory) -> std::io::Result<()> {
        let text = serde_json::to_string(&self.status).expect("plain values have a JSON form");
        directory.write(&self.file_name(), text.as_bytes())
    }

    fn remove(&self) {
        if let (true, Some(directory)) = (self.is_written, &self.directory) {
            let _ = directory.remove(self.file_name().as_ref());
        }
    }

    fn file_name(&self) -> String {
        format!("{}.json", self.status.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_apart_by_when_it_started() {
        assert!(started_ticks(std::process::id()).is_some_and(|ticks| ticks > 0));
        assert_eq!(started_ticks(u32::MAX), None);
    }
}
