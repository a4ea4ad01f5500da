//! What can be asked: the commands. How their values read stands in `values`; each command's flags stand in its own file.
//!
//! Every flag but the destructive ones has a variable `THALWEG_FLAG_NAME`; the flag wins over it, and both over the
//! configuration (`settings`), also where they exclude each other (`precedence`).

mod asked;
pub mod destructive;
pub mod elsewhere;
pub mod globals;
pub mod precedence;
pub mod ssh;
pub mod values;
pub mod works;
mod mistaken;
#[cfg(all(test, feature = "bench"))]
mod documented;

#[cfg(feature = "lab")]
use crate::commands::lab;
#[cfg(feature = "hub")]
use crate::commands::{batch, console, hub, queue, rule, run, schedule, submit, token};
#[cfg(feature = "bench")]
use crate::commands::{bench, demo, generate};
use crate::commands::{buffer, log, sync, ticket, top, tree, uploads};
use crate::commands::{
    calibrate, cat, check, completions, config, contract, cp, doctor, du, endpoint, fetch, filter, follow, host, job,
    ls, man, mkdir, mv, plan, publish, rm, serve, stage, stat, sum,
};
use crate::exit::Result;
use crate::output;
use crate::settings::{Choice, Settings};
use asked::Asked;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Id, Parser, Subcommand};
use globals::Globals;
use std::ffi::OsString;

/// Moves files between storages, verified and encrypted, and says what limited the rate
#[derive(Parser, Debug)]
#[command(name = "thalweg", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "On the host that keeps the data:\n\
\x20   thalweg serve --listen '[::]:7740' --root /data --ticket-file ticket\n\
On the other host, with a copy of the file `ticket`:\n\
\x20   thalweg endpoint add lab --ticket-file ticket\n\
\x20   thalweg cp results/ lab:results/\n\
\x20   thalweg cp lab:results/ copy/\n\
Or without any set-up, where ssh works:\n\
\x20   thalweg cp results/ user@host:results/")]
pub struct Cli {
    #[command(flatten)]
    pub globals: Globals,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    Serve(Asked<serve::Args>),
    Endpoint(Asked<endpoint::Args>),
    Ticket(Asked<ticket::Args>),
    Contract(Asked<contract::Args>),
    Host(Asked<host::Args>),
    Cp(Asked<cp::Args>),
    Job(Asked<job::Args>),
    #[cfg(feature = "hub")]
    Hub(Asked<hub::Args>),
    #[cfg(feature = "hub")]
    Submit(Asked<submit::Args>),
    #[cfg(feature = "hub")]
    Run(Asked<run::Args>),
    #[cfg(feature = "hub")]
    Batch(Asked<batch::Args>),
    #[cfg(feature = "hub")]
    Queue(Asked<queue::Args>),
    #[cfg(feature = "hub")]
    Schedule(Asked<schedule::Args>),
    #[cfg(feature = "hub")]
    Token(Asked<token::Args>),
    #[cfg(feature = "hub")]
    Rule(Asked<rule::Args>),
    #[cfg(feature = "hub")]
    Console(Asked<console::Args>),
    Sync(Asked<sync::Args>),
    Stage(Asked<stage::Args>),
    Follow(Asked<follow::Args>),
    Publish(Asked<publish::Args>),
    Fetch(Asked<fetch::Args>),
    Filter(Asked<filter::Args>),
    Mv(Asked<mv::Args>),
    Ls(Asked<ls::Args>),
    Tree(Asked<tree::Args>),
    Du(Asked<du::Args>),
    Stat(Asked<stat::Args>),
    Cat(Asked<cat::Args>),
    Mkdir(Asked<mkdir::Args>),
    Rm(Asked<rm::Args>),
    Check(Asked<check::Args>),
    Sum(Asked<sum::Args>),
    Uploads(Asked<uploads::Args>),
    Buffer(Asked<buffer::Args>),
    Top(Asked<top::Args>),
    Log(Asked<log::Args>),
    Doctor(Asked<doctor::Args>),
    Plan(Asked<plan::Args>),
    Calibrate(Asked<calibrate::Args>),
    Config(Asked<config::Args>),
    Completions(Asked<completions::Args>),
    Man(Asked<man::Args>),
    /// Print docs/matrix.md: what works with what
    #[command(hide = true)]
    Matrix,
    #[cfg(feature = "bench")]
    Gen(Asked<generate::Args>),
    #[cfg(feature = "bench")]
    Demo(Asked<demo::Args>),
    #[cfg(feature = "bench")]
    Bench(Asked<bench::Args>),
    #[cfg(feature = "lab")]
    Lab(Asked<lab::Args>),
}

