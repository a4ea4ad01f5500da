//! An endpoint and its clients over loopback TCP and TLS: enrolment, both directions, and everything that is refused.

use daemon::endpoints::Replace;
use daemon::{ConnectOptions, Endpoint, EndpointBook, ServeOptions, Served, Ticket, connect, enrol};
use model::{Choice, Exit, Failure, Name, TransferOptions};
use mover::session::{Client, PullSpec, PushSpec};
use mover::{Delivered, Ending, Observer, Progress, Report};
use net::Identity;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::posix::{PosixSink, PosixSource, beneath};
use tempfile::TempDir;
use transfer::job_id;

const PATIENCE: Duration = Duration::from_secs(10);

/// Directories of one test: what is served, the endpoint's state, the client's files.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        for name in ["root", "client"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Place { dir }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn options(&self) -> ServeOptions {
        let mut options = ServeOptions::new("127.0.0.1:0", self.path("root"), self.path("state"));
        options.name = Some("lab".into());
        options.ticket_file = Some(self.path("ticket"));
        options
    }

    fn serve(&self) -> Served {
        Served::start(self.options()).unwrap()
    }

    fn book(&self) -> EndpointBook {
        EndpointBook::new(self.path("client/endpoints"))
    }

    fn identity(&self) -> Identity {
        Identity::load_or_create(&self.path("client/identity.key")).unwrap()
    }

    /// Enrols the client with the ticket that the endpoint wrote.
    fn enrol(&self) -> Endpoint {
        let text = fs::read_to_string(self.path("ticket")).unwrap();
        let ticket = Ticket::parse(&text).unwrap();
        enrol(&ticket, "lab", &self.identity(), &self.book(), Replace::SameIdentity).unwrap().endpoint
    }

    fn client(&self) -> Client {
        connect(&self.book().get("lab").unwrap(), &self.identity(), &ConnectOptions::default()).unwrap()
    }

    fn push(&self, from: &Path, to: &[u8]) -> (Report, Arc<Failures>) {
        let mut source = PosixSource::new();
        source.add_local(from.as_os_str().as_encoded_bytes()).unwrap();
        let is_single = source.is_single_object();
        let options = TransferOptions::default();
        let id =
            job_id(self.identity().pin(), &[from.as_os_str().as_encoded_bytes()], to, &Choice::default(), &options);
        let spec = PushSpec { id, path: to.to_vec(), is_single, options };
        let client = self.client();
        let failures = Arc::new(Failures::default());
        let report = client.push(spec, Arc::new(source), Progress::new(), Some(failures.clone()), &|| false);
        client.close();
        (report, failures)
    }

    fn pull(&self, from: &[u8], to: &Path) -> (Report, Arc<Failures>) {
        fs::create_dir_all(to).unwrap();
        let to = Arc::new(beneath::open_directory(to).unwrap());
        let options = TransferOptions::default();
        let id = job_id(self.identity().pin(), &[from], "pulled", &Choice::default(), &options);
        let sink = Arc::new(PosixSink::new(to.clone(), to, None));
        let spec = PullSpec { id, paths: vec![from.to_vec()], options, rename_to: None, is_sequential: false };
        let client = self.client();
        let failures = Arc::new(Failures::default());
        let report = client.pull(spec, sink, Progress::new(), Some(failures.clone()), &|| false).unwrap();
        client.close();
        (report, failures)
    }
}

/// Keeps what failed, for the message of a failing test.
#[derive(Default)]
struct Failures(Mutex<Vec<Failure>>);

impl Observer for Failures {
    fn wants_delivered(&self) -> bool {
        false
    }

    fn delivered(&self, _: &[Delivered]) {}

    fn failed(&self, failure: &Failure) {
        self.0.lock().unwrap().push(failure.clone());
    }
}

fn finished((report, failures): &(Report, Arc<Failures>)) {
    assert!(matches!(report.ending, Ending::Finished(_)), "{}", report.ending);
    assert_eq!(*failures.0.lock().unwrap(), []);
    assert_eq!(report.snapshot.counts.files_failed, 0);
}

