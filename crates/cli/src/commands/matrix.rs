//! `thalweg matrix`: the manual's page of what works with what, printed from the table that every command is looked up in.

use crate::exit::Result;
use crate::output;
use clap::{Arg, Command};
use model::Exit;
use std::collections::BTreeSet;
use transfer::matrix::{Case, Ends, Given, Rule, Value, Verbs, rules};

const HEAD: &str = "\
# What works with what

Printed by `thalweg matrix` from the table in which every `cp`, `sync`, `mv`, `check` and `follow` is looked up before anything is
opened. What the table refuses ends with exit code 2 before anything moves, with the reason and what to do instead. Everything else works:
a test runs every pair of source and destination with every verb, and every option with every verb and each kind of source and
destination.

Kinds of source and destination: `path` is one on this host, `endpoint` one that `thalweg endpoint add` knows or `tw://ADDR:PORT/PATH`,
`ssh host` any other `HOST:PATH`; `s3://` includes `s3+NAME://`, `davs://` `dav://`, `https://` `http://`, and `gsiftp://` `ftp://` and
`sshftp://`. What an endpoint serves may be a directory or a store of its own; it refuses what that store cannot do.

A source that grows is a path for `follow`; `cp` and `sync` copy it as it is, and report a file that changes meanwhile (exit code 24).
";

const BETWEEN: &str = "\
## Options

An option is refused in the cases of the second column; everywhere else it works, if the command has it. One that would merely have no
effect (`*`) is refused only if it was typed: a variable or a setting is meant for all commands, and is ignored where it has none.

| option | refused | why | instead |
|---|---|---|---|
";

/// What `tests/e2e/matrix` walks, and holds against these: commands that work, options in them by verb, source and
/// destination, and commands that are refused.
const WALKED: [usize; 3] = [594, 3106, 387];

pub fn run(program: &Command) -> Result<Exit> {
    output::text(&page(program));
    Ok(Exit::Done)
}

fn page(program: &Command) -> String {
    let mut text = HEAD.to_owned();
    let reasons = reasons();
    for (verb, name) in Verbs::NAMES {
        text.push_str(&pairs(verb, name, &reasons));
    }
    text.push_str("\n## Why a pair is refused\n\n");
    for (number, rule) in reasons.iter().enumerate() {
        text.push_str(&format!("{}. {} ({})\n", number + 1, words(rule.why), words(rule.instead)));
    }
    text.push('\n');
    text.push_str(BETWEEN);
    for rule in rules().filter(|rule| !rule.flags.is_empty()) {
        let flags: Vec<_> = rule.flags.iter().map(|flag| format!("`{flag}`")).collect();
        let star = if rule.is_idle { " *" } else { "" };
        let place = place(rule);
        text.push_str(&format!(
            "| {}{star} | {place} | {} | {} |\n",
            flags.join(", "),
            words(rule.why),
            words(rule.instead)
        ));
    }
    text.push_str(&counted(program));
    text
}

/// The rules that refuse a pair of the tables, in the order in which they are asked.
fn reasons() -> Vec<&'static Rule> {
    let refuses = |rule: &Rule, verb: Verbs, from: Ends, to: Ends| {
        refusing(verb, from, to).is_some_and(|other| std::ptr::eq(other, rule))
    };
    let is_used = |rule: &&'static Rule| {
        Verbs::NAMES.iter().any(|(verb, _)| {
            Ends::KINDS.iter().any(|(from, _)| Ends::KINDS.iter().any(|(to, _)| refuses(rule, *verb, *from, *to)))
        })
    };
    rules().filter(is_used).collect()
}

/// The rule that refuses a pair without any option.
fn refusing(verb: Verbs, from: Ends, to: Ends) -> Option<&'static Rule> {
    (Case { verb, from, to, given: &[] }).refusal().map(|(rule, _)| rule)
}

