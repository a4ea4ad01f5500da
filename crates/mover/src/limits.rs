//! Every bound of the data path in one table, with the relations between them proved at compile time.

use model::fidelity::XATTRS_BYTES_MAX;
use std::time::Duration;
use wire::limits::{ENTRIES_MAX, ENTRIES_OPEN_MAX, PACK_BODY_BYTES_MAX, XATTRS_TOLD_MAX};

/// The block a lane works on: it is read, digested and sealed while in the second-level cache. 64 KiB and 256 KiB were
/// within the noise, 4 MiB was slower (data-path.md).
pub const BLOCK_BYTES: usize = 128 << 10;
/// A lane's own memory: a pack, a block, and the stream's two buffers.
pub const LANE_BYTES: usize = PACK_BODY_BYTES_MAX + BLOCK_BYTES + (512 << 10);
/// What compression adds to it at the sender: a block gathered, one compressed, and the library's state at the highest level
/// that is used.
pub const PACKER_BYTES: usize = 2 << 20;
/// And at the receiver: a parcel, its content, and the library's state.
pub const OPENER_BYTES: usize = 512 << 10;
/// Memory for all lanes of a process. With listings and directories this keeps a process under 256 MiB.
pub const MEMORY_BYTES_MAX: usize = 96 << 20;
/// What peers may make a process hold beside its lanes, as a multiple of what its lanes have (`--memory`): 2.25 GiB with the
/// default, but no more than a third of the host's memory. A client that is alone at an endpoint may hold 71 % of it, which is
/// 4 Mi directories with names of 20 bytes.
pub const HELD_FACTOR: u64 = 24;
pub const HELD_PART: u64 = 3;
pub const HELD_BYTES_MIN: u64 = 64 << 20;
/// What a connection holds before it is a session or a stream of a job: its thread's stack, keys, buffers. Measured in
/// a build without optimization: 150 KiB, of which the stack is 67.
pub const CONNECTION_BYTES: usize = 160 << 10;
/// What a session holds beside its jobs: the frame that is coming in, what may wait to be sent before it is counted, buffers.
pub const SESSION_BYTES: usize = wire::limits::CONTROL_BODY_BYTES_MAX + (512 << 10);
/// What a job holds beside what is described: its threads, and with `--delta` the chunks under comparison.
pub const JOB_BYTES: usize = 256 << 10;
pub const DELTA_BYTES: usize = 1 << 20;
/// What an answer to a question holds: a part that is being gathered, and what reading directories takes.
pub const ASK_BYTES: usize = 1 << 20;
/// A lane whose peer has moved nothing for this long is ended while others wait for its memory. How often that is looked for,
/// however many wait.
pub const IDLE_LANE: Duration = Duration::from_millis(1500);
pub const IDLE_LANE_INTERVAL: Duration = Duration::from_millis(200);
/// A session without a job or a question gives its place to a newcomer after this long, a question whose answer is not taken
/// after the second time, a job that does not move after the third; a session of which nothing else is left with them.
pub const IDLE_SESSION: Duration = Duration::from_secs(2);
pub const IDLE_ASK: Duration = Duration::from_secs(2);
pub const IDLE_JOB: Duration = Duration::from_secs(10);
/// How long whoever asked waits for a place that was taken from another.
pub const PLACE_PATIENCE: Duration = Duration::from_millis(500);
/// How long a sender waits for memory to describe more, while nothing that it has described is open.
pub const DESCRIBE_PATIENCE: Duration = Duration::from_secs(30);
/// How long a lane waits for its memory before it looks whether it is still needed.
pub const PERMIT_PATIENCE: Duration = Duration::from_millis(100);
/// A sender's small files of this size and more have their digests timed: below it, reading the clock twice would cost
/// more than 1 % of the time that the file takes.
pub const DIGEST_TIMED_BYTES: usize = 16 << 10;
/// Payload in flight that a receiver grants. It lies in the buffers of sockets, which the kernel bounds, and takes no memory of
/// this program but the sender's book of it: at most 32,768 chunks, 2 MiB. So it is no bound of a rate (docs/limits.md).
pub const IN_FLIGHT_BYTES: u64 = 32 << 30;
/// What a sender may use before the first grant arrives.
pub const INITIAL_ENTRIES: u64 = 4096;
pub const INITIAL_IN_FLIGHT_BYTES: u64 = 64 << 20;
/// A grant is sent when this many entries were settled since the last.
pub const GRANT_STEP: u64 = ENTRIES_OPEN_MAX / 8;
/// Entries described in one frame; the first frames are smaller so that the first byte leaves early.
pub const BATCH_ENTRIES: usize = ENTRIES_MAX;
pub const FIRST_BATCH_ENTRIES: usize = 32;
/// Names and links in one frame stay far below the frame's bound.
pub const BATCH_BYTES: usize = 256 << 10;
/// Small files that a lane claims at once, and their bytes: 10 ms of work, so that lanes end together. Over distance it is
/// more, and lanes claim fewer bytes near the end (`sender::work::claim_bytes`).
pub const CLAIM_FILES: usize = 512;
pub const CLAIM_BYTES: u64 = 4 << 20;
/// From this shortest round trip on, a path is far: its lanes keep different windows for long, and a chunk takes long.
pub const FAR: Duration = Duration::from_millis(10);
/// Runs looked at for one in a directory that no other lane is in.
pub const RUNS_LOOKED_AT: usize = 64;
/// How often an object is sent again after a digest mismatch or a failed sync, or described again after its source
/// changed.
pub const TRIES_MAX: u32 = 3;
/// Files of one job whose chunks are compared, or that wait for the chunks that differ: each has its old and its new file
/// and a journal open.
pub const DELTAS_OPEN_MAX: usize = 64;
/// Staged small files waiting for their durability point.
pub const COMMIT_QUEUE_MAX: usize = 8192;
/// Of objects that came in chunks so many: each keeps its staging and its journal open.
pub const COMMIT_LARGE_MAX: usize = 128;
/// Names directly in a job's destination among which two sources with the same one are noticed.
pub const TOP_NAMES_MAX: usize = 1 << 20;
/// Interval of checkpoints of large objects under way.
pub const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);
/// A data stream on which something is sent and whose other end's kernel acknowledges nothing for this long, while the
/// control stream is heard, ends; the lane's extents move to another. A stalled disk or program does not end it: its kernel
/// answers.
pub const STREAM_TIMEOUT: Duration = Duration::from_secs(20);
/// A data stream on which nothing more is taken, while others of its job went on for this long, ends like a silent one: what
/// holds it up is not the disk that all of them write to.
pub const STRAGGLER_TIMEOUT: Duration = Duration::from_secs(60);
/// A path on which something is sent and nothing is acknowledged for this long, while another path of the job goes on, is given up
/// for the time being: its streams end and the others carry what was under way. A receiver, which cannot tell an idle path from a
/// dead one, waits for the second time. Three retransmissions of a path of 200 ms fit into the first.
pub const WAY_SILENCE: Duration = Duration::from_secs(4);
pub const WAY_SILENCE_RECEIVING: Duration = Duration::from_secs(20);
/// A path that moved something this recently goes on.
pub const WAY_ALIVE: Duration = Duration::from_secs(2);
/// A control stream on which nothing was heard for this long, while data moves on another path, has lost its path: each side tells
/// its times every second.
pub const CONTROL_SILENCE: Duration = Duration::from_secs(8);
/// Probes of a closed window that may stay without an answer: they come ever more rarely, so that time alone says nothing.
pub const STREAM_PROBES_MAX: u8 = 4;
/// A job in which nothing moved and nothing was settled for this long, although one side owes the other something and the
/// control stream answers, is given up. Longer than storage may hang and come back (F078: 10 minutes).
pub const NO_PROGRESS_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// What a peer's lanes may take after their job has ended in order, before they are broken off.
pub const LANE_END_PATIENCE: Duration = Duration::from_secs(10);
/// How long a receiver's lane waits for memory while other lanes of its job work: what its sender has put into its stream
/// waits with it.
pub const RECEIVE_PERMIT_PATIENCE: Duration = Duration::from_secs(1);
/// A control stream that received nothing for this long is dead; pings go every `PING_INTERVAL`.
pub const CONTROL_TIMEOUT: Duration = Duration::from_secs(40);
pub const PING_INTERVAL: Duration = Duration::from_secs(10);
/// How long a data stream may wait for the control stream's job it belongs to.
pub const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Reviews, one after the other, in which an endpoint may fail to look up a client's rights before its session ends.
pub const DOUBTS_MAX: u32 = 4;
/// How long a client waits for an answer to its hello or its job.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How often each side tells the other where its time went.
pub const TIMES_INTERVAL: Duration = Duration::from_secs(1);

