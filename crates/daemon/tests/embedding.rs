//! The examples, run against a real endpoint in this process, and what a program that embeds transfers relies on.

#[path = "../examples/local_copy.rs"]
mod local_copy;
#[path = "../examples/pull.rs"]
mod pull;
#[path = "../examples/push.rs"]
mod push;

use daemon::endpoints::Replace;
use daemon::{EndpointBook, Known, ServeOptions, Served, Ticket, enrol};
use local_copy::local_copy;
use model::pace::Timetable;
use model::{Failure, JobId, Location};
use net::Identity;
use pull::pull;
use push::push;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use transfer::{Direction, Kind, Means, Phase, Steering, Transfer, TransferSpec, Watcher};

const PATIENCE: Duration = Duration::from_secs(30);

/// An endpoint `lab` and a client that it knows.
struct Place {
    dir: TempDir,
    served: Option<Served>,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        for name in ["root", "client", "data"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mut place = Place { dir, served: None };
        let mut options = ServeOptions::new("127.0.0.1:0", place.path("root"), place.path("state"));
        options.ticket_file = Some(place.path("ticket"));
        place.served = Some(Served::start(options).unwrap());
        let ticket = Ticket::parse(&fs::read_to_string(place.path("ticket")).unwrap()).unwrap();
        let known = place.known();
        enrol(&ticket, "lab", &known.identity, &known.book, Replace::SameIdentity).unwrap();
        place
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn text(&self, below: &str) -> String {
        self.path(below).into_os_string().into_string().unwrap()
    }

    fn known(&self) -> Known {
        let identity = Identity::load_or_create(&self.path("client/identity.key")).unwrap();
        Known { book: EndpointBook::new(self.path("client/endpoints")), identity }
    }

    fn spec(&self, from: &str, to: &str) -> TransferSpec {
        let location = |text: &str| Location::parse(text.as_ref()).unwrap();
        TransferSpec::new(vec![location(from)], location(to))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(served) = self.served.take() {
            let _ = served.run_until(&AtomicBool::new(true), Duration::from_secs(1));
        }
    }
}

#[test]
fn the_examples_send_fetch_and_copy() {
    let place = Place::new();
    fs::write(place.path("data/a"), b"one").unwrap();
    fs::write(place.path("data/b"), vec![7; 3 << 20]).unwrap();
    let data = place.text("data/");
    let pushed = push(place.known(), &data, "lab:in/").unwrap();
    assert_eq!((pushed.files_ok, pushed.bytes, pushed.direction), (2, 3 + (3 << 20), Direction::Push));
    assert_eq!(fs::read(place.path("root/in/a")).unwrap(), b"one");

    let pulled = pull(place.known(), "lab:in/", &place.text("back/"), |_| ()).unwrap();
    assert_eq!((pulled.files_ok, pulled.direction), (2, Direction::Pull));
    assert_eq!(fs::read(place.path("back/b")).unwrap(), vec![7; 3 << 20]);

    let written = serde_json::to_string(&place.spec(&data, &place.text("copy/"))).unwrap();
    let copied = local_copy(&written, "1G").unwrap();
    assert_eq!((copied.files_ok, copied.direction), (2, Direction::Local));
    assert_eq!(fs::read(place.path("copy/a")).unwrap(), b"one");
    assert_eq!(local_copy(&written, "1G").unwrap().files_skipped, 2, "what is there is skipped");
}

#[test]
fn an_example_without_its_two_arguments_says_so() {
    // Whatever the arguments of this test program are, they name no transfer.
    for main in [push::main, pull::main, local_copy::main] {
        assert!(main().is_err());
    }
}

#[test]
fn errors_say_what_they_are_about_and_what_to_do() {
    let place = Place::new();
    let start =
        |from: &str, to: &str| Transfer::start(place.spec(from, to), Means::new(place.known())).map(Transfer::wait);
    let unknown = start("x", "nowhere:in").err().unwrap();
    assert_eq!((unknown.kind, &unknown.text[..]), (Kind::Request, "no endpoint nowhere is known"));
    let no_store = start("s3://bucket/key", "lab:in").err().unwrap();
    assert_eq!((no_store.kind, &no_store.text[..]), (Kind::Request, "this build has no store for s3://"));
    assert!(no_store.advice.is_some());
    let missing = start("lab:missing", &place.text("here")).unwrap().error.unwrap();
    assert_eq!((missing.kind, &missing.subject[..]), (Kind::SourceNotFound, "lab"));
    let outside = start("lab:../x", &place.text("here")).unwrap().error.unwrap();
    assert_eq!(outside.kind, Kind::Refused);
    assert!(!place.path("here").exists(), "nothing is made for what did not happen");
}

#[derive(Default)]
struct Told {
    job: Mutex<Option<JobId>>,
    attempts: AtomicU32,
    failed: Mutex<Vec<Failure>>,
}

impl Watcher for Told {
    fn started(&self, job: JobId, _direction: Direction) {
        *self.job.lock().unwrap() = Some(job);
    }

    fn attempt_started(&self, _number: u32, _progress: &Arc<mover::Progress>) {
        self.attempts.fetch_add(1, SeqCst);
    }