/// One verb's sources and destinations.
fn pairs(verb: Verbs, name: &str, reasons: &[&Rule]) -> String {
    let mut text = format!("\n## {name}\n\n| from \\ to |");
    Ends::KINDS.iter().for_each(|(_, word)| text.push_str(&format!(" {word} |")));
    text.push_str(&format!("\n|---|{}\n", "---|".repeat(Ends::KINDS.len())));
    for (from, word) in Ends::KINDS {
        text.push_str(&format!("| {word} |"));
        for (to, _) in Ends::KINDS {
            let refusal = refusing(verb, from, to);
            let number = refusal.and_then(|rule| reasons.iter().position(|other| std::ptr::eq(*other, rule)));
            text.push_str(&number.map_or(" yes |".to_owned(), |number| format!(" {} |", number + 1)));
        }
        text.push('\n');
    }
    text
}

fn place(rule: &Rule) -> String {
    let verbs: Vec<_> = Verbs::NAMES.iter().filter(|(verb, _)| rule.verbs.has(*verb)).map(|(_, name)| *name).collect();
    let when: Vec<_> = rule.when.iter().map(ToString::to_string).collect();
    let is_for_copies = verbs == ["cp", "sync", "follow"] || verbs.len() == Verbs::NAMES.len();
    let verbs = if is_for_copies { String::new() } else { verbs.join(", ") };
    [verbs, when.join(", ")].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ")
}

fn words(text: &str) -> String {
    let marks = [("{flag}", "it"), ("{from}", "the source"), ("{to}", "the destination"), ("{verb}", "the command")];
    let text = marks.iter().fold(text.replace("{host}", "HOST"), |text, (mark, word)| text.replace(mark, word));
    text.strip_prefix("it: ").map_or(text.clone(), str::to_owned)
}

fn counted(program: &Command) -> String {
    let (mut free, mut pairs, mut cells, mut refused) = (BTreeSet::new(), [0, 0], 0, 0);
    for (verb, name) in Verbs::NAMES {
        let command = program.find_subcommand(name).expect("a verb is a command");
        let flags: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
        let is_named = |flag: &str| rules().any(|rule| rule.flags.iter().any(|named| named.name == flag));
        free.extend(flags.iter().filter(|flag| !is_named(flag)).map(|flag| format!("`--{flag}`")));
        for (from, to) in Ends::KINDS.iter().flat_map(|(from, _)| Ends::KINDS.map(|(to, _)| (*from, to))) {
            let is_refused = |given: &[Given]| (Case { verb, from, to, given }).refusal().is_some();
            pairs[usize::from(is_refused(&[]))] += 1;
            for flag in &flags {
                cells += 1;
                refused += usize::from(is_refused(&[sample(flag)]));
            }
        }
    }
    let free: Vec<_> = free.into_iter().collect();
    format!(
        "\nOptions that work wherever their command does (what several hosts and several holders do not take is in \
         [hosts.md](hosts.md#limitations) and [replicas.md](replicas.md#what-it-does-not-do)): {}.\n\n\
         ## Counts\n\n{} pairs of a verb with a source and a destination work and {} are \
         refused. With one option each there are {cells} cells, of which {} work and {refused} are refused. \
         Tests carry out {} commands that work, which try options in {} combinations with a verb, a source and a \
         destination, and {} that are refused.\n",
        free.join(", "),
        pairs[0],
        pairs[1],
        cells - refused,
        WALKED[0],
        WALKED[1],
        WALKED[2]
    )
}

/// An option with a value that a rule is about, if there is one.
fn sample(name: &str) -> Given {
    let flags = rules().flat_map(|rule| rule.flags).filter(|flag| flag.name == name);
    let value = flags.map(|flag| flag.value).find_map(|value| match value {
        Value::Is(word) => Some(word.to_owned()),
        _ => None,
    });
    Given { name: name.to_owned(), value: value.unwrap_or_default(), is_typed: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_manual_has_the_table_of_the_program() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/matrix.md");
        let page = page(&crate::args::program());
        if std::env::var_os("MATRIX_REWRITE").is_some() {
            return std::fs::write(file, page).unwrap();
        }
        let kept = std::fs::read_to_string(file).unwrap_or_default();
        assert!(
            kept == page,
            "docs/matrix.md is not what `thalweg matrix` prints: write it anew with MATRIX_REWRITE=1"
        );
    }
}