/// The refusal's text as the other side shows it, and the exit code it leads to.
fn refused((report, _): &(Report, Arc<Failures>)) -> (String, Exit) {
    let Ending::Cancelled { refusal, .. } = &report.ending else { panic!("{}", report.ending) };
    (refusal.to_string(), daemon::Error::from_refusal("lab", refusal).exit)
}

fn plant(at: &Path) {
    fs::create_dir_all(at.join("sub/empty")).unwrap();
    for n in 0..50 {
        fs::write(at.join(format!("sub/{n}")), format!("file {n}")).unwrap();
    }
    fs::write(at.join("large"), vec![7; 3 << 20]).unwrap();
    symlink("sub/1", at.join("link")).unwrap();
}

/// Every file, directory and link below a directory, with its content.
fn tree(at: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut pending = vec![at.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            let content = match kind {
                _ if kind.is_symlink() => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                _ if kind.is_dir() => b"directory".to_vec(),
                _ => fs::read(&path).unwrap(),
            };
            if kind.is_dir() {
                pending.push(path.clone());
            }
            found.push((path.strip_prefix(at).unwrap().to_owned(), content));
        }
    }
    found.sort();
    found
}

#[test]
fn a_client_enrols_once_then_pushes_and_pulls() {
    let place = Place::new();
    let served = place.serve();
    let endpoint = place.enrol();
    assert_eq!(endpoint.pin, served.pin());
    assert_eq!(endpoint.addresses, [served.local_addr().to_string()]);
    assert_eq!(fs::metadata(place.path("ticket")).unwrap().mode() & 0o7777, 0o600);
    plant(&place.path("source"));
    finished(&place.push(&place.path("source"), b"in/put"));
    finished(&place.pull(b"in/put/source", &place.path("back")));
    assert_eq!(tree(&place.path("back/source")), tree(&place.path("source")));
    assert_eq!(tree(&place.path("root/in/put/source")), tree(&place.path("source")));
    assert!(served.shut_down(PATIENCE));
    assert_eq!(place.path("root").read_dir().unwrap().count(), 1, "no staging is left");

    // The credential is needed once; identity and enrolment survive a restart, the port need not.
    let mut options = place.options();
    options.listen = endpoint.addresses[0].clone();
    let served = Served::start(options).unwrap();
    finished(&place.pull(b"in/put/source/sub/", &place.path("again")));
    assert_eq!(tree(&place.path("again")), tree(&place.path("source/sub")));
    assert!(served.shut_down(PATIENCE));
}

#[test]
fn a_single_file_gets_a_new_name_or_goes_into_a_directory() {
    let place = Place::new();
    let _served = place.serve();
    place.enrol();
    fs::write(place.path("one"), "1").unwrap();
    fs::create_dir(place.path("root/dir")).unwrap();
    fs::write(place.path("root/file"), "in the way").unwrap();
    for (to, lands) in [
        (&b"renamed"[..], "renamed"),
        (b"new/deep/name", "new/deep/name"),
        (b"dir", "dir/one"),
        (b"fresh/", "fresh/one"),
        (b"dir/.", "dir/one"),
        (b"", "one"),
        (b"file", "file"),
    ] {
        finished(&place.push(&place.path("one"), to));
        assert_eq!(fs::read(place.path("root").join(lands)).unwrap(), b"1", "{lands}");
    }
    let (why, exit) = refused(&place.push(&place.path("one"), b"file/below"));
    assert!(why.contains("file/below") && why.contains("stands where a directory is needed"), "{why}");
    assert_eq!(exit, Exit::Refused);
}

