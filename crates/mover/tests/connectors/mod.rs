//! Sessions over a connector of the test's own: pipes within this process, on several paths, one of them dead or wrong; and
//! streams that come late.

use crate::endpoint::{OpenHost, describe};
use crate::{make_files, sink};
use model::pace::Timetable;
use model::{JobId, Pin, TransferOptions};
use mover::session::{
    Client, ClientOptions, Connector, Grant, Guide, Host, HostFacts, Opened, Path, PullSpec, PushSpec, Server, Tuning,
};
use mover::{Ending, Memory, Progress, Report};
use net::{Connection, DialOptions, Identity, ServerTls, accept_tls, connect_tls};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};
use store::posix::PosixSource;
use wire::Refusal;
use wire::handshake::Direction;
use wire::message::Open;

const PATIENCE: Duration = Duration::from_secs(30);

/// What a path leads to.
enum End {
    Server(Arc<Server>, Identity),
    Nobody,
    /// Somebody else, who tells how many bytes came after the handshake.
    Stranger(Identity, mpsc::Sender<usize>),
}

impl End {
    fn connect(&self, identity: &Identity) -> Result<Connection, net::Error> {
        let theirs = match self {
            End::Nobody => return Err(net::Error::from_io("reach", "nobody", io::ErrorKind::HostUnreachable.into())),
            End::Server(_, theirs) | End::Stranger(theirs, _) => theirs,
        };
        let (near, far) = net::pair()?;
        let tls = ServerTls::new(theirs)?;
        let soon = Instant::now() + PATIENCE;
        let accept = move || accept_tls(far, &tls, soon);
        match self {
            End::Server(server, _) => {
                let server = server.clone();
                std::thread::spawn(move || server.serve(accept().unwrap(), Instant::now()));
            }
            End::Stranger(_, told) => {
                let told = told.clone();
                std::thread::spawn(move || {
                    let mut stream = accept().unwrap().into_data();
                    stream.set_deadline(Some(soon));
                    told.send(stream.recv(&mut [0; 1000]).unwrap_or(0))
                });
            }
            End::Nobody => unreachable!("it has no key"),
        }
        connect_tls(near, &DialOptions::new(identity, theirs.pin())?.tls, soon)
    }
}

/// The paths that streams were asked for on.
#[derive(Default)]
struct Used {
    names: Mutex<BTreeSet<String>>,
    changed: Condvar,
}

/// An endpoint that opens a job when all paths have been tried: a small job would be through on its first stream otherwise.
struct PatientHost {
    host: OpenHost,
    used: Arc<Used>,
    paths: usize,
}

impl Host for PatientHost {
    fn facts(&self) -> HostFacts {
        self.host.facts()
    }

    fn authorise(&self, pin: Pin, credential: &[u8]) -> Result<Grant, Refusal> {
        self.host.authorise(pin, credential)
    }

    fn open(
        &self,
        grant: &Grant,
        job: JobId,
        to: Direction,
        open: &Open,
        options: &TransferOptions,
    ) -> Result<Opened, Refusal> {
        let names = self.used.names.lock().unwrap();
        let is_waiting = |names: &mut BTreeSet<String>| names.len() < self.paths;
        drop(self.used.changed.wait_timeout_while(names, PATIENCE / 2, is_waiting).unwrap());
        self.host.open(grant, job, to, open, options)
    }

    fn ended(&self, grant: &Grant, job: JobId, direction: Direction, progress: &Progress, ending: &Ending) {
        self.host.ended(grant, job, direction, progress, ending);
    }
}

struct Pipes {
    identity: Identity,
    paths: Vec<Path>,
    ends: Vec<End>,
    used: Arc<Used>,
}

impl Connector for Pipes {
    fn paths(&self) -> &[Path] {
        &self.paths
    }

