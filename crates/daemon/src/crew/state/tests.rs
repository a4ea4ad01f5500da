//! Who does what when hosts fail, leave, come back and commit, without any host.

use super::*;
use crate::crew::Crew;
use crate::crew::slice::Outcome;
use crate::hand_in::OrderEnded;
use model::TransferSpec;
use net::Identity;
use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::time::Instant;

fn endpoint(number: u8) -> Endpoint {
    Endpoint { name: format!("h{number}"), addresses: Vec::new(), pin: Pin([number; 32]), added: String::new() }
}

/// A job of which runs before have left so many slices.
fn with_left(dir: &Path, left: usize) -> State {
    let open = || Journal::open(dir, JobId([7; 16]), None, &|_| {}).unwrap();
    drop(open());
    let numbers: Vec<_> = (0..left).map(|number| JobId((number as u128).to_le_bytes()).to_string()).collect();
    let list = dir.join("crews").join(JobId([7; 16]).to_string()).join("slices.json");
    std::fs::write(list, serde_json::to_vec(&numbers).unwrap()).unwrap();
    State::new(open(), vec![endpoint(1), endpoint(2)], vec![endpoint(3), endpoint(4)], false)
}

#[test]
fn a_lone_sender_has_places_left_for_other_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = with_left(dir.path(), 0);
    assert_eq!(state.lanes(), LANES);
    state.hosts.truncate(1);
    assert_eq!(state.lanes(), 2 * LANES);
    state.receivers.extend((5..40).map(|number| Receiver::new(endpoint(number))));
    assert_eq!(state.lanes(), LANES_MAX);
}

#[test]
fn a_full_journal_is_waited_for_as_long_as_something_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = with_left(dir.path(), INSTEAD_OF_MAX);
    state.receivers[1].tasks = 1;
    assert!(!state.has_room() && state.failed.is_none());
    state.receivers[1].tasks = 0;
    assert!(!state.has_room());
    assert_eq!(state.failed.map(|e| e.exit), Some(Exit::Temporary));
}

fn spec() -> TransferSpec {
    let at = |name: &str| Location::Named { name: name.to_owned(), path: b"d/".to_vec() };
    TransferSpec::new(vec![at("h1")], at("h3"))
}

fn work<'a>(dir: &'a Path, spec: &'a TransferSpec, begun: &'a (dyn Fn(JobId) + Sync)) -> Work<'a> {
    Work {
        job: JobId([7; 16]),
        spec,
        senders: Vec::new(),
        receivers: Vec::new(),
        do_fetch: false,
        look: Arc::new(|| (None, None)),
        identity: Identity::generate().unwrap(),
        state: dir,
        common: None,
        stop: &|| false,
        begun,
        tell: &|_| {},
        show: &|_, _| {},
    }
}

fn told(bytes: u64) -> Told {
    let news = OrderNews { status: Status::Succeeded as u32, ..OrderNews::default() };
    Told { news, ended: Some(OrderEnded { bytes, ..OrderEnded::default() }), events: None }
}

#[test]
fn what_is_shown_of_all_parts_together_is_no_more_than_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let (mut state, begun) = (with_left(dir.path(), 0), Mutex::new(Vec::<JobId>::new()));
    let (spec, note) = (spec(), |slice: JobId| begun.lock().unwrap().push(slice));
    let work = work(dir.path(), &spec, &note);
    let news = |bytes_done, bytes_reached| OrderNews {
        status: Status::Running as u32,
        bytes_done,
        bytes_reached,
        ..OrderNews::default()
    };
    let seen = |state: &State| (state.news().bytes_done, state.news().bytes_reached);
    for start in [0, 100] {
        let range = Some(Extent::new(start, start + 100));
        let bundle =
            Bundle { paths: vec![b"f".to_vec()], weight: Weight { files: 1, bytes: 100 }, range, list_bytes: 1 };
        state.listed.add(bundle.weight);
        state.board.add(Arc::new(bundle.clone()), bundle.weight);
    }
    state.board.complete();
    let page = state.board.claim(0, (1, 0..1), 0, &mut |_| true).unwrap();
    let (task, bytes) = (state.task(&work, 0, Part::Page(page), 0).unwrap(), 100);
    assert_eq!(task.weight.bytes, bytes, "one range");
    state.note(&task, &news(0, 70));
    assert_eq!(seen(&state), (0, 70));
    // Its host skips the other range.
    state.note(&task, &news(200, 200));
    assert_eq!(seen(&state), (100, 100));
    assert!(state.commit(&task, &told(bytes), 1));
    state.forget(task.job);
    assert_eq!(seen(&state), (100, 100));
    // The last one goes over everything, and completes the file that others have brought.
    let last = state.task(&work, 0, Part::All, 0).unwrap();
    state.note(&last, &news(0, 150));
    assert_eq!(seen(&state), (100, 150));
    state.note(&last, &news(200, 400));
    assert_eq!(seen(&state), (200, 200));
    let queued = OrderNews { status: Status::Queued as u32, ..OrderNews::default() };
    assert_eq!(status_of(&state.news()), Status::Running);
    state.note(&last, &queued);
    assert_eq!(status_of(&state.news()), Status::Queued);
    assert_eq!(*begun.lock().unwrap(), [task.job, last.job]);
}

