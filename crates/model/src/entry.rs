//! One line of a listing: what an object is called, what it is, and which version of it was seen.

use crate::fidelity::Attributes;
use crate::id::ObjectId;
use crate::name::Name;
use std::sync::Arc;

/// Seconds and nanoseconds since 1970, before it included (F065).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Timestamp {
    pub seconds: i64,
    pub nanoseconds: u32,
}

/// Tells one version of a source object from another. Two listings with equal generations saw the same content, as far
/// as the source's file system tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Generation {
    pub size_bytes: u64,
    pub modified: Timestamp,
    pub version: VersionToken,
}

/// What a store tells versions of an object apart by, beside size and time. Others compare it, keep it and hand it on; what is
/// in it is the store's own business.
///
/// On the wire and in logs it has the places of a file's change time, inode and device, which it is on file systems.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VersionToken {
    changed: Timestamp,
    object: u64,
    storage: u64,
}

impl VersionToken {
    /// `object` is the same for all names and versions of one object in its `storage`.
    pub const fn new(changed: Timestamp, object: u64, storage: u64) -> VersionToken {
        VersionToken { changed, object, storage }
    }

    /// Of a store that gives each version a tag; two tags that differ make two tokens.
    pub fn of_tag(tag: &[u8], storage: u64) -> VersionToken {
        let hash = blake3::hash(tag);
        let (high, low) = hash.as_bytes()[..16].split_at(8);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("half of 16 bytes"));
        let changed = Timestamp { seconds: word(high) as i64, nanoseconds: 0 };
        VersionToken { changed, object: word(low), storage }
    }

    pub fn changed(&self) -> Timestamp {
        self.changed
    }

    pub fn object(&self) -> u64 {
        self.object
    }

    pub fn storage(&self) -> u64 {
        self.storage
    }
}

/// What is known of an object's end when it is listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It is as long as its entry says.
    Known,
    /// Where reading comes to it, once (pipes): the size of its entry is 0.
    ReadOnce,
    /// The object is being written. What there is of it is read and can be read again; the source tells when it is complete.
    Growing,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    Directory,
    File,
    /// The bytes that the link holds; they are copied, never followed.
    Symlink(Box<[u8]>),
    Node(Node),
    /// Another name of a file that was described before.
    HardLink(ObjectId),
}

/// What has no content, only a name by which programs meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Node {
    Fifo,
    Socket,
    /// With its number, as Linux writes major and minor into one.
    CharacterDevice(u64),
    BlockDevice(u64),
}

/// An object as its source listed it. Its path is the chain of names up through `parent` to the root of the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub id: ObjectId,
    pub parent: ObjectId,
    pub name: Name,
    pub kind: Kind,
    /// Permission bits, 0o7777 at most.
    pub mode: u32,
    /// Size and times; for directories and links only `modified` means something to the receiver.
    pub generation: Generation,
    /// What is kept beyond that, where a job asks for it.
    pub attributes: Option<Arc<Attributes>>,
}

impl Entry {
    pub fn size_bytes(&self) -> u64 {
        match self.kind {
            Kind::File => self.generation.size_bytes,
            Kind::Directory | Kind::Symlink(_) | Kind::Node(_) | Kind::HardLink(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_a_tag_is_the_same_for_the_same_version_in_the_same_storage_only() {
        let of = VersionToken::of_tag;
        assert_eq!(of(b"\"etag\"", 1), of(b"\"etag\"", 1));
        assert_ne!(of(b"\"etag\"", 1), of(b"\"etag-2\"", 1));
        assert_ne!(of(b"\"etag\"", 1), of(b"\"etag\"", 2));
        // It fits the places that it has on the wire, whatever the tag.
        assert!((0..100u8).all(|tag| of(&[tag], 1).changed().nanoseconds < 1_000_000_000));
    }
}
