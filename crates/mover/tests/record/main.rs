//! Records sessions of this program with the plaintext between its two ends, and has the second decoder judge them.
//!
//! The golden sessions of `crates/wire/tests/golden` come from here: `THALWEG_RECORD_GOLDEN=1` writes them anew. That is
//! right for a new version of the protocol and wrong for a change that was meant to be compatible.

mod relay;
#[path = "../../../wire/tests/golden/tree.rs"]
mod tree;
#[path = "../../../wire/tests/second_decoder/mod.rs"]
mod second_decoder;

use model::name::relative_path;
use model::options::Engine;
use model::{DigestAlgorithm, JobId, Pin, TransferOptions};
use mover::session::{
    Client, ClientOptions, Direct, Grant, Host, HostFacts, Opened, PullSpec, PushSpec, Server, Tuning,
};
use mover::{Ending, Memory, Progress, Report};
use net::{DialOptions, Identity, Listener, ServerTls};
use relay::{Cut, Relay};
use second_decoder::{Outcome, Published, Recording, decode};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::posix::{PosixSink, PosixSource, beneath};
use tree::{Item, tree};
use wire::handshake::{Direction, feature};
use wire::message::{self, Close, Hello, Open};
use wire::{CloseCode, Message, Refusal};

const CREDENTIAL: &[u8] = b"not a secret";

/// Writes below a root what anyone sends who knows the credential, and reads for everyone.
struct AnyoneHost {
    root: PathBuf,
}

impl Host for AnyoneHost {
    fn facts(&self) -> HostFacts {
        HostFacts { name: "golden".into(), is_read_only: false }
    }

    fn authorise(&self, pin: Pin, credential: &[u8]) -> Result<Grant, Refusal> {
        let is_known = credential == CREDENTIAL;
        let refusal = || Refusal::new(CloseCode::Authentication, "unknown here");
        is_known
            .then(|| Grant { pin, name: "golden".into(), account: "golden".into(), may_write: true, warrant: None })
            .ok_or_else(refusal)
    }

    fn open(
        &self,
        _: &Grant,
        _: JobId,
        direction: Direction,
        open: &Open,
        options: &TransferOptions,
    ) -> Result<Opened, Refusal> {
        let refuse = |e: &dyn std::fmt::Display| Refusal::new(CloseCode::NotFound, &e.to_string());
        let root = Arc::new(beneath::open_directory(&self.root).map_err(|e| refuse(&e))?);
        if direction == Direction::ServerSends {
            let mut source = PosixSource::new();
            for path in &open.paths {
                source.add_beneath(root.as_fd(), path).map_err(|e| refuse(&e))?;
            }
            return Ok(Opened::Send { source: Arc::new(source), is_single: false, observer: None });
        }
        let names = relative_path(&open.paths[0]).map_err(|e| refuse(&e))?;
        let directory = Arc::new(beneath::make_directories(root.as_fd(), &names).map_err(|e| refuse(&e))?);
        let sink = Arc::new(PosixSink::new(root, directory, options.chmod));
        Ok(Opened::Receive { sink, rename_to: None, observer: None, file_system: "any".into(), asked: None })
    }

    fn ended(&self, _: &Grant, _: JobId, _: Direction, _: &Progress, _: &Ending) {}
}

/// An endpoint and the two identities that meet at a relay in front of it.
struct Scene {
    directory: tempfile::TempDir,
    endpoint: String,
    endpoint_pin: Pin,
    server: Arc<Server>,
    relay_identity: Identity,
    client_identity: Identity,
}

impl Scene {
    fn new() -> Scene {
        let directory = tempfile::tempdir().unwrap();
        for (path, item) in tree() {
            let path = directory.path().join("source").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            match item {
                Item::Directory => std::fs::create_dir_all(path).unwrap(),
                Item::File(content) => std::fs::write(path, content).unwrap(),
                Item::Link(target) => std::os::unix::fs::symlink(target, path).unwrap(),
            }
        }
        let identity = Identity::generate().unwrap();
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let endpoint = listener.local_addr().to_string();
        let server = Server::new(Arc::new(AnyoneHost { root: directory.path().to_owned() }), Memory::default());
        let tls = ServerTls::new(&identity).unwrap();
        let accepting = server.clone();
        // Lives as long as the test process.
        std::thread::spawn(move || {
            while let Ok(Some((tcp, _))) = listener.accept() {
                let (server, tls, arrived) = (accepting.clone(), tls.clone(), Instant::now());
                std::thread::spawn(move || {
                    let connection = net::accept_tls(tcp, &tls, Instant::now() + Duration::from_secs(10));
                    let _ = connection.map(|connection| server.serve(connection, arrived));
                });
            }
        });
        let (relay_identity, client_identity) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        Scene { directory, endpoint, endpoint_pin: identity.pin(), server, relay_identity, client_identity }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn relay(&self, cut: Option<Cut>) -> Relay {
        Relay::start(self.relay_identity.clone(), &self.endpoint, self.endpoint_pin, cut)
    }

    /// Pushes the tree through a relay.
    fn push(&self, streams: u32, cut: Option<Cut>) -> (Report, Recording) {
        let relay = self.relay(cut);
        let client = self.client(&relay, streams);
        let mut source = PosixSource::new();
        source.add_local(format!("{}/", self.path("source").display()).as_bytes()).unwrap();
        let spec = PushSpec { id: JobId([1; 16]), path: b"to/here".into(), is_single: false, options: options() };
        let report = client.push(spec, Arc::new(source), Progress::new(), None, &|| false);
        client.close();
        let recording = relay.finish();
        assert!(self.server.wait_idle(Duration::from_secs(10)));
        (report, recording)
    }

    fn client(&self, relay: &Relay, streams: u32) -> Client {
        let options = ClientOptions {
            connector: Arc::new(Direct::new(
                &relay.address,
                DialOptions::new(&self.client_identity, relay.pin).unwrap(),
            )),
            credential: CREDENTIAL.to_vec(),
            tuning: Tuning { streams: Some(streams), ..Tuning::default() },
            memory: Memory::default(),
        };
        Client::connect(options).unwrap()
    }
}

fn options() -> TransferOptions {
    TransferOptions { chunk_bytes: 1 << 20, engine: Engine::Plain, ..TransferOptions::default() }
}

/// Decodes a fresh recording after a round through its file, and keeps the file if it was asked for.
fn judge(name: &str, recording: Recording, earlier: &Outcome) -> (Vec<String>, Outcome) {
    let file = recording.to_file();
    assert_eq!(Recording::of_file(&file).unwrap(), recording);
    if std::env::var_os("THALWEG_RECORD_GOLDEN").is_some() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/golden");
        std::fs::write(golden.join(name).with_extension("twsession"), file).unwrap();
    }
    decode(&recording, earlier).unwrap_or_else(|refusal| panic!("{name}: {refusal:#?}"))
}

