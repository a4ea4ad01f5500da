//! A lane's stream that another thread can take over while the lane is stuck in storage.
//!
//! A lane in the middle of a chunk learns that storage stands still by the write that does not come back. Then the rest of its frame
//! goes to the spool, where the lane finds it later, and whoever has taken the stream over goes on with the next frame.
//!
//! Invariants:
//! - A frame has one reader: the lane that began it. What was put aside for it is read by nobody else, and released by it.
//! - A stream changes hands between two reads of it, never during one.
//! - What was put aside and cannot be read again breaks the stream off that it came from: then its sender sends it again.
//!
//! Not here: lanes (`receive`), and which frames wait in the spool (`keep`).

use super::hold::{Hold, REST_HEAD};
use crate::limits::STORAGE_LATE;
use crate::progress::LaneWatch;
use crate::stream::{Breaker, Stream};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use store::spool::{Parcel, Room};
use wire::frame::{FrameHeader, HEADER_BYTES};

/// How often a lane is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(25);
/// How much is put aside at a time.
const PART_BYTES: usize = 128 << 10;

/// What a lane and its watcher share.
pub(super) struct Lending<S> {
    state: Mutex<State<S>>,
    changed: Condvar,
    is_done: AtomicBool,
    breaker: Breaker,
}

struct State<S> {
    stream: Option<S>,
    /// Of the frame that is being read.
    frame_left: u64,
    rest: Rest,
}

enum Rest {
    None,
    /// It is being put aside.
    Coming,
    There(Parcel, u64),
    Failed,
}

impl<S: Stream> Lending<S> {
    pub fn new(stream: S) -> Lending<S> {
        let breaker = stream.breaker();
        let state = State { stream: Some(stream), frame_left: 0, rest: Rest::None };
        Lending { state: Mutex::new(state), changed: Condvar::new(), is_done: AtomicBool::new(false), breaker }
    }

    /// The lane came to its end.
    pub fn done(&self) {
        self.is_done.store(true, Relaxed);
    }

    pub fn break_off(&self) {
        (self.breaker)();
    }

    /// Waits until the lane is stuck in storage, and takes its stream over, at the beginning of a frame. Nothing when the lane came
    /// to its end before; an error when the stream failed.
    pub fn take(&self, hold: &Hold, lane: &LaneWatch, may_take: &mut dyn FnMut() -> bool) -> io::Result<Option<S>> {
        let mut waited_before = None;
        loop {
            std::thread::park_timeout(LOOK_INTERVAL);
            if self.is_done.load(Relaxed) {
                return Ok(None);
            }
            if !lane.is_in_storage_for(STORAGE_LATE) {
                waited_before = None;
                continue;
            }
            // A lane that waits for a processor is no sign of storage.
            let waited = lane.waited_ns();
            let is_starved = |before: u64| waited.saturating_sub(before) > LOOK_INTERVAL.as_nanos() as u64 / 2;
            if waited_before.replace(waited).is_none_or(is_starved) {
                continue;
            }
            // A lane that reads is not stuck.
            let Ok(mut state) = self.state.try_lock() else { continue };
            let left = if model::mutant::is_on("take-over-in-mid-frame") { 0 } else { state.frame_left };
            let room = match left {
                0 => None,
                _ => match hold.room_for_rest(left) {
                    Some(room) => Some(room),
                    None => continue,
                },
            };
            if !may_take() {
                continue;
            }
            let Some(mut stream) = state.stream.take() else { return Ok(None) };
            let Some(room) = room else { return Ok(Some(stream)) };
            state.rest = Rest::Coming;
            drop(state);
            let put = put_aside(&mut stream, room, left);
            let mut state = self.state.lock().unwrap();
            let (rest, put) = match put {
                Ok(parcel) => (Rest::There(parcel, REST_HEAD.len() as u64), Ok(Some(stream))),
                Err(e) => (Rest::Failed, Err(e)),
            };
            state.rest = rest;
            self.changed.notify_all();
            return put;
        }
    }
}