/// Reads the command line with the configuration behind it, or answers it (help, version, what is wrong with it) and
/// ends the process.
pub fn parse() -> Result<Cli> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let mut asked = asked::alone(&words, program);
    let first = First::read(&asked, &words);
    // As it is without the user's settings.
    let plain = first.as_ref().and_then(|first| asked.find_subcommand(first.command.first()?)).cloned();
    let mut held = Vec::new();
    if let Some(first) = &first {
        (asked, held) = precedence::without_beaten_variables(asked, &first.words(), &first.typed);
    }
    if let Some(first) = first.as_ref().filter(|first| first.wants_settings()) {
        // Doctor knows names of its own.
        let is_set_of_doctor = first.choice.profile.as_deref().is_some_and(|name| audit::profile::find(name).is_some());
        let is_of_calibrate = first.choice.profile.as_deref().is_some_and(calibrate::is_profile);
        let takes_profile =
            first.command == ["doctor"] && is_set_of_doctor || first.command == ["calibrate"] && is_of_calibrate;
        let settings = Settings::read(&first.choice, Cli::command, takes_profile)?;
        asked = settings.apply(asked, &first.words(), &held)?;
        crate::stores::configure(settings.stores, settings.roots);
        crate::coordinator::configure(settings.cluster);
    }
    let matches = asked.try_get_matches_from(words).unwrap_or_else(|e| refuse(&e, first.as_ref()));
    let (command, given) = innermost(&matches);
    destructive::check_variables(&command, given)?;
    if let Some(plain) = &plain {
        works::check(&command, given, plain)?;
    }
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|e| refuse(&e, first.as_ref()));
    elsewhere::keep(matches);
    Ok(cli)
}

/// The program's definition as its users see it.
pub fn program() -> clap::Command {
    as_shown(Cli::command())
}

/// Which command it is and which configuration, before anything is checked.
struct First {
    command: Vec<String>,
    /// What its own command line gives.
    typed: Vec<Id>,
    choice: Choice,
}

impl First {
    /// Nothing where the command line only asks for help.
    fn read(program: &clap::Command, words: &[OsString]) -> Option<First> {
        let matches = program.clone().ignore_errors(true).try_get_matches_from(words).ok()?;
        let (command, given) = innermost(&matches);
        let command = command.into_iter().map(str::to_owned).collect();
        let is_typed = |id: &&Id| given.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        let typed = given.ids().filter(is_typed).cloned().collect();
        let choice = Choice {
            config: matches.try_get_one("config").ok().flatten().cloned(),
            profile: matches.try_get_one("profile").ok().flatten().cloned(),
        };
        Some(First { command, typed, choice })
    }

    fn words(&self) -> Vec<&str> {
        self.command.iter().map(String::as_str).collect()
    }

    /// What explains the program, or the configuration itself, must work whatever that says.
    fn wants_settings(&self) -> bool {
        let first = self.command.first().map_or("", String::as_str);
        !matches!(first, "" | "config" | "completions" | "man" | "help")
    }
}

/// The words of the command that was given, and its own flags.
fn innermost(matches: &ArgMatches) -> (Vec<&str>, &ArgMatches) {
    let (mut words, mut at) = (Vec::new(), matches);
    while let Some((name, below)) = at.subcommand() {
        words.push(name);
        at = below;
    }
    (words, at)
}

