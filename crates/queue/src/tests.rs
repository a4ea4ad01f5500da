//! Scenarios: what is told to the queue, and what it makes of it.

mod edges;
mod restarts;

use super::*;
use model::order::{self, Role};
use model::{Class, Exit, JobId};

/// A queue with a clock, whose endpoints `a`, `b` and `c` answer.
struct Scene {
    queue: Queue,
    now: Now,
    count: u8,
}

impl Scene {
    fn new() -> Scene {
        let mut queue = Queue::new(Limits::default(), Box::new(Nights));
        ["a", "b", "c"].iter().for_each(|name| queue.reached(name));
        Scene { queue, now: Now { ms: 0, unix_ms: 1_000_000 }, count: 0 }
    }

    fn pass(&mut self, ms: u64) -> Vec<Action> {
        self.now = Now { ms: self.now.ms + ms, unix_ms: self.now.unix_ms + ms as i64 };
        self.step()
    }

    fn step(&mut self) -> Vec<Action> {
        self.queue.step(self.now);
        self.queue.take().1
    }

    fn facts(&mut self) -> Facts {
        self.count += 1;
        let common = Common {
            owner: "anna".into(),
            project: "".into(),
            class: Class::Normal,
            priority: 0,
            from: "a".into(),
            to: "b".into(),
            start_by: None,
            finish_by: None,
            windows: None,
            is_standing: false,
            is_rehearsal: false,
        };
        Facts { common: common.into(), claims: Claims::new(&[[self.count]]), nature: [self.count; 16] }
    }

    fn submit(&mut self, change: impl FnOnce(&mut Facts)) -> JobId {
        self.submit_after(change, vec![])
    }

    fn submit_after(&mut self, change: impl FnOnce(&mut Facts), after: Vec<JobId>) -> JobId {
        let mut facts = self.facts();
        change(&mut facts);
        let id = JobId([self.count; 16]);
        let job = Job::new(id, self.count.into(), facts, after);
        assert_eq!(self.queue.submit(self.now, job), Ok(Taken::New));
        id
    }

    fn state(&self, id: JobId) -> (Status, Reason) {
        self.queue.get(id).map(|job| (job.status, job.reason)).expect("it is open")
    }

    fn hear(&mut self, id: JobId, answer: Answer) -> (Job, Vec<Action>) {
        let attempt = self.queue.get(id).expect("it is open").attempt;
        self.queue.heard(self.now, id, attempt, answer);
        let after = self.queue.get(id).cloned().expect("it was open");
        (after, self.step())
    }

    fn end(&mut self, id: JobId, exit: Exit) -> Job {
        self.hear(id, ended(exit)).0
    }
}

/// Open from each full second to the next half.
struct Nights;

impl Calendar for Nights {
    fn opening(&self, _windows: &str, unix_ms: i64) -> Opening {
        let second = unix_ms.div_euclid(1000) * 1000;
        let is_open = unix_ms - second < 500;
        Opening { is_open, until: if is_open { second + 500 } else { second + 1000 } }
    }

    fn slots(&self, _times: &str, _unix_ms: i64) -> Slots {
        Slots::default()
    }
}

fn ended(exit: Exit) -> Answer {
    let work = Work { files_listed: 1, is_listed: true, files_done: 1, bytes_done: 1, bytes_listed: 1 };
    Answer::Ended(Ended { code: exit as i32, text: "why".into(), hint: "what".into(), work })
}

fn waits(reason: order::Reason) -> Answer {
    Answer::News(News { status: Status::Waiting, reason, text: "away".into(), until: None, work: Work::default() })
}

fn given(actions: &[Action]) -> Vec<(JobId, Role)> {
    let hand_in = |action: &Action| match action {
        Action::HandIn { id, role, .. } => Some((*id, *role)),
        _ => None,
    };
    actions.iter().filter_map(hand_in).collect()
}

