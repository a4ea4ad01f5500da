//! An endpoint whose roots lie at stores carries out jobs there as everywhere: what is handed in reaches the store, and nothing else.
//! A store that stands still holds up nobody who wants to know the roots.

use daemon::endpoints::Replace;
use daemon::{ConnectOptions, EndpointBook, ServeOptions, Served, StoredRoots, connect, enrol};
use model::files::{Found, Question};
use model::order::{Kind, Role, Status};
use model::warrant::{Signed, Verbs};
use model::{JobId, Location, Name, TransferOptions, TransferSpec, Warrant};
use net::Identity;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::open::{OpenSink, OpenSource, Opener, SinkRequest};
use store::posix::beneath::open_directory;
use store::posix::{PosixSink, PosixSource};
use store::{OpenError, Stores};
use wire::Message;
use wire::message::{Order, OrderAsk};

const PATIENCE: Duration = Duration::from_secs(60);

/// A store whose objects are files below a directory.
struct Shed(PathBuf);

impl Shed {
    fn path(&self, location: &Location) -> PathBuf {
        let Location::Url { rest, .. } = location else { panic!("{location}") };
        self.0.join(std::str::from_utf8(rest).unwrap())
    }
}

impl Opener for Shed {
    fn source(&self, locations: &[Location], _: &TransferOptions) -> Result<OpenSource, OpenError> {
        let mut source = PosixSource::new();
        locations.iter().for_each(|at| source.add_local(self.path(at).as_os_str().as_encoded_bytes()).unwrap());
        Ok(OpenSource { is_single: source.is_single_object(), source: Arc::new(source) })
    }

    fn sink(&self, location: &Location, _: &SinkRequest<'_>) -> Result<OpenSink, OpenError> {
        let path = self.path(location);
        fs::create_dir_all(&path).unwrap();
        let directory = Arc::new(open_directory(&path).unwrap());
        Ok(OpenSink::new(Arc::new(PosixSink::new(directory.clone(), directory, None)), None))
    }

    fn shelf_below(&self, _: &Location, _: &[u8], _: store::How) -> Result<Box<dyn store::Shelf>, OpenError> {
        let (why, text) = (store::open::Refused::Unreachable, "nobody is asked".to_owned());
        Err(OpenError::Refused { why, text, advice: String::new() })
    }
}