// 400 Gbit/s at 200 ms, and as much again on its way to an acknowledgement.
const _: () = assert!(IN_FLIGHT_BYTES > 2 * (400_000_000_000 / 8 / 1000 * 200));
const _: () = assert!(INITIAL_ENTRIES <= ENTRIES_OPEN_MAX);
const _: () = assert!(BATCH_ENTRIES as u64 * 4 <= INITIAL_ENTRIES);
const _: () = assert!(GRANT_STEP >= BATCH_ENTRIES as u64);
// An extended attribute counts at least its name, of five bytes and more, and what its holder needs.
const _: () = assert!((BATCH_BYTES + XATTRS_BYTES_MAX as usize) / (5 + 16) < XATTRS_TOLD_MAX);
const _: () = assert!(PING_INTERVAL.as_secs() * 3 < CONTROL_TIMEOUT.as_secs());
const _: () = assert!(WAY_ALIVE.as_secs() < WAY_SILENCE.as_secs() && WAY_SILENCE.as_secs() < STREAM_TIMEOUT.as_secs());
const _: () = assert!(TIMES_INTERVAL.as_secs() * 4 < CONTROL_SILENCE.as_secs());
const _: () = assert!(STREAM_TIMEOUT.as_secs() < CONTROL_TIMEOUT.as_secs());
const _: () = assert!(NO_PROGRESS_TIMEOUT.as_secs() > 600);
const _: () = assert!(LANE_BYTES * 64 <= MEMORY_BYTES_MAX);

/// Lanes that bring what waited in a buffer to storage: as many as a store behind a network needs to be busy, and each has its
/// memory.
pub const DRAIN_LANES_MAX: u32 = 4;
/// Lanes that read a source into a buffer ahead of the network: like those that drain one.
pub const READ_LANES_MAX: u32 = 4;
/// A lane that has been in storage for so long stands for storage that stands still: what comes meanwhile goes to the buffer.
pub const STORAGE_LATE: Duration = Duration::from_millis(50);
/// And after so long it counts as storage that stalls, which is remembered.
pub const STORAGE_STALLED: Duration = Duration::from_millis(500);
/// For so long, by all jobs with the same buffer.
pub const STALL_REMEMBERED: Duration = Duration::from_secs(600);

/// How often an object that grew may be found changed after it was sealed, and was not sealed as another version since.
pub const SETTLE_ROUNDS_MAX: u32 = 3;
