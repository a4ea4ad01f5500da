//! A transfer as it runs, for whoever looks on: progress on the terminal, events and changes on standard output, and the status
//! file of its process.

use super::presence::{Presence, Subject};
use super::request::Request;
use crate::output::changes::Lines;
use crate::output::json::{self, Events, Start};
use crate::output::progress::{Display, Mode};
use crate::output::{self, duration, human};
use model::{Change, Failure, JobId};
use mover::{Followed, Progress};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use transfer::{Direction, Watcher};

pub struct Shown {
    command: &'static str,
    sources: Vec<String>,
    destination: String,
    retries: u32,
    mode: Mode,
    events: Option<Arc<Events>>,
    /// Where changes are told.
    lines: Option<Mutex<Lines>>,
    live: Mutex<Live>,
}

/// What is there while it runs.
struct Live {
    direction: Direction,
    presence: Option<Presence>,
    display: Option<Display>,
}

impl Shown {
    pub fn new(request: &Request, events: Option<Arc<Events>>) -> Shown {
        let spec = &request.spec;
        Shown {
            command: request.command,
            sources: spec.sources.iter().map(ToString::to_string).collect(),
            destination: spec.destination.to_string(),
            retries: spec.retries,
            mode: request.progress,
            events,
            lines: spec.options.tells_changes.then(|| Mutex::new(Lines::start())),
            live: Mutex::new(Live { direction: Direction::Local, presence: None, display: None }),
        }
    }

    /// The transfer is over.
    pub fn finish(&self) {
        if let Some(lines) = &self.lines {
            lines.lock().unwrap().finish();
        }
        self.live.lock().unwrap().presence.take();
    }
}

impl Watcher for Shown {
    fn started(&self, job: JobId, direction: Direction) {
        let Shown { command, sources, destination, .. } = self;
        let subject = Subject { command, direction, job, sources: sources.clone(), destination: destination.clone() };
        let mut live = self.live.lock().unwrap();
        live.direction = direction;
        live.presence = Some(Presence::start(&subject, daemon::Paths::from_env().as_ref().ok()));
        if let Some(events) = &self.events {
            events.start(&Start { command, direction: direction.name(), job, sources, destination });
        }
    }

    fn attempt_started(&self, number: u32, progress: &Arc<Progress>) {
        let mut live = self.live.lock().unwrap();
        let direction = live.direction;
        if let Some(presence) = &live.presence {
            presence.show(number, progress, direction);
        }
        live.display = Some(Display::start(progress.clone(), direction, self.mode, self.events.clone()));
    }

    fn attempt_ended(&self) {
        drop(self.live.lock().unwrap().display.take());
    }

    fn will_retry(&self, error: &transfer::Error, failures: u32, pause: Duration) {
        if let Some(events) = &self.events {
            events.error(&error.clone().into(), Some(pause.as_secs_f64()));
        }
        // `follow` does not give up.
        let of = if self.retries == u32::MAX { String::new() } else { format!(" ({failures} of {})", self.retries) };
        let again = match pause.is_zero() {
            true => "the next holder leads".to_owned(),
            false => format!("trying again in {}{of}", duration(pause.as_secs_f64())),
        };
        output::note(&format!("{error}; {again}"));
    }

    fn failed(&self, failure: &Failure) {
        if let Some(events) = &self.events {
            events.file(failure);
        }
    }

    fn changed(&self, changes: &[Change]) {
        let Some(lines) = &self.lines else { return };
        let is_sent = self.live.lock().unwrap().direction == Direction::Push;
        let line = |change: &Change| match &self.events {
            Some(_) => json::change(change, is_sent),
            None => human::change(change, is_sent),
        };
        lines.lock().unwrap().push(changes.iter().map(line).collect());
    }

    fn followed(&self, event: &Followed) {
        if let Some(events) = &self.events {
            events.followed(event);
        }
    }

    fn is_enough(&self) -> bool {
        output::nobody_reads()
    }
}