fn serve(dir: &Path, name: &str, stored: StoredRoots) -> Served {
    let root = dir.join(format!("root-{name}"));
    fs::create_dir_all(&root).unwrap();
    fs::set_permissions(&root, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let mut options = ServeOptions::new("127.0.0.1:0", root, dir.join(format!("state-{name}")));
    (options.name, options.stored) = (Some(name.into()), stored);
    Served::start(options).unwrap()
}

/// Hands a job in, and waits for its end.
fn carry_out(dir: &Path, (executor, peer): (&Served, &Served), role: Role, from: &str, to: &str) -> (Status, String) {
    let client = Identity::generate().unwrap();
    let book = EndpointBook::new(dir.join(format!("book-{}", client.pin())));
    let endpoints = [executor, peer]
        .map(|served| enrol(&served.ticket(), served.name(), &client, &book, Replace::SameIdentity).unwrap().endpoint);
    let location = |text: &str| Location::parse(text.as_ref()).unwrap();
    let spec = TransferSpec::new(vec![location(from)], location(to));
    let far = if role == Role::Sends { &spec.destination } else { &spec.sources[0] };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let job = JobId(client.pin().0[..16].try_into().unwrap());
    let warrant = Warrant {
        holder: executor.pin(),
        audience: peer.pin(),
        job,
        verbs: Verbs { read: true, write: true, delete: false },
        not_before: now,
        expires: now + 600,
        id: [1; 16],
        paths: vec![far.path().to_vec()],
    };
    let signature = client.sign(&warrant.signed_bytes());
    let warrant = Signed { warrant, issuer: client.spki().try_into().unwrap(), signature }.encode();
    let order = |number| {
        Message::from(Order {
            number,
            job_id: job.0.to_vec(),
            role: role as u32,
            peer_pin: peer.pin().0.to_vec(),
            peer_name: peer.name().into(),
            addresses: vec![peer.local_addr().to_string().into_bytes()],
            warrant,
            transfer: serde_json::to_string(&spec).unwrap(),
            kind: Kind::Copy as u32,
            own_name: executor.name().into(),
        })
    };
    let session = connect(&endpoints[0], &client, &ConnectOptions::default()).unwrap();
    session.request(order, &|| false).unwrap();
    let began = Instant::now();
    loop {
        let ask = |number| OrderAsk { number, job_id: job.0.to_vec(), ..OrderAsk::default() }.into();
        let (told, _) = session.request(ask, &|| false).unwrap();
        let Some(Message::OrderNews(news)) = told.into_iter().next() else { panic!("no news") };
        let status = Status::from_number(news.status).unwrap();
        if status.is_end() || status == Status::Waiting {
            return (status, news.text);
        }
        assert!(began.elapsed() < PATIENCE, "{status}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn a_job_fetches_into_a_store_and_sends_from_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = |below: &str| dir.path().join(below);
    let roots = BTreeMap::from([(
        Name::new(b"archive").unwrap(),
        Location::Url { scheme: "s3".into(), rest: b"bkt".to_vec() },
    )]);
    let stored = StoredRoots::new(roots, Stores::default().with("s3", Arc::new(Shed(path("shed")))));
    let (plain, store) = (serve(dir.path(), "plain", StoredRoots::default()), serve(dir.path(), "store", stored));
    fs::create_dir_all(path("root-plain/x")).unwrap();
    fs::write(path("root-plain/x/f"), "content").unwrap();

    let fetched = carry_out(dir.path(), (&store, &plain), Role::Fetches, "plain:x/", "store:archive/y/");
    assert_eq!(fetched, (Status::Succeeded, String::new()));
    assert_eq!(fs::read_to_string(path("shed/bkt/y/f")).unwrap(), "content");
    assert_eq!(fs::read_dir(path("root-store")).unwrap().count(), 0, "it went to the empty directory");

    let sent = carry_out(dir.path(), (&store, &plain), Role::Sends, "store:archive/y/", "plain:z/");
    assert_eq!(sent, (Status::Succeeded, String::new()));
    assert_eq!(fs::read_to_string(path("root-plain/z/f")).unwrap(), "content");
}

/// A store whose bucket `still` stands still from a moment on, which ends with this process.
struct Halting {
    shown: PathBuf,
    is_still: AtomicBool,
    asked: AtomicUsize,
}

impl Opener for Halting {
    fn source(&self, _: &[Location], _: &TransferOptions) -> Result<OpenSource, OpenError> {
        Err(OpenError::Nameless)
    }

    fn sink(&self, _: &Location, _: &SinkRequest<'_>) -> Result<OpenSink, OpenError> {
        Err(OpenError::Nameless)
    }

    fn shelf_below(&self, base: &Location, _: &[u8], how: store::How) -> Result<Box<dyn store::Shelf>, OpenError> {
        self.asked.fetch_add(1, Relaxed);
        if base.path().starts_with(b"still") && self.is_still.load(Relaxed) {
            loop {
                std::thread::park();
            }
        }
        let shown = self.shown.as_os_str().as_encoded_bytes();
        store::here(shown, how).map_err(|error| OpenError::Source { path: shown.to_vec(), error })
    }
}

#[test]
fn roots_are_listed_within_seconds_while_the_store_of_one_stands_still_and_it_holds_one_thread() {
    let dir = tempfile::tempdir().unwrap();
    let shown = dir.path().join("shown");
    fs::create_dir(&shown).unwrap();
    let halting = Arc::new(Halting { shown, is_still: AtomicBool::new(false), asked: AtomicUsize::new(0) });
    let root = |name: &str| {
        let rest = name.as_bytes().to_vec();
        (Name::new(&rest).unwrap(), Location::Url { scheme: "s3".into(), rest })
    };
    let roots = BTreeMap::from([root("still"), root("there")]);
    let served = serve(dir.path(), "store", StoredRoots::new(roots, Stores::default().with("s3", halting.clone())));
    let client = Identity::generate().unwrap();
    let book = EndpointBook::new(dir.path().join("book"));
    let endpoint = enrol(&served.ticket(), served.name(), &client, &book, Replace::SameIdentity).unwrap().endpoint;
    let session = connect(&endpoint, &client, &ConnectOptions::default()).unwrap();
    halting.is_still.store(true, Relaxed);
    // Both were asked at the start; the one that does not answer is asked once more.
    for asked in [4, 5] {
        let (began, mut told) = (Instant::now(), Vec::new());
        let question = Question::List { paths: vec![Vec::new()], levels: 1, digest: None };
        let answered = session.ask(&question, &|| false, &mut |record| {
            let failed = match record.found {
                Found::Failed { text, .. } => text,
                _ => String::new(),
            };
            told.push((String::from_utf8(record.path).unwrap(), failed));
            true
        });
        assert_eq!(answered.map(|tally| (tally.directories, tally.failed)).ok(), Some((2, 1)));
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        let [(top, _), (still, why), (there, _)] = &told[..] else { panic!("{told:?}") };
        assert_eq!([&top[..], &still[..], &there[..]], ["", "still", "there"]);
        assert!(why.contains("the endpoint's store does not answer"), "{told:?}");
        assert_eq!(halting.asked.load(Relaxed), asked);
    }
}
