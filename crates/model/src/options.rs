//! What the user asked of a transfer, apart from its source and destination.

use crate::class::Class;
use crate::digest::DigestAlgorithm;
use crate::extent::Extent;
use crate::fidelity::Fidelity;
use crate::follow::{Follow, View};
use crate::id::JobId;
use crate::name::Name;
use crate::pace::Timetable;
use crate::selection::{Bounds, Selection};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// When a published object is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fsync {
    /// Each object by itself before it is published.
    File,
    /// Groups of objects share one durability point.
    #[default]
    Batch,
    /// Nothing waits for durability; the result says so.
    Never,
}

/// How far verification goes beyond the default (digest of what was read against digest of what is about to be written).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verify {
    #[default]
    Stream,
    /// Also reads back what storage returns, past the page cache where the file system allows it.
    Reread,
    /// Within one host only: nothing is digested, and the result says so.
    None,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransferOptions {
    pub fsync: Fsync,
    pub verify: Verify,
    pub digest: DigestAlgorithm,
    /// Length of a chunk; a power of two from `CHUNK_BYTES_MIN` to `CHUNK_BYTES_MAX`.
    pub chunk_bytes: u64,
    /// Published names never replace an existing object.
    pub no_clobber: bool,
    /// Permission bits that replace the source's: (files, directories).
    pub chmod: Option<(u32, u32)>,
    /// `pread`, `uring` or `auto`.
    pub engine: Engine,
    pub depths: Depths,
    /// What of the source is taken.
    pub selection: Arc<Selection>,
    /// What counts as changed.
    pub compare: Compare,
    /// A file at the destination that is newer than its source stays.
    pub keeps_newer: bool,
    /// Nothing is made that is not there.
    pub only_existing: bool,
    /// Everything is decided, and nothing done.
    pub is_dry_run: bool,
    /// Every change is told.
    pub tells_changes: bool,
    /// What the source does not have is removed.
    pub deletion: Option<Deletion>,
    /// Where what is replaced or removed goes: a path below the destination.
    pub backup: Option<Vec<u8>>,
    /// Of a large file that replaces another, only the chunks travel that differ.
    pub is_delta: bool,
    /// What of an object's metadata is kept beyond the ordinary.
    pub fidelity: Fidelity,
    /// How content is made smaller on its way between hosts.
    pub compression: Compression,
    /// How fast content may leave its sender, by the time of the week.
    pub pace: Option<Arc<Timetable>>,
    /// Bytes of content after which the job stops.
    pub payload_bytes_max: Option<u64>,
    /// Congestion control, by the kernel's name, of the streams of a sender elsewhere.
    pub congestion: Option<String>,
    /// How much it counts beside other jobs of the same endpoint; nothing asks for no class.
    pub class: Option<Class>,
    /// Files are sent while they are written. Within the sender alone.
    pub follow: Option<Arc<Follow>>,
    /// What has arrived of a growing file can be read at the destination.
    pub view: Option<Arc<View>>,
    /// Where at the destination what is complete is listed.
    pub sealed_list: Option<Name>,
    /// Whether what arrives may wait in a buffer on its way to slow storage.
    pub buffer: Buffer,
    /// What the sender stays for. Within the sender alone.
    pub wait: Wait,
    /// The job is a part of one that several hosts work on.
    pub slice: Option<Arc<Slice>>,
}

/// A part of a job that several hosts work on, as a job of its own. Its id is random, and so nobody's who was not told of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Slice {
    /// Slices that this one takes over from: nothing more appears of them once it has begun.
    pub instead_of: Vec<JobId>,
    /// By what slices find what others of the same job brought of a file: a secret of whoever hands them out.
    pub run: Option<JobId>,
    /// It brings that much of its one file and gives it no name: whoever has `run` and no range does that.
    pub range: Option<Extent>,
}

/// Slices that one takes over from.
pub const INSTEAD_OF_MAX: usize = 256;

/// Bytes of a congestion control's name, as the kernel bounds them.
const CONGESTION_NAME_BYTES_MAX: usize = 15;

/// Whether a text can be the name of a congestion control at all.
pub fn is_congestion_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=CONGESTION_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// How content is made smaller on its way between hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    #[default]
    None,
    /// As strong as pays: from not at all to the strongest, decided while it runs.
    Auto,
    Zstd,
    Lz4,
}

/// What counts as changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compare {
    /// Nothing that is there.
    Exists,
    Size,
    /// Size or modification time.
    #[default]
    Mtime,
    /// Size or content: both sides digest what has the same size.
    Checksum,
}

/// How far removing goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deletion {
    /// The source is the contents of a directory: the destination itself is to be like it, and not only the directory of
    /// that name in it.
    pub is_at_root: bool,
    /// If more than these would go, none goes.
    pub removals_max: Option<u64>,
}

