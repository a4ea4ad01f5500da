//! The book of jobs without anything that runs.

use super::record::tests::record;
use super::*;
use crate::warrant::sign;
use model::order::{Kind, Role};
use model::warrant::Verbs;
use model::{TransferOptions, TransferSpec, Warrant};
use mover::session::Grant;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use store::open::{OpenSink, OpenSource};
use wire::Message;
use wire::message::{Order, OrderAsk};

/// Of a client that was struck off.
const GONE: Pin = Pin([77; 32]);
const PANICS_ONCE: Pin = Pin([78; 32]);
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);
/// Of a client that was struck off too, which is told only once the sender of the answer is gone.
const ASKED_FOR_LONG: Pin = Pin([79; 32]);
static LONG_ANSWER: Mutex<Option<(Sender<()>, Receiver<()>)>> = Mutex::new(None);

/// Allows everything, and has nothing.
pub(super) struct Anything;

impl Ground for Anything {
    fn pin(&self) -> Pin {
        Pin([9; 32])
    }

    fn roster(&self) -> Arc<mover::session::Roster> {
        Arc::default()
    }

    fn class(&self, _: Pin, asked: Option<model::Class>) -> model::Class {
        asked.unwrap_or_default()
    }

    fn answer(
        &self,
        _: Pin,
        _: &model::files::Question,
        _: store::Stopped<'_>,
        _: &mut dyn FnMut(model::files::Record) -> bool,
    ) -> Refused<model::files::Tally> {
        Err(no_such_job())
    }

    fn may_order(&self, _: Pin, _: model::order::Kind, _: model::order::Role, _: &TransferSpec) -> Refused<()> {
        Ok(())
    }

    fn may_open(&self, _: Pin, _: model::order::Role, _: &TransferSpec) -> Refused<()> {
        Ok(())
    }

    fn open_source(&self, _: Pin, _: &[Vec<u8>], _: &TransferOptions) -> Refused<OpenSource> {
        Err(no_such_job())
    }

    fn open_sink(&self, _: Pin, _: JobId, _: &[u8], _: bool, _: &TransferOptions) -> Refused<OpenSink> {
        Err(no_such_job())
    }

    fn knows(&self, owner: Pin) -> bool {
        assert!(owner != PANICS_ONCE || HAS_PANICKED.swap(true, Relaxed), "injected: looking up a client panics");
        if owner == ASKED_FOR_LONG {
            let (asks, answer) = LONG_ANSWER.lock().unwrap().take().expect("each client is asked for once");
            asks.send(()).unwrap();
            let _ = answer.recv();
        }
        ![GONE, ASKED_FOR_LONG].contains(&owner)
    }

    fn log(&self, _: Pin, _: &str, _: bool, _: &serde_json::Map<String, serde_json::Value>) -> bool {
        false
    }
}

pub(super) fn book(dir: &tempfile::TempDir) -> Arc<Orders> {
    let identity = Identity::generate().unwrap();
    Orders::open(dir.path(), Weak::<Anything>::new(), identity, Memory::new(1 << 20)).unwrap()
}

/// What lets this endpoint in at the other one.
fn warrant(job: JobId, id: u8) -> Warrant {
    let (holder, audience, verbs) = (Anything.pin(), Pin([2; 32]), Verbs { write: true, ..Verbs::default() });
    let (not_before, expires, paths) = (now(), now() + 600, vec![b"y".to_vec()]);
    Warrant { holder, audience, job, verbs, not_before, expires, id: [id; 16], paths }
}

impl Orders {
    /// Under a warrant that nobody took back.
    pub(super) fn take(&self, record: Record) -> Refused<u32> {
        self.take_in(record, &Mandate { warrant: warrant(JobId([0; 16]), 0), issuer: Pin([3; 32]) })
    }
}

fn of(owner: u8, job: u16, account: &str) -> Record {
    let mut id = [0; 16];
    id[..2].copy_from_slice(&job.to_le_bytes());
    let (owner, job) = (Pin([owner; 32]).to_string(), JobId(id).to_string());
    Record { owner, job, account: account.into(), ..record() }
}

