//! Content of one version of a file, by range.
//!
//! Invariants: every answer says that it is the range that was asked for, of a file as long as the one that was listed; a range
//! whose connection breaks goes on where it stopped; a file that was read whole has the Adler-32 that the server stated.

use crate::failure::{Failure, Result, Why};
use crate::listing::Stat;
use crate::site::Site;
use model::adler32::combine;
use model::{Extent, FailureKind, Generation};
use simd_adler32::Adler32;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use store::SourceFile;
use web::Response;

/// Times that a range is continued after its connection broke.
const CONTINUED_MAX: u32 = 4;

pub struct DavFile {
    site: Arc<Site>,
    path: Vec<u8>,
    stat: Stat,
    /// Its Adler-32 is asked for with its content.
    is_compared: bool,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Of the whole file, by the server.
    stated: Option<u32>,
    /// It was requested separately.
    is_asked: bool,
    /// Of extents that were read, by their starts, with their lengths.
    read: BTreeMap<u64, (u64, u32)>,
}

impl DavFile {
    pub fn new(site: Arc<Site>, path: Vec<u8>, stat: Stat) -> DavFile {
        DavFile { site, path, stat, is_compared: true, seen: Mutex::default() }
    }

    /// The same of a server that states none.
    pub fn uncompared(self) -> DavFile {
        DavFile { is_compared: false, ..self }
    }

    /// The same, of which these bytes were read before, from its start.
    pub fn begun(self, bytes: &[u8]) -> DavFile {
        if !bytes.is_empty() {
            let read = (bytes.len() as u64, simd_adler32::adler32(&bytes));
            self.seen.lock().unwrap().read.insert(0, read);
        }
        self
    }

    pub fn open(site: &Arc<Site>, path: &[u8]) -> store::Result<DavFile> {
        let stat = site.stat(path).map_err(|failure| failure.on("open file", path))?;
        match stat.is_directory {
            true => Err(store::Error::of_kind(FailureKind::InTheWay, "open file", path, "it is a directory")),
            false => Ok(DavFile::new(site.clone(), path.to_vec(), stat)),
        }
    }

    pub fn site(&self) -> &Site {
        &self.site
    }

    pub fn path(&self) -> &[u8] {
        &self.path
    }

    pub fn size_bytes(&self) -> u64 {
        self.stat.size_bytes
    }

    /// Asks for a range, and judges whether that is what comes.
    fn get(&self, start: u64, end: u64) -> Result<Response> {
        let size = self.stat.size_bytes;
        let mut headers = vec![("Accept-Encoding", "identity".to_owned())];
        if start > 0 || end < size {
            headers.push(("Range", format!("bytes={start}-{}", end - 1)));
        }
        if self.stat.etag.starts_with('"') {
            headers.push(("If-Match", self.stat.etag.clone()));
        }
        let is_whole = start == 0 && end == size;
        let is_stated = is_whole && self.is_compared;
        let response = match is_stated {
            true => self.site.ask_digest("GET", &self.path, &headers, size)?,
            false => self.site.ask("GET", &self.path, &headers, &[200, 206])?,
        };
        if response.status == 200 && !is_whole {
            return Err(Failure::new(Why::Other, "the server sends whole files where a part is asked for"));
        }
        if response.header("content-encoding").is_some_and(|coding| !coding.eq_ignore_ascii_case("identity")) {
            return Err(Failure::new(Why::Other, "the server sends the file in another coding than it is stored in"));
        }
        let range = response.header("content-range").filter(|_| response.status == 206);
        if range.is_some_and(|range| range != format!("bytes {start}-{}/{size}", end - 1))
            || (response.status == 206 && range.is_none())
        {
            return Err(Failure::new(
                Why::Changed,
                "the server sends another range than was asked for, or of another version",
            ));
        }
        if response.length().is_some_and(|length| length != end - start) {
            return Err(Failure::new(Why::Changed, "the server sends another length than it listed"));
        }
        // XRootD 5 repeats on a connection what it stated last, for whatever file that was: only what was asked for counts.
        if is_stated && let Some(stated) = response.header("digest").and_then(adler32) {
            self.site.digests.note_stated(true);
            let mut seen = self.seen.lock().unwrap();
            if seen.stated.is_some_and(|known| known != stated) {
                return Err(Failure::new(Why::Changed, "the server's checksum of it changed meanwhile"));
            }
            seen.stated = Some(stated);
        }
        Ok(response)
    }

