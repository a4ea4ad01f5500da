//! Questions about files and their answers on the wire: values to messages and back, with every field of a peer's message
//! checked (docs/protocol.md section 12).

use crate::close::{CloseCode, Refusal, bounded};
use crate::limits::{ASK_BYTES_MAX, ASK_PATHS_MAX, LINK_BYTES_MAX, PATH_BYTES_MAX, RECORD_PATH_BYTES_MAX, RECORDS_MAX};
use crate::message::{Answered, Ask, FileRecord, Records, VersionRecord};
use model::files::{Doomed, FileKind, FileStatus, Found, Question, Record, Sum, SumAlgorithm, Tally, Version};
use model::name::relative_path;
use model::{FailureKind, Timestamp};

const LIST: u32 = 1;
const USAGE: u32 = 2;
const MAKE: u32 = 3;
const REMOVE: u32 = 4;
const RENAME: u32 = 5;

const KIND_USAGE: u32 = 9;
const KIND_FAILURE: u32 = 10;
const SECOND_NANOSECONDS: u32 = 1_000_000_000;

pub fn ask_of(number: u32, question: &Question) -> Ask {
    let ask = Ask { number, paths: question.paths().into_iter().map(<[u8]>::to_vec).collect(), ..Ask::default() };
    match question {
        Question::List { levels, digest, .. } => {
            let digest = digest.map_or(0, |algorithm| algorithm as u32);
            Ask { action: LIST, levels: *levels, digest, ..ask }
        }
        Question::Usage { levels, .. } => Ask { action: USAGE, levels: *levels, ..ask },
        Question::Make { with_parents, .. } => Ask { action: MAKE, is_recursive: *with_parents, ..ask },
        Question::Remove { objects, is_recursive, may_be_directory } => {
            let has_versions = objects.iter().any(|object| object.version.is_some());
            let versions = objects.iter().filter(|_| has_versions).map(|object| version_record(object.version));
            let versions = versions.collect();
            Ask { action: REMOVE, is_recursive: *is_recursive, may_replace: *may_be_directory, versions, ..ask }
        }
        Question::Rename { may_replace, .. } => Ask { action: RENAME, may_replace: *may_replace, ..ask },
    }
}

/// Reads a client's question. Whether its paths may be reached is another matter.
pub fn question_of(ask: Ask) -> Result<Question, Refusal> {
    let malformed = |what: &str| Refusal::new(CloseCode::Malformed, &format!("a question: {what}"));
    let bytes: usize = ask.paths.iter().map(Vec::len).sum();
    if ask.paths.is_empty()
        || ask.paths.len() > ASK_PATHS_MAX
        || bytes > ASK_BYTES_MAX
        || ask.paths.iter().any(|path| path.len() > PATH_BYTES_MAX)
    {
        return Err(malformed("too few or too many paths, or too long ones"));
    }
    let paths = ask.paths;
    Ok(match ask.action {
        LIST => {
            let digest = match ask.digest {
                0 => None,
                number => Some(SumAlgorithm::from_number(number).ok_or_else(|| malformed("an unknown digest"))?),
            };
            Question::List { paths, levels: ask.levels, digest }
        }
        USAGE => Question::Usage { paths, levels: ask.levels },
        MAKE => Question::Make { paths, with_parents: ask.is_recursive },
        REMOVE => {
            let versions = versions(ask.versions, paths.len()).ok_or_else(|| malformed("wrong versions"))?;
            let objects = paths.into_iter().zip(versions).map(|(path, version)| Doomed { path, version }).collect();
            Question::Remove { objects, is_recursive: ask.is_recursive, may_be_directory: ask.may_replace }
        }
        RENAME => {
            let [from, to] = <[Vec<u8>; 2]>::try_from(paths).map_err(|_| malformed("a rename needs two paths"))?;
            Question::Rename { from, to, may_replace: ask.may_replace }
        }
        _ => return Err(malformed("an unknown action")),
    })
}