fn told(orders: &Orders, owner: u8, job: Option<&Record>) -> Refused<Vec<Message>> {
    let job_id = job.map_or(Vec::new(), |job| job.key().unwrap().1.0.to_vec());
    let ask = OrderAsk { job_id, ..OrderAsk::default() };
    let grant = Grant { pin: Pin([owner; 32]), name: "n".into(), account: "a".into(), may_write: true, warrant: None };
    orders.answer(&Anything, &grant, ask.into()).map(|(messages, _)| messages)
}

fn state(orders: &Orders, record: &Record) -> Status {
    orders.lock().jobs[&record.key().unwrap()].record.status()
}

/// Its session broke while it was on its way, and its client may have given another attempt since.
#[test]
fn an_order_that_arrives_after_its_client_took_it_back_is_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let (orders, client) = (book(&dir), Identity::generate().unwrap());
    let grant = Grant { pin: client.pin(), name: "n".into(), account: "a".into(), may_write: true, warrant: None };
    let hand_in = |number: u8| {
        let order = Order {
            number: 1,
            job_id: vec![number; 16],
            role: Role::Sends as u32,
            peer_pin: vec![2; 32],
            peer_name: "b".into(),
            addresses: vec![b"[::1]:1".to_vec()],
            warrant: sign(&client, warrant(JobId([number; 16]), number)),
            transfer: record().transfer,
            kind: Kind::Copy as u32,
            own_name: "a".into(),
        };
        orders.answer(&Anything, &grant, order.into()).map(|(_, attempt)| attempt)
    };
    TakenBack::new(dir.path()).add("a", client.pin(), [1; 16]).unwrap();
    assert_eq!(hand_in(1).unwrap_err().code, CloseCode::Authentication);
    assert!(orders.lock().jobs.is_empty(), "it would be carried out beside the attempt that followed it");
    assert_eq!(hand_in(2), Ok(1));
}

#[test]
fn the_job_of_another_key_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let orders = book(&dir);
    let (own, foreign) = (of(1, 1, "a"), of(2, 2, "a"));
    orders.take(own.clone()).unwrap();
    orders.take(foreign.clone()).unwrap();
    assert_eq!(told(&orders, 1, None).unwrap().len(), 1);
    assert_eq!(told(&orders, 1, Some(&own)).unwrap().len(), 1);
    let absent = told(&orders, 1, Some(&of(1, 7, "a"))).unwrap_err();
    assert_eq!(told(&orders, 1, Some(&foreign)).unwrap_err(), absent);
    // Nor is it taken for its own when it gives the same id.
    let same = Record { owner: own.owner.clone(), ..foreign.clone() };
    assert_eq!(orders.take(same.clone()), Ok(1));
    assert_eq!(told(&orders, 2, None).unwrap().len(), 1);
    for steer in Steer::ALL {
        let key = (Pin([3; 32]), foreign.key().unwrap().1);
        assert_eq!(orders.steer(key, *steer, None), Err(no_such_job()), "{steer}");
    }
}

#[test]
fn one_account_cannot_fill_the_book_and_what_ended_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let orders = book(&dir);
    for job in 0..OF_ACCOUNT_MAX as u16 {
        let record = of(1, job, "greedy");
        orders.lock().jobs.insert(record.key().unwrap(), Job::new(record));
    }
    let next = of(4, 5000, "greedy");
    let refusal = orders.take(next.clone()).unwrap_err();
    assert_eq!((refusal.code, refusal.text.contains("ticket greedy")), (CloseCode::Busy, true));
    orders.take(of(2, 1, "modest")).unwrap();
    let ended = of(1, 3, "greedy");
    orders.steer(ended.key().unwrap(), Steer::Cancel, None).unwrap();
    orders.take(next).unwrap();
    assert!(!orders.lock().jobs.contains_key(&ended.key().unwrap()));
    // By bytes as well.
    let transfer = "x".repeat(BYTES_OF_ACCOUNT_MAX / 2 + 1);
    orders.take(Record { transfer: transfer.clone(), ..of(3, 1, "long") }).unwrap();
    assert_eq!(orders.take(Record { transfer, ..of(3, 2, "long") }).unwrap_err().code, CloseCode::Busy);
}

