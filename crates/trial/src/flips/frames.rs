//! Stages a and b: bits of frames between the sender's digest and the receiver's check.
//!
//! A carrier ends TLS on both sides and passes whole frames on, so that what it flips has been sealed and opened well:
//! memory errors at either end look like that. Sealed bytes are flipped by a relay that knows no TLS.

use super::Bed;
use super::damage::Found;
use super::joined::{self, Carrier, End, Job, Outcome, STALL, options};
use crate::random::Random;
use crate::record::{Outcome as Verdict, Tally};
use anyhow::{Context, Result};
use model::DigestAlgorithm;
use net::DataStream;
use std::collections::{BTreeSet, HashSet};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::posix::{PosixSink, beneath};
use trial::loopback;
use wire::data::{CHUNK_HEADER_BYTES, PackRow, decode_pack, pack_table_bytes, row_bytes, trailer_bytes};
use wire::frame::{FrameHeader, FrameType, HEADER_BYTES};

/// Of a row or trailer, what stands before its digest.
const BEFORE_DIGEST_BYTES: usize = 16;
/// What TLS needs before the first content travels, with room to spare.
const HANDSHAKE_BYTES_MAX: u64 = 16 << 10;
/// Where a flip may leave a job waiting, it need not wait long.
const STALL_EXPECTED: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Which {
    /// The payload of every object and chunk, once.
    Payload,
    /// Payload and digest of every object and chunk, once.
    PayloadAndDigest,
    /// One bit of the first frame's header, table or trailer.
    Structure,
    Nothing,
}

struct Tap {
    which: Which,
    algorithm: DigestAlgorithm,
    random: Random,
    /// Objects and chunk starts that were flipped before: what comes again passes.
    flipped: HashSet<(u64, u64)>,
    flips: u64,
    rows: Vec<PackRow>,
}

impl Tap {
    fn new(which: Which, algorithm: DigestAlgorithm, seed: u64) -> Arc<Mutex<Tap>> {
        let random = Random::new(seed);
        Arc::new(Mutex::new(Tap { which, algorithm, random, flipped: HashSet::new(), flips: 0, rows: Vec::new() }))
    }

    fn pass(&mut self, frame: &mut [u8]) {
        let kind = FrameType::from_number(frame[0]);
        match (self.which, kind) {
            (Which::Nothing, _) => {}
            (Which::Structure, Some(FrameType::Pack | FrameType::Chunk)) if self.flips == 0 => self.structure(frame),
            (Which::Structure, _) => {}
            (_, Some(FrameType::Pack)) => self.pack(frame),
            (_, Some(FrameType::Chunk)) => self.chunk(frame),
            _ => {}
        }
    }

    fn pack(&mut self, frame: &mut [u8]) {
        let mut rows = std::mem::take(&mut self.rows);
        let body = &mut frame[HEADER_BYTES..];
        decode_pack(body, self.algorithm, &mut rows).expect("a sender sends packs that are read");
        let mut at = pack_table_bytes(rows.len(), self.algorithm);
        let first_row = at - rows.len() * row_bytes(self.algorithm);
        for (number, row) in rows.iter().enumerate() {
            let payload = at..at + row.length as usize;
            at = payload.end;
            let digest = first_row + number * row_bytes(self.algorithm) + BEFORE_DIGEST_BYTES;
            self.flip_once((row.object.0, 0), body, payload, digest);
        }
        self.rows = rows;
    }

    fn chunk(&mut self, frame: &mut [u8]) {
        let body = &mut frame[HEADER_BYTES..];
        let number = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().expect("eight bytes"));
        let key = (number(0), number(8));
        let end = body.len() - trailer_bytes(self.algorithm);
        self.flip_once(key, body, CHUNK_HEADER_BYTES..end, end + BEFORE_DIGEST_BYTES);
    }

    fn flip_once(&mut self, key: (u64, u64), body: &mut [u8], payload: std::ops::Range<usize>, digest: usize) {
        if !self.flipped.insert(key) {
            return;
        }
        let digest_bytes = self.algorithm.digest_bytes();
        let content_bytes = payload.len() as u64;
        let in_digest = self.which == Which::PayloadAndDigest
            && self.random.below(content_bytes + digest_bytes as u64) >= content_bytes;
        let part = if in_digest { digest..digest + digest_bytes } else { payload };
        self.flips += u64::from(self.random.flip(&mut body[part]));
    }

    /// A frame's own header, and what its body says of the payload.
    fn structure(&mut self, frame: &mut [u8]) {
        let body_bytes = frame.len() - HEADER_BYTES;
        let mut places: Vec<usize> = (0..HEADER_BYTES).collect();
        if frame[0] == FrameType::Chunk as u8 {
            let trailer = frame.len() - trailer_bytes(self.algorithm);
            places.extend(HEADER_BYTES..HEADER_BYTES + CHUNK_HEADER_BYTES);
            places.extend(trailer..frame.len());
        } else {
            let count = u32::from_le_bytes(frame[8..12].try_into().expect("four bytes")) as usize;
            places.extend(HEADER_BYTES..HEADER_BYTES + pack_table_bytes(count, self.algorithm).min(body_bytes));
        }
        let place = places[self.random.below(places.len() as u64) as usize];
        frame[place] ^= 1 << self.random.below(8);
        self.flips += 1;
    }
}

