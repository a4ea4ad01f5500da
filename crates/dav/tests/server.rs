//! Reading and writing over a server in this process that answers as it is told.

mod support;

use dav::{SiteConfig, Sites, Stop};
use fakes::dav::{Before, MACAROON, Manners};
use fakes::http::{Asked, Said, serve};
use model::{Entry, Extent, FailureKind, ObjectId, TransferOptions};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use store::open::{Opener, Refused};
use store::{Decision, End, Fate, How, OpenError, Prune, PublishRule, Sink, Slots, ToPublish, Visit};
use support::{entry, location, open, put, read, scan, sink_at};

const CONTENT: &[u8] = b"Wikipedia";
/// The Adler-32 of that.
const ADLER: &str = "11e60398";

type Answer = dyn Fn(&Asked) -> Said + Send + Sync;

/// A server at a port of its own, and what it was asked.
fn start(answer: impl Fn(&Asked) -> Said + Send + Sync + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (seen, answer): (_, Arc<Answer>) = (asked.clone(), Arc::new(answer));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (seen, answer) = (seen.clone(), answer.clone());
            std::thread::spawn(move || {
                serve(stream, &|asked| {
                    seen.lock().unwrap().push(format!("{} {}", asked.method, asked.target));
                    answer(asked)
                });
            });
        }
    });
    (address, asked)
}

fn response(href: &str, size: Option<usize>) -> String {
    let prop = match size {
        None => "<D:resourcetype><D:collection/></D:resourcetype>".to_owned(),
        Some(size) => format!(
            "<D:getcontentlength>{size}</D:getcontentlength><D:getlastmodified>Sun, 09 Sep 2001 01:46:40 GMT</D:getlastmodified>"
        ),
    };
    format!(
        "<D:response><D:href>{href}</D:href><D:propstat><D:prop>{prop}</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
    )
}

fn listing(responses: &[String]) -> Said {
    Said::new(207, format!("<D:multistatus xmlns:D=\"DAV:\">{}</D:multistatus>", responses.concat()).as_bytes())
}