#[test]
fn a_job_runs_once_and_its_end_is_the_executors_word() {
    let mut scene = Scene::new();
    let id = scene.submit(|_| {});
    assert_eq!(given(&scene.step()), [(id, Role::Sends)]);
    assert_eq!(given(&scene.pass(1_000_000)), []);
    let (job, actions) = scene.hear(id, ended(Exit::Done));
    assert_eq!((job.status, job.code), (Status::Succeeded, Some(0)));
    assert!(matches!(&actions[..], [Action::Forget { attempt: 1, .. }]), "{actions:?}");
    assert!(scene.queue.is_empty());
}

#[test]
fn silence_never_gives_a_job_to_anybody_else() {
    let mut scene = Scene::new();
    let id = scene.submit(|_| {});
    scene.step();
    scene.queue.unreached(scene.now, "a", "gone");
    for _ in 0..100 {
        assert_eq!(given(&scene.pass(3_600_000)), []);
    }
    assert_eq!(scene.state(id), (Status::Running, Reason::None));
    // It is back and does not know the job: then it is given again, at once.
    scene.queue.heard(scene.now, id, 1, Answer::Unknown);
    scene.queue.reached("a");
    assert_eq!(given(&scene.step()), [(id, Role::Sends)]);
    assert_eq!(scene.queue.get(id).unwrap().attempt, 2);
    // What is said of the attempt before changes nothing.
    scene.queue.heard(scene.now, id, 1, ended(Exit::Done));
    assert_eq!(scene.state(id), (Status::Running, Reason::None));
}

#[test]
fn the_other_end_fetches_after_the_first_confirmed_that_it_stopped() {
    let mut scene = Scene::new();
    let id = scene.submit(|_| {});
    scene.step();
    let (job, actions) = scene.hear(id, waits(order::Reason::Unreachable));
    assert_eq!((job.status, job.goal), (Status::Stopping, Some(Goal::Switch)));
    assert!(matches!(&actions[..], [Action::Stop { .. }]), "{actions:?}");
    assert_eq!(given(&scene.pass(1_000_000)), []);
    let (_, actions) = scene.hear(id, ended(Exit::Cancelled));
    assert_eq!(given(&actions), [(id, Role::Fetches)]);
    // Then it waits, and holds up others of the pair but not of others.
    scene.hear(id, waits(order::Reason::Unreachable));
    assert_eq!(scene.state(id), (Status::Waiting, Reason::Unreachable));
    let (same, other) = (scene.submit(|_| {}), scene.submit(|facts| facts.to = "c".into()));
    assert_eq!(given(&scene.step()), [(other, Role::Sends)]);
    assert_eq!(scene.queue.why(same).unwrap().0, Reason::Slot);
}

#[test]
fn slots_of_pairs_and_endpoints_bound_what_runs_and_small_jobs_take_an_eighth() {
    let mut scene = Scene::new();
    (0..10).for_each(|_| _ = scene.submit(|_| {}));
    assert_eq!(given(&scene.step()).len(), 2);
    for to in ["c", "d", "e"] {
        scene.queue.reached(to);
        (0..5).for_each(|_| _ = scene.submit(|facts| facts.to = to.into()));
    }
    // Four of an endpoint in all.
    assert_eq!(given(&scene.step()).len(), 2);
    let first = JobId([1; 16]);
    let news = News {
        status: Status::Running,
        reason: order::Reason::None,
        text: String::new(),
        until: None,
        work: Work { files_listed: 10, is_listed: true, ..Work::default() },
    };
    let (_, actions) = scene.hear(first, Answer::News(news));
    // A whole slot less an eighth became free, and more of the same kind are taken for small: they fill it.
    assert_eq!(given(&actions).len(), 7);
}

#[test]
fn classes_share_sixteen_to_four_to_one_and_nobody_waits_for_ever() {
    let mut scene = Scene::new();
    let mut run = std::collections::HashMap::new();
    for _ in 0..40 {
        for class in Class::ALL {
            scene.submit(|facts| facts.class = class);
        }
    }
    let mut open: Vec<JobId> = given(&scene.step()).into_iter().map(|(id, _)| id).collect();
    for _ in 0..42 {
        let id = open.remove(0);
        let class = scene.queue.get(id).unwrap().facts.class;
        *run.entry(class).or_insert(0) += 1;
        let (_, actions) = scene.hear(id, ended(Exit::Done));
        open.extend(given(&actions).into_iter().map(|(id, _)| id));
    }
    let count = |class| run.get(&class).copied().unwrap_or(0);
    assert!((27..=36).contains(&count(Class::High)), "{run:?}");
    assert!((5..=11).contains(&count(Class::Normal)) && count(Class::Low) >= 1, "{run:?}");
}

