//! The chain of the transfer log: each line names the SHA-256 of the line before it, as it stands there, without its end.
//!
//! `verify` finds a line that was changed, removed or inserted, in the newest file and its predecessors. It cannot find lines
//! cut off at the end, or a log rewritten from some line on with its digests recomputed. A digest kept elsewhere reveals
//! both: the endpoint's own log names the newest one when it starts, ends, and begins a new file.
//!
//! Lines without a digest are those of older releases, and torn ones; the line after them covers them all the same.

use crate::error::{Error, Result, shown};
use data_encoding::HEXLOWER;
use model::Exit;
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Older files that are kept: 1 GiB in all.
pub const FILES_KEPT: u32 = 15;
pub const KEY: &str = "prev";
/// Before the first line of all.
const BEGINNING: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// Lines end well before this; a file with a longer one was not written by an endpoint.
const TAIL_BYTES: u64 = 64 << 10;

pub fn digest(line: &[u8]) -> String {
    HEXLOWER.encode(&net::sha256(line))
}

/// The digest of the last line of a file, torn or not.
pub fn last_of(file: &File) -> io::Result<String> {
    let bytes = file.metadata()?.len();
    let mut tail = vec![0; bytes.min(TAIL_BYTES) as usize];
    let at = bytes - tail.len() as u64;
    file.read_exact_at(&mut tail, at)?;
    let whole = tail.strip_suffix(b"\n").unwrap_or(&tail);
    let line = whole.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(if tail.is_empty() { BEGINNING.to_owned() } else { digest(line) })
}

/// The same of a file that need not be there.
pub fn last_of_file(path: &Path) -> io::Result<String> {
    match File::open(path) {
        Ok(file) => last_of(&file),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(BEGINNING.to_owned()),
        Err(e) => Err(e),
    }
}

/// What a log holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chained {
    pub files: u32,
    pub lines: u64,
    /// Lines that name no line before them: of older releases, or torn.
    pub unchained: u64,
    /// The digest of the newest line.
    pub head: String,
}

/// Reads a log with its predecessors, from the oldest line that is kept to the newest.
///
/// # Errors
/// Names the first line that does not follow the one before it.
pub fn verify(path: &Path) -> Result<Chained> {
    let oldest = (0..).take_while(|number| *number == 0 || number <= &FILES_KEPT);
    let numbers: Vec<u32> = oldest.filter(|number| numbered(path, *number).exists()).collect();
    if numbers.is_empty() {
        return Err(Error::of_file("read", path, ErrorKind::NotFound.into()));
    }
    let mut found = Chained { files: numbers.len() as u32, lines: 0, unchained: 0, head: BEGINNING.to_owned() };
    for number in numbers.into_iter().rev() {
        let path = numbered(path, number);
        let failed = |e| Error::of_file("read", &path, e);
        let mut reader = BufReader::new(File::open(&path).map_err(failed)?);
        let (mut line, mut at) = (Vec::new(), 0);
        while reader.read_until(b'\n', &mut line).map_err(failed)? > 0 {
            at += 1;
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            found.take(text).map_err(|why| {
                Error::new(Exit::Failed, format!("{}:{at}: {why}", shown(&path)))
                    .hint("this line, or one before it, was changed, removed or inserted; everything before it is as it was written")
            })?;
            line.clear();
        }
    }
    Ok(found)
}

impl Chained {
    fn take(&mut self, line: &[u8]) -> std::result::Result<(), &'static str> {
        let named = serde_json::from_slice::<Value>(line).ok();
        let named = named.as_ref().and_then(|line| line.get(KEY)).and_then(Value::as_str);
        match named {
            // The oldest line that is kept follows one that may be gone.
            Some(prev) if self.lines > 0 && prev != self.head => return Err("does not follow the line before it"),
            Some(_) => {}
            None => self.unchained += 1,
        }
        self.lines += 1;
        self.head = digest(line);
        Ok(())
    }
}

/// An older file of the log; 0 is the newest.
pub fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    if number > 0 {
        name.push(format!(".{number}"));
    }
    name.into()
}

#[cfg(test)]
mod tests {
    use super::super::TransferLog;
    use super::*;
    use serde_json::{Map, json};

    /// A log of ten lines, written by two runs.
    fn log() -> (tempfile::TempDir, std::path::PathBuf, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        for run in 0..2 {
            let log = TransferLog::open(&path).unwrap();
            (0..5).for_each(|n| log.write("job", &Map::from_iter([("n".to_owned(), json!(5 * run + n))])));
        }
        let text = std::fs::read_to_string(&path).unwrap();
        (dir, path, text)
    }

    #[test]
    fn a_line_that_was_changed_taken_out_or_put_in_is_found() {
        let (_dir, path, text) = log();
        let whole = verify(&path).unwrap();
        assert_eq!((whole.files, whole.lines, whole.unchained), (1, 10, 0));
        assert_eq!(whole.head, TransferLog::open(&path).unwrap().head());
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].contains(BEGINNING));
        for at in 1..9 {
            let mut others = [lines.clone(), lines.clone(), lines.clone(), lines.clone()];
            let edited = lines[at].replace(&format!("\"n\":{at}"), "\"n\":77");
            others[0][at] = &edited;
            others[1].remove(at);
            others[2].insert(at, lines[at]);
            others[3].swap(at, at + 1);
            for changed in others {
                assert_ne!(changed, lines);
                std::fs::write(&path, changed.join("\n") + "\n").unwrap();
                let error = verify(&path).unwrap_err();
                let line = |n: usize| error.message.contains(&format!("log:{n}:"));
                assert!(line(at + 1) || line(at + 2), "{error}");
            }
        }
        // What is cut off at the end is found by whoever knows the newest digest.
        std::fs::write(&path, lines[..9].join("\n") + "\n").unwrap();
        assert_ne!(verify(&path).unwrap().head, whole.head);
    }

    #[test]
    fn torn_lines_and_those_of_older_releases_are_covered_by_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "{\"v\":1,\"n\":1}\n{\"v\":1,\"n\":2}\n{\"v\":1,\"n").unwrap();
        TransferLog::open(&path).unwrap().write("job", &Map::new());
        let found = verify(&path).unwrap();
        assert_eq!((found.lines, found.unchained), (4, 3));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"v\":1,\"n\n", "\"v\":2,\"n\n")).unwrap();
        assert!(verify(&path).is_err());
        assert!(verify(&dir.path().join("absent")).is_err());
    }
}
