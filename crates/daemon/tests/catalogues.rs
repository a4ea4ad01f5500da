//! A catalogue of more files than either side may describe at once, and a holder that lists them in another order: neither waits for what
//! the other one has yet to describe. All of it is made up: the files are empty, and go nowhere.

use model::set::{Catalogue, SetFile};
use model::{
    Digest, DigestAlgorithm, Entry, FailureKind, Generation, JobId, Kind, Location, Name, ObjectId, Pin, Selection,
    Timestamp, TransferOptions, TransferSpec, VersionToken,
};
use mover::session::{Client, Grant, Host, HostFacts, Opened, Server};
use mover::{Ending, Memory, Progress};
use net::{Identity, Listener, ServerTls};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{DirectoryKey, End, Found, Source, SourceFile, SourceLane, SourceObject};
use transfer::{Means, Peer, Peers, Reach, Transfer, Use};
use wire::Refusal;
use wire::handshake::Direction;
use wire::message::Open;

/// In a directory, and at the top: what comes first here comes last there, and either is more than may be open.
const FILES: usize = 66_000;
const SECONDS: i64 = 1_000_000_000;
/// Longer than it takes by far.
const PATIENCE: Duration = Duration::from_secs(600);

/// What lies at the top comes first, and all of it backwards.
struct Backwards(Arc<Selection>);

impl Backwards {
    fn takes(&self, path: &str) -> bool {
        self.0.takes(path.as_bytes(), false, Some((0, SECONDS)))
    }
}

fn object(id: u64, parent: ObjectId, name: &str, kind: Kind) -> SourceObject {
    let modified = Timestamp { seconds: SECONDS, nanoseconds: 0 };
    let generation = Generation { size_bytes: 0, modified, version: VersionToken::default() };
    let (id, name, mode, attributes) = (ObjectId(id), Name::new(name.as_bytes()).unwrap(), 0o755, None);
    let entry = Entry { id, parent, name, kind, mode, generation, attributes };
    SourceObject { entry, directory: DirectoryKey(0), end: End::Known }
}

impl Source for Backwards {
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> store::Result<()> {
        let mut objects = Vec::new();
        for name in (0..FILES).rev().map(|at| format!("z{at:05}")).filter(|name| self.takes(name)) {
            objects.push(object(objects.len() as u64 + 1, ObjectId::ROOT, &name, Kind::File));
        }
        let names: Vec<_> = (0..FILES).rev().map(|at| format!("{at:05}")).collect();
        let mut inside = names.iter().filter(|name| self.takes(&format!("a/{name}"))).peekable();
        let directory = objects.len() as u64 + 1;
        if inside.peek().is_some() {
            objects.push(object(directory, ObjectId::ROOT, "a", Kind::Directory));
        }
        for name in inside {
            objects.push(object(objects.len() as u64 + 1, ObjectId(directory), name, Kind::File));
        }
        let _ = objects.into_iter().all(|object| emit(Found::Object(object)));
        Ok(())
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        Box::new(Empty)
    }

    fn path(&self, object: &SourceObject) -> Vec<u8> {
        object.entry.name.as_bytes().to_vec()
    }

    fn look_again(&self, object: &SourceObject) -> store::Result<SourceObject> {
        Ok(object.clone())
    }
}

struct Empty;

impl SourceLane for Empty {
    fn read_whole(&mut self, object: &SourceObject, _: &mut [u8]) -> store::Result<(usize, Generation)> {
        Ok((0, object.entry.generation))
    }

    fn open(&mut self, object: &SourceObject) -> store::Result<Arc<dyn SourceFile>> {
        Err(store::Error::of_kind(FailureKind::ReadError, "open", object.entry.name.as_bytes(), "it is empty"))
    }
}

struct Holder;

impl Host for Holder {
    fn facts(&self) -> HostFacts {
        HostFacts { name: "lab".into(), is_read_only: true }
    }

    fn authorise(&self, pin: Pin, _: &[u8]) -> Result<Grant, Refusal> {
        Ok(Grant { pin, name: "client".into(), account: "client".into(), may_write: false, warrant: None })
    }

    fn open(&self, _: &Grant, _: JobId, _: Direction, _: &Open, options: &TransferOptions) -> Result<Opened, Refusal> {
        let source = Arc::new(Backwards(options.selection.clone()));
        Ok(Opened::Send { source, is_single: false, observer: None })
    }

    fn ended(&self, _: &Grant, _: JobId, _: Direction, _: &Progress, _: &Ending) {}
}

/// The holder as a client knows it.
#[derive(Clone)]
struct Lab {
    address: String,
    pin: Pin,
    identity: Identity,
}

impl Lab {
    /// Serves as long as the test process lives.
    fn serve() -> Lab {
        let identity = Identity::generate().unwrap();
        let server = Server::new(Arc::new(Holder), Memory::default());
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().to_string();
        let tls = ServerTls::new(&identity).unwrap();
        std::thread::spawn(move || {
            while let Ok(Some((tcp, _))) = listener.accept() {
                let (server, tls, arrived) = (server.clone(), tls.clone(), Instant::now());
                std::thread::spawn(move || {
                    if let Ok(connection) = net::accept_tls(tcp, &tls, Instant::now() + PATIENCE) {
                        let _ = server.serve(connection, arrived);
                    }
                });
            }
        });
        Lab { address, pin: identity.pin(), identity: Identity::generate().unwrap() }
    }
}

impl Peers for Lab {
    fn identity(&self) -> transfer::Result<Identity> {
        Ok(self.identity.clone())
    }

    fn find(&self, _: &Location) -> transfer::Result<Arc<dyn Peer>> {
        Ok(Arc::new(self.clone()))
    }
}

impl Peer for Lab {
    fn name(&self) -> &str {
        "lab"
    }

    fn connect(&self, request: &Use<'_>) -> transfer::Result<Client> {
        let (identity, options) = (request.identity, request.options);
        let reach = Reach { name: "lab", pin: self.pin, credential: Vec::new(), identity, options };
        reach.connect(std::slice::from_ref(&self.address))
    }
}

#[test]
fn a_catalogue_of_more_files_than_may_be_open_comes_from_a_holder_that_lists_them_in_another_order() {
    let holder = Location::Named { name: "lab".into(), path: b"set/".to_vec() };
    let mut spec = TransferSpec::new(vec![holder], Location::Null);
    spec.options.digest = DigestAlgorithm::Blake3;
    let Digest::Blake3(root) = DigestAlgorithm::Blake3.of_object(b"") else { panic!("not BLAKE3") };
    let mut catalogue = Catalogue::new(spec.options.chunk_bytes);
    let inside = (0..FILES).map(|at| format!("a/{at:05}"));
    for path in inside.chain((0..FILES).map(|at| format!("z{at:05}"))) {
        let path = path.into_bytes().into();
        catalogue.add(SetFile { path, size_bytes: 0, modified: SECONDS, root }, &[]).unwrap();
    }
    let means = Means { catalogue: Some(Arc::new(catalogue)), ..Means::new(Lab::serve()) };
    let transfer = Transfer::start(spec, means).unwrap();
    assert!(transfer.wait_timeout(PATIENCE), "each side waits for the other one");
    let ended = transfer.wait();
    assert_eq!((ended.error, ended.files_ok, ended.attempts), (None, 2 * FILES as u64, 1));
}