#[test]
fn one_job_of_one_user_does_not_wait_for_a_thousand_of_another() {
    let mut scene = Scene::new();
    (0..100).for_each(|_| _ = scene.submit(|_| {}));
    let first = given(&scene.step());
    let own = scene.submit(|facts| facts.owner = "bert".into());
    let (_, actions) = scene.hear(first[0].0, ended(Exit::Done));
    assert_eq!(given(&actions)[0].0, own);
}

#[test]
fn who_has_moved_much_is_charged_for_what_it_moves() {
    let mut scene = Scene::new();
    let big = scene.submit(|_| {});
    scene.step();
    let work = Work { files_listed: 1, is_listed: true, files_done: 1, bytes_done: 1 << 40, bytes_listed: 1 << 40 };
    scene.hear(big, Answer::Ended(Ended { code: 0, text: String::new(), hint: String::new(), work }));
    // Who has moved least is next, whatever the priority among one's own.
    let small: Vec<_> = (0..4).map(|_| scene.submit(|facts| facts.owner = "bert".into())).collect();
    scene.submit(|facts| facts.priority = 100);
    assert_eq!(given(&scene.step()), [(small[0], Role::Sends), (small[1], Role::Sends)]);
}

#[test]
fn a_head_that_cannot_run_holds_up_nobody() {
    let mut scene = Scene::new();
    scene.queue.unreached(scene.now, "c", "off");
    let (away, here) = (scene.submit(|facts| (facts.from, facts.to) = ("c".into(), "d".into())), scene.submit(|_| {}));
    assert_eq!(given(&scene.step()), [(here, Role::Sends)]);
    let (reason, text) = scene.queue.why(away).unwrap();
    assert!(reason == Reason::Endpoint && text.contains("off"), "{text}");
}

#[test]
fn what_is_followed_is_followed_where_it_is_written_however_long_that_is_away() {
    let mut scene = Scene::new();
    let standing = scene.submit(|facts| facts.common = Common { is_standing: true, ..(*facts.common).clone() }.into());
    scene.queue.unreached(scene.now, "a", "off");
    assert_eq!(given(&scene.step()), []);
    assert!(scene.queue.why(standing).unwrap().1.contains("a does not answer: off"));
    scene.queue.reached("a");
    assert_eq!(given(&scene.step()), [(standing, Role::Sends)]);
    // The other one cannot be reached from there: nothing for the other one to try.
    let (job, actions) = scene.hear(standing, waits(order::Reason::Unreachable));
    assert_eq!((job.status, job.reason, job.is_switched), (Status::Waiting, Reason::Unreachable, false));
    assert!(given(&actions).is_empty() && !actions.iter().any(|action| matches!(action, Action::Stop { .. })));
}

#[test]
fn a_low_job_makes_room_for_a_high_one_that_waited() {
    let mut scene = Scene::new();
    let low: Vec<_> = (0..2).map(|_| scene.submit(|facts| facts.class = Class::Low)).collect();
    scene.step();
    scene.pass(1);
    // One has a slot of its own, the other waits.
    let high: Vec<_> = (0..2).map(|_| scene.submit(|facts| facts.class = Class::High)).collect();
    let more = scene.submit(|facts| facts.class = Class::Low);
    assert_eq!(given(&scene.step()), [(high[0], Role::Sends)]);
    assert_eq!(scene.pass(9_999), []);
    let stop = |actions: &[Action]| {
        actions
            .iter()
            .filter_map(|action| if let Action::Stop { id, .. } = action { Some(*id) } else { None })
            .collect::<Vec<_>>()
    };
    assert_eq!(stop(&scene.pass(1)), [low[1]], "the one that began last, and only one");
    assert_eq!(scene.queue.get(low[1]).unwrap().text, "yield");
    let over = |exit| {
        Answer::Ended(Ended { code: exit as i32, text: String::new(), hint: String::new(), work: Work::default() })
    };
    assert_eq!(stop(&scene.pass(20_000)), [], "nobody else while it stops");
    // What it leaves goes to the one that waited, although low ones were given less.
    let (job, actions) = scene.hear(low[1], over(Exit::Cancelled));
    assert_eq!((job.status, job.failures), (Status::Queued, 0));
    assert_eq!(given(&actions), [(high[1], Role::Sends)]);
    assert_eq!(stop(&scene.pass(60_000)), [], "nobody of the class high waits any more");
    let (_, actions) = scene.hear(high[1], over(Exit::Done));
    assert_eq!(given(&actions), [(low[1], Role::Sends)], "the older one of the two");
    assert_eq!(scene.state(more).0, Status::Queued);
}