/// `/d` with the file `a b` and the empty directory `e`.
fn usual(asked: &Asked) -> Said {
    let file = || response("/d/a%20b", Some(CONTENT.len()));
    match (&asked.method[..], &asked.target[..], asked.header("depth")) {
        ("PROPFIND", "/d", Some("0")) => listing(&[response("/d/", None)]),
        ("PROPFIND", "/d", _) => listing(&[response("/d/", None), response("/d/e/", None), file()]),
        ("PROPFIND", "/d/e", _) => listing(&[response("/d/e/", None)]),
        ("PROPFIND", "/d/a%20b", _) => listing(&[file()]),
        ("GET", "/d/a%20b", _) => {
            let digest = format!("adler32={ADLER}");
            let range = asked.header("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
            match range {
                None => Said::new(200, CONTENT).with("digest", &digest),
                Some((start, end)) => {
                    let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
                    let said = Said::new(206, &CONTENT[start..=end]).with("digest", &digest);
                    said.with("content-range", &format!("bytes {start}-{end}/{}", CONTENT.len()))
                }
            }
        }
        _ => Said::new(404, b""),
    }
}

#[test]
fn a_tree_is_listed_and_read() {
    let (address, _) = start(usual);
    let source = open("dav", &format!("{address}/d")).ok().unwrap();
    let (objects, failures) = scan(&*source);
    assert!(failures.is_empty() && objects.iter().all(|object| object.end == End::Known));
    let paths: Vec<_> = objects.iter().map(|object| source.path(object)).collect();
    assert_eq!(paths, [&b"d"[..], b"d/a b", b"d/e"]);
    assert_eq!(read(&*source, &objects[1]).unwrap(), CONTENT);

    // In two parts, the second one first.
    let mut lane = source.lane();
    let file = lane.open(&objects[1]).unwrap();
    let mut parts = Vec::new();
    for (start, end) in [(4, 9), (0, 4)] {
        let read = lane.read_extent(&*file, Extent { start, end }, &mut [0; 3], &mut |bytes| {
            parts.extend_from_slice(bytes);
            true
        });
        assert_eq!(read.unwrap(), end - start);
    }
    assert_eq!(parts, b"pediaWiki");
}

#[test]
fn a_shelf_tells_the_same() {
    let (address, _) = start(usual);
    let shelf = Sites::default().shelf(&location("dav", &format!("{address}/d")), How::Look).ok().unwrap();
    let mut told = Vec::new();
    shelf.walk(9, &Slots::new(100), &mut |found| {
        if let Visit::Object { path, status, opener, .. } = found {
            if !status.is_directory() {
                let version = opener()().unwrap().generation().unwrap().version;
                assert_eq!((version.object(), version.changed()), (status.inode, status.changed));
            }
            told.push((String::from_utf8_lossy(path).into_owned(), status.size_bytes, status.modified.seconds));
        }
        true
    });
    assert_eq!(told, [(String::new(), 0, 0), ("a b".into(), 9, 1_000_000_000), ("e".into(), 0, 0)]);
}

#[test]
fn other_content_than_the_server_states_is_an_error() {
    let (address, _) = start(|asked| match &asked.method[..] {
        "GET" => Said::new(200, b"Wikipedja").with("digest", &format!("adler32={ADLER}")),
        _ => usual(asked),
    });
    let source = open("dav", &format!("{address}/d/a b")).ok().unwrap();
    let (objects, _) = scan(&*source);
    assert_eq!(read(&*source, &objects[0]).unwrap_err().kind, FailureKind::DigestMismatch);
}

#[test]
fn other_lengths_and_whole_files_for_parts_are_never_taken() {
    let longer = [CONTENT, b"!"].concat();
    let (address, _) = start(move |asked| match &asked.method[..] {
        "GET" => Said::new(200, &longer),
        _ => usual(asked),
    });
    let source = open("dav", &format!("{address}/d/a b")).ok().unwrap();
    let (objects, _) = scan(&*source);
    assert_eq!(read(&*source, &objects[0]).unwrap(), b"");
    let file = source.lane().open(&objects[0]).unwrap();
    assert!(file.read_at(2, &mut [0; 4]).unwrap_err().to_string().contains("where a part is asked for"));
}

#[test]
fn a_listing_of_elsewhere_fails_its_directory() {
    let (address, _) = start(|asked| match (&asked.target[..], asked.header("depth")) {
        ("/d", Some("1")) => listing(&[response("/d/", None), response("/d/../../etc/x", Some(1))]),
        _ => usual(asked),
    });
    let source = open("dav", &format!("{address}/d")).ok().unwrap();
    let (objects, failures) = scan(&*source);
    assert_eq!((objects.len(), failures.len()), (1, 1));
}

#[test]
fn answers_are_told_by_what_can_be_done() {
    for (status, wanted) in
        [(401, Refused::Keys), (403, Refused::Keys), (503, Refused::Unreachable), (405, Refused::Request)]
    {
        let (address, asked) = start(move |_| Said::new(status, b"<html>sorry</html>"));
        match open("dav", &format!("{address}/d")) {
            Err(OpenError::Refused { why, .. }) => assert_eq!(why, wanted, "{status}"),
            _ => panic!("{status}"),
        }
        // What may pass is tried again, the rest not.
        assert_eq!(asked.lock().unwrap().len(), if status == 503 { 4 } else { 1 });
    }
    let (address, _) = start(usual);
    match open("dav", &format!("{address}/none")) {
        Err(OpenError::Source { error, .. }) => assert_eq!(error.kind, FailureKind::NotFound),
        _ => panic!("it is not there"),
    }
    match open("dav", "127.0.0.1:1/d") {
        Err(OpenError::Refused { why, .. }) => assert_eq!(why, Refused::Unreachable),
        _ => panic!("nobody is there"),
    }
    let (address, _) = start(|_| Said::new(200, b"<html>welcome</html>"));
    assert!(open("dav", &format!("{address}/d")).is_err());
}

#[test]
fn redirects_end_and_are_followed_without_a_token() {
    let (there, _) = start(usual);
    let (address, _) =
        start(move |asked| Said::new(307, b"").with("location", &format!("http://{there}{}", asked.target)));
    let source = open("dav", &format!("{address}/d/a b")).ok().unwrap();
    let (objects, _) = scan(&*source);
    assert_eq!(read(&*source, &objects[0]).unwrap(), CONTENT);
    let (address, asked) = start(|_| Said::new(302, b"").with("location", "/again"));
    assert!(open("dav", &format!("{address}/d")).is_err());
    assert_eq!(asked.lock().unwrap().len(), 6);
}

#[test]
fn a_token_that_is_refused_is_read_again() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "first\n").unwrap();
    let taken = Arc::new(Mutex::new("Bearer first"));
    let known = taken.clone();
    let (address, asked) = start(move |asked| match asked.header("authorization") == Some(*known.lock().unwrap()) {
        true => usual(asked),
        false => Said::new(401, b""),
    });
    let table = SiteConfig {
        endpoint: format!("dav://{address}"),
        token_file: Some(file.path().to_owned()),
        ..SiteConfig::default()
    };
    let sites = Sites::new(vec![table], Stop::default());
    let source = sites.source(&[location("dav", &format!("{address}/d/a b"))], &TransferOptions::default());
    let source = source.ok().unwrap().source;
    let (objects, _) = scan(&*source);
    // One that is the same still is not tried twice.
    *taken.lock().unwrap() = "Bearer second";
    let before = asked.lock().unwrap().len();
    assert_eq!(read(&*source, &objects[0]).unwrap_err().kind, FailureKind::Permission);
    assert_eq!(asked.lock().unwrap().len(), before + 1);
    std::fs::write(file.path(), "second\n").unwrap();
    assert_eq!(read(&*source, &objects[0]).unwrap(), CONTENT);
}

