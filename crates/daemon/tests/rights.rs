//! Every cell of docs/rights.md against a real endpoint, and what a client that may only write can find out.

use daemon::endpoints::Replace;
use daemon::limited::{Limits, scope_of};
use daemon::rights::Deed;
use daemon::{ConnectOptions, EndpointBook, Issue, ServeOptions, Served, Ticket, connect, enrol};
use model::files::{ALL_LEVELS, Doomed, Question, SumAlgorithm};
use model::options::{Compare, Deletion};
use model::order::{self, Role};
use model::warrant::{Signed, Verbs};
use model::{DigestAlgorithm, Fidelity, JobId, Location, Pin, TransferOptions, TransferSpec, Warrant};
use mover::session::{AskError, Client, PullSpec, PushSpec};
use mover::{Ending, Progress, Report};
use net::Identity;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};
use store::posix::PosixSource;
use store::synthetic::NullSink;
use tempfile::TempDir;
use wire::message::Order;
use wire::{CloseCode, Message, Refusal};

struct Place {
    dir: TempDir,
    served: Served,
    jobs: AtomicU32,
}

/// What a ticket grants, and the session of whoever has it.
struct Holder {
    name: &'static str,
    may_read: bool,
    may_write: bool,
    is_limited: bool,
    identity: Identity,
    client: Client,
}

impl Place {
    fn new(read_only: bool) -> Place {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        let mut options = ServeOptions::new("127.0.0.1:0", dir.path().join("root"), dir.path().join("state"));
        options.name = Some("lab".into());
        options.ticket_file = Some(dir.path().join("ticket"));
        options.read_only = read_only;
        let served = Served::start(options).unwrap();
        let place = Place { dir, served, jobs: AtomicU32::new(0) };
        for path in ["mine/report", "mine/new", "mine/sub/deep"] {
            place.write(path, "mine, and longer");
        }
        place
    }

    fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(below)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn holder(&self, name: &'static str, (may_read, may_write): (bool, bool), scope: Option<&str>) -> Holder {
        let ticket = match (may_read && may_write, scope) {
            (true, None) => Ticket::parse(&fs::read_to_string(self.path("ticket")).unwrap()).unwrap(),
            _ => {
                let scope = scope_of(scope.unwrap_or("").as_bytes()).unwrap_or_default();
                let limits = Limits {
                    scope,
                    may_read,
                    may_write,
                    expires: None,
                    uses_max: None,
                    class_max: model::Class::High,
                    may_manage: false,
                };
                Issue::new(self.path("state")).create(limits).unwrap().1
            }
        };
        let home = self.path(format!("home-{name}"));
        fs::create_dir(&home).unwrap();
        let identity = Identity::load_or_create(&home.join("key")).unwrap();
        let book = EndpointBook::new(home.join("endpoints"));
        let endpoint = enrol(&ticket, "lab", &identity, &book, Replace::SameIdentity).unwrap().endpoint;
        let client = connect(&endpoint, &identity, &ConnectOptions::default()).unwrap();
        Holder { name, may_read, may_write, is_limited: scope.is_some(), identity, client }
    }

    fn job(&self) -> JobId {
        let mut id = [7; 16];
        id[..4].copy_from_slice(&self.jobs.fetch_add(1, Relaxed).to_be_bytes());
        JobId::from_slice(&id).unwrap()
    }

    fn push(&self, client: &Client, id: JobId, from: &str, to: &str, options: TransferOptions) -> Report {
        let mut source = PosixSource::new();
        source.add_local(self.path(from).as_os_str().as_encoded_bytes()).unwrap();
        let is_single = source.is_single_object();
        let spec = PushSpec { id, path: to.as_bytes().to_vec(), is_single, options };
        client.push(spec, Arc::new(source), Progress::new(), None, &|| false)
    }

