//! Reads an extent log back: what may be relied on after a crash, and how to go on writing.
//!
//! A record whose checksum fails ends the log (a torn tail: the ordinary trace of a crash). A record whose checksum holds
//! and whose content cannot be right makes the whole log unusable: no crash writes that.

use super::header::{Header, start};
use super::record::{Appender, Body, RECORD_BYTES, Record, link_of};
use super::{Unusable, Violation};
use model::{Digest, Extent, mutant};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replayed {
    pub header: Header,
    /// Each chunk once, in the order first recorded.
    pub extents: Vec<(Extent, Digest)>,
    /// So many of `extents`, from the first, are durable by the word of a checkpoint.
    pub durable_count: usize,
    /// Length of the part that verified; anything behind it is a torn tail.
    pub good_bytes: usize,
    end: Appender,
}

/// What the next attempt may rely on, and how it goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resume<'a> {
    /// The boot that started the log is still running, and everything recorded stands. The file has to be truncated to
    /// `keep_bytes` before anything is appended.
    Continue { extents: &'a [(Extent, Digest)], keep_bytes: usize, appender: Appender },
    /// Only what was durable stands. The file has to be replaced by a log that says just that (`restart`): in the old one,
    /// a later checkpoint would vouch for the rest.
    Restart { extents: &'a [(Extent, Digest)] },
}

/// Reads a whole log.
pub fn replay(bytes: &[u8]) -> Result<Replayed, Unusable> {
    let (header, header_bytes, crc) = Header::decode(bytes)?;
    let mut fold = Fold {
        end: Appender::new(&header, crc),
        extents: Vec::new(),
        first_records: Vec::new(),
        positions: HashMap::new(),
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
    Ok(Replayed { header, extents: fold.extents, durable_count, good_bytes, end: fold.end })
}

/// Begins a log that holds extents known to be durable: header, extents and a checkpoint. For a log that another boot
/// left behind, or that is full. The caller writes it to a file of its own, syncs that and renames it over the old log.
pub fn restart(header: &Header, durable: &[(Extent, Digest)]) -> Result<(Vec<u8>, Appender), Unusable> {
    let (mut log, mut appender) = start(header)?;
    let refused = |index: usize| move |violation| Unusable::Record { index: index as u32, violation };
    for (index, (extent, digest)) in durable.iter().enumerate() {
        log.extend_from_slice(&appender.extent(*extent, digest).map_err(refused(index))?);
    }
    let mark = appender.mark();
    log.extend_from_slice(&appender.checkpoint(mark).map_err(refused(durable.len()))?);
    Ok((log, appender))
}

impl Replayed {
    /// Decides what the running boot may rely on: everything in the boot that started the log, else what was durable.
    pub fn resume(&self, boot: &[u8; 16]) -> Resume<'_> {
        if self.header.boot != *boot && !mutant::is_on("ignore-reboot") {
            return Resume::Restart { extents: &self.extents[..self.durable_count] };
        }
        Resume::Continue { extents: &self.extents, keep_bytes: self.good_bytes, appender: self.end.clone() }
    }
}

/// What the records so far amount to.
struct Fold {
    end: Appender,
    extents: Vec<(Extent, Digest)>,
    /// For each of `extents`, the record that had it first; ascending.
    first_records: Vec<u32>,
    /// Where in `extents` the chunk at an offset is.
    positions: HashMap<u64, usize>,
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
        if record.sequence >= self.end.records_max() {
            return Err(Violation::TooMany);
        }
        self.end.check(&record.body)?;
        match record.body {
            Body::Extent(extent, digest) => self.add(extent, digest, record.sequence)?,
            Body::Checkpoint { records } => self.durable_records = self.durable_records.max(records),
        }
        self.end.advance(link_of(bytes));
        Ok(true)
    }

    fn add(&mut self, extent: Extent, digest: Digest, record: u32) -> Result<(), Violation> {
        match self.positions.entry(extent.start) {
            Entry::Occupied(known) if self.extents[*known.get()].1 != digest => return Err(Violation::Contradiction),
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => {
                free.insert(self.extents.len());
                self.extents.push((extent, digest));
                self.first_records.push(record);
            }
        }
        Ok(())
    }
}
