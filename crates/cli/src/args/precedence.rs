//! Which of two options that exclude each other holds where they were given in different places: what was typed before what a
//! variable says, and that before a setting.
//!
//! The parser takes a variable for typed, even one that says `false`, and does not look whether a setting, a default to it, is
//! excluded. So what does not hold is taken out of the definition before the command line is read.
//! Invariant: a dry run is given up for nothing.
//! Not here: which of several settings of one flag holds (`settings`).

use crate::settings::known::{changed, command_at};
use clap::{Arg, ArgAction, Command, Id};
use std::ffi::{OsStr, OsString};

/// The program without the variables that give way: to what was typed, or, where they say `false`, to another variable. Beside it
/// what the command line and variables give: no setting holds against that.
pub fn without_beaten_variables(program: Command, words: &[&str], typed: &[Id]) -> (Command, Vec<Id>) {
    settle(program, words, typed, &|name| std::env::var_os(name))
}

fn settle(
    program: Command,
    words: &[&str],
    typed: &[Id],
    variable: &dyn Fn(&OsStr) -> Option<OsString>,
) -> (Command, Vec<Id>) {
    let Some(command) = command_at(&program, words) else { return (program, typed.to_vec()) };
    let says = |arg: &Arg| arg.get_env().and_then(variable);
    let is_on = |arg: &Arg| {
        let is_switch = matches!(arg.get_action(), ArgAction::SetTrue);
        says(arg).is_some_and(|value| !is_switch || value != "false")
    };
    let gives_way = |arg: &Arg| !is_dry_run(arg) && is_excluded(command, arg, typed);
    let is_held = |arg: &Arg| !typed.contains(arg.get_id()) && is_on(arg) && !gives_way(arg);
    let by_variable = command.get_arguments().filter(|arg| is_held(arg)).map(Arg::get_id);
    let held: Vec<Id> = typed.iter().chain(by_variable).cloned().collect();
    let is_beaten = |arg: &Arg| !held.contains(arg.get_id()) && says(arg).is_some() && is_excluded(command, arg, &held);
    let beaten = command.get_arguments().filter(|arg| is_beaten(arg)).map(Arg::get_id);
    let beaten: Vec<Id> = beaten.cloned().collect();
    if beaten.is_empty() {
        return (program, held);
    }
    let without = |arg: Arg| if beaten.contains(arg.get_id()) { arg.env(None::<&'static str>) } else { arg };
    (changed(program, words, |command| command.mut_args(without)), held)
}

/// Whether one of `held` excludes an argument, whichever of the two says so.
pub fn is_excluded(command: &Command, arg: &Arg, held: &[Id]) -> bool {
    let names = |one: &Arg, other: &Arg| {
        command.get_arg_conflicts_with(one).iter().any(|named| named.get_id() == other.get_id())
    };
    let is_one_of = |one: &Arg, other: &Arg| {
        command.get_groups().any(|group| {
            let has = |arg: &Arg| group.get_args().any(|id| id == arg.get_id());
            !group.clone().is_multiple() && has(one) && has(other)
        })
    };
    let is_other = |other: &&Arg| other.get_id() != arg.get_id() && held.contains(other.get_id());
    let mut others = command.get_arguments().filter(is_other);
    others.any(|other| names(arg, other) || names(other, arg) || is_one_of(arg, other))
}

/// It gives way to nothing: the parser refuses the two, or nothing is changed.
pub fn is_dry_run(arg: &Arg) -> bool {
    arg.get_id().as_str() == "dry_run"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Command {
        let switch = |name: &'static str, variable: &'static str| {
            Arg::new(name).long(name).env(variable).action(ArgAction::SetTrue)
        };
        let ls = Command::new("ls")
            .arg(switch("json", "THALWEG_JSON"))
            .arg(switch("print0", "THALWEG_PRINT0").conflicts_with("json"))
            .arg(switch("dry_run", "THALWEG_DRY_RUN").conflicts_with("json"));
        Command::new("thalweg").subcommand(ls)
    }

    #[test]
    fn a_variable_gives_way_to_what_was_typed_and_one_that_says_false_to_another() {
        for (typed, variables, beaten, given) in [
            (&["print0"][..], &[("THALWEG_JSON", "false")][..], &["json"][..], &["print0"][..]),
            (&["print0"], &[("THALWEG_JSON", "true")], &["json"], &["print0"]),
            (&["json"], &[("THALWEG_PRINT0", "true")], &["print0"], &["json"]),
            (&[], &[("THALWEG_JSON", "false"), ("THALWEG_PRINT0", "true")], &["json"], &["print0"]),
            // What the two mean is for their user to say.
            (&[], &[("THALWEG_JSON", "true"), ("THALWEG_PRINT0", "true")], &[], &["json", "print0"]),
            (&[], &[("THALWEG_JSON", "false")], &[], &[]),
            (&["json"], &[("THALWEG_DRY_RUN", "true")], &[], &["json", "dry_run"]),
            (&["json"], &[("THALWEG_DRY_RUN", "false")], &["dry_run"], &["json"]),
        ] {
            let typed: Vec<Id> = typed.iter().map(|id| Id::from(*id)).collect();
            let variable = |name: &OsStr| {
                let found = variables.iter().find(|(known, _)| name == *known);
                found.map(|(_, value)| OsString::from(value))
            };
            let (program, held) = settle(program(), &["ls"], &typed, &variable);
            let arguments = program.find_subcommand("ls").unwrap().get_arguments();
            let without = arguments.filter(|arg| arg.get_env().is_none());
            assert_eq!(without.map(|arg| arg.get_id().as_str()).collect::<Vec<_>>(), beaten, "{typed:?} {variables:?}");
            assert_eq!(held.iter().map(Id::as_str).collect::<Vec<_>>(), given, "{typed:?} {variables:?}");
        }
    }
}
