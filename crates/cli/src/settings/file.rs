//! One configuration file as settings: TOML, checked against the commands and flags there are.
//!
//! What stands above all tables holds for every command that has the flag; `[cp]` for one command, `[endpoint.add]` for
//! one below another; `[profiles.NAME]` and `[profiles.NAME.cp]` for runs with `--profile NAME`; `[stores.NAME]` describes an object store;
//! `[roots]` names what an endpoint serves from them; `[cluster]` says what the hosts of an endpoint keep their records in.
//! Invariant: every key is known, or the whole file is refused with its line and the nearest known name.

use super::cluster::{self, ClusterTable};
use super::known;
use super::setting::{Layer, Origin, Place, Setting, may_set};
use super::stores::{self, StoreTable};
use crate::args::destructive::{Where, place_of};
use crate::exit::{Error, Result, usage};
use crate::output::shown;
use clap::Command;
use model::{Location, Name};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The table that holds the profiles.
const PROFILES: &str = "profiles";
const STORES: &str = "stores";
const ROOTS: &str = "roots";
const CLUSTER: &str = "cluster";

/// What one file says.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Parsed {
    pub settings: Vec<Setting>,
    pub profiles: BTreeMap<String, Vec<Setting>>,
    pub stores: BTreeMap<String, StoreTable>,
    pub roots: BTreeMap<Name, Location>,
    pub cluster: Option<ClusterTable>,
}

/// Reads a file's text.
pub fn parse(text: &str, place: &Place, program: &Command) -> Result<Parsed> {
    let reader = Reader { text, place, program };
    let table = DeTable::parse(text).map_err(|e| {
        let at = e.span().map_or(0, |span| span.start);
        reader.wrong(at, e.message(), "the file is TOML: `key = value` lines, with strings in quotes")
    })?;
    let mut parsed = Parsed::default();
    for (key, value) in in_order(table.get_ref()) {
        match value.get_ref() {
            DeValue::Table(profiles) if key.get_ref() == PROFILES => reader.profiles(profiles, &mut parsed)?,
            DeValue::Table(tables) if key.get_ref() == STORES => reader.stores(tables, &mut parsed)?,
            DeValue::Table(roots) if key.get_ref() == ROOTS => reader.roots(roots, &mut parsed)?,
            DeValue::Table(table) if key.get_ref() == CLUSTER => {
                let read = cluster::read(table, key.span().start);
                parsed.cluster = Some(read.map_err(|wrong| reader.wrong(wrong.at, &wrong.what, &wrong.hint))?);
            }
            _ => reader.entry(&place.layer, &mut Vec::new(), key, value, &mut parsed.settings)?,
        }
    }
    Ok(parsed)
}

struct Reader<'a> {
    text: &'a str,
    place: &'a Place,
    program: &'a Command,
}

type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;