    /// Does what the deed says in the directory `at`, or beside it where it has no place of its own.
    fn attempt(&self, client: &Client, deed: Deed, at: &str) -> Result<(), Refusal> {
        let below = |name: &str| format!("{at}/{name}").into_bytes();
        let sent = |to: &str, options| ended(&self.push(client, self.job(), "mine/", to, options));
        let pulled = |path: Vec<u8>| {
            let options = TransferOptions::default();
            let spec = PullSpec { id: self.job(), paths: vec![path], options, rename_to: None, is_sequential: false };
            ended(&client.pull(spec, Arc::new(NullSink), Progress::new(), None, &|| false).unwrap())
        };
        let asked = |question: Question| match client.ask(&question, &|| false, &mut |_| true) {
            Ok(_) => Ok(()),
            Err(AskError::Refused(refusal)) => Err(refusal),
            Err(e) => panic!("{deed:?} {at}: {e}"),
        };
        let list = |digest| Question::List { paths: vec![at.into()], levels: ALL_LEVELS, digest };
        match deed {
            Deed::Fetch => pulled(below("report")),
            Deed::FetchGenerated => pulled(b"gen:1x1".to_vec()),
            Deed::List => asked(list(None)),
            Deed::Digest => asked(list(Some(SumAlgorithm::Md5))),
            Deed::Sum => asked(Question::Usage { paths: vec![at.into()], levels: 1 }),
            Deed::Send => sent(at, TransferOptions::default()),
            Deed::Forget => sent("null:", TransferOptions::default()),
            Deed::MakeDirectory => asked(Question::Make { paths: vec![below("made")], with_parents: false }),
            Deed::Remove => {
                let objects = vec![Doomed { path: below("report"), version: None }];
                asked(Question::Remove { objects, is_recursive: false, may_be_directory: false })
            }
            Deed::Rename => asked(Question::Rename { from: below("report"), to: below("other"), may_replace: false }),
            of_options => sent(at, options_of(of_options)),
        }
    }

    /// The same, as a job that is handed in: this endpoint sends from `at` or fetches into it.
    fn hand_in(&self, holder: &Holder, deed: Deed, at: &str) -> Result<(), Refusal> {
        let (job, peer) = (self.job(), Pin([3; 32]));
        let location = |name: &str, path: String| Location::Named { name: name.into(), path: path.into() };
        let role = if deed == Deed::Fetch { Role::Sends } else { Role::Fetches };
        let (own, other) = (location("lab", format!("{at}/report")), location("other", "x".into()));
        let spec = match role {
            Role::Sends => TransferSpec::new(vec![own], other),
            Role::Fetches => {
                TransferSpec { options: options_of(deed), ..TransferSpec::new(vec![other], location("lab", at.into())) }
            }
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let warrant = Warrant {
            holder: self.served.pin(),
            audience: peer,
            job,
            verbs: Verbs { read: true, write: true, delete: true },
            not_before: now,
            expires: now + 600,
            id: job.0,
            paths: vec![b"x".to_vec()],
        };
        let signature = holder.identity.sign(&warrant.signed_bytes());
        let issuer = holder.identity.spki().try_into().unwrap();
        let order = |number| {
            Message::from(Order {
                number,
                job_id: job.0.to_vec(),
                role: role as u32,
                peer_pin: peer.0.to_vec(),
                peer_name: "other".into(),
                addresses: vec![b"127.0.0.1:1".to_vec()],
                warrant: Signed { warrant, issuer, signature }.encode(),
                transfer: serde_json::to_string(&spec).unwrap(),
                kind: order::Kind::Copy as u32,
                own_name: "lab".into(),
            })
        };
        match holder.client.request(order, &|| false) {
            Ok(_) => Ok(()),
            Err(AskError::Refused(refusal)) => Err(refusal),
            Err(e) => panic!("{deed:?} {at}: {e}"),
        }
    }
}

/// Those that come to sending with a deed.
fn options_of(deed: Deed) -> TransferOptions {
    let with = |change: &dyn Fn(&mut TransferOptions)| {
        let mut options = TransferOptions::default();
        change(&mut options);
        options
    };
    match deed {
        Deed::KeepAttributes => with(&|o| o.fidelity = Fidelity { mode: true, ..Fidelity::default() }),
        Deed::DryRun => with(&|o| o.is_dry_run = true),
        Deed::TellChanges => with(&|o| o.tells_changes = true),
        Deed::Delete => with(&|o| o.deletion = Some(Deletion { is_at_root: true, removals_max: None })),
        Deed::Backup => with(&|o| o.backup = Some(b"old".to_vec())),
        Deed::CompareExists => with(&|o| o.compare = Compare::Exists),
        Deed::CompareSize => with(&|o| o.compare = Compare::Size),
        Deed::CompareChecksum => with(&|o| o.compare = Compare::Checksum),
        Deed::KeepNewer => with(&|o| o.keeps_newer = true),
        Deed::OnlyExisting => with(&|o| o.only_existing = true),
        Deed::NoClobber => with(&|o| o.no_clobber = true),
        Deed::Delta => with(&|o| {
            o.is_delta = true;
            o.digest = DigestAlgorithm::Blake3;
        }),
        Deed::HardLinks => with(&|o| o.fidelity = Fidelity { hard_links: true, ..Fidelity::default() }),
        Deed::Show => with(&|o| o.view = Some(Arc::default())),
        _ => TransferOptions::default(),
    }
}

fn ended(report: &Report) -> Result<(), Refusal> {
    match &report.ending {
        Ending::Finished(_) => Ok(()),
        Ending::Cancelled { by_peer: true, refusal } => Err(refusal.clone()),
        other => panic!("{other}"),
    }
}

/// Every path below a directory, and the text of files.
fn tree(root: &Path) -> BTreeMap<PathBuf, Option<String>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            if entry.file_name().as_encoded_bytes().starts_with(b".thalweg-staging-") {
                continue;
            }
            let is_file = entry.file_type().unwrap().is_file();
            found.insert(path.clone(), is_file.then(|| fs::read_to_string(&path).unwrap()));
            if entry.file_type().unwrap().is_dir() {
                pending.push(path);
            }
        }
    }
    found
}

