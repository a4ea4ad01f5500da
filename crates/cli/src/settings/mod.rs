//! Settings that the user keeps in files, as defaults of the flags of the same names.
//!
//! `file` reads one file, `known` is what may stand in it: the flags of the commands, read off the command line's own
//! definition, so that a flag needs no second entry here. A setting becomes the flag's default before the command line is
//! read: flag and variable take precedence over it. One that they exclude is left out (`args::precedence`).
//! Invariants: a file that somebody else could have changed is not read (`daemon::trust`); a destructive flag is set in its
//! command's own table or not at all (`args::destructive`); of two settings the one from the nearer place wins (profile, user's file, system's file), and at one place
//! the one for the narrower command, also where they exclude each other; a file with an unknown key or a wrong value changes nothing and ends the program.

pub mod file;
pub mod known;
pub mod stores;
pub mod cluster;
mod setting;

pub use setting::{Layer, Place, Setting};

use crate::args::precedence::{is_dry_run, is_excluded};
use crate::exit::{Error, Result, of_file, usage};
use crate::output::shown;
use clap::{Command, Id};
use cluster::ClusterTable;
use daemon::trust::open_file;
use file::Parsed;
use model::{Location, Name};
use setting::may_set;
use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use stores::StoreTable;

/// The file of the whole system; a package may name another one when it is built into something larger.
const SYSTEM_FILE: &str = "/etc/thalweg/config.toml";
const SYSTEM_VARIABLE: &str = "THALWEG_SYSTEM_CONFIG";

/// A longer file is a mistake, such as a device or a log.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What was asked for on the command line or by variable, before anything else is read.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Choice {
    pub config: Option<PathBuf>,
    pub profile: Option<String>,
}

/// All settings that hold, the strongest first.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Settings {
    all: Vec<Setting>,
    /// Object stores by name.
    pub stores: BTreeMap<String, StoreTable>,
    /// What an endpoint serves from them.
    pub roots: BTreeMap<Name, Location>,
    /// What the hosts of an endpoint keep their records in.
    pub cluster: Option<ClusterTable>,
}

/// The files that are looked for, the strongest first: the one that was named, or the user's and the system's.
pub fn places(choice: &Choice) -> Vec<Place> {
    if let Some(file) = &choice.config {
        return vec![Place { layer: Layer::Named, file: file.clone() }];
    }
    // Without a home there is no file of the user's; commands that need one say so themselves.
    let user = daemon::Paths::from_env().ok().map(|paths| paths.config.join("config.toml"));
    let system = std::env::var_os(SYSTEM_VARIABLE).filter(|name| !name.is_empty());
    let system = PathBuf::from(system.unwrap_or_else(|| OsString::from(SYSTEM_FILE)));
    let user = user.map(|file| Place { layer: Layer::User, file });
    user.into_iter().chain([Place { layer: Layer::System, file: system }]).collect()
}

impl Settings {
    /// Reads what holds for `choice`. `takes_profile` says that the command itself knows the profile's name. `program`
    /// defines all commands, and is asked only where there is a file.
    pub fn read(choice: &Choice, program: impl FnOnce() -> Command, takes_profile: bool) -> Result<Settings> {
        let mut parsed = Vec::new();
        let program = LazyCell::new(program);
        for place in places(choice) {
            if !may_be_there(&place) {
                continue;
            }
            let opened = open_file("the configuration", &place.file)?;
            let text = opened.and_then(read_text).map_err(|e| of_file("read configuration", &place.file, &e))?;
            parsed.push(file::parse(&text, &place, &program)?);
        }
        Settings::combine(parsed, choice.profile.as_deref(), takes_profile)
    }

    /// Puts the files together, the strongest given first.
    fn combine(files: Vec<Parsed>, profile: Option<&str>, takes_profile: bool) -> Result<Settings> {
        let mut all = Vec::new();
        if let Some(name) = profile {
            let found: Vec<_> = files.iter().filter_map(|file| file.profiles.get(name)).collect();
            if found.is_empty() && !takes_profile {
                return Err(unknown_profile(name, &files));
            }
            found.into_iter().for_each(|settings| all.extend(narrow_first(settings)));
        }
        files.iter().for_each(|file| all.extend(narrow_first(&file.settings)));
        let (mut stores, mut roots, mut cluster) = (BTreeMap::new(), BTreeMap::new(), None);
        for file in files.into_iter().rev() {
            stores.extend(file.stores);
            roots.extend(file.roots);
            cluster = file.cluster.or(cluster);
        }
        Ok(Settings { all, stores, roots, cluster })
    }

