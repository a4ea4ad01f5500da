//! Which ways content may take within one host, and what took them.
//!
//! Verified copies read and digest every byte, unless the file system shares the blocks: then there is one content with two
//! names, and nothing that could differ. The kernel copies only where nobody asked for a digest (docs/decisions/009).

use crate::progress::count;
use crate::receiver::FootingOf;
use crate::report::Unread;
use crate::sender::SendJob;
use model::options::{Engine, Verify};
use model::quantity::ByteCount;
use model::{Digest, DigestAlgorithm, TransferOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use store::Footing;

pub(super) struct Ways {
    /// What is read is digested.
    pub digests: bool,
    /// The file system may be asked to share blocks.
    pub shares: bool,
    /// The kernel may be asked to copy.
    pub hands_on: bool,
    /// What the destination shares was copied by stores, and is no second name of one content.
    is_by_stores: bool,
    shared_files: AtomicU64,
    shared_bytes: AtomicU64,
    kernel_bytes: AtomicU64,
    hole_bytes: AtomicU64,
}

impl Ways {
    pub fn new(options: &TransferOptions, lists_digests: bool, is_by_stores: bool) -> Ways {
        let is_free = options.engine == Engine::Auto;
        let lists_digests = lists_digests || options.sealed_list.is_some();
        let digests = options.verify != Verify::None || lists_digests;
        Ways {
            digests,
            is_by_stores,
            // A rate is held block by block, and so not between two stores.
            shares: is_free
                && options.verify != Verify::Reread
                && !lists_digests
                && !(is_by_stores && options.pace.is_some()),
            // What is to become a hole has to be looked at.
            hands_on: is_free && !digests && !options.fidelity.sparse,
            shared_files: AtomicU64::new(0),
            shared_bytes: AtomicU64::new(0),
            kernel_bytes: AtomicU64::new(0),
            hole_bytes: AtomicU64::new(0),
        }
    }

    /// What a file will take at the destination, before it is there. Nothing, where it will likely share its blocks: room for
    /// a second copy is not to be asked for.
    pub fn footing(&self, sender: &Arc<SendJob>, shares_on: Option<u64>) -> FootingOf {
        let shares_on = shares_on.filter(|_| self.shares);
        let sender = Arc::downgrade(sender);
        Box::new(move |entry| {
            if shares_on == Some(entry.generation.version.storage()) {
                return Some(Footing { allocated_bytes: 0, has_holes: true });
            }
            let sender = sender.upgrade()?;
            sender.footing(&sender.unanswered(entry.id.0)?)
        })
    }

    pub fn shared(&self, bytes: u64, is_last: bool) {
        count(&self.shared_bytes, bytes);
        count(&self.shared_files, u64::from(is_last));
    }

    pub fn handed_on(&self, bytes: u64) {
        count(&self.kernel_bytes, bytes);
    }

    pub fn left_out(&self, bytes: u64) {
        count(&self.hole_bytes, bytes);
    }

    pub fn unread(&self) -> Unread {
        let (files, bytes) = (self.shared_files.load(Relaxed), self.shared_bytes.load(Relaxed));
        Unread {
            shared_files: if self.is_by_stores { 0 } else { files },
            shared_bytes: if self.is_by_stores { 0 } else { bytes },
            store_bytes: if self.is_by_stores { bytes } else { 0 },
            kernel_bytes: self.kernel_bytes.load(Relaxed),
            hole_bytes: self.hole_bytes.load(Relaxed),
        }
    }

    pub fn notes(&self) -> Vec<String> {
        let Unread { shared_bytes, kernel_bytes, hole_bytes, .. } = self.unread();
        let mut notes = Vec::new();
        if shared_bytes > 0 {
            notes.push(format!(
                "{} share their blocks with the source until one of the two is changed; --engine pread makes a second copy",
                ByteCount(shared_bytes)
            ));
        }
        if kernel_bytes > 0 {
            let bytes = ByteCount(kernel_bytes);
            notes.push(format!(
                "{bytes} were copied by the kernel (copy_file_range): not digested, because of --verify none"
            ));
        }
        if hole_bytes > 0 {
            notes.push(format!("{} of holes were not read, and remain holes", ByteCount(hole_bytes)));
        }
        notes
    }
}

/// Stands where a digest would, for content that nobody digested. It is never told, stored or compared with a real one.
pub(super) fn undigested(algorithm: DigestAlgorithm) -> Digest {
    match algorithm {
        DigestAlgorithm::Crc64Nvme => Digest::Crc64Nvme(0),
        DigestAlgorithm::Blake3 => Digest::Blake3([0; 32]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_verified_is_read_and_a_manifest_is_never_made_of_what_was_not() {
        let ways = |verify, engine, lists_digests| {
            let ways =
                Ways::new(&TransferOptions { verify, engine, ..TransferOptions::default() }, lists_digests, false);
            (ways.digests, ways.shares, ways.hands_on)
        };
        assert_eq!(ways(Verify::Stream, Engine::Auto, false), (true, true, false));
        assert_eq!(ways(Verify::Stream, Engine::Auto, true), (true, false, false));
        assert_eq!(ways(Verify::Stream, Engine::Plain, false), (true, false, false));
        assert_eq!(ways(Verify::Reread, Engine::Auto, false), (true, false, false));
        assert_eq!(ways(Verify::None, Engine::Auto, false), (false, true, true));
        assert_eq!(ways(Verify::None, Engine::Auto, true), (true, false, false));
        assert_eq!(ways(Verify::None, Engine::Uring, false), (false, false, false));
    }
}