/// Stage a and the greater part of b: thousands of flips in a job, each in another object or chunk.
pub fn content(bed: &Bed, flips: u64, tally: &mut Tally) -> Result<()> {
    for (which, class) in [
        (Which::Payload, "bit flip a: sender's buffer after the digest"),
        (Which::PayloadAndDigest, "bit flip b: receiver's frame before verification"),
    ] {
        let (mut done, mut round) = (0u64, 0u64);
        while done < flips {
            let algorithm = if round.is_multiple_of(2) { DigestAlgorithm::Crc64Nvme } else { DigestAlgorithm::Blake3 };
            let tap = Tap::new(which, algorithm, bed.seed.wrapping_add(round << 20));
            let (outcome, found) = tapped(bed, &tap)?;
            let made = tap.lock().unwrap().flips;
            let verdict = match outcome.end {
                End::Finished if found.is_whole() && outcome.asked_again == made => Verdict::Survived,
                _ => Verdict::Violated(format!("{made} flips: {outcome:?}, {found:?}")),
            };
            count_many(tally, class, made, &verdict, &format!("{} --seed {}", bed.again, bed.seed));
            (done, round) = (done + made.max(1), round + 1);
        }
    }
    Ok(())
}

pub fn count_many(tally: &mut Tally, class: &str, flips: u64, verdict: &Verdict, again: &str) {
    tally.count(class, &["F075"], verdict, again);
    if *verdict == Verdict::Survived {
        tally.classes.entry(class.to_owned()).or_default().survived += flips.saturating_sub(1);
    }
}

/// How the jobs of a class that get one flip each came to their end.
#[derive(Default)]
struct Ends {
    finished: u64,
    refused: u64,
    stalled: u64,
    /// What the errors said, each once.
    said: BTreeSet<String>,
}

impl Ends {
    fn count(&mut self, end: &End) {
        match end {
            End::Finished => self.finished += 1,
            End::Refused(why) => {
                self.refused += 1;
                self.said.insert(why.clone());
            }
            End::Stalled | End::Cut => self.stalled += 1,
        }
    }

    fn text(&self) -> String {
        format!(
            "{} jobs finished at once, {} ended with an error (of {} kinds), {} waited until no progress was seen; each that did not \
             finish left nothing wrong and was whole after its next run",
            self.finished,
            self.refused,
            self.said.len(),
            self.stalled
        )
    }
}

/// The rest of b: one bit of a frame's structure in each job, and the same job again without any.
pub fn structure(bed: &Bed, jobs: u64, tally: &mut Tally) -> Result<()> {
    let class = "bit flip b: headers and tables of frames";
    let mut ends = Ends::default();
    for round in 0..jobs {
        let seed = bed.seed.wrapping_add(round << 20);
        let algorithm = if round.is_multiple_of(2) { DigestAlgorithm::Crc64Nvme } else { DigestAlgorithm::Blake3 };
        let tap = Tap::new(Which::Structure, algorithm, seed);
        let (end, verdict) = once(bed, &mut || opened(&tap), algorithm)?;
        ends.count(&end);
        tally.count(class, &["F075"], &verdict, &format!("{} --seed {seed}", bed.again));
    }
    tally.figures.insert(class.to_owned(), ends.text());
    Ok(())
}

/// One bit of the sealed bytes in each job.
pub fn sealed(bed: &Bed, jobs: u64, tally: &mut Tally) -> Result<()> {
    let class = "bit flip b: sealed bytes on the wire";
    let mut ends = Ends::default();
    for round in 0..jobs {
        let seed = bed.seed.wrapping_add(round << 20);
        let mut random = Random::new(seed);
        let at = Arc::new(AtomicU64::new(HANDSHAKE_BYTES_MAX + random.next() % (2 << 20)));
        let bit = random.below(8) as u32;
        let (end, verdict) = once(bed, &mut || relayed(&at, bit), DigestAlgorithm::Crc64Nvme)?;
        ends.count(&end);
        let verdict = if at.load(SeqCst) == u64::MAX { verdict } else { Verdict::Inert };
        tally.count(class, &["F075"], &verdict, &format!("{} --seed {seed}", bed.again));
    }
    tally.figures.insert(class.to_owned(), ends.text());
    Ok(())
}