/// A hub that does not find the end of its order has the job done again.
#[test]
fn an_end_makes_room_some_time_after_it_was_told_or_when_it_is_a_day_old() {
    let (day, hour) = (86_400, 3600);
    for (name, age, code, told_ago, has_room) in [
        ("nobody asked", hour, 0, None, false),
        ("it is old", day, 0, None, true),
        ("its client may not have heard it", hour, 0, Some(Duration::ZERO), false),
        ("it was told", hour, 0, Some(UNHEARD), true),
        ("what failed was not told", hour, 23, Some(UNHEARD), false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let orders = book(&dir);
        for job in 0..OF_ACCOUNT_MAX as u16 {
            let mut record = of(1, job, "a");
            if job == 0 {
                record.ended = Some(Ended { at: now() - age, code, ..Ended::default() });
                record.set(if code == 0 { Status::Succeeded } else { Status::Partial }, Reason::None, "");
            }
            orders.lock().jobs.insert(record.key().unwrap(), Job::new(record));
        }
        if let Some(ago) = told_ago {
            told(&orders, 1, None).unwrap();
            for job in orders.lock().jobs.values_mut() {
                job.live.told = job.live.told.and_then(|at| at.checked_sub(ago));
            }
            // However often it asks, what counts is when it could hear it first.
            told(&orders, 1, None).unwrap();
        }
        assert_eq!(orders.take(of(2, 1, "a")).is_ok(), has_room, "{name}");
    }
}

/// Each that leaves waits for storage, and everybody who steers a job for that.
#[test]
fn few_ends_leave_for_one_order_and_none_for_one_that_has_no_room_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let orders = book(&dir);
    let ends = 2 * LEAVING_MAX + 1;
    for job in 0..ends as u16 {
        let mut record = of(1, job, "a");
        cancelled(&mut record);
        orders.lock().jobs.insert(record.key().unwrap(), Job::new(record));
    }
    let used: usize = orders.lock().jobs.values().map(|job| job.record.weight()).sum();
    let of_weight = |owner: u8, weight: usize| {
        let record = of(owner, 5000, "a");
        Record { transfer: "x".repeat(weight - record.warrant.len()), ..record }
    };
    let open = of_weight(1, BYTES_OF_ACCOUNT_MAX - used);
    orders.lock().jobs.insert(open.key().unwrap(), Job::new(open));
    let hand_in = |weight: usize| {
        let taken = orders.take(of_weight(2, weight)).map_err(|refusal| refusal.code);
        (taken, orders.lock().jobs.len())
    };
    assert_eq!(hand_in(used + 1), (Err(CloseCode::Busy), 1 + ends));
    assert_eq!(hand_in(used), (Err(CloseCode::Busy), 1 + ends - LEAVING_MAX));
    assert_eq!(hand_in(used), (Err(CloseCode::Busy), 1 + ends - 2 * LEAVING_MAX));
    assert_eq!(hand_in(used), (Ok(1), 2));
}

/// Whoever hands in many jobs and never asks for one is not refused: it loses its own oldest ends, and nobody else's.
#[test]
fn ends_that_a_client_did_not_ask_for_make_room_for_its_own_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let orders = book(&dir);
    for job in 0..OF_ACCOUNT_MAX as u16 {
        let mut record = of(if job == 0 { 2 } else { 1 }, job, "a");
        if job < 3 {
            record.ended = Some(Ended { at: now() - 3600 * (10 - u64::from(job)), ..Ended::default() });
            record.set(Status::Succeeded, Reason::None, "");
        }
        orders.lock().jobs.insert(record.key().unwrap(), Job::new(record));
    }
    orders.take(of(1, 5000, "a")).unwrap();
    let is_there = |owner: u8, job: u16| orders.lock().jobs.contains_key(&of(owner, job, "a").key().unwrap());
    assert_eq!((is_there(2, 0), is_there(1, 1), is_there(1, 2)), (true, false, true));
    assert_eq!(orders.take(of(3, 1, "a")).unwrap_err().code, CloseCode::Busy);
}

