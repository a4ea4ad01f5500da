//! What can be asked of a tree of files beside copying it, and what is answered: the same words for a path of this host
//! and for one at an endpoint.
//!
//! Pure values. A `Question` names paths; its answer is a stream of `Record`s and one `Tally`. Who may ask what, and how it
//! is carried out, is not here.

use crate::{Digest, DigestAlgorithm, Timestamp};
use std::fmt;
use std::str::FromStr;

/// Levels below a path that mean "all of them".
pub const ALL_LEVELS: u32 = u32::MAX;

/// A digest that lists of files are made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u32)]
pub enum SumAlgorithm {
    Crc64Nvme = 1,
    Blake3 = 2,
    Sha256 = 3,
    Md5 = 4,
    Adler32 = 5,
}

impl SumAlgorithm {
    pub const ALL: [SumAlgorithm; 5] =
        [SumAlgorithm::Crc64Nvme, SumAlgorithm::Blake3, SumAlgorithm::Sha256, SumAlgorithm::Md5, SumAlgorithm::Adler32];

    pub fn from_number(number: u32) -> Option<SumAlgorithm> {
        Self::ALL.into_iter().find(|algorithm| *algorithm as u32 == number)
    }

    pub fn name(self) -> &'static str {
        match self {
            SumAlgorithm::Crc64Nvme => "crc64nvme",
            SumAlgorithm::Blake3 => "blake3",
            SumAlgorithm::Sha256 => "sha256",
            SumAlgorithm::Md5 => "md5",
            SumAlgorithm::Adler32 => "adler32",
        }
    }

    /// The same as a digest of transfers, whose parts can be digested apart and put together.
    pub fn in_chunks(self) -> Option<DigestAlgorithm> {
        match self {
            SumAlgorithm::Crc64Nvme => Some(DigestAlgorithm::Crc64Nvme),
            SumAlgorithm::Blake3 => Some(DigestAlgorithm::Blake3),
            SumAlgorithm::Sha256 | SumAlgorithm::Md5 | SumAlgorithm::Adler32 => None,
        }
    }

    pub fn digest_bytes(self) -> usize {
        match self {
            SumAlgorithm::Crc64Nvme => 8,
            SumAlgorithm::Blake3 | SumAlgorithm::Sha256 => 32,
            SumAlgorithm::Md5 => 16,
            SumAlgorithm::Adler32 => 4,
        }
    }
}

impl fmt::Display for SumAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SumAlgorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "b3" | "b3sum" => Ok(SumAlgorithm::Blake3),
            _ => Self::ALL.into_iter().find(|algorithm| algorithm.name() == text).ok_or_else(|| {
                format!("unknown digest {text:?}; known are crc64nvme, blake3, sha256, md5 and adler32")
            }),
        }
    }
}

/// The digest of one whole file, in the order in which its hexadecimal form is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sum {
    pub algorithm: SumAlgorithm,
    pub bytes: Box<[u8]>,
}

impl From<&Digest> for Sum {
    /// A CRC begins with its highest byte.
    fn from(digest: &Digest) -> Sum {
        match digest {
            Digest::Crc64Nvme(crc) => Sum { algorithm: SumAlgorithm::Crc64Nvme, bytes: crc.to_be_bytes().into() },
            Digest::Blake3(hash) => Sum { algorithm: SumAlgorithm::Blake3, bytes: (*hash).into() },
        }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(&self.bytes))
    }
}

/// What tells one version of a file from another, for whoever changes only what it has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Version {
    pub size_bytes: u64,
    pub modified: Timestamp,
    pub changed: Timestamp,
    pub inode: u64,
}

/// An object to be removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Doomed {
    pub path: Vec<u8>,
    /// It is removed only if it is still this version.
    pub version: Option<Version>,
}

/// What is asked. Paths are relative to the endpoint's root, or as the user of this host named them; an answer speaks of
/// them by their place in the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// The paths and what is below them, names in the order of their bytes, a directory before what is in it.
    List { paths: Vec<Vec<u8>>, levels: u32, digest: Option<SumAlgorithm> },
    /// Sums over everything below the paths: a record for each directory of the first `levels`, after what is in it.
    Usage { paths: Vec<Vec<u8>>, levels: u32 },
    /// Directories to be made; `with_parents` also what is missing above them, and none is an error that is there.
    Make { paths: Vec<Vec<u8>>, with_parents: bool },
    /// Objects to be removed; without `is_recursive` a directory only where `may_be_directory` and it is empty.
    Remove { objects: Vec<Doomed>, is_recursive: bool, may_be_directory: bool },
    /// A new name within one file system, in one step.
    Rename { from: Vec<u8>, to: Vec<u8>, may_replace: bool },
}

/// Whether a question looks or changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Look,
    Make,
    /// Takes a name away that was there.
    Take,
}

impl Question {
    pub fn access(&self) -> Access {
        match self {
            Question::List { .. } | Question::Usage { .. } => Access::Look,
            Question::Make { .. } => Access::Make,
            Question::Remove { .. } | Question::Rename { .. } => Access::Take,
        }
    }

    /// Every path that it names.
    pub fn paths(&self) -> Vec<&[u8]> {
        match self {
            Question::List { paths, .. } | Question::Usage { paths, .. } | Question::Make { paths, .. } => {
                paths.iter().map(Vec::as_slice).collect()
            }
            Question::Remove { objects, .. } => objects.iter().map(|object| &object.path[..]).collect(),
            Question::Rename { from, to, .. } => vec![from, to],
        }
    }

