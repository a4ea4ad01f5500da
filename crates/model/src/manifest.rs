//! Manifests: one line for each file with its digest, size and path.
//!
//! ```text
//! # thalweg manifest 1 crc64nvme
//! ae8b14860a799888 9 dir/nine digits
//! ```
//! The first line names the version and the digest; further lines that begin with `#` are comments. A path is relative,
//! in the form of `name::Escaped`, so that every path is one line of printable UTF-8.
//!
//! Invariant: whatever `line` writes, `Parser` reads back. Not here: files, and whether a path may be opened.

use crate::digest::{Digest, DigestAlgorithm};
use crate::name::{Escaped, unescape};
use std::fmt;

const FIRST_WORDS: &str = "# thalweg manifest";
const VERSION: u32 = 1;
/// A path of 4,096 levels with 255 bytes each, every byte escaped, and what stands before it. A reader need never hold
/// more of a line.
pub const LINE_BYTES_MAX: usize = 4096 * 256 * 4 + 128;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManifestEntry {
    pub digest: Digest,
    pub size_bytes: u64,
    pub path: Vec<u8>,
}

/// The first line of a manifest, with its line feed.
pub fn first_line(algorithm: DigestAlgorithm) -> String {
    format!("{FIRST_WORDS} {VERSION} {algorithm}\n")
}

/// One file's line, with its line feed.
pub fn line(digest: &impl fmt::Display, size_bytes: u64, path: &[u8]) -> String {
    format!("{digest} {size_bytes} {}\n", Escaped(path))
}

/// Why a line cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManifestError {
    /// Counts from 1.
    pub line: u64,
    pub kind: ManifestErrorKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ManifestErrorKind {
    #[error("this is not a manifest (its first line must be `# thalweg manifest 1 crc64nvme` or `... blake3`)")]
    NotAManifest,
    #[error("a manifest with a version or digest that this program does not know")]
    Unknown,
    #[error("the line is too long")]
    TooLong,
    #[error("not of the form `DIGEST SIZE PATH`")]
    Malformed,
    #[error("the digest is not of this manifest's kind")]
    Digest,
    #[error("the size is not a number")]
    Size,
    #[error("the path is empty, or contains an escape or a byte that is not allowed")]
    Path,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.kind)
    }
}

impl std::error::Error for ManifestError {}

/// Reads a manifest line by line. Lines come without their line feed.
#[derive(Debug)]
pub struct Parser {
    algorithm: DigestAlgorithm,
    line: u64,
}

impl Parser {
    pub fn new(first_line: &[u8]) -> Result<Parser, ManifestError> {
        let refused = |kind| Err(ManifestError { line: 1, kind });
        let words = std::str::from_utf8(first_line).ok().and_then(|text| text.strip_prefix(FIRST_WORDS));
        let Some(words) = words else { return refused(ManifestErrorKind::NotAManifest) };
        let mut words = words.split_ascii_whitespace();
        let version = words.next().and_then(|version| version.parse().ok());
        match (version, words.next().map(str::parse), words.next()) {
            (Some(VERSION), Some(Ok(algorithm)), None) => Ok(Parser { algorithm, line: 1 }),
            _ => refused(ManifestErrorKind::Unknown),
        }
    }

    pub fn algorithm(&self) -> DigestAlgorithm {
        self.algorithm
    }

    /// Reads the next line; `None` for a comment.
    pub fn line(&mut self, line: &[u8]) -> Result<Option<ManifestEntry>, ManifestError> {
        self.line += 1;
        if line.starts_with(b"#") {
            return Ok(None);
        }
        self.entry(line).map(Some).map_err(|kind| ManifestError { line: self.line, kind })
    }

    fn entry(&self, line: &[u8]) -> Result<ManifestEntry, ManifestErrorKind> {
        if line.len() > LINE_BYTES_MAX {
            return Err(ManifestErrorKind::TooLong);
        }
        let mut fields = line.splitn(3, |byte| *byte == b' ');
        let (Some(digest), Some(size), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            return Err(ManifestErrorKind::Malformed);
        };
        let text = |field| std::str::from_utf8(field).ok();
        let digest =
            text(digest).and_then(|hex| self.algorithm.digest_from_hex(hex)).ok_or(ManifestErrorKind::Digest)?;
        let size_bytes = text(size).and_then(|size| size.parse().ok()).ok_or(ManifestErrorKind::Size)?;
        let path =
            unescape(path).filter(|path| !path.is_empty() && !path.contains(&0)).ok_or(ManifestErrorKind::Path)?;
        Ok(ManifestEntry { digest, size_bytes, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parser(algorithm: DigestAlgorithm) -> Parser {
        Parser::new(first_line(algorithm).trim_end().as_bytes()).unwrap()
    }

    #[test]
    fn the_form_is_the_documented_one() {
        assert_eq!(first_line(DigestAlgorithm::Crc64Nvme), "# thalweg manifest 1 crc64nvme\n");
        let digest = DigestAlgorithm::Crc64Nvme.of_object(b"123456789");
        assert_eq!(line(&digest, 9, b"dir/nine digits"), "ae8b14860a799888 9 dir/nine digits\n");
        assert_eq!(line(&digest, 9, b"a\nb\xff"), "ae8b14860a799888 9 a\\nb\\xff\n");
    }

    #[test]
    fn what_is_no_manifest_is_refused_with_its_line() {
        let first = |text: &str| Parser::new(text.as_bytes()).unwrap_err().kind;
        assert_eq!(first("hello"), ManifestErrorKind::NotAManifest);
        assert_eq!(first(""), ManifestErrorKind::NotAManifest);
        assert_eq!(first("# thalweg manifest 2 crc64nvme"), ManifestErrorKind::Unknown);
        assert_eq!(first("# thalweg manifest 1 md5"), ManifestErrorKind::Unknown);
        let mut parser = parser(DigestAlgorithm::Crc64Nvme);
        assert_eq!(parser.line(b"# a comment"), Ok(None));
        for (text, kind) in [
            ("ae8b14860a799888 9", ManifestErrorKind::Malformed),
            ("ae8b14860a7998 9 a", ManifestErrorKind::Digest),
            ("ae8b14860a799888 nine a", ManifestErrorKind::Size),
            ("ae8b14860a799888 9 ", ManifestErrorKind::Path),
            ("ae8b14860a799888 9 a\\q", ManifestErrorKind::Path),
            ("ae8b14860a799888 9 a\\x00", ManifestErrorKind::Path),
        ] {
            assert_eq!(parser.line(text.as_bytes()).unwrap_err().kind, kind, "{text}");
        }
        assert_eq!(parser.line(&[b'x'; LINE_BYTES_MAX + 1]).unwrap_err().to_string(), "line 9: the line is too long");
    }

    proptest! {
        #[test]
        fn lines_read_back(
            path in prop::collection::vec(1u8.., 1..40), content: Vec<u8>, size_bytes: u64, is_blake3: bool,
        ) {
            let algorithm = if is_blake3 { DigestAlgorithm::Blake3 } else { DigestAlgorithm::Crc64Nvme };
            let digest = algorithm.of_object(&content);
            let text = line(&digest, size_bytes, &path);
            let (last, body) = text.as_bytes().split_last().unwrap();
            prop_assert!(*last == b'\n' && !body.contains(&b'\n'));
            prop_assert_eq!(parser(algorithm).line(body), Ok(Some(ManifestEntry { digest, size_bytes, path })));
        }
    }
}
