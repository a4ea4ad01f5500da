//! What the requests of all connections share.

use crate::bodies::Bodies;
use crate::failures::Failures;
use crate::paces::Paces;
use crate::requests::Requests;
use crate::sessions::Sessions;
use crate::streams::Streams;
use hub::Hub;
use std::sync::Arc;
use tokio::sync::watch;

#[derive(Clone)]
pub struct Served {
    pub hub: Hub,
    pub stopped: watch::Receiver<bool>,
    pub sessions: Arc<Sessions>,
    pub failures: Arc<Failures>,
    pub paces: Arc<Paces>,
    pub requests: Arc<Requests>,
    pub streams: Arc<Streams>,
    pub bodies: Arc<Bodies>,
    /// What the hub is called, besides its addresses.
    pub names: Arc<[String]>,
    /// Where browsers find it, if they can.
    pub url: Option<Arc<str>>,
}
