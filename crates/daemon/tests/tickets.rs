//! Limited tickets against a running endpoint: paths, directions, uses, and rights that end while a copy runs.

use daemon::endpoints::Replace;
use daemon::issue::SERVE_TICKET;
use daemon::limited::{Limits, scope_of};
use daemon::{ConnectOptions, EndpointBook, Issue, ServeOptions, Served, Ticket, connect, enrol};
use model::{Choice, Exit, Generation, TransferOptions};
use mover::session::{PullSpec, PushSpec};
use mover::{Ending, Progress, Report};
use net::Identity;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use store::posix::{PosixSink, PosixSource, beneath};
use store::{Found, Source, SourceFile, SourceLane, SourceObject};
use tempfile::TempDir;
use transfer::job_id;

/// The bound within which an endpoint ends what is no longer allowed, as the manual states it.
const BOUND: Duration = Duration::from_secs(60);
const CHUNK_BYTES: u64 = 1 << 20;

struct Place {
    dir: TempDir,
    _served: Served,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        let mut options = ServeOptions::new("127.0.0.1:0", dir.path().join("root"), dir.path().join("state"));
        options.name = Some("lab".into());
        options.ticket_file = Some(dir.path().join("ticket"));
        Place { _served: Served::start(options).unwrap(), dir }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn issue(&self) -> Issue {
        Issue::new(self.path("state"))
    }

    fn identity(&self, client: &str) -> Identity {
        fs::create_dir_all(self.path(client)).unwrap();
        Identity::load_or_create(&self.path(client).join("key")).unwrap()
    }

    fn enrol(&self, client: &str, ticket: &Ticket) -> Result<(), daemon::Error> {
        let book = EndpointBook::new(self.path(client).join("endpoints"));
        enrol(ticket, "lab", &self.identity(client), &book, Replace::SameIdentity).map(drop)
    }

    fn connect(&self, client: &str) -> mover::session::Client {
        let book = EndpointBook::new(self.path(client).join("endpoints"));
        connect(&book.get("lab").unwrap(), &self.identity(client), &ConnectOptions::default()).unwrap()
    }

    fn push(&self, client: &str, source: Arc<dyn Source>, to: &[u8], is_single: bool) -> Report {
        let options = TransferOptions { chunk_bytes: CHUNK_BYTES, ..TransferOptions::default() };
        let id = job_id(self.identity(client).pin(), &["source"], to, &Choice::default(), &options);
        let spec = PushSpec { id, path: to.to_vec(), is_single, options };
        let session = self.connect(client);
        let report = session.push(spec, source, Progress::new(), None, &|| false);
        session.close();
        report
    }

    fn pull(&self, client: &str, from: &[u8]) -> Report {
        let to = self.path(client).join("pulled");
        fs::create_dir_all(&to).unwrap();
        let to = Arc::new(beneath::open_directory(&to).unwrap());
        let options = TransferOptions::default();
        let id = job_id(self.identity(client).pin(), &[from], "pulled", &Choice::default(), &options);
        let sink = Arc::new(PosixSink::new(to.clone(), to, None));
        let spec = PullSpec { id, paths: vec![from.to_vec()], options, rename_to: None, is_sequential: false };
        let session = self.connect(client);
        let report = session.pull(spec, sink, Progress::new(), None, &|| false).unwrap();
        session.close();
        report
    }
}

fn limits() -> Limits {
    Limits {
        scope: Vec::new(),
        may_read: true,
        may_write: true,
        expires: None,
        uses_max: None,
        class_max: model::Class::High,
        may_manage: false,
    }
}

fn file(path: &Path) -> Arc<PosixSource> {
    let mut source = PosixSource::new();
    source.add_local(path.as_os_str().as_encoded_bytes()).unwrap();
    Arc::new(source)
}

#[track_caller]
fn finished(report: &Report) {
    assert!(matches!(report.ending, Ending::Finished(_)), "{}", report.ending);
    assert_eq!(report.snapshot.counts.files_failed, 0);
}