#[test]
fn urls_with_secrets_and_clear_text_abroad_are_refused() {
    for (scheme, rest) in [
        ("https", "h.example/x?sig=hunter2"),
        ("davs", "me:hunter2@h.example/x"),
        ("dav", "192.0.2.1/x"),
        ("http", "192.0.2.1/x"),
        ("davs", "h.example/a/../b"),
        ("https", "h.example/"),
    ] {
        match open(scheme, rest) {
            Err(OpenError::Refused { why: Refused::Request, text, advice }) => {
                assert!(!text.contains("hunter2") && !advice.contains("hunter2"), "{text}");
            }
            _ => panic!("{scheme}://{rest}"),
        }
    }
}

/// A server over a directory, with rules that come first, and a sink there.
fn bed(
    manners: Manners,
    before: impl Fn(&Asked) -> Option<Said> + Send + Sync + 'static,
) -> (tempfile::TempDir, Arc<dyn Sink>) {
    let dir = tempfile::tempdir().unwrap();
    let address = fakes::dav::start(dir.path(), manners, Arc::new(before));
    let sink = sink_at(&Sites::default(), &format!("{address}/"));
    (dir, sink)
}

fn names(dir: &tempfile::TempDir) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

const GOOD: Manners = Manners { decodes: true, keeps: true, takes_times: true, lies: false, ahead_seconds: 0 };

#[test]
fn what_the_server_digests_otherwise_gets_no_name() {
    let (dir, sink) = bed(Manners { lies: true, ..GOOD }, |_| None);
    let refused = put(&*sink, &entry("f", 3), b"one", PublishRule::NoReplace).unwrap_err();
    assert_eq!(refused.kind, FailureKind::WriteError);
    let (staged, _) = sink.begin(&entry("g", 3), "stem").unwrap();
    staged.write_at(0, b"one").unwrap();
    assert_eq!(staged.publish(&entry("g", 3), PublishRule::NoReplace).unwrap_err().kind, FailureKind::WriteError);
    drop(staged);
    assert!(names(&dir).is_empty(), "{:?}", names(&dir));
}

