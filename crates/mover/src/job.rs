//! What the two halves of a job have in common: how they speak to each other, how they end, who watches.

use crate::job_options;
use model::follow::View;
use model::name::Escaped;
use model::options::{INSTEAD_OF_MAX, Slice};
use model::pace::Timetable;
use model::progress::Behind;
use model::{Change, Class, Digest, Extent, Failure, Fidelity, JobId, Name, TransferOptions};
use os::sync::{Condvar, Mutex};
use os::time::Instant;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use wire::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX, VIEW_PATTERNS_MAX};
use wire::message::Finished;
use wire::{CloseCode, Message, Refusal};

/// Carries messages to the other half of a job: over a control stream, or by a call where both are in one process.
pub trait Port: Send + Sync {
    /// Never blocks on the other half's work; a message that cannot be carried any more is dropped, because then the
    /// session ends and both halves hear of it.
    fn send(&self, message: Message);

    /// Waits until what was sent before has gone, as far as it waits in this process: for messages that nothing bounds but
    /// the work behind them. Not from the thread that receives.
    fn make_room(&self) {}
}

/// An object that was verified and published.
#[derive(Debug)]
pub struct Delivered {
    /// Relative to the destination of the job.
    pub path: Vec<u8>,
    pub size_bytes: u64,
    pub digest: Digest,
}

/// What becomes of files that are followed. Paths are relative to the destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Followed {
    /// Complete, compared and published.
    Sealed { path: Vec<u8>, size_bytes: u64 },
    /// It went on after it had been published, and is sent again.
    Reopened { path: Vec<u8> },
    /// It became shorter than what was sent of it, and begins anew.
    Truncated { path: Vec<u8> },
    /// Another file has its name.
    Replaced { path: Vec<u8> },
    /// Its writer went back and changed what had been sent.
    Rewritten { path: Vec<u8> },
    /// It was removed before it was complete.
    Vanished { path: Vec<u8> },
    /// It has another name, under which it goes on.
    Moved { path: Vec<u8>, to: Vec<u8> },
    /// How far the destination is behind, each second.
    Lag(Behind),
    /// The destination is further behind than the user wants to hear nothing of, or is not any more.
    LagAlarm(Behind),
}

/// Watches what becomes of each object. Called in batches, from any thread, never under a lock of the data path.
pub trait Observer: Send + Sync {
    /// Whether paths and digests are wanted at all: making them costs.
    fn wants_delivered(&self) -> bool {
        true
    }

    fn delivered(&self, batch: &[Delivered]);

    fn failed(&self, failure: &Failure);

    fn followed(&self, event: &Followed) {
        let _ = event;
    }

    /// Whether changes are told here; otherwise the receiver tells the sender of them.
    fn wants_changes(&self) -> bool {
        false
    }

    fn changed(&self, changes: &[Change]) {
        let _ = changes;
    }
}

/// How a job ended.
#[derive(Clone, Debug)]
pub enum Ending {
    /// Everything listed is settled and finished at the receiver.
    Finished(Finished),
    /// One side gave up.
    Cancelled { by_peer: bool, refusal: Refusal },
    /// The session was lost under it; what is verified is kept.
    Lost(String),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Finished(_) => f.write_str("finished"),
            Ending::Cancelled { by_peer: true, refusal } => write!(f, "the other side stopped it: {refusal}"),
            Ending::Cancelled { refusal, .. } => write!(f, "{refusal}"),
            Ending::Lost(why) => write!(f, "the connection was lost: {}", Escaped(why.as_bytes())),
        }
    }
}

/// A place where the first ending is kept and waited for.
#[derive(Default)]
pub struct End {
    ending: Mutex<Option<Ending>>,
    ended: Condvar,
}

impl End {
    /// True when this ending is the first.
    pub fn set(&self, ending: Ending) -> bool {
        let mut held = self.ending.lock().unwrap();
        if held.is_some() {
            return false;
        }
        *held = Some(ending);
        self.ended.notify_all();
        true
    }