    /// For logs.
    pub fn word(&self) -> &'static str {
        match self {
            Question::List { digest: None, .. } => "list",
            Question::List { digest: Some(_), .. } => "sum",
            Question::Usage { .. } => "usage",
            Question::Make { .. } => "mkdir",
            Question::Remove { .. } => "rm",
            Question::Rename { .. } => "mv",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileKind {
    Directory,
    File,
    /// The bytes that the link holds.
    Symlink(Box<[u8]>),
    Fifo,
    Socket,
    CharacterDevice,
    BlockDevice,
    Unknown,
}

impl FileKind {
    pub fn name(&self) -> &'static str {
        match self {
            FileKind::Directory => "directory",
            FileKind::File => "file",
            FileKind::Symlink(_) => "symlink",
            FileKind::Fifo => "fifo",
            FileKind::Socket => "socket",
            FileKind::CharacterDevice => "character-device",
            FileKind::BlockDevice => "block-device",
            FileKind::Unknown => "unknown",
        }
    }

    /// The first letter of a mode as `ls -l` shows it.
    pub fn letter(&self) -> char {
        match self {
            FileKind::Directory => 'd',
            FileKind::File => '-',
            FileKind::Symlink(_) => 'l',
            FileKind::Fifo => 'p',
            FileKind::Socket => 's',
            FileKind::CharacterDevice => 'c',
            FileKind::BlockDevice => 'b',
            FileKind::Unknown => '?',
        }
    }
}

/// What is known of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileStatus {
    pub kind: FileKind,
    /// 0o7777 at most.
    pub mode: u32,
    pub size_bytes: u64,
    /// What it takes on its storage.
    pub allocated_bytes: u64,
    pub owner: u32,
    pub group: u32,
    pub links: u64,
    pub inode: u64,
    pub device: u64,
    pub modified: Timestamp,
    pub changed: Timestamp,
}

impl FileStatus {
    pub fn version(&self) -> Version {
        let FileStatus { size_bytes, modified, changed, inode, .. } = *self;
        Version { size_bytes, modified, changed, inode }
    }

    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

/// Sums over a directory and everything below it, or what was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Everything that is no directory.
    pub files: u64,
    pub directories: u64,
    pub bytes: u64,
    pub allocated_bytes: u64,
    pub failed: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.files += other.files;
        self.directories += other.directories;
        self.bytes += other.bytes;
        self.allocated_bytes += other.allocated_bytes;
        self.failed += other.failed;
    }

    pub fn count(&mut self, status: &FileStatus) {
        let is_directory = status.is_directory();
        self.directories += u64::from(is_directory);
        self.files += u64::from(!is_directory);
        // Stores may say anything of a size.
        self.bytes = self.bytes.saturating_add(if status.kind == FileKind::File { status.size_bytes } else { 0 });
        self.allocated_bytes = self.allocated_bytes.saturating_add(status.allocated_bytes);
    }
}

/// One line of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Which of the question's paths.
    pub asked: u32,
    /// Below that path; empty for the object itself.
    pub path: Vec<u8>,
    /// Nothing of its directory follows it.
    pub is_last: bool,
    pub found: Found,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    Object { status: FileStatus, sum: Option<Sum> },
    Usage(Tally),
    Failed { kind: crate::FailureKind, text: String },
}

impl Timestamp {
    /// RFC 3339 in UTC with whole seconds; years before 1 and after 9999 have more digits or a sign.
    pub fn rfc3339(&self) -> String {
        let (days, seconds) = (self.seconds.div_euclid(86_400), self.seconds.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        if (0..=9999).contains(&year) {
            // A million of them are a part of the time that a listing takes.
            let mut text = *b"0000-00-00T00:00:00Z";
            for (at, digits, mut number) in
                [(0, 4, year), (5, 2, month), (8, 2, day), (11, 2, hour), (14, 2, minute), (17, 2, second)]
            {
                for place in text[at..at + digits].iter_mut().rev() {
                    *place = b'0' + (number % 10) as u8;
                    number /= 10;
                }
            }
            return text.iter().map(|byte| char::from(*byte)).collect();
        }
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// The Gregorian date so many days after 1970-01-01. Years are counted from March, so that the leap day comes last.
fn civil(days: i64) -> (i64, i64, i64) {
    const DAYS_IN_400_YEARS: i64 = 146_097;
    /// From 0000-03-01 to 1970-01-01.
    const DAYS_BEFORE_1970: i64 = 719_468;
    let days = days + DAYS_BEFORE_1970;
    let (era, day_of_era) = (days.div_euclid(DAYS_IN_400_YEARS), days.rem_euclid(DAYS_IN_400_YEARS));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_have_their_dates() {
        let at = |seconds| Timestamp { seconds, nanoseconds: 0 }.rfc3339();
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(-1), "1969-12-31T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(at(253_402_300_799), "9999-12-31T23:59:59Z");
        assert_eq!(at(253_402_300_800), "10000-01-01T00:00:00Z");
        assert_eq!(at(-62_167_219_200), "0000-01-01T00:00:00Z");
        // The ends of what a file can have do not overflow.
        assert!(!at(i64::MIN).is_empty() && !at(i64::MAX).is_empty());
    }

    #[test]
    fn digests_read_back_by_name_and_by_number() {
        for algorithm in SumAlgorithm::ALL {
            assert_eq!(algorithm.name().parse(), Ok(algorithm));
            assert_eq!(SumAlgorithm::from_number(algorithm as u32), Some(algorithm));
        }
        assert!("sha1".parse::<SumAlgorithm>().is_err());
        assert_eq!(SumAlgorithm::from_number(0), None);
    }
}
