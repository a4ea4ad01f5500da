//! Stages e and f: bits of the extent log, on its storage or on their way there, and of what it speaks of.
//!
//! The log says which chunks an interrupted attempt left verified. A flipped bit may cost what it vouched for; it must
//! never vouch for anything else. `bytes` looks at the log alone, `resumed` at whole transfers that go on with it.

use super::Bed;
use super::damage::Set;
use super::frames::sink;
use super::joined::{self, Carrier, End, Gate, Job, Outcome, STALL, options};
use super::storage::{APPENDS_MAX, FlipSink, Flipping, Stage};
use crate::random::Random;
use crate::record::{Outcome as Verdict, Tally};
use anyhow::{Context, Result, bail};
use ledger::extent_log::{self, Header};
use model::options::Verify;
use model::{Digest, DigestAlgorithm, Extent, JobId};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trial::loopback;

const CHUNK_BYTES: u64 = 1 << 20;
const CHUNKS: u64 = 64;

/// One bit of a log of many records, again and again.
pub fn bytes(bed: &Bed, flips: u64, tally: &mut Tally) {
    let mut random = Random::new(bed.seed);
    for (stage, class) in
        ["bit flip e: extent log on its storage", "bit flip f: record of the log on its way"].into_iter().enumerate()
    {
        for number in 0..flips {
            let algorithm = if number.is_multiple_of(2) { DigestAlgorithm::Crc64Nvme } else { DigestAlgorithm::Blake3 };
            let (log, recorded, header_bytes) = whole_log(algorithm);
            let mut flipped = log.clone();
            let from = if stage == 0 { 0 } else { header_bytes };
            random.flip(&mut flipped[from..]);
            let verdict = match extent_log::replay(&flipped) {
                Ok(replayed) if replayed.extents.len() == recorded.len() => {
                    Verdict::Violated("a log with a flipped bit is taken whole".into())
                }
                Ok(replayed) if replayed.extents.iter().any(|extent| !recorded.contains(extent)) => {
                    Verdict::Violated("a log with a flipped bit says what was not recorded".into())
                }
                _ => Verdict::Survived,
            };
            tally.count(class, &["F075"], &verdict, &format!("{} --seed {}", bed.again, bed.seed));
        }
    }
}

fn whole_log(algorithm: DigestAlgorithm) -> (Vec<u8>, Vec<(Extent, Digest)>, usize) {
    let header = Header {
        algorithm,
        chunk_bytes: CHUNK_BYTES,
        object_bytes: None,
        stem: b"stem".to_vec(),
        boot: [3; 16],
        job: JobId([4; 16]),
        name: b"name".to_vec(),
    };
    let (mut log, mut appender) = extent_log::start(&header).expect("a header within its bounds");
    let header_bytes = log.len();
    let mut recorded = Vec::new();
    for chunk in 0..CHUNKS {
        let extent = Extent::new(chunk * CHUNK_BYTES, (chunk + 1) * CHUNK_BYTES);
        let digest = algorithm.of_object(&chunk.to_le_bytes());
        log.extend_from_slice(&appender.extent(extent, &digest).expect("a chunk of the object"));
        recorded.push((extent, digest));
    }
    (log, recorded, header_bytes)
}

/// Attempts that were cut, a bit flipped in what they left, and the attempt after it.
pub fn resumed(bed: &Bed, trials: u64, tally: &mut Tally) -> Result<()> {
    let left = tempfile::tempdir_in(&bed.place).context("make a destination")?;
    cut_attempt(bed, left.path(), Flipping::new(Stage::Nothing, 0, Some(gate())))?;
    let mut resumed_bytes = 0;
    for round in 0..trials {
        let seed = bed.seed.wrapping_add(round << 20);
        let again = format!("{} --seed {seed}", bed.again);
        for (class, suffix, verify) in [
            ("bit flip e: log of an attempt that is continued", ".log", Verify::Stream),
            ("bit flip d: staged file of an attempt that is continued, --verify reread", ".data", Verify::Reread),
        ] {
            let to = tempfile::tempdir_in(&bed.place).context("make a destination")?;
            let staged = copy_staging(left.path(), to.path(), suffix)?;
            let mut content = std::fs::read(&staged)?;
            // Only what the log vouches for is read again; the rest of the file comes anew.
            let held = content.len().min(((APPENDS_MAX - 1) * CHUNK_BYTES) as usize);
            Random::new(seed).flip(&mut content[..held]);
            std::fs::write(&staged, &content)?;
            let outcome = attempt(bed, to.path(), Flipping::new(Stage::Nothing, 0, None), verify)?;
            resumed_bytes += outcome.bytes_resumed;
            let verdict = judged(bed, to.path(), &outcome)?;
            tally.count(class, &["F075"], &verdict, &again);
        }
        let to = tempfile::tempdir_in(&bed.place).context("make a destination")?;
        cut_attempt(bed, to.path(), Flipping::new(Stage::Journal, seed, Some(gate())))?;
        let outcome = attempt(bed, to.path(), Flipping::new(Stage::Nothing, 0, None), Verify::Stream)?;
        let verdict = judged(bed, to.path(), &outcome)?;
        let class = "bit flip f: record of an attempt that is continued";
        tally.count(class, &["F075"], &verdict, &again);
    }
    let figure = format!("{resumed_bytes} bytes were taken over in {} attempts", 2 * trials);
    tally.figures.insert("bit flip e and d: resumed".into(), figure);
    Ok(())
}