    fn connect(&self, path: &Path) -> Result<Connection, net::Error> {
        self.used.names.lock().unwrap().insert(path.name.clone());
        self.used.changed.notify_all();
        self.ends[self.paths.iter().position(|known| known == path).unwrap()].connect(&self.identity)
    }

    fn congestion(&self) -> Option<&str> {
        None
    }
}

/// Dials at once while its session is opened, and then when it is told to, to another end.
struct Late {
    identity: Identity,
    paths: [Path; 1],
    early: End,
    late: End,
    is_late: AtomicBool,
    go: Mutex<mpsc::Receiver<()>>,
}

impl Connector for Late {
    fn paths(&self) -> &[Path] {
        &self.paths
    }

    fn connect(&self, _: &Path) -> Result<Connection, net::Error> {
        if !self.is_late.load(Relaxed) {
            return self.early.connect(&self.identity);
        }
        let _ = self.go.lock().unwrap().recv_timeout(PATIENCE);
        self.late.connect(&self.identity)
    }

    fn congestion(&self) -> Option<&str> {
        None
    }
}

/// Ends its job. The next time that it is asked for something, which is once the job has ended, it has the late stream
/// dialled, and waits for what that brings.
struct Ender {
    tell: mpsc::Sender<()>,
    heard: mpsc::Receiver<usize>,
    is_over: Cell<bool>,
    bytes: Cell<Option<usize>>,
}

impl Guide for Ender {
    fn is_over(&self) -> bool {
        self.is_over.set(true);
        true
    }

    fn pace(&self, _: &TransferOptions) -> Option<Arc<Timetable>> {
        if self.is_over.get() && self.bytes.get().is_none() {
            let _ = self.tell.send(());
            self.bytes.set(self.heard.recv_timeout(PATIENCE).ok());
        }
        None
    }
}

/// A tree, an endpoint that no address leads to, and its key.
struct Scene {
    dir: tempfile::TempDir,
    server: Arc<Server>,
    key: Vec<u8>,
    used: Arc<Used>,
}

impl Scene {
    fn new(paths: usize) -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let (from, root) = (dir.path().join("from"), dir.path().join("root"));
        std::fs::create_dir(&root).unwrap();
        make_files(&from);
        let used = Arc::<Used>::default();
        let host = PatientHost { host: OpenHost { root }, used: used.clone(), paths };
        let server = Server::new(Arc::new(host), Memory::default());
        Scene { dir, server, key: Identity::generate().unwrap().pkcs8().to_vec(), used }
    }

    fn end(&self) -> End {
        End::Server(self.server.clone(), Identity::from_pkcs8(&self.key).unwrap())
    }

    /// Pushes the tree over paths with these ends; returns the names of those that were used.
    fn push(&self, ends: Vec<End>, streams: u32) -> (Report, Vec<String>) {
        let path = |number| Path { name: format!("pipe {number}"), remote: "here".into(), ..Path::default() };
        let paths = (0..ends.len()).map(path).collect();
        let identity = Identity::generate().unwrap();
        let pipes = Arc::new(Pipes { identity, paths, ends, used: self.used.clone() });
        let client = Client::connect(ClientOptions {
            connector: pipes.clone(),
            credential: Vec::new(),
            tuning: Tuning { streams: Some(streams), ..Tuning::default() },
            memory: Memory::default(),
        });
        let client = client.unwrap();
        let mut source = PosixSource::new();
        source.add_local(&[self.dir.path().join("from").as_os_str().as_encoded_bytes(), b"/"].concat()).unwrap();
        let options = TransferOptions::default();
        let spec = PushSpec { id: JobId([1; 16]), path: b"to".to_vec(), is_single: false, options };
        let deadline = Instant::now() + PATIENCE;
        let report = client.push(spec, Arc::new(source), Progress::new(), None, &|| Instant::now() > deadline);
        client.close();
        let used = self.used.names.lock().unwrap().iter().cloned().collect();
        (report, used)
    }

    /// A client of which the third stream is dialled when that is told, and to this end.
    fn with_late_stream(&self, late: End) -> (Client, mpsc::Sender<()>) {
        let (tell, go) = mpsc::channel();
        let connector = Arc::new(Late {
            identity: Identity::generate().unwrap(),
            paths: [Path { name: "late".into(), remote: "here".into(), ..Path::default() }],
            early: self.end(),
            late,
            is_late: AtomicBool::new(false),
            go: Mutex::new(go),
        });
        let client = Client::connect(ClientOptions {
            connector: connector.clone(),
            credential: Vec::new(),
            tuning: Tuning { streams: Some(3), ..Tuning::default() },
            memory: Memory::default(),
        });
        connector.is_late.store(true, Relaxed);
        (client.unwrap(), tell)
    }

    /// The same key as the server's, and nothing behind it; told is how many bytes come.
    fn listener(&self) -> (End, mpsc::Receiver<usize>) {
        let (told, heard) = mpsc::channel();
        (End::Stranger(Identity::from_pkcs8(&self.key).unwrap(), told), heard)
    }

    #[track_caller]
    fn arrived(&self, report: &Report) {
        assert!(matches!(report.ending, Ending::Finished(_)), "{:?}", report.ending);
        assert_eq!(describe(&self.dir.path().join("from")), describe(&self.dir.path().join("root/to")));
    }
}

