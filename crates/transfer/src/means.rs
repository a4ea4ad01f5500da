//! What a transfer is carried out with, and which its value does not hold: stores, peers, and who looks on.

use crate::peer::{NoPeers, Peers};
use crate::watcher::{Unwatched, Watcher};
use model::options::Buffer;
use model::set::Catalogue;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use store::Stores;
use store::spool::Spool;

pub struct Means {
    pub stores: Stores,
    pub peers: Arc<dyn Peers>,
    pub watcher: Arc<dyn Watcher>,
    /// Set when the transfer is to stop in order. A signal's handler may hold it too.
    pub stop: Arc<AtomicBool>,
    /// Where content may wait on this host for the network, or for storage.
    pub buffer: Option<(Arc<Spool>, Buffer)>,
    /// The catalogue of what is copied: its listing and its digests count, and the sources are those who have it.
    pub catalogue: Option<Arc<Catalogue>>,
    /// Lists what was delivered, in this file of this host.
    pub manifest: Option<PathBuf>,
    /// From when on durations count.
    pub started: Instant,
}

impl Means {
    /// With this host's own stores, unwatched.
    pub fn new(peers: impl Peers + 'static) -> Means {
        Means {
            stores: Stores::default(),
            peers: Arc::new(peers),
            watcher: Arc::new(Unwatched),
            stop: Arc::default(),
            buffer: None,
            catalogue: None,
            manifest: None,
            started: Instant::now(),
        }
    }

    /// For transfers within this host.
    pub fn local() -> Means {
        Means::new(NoPeers)
    }
}