fn versions(records: Vec<VersionRecord>, paths: usize) -> Option<Vec<Option<Version>>> {
    if records.is_empty() {
        return Some(vec![None; paths]);
    }
    let versions = records.iter().map(|record| {
        let modified = time(record.modified_seconds, record.modified_nanoseconds)?;
        let changed = time(record.changed_seconds, record.changed_nanoseconds)?;
        let version = Version { size_bytes: record.size_bytes, modified, changed, inode: record.inode };
        Some(record.is_known.then_some(version))
    });
    let versions: Option<Vec<_>> = versions.collect();
    versions.filter(|versions| versions.len() == paths)
}

fn version_record(version: Option<Version>) -> VersionRecord {
    let Some(version) = version else { return VersionRecord::default() };
    VersionRecord {
        size_bytes: version.size_bytes,
        modified_seconds: version.modified.seconds,
        modified_nanoseconds: version.modified.nanoseconds,
        changed_seconds: version.changed.seconds,
        changed_nanoseconds: version.changed.nanoseconds,
        inode: version.inode,
        is_known: true,
    }
}

fn time(seconds: i64, nanoseconds: u32) -> Option<Timestamp> {
    (nanoseconds < SECOND_NANOSECONDS).then_some(Timestamp { seconds, nanoseconds })
}

/// A record as it travels. What its text or path has too much of is cut.
pub fn record_of(record: Record) -> FileRecord {
    let mut path = record.path;
    path.truncate(RECORD_PATH_BYTES_MAX);
    let out = FileRecord { asked: record.asked, path, is_last: record.is_last, ..FileRecord::default() };
    match record.found {
        Found::Failed { kind, text } => {
            FileRecord { kind: KIND_FAILURE, failure: kind as u32, text: bounded(&text).to_owned(), ..out }
        }
        Found::Usage(tally) => FileRecord {
            kind: KIND_USAGE,
            files: tally.files,
            directories: tally.directories,
            size_bytes: tally.bytes,
            allocated_bytes: tally.allocated_bytes,
            failed: tally.failed,
            ..out
        },
        Found::Object { status, sum } => {
            let (kind, link) = match status.kind {
                FileKind::Directory => (1, Box::default()),
                FileKind::File => (2, Box::default()),
                FileKind::Symlink(target) => (3, target),
                FileKind::Fifo => (4, Box::default()),
                FileKind::Socket => (5, Box::default()),
                FileKind::CharacterDevice => (6, Box::default()),
                FileKind::BlockDevice => (7, Box::default()),
                FileKind::Unknown => (8, Box::default()),
            };
            FileRecord {
                kind,
                mode: status.mode,
                size_bytes: status.size_bytes,
                allocated_bytes: status.allocated_bytes,
                owner: status.owner,
                group: status.group,
                links: status.links,
                inode: status.inode,
                device: status.device,
                modified_seconds: status.modified.seconds,
                modified_nanoseconds: status.modified.nanoseconds,
                changed_seconds: status.changed.seconds,
                changed_nanoseconds: status.changed.nanoseconds,
                link: link.into_vec(),
                digest: sum.map(|sum| sum.bytes.into_vec()).unwrap_or_default(),
                ..out
            }
        }
    }
}

/// About how many bytes a record takes in its message.
pub fn record_bytes(record: &FileRecord) -> usize {
    record.path.len() + record.link.len() + record.text.len() + record.digest.len() + 80
}

/// The client's check of what an endpoint answers to a question.
#[derive(Clone, Debug)]
pub struct AnswerCheck {
    paths: u32,
    digest: Option<SumAlgorithm>,
}

impl AnswerCheck {
    pub fn new(question: &Question) -> AnswerCheck {
        let digest = match question {
            Question::List { digest, .. } => *digest,
            _ => None,
        };
        AnswerCheck { paths: question.paths().len() as u32, digest }
    }

    pub fn check(&self, batch: Records) -> Result<Vec<Record>, Refusal> {
        let count = batch.records.len();
        if count == 0 || count > RECORDS_MAX {
            return Err(Refusal::new(CloseCode::Limit, &format!("an answer of {count} records at once")));
        }
        batch.records.into_iter().map(|record| self.record(record)).collect()
    }

