//! Objects that the store copies itself: by one request, or above its bound for that in parts.
//!
//! Invariants: every request names the version that was opened, so that two versions never mix; what was copied in parts is
//! completed by stating the checksum that the store keeps of the source, and one without such a checksum is not copied so.

use crate::calls::{Condition, CopyOf, PARTS_MAX, Part};
use crate::failure::{Failure, Result, Why};
use crate::upload::ObjectUpload;
use model::Entry;

/// So many parts at least, so that several are under way at once.
const PARTS_MIN: u64 = 8;

impl ObjectUpload {
    pub fn copy(&self, entry: &Entry, from: &CopyOf, condition: &Condition) -> Result<()> {
        let (bucket, size) = (&self.job.bucket, entry.size_bytes());
        if size <= bucket.copy_bytes_max {
            return bucket.publish_copy(&self.key, from, size, &self.job.meta(entry), condition);
        }
        let copied = self.copy_in_parts(from, size, condition);
        if copied.is_err() {
            self.end(false);
        }
        copied
    }

    fn copy_in_parts(&self, from: &CopyOf, size: u64, condition: &Condition) -> Result<()> {
        let bucket = &self.job.bucket;
        let crc = from.crc.ok_or_else(|| Failure::new(Why::Other, "the store keeps no checksum of it"))?;
        let length = (bucket.copy_bytes_max / PARTS_MIN).max(size.div_ceil(u64::from(PARTS_MAX)));
        let id = self.id()?;
        let starts: Vec<u64> = (0..size).step_by(length as usize).collect();
        let parts = self.job.bucket.in_parallel(&starts, |start| {
            let range = (*start, (start + length).min(size));
            bucket.copy_part(from, &self.key, &id, (start / length) as u32 + 1, range)
        });
        let parts: Vec<Part> = parts.into_iter().collect::<Result<_>>()?;
        bucket.publish_parts((&self.key, &id), &parts, crc, &self.job.meta(&self.entry), condition)
    }
}
