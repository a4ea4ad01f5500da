//! Small files that are fetched before they are read, from a server in this process that answers as one far away.

mod support;

use fakes::dav::{Manners, adler32, start};
use fakes::http::{Asked, Said};
use model::{Extent, FailureKind, Generation};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use store::{Source, SourceLane, SourceObject};
use support::{open, scan};

/// Each of its answers takes so long: longer than a server near by is thought to take.
const AWAY: Duration = Duration::from_millis(10);
const GOOD: Manners = Manners { decodes: true, keeps: true, takes_times: true, lies: false, ahead_seconds: 0 };

struct Far {
    dir: tempfile::TempDir,
    source: Arc<dyn Source>,
    objects: Vec<SourceObject>,
}

fn content(name: &str) -> Vec<u8> {
    format!("content of {name}").into_bytes()
}

/// A far server with the files `f00`, `f01` and so on, and with rules that come first.
fn far(count: usize, before: impl Fn(&Asked) -> Option<Said> + Send + Sync + 'static) -> Far {
    let dir = tempfile::tempdir().unwrap();
    for name in (0..count).map(|number| format!("f{number:02}")) {
        std::fs::write(dir.path().join(&name), content(&name)).unwrap();
    }
    let late = move |asked: &Asked| {
        std::thread::sleep(AWAY);
        before(asked)
    };
    let address = start(dir.path(), GOOD, Arc::new(late));
    let source = open("dav", &format!("{address}/")).ok().unwrap();
    let (objects, failures) = scan(&*source);
    assert!(failures.is_empty() && objects.len() == count, "{failures:?}");
    Far { dir, source, objects }
}

/// Content with the checksum of some content.
fn said(of: &str, checksum_of: &str) -> Said {
    Said::new(200, &content(of)).with("digest", &format!("adler32={:08x}", adler32(&content(checksum_of))))
}

fn lost() -> Option<Said> {
    let mut said = Said::new(200, b"");
    said.is_lost = true;
    Some(said)
}

fn asks_for(asked: &Asked, method: &str) -> bool {
    asked.method == method && asked.header("want-digest").is_some()
}

fn read(lane: &mut dyn SourceLane, object: &SourceObject) -> Result<(Vec<u8>, Generation), FailureKind> {
    let mut buffer = vec![0; object.entry.size_bytes() as usize];
    let (read, generation) = lane.read_whole(object, &mut buffer).map_err(|e| e.kind)?;
    buffer.truncate(read);
    Ok((buffer, generation))
}

/// Reads a file, which is as it was listed.
fn is_read(lane: &mut dyn SourceLane, object: &SourceObject) {
    let name = object.entry.name.to_string();
    assert_eq!(read(lane, object), Ok((content(&name), object.entry.generation)), "{name}");
}

/// Names all files ahead, and reads each.
fn are_read(source: &dyn Source, objects: &[SourceObject]) {
    let mut lane = source.lane();
    lane.ahead(objects);
    objects.iter().for_each(|object| is_read(&mut *lane, object));
}

#[test]
fn files_named_ahead_are_on_their_way_together_and_are_read_in_their_order() {
    const TOGETHER: usize = 12;
    // How many files are being asked for, and how many were at once at most.
    let asked_for = Arc::new((Mutex::new((0, 0)), Condvar::new()));
    let counted = asked_for.clone();
    let far = far(TOGETHER, move |asked| {
        if asked.method == "GET" {
            let (counts, changed) = &*counted;
            let mut now = counts.lock().unwrap();
            now.0 += 1;
            now.1 = now.1.max(now.0);
            changed.notify_all();
            // None leaves before so many have been asked for.
            let (mut now, _) = changed.wait_timeout_while(now, Duration::from_secs(5), |now| now.1 < TOGETHER).unwrap();
            now.0 -= 1;
        }
        None
    });
    are_read(&*far.source, &far.objects);
    assert_eq!(asked_for.0.lock().unwrap().1, TOGETHER);
}

#[test]
fn a_small_file_is_fetched_without_its_checksum_which_is_asked_for_once() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let noted = log.clone();
    let far = far(5, move |asked| {
        let wants_digest = asked.header("want-digest").is_some();
        noted.lock().unwrap().push((asked.target.clone(), asked.method.clone(), wants_digest));
        None
    });
    log.lock().unwrap().clear();
    are_read(&*far.source, &far.objects);
    let mut log = log.lock().unwrap().clone();
    log.sort();
    let requests = |number: usize| {
        let of = |method: &str, wants_digest| (format!("/f{number:02}"), method.to_owned(), wants_digest);
        [of("GET", false), of("HEAD", true), of("PROPFIND", false)]
    };
    assert_eq!(log, (0..5).flat_map(requests).collect::<Vec<_>>());
}

