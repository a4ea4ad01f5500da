//! Large objects whose end is not known before it comes: what may be said of it.
//!
//! Invariant: of such an object no more chunks are remembered than its bytes make: otherwise each byte could be a chunk.
//!
//! Not here: where its bytes go (`lane`).

use super::Large;
use model::Extent;

impl Large {
    /// Holds a good chunk, and the size that was said with it, to what is known of the object's end: all of its chunks but the last are
    /// as long as chunks are, and whoever sends the last knows that it is.
    pub fn check_end(&self, extent: Extent, sealed_bytes: Option<u64>) -> Result<(), &'static str> {
        if !self.is_open_ended {
            return Ok(());
        }
        if extent.length() < self.chunk_bytes && sealed_bytes != Some(extent.end) {
            return Err("a chunk is shorter than chunks are, and not the last of its object");
        }
        let end = self.object.state.lock().unwrap().feeders.sealed_bytes();
        if end.is_some_and(|end| extent.end > end || sealed_bytes.is_some_and(|bytes| bytes != end)) {
            return Err("an object goes on after its end");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::zeros::Zeros;
    use super::super::tests::large;
    use super::*;
    use model::DigestAlgorithm;
    use std::sync::Arc;
    use store::StagedFile;

    #[test]
    fn the_last_chunk_alone_is_short_and_nothing_comes_after_it() {
        let file: Arc<dyn StagedFile> = Arc::new(Zeros);
        // Its chunks have eight bytes.
        let mut large = large(0, file.clone());
        Arc::get_mut(&mut large).unwrap().is_open_ended = true;
        let is_taken = |start, end, sealed| large.check_end(Extent::new(start, end), sealed).is_ok();
        assert!(is_taken(8, 16, None) && is_taken(0, 8, None) && is_taken(16, 19, Some(19)));
        assert!(is_taken(0, 0, Some(0)) && is_taken(16, 16, Some(16)) && is_taken(8, 16, Some(19)));
        assert!(!is_taken(16, 19, None) && !is_taken(16, 19, Some(24)) && !is_taken(24, 24, None));
        let digest = DigestAlgorithm::Crc64Nvme.of_object(b"x");
        large.record(&file, Extent::new(16, 19), digest, Some(19), false).unwrap();
        assert!(is_taken(0, 8, None) && is_taken(16, 19, Some(19)));
        assert!(!is_taken(24, 32, None) && !is_taken(24, 25, Some(25)) && !is_taken(0, 8, Some(8)));
    }
}
