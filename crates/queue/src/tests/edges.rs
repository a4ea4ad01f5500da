//! What few jobs do not show: long chains, many that write to one place, and windows, classes and rehearsals at the edge of their rules.

use super::*;
use crate::fault::{FAILURES_MAX, SPACE_MAX};

fn id_of(number: u32) -> JobId {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&number.to_le_bytes());
    JobId(id)
}

impl Scene {
    /// One of many more jobs than `submit` counts.
    fn submit_numbered(&mut self, number: u32, change: impl FnOnce(&mut Facts), after: Vec<JobId>) -> JobId {
        let mut facts = Facts { nature: id_of(number).0, ..self.facts() };
        self.count = 0;
        change(&mut facts);
        let job = Job::new(id_of(number), number.into(), facts, after);
        assert_eq!(self.queue.submit(self.now, job), Ok(Taken::New));
        id_of(number)
    }

    fn change(&mut self, id: JobId, change: impl FnOnce(&mut Facts)) {
        let mut facts = self.queue.get(id).unwrap().facts.clone();
        change(&mut facts);
        self.queue.change(self.now, id, facts).unwrap();
    }
}

#[test]
fn a_chain_as_long_as_an_owners_jobs_fails_link_by_link() {
    const JOBS: u32 = 100_000;
    let mut scene = Scene::new();
    let first = scene.submit_numbered(0, |_| {}, vec![]);
    (1..JOBS).for_each(|n| _ = scene.submit_numbered(n, |_| {}, vec![id_of(n - 1)]));
    scene.step();
    scene.queue.heard(scene.now, first, 1, ended(Exit::SourceFileNotFound));
    let (changes, _) = scene.queue.take();
    assert_eq!(changes.len(), JOBS as usize);
    let last = changes.last().unwrap();
    assert_eq!((last.id, last.status, last.reason), (id_of(JOBS - 1), Status::Failed, Reason::Dependency));
    assert!(scene.queue.is_empty());
}

#[test]
fn a_job_that_is_high_no_more_keeps_no_slot_from_others() {
    let mut scene = Scene::new();
    let low: Vec<_> = (0..2).map(|_| scene.submit(|facts| facts.class = Class::Low)).collect();
    scene.step();
    let own = scene.submit(|facts| facts.class = Class::High);
    let high = scene.submit(|facts| facts.class = Class::High);
    assert_eq!(given(&scene.step()), [(own, Role::Sends)]);
    let actions = scene.pass(10_000);
    assert!(actions.iter().any(|action| matches!(action, Action::Stop { id, .. } if *id == low[1])), "{actions:?}");
    scene.change(high, |facts| facts.class = Class::Normal);
    scene.hear(low[1], ended(Exit::Cancelled));
    assert_eq!(scene.state(high).0, Status::Running);
    [own, low[0], high].iter().for_each(|id| _ = scene.end(*id, Exit::Done));
    assert_eq!(scene.state(low[1]).0, Status::Running);
}

#[test]
fn a_job_that_runs_again_after_its_window_closed_is_stopped_at_once() {
    let mut scene = Scene::new();
    let id = scene.submit(|facts| facts.windows = Some("nights".into()));
    assert_eq!(given(&scene.step()), [(id, Role::Sends)]);
    scene.pass(400);
    scene.hear(id, waits(order::Reason::Retry));
    scene.pass(200);
    assert_eq!(scene.state(id), (Status::Waiting, Reason::Retry));
    let runs = News {
        status: Status::Running,
        reason: order::Reason::None,
        text: String::new(),
        until: None,
        work: Work::default(),
    };
    let (_, actions) = scene.hear(id, Answer::News(runs));
    assert!(matches!(&actions[..], [Action::Stop { .. }]), "{actions:?}");
    scene.end(id, Exit::Cancelled);
    assert_eq!(scene.state(id), (Status::Waiting, Reason::Window));
}

#[test]
fn a_job_whose_window_closed_while_nobody_looked_is_stopped_after_the_restart() {
    let mut scene = Scene::new();
    let id = scene.submit(|facts| facts.windows = Some("nights".into()));
    assert_eq!(given(&scene.step()), [(id, Role::Sends)]);
    let job = scene.queue.get(id).unwrap().clone();
    let mut again = Scene::new();
    again.now = Now { ms: 0, unix_ms: scene.now.unix_ms + 700 };
    again.queue.restore(again.now, job);
    let actions = again.step();
    assert!(matches!(&actions[..], [Action::Stop { .. }]), "{actions:?}");
}

