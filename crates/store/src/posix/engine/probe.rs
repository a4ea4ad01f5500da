//! Which engine a file system is best written with: a short race on the file system itself.
//!
//! Plain calls and the queue take turns for a slice of time each, and the queue is chosen only when it is clearly
//! faster. The loser's figure is kept for display. Memory-backed file systems are not raced: nothing beats plain calls
//! there.
//!
//! Invariants:
//! - A probe ends, whatever the storage does: a lap runs in a thread of its own, one that hangs is given up after
//!   [`STALL_MAX`] and left to end on its own, and no round is begun when twice the budget is spent.
//! - Nothing is left behind: the file written to never has a name, or loses it before the first byte.
//!
//! Not here: when to probe, and remembering the verdict; reading, which is tried on what is read anyway (`blocks`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use super::super::facts;
use super::{BlockWriter, EngineKind, Fallback, Shape, writer};

/// How much faster the queue must be to be chosen, for reading too. It takes kernel memory, threads and cache that plain calls leave to
/// others, and a race this short is right to about 10 %.
pub const GAIN_MIN: f64 = 1.2;

/// So much faster is no matter of noise on storage that is slow itself.
const GAIN_CLEAR: f64 = 3.0;

/// How long a lap may exceed its slice of the budget before it is given up.
pub const STALL_MAX: Duration = Duration::from_secs(1);

/// What one lap writes at most: enough to leave caches of devices behind that fit into the budget at all.
const LAP_BYTES_MAX: u64 = 64 << 20;

/// Bytes written before the first sync of a lap; each further sync comes after twice as many.
const SYNC_STEP_BYTES: u64 = 4 << 20;

/// Laps of a race: plain, queue, and so on in turn. The best of three counts, as a disk that hesitates for 40 ms now and
/// then made up to 100 times of a difference in single laps.
const LAPS: u32 = 6;

/// What a race came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub chosen: EngineKind,
    /// None if it was not measured.
    pub plain_bytes_per_second: Option<u64>,
    /// None if it was not measured.
    pub uring_bytes_per_second: Option<u64>,
    /// Why, in words for the user.
    pub reason: String,
}

/// Races writes into an unnamed temporary file in `dir`; with `fsync` up to the point where they are durable.
///
/// Takes `budget` in all (150 ms is enough to tell), more only where a single operation takes longer.
pub fn probe_write(dir: BorrowedFd<'_>, fsync: bool, budget: Duration) -> Verdict {
    if facts::is_memory_backed(dir) {
        return Verdict::memory(dir);
    }
    let lap = |kind, _lap| {
        let file = temporary_file(dir)?;
        Ok(move |slice, progress: &Progress| write_lap(kind, file, fsync, slice, progress))
    };
    let race = Race { verb: if fsync { "wrote and synced" } else { "wrote" }, slice: budget / LAPS };
    race.run(lap)
}

impl Verdict {
    fn memory(file: BorrowedFd<'_>) -> Verdict {
        Verdict::plain(format!("memory ({}): nothing is faster than plain calls", facts::file_system(file)))
    }

    fn plain(reason: String) -> Verdict {
        let chosen = EngineKind::PreadPwrite;
        Verdict { chosen, plain_bytes_per_second: None, uring_bytes_per_second: None, reason }
    }
}

/// What an engine showed over its laps.
#[derive(Default)]
struct Score {
    bytes_per_second: Option<u64>,
    engine: Option<EngineKind>,
    fallback: Option<Fallback>,
    /// Of a lap.
    fastest: Option<Duration>,
    error: Option<io::Error>,
}

impl Score {
    /// Keeps the better lap: noise of the host only ever slows one down.
    fn take(&mut self, lap: io::Result<Lap>) {
        match lap {
            Ok(lap) => {
                self.bytes_per_second = self.bytes_per_second.max(Some(lap.bytes_per_second()));
                self.fastest = Some(self.fastest.map_or(lap.elapsed, |fastest| fastest.min(lap.elapsed)));
                self.engine = Some(lap.engine);
                self.fallback = lap.fallback;
            }
            Err(error) => self.error = Some(error),
        }
    }
}

