//! The table of what works with what (`transfer::matrix`, docs/matrix.md), walked with the program as its users have it.
//!
//! Every pair of source and destination is tried with every verb: bytes move and are compared. Every option that works is tried with
//! every verb, each kind of source and each kind of destination at least once, several compatible ones in one command; options
//! beyond two ends and each other are not multiplied. Every rule refuses with every verb and option that it names, with the words
//! of the table, before anything is opened.

mod samples;
mod world;

use samples::{Sample, given, samples};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use transfer::matrix::{Case, Ends, Flag, Given, Rule, Value, Verbs, When, rules};
use world::World;

/// One command: its ends and its options.
struct Trial {
    verb: (Verbs, &'static str),
    from: Ends,
    to: Ends,
    with: Vec<&'static Sample>,
}

fn works(verb: Verbs, from: Ends, to: Ends, with: &[&Sample]) -> bool {
    let given: Vec<_> = with.iter().flat_map(|sample| given(sample)).collect();
    Case { verb, from, to, given: &given }.refusal().is_none()
}

fn pairs(verb: Verbs) -> Vec<(Ends, Ends)> {
    let kinds = Ends::KINDS.map(|(end, _)| end);
    let all = kinds.iter().flat_map(|from| kinds.map(|to| (*from, to)));
    all.filter(|(from, to)| works(verb, *from, *to, &[])).collect()
}

/// Puts options on pairs, so that each works once from each kind of source and once to each kind of destination; what may go into one
/// command does.
fn plan(verb: (Verbs, &'static str)) -> Vec<Trial> {
    let pairs = pairs(verb.0);
    let mut trials: Vec<Trial> =
        pairs.iter().map(|(from, to)| Trial { verb, from: *from, to: *to, with: Vec::new() }).collect();
    for (number, sample) in samples(verb.1).into_iter().enumerate() {
        let open: Vec<_> = pairs.iter().filter(|(from, to)| works(verb.0, *from, *to, &[sample])).collect();
        let (mut froms, mut tos) = (Ends(0), Ends(0));
        // Each begins elsewhere, so that they spread over the pairs.
        let start = if open.is_empty() { 0 } else { number * 7 % open.len() };
        for (from, to) in open.iter().cycle().skip(start).take(open.len()) {
            if froms.has(*from) && tos.has(*to) {
                continue;
            }
            (froms, tos) = (froms.or(*from), tos.or(*to));
            let fits = |trial: &&mut Trial| {
                let with: Vec<_> = trial.with.iter().copied().chain([sample]).collect();
                let is_apart = |other: &&Sample| {
                    sample.group == "alone"
                        || other.group == "alone"
                        || !sample.group.is_empty() && other.group == sample.group
                };
                (trial.from, trial.to) == (*from, *to)
                    && !trial.with.iter().any(is_apart)
                    && works(verb.0, *from, *to, &with)
            };
            match trials.iter_mut().find(fits) {
                Some(trial) => trial.with.push(sample),
                None => trials.push(Trial { verb, from: *from, to: *to, with: vec![sample] }),
            }
        }
    }
    trials
}

/// Carries trials out, a few at once.
fn walk(verb: &'static str) {
    let Some(world) = World::start() else { return };
    let trials = plan((Verbs::of(verb).unwrap(), verb));
    let (next, wrong) = (AtomicUsize::new(0), std::sync::Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some((number, trial)) = {
                    let at = next.fetch_add(1, SeqCst);
                    trials.get(at).map(|trial| (at, trial))
                } {
                    if let Err(why) = world.carry_out(number, trial) {
                        wrong.lock().unwrap().push(why);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {} commands:\n{}", wrong.len(), trials.len(), wrong.join("\n"));
    println!("{verb}: {} commands over {} pairs", trials.len(), pairs(Verbs::of(verb).unwrap()).len());
}

#[test]
fn what_cp_does_works() {
    walk("cp");
}

#[test]
fn what_sync_does_works() {
    walk("sync");
}

#[test]
fn what_mv_does_works() {
    walk("mv");
}

#[test]
fn what_check_does_works() {
    walk("check");
}

#[test]
fn what_follow_does_works() {
    walk("follow");
}

/// The options that a rule is about, with what it says of others.
fn asked(rule: &Rule, flag: Option<&Flag>) -> Vec<Given> {
    let others = rule.when.iter().filter_map(|when| match when {
        When::With(name) => {
            let value = if samples::ELSEWHERE.contains(name) { samples::value_of(name) } else { "" };
            Some(Given { name: (*name).to_owned(), value: value.to_owned(), is_typed: true })
        }
        _ => None,
    });
    let value = |flag: &Flag| match flag.value {
        Value::Is(word) => word.to_owned(),
        Value::Pairs => "127.0.0.1=127.0.0.1".to_owned(),
        Value::Any => samples::value_of(flag.name).to_owned(),
    };
    flag.iter()
        .map(|flag| Given { name: flag.name.to_owned(), value: value(flag), is_typed: true })
        .chain(others)
        .collect()
}

#[test]
fn what_is_refused_says_why_before_anything_is_opened() {
    let Some(world) = World::start() else { return };
    let before = world.everything();
    let mut commands = 0;
    for rule in rules() {
        let flags: Vec<_> = if rule.flags.is_empty() { vec![None] } else { rule.flags.iter().map(Some).collect() };
        let mut is_used = false;
        for (flag, (verb, name)) in flags.iter().flat_map(|flag| Verbs::NAMES.map(|verb| (*flag, verb))) {
            if !flag.is_none_or(|flag| samples::takes(name, flag.name)) {
                continue;
            }
            let given = asked(rule, flag);
            let kinds = Ends::KINDS.map(|(end, _)| end);
            let kinds = [&kinds[..], &[Ends::HOST.or(Ends::NULL)]].concat();
            let is_it = |from: Ends, to: Ends| {
                let refusal = (Case { verb, from, to, given: &given }).refusal();
                refusal.is_some_and(|(found, _)| std::ptr::eq(found, rule))
            };
            let mut of_rule = kinds
                .iter()
                .flat_map(|from| kinds.iter().map(|to| (*from, *to)))
                .filter(|(from, to)| is_it(*from, *to));
            let Some((from, to)) = of_rule.next() else { continue };
            (is_used, commands) = (true, commands + 1);
            world.is_refused((verb, name), from, to, &given);
        }
        assert!(is_used, "no command meets the rule {:?} {:?}: {}", rule.when, rule.flags, rule.why);
    }
    assert_eq!(world.everything(), before, "something was written, or a server was asked");
    println!("{commands} refusals");
}
