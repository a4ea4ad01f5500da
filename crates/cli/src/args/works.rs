//! Whether a command works as it was given: its locations and options, looked up in the table (`transfer::matrix`) before anything is
//! opened.
//!
//! Not here: the table, and what depends on one server or file.

use super::values;
use crate::exit::Result;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command};
use daemon::{EndpointBook, Paths};
use std::ffi::OsStr;
use transfer::matrix::{self, Ends, Given, Value, Verbs, When, rules};

/// Values that ask for nothing, of options that have no default.
const NEUTRAL: [(&str, &str); 4] =
    [("compress", "none"), ("compare", "mtime"), ("bwlimit", "off"), ("class", "normal")];

/// `command` is the definition of the one that was given, without the user's settings.
pub fn check(words: &[&str], matches: &ArgMatches, command: &Command) -> Result<()> {
    let [word] = words else { return Ok(()) };
    let Some(verb) = Verbs::of(word) else { return Ok(()) };
    let named: Vec<&OsStr> = ["locations", "first", "second"]
        .into_iter()
        .filter_map(|id| matches.try_get_raw(id).ok().flatten())
        .flatten()
        .collect();
    let [sources @ .., destination] = &named[..] else { return Ok(()) };
    // Without a source the first holder is one.
    let holders = matches.try_get_raw("replica").ok().flatten().into_iter().flatten();
    let lead: Vec<&OsStr> = if sources.is_empty() { holders.take(1).collect() } else { Vec::new() };
    let given = given(matches, command);
    let book = Paths::from_env().ok().map(|paths| EndpointBook::new(paths.endpoints()));
    let is_endpoint = |name: &str| book.as_ref().is_some_and(|book| book.has(name));
    let destination = values::location(destination)?;
    for source in sources.iter().chain(&lead) {
        matrix::check((verb, word), (&values::location(source)?, &destination), &given, &is_endpoint)?;
    }
    Ok(())
}

/// The options that are refused or without effect wherever a command is given.
pub fn never_taken(command: &str) -> Vec<&'static str> {
    const FAR: Ends = Ends::ENDPOINT.or(Ends::HOST);
    // It copies between storages that this host reaches itself.
    let is_stage = command == "stage";
    let Some(verb) = Verbs::of(if is_stage { "cp" } else { command }) else { return Vec::new() };
    let always = |when: &When| match *when {
        When::Neither(ends) | When::NotBoth(ends) | When::NotFrom(ends) | When::NotTo(ends) => {
            is_stage && ends.0 & !FAR.0 == 0
        }
        _ => false,
    };
    let refusing = rules().filter(|rule| rule.verbs.has(verb) && rule.when.iter().all(always));
    refusing.flat_map(|rule| rule.flags).filter(|flag| flag.value == Value::Any).map(|flag| flag.name).collect()
}

