//! The ways in which clients of one ticket are greedy. They keep to the protocol, and keep what they get.

use super::Args;
use crate::hostile::peer::{Peer, Target, identity, opening};
use model::files::Question;
use model::options::Deletion;
use model::{Fidelity, TransferOptions};
use mover::job_options::options_to_wire;
use std::any::Any;
use std::time::{Duration, Instant};
use wire::Message;
use wire::files::ask_of;
use wire::handshake::Direction::ClientSends;
use wire::limits::{ASKS_MAX, ENTRIES_OPEN_MAX, JOBS_MAX};
use wire::message::{AttributesRecord, Entries, EntryRecord, Ping, XattrRecord};

pub struct Greed {
    pub name: &'static str,
    pub faults: &'static [&'static str],
    /// The honest ones ask, too, instead of copying.
    pub asks: bool,
    pub act: fn(&Target, &Args) -> Result<Held, String>,
}

/// What the greedy hold until it is dropped, and what they say of it.
pub struct Held {
    pub got: String,
    _all: Box<dyn Any>,
}

const fn greed(
    name: &'static str,
    faults: &'static [&'static str],
    asks: bool,
    act: fn(&Target, &Args) -> Result<Held, String>,
) -> Greed {
    Greed { name, faults, asks, act }
}

pub const GREEDS: &[Greed] = &[
    greed("idle sessions of few keys", &["F013"], false, idle_sessions),
    greed("a session, a job and an idle stream of many keys", &["F013"], false, many_keys),
    greed("many jobs of one key with idle streams", &["F013"], false, idle_streams),
    greed("answers that nobody takes", &["F016", "F013"], true, unanswered),
    greed("open connections of few keys", &["F014"], false, connections),
    greed("directories without end", &["F013"], false, directories),
    greed("long names of files to be remembered", &["F013"], false, names),
    greed("extended attributes", &["F013"], false, attributes),
];

/// Longer than a trial takes.
const FOR_LONG: Duration = Duration::from_secs(600);
/// More tries than anybody is given places.
const SESSIONS_TRIED: usize = 80;

fn long_lived<'a>(target: &'a Target, key: &net::Identity) -> Result<Peer<'a>, String> {
    let mut peer = target.session_as(key)?;
    peer.control.set_deadline(Some(Instant::now() + FOR_LONG));
    Ok(peer)
}

/// Nothing of a target is kept by what it gave but the streams; those are leaked into the box by what they are.
fn held(got: String, all: impl Any) -> Result<Held, String> {
    Ok(Held { got, _all: Box::new(all) })
}

/// The streams of peers, without the borrow of their target.
fn streams(peers: Vec<Peer<'_>>) -> Vec<net::DataStream> {
    peers.into_iter().map(|peer| peer.control).collect()
}

fn idle_sessions(target: &Target, _: &Args) -> Result<Held, String> {
    let mut peers = Vec::new();
    let mut refused = 0;
    for _ in 0..4 {
        let key = identity()?;
        for _ in 0..SESSIONS_TRIED {
            match long_lived(target, &key) {
                Ok(peer) => peers.push(peer),
                Err(_) => refused += 1,
            }
        }
    }
    held(format!("{} sessions, {refused} refused", peers.len()), streams(peers))
}

/// A stream on which a frame has begun, and no more: it takes memory.
fn begun(mut stream: net::DataStream) -> net::DataStream {
    let _ = stream.send(&[&[2]]);
    stream
}

fn many_keys(target: &Target, args: &Args) -> Result<Held, String> {
    let (mut peers, mut joined, mut refused) = (Vec::new(), Vec::new(), 0);
    for _ in 0..args.keys {
        let Ok(mut peer) = long_lived(target, &identity()?) else {
            refused += 1;
            continue;
        };
        peer.say(opening(1, ClientSends, "null:"));
        if accepted(&mut peer, 1) {
            joined.push(begun(peer.join(ClientSends, 0)?));
        }
        peers.push(peer);
    }
    held(format!("{} sessions, {} streams, {refused} refused", peers.len(), joined.len()), (streams(peers), joined))
}

fn idle_streams(target: &Target, _: &Args) -> Result<Held, String> {
    let key = identity()?;
    let (mut peers, mut joined, mut jobs) = (Vec::new(), Vec::new(), 0);
    for _ in 0..8 {
        let mut peer = long_lived(target, &key)?;
        for job in 1..=JOBS_MAX as u32 {
            peer.say(opening(job, ClientSends, "null:"));
            if accepted(&mut peer, job) {
                joined.push(begun(peer.join_job(job, ClientSends, 0)?));
                jobs += 1;
            }
        }
        peers.push(peer);
    }
    held(format!("{jobs} jobs with a stream each"), (streams(peers), joined))
}

fn unanswered(target: &Target, _: &Args) -> Result<Held, String> {
    let mut peers = Vec::new();
    for _ in 0..8 {
        let key = identity()?;
        for _ in 0..2 {
            let mut peer = long_lived(target, &key)?;
            for number in 1..=ASKS_MAX as u32 {
                let question = Question::List { paths: vec![b"listed/".to_vec()], levels: 1, digest: None };
                peer.say(ask_of(number, &question));
            }
            peers.push(peer);
        }
    }
    // So long that all parts that may wait do, on a slow machine too.
    std::thread::park_timeout(Duration::from_secs(12));
    held(format!("{} questions asked", peers.len() * ASKS_MAX), streams(peers))
}

