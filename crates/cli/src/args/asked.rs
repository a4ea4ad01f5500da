//! A command's arguments, defined only where that command is asked for.
//!
//! The definition of all commands takes several times as long as a small copy; who gives one command waits for that one
//! alone. Outside `alone` every command is defined: for the help, the manual, and the keys of configuration files.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use std::cell::RefCell;
use std::ffi::OsString;
use std::ops::Deref;

thread_local! {
    /// The only command to be defined, if one was named first. The derived definition takes no argument that could say it.
    static ALONE: RefCell<Option<OsString>> = const { RefCell::new(None) };
}

/// What `define` defines for this command line, with the arguments of no command but the one that stands first. A flag, `help`
/// or nothing in its place asks for all of them, but the version alone for none.
pub fn alone(words: &[OsString], define: fn() -> Command) -> Command {
    let is_version = words.len() == 2 && ["--version", "-V"].iter().any(|flag| words[1] == *flag);
    let is_command = |word: &&OsString| !word.as_encoded_bytes().starts_with(b"-") && *word != "help";
    ALONE.set(words.get(1).filter(|word| is_version || is_command(word)).cloned());
    let defined = define();
    ALONE.set(None);
    defined
}

/// The arguments of one command.
#[derive(Debug)]
pub struct Asked<T>(Box<T>);

impl<T> Asked<T> {
    pub fn into_inner(self) -> T {
        *self.0
    }
}

impl<T> Deref for Asked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Args> Args for Asked<T> {
    fn augment_args(command: Command) -> Command {
        let is_other = |only: &OsString| *only != command.get_name();
        if ALONE.with_borrow(|alone| alone.as_ref().is_some_and(is_other)) { command } else { T::augment_args(command) }
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command)
    }
}

impl<T: FromArgMatches> FromArgMatches for Asked<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Asked<T>, Error> {
        T::from_arg_matches(matches).map(|args| Asked(Box::new(args)))
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Asked<T>, Error> {
        T::from_arg_matches_mut(matches).map(|args| Asked(Box::new(args)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::program;

    fn flags(program: &Command, name: &str) -> usize {
        program.find_subcommand(name).unwrap().get_arguments().count()
    }

    #[test]
    fn the_first_word_is_the_only_command_that_is_defined() {
        let whole = program();
        let of = |words: &[&str]| {
            alone(&[&["thalweg"], words].concat().iter().map(OsString::from).collect::<Vec<_>>(), program)
        };
        let one = of(&["sync"]);
        assert_eq!(flags(&one, "sync"), flags(&whole, "sync"));
        assert_eq!(flags(&one, "cp"), 0);
        assert_eq!(
            one.get_subcommands().count(),
            whole.get_subcommands().count(),
            "a typing error is measured against all names"
        );
        for words in [&[][..], &["--help"], &["help"], &["--version", "cp"]] {
            let all = of(words);
            assert!(flags(&all, "cp") > 0 && flags(&all, "sync") > 0, "{words:?}");
        }
        for flag in ["--version", "-V"] {
            let none = of(&[flag]);
            assert!(none.get_subcommands().all(|command| command.get_arguments().next().is_none()), "{flag}");
            assert_eq!(none.render_version(), whole.render_version());
        }
        assert!(flags(&program(), "cp") > 0, "the choice ends with the definition");
    }
}
