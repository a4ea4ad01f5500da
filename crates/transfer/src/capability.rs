//! What an endpoint has to know before a job is given to it: one that does not know a request would ignore it, and a dry run would
//! write.
//!
//! The other way round needs no check: an endpoint never asks this side for anything.

use crate::error::{Error, Kind, Result};
use model::TransferOptions;
use model::options::{Compression, Wait};
use model::synthetic::is_synthetic;
use mover::feature;
use mover::job_options::{needs_fidelity_receiver, needs_fidelity_sender, needs_sync_receiver, needs_sync_sender};
use mover::session::Client;

/// Before a push.
pub fn check_receiver(client: &Client, endpoint: &str, path: &[u8], options: &TransferOptions) -> Result<()> {
    let peer = Checked { client, endpoint };
    peer.knows_paths(&[path])?;
    peer.knows(needs_sync_receiver(options), feature::SYNC, SYNC, UPDATE)?;
    peer.knows(options.compression != Compression::None, feature::LIMITS, LIMITS, UPDATE)?;
    peer.knows(options.is_delta, feature::DELTA, "--delta", LEAVE)?;
    peer.knows(options.follow.is_some(), feature::GROWTH, "files that are sent while they are written", UPDATE)?;
    peer.knows(options.wait == Wait::Buffered, feature::BUFFERED, "--wait buffered", LEAVE)?;
    peer.knows(options.view.is_some(), feature::VIEW, "--show prefix", LEAVE)?;
    peer.knows(options.sealed_list.is_some(), feature::LIST, "--sealed-list", LEAVE)?;
    peer.knows(options.slice.is_some(), feature::SLICES, "jobs that several hosts work on (--hosts)", UPDATE)?;
    let is_of_run = options.slice.as_ref().is_some_and(|slice| slice.run.is_some());
    peer.knows(is_of_run, feature::RANGES, "files that several hosts send in ranges (--hosts)", UPDATE)?;
    peer.knows(needs_fidelity_receiver(options), feature::FIDELITY, FIDELITY, UPDATE)
}

/// Before a pull.
pub fn check_sender(client: &Client, endpoint: &str, paths: &[Vec<u8>], options: &TransferOptions) -> Result<()> {
    let peer = Checked { client, endpoint };
    peer.knows_paths(paths)?;
    peer.knows(needs_sync_sender(options), feature::SYNC, SYNC, UPDATE)?;
    peer.knows(options.is_delta, feature::DELTA, "--delta", LEAVE)?;
    peer.knows(needs_fidelity_sender(options), feature::FIDELITY, FIDELITY, UPDATE)?;
    let is_bound = options.pace.is_some() || options.payload_bytes_max.is_some();
    peer.knows(is_bound || options.compression != Compression::None, feature::LIMITS, LIMITS, UPDATE)?;
    peer.knows(options.congestion.is_some(), feature::CONGESTION, "--cc for what it sends", LEAVE)
}

const SYNC: &str = "filters, comparisons, dry runs or removal";
const LIMITS: &str = "compression, or limits on what it sends";
const FIDELITY: &str = "owners, attributes, hard links or special files";
const UPDATE: &str = "bring the other side up to date: install this version of thalweg there";
const LEAVE: &str = "omit it, or bring the other side up to date: install this version there";

struct Checked<'a> {
    client: &'a Client,
    endpoint: &'a str,
}

impl Checked<'_> {
    fn knows(&self, is_needed: bool, feature: u64, what: &str, advice: &str) -> Result<()> {
        if !is_needed || self.has(feature)? {
            return Ok(());
        }
        Err(self.lacks(Kind::Version, what, advice))
    }

    /// An endpoint that does not know these paths would take them for names of files.
    fn knows_paths(&self, paths: &[impl AsRef<[u8]>]) -> Result<()> {
        let is_needed = paths.iter().any(|path| is_synthetic(path.as_ref()));
        if !is_needed || self.has(feature::SYNTHETIC)? {
            return Ok(());
        }
        Err(self.lacks(Kind::Request, "gen: and null:", "the thalweg there is too old: install this version there"))
    }

    fn has(&self, feature: u64) -> Result<bool> {
        self.client.knows(feature).map_err(|e| Error::from_connect(self.endpoint, &e))
    }

    fn lacks(&self, kind: Kind, what: &str, advice: &str) -> Error {
        let endpoint = self.endpoint;
        Error::new(kind, endpoint, format!("endpoint {endpoint} does not know {what}")).advice(advice)
    }
}