    /// The setting that holds for a flag of a command, given by its words.
    pub fn find(&self, command: &[&str], flag: &str) -> Option<&Setting> {
        let covers = |setting: &Setting| {
            setting.flag == flag
                && may_set(setting, command)
                && setting.command.len() <= command.len()
                && setting.command.iter().zip(command).all(|(mine, its)| mine == its)
        };
        self.all.iter().find(|setting| covers(setting))
    }

    /// Makes the settings for one command the defaults of its flags, but for those that a stronger setting excludes, or something of
    /// `held`: what the command line and variables give.
    pub fn apply(&self, program: Command, command: &[&str], held: &[Id]) -> Result<Command> {
        let Some(leaf) = known::command_at(&program, command) else { return Ok(program) };
        let mut chosen: Vec<(Id, &Setting)> = Vec::new();
        for setting in &self.all {
            let is_strongest = self.find(command, &setting.flag).is_some_and(|found| std::ptr::eq(found, setting));
            let arg = leaf.get_arguments().find(|arg| arg.get_long() == Some(setting.flag.as_str()));
            let Some(arg) = arg.filter(|_| is_strongest) else { continue };
            known::check(leaf, setting)?;
            let excludes = |id: &Id| !is_dry_run(arg) && is_excluded(leaf, arg, std::slice::from_ref(id));
            // What a variable says holds; where it switches the setting off, that excludes nothing.
            let is_said_by_variable = arg.get_env().is_some_and(|name| std::env::var_os(name).is_some());
            if is_said_by_variable || held.iter().any(excludes) {
                continue;
            }
            match chosen.iter().find(|(id, other)| !other.is_off() && !setting.is_off() && excludes(id)) {
                Some((_, other)) if other.is_beside(setting) => return Err(setting.contradicts(other)),
                Some(_) => {}
                None => chosen.push((arg.get_id().clone(), setting)),
            }
        }
        Ok(known::changed(program, command, |leaf| known::with_defaults(leaf, &chosen)))
    }
}

/// `[cp]` before what stands above all tables; the order of the file otherwise.
fn narrow_first(settings: &[Setting]) -> Vec<Setting> {
    let mut sorted = settings.to_vec();
    sorted.sort_by_key(|setting| std::cmp::Reverse(setting.command.len()));
    sorted
}

fn unknown_profile(name: &str, files: &[Parsed]) -> Error {
    let names: Vec<&str> = files.iter().flat_map(|file| file.profiles.keys().map(String::as_str)).collect();
    let sets = audit::profile::names();
    let hint = match known::nearest(name, names.iter().chain(&sets).copied()) {
        Some(_) if sets.contains(&name) => {
            "it is a set of host settings that `thalweg doctor --profile` checks against".to_owned()
        }
        Some(near) => format!("did you mean {near}?"),
        None if names.is_empty() => "a profile is a table [profiles.NAME] in the configuration file".to_owned(),
        None => format!("there are: {}", names.join(", ")),
    };
    usage(format!("no profile {} is configured", shown(name)), hint)
}

/// A file that nobody named need not be there. Neither need its directory: programs run with another user's home, or with
/// one that is no directory, and who cannot look there has no settings there.
fn may_be_there(place: &Place) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    let found = std::fs::metadata(&place.file).map_err(|e| e.kind());
    place.layer == Layer::Named || !matches!(found, Err(NotFound | NotADirectory | PermissionDenied))
}

