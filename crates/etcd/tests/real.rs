//! The engine against real members, and against what is none.

use cluster::coordinator::{Coordinator, FaultKind};
use conformance::coordinators::examine;
use etcd::{Config, Etcd, PATIENCE};
use fakes::etcd::{Members, answerer};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

fn engine(urls: Vec<String>) -> Etcd {
    Etcd::new(Config { urls, ..Config::default() }).unwrap()
}

fn are_there() -> bool {
    needs::program("etcd") && needs::program("etcdctl")
}

fn pass(seconds: u64) {
    std::thread::park_timeout(Duration::from_secs(seconds));
}

#[test]
fn three_members_do_what_every_engine_has_to_and_outlive_their_leader() {
    if !are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut members = Members::start(dir.path(), 3);
    let etcd = engine(members.urls());
    examine(&etcd, "/thalweg/0123456789abcdef/", &pass);
    // The first that is asked stands still.
    members.pause(0, true);
    assert!(std::iter::repeat_with(|| etcd.get(&["/x".into()])).take(9).any(|got| got.is_ok()));
    members.pause(0, false);
    members.wait();
    let leader = members.leader();
    members.kill(leader);
    let began = Instant::now();
    let put = || etcd.change("/x", None, Some(b"1"), None);
    let answered = std::iter::repeat_with(put).find(|put| put.is_ok() || began.elapsed() > Duration::from_secs(30));
    // One that was given up may have come about.
    assert!(answered.unwrap().is_ok());
    let held = etcd.get(&["/x".into()]).unwrap().pop().unwrap().unwrap();
    assert_eq!((held.value.as_slice(), etcd.history().turns), (&b"1"[..], 0));
    // Without a majority nothing is answered, and nobody waits for long.
    members.kill((leader + 1) % 3);
    let began = Instant::now();
    assert_eq!(etcd.get(&["/x".into()]).unwrap_err().kind, FaultKind::Silent);
    assert!(began.elapsed() < 2 * PATIENCE);
}

#[test]
fn a_snapshot_that_is_restored_is_another_history() {
    if !are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut members = Members::start(dir.path(), 1);
    let etcd = engine(members.urls());
    assert!(etcd.change("/a", None, Some(b"1"), None).unwrap());
    let snapshot = dir.path().join("snapshot");
    members.ctl(&["snapshot", "save", snapshot.to_str().unwrap()]);
    for at in 0..9 {
        assert!(etcd.change(&format!("/b{at}"), None, Some(b"1"), None).unwrap());
    }
    let held = etcd.get(&["/a".into()]).unwrap().pop().unwrap();
    members.ctl(&["compact", &etcd.history().revision.to_string()]);
    assert_eq!(etcd.get(&["/a".into()]).unwrap(), std::slice::from_ref(&held), "what was compacted is history alone");
    members.restore(&snapshot);
    let again = || etcd.get(&["/b0".into()]);
    let began = Instant::now();
    let answer = std::iter::repeat_with(again).find(|got| got.is_ok() || began.elapsed() > Duration::from_secs(30));
    assert_eq!(answer.unwrap().unwrap(), [None]);
    assert!(etcd.history().turns > 0);
}

#[test]
fn a_user_is_let_in_by_a_password_and_again_when_the_token_has_ended() {
    if !are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let members = Members::start_with(dir.path(), 1, &["--auth-token-ttl", "1"]);
    for words in [
        &["user", "add", "root:r"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "site"],
        &["role", "grant-permission", "site", "--prefix=true", "readwrite", "/thalweg/"],
        &["user", "add", "site:secret"],
        &["user", "grant-role", "site", "site"],
        &["auth", "enable"],
    ] {
        members.ctl(words);
    }
    let user = |name: &str, password: &str| {
        let user = Some((name.to_owned(), password.to_owned().into()));
        Etcd::new(Config { urls: members.urls(), user, ..Config::default() }).unwrap()
    };
    let etcd = user("site", "secret");
    assert!(etcd.change("/thalweg/a", None, Some(b"1"), None).unwrap());
    assert_eq!(etcd.get(&["/other".into()]).unwrap_err().kind, FaultKind::Refused);
    pass(3);
    assert!(etcd.get(&["/thalweg/a".into()]).unwrap()[0].is_some(), "by another token");
    let wrong = user("site", "wrong").get(&["/thalweg/a".into()]).unwrap_err();
    assert!(wrong.kind == FaultKind::Refused && !format!("{wrong:?}{etcd:?}").contains("secret"), "{wrong:?}");
    assert_eq!(engine(members.urls()).get(&["/thalweg/a".into()]).unwrap_err().kind, FaultKind::Refused);
}

