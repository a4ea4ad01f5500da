//! A holder that leaves what it is told unread, among others.

use super::*;
use crate::Memory;
use crate::job::Port;
use crate::limits::GRANT_STEP;
use crate::receiver::ReceiveSpec;
use model::{JobId, ObjectId, Pin, TransferOptions};
use std::sync::Mutex;
use wire::listing::Described;

/// A way to a peer that does not read: whoever waits for it waits for ever.
#[derive(Default)]
struct Unread(Mutex<Vec<Message>>);

impl Port for Unread {
    fn send(&self, message: Message) {
        panic!("waits for ever to say {message:?}");
    }

    fn send_now(&self, message: Message) {
        self.0.lock().unwrap().push(message);
    }
}

fn job(options: &TransferOptions, port: Arc<Unread>) -> Arc<ReceiveJob> {
    let (number, id, sender, options) = (1, JobId([3; 16]), Pin([7; 32]), options.clone());
    let spec = ReceiveSpec { number, id, sender, options, rename_to: None };
    ReceiveJob::new(spec, conformance::memory::Memory::default().sink(), port, Progress::new(), None).unwrap()
}

#[test]
fn the_book_of_several_holders_waits_for_none_that_does_not_read_what_it_is_told() {
    let options = TransferOptions::default();
    let gather = Gather::new(&options, vec![Vec::new(); 2]);
    let (lead, holder) = (job(&options, Arc::default()), Arc::new(Unread::default()));
    lead.take_place(&gather, LEAD);
    let beside = job(&options, holder.clone());
    beside.take_place(&gather, 1);
    let place = beside.place.get().unwrap();
    // So much of no use that it is granted more.
    let useless = |id| Described::BadName {
        id: ObjectId(id),
        parent: ObjectId::ROOT,
        name: b"..".to_vec(),
        why: "it is no name".to_owned(),
    };
    let charge = Arc::new(Memory::default().hold(1, "a description").unwrap());
    place.offered(&mut place.keys(), (1..=GRANT_STEP).map(useless).collect(), &charge);
    let said = holder.0.lock().unwrap();
    assert!(said.iter().any(|message| matches!(message, Message::Settled(_))), "{said:?}");
    assert!(said.iter().any(|message| matches!(message, Message::Credit(_))), "{said:?}");
}
