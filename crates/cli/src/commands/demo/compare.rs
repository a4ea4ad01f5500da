//! Compares two trees byte by byte, with a program that is not ours: `diff` of the system, or where there is none an
//! independent digest of both.
//!
//! Special files, which are not copied, do not count as a difference.

use bench::manifest::Manifest;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    Diff,
    Digests,
}

/// Differences that are named.
const NAMED_MAX: usize = 5;

impl Comparison {
    /// What this machine has.
    pub fn choose() -> Comparison {
        let asked = Command::new("diff").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if asked.is_ok_and(|status| status.success()) { Comparison::Diff } else { Comparison::Digests }
    }

    /// Says what differs, if something does.
    pub fn compare(self, source: &Path, delivered: &Path) -> Result<(), String> {
        let differences = match self {
            Comparison::Diff => by_diff(source, delivered)?,
            Comparison::Digests => by_digests(source, delivered)?,
        };
        match &differences[..] {
            [] => Ok(()),
            named if named.len() <= NAMED_MAX => Err(named.join("; ")),
            named => Err(format!("{}; and {} more", named[..NAMED_MAX].join("; "), named.len() - NAMED_MAX)),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Comparison::Diff => "diff -r",
            Comparison::Digests => "digests of both trees",
        })
    }
}

fn by_diff(source: &Path, delivered: &Path) -> Result<Vec<String>, String> {
    let mut command = Command::new("diff");
    command.args(["-r", "-q", "--no-dereference", "--"]).arg(source).arg(delivered).env("LC_ALL", "C");
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("diff cannot be run: {e}"))?;
    match output.status.code() {
        Some(0) => return Ok(Vec::new()),
        Some(1) => {}
        _ => return Err(crate::exit::plain(&String::from_utf8_lossy(&output.stderr).trim())),
    }
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let counted = lines.filter(|line| !is_special(line));
    Ok(counted.map(|line| model::name::Escaped(line).to_string()).collect())
}

/// `Only in DIR: NAME`, where NAME is a FIFO, socket or device.
fn is_special(line: &[u8]) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let Some(rest) = line.strip_prefix(b"Only in ") else { return false };
    let Some(colon) = rest.windows(2).position(|pair| pair == b": ") else { return false };
    let path: PathBuf = [&rest[..colon], &rest[colon + 2..]].map(std::ffi::OsStr::from_bytes).iter().collect();
    path.symlink_metadata().is_ok_and(|found| {
        let kind = found.file_type();
        kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device()
    })
}

fn by_digests(source: &Path, delivered: &Path) -> Result<Vec<String>, String> {
    let digest = |root: &Path| Manifest::of_tree(root, 2).map_err(|e| e.chain());
    Ok(digest(source)?.differences(&digest(delivered)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn trees() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        for root in [&a, &b] {
            fs::create_dir_all(root.join("sub")).unwrap();
            fs::write(root.join("sub/large"), vec![5; 300_000]).unwrap();
            fs::write(root.join("small"), b"x").unwrap();
        }
        (dir, a, b)
    }

    fn found(a: &Path, b: &Path) -> Vec<bool> {
        let mut ways = vec![Comparison::Digests];
        ways.extend((Comparison::choose() == Comparison::Diff).then_some(Comparison::Diff));
        ways.into_iter().map(|way| way.compare(a, b).is_err()).collect()
    }

    #[test]
    fn one_flipped_bit_a_missing_and_an_added_file_are_found() {
        let (_dir, a, b) = trees();
        assert!(found(&a, &b).iter().all(|differs| !differs));
        let mut bytes = fs::read(b.join("sub/large")).unwrap();
        bytes[222_222] ^= 1;
        fs::write(b.join("sub/large"), &bytes).unwrap();
        assert!(found(&a, &b).iter().all(|differs| *differs));
        bytes[222_222] ^= 1;
        fs::write(b.join("sub/large"), &bytes).unwrap();
        fs::write(b.join("sub/new"), b"").unwrap();
        assert!(found(&a, &b).iter().all(|differs| *differs));
        fs::remove_file(b.join("sub/new")).unwrap();
        fs::remove_file(b.join("small")).unwrap();
        assert!(found(&a, &b).iter().all(|differs| *differs));
    }

    #[test]
    fn a_special_file_that_was_not_copied_is_no_difference() {
        if !needs::program("diff") {
            return;
        }
        let (_dir, a, b) = trees();
        let socket = std::os::unix::net::UnixListener::bind(a.join("sub/socket")).unwrap();
        assert_eq!(Comparison::Diff.compare(&a, &b), Ok(()));
        drop(socket);
    }
}
