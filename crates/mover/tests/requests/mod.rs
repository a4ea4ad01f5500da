//! Requests about jobs that are handed in.

use crate::endpoint::{OpenHost, client, serve};
use model::{JobId, Pin, TransferOptions};
use mover::session::{Grant, Host, HostFacts, Opened, Server};
use mover::{Ending, Memory, Progress};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;
use wire::handshake::Direction;
use wire::limits::ASKS_MAX;
use wire::message::{Open, Order, OrderAsk, OrderNews};
use wire::{Message, Refusal};

/// A job of which there is no end of news.
const ENDLESS: [u8; 16] = [9; 16];

/// Takes a while to write an order down, and answers a question by how many it has.
struct SlowHost {
    rest: OpenHost,
    came: AtomicU32,
    taken: AtomicU32,
}

impl Host for SlowHost {
    fn facts(&self) -> HostFacts {
        self.rest.facts()
    }

    fn authorise(&self, pin: Pin, credential: &[u8]) -> Result<Grant, Refusal> {
        self.rest.authorise(pin, credential)
    }

    fn open(
        &self,
        grant: &Grant,
        job: JobId,
        direction: Direction,
        open: &Open,
        options: &TransferOptions,
    ) -> Result<Opened, Refusal> {
        self.rest.open(grant, job, direction, open, options)
    }

    fn request(&self, _: &Grant, message: Message) -> Result<(Vec<Message>, u32), Refusal> {
        if let Message::OrderAsk(ask) = &message
            && ask.job_id == ENDLESS
        {
            let news = || OrderNews { number: ask.number, ..OrderNews::default() }.into();
            return Ok((std::iter::repeat_with(news).take(20_000).collect(), 0));
        }
        if let Message::Order(_) = message {
            self.came.fetch_add(1, SeqCst);
            std::thread::sleep(Duration::from_millis(500));
            self.taken.fetch_add(1, SeqCst);
        }
        Ok((Vec::new(), self.taken.load(SeqCst)))
    }

    fn ended(&self, _: &Grant, _: JobId, _: Direction, _: &Progress, _: &Ending) {}
}

/// A hub that was killed while it handed orders in, and the one after it: orders that it does not hear of it gives once more.
#[test]
fn who_asks_for_all_hears_of_what_was_handed_in_before_over_another_session() {
    let rest = OpenHost { root: "/nonexistent".into() };
    let host = Arc::new(SlowHost { rest, came: AtomicU32::new(0), taken: AtomicU32::new(0) });
    let endpoint = serve(Server::new(host.clone(), Memory::default()));
    let (before, after) = (client(&endpoint, Some(0)), client(&endpoint, Some(0)));
    after.welcome().unwrap_or_else(|e| panic!("{e:?}"));
    let handing_in = std::thread::spawn(move || {
        let order = |number| Order { number, job_id: vec![7; 16], ..Order::default() }.into();
        before.request(order, &|| false).map(drop).map_err(|e| format!("{e:?}"))
    });
    while host.came.load(SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let ask = |number| OrderAsk { number, ..OrderAsk::default() }.into();
    let (_, told) = after.request(ask, &|| false).map_err(|e| format!("{e:?}")).unwrap();
    assert_eq!(told.attempt, 1);
    handing_in.join().unwrap().unwrap();
}

/// What asks may be a hub that others rely on.
#[test]
fn an_answer_without_an_end_is_not_listened_to() {
    let rest = OpenHost { root: "/nonexistent".into() };
    let host = Arc::new(SlowHost { rest, came: AtomicU32::new(0), taken: AtomicU32::new(0) });
    let endpoint = serve(Server::new(host, Memory::default()));
    let client = client(&endpoint, Some(0));
    let ask = |number| OrderAsk { number, job_id: ENDLESS.to_vec(), ..OrderAsk::default() }.into();
    let error = client.request(ask, &|| false).map(drop).map_err(|e| format!("{e:?}")).unwrap_err();
    assert!(error.contains("its answer has no end"), "{error}");
}

/// A hub has many threads that ask over one session, and what is refused to one of them counts against a job.
#[test]
fn more_requests_than_a_session_may_have_are_answered_in_turn() {
    let rest = OpenHost { root: "/nonexistent".into() };
    let host = Arc::new(SlowHost { rest, came: AtomicU32::new(0), taken: AtomicU32::new(0) });
    let endpoint = serve(Server::new(host, Memory::default()));
    let client = client(&endpoint, Some(0));
    let hand_in = || {
        let order = |number| Order { number, job_id: vec![7; 16], ..Order::default() }.into();
        client.request(order, &|| false).map(drop).map_err(|e| format!("{e:?}"))
    };
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..2 * ASKS_MAX).map(|_| scope.spawn(hand_in)).collect();
        asking.into_iter().for_each(|one| one.join().unwrap().unwrap());
    });
}
