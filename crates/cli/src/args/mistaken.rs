//! A command line that cannot be read: what is said about it, and what to do.
//!
//! The words are clap's, which name what is wrong, without the advice that would take a mistyped flag for a file name.

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What is wrong, and the hint. `command` is the command that was given, as far as it is known.
pub fn explained(error: &clap::Error, program: &Command, command: &[String]) -> (String, String) {
    let text = error.to_string();
    let said = text.split("\nFor more information").next().unwrap_or_default();
    let mut lines: Vec<&str> = Vec::new();
    let owner = other_owner(error, program, command);
    // A flag that exists elsewhere was hardly mistyped.
    let is_tip = |line: &&str| match owner {
        Some(_) => line.trim_start().starts_with("tip: "),
        None => line.trim_start().starts_with("tip: to pass "),
    };
    for line in said.trim_end().lines().filter(|line| !is_tip(line)) {
        if !line.is_empty() || lines.last().is_some_and(|last| !last.is_empty()) {
            lines.push(line);
        }
    }
    let words = ["thalweg"].into_iter().chain(command.iter().map(String::as_str)).chain(["--help"]);
    let help = words.collect::<Vec<_>>().join(" ");
    let hint = match &owner {
        Some((flag, other)) => format!("{flag} is a flag of `thalweg {other}`; `{help}` lists those of this command"),
        None => format!("`{help}` explains what it takes, with examples"),
    };
    (lines.join("\n"), hint)
}

/// A flag that this command does not know, and a command that does.
fn other_owner(error: &clap::Error, program: &Command, command: &[String]) -> Option<(String, String)> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let long = flag.strip_prefix("--")?.split('=').next()?;
    let has_flag = |sub: &&Command| {
        let mut longs = sub.get_arguments().filter_map(|arg| arg.get_long_and_visible_aliases());
        longs.any(|names| names.contains(&long))
    };
    let mut others = program.get_subcommands().filter(|sub| !sub.is_hide_set());
    let other = others.find(|sub| command.first().is_none_or(|first| first != sub.get_name()) && has_flag(sub))?;
    Some((format!("--{long}"), other.get_name().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explain(words: &[&str]) -> (String, String) {
        let program = crate::args::program();
        let error = program.clone().try_get_matches_from(words).unwrap_err();
        explained(&error, &program, &[words[1].to_owned()])
    }

    #[test]
    fn a_flag_of_another_command_is_said_to_be_one() {
        let (said, hint) = explain(&["thalweg", "cp", "--max-delete", "3", "a", "b"]);
        assert!(
            said.starts_with("error: unexpected argument '--max-delete' found\n") && !said.contains("tip:"),
            "{said}"
        );
        assert_eq!(hint, "--max-delete is a flag of `thalweg sync`; `thalweg cp --help` lists those of this command");
    }

    #[test]
    fn a_mistyped_flag_is_answered_with_the_one_that_was_meant() {
        let (said, hint) = explain(&["thalweg", "cp", "--jsn", "a", "b"]);
        assert!(said.contains("tip: a similar argument exists: '--json'"), "{said}");
        assert_eq!(hint, "`thalweg cp --help` explains what it takes, with examples");
        let (said, _) = explain(&["thalweg", "cp", "--nothing-like-it", "a", "b"]);
        assert!(!said.contains("tip:") && !said.contains("\n\n\n"), "{said}");
    }
}
