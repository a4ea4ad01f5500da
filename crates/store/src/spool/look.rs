//! Looking into a spool that another process may be using, and asking that process for something.
//!
//! What is seen may be old by the time it is shown. Requests are lines of a file in the spool's directory, which only its user can
//! write; its process takes them, and those left for an earlier process are forgotten (`place`).

use super::format::{HEAD_BYTES, Head, Kind, Owner, PieceHead};
use super::parcel::Piece;
use super::place::{Place, read_at};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// What an owner holds of a spool.
#[derive(Clone, Debug)]
pub struct Seen {
    pub owner: Owner,
    /// Whole segments.
    pub bytes: u64,
    /// Since when.
    pub since: SystemTime,
    /// The first of its journal.
    pub opening: Vec<u8>,
}

/// A spool from outside.
#[derive(Clone, Debug)]
pub struct Look {
    pub capacity_bytes: u64,
    pub owners: Vec<Seen>,
}

/// Bytes, since when, and the first parcel of its journal with the number it has.
type Kept = (u64, SystemTime, Option<(u64, Vec<u8>)>);

/// Looks into the spool of a directory, and changes nothing.
///
/// # Errors
/// When there is none that can be read.
pub fn look(path: &Path) -> Result<Look> {
    let place = Place::look(path)?;
    let read = |e| Error::new("read the buffer", place.path().to_vec(), e);
    let mut owners: BTreeMap<Owner, Kept> = BTreeMap::new();
    for number in 0..place.made.segments {
        let Some(file) = place.seen_segment(number)? else { continue };
        let Head::Used(head) = Head::decode(&read_at(&file, 0).map_err(read)?) else { continue };
        let changed = file.metadata().and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        let seen = owners.entry(head.owner).or_insert((0, changed, None));
        seen.0 += head.segment_bytes;
        seen.1 = seen.1.min(changed);
        let before = read_at(&file, HEAD_BYTES).map_err(read)?;
        let first = PieceHead::decode(&before, &head, HEAD_BYTES).filter(|piece| piece.kind == Kind::Journal);
        if let Some(piece) = first.filter(|piece| piece.is_last && piece.bytes < 1 << 20)
            && seen.2.as_ref().is_none_or(|(parcel, _)| piece.parcel < *parcel)
        {
            let piece = Piece { segment: number, file: Arc::new(file), head: piece };
            seen.2 = piece.content().ok().map(|content| (piece.head.parcel, content));
        }
    }
    let seen =
        |(owner, (bytes, since, opening)): (Owner, Kept)| Some(Seen { owner, bytes, since, opening: opening?.1 });
    let capacity_bytes = place.made.segment_bytes * u64::from(place.made.segments);
    Ok(Look { capacity_bytes, owners: owners.into_iter().filter_map(seen).collect() })
}

/// Whether a process uses the spool of a directory: without one nobody hears what is asked.
pub fn is_used(path: &Path) -> Result<bool> {
    Place::look(path)?.is_used()
}

/// Asks the process that uses the spool for something, in its words.
pub fn ask(path: &Path, request: &str) -> Result<()> {
    Place::look(path)?.write_request(request)
}

/// Takes back what was asked. False where the process has heard it.
pub fn withdraw(path: &Path, request: &str) -> Result<bool> {
    Place::look(path)?.withdraw_request(request)
}
