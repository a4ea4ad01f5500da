//! Flags that remove or replace something, give up protection, or say what this one command is about: they are given with the
//! command, where they are meant.
//!
//! A variable or a setting that was made for one command must not arm another: `THALWEG_RECURSIVE`, set for `ls -R`, made
//! `rm` remove trees, and `THALWEG_KEY`, set for `publish`, made all jobs of `submit` one. So none of these flags has a variable,
//! and one that is set all the same is an error and not passed over, because a script may rely on it.
//!
//! Invariants: this is the only list of them, and a test holds it against every flag there is.

use crate::exit::{Result, usage};
use clap::ArgMatches;
use clap::parser::ValueSource;
use model::mutant;
use std::ffi::{OsStr, OsString};

/// Where such a flag may be given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Where {
    /// With the command, nowhere else.
    CommandLine,
    /// Also in the command's own table of a configuration file, outside every profile.
    OwnTable,
}
use Where::{CommandLine, OwnTable};

/// The command's words, the flag, and where it may be given.
const FLAGS: &[(&[&str], &str, Where)] = &[
    (&["rm"], "recursive", CommandLine),
    (&["rm"], "force", CommandLine),
    (&["sync"], "delete", CommandLine),
    (&["doctor"], "apply", CommandLine),
    (&["lab", "down"], "all", CommandLine),
    (&["endpoint", "add"], "replace", OwnTable),
    (&["serve"], "super", OwnTable),
    (&["serve"], "no-landlock", OwnTable),
    (&["serve"], "cross-mounts", OwnTable),
    (&["submit"], "key", CommandLine),
    (&["batch"], "key", CommandLine),
    (&["contract", "add"], "peer", CommandLine),
    (&["contract", "add"], "user", CommandLine),
    (&["contract", "add"], "class", CommandLine),
    (&["contract", "add"], "rate", CommandLine),
];

/// Where a flag of a command may be given; `None` for those that may be given anywhere.
pub fn place_of(command: &[&str], flag: &str) -> Option<Where> {
    FLAGS.iter().find(|(words, name, _)| *words == command && *name == flag).map(|(.., place)| *place)
}

/// Refuses a command that a variable would have armed before these flags lost theirs.
pub fn check_variables(command: &[&str], matches: &ArgMatches) -> Result<()> {
    check(command, matches, &|name| std::env::var_os(name))
}

fn check(command: &[&str], matches: &ArgMatches, variable: &dyn Fn(&str) -> Option<OsString>) -> Result<()> {
    for (_, flag, place) in FLAGS.iter().filter(|(words, ..)| *words == command) {
        let name = variable_of(flag);
        if is_off(variable(&name).as_deref()) || is_given(matches, flag) || mutant::is_on("variable-arms-removal") {
            continue;
        }
        let words = command.join(" ");
        let table = match place {
            CommandLine => String::new(),
            OwnTable => format!(", or as {flag} = true below [{}] in the configuration", command.join(".")),
        };
        return Err(usage(
            format!("{name} is set, but `thalweg {words}` does not take --{flag} from a variable"),
            format!(
                "give --{flag} on the command line if it is intended{table}; otherwise `env -u {name} thalweg {words} ...`"
            ),
        ));
    }
    Ok(())
}

/// The variable of a flag.
pub fn variable_of(flag: &str) -> String {
    format!("THALWEG_{}", flag.to_ascii_uppercase().replace('-', "_"))
}

fn is_off(value: Option<&OsStr>) -> bool {
    value.is_none_or(|value| value.is_empty() || value == "false" || value == "0")
}

