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
/// Longer than a file may be silent.
const LONG: Duration = Duration::from_millis(2_500);
const TOGETHER: usize = 12;
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

/// Whether it is this request for this file.
fn asks_for(asked: &Asked, method: &str, target: &str) -> bool {
    asked.method == method && asked.target == target
}

/// Requests that are being answered: how many, and how many at most.
#[derive(Clone, Default)]
struct Crowd(Arc<(Mutex<(usize, usize)>, Condvar)>);

impl Crowd {
    /// None leaves before so many were there at once.
    fn join(&self) {
        let (counts, changed) = &*self.0;
        let mut now = counts.lock().unwrap();
        now.0 += 1;
        now.1 = now.1.max(now.0);
        changed.notify_all();
        let (mut now, _) = changed.wait_timeout_while(now, Duration::from_secs(5), |now| now.1 < TOGETHER).unwrap();
        now.0 -= 1;
    }

    fn most(&self) -> usize {
        let (counts, _) = &*self.0;
        counts.lock().unwrap().1
    }
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
fn files_named_ahead_are_looked_at_together_and_are_read_in_their_order() {
    let crowd = Crowd::default();
    let joined = crowd.clone();
    let far = far(TOGETHER, move |asked| {
        if asked.method == "PROPFIND" && asked.target.starts_with("/f") {
            joined.join();
        }
        None
    });
    are_read(&*far.source, &far.objects);
    assert_eq!(crowd.most(), TOGETHER);
}

#[test]
fn a_small_file_is_fetched_with_its_checksum_and_then_looked_at() {
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
        [of("GET", true), of("PROPFIND", false)]
    };
    assert_eq!(log, (0..5).flat_map(requests).collect::<Vec<_>>());
}