impl Reader<'_> {
    fn profiles(&self, profiles: &DeTable<'_>, parsed: &mut Parsed) -> Result<()> {
        for (name, value) in in_order(profiles) {
            let DeValue::Table(table) = value.get_ref() else {
                let hint = "a profile is a table: [profiles.NAME]";
                return Err(self.wrong(name.span().start, &format!("{} is not a table", name.get_ref()), hint));
            };
            let name_text = name.get_ref().to_string();
            if audit::profile::names().contains(&name_text.as_str()) {
                let hint = "it is the name of a set of host settings of `thalweg doctor`: choose another";
                return Err(self.wrong(name.span().start, &format!("profile {name_text} is taken"), hint));
            }
            let mut settings = Vec::new();
            for (key, value) in in_order(table) {
                self.entry(&Layer::Profile(name_text.clone()), &mut Vec::new(), key, value, &mut settings)?;
            }
            parsed.profiles.insert(name_text, settings);
        }
        Ok(())
    }

    fn stores(&self, tables: &DeTable<'_>, parsed: &mut Parsed) -> Result<()> {
        for (name, value) in in_order(tables) {
            let (at, text) = (name.span().start, name.get_ref().to_string());
            let DeValue::Table(table) = value.get_ref() else {
                return Err(self.wrong(
                    at,
                    &format!("{} is not a table", shown(&text)),
                    "a store is a table: [stores.NAME]",
                ));
            };
            if !stores::is_name(&text) {
                let hint = "a store's name has lower-case letters, digits, - and .";
                return Err(self.wrong(at, &format!("{} cannot be the name of a store", shown(&text)), hint));
            }
            let read = stores::read(table, at).map_err(|wrong| self.wrong(wrong.at, &wrong.what, &wrong.hint))?;
            parsed.stores.insert(text, read);
        }
        Ok(())
    }

    fn roots(&self, roots: &DeTable<'_>, parsed: &mut Parsed) -> Result<()> {
        for (key, value) in in_order(roots) {
            let (at, text) = (key.span().start, key.get_ref().to_string());
            let hint = "a root is a name and a place at a store: archive = \"s3+NAME://BUCKET/PREFIX\"";
            let name = Name::new(text.as_bytes());
            let name =
                name.map_err(|e| self.wrong(at, &format!("{} cannot be the name of a root: {e}", shown(&text)), hint))?;
            let location = match value.get_ref() {
                DeValue::String(location) => Location::parse(OsStr::new(&location[..])).ok(),
                _ => None,
            };
            let is_store = |location: &Location| matches!(location, Location::Url { .. });
            let Some(location) = location.filter(is_store) else {
                let what = format!("the root {} is not at a store", shown(&text));
                return Err(self.wrong(at, &what, &format!("{hint}; a directory is served by --root")));
            };
            let scheme = location.scheme();
            if !matches!(scheme.split('+').next(), Some("s3" | "dav" | "davs")) {
                let why = "an endpoint's roots lie in buckets or at WebDAV servers";
                return Err(self.wrong(at, &format!("the root {} is at {scheme}://: {why}", shown(&text)), hint));
            }
            parsed.roots.insert(name, location);
        }
        Ok(())
    }

    /// One key: a flag's value, or a table for a command. Nesting ends where the commands do.
    fn entry(
        &self,
        layer: &Layer,
        command: &mut Vec<String>,
        key: &Key<'_>,
        value: &Spanned<DeValue<'_>>,
        settings: &mut Vec<Setting>,
    ) -> Result<()> {
        let (name, at) = (key.get_ref().to_string(), key.span().start);
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let here = known::command_at(self.program, &words).expect("only known commands are entered");
        if let DeValue::Table(table) = value.get_ref() {
            if !known::subcommands(here).contains(&name) {
                return Err(self.unknown_table(here, &name, at, command.is_empty()));
            }
            command.push(name);
            for (key, value) in in_order(table) {
                self.entry(layer, command, key, value, settings)?;
            }
            command.pop();
            return Ok(());
        }
        let flags = known::flags_below(here);
        if !flags.contains(&name) {
            let of = if command.is_empty() { String::new() } else { format!(" of {}", command.join(" ")) };
            let hint = match known::nearest(&name, flags.iter().map(String::as_str)) {
                _ if known::subcommands(here).contains(&name) => format!("a command's settings are a table: [{name}]"),
                Some(near) => format!("did you mean {near}?"),
                None => format!("settings are named after flags: `thalweg{}--help` lists them", spaced(command)),
            };
            return Err(self.wrong(at, &format!("unknown setting {}{of}", shown(&name)), &hint));
        }
        let values = self.values(&name, value)?;
        let origin = Origin { layer: layer.clone(), file: self.place.file.clone(), line: self.line(at) };
        let setting = Setting { command: command.clone(), flag: name, values, origin };
        self.check_effect(here, &setting, at)?;
        settings.push(setting);
        Ok(())
    }

    /// Refuses what would hold for no command, because those that have the flag take it elsewhere only.
    fn check_effect(&self, here: &Command, setting: &Setting, at: usize) -> Result<()> {
        let own = setting.command.iter().map(String::as_str).collect::<Vec<_>>();
        let mut below: Vec<Vec<String>> = known::leaves(here);
        below.push(Vec::new());
        let mut refusing = None;
        for leaf in &below {
            let words: Vec<&str> = own.iter().copied().chain(leaf.iter().map(String::as_str)).collect();
            let command = known::command_at(self.program, &words).expect("leaves are commands");
            if !known::flags(command).iter().any(|(_, flag)| *flag == setting.flag) {
                continue;
            }
            if may_set(setting, &words) {
                return Ok(());
            }
            refusing = refusing.or(place_of(&words, &setting.flag).map(|place| (words.join("."), place)));
        }
        let Some((command, place)) = refusing else { return Ok(()) };
        let hint = match place {
            Where::CommandLine => format!("--{} can be given only on the command line", setting.flag),
            Where::OwnTable => format!("write it below [{command}], outside every profile"),
        };
        let why = "it removes or replaces something, weakens protection, or says what one command is about";
        Err(self.wrong(at, &format!("{} cannot be set here: {why}", setting.flag), &hint))
    }

    fn values(&self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>> {
        let at = value.span().start;
        let one = |value: &DeValue<'_>| match value {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().replace('_', "")),
            DeValue::Float(number) => Some(number.as_str().replace('_', "")),
            DeValue::Boolean(is_set) => Some(is_set.to_string()),
            _ => None,
        };
        let values: Option<Vec<String>> = match value.get_ref() {
            DeValue::Array(values) => values.iter().map(|value| one(value.get_ref())).collect(),
            single => one(single).map(|text| vec![text]),
        };
        let hint = "a value is a string in quotes, a decimal number, true or false, or a list of these";
        let values = values.ok_or_else(|| self.wrong(at, &format!("{name}: not a valid value"), hint))?;
        if values.is_empty() {
            return Err(self.wrong(at, &format!("{name}: the list is empty"), "remove the line"));
        }
        Ok(values)
    }

    fn unknown_table(&self, here: &Command, name: &str, at: usize, is_outermost: bool) -> Error {
        let mut tables = known::subcommands(here);
        tables.extend(is_outermost.then_some([PROFILES, STORES, CLUSTER]).into_iter().flatten().map(str::to_owned));
        let hint = match known::nearest(name, tables.iter().map(String::as_str)) {
            Some(near) => format!("did you mean [{near}]?"),
            None => "tables are named after commands, or are [profiles.NAME], [stores.NAME], [roots] or [cluster]"
                .to_owned(),
        };
        self.wrong(at, &format!("unknown table {}", shown(name)), &hint)
    }

    fn wrong(&self, at: usize, what: &str, hint: &str) -> Error {
        usage(format!("{}:{}: {what}", shown(&self.place.file), self.line(at)), hint)
    }

    fn line(&self, at: usize) -> usize {
        self.text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
    }
}

