//! The control stream of a session: the loop that reads it, the hand that each message goes to, and the way a job's messages take.
//!
//! Invariant: the loop's thread waits for nothing but its socket.
//!
//! Not here: what the client and the endpoint answer (`client`, `server`).

use super::losses;
use super::running::Job;
use super::{Session, liveness, say_last};
use crate::job::Port;
use crate::limits::{CONTROL_TIMEOUT, PING_INTERVAL, TIMES_INTERVAL};
use net::{ControlEnd, ControlEvent, ControlOptions, ControlSender, ControlStream, SendError};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::message::{self, Ping, Pong};
use wire::{CloseCode, FrameReader, FrameType, Message, Refusal};

/// What may wait on a control stream before those who can wait do: far from what a peer may leave unread.
const QUEUED_BYTES: usize = 1 << 20;

pub(crate) fn control_options() -> ControlOptions {
    ControlOptions { idle_timeout: CONTROL_TIMEOUT, tick: TIMES_INTERVAL, ..ControlOptions::default() }
}

/// Sends a job's messages over the control stream.
pub(crate) struct ControlPort(pub ControlSender);

impl Port for ControlPort {
    fn send(&self, message: Message) {
        if matches!(message, Message::Cancel(_)) {
            return say_last(&self.0, message);
        }
        // Full is said to the loop's thread only; a closed stream ends the jobs anyway.
        if let Err(SendError::Full) = self.0.send(message::encode(message)) {
            self.0.abort();
        }
    }

    fn send_now(&self, message: Message) {
        say_last(&self.0, message);
    }

    fn make_room(&self) {
        while self.0.queued_bytes() > QUEUED_BYTES {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

/// What a control loop leaves behind.
pub(crate) enum ControlOutcome {
    /// The peer said why it closes.
    Closed(Refusal),
    /// This side refused what the peer said.
    Refused(Refusal),
    Lost(String),
}

/// Runs the control stream on the calling thread. Messages that are not of a job go to `other`.
pub(crate) fn run_control(
    session: &Arc<Session>,
    stream: ControlStream,
    mut reader: FrameReader,
    other: &mut dyn FnMut(Message) -> Result<(), Refusal>,
) -> ControlOutcome {
    let mut outcome = None;
    let mut last_ping = Instant::now();
    let mut last_look = Instant::now();
    let end = stream.run(|event| match event {
        ControlEvent::Tick => {
            tick(session, &mut last_ping);
            ControlFlow::Continue(())
        }
        // Nothing of it counts any more. It is received so that the peer comes to read why.
        ControlEvent::Received(_) if outcome.is_some() => ControlFlow::Continue(()),
        ControlEvent::Received(bytes) => {
            let mut closed = None;
            let taken = reader.push(bytes, &mut |frame_type, body| {
                if frame_type != FrameType::Message {
                    return Err(Refusal::new(CloseCode::WrongState, "a frame that a control stream does not carry"));
                }
                match message::decode(body)? {
                    Some(Message::Close(close)) => {
                        closed = Some(Refusal::new(CloseCode::from_number(close.code), &close.text));
                        Ok(())
                    }
                    Some(message) => dispatch(session, message, body, other),
                    None => Ok(()),
                }
            });
            // What a receiver tells comes many times a second while a job runs.
            if last_look.elapsed() >= losses::INTERVAL {
                last_look = Instant::now();
                session.running().iter().for_each(|running| running.look_at_losses());
            }
            match (taken, closed) {
                (Err(refusal), _) => {
                    session.close(refusal.code, &refusal.text);
                    outcome.get_or_insert(ControlOutcome::Refused(refusal));
                    ControlFlow::Continue(())
                }
                (Ok(()), Some(refusal)) => {
                    outcome.get_or_insert(ControlOutcome::Closed(refusal));
                    session.control.close_after_flush();
                    ControlFlow::Continue(())
                }
                (Ok(()), None) => ControlFlow::Continue(()),
            }
        }
    });
    outcome.unwrap_or_else(|| ControlOutcome::Lost(why_lost(end)))
}

fn why_lost(end: ControlEnd) -> String {
    match end {
        ControlEnd::PeerClosed | ControlEnd::Closed => "closed".into(),
        ControlEnd::Stopped | ControlEnd::Aborted => "ended on this side".into(),
        ControlEnd::Truncated => "the other side went away".into(),
        ControlEnd::TimedOut => format!("nothing was heard for {} s", CONTROL_TIMEOUT.as_secs()),
        ControlEnd::Unread => "the other side did not read what it was sent".into(),
        ControlEnd::Io(e) => e.to_string(),
    }
}

fn tick(session: &Arc<Session>, last_ping: &mut Instant) {
    if last_ping.elapsed() >= PING_INTERVAL {
        *last_ping = Instant::now();
        let _ = session.control.send(message::encode(Ping { number: 0 }));
    }
    let heard_ms = session.heard_ms();
    for running in session.running() {
        if running.job.is_ended() {
            continue;
        }
        liveness::check(session, &running, heard_ms);
        match &running.job {
            Job::Send(job) => {
                *job.progress.stream_facts.lock().unwrap() = running.watch.facts();
                running.look_at_losses();
                job.tell_times();
            }
            Job::Receive(job) => job.tell_times(),
        }
    }
}

fn dispatch(
    session: &Arc<Session>,
    message: Message,
    body: &[u8],
    other: &mut dyn FnMut(Message) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let number = match &message {
        Message::Ping(ping) => {
            let _ = session.control.send(message::encode(Pong { number: ping.number }));
            return Ok(());
        }
        Message::Pong(_) => return Ok(()),
        Message::Hello(_) | Message::Welcome(_) | Message::Close(_) | Message::Open(_) => return other(message),
        Message::Accept(_) | Message::Reject(_) => return other(message),
        Message::Ask(_) | Message::Records(_) | Message::Answered(_) => return other(message),
        Message::Proceed(_) | Message::Stop(_) => return other(message),
        Message::AskAddresses(_) | Message::Addresses(_) => return other(message),
        Message::AskTerms(_) | Message::Terms(_) => return other(message),
        Message::AskHosts(_) | Message::Hosts(_) | Message::Attend(_) | Message::Standing(_) => return other(message),
        Message::Order(_) | Message::OrderTaken(_) | Message::OrderNews(_) | Message::OrderEvents(_) => {
            return other(message);
        }
        Message::OrderSteer(_) | Message::OrderAsk(_) | Message::OrderEnded(_) | Message::Revoke(_) => {
            return other(message);
        }
        Message::Entries(m) => m.job,
        Message::SourceFailures(m) => m.job,
        Message::ListEnd(m) => m.job,
        Message::Want(m) => m.job,
        Message::Settled(m) => m.job,
        Message::Held(m) => m.job,
        Message::Resend(m) => m.job,
        Message::Credit(m) => m.job,
        Message::Finish(m) => m.job,
        Message::Finished(m) => m.job,
        Message::Cancel(m) => m.job,
        Message::Times(m) => m.job,
        Message::AskDigests(m) => m.job,
        Message::Digests(m) => m.job,
        Message::Changes(m) => m.job,
        Message::Names(m) => m.job,
        Message::Warnings(m) => m.job,
        Message::Pace(m) => m.job,
        Message::Seal(m) => m.job,
    };
    if session.openings.keep(session.guest(), number, body) {
        return Ok(());
    }
    let running = session.jobs.lock().unwrap().get(&number).cloned();
    // What is said of a job that is over, or that was refused, crossed its end on the way.
    match running {
        Some(running) => running.job.handle(message),
        None => Ok(()),
    }
}
