//! Each way in which an answer goes wrong once, at each request of a copy: it is made up for, or the copy fails with an
//! error that says at what, and leaves nothing half done.
//!
//! The table says which of the two; what the server then has is compared with what it had before. Not here: what goes
//! wrong with content, and with files that are fetched ahead (`server`, `ahead`).

mod support;

use Ends::{Arrives, Fails};
use Request::*;
use dav::Sites;
use fakes::dav::{Manners, start};
use fakes::http::{Asked, Said};
use model::FailureKind::{self, Changed, InTheWay, NoSpace, NotFound, Other, Permission, ReadError, WriteError};
use model::{Kind, ObjectId};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use store::open::Opener;
use store::{Fate, How, Prune, PublishRule};
use support::{entry, location, open, put, scan, sink_at};

const GOOD: Manners = Manners { decodes: true, keeps: true, takes_times: true, lies: false, ahead_seconds: 0 };
const CONTENT: &[u8] = b"content";
/// Longer than whatever may pass is waited for.
const LONG: Duration = Duration::from_secs(20);

/// How a copy ends of which one request goes wrong once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ends {
    Arrives,
    Fails(FailureKind),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Request {
    /// What is in a directory.
    List,
    /// What a file is, once it was read.
    Look,
    Get,
    /// A small file.
    Put,
    /// A large one, whose content follows the head of its request.
    Upload,
    Make,
    /// By which a file gets its name.
    Move,
    Delete,
    /// The checksum of what was sent.
    Sum,
    /// A copy that another server has.
    Between,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Status(u16),
    /// It is asked too much, and may be asked again after a second.
    Later,
    /// Somebody on the way answers with a page for people.
    Page,
    /// The answer ends half way.
    Cut,
    /// A redirect to where nobody is.
    Abroad,
    /// The connection ends before anything is carried out.
    Reset,
}

