//! Lines of listings: text for people, NUL-terminated names or JSON objects for programs.
//!
//! Long listings are written in blocks; where a person looks on, line by line. A reader that goes away ends the listing.

use model::files::{FileKind, FileStatus, Found, Record, Tally};
use model::name::Escaped;
use serde_json::{Map, Value, json};
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

const VERSION: u32 = 1;

pub struct Lines {
    out: BufWriter<StdoutLock<'static>>,
    /// The line under way.
    line: Vec<u8>,
    is_terminal: bool,
    is_open: bool,
}

impl Lines {
    pub fn new() -> Lines {
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        let out = BufWriter::with_capacity(64 << 10, stdout.lock());
        Lines { out, line: Vec::new(), is_terminal, is_open: true }
    }

    /// Control characters must not reach it as they are.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// False when nobody reads any more.
    pub fn text(&mut self, line: &str) -> bool {
        self.bytes(line.as_bytes()) && self.bytes(b"\n")
    }

    /// A line that is put together in place: long listings are made of a million of them.
    pub fn line(&mut self, put: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        put(&mut line);
        line.push(b'\n');
        let is_open = self.bytes(&line);
        self.line = line;
        is_open
    }

    pub fn json(&mut self, line: &Value) -> bool {
        self.text(&line.to_string())
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> bool {
        self.is_open = self.is_open && super::is_written(self.out.write_all(bytes));
        if self.is_terminal {
            self.flush();
        }
        self.is_open
    }

    pub fn flush(&mut self) {
        self.is_open = self.is_open && super::is_written(self.out.flush());
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.flush();
    }
}

impl Default for Lines {
    fn default() -> Self {
        Lines::new()
    }
}

/// An object, or what failed on it, with every field that is known.
pub fn record(path: &str, record: &Record) -> Value {
    let mut fields = Map::new();
    fields.insert("v".into(), json!(VERSION));
    fields.insert("path".into(), json!(path));
    match &record.found {
        Found::Failed { kind, text } => {
            fields.insert("failed".into(), json!(kind.name()));
            fields.insert("message".into(), json!(Escaped(text.as_bytes()).to_string()));
        }
        Found::Usage(tally) => {
            fields.extend(usage(tally));
        }
        Found::Object { status, sum } => {
            fields.extend(object(status));
            if let Some(sum) = sum {
                fields.insert(sum.algorithm.name().into(), json!(sum.to_string()));
            }
        }
    }
    Value::Object(fields)
}

fn object(status: &FileStatus) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    put("kind", json!(status.kind.name()));
    put("size", json!(status.size_bytes));
    put("allocated", json!(status.allocated_bytes));
    put("mode", json!(format!("{:04o}", status.mode)));
    put("owner", json!(status.owner));
    put("group", json!(status.group));
    put("links", json!(status.links));
    put("inode", json!(status.inode));
    put("device", json!(status.device));
    put("modified", json!(status.modified.rfc3339()));
    put("modified_nanoseconds", json!(status.modified.nanoseconds));
    put("changed", json!(status.changed.rfc3339()));
    put("changed_nanoseconds", json!(status.changed.nanoseconds));
    if let FileKind::Symlink(target) = &status.kind {
        put("target", json!(Escaped(target).to_string()));
    }
    fields
}

fn usage(tally: &Tally) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("bytes".into(), json!(tally.bytes));
    fields.insert("allocated".into(), json!(tally.allocated_bytes));
    fields.insert("files".into(), json!(tally.files));
    fields.insert("directories".into(), json!(tally.directories));
    fields.insert("failures".into(), json!(tally.failed));
    fields
}

/// What a command did, as its last line.
pub fn done(fields: Value) -> Value {
    let mut line = Map::new();
    line.insert("v".into(), json!(VERSION));
    line.insert("event".into(), json!("done"));
    if let Value::Object(fields) = fields {
        line.extend(fields);
    }
    Value::Object(line)
}

/// `-rw-r--r--`, with the letters of ls for the bits beyond permissions.
pub fn mode(status: &FileStatus) -> String {
    let mut text = Vec::with_capacity(10);
    put_mode(&mut text, status);
    text.into_iter().map(char::from).collect()
}

pub fn put_mode(out: &mut Vec<u8>, status: &FileStatus) {
    // Letters of kinds are ASCII.
    out.push(status.kind.letter() as u8);
    for (shift, special, [set, only]) in [(6, 0o4000, b"sS"), (3, 0o2000, b"sS"), (0, 0o1000, b"tT")] {
        let bits = status.mode >> shift;
        out.push(if bits & 4 != 0 { b'r' } else { b'-' });
        out.push(if bits & 2 != 0 { b'w' } else { b'-' });
        out.push(match (status.mode & special != 0, bits & 1 != 0) {
            (true, true) => *set,
            (true, false) => *only,
            (false, true) => b'x',
            (false, false) => b'-',
        });
    }
}

/// A number and what stands before it, so that it ends where the others end.
pub fn put_right(out: &mut Vec<u8>, number: u64, width: usize) {
    // As long as the longest number.
    let mut digits = [b' '; 20];
    let (mut at, mut rest) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at.min(digits.len().saturating_sub(width))..]);
}

/// What a name is followed by in a long listing.
pub fn arrow(status: &FileStatus) -> String {
    match &status.kind {
        FileKind::Symlink(target) => format!(" -> {}", Escaped(target)),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Timestamp;

    #[test]
    fn modes_have_the_letters_of_ls_and_numbers_end_below_each_other() {
        let shown = |kind, bits| {
            let zero = Timestamp::default();
            mode(&FileStatus {
                kind,
                mode: bits,
                size_bytes: 0,
                allocated_bytes: 0,
                owner: 0,
                group: 0,
                links: 1,
                inode: 1,
                device: 1,
                modified: zero,
                changed: zero,
            })
        };
        for number in [0, 7, 123_456, 1_234_567, u64::MAX] {
            let mut right = Vec::new();
            put_right(&mut right, number, 6);
            assert_eq!(String::from_utf8(right).unwrap(), format!("{number:>6}"));
        }
        assert_eq!(shown(FileKind::File, 0o644), "-rw-r--r--");
        assert_eq!(shown(FileKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(shown(FileKind::File, 0o6650), "-rwSr-s---");
        assert_eq!(shown(FileKind::Symlink(Box::default()), 0o777), "lrwxrwxrwx");
    }
}