fn published_tree() -> BTreeMap<Vec<u8>, Published> {
    let published = |item| match item {
        Item::Directory => Published::Directory,
        Item::File(content) => Published::File(content),
        Item::Link(target) => Published::Link(target.into()),
    };
    tree().into_iter().map(|(path, item)| (path.into_bytes(), published(item))).collect()
}

fn assert_finished(report: &Report) {
    assert!(matches!(report.ending, Ending::Finished(_)), "{:?}", report.ending);
}

#[test]
fn a_push_decodes_to_the_tree_that_was_sent() {
    let (report, recording) = Scene::new().push(2, None);
    assert_finished(&report);
    let (_, outcome) = judge("push", recording, &Outcome::default());
    assert!(outcome.published == published_tree());
}

#[test]
fn a_pull_with_blake3_decodes_to_the_tree_that_was_asked_for() {
    let scene = Scene::new();
    let destination = scene.path("pulled");
    std::fs::create_dir(&destination).unwrap();
    let directory = Arc::new(beneath::open_directory(&destination).unwrap());
    let sink = Arc::new(PosixSink::new(directory.clone(), directory, None));
    let relay = scene.relay(None);
    let client = scene.client(&relay, 2);
    let spec = PullSpec {
        id: JobId([2; 16]),
        paths: vec![b"source/".to_vec()],
        options: TransferOptions { digest: DigestAlgorithm::Blake3, ..options() },
        rename_to: None,
        is_sequential: false,
    };
    let report = client.pull(spec, sink, Progress::new(), None, &|| false).unwrap();
    assert_finished(&report);
    client.close();
    let (_, outcome) = judge("pull-blake3", relay.finish(), &Outcome::default());
    assert!(outcome.published == published_tree());
}

#[test]
fn a_push_that_was_cut_off_and_resumed_decodes_to_the_tree_that_was_sent() {
    let scene = Scene::new();
    let after = |message: &Message| matches!(message, Message::Held(_));
    let cut = Cut { data_bytes_max: (1 << 20) + (1 << 18), after };
    let (report, recording) = scene.push(1, Some(cut));
    assert!(matches!(report.ending, Ending::Lost(_)), "{:?}", report.ending);
    let (_, held) = judge("push-interrupted", recording, &Outcome::default());
    assert!(!held.published.contains_key(b"big".as_slice()));
    let (report, recording) = scene.push(1, None);
    assert_finished(&report);
    let (transcript, outcome) = judge("push-resumed", recording, &held);
    let is_rest_wanted = |line: &String| line.contains("Want ") && line.contains("start=1048576 end=2621440");
    assert!(transcript.iter().any(is_rest_wanted), "{transcript:#?}");
    let mut published: BTreeMap<_, _> = held.published.into_iter().chain(outcome.published).collect();
    // A link is visible before it is settled: when the cut came in between, the second attempt finds it and skips it.
    let link = b"docs/latest".to_vec();
    assert!(scene.path("to/here/docs/latest").is_symlink());
    published.entry(link.clone()).or_insert(published_tree().remove(&link).unwrap());
    assert!(published == published_tree());
}

#[test]
fn a_hello_of_a_later_version_is_refused_with_both_ranges() {
    let scene = Scene::new();
    let relay = scene.relay(None);
    let dial = DialOptions::new(&scene.client_identity, relay.pin).unwrap();
    let mut stream = net::dial(&relay.address, &dial).unwrap().into_data();
    let hello = Hello {
        version_min: 9,
        version_max: 9,
        features: feature::ALL,
        session: vec![9; 16],
        agent: "thalweg/9".into(),
        credential: CREDENTIAL.to_vec(),
        processors: 1,
    };
    stream.send(&[&message::encode(hello)]).unwrap();
    let mut answer = Vec::new();
    let mut block = [0; 4096];
    while let bytes @ 1.. = stream.recv(&mut block).unwrap() {
        answer.extend_from_slice(&block[..bytes]);
    }
    stream.close().unwrap();
    let Some(Message::Close(Close { code, text })) = message::decode(&answer[8..]).unwrap() else {
        panic!("{answer:?}")
    };
    assert_eq!(code, CloseCode::Version as u32);
    assert!(text.contains("1 to 1") && text.contains("9 to 9"), "{text}");
    let (_, outcome) = judge("refused", relay.finish(), &Outcome::default());
    assert!(outcome == Outcome::default());
}