fn connections(target: &Target, args: &Args) -> Result<Held, String> {
    let (mut all, mut peers) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let key = identity()?;
        // Its session lives as long as its streams.
        peers.push(long_lived(target, &key)?);
        for _ in 0..args.keys {
            all.extend(target.stream(&key).ok());
        }
    }
    held(format!("{} connections", all.len()), (all, streams(peers)))
}

/// Describes batches made by `entry` until `count` are, or the endpoint has had enough; says what it was told.
fn describe(
    peer: &mut Peer<'_>,
    job: u32,
    count: u64,
    batch: u64,
    entry: &dyn Fn(u64) -> EntryRecord,
) -> (u64, Option<String>) {
    let mut granted = ENTRIES_OPEN_MAX;
    let mut next = 1;
    while next <= count {
        let last = (next + batch - 1).min(count);
        while last > granted {
            match peer.hear() {
                Some(Message::Credit(credit)) if credit.job == job => granted = credit.entries,
                Some(Message::Cancel(cancel)) if cancel.job == job => return (next - 1, Some(cancel.text)),
                Some(Message::Close(close)) => return (next - 1, Some(close.text)),
                Some(_) => {}
                None => return (next - 1, Some("the session ended".to_owned())),
            }
        }
        peer.say(Entries { job, first: next, entries: (next..=last).map(entry).collect() });
        next = last + 1;
    }
    // All that was said has been looked at when the answer to this comes.
    peer.say(Ping { number: u64::from(job) });
    loop {
        match peer.hear() {
            Some(Message::Pong(pong)) if pong.number == u64::from(job) => return (count, None),
            Some(Message::Cancel(cancel)) if cancel.job == job => return (count, Some(cancel.text)),
            Some(Message::Close(close)) => return (count, Some(close.text)),
            Some(_) => {}
            None => return (count, Some("the session ended".to_owned())),
        }
    }
}

fn accepted(peer: &mut Peer<'_>, job: u32) -> bool {
    loop {
        match peer.hear() {
            Some(Message::Accept(accept)) if accept.job == job => return true,
            Some(Message::Reject(reject)) if reject.job == job => return false,
            Some(_) => {}
            None => return false,
        }
    }
}

/// Four keys describe in jobs one after the other until they are refused; the first job of each must have got far.
fn described(
    target: &Target,
    options: &TransferOptions,
    count: u64,
    batch: u64,
    entry: &dyn Fn(u64) -> EntryRecord,
) -> Result<Held, String> {
    let (mut peers, mut total, mut told) = (Vec::new(), 0, Vec::new());
    for _ in 0..4 {
        let mut peer = long_lived(target, &identity()?)?;
        for job in 1..=4 {
            let options = Some(options_to_wire(options));
            peer.say(wire::message::Open { options, ..opening(job, ClientSends, "null:") });
            if !accepted(&mut peer, job) {
                continue;
            }
            let (described, why) = describe(&mut peer, job, count, batch, entry);
            total += described;
            told.extend(why);
        }
        peers.push(peer);
    }
    if let Some(unclear) = told.iter().find(|text| !text.contains("ticket") && !text.contains("this endpoint holds")) {
        return Err(format!("a refusal that names no account: {unclear}"));
    }
    let first = told.first().cloned().unwrap_or_else(|| "never refused".to_owned());
    held(format!("{total} objects described; {first}"), streams(peers))
}

fn directories(target: &Target, args: &Args) -> Result<Held, String> {
    let entry = |id: u64| EntryRecord {
        parent: id / 2,
        kind: 1,
        mode: 0o755,
        name: format!("{id:08}").into(),
        ..EntryRecord::default()
    };
    described(target, &TransferOptions::default(), args.directories, 1024, &entry)
}

fn names(target: &Target, args: &Args) -> Result<Held, String> {
    let options = TransferOptions {
        deletion: Some(Deletion { is_at_root: false, removals_max: None }),
        ..TransferOptions::default()
    };
    let entry =
        |id: u64| EntryRecord { kind: 2, mode: 0o644, name: format!("{id:0>250}").into(), ..EntryRecord::default() };
    described(target, &options, args.directories.min(65_536), 1024, &entry)
}

fn attributes(target: &Target, args: &Args) -> Result<Held, String> {
    let fidelity = Fidelity { xattrs: true, ..Fidelity::default() };
    let options = TransferOptions { fidelity, ..TransferOptions::default() };
    let entry = |id: u64| {
        let value = vec![id as u8; 16 << 10];
        let xattrs = vec![XattrRecord { name: format!("user.{id}").into(), value }];
        let attributes = Some(AttributesRecord { xattrs, ..AttributesRecord::default() });
        EntryRecord { kind: 2, mode: 0o644, name: format!("{id}").into(), attributes, ..EntryRecord::default() }
    };
    described(target, &options, args.directories.min(12_288), 32, &entry)
}