    pub fn get(&self) -> Option<Ending> {
        self.ending.lock().unwrap().clone()
    }

    pub fn is_set(&self) -> bool {
        self.ending.lock().unwrap().is_some()
    }

    /// Waits for the end, at most for `patience`.
    pub fn wait(&self, patience: Duration) -> Option<Ending> {
        let deadline = Instant::now() + patience;
        let mut held = self.ending.lock().unwrap();
        while held.is_none() {
            let left = deadline.checked_duration_since(Instant::now())?;
            held = self.ended.wait_timeout(held, left).unwrap().0;
        }
        held.clone()
    }
}

/// Starts one of a job's threads. One that panics, or that the system does not give, ends the job and not the process (F092).
pub(crate) fn spawn<J: Send + Sync + 'static>(
    job: &Arc<J>,
    name: &'static str,
    run: impl FnOnce(&Arc<J>) + Send + 'static,
    cancel: fn(&J, CloseCode, &str),
) {
    let of_thread = job.clone();
    let guarded = move || {
        if panics(|| run(&of_thread)) {
            cancel(&of_thread, CloseCode::Internal, "a thread of this program failed; this is a bug");
        }
    };
    if let Err(e) = os::thread::spawn(name, guarded) {
        cancel(job, CloseCode::Internal, &format!("no thread could be started for the job: {e}"));
    }
}

/// Runs a thread's work; true when it panicked. The panic itself was reported by the hook on its way.
pub(crate) fn panics(work: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err()
}

pub fn cancelled(code: CloseCode, text: &str) -> Ending {
    Ending::Cancelled { by_peer: false, refusal: Refusal::new(code, text) }
}

/// Whoever has a job carried out: asked again and again while it runs.
pub trait Guide {
    /// It is to end now.
    fn is_over(&self) -> bool;

    /// How fast it may be, from now on.
    fn pace(&self, options: &TransferOptions) -> Option<Arc<Timetable>> {
        options.pace.clone()
    }
}

impl<F: Fn() -> bool> Guide for F {
    fn is_over(&self) -> bool {
        self()
    }
}

/// The options of a job as they travel.
pub fn options_to_wire(options: &TransferOptions) -> wire::message::Options {
    use model::DigestAlgorithm::{Blake3, Crc64Nvme};
    use model::options::{Buffer, Compression, Engine, Fsync, Verify};
    const GIVEN: u32 = 0o10000;
    wire::message::Options {
        fsync: match options.fsync {
            Fsync::File => 1,
            Fsync::Batch => 2,
            Fsync::Never => 3,
        },
        verify: match options.verify {
            // Between hosts everything is verified; who asks for less is told before a job is opened.
            Verify::Stream | Verify::None => 1,
            Verify::Reread => 2,
        },
        digest: match options.digest {
            Crc64Nvme => 1,
            Blake3 => 2,
        },
        chunk_bytes: options.chunk_bytes,
        no_clobber: options.no_clobber,
        chmod_files: options.chmod.map_or(0, |(mode, _)| mode | GIVEN),
        chmod_directories: options.chmod.map_or(0, |(_, mode)| mode | GIVEN),
        engine: match options.engine {
            Engine::Auto => 0,
            Engine::Plain => 1,
            Engine::Uring => 2,
        },
        depths: job_options::depths_to_wire(options.depths),
        selection: job_options::selection_to_wire(&options.selection),
        decisions: job_options::decisions_to_wire(options),
        fidelity: options.fidelity.to_bits(),
        compression: match options.compression {
            Compression::None => 0,
            Compression::Auto => 1,
            Compression::Zstd => 2,
            Compression::Lz4 => 3,
        },
        congestion: options.congestion.clone().unwrap_or_default(),
        shows_prefix: options.view.is_some(),
        buffer: match options.buffer {
            Buffer::Auto => 0,
            Buffer::Always => 1,
            Buffer::Never => 2,
        },
        class: options.class.map_or(0, |class| class as u32),
        sealed_list: options.sealed_list.as_ref().map_or(Vec::new(), |name| name.as_bytes().to_vec()),
        is_slice: options.slice.is_some(),
        instead_of: options.slice.iter().flat_map(|slice| &slice.instead_of).map(|job| job.0.to_vec()).collect(),
        run: options.slice.as_ref().and_then(|slice| slice.run).map_or(Vec::new(), |run| run.0.to_vec()),
        range_start: options.slice.as_ref().and_then(|slice| slice.range).map_or(0, |range| range.start),
        range_end: options.slice.as_ref().and_then(|slice| slice.range).map_or(0, |range| range.end),
        unfinished: options.view.as_ref().map_or(Vec::new(), |view| view.unfinished.join(&b'/')),
    }
}