    fn record(&self, record: FileRecord) -> Result<Record, Refusal> {
        let malformed = |what: &str| Refusal::new(CloseCode::Malformed, &format!("an answer: {what}"));
        if record.asked >= self.paths {
            return Err(malformed("a record of a path that was not asked for"));
        }
        // A path that could climb would make scripts that use it reach elsewhere.
        let is_plain = |path: &[u8]| relative_path(path).is_ok_and(|names| model::name::join(&names) == path);
        let is_failure = record.kind == KIND_FAILURE;
        if record.path.len() > RECORD_PATH_BYTES_MAX || !(is_failure || is_plain(&record.path)) {
            return Err(malformed("a path that is not below the one asked for"));
        }
        let found = match record.kind {
            KIND_FAILURE => {
                let text = bounded(&record.text).to_owned();
                Found::Failed { kind: FailureKind::from_number(record.failure), text }
            }
            KIND_USAGE => Found::Usage(Tally {
                files: record.files,
                directories: record.directories,
                bytes: record.size_bytes,
                allocated_bytes: record.allocated_bytes,
                failed: record.failed,
            }),
            _ => {
                let sum = self.sum(&record.digest).ok_or_else(|| malformed("a digest of another length"))?;
                let status = status_of(&record).ok_or_else(|| malformed("a status out of range"))?;
                Found::Object { status, sum }
            }
        };
        Ok(Record { asked: record.asked, path: record.path, is_last: record.is_last, found })
    }

    fn sum(&self, bytes: &[u8]) -> Option<Option<Sum>> {
        match self.digest {
            _ if bytes.is_empty() => Some(None),
            Some(algorithm) if algorithm.digest_bytes() == bytes.len() => {
                Some(Some(Sum { algorithm, bytes: bytes.into() }))
            }
            _ => None,
        }
    }
}

fn status_of(record: &FileRecord) -> Option<FileStatus> {
    let kind = match record.kind {
        1 => FileKind::Directory,
        2 => FileKind::File,
        3 if record.link.len() <= LINK_BYTES_MAX => FileKind::Symlink(record.link.clone().into()),
        4 => FileKind::Fifo,
        5 => FileKind::Socket,
        6 => FileKind::CharacterDevice,
        7 => FileKind::BlockDevice,
        8 => FileKind::Unknown,
        _ => return None,
    };
    if record.mode > 0o7777 || record.size_bytes > i64::MAX as u64 {
        return None;
    }
    Some(FileStatus {
        kind,
        mode: record.mode,
        size_bytes: record.size_bytes,
        allocated_bytes: record.allocated_bytes,
        owner: record.owner,
        group: record.group,
        links: record.links,
        inode: record.inode,
        device: record.device,
        modified: time(record.modified_seconds, record.modified_nanoseconds)?,
        changed: time(record.changed_seconds, record.changed_nanoseconds)?,
    })
}

/// The end of an answer.
pub fn answered_of(number: u32, ended: &Result<Tally, Refusal>) -> Answered {
    match ended {
        Ok(tally) => Answered {
            number,
            code: CloseCode::Done as u32,
            text: String::new(),
            files: tally.files,
            directories: tally.directories,
            bytes: tally.bytes,
            allocated_bytes: tally.allocated_bytes,
            failed: tally.failed,
        },
        Err(refusal) => {
            Answered { number, code: refusal.code as u32, text: refusal.text.clone(), ..Answered::default() }
        }
    }
}

