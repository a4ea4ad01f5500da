//! The list of files with size and digest, read, written and checked independently of the product.
//!
//! Format: a first line `# thalweg manifest 1 crc64nvme`, then `<16 hex digits> <size> <path>` for each file. In a
//! path `\\`, `\n` and `\r` stand for backslash, line feed and carriage return, `\xHH` for a byte that is not part of
//! printable UTF-8.
//!
//! Invariant: a tree equals a manifest only if it holds the same regular files with the same content and nothing else;
//! links and special files count as differences. Directories are not listed, so empty ones are not compared.

use std::cmp::Ordering as Order;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::crc64::Crc64;
use crate::error::{Error, Kind, Result};

pub const FIRST_LINE: &str = "# thalweg manifest 1 crc64nvme";
/// Fits the second-level cache together with the tables of the digest.
const READ_BYTES: usize = 256 << 10;
/// Differences that are named; the rest is counted.
const DIFFERENCES_MAX: usize = 20;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Entry {
    /// Relative to the root, any bytes but NUL.
    pub path: Vec<u8>,
    pub bytes: u64,
    pub digest: u64,
}

/// The files of one tree, sorted by path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Manifest {
    pub entries: Vec<Entry>,
}

impl Manifest {
    pub fn new(mut entries: Vec<Entry>) -> Manifest {
        entries.sort_unstable();
        Manifest { entries }
    }

    /// Reads and digests every file below `root`.
    pub fn of_tree(root: &Path, threads: usize) -> Result<Manifest> {
        let mut paths = Vec::new();
        list(root, root, &mut paths)?;
        let next = AtomicUsize::new(0);
        let worker = || -> Result<Vec<Entry>> {
            let mut buffer = vec![0; READ_BYTES];
            let mut entries = Vec::new();
            while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                entries.push(digest_file(root, path, &mut buffer)?);
            }
            Ok(entries)
        };
        let parts: Vec<Result<Vec<Entry>>> = thread::scope(|scope| {
            let handles: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(worker)).collect();
            handles.into_iter().map(|handle| handle.join().expect("a digest thread does not panic")).collect()
        });
        let mut entries = Vec::with_capacity(paths.len());
        for part in parts {
            entries.extend(part?);
        }
        Ok(Manifest::new(entries))
    }

    pub fn parse(text: &str) -> std::result::Result<Manifest, String> {
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(format!("the first line is not {FIRST_LINE:?}"));
        }
        let entries: std::result::Result<Vec<Entry>, String> = lines
            .enumerate()
            .map(|(index, line)| parse_line(line).ok_or_else(|| format!("line {} is malformed: {line:?}", index + 2)))
            .collect();
        Ok(Manifest::new(entries?))
    }

    /// Writes the format that `parse` reads.
    pub fn render(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        for entry in &self.entries {
            writeln!(text, "{:016x} {} {}", entry.digest, entry.bytes, escape(&entry.path)).expect("a String grows");
        }
        text
    }

    /// What differs between this manifest and a tree's; empty when they are equal.
    pub fn differences(&self, found: &Manifest) -> Vec<String> {
        let (ours, theirs) = (&self.entries, &found.entries);
        let (mut a, mut b) = (0, 0);
        let mut named = Vec::new();
        let mut count = 0;
        let mut tell = |what: &str, entry: &Entry| {
            count += 1;
            if count <= DIFFERENCES_MAX {
                named.push(format!("{what}: {}", escape(&entry.path)));
            }
        };
        while a < ours.len() || b < theirs.len() {
            let order = match (ours.get(a), theirs.get(b)) {
                (Some(one), Some(other)) => one.path.cmp(&other.path),
                (Some(_), None) => Order::Less,
                (None, _) => Order::Greater,
            };
            match order {
                Order::Less => tell("missing", &ours[a]),
                Order::Greater => tell("not expected", &theirs[b]),
                Order::Equal if ours[a] != theirs[b] => tell("content differs", &ours[a]),
                Order::Equal => {}
            }
            a += usize::from(order != Order::Greater);
            b += usize::from(order != Order::Less);
        }
        if count > DIFFERENCES_MAX {
            named.push(format!("and {} more", count - DIFFERENCES_MAX));
        }
        named
    }
}