    /// Reads a range and hands over every block; returns how much there was until `each` said false.
    pub fn stream(
        &self,
        (start, end): (u64, u64),
        block: &mut [u8],
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<u64> {
        let (mut at, mut broken) = (start, 0);
        while at < end {
            let mut response = self.get(at, end)?;
            let failure = loop {
                let wanted = block.len().min(usize::try_from(end - at + 1).unwrap_or(usize::MAX));
                match response.read(&mut block[..wanted]) {
                    Ok(0) if at == end => break None,
                    Ok(0) => break Some(Failure::new(Why::Unknown, "the server sent less than it said")),
                    Ok(read) if at + read as u64 > end => {
                        return Err(Failure::new(Why::Changed, "the server sends more than it listed"));
                    }
                    Ok(read) => {
                        at += read as u64;
                        if !each(&block[..read]) {
                            return Ok(at - start);
                        }
                    }
                    Err(e) => break Some(Failure::of_web(&e)),
                }
            };
            if let Some(failure) = failure {
                broken += 1;
                if broken > CONTINUED_MAX || !failure.may_pass() {
                    return Err(failure);
                }
            }
        }
        Ok(at - start)
    }

    /// As `stream`, of an extent, and compares the whole once all of it was read.
    pub fn extent(&self, extent: Extent, block: &mut [u8], each: &mut dyn FnMut(&[u8]) -> bool) -> store::Result<u64> {
        let (start, end) = (extent.start, extent.end.min(self.stat.size_bytes));
        if start >= end {
            return Ok(0);
        }
        let mut adler = Adler32::new();
        let read = self.stream((start, end), block, &mut |bytes| {
            adler.write(bytes);
            each(bytes)
        });
        match read {
            Ok(read) if read == end - start && self.is_compared => {
                self.judge(start, read, adler.finish()).map(|()| read)
            }
            Ok(read) => Ok(read),
            // Its generation tells.
            Err(failure) if failure.why == Why::Changed => Ok(0),
            Err(failure) => Err(failure.on("read file", &self.path)),
        }
    }

    fn judge(&self, start: u64, length: u64, adler: u32) -> store::Result<()> {
        let mut seen = self.seen.lock().unwrap();
        seen.read.insert(start, (length, adler));
        let (mut at, mut whole) = (0, 1);
        for (start, (length, adler)) in &seen.read {
            if *start != at {
                return Ok(());
            }
            at += length;
            whole = combine(whole, *adler, *length);
        }
        if at != self.stat.size_bytes {
            return Ok(());
        }
        // What was read at once had it asked for with the content.
        let is_vain = seen.read.len() == 1 && self.site.digests.states_none();
        if seen.stated.is_none() && !is_vain && !std::mem::replace(&mut seen.is_asked, true) {
            match self.site.digest_of(&self.path, self.stat.size_bytes) {
                Ok(response) => {
                    seen.stated = response.header("digest").and_then(adler32);
                    self.site.digests.note_stated(seen.stated.is_some());
                }
                // Some servers refuse every HEAD.
                Err(failure) if failure.why == Why::Other => self.site.digests.note_stated(false),
                // It says something of the file, or of the moment.
                Err(_) => {}
            }
        }
        // XRootD 5 may have repeated what it stated of another file; on a new connection there is nothing to repeat.
        if seen.stated.is_some_and(|stated| stated != whole)
            && let Ok(response) = self.site.ask_digest_anew(&self.path, self.stat.size_bytes)
            && let Some(again) = response.header("digest").and_then(adler32)
        {
            seen.stated = Some(again);
        }
        if seen.stated.is_none_or(|stated| stated == whole) {
            return Ok(());
        }
        seen.read.clear();
        let why = "what the server sent is not what it states the Adler-32 of";
        Err(store::Error::of_kind(FailureKind::DigestMismatch, "read file", &self.path[..], why))
    }
}

/// Of `adler32=1fd049db`, perhaps among others.
pub fn adler32(digests: &str) -> Option<u32> {
    let pairs = digests.split(',').filter_map(|one| one.trim().split_once('='));
    let (_, hex) = pairs.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("adler32"))?;
    u32::from_str_radix(hex.trim(), 16).ok().filter(|_| !hex.starts_with('+'))
}

impl SourceFile for DavFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> store::Result<usize> {
        let end = offset.saturating_add(buffer.len() as u64).min(self.stat.size_bytes);
        let (mut filled, mut block) = (0, vec![0; buffer.len().min(128 << 10)]);
        let read = self.stream((offset, end), &mut block, &mut |bytes| {
            buffer[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
            true
        });
        match read {
            Ok(read) => Ok(read as usize),
            Err(failure) if failure.why == Why::Changed => Ok(0),
            Err(failure) => Err(failure.on("read file", &self.path)),
        }
    }

    fn generation(&self) -> store::Result<Generation> {
        match self.site.stat(&self.path) {
            Ok(stat) => Ok(stat.generation(&self.site)),
            Err(failure) if failure.why == Why::Missing => Ok(Generation::default()),
            Err(failure) => Err(failure.on("look at", &self.path)),
        }
    }

    fn native(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_found_among_others() {
        assert_eq!(adler32("md5=abc, ADLER32=1fd049db"), Some(0x1fd0_49db));
        assert_eq!((adler32("md5=abc"), adler32("adler32="), adler32("adler32=+1")), (None, None, None));
    }
}