/// The options that are not at their defaults.
fn given(matches: &ArgMatches, command: &Command) -> Vec<Given> {
    let of = |arg: &clap::Arg| {
        let (id, name) = (arg.get_id().as_str(), arg.get_long()?);
        let source = matches.try_contains_id(id).ok().and_then(|_| matches.value_source(id))?;
        let value = match arg.get_action() {
            ArgAction::SetTrue => matches.get_flag(id).then(String::new)?,
            ArgAction::Count => (matches.get_count(id) > 0).then(String::new)?,
            _ => matches.get_raw(id)?.next()?.to_string_lossy().into_owned(),
        };
        let is_default = arg.get_default_values().iter().any(|default| default.as_os_str() == &value[..]);
        let is_asked = !is_default && !NEUTRAL.contains(&(name, &value[..]));
        is_asked.then(|| Given { name: name.to_owned(), value, is_typed: source == ValueSource::CommandLine })
    };
    command.get_arguments().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::program;
    use std::collections::BTreeSet;

    /// Options that every copy takes, whatever its ends.
    const EVERYWHERE: &[&str] = &[
        "append-only",
        "bwlimit",
        "chunk-size",
        "digest",
        "end",
        "fail-fast",
        "keep-going",
        "lag-alarm",
        "links",
        "max-duration",
        "max-transfer",
        "memory",
        "no-group",
        "no-owner",
        "no-perms",
        "one-way",
        "progress",
        "quiet",
        "recursive",
        "times",
        "until",
        "verbose",
    ];

    fn refusal(words: &[&str]) -> Option<String> {
        let program = program();
        let matches = program.clone().try_get_matches_from([&["thalweg"], words].concat()).unwrap();
        let (word, matches) = matches.subcommand().unwrap();
        check(&[word], matches, program.find_subcommand(word).unwrap()).err().map(|e| e.to_string())
    }

    #[test]
    fn the_table_knows_every_option_and_no_other() {
        let program = program();
        let mut known = BTreeSet::new();
        for (verb, name) in Verbs::NAMES {
            let command = program.find_subcommand(name).unwrap();
            let flags: Vec<_> = command.get_arguments().filter_map(|arg| arg.get_long()).collect();
            known.extend(flags.iter().map(|flag| (*flag).to_owned()));
            let is_named = |flag: &str| {
                EVERYWHERE.contains(&flag) || rules().any(|rule| rule.flags.iter().any(|named| named.name == flag))
            };
            let unknown: Vec<_> = flags.iter().filter(|flag| !is_named(flag)).collect();
            assert!(unknown.is_empty(), "{name} {verb:?}: say of {unknown:?} where they work");
        }
        let named = rules().flat_map(|rule| rule.flags).map(|flag| flag.name).chain(EVERYWHERE.iter().copied());
        let gone: Vec<_> = named.filter(|name| !known.contains(*name)).collect();
        assert!(gone.is_empty(), "{gone:?} are no options of any of the verbs");
        let worded = rules().flat_map(|rule| rule.flags).filter_map(|flag| match flag.value {
            Value::Is(word) => Some((flag.name, word)),
            _ => None,
        });
        for (name, word) in worded {
            let verb = if name == "show" { "follow" } else { "cp" };
            let given = [verb, &format!("--{name}={word}"), "a", "b"];
            program.clone().try_get_matches_from([&["thalweg"], &given[..]].concat()).unwrap();
        }
    }

    #[test]
    fn the_help_leaves_out_what_its_command_never_takes() {
        let program = program();
        for (command, hidden, shown) in [
            (
                "follow",
                &["exclude", "files-from", "compare", "no-clobber", "hosts", "buffer"][..],
                &["fsync", "ssh"][..],
            ),
            ("stage", &["hosts", "to-hosts", "detach", "paths", "deploy"], &["exclude", "compare", "ssh", "reserve"]),
            ("sync", &["hosts", "to-hosts"], &["exclude", "delete", "max-delete", "paths"]),
            ("cp", &[], &["hosts", "detach", "exclude", "buffer"]),
        ] {
            let is_shown = |flag: &str| {
                let mut arguments = program.find_subcommand(command).unwrap().get_arguments();
                !arguments.find(|arg| arg.get_long() == Some(flag)).unwrap().is_hide_set()
            };
            hidden.iter().for_each(|flag| assert!(!is_shown(flag), "{command} --{flag}"));
            shown.iter().for_each(|flag| assert!(is_shown(flag), "{command} --{flag}"));
        }
    }

    #[test]
    fn a_bound_on_removals_is_for_removing_and_its_variable_is_no_mistake() {
        assert!(refusal(&["sync", "--max-delete", "9", "a", "b"]).unwrap().contains("--max-delete bounds"));
        assert_eq!(refusal(&["sync", "--max-delete", "9", "--delete", "a", "b"]), None);
        let with = program().mut_subcommand("sync", |sync| sync.mut_arg("max_delete", |arg| arg.default_value("9")));
        let matches = with.try_get_matches_from(["thalweg", "sync", "a", "b"]).unwrap();
        let plain = program();
        check(&["sync"], matches.subcommand().unwrap().1, plain.find_subcommand("sync").unwrap()).unwrap();
    }

    #[test]
    fn what_is_at_its_default_or_asks_for_nothing_is_not_given() {
        for words in [
            &["cp", "--paths", "auto", "--buffer", "auto", "--compress=none", "--class", "normal", "a", "b"][..],
            &["cp", "--fsync", "batch", "a", "s3://b/k"],
            &["cp", "--compare", "mtime", "a", "-"],
        ] {
            assert_eq!(refusal(words), None, "{words:?}");
        }
        assert!(refusal(&["cp", "-z", "a", "b"]).unwrap().contains("--compress is for streams"));
        for source in ["a", "other:a"] {
            let refused = refusal(&["cp", source, "host:b", "--paths", "all"]);
            assert!(refused.unwrap().contains("and host is reached over ssh"), "{source}");
        }
    }

    #[test]
    fn a_setting_without_effect_is_no_mistake_and_one_that_cannot_be_kept_is() {
        let settings = |flag: &str, value: &'static str| {
            let with = program().mut_subcommand("cp", |cp| cp.mut_arg(flag, |arg| arg.default_value(value)));
            let matches = with.try_get_matches_from(["thalweg", "cp", "a", "-"]).unwrap();
            let plain = program();
            check(&["cp"], matches.subcommand().unwrap().1, plain.find_subcommand("cp").unwrap())
                .map_err(|e| e.to_string())
        };
        assert_eq!(settings("buffer", "always"), Ok(()));
        assert_eq!(settings("archive", "true"), Ok(()));
        assert!(settings("dry_run", "true").unwrap_err().contains("--dry-run"));
    }
}
