//! A staged file for unit tests that stores nothing and reads as zeros.

use model::Entry;
use store::{PublishRule, Result, StagedFile};

/// Data that is all zeros, and a journal that takes everything.
pub struct Zeros;

impl StagedFile for Zeros {
    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn read_at(&self, _: u64, buffer: &mut [u8]) -> Result<usize> {
        buffer.fill(0);
        Ok(buffer.len())
    }
    fn append_journal(&self, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn truncate_journal(&self, _: u64) -> Result<()> {
        Ok(())
    }
    fn checkpoint(&self) -> Result<()> {
        Ok(())
    }
    fn reread(&self, _: &mut dyn FnMut(&[u8])) -> Result<()> {
        Ok(())
    }
    fn publish(&self, _: &Entry, _: PublishRule) -> Result<()> {
        Ok(())
    }
    fn discard(&self) {}
}