#[test]
fn what_is_not_a_valid_ticket_lets_nobody_in() {
    let place = Place::new();
    let served = place.serve();
    let attempt = |ticket: &Ticket| enrol(ticket, "x", &place.identity(), &place.book(), Replace::SameIdentity);
    let mut ticket = served.ticket();
    ticket.credential[0] ^= 1;
    let wrong = attempt(&ticket).unwrap_err();
    assert_eq!(wrong.exit, Exit::Authentication);
    assert!(wrong.hint.is_some() && wrong.message.contains("not enrolled"), "{wrong}");

    let mut ticket = served.ticket();
    ticket.pin.0[0] ^= 1;
    assert_eq!(attempt(&ticket).unwrap_err().exit, Exit::Authentication);

    let mut ticket = served.ticket();
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    ticket.addresses = vec![unused.to_string()];
    let error = attempt(&ticket).unwrap_err();
    assert_eq!(error.exit, Exit::Unreachable);
    assert!(error.hint.is_some());

    assert_eq!(place.book().list().unwrap(), []);
    assert!(place.path("state/clients").read_dir().unwrap().next().is_none());

    // A dead first address is no reason to fail.
    ticket.addresses.extend(served.ticket().addresses);
    let enrolled = attempt(&ticket).unwrap();
    assert_eq!(enrolled.address, served.local_addr().to_string());
    assert_eq!(enrolled.endpoint.addresses[0], enrolled.address);
}

#[test]
fn a_client_that_was_removed_is_refused() {
    let place = Place::new();
    let _served = place.serve();
    place.enrol();
    place.client().welcome().unwrap();
    for file in place.path("state/clients").read_dir().unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    let error = place.client().welcome().err().unwrap();
    assert_eq!(daemon::Error::from_connect("lab", &error).exit, Exit::Authentication);
}

#[test]
fn paths_that_leave_the_root_are_refused_and_nothing_is_touched() {
    let place = Place::new();
    let _served = place.serve();
    place.enrol();
    plant(&place.path("source"));
    fs::create_dir(place.path("outside")).unwrap();
    fs::write(place.path("outside/secret"), "secret").unwrap();
    symlink("../outside", place.path("root/climbs")).unwrap();
    symlink(place.path("outside"), place.path("root/absolute")).unwrap();
    symlink("loop", place.path("root/loop")).unwrap();
    let outside = tree(&place.path("outside"));
    let root = tree(&place.path("root"));
    let long = [b"d/".repeat(2000), b"x".repeat(300)].concat();
    for path in [
        &b"../outside"[..],
        b"a/../../outside",
        b"/etc",
        b"//etc",
        b"climbs/in",
        b"absolute/in",
        b"climbs/secret",
        b"loop/in",
        b"nul\0byte",
        b".thalweg-staging-0/x",
        &long,
    ] {
        let shown = String::from_utf8_lossy(&path[..path.len().min(40)]);
        for report in [place.push(&place.path("source"), path), place.pull(path, &place.path("pulled"))] {
            let (why, _) = refused(&report);
            let server_path = place.dir.path().to_str().unwrap();
            assert!(!why.contains(server_path), "{shown}: {why}");
        }
        assert_eq!(tree(&place.path("outside")), outside, "{shown}");
        assert_eq!(tree(&place.path("root")), root, "{shown}");
    }
    assert_eq!(tree(&place.path("pulled")), []);
    let (why, exit) = refused(&place.push(&place.path("source"), b"../outside"));
    assert!(why.contains("relative to the endpoint's root"), "{why}");
    assert_eq!(exit, Exit::Refused);
    let (why, _) = refused(&place.push(&place.path("source"), b"climbs/in"));
    assert!(why.contains("outside the endpoint's root"), "{why}");
}

#[test]
fn what_is_not_there_is_told_by_the_clients_name_for_it() {
    let place = Place::new();
    let _served = place.serve();
    place.enrol();
    let (why, exit) = refused(&place.pull(b"no/such", &place.path("pulled")));
    assert_eq!((why.as_str(), exit), ("no/such: no such file or directory", Exit::SourceFileNotFound));
}