/// Moves what is left of a frame from a stream to its room.
fn put_aside(stream: &mut impl Stream, mut room: Room, mut missing: u64) -> io::Result<Parcel> {
    let mut part = vec![0; PART_BYTES];
    room.write(&REST_HEAD).map_err(io::Error::other)?;
    while missing > 0 {
        let part = &mut part[..missing.min(PART_BYTES as u64) as usize];
        stream.recv_exact(part)?;
        room.write(part).map_err(io::Error::other)?;
        missing -= part.len() as u64;
    }
    room.commit().map_err(io::Error::other)
}

/// The stream, as the lane has it that may lose it.
pub(super) struct Lent<'a, S> {
    lending: &'a Lending<S>,
    hold: &'a Hold,
    blocked_ns: u64,
}

impl<'a, S: Stream> Lent<'a, S> {
    pub fn new(lending: &'a Lending<S>, hold: &'a Hold) -> Lent<'a, S> {
        Lent { lending, hold, blocked_ns: 0 }
    }
}

impl<S> State<S> {
    /// Notes what was read of the stream: a header, or of what follows it.
    fn passed(&mut self, bytes: &[u8]) {
        match bytes.first_chunk::<HEADER_BYTES>() {
            Some(head) if self.frame_left == 0 && bytes.len() == HEADER_BYTES => {
                // A header that cannot be read ends the lane.
                self.frame_left = FrameHeader::decode(head).map_or(0, |header| u64::from(header.body_bytes));
            }
            _ => self.frame_left = self.frame_left.saturating_sub(bytes.len() as u64),
        }
    }
}

impl<S: Stream> Stream for Lent<'_, S> {
    fn send(&mut self, _: &[&[u8]]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn recv_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let mut state = self.lending.state.lock().unwrap();
        if let Some(stream) = &mut state.stream {
            stream.recv_exact(buffer)?;
            self.blocked_ns = stream.recv_blocked_ns();
            state.passed(buffer);
            return Ok(());
        }
        while matches!(state.rest, Rest::Coming) {
            state = self.lending.changed.wait(state).unwrap();
        }
        if state.frame_left < buffer.len() as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Rest::There(parcel, at) = &mut state.rest else { return Err(io::ErrorKind::UnexpectedEof.into()) };
        if let Err(e) = parcel.read_exact_at(buffer, *at) {
            self.hold.lose(&format!("read the buffer: {e}"));
            self.lending.break_off();
            return Err(e);
        }
        *at += buffer.len() as u64;
        state.passed(buffer);
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        match &mut self.lending.state.lock().unwrap().stream {
            Some(stream) => stream.close(),
            None => Ok(()),
        }
    }

    fn is_broken(&self) -> bool {
        false
    }

    fn breaker(&self) -> Breaker {
        self.lending.breaker.clone()
    }

    fn send_blocked_ns(&self) -> u64 {
        0
    }

    fn recv_blocked_ns(&self) -> u64 {
        self.blocked_ns
    }
}

