//! Questions about files, asked of an endpoint, and requests about jobs: what is asked, and how the answer is taken.

use super::answers::Part;
use super::client::{Client, Interrupt};
use super::error::ConnectError;
use super::replies::{ANSWERS_MAX, WAIT};
use crate::job::Ending;
use model::files::{Question, Record, Tally};
use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use wire::files::ask_of;
use wire::handshake::feature;
use wire::limits::BATCHES_AHEAD;
use wire::message::{self, OrderTaken, Proceed, Stop};
use wire::{CloseCode, Message, Refusal};

/// The endpoint hears how far the answer was read this often.
const PROCEED_STEP: u64 = BATCHES_AHEAD / 4;
/// How long an answer that was stopped may take to say what was done.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Why a question was not answered.
#[derive(Debug)]
pub enum AskError {
    Connect(ConnectError),
    Refused(Refusal),
    Lost(String),
    /// The user stopped it, when so much was found or done.
    Interrupted(Tally),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskError::Connect(e) => write!(f, "{e}"),
            AskError::Refused(refusal) => write!(f, "{refusal}"),
            AskError::Lost(why) => write!(f, "the connection was lost: {why}"),
            AskError::Interrupted(_) => f.write_str("stopped"),
        }
    }
}

impl std::error::Error for AskError {}

impl Client {
    /// Asks the endpoint and hands over what it answers, on the calling thread; `each` returns false when it has enough.
    /// Several threads may ask at once.
    pub fn ask(
        &self,
        question: &Question,
        interrupt: Interrupt<'_>,
        each: &mut dyn FnMut(Record) -> bool,
    ) -> Result<Tally, AskError> {
        if !self.knows(feature::FILES).map_err(AskError::Connect)? {
            let text = "the program there is too old for this command";
            return Err(AskError::Refused(Refusal::new(CloseCode::Version, text)));
        }
        let (number, parts) = self.shared.answers.begin(question);
        let asked = self.shared.session.control.send(message::encode(ask_of(number, question)));
        let answered = match asked {
            Ok(()) => self.take(number, &parts, interrupt, each),
            Err(_) => Err(AskError::Lost(self.why_ended())),
        };
        self.shared.answers.forget(number);
        answered
    }

    fn take(
        &self,
        number: u32,
        parts: &Receiver<Part>,
        interrupt: Interrupt<'_>,
        each: &mut dyn FnMut(Record) -> bool,
    ) -> Result<Tally, AskError> {
        let control = &self.shared.session.control;
        let stop = || _ = control.send(message::encode(Stop { number }));
        let mut taken = 0;
        let (mut enough, mut given_up): (Option<Instant>, Option<Instant>) = (None, None);
        loop {
            if given_up.is_none() && interrupt() {
                stop();
                given_up = Some(Instant::now());
            }
            if let Some(since) = enough {
                self.check_wait(since)?;
            }
            if given_up.is_some_and(|since| since.elapsed() >= STOP_PATIENCE) {
                return Err(AskError::Interrupted(Tally::default()));
            }
            let part = match parts.recv_timeout(WAIT) {
                Ok(part) => part,
                Err(RecvTimeoutError::Timeout) if !self.has_ended() => continue,
                Err(_) => return Err(AskError::Lost(self.why_ended())),
            };
            match part {
                Part::End(Ok(tally)) if given_up.is_some() => return Err(AskError::Interrupted(tally)),
                Part::End(ended) => return ended.map_err(AskError::Refused),
                Part::Records(records) => {
                    let is_wanted = enough.is_none() && given_up.is_none();
                    if is_wanted && !records.into_iter().all(&mut *each) {
                        enough = Some(Instant::now());
                        // The end is waited for: what the endpoint did until then is part of the result.
                        stop();
                    }
                    taken += 1;
                    if taken % PROCEED_STEP == 0 {
                        let _ = control.send(message::encode(Proceed { number, batches: taken + BATCHES_AHEAD }));
                    }
                }
            }
        }
    }

    /// Whether the endpoint, which answers otherwise, may still take its time with what it owes since then.
    fn check_wait(&self, since: Instant) -> Result<(), AskError> {
        let patience = self.shared.session.no_progress_timeout();
        if since.elapsed() < patience {
            return Ok(());
        }
        let seconds = patience.as_secs();
        let text = format!("its answer did not come to an end for {seconds} s: hanging storage, or a stuck program");
        Err(AskError::Refused(Refusal::new(CloseCode::NoProgress, &text)))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.shared.state.lock().unwrap().ended.is_some()
    }

    pub(super) fn why_ended(&self) -> String {
        let state = self.shared.state.lock().unwrap();
        match (&state.refused, &state.ended) {
            (Some(refusal), _) => refusal.to_string(),
            (None, Some(Ending::Lost(why))) => why.clone(),
            (None, Some(ending)) => ending.to_string(),
            (None, None) => "it closed".into(),
        }
    }
}

impl Client {
    /// Whether the session goes on, as far as it is known here.
    pub fn is_open(&self) -> bool {
        !self.has_ended()
    }

    /// Makes a request of `messages` 90, 94, 95 or 97, given its number, and returns what answers it. Several threads may ask at
    /// once; those for whom the session has no room wait.
    pub fn request(
        &self,
        make: impl FnOnce(u32) -> Message,
        interrupt: Interrupt<'_>,
    ) -> Result<(Vec<Message>, OrderTaken), AskError> {
        if !self.knows(feature::ORDERS).map_err(AskError::Connect)? {
            let text = "the program there is too old to carry out jobs of its clients";
            return Err(AskError::Refused(Refusal::new(CloseCode::Version, text)));
        }
        let replies = &self.shared.replies;
        let Some((number, received)) = replies.begin(&|| interrupt() || self.has_ended()) else {
            return Err(match self.has_ended() {
                true => AskError::Lost(self.why_ended()),
                false => AskError::Interrupted(Tally::default()),
            });
        };
        let frame = message::encode(make(number));
        let answered = match message::fits(&frame).map(|()| self.shared.session.control.send(frame)) {
            Ok(Ok(())) => self.take_answers(&received, interrupt),
            Ok(Err(_)) => Err(AskError::Lost(self.why_ended())),
            Err(refusal) => Err(AskError::Refused(refusal)),
        };
        replies.forget(number);
        answered
    }

    fn take_answers(
        &self,
        received: &Receiver<Message>,
        interrupt: Interrupt<'_>,
    ) -> Result<(Vec<Message>, OrderTaken), AskError> {
        let (mut answers, mut heard) = (Vec::new(), Instant::now());
        loop {
            if interrupt() {
                return Err(AskError::Interrupted(Tally::default()));
            }
            self.check_wait(heard)?;
            match received.recv_timeout(WAIT) {
                Ok(Message::OrderTaken(taken)) if taken.code == 0 => return Ok((answers, taken)),
                Ok(Message::OrderTaken(taken)) => {
                    return Err(AskError::Refused(Refusal::new(CloseCode::from_number(taken.code), &taken.text)));
                }
                Ok(_) if answers.len() >= ANSWERS_MAX => {
                    let refusal = Refusal::new(CloseCode::Limit, "its answer has no end");
                    self.shared.session.close(refusal.code, &refusal.text);
                    return Err(AskError::Refused(refusal));
                }
                Ok(message) => {
                    answers.push(message);
                    heard = Instant::now();
                }
                Err(RecvTimeoutError::Timeout) if !self.has_ended() => {}
                Err(_) => return Err(AskError::Lost(self.why_ended())),
            }
        }
    }
}