#[test]
fn a_read_only_endpoint_gives_and_takes_nothing() {
    let place = Place::new();
    plant(&place.path("root/data"));
    let mut options = place.options();
    options.read_only = true;
    let _served = Served::start(options).unwrap();
    place.enrol();
    assert!(place.client().welcome().unwrap().is_read_only);
    let before = tree(&place.path("root"));
    let (why, exit) = refused(&place.push(&place.path("root/data"), b"new"));
    assert!(why.contains("read-only"), "{why}");
    assert_eq!(exit, Exit::Refused);
    assert_eq!(tree(&place.path("root")), before);
    finished(&place.pull(b"data", &place.path("pulled")));
    assert_eq!(tree(&place.path("pulled/data")), tree(&place.path("root/data")));
}

#[test]
fn one_state_directory_serves_one_endpoint() {
    let place = Place::new();
    let served = place.serve();
    let ticket = fs::read(place.path("ticket")).unwrap();
    let second = Served::start(place.options()).err().unwrap();
    assert!(second.message.contains(&format!("process {}", std::process::id())), "{second}");
    assert_eq!(fs::read(place.path("ticket")).unwrap(), ticket, "the running endpoint's ticket is left alone");
    assert!(served.shut_down(PATIENCE));
    assert!(place.serve().shut_down(PATIENCE));
}

#[test]
fn roots_that_overlap_the_endpoints_own_files_are_refused() {
    let place = Place::new();
    symlink(place.path("root"), place.path("alias")).unwrap();
    type Change = fn(&Place, &mut ServeOptions);
    let changes: [Change; 5] = [
        |place, options| options.root = place.dir.path().to_owned(),
        |place, options| options.state_dir = place.path("root/state"),
        |place, options| options.state_dir = place.path("alias/state"),
        |place, options| options.ticket_file = Some(place.path("root/ticket")),
        |place, options| options.transfer_log = Some(place.path("alias/log")),
    ];
    for change in changes {
        let mut options = place.options();
        change(&place, &mut options);
        let error = Served::start(options).err().unwrap();
        assert_eq!(error.exit, Exit::Refused, "{error}");
        assert!(error.hint.is_some() && !place.path("ticket").exists());
        assert_eq!(place.path("root").read_dir().unwrap().count(), 0, "nothing was made in the root");
    }
}

#[test]
fn starting_fails_with_a_reason_and_leaves_no_ticket() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    type Change = Box<dyn Fn(&mut ServeOptions)>;
    let changes: [(Change, &str); 5] = [
        (Box::new(move |o| o.listen = taken.local_addr().unwrap().to_string()), "in use"),
        (Box::new(|o| o.listen = "nonsense".into()), "HOST:PORT"),
        (Box::new(|o| o.root = "/nonexistent".into()), "/nonexistent"),
        (Box::new(|o| o.congestion = Some("nonsense".into())), "nonsense"),
        (Box::new(|o| o.advertise = vec!["a b".into()]), "a b"),
    ];
    for (change, expected) in changes {
        let mut options = place.options();
        change(&mut options);
        let error = Served::start(options).err().unwrap();
        assert!(error.message.contains(expected), "{error:?}");
        assert!(!place.path("ticket").exists());
    }
}

#[test]
fn both_families_are_served_by_one_listener() {
    let place = Place::new();
    let mut options = place.options();
    options.listen = "[::]:0".into();
    let served = Served::start(options).unwrap();
    let port = served.local_addr().port();
    assert!(served.ticket().addresses.iter().all(|address| address.ends_with(&format!(":{port}"))));
    for (name, address) in [("four", format!("127.0.0.1:{port}")), ("six", format!("[::1]:{port}"))] {
        let ticket = Ticket { addresses: vec![address], ..served.ticket() };
        enrol(&ticket, name, &place.identity(), &place.book(), Replace::SameIdentity).unwrap();
    }
}