#[test]
fn overlapping_destinations_take_turns() {
    let mut scene = Scene::new();
    let claims = |claim: &str| Claims::new(&[claim]);
    let first = scene.submit(|facts| facts.claims = claims("out"));
    let below = scene.submit(|facts| facts.claims = claims("out/x"));
    let beside = scene.submit(|facts| facts.claims = claims("outer"));
    assert_eq!(given(&scene.step()), [(first, Role::Sends), (beside, Role::Sends)]);
    scene.end(beside, Exit::Done);
    assert_eq!(scene.state(below), (Status::Waiting, Reason::Destination));
    let (_, actions) = scene.hear(first, ended(Exit::Done));
    assert_eq!(given(&actions), [(below, Role::Sends)]);
}

#[test]
fn jobs_come_after_others_and_fail_with_them() {
    let mut scene = Scene::new();
    let first = scene.submit(|_| {});
    let second = scene.submit_after(|_| {}, vec![first]);
    let third = scene.submit_after(|_| {}, vec![second]);
    scene.step();
    assert_eq!(scene.state(second), (Status::Waiting, Reason::Dependency));
    let (_, actions) = scene.hear(first, ended(Exit::Done));
    assert_eq!(given(&actions), [(second, Role::Sends)]);
    scene.queue.heard(scene.now, second, 1, ended(Exit::SourceFileNotFound));
    let (changes, _) = scene.queue.take();
    let last: Vec<_> = changes.iter().map(|job| (job.id, job.status, job.reason)).collect();
    assert_eq!(last, [(second, Status::Failed, Reason::None), (third, Status::Failed, Reason::Dependency)]);
}

#[test]
fn each_class_of_refusal_has_its_wait_or_its_end() {
    for (exit, status, reason, again_ms) in [
        (Exit::Temporary, Status::Waiting, Reason::Retry, Some(10_000)),
        (Exit::NoSpace, Status::Waiting, Reason::Space, Some(60_000)),
        (Exit::Unreachable, Status::Waiting, Reason::Endpoint, Some(30_000)),
        (Exit::Authentication, Status::Waiting, Reason::Credentials, None),
        (Exit::Refused, Status::Failed, Reason::None, None),
        (Exit::Usage, Status::Failed, Reason::None, None),
    ] {
        let mut scene = Scene::new();
        let id = scene.submit(|_| {});
        scene.step();
        let refused = Answer::Refused { code: exit as i32, text: "no".into(), hint: "h".into() };
        let (job, _) = scene.hear(id, refused);
        assert_eq!((job.status, job.reason), (status, reason), "{exit:?}");
        match again_ms {
            Some(ms) => assert_eq!(given(&scene.pass(ms)), [(id, Role::Sends)], "{exit:?}"),
            None => assert_eq!(given(&scene.pass(1_000_000)), [], "{exit:?}"),
        }
    }
}

#[test]
fn tries_without_progress_have_an_end_and_progress_counts() {
    let mut scene = Scene::new();
    let id = scene.submit(|_| {});
    let refused = Answer::Refused { code: Exit::Temporary as i32, text: "busy".into(), hint: String::new() };
    scene.step();
    let mut tries = 1;
    while scene.hear(id, refused.clone()).0.status == Status::Waiting {
        while given(&scene.pass(700_000)).is_empty() {}
        tries += 1;
    }
    assert_eq!(tries, 12);
}