/// Reads a peer's options; anything out of range is refused, never adjusted.
pub fn options_from_wire(options: &wire::message::Options) -> Result<TransferOptions, Refusal> {
    use model::DigestAlgorithm::{Blake3, Crc64Nvme};
    use model::options::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, Compression, Engine, Fsync, Verify, is_congestion_name};
    let refused = |what: &str| Refusal::new(CloseCode::Malformed, &format!("unknown {what} in the options of a job"));
    let range = CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX;
    if !options.chunk_bytes.is_power_of_two() || !range.contains(&options.chunk_bytes) {
        return Err(refused("chunk length"));
    }
    let chmod = match (options.chmod_files, options.chmod_directories) {
        (0, 0) => None,
        (files @ 0o10000..=0o10777, directories @ 0o10000..=0o10777) => Some((files & 0o777, directories & 0o777)),
        _ => return Err(refused("permission bits")),
    };
    let mut taken = TransferOptions {
        fsync: match options.fsync {
            1 => Fsync::File,
            2 => Fsync::Batch,
            3 => Fsync::Never,
            _ => return Err(refused("durability")),
        },
        verify: match options.verify {
            1 => Verify::Stream,
            2 => Verify::Reread,
            _ => return Err(refused("verification")),
        },
        digest: match options.digest {
            1 => Crc64Nvme,
            2 => Blake3,
            _ => return Err(refused("digest")),
        },
        chunk_bytes: options.chunk_bytes,
        no_clobber: options.no_clobber,
        chmod,
        engine: match options.engine {
            0 => Engine::Auto,
            1 => Engine::Plain,
            2 => Engine::Uring,
            _ => return Err(refused("engine")),
        },
        compression: match options.compression {
            0 => Compression::None,
            1 => Compression::Auto,
            2 => Compression::Zstd,
            3 => Compression::Lz4,
            _ => return Err(refused("compression")),
        },
        selection: Arc::new(job_options::selection_from_wire(options.selection.as_ref())?),
        fidelity: Fidelity::from_bits(options.fidelity).ok_or_else(|| refused("metadata"))?,
        congestion: match options.congestion.as_str() {
            "" => None,
            name if is_congestion_name(name) => Some(name.to_owned()),
            _ => return Err(refused("congestion control")),
        },
        class: match options.class {
            0 => None,
            number => Some(Class::from_number(number).ok_or_else(|| refused("class"))?),
        },
        depths: job_options::depths_from_wire(options.depths)?,
        view: view_from_wire(options)?,
        sealed_list: list_from_wire(&options.sealed_list)?,
        buffer: buffer_from_wire(options.buffer).ok_or_else(|| refused("use of buffers"))?,
        slice: slice_from_wire(options).ok_or_else(|| refused("slice"))?,
        ..TransferOptions::default()
    };
    job_options::decisions_from_wire(options.decisions.as_ref(), &mut taken)?;
    Ok(taken)
}

fn buffer_from_wire(number: u32) -> Option<model::options::Buffer> {
    use model::options::Buffer;
    [Buffer::Auto, Buffer::Always, Buffer::Never].get(number as usize).copied()
}

