//! What a store is and can do, told before a job starts: nobody has to find out by trying.
//!
//! Invariant: a store says that it can do what it does for each of its objects. What it cannot is refused to a job that needs it,
//! and a method without its ability returns an error; none passes over in silence what it was asked to do.

/// In which order content must be read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    #[default]
    Any,
    /// Each object from its start to its end. One lane does all of it at present.
    EachObject,
    /// One object after the other, from start to end, by one lane (pipes).
    All,
}

/// In which parts a store takes an object that comes in chunks; a chunk is a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartRule {
    /// The last part of an object may be shorter.
    pub bytes_min: u64,
    pub bytes_max: u64,
    /// Parts of one object.
    pub count_max: u64,
}

/// What a source is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SourceFacts {
    pub order: Order,
    /// A listing of it is one of keys: directory by directory it would cost more.
    pub is_keyed: bool,
}

/// What a sink is and can do.
#[derive(Clone, Debug)]
pub struct SinkFacts {
    /// The file system's name as far as it is known: "ext4", "tmpfs", "nfs".
    pub file_system: &'static str,
    pub is_memory_backed: bool,
    /// True for storage that cannot make anything durable: a power failure may lose data without an error. Such storage says
    /// `is_memory_backed` too.
    pub cannot_sync: bool,
    /// Room for unprivileged writers.
    pub free_bytes: u64,
    /// `None` where the file system does not count them.
    pub free_inodes: Option<u64>,
    pub order: Order,
    pub part_rule: Option<PartRule>,
    /// The device whose files may share their blocks with what is staged; asking for one of them tells for sure.
    pub shares_on: Option<u64>,
    /// What the store confirms is as safe as it makes it: there is nothing to sync, and much may be under way at once.
    pub confirms: bool,
    pub can: Abilities,
}

/// What a sink can do beside taking new files and directories. One in which nothing can stand at a final name before can do
/// whatever is only done to what stands there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abilities {
    /// What stands at a final name can be read: `Sink::open_published`.
    pub compare: bool,
    pub prune: bool,
    /// `Sink::amend` and `Sink::differences`.
    pub amend: bool,
    pub touch: bool,
    pub hard_links: bool,
    /// FIFOs, sockets and devices.
    pub nodes: bool,
    /// What was staged can be read back from the storage itself.
    pub reread: bool,
    /// What is not written of a file reads as zeros: `SinkLane::skip` and `StagedFile::clear` work.
    pub holes: bool,
    /// What has arrived of a growing file can be read under a name, the last argument of `Sink::begin_growing`, and a list of what
    /// is complete is kept: `Sink::open_lines`.
    pub views: bool,
    /// What was staged of a file can be read back while it grows, and written over: `Sink::begin_growing`. Without it files are
    /// sent once they are complete.
    pub growth: bool,
    /// What is replaced or removed can be put aside, in a directory of its own.
    pub backup: bool,
}

impl Abilities {
    pub const NONE: Abilities = Abilities {
        compare: false,
        prune: false,
        amend: false,
        touch: false,
        hard_links: false,
        nodes: false,
        reread: false,
        holes: false,
        views: false,
        growth: false,
        backup: false,
    };
    pub const ALL: Abilities = Abilities {
        compare: true,
        prune: true,
        amend: true,
        touch: true,
        hard_links: true,
        nodes: true,
        reread: true,
        holes: true,
        views: true,
        growth: true,
        backup: true,
    };
}