#[test]
fn objects_that_failed_get_one_more_pass() {
    let mut scene = Scene::new();
    let id = scene.submit(|_| {});
    scene.step();
    assert_eq!(scene.end(id, Exit::Partial).status, Status::Waiting);
    assert_eq!(given(&scene.pass(599_000)), []);
    assert_eq!(given(&scene.pass(1_001)), [(id, Role::Sends)]);
    assert_eq!(scene.end(id, Exit::Partial).status, Status::Partial);
}

#[test]
fn deadlines_end_what_waits_at_once_and_what_runs_after_its_stop() {
    let mut scene = Scene::new();
    let soon = Some(scene.now.unix_ms + 1000);
    let running = scene.submit(|facts| facts.finish_by = soon);
    scene.step();
    let waiting = scene.submit(|facts| {
        facts.start_by = soon;
        facts.from = "nowhere".into();
        facts.to = "nobody".into();
    });
    scene.step();
    scene.pass(999);
    assert_eq!(scene.state(waiting).0, Status::Queued);
    scene.now.unix_ms += 1;
    scene.queue.step(scene.now);
    let (changes, actions) = scene.queue.take();
    let failed = changes.iter().rfind(|job| job.id == waiting).unwrap();
    assert_eq!((failed.status, failed.reason, failed.code), (Status::Failed, Reason::Deadline, Some(10)));
    // Whether or not its executor hears of it.
    let [Action::Stop { id, endpoint: executor, .. }, Action::Revoke { endpoint: other, .. }] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!((*id, &**executor, &**other), (running, "a", "b"));
    let job = scene.end(running, Exit::Cancelled);
    assert_eq!((job.status, job.reason), (Status::Failed, Reason::Deadline));
}

#[test]
fn a_deadline_is_said_once_and_never_of_a_job_that_was_cancelled() {
    let mut scene = Scene::new();
    let soon = Some(scene.now.unix_ms + 1000);
    let [late, cancelled] = [(); 2].map(|()| scene.submit(|facts| facts.finish_by = soon));
    scene.step();
    scene.queue.steer(scene.now, cancelled, Verb::Cancel).unwrap();
    scene.pass(1000);
    let goal = |id| scene.queue.get(id).unwrap().goal;
    assert_eq!((goal(late), goal(cancelled)), (Some(Goal::Deadline), Some(Goal::Cancel)));
    for _ in 0..2 {
        scene.now.unix_ms += 1000;
        scene.queue.step(scene.now);
        let (changes, actions) = scene.queue.take();
        assert!(changes.is_empty() && actions.is_empty(), "{changes:?} {actions:?}");
    }
    assert_eq!(scene.end(cancelled, Exit::Cancelled).status, Status::Cancelled);
    assert_eq!(scene.end(late, Exit::Cancelled).status, Status::Failed);
}

#[test]
fn a_warrant_is_taken_back_until_its_order_has_stopped() {
    let mut scene = Scene::new();
    let id = scene.submit(|_| {});
    scene.step();
    let revoked = |actions: Vec<Action>| {
        let is_it = |action: &&Action| matches!(action, Action::Revoke { endpoint, .. } if **endpoint == *"b");
        actions.iter().filter(is_it).count()
    };
    scene.queue.steer(scene.now, id, Verb::Cancel).unwrap();
    assert_eq!(revoked(scene.step()), 1);
    scene.queue.unreached(scene.now, "b", "off");
    assert_eq!(revoked(scene.pass(60_000)), 0);
    scene.queue.reached("b");
    assert_eq!((revoked(scene.pass(10_000)), revoked(scene.pass(10_000))), (1, 1));
    let mut again = Scene { now: scene.now, ..Scene::new() };
    again.queue.restore(again.now, scene.queue.get(id).unwrap().clone());
    assert_eq!(revoked(again.step()), 1, "it may have been lost with the hub before");
    scene.end(id, Exit::Cancelled);
    assert_eq!(revoked(scene.pass(60_000)), 0);
}

