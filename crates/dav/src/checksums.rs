//! Requests for the Adler-32 of files: with their content, apart from it, and of many files in a run on one connection.
//!
//! Invariant: none is made without the one place for it (`digests`).
//!
//! Not here: what is compared with what comes (`reading`, `changing`, `ahead`), and who asks when (`digests`).

use crate::digests::{DigestPlace, Ticket};
use crate::failure::Result;
use crate::reading::adler32;
use crate::site::{Asked, Site};
use std::time::Duration;
use web::{ErrorKind, Response};

const DIGEST_PATIENCE: Duration = Duration::from_secs(90);
/// What a server digests in a second, at least.
const DIGESTED_BYTES_A_SECOND: u64 = 20 << 20;

fn want_digest() -> (&'static str, String) {
    ("Want-Digest", "adler32".to_owned())
}

fn identity() -> (&'static str, String) {
    ("Accept-Encoding", "identity".to_owned())
}

/// As long as the server may take to compute it.
fn patience(size_bytes: u64) -> Duration {
    DIGEST_PATIENCE + Duration::from_secs(size_bytes / DIGESTED_BYTES_A_SECOND)
}

impl Site {
    /// Asks for a file, or its head, with its Adler-32, and waits as long as the server may take to compute it.
    pub fn ask_digest(
        &self,
        method: &'static str,
        path: &[u8],
        headers: &[(&str, String)],
        size_bytes: u64,
    ) -> Result<Response> {
        self.ask_digest_at(&self.digests.enter(), method, path, headers, size_bytes)
    }

    /// A place to ask for a checksum, if it is free.
    pub fn digest_place(&self) -> Option<DigestPlace<'_>> {
        self.digests.try_enter()
    }

    /// The same for whoever has the place.
    pub fn ask_digest_at(
        &self,
        _: &DigestPlace<'_>,
        method: &'static str,
        path: &[u8],
        headers: &[(&str, String)],
        size_bytes: u64,
    ) -> Result<Response> {
        let headers = [headers, &[want_digest()]].concat();
        let patience = patience(size_bytes);
        self.ask_for(&Asked { method, headers: &headers, body: b"", wanted: &[200], patience }, path)
    }

    /// Asks for a file with its Adler-32 over a connection on which nothing was asked before.
    pub fn ask_digest_anew(&self, path: &[u8], size_bytes: u64) -> Result<Response> {
        let _place = self.digests.enter();
        let headers = [identity(), want_digest()];
        let patience = patience(size_bytes);
        self.ask_anew(&Asked { method: "GET", headers: &headers, body: b"", wanted: &[200], patience }, path)
    }

    /// Whether small files are fetched without their checksums, which come in runs. Near by one after the other is as
    /// fast.
    pub fn is_asked_in_runs(&self) -> bool {
        self.is_far() && (self.digests.bears_runs() || self.digests.states_none())
    }

    /// Wants the checksum of a file, and begins a run if none is under way.
    pub fn want_in_run(&self, path: &[u8]) -> Ticket {
        let ticket = self.digests.want(path);
        self.digests.go_on(&|paths, tell| self.run(paths, tell));
        ticket
    }

    /// The checksum that was wanted; nothing where it did not come as it should.
    pub fn stated_in_run(&self, ticket: Ticket) -> Option<u32> {
        self.digests.answer(ticket, &|paths, tell| self.run(paths, tell))
    }

    /// Asks for the checksums of several files on one connection, on another one for the rest if it ends early, and
    /// tells those that came, in their order.
    fn run(&self, paths: &[Vec<u8>], tell: &mut dyn FnMut(Option<u32>)) {
        let mut left = paths;
        for is_new in [false, true] {
            let (mut came, mut plain) = (0, 0);
            let ended = self.heads(left, &[identity(), want_digest()], is_new, &mut |response| {
                let is_plain = response.status == 200;
                came += 1;
                plain += usize::from(is_plain);
                tell(response.header("digest").and_then(adler32).filter(|_| is_plain));
            });
            // One request tells nothing of how several fare, nor does a connection that had ended before.
            let is_telling = left.len() > 1 && (is_new || came > 0);
            left = &left[came..];
            match ended.map_err(|e| e.kind) {
                Ok(()) if is_telling => self.digests.note_run(plain > 0),
                Err(ErrorKind::Lost | ErrorKind::Malformed) if is_telling => self.digests.note_run(false),
                Err(ErrorKind::TimedOut) if is_telling => return self.digests.give_up_runs(),
                Ok(()) | Err(ErrorKind::Lost | ErrorKind::Malformed) => {}
                Err(_) => return,
            }
            if left.is_empty() {
                return;
            }
        }
    }
}
