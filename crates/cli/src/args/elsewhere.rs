//! The flags of one command, taken to another host and read there.

use super::globals::Globals;
use crate::exit::{Result, usage};
use clap::builder::OsStr;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, Command};
use std::ffi::OsString;
use std::sync::OnceLock;

/// What this process was given, as it was read.
static GIVEN: OnceLock<ArgMatches> = OnceLock::new();

/// Keeps what this process was given: by its command line, its variables and its settings.
pub fn keep(given: ArgMatches) {
    let _ = GIVEN.set(given);
}

/// The program as if it had this command alone.
fn program_of<A: Args>(name: &'static str) -> Command {
    Globals::augment_args(Command::new("thalweg")).subcommand(A::augment_args(Command::new(name)))
}

/// Reads the flags and arguments of a command that was given on another host.
pub fn parse_words<A: Args>(name: &'static str, words: impl Iterator<Item = OsString>) -> Result<A> {
    let words = ["thalweg", name].into_iter().map(OsString::from).chain(words);
    let parsed = program_of::<A>(name).try_get_matches_from(words).and_then(|matches| {
        let (_, own) = matches.subcommand().expect("the command is among the words");
        A::from_arg_matches(own)
    });
    parsed.map_err(|e| {
        let text = e.to_string();
        usage(text.lines().next().unwrap_or_default(), "bring thalweg to the same version on both hosts")
    })
}

/// The flags that were given to this process, whose command is `name`, as another host can take them. It knows neither the
/// variables nor the settings of this one.
pub fn given_flags<A: Args>(name: &'static str, left_out: &[&str]) -> Result<Vec<String>> {
    let given = GIVEN.get().and_then(ArgMatches::subcommand).filter(|(given, _)| *given == name);
    let Some((_, matches)) = given else { return Ok(Vec::new()) };
    flags(&A::augment_args(Command::new(name)), matches, left_out)
}

/// `command` is defined without settings: what has no other value than it has there is not given.
fn flags(command: &Command, matches: &ArgMatches, left_out: &[&str]) -> Result<Vec<String>> {
    let mut flags = Vec::new();
    for argument in command.get_arguments() {
        let (id, Some(long)) = (argument.get_id().as_str(), argument.get_long()) else { continue };
        if left_out.contains(&long) {
            continue;
        }
        match argument.get_action() {
            ArgAction::SetTrue => flags.extend(matches.get_flag(id).then(|| format!("--{long}"))),
            ArgAction::Count => flags.extend((0..matches.get_count(id)).map(|_| format!("--{long}"))),
            _ => {
                let values: Vec<_> = matches.get_raw(id).into_iter().flatten().collect();
                let defaults = argument.get_default_values().iter().map(OsStr::as_os_str);
                if matches.value_source(id) == Some(ValueSource::DefaultValue) && values.iter().copied().eq(defaults) {
                    continue;
                }
                for value in values {
                    let value = value.to_str().ok_or_else(|| {
                        usage(format!("the value of --{long} is not text"), "it cannot be passed to the other host")
                    })?;
                    flags.push(format!("--{long}={value}"));
                }
            }
        }
    }
    Ok(flags)
}

/// Withholds the variables of this process from another one of this program, but for those of the names in `kept`.
#[cfg(any(feature = "hub", feature = "bench"))]
pub fn withhold_variables(command: &mut std::process::Command, kept: &[&str]) {
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"THALWEG_") && !kept.iter().any(|kept| name == *kept) {
            command.env_remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::cp;

    #[test]
    fn settings_travel_with_what_was_typed_and_defaults_do_not() {
        let plain = cp::Args::augment_args(Command::new("cp"));
        let settings = [("chmod", "640"), ("no_clobber", "true"), ("verify", "stream"), ("ssh", "ssh -4")];
        let with = settings
            .into_iter()
            .fold(plain.clone(), |command, (id, value)| command.mut_arg(id, |arg| arg.default_value(value)));
        let matches = with.try_get_matches_from(["cp", "-vv", "--retries", "5", "--bwlimit=10M", "a", "b"]).unwrap();
        let mut given = flags(&plain, &matches, &["ssh"]).unwrap();
        given.sort();
        let expected = ["--bwlimit=10M", "--chmod=640", "--no-clobber", "--retries=5", "--verbose", "--verbose"]
            .map(str::to_owned);
        assert_eq!(given, expected);
    }
}