impl<S> Drop for Lent<'_, S> {
    fn drop(&mut self) {
        if let Ok(state) = self.lending.state.lock()
            && let Rest::There(parcel, _) = &state.rest
        {
            self.hold.spool().release(parcel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Progress;
    use model::options::Buffer;
    use model::progress::Stage;
    use std::sync::Arc;
    use store::spool::{OWNER_BYTES, Owner, Spool};
    use wire::FrameType;

    struct Bytes(Vec<u8>, Arc<AtomicBool>);

    impl Stream for Bytes {
        fn send(&mut self, _: &[&[u8]]) -> io::Result<()> {
            Ok(())
        }

        fn recv_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
            if self.0.len() < buffer.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let rest = self.0.split_off(buffer.len());
            buffer.copy_from_slice(&std::mem::replace(&mut self.0, rest));
            Ok(())
        }

        fn close(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn is_broken(&self) -> bool {
            false
        }

        fn breaker(&self) -> Breaker {
            let is_broken_off = self.1.clone();
            Arc::new(move || is_broken_off.store(true, Relaxed))
        }

        fn send_blocked_ns(&self) -> u64 {
            0
        }

        fn recv_blocked_ns(&self) -> u64 {
            0
        }
    }

    fn frames() -> Vec<u8> {
        let body = |byte: u8| vec![byte; 300 << 10];
        [wire::frame::encode(FrameType::Chunk, &body(1)), wire::frame::encode(FrameType::Chunk, &body(2))].concat()
    }

    /// What became of a stream that was taken over.
    struct Taken {
        /// By the lane that was stuck.
        read: Vec<u8>,
        next: io::Result<Option<Bytes>>,
        used_bytes: u64,
        is_broken_off: bool,
        is_lost: bool,
    }

    /// The stream ends early by `cut_bytes`, and with `is_spoiled` the spool's files do before they are read.
    fn take_over(cut_bytes: usize, is_spoiled: bool) -> Taken {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spool");
        let spool = Spool::open(&path, 16 << 20).unwrap();
        let hold = Hold::new(spool.clone(), Owner([1; OWNER_BYTES]), Buffer::Auto);
        let mut bytes = frames();
        bytes.truncate(bytes.len() - cut_bytes);
        let is_broken_off = Arc::<AtomicBool>::default();
        let lending = Lending::new(Bytes(bytes, is_broken_off.clone()));
        let mut lane = Lent::new(&lending, &hold);
        let progress = Progress::new();
        let mut clock = progress.lane(Stage::Receive);
        let mut read = vec![0; HEADER_BYTES + 1000];
        lane.recv_exact(&mut read[..HEADER_BYTES]).unwrap();
        lane.recv_exact(&mut read[HEADER_BYTES..]).unwrap();
        clock.enter(Stage::Write);
        let watch = clock.watch();
        let next = std::thread::scope(|scope| {
            let taken = scope.spawn(|| lending.take(&hold, &watch, &mut || true));
            taken.join().unwrap()
        });
        if is_spoiled {
            let segments = std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().path());
            let segments = segments.filter(|path| path.to_string_lossy().contains("segment"));
            segments.for_each(|path| std::fs::File::options().write(true).open(path).unwrap().set_len(0).unwrap());
        }
        let mut rest = vec![0; (300 << 10) - 1000];
        if lane.recv_exact(&mut rest).is_ok() {
            read.extend(rest);
            assert!(lane.recv_exact(&mut [0; HEADER_BYTES]).is_err(), "the next frame is another lane's");
        }
        drop(lane);
        let (is_broken_off, is_lost) = (is_broken_off.load(Relaxed), hold.why_lost().is_some());
        Taken { read, next, used_bytes: spool.used_bytes(), is_broken_off, is_lost }
    }

    #[test]
    fn a_stuck_lane_finds_the_rest_of_its_frame_and_another_goes_on_with_the_next() {
        let Taken { read, next, used_bytes, is_broken_off, is_lost } = take_over(0, false);
        let mut next = next.unwrap().unwrap();
        let frames = frames();
        assert!(read == frames[..frames.len() / 2] && next.0 == frames[frames.len() / 2..]);
        assert!(next.recv_exact(&mut [0; HEADER_BYTES]).is_ok());
        assert_eq!((used_bytes, is_broken_off, is_lost), (0, false, false), "what was put aside is released");
    }

    #[test]
    fn a_stream_that_fails_meanwhile_fails_both() {
        let Taken { read, next, used_bytes, .. } = take_over(500 << 10, false);
        assert!(next.is_err() && read.len() == HEADER_BYTES + 1000);
        assert_eq!(used_bytes, 0);
    }

    #[test]
    fn what_was_put_aside_and_cannot_be_read_breaks_its_stream_off_so_that_it_is_sent_again() {
        let Taken { read, next, is_broken_off, is_lost, .. } = take_over(0, true);
        assert!(next.is_ok() && read.len() == HEADER_BYTES + 1000);
        assert!(is_broken_off && is_lost);
    }
}