/// What a client is told, and the exit code it leads to.
#[track_caller]
fn refused(report: &Report) -> (String, Exit) {
    let Ending::Cancelled { by_peer: true, refusal } = &report.ending else { panic!("{}", report.ending) };
    (refusal.to_string(), daemon::Error::from_refusal("lab", refusal).exit)
}

#[test]
fn a_ticket_for_a_path_covers_that_path_name_by_name() {
    let place = Place::new();
    for name in ["foo/sub", "foobar", "other"] {
        fs::create_dir_all(place.path("root").join(name)).unwrap();
        fs::write(place.path("root").join(name).join("f"), name).unwrap();
    }
    symlink("../other", place.path("root/foo/out")).unwrap();
    fs::write(place.path("new"), "new").unwrap();
    let (_, ticket) = place.issue().create(Limits { scope: scope_of(b"foo").unwrap(), ..limits() }).unwrap();
    place.enrol("client", &ticket).unwrap();
    for path in [&b"foo"[..], b"foo/", b"./foo//sub", b"foo/sub/f"] {
        finished(&place.pull("client", path));
    }
    for path in [&b"foo"[..], b"foo/", b"foo/sub/new", b"foo/made/deep/"] {
        finished(&place.push("client", file(&place.path("new")), path, true));
    }
    assert_eq!(fs::read(place.path("root/foo/new")).unwrap(), b"new");
    let wrong = [&b"foobar"[..], b"foobar/f", b"", b".", b"/", b"fo", b"other/f", b"foo/../other", b"foo/../foobar/f"];
    for path in wrong.into_iter().chain([&b"foo/out/f"[..], b"foo/out/new/f"]) {
        for report in [place.pull("client", path), place.push("client", file(&place.path("new")), path, true)] {
            let (text, exit) = refused(&report);
            assert_eq!(exit, Exit::Refused, "{path:?}: {text}");
        }
    }
    let (text, _) = refused(&place.pull("client", b"foobar"));
    assert!(text.contains("may reach foo and what is below it"), "{text}");
    // A link that the client itself makes leads nowhere else either.
    symlink("../other", place.path("leads")).unwrap();
    finished(&place.push("client", file(&place.path("leads")), b"foo/leads", true));
    refused(&place.push("client", file(&place.path("new")), b"foo/leads/x", true));
    assert_eq!(fs::read_dir(place.path("root/other")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(place.path("root/foobar")).unwrap().count(), 1);
}

#[test]
fn a_ticket_is_for_its_direction_and_for_as_many_clients_as_it_says() {
    let place = Place::new();
    fs::write(place.path("root/f"), "f").unwrap();
    fs::write(place.path("new"), "new").unwrap();
    let issue = place.issue();
    let (_, reading) = issue.create(Limits { may_write: false, uses_max: Some(1), ..limits() }).unwrap();
    let (_, writing) = issue.create(Limits { may_read: false, ..limits() }).unwrap();
    place.enrol("reader", &reading).unwrap();
    place.enrol("writer", &writing).unwrap();
    finished(&place.pull("reader", b"f"));
    finished(&place.push("writer", file(&place.path("new")), b"g", true));
    let (text, exit) = refused(&place.push("reader", file(&place.path("new")), b"h", true));
    assert!(text.contains("may only read here") && exit == Exit::Refused, "{text}");
    let (text, _) = refused(&place.pull("writer", b"f"));
    assert!(text.contains("may only write here"), "{text}");
    let (text, _) = refused(&place.pull("writer", b"gen:1x1"));
    assert!(text.contains("may only write here"), "{text}");
    place.enrol("reader", &reading).unwrap();
    let error = place.enrol("another", &reading).unwrap_err();
    assert_eq!(error.exit, Exit::Authentication);
    assert!(error.message.contains("as often as it may be"), "{error}");
    // The ticket of the endpoint itself has no limits.
    let own = Ticket::parse(&fs::read_to_string(place.path("ticket")).unwrap()).unwrap();
    place.enrol("another", &own).unwrap();
    finished(&place.push("another", file(&place.path("new")), b"h", true));
    assert_eq!(issue.list().unwrap().iter().map(|issued| issued.uses).collect::<Vec<_>>(), [1, 1]);
}

/// A source that gives so much of its content and then waits.
struct Gated {
    inner: Arc<PosixSource>,
    gate: Arc<Gate>,
}

struct Gate {
    open_bytes: Mutex<u64>,
    opened: Condvar,
}

struct GatedLane(Box<dyn SourceLane>, Arc<Gate>);
struct GatedFile(Arc<dyn SourceFile>, Arc<Gate>);

impl Gated {
    fn new(path: &Path, open_bytes: u64) -> (Arc<Gated>, Arc<Gate>) {
        let gate = Arc::new(Gate { open_bytes: Mutex::new(open_bytes), opened: Condvar::new() });
        (Arc::new(Gated { inner: file(path), gate: gate.clone() }), gate)
    }
}

impl Gate {
    fn open(&self) {
        *self.open_bytes.lock().unwrap() = u64::MAX;
        self.opened.notify_all();
    }
}

impl Source for Gated {
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> store::Result<()> {
        self.inner.scan(emit)
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        Box::new(GatedLane(self.inner.lane(), self.gate.clone()))
    }

    fn path(&self, object: &SourceObject) -> Vec<u8> {
        self.inner.path(object)
    }

    fn look_again(&self, object: &SourceObject) -> store::Result<SourceObject> {
        self.inner.look_again(object)
    }
}

impl SourceLane for GatedLane {
    fn read_whole(&mut self, object: &SourceObject, buffer: &mut [u8]) -> store::Result<(usize, Generation)> {
        self.0.read_whole(object, buffer)
    }

    fn open(&mut self, object: &SourceObject) -> store::Result<Arc<dyn SourceFile>> {
        Ok(Arc::new(GatedFile(self.0.open(object)?, self.1.clone())))
    }
}

impl SourceFile for GatedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> store::Result<usize> {
        let open_bytes = self.1.open_bytes.lock().unwrap();
        drop(self.1.opened.wait_while(open_bytes, |open_bytes| offset >= *open_bytes).unwrap());
        self.0.read_at(offset, buffer)
    }

    fn generation(&self) -> store::Result<Generation> {
        self.0.generation()
    }
}

