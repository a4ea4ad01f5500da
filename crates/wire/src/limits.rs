//! Every bound that the protocol sets, in one table, with the relations between them proved at compile time.

/// A fragment of an object that grows.
pub const FRAGMENT_BYTES_MAX: u64 = 256 << 10;

/// The length of any control frame's body.
pub const CONTROL_BODY_BYTES_MAX: usize = 1 << 20;
/// Before a session is authenticated, a body may be no longer than this.
pub const HELLO_BODY_BYTES_MAX: usize = 4 << 10;
/// Bodies of messages without lists, and of those whose lists are short.
pub const PLAIN_BODY_BYTES_MAX: usize = 16 << 10;
pub const LISTS_BODY_BYTES_MAX: usize = 64 << 10;
/// What decoding a message may take beside its frame: a message that holds more is refused before (`bounds`).
pub const DECODED_BYTES_MAX: usize = 4 << 20;
/// Runs and extents in one message; each names at least one object that is open.
pub const RUNS_MAX: usize = ENTRIES_OPEN_MAX as usize;
pub const EXTENTS_MAX: usize = 65_536;
/// Extents that this program puts into one message.
pub const EXTENTS_TOLD: usize = 16_384;
/// Runs and extents in a message that asks for content again, or says that it is held.
pub const RESENT_MAX: usize = 4096;
/// Failures in one message, and the bytes after which this program begins another.
pub const FAILURES_MAX: usize = 1024;
pub const FAILURES_TOLD_BYTES: usize = 512 << 10;
/// Objects that this program settles in one message.
pub const SETTLED_TOLD: usize = 4096;
pub const SETTLED_DIGESTS_MAX: usize = 8192;
/// Changes in one message, and those that this program puts into one.
pub const CHANGES_MAX: usize = 1024;
pub const CHANGES_TOLD: usize = 128;
/// Times that a peer tells, by stage.
pub const STAGES_MAX: usize = 64;
/// Entries in one listing frame.
pub const ENTRIES_MAX: usize = 1024;
/// Small files in one pack.
pub const PACK_FILES_MAX: usize = 1024;
/// Payload bytes in one pack.
pub const PACK_BYTES_MAX: usize = 256 << 10;
/// A pack's body: payload, and a table row of at most 56 bytes for each file.
pub const PACK_BODY_BYTES_MAX: usize = PACK_BYTES_MAX + PACK_FILES_MAX * 56 + 16;
/// Files of at most this size travel in packs; larger ones chunk by chunk. Half a pack, so that a pack holds two.
pub const PACKED_FILE_BYTES_MAX: u64 = 128 << 10;
/// Content of one parcel: a block of 128 KiB and what stands around it.
pub const PARCEL_BYTES_MAX: usize = 160 << 10;
/// Bytes of a symbolic link, as PATH_MAX.
pub const LINK_BYTES_MAX: usize = 4096;
/// Paths named when a job is opened, each of at most PATH_MAX bytes.
pub const OPEN_PATHS_MAX: usize = 128;
pub const PATH_BYTES_MAX: usize = 4096;
/// Bytes of a name, and of a pattern of names.
pub const NAME_BYTES_MAX: usize = 255;
/// Patterns of names that are not final.
pub const VIEW_PATTERNS_MAX: usize = 16;
/// Names of a path that a job or a question is to make, level by level, before anything is sent: deeper trees are described.
pub const LEVELS_MADE_MAX: usize = 128;
/// Text in a failure or a close.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Entries that may be described and not yet settled: two round trips at 100,000 files/s and 200 ms need 40,000.
pub const ENTRIES_OPEN_MAX: u64 = 65_536;
/// Data streams of one session.
pub const STREAMS_MAX: u32 = 256;
/// Jobs open in one session.
pub const JOBS_MAX: usize = 16;
/// Directories of one job: about 100 bytes each at both ends.
pub const DIRECTORIES_MAX: usize = 4 << 20;

/// What the extended attributes of a job's objects take at a receiver that is not done with them. A sender keeps files
/// below the first bound and directories, which stay to the end, below the second.
pub const XATTRS_HELD_BYTES_MAX: u64 = 256 << 20;
pub const XATTRS_OPEN_BYTES_MAX: u64 = 32 << 20;
pub const XATTRS_OF_DIRECTORIES_BYTES_MAX: u64 = 96 << 20;
/// Extended attributes in one listing frame. A sender cuts frames by bytes far below it.
pub const XATTRS_TOLD_MAX: usize = 20 << 10;
/// Files with several names in one job, and other names of them.
pub const SHARED_FILES_MAX: usize = 4 << 20;
pub const OTHER_NAMES_MAX: usize = 4 << 20;
/// Names of users of one job, and of groups; in one message.
pub const OWNERS_MAX: usize = 65_536;
pub const OWNERS_TOLD_MAX: usize = 1024;
pub const OWNER_NAME_BYTES_MAX: usize = 256;

