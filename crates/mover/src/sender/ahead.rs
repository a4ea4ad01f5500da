//! Content that was read ahead of the network: frames that wait in a spool until a lane sends them.
//!
//! Invariants:
//! - The room of a frame is free again when it was sent, or is not to be.
//! - Nothing of it survives the process, and nothing has to: what was not sent is read again.
//!
//! Not here: reading (`read_ahead`), and which frame goes next (`SendJob::claim`).

use crate::stream::{Breaker, Stream, Unit};
use model::options::Buffer;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::spool::{Kind, OWNER_BYTES, Owner, Parcel, Room, Spool};
use wire::frame::{FrameHeader, HEADER_BYTES};

/// How often whoever waits for room looks whether the job is over.
const ROOM_INTERVAL: Duration = Duration::from_millis(100);

pub struct Ahead {
    spool: Arc<Spool>,
    owner: Owner,
    how: Buffer,
    /// Lanes that read into it; others read nothing meanwhile.
    readers: AtomicU32,
    /// Frames that are being read.
    open: AtomicU32,
    waiting_bytes: Arc<AtomicU64>,
    lost: OnceLock<String>,
}

/// A frame that waits to be sent.
pub struct Ready {
    pub unit: Unit,
    parcel: Parcel,
    spool: Arc<Spool>,
    waiting_bytes: Arc<AtomicU64>,
}

impl Ready {
    pub fn frame_bytes(&self) -> u64 {
        self.parcel.bytes
    }

    /// Fills the buffer with what stands from `at` on in the frame.
    pub fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.parcel.read_exact_at(buffer, at)
    }
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.unit.fmt(f)
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        self.waiting_bytes.fetch_sub(self.parcel.bytes, Relaxed);
        self.spool.release(&self.parcel);
    }
}

impl Ahead {
    /// `weight`: how much the job counts beside others.
    pub fn new(spool: Arc<Spool>, how: Buffer, weight: u32) -> Ahead {
        let mut owner = [0; OWNER_BYTES];
        for part in owner.chunks_exact_mut(8) {
            part.copy_from_slice(&os::random().unwrap_or(0).to_le_bytes());
        }
        let owner = Owner(owner);
        spool.expect(owner, weight);
        Ahead {
            spool,
            owner,
            how,
            readers: AtomicU32::new(0),
            open: AtomicU32::new(0),
            waiting_bytes: Arc::default(),
            lost: OnceLock::new(),
        }
    }

    pub fn spool(&self) -> &Spool {
        &self.spool
    }

    pub fn how(&self) -> Buffer {
        self.how
    }

    pub fn capacity_bytes(&self) -> u64 {
        self.spool.capacity_bytes()
    }

    pub fn waiting_bytes(&self) -> &Arc<AtomicU64> {
        &self.waiting_bytes
    }

    /// One more lane reads into it.
    pub fn enter(&self) {
        self.readers.fetch_add(1, Relaxed);
    }

    pub fn leave(&self) {
        self.readers.fetch_sub(1, Relaxed);
    }

    /// Others are to leave reading to it.
    pub fn has_readers(&self) -> bool {
        self.readers.load(Relaxed) > 0
    }

    /// Something is being read that will be ready.
    pub fn is_reading(&self) -> bool {
        self.open.load(Relaxed) > 0
    }

    /// Something waits to be sent.
    pub fn has_waiting(&self) -> bool {
        self.waiting_bytes.load(Relaxed) > 0
    }

    /// It is not used any more. The first reason stands; true when this is it.
    pub fn lose(&self, why: String) -> bool {
        self.lost.set(why).is_ok()
    }

    pub fn why_lost(&self) -> Option<&String> {
        self.lost.get()
    }

    /// Room for a frame, waiting as long as frames leave. Without any: nobody would make room.
    fn room(&self, bytes: u64, is_over: &dyn Fn() -> bool) -> io::Result<Room> {
        loop {
            let has_own = self.waiting_bytes.load(Relaxed) > 0 || self.open.load(Relaxed) > 0;
            if is_over() || self.lost.get().is_some() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let room = self.spool.reserve_within(self.owner, Kind::Content, bytes, ROOM_INTERVAL);
            match room.map_err(io::Error::other)? {
                Some(room) => return Ok(room),
                None if has_own => {}
                None => return Err(io::ErrorKind::WouldBlock.into()),
            }
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // What is still there has no journal: whoever opens the spool next finds it free.
        let _ = self.spool.end(self.owner);
    }
}

/// A stream into the spool: what a lane sends on it is ready to be sent on another one.
pub struct Filling<'a> {
    ahead: &'a Ahead,
    is_over: &'a (dyn Fn() -> bool + Sync),
    ready: &'a (dyn Fn(Ready) + Sync),
    unit: Option<Unit>,
    /// The frame that is being written, and how much of it is missing.
    open: Option<(Room, Open<'a>, u64)>,
    blocked_ns: u64,
}

/// Counts a frame as long as it is written.
struct Open<'a>(&'a Ahead);

impl<'a> Open<'a> {
    fn new(ahead: &'a Ahead) -> Open<'a> {
        ahead.open.fetch_add(1, Relaxed);
        Open(ahead)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

impl<'a> Filling<'a> {
    pub fn new(
        ahead: &'a Ahead,
        is_over: &'a (dyn Fn() -> bool + Sync),
        ready: &'a (dyn Fn(Ready) + Sync),
    ) -> Filling<'a> {
        Filling { ahead, is_over, ready, unit: None, open: None, blocked_ns: 0 }
    }

    /// Gives up the frame that is being written.
    pub fn give_up(&mut self) {
        (self.unit, self.open) = (None, None);
    }
}

impl Stream for Filling<'_> {
    fn announce(&mut self, unit: Unit) {
        self.unit = Some(unit);
    }

    fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let (mut room, open, mut left) = match self.open.take() {
            Some(open) => open,
            None => {
                let head = parts.first().and_then(|part| part.first_chunk()).ok_or(io::ErrorKind::InvalidInput)?;
                let header = FrameHeader::decode(head).map_err(io::Error::other)?;
                let bytes = HEADER_BYTES as u64 + u64::from(header.body_bytes);
                let began = os::time::Instant::now();
                let room = self.ahead.room(bytes, self.is_over);
                self.blocked_ns += began.elapsed().as_nanos() as u64;
                (room?, Open::new(self.ahead), bytes)
            }
        };
        for part in parts {
            room.write(part).map_err(io::Error::other)?;
            left -= part.len() as u64;
        }
        if left > 0 {
            self.open = Some((room, open, left));
            return Ok(());
        }
        let unit = self.unit.take().ok_or(io::ErrorKind::InvalidInput)?;
        let parcel = room.commit().map_err(io::Error::other)?;
        let (spool, waiting_bytes) = (self.ahead.spool.clone(), self.ahead.waiting_bytes.clone());
        waiting_bytes.fetch_add(parcel.bytes, Relaxed);
        (self.ready)(Ready { unit, parcel, spool, waiting_bytes });
        drop(open);
        Ok(())
    }

    fn recv_exact(&mut self, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn close(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn is_broken(&self) -> bool {
        false
    }

    fn breaker(&self) -> Breaker {
        Arc::new(|| {})
    }

    fn send_blocked_ns(&self) -> u64 {
        self.blocked_ns
    }

    fn recv_blocked_ns(&self) -> u64 {
        0
    }

    fn is_network(&self) -> bool {
        false
    }
}