/// The end of a short job is no way around the account.
#[test]
fn a_longer_job_in_the_place_of_an_ended_one_needs_room_as_any() {
    let dir = tempfile::tempdir().unwrap();
    let orders = book(&dir);
    let long = "x".repeat(BYTES_OF_ACCOUNT_MAX / 2 - 1000);
    for job in 1..=3 {
        orders.take(of(1, job, "a")).unwrap();
        orders.steer(of(1, job, "a").key().unwrap(), Steer::Cancel, None).unwrap();
    }
    for job in 1..=2 {
        assert_eq!(orders.take(Record { transfer: long.clone(), ..of(1, job, "a") }), Ok(2));
    }
    let refusal = orders.take(Record { transfer: long.clone(), ..of(1, 3, "a") }).unwrap_err();
    assert_eq!(refusal.code, CloseCode::Busy);
}

/// Nor are many tickets, and what ended at any of them makes room for others.
#[test]
fn all_accounts_together_have_a_bound_and_only_open_jobs_hold_it() {
    let dir = tempfile::tempdir().unwrap();
    let orders = book(&dir);
    let long = || "x".repeat(BYTES_OF_ACCOUNT_MAX - 10_000);
    let tickets = (BYTES_MAX / BYTES_OF_ACCOUNT_MAX) as u16;
    for job in 0..tickets {
        let record = Record { transfer: long(), ..of(1, job, &format!("t{job}")) };
        orders.lock().jobs.insert(record.key().unwrap(), Job::new(record));
    }
    let next = Record { transfer: long(), ..of(2, 1, "next") };
    let refusal = orders.take(next.clone()).unwrap_err();
    assert!(refusal.code == CloseCode::Busy && refusal.text.contains("all clients together"), "{refusal}");
    orders.steer(of(1, 0, "t0").key().unwrap(), Steer::Cancel, None).unwrap();
    orders.take(next).unwrap();
    assert_eq!(orders.lock().jobs.len(), usize::from(tickets));
}

/// Jobs that never end, of whoever came first, do not keep those of others from beginning.
#[test]
fn one_account_leaves_places_for_the_jobs_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let orders = book(&dir);
    let mut state = orders.lock();
    for (account, jobs) in [("a", 30), ("b", 30), ("c", 30), ("d", 30), ("e", 1)] {
        for job in 0..jobs {
            let record = Record { created: 7, ..of(account.as_bytes()[0], job, account) };
            state.jobs.insert(record.key().unwrap(), Job::new(record));
        }
    }
    let mut begun: Vec<String> = Vec::new();
    while let Some(key) = state.next() {
        state.threads += 1;
        let job = state.jobs.get_mut(&key).unwrap();
        job.live.is_running = true;
        begun.push(job.record.account.clone());
    }
    let begun_of = |account: &str| begun.iter().filter(|of| *of == account).count();
    assert_eq!((begun_of("e"), ["a", "b", "c", "d"].map(begun_of).into_iter().max()), (1, Some(7)), "{begun:?}");
    let late = of(b'z', 1, "late");
    state.jobs.insert(late.key().unwrap(), Job::new(late));
    assert!(state.next().is_some(), "a ticket that came later waits for others: {begun:?}");
}

