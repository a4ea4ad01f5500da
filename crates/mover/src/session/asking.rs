//! What the asking side of a session reaches its peer with: for the lanes of its jobs, and for finding more paths.
//!
//! Not here: the session's messages (`client`), and which lanes there are (`lanes`).

use super::Session;
use super::connector::{Connector, Path};
use crate::limits::ANSWER_TIMEOUT;
use crate::memory::Memory;
use crate::progress::processors;
use model::PathWish;
use net::Connection;
use plan::{StreamChoice, StreamInputs};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use wire::handshake::feature;
use wire::limits::STREAMS_MAX;
use wire::message::{Addresses, Welcome};
use wire::{CloseCode, Refusal};

/// What the user may set by hand; everything else is chosen.
#[derive(Clone, Debug, Default)]
pub struct Tuning {
    pub streams: Option<u32>,
    /// Where the number begins, by a plan; it follows the path from there.
    pub streams_first: Option<u32>,
    pub paths: PathWish,
    /// Where the next session of the same transfer begins.
    pub standby: Arc<Standby>,
}

/// A path that still carried data when a session of several paths was lost.
#[derive(Debug, Default)]
pub struct Standby(Mutex<Option<Path>>);

impl Standby {
    pub fn set(&self, path: Path) {
        *self.0.lock().unwrap() = Some(path);
    }

    pub fn get(&self) -> Option<Path> {
        self.0.lock().unwrap().clone()
    }
}

pub(super) struct Asker {
    pub connector: Arc<dyn Connector>,
    pub tuning: Tuning,
    pub memory: Memory,
    pub session: Arc<Session>,
    /// Connections dialled early, not yet joined, with the place of their path.
    pub early: Mutex<VecDeque<(usize, Connection)>>,
    pub welcome: OnceLock<Welcome>,
    /// Of the control stream: its address here and there.
    pub ends: (SocketAddr, SocketAddr),
    /// Set when the endpoint was asked for its addresses, and what it answered.
    pub asked: OnceLock<Instant>,
    pub told: Mutex<Option<Addresses>>,
}

impl Asker {
    pub fn new(
        connector: Arc<dyn Connector>,
        tuning: Tuning,
        memory: Memory,
        session: Arc<Session>,
        ends: (SocketAddr, SocketAddr),
    ) -> Asker {
        let (early, welcome, asked, told) = Default::default();
        Asker { connector, tuning, memory, session, early, welcome, ends, asked, told }
    }

    /// A connection on a path; `early` ones come first.
    pub fn connect(&self, place: usize, path: &Path) -> Result<Connection, net::Error> {
        let mut early = self.early.lock().unwrap();
        let found = early.iter().position(|(at, _)| *at == place);
        let early_one = found.and_then(|at| early.remove(at));
        drop(early);
        match early_one {
            Some((_, connection)) => Ok(connection),
            None => self.connector.connect(path),
        }
    }

    /// The streams of one path of a job that has so many. `congestion` is what a sender elsewhere was asked for.
    pub fn choose(
        &self,
        is_sender: bool,
        is_sequential: bool,
        congestion: Option<String>,
        (path, paths): (usize, usize),
    ) -> StreamChoice {
        let welcome = self.welcome.get();
        let own_congestion = || self.connector.congestion().map(str::to_owned);
        let here = net::socket::granted_send_buffer_bytes_max().unwrap_or(4 << 20);
        let there = welcome.map_or(here, |w| w.send_buffer_bytes_max);
        plan::streams(&StreamInputs {
            rtt_us: self.session.rtt_us(),
            send_buffer_bytes_max: if is_sender { here } else { there },
            receive_buffer_bytes_max: None,
            processors_here: processors(),
            processors_there: welcome.map_or(0, |w| w.processors),
            asked: self.tuning.streams,
            planned: self.tuning.streams_first,
            streams_max: welcome.map_or(STREAMS_MAX, |w| w.streams_max.min(STREAMS_MAX)),
            is_sequential,
            congestion: congestion.or_else(own_congestion).unwrap_or_default(),
            paths: paths as u32,
            path: path as u32,
        })
    }

    /// Whether more paths than the connector has may be looked for.
    pub fn takes_more_paths(&self) -> bool {
        self.connector.takes_more() && !matches!(self.tuning.paths, PathWish::Fixed(_))
    }

    /// The endpoint's answer. One that nobody asked for is a fault of its own.
    pub fn take_addresses(&self, addresses: Addresses) -> Result<(), Refusal> {
        let mut told = self.told.lock().unwrap();
        if self.asked.get().is_none() || told.is_some() {
            return Err(Refusal::new(CloseCode::WrongState, "addresses that were not asked for"));
        }
        *told = Some(addresses);
        Ok(())
    }

    /// What the endpoint told of its addresses; an error when it will not tell.
    pub fn addresses(&self) -> Result<Option<Addresses>, &'static str> {
        let Some(asked) = self.asked.get() else { return Ok(None) };
        if let Some(welcome) = self.welcome.get()
            && welcome.features & feature::PATHS == 0
        {
            return Err("the endpoint does not know several paths: install this version there");
        }
        let told = self.told.lock().unwrap().clone();
        if told.is_none() && asked.elapsed() > ANSWER_TIMEOUT + Duration::from_secs(1) {
            return Err("the endpoint did not tell its addresses");
        }
        Ok(told)
    }
}
