//! Reads an extent log back: what may be relied on after a crash, and how to go on writing.
//!
//! A record whose checksum fails ends the log (a torn tail: the ordinary trace of a crash). A record whose checksum holds
//! and whose content cannot be right makes the whole log unusable: no crash writes that.

use super::form::{Unusable, Violation};
use super::header::Header;
use super::record::{Appender, Body, RECORD_BYTES, Record, link_of};
use model::{Digest, Extent, mutant};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

/// Where a chunk lies in its object, and the digest of its content.
pub type Chunk = (Extent, Digest);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replayed {
    pub header: Header,
    /// Each chunk once, in the order first recorded.
    pub extents: Vec<Chunk>,
    /// What there is of chunks that were growing, by their start, with its CRC-64: the longest recorded. Never relied on unread.
    pub prefixes: BTreeMap<u64, (Extent, u64)>,
    /// The last record says that this part of the object has come to its end here: all `extents` are durable, and nobody writes for
    /// this log any more.
    pub range: Option<Extent>,
    /// So many of `extents`, from the first, are durable by the word of a checkpoint.
    pub durable_count: usize,
    /// Length of the part that verified; anything behind it is a torn tail.
    pub good_bytes: usize,
    end: Appender,
}

/// How the next attempt goes on in the same file, in the boot that started the log. It has to be cut to `keep_bytes` before
/// anything is appended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Continuation {
    pub keep_bytes: usize,
    pub appender: Appender,
}

/// Reads a whole log.
pub fn replay(bytes: &[u8]) -> Result<Replayed, Unusable> {
    let (header, header_bytes, crc) = Header::decode(bytes)?;
    let mut fold = Fold {
        end: Appender::new(&header, crc),
        extents: Vec::new(),
        first_records: Vec::new(),
        positions: HashMap::new(),
        prefixes: BTreeMap::new(),
        range: None,
        durable_records: 0,
    };
    let mut rest = &bytes[header_bytes..];
    while let Some((record, tail)) = rest.split_first_chunk::<RECORD_BYTES>() {
        let index = fold.end.sequence();
        match fold.step(record) {
            Ok(true) => rest = tail,
            Ok(false) => break,
            Err(violation) => return Err(Unusable::Record { index, violation }),
        }
    }
    let durable_count = fold.first_records.partition_point(|&record| record < fold.durable_records);
    let good_bytes = bytes.len() - rest.len();
    assert_eq!(good_bytes, header_bytes + fold.end.sequence() as usize * RECORD_BYTES);
    // Torn bytes behind it are somebody's who went on.
    let range = fold.range.filter(|_| rest.is_empty());
    let Fold { extents, prefixes, end, .. } = fold;
    Ok(Replayed { header, extents, prefixes, range, durable_count, good_bytes, end })
}

impl Replayed {
    /// Nothing in another boot than the one that started the log: in the old file a later checkpoint would vouch for what is
    /// not known to be there, so that a new log has to say what was found. Nor is a log of version 1 continued.
    pub fn continuation(&self, boot: &[u8; 16]) -> Option<Continuation> {
        let may = self.is_of(boot) && self.header.object_bytes.is_none();
        may.then(|| Continuation { keep_bytes: self.good_bytes, appender: self.end.clone() })
    }

    fn is_of(&self, boot: &[u8; 16]) -> bool {
        self.header.boot == *boot || mutant::is_on("ignore-reboot")
    }

    /// What may be relied on unread, and what has to be read back and compared first. In the same boot a checkpoint is
    /// enough; after another one not even that, because names may be those of older files.
    pub fn sure_and_doubtful(&self, boot: &[u8; 16]) -> (&[Chunk], &[Chunk]) {
        self.extents.split_at(if self.is_of(boot) { self.durable_count } else { 0 })
    }
}

/// What the records so far amount to.
struct Fold {
    end: Appender,
    extents: Vec<Chunk>,
    /// For each of `extents`, the record that had it first; ascending.
    first_records: Vec<u32>,
    /// Where in `extents` the chunk at an offset is.
    positions: HashMap<u64, usize>,
    prefixes: BTreeMap<u64, (Extent, u64)>,
    /// Of the last record.
    range: Option<Extent>,
    /// The largest number of records that a checkpoint vouched for.
    durable_records: u32,
}

impl Fold {
    /// Takes one record; false when it does not verify.
    fn step(&mut self, bytes: &[u8; RECORD_BYTES]) -> Result<bool, Violation> {
        let Some(record) = Record::decode(bytes, self.end.link(), self.end.algorithm()) else { return Ok(false) };
        let record = record?;
        if record.sequence != self.end.sequence() {
            return Err(Violation::Sequence);
        }
        if record.sequence >= self.end.records_max(&record.body) {
            return Err(Violation::TooMany);
        }
        self.end.check(&record.body)?;
        match record.body {
            Body::Extent(extent, digest) => self.add(extent, digest, record.sequence)?,
            Body::Prefix(extent, crc) => self.add_prefix(extent, crc)?,
            Body::Checkpoint { records } => self.durable_records = self.durable_records.max(records),
            Body::Range(_) => {}
        }
        self.range = match record.body {
            Body::Range(range) => Some(range),
            _ => None,
        };
        self.end.advance(&record.body, link_of(bytes));
        Ok(true)
    }

    fn add(&mut self, extent: Extent, digest: Digest, record: u32) -> Result<(), Violation> {
        match self.positions.entry(extent.start) {
            Entry::Occupied(known) if self.extents[*known.get()] != (extent, digest) => {
                return Err(Violation::Contradiction);
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => {
                free.insert(self.extents.len());
                self.extents.push((extent, digest));
                self.first_records.push(record);
            }
        }
        Ok(())
    }

    fn add_prefix(&mut self, extent: Extent, crc: u64) -> Result<(), Violation> {
        match self.prefixes.insert(extent.start, (extent, crc)) {
            Some((before, _)) if before.end > extent.end => Err(Violation::Prefix),
            Some((before, known)) if before == extent && known != crc => Err(Violation::Contradiction),
            _ => Ok(()),
        }
    }
}