#[test]
fn a_server_is_never_asked_for_two_checksums_at_once() {
    // Requests for checksums: how many are being answered, how many were at once at most, how many are for content too.
    let counts = Arc::new(Mutex::new((0, 0, 0)));
    let counted = counts.clone();
    let far = far(24, move |asked| {
        asked.header("want-digest")?;
        {
            let mut now = counted.lock().unwrap();
            now.0 += 1;
            now.1 = now.1.max(now.0);
            now.2 += usize::from(asked.method == "GET");
        }
        std::thread::sleep(AWAY);
        counted.lock().unwrap().0 -= 1;
        // Asked for again, with the content.
        let is_untold = (&asked.method[..], &asked.target[..]) == ("HEAD", "/f07");
        is_untold.then(|| Said::new(200, &content("f07")))
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut lane = far.source.lane();
            for object in &far.objects[..6] {
                let (file, end) = (lane.open(object).unwrap(), object.entry.size_bytes());
                let read = lane.read_extent(&*file, Extent { start: 0, end }, &mut [0; 64], &mut |_| true);
                assert_eq!(read.unwrap(), end);
            }
        });
        are_read(&*far.source, &far.objects);
    });
    assert_eq!(*counts.lock().unwrap(), (0, 1, 7));
}

#[test]
fn checksums_that_a_cut_left_out_come_over_another_connection_or_alone() {
    for is_once in [true, false] {
        let (cuts, alone) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
        let (cut, counted) = (cuts.clone(), alone.clone());
        let far = far(12, move |asked| {
            *counted.lock().unwrap() += usize::from(asks_for(asked, "GET"));
            if !(asks_for(asked, "HEAD") && asked.target == "/f05") {
                return None;
            }
            let mut cut = cut.lock().unwrap();
            *cut += 1;
            if is_once && *cut > 1 { None } else { lost() }
        });
        are_read(&*far.source, &far.objects);
        assert_eq!((*cuts.lock().unwrap(), *alone.lock().unwrap() == 0), (2, is_once));
    }
}

#[test]
fn a_checksum_of_the_file_before_is_no_damage() {
    let alone = Arc::new(Mutex::new(Vec::new()));
    let noted = alone.clone();
    let far = far(12, move |asked| {
        let mut noted = noted.lock().unwrap();
        noted.extend(asks_for(asked, "GET").then(|| asked.target.clone()));
        // Alone, too, where the connection was used before.
        let is_repeated = asked.header("want-digest").is_some() && asked.target == "/f03" && noted.len() < 2;
        is_repeated.then(|| said("f03", "f02"))
    });
    are_read(&*far.source, &far.objects);
    assert_eq!(*alone.lock().unwrap(), ["/f03", "/f03"]);
}

#[test]
fn a_server_that_closes_after_each_answer_is_asked_for_one_checksum_after_the_other() {
    let heads = Arc::new(Mutex::new(0));
    let counted = heads.clone();
    let far = far(12, move |asked| {
        let name = asked.target.trim_start_matches('/');
        asks_for(asked, "HEAD").then(|| {
            *counted.lock().unwrap() += 1;
            said(name, name).with("connection", "close")
        })
    });
    for _ in 0..3 {
        are_read(&*far.source, &far.objects);
    }
    assert!(std::mem::take(&mut *heads.lock().unwrap()) > 0);
    are_read(&*far.source, &far.objects);
    assert_eq!(*heads.lock().unwrap(), 0);
}