struct Race {
    verb: &'static str,
    slice: Duration,
}

impl Race {
    /// Runs the laps that `prepare` makes, alternately, and judges.
    fn run<L>(&self, prepare: impl Fn(EngineKind, u32) -> io::Result<L>) -> Verdict
    where
        L: FnOnce(Duration, &Progress) -> io::Result<Lap> + Send + 'static,
    {
        let (mut plain, mut uring) = (Score::default(), Score::default());
        let started = Instant::now();
        for round in (0..LAPS).step_by(2) {
            for (kind, score, lap) in
                [(EngineKind::PreadPwrite, &mut plain, round), (EngineKind::UringDirect, &mut uring, round + 1)]
            {
                score.take(prepare(kind, lap).and_then(|lap| run_lap(kind, self.slice, lap)));
            }
            if self.is_clear(&plain, &uring) || started.elapsed() > 2 * LAPS * self.slice {
                break;
            }
        }
        self.judge(plain, uring)
    }

    /// Where each request takes long both overrun their slices, the queue too: no matter of one that hesitated. One round is enough then.
    fn is_clear(&self, plain: &Score, uring: &Score) -> bool {
        let least = uring.fastest.unwrap_or_default();
        least * 2 >= 3 * self.slice && gain(plain, uring).is_some_and(|gain| gain >= GAIN_CLEAR)
    }

    fn judge(&self, plain: Score, uring: Score) -> Verdict {
        let used = uring.engine.unwrap_or(EngineKind::UringDirect);
        let gain = gain(&plain, &uring);
        let note = uring.fallback.as_ref().map(|fallback| format!(" ({fallback})")).unwrap_or_default();
        let (chosen, reason) = match gain {
            None => (EngineKind::PreadPwrite, unmeasured(&plain, &uring)),
            Some(_) if used == EngineKind::PreadPwrite => (used, format!("no queue{note}")),
            Some(gain) => {
                let chosen = if gain >= GAIN_MIN { used } else { EngineKind::PreadPwrite };
                let (plain_rate, uring_rate) = (mib_per_second(&plain), mib_per_second(&uring));
                let verb = self.verb;
                (chosen, format!("{used} {verb} {uring_rate} MiB/s, pread/pwrite {plain_rate} MiB/s{note}"))
            }
        };
        // A race against a stand-in for the queue is no figure of the queue.
        let uring_bytes_per_second = uring.bytes_per_second.filter(|_| used != EngineKind::PreadPwrite);
        Verdict { chosen, plain_bytes_per_second: plain.bytes_per_second, uring_bytes_per_second, reason }
    }
}

/// How many times faster the queue was; None if that cannot be said.
fn gain(plain: &Score, uring: &Score) -> Option<f64> {
    match (plain.bytes_per_second?, uring.bytes_per_second?) {
        (0, 0) => None,
        (plain, uring) => Some(uring as f64 / plain.max(1) as f64),
    }
}

fn unmeasured(plain: &Score, uring: &Score) -> String {
    match plain.error.as_ref().or(uring.error.as_ref()) {
        Some(error) => format!("not measured: {error}"),
        None => "not measured: no operation ended in time".to_owned(),
    }
}

fn mib_per_second(score: &Score) -> String {
    let mib = score.bytes_per_second.unwrap_or(0) as f64 / f64::from(1 << 20);
    if mib < 100.0 { format!("{mib:.1}") } else { format!("{mib:.0}") }
}

/// What one lap did.
struct Lap {
    bytes: u64,
    elapsed: Duration,
    engine: EngineKind,
    fallback: Option<Fallback>,
}

