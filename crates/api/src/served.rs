//! What the requests of all connections share.

use crate::failures::Failures;
use crate::paces::Paces;
use crate::requests::Requests;
use crate::sessions::Sessions;
use crate::streams::Streams;
use hub::Hub;
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};

/// In KiB: what bodies take together until their requests are answered.
pub const BODIES_KIB_MAX: usize = 64 << 10;

#[derive(Clone)]
pub struct Served {
    pub hub: Hub,
    pub stopped: watch::Receiver<bool>,
    pub sessions: Arc<Sessions>,
    pub failures: Arc<Failures>,
    pub paces: Arc<Paces>,
    pub requests: Arc<Requests>,
    pub streams: Arc<Streams>,
    pub bodies: Arc<Semaphore>,
    /// What the hub is called, besides its addresses.
    pub names: Arc<[String]>,
    /// Where browsers find it, if they can.
    pub url: Option<Arc<str>>,
}