/// Relative paths of the regular files below `dir`; anything else that is not a directory is refused.
fn list(root: &Path, dir: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(dir).map_err(Error::io("list", dir))?;
    for entry in entries {
        let entry = entry.map_err(Error::io("list", dir))?;
        let kind = entry.file_type().map_err(Error::io("list", dir))?;
        let path = entry.path();
        if kind.is_dir() {
            list(root, &path, paths)?;
        } else if kind.is_file() {
            paths.push(path.strip_prefix(root).expect("the walk starts at the root").to_owned());
        } else {
            return Err(Error::new(Kind::Failed, "digest", path.display(), "neither a regular file nor a directory"));
        }
    }
    Ok(())
}

fn digest_file(root: &Path, path: &Path, buffer: &mut [u8]) -> Result<Entry> {
    let full = root.join(path);
    let mut file = File::open(&full).map_err(Error::io("open", &full))?;
    let (mut crc, mut bytes) = (Crc64::default(), 0);
    loop {
        match file.read(buffer) {
            Ok(0) => break,
            Ok(count) => {
                crc.update(&buffer[..count]);
                bytes += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("read", &full)(error)),
        }
    }
    Ok(Entry { path: path.as_os_str().to_owned().into_vec(), bytes, digest: crc.finish() })
}

fn parse_line(line: &str) -> Option<Entry> {
    let (digest, rest) = line.split_once(' ')?;
    let (bytes, path) = rest.split_once(' ')?;
    if digest.len() != 16 || path.is_empty() {
        return None;
    }
    Some(Entry { path: unescape(path)?, bytes: bytes.parse().ok()?, digest: u64::from_str_radix(digest, 16).ok()? })
}

fn escape(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                other if other.is_control() => escape_bytes(other.encode_utf8(&mut [0; 4]).as_bytes(), &mut text),
                other => text.push(other),
            }
        }
        escape_bytes(chunk.invalid(), &mut text);
    }
    text
}

fn escape_bytes(bytes: &[u8], text: &mut String) {
    for byte in bytes {
        write!(text, "\\x{byte:02x}").expect("a String grows");
    }
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'\\' {
            bytes.push(first);
            continue;
        }
        let (&letter, tail) = rest.split_first()?;
        rest = tail;
        match letter {
            b'\\' => bytes.push(b'\\'),
            b'n' => bytes.push(b'\n'),
            b'r' => bytes.push(b'\r'),
            b'x' => {
                let (digits, tail) = rest.split_at_checked(2)?;
                bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
                rest = tail;
            }
            _ => return None,
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    fn entry(path: &[u8], bytes: u64, digest: u64) -> Entry {
        Entry { path: path.to_vec(), bytes, digest }
    }

    #[test]
    fn any_path_reads_back_from_one_line() {
        let odd = b"a b\\c\nd\re\x01\x7f\xff\xc3\xa4\xe2\x82".to_vec();
        let manifest = Manifest::new(vec![entry(&odd, 7, 0xab), entry("\u{e4}".as_bytes(), 0, 0)]);
        let text = manifest.render();
        let line = "00000000000000ab 7 a b\\\\c\\nd\\re\\x01\\x7f\\xff\u{e4}\\xe2\\x82\n";
        assert_eq!(text, format!("{FIRST_LINE}\n{line}0000000000000000 0 \u{e4}\n"));
        assert_eq!(Manifest::parse(&text).unwrap(), manifest);
    }

    #[test]
    fn malformed_lines_are_refused_with_their_number() {
        for line in ["0 1 a", "00000000000000ab x a", "00000000000000ab 1 ", "00000000000000ab 1 a\\q", "zz"] {
            let error = Manifest::parse(&format!("{FIRST_LINE}\n{line}\n")).unwrap_err();
            assert!(error.starts_with("line 2 "), "{error}");
        }
        assert!(Manifest::parse("").is_err());
    }

    #[test]
    fn one_flipped_byte_one_missing_and_one_extra_file_are_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join(OsStr::from_bytes(b"sub/\xff")), b"same").unwrap();
        fs::write(dir.path().join("flipped"), b"before").unwrap();
        fs::write(dir.path().join("gone"), b"").unwrap();
        let before = Manifest::of_tree(dir.path(), 2).unwrap();
        assert_eq!(before.differences(&Manifest::of_tree(dir.path(), 1).unwrap()), Vec::<String>::new());
        fs::write(dir.path().join("flipped"), b"beforf").unwrap();
        fs::remove_file(dir.path().join("gone")).unwrap();
        fs::write(dir.path().join("new"), b"").unwrap();
        let after = Manifest::of_tree(dir.path(), 2).unwrap();
        assert_eq!(before.differences(&after), ["content differs: flipped", "missing: gone", "not expected: new"]);
    }

    #[test]
    fn a_link_in_a_tree_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
        assert!(Manifest::of_tree(dir.path(), 1).is_err());
    }
}