    fn failed(&self, failure: &Failure) {
        self.failed.lock().unwrap().push(failure.clone());
    }
}

#[test]
fn a_transfer_is_given_another_rate_while_it_runs() {
    let place = Place::new();
    fs::write(place.path("data/large"), vec![1; 24 << 20]).unwrap();
    let mut spec = place.spec(&place.text("data/large"), "lab:large");
    spec.options.chunk_bytes = 1 << 20;
    spec.options.pace = Some(Arc::new(Timetable::parse("2M").unwrap()));
    let told = Arc::new(Told::default());
    let means = Means { watcher: told.clone(), ..Means::new(place.known()) };
    let transfer = Transfer::start(spec, means).unwrap();
    let seen = || transfer.observe().sample.is_some_and(|sample| sample.counts.bytes_sent > 3 << 20);
    while !seen() {
        assert!(!transfer.wait_timeout(Duration::from_millis(20)), "it ended at once");
    }
    assert_eq!((transfer.observe().phase, transfer.observe().attempt), (Phase::Running, 1));
    assert_eq!(*told.job.lock().unwrap(), Some(transfer.job()));
    transfer.steer(Steering::Pace(None));
    assert!(transfer.wait_timeout(PATIENCE), "at 2 MiB a second it would take 12 s, and it is bound no more");
    let ended = transfer.wait();
    assert_eq!(ended.error, None);
    assert_eq!((ended.files_ok, ended.attempts, told.attempts.load(SeqCst)), (1, 1, 1));
    assert_eq!(ended.sent_bytes, 24 << 20, "something is sent again");
    assert_eq!(fs::read(place.path("root/large")).unwrap(), vec![1; 24 << 20]);
}

#[test]
fn a_cancelled_transfer_keeps_what_is_verified_and_the_same_request_goes_on() {
    let place = Place::new();
    fs::write(place.path("data/large"), vec![1; 16 << 20]).unwrap();
    let mut spec = place.spec(&place.text("data/large"), "lab:large");
    spec.options.chunk_bytes = 1 << 20;
    let slow = TransferSpec {
        options: model::TransferOptions {
            pace: Some(Arc::new(Timetable::parse("2M").unwrap())),
            ..spec.options.clone()
        },
        ..spec.clone()
    };
    let transfer = Transfer::start(slow, Means::new(place.known())).unwrap();
    let job = transfer.job();
    while transfer.observe().sample.is_none_or(|sample| sample.counts.bytes_sent < 4 << 20) {
        assert!(!transfer.wait_timeout(Duration::from_millis(20)), "it ended at once");
    }
    transfer.cancel();
    let ended = transfer.wait();
    assert_eq!(ended.error.unwrap().kind, Kind::Stopped);
    assert!(!place.path("root/large").exists());
    let again = Transfer::start(spec, Means::new(place.known())).unwrap();
    assert_eq!(again.job(), job, "another rate is no other job");
    let ended = again.wait();
    assert_eq!(ended.error, None);
    assert!(ended.resumed_bytes >= 2 << 20, "{} were kept", ended.resumed_bytes);
}

#[test]
fn a_rehearsal_does_not_end_the_transfer_that_it_rehearses() {
    let place = Place::new();
    fs::write(place.path("data/a"), vec![1; 8 << 20]).unwrap();
    let mut spec = place.spec(&place.text("data/"), "lab:in/");
    let mut rehearsal = spec.clone();
    rehearsal.options.is_dry_run = true;
    spec.options.pace = Some(Arc::new(Timetable::parse("1M").unwrap()));
    let real = Transfer::start(spec, Means::new(place.known())).unwrap();
    while real.observe().sample.is_none_or(|sample| sample.counts.bytes_sent == 0) {
        assert!(!real.wait_timeout(Duration::from_millis(20)), "it ended at once");
    }
    let rehearsal = Transfer::start(rehearsal, Means::new(place.known())).unwrap();
    assert_ne!(rehearsal.job(), real.job());
    let rehearsed = rehearsal.wait();
    assert_eq!((rehearsed.error, rehearsed.files_ok), (None, 1));
    assert_eq!(real.observe().phase, Phase::Running, "it was ended by its rehearsal");
    real.steer(Steering::Pace(None));
    let ended = real.wait();
    assert_eq!((ended.error, ended.attempts), (None, 1));
    assert_eq!(fs::read(place.path("root/in/a")).unwrap(), vec![1; 8 << 20]);
}

#[test]
fn what_fails_singly_is_told_and_summed_up() {
    let place = Place::new();
    fs::write(place.path("data/a"), b"one").unwrap();
    fs::create_dir_all(place.path("copy/a/full")).unwrap();
    let told = Arc::new(Told::default());
    let means = Means { watcher: told.clone(), ..Means::local() };
    let spec = place.spec(&place.text("data/"), &place.text("copy/"));
    let ended = Transfer::start(spec, means).unwrap().wait();
    let error = ended.error.unwrap();
    assert_eq!((error.kind, &error.text[..]), (Kind::Partial, "1 file was not delivered"));
    assert_eq!((ended.files_failed, told.failed.lock().unwrap().len()), (1, 1));
}

#[test]
fn a_list_and_a_rule_are_carried_out_from_the_written_form() {
    let place = Place::new();
    for name in ["a.h5", "b.tmp", "c.h5"] {
        fs::write(place.path("data").join(name), name).unwrap();
    }
    let written = format!(
        r#"{{"version":1,"sources":[{:?}],"destination":{:?},"filter":["- *.tmp","- /c*"]}}"#,
        place.text("data/"),
        place.text("copy/")
    );
    assert_eq!(local_copy(&written, "off").unwrap().files_ok, 1);
    assert!(
        place.path("copy/a.h5").exists() && !place.path("copy/b.tmp").exists() && !place.path("copy/c.h5").exists()
    );
}
