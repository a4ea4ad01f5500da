//! Ranges of one version of an object.
//!
//! Invariants: every range is asked for on the condition that the version is still there, so that two versions never mix; a range
//! whose connection breaks goes on where it stopped.

use crate::bucket::Bucket;
use crate::failure::{Failure, Result, Why};

/// Times that a range is continued without a byte having come.
pub const CONTINUED_MAX: u32 = 4;

impl Bucket {
    /// A range of a version, to be read.
    pub fn range<'a>(&'a self, (key, etag): (&'a str, &'a str), (start, end): (u64, u64)) -> Reader<'a> {
        Reader { bucket: self, key, etag, at: start, end, continued: 0, response: None }
    }

    /// Reads a range of a version and hands over every block; returns how much there was until `each` said false.
    pub fn stream(
        &self,
        version: (&str, &str),
        (start, end): (u64, u64),
        block: &mut [u8],
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<u64> {
        let mut reader = self.range(version, (start, end));
        while reader.at < end {
            let read = reader.read(block)?;
            if !each(&block[..read]) {
                break;
            }
        }
        Ok(reader.at - start)
    }
}

/// A range that is read, by one request after another if connections break.
pub struct Reader<'a> {
    bucket: &'a Bucket,
    key: &'a str,
    etag: &'a str,
    at: u64,
    end: u64,
    continued: u32,
    response: Option<web::Response>,
}

impl Reader<'_> {
    /// Reads some of it; 0 at its end alone.
    pub fn read(&mut self, block: &mut [u8]) -> Result<usize> {
        while self.at < self.end {
            let response = match &mut self.response {
                Some(response) => response,
                none => none.insert(self.bucket.get(self.key, Some((self.at, self.end)), self.etag)?),
            };
            let failed = match response.read(block) {
                Ok(0) => Failure::new(Why::Unknown, "the store sent less than it said"),
                Ok(read) if read as u64 > self.end - self.at => {
                    return Err(Failure::new(Why::Unknown, "the store sent more than it said"));
                }
                Ok(read) => {
                    (self.at, self.continued) = (self.at + read as u64, 0);
                    return Ok(read);
                }
                Err(e) => Failure::of_web(&e),
            };
            self.response = None;
            self.continued += 1;
            if self.continued > CONTINUED_MAX {
                return Err(failed);
            }
        }
        Ok(0)
    }
}
