//! What the user asked for, and what came of it.

use super::remote::Ssh;
use crate::exit::{Error, Result, error};
use crate::interrupt::Interrupt;
use crate::output;
use crate::output::progress::Mode;
use ::transfer::{Direction, Ended};
use model::options::Buffer;
use model::set::Catalogue;
use model::{Exit, Location, TransferSpec};
use mover::Ending;
use std::path::PathBuf;
use std::sync::Arc;
use store::spool::Spool;

/// The endpoints that a request names beside its locations.
#[derive(Clone, Debug, Default)]
pub struct HostNames {
    pub from: Vec<String>,
    pub to: Vec<String>,
}

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct Request {
    pub command: &'static str,
    pub spec: TransferSpec,
    /// Where content may wait on this host, and how much.
    pub buffer: Option<(PathBuf, u64)>,
    /// What is copied is listed here, and its sources are those who have it.
    pub catalogue: Option<Arc<Catalogue>>,
    pub manifest: Option<PathBuf>,
    pub progress: Mode,
    pub ssh: Ssh,
    /// Other hosts that work on it.
    pub hosts: HostNames,
}

impl Request {
    /// With everything chosen automatically, and silent.
    pub fn plain(sources: Vec<Location>, destination: Location) -> Request {
        let spec = TransferSpec::new(sources, destination);
        Request {
            command: "cp",
            spec,
            buffer: None,
            catalogue: None,
            manifest: None,
            progress: Mode::None,
            ssh: Ssh::default(),
            hosts: HostNames::default(),
        }
    }
}

impl Request {
    /// Opens the buffer on this host. What is sent is read ahead into it; what is received goes there while storage is late.
    pub fn open_buffer(&self) -> Result<Option<(Arc<Spool>, Buffer)>> {
        let Some((path, bytes)) = &self.buffer else { return Ok(None) };
        let spool = Spool::open(path, *bytes).map_err(|e| {
            error(Exit::Refused, e.to_string(), "name another directory, or another size, with --buffer")
        })?;
        if !spool.found().is_empty() {
            let message = format!("the buffer {} holds what an endpoint has not delivered", path.display());
            return Err(error(Exit::Refused, message, "name another directory with --buffer"));
        }
        let how = if self.spec.destination.is_remote() { Buffer::Always } else { Buffer::Auto };
        Ok(Some((spool, how)))
    }
}

/// What came of a request.
pub struct Finished {
    pub ended: Ended,
    /// As the program tells it.
    pub error: Option<Error>,
    /// What was waited for at the destination, as far as it is known: `file`, `batch`, `never` or `memory`.
    pub durable: String,
}

impl Finished {
    /// A request that could not be begun.
    pub fn before_the_start(request: &Request, error: Error) -> Finished {
        let TransferSpec { sources, destination, .. } = &request.spec;
        let direction = match (sources.iter().any(Location::is_remote), destination.is_remote()) {
            (true, _) => Direction::Pull,
            (false, true) => Direction::Push,
            (false, false) => Direction::Local,
        };
        let ended = Ended::before_the_start(&request.spec, direction);
        Finished { ended, error: Some(error), durable: String::new() }
    }

    pub fn exit(&self) -> Exit {
        self.error.as_ref().map_or(Exit::Done, |error| error.exit)
    }

    /// It came to every file, whatever became of each.
    pub fn is_whole(&self, request: &Request) -> bool {
        let Finished { ended, error, .. } = self;
        match (error, &ended.report) {
            (None, _) => true,
            (Some(_), Some(report)) => matches!(report.ending, Ending::Finished(_)),
            // Another host carried it out, and tells its code.
            (Some(error), None) => {
                let came = matches!(error.exit, Exit::Partial | Exit::Changed)
                    || error.exit == Exit::Integrity && ended.files_failed > 0;
                came && !request.spec.bounds.is_fail_fast
            }
        }
    }

    /// Something beside the copy failed: the figures stay, and so does the exit code of what failed before.
    pub fn add_error(&mut self, error: Error) {
        match &mut self.error {
            Some(first) => first.message = format!("{}; {}", first.message, error.message),
            None => self.error = Some(error),
        }
    }
}

/// The user asked to stop, and can go on later.
pub fn stopped(interrupt: &Interrupt) -> Error {
    let hint = format!("to continue, give the same command again: {}", command_line());
    crate::exit::error(interrupt.exit(), "stopped; what was verified is kept", hint)
}

/// The command as the user gave it, quoted for a shell.
fn command_line() -> String {
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_./:=,@%+[]".contains(b);
    let quoted = std::env::args_os().map(|word| {
        let word = output::shown(word);
        if !word.is_empty() && word.bytes().all(|b| is_plain(&b)) {
            word
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}
