//! Who gets a place at an endpoint, and what makes room for newcomers: sessions, jobs, questions and lanes that do nothing.
//!
//! Places and memory are shared among clients and their keys (`crate::shares`). Where a share is used up, what has done nothing
//! for a while in that share is ended, and only then is a newcomer refused.
//!
//! Invariants:
//! - Nobody ends what belongs to another client unless the endpoint as a whole is full, and never what moves.
//! - A refusal says whose share is used up.

use super::Session;
use super::host::Grant;
use super::running::Running;
use super::seats::{Guest, Seat};
use super::server::Server;
use crate::limits::{ASK_BYTES, CONNECTION_BYTES, DELTA_BYTES, JOB_BYTES, PLACE_PATIENCE, SESSION_BYTES};
use crate::limits::{IDLE_ASK, IDLE_JOB, IDLE_LANE, IDLE_SESSION};
use crate::memory::{Memory, Permit, Relief};
use crate::shares::{Full, Holder, Level, Place, Places};
use model::{TransferOptions, mutant};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use wire::{CloseCode, Refusal};

/// How often whoever waits for a place looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

const GAVE_PLACE: &str = "this was idle, and its place was given to a waiting client; try again";

impl Server {
    /// Charges a connection whose key is known, before anything of it is read.
    pub fn seat_connection(&self, holder: &Holder) -> Result<Permit, Refusal> {
        let bytes = if mutant::is_on("uncharged-connections") { 0 } else { CONNECTION_BYTES };
        // Those of its own that say nothing end soon, so that waiting helps in any case.
        let busy = |full: Full| Full { is_alone: false, ..full };
        let memory = self.memory.of(holder.clone(), None);
        self.try_base(holder, &memory, bytes).map_err(|full| memory.refusal(&busy(full), "connections"))
    }

    /// A place among the sessions.
    pub(super) fn seat(self: &Arc<Server>, grant: &Grant) -> Result<Guest, Refusal> {
        let holder = Holder { client: grant.account.as_str().into(), key: grant.pin, name: grant.name.as_str().into() };
        let place = place(&self.rooms.sessions, &holder, "sessions", &|level| self.end_idle_session(&holder, level))?;
        let (server, of) = (Arc::downgrade(self), holder.clone());
        let relief: Relief = Arc::new(move |level| {
            if let Some(server) = server.upgrade() {
                server.end_idle_lanes(&of, level);
            }
        });
        let memory = self.memory.of(holder.clone(), Some(relief));
        let base = self.base(&holder, &memory, SESSION_BYTES, "sessions")?;
        Ok(Guest { holder, memory, seat: Seat::new(place, base) })
    }

    pub(super) fn seat_job(&self, guest: &Guest, options: &TransferOptions) -> Result<Seat, Refusal> {
        let holder = &guest.holder;
        let place = place(&self.rooms.jobs, holder, "jobs", &|level| self.end_idle_job(holder, level))?;
        let bytes = JOB_BYTES + if options.is_delta { DELTA_BYTES } else { 0 };
        Ok(Seat::new(place, self.base(holder, &guest.memory, bytes, "jobs")?))
    }

    pub(super) fn seat_ask(&self, guest: &Guest) -> Result<Seat, Refusal> {
        let holder = &guest.holder;
        let place = place(&self.rooms.asks, holder, "questions", &|level| self.end_idle_ask(holder, level))?;
        Ok(Seat::new(place, self.base(holder, &guest.memory, ASK_BYTES, "questions")?))
    }

    /// What comes with a place; idle sessions give theirs for it.
    fn base(&self, holder: &Holder, memory: &Memory, bytes: usize, what: &str) -> Result<Permit, Refusal> {
        self.try_base(holder, memory, bytes).map_err(|full| memory.refusal(&full, what))
    }

    fn try_base(&self, holder: &Holder, memory: &Memory, bytes: usize) -> Result<Permit, Full> {
        loop {
            match memory.try_hold(bytes) {
                Err(full) if self.end_idle_session(holder, full.level) => {}
                held => return held,
            }
        }
    }

    /// Sessions in whose share a holder found no place.
    fn in_share_of(&self, holder: &Holder, level: Level) -> Vec<Arc<Session>> {
        let is_in_it = |session: &Arc<Session>| {
            session.guest.get().is_some_and(|guest| match level {
                Level::Endpoint => true,
                Level::Client => guest.holder.client == holder.client,
                Level::Key => guest.holder.client == holder.client && guest.holder.key == holder.key,
            })
        };
        self.sessions.lock().unwrap().values().filter(|session| is_in_it(session)).cloned().collect()
    }