#[test]
fn what_is_too_much_for_one_slice_is_taken_over_by_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = with_left(dir.path(), INSTEAD_OF_MAX + 44);
    let spec = spec();
    let work = work(dir.path(), &spec, &|_| {});
    let task = state.task(&work, 0, Part::Nothing, 0).unwrap();
    let told = task.spec.options.slice.clone().unwrap();
    assert_eq!((told.instead_of.len(), told.run), (INSTEAD_OF_MAX, None));
    assert_eq!(task.spec.choice.listed.as_ref().map(|listed| listed.paths.len()), Some(0), "it copies nothing");
    let news = OrderNews { status: Status::Succeeded as u32, ..OrderNews::default() };
    assert!(state.commit(&task, &Told { news, ended: None, events: None }, 1));
    assert!(state.lost.len() == 44 && !state.journal.is_full());
    assert!(state.task(&work, 0, Part::All, 0).unwrap().spec.choice.listed.is_none());
}

#[test]
fn a_drained_host_works_again_where_the_others_are_out() {
    let dir = tempfile::tempdir().unwrap();
    let (mut state, spec) = (with_left(dir.path(), 0), spec());
    let work = work(dir.path(), &spec, &|_| {});
    let task = state.task(&work, 0, Part::Nothing, 0).unwrap();
    state.leave(Some(&[Pin([2; 32])]), None, &|_| {});
    assert!(state.hosts[0].takes() && !state.hosts[1].takes());
    // Nobody tells any more who leaves.
    for _ in 0..FAILURES_MAX {
        state.blame(&task, Error::new(Exit::Unreachable, "it is dead"), 0, &|_| {});
    }
    assert!(!state.hosts[0].takes() && state.hosts[1].takes() && state.failed.is_none());
}

#[test]
fn a_drained_receiver_is_used_where_nothing_arrives_at_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let (mut state, spec) = (with_left(dir.path(), 0), spec());
    let work = work(dir.path(), &spec, &|_| {});
    state.leave(None, Some(&[Pin([4; 32])]), &|_| {});
    for (receiver, is_last) in [(0, false), (1, true)] {
        assert!(state.has_receiver(0));
        let task = state.task(&work, 0, Part::Nothing, 0).unwrap();
        assert_eq!(task.receiver, receiver);
        (0..2 * FAILURES_MAX).for_each(|_| state.blame_receiver(&task, "nothing has moved", 0, &|_| {}));
        assert_eq!(state.failed.is_some(), is_last);
    }
}

#[test]
fn a_silent_executor_is_blamed_itself_and_one_that_cannot_go_on_with_the_other_side_is_not() {
    let cases = [
        (Role::Sends, Outcome::Lost("silent".into()), (1, 0)),
        (Role::Sends, Outcome::Stuck("unreachable".into()), (0, 1)),
        (Role::Fetches, Outcome::Lost("silent".into()), (0, 1)),
        (Role::Fetches, Outcome::Stuck("unreachable".into()), (1, 0)),
        // Of two receivers the other one may let it in.
        (Role::Fetches, Outcome::Refused(Error::new(Exit::Refused, "no")), (1, 1)),
    ];
    for (role, outcome, of_host_and_receiver) in cases {
        let dir = tempfile::tempdir().unwrap();
        let (mut state, spec) = (with_left(dir.path(), 0), spec());
        let work = work(dir.path(), &spec, &|_| {});
        state.hosts[0].role = role;
        let task = state.task(&work, 0, Part::Nothing, 0).unwrap();
        let (started, state) = (Instant::now(), Mutex::new(state));
        let crew = Crew { work: &work, list_bytes_max: 0, started, state, changed: Condvar::new() };
        crew.settle(&task, outcome);
        let state = crew.lock();
        let failures = (state.hosts[0].failures, state.receivers[task.receiver].failures);
        assert_eq!(failures, of_host_and_receiver, "{role:?}");
    }
}

#[test]
fn a_job_that_ends_does_not_wait_for_an_endpoint_that_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let (mut state, spec) = (with_left(dir.path(), 0), spec());
    state.failed = Some(Error::new(Exit::Temporary, "no host is left"));
    let (_hangs, until) = std::sync::mpsc::channel::<()>();
    let until = Mutex::new(until);
    let mut work = work(dir.path(), &spec, &|_| {});
    work.look = Arc::new(move || {
        let _ = until.lock().unwrap().recv();
        (None, None)
    });
    let (started, state) = (Instant::now(), Mutex::new(state));
    let crew = Crew { work: &work, list_bytes_max: 0, started, state, changed: Condvar::new() };
    assert!(crew.look().is_none());
}

#[test]
fn what_one_does_while_the_others_wait_is_not_tried_again_before_its_pause_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let (mut state, spec) = (with_left(dir.path(), 0), spec());
    let work = work(dir.path(), &spec, &|_| {});
    let task = state.task(&work, 0, Part::All, 0).unwrap();
    state.blame(&task, Error::new(Exit::Unreachable, "it starts again"), 0, &|_| {});
    let lone = |state: &State, now_ms| state.lone(0, now_ms).unwrap();
    assert_eq!(lone(&state, 0), Some(1), "the other one");
    state.hosts.truncate(1);
    assert_eq!((lone(&state, 0), lone(&state, 2 * PAUSE_FIRST_MS)), (None, Some(0)));
    state.receivers.iter_mut().for_each(|one| one.not_before_ms = u64::MAX);
    assert_eq!(lone(&state, 2 * PAUSE_FIRST_MS), None);
    state.hosts[0].out = Some(Error::new(Exit::Unreachable, "it is dead"));
    assert!(state.lone(0, 0).is_err());
}

#[test]
fn a_newcomer_is_not_compared_with_a_host_that_is_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = with_left(dir.path(), 0);
    state.hosts[0].out = Some(Error::new(Exit::Unreachable, "it is dead"));
    state.receivers[0].failures = 1;
    let names = |known: Vec<Endpoint>| known.into_iter().map(|one| one.name).collect::<Vec<_>>();
    assert_eq!(names(state.known(false)), ["h2"]);
    assert_eq!(names(state.known(true)), ["h4", "h3"], "what failed lately comes last");
}
