//! The longest message of each kind that this program makes, against what a peer takes: no end of a job may depend on how much
//! there is to say.
//!
//! Not here: how long lists are cut (`mover::receiver::tell`, `mover::sender`), which is tried where it is done.

use super::*;
use crate::files::record_bytes;
use crate::limits::*;
use crate::{bounds, fidelity};
use model::fidelity::{WARNINGS_MAX, Warning, XATTR_VALUE_BYTES_MAX, XATTRS_BYTES_MAX};
use model::filter::{RULES_BYTES_MAX, RULES_MAX};
use model::selection::{LISTED_BYTES_MAX, LISTED_MAX};
use model::warrant::WARRANT_BYTES_MAX;

/// The largest numbers: they take the most bytes.
const JOB: u32 = u32::MAX;
const FAR: u64 = u64::MAX - (1 << 20);

fn text() -> String {
    "x".repeat(TEXT_BYTES_MAX)
}

fn options(path_bytes_listed: usize) -> Options {
    let rules = vec![RuleRecord { takes: true, pattern: "x".repeat(RULES_BYTES_MAX / RULES_MAX) }; RULES_MAX];
    let listed = vec![vec![b'l'; path_bytes_listed]; LISTED_MAX];
    let selection = Selection {
        rules,
        size_bytes_min: FAR,
        size_bytes_end: FAR,
        has_modified_since: true,
        modified_since: i64::MIN,
        has_modified_before: true,
        modified_before: i64::MIN,
        is_listed: true,
        listed,
    };
    let decisions = Decisions { removals_max: FAR, backup: vec![b'b'; PATH_BYTES_MAX], ..Decisions::default() };
    Options { selection: Some(selection), decisions: Some(decisions), chunk_bytes: FAR, ..Options::default() }
}

fn open(paths: usize) -> Message {
    let paths = vec![vec![b'p'; PATH_BYTES_MAX]; paths];
    let options = Some(options(LISTED_BYTES_MAX / LISTED_MAX));
    Open { job: JOB, job_id: vec![7; 16], direction: 2, paths, options, is_single: true, is_sequential: true }.into()
}

/// Names that fill a batch, and one more entry with all that an entry can have.
fn entries() -> Message {
    let entry = |name: usize| EntryRecord {
        parent: FAR,
        name: vec![b'n'; name],
        kind: 9,
        mode: 0o7777,
        size_bytes: FAR,
        modified_seconds: i64::MIN,
        modified_nanoseconds: 999_999_999,
        changed_seconds: i64::MIN,
        changed_nanoseconds: 999_999_999,
        inode: FAR,
        device: FAR,
        number: FAR,
        same_as: FAR,
        replaces: Some(FAR),
        attributes: Some(AttributesRecord {
            uid: JOB,
            gid: JOB,
            is_shared: true,
            xattrs: Vec::new(),
            are_incomplete: true,
        }),
        ..EntryRecord::default()
    };
    let value = vec![b'v'; XATTR_VALUE_BYTES_MAX];
    let xattr = XattrRecord { name: vec![b'a'; 255], value };
    let count = XATTRS_BYTES_MAX as usize / XATTR_VALUE_BYTES_MAX;
    let mut last = EntryRecord { link: vec![b'l'; LINK_BYTES_MAX], ..entry(255) };
    last.attributes.as_mut().unwrap().xattrs = vec![xattr; count];
    let entries = std::iter::repeat_n(entry(255), ENTRIES_MAX - 1).chain([last]).collect();
    Entries { job: JOB, first: FAR, entries }.into()
}

fn failures() -> Vec<FailureRecord> {
    let failure = FailureRecord { object: FAR, path: vec![b'p'; PATH_BYTES_MAX], kind: JOB, text: text() };
    let mut failures = vec![failure; FAILURES_MAX + 1];
    failures.truncate(failures_that_fit(&failures));
    failures
}

fn runs(count: usize) -> Vec<Run> {
    (0..count as u64).map(|at| Run { first: FAR + at, count: FAR }).collect()
}

fn extents(count: usize) -> Vec<ExtentRecord> {
    // No file is longer.
    vec![ExtentRecord { object: FAR, start: i64::MAX as u64 - 1, end: i64::MAX as u64 }; count]
}

fn records() -> Message {
    let record = |path: usize| FileRecord {
        asked: JOB,
        path: vec![b'p'; path],
        kind: 10,
        mode: 0o7777,
        size_bytes: FAR,
        allocated_bytes: FAR,
        owner: JOB,
        group: JOB,
        links: FAR,
        inode: FAR,
        device: FAR,
        modified_seconds: i64::MIN,
        modified_nanoseconds: 999_999_999,
        changed_seconds: i64::MIN,
        changed_nanoseconds: 999_999_999,
        ..FileRecord::default()
    };
    let mut records = Vec::new();
    let mut bytes = 0;
    while records.len() + 1 < RECORDS_MAX && bytes < RECORD_BATCH_BYTES {
        let next = record(150);
        bytes += record_bytes(&next);
        records.push(next);
    }
    let (link, digest) = (vec![b'l'; LINK_BYTES_MAX], vec![7; 32]);
    records.push(FileRecord { link, digest, text: text(), ..record(RECORD_PATH_BYTES_MAX) });
    Records { number: JOB, records }.into()
}

