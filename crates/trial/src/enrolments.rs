//! `trial enrolments`: many clients redeem one ticket at the same time, and meanwhile it is revoked, expires, is used up, or the
//! endpoint starts again (F028, F029).
//!
//! A round is one endpoint of the product in this process, its own state directory, and `--clients` keys that have connected
//! and say hello at one moment. It fired when at least one hello was on its way while the ticket ended. Afterwards a checker
//! that knows only what is on the disk, what was heard and what a new session says looks whether anybody stayed:
//! - nobody whose ticket has ended opens a session, with the ticket or without, now or after the endpoint has started again;
//! - their open sessions end within `STAY_MAX`; those of a bystander with another ticket go on;
//! - whoever was welcomed by a ticket that holds still is enrolled, and no more of them than the ticket allows.

mod peers;

use crate::pool;
use crate::random::Random;
use crate::record::{Outcome, Tally};
use anyhow::{Context, Result};
use daemon::issue::SERVE_TICKET;
use net::Identity;
use peers::{Heard, Hello, Place, Session, Ticketed, limits};
use std::collections::BTreeMap;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// Rights are reviewed every 2 s and a session that was told to end is cut off by the next review. Far below the 40 s after
/// which a session ends whose client says nothing.
const STAY_MAX: Duration = Duration::from_secs(25);
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Rounds of each kind
    #[arg(long, value_name = "N", default_value_t = 4)]
    rounds: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Clients that say hello at one moment
    #[arg(long, value_name = "N", default_value_t = 64)]
    clients: usize,
    /// Rounds at the same time
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
    /// Only the kind of this name
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

/// What happens while clients enrol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    RevokeServe,
    RevokeServeAndRestart,
    Rotate,
    RevokeLimited,
    Remove,
    Expire,
    Restart,
    UsesAndRestart,
    OldEnds,
    NewEnds,
}
use Kind::*;

/// Kind, its name, the faults that it is.
const KINDS: [(Kind, &str, &[&str]); 10] = [
    (RevokeServe, "the ticket without limits is revoked", &["F029"]),
    (RevokeServeAndRestart, "the same, and the endpoint starts again", &["F029"]),
    (Rotate, "the credential's file is taken away", &["F029"]),
    (RevokeLimited, "a limited ticket is revoked", &["F029"]),
    (Remove, "clients are removed as they appear", &["F029"]),
    (Expire, "a ticket expires", &["F028"]),
    (Restart, "the endpoint starts again", &["F029"]),
    (UsesAndRestart, "a ticket is used up, and the endpoint starts again", &["F029"]),
    (OldEnds, "clients change tickets, the old one is revoked", &["F029"]),
    (NewEnds, "clients change tickets, the new one is revoked", &["F029"]),
];
const USES: usize = 8;
/// Longer than all clients take to connect.
const EXPIRY_SECONDS: u64 = 5;

pub fn run(args: &Args) -> Result<Tally> {
    let started = Instant::now();
    let keys = (0..args.clients).map(|_| Identity::generate()).collect::<Result<Vec<_>, _>>().context("make keys")?;
    let chosen: Vec<_> =
        KINDS.iter().filter(|(_, name, _)| args.only.as_ref().is_none_or(|only| only == name)).collect();
    anyhow::ensure!(!chosen.is_empty(), "no kind has this name; there are: {:?}", KINDS.map(|(_, name, _)| name));
    let seeds = args.seed..args.seed + args.rounds;
    let rounds: Vec<_> = seeds.flat_map(|seed| chosen.iter().map(move |kind| (**kind, seed))).collect();
    let sum = Mutex::new((Tally::new("trial enrolments"), Duration::ZERO, 0));
    pool::run(args.jobs, &rounds, |((kind, name, faults), seed)| {
        let round = Round { kind: *kind, keys: &keys, random: Random::new(*seed) }.run();
        let (outcome, in_flight, stay) = match round {
            Ok(Ended { in_flight: 0, .. }) => (Outcome::Inert, 0, Duration::ZERO),
            Ok(ended) => (Outcome::Survived, ended.in_flight, ended.stay),
            Err(why) => (Outcome::Violated(why), 0, Duration::ZERO),
        };
        let replay = format!("trial enrolments --rounds 1 --seed {seed} --clients {} --only '{name}'", args.clients);
        let mut sum = sum.lock().unwrap();
        sum.0.count(&format!("enrolling while {name}"), faults, &outcome, &replay);
        sum.1 = sum.1.max(stay);
        sum.2 += in_flight;
    });
    let (mut tally, stay, in_flight) = sum.into_inner().unwrap();
    tally.figures.insert("hellos on their way while a ticket ended".into(), in_flight.to_string());
    tally
        .figures
        .insert("longest stay of a session after that, in seconds".into(), format!("{:.1}", stay.as_secs_f64()));
    tally.seconds = started.elapsed().as_secs_f64();
    Ok(tally)
}

