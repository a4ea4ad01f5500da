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
    pub changed: Timestamp,
    pub inode: u64,
    pub device: u64,
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