fn slice_from_wire(options: &wire::message::Options) -> Option<Option<Arc<Slice>>> {
    let instead_of: Option<Vec<_>> = options.instead_of.iter().map(|job| JobId::from_slice(job)).collect();
    let instead_of = instead_of.filter(|jobs| jobs.len() <= INSTEAD_OF_MAX)?;
    let run = match &options.run[..] {
        [] => None,
        run => Some(JobId::from_slice(run)?),
    };
    let range = match (options.range_start, options.range_end) {
        (0, 0) => None,
        (start, end) if start < end && run.is_some() => Some(Extent::new(start, end)),
        _ => return None,
    };
    let slice = Slice { instead_of, run, range };
    (options.is_slice || slice == Slice::default()).then(|| options.is_slice.then(|| Arc::new(slice)))
}

fn list_from_wire(name: &[u8]) -> Result<Option<Name>, Refusal> {
    let refused = || Refusal::new(CloseCode::Malformed, "a list of what is complete with a name that is refused");
    if name.is_empty() {
        return Ok(None);
    }
    let name = Name::new(name).ok().filter(|name| !name.as_bytes().starts_with(store::STAGING_PREFIX));
    name.map(Some).ok_or_else(refused)
}

fn view_from_wire(options: &wire::message::Options) -> Result<Option<Arc<View>>, Refusal> {
    let told = options.unfinished.split(|byte| *byte == b'/').filter(|_| !options.unfinished.is_empty());
    let unfinished: Vec<Box<[u8]>> = told.map(Box::from).collect();
    if !unfinished.iter().all(|pattern| (1..=NAME_BYTES_MAX).contains(&pattern.len()))
        || unfinished.len() > VIEW_PATTERNS_MAX
        || !options.shows_prefix && !unfinished.is_empty()
    {
        return Err(Refusal::new(
            CloseCode::Malformed,
            "names of growing files that are too many, too long or not used",
        ));
    }
    Ok(options.shows_prefix.then(|| Arc::new(View { unfinished })))
}

/// A path as a peer names it, as far as it is kept.
pub(crate) fn bounded_path(path: &[u8]) -> Vec<u8> {
    path[..path.len().min(PATH_BYTES_MAX)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_travel_unchanged_and_strange_ones_are_refused() {
        let fidelity = Fidelity { acls: true, hard_links: true, ..Fidelity::default() };
        let chmod = Some((0o640, 0o750));
        let options = TransferOptions {
            chmod,
            no_clobber: true,
            compression: model::options::Compression::Zstd,
            fidelity,
            congestion: Some("bbr".into()),
            class: Some(Class::High),
            view: Some(Arc::new(View { unfinished: vec![b"*.tmp"[..].into(), b"a?"[..].into()] })),
            sealed_list: Some(Name::new(b"DONE").unwrap()),
            ..TransferOptions::default()
        };
        let wire = options_to_wire(&options);
        assert_eq!(options_from_wire(&wire), Ok(options));
        for change in [
            |o: &mut wire::message::Options| o.chunk_bytes = 3 << 20,
            |o: &mut wire::message::Options| o.chunk_bytes = 1 << 40,
            |o: &mut wire::message::Options| o.fsync = 0,
            |o: &mut wire::message::Options| o.compression = 4,
            |o: &mut wire::message::Options| o.chmod_files = 0o14777,
            |o: &mut wire::message::Options| o.fidelity = 1 << 20,
            |o: &mut wire::message::Options| o.congestion = "../bbr".into(),
            |o: &mut wire::message::Options| o.congestion = "b".repeat(16),
            |o: &mut wire::message::Options| o.class = 4,
            |o: &mut wire::message::Options| o.shows_prefix = false,
            |o: &mut wire::message::Options| o.unfinished = vec![b'*'; 256],
            |o: &mut wire::message::Options| o.unfinished = b"*/".repeat(16),
        ] {
            let mut bad = wire.clone();
            change(&mut bad);
            assert!(options_from_wire(&bad).is_err());
        }
    }
}