/// There may have been no thread for the look.
#[test]
fn an_endpoint_is_looked_at_again_where_nothing_is_heard_of_a_look() {
    let mut scene = Scene { queue: Queue::new(Limits::default(), Box::new(Nights)), ..Scene::new() };
    scene.submit(|_| {});
    let looks = |actions: Vec<Action>| actions.iter().filter(|one| matches!(one, Action::Probe { .. })).count();
    assert_eq!((looks(scene.step()), looks(scene.pass(60_000)), looks(scene.pass(60_000))), (2, 0, 2));
    ["a", "b"].iter().for_each(|name| scene.queue.reached(name));
    assert_eq!(looks(scene.pass(3_600_000)), 0);
}

/// A job of the place `out`, among many.
fn out(facts: &mut Facts) {
    facts.claims = Claims::new(&["out"]);
}

#[test]
fn jobs_of_one_destination_take_turns_without_waking_one_another() {
    const JOBS: u32 = 1000;
    let mut scene = Scene::new();
    (0..JOBS).for_each(|n| _ = scene.submit_numbered(n, out, vec![]));
    scene.queue.step(scene.now);
    let mut changes = scene.queue.take().0.len();
    for n in 0..JOBS {
        assert_eq!(scene.state(id_of(n)).0, Status::Running, "{n}");
        scene.queue.heard(scene.now, id_of(n), 1, ended(Exit::Done));
        scene.queue.step(scene.now);
        changes += scene.queue.take().0.len();
    }
    assert!(scene.queue.is_empty());
    // Queued, waiting, queued again, running, ended.
    assert!(changes <= 5 * JOBS as usize, "{changes}");
}

#[test]
fn whoever_waits_behind_a_queued_job_goes_on_when_that_one_does_not() {
    for leave in ["pause", "cancel", "change", "overtake"] {
        let mut scene = Scene::new();
        let first = scene.submit(out);
        let others: Vec<_> = (0..3).map(|_| scene.submit(out)).collect();
        scene.step();
        // Both slots of the pair are taken when the first one ends: the next stays queued, the others behind it.
        scene.queue.steer(scene.now, first, Verb::Pause).unwrap();
        let beside: Vec<_> = (0..2).map(|_| scene.submit(|facts| facts.priority = 9)).collect();
        scene.step();
        scene.hear(first, Answer::Unknown);
        let states = |scene: &Scene| others.iter().map(|id| scene.state(*id).0).collect::<Vec<_>>();
        assert_eq!(states(&scene), [Status::Queued, Status::Waiting, Status::Waiting], "{leave}");
        match leave {
            "pause" => scene.queue.steer(scene.now, others[0], Verb::Pause).unwrap(),
            "cancel" => scene.queue.steer(scene.now, others[0], Verb::Cancel).unwrap(),
            "change" => scene.change(others[0], |facts| facts.priority = -9),
            _ => scene.change(others[1], |facts| facts.priority = 5),
        }
        let (_, actions) = scene.hear(beside[0], ended(Exit::Done));
        assert_eq!(given(&actions), [(others[1], Role::Sends)], "{leave}");
    }
}

#[test]
fn jobs_that_waited_for_one_place_and_not_for_each_other_run_together() {
    let mut scene = Scene::new();
    let all = scene.submit(out);
    let parts: Vec<_> =
        ["out/x", "out/y"].map(|claim| scene.submit(|facts| facts.claims = Claims::new(&[claim]))).into();
    let other = scene.submit(|facts| (facts.claims, facts.from) = (Claims::new(&["out/x"]), "c".into()));
    scene.step();
    let (_, actions) = scene.hear(all, ended(Exit::Done));
    assert_eq!(given(&actions), parts.iter().map(|id| (*id, Role::Sends)).collect::<Vec<_>>());
    let (_, actions) = scene.hear(parts[0], ended(Exit::Done));
    assert_eq!(given(&actions), [(other, Role::Sends)]);
}