/// A job with one flip, and the same job again without any.
fn once(
    bed: &Bed,
    connect: &mut dyn FnMut() -> io::Result<Carrier>,
    algorithm: DigestAlgorithm,
) -> Result<(End, Verdict)> {
    let to = tempfile::tempdir_in(&bed.place).context("make a destination")?;
    let job = || -> Result<Job> {
        let options = options(algorithm);
        Ok(Job { source: bed.small.source()?, sink: sink(to.path())?, options, stall: STALL_EXPECTED })
    };
    let first = joined::run(job()?, connect, None)?;
    let half = bed.small.compare(to.path())?;
    let second = joined::run(job()?, &mut || opened(&Tap::new(Which::Nothing, algorithm, 0)), None)?;
    let found = bed.small.compare(to.path())?;
    let is_right = half.wrong + half.strange == 0 && found.is_whole();
    let verdict = match (is_right, &first.end, &second.end) {
        (true, End::Finished, End::Finished) if !half.is_whole() => {
            Verdict::Violated(format!("said to be finished with {half:?}"))
        }
        (true, _, End::Finished) => Verdict::Survived,
        _ => Verdict::Violated(format!("{first:?} left {half:?}; then {second:?}, {found:?}")),
    };
    Ok((first.end, verdict))
}

pub fn sink(path: &Path) -> Result<Arc<PosixSink>> {
    let root = Arc::new(beneath::open_directory(path).with_context(|| format!("open {}", path.display()))?);
    Ok(Arc::new(PosixSink::new(root.clone(), root, None)))
}

fn tapped(bed: &Bed, tap: &Arc<Mutex<Tap>>) -> Result<(Outcome, Found)> {
    let to = tempfile::tempdir_in(&bed.place).context("make a destination")?;
    let options = options(tap.lock().unwrap().algorithm);
    let job = Job { source: bed.small.source()?, sink: sink(to.path())?, options, stall: STALL };
    let outcome = joined::run(job, &mut || opened(tap), None)?;
    Ok((outcome, bed.small.compare(to.path())?))
}

/// Two streams with the tap between them.
fn opened(tap: &Arc<Mutex<Tap>>) -> io::Result<Carrier> {
    let (sender, from) = loopback::data_streams()?;
    let (to, receiver) = loopback::data_streams()?;
    let tap = tap.clone();
    std::thread::spawn(move || {
        // Whichever end goes first takes the other with it when the streams are dropped.
        let _ = pass_frames(from, to, &tap);
    });
    Ok(Carrier { sender, receiver })
}

fn pass_frames(mut from: DataStream, mut to: DataStream, tap: &Mutex<Tap>) -> io::Result<()> {
    loop {
        let mut frame = vec![0; HEADER_BYTES];
        from.recv_exact(&mut frame)?;
        let head: &[u8; HEADER_BYTES] = frame[..].try_into().expect("read as long as a header");
        let header = FrameHeader::decode(head).map_err(|refusal| io::Error::other(refusal.text))?;
        frame.resize(HEADER_BYTES + header.body_bytes as usize, 0);
        from.recv_exact(&mut frame[HEADER_BYTES..])?;
        tap.lock().unwrap().pass(&mut frame);
        to.send(&[&frame])?;
        if header.frame_type == FrameType::End as u8 {
            return to.close();
        }
    }
}

/// One stream over a relay that flips a bit of the byte `at`, counted from the sender's first; once for the job.
fn relayed(at: &Arc<AtomicU64>, bit: u32) -> io::Result<Carrier> {
    let (near, relay_near) = loopback::tcp_pair()?;
    let (relay_far, far) = loopback::tcp_pair()?;
    for (from, to, at) in
        [(relay_near.try_clone()?, relay_far.try_clone()?, Some(at.clone())), (relay_far, relay_near, None)]
    {
        std::thread::spawn(move || relay(from, to, at.as_deref(), bit));
    }
    let (sender, receiver) = loopback::over(near, far)?;
    Ok(Carrier { sender, receiver })
}

fn relay(mut from: TcpStream, mut to: TcpStream, at: Option<&AtomicU64>, bit: u32) {
    let mut buffer = vec![0; 64 << 10];
    let mut passed = 0;
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if let Some(at) = at {
            let place = at.load(SeqCst);
            if (passed..passed + length as u64).contains(&place) {
                buffer[(place - passed) as usize] ^= 1 << bit;
                at.store(u64::MAX, SeqCst);
            }
        }
        passed += length as u64;
        if to.write_all(&buffer[..length]).is_err() {
            // Whoever read there is gone: the one who writes here has to hear of it.
            let _ = from.shutdown(Shutdown::Both);
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
