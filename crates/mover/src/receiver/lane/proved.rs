//! Content of a holder that is one of several: it counts only if it has the digest that the lead told of it.
//!
//! Invariant: what was not asked of the holder, or has another digest, is never handed on, whatever its sender says of it.

use super::super::gather::Place;
use super::super::table::Found;
use super::super::verify::{self, Verdict};
use super::{Coming, OpenChunk, PackedFile, Target, Writer};
use model::{Digest, DigestAlgorithm, Extent, ObjectId, mutant};
use std::time::Duration;
use wire::data::{PackRow, Status};
use wire::{CloseCode, Refusal};

/// How often a lane looks whether the one that it broke off has let go.
const BROKEN_OFF_INTERVAL: Duration = Duration::from_millis(10);

/// A file of a pack, by the number that it has in the job.
struct Proved<'a> {
    row: PackRow,
    bytes: &'a [u8],
    digest: Digest,
}

impl<'a> Proved<'a> {
    fn file(&self) -> PackedFile<'_> {
        PackedFile { row: &self.row, bytes: self.bytes, digest: Some(self.digest), late: None }
    }
}

/// Those files of a pack that are the lead's.
///
/// # Errors
/// When something that was not asked for does not even have the digest that its sender told.
fn files<'a>(place: &Place, files: &[PackedFile<'a>], algorithm: DigestAlgorithm) -> Result<Vec<Proved<'a>>, Refusal> {
    let mut proved = Vec::with_capacity(files.len());
    for file in files {
        let extent = Extent::new(0, file.bytes.len() as u64);
        let verdict = verify::packed_file(file.row, file.bytes, algorithm);
        let Some((id, told)) = place.expected(file.row.object, extent) else {
            match verdict {
                Verdict::Mismatch => return Err(Refusal::new(CloseCode::Malformed, super::NOT_ITS_OWN)),
                _ => continue,
            }
        };
        match verdict {
            Verdict::Void => place.gave_up([file.row.object.0]),
            Verdict::Good(digest) if is_proved(digest, told) => {
                let row = PackRow { object: ObjectId(id), status: Status::GoodLast, ..*file.row };
                proved.push(Proved { row, bytes: file.bytes, digest });
            }
            Verdict::Good(_) | Verdict::Mismatch => place.bad(id, extent, algorithm.of_object(file.bytes)),
        }
    }
    Ok(proved)
}

fn is_proved(digest: Digest, told: Digest) -> bool {
    digest == told || mutant::is_on("chunk-before-tree")
}

impl Writer<'_> {
    /// Files of a pack of a holder.
    pub(super) fn packed_by(&mut self, place: &Place, files: &[PackedFile<'_>]) -> Result<(), Refusal> {
        let proved = self::files(place, files, self.job.options.digest)?;
        proved.iter().for_each(|file| self.break_off_reader(file.row.object.0));
        let proved: Vec<_> = proved.iter().map(Proved::file).collect();
        self.packed_here(&proved)
    }

    /// What is to be made of a chunk; nothing if it is to be refused.
    pub(super) fn proved(&self, place: &Place, coming: &Coming, verdict: Verdict) -> Option<Verdict> {
        let extent = coming.header.extent;
        // Of an object of one chunk the sender hears when it is settled.
        if extent.start > 0 || extent.length() == self.job.options.chunk_bytes {
            place.tell_held(coming.header.object, extent);
        }
        match (coming.told, verdict) {
            (Some(told), Verdict::Good(digest)) => is_proved(digest, told).then_some(verdict),
            (Some(_), _) => None,
            (None, _) => Some(verdict),
        }
    }

    /// Takes what this holder was asked for, and nobody else any more.
    pub(super) fn take_proved(&self, id: u64) -> Found {
        self.break_off_reader(id);
        self.job.table.lock().unwrap().take_by(id, &self.breaker)
    }

    /// The lead brings these, where there are holders beside it.
    pub(super) fn break_off_others(&self, ids: impl Iterator<Item = u64>) {
        if self.place.is_some() {
            ids.for_each(|id| self.break_off_reader(id));
        }
    }

    /// Breaks off the lane that is reading a small object, of a holder that was asked for it before this one, and waits until it
    /// has let go: whoever sends byte by byte keeps nobody from what another one brings.
    fn break_off_reader(&self, id: u64) {
        while !self.job.end.is_set() {
            let Some(other) = self.job.table.lock().unwrap().reader(id) else { return };
            other();
            std::thread::park_timeout(BROKEN_OFF_INTERVAL);
        }
    }

    /// The stream ended in the middle of a small object. Another holder may have been asked for it by now.
    pub(super) fn broke_off_beside(&self, place: &Place, id: u64) {
        self.job.table.lock().unwrap().expect_again(id);
        place.broke_off(id);
    }

    /// Gives up a chunk that is not the lead's: somebody else will bring it.
    pub(super) fn refuse(&mut self, open: OpenChunk, verdict: Verdict, digest: Digest) {
        let Some(place) = self.beside() else { return };
        let Coming { header, id, .. } = open.coming;
        if let Target::Small(..) = open.target {
            self.sink.abandon();
            self.job.table.lock().unwrap().expect_again(id);
        }
        // Before another lane is asked for it: the right to write it goes with the target.
        drop(open);
        match verdict {
            Verdict::Void => place.gave_up([header.object.0]),
            Verdict::Good(_) | Verdict::Mismatch => place.bad(id, header.extent, digest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_that_is_not_the_leads_proves_nothing() {
        let [told, other] = [1, 2].map(Digest::Crc64Nvme);
        assert!(is_proved(told, told) && !is_proved(other, told));
    }
}
