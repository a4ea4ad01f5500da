//! What waits in the buffer of an endpoint without clients.

use super::*;
use crate::job::{Delivered, Observer};
use crate::job_options::options_to_wire;
use crate::session::{Host, HostFacts};
use model::{Failure, TransferOptions};
use std::sync::{Mutex, Weak};
use store::synthetic::{NULL_FILE_SYSTEM, NullSink};
use wire::message::{Finish, ListEnd};

/// What the data path of a job holds.
struct Watch;

impl Observer for Watch {
    fn delivered(&self, _: &[Delivered]) {}

    fn failed(&self, _: &Failure) {}
}

struct Site {
    spool: Arc<Spool>,
    watch: Mutex<Weak<Watch>>,
    /// Of each end that was told, whether the data path was there still.
    ended: Mutex<Vec<bool>>,
}

impl Host for Site {
    fn facts(&self) -> HostFacts {
        HostFacts { name: "site".into(), is_read_only: false }
    }

    fn authorise(&self, _: Pin, _: &[u8]) -> Result<Grant, Refusal> {
        Err(Refusal::new(CloseCode::Authentication, "nobody is let in"))
    }

    fn open(&self, _: &Grant, _: JobId, _: Direction, _: &Open, _: &TransferOptions) -> Result<Opened, Refusal> {
        let watch = Arc::new(Watch);
        *self.watch.lock().unwrap() = Arc::downgrade(&watch);
        let (observer, file_system) = (Some(watch as Arc<dyn Observer>), NULL_FILE_SYSTEM.to_owned());
        Ok(Opened::Receive { sink: Arc::new(NullSink), rename_to: None, observer, file_system, asked: None })
    }

    fn buffer(&self) -> Option<Arc<Spool>> {
        Some(self.spool.clone())
    }

    fn ended(&self, _: &Grant, _: JobId, _: Direction, _: &Progress, _: &Ending) {
        let is_there = self.watch.lock().unwrap().strong_count() > 0;
        self.ended.lock().unwrap().push(is_there);
    }
}

/// While it is there, its end could be taken for that of a newer attempt, which waits for it.
#[test]
fn the_end_of_what_is_carried_on_is_told_when_nothing_of_it_is_there_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Spool::open(&dir.path().join("spool"), 16 << 20).unwrap();
    let (pin, id) = (Pin([7; 32]), JobId([3; 16]));
    let hold = Hold::new(spool.clone(), owner_of(pin, id), Buffer::Always);
    let (paths, options) = (vec![b"in".to_vec()], Some(options_to_wire(&TransferOptions::default())));
    let open = Open { job: 1, job_id: id.0.to_vec(), direction: 1, paths, options, ..Open::default() };
    hold.begin(Opening { pin, account: "serve".into(), name: "lab".into(), warrant: None, open }.encode());
    let note = |message: Message| hold.note(hold.told(&message).unwrap(), None);
    note(ListEnd { job: 1, entries: 0, bytes: 0 }.into());
    note(Finish { job: 1, is_buffered: true }.into());
    hold.make_durable(hold.take_due(Duration::ZERO));
    drop(hold);
    assert_eq!(spool.found().len(), 1);
    let site = Arc::new(Site { spool, watch: Mutex::default(), ended: Mutex::default() });
    let server = Server::new(site.clone(), crate::Memory::default());
    server.start_draining().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while site.ended.lock().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "it is not carried on");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    assert_eq!(*site.ended.lock().unwrap(), [false]);
}