#[test]
fn every_cell_of_the_matrix_holds_at_a_real_endpoint() {
    let (mut cells, mut refusals) = (0, 0);
    for is_read_only in [false, true] {
        let place = Place::new(is_read_only);
        let holders = [
            place.holder("unlimited", (true, true), None),
            place.holder("limited", (true, true), Some("in")),
            place.holder("reader", (true, false), None),
            place.holder("limited-reader", (true, false), Some("in")),
            place.holder("writer", (false, true), None),
            place.holder("limited-writer", (false, true), Some("in")),
        ];
        for holder in &holders {
            for deed in Deed::ALL {
                for above in ["in", "out"] {
                    let at = format!("{above}/{}-{deed:?}", holder.name);
                    place.write(&format!("root/{at}/report"), "others'");
                    place.write(&format!("root/{at}/sub/theirs"), "others'");
                    let before = tree(&place.path("root").join(&at));
                    let needs = deed.needs();
                    let has_place = !matches!(deed, Deed::FetchGenerated | Deed::Forget);
                    let is_allowed = (holder.may_read || !needs.read)
                        && (holder.may_write && !is_read_only || !needs.write)
                        && (above == "in" || !holder.is_limited || !has_place);
                    let found = place.attempt(&holder.client, deed, &at);
                    let cell = format!("{deed:?} by {} in {at}, read-only {is_read_only}: {found:?}", holder.name);
                    cells += 1;
                    match found {
                        Ok(()) => assert!(is_allowed, "{cell}"),
                        Err(refusal) => {
                            refusals += 1;
                            assert!(!is_allowed && refusal.code == CloseCode::Forbidden, "{cell}");
                            assert_eq!(tree(&place.path("root").join(&at)), before, "{cell}");
                            assert!(!refusal.text.contains("theirs"), "{cell}");
                        }
                    }
                    if !holder.may_read {
                        let after = tree(&place.path("root").join(&at));
                        assert!(before.iter().all(|(path, text)| after.get(path) == Some(text)), "{cell}: {after:?}");
                    }
                }
            }
        }
        for holder in holders {
            holder.client.close();
        }
        drop(place.served);
    }
    println!("{cells} cells, {refusals} refused");
    assert_eq!(cells, 2 * 6 * 2 * Deed::ALL.len());
}

/// In somebody's name nothing is done that this somebody may not: the job is refused when it is handed in.
#[test]
fn every_cell_holds_for_jobs_that_are_handed_in() {
    let place = Place::new(false);
    let holders = [
        place.holder("unlimited", (true, true), None),
        place.holder("reader", (true, false), None),
        place.holder("writer", (false, true), None),
        place.holder("limited", (true, true), Some("in")),
        place.holder("limited-writer", (false, true), Some("in")),
    ];
    let of_jobs = |deed: &Deed| {
        let has_option = options_of(*deed) != TransferOptions::default();
        // A view is for who follows: a job that is handed in has none.
        has_option && *deed != Deed::Show || matches!(deed, Deed::Fetch | Deed::Send)
    };
    let mut cells = 0;
    for holder in &holders {
        for deed in Deed::ALL.into_iter().filter(of_jobs) {
            for above in ["in", "out"] {
                let at = format!("{above}/{}", holder.name);
                place.write(&format!("root/{at}/report"), "others'");
                let needs = deed.needs();
                // These need whoever asks.
                let is_told = matches!(deed, Deed::DryRun | Deed::TellChanges);
                let is_allowed = (holder.may_read || !needs.read)
                    && (holder.may_write || !needs.write)
                    && (above == "in" || !holder.is_limited);
                if is_told && is_allowed {
                    continue;
                }
                let found = place.hand_in(holder, deed, &at);
                let cell = format!("{deed:?} by {} in {at}: {found:?}", holder.name);
                cells += 1;
                match found {
                    Ok(()) => assert!(is_allowed, "{cell}"),
                    Err(refusal) => assert!(!is_allowed && refusal.code == CloseCode::Forbidden, "{cell}"),
                }
            }
        }
    }
    assert!(cells > 120, "{cells}");
}