#[test]
fn a_job_that_is_paused_while_objects_fail_rests_until_it_is_resumed() {
    let mut scene = Scene::new();
    let id = scene.submit(|_| {});
    scene.step();
    scene.queue.steer(scene.now, id, Verb::Pause).unwrap();
    let job = scene.end(id, Exit::Partial);
    assert_eq!((job.status, job.passes, job.goal), (Status::Paused, 1, None));
    assert_eq!(given(&scene.pass(700_000)), []);
    scene.queue.steer(scene.now, id, Verb::Resume).unwrap();
    assert_eq!(given(&scene.step()), [(id, Role::Sends)]);
    assert_eq!(scene.end(id, Exit::Partial).status, Status::Partial);
}

#[test]
fn a_window_that_closes_stops_a_job_until_the_next() {
    let mut scene = Scene::new();
    scene.now.unix_ms = 1_000_600;
    let id = scene.submit(|facts| facts.windows = Some("nights".into()));
    scene.step();
    assert_eq!(scene.state(id), (Status::Waiting, Reason::Window));
    assert_eq!(scene.queue.get(id).unwrap().until, Some(1_001_000));
    assert_eq!(given(&scene.pass(400)), [(id, Role::Sends)]);
    let actions = scene.pass(500);
    assert!(matches!(&actions[..], [Action::Stop { .. }]), "{actions:?}");
    scene.end(id, Exit::Cancelled);
    assert_eq!(scene.state(id), (Status::Waiting, Reason::Window));
    assert_eq!(given(&scene.pass(500)), [(id, Role::Sends)]);
}

#[test]
fn each_verb_has_its_states() {
    let mut scene = Scene::new();
    let id = scene.submit(|_| {});
    let steer = |scene: &mut Scene, verb| {
        let steered = scene.queue.steer(scene.now, id, verb);
        steered.map(|()| scene.queue.get(id).map(|job| job.status))
    };
    assert_eq!(steer(&mut scene, Verb::Pause), Ok(Some(Status::Paused)));
    assert!(steer(&mut scene, Verb::Retry).is_err());
    assert_eq!(steer(&mut scene, Verb::Resume), Ok(Some(Status::Queued)));
    assert_eq!(given(&scene.step()).len(), 1);
    assert!(steer(&mut scene, Verb::Retry).is_err());
    assert_eq!(steer(&mut scene, Verb::Pause), Ok(Some(Status::Stopping)));
    // Its mind is changed before it has stopped.
    assert_eq!(steer(&mut scene, Verb::Resume), Ok(Some(Status::Stopping)));
    assert_eq!(scene.end(id, Exit::Cancelled).status, Status::Queued);
    assert_eq!(steer(&mut scene, Verb::Cancel), Ok(Some(Status::Stopping)));
    assert!(steer(&mut scene, Verb::Pause).is_err());
    // It was done before the word reached it.
    assert_eq!(scene.end(id, Exit::Done).status, Status::Succeeded);
}

#[test]
fn an_ended_job_begins_anew_unless_the_same_was_submitted_since() {
    let mut scene = Scene::new();
    let id = scene.submit(|_| {});
    scene.step();
    let job = scene.end(id, Exit::SourceFileNotFound);
    scene.queue.restore(scene.now, job.clone());
    assert_eq!(scene.queue.steer(scene.now, id, Verb::Retry), Ok(()));
    assert_eq!(given(&scene.step()), [(id, Role::Sends)]);
    let job = scene.end(id, Exit::SourceFileNotFound);
    assert_eq!(job.attempt, 2);
    scene.submit(|facts| facts.nature = job.facts.nature);
    scene.queue.restore(scene.now, job);
    assert!(scene.queue.steer(scene.now, id, Verb::Retry).is_err());
    scene.queue.let_go(id);
    assert_eq!(scene.queue.len(), 1);
}