struct Round<'a> {
    kind: Kind,
    keys: &'a [Identity],
    random: Random,
}

struct Ended {
    /// Hellos that were on their way while the ticket ended.
    in_flight: usize,
    stay: Duration,
}

/// From when to when a ticket ended, and who was removed.
struct Event {
    began: Instant,
    ended: Instant,
    removed: Vec<String>,
}

impl Round<'_> {
    fn run(mut self) -> Result<Ended, String> {
        let place = Place::start()?;
        let by = match self.kind {
            RevokeServe | RevokeServeAndRestart | Rotate | Restart => place.serve_ticket(),
            Expire => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
                let expires = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(now + EXPIRY_SECONDS));
                place.ticket(daemon::limited::Limits { expires, ..limits() })?
            }
            UsesAndRestart => place.ticket(daemon::limited::Limits { uses_max: Some(USES as u32), ..limits() })?,
            _ => place.ticket(limits())?,
        };
        let old = place.ticket(limits())?;
        let bystander = Identity::generate().map_err(|e| e.to_string())?;
        let mut beside = place.hello(&bystander, &place.ticket(limits())?.credential)?.welcomed()?;
        if matches!(self.kind, OldEnds | NewEnds) {
            for key in self.keys {
                place.hello(key, &old.credential)?.welcomed()?;
            }
        }
        let (hellos, event) = self.race(&place, &by, &old)?;
        let is_overlapping = |hello: &&Hello| hello.asked < event.ended && hello.heard_at > event.began;
        let in_flight = hellos.iter().filter(is_overlapping).count();
        let stay = self.check(&place, &by, &old, hellos, &event, &mut beside)?;
        place.hello(&bystander, b"")?.welcomed().map_err(|why| format!("a bystander with another ticket: {why}"))?;
        Ok(Ended { in_flight, stay })
    }

    /// All clients say hello, and the ticket ends.
    fn race(&mut self, place: &Place, by: &Ticketed, old: &Ticketed) -> Result<(Vec<Hello>, Event), String> {
        let after = 1 + self.random.below(self.keys.len() as u64 / 2) as usize + place.enrolled()?.len();
        let early = Duration::from_millis(self.random.below(40));
        let start = Barrier::new(self.keys.len() + 1);
        std::thread::scope(|scope| {
            let hellos: Vec<_> = self
                .keys
                .iter()
                .map(|key| {
                    let start = &start;
                    scope.spawn(move || {
                        let connected = place.connect(key);
                        start.wait();
                        connected?.hello(&by.credential)
                    })
                })
                .collect();
            if let Some(expires) = by.expires {
                let until = expires.duration_since(SystemTime::now()).unwrap_or_default();
                rest(until.saturating_sub(early));
            }
            start.wait();
            let event = self.end(place, by, old, after);
            let hellos = hellos.into_iter().map(|hello| hello.join().map_err(|_| "a client panicked".to_owned())?);
            // One whose endpoint went away is heard as lost; one that could not even connect is no trial.
            let hellos = hellos.collect::<Result<Vec<_>, _>>()?;
            Ok((hellos, event?))
        })
    }

    /// Ends the ticket once so many clients are enrolled, or changing tickets.
    fn end(&self, place: &Place, by: &Ticketed, old: &Ticketed, after: usize) -> Result<Event, String> {
        let deadline = Instant::now() + PATIENCE;
        let is_changing = matches!(self.kind, OldEnds | NewEnds);
        let after = if self.kind == UsesAndRestart { after.min(USES) } else { after };
        let is_under_way = |place: &Place| match is_changing {
            true => place.enrolled().map(|clients| clients.values().filter(|text| by.names(text)).count() > 0),
            false => place.enrolled().map(|clients| clients.len() >= after),
        };
        while self.kind != Expire && !is_under_way(place)? && Instant::now() < deadline {
            std::thread::park_timeout(LOOK_INTERVAL);
        }
        let began = Instant::now();
        let mut removed = Vec::new();
        match self.kind {
            RevokeServe => place.revoke(SERVE_TICKET)?,
            RevokeServeAndRestart => {
                place.revoke(SERVE_TICKET)?;
                place.restart()?;
            }
            Rotate => place.take_credential_away()?,
            RevokeLimited | NewEnds => place.revoke(&by.id)?,
            OldEnds => place.revoke(&old.id)?,
            Restart | UsesAndRestart => place.restart()?,
            Remove => {
                for pin in place.enrolled()?.into_iter().filter(|(_, text)| by.names(text)).map(|(pin, _)| pin) {
                    removed.extend(place.revoke(&pin).is_ok().then_some(pin));
                }
            }
            Expire => {
                let until = by.expires.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
                rest(until.unwrap_or_default());
            }
        }
        Ok(Event { began, ended: Instant::now(), removed })
    }

    /// Looks who stayed. Returns how long the last session did that may not.
    fn check(
        &self,
        place: &Place,
        by: &Ticketed,
        old: &Ticketed,
        hellos: Vec<Hello>,
        event: &Event,
        beside: &mut Session,
    ) -> Result<Duration, String> {
        let was_welcome: Vec<bool> = hellos.iter().map(|hello| matches!(hello.heard, Heard::Welcome(_))).collect();
        let mut stay = Duration::ZERO;
        for (hello, key) in hellos.into_iter().zip(self.keys) {
            if let Heard::Welcome(mut session) = hello.heard
                && self.must_go(event, &key.pin().to_string())
            {
                stay = stay.max(session.ends_by(event.ended + STAY_MAX, event.ended)?);
            }
        }
        if !matches!(self.kind, RevokeServeAndRestart | Restart | UsesAndRestart) {
            beside.is_alive()?;
        }
        for is_restarted in [false, true] {
            if is_restarted {
                place.restart()?;
            }
            self.check_sessions(place, by, old, event, &was_welcome)
                .map_err(|why| if is_restarted { format!("{why}, after a restart") } else { why })?;
        }
        Ok(stay)
    }

    /// Whether a session that was opened with the ticket has to end.
    fn must_go(&self, event: &Event, pin: &str) -> bool {
        match self.kind {
            RevokeServe | RevokeServeAndRestart | RevokeLimited | Expire => true,
            Remove => event.removed.iter().any(|removed| removed == pin),
            Rotate | Restart | UsesAndRestart | OldEnds | NewEnds => false,
        }
    }

    fn check_sessions(
        &self,
        place: &Place,
        by: &Ticketed,
        old: &Ticketed,
        event: &Event,
        was_welcome: &[bool],
    ) -> Result<(), String> {
        let on_disk = place.enrolled()?;
        let mut let_in = 0;
        for (key, was_welcome) in self.keys.iter().zip(was_welcome) {
            let pin = key.pin().to_string();
            let text = on_disk.get(&pin);
            let alone = place.hello(key, b"")?.is_welcome()?;
            let_in += usize::from(alone);
            let short = &pin[..8];
            match self.kind {
                _ if self.must_go(event, &pin) => {
                    let is_left = text.is_some() && self.kind != Expire;
                    if alone || place.hello(key, &by.credential)?.is_welcome()? || is_left {
                        return Err(format!("F029: {short} stayed (session {alone}, on disk {})", text.is_some()));
                    }
                }
                // Their clients stay when it is not revoked; who was not welcome came too late.
                Rotate | Restart if alone != *was_welcome && (*was_welcome || self.kind == Rotate) => {
                    return Err(format!("{short}: welcomed {was_welcome}, enrolled {alone}"));
                }
                // Who had changed to it before that was removed with it, and may come back with the other one.
                NewEnds if text.is_some_and(|text| by.names(text)) => {
                    return Err(format!("F029: {short} lives by the ticket that was revoked"));
                }
                NewEnds if !place.hello(key, &old.credential)?.is_welcome()? => {
                    return Err(format!("{short} is not let in by the ticket that holds"));
                }
                OldEnds if text.is_some_and(|text| old.names(text)) => {
                    return Err(format!("F029: {short} lives by the ticket that was revoked"));
                }
                OldEnds if !place.hello(key, &by.credential)?.is_welcome()? => {
                    return Err(format!("{short} is not let in by the ticket that holds"));
                }
                _ => {}
            }
        }
        if self.kind == UsesAndRestart && let_in > USES {
            return Err(format!("{let_in} clients enrolled by a ticket with {USES} uses"));
        }
        Ok(())
    }
}

fn rest(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}

/// Files of clients, by pin.
type OnDisk = BTreeMap<String, String>;
