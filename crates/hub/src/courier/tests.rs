//! What the courier makes of errands, and of what comes back.

use super::*;
use crate::job_file::JobFile;
use daemon::endpoints::Replace;
use daemon::{ServeOptions, Served, enrol};
use model::order::Role;

fn courier(dir: &tempfile::TempDir, book: &EndpointBook, words: SyncSender<Word>) -> Arc<Courier> {
    let identity = Identity::generate().unwrap();
    let crews = Crews::new(book.clone(), identity.clone(), dir.path());
    Courier::new("a", book.clone(), identity, crews, words)
}

#[test]
fn errands_go_over_the_first_session_that_has_room() {
    let mut inbox = Inbox::default();
    (0..9).for_each(|n| assert!(inbox.take_in(Errand::Forget { order: JobId([n; 16]) })));
    let desks: Vec<_> = std::iter::from_fn(|| inbox.hand_out().map(|(_, desk)| desk)).collect();
    assert_eq!(desks, [0, 0, 0, 1, 1, 1]);
    inbox.busy[0] -= 1;
    assert!(inbox.hand_out().is_some_and(|(_, desk)| desk == 0) && inbox.hand_out().is_none());
}

#[test]
fn an_endpoint_that_is_away_is_not_dialled_as_often_as_one_that_has_orders() {
    let (dir, (words, said)) = (crate::scene::state(), std::sync::mpsc::sync_channel(8));
    let book = EndpointBook::new(dir.path().join("endpoints"));
    let courier = courier(&dir, &book, words);
    courier.open.store(1, Ordering::Relaxed);
    assert!(!courier.look_once() && matches!(said.recv(), Ok(Word::Unreached { .. })));
    assert_eq!((pause(false, true), pause(true, true), pause(true, false)), (LOOK_AWAY, LOOK, LOOK_IDLE));
}

#[test]
fn what_an_endpoint_refuses_for_the_moment_it_is_told_again() {
    let untold = |exit, is_heard| is_untold(&Error::new(exit, "no"), is_heard);
    assert!(untold(Exit::Temporary, true) && untold(Exit::NoSpace, true) && untold(Exit::Failed, false));
    assert!(!untold(Exit::Failed, true) && !untold(Exit::Refused, true) && !untold(Exit::Fatal, true));
}

#[test]
fn what_is_on_its_way_is_not_sent_again() {
    let (mut inbox, order, other) = (Inbox::default(), JobId([1; 16]), JobId([2; 16]));
    assert!(inbox.take_in(Errand::Forget { order }) && !inbox.take_in(Errand::Forget { order }));
    assert!(inbox.take_in(Errand::Stop { order }) && inbox.take_in(Errand::Forget { order: other }));
    let first = inbox.errands.pop_front().unwrap();
    assert!(!inbox.take_in(Errand::Forget { order }), "it is being said");
    inbox.pending.remove(&first.key().unwrap());
    assert!(inbox.take_in(Errand::Forget { order }), "it was said, and is asked for again");
    let change = |order| Errand::Change { order, rate: None, class: None };
    assert!(inbox.take_in(change(order)) && inbox.take_in(change(other)));
    assert!(!inbox.take_in(change(order)), "the one before could arrive after it");
}

#[test]
fn a_session_is_left_where_its_name_has_another_key() {
    let (dir, (words, _said)) = (crate::scene::state(), std::sync::mpsc::sync_channel(8));
    let book = EndpointBook::new(dir.path().join("endpoints"));
    let courier = courier(&dir, &book, words);
    let (before, after) = (book.get("a").unwrap(), Pin([9; 32]));
    assert!(courier.is_still(before.pin));
    let replaced = Endpoint { pin: after, ..before.clone() };
    book.add(&replaced, daemon::endpoints::Replace::Always).unwrap();
    assert!(!courier.is_still(before.pin) && courier.is_still(after));
}

#[test]
fn an_errand_for_which_there_was_no_thread_is_run_after_the_next_look() {
    let (dir, (words, _said)) = (crate::scene::state(), std::sync::mpsc::sync_channel(8));
    let book = EndpointBook::new(dir.path().join("endpoints"));
    let courier = courier(&dir, &book, words);
    let stop = || Errand::Stop { order: JobId([1; 16]) };
    assert!(courier.lock().take_in(stop()));
    courier.look();
    crate::scene::until(|| !courier.has(&stop()));
    courier.stop();
}

#[test]
fn an_endpoint_that_does_not_answer_in_time_is_away_although_its_session_goes_on() {
    let (dir, (words, said)) = (crate::scene::state(), std::sync::mpsc::sync_channel(8));
    let book = EndpointBook::new(dir.path().join("endpoints"));
    let courier = courier(&dir, &book, words);
    let is_enough = |answer_max| courier.patience(answer_max)();
    assert!(is_enough(Duration::ZERO) && !is_enough(ANSWER_MAX));
    let (late, busy) = (Error::new(Exit::Interrupted, "stopped"), Error::new(Exit::Temporary, "busy"));
    assert!(is_silent(&late, true) && is_silent(&busy, false) && !is_silent(&busy, true));
    courier.lost(&late);
    let text = match said.recv() {
        Ok(Word::Unreached { text, .. }) => text,
        _ => String::new(),
    };
    assert!(text.contains("did not answer within 60 s"), "{text}");
    courier.stop();
    assert!(is_enough(ANSWER_MAX));
}

#[test]
fn an_order_that_was_taken_back_comes_no_more_and_one_that_has_come_goes_on() {
    let (dir, (words, said)) = (crate::scene::state(), std::sync::mpsc::sync_channel(8));
    let book = EndpointBook::new(dir.path().join("endpoints"));
    let courier = courier(&dir, &book, words);
    std::fs::create_dir(dir.path().join("root")).unwrap();
    let options = ServeOptions::new("127.0.0.1:0", dir.path().join("root"), dir.path().join("served"));
    let served = Served::start(options).unwrap();
    enrol(&served.ticket(), "a", &courier.identity, &book, Replace::Always).unwrap();
    let job = JobId([1; 16]);
    let hand_in = |attempt| {
        let wish = JobFile::from_json(r#"{"source":"a:x","destination":"b:y"}"#).unwrap().wish("anna").unwrap();
        let (kind, role, peer, spec) = (wish.kind, Role::Sends, "b".to_owned(), wish.spec);
        courier.hand_in(&Attempt { job, attempt, kind, role, peer, spec, is_for_one: true, is_alone: false }, 0)
    };
    let hear = || said.recv_timeout(Duration::from_secs(60));
    let answered = || match hear() {
        Ok(Word::Answered { attempt, answer, .. }) => Some((attempt, answer)),
        _ => None,
    };
    courier.take_back(job, 1, 0);
    assert_eq!(answered(), Some((1, Answer::Unknown)));
    let late = hand_in(1);
    assert!(matches!(late, Some(Answer::Refused { code, .. }) if code == Exit::Authentication as i32), "{late:?}");
    assert_eq!(hand_in(2), None);
    assert!(matches!(hear(), Ok(Word::Taken { attempt: 2, .. })));
    courier.take_back(job, 2, 0);
    assert!(said.try_recv().is_err(), "it is there");
    courier.abandon(job, 3, 0);
    assert_eq!(answered(), Some((3, Answer::TakesNone { text: TAKES_NONE.to_owned() })));
    courier.stop();
}