/// Paths that one question names, and their bytes in all.
pub const ASK_PATHS_MAX: usize = 1024;
pub const ASK_BYTES_MAX: usize = 256 << 10;
pub const ASK_BODY_BYTES_MAX: usize = 384 << 10;
/// Records in one part of an answer, and the bytes after which a part is cut.
pub const RECORDS_MAX: usize = 512;
pub const RECORD_BATCH_BYTES: usize = 128 << 10;
pub const RECORDS_BODY_BYTES_MAX: usize = 256 << 10;
/// Bytes of a path in an answer.
pub const RECORD_PATH_BYTES_MAX: usize = 32 << 10;
/// Parts of an answer that may be sent before the client says how far it has read: 400,000 records/s at 74 ms.
pub const BATCHES_AHEAD: u64 = 64;
/// Digests of chunks told at once.
pub const CHUNK_DIGESTS_MAX: u32 = 1024;

/// A job that is handed in: its body, the bytes of the transfer in it, and the addresses of the other endpoint.
pub const ORDER_BODY_BYTES_MAX: usize = 320 << 10;
pub const ORDER_TRANSFER_BYTES_MAX: usize = 256 << 10;
pub const ORDER_ADDRESSES_MAX: usize = 32;
/// Failures of such a job that are told.
pub const ORDER_FAILURES_MAX: usize = 100;
/// Jobs that an answer tells of, at most.
pub const ORDERS_TOLD_MAX: usize = 1024;

/// Addresses that a client or a server tells of itself, and questions for them in one session.
pub const ADDRESSES_MAX: usize = 16;
pub const ADDRESS_ASKS_MAX: u32 = 64;

/// Hosts of one endpoint, and clients that one of them asks about at once.
pub const HOSTS_MAX: usize = 64;
pub const CLIENTS_ASKED_MAX: usize = 64;

/// Jobs whose shares of an endpoint's rates are told.
pub const SHARES_TOLD_MAX: usize = 128;

/// Questions open in one session.
pub const ASKS_MAX: usize = 4;

// Each with its bytes and a card for each address of the client.
const _: () = assert!(ADDRESSES_MAX * (ADDRESSES_MAX * 5 + 32) < PLAIN_BODY_BYTES_MAX);
const _: () = assert!(PACKED_FILE_BYTES_MAX as usize * 2 <= PACK_BYTES_MAX);
const _: () = assert!(HELLO_BODY_BYTES_MAX <= CONTROL_BODY_BYTES_MAX);
const _: () = assert!(ENTRIES_MAX as u64 * 16 <= ENTRIES_OPEN_MAX);
// An entry is at most a name, numbers and a link; a batch of ordinary entries fits one frame, and batches are cut by
// bytes before they reach it.
const _: () = assert!(LINK_BYTES_MAX + 255 + 128 < CONTROL_BODY_BYTES_MAX);
const _: () = assert!(2 * model::fidelity::XATTRS_BYTES_MAX < CONTROL_BODY_BYTES_MAX as u64);
const _: () = assert!(OWNERS_TOLD_MAX * 2 * (OWNER_NAME_BYTES_MAX + 16) < CONTROL_BODY_BYTES_MAX);
const _: () = assert!(XATTRS_OPEN_BYTES_MAX + XATTRS_OF_DIRECTORIES_BYTES_MAX + (64 << 20) < XATTRS_HELD_BYTES_MAX);
// The last record of a part may exceed what it is cut at.
const _: () = assert!(
    RECORD_BATCH_BYTES + RECORD_PATH_BYTES_MAX + LINK_BYTES_MAX + TEXT_BYTES_MAX + RECORDS_MAX * 64
        < RECORDS_BODY_BYTES_MAX
);
const _: () = assert!(ASK_BYTES_MAX + ASK_PATHS_MAX * 80 < ASK_BODY_BYTES_MAX);
const _: () = assert!(CHUNK_DIGESTS_MAX as usize * 32 + 1024 * 16 < LISTS_BODY_BYTES_MAX);
const _: () = assert!(ENTRIES_MAX * 32 < LISTS_BODY_BYTES_MAX);
const _: () = assert!(CHANGES_TOLD * (PATH_BYTES_MAX + 32) < CONTROL_BODY_BYTES_MAX && CHANGES_TOLD <= CHANGES_MAX);
const _: () = assert!(PATH_BYTES_MAX + TEXT_BYTES_MAX + 64 < FAILURES_TOLD_BYTES);
// Published ones as runs of one object with a digest, and as many that were there already.
const _: () = assert!(SETTLED_TOLD * (24 + 56 + 24) + FAILURES_TOLD_BYTES + 64 < CONTROL_BODY_BYTES_MAX);
const _: () = assert!(2 * SETTLED_TOLD <= RUNS_MAX && SETTLED_TOLD <= SETTLED_DIGESTS_MAX);
const _: () = assert!(EXTENTS_TOLD * 35 + ENTRIES_MAX * 24 < CONTROL_BODY_BYTES_MAX && EXTENTS_TOLD <= EXTENTS_MAX);
