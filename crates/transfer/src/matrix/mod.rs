//! What works with what: verbs, kinds of source and destination, and options, as one table that is asked before anything moves.
//!
//! `rules` is the table. What no rule refuses works: `tests/e2e/matrix` of the program walks the cells, and docs/matrix.md is printed
//! from here.
//!
//! Invariant: a rule says why, and what to do instead.
//! Not here: what depends on one server, endpoint or file, such as rights and what a peer's version knows (`capability`).

mod rules;

pub use rules::rules;

use crate::error::Error;
use model::Location;
use model::name::Escaped;
use model::synthetic::is_null;
use std::fmt;

/// A set of kinds of source or destination; that of one location has one or two, an endpoint's `null:` being both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends(pub u16);

impl Ends {
    pub const PATH: Ends = Ends(1);
    pub const PIPE: Ends = Ends(1 << 1);
    pub const GENERATED: Ends = Ends(1 << 2);
    pub const NULL: Ends = Ends(1 << 3);
    pub const BUCKET: Ends = Ends(1 << 4);
    pub const DAV: Ends = Ends(1 << 5);
    pub const WEB: Ends = Ends(1 << 6);
    pub const SFTP: Ends = Ends(1 << 7);
    pub const ENDPOINT: Ends = Ends(1 << 8);
    pub const HOST: Ends = Ends(1 << 9);
    /// GridFTP and FTP.
    pub const GRID: Ends = Ends(1 << 10);

    /// Each kind with the words for it.
    pub const KINDS: [(Ends, &'static str); 11] = [
        (Ends::PATH, "path"),
        (Ends::PIPE, "`-`"),
        (Ends::GENERATED, "`gen:`"),
        (Ends::NULL, "`null:`"),
        (Ends::BUCKET, "`s3://`"),
        (Ends::DAV, "`davs://`"),
        (Ends::WEB, "`https://`"),
        (Ends::SFTP, "`sftp://`"),
        (Ends::GRID, "`gsiftp://`"),
        (Ends::ENDPOINT, "endpoint"),
        (Ends::HOST, "ssh host"),
    ];

    pub const fn or(self, other: Ends) -> Ends {
        Ends(self.0 | other.0)
    }

    pub const fn has(self, some: Ends) -> bool {
        self.0 & some.0 != 0
    }

    /// What a location is. `is_endpoint` says whether an endpoint has a name; a host has it otherwise. A scheme that is not known is a
    /// path of nothing: whoever opens it says so.
    pub fn of(location: &Location, is_endpoint: impl Fn(&str) -> bool) -> Ends {
        let far = |end: Ends, path: &[u8]| match location.is_synthetic() {
            false => end,
            true if is_null(path) => end.or(Ends::NULL),
            true => end.or(Ends::GENERATED),
        };
        match location {
            Location::Pipe => Ends::PIPE,
            Location::Generated(_) => Ends::GENERATED,
            Location::Null => Ends::NULL,
            Location::Local(_) => Ends::PATH,
            Location::Address { path, .. } => far(Ends::ENDPOINT, path),
            Location::Named { name, path } if is_endpoint(name) => far(Ends::ENDPOINT, path),
            Location::Named { path, .. } => far(Ends::HOST, path),
            Location::Url { scheme, .. } => match scheme.split('+').next().unwrap_or_default() {
                "s3" => Ends::BUCKET,
                "davs" | "dav" => Ends::DAV,
                "https" | "http" => Ends::WEB,
                "sftp" => Ends::SFTP,
                "gsiftp" | "ftp" | "sshftp" => Ends::GRID,
                _ => Ends(0),
            },
        }
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = Ends::KINDS.iter().filter(|(end, _)| self.has(*end)).map(|(_, word)| *word).collect();
        f.write_str(&words.join(", "))
    }
}

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verbs(pub u8);

impl Verbs {
    pub const CP: Verbs = Verbs(1);
    pub const SYNC: Verbs = Verbs(1 << 1);
    pub const FOLLOW: Verbs = Verbs(1 << 2);
    pub const MV: Verbs = Verbs(1 << 3);
    pub const CHECK: Verbs = Verbs(1 << 4);
    pub const ALL: Verbs = Verbs(0x1f);

    pub const NAMES: [(Verbs, &'static str); 5] = [
        (Verbs::CP, "cp"),
        (Verbs::SYNC, "sync"),
        (Verbs::MV, "mv"),
        (Verbs::CHECK, "check"),
        (Verbs::FOLLOW, "follow"),
    ];

    pub const fn or(self, other: Verbs) -> Verbs {
        Verbs(self.0 | other.0)
    }

    pub const fn has(self, some: Verbs) -> bool {
        self.0 & some.0 != 0
    }

    pub fn of(name: &str) -> Option<Verbs> {
        Verbs::NAMES.iter().find(|(_, known)| *known == name).map(|(verb, _)| *verb)
    }
}

/// An option as a rule names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flag {
    pub name: &'static str,
    pub value: Value,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    Any,
    Is(&'static str),
    /// Its value is one of the form `LOCAL=REMOTE`.
    Pairs,
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Value::Any => write!(f, "--{}", self.name),
            Value::Is(word) => write!(f, "--{} {word}", self.name),
            Value::Pairs => write!(f, "--{} LOCAL=REMOTE", self.name),
        }
    }
}

