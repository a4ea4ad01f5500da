//! Every command line that the documentation or the help shows is one that the parser takes.
//!
//! Read are README.md, CONTRIBUTING.md and docs/*.md: what stands in fenced blocks whole, as a shell would see it, and of
//! what stands inside a sentence the flags. Not here: whether it does what is said there (the end-to-end tests).

use super::program;
use clap::Command;
use clap::error::ErrorKind;
use std::fs;
use std::path::{Path, PathBuf};

/// A line of a document: where it stands, and what.
type Line = (String, String);

fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    files.extend(fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()));
    files.retain(|file| file.extension().is_some_and(|kind| kind == "md"));
    // Its commands are those of packages.
    files.retain(|file| cfg!(feature = "hub") || !file.ends_with("hub.md"));
    files.sort();
    let read =
        |file: &PathBuf| (file.file_name().unwrap().to_string_lossy().into_owned(), fs::read_to_string(file).unwrap());
    files.iter().map(read).collect()
}

/// Lines of fenced blocks, those that end in a backslash joined with the next; and the text between the blocks.
fn split(name: &str, text: &str) -> (Vec<Line>, String) {
    let (mut lines, mut prose): (Vec<Line>, String) = Default::default();
    let (mut is_fenced, mut goes_on) = (false, false);
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            prose.push_str(line);
            prose.push(' ');
        } else {
            let is_to_go_on = line.ends_with('\\');
            let line = line.trim_end_matches('\\');
            match lines.last_mut().filter(|_| goes_on) {
                Some(last) => last.1.push_str(line),
                None => lines.push((format!("{name}:{}", at + 1), line.to_owned())),
            }
            goes_on = is_to_go_on;
        }
    }
    (lines, prose)
}

/// The commands of a line as a shell would see them, without comments, prompts and redirections.
fn commands(line: &str) -> Vec<Vec<String>> {
    let line = match line.split_once("$ ") {
        Some((prompt, rest)) if !prompt.contains(char::is_whitespace) => rest,
        _ => line,
    };
    let mut commands: Vec<Vec<String>> = vec![Vec::new()];
    let (mut word, mut quote): (Option<String>, Option<char>) = (None, None);
    let mut is_target = false;
    let mut characters = line.chars().chain([' ']);
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(closing), c) if c == closing => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '\\') => word.get_or_insert_default().extend(characters.next()),
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() || "|;&<>".contains(c) => {
                let ended = word.take();
                // What `2>` begins with is no argument.
                let ended = ended.filter(|word| c != '>' || !word.bytes().all(|b| b.is_ascii_digit()));
                if let Some(word) = ended.filter(|_| !std::mem::take(&mut is_target)) {
                    commands.last_mut().expect("never empty").push(word);
                }
                match c {
                    '|' | ';' | '&' => commands.push(Vec::new()),
                    '<' | '>' => is_target = true,
                    _ => {}
                }
            }
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    commands
}

/// A call of this program, from its name on.
fn call(words: &[String]) -> Option<&[String]> {
    let mut words = words;
    if let [sudo, rest @ ..] = words
        && sudo == "sudo"
    {
        words = match rest {
            [flag, _, rest @ ..] if flag == "-u" => rest,
            rest => rest,
        };
    }
    words.first().is_some_and(|word| word == "thalweg").then_some(words)
}

fn refusal(words: &[String]) -> Option<String> {
    match program().try_get_matches_from(words) {
        Ok(_) => None,
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => None,
        Err(e) => Some(e.to_string().lines().take(2).collect::<Vec<_>>().join(" ")),
    }
}

/// Calls in `lines` that the parser refuses, and how many it was given.
fn refused(lines: &[Line]) -> (Vec<String>, usize) {
    let (mut refused, mut calls) = (Vec::new(), 0);
    for (place, line) in lines {
        for words in commands(line) {
            let Some(words) = call(&words) else { continue };
            calls += 1;
            refused.extend(refusal(words).map(|why| format!("{place}: {}: {why}", words.join(" "))));
        }
    }
    (refused, calls)
}

/// Flags in a piece of a command line that its command does not have.
fn unknown_flags(span: &str) -> Vec<String> {
    let program = program();
    let mut known: Vec<&Command> = vec![&program];
    let mut unknown = Vec::new();
    for word in span.split_whitespace().skip(1) {
        let Some(flag) = word.strip_prefix("--") else {
            let below = known.last().and_then(|command| command.find_subcommand(word));
            known.extend(below);
            continue;
        };
        let flag = flag.split(['=', '[']).next().unwrap_or_default();
        let has = |command: &&Command| {
            command
                .get_arguments()
                .any(|arg| arg.get_long() == Some(flag) || arg.get_all_aliases().unwrap_or_default().contains(&flag))
        };
        if !matches!(flag, "" | "help" | "version") && !known.iter().any(has) {
            unknown.push(format!("--{flag} in `{span}`"));
        }
    }
    unknown
}

#[test]
fn every_command_line_in_the_documentation_is_taken() {
    let lines: Vec<Line> = documents().iter().flat_map(|(name, text)| split(name, text).0).collect();
    let (refused, calls) = refused(&lines);
    assert!(calls > 80, "only {calls} were found");
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn every_flag_in_a_sentence_of_the_documentation_exists() {
    let mut unknown = Vec::new();
    for (name, text) in documents() {
        let prose = split(&name, &text).1;
        let spans = prose.split('`').skip(1).step_by(2).filter(|span| span.starts_with("thalweg "));
        unknown.extend(spans.flat_map(unknown_flags).map(|what| format!("{name}: {what}")));
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn every_example_in_the_help_is_taken() {
    fn collect(command: &Command, lines: &mut Vec<Line>) {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        // What it is for stands behind two spaces.
        let examples = after.lines().map(|line| line.trim().split("  ").next().unwrap_or_default().to_owned());
        lines.extend(examples.map(|line| (command.get_name().to_owned(), line)));
        command.get_subcommands().for_each(|sub| collect(sub, lines));
    }
    let mut lines = Vec::new();
    collect(&program(), &mut lines);
    let (refused, calls) = refused(&lines);
    assert!(calls > 30, "only {calls} were found");
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn lines_are_split_as_a_shell_does() {
    let split = |line: &str| commands(line).into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>();
    assert_eq!(split("$ thalweg cp a 'b c' 2>log >>out # why"), [["thalweg", "cp", "a", "b c"]]);
    assert_eq!(
        split("tar c . | thalweg cp - \"x y\" && echo"),
        [&["tar", "c", "."][..], &["thalweg", "cp", "-", "x y"], &["echo"]]
    );
    let words = ["sudo", "-u", "thalweg", "thalweg", "top"].map(str::to_owned);
    assert_eq!(call(&words).unwrap(), ["thalweg", "top"]);
    assert!(refusal(&["thalweg", "cp", "--no-such-flag", "a", "b"].map(str::to_owned)).is_some());
    assert_eq!(unknown_flags("thalweg cp --nosuch --retries 3").len(), 1);
}