#[test]
fn a_rehearsal_is_charged_a_file_whatever_it_saw() {
    let mut scene = Scene::new();
    let work = Work { files_listed: 1, is_listed: true, files_done: 1000, bytes_done: 1 << 40, bytes_listed: 1 };
    let seen = Answer::Ended(Ended { code: Exit::Done as i32, text: String::new(), hint: String::new(), work });
    let rehearsed = scene.submit(|facts| facts.is_rehearsal = true);
    scene.step();
    scene.hear(rehearsed, seen.clone());
    let charge = |scene: &Scene| scene.queue.shares[0].charge.at(scene.now.ms);
    let of_rehearsal = charge(&scene);
    assert_eq!(of_rehearsal, Work::default().charge());
    let copied = scene.submit(|_| {});
    scene.step();
    scene.hear(copied, seen);
    assert!(charge(&scene) > 1e12);
}

#[test]
fn what_an_order_moved_before_its_executor_began_anew_stays_charged() {
    let mut scene = Scene::new();
    let id = scene.submit(|_| {});
    scene.step();
    let mut charge = |bytes_done| {
        let (status, reason) = (Status::Running, order::Reason::None);
        let work = Work { bytes_done, ..Work::default() };
        let news = News { status, reason, text: String::new(), until: None, work };
        scene.queue.heard(scene.now, id, 1, Answer::News(news));
        scene.queue.shares[0].charge.at(scene.now.ms)
    };
    let before = charge(1 << 40);
    assert_eq!((before > 1e12, charge(0)), (true, before));
    assert_eq!(charge(1 << 20), before + f64::from(1 << 20));
}

#[test]
fn a_job_of_an_endpoint_that_takes_no_orders_waits_for_the_other_one() {
    let mut scene = Scene::new();
    let id = scene.submit(|_| {});
    scene.step();
    scene.queue.unreached(scene.now, "b", "off");
    let (job, actions) = scene.hear(id, Answer::TakesNone { text: "none".into() });
    assert_eq!((job.status, given(&actions)), (Status::Queued, vec![]));
    assert!(scene.queue.why(id).unwrap().1.contains("b does not answer: off"));
    scene.queue.reached("b");
    assert_eq!(given(&scene.step()), [(id, Role::Fetches)]);
}

#[test]
fn what_comes_after_a_job_that_failed_as_it_was_handed_in_fails_with_it() {
    let mut scene = Scene::new();
    let past = Some(scene.now.unix_ms - 1);
    let first = scene.submit(|facts| facts.finish_by = past);
    let second = scene.submit_after(|_| {}, vec![first]);
    let third = scene.submit_after(|_| {}, vec![second]);
    assert_eq!(scene.state(first), (Status::Failed, Reason::Deadline));
    assert_eq!(scene.state(second), (Status::Failed, Reason::Dependency));
    assert_eq!(scene.state(third), (Status::Failed, Reason::Dependency));
    assert_eq!(given(&scene.step()), []);
    assert!(scene.queue.is_empty());
}

#[test]
fn what_comes_after_a_job_whose_deadline_passed_while_nobody_looked_fails_after_the_restart() {
    let mut scene = Scene::new();
    let soon = Some(scene.now.unix_ms + 1000);
    let first = scene.submit(|facts| facts.finish_by = soon);
    let second = scene.submit_after(|_| {}, vec![first]);
    let third = scene.submit_after(|_| {}, vec![second]);
    let jobs = [first, second, third].map(|id| scene.queue.get(id).unwrap().clone());
    let mut again = Scene { queue: Queue::new(Limits::default(), Box::new(Nights)), ..scene };
    again.now.unix_ms += 2000;
    jobs.into_iter().for_each(|job| again.queue.restore(again.now, job));
    assert_eq!(again.state(first), (Status::Failed, Reason::Deadline));
    assert_eq!(again.state(second), (Status::Failed, Reason::Dependency));
    assert_eq!(again.state(third), (Status::Failed, Reason::Dependency));
    again.step();
    assert!(again.queue.is_empty());
}

#[test]
fn a_job_that_is_retried_comes_after_the_others_again() {
    let mut scene = Scene::new();
    let first = scene.submit(|_| {});
    let second = scene.submit_after(|_| {}, vec![first]);
    scene.step();
    scene.queue.heard(scene.now, first, 1, ended(Exit::SourceFileNotFound));
    let failed = [first, second].map(|id| scene.queue.get(id).unwrap().clone());
    assert_eq!((failed[1].reason, &failed[1].after[..]), (Reason::Dependency, &[first][..]));
    scene.step();
    for job in failed {
        let id = job.id;
        scene.queue.restore(scene.now, job);
        scene.queue.steer(scene.now, id, Verb::Retry).unwrap();
    }
    assert_eq!(given(&scene.step()), [(first, Role::Sends)]);
    assert_eq!(scene.state(second), (Status::Waiting, Reason::Dependency));
    let (_, actions) = scene.hear(first, ended(Exit::Done));
    assert_eq!(given(&actions), [(second, Role::Sends)]);
}