/// What most requests come to, and those that come to something else.
type Row = (Fault, Ends, &'static [(Request, Ends)]);

/// What the servers do not copy comes through this host. A large file is not sent again by whoever has sent it. A file
/// of which a server says that it is gone is not missed, and the directory that holds it stays.
const TABLE: &[Row] = &[
    (Fault::Status(401), Fails(Permission), &[(Between, Arrives)]),
    (Fault::Status(403), Fails(Permission), &[(Between, Arrives)]),
    (Fault::Status(404), Fails(NotFound), &[(Look, Fails(Changed)), (Delete, Fails(InTheWay)), (Between, Arrives)]),
    // Where a directory is to be made it says that something has the name.
    (
        Fault::Status(405),
        Fails(Other),
        &[
            (Get, Fails(ReadError)),
            (Put, Fails(WriteError)),
            (Upload, Fails(WriteError)),
            (Make, Fails(NotFound)),
            (Between, Arrives),
        ],
    ),
    (Fault::Status(409), Fails(NotFound), &[(Look, Fails(Changed)), (Delete, Fails(InTheWay)), (Between, Arrives)]),
    (Fault::Status(412), Fails(Changed), &[(Move, Fails(InTheWay)), (Between, Arrives)]),
    (
        Fault::Status(423),
        Fails(Other),
        &[(Get, Fails(ReadError)), (Put, Fails(WriteError)), (Upload, Fails(WriteError)), (Between, Arrives)],
    ),
    (Fault::Later, Arrives, &[(Upload, Fails(WriteError))]),
    (Fault::Status(500), Arrives, &[(Upload, Fails(WriteError))]),
    (Fault::Status(503), Arrives, &[(Upload, Fails(WriteError))]),
    (Fault::Status(507), Fails(NoSpace), &[(Between, Arrives)]),
    // A name that was not given, and a file that was not stored, are looked for.
    (
        Fault::Page,
        Fails(NotFound),
        &[
            (List, Fails(Other)),
            (Look, Fails(Other)),
            (Get, Fails(Changed)),
            (Move, Fails(Other)),
            (Delete, Fails(InTheWay)),
            (Sum, Fails(WriteError)),
            (Between, Arrives),
        ],
    ),
    (Fault::Cut, Arrives, &[]),
    (
        Fault::Abroad,
        Fails(Other),
        &[(Get, Fails(ReadError)), (Put, Fails(WriteError)), (Upload, Fails(WriteError)), (Between, Arrives)],
    ),
    (Fault::Reset, Arrives, &[(Upload, Fails(WriteError))]),
];

/// The faults that a request may have, and what it comes to. Of other answers than these nobody reads what may be cut.
fn faults_at(request: Request) -> impl Iterator<Item = (Fault, Ends)> {
    let is_read = matches!(request, List | Look | Get);
    let ends = move |(fault, usual, others): &Row| {
        let other = others.iter().find(|(at, _)| *at == request);
        (*fault, other.map_or(*usual, |(_, ends)| *ends))
    };
    TABLE.iter().map(ends).filter(move |(fault, _)| is_read || *fault != Fault::Cut)
}

impl Fault {
    /// What is said in place of carrying the request out.
    fn instead(self, asked: &Asked) -> Said {
        let success = if asked.method == "PROPFIND" { 207 } else { 200 };
        let mut said = match self {
            Fault::Status(status) => Said::new(status, b"<html>sorry</html>"),
            Fault::Later => Said::new(429, b"").with("retry-after", "1"),
            Fault::Page => Said::new(success, b"<html><body>Sign in</body></html>"),
            Fault::Abroad => Said::new(307, b"").with("location", &format!("http://127.0.0.1:1{}", asked.target)),
            Fault::Cut | Fault::Reset => Said::new(success, CONTENT),
        };
        (said.is_cut, said.is_lost) = (self == Fault::Cut, self == Fault::Reset);
        said
    }
}

/// What a server has: files, and directories with a slash behind their names.
type Held = BTreeMap<String, Vec<u8>>;
type Attempted = Result<(), (FailureKind, String)>;

fn held(directory: &Path) -> Held {
    let mut all = Held::new();
    for found in std::fs::read_dir(directory).unwrap() {
        let path = found.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        match path.is_dir() {
            true => {
                all.extend(held(&path).into_iter().map(|(below, bytes)| (format!("{name}/{below}"), bytes)));
                all.insert(name + "/", Vec::new());
            }
            false => _ = all.insert(name, std::fs::read(&path).unwrap()),
        }
    }
    all
}

/// Lets one request go wrong in each way, the first one that `is_it`, at a server with the file `there`. What `attempt`
/// does ends as the table says, an error holds `told`, and the server has what it had before, or `made` if it arrives.
fn each(
    request: Request,
    (there, made, told): (&str, &[&str], &str),
    is_it: fn(&Asked) -> bool,
    attempt: fn(&str) -> Attempted,
) {
    for (fault, ends) in faults_at(request) {
        let dir = tempfile::tempdir().unwrap();
        if !there.is_empty() {
            let path = dir.path().join(there);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, CONTENT).unwrap();
        }
        let before = held(dir.path());
        let has_failed = Arc::new(AtomicBool::new(false));
        let fails = has_failed.clone();
        let first = move |asked: &Asked| {
            let is_first = is_it(asked) && !fails.swap(true, Relaxed);
            is_first.then(|| fault.instead(asked))
        };
        let (address, began) = (start(dir.path(), GOOD, Arc::new(first)), Instant::now());
        let attempted = attempt(&address);
        let came = attempted.as_ref().map_or_else(|(kind, _)| Fails(*kind), |()| Arrives);
        assert_eq!((came, has_failed.load(Relaxed)), (ends, true), "{request:?} {fault:?}: {attempted:?}");
        let is_told = attempted.as_ref().map_or_else(|(_, text)| text.contains(told), |()| true);
        assert!(is_told && began.elapsed() < LONG, "{request:?} {fault:?}: {attempted:?}");
        let content = |name: &&str| if name.ends_with('/') { Vec::new() } else { CONTENT.to_vec() };
        let expected = match came {
            Arrives => made.iter().map(|name| ((*name).to_owned(), content(name))).collect(),
            Fails(_) => before,
        };
        assert_eq!(held(dir.path()), expected, "{request:?} {fault:?}");
    }
}

fn failed(error: &store::Error) -> (FailureKind, String) {
    (error.kind, error.to_string())
}

fn list(address: &str) -> Attempted {
    let (objects, failures) = scan(&*open("dav", &format!("{address}/")).ok().unwrap());
    match failures.into_iter().next() {
        Some(failure) => Err((failure.kind, failure.message)),
        None => {
            assert_eq!(objects.len(), 1);
            Ok(())
        }
    }
}

fn get(address: &str) -> Attempted {
    let source = open("dav", &format!("{address}/")).ok().unwrap();
    let object = scan(&*source).0.remove(0);
    let mut buffer = [0; CONTENT.len()];
    let read = source.lane().read_whole(&object, &mut buffer);
    let (count, generation) = read.map_err(|error| failed(&error))?;
    // As the engine sees it.
    if count < buffer.len() || generation != object.entry.generation {
        return Err((Changed, "/f is another version".to_owned()));
    }
    assert!(buffer[..] == *CONTENT);
    Ok(())
}