#[test]
fn one_ticket_enrols_many_clients_which_push_and_pull_at_once() {
    let place = Place::new();
    let served = place.serve();
    plant(&place.path("root/shared"));
    let shared = tree(&place.path("root/shared"));
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (place, served, shared) = (&place, &served, &shared);
            scope.spawn(move || {
                let own = Place { dir: tempfile::tempdir().unwrap() };
                fs::create_dir(own.path("client")).unwrap();
                fs::write(own.path("ticket"), served.ticket().to_text()).unwrap();
                own.enrol();
                plant(&own.path("mine"));
                let to = format!("from-{n}");
                std::thread::scope(|scope| {
                    scope.spawn(|| finished(&own.push(&own.path("mine/"), to.as_bytes())));
                    finished(&own.pull(b"shared", &own.path("got")));
                });
                assert_eq!(tree(&own.path("got/shared")), *shared);
                assert_eq!(tree(&place.path("root").join(&to)), *shared);
            });
        }
    });
    assert_eq!(place.path("state/clients").read_dir().unwrap().count(), 4);
    assert!(served.shut_down(PATIENCE));
}

#[test]
fn strangers_that_send_rubbish_or_nothing_do_not_keep_clients_out() {
    let place = Place::new();
    let served = place.serve();
    place.enrol();
    let mut strangers: Vec<_> = (0..100).map(|_| TcpStream::connect(served.local_addr()).unwrap()).collect();
    for (n, stranger) in strangers.iter_mut().enumerate() {
        // Broken off already is as good.
        let _ = stranger.write_all(&[n as u8; 64][..n % 64]);
    }
    plant(&place.path("source"));
    finished(&place.push(&place.path("source"), b"in"));
    drop(strangers);
    assert!(served.shut_down(PATIENCE));
}

#[test]
fn the_log_tells_what_went_through_and_holds_no_secret() {
    let place = Place::new();
    plant(&place.path("source"));
    fs::write(place.path("source/sub/new\nline"), "x").unwrap();
    let huge = fs::File::create(place.path("source/huge")).unwrap();
    huge.set_len(64 << 20).unwrap();
    fs::write(place.path("source/unreadable"), "x").unwrap();
    let served = place.serve();
    place.enrol();
    finished(&place.push(&place.path("source"), b"in"));
    finished(&place.pull(b"in/source/sub", &place.path("back")));
    refused(&place.push(&place.path("source"), b"../x"));
    let ticket = served.ticket();
    assert!(served.shut_down(PATIENCE));

    let log = fs::read_to_string(place.path("state/transfers.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |event: &str, direction: &str| -> Vec<_> {
        lines.iter().filter(|line| line["event"] == event && line["direction"] == direction).collect()
    };
    let pushed = of("job", "in");
    assert_eq!(pushed.len(), 1);
    assert_eq!((&pushed[0]["outcome"], &pushed[0]["failed"]), (&"succeeded".into(), &0.into()));
    let files = of("file", "in");
    assert_eq!((files.len(), &files[0]["path"], &files[0]["bytes"]), (1, &"source/huge".into(), &(64 << 20).into()));
    assert!(files[0]["digest"].as_str().unwrap().starts_with("crc64nvme:"));
    let sum = |lines: &[&serde_json::Value], field: &str| lines.iter().map(|l| l[field].as_u64().unwrap()).sum::<u64>();
    let bundled = sum(&of("bundle", "in"), "files");
    // The large file and the link are in no bundle.
    assert_eq!(bundled + 2, pushed[0]["files"].as_u64().unwrap());
    assert_eq!(of("job", "out")[0]["files"], 51);
    assert_eq!(sum(&of("bundle", "out"), "files"), 51);
    let client = place.identity().pin().to_string();
    assert!(lines.iter().all(|line| line["pin"] == client.as_str() && line["v"] == 1));
    assert!(lines[0]["client"].as_str().unwrap().ends_with("@127.0.0.1"), "{}", lines[0]);

    let key = fs::read(place.path("state/identity.key")).unwrap();
    let secrets = [&ticket.credential[..], &key, &key[16..48]];
    for file in ["transfers.jsonl", "ledger.db", "lock"] {
        let content = fs::read(place.path("state").join(file)).unwrap();
        for secret in secrets {
            for form in forms(secret) {
                assert!(!content.windows(form.len()).any(|window| window == form), "{file} holds a secret");
            }
        }
    }
    for entry in fs::read_dir(place.path("state")).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o077, 0, "{}", path.display());
    }
}