/// A server is asked for one checksum at a time; small files do not wait for their turn, and are compared nevertheless.
#[test]
fn small_files_are_read_back_while_the_server_is_asked_for_a_checksum() {
    let asked_for = Arc::new(Mutex::new(Vec::new()));
    let seen = asked_for.clone();
    let (dir, sink) = bed(GOOD, move |asked| {
        let is_staged = asked.target.contains(".thalweg");
        seen.lock().unwrap().extend(is_staged.then(|| asked.method.clone()));
        match &*asked.method {
            "HEAD" if is_staged => std::thread::sleep(std::time::Duration::from_millis(300)),
            // Of the same length, and not what was sent.
            "GET" if is_staged && asked.header("range").is_none() => return Some(Said::new(200, b"bad")),
            _ => {}
        }
        None
    });
    put(&*sink, &entry("first", 3), b"one", PublishRule::NoReplace).unwrap();
    asked_for.lock().unwrap().clear();
    let entries: Vec<_> = ["a", "b", "c", "d"].map(|name| entry(name, 3)).into();
    let mut lane = sink.lane(false).unwrap();
    let group: Vec<_> = entries
        .iter()
        .map(|entry| {
            lane.create(entry, PublishRule::NoReplace).unwrap();
            lane.write(b"one").unwrap();
            ToPublish { entry, staged: lane.seal(entry, false).unwrap() }
        })
        .collect();
    let mut results = Vec::new();
    sink.publish_group(&group, &mut |_, result| {
        results.push(result.map_err(|e| e.kind));
        true
    });
    let refused = results.iter().filter(|result| **result == Err(FailureKind::WriteError)).count();
    assert_eq!((refused, results.iter().flatten().count()), (3, 1), "{results:?}");
    let count = |method: &str| asked_for.lock().unwrap().iter().filter(|one| *one == method).count();
    assert_eq!((count("HEAD"), count("GET")), (1, 3));
    assert_eq!(names(&dir).len(), 2, "{:?}", names(&dir));
}

#[test]
fn a_move_whose_answer_is_lost_was_done() {
    // Asked again, a server says that the old name is not there, or that something has the new one; that may be somebody else's.
    for (again, is_ours) in [(None, true), (Some(412), true), (Some(412), false)] {
        let asked_for = Arc::new(Mutex::new(0));
        let counted = asked_for.clone();
        let root = Arc::new(Mutex::new(std::path::PathBuf::new()));
        let of = root.clone();
        let (dir, sink) = bed(GOOD, move |asked| {
            let is_final = asked.method == "MOVE" && asked.header("destination").unwrap().ends_with("/f");
            if !is_final {
                return None;
            }
            *counted.lock().unwrap() += 1;
            if *counted.lock().unwrap() > 1 {
                return again.map(|status| Said::new(status, b""));
            }
            let name = asked.target.rsplit('/').next().unwrap();
            let root = of.lock().unwrap().clone();
            match is_ours {
                true => std::fs::rename(root.join(name), root.join("f")).unwrap(),
                false => std::fs::write(root.join("f"), b"two").unwrap(),
            }
            let mut said = Said::new(201, b"");
            said.is_lost = true;
            Some(said)
        });
        *root.lock().unwrap() = dir.path().to_owned();
        let done = put(&*sink, &entry("f", 3), b"one", PublishRule::NoReplace).map_err(|e| e.kind);
        assert_eq!(done, if is_ours { Ok(()) } else { Err(FailureKind::InTheWay) });
        assert_eq!((*asked_for.lock().unwrap(), names(&dir)), (2, vec!["f".to_owned()]));
    }
}

