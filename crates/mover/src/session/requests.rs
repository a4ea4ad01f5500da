//! Requests about jobs that an endpoint carries out in its clients' names: they go to the host on threads of their own.
//!
//! Invariants:
//! - Whoever asks for all of its jobs hears of those that it handed in before, over whatever session.
//! - A request has a place among the questions of its client (`room`), and a session has at most `ASKS_MAX` of each.
//!
//! Not here: the jobs (`daemon`), which outlive every session.

use super::Session;
use super::host::Grant;
use super::replies::number_of;
use super::server::Server;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use wire::handshake::feature;
use wire::limits::ASKS_MAX;
use wire::message::{self, OrderTaken};
use wire::{CloseCode, Message, Refusal};

/// For orders that came before a question to be written down; then the client is told to ask again.
const TAKING_MAX: Duration = Duration::from_secs(10);

impl Server {
    /// Has the host answer a request.
    pub(super) fn request(self: &Arc<Server>, session: &Arc<Session>, grant: &Grant, message: Message) {
        let Some(number) = number_of(&message) else { return };
        let refuse = |refusal: Refusal| _ = session.control.send(message::encode(refused(number, &refusal)));
        if session.features.load(Relaxed) & feature::ORDERS == 0 {
            return refuse(Refusal::new(
                CloseCode::Version,
                "the session lacks the feature for jobs that are handed in",
            ));
        }
        let seat = match session.guest().and_then(|guest| self.seat_ask(guest)) {
            Ok(seat) => seat,
            Err(refusal) => return refuse(refusal),
        };
        let open = Open(session.clone());
        if session.requests.fetch_add(1, Relaxed) >= ASKS_MAX {
            // Of a client that gave one up, it may still be answered here: that is no fault.
            return refuse(Refusal::new(CloseCode::Busy, "too many requests at once"));
        }
        let asks_for_all = matches!(&message, Message::OrderAsk(ask) if ask.job_id.is_empty());
        let earlier = asks_for_all.then(|| self.arrivals.now());
        let arrival = matches!(message, Message::Order(_)).then(|| self.arrivals.note(session.peer));
        let (server, of_thread, grant) = (self.clone(), session.clone(), grant.clone());
        let run = move || {
            let is_late = earlier.is_some_and(|before| !server.arrivals.wait(of_thread.peer, before, TAKING_MAX));
            let answers = match is_late {
                true => Err(Refusal::new(CloseCode::Busy, "jobs that were handed in are still being written down")),
                false => server.host.request(&grant, message),
            };
            drop(arrival);
            let (answers, end) = match answers {
                Ok((answers, attempt)) => (answers, OrderTaken { number, attempt, ..OrderTaken::default() }),
                Err(refusal) => (Vec::new(), refused(number, &refusal)),
            };
            for answer in answers {
                if of_thread.control.send(message::encode(answer)).is_err() {
                    return;
                }
            }
            // A client that has the end may ask again at once.
            drop((open, seat));
            let _ = of_thread.control.send(message::encode(end));
        };
        if std::thread::Builder::new().name("request".into()).spawn(run).is_err() {
            refuse(Refusal::new(CloseCode::Busy, "the endpoint has no free thread"));
        }
    }
}

/// A request that is being answered.
struct Open(Arc<Session>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Relaxed);
        self.0.note_rest();
    }
}

fn refused(number: u32, refusal: &Refusal) -> OrderTaken {
    OrderTaken { number, code: refusal.code as u32, text: refusal.text.clone(), attempt: 0 }
}
