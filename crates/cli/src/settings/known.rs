//! What may be set: the commands and flags of the program, read off its own definition.
//!
//! Not here: files (`file`), which of several settings holds (`super`).

use super::setting::Setting;
use crate::exit::{Result, usage};
use crate::output::shown;
use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command, Id};
use std::collections::BTreeSet;

/// Flags that choose the files, or end the program before anything is read.
const NOT_SETTINGS: &[&str] = &["help", "version", "config", "profile"];

/// The command that is called with these words.
pub fn command_at<'a>(program: &'a Command, words: &[&str]) -> Option<&'a Command> {
    words.iter().try_fold(program, |command, word| command.find_subcommand(word))
}

pub fn subcommands(command: &Command) -> BTreeSet<String> {
    command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect()
}

/// The flags of one command that may be set: the argument's id and the flag's name.
pub fn flags(command: &Command) -> Vec<(Id, String)> {
    let named = command.get_arguments().filter_map(|arg| Some((arg.get_id().clone(), arg.get_long()?.to_owned())));
    named.filter(|(_, name)| !NOT_SETTINGS.contains(&name.as_str())).collect()
}

/// The flags of a command and of all below it.
pub fn flags_below(command: &Command) -> BTreeSet<String> {
    let own = flags(command).into_iter().map(|(_, name)| name);
    own.chain(command.get_subcommands().flat_map(flags_below)).collect()
}

/// Every command that does something, by its words.
pub fn leaves(program: &Command) -> Vec<Vec<String>> {
    let below = program.get_subcommands().filter(|sub| !sub.is_hide_set()).flat_map(|sub| {
        let name = sub.get_name().to_owned();
        match sub.has_subcommands() {
            false => vec![vec![name]],
            true => leaves(sub).into_iter().map(|words| [vec![name.clone()], words].concat()).collect(),
        }
    });
    below.collect()
}

/// Whether the value is one that the flag takes.
pub fn check(command: &Command, setting: &Setting) -> Result<()> {
    let is_setting = |arg: &Arg| arg.get_long() == Some(setting.flag.as_str());
    let Some(arg) = command.get_arguments().find(|arg| is_setting(arg)) else { return Ok(()) };
    let wrong = |what: &str, hint: String| {
        let origin = &setting.origin;
        Err(usage(format!("{}:{}: {}: {what}", shown(&origin.file), origin.line, setting.flag), hint))
    };
    let see = format!("`thalweg {} --help` says what it takes", command.get_name());
    let is_switch = matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse);
    if is_switch {
        return match setting.values.as_slice() {
            [value] if value == "true" || value == "false" => Ok(()),
            _ => wrong("it is switched on or off", format!("write {} = true", setting.flag)),
        };
    }
    if matches!(arg.get_action(), ArgAction::Count) {
        return match setting.values.as_slice() {
            [value] if value.parse::<u8>().is_ok() => Ok(()),
            _ => wrong("it is counted", format!("write {} = 1", setting.flag)),
        };
    }
    if setting.values.len() > 1 && !matches!(arg.get_action(), ArgAction::Append) {
        return wrong("it takes one value", see);
    }
    let words = setting.values.iter().map(|value| format!("--{}={value}", setting.flag));
    let without_variables = |arg: Arg| arg.env(None::<&'static str>);
    let tried = command.clone().no_binary_name(true).mut_args(without_variables).try_get_matches_from(words);
    match tried {
        Err(e) if matches!(e.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) => {
            let text = e.to_string();
            let first = text.lines().next().unwrap_or_default();
            wrong(first.strip_prefix("error: ").unwrap_or(first), see)
        }
        // Whatever else is missing is no matter of this value.
        _ => Ok(()),
    }
}

/// The program with one command changed.
pub fn changed(program: Command, words: &[&str], change: impl FnOnce(Command) -> Command) -> Command {
    match words {
        [word, rest @ ..] => program.mut_subcommand(*word, |command| changed(command, rest, change)),
        [] => change(program),
    }
}

/// A command with other defaults for its flags.
pub fn with_defaults(command: Command, defaults: &[(Id, &Setting)]) -> Command {
    defaults.iter().fold(command, |command, (id, setting)| {
        command.mut_arg(id, |arg| {
            // The definition lives as long as the program, and is changed once.
            let values = setting.values.iter().map(|value| &*Box::leak(value.clone().into_boxed_str()));
            arg.required(false).required_unless_present(Resettable::<Id>::Reset).default_values(values)
        })
    })
}

/// The name that was probably meant.
pub fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Two letters that changed places make a short word another one for the first measure.
    let is_slip = |name: &str| word.len() > 1 && strsim::damerau_levenshtein(word, name) == 1;
    let score = |name: &str| if is_slip(name) { 0.95 } else { strsim::jaro_winkler(word, name) };
    let scored = names.map(|name| (score(name), name));
    scored.filter(|(score, _)| *score > 0.8).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_leaf_is_found_by_its_words() {
        let program = crate::args::Cli::command();
        let leaves = leaves(&program);
        assert!(leaves.contains(&vec!["endpoint".into(), "add".into()]) && leaves.contains(&vec!["cp".into()]));
        for words in leaves {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert!(!command_at(&program, &words).unwrap().has_subcommands());
        }
    }

    #[test]
    fn the_nearest_name_is_near() {
        let names = ["retries", "streams", "chunk-size"];
        assert_eq!(nearest("stream", names.into_iter()), Some("streams"));
        assert_eq!(nearest("pc", ["mv", "cp"].into_iter()), Some("cp"));
        assert_eq!(nearest("xyz", names.into_iter()), None);
    }
}