pub fn tally_of(answered: &Answered) -> Result<Tally, Refusal> {
    match CloseCode::from_number(answered.code) {
        CloseCode::Done => Ok(Tally {
            files: answered.files,
            directories: answered.directories,
            bytes: answered.bytes,
            allocated_bytes: answered.allocated_bytes,
            failed: answered.failed,
        }),
        code => Err(Refusal::new(code, &answered.text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<u8> {
        text.as_bytes().to_vec()
    }

    fn status(kind: FileKind) -> FileStatus {
        let at = |seconds| Timestamp { seconds, nanoseconds: 7 };
        FileStatus {
            kind,
            mode: 0o640,
            size_bytes: 9,
            allocated_bytes: 4096,
            owner: 1,
            group: 2,
            links: 3,
            inode: 4,
            device: 5,
            modified: at(-6),
            changed: at(8),
        }
    }

    #[test]
    fn questions_read_back() {
        let paths = vec![path("a"), path("b")];
        let version = Some(status(FileKind::File).version());
        let objects = vec![Doomed { path: path("a"), version }, Doomed { path: path("b"), version: None }];
        for question in [
            Question::List { paths: paths.clone(), levels: 3, digest: Some(SumAlgorithm::Md5) },
            Question::List { paths: paths.clone(), levels: 0, digest: None },
            Question::Usage { paths: paths.clone(), levels: 1 },
            Question::Make { paths, with_parents: true },
            Question::Remove { objects, is_recursive: true, may_be_directory: true },
            Question::Rename { from: path("a"), to: path("b"), may_replace: true },
        ] {
            assert_eq!(question_of(ask_of(7, &question)), Ok(question));
        }
    }

    #[test]
    fn what_is_no_question_is_refused() {
        let good = ask_of(1, &Question::List { paths: vec![path("a")], levels: 0, digest: None });
        for bad in [
            Ask { paths: vec![], ..good.clone() },
            Ask { paths: vec![vec![b'x'; PATH_BYTES_MAX + 1]], ..good.clone() },
            Ask { paths: vec![path("a"); ASK_PATHS_MAX + 1], ..good.clone() },
            Ask { paths: vec![vec![b'x'; PATH_BYTES_MAX]; ASK_BYTES_MAX / PATH_BYTES_MAX + 1], ..good.clone() },
            Ask { action: 0, ..good.clone() },
            Ask { action: 99, ..good.clone() },
            Ask { digest: 99, ..good.clone() },
            Ask { action: RENAME, ..good.clone() },
            Ask { action: REMOVE, versions: vec![VersionRecord::default(); 2], ..good.clone() },
        ] {
            assert_eq!(question_of(bad).unwrap_err().code, CloseCode::Malformed);
        }
    }

    #[test]
    fn records_read_back_and_those_that_could_mislead_are_refused() {
        let sum = Sum { algorithm: SumAlgorithm::Md5, bytes: vec![3; 16].into() };
        let record = |path: &str, found| Record { asked: 1, path: path.as_bytes().to_vec(), is_last: true, found };
        let question = Question::List { paths: vec![path("a"), path("b")], levels: 0, digest: Some(SumAlgorithm::Md5) };
        let check = AnswerCheck::new(&question);
        let one = |record: FileRecord| check.check(Records { number: 1, records: vec![record] });
        let object = record("x/y", Found::Object { status: status(FileKind::File), sum: Some(sum) });
        for good in [
            object.clone(),
            record("", Found::Object { status: status(FileKind::Symlink(path("../t").into())), sum: None }),
            record("d", Found::Usage(Tally { files: 1, directories: 2, bytes: 3, allocated_bytes: 4, failed: 5 })),
            record("d", Found::Failed { kind: FailureKind::Permission, text: "why".into() }),
        ] {
            assert_eq!(one(record_of(good.clone())), Ok(vec![good]));
        }
        let sent = record_of(object);
        for bad in [
            FileRecord { asked: 2, ..sent.clone() },
            FileRecord { path: path("../x"), ..sent.clone() },
            FileRecord { path: path("/x"), ..sent.clone() },
            FileRecord { path: path("a//b"), ..sent.clone() },
            FileRecord { path: b"a\0".to_vec(), ..sent.clone() },
            FileRecord { path: vec![b'x'; 300], ..sent.clone() },
            FileRecord { mode: 0o10000, ..sent.clone() },
            FileRecord { digest: vec![1; 5], ..sent.clone() },
            FileRecord { kind: 0, ..sent.clone() },
            FileRecord { kind: 99, ..sent.clone() },
            FileRecord { modified_nanoseconds: SECOND_NANOSECONDS, ..sent.clone() },
        ] {
            assert_eq!(one(bad.clone()).unwrap_err().code, CloseCode::Malformed, "{bad:?}");
        }
        assert!(check.check(Records { number: 1, records: vec![sent; RECORDS_MAX + 1] }).is_err());
    }

    #[test]
    fn ends_read_back() {
        let tally = Tally { files: 1, directories: 2, bytes: 3, allocated_bytes: 4, failed: 5 };
        assert_eq!(tally_of(&answered_of(1, &Ok(tally))), Ok(tally));
        let refusal = Refusal::new(CloseCode::Forbidden, "why");
        assert_eq!(tally_of(&answered_of(1, &Err(refusal.clone()))), Err(refusal));
    }
}
