//! A frame in the spool, and how it is written there. Its room is free again when nobody has it any more.
//!
//! ```text
//! kind u8 (1 pack, 2 chunk, 3 the rest of a frame) | reserved 3 | count u32 | what it brings ... | the frame as it travelled | is a seal u8 | is large u8
//!   what a pack brings: an object's id u64, count times; a chunk: object u64, start u64, end u64 (count is 3)
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use store::spool::{Parcel, Spool};
use wire::limits::PACK_FILES_MAX;
use wire::message::ExtentRecord;

/// Before the rest of a frame whose first part a lane has: nothing that a later attempt could use.
pub(crate) const REST_HEAD: [u8; 8] = [3, 0, 0, 0, 0, 0, 0, 0];

const HEAD_BYTES: u64 = 8;
const FLAGS_BYTES: u64 = 2;

/// What a frame brings.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Pack(Vec<u64>),
    Chunk {
        extent: ExtentRecord,
        /// The last word on its object is in its trailer.
        is_seal: bool,
        /// One of several chunks of its object.
        is_large: bool,
    },
}

impl What {
    pub fn objects(&self) -> impl Iterator<Item = u64> {
        let (pack, chunk) = match self {
            What::Pack(ids) => (&ids[..], None),
            What::Chunk { extent, .. } => (&[][..], Some(extent.object)),
        };
        pack.iter().copied().chain(chunk)
    }

    fn numbers(&self) -> (u8, Vec<u64>) {
        match self {
            What::Pack(ids) => (1, ids.clone()),
            What::Chunk { extent, .. } => (2, vec![extent.object, extent.start, extent.end]),
        }
    }

    /// What stands before the frame.
    pub fn head(&self) -> Vec<u8> {
        let (kind, numbers) = self.numbers();
        let mut head = vec![kind, 0, 0, 0];
        head.extend_from_slice(&(numbers.len() as u32).to_le_bytes());
        numbers.iter().for_each(|number| head.extend_from_slice(&number.to_le_bytes()));
        head
    }

    /// What stands behind it, known when all of it was received.
    pub fn flags(&self) -> [u8; FLAGS_BYTES as usize] {
        match self {
            What::Pack(_) => [0, 0],
            What::Chunk { is_seal, is_large, .. } => [u8::from(*is_seal), u8::from(*is_large)],
        }
    }

    /// What a frame of so many bytes takes in the spool.
    pub fn parcel_bytes(&self, frame_bytes: u64) -> u64 {
        HEAD_BYTES + 8 * self.numbers().1.len() as u64 + frame_bytes + FLAGS_BYTES
    }

    fn read(parcel: &Parcel) -> Option<What> {
        let mut head = [0; HEAD_BYTES as usize];
        parcel.read_exact_at(&mut head, 0).ok()?;
        let count = u32::from_le_bytes(head[4..8].try_into().expect("4 bytes")) as usize;
        if count > PACK_FILES_MAX.max(3) || parcel.bytes < HEAD_BYTES + 8 * count as u64 + FLAGS_BYTES {
            return None;
        }
        let mut numbers = vec![0; 8 * count];
        parcel.read_exact_at(&mut numbers, HEAD_BYTES).ok()?;
        let numbers: Vec<_> =
            numbers.chunks_exact(8).map(|number| u64::from_le_bytes(number.try_into().expect("8 bytes"))).collect();
        let mut flags = [0; FLAGS_BYTES as usize];
        parcel.read_exact_at(&mut flags, parcel.bytes - FLAGS_BYTES).ok()?;
        match (head[0], &numbers[..]) {
            (1, _) => Some(What::Pack(numbers)),
            (2, [object, start, end]) => {
                let extent = ExtentRecord { object: *object, start: *start, end: *end };
                Some(What::Chunk { extent, is_seal: flags[0] == 1, is_large: flags[1] == 1 })
            }
            _ => None,
        }
    }
}

pub(crate) struct Frame {
    spool: Arc<Spool>,
    parcel: Parcel,
    pub what: What,
    /// It stays in the spool when it is dropped.
    is_kept: Arc<AtomicBool>,
    waiting_bytes: Arc<AtomicU64>,
}

impl Frame {
    pub fn new(
        spool: &Arc<Spool>,
        parcel: Parcel,
        what: What,
        is_kept: &Arc<AtomicBool>,
        waiting_bytes: &Arc<AtomicU64>,
    ) -> Frame {
        waiting_bytes.fetch_add(parcel.bytes, Relaxed);
        let (spool, is_kept, waiting_bytes) = (spool.clone(), is_kept.clone(), waiting_bytes.clone());
        Frame { spool, parcel, what, is_kept, waiting_bytes }
    }

    /// One that an earlier process left; nothing when it is not what was written.
    pub fn found(
        spool: &Arc<Spool>,
        parcel: Parcel,
        is_kept: &Arc<AtomicBool>,
        waiting_bytes: &Arc<AtomicU64>,
    ) -> Option<Frame> {
        if !parcel.is_sound().unwrap_or(false) {
            return None;
        }
        let what = What::read(&parcel)?;
        Some(Frame::new(spool, parcel, what, is_kept, waiting_bytes))
    }

    pub fn parcel(&self) -> &Parcel {
        &self.parcel
    }

    /// Fills the buffer with what stands from `at` on in the frame.
    pub fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> std::io::Result<()> {
        let before = self.what.parcel_bytes(0) - FLAGS_BYTES;
        self.parcel.read_exact_at(buffer, before + at)
    }

    pub fn number(&self) -> u64 {
        self.parcel.number()
    }

    pub fn bytes(&self) -> u64 {
        self.parcel.bytes
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.waiting_bytes.fetch_sub(self.parcel.bytes, Relaxed);
        if !self.is_kept.load(Relaxed) {
            self.spool.release(&self.parcel);
        }
    }
}