/// An attempt that finds the log and the staging of another version of its object under the names of its own: what they
/// vouch for is not of this version.
pub fn of_another_version(bed: &Bed, tally: &mut Tally) -> Result<()> {
    let [theirs, ours, to] = [(); 3].map(|()| tempfile::tempdir_in(&bed.place).context("make a destination"));
    let (theirs, ours, to) = (theirs?, ours?, to?);
    let other = Set::another_large(&bed.place.join("another"))?;
    let quiet = || Flipping::new(Stage::Nothing, 0, Some(gate()));
    cut_attempt_of(&other, theirs.path(), quiet())?;
    cut_attempt_of(&bed.large, ours.path(), quiet())?;
    for suffix in [".log", ".data"] {
        let from = copy_staging(theirs.path(), &tempdir_below(&bed.place)?, suffix)?;
        let at = match suffix {
            ".log" => copy_staging(ours.path(), to.path(), suffix)?,
            _ => staged_in(to.path(), suffix)?,
        };
        std::fs::copy(&from, &at).with_context(|| format!("copy {}", from.display()))?;
    }
    let outcome = attempt_of(&bed.large, to.path(), Flipping::new(Stage::Nothing, 0, None), Verify::Stream)?;
    let verdict = judged(bed, to.path(), &outcome)?;
    tally.count("log of another version of the object", &[], &verdict, &bed.again);
    Ok(())
}

fn judged(bed: &Bed, to: &Path, outcome: &Outcome) -> Result<Verdict> {
    let found = bed.large.compare(to)?;
    Ok(match outcome.end {
        End::Finished if found.is_whole() => Verdict::Survived,
        _ => Verdict::Violated(format!("{outcome:?}, {found:?}")),
    })
}

fn gate() -> Gate {
    Gate::new(APPENDS_MAX)
}

fn cut_attempt(bed: &Bed, to: &Path, flipping: Arc<Flipping>) -> Result<()> {
    cut_attempt_of(&bed.large, to, flipping)
}

fn cut_attempt_of(set: &Set, to: &Path, flipping: Arc<Flipping>) -> Result<()> {
    let outcome = attempt_of(set, to, flipping, Verify::Stream)?;
    match outcome.end {
        End::Cut => Ok(()),
        other => bail!("an attempt that was to be cut came to its end: {other:?}"),
    }
}

fn attempt(bed: &Bed, to: &Path, flipping: Arc<Flipping>, verify: Verify) -> Result<Outcome> {
    attempt_of(&bed.large, to, flipping, verify)
}

fn attempt_of(set: &Set, to: &Path, flipping: Arc<Flipping>, verify: Verify) -> Result<Outcome> {
    let sink = Arc::new(FlipSink { inner: sink(to)?, flipping: flipping.clone() });
    let options = model::TransferOptions { verify, ..options(DigestAlgorithm::Crc64Nvme) };
    let job = Job { source: set.source()?, sink, options, stall: STALL };
    joined::run(job, &mut plain, flipping.gate.as_ref())
}

fn plain() -> io::Result<Carrier> {
    let (sender, receiver) = loopback::data_streams()?;
    Ok(Carrier { sender, receiver })
}

fn tempdir_below(place: &Path) -> Result<PathBuf> {
    // Removed with the place that all of these trials are in.
    Ok(tempfile::tempdir_in(place).context("make a directory")?.keep())
}

/// The staged file that ends so.
fn staged_in(root: &Path, suffix: &str) -> Result<PathBuf> {
    let staging = directory_in(&directory_in(root)?)?;
    let mut files = std::fs::read_dir(staging)?.flatten().map(|file| file.path());
    files.find(|file| file.to_string_lossy().ends_with(suffix)).with_context(|| format!("no {suffix} is there"))
}

/// Staging lies in a root, and that of this host in it.
fn directory_in(place: &Path) -> Result<PathBuf> {
    let found = std::fs::read_dir(place)?.flatten().map(|entry| entry.path()).find(|path| path.is_dir());
    found.context("no staging is there")
}

/// Copies what an attempt left; returns the file that ends so.
fn copy_staging(from: &Path, to: &Path, suffix: &str) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let staging = directory_in(&directory_in(from)?)?;
    let place = to.join(staging.strip_prefix(from)?);
    std::fs::create_dir_all(&place)?;
    for made in place.ancestors().take_while(|made| *made != to) {
        std::fs::set_permissions(made, std::fs::Permissions::from_mode(0o700))?;
    }
    let mut wanted = None;
    for file in std::fs::read_dir(staging)?.flatten().filter(|d| d.path().is_file()) {
        let copy = place.join(file.file_name());
        std::fs::copy(file.path(), &copy).with_context(|| format!("copy {}", file.path().display()))?;
        if copy.to_string_lossy().ends_with(suffix) {
            wanted = Some(copy);
        }
    }
    wanted.with_context(|| format!("no {suffix} was left"))
}