#[test]
fn the_same_wish_finds_its_open_job_and_bounds_hold() {
    let mut scene = Scene::new();
    let id = scene.submit(|_| {});
    let nature = [1; 16];
    let again = Facts { nature, ..scene.facts() };
    let again = Job::new(JobId([9; 16]), 9, again, vec![]);
    assert_eq!(scene.queue.submit(scene.now, again), Ok(Taken::Known(id)));
    let mut queue = Queue::new(Limits { of_owner_max: 1, ..Limits::default() }, Box::new(Always));
    let mut submit = |facts: Facts, n| queue.submit(Now::default(), Job::new(JobId([n; 16]), n.into(), facts, vec![]));
    assert_eq!(submit(scene.facts(), 1), Ok(Taken::New));
    assert_eq!(submit(scene.facts(), 2), Err(Refused::Full { is_owner: true }));
    let mut other = scene.facts();
    other.owner = "bert".into();
    assert_eq!(submit(other, 3), Ok(Taken::New));
}

#[test]
fn what_has_just_ended_is_neither_found_nor_waited_for() {
    let mut scene = Scene::new();
    let first = scene.submit(|_| {});
    scene.step();
    scene.queue.heard(scene.now, first, 1, ended(Exit::Done));
    // Its end was not taken from the queue yet.
    let again = scene.submit_after(|facts| facts.nature = [1; 16], vec![first]);
    assert_eq!(given(&scene.step()), [(again, Role::Sends)]);
    let same = Job::new(JobId([9; 16]), 9, Facts { nature: [1; 16], ..scene.facts() }, vec![]);
    assert_eq!(scene.queue.submit(scene.now, same), Ok(Taken::Known(again)));
}

#[test]
fn an_endpoint_that_takes_no_orders_has_the_other_fetch() {
    let mut scene = Scene::new();
    let id = scene.submit(|_| {});
    scene.step();
    let (_, actions) = scene.hear(id, Answer::TakesNone { text: "none".into() });
    assert_eq!(given(&actions), [(id, Role::Fetches)]);
    let (job, _) = scene.hear(id, Answer::TakesNone { text: "none".into() });
    assert_eq!((job.status, job.code), (Status::Failed, Some(Exit::Refused as i32)));
}

#[test]
fn a_job_that_is_given_another_priority_or_class_goes_before_others() {
    let mut scene = Scene::new();
    let all: Vec<_> = (0..6).map(|_| scene.submit(|_| {})).collect();
    let begun = given(&scene.step());
    assert_eq!(begun, [(all[0], Role::Sends), (all[1], Role::Sends)]);
    let change = |scene: &mut Scene, id: JobId, change: &dyn Fn(&mut Facts)| {
        let mut facts = scene.queue.get(id).unwrap().facts.clone();
        change(&mut facts);
        scene.queue.change(scene.now, id, facts)
    };
    change(&mut scene, all[5], &|facts| facts.priority = 9).unwrap();
    change(&mut scene, all[4], &|facts| facts.class = Class::High).unwrap();
    assert_eq!(given(&scene.step()), [(all[4], Role::Sends)], "its class has a slot of its own");
    let (_, actions) = scene.hear(all[0], ended(Exit::Done));
    assert_eq!(given(&actions)[0].0, all[5], "before those that were submitted earlier");
    // Its executor hears of a rate; what it holds is given back once.
    change(&mut scene, all[4], &|facts| (facts.class, facts.nature) = (Class::Low, [99; 16])).unwrap();
    let actions = scene.step();
    assert!(actions.iter().any(|action| matches!(action, Action::SetRate { id, .. } if *id == all[4])), "{actions:?}");
    for id in [all[1], all[4], all[5], all[2], all[3]] {
        assert_eq!(scene.state(id).0, Status::Running, "{id}");
        assert_eq!(change(&mut scene, id, &|facts| facts.nature = [98; 16]), Ok(()));
        scene.end(id, Exit::Done);
    }
    assert!(scene.queue.is_empty());
    // A job that is so already is in the way; what has ended is not changed.
    let (one, other) = (scene.submit(|_| {}), scene.submit(|_| {}));
    let nature = scene.queue.get(other).unwrap().facts.nature;
    let refused = change(&mut scene, one, &|facts| facts.nature = nature);
    assert!(matches!(refused, Err(Refused::WrongState { .. })), "{refused:?}");
    let facts = scene.queue.get(one).unwrap().facts.clone();
    assert_eq!(scene.queue.change(scene.now, JobId([77; 16]), facts), Err(Refused::NoSuchJob));
}