/// The argument's name is the flag's, or `is_FLAG` where that is a word of the language.
fn is_given(matches: &ArgMatches, flag: &str) -> bool {
    let id = flag.replace('-', "_");
    let ids = [format!("is_{id}"), id];
    let mut known = ids.iter().filter(|id| matches.try_contains_id(id).is_ok());
    known.any(|id| matches.value_source(id) == Some(ValueSource::CommandLine))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use crate::settings::known::command_at;
    use clap::{Arg, Command, CommandFactory};

    /// Every command and flag there is.
    fn flags(command: &Command, words: &[&str], visit: &mut dyn FnMut(&[&str], &Arg)) {
        command.get_arguments().for_each(|arg| visit(words, arg));
        for sub in command.get_subcommands() {
            flags(sub, &[words, &[sub.get_name()]].concat(), visit);
        }
    }

    /// Words in the names of flags that remove, replace or give up something.
    const TELLING: &[&str] = &[
        "delete",
        "remove",
        "recursive",
        "force",
        "purge",
        "prune",
        "clean",
        "wipe",
        "discard",
        "overwrite",
        "replace",
        "truncate",
        "apply",
        "super",
        "landlock",
        "insecure",
        "unsafe",
        "cross",
        "destroy",
        "kill",
    ];

    /// What has such a word and harms nothing: a bound on removals, and what is only listed or copied.
    const HARMLESS: &[(&[&str], &str)] = &[
        (&["sync"], "max-delete"),
        (&["stage"], "recursive"),
        (&["ls"], "recursive"),
        (&["cp"], "recursive"),
        (&["sync"], "recursive"),
        (&["follow"], "recursive"),
    ];

    #[test]
    fn no_destructive_flag_has_a_variable() {
        let (mut found, mut all) = (Vec::new(), 0);
        flags(&Cli::command(), &[], &mut |words, arg| {
            let Some(long) = arg.get_long() else { return };
            all += 1;
            let is_telling = TELLING.iter().any(|word| long.contains(word)) && !HARMLESS.contains(&(words, long));
            if place_of(words, long).is_some() {
                found.push((words.join(" "), long.to_owned()));
                assert_eq!(arg.get_env(), None, "{words:?} --{long} can be armed by a variable");
            } else {
                assert!(!is_telling, "{words:?} --{long} sounds destructive: name it in FLAGS, or in HARMLESS");
            }
        });
        assert!(all > 200, "only {all} flags were found");
        // The smallest build has no laboratory.
        let program = Cli::command();
        let expected = FLAGS.iter().filter(|(words, ..)| command_at(&program, words).is_some());
        let expected = expected.map(|(words, flag, _)| (words.join(" "), (*flag).to_owned()));
        let missing: Vec<_> = expected.filter(|flag| !found.contains(flag)).collect();
        assert!(missing.is_empty(), "{missing:?} are in the list and not in the program");
    }

    #[test]
    fn a_variable_that_would_have_armed_a_command_is_an_error_and_a_flag_is_not() {
        let run = |words: &[&str], value: &str| {
            let matches = Cli::command().try_get_matches_from(words).unwrap();
            let (mut command, mut at) = (Vec::new(), &matches);
            while let Some((name, below)) = at.subcommand() {
                command.push(name);
                at = below;
            }
            check(&command, at, &|_| Some(value.into()))
        };
        for words in [&["t", "rm", "x"][..], &["t", "sync", "a", "b"], &["t", "doctor"], &["t", "serve", "--root", "r"]]
        {
            let refused = run(words, "true").unwrap_err();
            assert_eq!(refused.exit, model::Exit::Usage);
            assert!(refused.message.contains("THALWEG_") && refused.hint.is_some(), "{refused}");
            for off in ["false", "", "0"] {
                run(words, off).unwrap();
            }
        }
        run(&["t", "rm", "-rf", "x"], "true").unwrap();
        run(&["t", "serve", "--root", "r", "--super", "--no-landlock", "--cross-mounts"], "true").unwrap();
        assert!(run(&["t", "serve", "--root", "r", "--super"], "true").unwrap_err().message.contains("LANDLOCK"));
        run(&["t", "ls", "-R", "x"], "true").unwrap();
    }
}
