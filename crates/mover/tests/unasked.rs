//! An endpoint that sends what nobody asked for, over a real session: the client ends the job, and writes nothing of it.

use model::filter::{Filter, Rule};
use model::{Entry, Generation, JobId, Kind, Name, ObjectId, Pin, Selection, TransferOptions};
use mover::session::{Client, ClientOptions, Direct, Grant, Host, HostFacts, Opened, PullSpec, Server, Tuning};
use mover::{Ending, Memory, Progress};
use net::{DialOptions, Identity, Listener, ServerTls};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::posix::{PosixSink, beneath};
use store::{DirectoryKey, Found, Source, SourceFile, SourceLane, SourceObject};
use wire::handshake::Direction;
use wire::message::Open;
use wire::{CloseCode, Refusal};

const CONTENT: &[u8] = b"evil";

/// Describes what it likes, whatever was asked for.
#[derive(Clone)]
struct Liar(Vec<Entry>);

struct LiarHost(Liar);

impl Host for LiarHost {
    fn facts(&self) -> HostFacts {
        HostFacts { name: "evil".into(), is_read_only: true }
    }

    fn authorise(&self, peer: Pin, _: &[u8]) -> Result<Grant, Refusal> {
        Ok(Grant { pin: peer, name: "anyone".into(), account: "any".into(), may_write: false, warrant: None })
    }

    fn open(&self, _: &Grant, _: JobId, _: Direction, _: &Open, _: &TransferOptions) -> Result<Opened, Refusal> {
        Ok(Opened::Send { source: Arc::new(self.0.clone()), is_single: true, observer: None })
    }

    fn ended(&self, _: &Grant, _: JobId, _: Direction, _: &Progress, _: &Ending) {}
}

impl Source for Liar {
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> store::Result<()> {
        for entry in &self.0 {
            let directory = DirectoryKey(entry.parent.0);
            if !emit(Found::Object(SourceObject { entry: entry.clone(), directory, end: store::End::Known })) {
                break;
            }
        }
        Ok(())
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        Box::new(LiarLane)
    }

    fn path(&self, object: &SourceObject) -> Vec<u8> {
        object.entry.name.as_bytes().to_vec()
    }

    fn look_again(&self, object: &SourceObject) -> store::Result<SourceObject> {
        Ok(object.clone())
    }
}

struct LiarLane;
struct LiarFile(Generation);

impl SourceLane for LiarLane {
    fn read_whole(&mut self, object: &SourceObject, buffer: &mut [u8]) -> store::Result<(usize, Generation)> {
        buffer[..CONTENT.len()].copy_from_slice(CONTENT);
        Ok((CONTENT.len(), object.entry.generation))
    }

    fn open(&mut self, object: &SourceObject) -> store::Result<Arc<dyn SourceFile>> {
        Ok(Arc::new(LiarFile(object.entry.generation)))
    }
}

impl SourceFile for LiarFile {
    fn read_at(&self, _: u64, _: &mut [u8]) -> store::Result<usize> {
        Ok(0)
    }

    fn generation(&self) -> store::Result<Generation> {
        Ok(self.0)
    }
}

/// Listens for the liar, and accepts as long as the test process lives.
fn serve(liar: Liar) -> (String, Pin) {
    let identity = Identity::generate().unwrap();
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().to_string();
    let tls = ServerTls::new(&identity).unwrap();
    let server = Server::new(Arc::new(LiarHost(liar)), Memory::default());
    std::thread::spawn(move || {
        while let Ok(Some((tcp, _))) = listener.accept() {
            let (server, tls, arrived) = (server.clone(), tls.clone(), Instant::now());
            std::thread::spawn(move || {
                if let Ok(connection) = net::accept_tls(tcp, &tls, Instant::now() + Duration::from_secs(10)) {
                    let _ = server.serve(connection, arrived);
                }
            });
        }
    });
    (address, identity.pin())
}