fn order() -> Order {
    Order {
        number: JOB,
        job_id: vec![7; 16],
        role: JOB,
        peer_pin: vec![7; 32],
        peer_name: text(),
        addresses: vec![vec![b'a'; 255]; ORDER_ADDRESSES_MAX],
        warrant: vec![7; WARRANT_BYTES_MAX],
        transfer: "t".repeat(ORDER_TRANSFER_BYTES_MAX),
        kind: JOB,
        own_name: text(),
    }
}

fn of_orders() -> Vec<Message> {
    let failure = OrderFailure { path: vec![b'p'; PATH_BYTES_MAX], kind: JOB, text: text() };
    vec![
        order().into(),
        OrderTaken { number: JOB, code: JOB, text: text(), attempt: JOB }.into(),
        OrderNews {
            number: JOB,
            job_id: vec![7; 16],
            text: text(),
            source: "s".repeat(PATH_BYTES_MAX),
            destination: "d".repeat(PATH_BYTES_MAX),
            bottleneck: text(),
            ..OrderNews::default()
        }
        .into(),
        OrderEvents { number: JOB, job_id: vec![7; 16], failures: vec![failure; ORDER_FAILURES_MAX], untold: FAR }
            .into(),
        OrderSteer {
            number: JOB,
            job_id: vec![7; 16],
            steer: JOB,
            warrant: vec![7; WARRANT_BYTES_MAX],
            bwlimit: "Sat-12:30,1000000000000000B ".repeat(256),
            class: JOB,
        }
        .into(),
        OrderAsk { number: JOB, job_id: vec![7; 16], wants_events: true, wants_order: true }.into(),
        OrderEnded { number: JOB, text: text(), hint: text(), order: Some(order()), ..OrderEnded::default() }.into(),
        Revoke { number: JOB, warrant_id: vec![7; 16] }.into(),
    ]
}

fn of_paths() -> Vec<Message> {
    let record = AddressRecord { ip: vec![7; 16], card: JOB, answers_by: vec![JOB; ADDRESSES_MAX] };
    vec![
        AskAddresses { from: vec![vec![7; 16]; ADDRESSES_MAX] }.into(),
        Addresses { addresses: vec![record; ADDRESSES_MAX] }.into(),
    ]
}

fn of_hosts() -> Vec<Message> {
    let addresses = vec![vec![b'a'; 255]; ADDRESSES_MAX];
    let host = HostRecord { name: text(), pin: vec![7; 32], addresses: addresses.clone(), state: JOB };
    let client = ClientRecord {
        pin: vec![7; 32],
        name: text(),
        account: text(),
        path: vec![b'p'; PATH_BYTES_MAX],
        class_max: JOB,
        ..ClientRecord::default()
    };
    vec![
        AskHosts { number: JOB }.into(),
        Hosts { number: JOB, hosts: vec![host; HOSTS_MAX] }.into(),
        Attend { number: JOB, addresses, jobs: JOB, pins: vec![vec![7; 32]; CLIENTS_ASKED_MAX] }.into(),
        Standing { number: JOB, state: JOB, clients: vec![client; CLIENTS_ASKED_MAX] }.into(),
    ]
}

fn of_terms() -> Vec<Message> {
    let share = ShareRecord {
        job_id: vec![7; 16],
        peer: vec![7; 32],
        client: text(),
        user: text(),
        class: JOB,
        is_sent: true,
        moves: FAR,
        rate: FAR,
        by: text(),
    };
    let contracts = "c".repeat(256 << 10);
    vec![
        AskTerms { number: JOB, is_change: true, contracts: contracts.clone(), version: FAR }.into(),
        Terms {
            number: JOB,
            path: vec![b'p'; PATH_BYTES_MAX],
            contracts,
            shares: vec![share; SHARES_TOLD_MAX],
            ..Terms::default()
        }
        .into(),
    ]
}

