//! Whole transfers to and from a store that is no file system: through an endpoint and within a process, with faults between.

mod questions;

use super::endpoint::{self, OpenHost, client, content, serve};
use conformance::Seen;
use conformance::memory::{Call, Memory, Order, Rules};
use model::options::{Compare, Fsync, Verify};
use model::{FailureKind, JobId, Pin, Timestamp, TransferOptions};
use mover::local::{LocalSpec, copy};
use mover::session::{Grant, Host, HostFacts, Opened, PullSpec, PushSpec, Server};
use mover::{Ending, Progress, Report};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::Found;
use wire::Refusal;
use wire::handshake::Direction;
use wire::message::Open;

const CHUNK_BYTES: u64 = 1 << 20;

/// An endpoint whose storage is memory.
struct MemoryHost(Memory);

impl Host for MemoryHost {
    fn facts(&self) -> HostFacts {
        HostFacts { name: "test".into(), is_read_only: false }
    }

    fn authorise(&self, pin: Pin, _: &[u8]) -> Result<Grant, Refusal> {
        Ok(Grant { pin, name: "test".into(), account: "test".into(), may_write: true, warrant: None })
    }

    fn open(
        &self,
        _: &Grant,
        _: JobId,
        direction: Direction,
        _: &Open,
        _: &TransferOptions,
    ) -> Result<Opened, Refusal> {
        Ok(match direction {
            Direction::ClientSends => {
                let sink = self.0.sink();
                Opened::Receive { sink, rename_to: None, observer: None, file_system: "memory".into(), asked: None }
            }
            Direction::ServerSends => Opened::Send { source: self.0.source(), is_single: false, observer: None },
        })
    }

    fn ended(&self, _: &Grant, _: JobId, _: Direction, _: &Progress, _: &Ending) {}
}

fn memory_endpoint(memory: &Memory) -> endpoint::Endpoint {
    serve(Server::new(Arc::new(MemoryHost(memory.clone())), mover::Memory::default()))
}

fn tree() -> Memory {
    let memory = Memory::default();
    for (seed, size) in [0, 1, 131_073, 1 << 20, (2 << 20) - 1, 5 << 20].into_iter().enumerate() {
        memory.put(&format!("sizes/{size}"), &content(seed as u64, size));
    }
    for number in 0..400 {
        memory.put(&format!("many/d{}/f{number}", number % 7), &content(number, (number as usize * 37) % 3000));
    }
    memory
}

/// Every path with what is there, its mode and its time.
fn describe(memory: &Memory) -> BTreeMap<Vec<u8>, (Seen, u32, Timestamp)> {
    let source = memory.source();
    let mut said = BTreeMap::new();
    source
        .scan(&mut |found| {
            let Found::Object(object) = found else { panic!("{found:?}") };
            said.insert(source.path(&object), (object.entry.mode, object.entry.generation.modified));
            true
        })
        .unwrap();
    let listing = memory.listing().unwrap();
    listing.into_iter().map(|(path, seen)| (path.clone(), (seen, said[&path].0, said[&path].1))).collect()
}

fn options() -> TransferOptions {
    TransferOptions { chunk_bytes: CHUNK_BYTES, ..TransferOptions::default() }
}

fn finished(report: &Report) {
    assert!(matches!(report.ending, Ending::Finished(_)), "{:?} {:?}", report.ending, report.snapshot.counts);
    assert_eq!(report.snapshot.counts.files_failed, 0);
}

fn push_spec(path: &str, options: TransferOptions) -> PushSpec {
    PushSpec { id: JobId([1; 16]), path: path.into(), is_single: false, options }
}

fn pull_spec(paths: &[u8], options: TransferOptions, is_sequential: bool) -> PullSpec {
    PullSpec { id: JobId([2; 16]), paths: vec![paths.to_vec()], options, rename_to: None, is_sequential }
}

#[test]
fn a_tree_in_memory_is_pushed_into_memory_and_a_second_push_moves_nothing() {
    let (from, to) = (tree(), Memory::default());
    let client = client(&memory_endpoint(&to), None);
    let report = client.push(push_spec("", options()), from.source(), Progress::new(), None, &|| false);
    finished(&report);
    assert_eq!(describe(&from), describe(&to));
    assert_eq!(to.left(), [""; 0]);
    let again = client.push(push_spec("", options()), from.source(), Progress::new(), None, &|| false);
    finished(&again);
    assert_eq!((again.snapshot.counts.bytes_sent, again.snapshot.counts.files_skipped), (0, 406));
    client.close();
}

#[test]
fn a_tree_in_memory_goes_to_a_file_system_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let from = tree();
    let host = OpenHost { root: dir.path().to_owned() };
    let client = client(&serve(Server::new(Arc::new(host), mover::Memory::default())), None);
    finished(&client.push(push_spec("to/here", options()), from.source(), Progress::new(), None, &|| false));
    for options in [
        options(),
        TransferOptions { verify: Verify::Reread, ..options() },
        TransferOptions { fsync: Fsync::File, ..options() },
        TransferOptions { fsync: Fsync::Never, ..options() },
    ] {
        let back = Memory::default();
        let spec = pull_spec(b"to/here/", options, false);
        finished(&client.pull(spec, back.sink(), Progress::new(), None, &|| false).unwrap());
        assert_eq!(describe(&from), describe(&back));
        assert_eq!(back.left(), [""; 0]);
    }
    client.close();
}