#[test]
fn what_is_no_etcd_is_found_out_and_nothing_of_it_is_believed() {
    let said =
        |body: &str| format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let header = r#""header":{"cluster_id":"1","revision":"5"}"#;
    let get = |url: String| engine(vec![url]).get(&["/a".into()]).map_err(|fault| fault.kind);
    let range = |pairs: &str| said(&format!(r#"{{{header},"responses":[{{"response_range":{{"kvs":[{pairs}]}}}}]}}"#));
    let other = r#"{"key":"L2I=","value":"","mod_revision":"3"}"#;
    for answer in [
        said("<html><body>It works!</body></html>"),
        "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 3\r\n\r\nno\n".to_owned(),
        said("{}"),
        said("[]"),
        said(&format!("{{{header}}}")),
        said(&format!(r#"{{{header},"responses":[]}}"#)),
        said(&format!(r#"{{{header},"responses":[{{}}]}}"#)),
        range(other),
        range(&format!("{other},{other}")),
        range(r#"{"key":"L2E="}"#),
        "SSH-2.0-OpenSSH\r\n".to_owned(),
    ] {
        assert_eq!(get(answerer(answer.clone().into_bytes(), false)), Err(FaultKind::Malformed), "{answer}");
    }
    // 1 GB, with and without its length.
    for head in ["HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"] {
        assert_eq!(get(answerer(head.as_bytes().to_vec(), true)), Err(FaultKind::Malformed));
    }
    let found = get(answerer(range(r#"{"key":"L2E=","value":"MQ==","mod_revision":"3"}"#).into_bytes(), false));
    assert_eq!(found.unwrap()[0].as_ref().unwrap().value, b"1");
    // A lease that is gone is answered, and has no end to come.
    let gone = answerer(said(r#"{"result":{"header":{},"ID":"7"}}"#).into_bytes(), false);
    assert!(!engine(vec![gone]).renew(cluster::coordinator::Lease(7)).unwrap());
    let list = answerer(said(&format!("{{{header},\"kvs\":[{other}]}}")).into_bytes(), false);
    assert_eq!(engine(vec![list]).list("/a/", 9).unwrap_err().kind, FaultKind::Malformed);
}

#[test]
fn an_answer_that_was_lost_is_looked_for() {
    if !are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let members = Members::start(dir.path(), 1);
    // What is sent through here arrives, and its first answer does not.
    let way = fakes::etcd::forgetful(&members.urls()[0]);
    let etcd = engine(vec![way]);
    assert!(etcd.change("/a", None, Some(b"1"), None).unwrap(), "it was done, and is not done again");
    let held = etcd.get(&["/a".into()]).unwrap().pop().unwrap().unwrap();
    assert!(etcd.change("/a", Some(&held), Some(b"2"), None).unwrap());
    // Nothing arrives, and somebody else has been there.
    let deaf = engine(vec![answerer(b"HTTP/1.1 2".to_vec(), false), members.urls()[0].clone()]);
    assert!(!deaf.change("/a", None, Some(b"3"), None).unwrap(), "a time-out is no success");
}

/// Answers one connection after the other with these, and is silent then; its address, and how many came.
fn scripted(answers: Vec<String>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, count) = (format!("http://{}", listener.local_addr().unwrap()), Arc::new(AtomicUsize::new(0)));
    let came = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let answer = answers.get(came.fetch_add(1, Relaxed)).map_or("", String::as_str);
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (url, count)
}

fn said(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// What a member says of a token that has ended.
fn ended() -> String {
    said("401 Unauthorized", r#"{"error":"etcdserver: invalid auth token","code":16}"#)
}

fn let_in() -> String {
    said("200 OK", r#"{"header":{"cluster_id":"1","revision":"5"},"token":"t"}"#)
}

/// `/a` is 1.
fn is_one() -> String {
    let kv = r#"{"key":"L2E=","value":"MQ==","mod_revision":"3"}"#;
    let header = r#""header":{"cluster_id":"1","revision":"5"}"#;
    said("200 OK", &format!(r#"{{{header},"responses":[{{"response_range":{{"kvs":[{kv}]}}}}]}}"#))
}

fn as_user(urls: Vec<String>) -> Etcd {
    Etcd::new(Config { urls, user: Some(("u".to_owned(), "p".to_owned().into())), ca_file: None }).unwrap()
}

#[test]
fn what_fails_after_a_token_has_ended_is_no_refusal() {
    let cut = String::new;
    let get = |etcd: &Etcd| etcd.get(&["/a".into()]);
    let (url, _) = scripted(vec![let_in(), ended(), cut()]);
    assert_eq!(get(&as_user(vec![url])).unwrap_err().kind, FaultKind::Silent);
    // A change is made with the new token, and its answer is lost.
    let (url, count) = scripted(vec![let_in(), ended(), let_in(), cut(), is_one()]);
    assert!(as_user(vec![url]).change("/a", None, Some(b"1"), None).unwrap());
    assert_eq!(count.load(Relaxed), 5);
    // Whoever is refused twice is.
    let (url, _) = scripted(vec![let_in(), ended(), let_in(), ended()]);
    assert_eq!(get(&as_user(vec![url])).unwrap_err().kind, FaultKind::Refused);
    // A member that refuses answers: it is asked first from then on.
    let ((first, first_count), (second, _)) =
        (scripted(vec![let_in(), cut()]), scripted(vec![ended(), let_in(), is_one()]));
    assert!(get(&as_user(vec![first, second])).unwrap()[0].is_some());
    assert_eq!(first_count.load(Relaxed), 2);
}

#[test]
fn what_a_member_does_not_know_is_not_refused() {
    let unknown = said("500 Internal Server Error", r#"{"error":"etcdserver: request timed out","code":2}"#);
    let get = |urls: Vec<String>| engine(urls).get(&["/a".into()]);
    let url = || scripted(vec![unknown.clone()]).0;
    assert_eq!(get(vec![url()]).unwrap_err().kind, FaultKind::Silent);
    assert!(get(vec![url(), scripted(vec![is_one()]).0]).unwrap()[0].is_some());
}

#[test]
fn while_a_leader_is_chosen_all_members_are_asked_again() {
    let changed = || said("503 Service Unavailable", r#"{"error":"etcdserver: leader changed","code":14}"#);
    let [(first, _), (second, _)] = [0, 1].map(|_| scripted(vec![changed(), is_one()]));
    assert!(engine(vec![first, second]).get(&["/a".into()]).unwrap()[0].is_some());
}

#[test]
fn a_change_that_came_late_is_told_from_that_of_somebody_else() {
    let header = r#""header":{"cluster_id":"1","revision":"5"}"#;
    let nothing = || said("200 OK", &format!(r#"{{{header},"responses":[{{"response_range":{{}}}}]}}"#));
    let other_there = || said("200 OK", &format!(r#"{{{header},"succeeded":false}}"#));
    for (new, is_done) in [(b"1", true), (b"2", false)] {
        // The answer is lost, nothing is there yet, and at the next try something is: 1.
        let (url, count) = scripted(vec![String::new(), nothing(), other_there(), is_one()]);
        assert_eq!(engine(vec![url]).change("/a", None, Some(new), None).unwrap(), is_done);
        assert_eq!(count.load(Relaxed), 4);
    }
}

#[test]
fn no_password_crosses_a_network_in_clear() {
    let user = Some(("u".to_owned(), "p".to_owned().into()));
    let clear = Config { urls: vec!["http://192.0.2.1:2379".into()], user, ca_file: None };
    assert_eq!(Etcd::new(clear).unwrap_err().kind, FaultKind::Settings);
    assert!(Etcd::new(Config::default()).is_err());
}