/// Length of the journals below a staging directory; each verified chunk adds to one.
fn journal_bytes(root: &Path) -> u64 {
    let mut pending = vec![root.to_owned()];
    let mut bytes = 0;
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => pending.push(entry.path()),
                Ok(found) if entry.path().extension().is_some_and(|kind| kind == "log") => bytes += found.len(),
                _ => {}
            }
        }
    }
    bytes
}

/// Rights end while a copy runs: the copy ends with the reason, and goes on where it stopped once there are rights again.
fn ends_while_a_copy_runs(limits: Limits, end: impl FnOnce(&Place, &str), words: &str) {
    let place = Place::new();
    let large = place.path("large");
    fs::write(&large, vec![7; 40 << 20]).unwrap();
    let (limited, ticket) = place.issue().create(limits).unwrap();
    place.enrol("client", &ticket).unwrap();
    let (source, gate) = Gated::new(&large, 24 << 20);
    thread::scope(|scope| {
        let pushing = scope.spawn(|| place.push("client", source, b"in/large", true));
        // The header of a journal is shorter than eight of its records, each of 64 bytes.
        while journal_bytes(&place.path("root")) < (16 + 8) * 64 {
            assert!(!pushing.is_finished(), "{}", pushing.join().unwrap().ending);
            thread::park_timeout(Duration::from_millis(5));
        }
        end(&place, &limited.id);
        let ended = Instant::now();
        while !pushing.is_finished() {
            assert!(ended.elapsed() < BOUND);
            thread::park_timeout(Duration::from_millis(5));
        }
        gate.open();
        let (text, exit) = refused(&pushing.join().unwrap());
        assert!(text.contains(&limited.id) && text.contains(words), "{text}");
        assert_eq!(exit, Exit::Authentication);
    });
    assert!(!place.path("root/in/large").exists());
    let again = place.connect("client").welcome().unwrap_err();
    assert_eq!(daemon::Error::from_connect("lab", &again).exit, Exit::Authentication);

    let (_, ticket) = place.issue().create(self::limits()).unwrap();
    place.enrol("client", &ticket).unwrap();
    let report = place.push("client", file(&large), b"in/large", true);
    finished(&report);
    assert!(report.snapshot.counts.bytes_resumed >= 16 * CHUNK_BYTES, "{:?}", report.snapshot.counts);
    assert!(fs::read(place.path("root/in/large")).unwrap() == fs::read(&large).unwrap());
}