#[test]
fn a_store_that_takes_parts_in_order_gets_them_so() {
    let from = tree();
    for is_conditional in [false, true] {
        let to = Memory::new(Rules { order: Order::Parts(1 << 16), is_conditional, ..Rules::default() });
        let report = local(&from, &to, true);
        finished(&report);
        assert_eq!(describe(&from), describe(&to));
        assert_eq!(to.left(), [""; 0]);
    }
}

fn local(from: &Memory, to: &Memory, is_sequential: bool) -> Report {
    let (id, memory) = (JobId([3; 16]), mover::Memory::default());
    let spec =
        LocalSpec { id, options: options(), rename_to: None, lanes: None, lanes_first: None, is_sequential, memory };
    copy(spec, from.source(), to.sink(), Progress::new(), None, &|| false).unwrap()
}

#[test]
fn calls_that_fail_once_fail_at_most_the_objects_they_were_for() {
    let from = tree();
    let whole = describe(&from);
    for (call, after) in [
        (Call::Decide, 3),
        (Call::Write, 3),
        (Call::SyncGroup, 0),
        (Call::Publish, 3),
        (Call::Begin, 1),
        (Call::WriteAt, 30),
        (Call::Journal, 3),
    ] {
        let to = Memory::new(Rules { is_synced: true, ..Rules::default() });
        to.fail(call, after, 1, FailureKind::WriteError);
        let client = client(&memory_endpoint(&to), None);
        let report = client.push(push_spec("", options()), from.source(), Progress::new(), None, &|| false);
        client.close();
        assert!(to.calls(call) > after, "{call:?} was never met");
        let counts = report.snapshot.counts;
        assert_eq!(counts.files_listed, counts.files_done + counts.files_skipped + counts.files_failed, "{call:?}");
        let there = describe(&to);
        let is_of_source = |path: &Vec<u8>| there[path].0 == Seen::Directory || there[path] == whole[path];
        assert!(there.keys().all(is_of_source), "{call:?}: what is there is not what was sent");
        // The next attempt makes it whole.
        finished(&local(&from, &to, false));
        assert_eq!(describe(&to), whole, "{call:?}");
        assert_eq!(to.left(), [""; 0], "{call:?}");
    }
}

#[test]
fn an_interrupted_pull_into_memory_resumes_with_the_chunks_it_has() {
    let from = Memory::default();
    from.put("big", &content(5, 24 << 20));
    let client = client(&memory_endpoint(&from), Some(2));
    let to = Memory::default();
    to.delay(Call::WriteAt, Duration::from_millis(4));
    let progress = Progress::new();
    let is_enough = || to.calls(Call::Journal) > 8;
    let report = client.pull(pull_spec(b"", options(), false), to.sink(), progress, None, &is_enough).unwrap();
    assert!(matches!(report.ending, Ending::Cancelled { .. }), "{:?} {:?}", report.ending, report.snapshot.counts);
    assert!(to.content("big").is_none() && to.left().len() == 1, "{:?}", to.left());
    to.delay(Call::WriteAt, Duration::ZERO);
    // A cancelled pull returns before its lanes have let their staging go.
    while to.is_held() {
        std::thread::yield_now();
    }
    let spec = pull_spec(b"", options(), false);
    let report = client.pull(spec, to.sink(), Progress::new(), None, &|| false).unwrap();
    finished(&report);
    assert!(report.snapshot.counts.bytes_resumed >= 4 << 20, "{:?}", report.snapshot.counts);
    assert_eq!(describe(&from), describe(&to));
    assert_eq!(to.left(), [""; 0]);
    client.close();
}

/// What is read back or compared moves nothing, and takes longer here than a job may stand still.
#[test]
fn work_of_which_one_side_sees_nothing_is_no_standstill() {
    const STEP: Duration = Duration::from_millis(100);
    const PATIENCE: Duration = Duration::from_millis(2500);
    let from = Memory::default();
    (0..70).for_each(|number| from.put(&format!("f{number}"), &content(number, 1000)));
    let push = |to: &Memory, options: TransferOptions| {
        let server = Server::new(Arc::new(MemoryHost(to.clone())), mover::Memory::default());
        server.set_no_progress_timeout(PATIENCE);
        let client = client(&serve(server), None);
        client.set_no_progress_timeout(PATIENCE);
        finished(&client.push(push_spec("", options), from.source(), Progress::new(), None, &|| false));
        client.close();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let to = Memory::new(Rules { is_synced: true, ..Rules::default() });
            to.delay(Call::Reread, STEP);
            push(&to, TransferOptions { verify: Verify::Reread, ..options() });
        });
        scope.spawn(|| {
            let to = Memory::default();
            push(&to, options());
            to.delay(Call::Open, STEP);
            push(&to, TransferOptions { compare: Compare::Checksum, ..options() });
        });
    });
}

#[test]
fn a_source_that_cannot_be_read_fails_its_file_and_the_next_attempt_brings_it() {
    let (from, to) = (tree(), Memory::default());
    from.fail(Call::Read, 30, 1, FailureKind::ReadError);
    let client = client(&memory_endpoint(&to), None);
    let report = client.push(push_spec("", options()), from.source(), Progress::new(), None, &|| false);
    assert_eq!(report.snapshot.counts.files_failed, 1, "{:?}", report.snapshot.counts);
    assert_eq!(describe(&to).len() + 1, describe(&from).len());
    finished(&client.push(push_spec("", options()), from.source(), Progress::new(), None, &|| false));
    assert_eq!(describe(&from), describe(&to));
    client.close();
}
