//! What the queue is told of what endpoints say, without any endpoint.

use super::*;
use crate::job_file::JobFile;
use crate::order::Attempt;
use crate::owner::Command;
use crate::rows::NewJob;
use crate::scene::{anna, jobs, start, state, until};
use crate::store::{Group, Store};
use crate::{Channels, Hub};
use daemon::hand_in::{OrderEnded, OrderNews};
use queue::Job;
use std::path::Path;

const ALL: u64 = u64::MAX;

fn told(status: Status, ended: bool) -> Told {
    let text = "\x1b[2J\n".repeat(1000);
    let news = OrderNews {
        status: status as u32,
        reason: 4_000_000_000,
        text: text.clone(),
        attempt: u32::MAX,
        files_listed: ALL,
        files_done: ALL,
        files_skipped: ALL,
        files_failed: ALL,
        bytes_listed: ALL,
        bytes_done: ALL,
        bytes_per_second: ALL,
        bytes_reached: ALL,
        until: ALL,
        ..OrderNews::default()
    };
    let ended = ended.then(|| OrderEnded {
        files_done: ALL,
        files_skipped: ALL,
        bytes: ALL,
        bytes_sent: ALL,
        removed: ALL,
        milliseconds: ALL,
        text,
        ..OrderEnded::default()
    });
    Told { news, ended, events: None }
}

fn says(hub: &Hub, endpoint: &str, told: Vec<(JobId, Told)>) {
    let census = Census { endpoint: endpoint.into(), as_of: 0, told, is_whole: true };
    hub.inner.commands.send(Command::Heard(Word::Census(census))).unwrap();
}