fn put_small(address: &str) -> Attempted {
    let sink = sink_at(&Sites::default(), &format!("{address}/"));
    let sent = put(&*sink, &entry("f", CONTENT.len()), CONTENT, PublishRule::NoReplace);
    sent.map_err(|error| failed(&error))
}

fn put_large(address: &str) -> Attempted {
    let sink = sink_at(&Sites::default(), &format!("{address}/"));
    let file = entry("f", CONTENT.len());
    let (staged, _) = sink.begin(&file, "stem").unwrap();
    let sent = staged.write_at(0, CONTENT).and_then(|()| staged.publish(&file, PublishRule::NoReplace));
    sent.map_err(|error| failed(&error))
}

/// Makes a directory, and a file in it.
fn make(address: &str) -> Attempted {
    let sink = sink_at(&Sites::default(), &format!("{address}/"));
    let (mut directory, mut file) = (entry("d", 0), entry("f", CONTENT.len()));
    (directory.id, directory.kind, file.parent) = (ObjectId(2), Kind::Directory, ObjectId(2));
    let made = sink.make_directory(&directory);
    let sent = made.and_then(|()| put(&*sink, &file, CONTENT, PublishRule::NoReplace));
    sent.map_err(|error| failed(&error))
}

/// The first thing that fails.
fn delete(address: &str) -> Attempted {
    let shelf = Sites::default().shelf(&location("dav", &format!("{address}/t")), How::Take).ok().unwrap();
    let mut first = None;
    shelf.remove_tree(&|| false, &mut |_, error| _ = first.get_or_insert(failed(&error)));
    first.map_or(Ok(()), Err)
}

/// Copies from another server, as the engine would.
fn between(address: &str) -> Attempted {
    let from = tempfile::tempdir().unwrap();
    std::fs::write(from.path().join("f"), CONTENT).unwrap();
    let there = start(from.path(), GOOD, Arc::new(|_: &Asked| None));
    let source = open("dav", &format!("{there}/f")).ok().unwrap();
    let object = scan(&*source).0.remove(0);
    let read = source.lane().open(&object).unwrap();
    let sink = sink_at(&Sites::default(), &format!("{address}/"));
    let file = entry("f", CONTENT.len());
    let (staged, _) = sink.begin(&file, "stem").unwrap();
    let sent = if staged.share_from(&*read) { Ok(()) } else { staged.write_at(0, CONTENT) };
    let published = sent.and_then(|()| staged.publish(&file, PublishRule::NoReplace));
    published.map_err(|error| failed(&error))
}

#[test]
fn a_directory_is_listed_whole_or_told_as_one_that_is_not() {
    each(List, ("f", &["f"], "list"), |asked| asked.header("depth") == Some("1"), list);
}

#[test]
fn what_is_read_is_what_the_server_has_or_fails() {
    each(Get, ("f", &["f"], "/f"), |asked| asked.method == "GET", get);
    each(Look, ("f", &["f"], "/f"), |asked| asked.method == "PROPFIND" && asked.target == "/f", get);
}

#[test]
fn a_file_is_there_whole_or_not_at_all_whatever_becomes_of_its_content() {
    let is_sent = |asked: &Asked| asked.method == "PUT" && asked.body == CONTENT;
    each(Put, ("", &["f"], "f: "), is_sent, put_small);
    each(Upload, ("", &["f"], "f: "), is_sent, put_large);
}

#[test]
fn a_file_gets_its_name_or_leaves_nothing() {
    let names = |asked: &Asked| asked.header("destination").is_some_and(|to| to.ends_with("/f"));
    each(Move, ("", &["f"], "f: "), names, put_small);
    each(Sum, ("", &["f"], "f: "), |asked| asked.method == "HEAD", put_small);
}

#[test]
fn a_name_that_was_given_counts_whatever_success_the_server_says() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_owned();
    let moves = move |asked: &Asked| {
        let (_, to) = asked.header("destination").filter(|_| asked.method == "MOVE")?.rsplit_once('/')?;
        std::fs::rename(root.join(asked.target.trim_start_matches('/')), root.join(to)).unwrap();
        Some(Said::new(200, b"moved"))
    };
    assert_eq!(put_small(&start(dir.path(), GOOD, Arc::new(moves))), Ok(()));
    assert_eq!(held(dir.path()), Held::from([("f".to_owned(), CONTENT.to_vec())]));
}

#[test]
fn a_directory_is_made_or_nothing_is_put_into_it() {
    each(Make, ("", &["d/", "d/f"], "/d"), |asked| asked.method == "MKCOL", make);
}

#[test]
fn a_tree_is_removed_or_stays_with_what_is_left_of_it() {
    each(Delete, ("t/x", &[], "remove"), |asked| asked.method == "DELETE", delete);
}