impl Lap {
    fn bytes_per_second(&self) -> u64 {
        (self.bytes as f64 / self.elapsed.as_secs_f64().max(1e-9)) as u64
    }
}

/// What a lap has done so far, for when it does not come back.
type Progress = AtomicU64;

/// Runs a lap in a thread of its own, and goes on without it when it stalls.
fn run_lap<L>(kind: EngineKind, slice: Duration, lap: L) -> io::Result<Lap>
where
    L: FnOnce(Duration, &Progress) -> io::Result<Lap> + Send + 'static,
{
    let progress = Arc::new(Progress::new(0));
    let (sender, receiver) = mpsc::sync_channel(1);
    let started = Instant::now();
    let theirs = Arc::clone(&progress);
    std::thread::Builder::new().name("probe".to_owned()).spawn(move || {
        // Nobody listens any more if the lap took too long.
        let _ = sender.send(lap(slice, &theirs));
    })?;
    match receiver.recv_timeout(slice + STALL_MAX) {
        Ok(lap) => lap,
        Err(_) => {
            let bytes = progress.load(Ordering::Relaxed);
            Ok(Lap { bytes, elapsed: started.elapsed(), engine: kind, fallback: None })
        }
    }
}

fn write_lap(kind: EngineKind, file: OwnedFd, fsync: bool, slice: Duration, progress: &Progress) -> io::Result<Lap> {
    let pattern = incompressible_bytes();
    let mut writer: Box<dyn BlockWriter> = writer(kind, Shape::of(kind))?;
    let block_bytes = writer.block_bytes();
    let started = Instant::now();
    let is_over = |bytes: u64| started.elapsed() >= slice || bytes >= LAP_BYTES_MAX;
    let mut bytes = 0;
    let mut step_bytes = if fsync { SYNC_STEP_BYTES } else { LAP_BYTES_MAX };
    while !is_over(bytes) {
        let step_end = bytes + step_bytes;
        while bytes < step_end && (bytes == 0 || !is_over(bytes)) {
            // A lane fills each block, too; the number makes all blocks different for storage that folds equal ones.
            let buffer = writer.buffer()?;
            buffer.chunks_mut(pattern.len()).for_each(|chunk| chunk.copy_from_slice(&pattern[..chunk.len()]));
            buffer[..8].copy_from_slice(&bytes.to_le_bytes());
            writer.write(file.as_fd(), bytes, block_bytes)?;
            bytes += block_bytes as u64;
        }
        writer.drain()?;
        if fsync {
            rustix::fs::fdatasync(&file)?;
        }
        progress.store(bytes, Ordering::Relaxed);
        step_bytes *= 2;
    }
    Ok(Lap { bytes, elapsed: started.elapsed(), engine: writer.engine(), fallback: writer.fallback().cloned() })
}

/// A file of `LAP_BYTES_MAX` that has no name and is gone when it is closed.
///
/// Its size is set first, as a transfer does: writes that extend a file cannot overlap.
fn temporary_file(dir: BorrowedFd<'_>) -> Result<OwnedFd, io::Error> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = match rustix::fs::openat(dir, c".", flags | OFlags::TMPFILE, mode) {
        Ok(file) => file,
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => named_for_a_moment(dir, flags, mode)?,
        Err(error) => return Err(error.into()),
    };
    if rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, LAP_BYTES_MAX).is_err() {
        rustix::fs::ftruncate(&file, LAP_BYTES_MAX)?;
    }
    Ok(file)
}

/// For file systems without unnamed files.
fn named_for_a_moment(dir: BorrowedFd<'_>, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // O_EXCL decides should another host on shared storage have the same process number.
    let name = format!(".thalweg-probe-{}-{count}", std::process::id());
    let file = rustix::fs::openat(dir, name.as_str(), flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, mode)?;
    rustix::fs::unlinkat(dir, name.as_str(), rustix::fs::AtFlags::empty())?;
    Ok(file)
}