/// An option as it was given; one at its default was not.
#[derive(Clone, Debug)]
pub struct Given {
    pub name: String,
    pub value: String,
    /// With the command itself, not by a variable or a file of settings, which are there for other commands too.
    pub is_typed: bool,
}

/// A condition on the two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    From(Ends),
    To(Ends),
    NotTo(Ends),
    NotFrom(Ends),
    Either(Ends),
    Neither(Ends),
    Both(Ends),
    NotBoth(Ends),
    /// Another option is given too.
    With(&'static str),
    Without(&'static str),
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            When::From(ends) => write!(f, "from {ends}"),
            When::To(ends) => write!(f, "to {ends}"),
            When::NotTo(ends) => write!(f, "to anything but {ends}"),
            When::NotFrom(ends) => write!(f, "from anything but {ends}"),
            When::Either(ends) => write!(f, "from or to {ends}"),
            When::Neither(ends) => write!(f, "neither from nor to {ends}"),
            When::Both(ends) => write!(f, "from {ends} to {ends}"),
            When::NotBoth(ends) => write!(f, "unless from {ends} to {ends}"),
            When::With(flag) => write!(f, "with `--{flag}`"),
            When::Without(flag) => write!(f, "without `--{flag}`"),
        }
    }
}

/// What is refused, why, and what to do instead.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub verbs: Verbs,
    /// All of them hold.
    pub when: &'static [When],
    /// One of them is given; none for a rule about the two ends alone.
    pub flags: &'static [Flag],
    /// It would have no effect: refused where it was typed, while a variable or a setting holds for the commands that it is for.
    pub is_idle: bool,
    /// With `{flag}`, `{from}`, `{to}`, `{host}` and `{verb}`.
    pub why: &'static str,
    pub instead: &'static str,
}

/// One command as the table sees it.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    pub verb: Verbs,
    pub from: Ends,
    pub to: Ends,
    pub given: &'a [Given],
}

impl Rule {
    /// Whether it refuses this, and because of which option.
    fn refuses(&self, case: &Case<'_>) -> Option<Option<Flag>> {
        if !self.verbs.has(case.verb) || !self.when.iter().all(|when| case.is(when)) {
            return None;
        }
        if self.flags.is_empty() {
            return Some(None);
        }
        let is_given =
            |flag: &&Flag| case.given.iter().any(|given| given.is(flag) && (given.is_typed || !self.is_idle));
        self.flags.iter().find(is_given).map(|flag| Some(*flag))
    }
}

impl Given {
    fn is(&self, flag: &Flag) -> bool {
        self.name == flag.name
            && match flag.value {
                Value::Any => true,
                Value::Is(word) => self.value == word,
                Value::Pairs => self.value.contains('='),
            }
    }
}

impl Case<'_> {
    fn is(&self, when: &When) -> bool {
        let (from, to) = (self.from, self.to);
        match *when {
            When::From(ends) => from.has(ends),
            When::To(ends) => to.has(ends),
            When::NotTo(ends) => !to.has(ends),
            When::NotFrom(ends) => !from.has(ends),
            When::Either(ends) => from.has(ends) || to.has(ends),
            When::Neither(ends) => !from.has(ends) && !to.has(ends),
            When::Both(ends) => from.has(ends) && to.has(ends),
            When::NotBoth(ends) => !(from.has(ends) && to.has(ends)),
            When::With(name) => self.given.iter().any(|given| given.name == name),
            When::Without(name) => self.given.iter().all(|given| given.name != name),
        }
    }

    /// The first rule that refuses it, with the option that it is about.
    pub fn refusal(&self) -> Option<(&'static Rule, Option<Flag>)> {
        rules().find_map(|rule| Some((rule, rule.refuses(self)?)))
    }
}

/// Looks a command up.
///
/// # Errors
/// Where it does not work as it was given: why, and what to do instead.
pub fn check(
    (verb, verb_name): (Verbs, &str),
    (from, to): (&Location, &Location),
    given: &[Given],
    is_endpoint: &dyn Fn(&str) -> bool,
) -> Result<(), Error> {
    let is_one_host =
        matches!((from, to), (Location::Named { name, .. }, Location::Named { name: other, .. }) if name == other);
    // Within one host `mv` renames, and copies nothing.
    if verb == Verbs::MV && is_one_host {
        return Ok(());
    }
    let case = Case { verb, from: Ends::of(from, is_endpoint), to: Ends::of(to, is_endpoint), given };
    let Some((rule, flag)) = case.refusal() else { return Ok(()) };
    let host = match if case.to.has(Ends::HOST) { to } else { from } {
        Location::Named { name, .. } => Escaped(name.as_bytes()).to_string(),
        other => other.to_string(),
    };
    let flag = flag.map_or_else(String::new, |flag| flag.to_string());
    let told = |text: &str| {
        let text = text.replace("{flag}", &flag).replace("{verb}", verb_name).replace("{host}", &host);
        text.replace("{from}", &from.to_string()).replace("{to}", &to.to_string())
    };
    Err(Error::request(told(rule.why), told(rule.instead)))
}
