//! Fetches what a cache lacks from the holders of a set: what is wanted is taken together, each file once.
//!
//! Invariant: whatever comes of a transfer, everybody who waits for a file of it hears the end.
//!
//! Not here: what is wanted (`hold`), who the holders are (`origins`).

use super::hold::{Hold, OfSet};
use super::origins::Origins;
use super::shelf::Batch;
use super::sink::Blobs;
use crate::error::{Error, Result};
use model::selection::Listed;
use model::{DigestAlgorithm, Exit, Location, TransferSpec};
use std::sync::Arc;
use store::Stores;
use tracing::{info, warn};
use transfer::{Means, Transfer, part};

/// Transfers at once: large files go by while small ones are asked for.
const WORKERS: usize = 4;
const RETRIES: u32 = 2;

pub fn start(hold: &Arc<Hold>, origins: &Arc<Origins>) -> Result<()> {
    for _ in 0..WORKERS {
        let (hold, origins) = (hold.clone(), origins.clone());
        let work = move || {
            while let Some(batch) = hold.next_batch() {
                let why = match fetch(&hold, &origins, &batch) {
                    Ok(()) => "the holders of the set do not have it".to_owned(),
                    Err(e) => {
                        warn!(set = batch.of.0.note.name, error = %e, "fetching for the cache failed");
                        e.message
                    }
                };
                hold.ended(&batch, &why);
            }
        };
        let started = std::thread::Builder::new().name("cache".into()).spawn(work);
        started.map_err(|e| Error::new(Exit::Failed, format!("start a thread: {e}")))?;
    }
    Ok(())
}

fn fetch(hold: &Arc<Hold>, origins: &Arc<Origins>, batch: &Batch<OfSet>) -> Result<()> {
    let set = &batch.of.0;
    let mut numbers: Vec<usize> = batch.files.iter().map(|(_, number)| *number).collect();
    numbers.sort_unstable();
    let catalogue = Arc::new(part(&set.catalogue, numbers));
    let paths = catalogue.files().iter().map(|file| file.path.to_vec()).collect();
    if set.holders.is_empty() {
        return Err(Error::new(Exit::Unreachable, "no origin that has the set can be reached"));
    }
    let mut holders = set.holders.clone();
    let replicas = holders.split_off(1.min(holders.len()));
    let mut spec = TransferSpec::new(holders, Location::Local(b"./".to_vec()));
    spec.replicas = replicas;
    spec.choice.listed = Some(Listed::new(paths).expect("paths of a catalogue are made of names"));
    spec.options.digest = DigestAlgorithm::Blake3;
    spec.options.chunk_bytes = catalogue.chunk_bytes;
    // What a crash leaves of it is compared before it is served.
    spec.options.fsync = model::options::Fsync::Never;
    spec.retries = RETRIES;
    let blobs = Arc::new(Blobs { hold: hold.clone(), set: batch.of.clone(), catalogue: catalogue.clone() });
    let means = Means {
        stores: Stores::default().with("file", blobs),
        catalogue: Some(catalogue),
        ..origins.means(hold.is_over())
    };
    let ended = Transfer::start(spec, means)?.wait();
    let (files, bytes) = (ended.files_ok, ended.bytes);
    info!(set = set.note.name, files, bytes, sent_bytes = ended.sent_bytes, "fetched for the cache");
    match (ended.error, ended.failures.first()) {
        (None, _) => Ok(()),
        (Some(_), Some(failure)) => Err(Error::new(Exit::Failed, failure.message.clone())),
        (Some(e), None) => Err(e.into()),
    }
}