#[test]
fn a_job_of_a_client_that_is_gone_does_not_wait_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let host: Arc<dyn Ground> = Arc::new(Anything);
    let identity = Identity::generate().unwrap();
    let orders = Orders::open(dir.path(), Arc::downgrade(&host), identity, Memory::new(1 << 20)).unwrap();
    let (gone, there) = (of(77, 1, "a"), of(1, 1, "a"));
    for record in [&gone, &there] {
        orders.take(record.clone()).unwrap();
        orders.steer(record.key().unwrap(), Steer::Pause, None).unwrap();
    }
    orders.end_abandoned(Duration::from_secs(60));
    assert_eq!(state(&orders, &gone), Status::Paused);
    orders.end_abandoned(Duration::ZERO);
    assert_eq!((state(&orders, &gone), state(&orders, &there)), (Status::Failed, Status::Paused));
}

/// Who is asked may be another host, which does not answer.
#[test]
fn a_job_is_steered_while_somebody_is_asked_for_the_client_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let host: Arc<dyn Ground> = Arc::new(Anything);
    let identity = Identity::generate().unwrap();
    let orders = Orders::open(dir.path(), Arc::downgrade(&host), identity, Memory::new(1 << 20)).unwrap();
    let (running, left, resumed) = (of(1, 1, "a"), of(ASKED_FOR_LONG.0[0], 2, "a"), of(ASKED_FOR_LONG.0[0], 3, "a"));
    for record in [&running, &left, &resumed] {
        orders.take(record.clone()).unwrap();
    }
    orders.lock().jobs.get_mut(&running.key().unwrap()).unwrap().live.is_running = true;
    for record in [&left, &resumed] {
        orders.steer(record.key().unwrap(), Steer::Pause, None).unwrap();
    }
    std::thread::scope(|scope| {
        let ((asks, asked), (answers, answer)) = (channel(), channel());
        *LONG_ANSWER.lock().unwrap() = Some((asks, answer));
        scope.spawn(|| orders.end_abandoned(Duration::ZERO));
        asked.recv().unwrap();
        assert!(orders.state.try_lock().is_ok(), "whoever steers a job waits for the answer");
        orders.steer(running.key().unwrap(), Steer::Cancel, None).unwrap();
        orders.steer(resumed.key().unwrap(), Steer::Resume, None).unwrap();
        drop(answers);
    });
    let states = [&running, &left, &resumed].map(|record| state(&orders, record));
    assert_eq!(states, [Status::Stopping, Status::Failed, Status::Queued]);
}

/// A scheduler that is gone would keep every job from beginning, and nobody would see why.
#[test]
fn a_scheduler_that_panics_is_begun_again() {
    let dir = tempfile::tempdir().unwrap();
    let paused = of(PANICS_ONCE.0[0], 1, "a");
    let path = {
        let orders = book(&dir);
        orders.take(paused.clone()).unwrap();
        orders.steer(paused.key().unwrap(), Steer::Pause, None).unwrap();
        dir.path().join("orders").join(format!("{}.{}.json", paused.owner, paused.job))
    };
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(40 * 86_400);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
    let host: Arc<dyn Ground> = Arc::new(Anything);
    let identity = Identity::generate().unwrap();
    let orders = Orders::open(dir.path(), Arc::downgrade(&host), identity, Memory::new(1 << 20)).unwrap();
    let queued = of(1, 2, "a");
    orders.take(queued.clone()).unwrap();
    orders.start().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while state(&orders, &queued) == Status::Queued {
        assert!(Instant::now() < deadline, "no job begins any more");
        std::thread::park_timeout(Duration::from_millis(10));
    }
    assert!(HAS_PANICKED.load(Relaxed));
    assert!(orders.stop(Instant::now() + Duration::from_secs(30)));
}

/// As a file may say it that somebody wrote.
#[test]
fn no_number_of_a_file_stops_the_scheduler() {
    let dir = tempfile::tempdir().unwrap();
    let orders = book(&dir);
    let ended = Ended { at: u64::MAX, ..Ended::default() };
    let mut record = Record { ended: Some(ended), attempt: u32::MAX, created: u64::MAX, ..of(1, 1, "a") };
    record.set(Status::Failed, Reason::None, "");
    orders.write(&record).unwrap();
    let orders = book(&dir);
    orders.forget_old(&mut orders.lock());
    told(&orders, 1, Some(&record)).unwrap();
    orders.steer(record.key().unwrap(), Steer::Retry, None).unwrap();
    assert_eq!(orders.take(of(1, 1, "a")), Ok(u32::MAX));
}

