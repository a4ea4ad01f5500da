//! Requests about jobs that an endpoint carries out in its clients' names: they go to the host on threads of their own.
//!
//! Invariant: a request has a place among the questions of its client (`room`), and a session has at most `ASKS_MAX` of each.
//!
//! Not here: the jobs (`daemon`), which outlive every session.

use super::Session;
use super::host::Grant;
use super::replies::number_of;
use super::server::Server;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wire::handshake::feature;
use wire::limits::ASKS_MAX;
use wire::message::{self, OrderTaken};
use wire::{CloseCode, Message, Refusal};

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
            return refuse(Refusal::new(CloseCode::Limit, "too many requests at once"));
        }
        let (server, of_thread, grant) = (self.clone(), session.clone(), grant.clone());
        let run = move || {
            let answers = server.host.request(&grant, message);
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
