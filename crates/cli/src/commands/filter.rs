//! `thalweg filter test`: says what filter rules make of a path, and which of them decides.

use crate::exit::Result;
use crate::output::{self, shown};
use crate::selection::{Given, RuleArgs, filter};
use model::name::Escaped;
use model::{Exit, filter::Explained};
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Try filter rules without copying anything
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Test(Test),
}

/// Say whether a path would be taken, and which rule decides
///
/// Paths are relative to the source, as the rules see them; nothing is looked up. A path with a trailing slash is a
/// directory.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg filter test logs/a.log keep.log --include keep.log --exclude '*.log'")]
struct Test {
    /// Paths to try
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    #[command(flatten)]
    rules: RuleArgs,
    /// One JSON object per line
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

pub fn run(args: Args) -> Result<Exit> {
    let Command::Test(test) = args.command;
    let rules = test.rules.rules()?;
    let filter = filter(rules.iter().map(|given| given.rule.clone()).collect())?;
    for path in &test.paths {
        let bytes = path.as_bytes();
        let (plain, is_directory) = match bytes.strip_suffix(b"/") {
            Some(plain) => (plain, true),
            None => (bytes, false),
        };
        let plain = plain.strip_prefix(b"./").unwrap_or(plain);
        let explained = filter.explain(plain.strip_prefix(b"/").unwrap_or(plain), is_directory);
        let text = if test.json { json(path, &explained, &rules) } else { sentence(path, plain, &explained, &rules) };
        if !output::line(&text) {
            return Ok(Exit::BrokenPipe);
        }
    }
    Ok(Exit::Done)
}

fn sentence(path: &OsString, plain: &[u8], explained: &Explained, rules: &[Given]) -> String {
    let word = if explained.is_taken { "taken" } else { "left" };
    let why = match explained.rule {
        Some(number) => format!("rule {}, `{}` ({})", number + 1, rules[number].rule, rules[number].place),
        None if explained.is_taken => "no rule matches".to_owned(),
        None => "no rule matches, and all rules include".to_owned(),
    };
    let above = match explained.length < plain.len() {
        true => format!(", which matches {}/", Escaped(&plain[..explained.length])),
        false => String::new(),
    };
    format!("{word}  {}: {why}{above}", shown(path))
}

fn json(path: &OsString, explained: &Explained, rules: &[Given]) -> String {
    #[derive(Serialize)]
    struct Line {
        v: u32,
        path: String,
        is_taken: bool,
        rule: Option<String>,
        place: Option<String>,
    }
    let given = explained.rule.map(|number| &rules[number]);
    let line = Line {
        v: 1,
        path: shown(path),
        is_taken: explained.is_taken,
        rule: given.map(|given| given.rule.to_string()),
        place: given.map(|given| given.place.clone()),
    };
    serde_json::to_string(&line).expect("plain values have a JSON form")
}