fn longest() -> Vec<Message> {
    let names = vec![NameRecord { id: JOB, name: vec![b'n'; OWNER_NAME_BYTES_MAX] }; OWNERS_TOLD_MAX];
    let warning = Warning { text: text(), count: FAR, path: vec![b'p'; 100_000] };
    let digest = |bytes| DigestRecord { object: FAR, digest: vec![7; bytes] };
    let digests = std::iter::repeat_n(digest(32), 63).chain([digest(32 * CHUNK_DIGESTS_MAX as usize)]).collect();
    let change = ChangeRecord { path: vec![b'p'; PATH_BYTES_MAX], subject: JOB, causes: JOB };
    let version = VersionRecord { size_bytes: FAR, modified_seconds: i64::MIN, inode: FAR, ..VersionRecord::default() };
    let settled = Settled {
        job: JOB,
        published: runs(SETTLED_TOLD),
        skipped: runs(SETTLED_TOLD),
        failed: failures(),
        digests: vec![digest(32); SETTLED_TOLD],
        ..Settled::default()
    };
    let welcome = Welcome { features: FAR, agent: text(), name: text(), ..Welcome::default() };
    vec![
        Hello { features: FAR, session: vec![7; 16], agent: text(), credential: vec![7; 64], ..Hello::default() }
            .into(),
        welcome.into(),
        Close { code: JOB, text: text() }.into(),
        Ping { number: FAR }.into(),
        Pong { number: FAR }.into(),
        open(1),
        Accept { job: JOB, is_single: true, file_system: text(), buffer_bytes: FAR, takes_whole: true }.into(),
        Reject { job: JOB, code: JOB, text: text() }.into(),
        entries(),
        SourceFailures { job: JOB, failures: failures() }.into(),
        ListEnd { job: JOB, entries: FAR, bytes: FAR }.into(),
        Want { job: JOB, runs: runs(ENTRIES_MAX), extents: extents(EXTENTS_TOLD) }.into(),
        settled.into(),
        Held { job: JOB, extents: extents(1) }.into(),
        Resend { job: JOB, runs: runs(1), extents: extents(1), why: text() }.into(),
        Credit { job: JOB, entries: FAR, in_flight_bytes: FAR }.into(),
        Finish { job: JOB, is_buffered: true }.into(),
        Finished { job: JOB, failures: failures(), failures_untold: FAR, linked: FAR, ..Finished::default() }.into(),
        Cancel { job: JOB, code: JOB, text: text() }.into(),
        Times { job: JOB, stage_ns: vec![FAR; STAGES_MAX], cpu_ns: FAR, ..Times::default() }.into(),
        Ask {
            number: JOB,
            paths: vec![vec![b'p'; ASK_BYTES_MAX / ASK_PATHS_MAX]; ASK_PATHS_MAX],
            versions: vec![version; ASK_PATHS_MAX],
            ..Ask::default()
        }
        .into(),
        records(),
        Answered { number: JOB, code: JOB, text: text(), files: FAR, ..Answered::default() }.into(),
        Proceed { number: JOB, batches: FAR }.into(),
        Stop { number: JOB }.into(),
        AskDigests { job: JOB, runs: runs(ENTRIES_MAX), chunk_first: FAR, chunk_count: JOB }.into(),
        Digests { job: JOB, digests }.into(),
        Changes { job: JOB, changes: vec![change; CHANGES_TOLD] }.into(),
        Names { job: JOB, users: names.clone(), groups: names }.into(),
        fidelity::warnings_to_wire(JOB, &vec![warning; 2 * WARNINGS_MAX]).into(),
        Pace { job: JOB, bytes_per_second: FAR, payload_bytes_max: FAR, streams: JOB }.into(),
        Seal { job: JOB, object: FAR, size_bytes: FAR, name: vec![b'n'; 255], ..Seal::default() }.into(),
    ]
}

#[test]
fn the_longest_message_of_each_kind_is_one_that_a_peer_takes() {
    let longest = [longest(), of_orders(), of_paths(), of_hosts(), of_terms()].concat();
    for (message, (number, _)) in longest.iter().zip(bounds::kinds()) {
        let frame = encode(message.clone());
        let key =
            frame[frame::HEADER_BYTES..].iter().take(2).rev().fold(0, |key, byte| key << 7 | u32::from(byte & 0x7f));
        let found = if frame[frame::HEADER_BYTES] < 0x80 { u32::from(frame[frame::HEADER_BYTES]) } else { key } >> 3;
        assert_eq!(found, number, "the messages are not in the order of their numbers");
        let taken = fits(&frame);
        assert!(taken.is_ok(), "message {number} of {} bytes: {taken:?}", frame.len());
        assert_eq!(decode(&frame[frame::HEADER_BYTES..]).unwrap().as_ref(), Some(message));
        // The kind is refused by its length before it is held, where that is what is wrong.
        let mut reader = crate::FrameReader::new();
        reader.authenticated();
        reader.push(&frame, &mut |_, _| Ok(())).unwrap();
    }
    assert_eq!(longest.len(), bounds::kinds().count());
}

/// Only the description of a job can be too long, by what its user asked for: whoever sends it looks before.
#[test]
fn a_job_that_no_message_can_describe_is_known_before_it_is_sent() {
    assert!(fits(&encode(open(OPEN_PATHS_MAX))).is_err());
    let paths = vec![b"a".to_vec(); OPEN_PATHS_MAX + 1];
    assert!(fits(&encode(Open { paths, ..Open::default() })).is_err());
}