#[test]
fn a_full_server_and_one_that_refuses_half_way_leave_nothing() {
    for (status, kind) in [(507, FailureKind::NoSpace), (403, FailureKind::Permission)] {
        let (dir, sink) =
            bed(GOOD, move |asked| (asked.method == "PUT" && asked.body.len() > 10).then(|| Said::new(status, b"")));
        let content = vec![7; 300_000];
        let refused = put(&*sink, &entry("f", content.len()), &content, PublishRule::NoReplace).unwrap_err();
        assert_eq!(refused.kind, kind);
        let (staged, _) = sink.begin(&entry("g", content.len()), "stem").unwrap();
        let wrote = staged.write_at(0, &content);
        let refused = wrote.and_then(|()| staged.publish(&entry("g", content.len()), PublishRule::NoReplace));
        assert_eq!(refused.unwrap_err().kind, kind);
        drop(staged);
        assert!(names(&dir).is_empty(), "{:?}", names(&dir));
    }
}

#[test]
fn a_clock_that_is_ahead_hides_no_change() {
    let dir = tempfile::tempdir().unwrap();
    let manners = Manners { takes_times: false, ahead_seconds: 3600, ..GOOD };
    let address = fakes::dav::start(dir.path(), manners, Arc::new(|_| None));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    let mut changed = entry("f", 3);
    changed.generation.modified.seconds = now - 60;
    put(&*sink_at(&Sites::default(), &format!("{address}/")), &changed, b"one", PublishRule::NoReplace).unwrap();
    let decide = |entry: &Entry| sink_at(&Sites::default(), &format!("{address}/")).decide(entry).unwrap();
    assert!(matches!(decide(&changed), Decision::Same));
    changed.generation.modified.seconds = now + 600;
    assert!(matches!(decide(&changed), Decision::Replace { .. }));
}

#[test]
fn what_nobody_finished_in_a_week_is_swept() {
    let dir = tempfile::tempdir().unwrap();
    let staged = |seconds: u128| format!(".thalweg-staging-dav-{:x}-1-0", seconds * 1_000_000_000);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let (old, young) = (staged(u128::from(now) - 8 * 24 * 3600), staged(u128::from(now) - 3600));
    for name in [&old, &young, ".thalweg-staging-dav-notours"] {
        std::fs::write(dir.path().join(name), b"half").unwrap();
    }
    let address = fakes::dav::start(dir.path(), GOOD, Arc::new(|_| None));
    sink_at(&Sites::default(), &format!("{address}/")).decide(&entry("f", 3)).unwrap();
    assert_eq!(names(&dir), [young, ".thalweg-staging-dav-notours".to_owned()]);
}

