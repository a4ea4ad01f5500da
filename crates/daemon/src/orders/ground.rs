//! What a job that was handed in may do at this endpoint, as whoever owns its root says it.

use model::files::{Question, Record, Tally};
use model::order::{Kind, Role};
use model::{Class, JobId, Pin, TransferOptions, TransferSpec};
use mover::session::Roster;
use serde_json::{Map, Value};
use std::sync::Arc;
use store::open::{OpenSink, OpenSource};
use store::spool::Spool;
use wire::Refusal;

pub trait Ground: Send + Sync {
    /// The key of this endpoint.
    fn pin(&self) -> Pin;

    /// Where this endpoint's jobs are listed.
    fn roster(&self) -> Arc<Roster>;

    /// What a job of this client counts that asked for this class, or for none.
    fn class(&self, owner: Pin, asked: Option<Class>) -> Class;

    /// Whether a client may have this endpoint do its part of a transfer, at this moment.
    fn may_order(&self, owner: Pin, kind: Kind, role: Role, spec: &TransferSpec) -> Result<(), Refusal>;

    /// Whether the sources are there, in the words that a client of this endpoint is told.
    fn may_open(&self, owner: Pin, role: Role, spec: &TransferSpec) -> Result<(), Refusal>;

    fn open_source(&self, owner: Pin, paths: &[Vec<u8>], options: &TransferOptions) -> Result<OpenSource, Refusal>;

    /// `is_single`: what arrives may be one object, whose name the path is.
    fn open_sink(
        &self,
        owner: Pin,
        job: JobId,
        path: &[u8],
        is_single: bool,
        options: &TransferOptions,
    ) -> Result<OpenSink, Refusal>;

    /// Answers a question about this endpoint's files, with the rights of a client at that moment.
    fn answer(
        &self,
        owner: Pin,
        question: &Question,
        is_stopped: store::Stopped<'_>,
        each: &mut dyn FnMut(Record) -> bool,
    ) -> Result<Tally, Refusal>;

    /// Where what its jobs send or receive may wait.
    fn waiting_room(&self) -> Option<Arc<Spool>> {
        None
    }

    /// Whether somebody has any rights here. True where that cannot be told at this moment.
    fn knows(&self, owner: Pin) -> bool;

    /// Writes a line of the transfer log; of what delivered nothing, only the first few of a minute. True when it has a line.
    fn log(&self, owner: Pin, client: &str, has_delivered: bool, fields: &Map<String, Value>) -> bool;
}