#[test]
fn revoking_a_ticket_ends_what_its_clients_are_doing() {
    let revoke = |place: &Place, id: &str| assert_eq!(place.issue().revoke(id).unwrap(), 1);
    // Its client is removed too: which of the two is seen first does not matter.
    let place = Place::new();
    let (limited, ticket) = place.issue().create(limits()).unwrap();
    place.enrol("client", &ticket).unwrap();
    revoke(&place, &limited.id);
    let error = place.enrol("client", &ticket).unwrap_err();
    assert_eq!(error.exit, Exit::Authentication);
    // With the client's file in place, as an interrupted revocation leaves it.
    let only_ticket = |place: &Place, id: &str| {
        fs::remove_file(place.path("state/tickets").join(format!("{id}.toml"))).unwrap();
    };
    ends_while_a_copy_runs(limits(), only_ticket, "was revoked");
}

#[test]
fn a_ticket_that_expires_ends_what_its_clients_are_doing() {
    let expires = SystemTime::now() + Duration::from_secs(6);
    let wait = |_: &Place, _: &str| {
        while SystemTime::now() < expires {
            thread::park_timeout(Duration::from_millis(20));
        }
    };
    ends_while_a_copy_runs(Limits { expires: Some(expires), ..limits() }, wait, "expired at ");
}

#[test]
fn a_client_that_is_removed_while_it_copies_is_stopped() {
    let place = Place::new();
    let large = place.path("large");
    fs::write(&large, vec![7; 4 << 20]).unwrap();
    let own = Ticket::parse(&fs::read_to_string(place.path("ticket")).unwrap()).unwrap();
    place.enrol("client", &own).unwrap();
    let (source, gate) = Gated::new(&large, 0);
    thread::scope(|scope| {
        let pushing = scope.spawn(|| place.push("client", source, b"in/large", true));
        while !place.path("root/in").exists() {
            thread::park_timeout(Duration::from_millis(5));
        }
        assert_eq!(place.issue().revoke(&place.identity("client").pin().to_string()).unwrap(), 1);
        let ended = Instant::now();
        while !pushing.is_finished() {
            assert!(ended.elapsed() < BOUND);
            thread::park_timeout(Duration::from_millis(5));
        }
        gate.open();
        let (text, exit) = refused(&pushing.join().unwrap());
        assert!(text.contains("no longer enrolled here") && exit == Exit::Authentication, "{text}");
    });
    // The tickets of that time let it in no more; one that is made later does.
    let error = place.enrol("client", &own).unwrap_err();
    assert!(error.exit == Exit::Authentication && error.message.contains("revoked here"), "{error}");
    let (_, later) = place.issue().create(limits()).unwrap();
    place.enrol("client", &later).unwrap();
    finished(&place.push("client", file(&large), b"in/large", true));
    // The endpoint's own ticket can be revoked as well: nobody gets in by it any more.
    place.enrol("another", &own).unwrap();
    assert_eq!(place.issue().revoke(SERVE_TICKET).unwrap(), 1);
    assert_eq!(place.enrol("another", &own).unwrap_err().exit, Exit::Authentication);
}