#[test]
fn what_servers_do_not_copy_comes_through_this_host() {
    each(Between, ("", &["f"], ""), |asked| asked.method == "COPY", between);
}

#[test]
fn what_somebody_else_removed_meanwhile_is_not_counted() {
    let dir = tempfile::tempdir().unwrap();
    let fill = || {
        std::fs::create_dir(dir.path().join("t")).unwrap();
        for name in ["t/mine", "t/theirs"] {
            std::fs::write(dir.path().join(name), CONTENT).unwrap();
        }
    };
    let theirs = dir.path().join("t/theirs");
    let faster = move |asked: &Asked| {
        let is_it = asked.method == "DELETE" && asked.target.ends_with("/theirs");
        is_it.then(|| {
            std::fs::remove_file(&theirs).unwrap();
            Said::new(404, b"")
        })
    };
    let address = start(dir.path(), GOOD, Arc::new(faster));
    fill();
    let shelf = Sites::default().shelf(&location("dav", &format!("{address}/t")), How::Take).ok().unwrap();
    let tally = shelf.remove_tree(&|| false, &mut |_, error| panic!("{error}"));
    assert_eq!((tally.files, tally.directories, held(dir.path())), (1, 1, Held::new()));
    fill();
    let mut removed = Vec::new();
    sink_at(&Sites::default(), &format!("{address}/")).prune(&mut Prune {
        directories: &[ObjectId::ROOT],
        is_listed: &|_, _| false,
        is_listed_alike: &|_, _| false,
        fate: &|_, _| Fate::Remove,
        is_rehearsal: false,
        removed: &mut |path, _| removed.push(String::from_utf8(path.to_vec()).unwrap()),
        failed: &mut |failure| panic!("{}", failure.message),
        goes_on: &|| true,
    });
    assert_eq!((removed, held(dir.path())), (vec!["t/mine".to_owned(), "t".to_owned()], Held::new()));
}

#[test]
fn a_large_file_that_the_server_did_not_take_is_not_taken_for_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    let puts = Arc::new(Mutex::new(Vec::new()));
    let seen = puts.clone();
    let refuses = move |asked: &Asked| {
        let is_put = asked.method == "PUT";
        if is_put {
            seen.lock().unwrap().push(asked.body.clone());
        }
        (is_put && asked.body == CONTENT).then(|| Said::new(500, b""))
    };
    let address = start(dir.path(), GOOD, Arc::new(refuses));
    let sink = sink_at(&Sites::default(), &format!("{address}/"));
    let file = entry("f", CONTENT.len());
    let (staged, _) = sink.begin(&file, "stem").unwrap();
    staged.write_at(0, CONTENT).unwrap();
    staged.publish(&file, PublishRule::NoReplace).unwrap_err();
    let error = staged.publish(&file, PublishRule::NoReplace).unwrap_err();
    assert!(error.to_string().contains("did not take"), "{error}");
    assert!(puts.lock().unwrap().iter().all(|body| !body.is_empty()), "an empty file was sent");
}

#[test]
fn a_server_is_asked_again_when_it_says_and_no_sooner() {
    let dir = tempfile::tempdir().unwrap();
    let told = Mutex::new(None::<Instant>);
    let waits = Arc::new(Mutex::new(Duration::ZERO));
    let noted = waits.clone();
    let later = move |asked: &Asked| {
        if asked.method != "PUT" || asked.body != CONTENT {
            return None;
        }
        let mut told = told.lock().unwrap();
        *noted.lock().unwrap() = told.map_or(Duration::ZERO, |told| told.elapsed());
        told.replace(Instant::now()).is_none().then(|| Fault::Later.instead(asked))
    };
    assert_eq!(put_small(&start(dir.path(), GOOD, Arc::new(later))), Ok(()));
    let waited = *waits.lock().unwrap();
    assert!(waited >= Duration::from_millis(900), "it was asked again after {waited:?}");
}

#[test]
fn a_method_that_a_server_does_not_know_for_once_is_tried_once_more() {
    for (refusals, is_done) in [(1, true), (usize::MAX, false)] {
        let dir = tempfile::tempdir().unwrap();
        let said = Arc::new(Mutex::new(0));
        let counted = said.clone();
        let refuse = move |asked: &Asked| {
            let mut said = counted.lock().unwrap();
            let is_refused = asked.method == "PUT" && asked.body == CONTENT && *said < refusals;
            *said += usize::from(is_refused);
            is_refused.then(|| Fault::Status(501).instead(asked))
        };
        let put = put_small(&start(dir.path(), GOOD, Arc::new(refuse)));
        assert_eq!((put.is_ok(), *said.lock().unwrap()), (is_done, if is_done { 1 } else { 2 }), "{put:?}");
    }
}
