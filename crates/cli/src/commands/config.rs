//! `thalweg config`: which settings hold, and where they come from.

use crate::args::globals::Globals;
use crate::exit::{Result, usage};
use crate::output::{self, shown};
use crate::settings::{self, Choice, Settings, known};
use clap::Command;
use model::Exit;
use serde::Serialize;
use std::ffi::OsString;

/// Show the settings in effect, and the files they come from
///
/// A setting is the default of a flag, written as `flag = value` in $XDG_CONFIG_HOME/thalweg/config.toml or
/// /etc/thalweg/config.toml. The first of these that sets it takes effect: the flag, the variable THALWEG_FLAG, the
/// profile chosen with --profile, the user's file, the system's file, the built-in default.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    Show(Show),
    Path(Paths),
}

/// Print the settings that differ from the defaults, or all of one command
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg config show --origin                     what is set, and where\n\
\x20   thalweg config show cp                           every flag of cp with the value it has\n\
\x20   thalweg --profile far config show cp             the same under a profile")]
struct Show {
    /// Show every flag of this command
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
    /// Say where each value comes from
    #[arg(long, env = "THALWEG_ORIGIN")]
    origin: bool,
    /// One JSON object for each value
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

/// Print the files that are looked for, highest precedence first
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   $EDITOR \"$(thalweg config path | head -n 1 | cut -f 2)\"")]
struct Paths {
    /// One JSON object for each file
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

/// A value that a flag has.
#[derive(Serialize)]
struct Value {
    v: u32,
    command: String,
    flag: String,
    value: Option<String>,
    origin: String,
}

/// A file that is looked for.
#[derive(Serialize)]
struct File {
    v: u32,
    layer: String,
    file: String,
    exists: bool,
}

pub fn run(args: Args, globals: &Globals, program: &Command) -> Result<Exit> {
    let choice = Choice { config: globals.config.clone(), profile: globals.profile.clone() };
    match args.action {
        Action::Path(paths) => path(&paths, &choice),
        Action::Show(asked) => show(&asked, &choice, program),
    }
}

fn path(args: &Paths, choice: &Choice) -> Result<Exit> {
    for place in settings::places(choice) {
        let (layer, exists) = (place.layer.word(), place.file.exists());
        let file = shown(&place.file);
        let is_read_on = match args.json {
            true => output::line(&json(&File { v: 1, layer, file, exists })),
            false => output::line(&format!("{layer}\t{file}\t{}", if exists { "read" } else { "not there" })),
        };
        if !is_read_on {
            break;
        }
    }
    Ok(Exit::Done)
}

fn show(args: &Show, choice: &Choice, program: &Command) -> Result<Exit> {
    // A name that only doctor knows sets nothing, and is no mistake here.
    let settings = Settings::read(choice, || program.clone(), false)?;
    let asked: Vec<&str> = args.command.iter().map(String::as_str).collect();
    let Some(below) = known::command_at(program, &asked) else {
        return Err(usage(format!("there is no command {}", shown(asked.join(" "))), "`thalweg --help` lists them"));
    };
    let mut leaves = known::leaves(below);
    if leaves.is_empty() {
        leaves.push(Vec::new());
    }
    let mut count = 0;
    for leaf in leaves {
        let words: Vec<&str> = asked.iter().copied().chain(leaf.iter().map(String::as_str)).collect();
        let command = known::command_at(program, &words).expect("leaves are commands");
        for value in values(command, &words, &settings, !asked.is_empty())? {
            count += 1;
            if !print(args, &value) {
                return Ok(Exit::BrokenPipe);
            }
        }
    }
    if count == 0 && !args.json {
        output::note("nothing is set; `thalweg config path` lists the files, docs/configuration.md describes them");
    }
    Ok(Exit::Done)
}

/// The values of one command's flags: all, or those that someone has set.
fn values(command: &Command, words: &[&str], settings: &Settings, wants_all: bool) -> Result<Vec<Value>> {
    let mut values = Vec::new();
    for arg in command.get_arguments() {
        let known = known::flags(command).into_iter().find(|(id, _)| id == arg.get_id());
        let Some((_, flag)) = known else { continue };
        let variable = arg.get_env().and_then(|name| Some((name.to_owned(), std::env::var_os(name)?)));
        let setting = settings.find(words, &flag);
        if let Some(setting) = setting {
            known::check(command, setting)?;
        }
        let (value, origin) = match (variable, setting) {
            (Some((name, value)), _) => (Some(shown(value)), format!("variable {}", shown(name))),
            (None, Some(setting)) => (Some(setting.values.join(",")), setting.origin.text()),
            (None, None) if !wants_all => continue,
            (None, None) => (joined(arg.get_default_values()), "default".to_owned()),
        };
        values.push(Value { v: 1, command: words.join(" "), flag, value, origin });
    }
    Ok(values)
}

fn joined(values: &[clap::builder::OsStr]) -> Option<String> {
    let texts: Vec<String> = values.iter().map(|value| shown(OsString::from(value))).collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

fn print(args: &Show, value: &Value) -> bool {
    if args.json {
        return output::line(&json(value));
    }
    let Value { command, flag, origin, .. } = value;
    let text = value.value.as_deref().map_or("(not set)".to_owned(), |text| format!("{text:?}"));
    let origin = if args.origin { format!("   # {origin}") } else { String::new() };
    output::line(&format!("{}.{flag} = {text}{origin}", command.replace(' ', ".")))
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain values have a JSON form")
}