/// The ways in which a secret could have been written.
fn forms(secret: &[u8]) -> Vec<Vec<u8>> {
    use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER, HEXUPPER};
    let texts = [HEXLOWER, HEXUPPER, BASE64, BASE64_NOPAD, BASE64URL_NOPAD].map(|encoding| encoding.encode(secret));
    let mut forms: Vec<Vec<u8>> = texts.into_iter().map(String::into_bytes).collect();
    forms.push(secret.to_vec());
    forms
}

#[test]
fn jobs_are_in_the_ledger_with_their_counts() {
    use ledger::{JobFilter, Reader, Role, State};
    let place = Place::new();
    plant(&place.path("source"));
    let served = place.serve();
    place.enrol();
    finished(&place.push(&place.path("source"), b"in"));
    finished(&place.push(&place.path("source"), b"in"));
    finished(&place.pull(b"in/source", &place.path("back")));
    assert!(served.shut_down(PATIENCE));
    let mut jobs = Reader::open(&place.path("state/ledger.db")).unwrap().jobs(&JobFilter::default()).unwrap();
    jobs.sort_by_key(|job| job.key.role.name());
    let facts: Vec<_> = jobs.iter().map(|j| (j.key.role, j.state, j.attempts, j.counts.files_failed)).collect();
    let log = fs::read_to_string(place.path("state/transfers.jsonl")).unwrap();
    assert_eq!(facts, [(Role::Receiver, State::Succeeded, 2, 0), (Role::Sender, State::Succeeded, 1, 0)], "{log}");
    assert_eq!(jobs[0].counts.files_skipped, 52);
    assert!(jobs.iter().all(|job| job.key.peer == place.identity().pin().to_string()));
    assert_eq!(jobs[0].destination, "lab:in");
}

#[test]
fn a_flag_stops_the_endpoint_and_clients_hear_of_it() {
    let place = Place::new();
    let served = place.serve();
    place.enrol();
    let client = place.client();
    client.welcome().unwrap();
    let stop = AtomicBool::new(true);
    assert!(served.run_until(&stop, PATIENCE).unwrap());
    let mut source = PosixSource::new();
    source.add_local(place.path("client/").as_os_str().as_encoded_bytes()).unwrap();
    let options = TransferOptions::default();
    let id = job_id(place.identity().pin(), &["x"], "y", &Choice::default(), &options);
    let spec = PushSpec { id, path: b"in".to_vec(), is_single: false, options };
    let report = client.push(spec, Arc::new(source), Progress::new(), None, &|| false);
    assert!(!matches!(report.ending, Ending::Finished(_)), "{}", report.ending);
}

#[test]
fn a_pulled_file_can_get_a_new_name() {
    let place = Place::new();
    let _served = place.serve();
    place.enrol();
    fs::write(place.path("root/a"), "content").unwrap();
    fs::create_dir(place.path("to")).unwrap();
    let to = Arc::new(beneath::open_directory(&place.path("to")).unwrap());
    let options = TransferOptions::default();
    let spec = PullSpec {
        id: job_id(place.identity().pin(), &["a"], "b", &Choice::default(), &options),
        paths: vec![b"a".to_vec()],
        options,
        rename_to: Some(Name::new(b"b").unwrap()),
        is_sequential: false,
    };
    let sink = Arc::new(PosixSink::new(to.clone(), to, None));
    let client = place.client();
    let failures = Arc::new(Failures::default());
    let report = client.pull(spec, sink, Progress::new(), Some(failures.clone()), &|| false).unwrap();
    finished(&(report, failures));
    assert_eq!(fs::read(place.path("to/b")).unwrap(), b"content");
}