#[test]
fn a_jobs_streams_are_dealt_out_to_all_paths_and_no_path_needs_an_address() {
    let scene = Scene::new(3);
    let (report, used) = scene.push(vec![scene.end(), scene.end(), scene.end()], 4);
    scene.arrived(&report);
    assert_eq!(used, ["pipe 0", "pipe 1", "pipe 2"]);
}

#[test]
fn streams_of_a_dead_path_are_replaced_on_others() {
    let scene = Scene::new(2);
    let (report, used) = scene.push(vec![scene.end(), End::Nobody], 3);
    scene.arrived(&report);
    assert_eq!(used, ["pipe 0", "pipe 1"]);
}

#[test]
fn a_path_to_somebody_else_carries_nothing_of_the_session() {
    let scene = Scene::new(2);
    let (told, heard) = mpsc::channel();
    let stranger = End::Stranger(Identity::generate().unwrap(), told);
    let (report, _) = scene.push(vec![scene.end(), stranger], 3);
    scene.arrived(&report);
    let bytes: Vec<usize> = heard.iter().collect();
    assert!(!bytes.is_empty() && bytes.iter().all(|bytes| *bytes == 0), "{bytes:?}");
}

fn pull_spec() -> PullSpec {
    let (id, paths, options) = (JobId([2; 16]), vec![b"f".to_vec()], TransferOptions::default());
    PullSpec { id, paths, options, rename_to: None, is_sequential: false }
}

#[test]
fn a_stream_that_is_there_when_its_job_has_ended_does_not_join_it() {
    let scene = Scene::new(1);
    let (listener, heard) = scene.listener();
    let (client, tell) = scene.with_late_stream(listener);
    let ender = Ender { tell, heard, is_over: Cell::new(false), bytes: Cell::new(None) };
    let report = client.pull(pull_spec(), sink(scene.dir.path()), Progress::new(), None, &ender).unwrap();
    assert!(matches!(report.ending, Ending::Cancelled { by_peer: false, .. }), "{:?}", report.ending);
    assert_eq!(ender.bytes.get(), Some(0));
    client.close();
}

#[test]
fn a_job_that_has_ended_lets_its_destination_go_while_a_stream_of_it_is_still_dialled() {
    let scene = Scene::new(1);
    let (listener, _heard) = scene.listener();
    let (client, tell) = scene.with_late_stream(listener);
    let sink = sink(scene.dir.path());
    let held = Arc::downgrade(&sink);
    client.pull(pull_spec(), sink, Progress::new(), None, &|| true).unwrap();
    assert_eq!(held.strong_count(), 0);
    tell.send(()).unwrap();
    client.close();
}
