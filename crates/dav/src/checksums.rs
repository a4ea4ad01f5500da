//! Requests for the Adler-32 of files, with their content or apart from it.
//!
//! Invariant: none is made without the one place for it (`digests`).
//!
//! Not here: what is compared with what comes (`reading`, `changing`).

use crate::digests::DigestPlace;
use crate::failure::{Failure, Result, Why};
use crate::site::{Asked, Site};
use std::time::Duration;
use web::Response;

const DIGEST_PATIENCE: Duration = Duration::from_secs(90);
/// What a server digests in a second, at least.
const DIGESTED_BYTES_A_SECOND: u64 = 20 << 20;

fn want_digest() -> (&'static str, String) {
    ("Want-Digest", "adler32".to_owned())
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
        self.ask_digest_at(&self.wait_for_place()?, method, path, headers, size_bytes)
    }

    fn wait_for_place(&self) -> Result<DigestPlace<'_>> {
        let place = self.digests.enter(|| self.is_stopped());
        place.ok_or_else(|| Failure::new(Why::Unknown, "interrupted"))
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
        let _place = self.wait_for_place()?;
        let headers = [("Accept-Encoding", "identity".to_owned()), want_digest()];
        let patience = patience(size_bytes);
        self.ask_anew(&Asked { method: "GET", headers: &headers, body: b"", wanted: &[200], patience }, path)
    }
}