    /// Ends a session that does nothing: of those who have more of them than the newcomer has, whoever has most. One without a
    /// job goes before one whose jobs stand still.
    fn end_idle_session(&self, holder: &Holder, level: Level) -> bool {
        let places = &self.rooms.sessions;
        let of_newcomer = places.of_key(holder);
        let idle = self.in_share_of(holder, level).into_iter().filter_map(|session| {
            let guest = session.guest.get()?;
            let held = places.of_key(&guest.holder);
            let rested = Some(session.idle_for()).filter(|idle| *idle >= IDLE_SESSION);
            let stood = || session.stands_still_for().filter(|_| !mutant::is_on("idle-jobs-keep-sessions"));
            let idle = rested.or_else(stood).filter(|_| guest.seat.is_taken() && held > of_newcomer)?;
            Some(((rested.is_some(), held, idle), session))
        });
        let Some((_, session)) = idle.max_by_key(|(rank, _)| *rank) else { return false };
        if let Some(guest) = session.guest.get() {
            guest.seat.give_up();
        }
        session.dismiss(&Refusal::new(CloseCode::Busy, GAVE_PLACE));
        true
    }

    /// Ends the job that has not moved for longest.
    fn end_idle_job(&self, holder: &Holder, level: Level) -> bool {
        if level == Level::Key {
            return false;
        }
        let running = self.in_share_of(holder, level).into_iter().flat_map(|session| session.running());
        let idle = running.map(|running| (running.idle_for(), running)).filter(|(idle, _)| *idle >= IDLE_JOB);
        let Some((_, running)) = idle.max_by_key(|(idle, _)| *idle) else { return false };
        running.job.cancel(CloseCode::Busy, GAVE_PLACE);
        running.watch.abort();
        true
    }

    /// Ends the question whose answer has waited for longest to be taken.
    fn end_idle_ask(&self, holder: &Holder, level: Level) -> bool {
        if level == Level::Key {
            return false;
        }
        let asked = self.in_share_of(holder, level).into_iter().flat_map(|session| session.asks.all());
        let idle = asked.filter_map(|asked| Some((asked.waits_for()?, asked))).filter(|(idle, _)| *idle >= IDLE_ASK);
        let Some((_, asked)) = idle.max_by_key(|(idle, _)| *idle) else { return false };
        asked.give_up(Refusal::new(CloseCode::Busy, GAVE_PLACE));
        true
    }

    /// Ends lanes on which their peers have moved nothing for a while, so that others get their memory. One that waits for
    /// memory itself has none to give, and a job that moves keeps its lanes from others of its own key.
    fn end_idle_lanes(&self, holder: &Holder, level: Level) {
        if mutant::is_on("idle-lanes-keep-memory") || !self.rooms.may_look(holder, level) {
            return;
        }
        for session in self.in_share_of(holder, level) {
            for running in session.running().iter().filter(|running| running.has_memory()) {
                if level != Level::Key || running.idle_for() >= IDLE_LANE {
                    running.watch.end_idle(IDLE_LANE);
                }
            }
        }
    }
}

impl Running {
    fn has_memory(&self) -> bool {
        self.job.progress().lanes.running.load(Relaxed) > 0
    }
}

/// A place, which may be another's that is idle.
fn place(places: &Places, holder: &Holder, what: &str, make_room: &dyn Fn(Level) -> bool) -> Result<Place, Refusal> {
    let refused = |full: Full| {
        let text = format!("{}; try again later", full.text(holder, &format!("{} {what}", full.held)));
        Refusal::new(CloseCode::Busy, &text)
    };
    let full = match places.enter(holder) {
        Ok(place) => return Ok(place),
        Err(full) if !make_room(full.level) => return Err(refused(full)),
        Err(full) => full,
    };
    let deadline = Instant::now() + PLACE_PATIENCE;
    loop {
        match places.enter(holder) {
            Ok(place) => return Ok(place),
            Err(_) if Instant::now() >= deadline => return Err(refused(full)),
            Err(_) => std::thread::park_timeout(LOOK_INTERVAL),
        }
    }
}