#[test]
fn a_job_that_is_retried_before_its_end_was_taken_begins_anew() {
    let mut scene = Scene::new();
    let id = scene.submit(|_| {});
    scene.step();
    scene.queue.heard(scene.now, id, 1, ended(Exit::SourceFileNotFound));
    assert_eq!(scene.queue.steer(scene.now, id, Verb::Retry), Ok(()));
    assert_eq!(given(&scene.step()), [(id, Role::Sends)]);
    assert_eq!(scene.queue.get(id).unwrap().attempt, 2);
}

#[test]
fn what_a_job_waits_for_is_told_in_other_words_once_a_second() {
    let mut scene = Scene::new();
    let id = scene.submit(|_| {});
    scene.step();
    let mut told = Vec::new();
    for n in 0..30 {
        scene.now.ms += 100;
        let (reason, work) = (order::Reason::Retry, Work::default());
        let news = News { status: Status::Waiting, reason, text: format!("try {n}"), until: None, work };
        scene.queue.heard(scene.now, id, 1, Answer::News(news));
        told.extend(scene.queue.take().0.into_iter().map(|job| job.text.clone()));
    }
    assert_eq!(told, ["try 0", "try 10", "try 20"]);
}

#[test]
fn looks_for_space_use_up_no_tries_and_neither_sets_the_other_back() {
    let refused = |exit: Exit| Answer::Refused { code: exit as i32, text: "no".into(), hint: String::new() };
    for last in [Exit::Temporary, Exit::NoSpace] {
        let mut scene = Scene::new();
        let id = scene.submit(|_| {});
        scene.step();
        let mut hear = |exit: Exit| {
            let job = scene.hear(id, refused(exit)).0;
            while job.status == Status::Waiting && given(&scene.pass(60_000)).is_empty() {}
            (job.status, job.reason)
        };
        for _ in 1..FAILURES_MAX {
            assert_eq!(hear(Exit::NoSpace), (Status::Waiting, Reason::Space));
            assert_eq!(hear(Exit::Temporary), (Status::Waiting, Reason::Retry));
        }
        (FAILURES_MAX..=SPACE_MAX).for_each(|_| assert_eq!(hear(Exit::NoSpace), (Status::Waiting, Reason::Space)));
        assert_eq!(hear(last), (Status::Failed, Reason::None), "{last:?}");
    }
}

#[test]
fn projects_without_jobs_are_forgotten_once_nothing_is_left_of_their_charge() {
    let mut scene = Scene::new();
    let greedy = scene.submit(|facts| facts.project = "greedy".into());
    scene.step();
    let work = Work { files_listed: 1, is_listed: true, files_done: 1, bytes_done: 1 << 40, bytes_listed: 1 << 40 };
    scene.hear(greedy, Answer::Ended(Ended { code: 0, text: String::new(), hint: String::new(), work }));
    let open = scene.submit(|facts| facts.project = "open".into());
    scene.queue.steer(scene.now, open, Verb::Pause).unwrap();
    let share = |scene: &mut Scene, project: &str| scene.queue.share(&"anna".into(), &project.into());
    let charge = |scene: &mut Scene| {
        let number = share(scene, "greedy");
        scene.queue.shares[number].charge.at(scene.now.ms)
    };
    let come_and_go = |scene: &mut Scene, numbers: std::ops::Range<u32>| {
        for n in numbers {
            let id = scene.submit_numbered(n, |facts| facts.project = format!("p{n}").into(), vec![]);
            scene.queue.steer(scene.now, id, Verb::Cancel).unwrap();
            scene.step();
        }
    };
    come_and_go(&mut scene, 0..5000);
    assert!(scene.queue.shares.len() < 1100, "{}", scene.queue.shares.len());
    assert!(charge(&mut scene) > 1e12);
    scene.pass(48 * 3_600_000);
    come_and_go(&mut scene, 5000..7000);
    assert_eq!(charge(&mut scene), 0.0);
    assert_eq!(share(&mut scene, "open"), scene.queue.jobs.get(&open).unwrap().share);
}
