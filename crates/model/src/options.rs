//! What the user asked of a transfer, apart from its source and destination.

use crate::digest::DigestAlgorithm;

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

pub const CHUNK_BYTES_MIN: u64 = 1 << 20;
pub const CHUNK_BYTES_MAX: u64 = 1 << 30;
/// Sixteen blocks of 128 KiB per trailer keep the per-chunk cost under 1 %, and 8 MiB bounds what a lost lane re-sends.
pub const CHUNK_BYTES_DEFAULT: u64 = 8 << 20;

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
named!(Verify { Stream = "stream", Reread = "reread" });
named!(Engine { Auto = "auto", Plain = "pread", Uring = "uring" });
