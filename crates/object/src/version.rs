//! What is known of a version of an object, by a listing or by an answer, and the checksum that belongs to it.

use crate::metadata::{self, MODE, MTIME};
use data_encoding::BASE64;
use model::{Digest, DigestAlgorithm, Timestamp, mutant};
use std::time::Instant;
use web::Response;

pub const CRC: &str = "x-amz-checksum-crc64nvme";
/// A file of more bytes is none.
const SIZE_BYTES_MAX: u64 = i64::MAX as u64;

/// What is known of an object without reading it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Object {
    pub size_bytes: u64,
    pub etag: String,
    /// When the store took it, in seconds.
    pub stored: i64,
    /// What its writer said of its time and mode.
    pub modified: Option<Timestamp>,
    pub mode: Option<u32>,
    /// Of the whole object.
    pub crc: Option<u64>,
}

/// An object of a listing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listed {
    pub key: String,
    pub size_bytes: u64,
    pub etag: String,
    pub stored: i64,
}

#[derive(Default)]
pub struct Page {
    pub objects: Vec<Listed>,
    pub prefixes: Vec<String>,
    pub next: Option<String>,
}

/// The first page of what stands below a prefix, and when it was asked for.
pub struct Beginning {
    pub prefix: String,
    pub page: Page,
    pub asked: Instant,
}

pub fn crc_of(bytes: &[u8]) -> u64 {
    match DigestAlgorithm::Crc64Nvme.of_object(bytes) {
        Digest::Crc64Nvme(crc) => crc,
        Digest::Blake3(_) => unreachable!("it was asked for a CRC"),
    }
}

pub fn crc_text(crc: u64) -> String {
    match mutant::is_on("s3-checksum-from-its-small-end") {
        true => BASE64.encode(&crc.to_le_bytes()),
        false => BASE64.encode(&crc.to_be_bytes()),
    }
}

pub fn crc_value(text: &str) -> Option<u64> {
    Some(u64::from_be_bytes(BASE64.decode(text.as_bytes()).ok()?.try_into().ok()?))
}

/// A length that is told of an object, if a file can have it.
pub fn size_told(text: &str) -> Option<u64> {
    text.parse::<u64>().ok().filter(|size| *size <= SIZE_BYTES_MAX)
}

impl Object {
    pub fn of_answer(headers: impl Fn(&str) -> Option<String>) -> Object {
        let is_whole = headers("x-amz-checksum-type").is_none_or(|kind| kind == "FULL_OBJECT");
        let is_whole = is_whole || mutant::is_on("s3-checksum-of-parts-is-the-objects");
        Object {
            size_bytes: headers("content-length").and_then(|length| length.parse().ok()).unwrap_or_default(),
            etag: headers("etag").unwrap_or_default(),
            stored: headers("last-modified").and_then(|text| metadata::header_moment(&text)).unwrap_or_default(),
            modified: headers(MTIME).and_then(|text| metadata::time(&text)),
            mode: headers(MODE).and_then(|text| metadata::mode(&text)),
            crc: headers(CRC).filter(|_| is_whole).and_then(|text| crc_value(&text)),
        }
    }

    pub fn of_response(response: &Response) -> Object {
        Object::of_answer(|name| response.header(name).map(str::to_owned))
    }

    /// It has the time and the mode of these headers, and none where they say none.
    pub fn has(&self, meta: &[(String, String)]) -> bool {
        let said = |name: &str| meta.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..]);
        let (modified, mode) = (said(MTIME).and_then(metadata::time), said(MODE).and_then(metadata::mode));
        (self.modified, self.mode) == (modified, mode)
    }

    /// What its writer said, or when the store took it.
    pub fn modified(&self) -> Timestamp {
        self.modified.unwrap_or(Timestamp { seconds: self.stored, nanoseconds: 0 })
    }
}
