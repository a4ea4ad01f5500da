//! What a queue knows of the time before it began: what is open, what owners had, and what another copy of the records gave.

use super::*;

#[test]
fn what_owners_had_before_the_queue_began_is_remembered() {
    let mut scene = Scene::new();
    let id = scene.submit(|facts| facts.owner = "greedy".into());
    scene.step();
    let had = scene.end(id, Exit::Done);
    let mut again = Scene { now: scene.now, ..Scene::new() };
    again.queue.remember(again.now, &had, 1000, 3_600_000);
    let [greedy, modest] = ["greedy", "modest"].map(|owner| again.submit(|facts| facts.owner = owner.into()));
    assert_eq!(given(&again.step()), [modest, greedy].map(|id| (id, Role::Sends)));
}

#[test]
fn what_was_open_is_open_after_a_restart() {
    let mut scene = Scene::new();
    let ids: Vec<_> = (0..4).map(|_| scene.submit(|_| {})).collect();
    let dependent = scene.submit_after(|_| {}, vec![ids[3]]);
    scene.step();
    scene.queue.steer(scene.now, ids[2], Verb::Pause).unwrap();
    let jobs: Vec<Job> = scene.queue.jobs().cloned().collect();
    let mut again = Scene { queue: Queue::new(Limits::default(), Box::new(Nights)), ..scene };
    jobs.into_iter().for_each(|job| again.queue.restore(again.now, job));
    assert_eq!(again.queue.missing(), []);
    // Nothing is given to anybody before the endpoints said what they have.
    let actions = again.step();
    assert!(actions.iter().all(|action| matches!(action, Action::Probe { .. })) && actions.len() == 2, "{actions:?}");
    again.queue.heard(again.now, ids[0], 1, Answer::Unknown);
    // Nor does the first that answers get what is the other's.
    again.queue.reached("b");
    assert_eq!(given(&again.step()), []);
    ["a", "b"].iter().for_each(|name| again.queue.reached(name));
    assert_eq!(given(&again.step()), [(ids[0], Role::Sends)]);
    assert_eq!(again.state(ids[2]).0, Status::Paused);
    assert_eq!(again.state(dependent), (Status::Waiting, Reason::Dependency));
}

#[test]
fn what_a_later_copy_of_the_records_gave_is_adopted_before_anything_is_given() {
    let mut scene = Scene::new();
    let id = scene.submit(|_| {});
    scene.step();
    let known = scene.queue.get(id).unwrap().clone();
    assert_eq!((known.attempt, known.role), (1, Some(Role::Sends)));
    for endpoint in ["a", "b"] {
        // The records were put back as they were before or after the first attempt; by now the third is at work.
        let mut before = known.clone();
        (before.attempt, before.role, before.status) = (0, None, Status::Queued);
        for job in [before, known.clone()] {
            let mut again = Scene { queue: Queue::new(Limits::default(), Box::new(Nights)), now: scene.now, count: 9 };
            ["a", "b"].iter().for_each(|name| again.queue.distrust(name));
            again.queue.restore(again.now, job.clone());
            let other = if endpoint == "a" { "b" } else { "a" };
            again.queue.reached(other);
            if job.role.is_some() {
                again.queue.heard(again.now, id, 1, Answer::Unknown);
            }
            // The endpoint that did not answer yet may have it.
            assert_eq!(given(&again.step()), [], "{endpoint}");
            let role = if endpoint == "a" { Role::Sends } else { Role::Fetches };
            again.queue.adopt(again.now, id, 3, role);
            again.queue.reached(endpoint);
            assert_eq!(given(&again.step()), []);
            assert_eq!(again.end(id, Exit::Done).status, Status::Succeeded);
        }
    }
}

#[test]
fn an_order_that_waits_at_its_executor_holds_up_its_pair_after_a_restart_too() {
    let mut scene = Scene::new();
    let id = scene.submit(|_| {});
    scene.step();
    scene.hear(id, waits(order::Reason::Credentials));
    let mut again = Scene { now: scene.now, count: scene.count, ..Scene::new() };
    again.queue.restore(again.now, scene.queue.get(id).unwrap().clone());
    // It says the same as before.
    again.hear(id, waits(order::Reason::Credentials));
    let (same, other) = (again.submit(|_| {}), again.submit(|facts| facts.to = "c".into()));
    assert_eq!(given(&again.step()), [(other, Role::Sends)]);
    assert_eq!(again.queue.why(same).unwrap().0, Reason::Slot);
    again.hear(id, ended(Exit::Done));
    assert_eq!(again.state(same).0, Status::Running);
}

#[test]
fn a_restart_gives_no_more_time_for_new_credentials() {
    const DAY: u64 = 86_400_000;
    let mut scene = Scene::new();
    let id = scene.submit(|_| {});
    scene.step();
    scene.hear(id, Answer::Refused { code: Exit::Authentication as i32, text: "no".into(), hint: String::new() });
    scene.pass(8 * DAY);
    let mut again = Scene { now: scene.now, ..Scene::new() };
    again.queue.restore(again.now, scene.queue.get(id).unwrap().clone());
    assert!(again.queue.take().0.is_empty(), "it stands as it was written down");
    again.pass(5 * DAY);
    assert_eq!(again.state(id), (Status::Waiting, Reason::Credentials));
    again.pass(2 * DAY);
    assert!(again.queue.is_empty(), "it waits 14 days in all");
}

/// Several hosts begin a job anew with each hub: that many restarts of one that gets on would end it.
#[test]
fn progress_after_tries_that_failed_is_written_down_once() {
    let mut scene = Scene::new();
    let id = scene.submit(|_| {});
    scene.step();
    scene.hear(id, Answer::Unknown);
    assert_eq!((scene.queue.get(id).unwrap().attempt, scene.queue.get(id).unwrap().failures), (2, 1));
    let mut written = |files_done| {
        let (status, reason) = (Status::Running, order::Reason::None);
        let work = Work { files_done, ..Work::default() };
        let news = News { status, reason, text: String::new(), until: None, work };
        scene.queue.heard(scene.now, id, 2, Answer::News(news));
        scene.queue.take().0.iter().map(|job| job.failures).collect::<Vec<_>>()
    };
    assert_eq!([written(0), written(1), written(2)], [vec![], vec![0], vec![]]);
}