#[test]
fn what_cannot_be_written_down_has_not_happened() {
    let dir = tempfile::tempdir().unwrap();
    let orders = book(&dir);
    let (queued, running, ended) = (of(1, 1, "a"), of(1, 2, "a"), of(1, 3, "a"));
    for record in [&queued, &running, &ended] {
        orders.take(record.clone()).unwrap();
    }
    orders.steer(ended.key().unwrap(), Steer::Cancel, None).unwrap();
    orders.lock().jobs.get_mut(&running.key().unwrap()).unwrap().live.is_running = true;
    let stand = |record: &Record| {
        let state = orders.lock();
        let job = &state.jobs[&record.key().unwrap()];
        (job.record.clone(), job.live.wanted, job.live.pace.clone())
    };
    let before = [&queued, &running, &ended].map(stand);
    std::fs::remove_dir_all(dir.path().join("orders")).unwrap();
    let again = |record: &Record| Record { warrant: "02".into(), ..record.clone() };
    for record in [&queued, &running, &ended] {
        let key = record.key().unwrap();
        for steer in Steer::ALL {
            let _ = orders.steer(key, *steer, Some("03".into()));
        }
        assert!(orders.set_rate(key, "1M").is_err() && orders.take(again(record)).is_err());
    }
    assert_eq!(orders.steer(queued.key().unwrap(), Steer::Pause, None).unwrap_err().code, CloseCode::Internal);
    assert_eq!([&queued, &running, &ended].map(stand), before);
}

#[test]
fn the_same_order_again_is_the_same_job_and_after_its_end_the_next_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let orders = book(&dir);
    let record = of(1, 1, "a");
    let key = record.key().unwrap();
    assert_eq!(orders.take(record.clone()), Ok(1));
    orders.steer(key, Steer::Pause, None).unwrap();
    let renewed = Record { warrant: "01".into(), ..record.clone() };
    assert_eq!(orders.take(renewed), Ok(1));
    assert_eq!(state(&orders, &record), Status::Queued);
    assert_eq!(orders.lock().jobs[&key].record.warrant, "01");
    orders.steer(key, Steer::Cancel, None).unwrap();
    assert_eq!(orders.take(record.clone()), Ok(2));
    assert!(orders.lock().jobs[&key].record.ended.is_none());
}

/// As after Ctrl-C and at once the same command with another rate: what a job is called does not depend on that.
#[test]
fn the_same_order_with_other_options_is_the_same_job_and_one_that_stops_begins_anew_with_those() {
    let dir = tempfile::tempdir().unwrap();
    let orders = book(&dir);
    let record = of(1, 1, "a");
    let key = record.key().unwrap();
    let with = |transfer: &str| Record { transfer: transfer.into(), ..record.clone() };
    let again = |transfer: &str| {
        assert_eq!(orders.take(with(transfer)), Ok(1));
        let state = orders.lock();
        let job = &state.jobs[&key];
        (job.record.transfer.clone(), job.record.status(), job.live.wanted, job.live.is_outdated)
    };
    orders.take(with("slow")).unwrap();
    {
        let mut state = orders.lock();
        let job = state.jobs.get_mut(&key).unwrap();
        job.live.is_running = true;
        job.record.set(Status::Running, Reason::None, "");
    }
    assert_eq!(again("fast"), ("slow".into(), Status::Running, None, false), "it keeps the rate that it has");
    orders.steer(key, Steer::Cancel, None).unwrap();
    assert_eq!(again("slow"), ("slow".into(), Status::Running, None, false), "the same begins nothing anew");
    orders.steer(key, Steer::Cancel, None).unwrap();
    assert_eq!(again("fast"), ("fast".into(), Status::Running, None, true));
    orders.steer(key, Steer::Cancel, None).unwrap();
    assert_eq!(orders.take(with(&"x".repeat(BYTES_OF_ACCOUNT_MAX))).unwrap_err().code, CloseCode::Busy);
}

