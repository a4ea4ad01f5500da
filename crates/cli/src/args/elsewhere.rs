//! The flags of one command, taken to another host and read there.

use super::globals::Globals;
use crate::exit::{Result, usage};
use clap::parser::ValueSource;
use clap::{ArgAction, Args, Command};
use std::ffi::OsString;

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

/// The flags that were given to this process, whose command is `name`, or that its environment sets, as another host can take
/// them.
pub fn given_flags<A: Args>(name: &'static str, left_out: &[&str]) -> Result<Vec<String>> {
    let command = program_of::<A>(name);
    let matches = command.clone().get_matches();
    let Some((name, matches)) = matches.subcommand() else { return Ok(Vec::new()) };
    let arguments = command.find_subcommand(name).into_iter().flat_map(Command::get_arguments);
    let mut flags = Vec::new();
    for argument in arguments {
        let (id, Some(long)) = (argument.get_id().as_str(), argument.get_long()) else { continue };
        let source = matches.value_source(id);
        if left_out.contains(&long) || !matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable)) {
            continue;
        }
        match argument.get_action() {
            ArgAction::SetTrue => flags.extend(matches.get_flag(id).then(|| format!("--{long}"))),
            ArgAction::Count => flags.extend((0..matches.get_count(id)).map(|_| format!("--{long}"))),
            _ => {
                for value in matches.get_raw(id).into_iter().flatten() {
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
