//! The list of files with size and digest and of links with their targets, read, written and checked independently of the
//! product.
//!
//! Format: a first line `# thalweg manifest 1 crc64nvme`, then `<16 hex digits> <size> <path>` for each file and
//! `# link <path><tab><target>` for each symbolic link, which readers of files take for a comment. In a path `\\`, `\n`
//! and `\r` stand for backslash, line feed and carriage return, `\xHH` for a byte that is not part of printable UTF-8.
//!
//! Invariant: a tree equals a manifest only if it holds the same regular files with the same content, the same links with
//! the same targets, and nothing else. Directories are not listed, so empty ones are not compared; holes read as zeros, so
//! where they lie is not compared either.

use std::cmp::Ordering as Order;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::error::{Error, Kind, Result};
use content::Crc64;

pub const FIRST_LINE: &str = "# thalweg manifest 1 crc64nvme";
const LINK_WORD: &str = "# link ";
/// Fits the second-level cache together with the tables of the digest.
const READ_BYTES: usize = 256 << 10;
/// Differences that are named; the rest is counted.
const DIFFERENCES_MAX: usize = 20;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Entry {
    /// Relative to the root, any bytes but NUL.
    pub path: Vec<u8>,
    pub what: What,
}

/// What stands at a path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum What {
    File {
        bytes: u64,
        digest: u64,
    },
    /// A symbolic link; it is never followed.
    Link {
        target: Vec<u8>,
    },
}

/// The files and links of one tree, sorted by path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Manifest {
    pub entries: Vec<Entry>,
}

impl Manifest {
    pub fn new(mut entries: Vec<Entry>) -> Manifest {
        entries.sort_unstable();
        Manifest { entries }
    }

    /// Reads and digests every file below `root`, and reads every link.
    pub fn of_tree(root: &Path, threads: usize) -> Result<Manifest> {
        let (mut paths, mut entries) = (Vec::new(), Vec::new());
        list(root, root, &mut paths, &mut entries)?;
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
        entries.reserve(paths.len());
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
            .filter(|(_, line)| !line.starts_with('#') || line.starts_with(LINK_WORD))
            .map(|(index, line)| parse_line(line).ok_or_else(|| format!("line {} is malformed: {line:?}", index + 2)))
            .collect();
        Ok(Manifest::new(entries?))
    }

    /// Writes the format that `parse` reads.
    pub fn render(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        for entry in &self.entries {
            let path = escape(&entry.path);
            match &entry.what {
                What::File { bytes, digest } => writeln!(text, "{digest:016x} {bytes} {path}"),
                What::Link { target } => writeln!(text, "{LINK_WORD}{path}\t{}", escape(target)),
            }
            .expect("a String grows");
        }
        text
    }