impl TransferOptions {
    /// Something is asked beyond copying everything and skipping what has the same size and time.
    pub fn is_beyond_plain_copy(&self) -> bool {
        !self.selection.is_everything()
            || self.compare != Compare::default()
            || self.keeps_newer
            || self.only_existing
            || self.is_dry_run
            || self.tells_changes
            || self.deletion.is_some()
            || self.backup.is_some()
            || self.is_delta
    }

    /// What the source leaves out. Where the receiver deletes, it applies the bounds: it has to hear of every name.
    pub fn selection_at_source(&self) -> Arc<Selection> {
        if self.deletion.is_none() || self.selection.bounds == Bounds::default() {
            return self.selection.clone();
        }
        Arc::new(Selection { bounds: Bounds::default(), ..Selection::clone(&self.selection) })
    }
}

/// Whether what arrives may wait in the buffer of the side that receives it, where that side has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Buffer {
    /// While the storage behind it cannot keep up.
    #[default]
    Auto,
    Always,
    Never,
}

/// What a sender stays for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wait {
    /// Everything is at its destination.
    #[default]
    Delivered,
    /// What is not lies in the receiver's buffer, and the receiver brings it there.
    Buffered,
}

/// Which storage engine moves blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Engine {
    /// Chosen by a probe of the file system.
    #[default]
    Auto,
    Plain,
    Uring,
}

/// Blocks in flight for each lane where an engine keeps several: at the source, and at the destination. 0 is the engine's own number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Depths {
    pub read: u32,
    pub write: u32,
}

impl Depths {
    pub const MAX: u32 = 128;
}

impl fmt::Display for Depths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.read, self.write)
    }
}

impl FromStr for Depths {
    type Err = String;

    /// `8` for both, `8,32` for reading and for writing.
    fn from_str(text: &str) -> Result<Depths, String> {
        let wrong = || format!("{text:?} is no depth: give 0 to {} blocks, or READ,WRITE such as 8,32", Depths::MAX);
        let depth = |text: &str| text.parse().ok().filter(|depth| *depth <= Depths::MAX).ok_or_else(wrong);
        let (read, write) = text.split_once(',').unwrap_or((text, text));
        Ok(Depths { read: depth(read)?, write: depth(write)? })
    }
}

pub const CHUNK_BYTES_MIN: u64 = 1 << 20;
pub const CHUNK_BYTES_MAX: u64 = 1 << 30;
/// Sixteen blocks of 128 KiB per trailer keep the per-chunk cost under 1 %, and 8 MiB bounds what a lost lane re-sends.
pub const CHUNK_BYTES_DEFAULT: u64 = 8 << 20;
/// Over distance, where no length was asked for: streams end nearer together (decision 064).
pub const CHUNK_BYTES_FAR: u64 = 2 << 20;

impl Default for TransferOptions {
    fn default() -> Self {
        TransferOptions {
            fsync: Fsync::default(),
            verify: Verify::default(),
            digest: DigestAlgorithm::default(),
            chunk_bytes: CHUNK_BYTES_DEFAULT,
            no_clobber: false,
            chmod: None,
            engine: Engine::Auto,
            depths: Depths::default(),
            selection: Arc::default(),
            compare: Compare::default(),
            keeps_newer: false,
            only_existing: false,
            is_dry_run: false,
            tells_changes: false,
            deletion: None,
            backup: None,
            is_delta: false,
            fidelity: Fidelity::default(),
            compression: Compression::default(),
            pace: None,
            payload_bytes_max: None,
            congestion: None,
            class: None,
            follow: None,
            view: None,
            sealed_list: None,
            buffer: Buffer::default(),
            wait: Wait::default(),
            slice: None,
        }
    }
}

macro_rules! named {
    ($type:ident { $($variant:ident = $name:literal),+ }) => {
        impl $type {
            pub fn name(self) -> &'static str {
                match self { $($type::$variant => $name),+ }
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($name => Ok($type::$variant),)+
                    _ => Err(format!("{text:?} is not one of {}", [$($name),+].join(", "))),
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

named!(Fsync { File = "file", Batch = "batch", Never = "never" });
named!(Verify { Stream = "stream", Reread = "reread", None = "none" });
named!(Compare { Exists = "exists", Size = "size", Mtime = "mtime", Checksum = "checksum" });
named!(Compression { Auto = "auto", Zstd = "zstd", Lz4 = "lz4", None = "none" });
named!(Buffer { Auto = "auto", Always = "always", Never = "never" });
named!(Wait { Delivered = "delivered", Buffered = "buffered" });
named!(Engine { Auto = "auto", Plain = "pread", Uring = "uring" });
