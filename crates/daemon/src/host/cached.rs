//! What a client reads that does not lie in the root of an endpoint: sets of a cache, and roots at stores.
//!
//! Invariant: what is refused is told with the client's own path, and in words that say what to do.

use super::rights::Rights;
use super::{EndpointHost, names_of, with_path};
use crate::error::Error;
use model::{Exit, Selection, TransferOptions};
use std::sync::Arc;
use store::open::OpenSource;
use wire::message::Open;
use wire::{CloseCode, Refusal, bounded};

impl EndpointHost {
    pub(super) fn elsewhere(
        &self,
        rights: &Rights,
        open: &Open,
        options: &TransferOptions,
        selection: &Arc<Selection>,
    ) -> Result<OpenSource, Refusal> {
        let Some(cache) = &self.cache else { return self.stored_source(rights, open, options) };
        let [path] = &open.paths[..] else {
            return Err(Refusal::new(CloseCode::Forbidden, "a cache gives one set at a time"));
        };
        self.locate(rights, path)?;
        cache.source(rights.reader, &names_of(path)?, selection).map_err(|e| refusal(path, &e))
    }

    /// Looks again whether a set of the cache may be fetched, while a job runs on it.
    pub(super) fn check_cached(&self, rights: &Rights, path: &[u8]) -> Result<(), Refusal> {
        let Some(cache) = &self.cache else { return Ok(()) };
        cache.check(rights.reader, &names_of(path)?).map_err(|e| refusal(path, &e))
    }
}

fn refusal(path: &[u8], e: &Error) -> Refusal {
    let code = match e.exit {
        Exit::SourceFileNotFound | Exit::SourceDirectoryNotFound => CloseCode::NotFound,
        Exit::Refused | Exit::Authentication | Exit::Integrity | Exit::Usage => CloseCode::Forbidden,
        _ => CloseCode::Busy,
    };
    Refusal::new(code, bounded(&with_path(path, &e.message)))
}