    /// What differs in the tree at `root`. One that cannot be read is not what was sent either.
    pub fn differences_at(&self, root: &Path, threads: usize) -> Vec<String> {
        match Manifest::of_tree(root, threads) {
            Ok(found) => self.differences(&found),
            // Where it lies on this machine is nothing to a reader.
            Err(error) => vec![error.chain().replace(&*root.to_string_lossy(), "the delivery")],
        }
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
                Order::Equal => match (&ours[a].what, &theirs[b].what) {
                    (one, other) if one == other => {}
                    (What::File { .. }, What::File { .. }) => tell("content differs", &ours[a]),
                    (What::Link { .. }, What::Link { .. }) => tell("target differs", &ours[a]),
                    (What::Link { .. }, What::File { .. }) => tell("a file instead of a link", &ours[a]),
                    (What::File { .. }, What::Link { .. }) => tell("a link instead of a file", &ours[a]),
                },
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

/// Relative paths of the regular files below `dir`, and its links; anything else that is not a directory is refused.
fn list(root: &Path, dir: &Path, paths: &mut Vec<PathBuf>, links: &mut Vec<Entry>) -> Result<()> {
    let entries = fs::read_dir(dir).map_err(Error::io("list", dir))?;
    for entry in entries {
        let entry = entry.map_err(Error::io("list", dir))?;
        let kind = entry.file_type().map_err(Error::io("list", dir))?;
        let path = entry.path();
        let below = path.strip_prefix(root).expect("the walk starts at the root");
        if kind.is_dir() {
            list(root, &path, paths, links)?;
        } else if kind.is_file() {
            paths.push(below.to_owned());
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).map_err(Error::io("read", &path))?.into_os_string().into_vec();
            links.push(Entry { path: below.as_os_str().as_bytes().to_vec(), what: What::Link { target } });
        } else {
            let cause = "neither a regular file nor a directory nor a link";
            return Err(Error::new(Kind::Failed, "digest", path.display(), cause));
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
    let what = What::File { bytes, digest: crc.finish() };
    Ok(Entry { path: path.as_os_str().to_owned().into_vec(), what })
}

fn parse_line(line: &str) -> Option<Entry> {
    if let Some(link) = line.strip_prefix(LINK_WORD) {
        let (path, target) = link.split_once('\t').filter(|(path, target)| !path.is_empty() && !target.is_empty())?;
        return Some(Entry { path: unescape(path)?, what: What::Link { target: unescape(target)? } });
    }
    let (digest, rest) = line.split_once(' ')?;
    let (bytes, path) = rest.split_once(' ')?;
    if digest.len() != 16 || path.is_empty() {
        return None;
    }
    let what = What::File { bytes: bytes.parse().ok()?, digest: u64::from_str_radix(digest, 16).ok()? };
    Some(Entry { path: unescape(path)?, what })
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
    use std::os::unix::fs::symlink;

    fn entry(path: &[u8], bytes: u64, digest: u64) -> Entry {
        Entry { path: path.to_vec(), what: What::File { bytes, digest } }
    }

    fn link(path: &[u8], target: &[u8]) -> Entry {
        Entry { path: path.to_vec(), what: What::Link { target: target.to_vec() } }
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
        let lines = ["0 1 a", "00000000000000ab x a", "00000000000000ab 1 ", "00000000000000ab 1 a\\q", "zz"];
        for line in lines.into_iter().chain(["# link a", "# link a\t", "# link \tb", "# link a\t\\q"]) {
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
    fn links_are_lines_that_readers_of_files_take_for_comments() {
        let odd = b"a\tb c\n\xff";
        let manifest = Manifest::new(vec![link(odd, b"../\t\xfe x"), entry(b"z", 1, 2)]);
        let text = manifest.render();
        let line = "# link a\\x09b c\\n\\xff\t../\\x09\\xfe x\n";
        assert_eq!(text, format!("{FIRST_LINE}\n{line}0000000000000002 1 z\n"));
        assert_eq!(Manifest::parse(&text).unwrap(), manifest);
        assert_eq!(Manifest::parse(&format!("{FIRST_LINE}\n# made by hand\n")).unwrap(), Manifest::default());
    }

    #[test]
    fn a_link_that_is_lost_followed_or_turned_is_named() {
        let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for root in [&ours, &theirs] {
            fs::write(root.path().join("file"), b"content").unwrap();
            symlink("nowhere", root.path().join("dangling")).unwrap();
        }
        for name in ["followed", "lost", "turned"] {
            symlink("file", ours.path().join(name)).unwrap();
        }
        fs::write(theirs.path().join("followed"), b"content").unwrap();
        symlink("dangling", theirs.path().join("turned")).unwrap();
        let of_tree = |dir: &tempfile::TempDir| Manifest::of_tree(dir.path(), 2).unwrap();
        let named = of_tree(&ours).differences(&of_tree(&theirs));
        assert_eq!(named, ["a file instead of a link: followed", "missing: lost", "target differs: turned"]);
        assert_eq!(of_tree(&theirs).differences(&of_tree(&ours))[0], "a link instead of a file: followed");
        assert!(of_tree(&ours).differences(&of_tree(&ours)).is_empty());
    }

    #[test]
    fn a_hole_and_written_zeros_are_equal() {
        let dir = tempfile::tempdir().unwrap();
        let bytes_of = |name: &str| Manifest::of_tree(&dir.path().join(name), 1).unwrap();
        for name in ["hole", "zeros"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        File::create(dir.path().join("hole/f")).unwrap().set_len(300_000).unwrap();
        fs::write(dir.path().join("zeros/f"), vec![0; 300_000]).unwrap();
        assert_eq!(bytes_of("hole"), bytes_of("zeros"));
    }

    #[test]
    fn a_socket_in_a_tree_is_refused_and_a_delivery_with_one_differs() {
        let dir = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        assert!(Manifest::of_tree(dir.path(), 1).is_err());
        let found = Manifest::default().differences_at(dir.path(), 1);
        assert_eq!(found, ["digest the delivery/socket: neither a regular file nor a directory nor a link"]);
    }
}