#[test]
fn each_way_of_steering_has_its_states() {
    let dir = tempfile::tempdir().unwrap();
    let orders = book(&dir);
    let record = of(1, 1, "a");
    let key = record.key().unwrap();
    let steer =
        |steer| orders.steer(key, steer, None).map(|()| orders.lock().jobs.get(&key).map(|job| job.record.status()));
    orders.take(record).unwrap();
    assert_eq!(steer(Steer::Pause), Ok(Some(Status::Paused)));
    assert_eq!(steer(Steer::Resume), Ok(Some(Status::Queued)));
    assert_eq!(steer(Steer::Remove).unwrap_err().code, CloseCode::WrongState);
    assert_eq!(steer(Steer::Cancel), Ok(Some(Status::Cancelled)));
    assert_eq!(steer(Steer::Cancel), Ok(Some(Status::Cancelled)));
    for refused in [Steer::Pause, Steer::Resume] {
        assert_eq!(steer(refused).unwrap_err().code, CloseCode::WrongState, "{refused}");
    }
    assert_eq!(steer(Steer::Retry), Ok(Some(Status::Queued)));
    assert_eq!(steer(Steer::Cancel), Ok(Some(Status::Cancelled)));
    assert_eq!(steer(Steer::Remove), Ok(None));
}

#[test]
fn what_was_acknowledged_is_there_after_a_crash_and_stops_where_it_was_told_to() {
    let dir = tempfile::tempdir().unwrap();
    let running = |job, steered: Option<Steer>| {
        let mut record = of(1, job, "a");
        match steered {
            Some(steer) => record.set(Status::Stopping, Reason::None, steer.word()),
            None => record.set(Status::Running, Reason::None, ""),
        }
        record
    };
    let records = [running(1, None), running(2, Some(Steer::Pause)), running(3, Some(Steer::Cancel)), of(1, 4, "a")];
    let orders = book(&dir);
    records.iter().for_each(|record| orders.write(record).unwrap());
    drop(orders);
    let orders = book(&dir);
    let states: Vec<_> = records.iter().map(|record| state(&orders, record)).collect();
    assert_eq!(states, [Status::Queued, Status::Paused, Status::Cancelled, Status::Queued]);
}

#[test]
fn a_job_that_cannot_be_written_down_is_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let orders = book(&dir);
    std::fs::remove_dir_all(dir.path().join("orders")).unwrap();
    assert_eq!(orders.take(of(1, 1, "a")).unwrap_err().code, CloseCode::Internal);
    assert!(orders.lock().jobs.is_empty());
}

#[test]
fn another_rate_is_kept_for_later_attempts_and_one_that_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let orders = book(&dir);
    let record = of(1, 1, "a");
    let key = record.key().unwrap();
    assert_eq!(orders.set_rate(key, "80Mbit"), Err(no_such_job()));
    orders.take(record).unwrap();
    let kept = || serde_json::from_str::<TransferSpec>(&orders.lock().jobs[&key].record.transfer).unwrap().options.pace;
    orders.set_rate(key, "80Mbit").unwrap();
    assert_eq!(kept().unwrap().rate_at(0), Some(10_000_000));
    for wrong in ["NaN", "-1M", "25:00,1M", &"00:00,1M ".repeat(10_000)] {
        let refused = orders.set_rate(key, wrong);
        assert!(refused.is_err() || wrong.len() > 100, "{wrong}");
    }
    assert!(kept().is_some());
    orders.set_rate(key, "off").unwrap();
    assert_eq!(kept(), None);
    orders.steer(key, Steer::Cancel, None).unwrap();
    assert_eq!(orders.set_rate(key, "1M").unwrap_err().code, CloseCode::WrongState);
}