fn incompressible_bytes() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(128 << 10);
    while bytes.len() < 128 << 10 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    const BUDGET: Duration = Duration::from_millis(150);

    #[test]
    fn memory_is_not_raced() {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        if !needs::met(mounts.lines().any(|line| line.contains(" /dev/shm tmpfs ")), "/dev/shm is no tmpfs") {
            return;
        }
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let directory = File::open(directory.path()).unwrap();
        let verdict = probe_write(directory.as_fd(), true, BUDGET);
        assert_eq!(verdict.chosen, EngineKind::PreadPwrite);
        assert_eq!((verdict.plain_bytes_per_second, verdict.uring_bytes_per_second), (None, None));
        assert!(verdict.reason.starts_with("memory (tmpfs)"), "{}", verdict.reason);
    }

    #[test]
    fn a_race_leaves_nothing_behind_and_keeps_both_figures() {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let opened = File::open(directory.path()).unwrap();
        for fsync in [true, false] {
            let verdict = probe_write(opened.as_fd(), fsync, BUDGET);
            if needs::met(!facts::is_memory_backed(opened.as_fd()), "/var/tmp is in memory") {
                assert!(verdict.plain_bytes_per_second.is_some(), "{}", verdict.reason);
            }
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_a_reason_not_a_failure() {
        let proc = File::open("/proc/self").unwrap();
        let verdict = probe_write(proc.as_fd(), false, BUDGET);
        assert_eq!(verdict.chosen, EngineKind::PreadPwrite);
        assert!(verdict.reason.starts_with("not measured: "), "{}", verdict.reason);
    }

    #[test]
    fn a_stalled_lap_is_given_up_with_what_it_had_done() {
        let (release, gate) = mpsc::channel::<()>();
        let lap = run_lap(EngineKind::PreadPwrite, Duration::ZERO, move |_, progress: &Progress| {
            progress.store(4096, Ordering::Relaxed);
            let _ = gate.recv();
            Err(io::Error::other("ended after nobody listened"))
        });
        drop(release);
        assert_eq!(lap.unwrap().bytes, 4096);
    }

    #[test]
    fn one_round_is_enough_where_the_queue_too_is_slow_and_not_after_a_lap_that_hesitated() {
        let slice = Duration::from_millis(25);
        let is_clear = |plain: (u64, u64), uring: (u64, u64)| {
            let score = |kind, (bytes, ms): (u64, u64)| {
                let elapsed = Duration::from_millis(ms);
                let mut score = Score::default();
                score.take(Ok(Lap { bytes, elapsed, engine: kind, fallback: None }));
                score
            };
            let race = Race { verb: "wrote", slice };
            race.is_clear(&score(EngineKind::PreadPwrite, plain), &score(EngineKind::UringDirect, uring))
        };
        assert!(is_clear((1 << 20, 200), (8 << 20, 80)));
        assert!(!is_clear((1 << 20, 160), (8 << 20, 25)), "one write took long");
        assert!(!is_clear((4 << 20, 200), (8 << 20, 200)));
    }

    #[test]
    fn the_queue_is_chosen_only_for_a_clear_gain() {
        let score = |rate, engine| Score { bytes_per_second: Some(rate), engine: Some(engine), ..Score::default() };
        let judge = |plain, uring| {
            let race = Race { verb: "wrote", slice: Duration::ZERO };
            race.judge(score(plain, EngineKind::PreadPwrite), score(uring, EngineKind::UringDirect)).chosen
        };
        assert_eq!(judge(100, 119), EngineKind::PreadPwrite);
        assert_eq!(judge(100, 120), EngineKind::UringDirect);
        assert_eq!(judge(0, 120), EngineKind::UringDirect);
        assert_eq!(judge(0, 0), EngineKind::PreadPwrite);
        assert_eq!(judge(100, 0), EngineKind::PreadPwrite);
    }
}