/// A database with one job, whose order `a` has: the job, and its order.
fn with_order(dir: &Path, body: &str) -> (JobId, JobId) {
    let wish = JobFile::from_json(r#"{"source":"a:x","destination":"b:y"}"#).unwrap().wish("unix:0").unwrap();
    let mut job = Job::new(JobId([1; 16]), 1, wish.facts.clone(), vec![]);
    (job.status, job.role, job.attempt) = (Status::Running, Some(Role::Sends), 1);
    let (id, body) = (job.id, body.to_owned());
    let new = vec![NewJob { id, seq: 1, wish, body, labels: vec![] }];
    let mut store = Store::open(dir).unwrap();
    store.commit(&Group { new, changes: vec![job], ..Group::default() }).unwrap();
    (id, order_id(id, 1))
}

/// From now on somebody takes what is sent to `a`, and says nothing.
fn silence(dir: &Path) -> std::net::TcpListener {
    silence_of(dir, "a")
}

fn silence_of(dir: &Path, endpoint: &str) -> std::net::TcpListener {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let book = daemon::EndpointBook::new(dir.join("endpoints"));
    let addresses = vec![silent.local_addr().unwrap().to_string()];
    let known = daemon::Endpoint { addresses, ..book.get(endpoint).unwrap() };
    book.add(&known, daemon::endpoints::Replace::Always).unwrap();
    silent
}

#[test]
fn an_order_on_its_way_is_not_missed_after_the_queue_was_read_back() {
    let dir = state();
    let _silent = silence(dir.path());
    let hub = start(dir.path(), Channels::default());
    let file = JobFile::from_json(r#"{"source":"a:x","destination":"b:y"}"#).unwrap();
    let job = hub.submit(&anna(), file, None).unwrap().id;
    until(|| {
        ["a", "b"].into_iter().for_each(|endpoint| says(&hub, endpoint, Vec::new()));
        jobs(&hub)[0].status == "running"
    });
    hub.look(Owner::load).unwrap().unwrap();
    says(&hub, "a", Vec::new());
    let status = hub.look(move |owner| owner.queue.get(job).map(|job| job.status)).unwrap();
    assert_eq!(status, Some(Status::Running), "the endpoint may get it yet");
    hub.stop();
}

#[test]
fn an_order_that_its_endpoint_misses_is_taken_back_before_another_is_given() {
    let dir = state();
    let (job, _) = with_order(dir.path(), r#"{"source":"a:x","destination":"b:y"}"#);
    let _silent = silence(dir.path());
    let hub = start(dir.path(), Channels::default());
    says(&hub, "a", Vec::new());
    assert!(is_on_its_way(&hub, Errand::TakeBack { job, attempt: 1 }));
    let attempt = |hub: &Hub| hub.look(move |owner| owner.queue.get(job).map(|job| job.attempt)).unwrap();
    assert_eq!(attempt(&hub), Some(1), "it may arrive yet, and both would run");
    let word = Word::Answered { job, attempt: 1, answer: Answer::Unknown };
    hub.inner.commands.send(Command::Heard(word)).unwrap();
    until(|| {
        says(&hub, "a", Vec::new());
        attempt(&hub) == Some(2)
    });
    hub.stop();
}

/// It would not let itself in any more, had the order come meanwhile.
#[test]
fn an_order_whose_both_ends_are_the_endpoint_that_misses_it_is_not_taken_back() {
    let dir = state();
    let (job, _) = with_order(dir.path(), r#"{"source":"a:x","destination":"a:y"}"#);
    let _silent = silence(dir.path());
    let hub = start(dir.path(), Channels::default());
    until(|| {
        says(&hub, "a", Vec::new());
        jobs(&hub)[0].attempt == 2
    });
    assert!(!is_on_its_way(&hub, Errand::TakeBack { job, attempt: 1 }));
    hub.stop();
}

#[test]
fn an_order_of_an_endpoint_that_carries_out_nothing_any_more_is_left_to_the_other_one() {
    let dir = state();
    let (job, _) = with_order(dir.path(), r#"{"source":"a:x","destination":"b:y"}"#);
    let _silent = [silence(dir.path()), silence_of(dir.path(), "b")];
    let hub = start(dir.path(), Channels::default());
    let takes_none = || {
        let word = Word::TakesNone { endpoint: "a".to_owned() };
        hub.inner.commands.send(Command::Heard(word)).unwrap();
    };
    let is_abandoned = || hub.look(move |owner| owner.courier("b").has(&Errand::Abandon { job, attempt: 1 })).unwrap();
    takes_none();
    assert!(!is_abandoned(), "whether the other one answers is not known yet");
    says(&hub, "b", Vec::new());
    takes_none();
    assert!(is_abandoned());
    let answer = Answer::TakesNone { text: String::new() };
    hub.inner.commands.send(Command::Heard(Word::Answered { job, attempt: 1, answer })).unwrap();
    until(|| {
        takes_none();
        says(&hub, "b", Vec::new());
        jobs(&hub)[0].executor.as_deref() == Some("b")
    });
    hub.stop();
}

#[test]
fn an_order_that_cannot_be_made_is_not_on_its_way() {
    let dir = state();
    let hub = start(dir.path(), Channels::default());
    // It is not in the database.
    let (job, endpoint) = (JobId([7; 16]), "a");
    let taken = hub.look(move |owner| {
        let id = order_id(job, 1);
        let (taken, rate_due, renewed, left_to_other) = (None, None, None, None);
        let order = Order { job, attempt: 1, endpoint: endpoint.into(), taken, rate_due, renewed, left_to_other };
        owner.orders.insert(id, order);
        owner.act(queue::Action::HandIn { id: job, attempt: 1, role: Role::Sends, endpoint: endpoint.into() });
        owner.orders[&id].taken
    });
    assert_eq!(taken.unwrap(), Some(0), "a census that does not have it says so");
    hub.stop();
}

#[test]
fn a_rate_that_was_not_told_while_the_queue_was_unread_is_told_again() {
    let dir = state();
    let (_, order) = with_order(dir.path(), r#"{"source":"a:x","destination":"b:y"}"#);
    let hub = start(dir.path(), Channels::default());
    let is_due = hub.look(move |owner| {
        owner.orders.get_mut(&order).unwrap().rate_due = None;
        owner.note_arrival(&Word::RateUntold { order });
        owner.orders[&order].rate_due.is_some()
    });
    assert!(is_due.unwrap());
    hub.stop();
}

#[test]
fn a_rate_that_is_changed_while_another_is_on_its_way_is_told_later() {
    let dir = state();
    let (job, order) = with_order(dir.path(), r#"{"source":"a:x","destination":"b:y"}"#);
    let _silent = silence(dir.path());
    let hub = start(dir.path(), Channels::default());
    let due = hub.look(move |owner| {
        [(); 2].map(|()| {
            owner.set_rate(job, 1, "a");
            owner.orders[&order].rate_due.is_some()
        })
    });
    assert_eq!(due.unwrap(), [false, true]);
    hub.stop();
}

#[test]
fn how_far_a_job_is_shown_to_be_does_not_fall_with_another_attempt_or_another_hub() {
    let dir = state();
    let (_, order) = with_order(dir.path(), r#"{"source":"a:x","destination":"b:y"}"#);
    let _silent = silence(dir.path());
    let hub = start(dir.path(), Channels::default());
    let reached = |bytes_reached| {
        let news = OrderNews { status: Status::Running as u32, bytes_reached, ..OrderNews::default() };
        vec![(order, Told { news, ended: None, events: None })]
    };
    assert_eq!(jobs(&hub)[0].bottleneck.as_deref(), Some("a is asked how far it is"));
    says(&hub, "a", reached(50));
    until(|| jobs(&hub)[0].bytes_reached == 50);
    says(&hub, "a", reached(10));
    hub.stop();
    drop(hub);
    let hub = start(dir.path(), Channels::default());
    assert_eq!(jobs(&hub)[0].bytes_reached, 50);
    hub.stop();
}

fn is_on_its_way(hub: &Hub, errand: Errand) -> bool {
    hub.look(move |owner| owner.courier("a").has(&errand)).unwrap()
}

/// A job whose order several hosts carry out, at `a` among others: the job, and its order.
fn together(hub: &Hub, dir: &Path) -> (JobId, JobId) {
    std::fs::write(dir.join("endpoints").join("a.hosts"), "[]").unwrap();
    let wish = JobFile::from_json(r#"{"source":"a:x/","destination":"b:y"}"#).unwrap().wish("unix:0").unwrap();
    let attempt = Attempt {
        job: JobId([1; 16]),
        attempt: 1,
        kind: wish.kind,
        role: Role::Sends,
        peer: "b".to_owned(),
        spec: wish.spec,
        is_for_one: false,
        is_alone: false,
    };
    let (job, order) = (attempt.job, attempt.id());
    assert!(hub.look(move |owner| owner.crews.take(&attempt)).unwrap());
    (job, order)
}

#[test]
fn parts_that_several_hosts_have_are_not_taken_for_orders_that_no_job_has() {
    let dir = state();
    let _silent = silence(dir.path());
    let hub = start(dir.path(), Channels::default());
    let (_, order) = together(&hub, dir.path());
    let (part, other) = (JobId([9; 16]), JobId([8; 16]));
    hub.look(move |owner| owner.crews.note_part(order, part)).unwrap();
    let is_stopped = |order: JobId| {
        says(&hub, "a", vec![(order, told(Status::Running, false))]);
        is_on_its_way(&hub, Errand::Stop { order })
    };
    assert!(!is_stopped(part));
    assert!(is_stopped(other), "it is nobody's, whoever is at work beside it");
    // What is left when they have ended is nobody's either.
    hub.look(move |owner| owner.crews.leave(order)).unwrap();
    assert!(is_stopped(part));
    hub.stop();
}

#[test]
fn what_several_hosts_carry_out_is_said_by_none_of_them_alone_and_ends_with_the_share_of_each() {
    let dir = state();
    with_order(dir.path(), r#"{"source":"a:x","destination":"b:y"}"#);
    let _silent = silence(dir.path());
    let hub = start(dir.path(), Channels::default());
    let (job, order) = together(&hub, dir.path());
    says(&hub, "a", vec![(order, told(Status::Succeeded, true))]);
    let mut news = told(Status::Running, false);
    (news.news.files_done, news.news.bytes_done) = (7, 70);
    let word = Word::News { endpoint: "a".to_owned(), order, told: Box::new(news) };
    hub.inner.commands.send(Command::Heard(word)).unwrap();
    until(|| hub.show(&anna(), job).unwrap().files.ok == 7);
    assert_eq!(jobs(&hub)[0].status, "running");
    // Nobody is asked at `a` to stop an order that it has not.
    hub.steer(&anna(), job, queue::Verb::Cancel, None).unwrap();
    until(|| !is_on_its_way(&hub, Errand::Stop { order }));
    let hosts = vec![HostShare { name: "a.a2".to_owned(), files: 9, ..HostShare::default() }];
    let word = Word::Ended { order, told: Box::new(told(Status::Succeeded, true)), hosts };
    hub.inner.commands.send(Command::Heard(word)).unwrap();
    until(|| jobs(&hub)[0].status == "succeeded");
    let report = hub.show(&anna(), job).unwrap().report.unwrap();
    assert_eq!((&report["hosts"][0]["name"], &report["hosts"][0]["files"]), (&"a.a2".into(), &9.into()));
    hub.look(move |owner| owner.crews.leave(order)).unwrap();
    hub.stop();
}

#[test]
fn a_job_that_several_hosts_had_under_another_hub_waits_for_no_endpoint() {
    let dir = state();
    let (job, _) = with_order(dir.path(), r#"{"source":"a:x/","destination":"b:y"}"#);
    daemon::crew::note_attempt(dir.path(), job, 1).unwrap();
    // Neither endpoint answers.
    let hub = start(dir.path(), Channels::default());
    until(|| jobs(&hub)[0].status != "running");
    hub.steer(&anna(), job, queue::Verb::Cancel, None).unwrap();
    until(|| jobs(&hub)[0].status == "cancelled");
    hub.stop();
}

#[test]
fn parts_of_a_job_that_is_cancelled_are_taken_back_and_those_of_one_that_is_removed_forgotten() {
    let dir = state();
    let (job, _) = with_order(dir.path(), r#"{"source":"a:x/","destination":"b:y"}"#);
    daemon::crew::note_attempt(dir.path(), job, 1).unwrap();
    let known = dir.path().join("crews").join(job.to_string());
    std::fs::write(known.join("slices.json"), format!(r#"["{}"]"#, JobId([9; 16]))).unwrap();
    let _silent = silence(dir.path());
    let hub = start(dir.path(), Channels::default());
    until(|| jobs(&hub)[0].status != "running");
    assert!(!is_on_its_way(&hub, Errand::RevokeParts { job, parts: Vec::new() }), "they are taken over");
    hub.steer(&anna(), job, queue::Verb::Cancel, None).unwrap();
    until(|| jobs(&hub)[0].status == "cancelled");
    assert!(is_on_its_way(&hub, Errand::RevokeParts { job, parts: Vec::new() }));
    assert!(known.exists(), "whoever begins it anew takes them over");
    hub.steer(&anna(), job, queue::Verb::Remove, None).unwrap();
    until(|| !known.exists());
    hub.stop();
}

#[test]
fn a_report_that_was_lost_is_asked_for_again() {
    let dir = state();
    let (_, order) = with_order(dir.path(), r#"{"source":"a:x","destination":"b:y"}"#);
    let hub = start(dir.path(), Channels::default());
    let says_failed = || {
        let mut failed = told(Status::Failed, true);
        failed.ended.as_mut().unwrap().code = 23;
        says(&hub, "a", vec![(order, failed)]);
    };
    says_failed();
    // Nobody listens there.
    until(|| !is_on_its_way(&hub, Errand::Report { order }));
    let _silent = silence(dir.path());
    says_failed();
    assert!(is_on_its_way(&hub, Errand::Report { order }));
    hub.stop();
}

#[test]
fn the_end_of_a_job_that_cannot_be_read_is_kept_where_it_is() {
    for (body, is_forgotten) in [
        (r#"{"source":"a:x","destination":"b:y","options":{"of-another-version":true}}"#, false),
        (r#"{"source":"a:x","destination":"b:y"}"#, true),
    ] {
        let dir = state();
        with_order(dir.path(), body);
        let _silent = silence(dir.path());
        let hub = start(dir.path(), Channels::default());
        let order = JobId([9; 16]);
        says(&hub, "a", vec![(order, told(Status::Succeeded, true))]);
        assert_eq!(is_on_its_way(&hub, Errand::Forget { order }), is_forgotten);
        hub.stop();
    }
}

#[test]
fn a_job_in_a_zone_that_this_host_knows_no_more_goes_on() {
    let dir = state();
    let windows = r#"[{"from":"22:00","to":"06:00","zone":"Mars/Olympus"}]"#;
    let (job, order) =
        with_order(dir.path(), &format!(r#"{{"source":"a:x","destination":"b:y","windows":{windows}}}"#));
    let hub = start(dir.path(), Channels::default());
    hub.steer(&anna(), job, queue::Verb::Cancel, None).unwrap();
    says(&hub, "a", vec![(order, told(Status::Succeeded, true))]);
    until(|| jobs(&hub)[0].status == "succeeded");
    hub.stop();
}

/// Ends of what it was never given, twice, or after the end; counts that no disk holds; statuses that are none.
#[test]
fn an_endpoint_that_lies_about_orders_ends_none_but_its_own_and_harms_nobody() {
    let dir = state();
    // What becomes of the order is known from the lies alone.
    let _silent = silence(dir.path());
    let hub = start(dir.path(), Channels::default());
    let file = |to: &str| JobFile::from_json(&format!(r#"{{"source":"a:x","destination":"b:{to}"}}"#)).unwrap();
    let job = hub.submit(&anna(), file("y"), None).unwrap().id;
    let status = || jobs(&hub).iter().find(|found| found.id == job.to_string()).unwrap().status.clone();
    // Both endpoints have nothing, so it is given to `a`.
    until(|| {
        ["a", "b"].into_iter().for_each(|endpoint| says(&hub, endpoint, Vec::new()));
        status() == "running"
    });
    let order = order_id(job, 1);
    for lie in [Status::Succeeded, Status::Cancelled, Status::Failed] {
        says(&hub, "b", vec![(order, told(lie, true)), (order, told(lie, true)), (job, told(lie, true))]);
        says(&hub, "nobody", vec![(order, told(lie, true))]);
    }
    says(&hub, "a", vec![(order_id(job, 2), told(Status::Succeeded, true)), (order, told(Status::Running, false))]);
    // What has an end by its status alone has none.
    says(&hub, "a", vec![(order, told(Status::Succeeded, false))]);
    let other = hub.submit(&anna(), file("z"), None).unwrap().id;
    assert_eq!(status(), "running");
    says(&hub, "a", vec![(order, told(Status::Succeeded, true)), (order, told(Status::Running, false))]);
    until(|| status() == "succeeded");
    let shown = hub.show(&anna(), job).unwrap();
    assert!(!serde_json::to_string(&shown).unwrap().contains("\\u001b"), "{shown:?}");
    assert_eq!(shown.files.ok, i64::MAX as u64);
    says(&hub, "a", vec![(order, told(Status::Failed, true))]);
    // It goes on for others.
    hub.steer(&anna(), other, queue::Verb::Cancel, None).unwrap();
    assert_eq!(status(), "succeeded");
    hub.stop();
}
