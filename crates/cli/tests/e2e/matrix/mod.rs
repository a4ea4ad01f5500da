//! The table of what works with what (`transfer::matrix`, docs/matrix.md), walked with the program as its users have it.
//!
//! Every pair of source and destination is tried with every verb: bytes move and are compared. Every option that works is tried with
//! every verb, each kind of source and each kind of destination at least once, several compatible ones in one command; options
//! beyond two ends and each other are not multiplied. Every rule refuses with every verb and option that it names, with the words
//! of the table, before anything is opened.

mod samples;
mod world;

use crate::bed::Bed;
use samples::{Sample, given, samples};
use std::collections::BTreeSet;
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

/// A command that the table refuses.
struct Refused {
    verb: (Verbs, &'static str),
    from: Ends,
    to: Ends,
    given: Vec<Given>,
}

/// For every rule, with each verb and option that it names.
fn refused() -> Vec<Refused> {
    let kinds = Ends::KINDS.map(|(end, _)| end);
    let kinds = [&kinds[..], &[Ends::HOST.or(Ends::NULL)]].concat();
    let mut all = Vec::new();
    for rule in rules() {
        let flags: Vec<_> = if rule.flags.is_empty() { vec![None] } else { rule.flags.iter().map(Some).collect() };
        let before = all.len();
        for (flag, (verb, name)) in flags.iter().flat_map(|flag| Verbs::NAMES.map(|verb| (*flag, verb))) {
            if !flag.is_none_or(|flag| samples::takes(name, flag.name)) {
                continue;
            }
            let given = asked(rule, flag);
            let is_it = |from: Ends, to: Ends| {
                let refusal = (Case { verb, from, to, given: &given }).refusal();
                refusal.is_some_and(|(found, _)| std::ptr::eq(found, rule))
            };
            let mut ends = kinds.iter().flat_map(|from| kinds.iter().map(|to| (*from, *to)));
            let first = ends.find(|(from, to)| is_it(*from, *to));
            all.extend(first.map(|(from, to)| Refused { verb: (verb, name), from, to, given }));
        }
        assert!(all.len() > before, "no command meets the rule {:?} {:?}: {}", rule.when, rule.flags, rule.why);
    }
    all
}

#[test]
fn what_is_refused_says_why_before_anything_is_opened() {
    let Some(world) = World::start() else { return };
    let before = world.everything();
    for Refused { verb, from, to, given } in refused() {
        world.is_refused(verb, from, to, &given);
    }
    assert_eq!(world.everything(), before, "something was written, or a server was asked");
}

#[test]
fn the_manual_says_how_much_of_the_table_is_walked() {
    fn place(trial: &Trial, sample: &Sample) -> (&'static str, u16, u16, String) {
        (trial.verb.1, trial.from.0, trial.to.0, given(sample)[0].name.clone())
    }
    let trials: Vec<Trial> = Verbs::NAMES.into_iter().flat_map(plan).collect();
    let of_trial = |trial: &Trial| trial.with.iter().map(|sample| place(trial, sample)).collect::<Vec<_>>();
    let places: BTreeSet<_> = trials.iter().flat_map(of_trial).collect();
    let said = format!(
        "Tests carry out {} commands that work, which try options in {} combinations with a verb, a source and a \
         destination, and {} that are refused.",
        trials.len(),
        places.len(),
        refused().len()
    );
    let page = String::from_utf8(Bed::new().run(&["matrix"]).succeeded().stdout).unwrap();
    assert!(page.contains(&said), "`WALKED` of `thalweg matrix` is another; walked is: {said}");
}