#[test]
fn a_server_is_never_asked_for_two_checksums_at_once() {
    // Requests for checksums: how many are being answered, how many were at once at most, how many came.
    let counts: Arc<Mutex<(u32, u32, u32)>> = Arc::default();
    let counted = counts.clone();
    let far = far(24, move |asked| {
        asked.header("want-digest")?;
        {
            let mut now = counted.lock().unwrap();
            now.0 += 1;
            now.1 = now.1.max(now.0);
            now.2 += 1;
        }
        std::thread::sleep(AWAY);
        counted.lock().unwrap().0 -= 1;
        // Asked for again, apart from the content.
        asks_for(asked, "GET", "/f07").then(|| Said::new(200, &content("f07")))
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
    assert_eq!(*counts.lock().unwrap(), (0, 1, 6 + 24 + 1));
}

#[test]
fn a_file_that_waits_for_another_ones_checksum_is_asked_for_once() {
    let asked_for = Arc::new(Mutex::new(Vec::new()));
    let seen = asked_for.clone();
    let far = far(4, move |asked| {
        if asked.method == "GET" {
            let is_first = {
                let mut seen = seen.lock().unwrap();
                seen.push(asked.target.clone());
                seen.len() == 1
            };
            std::thread::sleep(if is_first { LONG } else { Duration::ZERO });
        }
        None
    });
    are_read(&*far.source, &far.objects);
    let mut asked_for = asked_for.lock().unwrap().clone();
    asked_for.sort();
    assert_eq!(asked_for, ["/f00", "/f01", "/f02", "/f03"]);
}

#[test]
fn a_checksum_whose_answer_is_lost_is_asked_for_again() {
    let count = Arc::new(Mutex::new(0));
    let counted = count.clone();
    let far = far(12, move |asked| {
        if !asks_for(asked, "GET", "/f05") {
            return None;
        }
        let mut count = counted.lock().unwrap();
        *count += 1;
        let mut said = Said::new(200, b"");
        said.is_lost = true;
        (*count == 1).then_some(said)
    });
    are_read(&*far.source, &far.objects);
    assert_eq!(*count.lock().unwrap(), 2);
}

#[test]
fn a_checksum_of_the_file_before_is_no_damage() {
    let count = Arc::new(Mutex::new(0));
    let counted = count.clone();
    let far = far(12, move |asked| {
        if !asks_for(asked, "GET", "/f03") {
            return None;
        }
        let mut count = counted.lock().unwrap();
        *count += 1;
        let repeated = format!("adler32={:08x}", adler32(&content("f02")));
        (*count == 1).then(|| Said::new(200, &content("f03")).with("digest", &repeated))
    });
    are_read(&*far.source, &far.objects);
    assert_eq!(*count.lock().unwrap(), 2);
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
        // It is looked at once its content has come.
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
    assert!(bytes == content("f01") && generation != far.objects[1].entry.generation);
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

/// Nothing is said of it.
fn stalled() -> Said {
    let mut said = Said::new(200, b"");
    said.is_stalled = true;
    said
}

/// Five bytes of a file come, and no end.
fn begun() -> Said {
    let whole = content("f01");
    let mut said = Said::new(200, &whole[..5]);
    said.length = Some(whole.len() as u64);
    said
}

#[test]
fn of_a_file_that_is_late_only_what_is_missing_is_asked_for_again_and_it_holds_up_no_other() {
    // What goes wrong the first time, and the ranges that are asked for beside the whole file.
    let begun: fn() -> Said = begun;
    for (method, says, ranges) in [("PROPFIND", stalled as _, &[][..]), ("GET", begun, &["bytes=5-13"])] {
        let is_late = AtomicBool::new(false);
        let asked_for: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
        let seen = asked_for.clone();
        let far = far(20, move |asked| {
            let range = asked.header("range").map(str::to_owned);
            seen.lock().unwrap().extend(asks_for(asked, "GET", "/f01").then_some(range));
            let is_it = asks_for(asked, method, "/f01") && !is_late.swap(true, Relaxed);
            is_it.then(says)
        });
        let mut lane = far.source.lane();
        lane.ahead(&far.objects);
        far.objects.iter().for_each(|object| is_read(&mut *lane, object));
        let asked_for = asked_for.lock().unwrap();
        let told: Vec<_> = asked_for.iter().map(|range| range.as_deref().unwrap_or_default()).collect();
        assert_eq!(told, [&[""][..], ranges].concat(), "{method}");
    }
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
    // A server may also refuse such requests, whatever file they are for.
    for of_head in [200, 400] {
        let heads = Arc::new(Mutex::new(0));
        let counted = heads.clone();
        let far = far(20, move |asked| {
            *counted.lock().unwrap() += usize::from(asked.method == "HEAD");
            let status = if asked.method == "HEAD" { of_head } else { 200 };
            let is_of_content = matches!(&asked.method[..], "GET" | "HEAD");
            is_of_content.then(|| Said::new(status, &content(asked.target.trim_start_matches('/'))))
        });
        let mut lane = far.source.lane();
        far.objects.iter().for_each(|object| is_read(&mut *lane, object));
        // Of each of the first 16, after none came with the content.
        assert_eq!(*heads.lock().unwrap(), 16, "{of_head}");
    }
}

#[test]
fn files_of_a_server_that_stated_no_checksum_of_many_are_on_their_way_together() {
    // Without a checksum, and with one.
    let asked_for: Arc<Mutex<[usize; 2]>> = Arc::default();
    let crowd = Crowd::default();
    let (counted, joined) = (asked_for.clone(), crowd.clone());
    let far = far(16 + TOGETHER, move |asked| {
        let wants_digest = asked.header("want-digest").is_some();
        if asked.method == "GET" {
            counted.lock().unwrap()[usize::from(wants_digest)] += 1;
            if !wants_digest {
                joined.join();
            }
        }
        let is_of_content = matches!(&asked.method[..], "GET" | "HEAD");
        is_of_content.then(|| Said::new(200, &content(asked.target.trim_start_matches('/'))))
    });
    let (first, others) = far.objects.split_at(16);
    are_read(&*far.source, first);
    are_read(&*far.source, others);
    assert_eq!((*asked_for.lock().unwrap(), crowd.most()), ([TOGETHER, 16], TOGETHER));
}