/// The source has `FILE`.
#[test]
fn what_a_server_has_in_another_case_is_not_removed_unless_it_tells_case_apart() {
    for (there, stays, told) in
        [(&["file"][..], &["file"][..], &["file"][..]), (&["FILE", "file", "other"], &["FILE"], &[])]
    {
        let (dir, sink) = bed(GOOD, |_| None);
        there.iter().for_each(|name| std::fs::write(dir.path().join(name), b"one").unwrap());
        let (mut removed, mut failed) = (0, Vec::new());
        sink.prune(&mut Prune {
            directories: &[ObjectId::ROOT],
            is_listed: &|_, name| name.as_bytes() == b"FILE",
            is_listed_alike: &|_, name| name.as_bytes().eq_ignore_ascii_case(b"FILE"),
            fate: &|_, _| Fate::Remove,
            is_rehearsal: false,
            removed: &mut |_, _| removed += 1,
            failed: &mut |failure| failed.push(String::from_utf8(failure.path).unwrap()),
            goes_on: &|| true,
        });
        assert_eq!((names(&dir), removed, failed), (owned(stays), there.len() - stays.len(), owned(told)));
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Copies one large file from one server to another, as the engine would; what came of it, and the notes.
fn between(sites: &Sites, from: &str, to: &tempfile::TempDir, to_address: &str, content: &[u8]) -> (bool, Vec<String>) {
    let source =
        sites.source(&[location("dav", &format!("{from}/f"))], &TransferOptions::default()).ok().unwrap().source;
    let (objects, _) = scan(&*source);
    let file = source.lane().open(&objects[0]).unwrap();
    let sink = sink_at(sites, &format!("{to_address}/"));
    let (staged, _) = sink.begin(&entry("f", content.len()), "stem").unwrap();
    let is_shared = staged.share_from(&*file);
    if !is_shared {
        staged.write_at(0, content).unwrap();
    }
    staged.publish(&entry("f", content.len()), PublishRule::NoReplace).unwrap();
    assert_eq!(std::fs::read(to.path().join("f")).unwrap(), content);
    assert_eq!(names(to), ["f"]);
    (is_shared, sink.notes())
}

fn copies_nothing(asked: &Asked) -> Option<Said> {
    (asked.method == "COPY").then(|| Said::new(405, b""))
}

#[test]
fn a_file_that_the_destination_does_not_fetch_is_sent_by_the_source() {
    let content = vec![7; 300_000];
    for (is_refused, told) in [(false, "the destination fetched them"), (true, "the source sent them")] {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(from.path().join("f"), &content).unwrap();
        let from_address = fakes::dav::start(from.path(), GOOD, Arc::new(|_| None));
        let fetches = move |asked: &Asked| if is_refused { copies_nothing(asked) } else { None };
        let address = fakes::dav::start(to.path(), GOOD, Arc::new(fetches));
        let (is_shared, notes) = between(&Sites::default(), &from_address, &to, &address, &content);
        assert!(is_shared && notes.len() == 1 && notes[0].contains(told), "{notes:?}");
    }
}

/// What a server says before it does.
type First = fn(&Asked) -> Option<Said>;

/// Copies between two servers that each take a token of their own, and a macaroon where content is asked for. Whether they did it, the notes,
/// and what both heard that tells of passes: requests for macaroons, and passes to hand on.
fn by_tokens(first: First) -> (bool, Vec<String>, Vec<String>) {
    let content = vec![7; 300_000];
    let [from, to, tokens] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    std::fs::write(from.path().join("f"), &content).unwrap();
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let site = |root: &Path, token: &str| {
        let (heard, own) = (heard.clone(), format!("Bearer {token}"));
        let before = move |asked: &Asked| {
            let mut heard = heard.lock().unwrap();
            heard.extend((asked.method == "POST").then(|| String::from_utf8_lossy(&asked.body).into_owned()));
            heard.extend(asked.header("transferheaderauthorization").map(str::to_owned));
            let pass = asked.header("authorization").unwrap_or_default();
            let is_handed = pass == format!("Bearer {MACAROON}") && matches!(&asked.method[..], "GET" | "PUT");
            if pass == own || is_handed { first(asked) } else { Some(Said::new(401, b"")) }
        };
        let address = fakes::dav::start(root, GOOD, Arc::new(before));
        let file = tokens.path().join(token);
        std::fs::write(&file, token).unwrap();
        let endpoint = format!("dav://{address}");
        (address, SiteConfig { endpoint, token_file: Some(file), ..SiteConfig::default() })
    };
    let (from_address, reads) = site(from.path(), "hunter2");
    let (address, writes) = site(to.path(), "hunter3");
    let sites = Sites::new(vec![reads, writes], Stop::default());
    let (is_shared, notes) = between(&sites, &from_address, &to, &address, &content);
    let heard = heard.lock().unwrap().clone();
    assert!(!notes.concat().contains("hunter") && !heard.concat().contains("hunter"), "{notes:?} {heard:?}");
    (is_shared, notes, heard)
}

#[test]
fn a_server_hands_a_macaroon_to_another_and_never_the_users_token() {
    let fetches: First = |_| None;
    let sends: First = |asked| asked.header("source").map(|_| Said::new(405, b""));
    for (first, told, activity) in [
        (fetches, "the destination fetched them", "activity:DOWNLOAD"),
        (sends, "the source sent them", "activity:UPLOAD,MANAGE"),
    ] {
        let (is_shared, notes, heard) = by_tokens(first);
        assert!(is_shared && notes.concat().contains(told), "{notes:?}");
        let [.., asked_for, pass] = &heard[..] else { panic!("{heard:?}") };
        assert!(asked_for.contains(activity) && asked_for.contains("PT60M"), "{heard:?}");
        assert_eq!(*pass, format!("Bearer {MACAROON}"));
    }
}

#[test]
fn two_tokens_and_no_macaroon_lead_through_this_host_which_is_told() {
    let (is_shared, notes, heard) = by_tokens(|asked| (asked.method == "POST").then(|| Said::new(405, b"")));
    let told = notes.concat();
    assert!(!is_shared && told.contains("through this host") && told.contains("makes no macaroon"), "{notes:?}");
    assert!(heard.iter().all(|one| one.contains("activity:")), "a pass was handed on: {heard:?}");
}

#[test]
fn markers_of_a_failure_and_markers_that_are_cut_do_not_count_though_all_of_it_is_there() {
    let content = vec![7; 300_000];
    for (end, is_cut, told) in [
        ("failure: rejected PUT: 507", false, "failure: rejected PUT: 507"),
        ("success: Created", true, "closed the connection early"),
    ] {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(from.path().join("f"), &content).unwrap();
        let (root, bytes) = (to.path().to_owned(), content.clone());
        let copies: Arc<Before> = Arc::new(move |asked: &Asked| {
            if asked.method != "COPY" {
                return None;
            }
            let name = asked.header("destination").unwrap_or(&asked.target).rsplit('/').next().unwrap_or_default();
            std::fs::write(root.join(name), &bytes).unwrap();
            let markers = format!("Perf Marker\n    Stripe Bytes Transferred: 300000\nEnd\n{end}\n");
            let mut said = Said::new(202, markers.as_bytes());
            said.is_cut = is_cut;
            Some(said)
        });
        let from_address = fakes::dav::start(from.path(), GOOD, copies.clone());
        let address = fakes::dav::start(to.path(), GOOD, copies);
        let (is_shared, notes) = between(&Sites::default(), &from_address, &to, &address, &content);
        assert!(!is_shared && notes.concat().contains("through this host"), "{notes:?}");
        assert_eq!(notes.concat().matches(told).count(), 2, "by fetching and by sending: {notes:?}");
    }
}

#[test]
fn a_copy_between_servers_counts_when_both_state_the_same() {
    let content = vec![7; 300_000];
    let from = tempfile::tempdir().unwrap();
    std::fs::write(from.path().join("f"), &content).unwrap();
    let from_address = fakes::dav::start(from.path(), GOOD, Arc::new(copies_nothing));
    let wrong = vec![8; 300_000];
    // What the server has there when it says what; whether that counts, and what is told of it.
    type Case = (&'static str, Option<Vec<u8>>, bool, &'static str);
    let cases: [Case; 6] = [
        ("success: Created\n", Some(content.clone()), true, "the destination fetched them"),
        ("Perf Marker\nStripe Bytes Transferred: 9\nEnd\n", Some(content.clone()), true, "fetched"),
        ("success: Created\n", Some(wrong), false, "what it copied is not what the source holds"),
        ("success: Created\n", None, false, "no such file"),
        ("failure: no route\n", Some(content[..9].to_vec()), false, "failure: no route"),
        ("aborted: full\n", None, false, "aborted: full"),
    ];
    for (says, has, counts, told) in cases {
        let to = tempfile::tempdir().unwrap();
        let (root, source) = (to.path().to_owned(), format!("http://{from_address}/f"));
        let address = fakes::dav::start(
            to.path(),
            GOOD,
            Arc::new(move |asked: &Asked| {
                (asked.method == "COPY").then(|| {
                    assert_eq!(asked.header("source"), Some(&source[..]));
                    assert_eq!(asked.header("credential"), Some("none"));
                    if let Some(bytes) = &has {
                        std::fs::write(root.join(asked.target.trim_start_matches('/')), bytes).unwrap();
                    }
                    Said::new(201, says.as_bytes())
                })
            }),
        );
        let (is_shared, notes) = between(&Sites::default(), &from_address, &to, &address, &content);
        assert_eq!(is_shared, counts, "{says} {notes:?}");
        assert!(notes.concat().contains(told), "{says} {notes:?}");
    }
}

/// A server may still write what it was told to copy, and seemed to give up.
#[test]
fn each_attempt_at_a_copy_goes_to_a_name_of_its_own() {
    let content = vec![7; 300_000];
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(from.path().join("f"), &content).unwrap();
    let asked_for: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
    let note = |method: &str, path: &str| (method.to_owned(), path.rsplit('/').next().unwrap_or_default().to_owned());
    let seen = asked_for.clone();
    let sends = move |asked: &Asked| {
        let to = asked.header("destination").filter(|_| asked.method == "COPY")?;
        seen.lock().unwrap().push(note("COPY", to));
        Some(Said::new(201, b"failure: no route\n"))
    };
    let (seen, root) = (asked_for.clone(), to.path().to_owned());
    let fetches = move |asked: &Asked| {
        let is_content = asked.method == "PUT" && asked.body.len() > 10;
        if is_content || matches!(&asked.method[..], "COPY" | "DELETE") {
            seen.lock().unwrap().push(note(&asked.method, &asked.target));
        }
        if is_content {
            // What was to be fetched appears when it is no longer waited for.
            let seen = seen.lock().unwrap();
            let (_, name) = seen.iter().find(|(method, _)| method == "COPY").unwrap();
            std::fs::write(root.join(name), b"late").unwrap();
        }
        (asked.method == "COPY").then(|| Said::new(201, b"failure: no route\n"))
    };
    let from_address = fakes::dav::start(from.path(), GOOD, Arc::new(sends));
    let address = fakes::dav::start(to.path(), GOOD, Arc::new(fetches));
    let (is_shared, notes) = between(&Sites::default(), &from_address, &to, &address, &content);
    assert!(!is_shared && notes.concat().contains("no route"), "{notes:?}");
    let asked_for = asked_for.lock().unwrap();
    let written: Vec<_> = asked_for.iter().filter(|(method, _)| method != "DELETE").collect();
    let names: std::collections::HashSet<_> = written.iter().map(|(_, name)| name).collect();
    assert_eq!((written.len(), names.len()), (3, 3), "{asked_for:?}");
    for (_, name) in &written[..2] {
        let removed = asked_for.iter().filter(|(method, other)| method == "DELETE" && other == name).count();
        assert_eq!(removed, 2, "{asked_for:?}");
    }
}

#[test]
fn parts_of_a_file_are_compared_together_in_whatever_order_they_come() {
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 7 % 251) as u8).collect();
    for lies in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), &content).unwrap();
        let address = fakes::dav::start(dir.path(), Manners { lies, ..GOOD }, Arc::new(|_| None));
        let source = open("dav", &format!("{address}/f")).ok().unwrap();
        let (objects, _) = scan(&*source);
        let mut lane = source.lane();
        let file = lane.open(&objects[0]).unwrap();
        let parts = [(1_000_000, 2_000_000), (2_000_000, 3_000_000), (0, 1_000_000)];
        let read: Vec<_> = parts
            .into_iter()
            .map(|(start, end)| lane.read_extent(&*file, Extent { start, end }, &mut [0; 70_000], &mut |_| true))
            .collect();
        assert!(read[..2].iter().all(|read| read.as_ref().is_ok_and(|read| *read == 1_000_000)));
        assert_eq!(read[2].is_err(), lies, "{:?}", read[2]);
    }
}