/// Says what is wrong with the command line, with a hint at the end as for every other error.
fn refuse(error: &clap::Error, first: Option<&First>) -> ! {
    if !error.use_stderr() || error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        error.exit();
    }
    let command = first.map(|first| &first.command[..]).unwrap_or_default();
    let (said, hint) = mistaken::explained(error, &program(), command);
    output::note(&format!("{said}\nhint: {hint}"));
    std::process::exit(model::Exit::Usage as i32);
}

/// The help names the variables, not what they are set to, and no option that its command never takes.
fn as_shown(command: clap::Command) -> clap::Command {
    let idle = works::never_taken(command.get_name());
    let shown = |arg: clap::Arg| {
        let is_hidden = arg.is_hide_set() || arg.get_long().is_some_and(|flag| idle.contains(&flag));
        arg.hide_env_values(true).hide(is_hidden)
    };
    command.mut_args(shown).mut_subcommands(as_shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ArgAction;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn every_flag_that_destroys_nothing_has_a_variable_and_a_help_text() {
        fn check(command: &clap::Command, words: &[&str]) {
            let path = words.join(" ");
            for arg in command.get_arguments().filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version")) {
                let name = format!("{path} {}", arg.get_id());
                assert!(arg.get_help().is_some() || arg.is_hide_set(), "{name} has no help");
                if let Some(long) = arg.get_long().filter(|long| destructive::place_of(words, long).is_none()) {
                    let variable = arg.get_env().unwrap_or_else(|| panic!("{name} has no variable"));
                    assert_eq!(variable.to_str(), Some(&destructive::variable_of(long)[..]), "{name}");
                }
            }
            for sub in command.get_subcommands() {
                check(sub, &[words, &[sub.get_name()]].concat());
            }
        }
        Cli::command().debug_assert();
        check(&Cli::command(), &[]);
    }

    /// What measures takes values of its own.
    const MEASURING: [&str; 4] = ["bench", "demo", "gen", "lab"];

    /// The same thing in more forms or fewer; and the rate that `plan buffer` counts with, which is no name of a directory.
    const IN_SEVERAL_FORMS: [&str; 4] = ["THALWEG_BUFFER", "THALWEG_DIGEST", "THALWEG_OUT", "THALWEG_TICKET_FILE"];

    #[test]
    fn a_variable_is_the_same_thing_to_every_flag_that_has_it() {
        fn collect(command: &clap::Command, forms: &mut BTreeMap<OsString, BTreeSet<String>>) {
            for arg in command.get_arguments() {
                let Some(variable) = arg.get_env() else { continue };
                let form = match arg.get_action() {
                    ArgAction::SetTrue | ArgAction::Count => "a switch".to_owned(),
                    _ => arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect(),
                };
                forms.entry(variable.to_owned()).or_default().insert(form);
            }
            command.get_subcommands().for_each(|sub| collect(sub, forms));
        }
        let mut forms = BTreeMap::new();
        let program = Cli::command();
        let others = program.get_subcommands().filter(|command| !MEASURING.contains(&command.get_name()));
        others.for_each(|command| collect(command, &mut forms));
        assert!(forms.len() > 100, "only {} variables were found", forms.len());
        forms.retain(|variable, forms| forms.len() > 1 && !IN_SEVERAL_FORMS.iter().any(|known| variable == known));
        assert!(forms.is_empty(), "{forms:?}: give one of the flags another name, or no variable (`destructive`)");
    }

    #[test]
    fn every_command_shows_an_example() {
        fn check(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            if !command.has_subcommands() && !command.is_hide_set() {
                let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(after.contains("Example"), "{path} shows no example");
            }
            command.get_subcommands().for_each(|sub| check(sub, &path));
        }
        check(&Cli::command(), "");
    }
}