fn read_text(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("it is longer than 1 MiB"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::path::Path;

    fn place(layer: Layer) -> Place {
        Place { layer, file: PathBuf::from("/x/config.toml") }
    }

    fn settings(files: &[(Layer, &str)], profile: Option<&str>) -> Result<Settings> {
        let program = crate::args::Cli::command();
        let parsed = files.iter().map(|(layer, text)| file::parse(text, &place(layer.clone()), &program));
        Settings::combine(parsed.collect::<Result<_>>()?, profile, false)
    }

    #[test]
    fn the_nearer_place_wins_and_at_one_place_the_narrower_command() {
        let user = "retries = 1\nmemory = '8MiB'\n[cp]\nretries = 2\n[profiles.fast]\nmemory = '64MiB'\n";
        let system = "retries = 3\nfsync = 'never'\n[cp]\nfsync = 'file'\nmemory = '16MiB'\n";
        let files = [(Layer::User, user), (Layer::System, system)];
        let value = |settings: &Settings, flag| settings.find(&["cp"], flag).map(|s| s.values.join(","));
        let plain = settings(&files, None).unwrap();
        assert_eq!(value(&plain, "retries").as_deref(), Some("2"));
        assert_eq!(value(&plain, "memory").as_deref(), Some("8MiB"));
        assert_eq!(value(&plain, "fsync").as_deref(), Some("file"));
        assert_eq!(value(&plain, "streams"), None);
        let fast = settings(&files, Some("fast")).unwrap();
        assert_eq!(value(&fast, "memory").as_deref(), Some("64MiB"));
        assert_eq!(fast.find(&["cp"], "memory").unwrap().origin.layer, Layer::Profile("fast".into()));
    }

    #[test]
    fn a_setting_is_a_default_and_what_is_typed_wins() {
        let found = settings(&[(Layer::User, "[cp]\nretries = 7\nquiet = true\nverbose = 2\n")], None).unwrap();
        let program = || found.apply(crate::args::Cli::command(), &["cp"], &[]).unwrap();
        let read = |words: &[&str]| {
            let matches = program().try_get_matches_from(words).unwrap();
            let cp = matches.subcommand().unwrap().1;
            (*cp.get_one::<u32>("retries").unwrap(), cp.get_flag("quiet"), cp.get_count("verbose"))
        };
        assert_eq!(read(&["thalweg", "cp", "a", "b"]), (7, true, 2));
        assert_eq!(read(&["thalweg", "cp", "--retries", "1", "a", "b"]), (1, true, 2));
    }

    #[test]
    fn a_setting_gives_way_to_what_excludes_it() {
        let text = "[cp]\ncompare = 'mtime'\nkeep-going = true\nstreams = 8\nfiles-from = 'list'\nreserve = 'program'\n\
                    [profiles.p.cp]\nchecksum = true\ndetach = false\n";
        let is_set = |held: &[&'static str], profile, id: &str| {
            let found = settings(&[(Layer::User, text)], profile).unwrap();
            let held: Vec<Id> = held.iter().map(|id| Id::from(*id)).collect();
            let program = found.apply(crate::args::Cli::command(), &["cp"], &held).unwrap();
            let mut arguments = program.find_subcommand("cp").unwrap().get_arguments();
            let arg = arguments.find(|arg| arg.get_id().as_str() == id).unwrap();
            !arg.get_default_values().is_empty()
        };
        for (held, id) in [
            ("checksum", "compare"),
            ("size_only", "compare"),
            ("fail_fast", "keep_going"),
            ("plan", "streams"),
            ("files_from0", "files_from"),
        ] {
            assert!(is_set(&[], None, id) && !is_set(&[held], None, id), "{held} {id}");
        }
        assert!(is_set(&[], Some("p"), "checksum") && !is_set(&[], Some("p"), "compare"), "the profile is stronger");
        assert!(is_set(&[], Some("p"), "reserve"), "what is switched off excludes nothing");
        let both = settings(&[(Layer::User, "[cp]\ncompare = 'mtime'\nchecksum = true\n")], None).unwrap();
        let error = both.apply(crate::args::Cli::command(), &["cp"], &[]).unwrap_err();
        assert_eq!(error.message, "/x/config.toml:3: checksum and compare exclude each other");
    }

    #[test]
    fn a_flag_that_must_be_given_may_come_from_a_file() {
        let found = settings(&[(Layer::System, "[serve]\nroot = '/data'\nadvertise = ['a', 'b:1']\n")], None).unwrap();
        let matches =
            found.apply(crate::args::Cli::command(), &["serve"], &[]).unwrap().try_get_matches_from(["t", "serve"]);
        let matches = matches.unwrap();
        let serve = matches.subcommand().unwrap().1;
        assert_eq!(serve.get_one::<PathBuf>("root").unwrap(), Path::new("/data"));
        assert_eq!(serve.get_many::<String>("advertise").unwrap().collect::<Vec<_>>(), ["a", "b:1"]);
    }

    #[test]
    fn the_settings_of_the_packaged_service_name_its_state_to_every_command_that_asks_for_it() {
        let text = include_str!("../../../../packaging/endpoint.toml");
        let found = settings(&[(Layer::Named, text)], None).unwrap();
        let commands: [&[&str]; 6] =
            [&["serve"], &["ticket", "new"], &["log"], &["buffer", "ls"], &["contract", "ls"], &["host", "init"]];
        for command in commands {
            let state = found.find(command, "state-dir").unwrap();
            assert_eq!(state.values, ["/var/lib/thalweg/state"], "{command:?}");
        }
    }

    #[test]
    fn a_setting_for_all_commands_arms_none_that_destroys() {
        let everywhere = "recursive = true\nall = true\n[profiles.p]\nrecursive = true\n";
        for profile in [None, Some("p")] {
            let found = settings(&[(Layer::User, everywhere)], profile).unwrap();
            assert!(found.find(&["ls"], "recursive").is_some() && found.find(&["cp"], "recursive").is_some());
            assert!(found.find(&["rm"], "recursive").is_none() && found.find(&["lab", "down"], "all").is_none());
        }
        for (text, hint) in [
            ("[rm]\nrecursive = true", "only on the command line"),
            ("force = true", "only on the command line"),
            ("delete = true", "only on the command line"),
            ("[sync]\ndelete = true", "only on the command line"),
            ("[profiles.p.sync]\ndelete = true", "only on the command line"),
            ("super = true", "[serve]"),
            ("[profiles.p.serve]\nsuper = true", "[serve]"),
            ("[endpoint]\nreplace = true", "[endpoint.add]"),
        ] {
            let refused = settings(&[(Layer::User, text)], None).unwrap_err();
            assert!(
                refused.message.contains("config.toml:") && refused.hint.as_deref().unwrap().contains(hint),
                "{refused:?}"
            );
        }
        let own = settings(&[(Layer::User, "[serve]\nsuper = true\n[endpoint.add]\nreplace = true\n")], None).unwrap();
        assert!(own.find(&["serve"], "super").is_some() && own.find(&["endpoint", "add"], "replace").is_some());
    }

    #[test]
    fn a_wrong_value_names_its_line() {
        let found = settings(&[(Layer::User, "# first\n[cp]\nstreams = 'many'\n")], None).unwrap();
        let error = found.apply(crate::args::Cli::command(), &["cp"], &[]).unwrap_err();
        assert!(error.message.starts_with("/x/config.toml:3: streams: invalid value 'many'"), "{}", error.message);
        assert!(found.apply(crate::args::Cli::command(), &["serve"], &[]).is_ok(), "it cannot be set for serve");
    }

    #[test]
    fn a_file_that_cannot_be_looked_for_is_not_there_unless_it_was_named() {
        let at = |layer, file: &str| may_be_there(&Place { layer, file: file.into() });
        assert!(!at(Layer::User, "/dev/null/thalweg/config.toml") && !at(Layer::System, "/nonexistent/config.toml"));
        assert!(at(Layer::Named, "/nonexistent/config.toml") && at(Layer::User, "/dev/null"));
    }

    #[test]
    fn an_unknown_profile_is_an_error_that_names_the_nearest() {
        let file = [(Layer::User, "[profiles.bulk]\nretries = 1\n")];
        let error = settings(&file, Some("blk")).unwrap_err();
        assert_eq!(error.hint.as_deref(), Some("did you mean bulk?"));
        let error = settings(&file, Some("zettar")).unwrap_err();
        assert!(error.hint.unwrap().contains("thalweg doctor"));
    }
}