#[test]
fn a_client_that_may_only_write_finds_nothing_out_and_takes_nothing_away() {
    let place = Place::new(false);
    let Holder { client, .. } = place.holder("writer", (false, true), Some("drop"));
    place.write("root/drop/report", "others'");
    place.write("root/drop/new/is", "a directory");
    place.write("root/drop/sub", "a file");
    symlink("/etc", place.path("root/drop/out")).unwrap();
    let before = tree(&place.path("root"));
    // What shows or takes away, word for word: the table alone does not decide this test.
    for deed in [
        Deed::Fetch,
        Deed::List,
        Deed::Digest,
        Deed::Sum,
        Deed::DryRun,
        Deed::TellChanges,
        Deed::Delete,
        Deed::Backup,
        Deed::CompareExists,
        Deed::CompareSize,
        Deed::CompareChecksum,
        Deed::KeepNewer,
        Deed::OnlyExisting,
        Deed::NoClobber,
        Deed::Delta,
        Deed::HardLinks,
        Deed::Show,
        Deed::MakeDirectory,
        Deed::Remove,
        Deed::Rename,
    ] {
        let refusal = place.attempt(&client, deed, "drop").expect_err(&format!("{deed:?} is allowed"));
        assert_eq!(refusal.code, CloseCode::Forbidden, "{deed:?} {refusal}");
        let error = daemon::Error::from_refusal("lab", &refusal);
        assert!(error.hint.is_some_and(|hint| hint.contains("docs/rights.md")), "{refusal}");
    }
    assert_eq!(tree(&place.path("root")), before);

    // Names that are taken and names that are not get the same answer.
    let counts = |report: &Report| {
        ended(report).unwrap();
        let counts = report.snapshot.counts;
        (counts.files_done, counts.files_skipped, counts.files_failed, counts.directories)
    };
    let [taken, free] = ["drop/", "drop/free/"].map(|to| {
        let id = place.job();
        (to, id, counts(&place.push(&client, id, "mine/", to, TransferOptions::default())))
    });
    assert_eq!((taken.2, free.2), ((3, 0, 0, 1), (3, 0, 0, 1)));
    for (from, to) in [("mine/report", "drop/report"), ("mine/report", "drop/new"), ("mine/report", "drop/sub/x/y")] {
        let report = place.push(&client, place.job(), from, to, TransferOptions::default());
        assert_eq!(counts(&report), (1, 0, 0, 0), "{to}");
    }
    let report = place.push(&client, place.job(), "mine/report", "drop/out/x", TransferOptions::default());
    assert_eq!(counts(&report), (1, 0, 0, 0));
    let after = tree(&place.path("root"));
    assert!(before.iter().all(|(path, text)| after.get(path) == Some(text)), "{after:?}");
    let aside = |path: &&PathBuf| path.to_string_lossy().contains(".~");
    assert!(after.keys().filter(aside).count() >= 4, "{after:?}");
    // The same command again finds what it has put there.
    let report = place.push(&client, taken.1, "mine/", taken.0, TransferOptions::default());
    assert_eq!(counts(&report), (0, 3, 0, 1));
    assert_eq!(tree(&place.path("root")), after);
    client.close();
}

/// `gen:` names content that is made up: as a destination it would be the root itself.
#[test]
fn a_name_of_no_file_is_no_destination() {
    let place = Place::new(false);
    for (name, may_read) in [("writer", false), ("both", true)] {
        let Holder { client, .. } = place.holder(name, (may_read, true), Some("drop"));
        let before = tree(&place.path("root"));
        for is_dry_run in [false, true] {
            let options = TransferOptions { is_dry_run, ..TransferOptions::default() };
            let report = place.push(&client, place.job(), "mine/", "gen:x", options);
            assert_eq!(ended(&report).unwrap_err().code, CloseCode::Forbidden);
        }
        assert_eq!(tree(&place.path("root")), before);
        client.close();
    }
}

#[test]
fn a_mere_opening_makes_a_bounded_number_of_directories() {
    let place = Place::new(false);
    let Holder { client, .. } = place.holder("unlimited", (true, true), None);
    let deep = |levels: usize| vec!["d"; levels].join("/");
    let push = |path: &str| ended(&place.push(&client, place.job(), "mine/new", path, TransferOptions::default()));
    let make = |path: String| {
        let question = Question::Make { paths: vec![path.into_bytes()], with_parents: true };
        client.ask(&question, &|| false, &mut |_| true).map(drop).map_err(|e| e.to_string())
    };
    for path in [deep(129), deep(2000)] {
        let refusal = push(&format!("{path}/")).unwrap_err();
        assert!(refusal.code == CloseCode::Forbidden && refusal.text.contains("at most 128 names"), "{refusal}");
        assert!(make(path).unwrap_err().contains("at most 128 names"));
    }
    assert!(tree(&place.path("root")).is_empty());
    push(&format!("{}/", deep(128))).unwrap();
    make(deep(128)).unwrap();
    client.close();
}
