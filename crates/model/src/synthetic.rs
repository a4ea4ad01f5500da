//! Storage that is not there: `gen:COUNTxSIZE` makes what is read, `null:` forgets what is written.
//!
//! They show what everything but the storage can do. Whoever reports a transfer that had such an end says so.

use crate::quantity::parse_bytes;
use std::fmt;

/// Files of one generated source; above it a typing error is more likely than an intention.
const FILES_MAX: u64 = 1_000_000_000;
const FILE_BYTES_MAX: u64 = 1 << 50;
const BYTES_MAX: u64 = 1 << 60;
const PREFIX: &[u8] = b"gen:";
const NULL: &[u8] = b"null:";

/// Equal files of a source that makes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Generated {
    pub files: u64,
    pub file_bytes: u64,
}

impl Generated {
    /// Reads `gen:COUNTxSIZE`; `None` when the path is of another kind.
    pub fn parse(path: &[u8]) -> Option<Result<Generated, String>> {
        let text = path.strip_prefix(PREFIX)?;
        let shown = crate::name::Escaped(text);
        Some(parse(text).map_err(|why| format!("gen:{shown}: {why}")))
    }
}

/// Whether a path names the sink that forgets.
pub fn is_null(path: &[u8]) -> bool {
    path == NULL
}

/// Whether a path names either kind.
pub fn is_synthetic(path: &[u8]) -> bool {
    is_null(path) || path.starts_with(PREFIX)
}

impl fmt::Display for Generated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gen:{}x{}", self.files, self.file_bytes)
    }
}

fn parse(text: &[u8]) -> Result<Generated, String> {
    let text = std::str::from_utf8(text).map_err(|_| "is not text")?;
    let (count, size) = text.split_once('x').ok_or("is not COUNTxSIZE, such as gen:100x64MiB")?;
    let files = count.trim().replace('_', "").parse().map_err(|_| "the count before x is not a number")?;
    let file_bytes = parse_bytes(size.trim())?;
    if !(1..=FILES_MAX).contains(&files) {
        return Err("the count must be from 1 to 1,000,000,000".into());
    }
    if file_bytes > FILE_BYTES_MAX {
        return Err("a file may have at most 1 PiB".into());
    }
    if files.checked_mul(file_bytes).is_none_or(|bytes| bytes > BYTES_MAX) {
        return Err("all files together may have at most 1 EiB".into());
    }
    Ok(Generated { files, file_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_and_size_read_back_and_nonsense_has_its_reason() {
        let parsed = Generated::parse(b"gen:1_000x64MiB").unwrap().unwrap();
        assert_eq!(parsed, Generated { files: 1000, file_bytes: 64 << 20 });
        assert_eq!(Generated::parse(parsed.to_string().as_bytes()), Some(Ok(parsed)));
        assert_eq!(Generated::parse(b"generated"), None);
        for bad in
            ["gen:", "gen:5", "gen:0x1", "gen:x1", "gen:2x", "gen:1x2048TiB", "gen:16384x1024TiB", "gen:9999999999x1"]
        {
            assert!(Generated::parse(bad.as_bytes()).unwrap().is_err(), "{bad}");
        }
        assert!(is_null(b"null:") && !is_null(b"null") && is_synthetic(b"gen:1x1") && !is_synthetic(b"./null:"));
    }
}