fn entries(told: &[(u64, &str, Kind)]) -> Vec<Entry> {
    let one = |(id, (parent, name, kind)): (u64, &(u64, &str, Kind))| Entry {
        id: ObjectId(id),
        parent: ObjectId(*parent),
        name: Name::new(name.as_bytes()).unwrap(),
        kind: kind.clone(),
        mode: 0o644,
        generation: Generation { size_bytes: CONTENT.len() as u64, ..Generation::default() },
        attributes: None,
    };
    (1..).zip(told).map(one).collect()
}

/// Fetches `paths` from whoever describes `told`; returns how it ended, and the names that stand at the destination.
fn fetch(paths: &[&str], selection: Selection, told: &[(u64, &str, Kind)], to: &Path, name: Option<&str>) -> Ending {
    let (address, pin) = serve(Liar(entries(told)));
    let identity = Identity::generate().unwrap();
    let client = Client::connect(ClientOptions {
        connector: Arc::new(Direct::new(&address, DialOptions::new(&identity, pin).unwrap())),
        credential: Vec::new(),
        tuning: Tuning::default(),
        memory: Memory::default(),
    })
    .unwrap();
    let directory = Arc::new(beneath::open_directory(to).unwrap());
    let sink = Arc::new(PosixSink::new(directory.clone(), directory, None));
    let spec = PullSpec {
        id: JobId([3; 16]),
        paths: paths.iter().map(|path| path.as_bytes().to_vec()).collect(),
        options: TransferOptions { selection: Arc::new(selection), ..TransferOptions::default() },
        rename_to: name.map(|name| Name::new(name.as_bytes()).unwrap()),
        is_sequential: false,
    };
    let report = client.pull(spec, sink, Progress::new(), None, &|| false).unwrap();
    client.close();
    report.ending
}

fn names(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| !name.starts_with(".thalweg-staging-")).collect();
    names.sort();
    names
}

#[test]
fn what_was_not_asked_for_ends_the_job_and_is_not_written() {
    let link = || Kind::Symlink(b"/etc/passwd".to_vec().into());
    let no_logs = || {
        let filter = Filter::new(vec![Rule::leave("*.log")]).unwrap();
        Selection { filter, ..Selection::default() }
    };
    let file = |name| (0, name, Kind::File);
    for (paths, selection, told, name, unasked) in [
        (&["report"][..], Selection::default(), vec![file("report"), file(".bashrc")], None, ".bashrc"),
        (&["report"], Selection::default(), vec![file("report"), (0, ".profile", link())], None, ".profile"),
        (&["a/x", "b/y"], Selection::default(), vec![file("x"), file("y"), file("z")], None, "z"),
        // Under whatever name it would be written here.
        (&["report"], Selection::default(), vec![file("other")], Some("mine"), "other"),
        (&["d"], Selection::default(), vec![(0, "d", Kind::Directory), file("beside")], Some("new"), "beside"),
        (&["d/"], no_logs(), vec![file("a"), file("b.log")], None, "b.log"),
        (&["gen:1x4"], Selection::default(), vec![file("f000000000"), file("f000000001")], None, "f000000001"),
    ] {
        let to = tempfile::tempdir().unwrap();
        std::fs::write(to.path().join(".bashrc"), "mine").unwrap();
        let ending = fetch(paths, selection, &told, to.path(), name);
        let Ending::Cancelled { by_peer: false, refusal } = &ending else { panic!("{paths:?} {told:?}: {ending}") };
        assert_eq!(refusal.code, CloseCode::Limit);
        assert!(refusal.text.starts_with(&format!("sent {unasked}, which was not asked for")), "{refusal}");
        let there = names(to.path());
        assert!(unasked == ".bashrc" || !there.iter().any(|name| name == unasked), "{there:?}");
        assert_eq!(std::fs::read(to.path().join(".bashrc")).unwrap(), b"mine");
    }
    // What was asked for comes.
    let to = tempfile::tempdir().unwrap();
    let ending = fetch(&["a/report"], Selection::default(), &[file("report")], to.path(), Some("mine"));
    assert!(matches!(ending, Ending::Finished(_)), "{ending}");
    assert_eq!(names(to.path()), ["mine"]);
}