/// The entries as they stand in the file: the first mistake is told first.
fn in_order<'a, 'b>(table: &'a DeTable<'b>) -> Vec<(&'a Key<'b>, &'a Spanned<DeValue<'b>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// The command's words with a space on either side.
fn spaced(command: &[String]) -> String {
    command.iter().fold(" ".to_owned(), |text, word| text + word + " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::path::PathBuf;

    fn read(text: &str) -> Result<Parsed> {
        let place = Place { layer: Layer::User, file: PathBuf::from("c.toml") };
        parse(text, &place, &crate::args::Cli::command())
    }

    fn refusal(text: &str) -> (String, String) {
        let error = read(text).unwrap_err();
        (error.message, error.hint.unwrap())
    }

    #[test]
    fn flags_tables_and_profiles_are_read_with_their_lines() {
        let text = "retries = 1_0\n[endpoint.add]\nreplace = true\n[profiles.far]\nstreams = 8\n[profiles.far.cp]\ncc = 'bbr'\n";
        let parsed = read(text).unwrap();
        let first = &parsed.settings[0];
        assert_eq!(
            (first.flag.as_str(), first.values.as_slice(), first.origin.line),
            ("retries", &["10".into()][..], 1)
        );
        assert_eq!(parsed.settings[1].command, ["endpoint", "add"]);
        let far = &parsed.profiles["far"];
        assert_eq!((far.len(), far[1].command.as_slice(), far[1].origin.line), (2, &["cp".into()][..], 7));
    }

    #[test]
    fn roots_lie_in_buckets_and_at_webdav_servers() {
        let parsed = read("[roots]\na = 's3://b'\nb = 's3+lab://b/p'\nc = 'davs://h/p'\nd = 'dav://h/p'\n").unwrap();
        assert_eq!(parsed.roots.len(), 4);
        for scheme in ["sftp", "ftp", "gsiftp", "sshftp", "https", "other"] {
            let (said, _) = refusal(&format!("[roots]\nx = '{scheme}://h/p'"));
            assert!(said.contains("lie in buckets or at WebDAV servers"), "{said}");
        }
    }

    #[test]
    fn mistakes_are_named_with_line_and_what_was_meant() {
        for (text, message, hint) in [
            ("a\n= 1", "c.toml:1:", "the file is TOML"),
            ("retires = 1", "c.toml:1: unknown setting retires", "did you mean retries?"),
            ("\nchunk_size = '1MiB'", "c.toml:2: unknown setting chunk_size", "did you mean chunk-size?"),
            ("[cp]\nlisten = 'a'", "c.toml:2: unknown setting listen of cp", "settings are named after flags"),
            ("[pc]\nretries = 1", "c.toml:1: unknown table pc", "did you mean [cp]?"),
            ("cp = 1", "c.toml:1: unknown setting cp", "a command's settings are a table: [cp]"),
            ("help = true", "c.toml:1: unknown setting help", "settings are named after flags"),
            ("retries = 2020-01-01", "c.toml:1: retries: not a valid value", "a value is a string"),
            ("retries = []", "c.toml:1: retries: the list is empty", "remove the line"),
            ("[cluster]\nurls = ['https://a']", "c.toml:1: [cluster] has no engine", "embedded"),
            ("[cluster]\nengine = 'zookeeper'", "c.toml:2: engine \"zookeeper\" is not known", "etcd"),
            ("[cluster]\nengine = 'etcd'", "c.toml:1: etcd has no urls", "urls = ["),
            ("[cluster]\nengine = 'head'\nurls = ['https://a']", "c.toml:1: urls, user", "engine = \"etcd\""),
            (
                "[cluster]\nengine = 'etcd'\nurls = ['https://a']\nuser = 'u'",
                "c.toml:1: user and password-file",
                "both",
            ),
            ("[cluster]\nengine = 'etcd'\npassword = 'x'", "c.toml:3: password: this file holds no secrets", "0600"),
            ("[cluster]\nengine = 'etcd'\nurl = 'x'", "c.toml:3: unknown setting url of cluster", "urls"),
            ("[profiles]\nx = 1", "c.toml:2: x is not a table", "a profile is a table"),
            ("[profiles.zettar]\nretries = 1", "c.toml:1: profile zettar is taken", "choose another"),
            ("[profiles.a.pc]\nretries = 1", "c.toml:1: unknown table pc", "did you mean [cp]?"),
            ("[roots]\nx = 'a/b'", "c.toml:2: the root x is not at a store", "served by --root"),
            ("[roots]\nx = 'sftp://h/a'", "c.toml:2: the root x is at sftp://: an endpoint's", "s3+NAME://BUCKET"),
        ] {
            let (said, advice) = refusal(text);
            assert!(said.starts_with(message), "{text}: {said}");
            assert!(advice.contains(hint), "{text}: {advice}");
        }
    }
}