#[test]
fn a_checksum_that_lies_elsewhere_is_asked_for_there_alone() {
    let made = far(12, |_| None);
    let log = Arc::new(Mutex::new(Vec::new()));
    let (at_home, abroad) = (log.clone(), log.clone());
    let note = |log: &Mutex<Vec<(&'static str, String)>>, place: &'static str, asked: &Asked| {
        std::thread::sleep(AWAY);
        log.lock().unwrap().extend(asks_for(asked, "GET").then(|| (place, asked.target.clone())));
    };
    let there = move |asked: &Asked| {
        note(&abroad, "there", asked);
        None
    };
    let address = start(made.dir.path(), GOOD, Arc::new(there));
    let redirects = move |asked: &Asked| {
        note(&at_home, "home", asked);
        let is_elsewhere = asked.header("want-digest").is_some() && asked.target == "/f05";
        is_elsewhere.then(|| Said::new(307, b"").with("location", &format!("http://{address}/f05")))
    };
    let home = start(made.dir.path(), GOOD, Arc::new(redirects));
    let source = open("dav", &format!("{home}/")).ok().unwrap();
    are_read(&*source, &scan(&*source).0);
    assert_eq!(*log.lock().unwrap(), [("home", "/f05".to_owned()), ("there", "/f05".to_owned())]);
}

#[test]
fn what_goes_wrong_with_a_file_is_told_when_that_file_is_read() {
    let far = far(4, |asked| match (&asked.method[..], &asked.target[..]) {
        ("GET", "/f01") => Some(Said::new(403, b"")),
        ("GET", "/f02") => Some(Said::new(404, b"")),
        _ => None,
    });
    let mut lane = far.source.lane();
    lane.ahead(&far.objects);
    is_read(&mut *lane, &far.objects[0]);
    assert_eq!(read(&mut *lane, &far.objects[1]), Err(FailureKind::Permission));
    assert_eq!(read(&mut *lane, &far.objects[2]), Err(FailureKind::NotFound));
    is_read(&mut *lane, &far.objects[3]);
}

#[test]
fn content_that_differs_from_its_checksum_is_an_error_of_its_file() {
    let far = far(3, |asked| {
        let is_changed = (&asked.method[..], &asked.target[..]) == ("GET", "/f01");
        is_changed.then(|| Said::new(200, b"c0ntent of f01").with("digest", "adler32=00000001"))
    });
    let mut lane = far.source.lane();
    lane.ahead(&far.objects);
    is_read(&mut *lane, &far.objects[0]);
    assert_eq!(read(&mut *lane, &far.objects[1]), Err(FailureKind::DigestMismatch));
    is_read(&mut *lane, &far.objects[2]);
}

#[test]
fn a_file_that_changes_meanwhile_has_another_generation() {
    let root = Arc::new(Mutex::new(PathBuf::new()));
    let of = root.clone();
    let far = far(3, move |asked| {
        // It is looked at once its content has come, and before its checksum has or after.
        if (&asked.method[..], &asked.target[..]) == ("PROPFIND", "/f01") {
            std::fs::write(of.lock().unwrap().join("f01"), "CONTENT of f01").unwrap();
        }
        None
    });
    *root.lock().unwrap() = far.dir.path().to_owned();
    std::fs::write(far.dir.path().join("f02"), "longer than it was listed").unwrap();
    let mut lane = far.source.lane();
    lane.ahead(&far.objects);
    is_read(&mut *lane, &far.objects[0]);
    let (bytes, generation) = read(&mut *lane, &far.objects[1]).unwrap();
    assert!(bytes.eq_ignore_ascii_case(&content("f01")) && generation != far.objects[1].entry.generation);
    let (bytes, generation) = read(&mut *lane, &far.objects[2]).unwrap();
    assert!(bytes.is_empty() && generation != far.objects[2].entry.generation);
}

#[test]
fn files_that_are_named_again_are_fetched_again() {
    let far = far(3, |_| None);
    let mut lane = far.source.lane();
    lane.ahead(&far.objects);
    is_read(&mut *lane, &far.objects[0]);
    std::fs::write(far.dir.path().join("f01"), "CONTENT of f01").unwrap();
    let again: Vec<_> = far.objects.iter().map(|object| far.source.look_again(object).unwrap()).collect();
    lane.ahead(&again);
    is_read(&mut *lane, &again[0]);
    let seen = (b"CONTENT of f01".to_vec(), again[1].entry.generation);
    assert_eq!(read(&mut *lane, &again[1]), Ok(seen));
    is_read(&mut *lane, &again[2]);
}

#[test]
fn a_file_that_does_not_come_is_asked_for_again_and_holds_up_no_other() {
    let is_stalled = AtomicBool::new(false);
    let asked_for = Arc::new(Mutex::new(Vec::new()));
    let seen = asked_for.clone();
    let far = far(20, move |asked| {
        seen.lock().unwrap().extend((asked.method == "GET").then(|| asked.target.clone()));
        let stalls = (&asked.method[..], &asked.target[..]) == ("GET", "/f01") && !is_stalled.swap(true, Relaxed);
        stalls.then(|| {
            let mut said = Said::new(200, b"");
            said.is_stalled = true;
            said
        })
    });
    let mut lane = far.source.lane();
    lane.ahead(&far.objects);
    far.objects.iter().for_each(|object| is_read(&mut *lane, object));
    assert_eq!(asked_for.lock().unwrap().iter().filter(|target| *target == "/f01").count(), 2);
}

#[test]
fn files_named_ahead_come_from_where_a_server_redirects_to() {
    let there = far(3, |_| None);
    let address = start(there.dir.path(), GOOD, Arc::new(|_: &Asked| None));
    let redirects =
        move |asked: &Asked| Some(Said::new(307, b"").with("location", &format!("http://{address}{}", asked.target)));
    let home = start(there.dir.path(), GOOD, Arc::new(redirects));
    let source = open("dav", &format!("{home}/")).ok().unwrap();
    let (objects, _) = scan(&*source);
    let mut lane = source.lane();
    lane.ahead(&objects);
    assert_eq!(objects.len(), 3);
    objects.iter().for_each(|object| is_read(&mut *lane, object));
}

#[test]
fn a_server_that_states_no_checksum_of_many_files_is_not_asked_separately_any_more() {
    let heads = Arc::new(Mutex::new(0));
    let counted = heads.clone();
    let far = far(20, move |asked| {
        *counted.lock().unwrap() += usize::from(asked.method == "HEAD");
        let is_of_content = matches!(&asked.method[..], "GET" | "HEAD");
        is_of_content.then(|| Said::new(200, &content(asked.target.trim_start_matches('/'))))
    });
    let mut lane = far.source.lane();
    far.objects.iter().for_each(|object| is_read(&mut *lane, object));
    // Of each of the first 16, apart from the content and, as none came, after it was asked for with the content.
    assert_eq!(*heads.lock().unwrap(), 2 * 16);
}
