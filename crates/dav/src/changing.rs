//! The requests that change what a server holds, each as one function.
//!
//! Invariant: what a MOVE came to that was not answered, or only the second time, is found out by looking.

use crate::failure::{Failure, Result, Why};
use crate::habits::Habits;
use crate::path;
use crate::reading::adler32;
use crate::site::{Asked, Site};
use std::time::Duration;
use web::Response;

const STORED: &[u16] = &[200, 201, 204];
/// Said of a MOVE that was answered with 200: a server that renamed the file answers with 201 or 204.
const NO_WORD: &str = "the answer (status 200) does not say that the file was renamed: see whether a proxy or a \
                       sign-in page stands in between";
/// A larger file waits until the server may be asked for its checksum.
const READ_BACK_BYTES_MAX: u64 = 1 << 20;

impl Site {
    /// Puts a small file.
    pub fn put(&self, path: &[u8], headers: &[(&str, String)], body: &[u8]) -> Result<()> {
        let asked = Asked { method: "PUT", headers, body, wanted: STORED, patience: Duration::ZERO };
        self.ask_for(&asked, path).map(drop)
    }

    /// Removes a file, or an empty directory. False where nothing was.
    pub fn delete(&self, path: &[u8]) -> Result<bool> {
        match self.ask("DELETE", path, &[], &[200, 202, 204]) {
            Err(failure) if failure.why == Why::Missing => Ok(false),
            asked => asked.map(|_| true),
        }
    }

    /// Removes a file, or a directory that is seen to be empty: a server removes one with all that is in it.
    /// False where nothing was.
    pub fn remove_one(&self, path: &[u8], is_directory: bool) -> Result<bool> {
        if is_directory && !self.list_all(path)?.is_empty() {
            let text = "the directory is not empty";
            return Err(Failure::new(Why::InTheWay, text));
        }
        self.delete(path)
    }

    /// Makes a directory below one that is there. False where something has that name.
    pub fn make_directory(&self, path: &[u8]) -> Result<bool> {
        match self.ask("MKCOL", path, &[], &[200, 201]) {
            Err(failure) if failure.is_method => Ok(false),
            asked => asked.map(|_| true),
        }
    }

    /// Makes a directory and those above it that are missing; false where it was there. An error where a file is in the way.
    pub fn make_directories(&self, path: &[u8]) -> Result<bool> {
        let mut missing = Vec::new();
        let mut at = path;
        while at.len() > 1 {
            match self.find(at)? {
                Some(there) if there.is_directory => break,
                Some(_) => return Err(Failure::new(Why::InTheWay, "a file stands where a directory is needed")),
                None => missing.push(at),
            }
            at = at.iter().rposition(|byte| *byte == b'/').map_or(b"/", |slash| &at[..slash.max(1)]);
        }
        missing.into_iter().rev().try_fold(false, |_, path| self.make_directory(path))
    }

    /// Gives an object another name. What has that name is replaced only if it `may` be; a directory must not have it.
    /// Servers say 201 or 204 (RFC 4918): what another success means is for the caller to look for.
    pub fn move_to(&self, from: &[u8], to: &[u8], habits: &Habits, may_replace: bool) -> Result<()> {
        let path = if habits.decodes { path::encoded(to) } else { literal(to)? };
        let overwrite = if may_replace { "T" } else { "F" };
        let headers = [("Destination", self.url(&path)), ("Overwrite", overwrite.to_owned())];
        match self.ask("MOVE", from, &headers, STORED)?.status {
            200 => Err(Failure::new(Why::Unknown, NO_WORD)),
            _ => Ok(()),
        }
    }

    /// Asks for the length and the Adler-32 of a file.
    pub fn digest_of(&self, path: &[u8], size_bytes: u64) -> Result<Response> {
        self.ask_digest("HEAD", path, &[("Accept-Encoding", "identity".to_owned())], size_bytes)
    }

    /// An error where a file there has another length, or another Adler-32 by the server's word, if it gives one. A small file is
    /// read back where the server is being asked for a checksum already: over distance, one after another would take long.
    pub fn compare(&self, path: &[u8], size_bytes: u64, adler: u32) -> Result<()> {
        let identity = [("Accept-Encoding", "identity".to_owned())];
        let response = match self.digest_place() {
            Some(place) => self.ask_digest_at(&place, "HEAD", path, &identity, size_bytes)?,
            None if size_bytes <= READ_BACK_BYTES_MAX => return self.compare_read_back(path, size_bytes, adler),
            None => self.digest_of(path, size_bytes)?,
        };
        let length = match response.length() {
            Some(length) => length,
            None => self.stat(path)?.size_bytes,
        };
        let damaged = |text: String| Err(Failure::new(Why::Damaged, text));
        if length != size_bytes {
            return damaged(format!("{length} bytes of {size_bytes} lie at the server"));
        }
        match response.header("digest").and_then(adler32) {
            Some(stated) if stated != adler => damaged(format!(
                "by its Adler-32 ({stated:08x}) what lies at the server is not what was sent ({adler:08x})"
            )),
            _ => Ok(()),
        }
    }

    fn compare_read_back(&self, path: &[u8], size_bytes: u64, adler: u32) -> Result<()> {
        let response = self.ask("GET", path, &[("Accept-Encoding", "identity".to_owned())], &[200])?;
        let bytes = response.into_bytes(READ_BACK_BYTES_MAX as usize).map_err(|e| Failure::of_web(&e))?;
        let read = simd_adler32::adler32(&&bytes[..]);
        if bytes.len() as u64 != size_bytes {
            let text = format!("{} bytes of {size_bytes} lie at the server", bytes.len());
            return Err(Failure::new(Why::Damaged, text));
        }
        match read == adler {
            true => Ok(()),
            false => Err(Failure::new(
                Why::Damaged,
                format!("what was read back from the server (Adler-32 {read:08x}) is not what was sent ({adler:08x})"),
            )),
        }
    }
}

/// A path that a server takes as it is written. XRootD 5.5 cuts off what is no visible ASCII at the end of the header, so that an
/// empty query follows such a name; it takes a `#` for what it is.
fn literal(path: &[u8]) -> Result<String> {
    let text = std::str::from_utf8(path).ok();
    // A space at the end is missing in its listings.
    let text = text.filter(|text| !text.contains(|c: char| c.is_control() || c == '?') && !text.ends_with(' '));
    let text = text.ok_or_else(|| Failure::new(Why::Other, "this server cannot give a file such a name"))?;
    let end = if text.ends_with(|c: char| c.is_ascii_graphic()) { "" } else { "?" };
    Ok(format!("{text}{end}"))
}
