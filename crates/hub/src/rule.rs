//! A rule as people write it: `allow WHO VERBS [until MOMENT] [by WHO] ENDPOINT:PATH`.
//!
//! It covers the path and what is below it, compared name by name. Nothing is allowed but by a rule. One that is `by` somebody is a
//! share: it holds as long as that one may do the same there, and manage it.

use crate::events::rfc3339;
use crate::{Error, Result};
use model::Exit;
use model::name::{Escaped, Name, join, relative_path, unescape};
use std::fmt;

const TEXT_BYTES_MAX: usize = 4096;

/// What is done at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Allows no job anything: it names an endpoint, which is then among those that are seen.
    List = 1,
    Read = 2,
    Write = 4,
    /// Of what is not at the source.
    Delete = 8,
    Manage = 16,
}

impl Verb {
    const ALL: [Verb; 5] = [Verb::List, Verb::Read, Verb::Write, Verb::Delete, Verb::Manage];

    pub fn word(self) -> &'static str {
        match self {
            Verb::List => "list",
            Verb::Read => "read",
            Verb::Write => "write",
            Verb::Delete => "delete",
            Verb::Manage => "manage",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    pub who: String,
    /// Bits of `Verb`.
    verbs: u8,
    /// When it ends; milliseconds since 1970, at a full second, as it is shown.
    pub until: Option<i64>,
    pub by: Option<String>,
    pub endpoint: String,
    pub path: Vec<Name>,
}

impl Rule {
    pub fn parse(text: &str) -> Result<Rule> {
        let wrong = |why: &str| {
            Error::new(Exit::Usage, format!("a rule {why}")).hint("such as: allow token:NAME read,write siteA:results")
        };
        if text.len() > TEXT_BYTES_MAX || text.contains(char::is_control) {
            return Err(wrong("is one line of at most 4,096 bytes"));
        }
        // What is behind the third space is the place: a path may hold spaces.
        let mut words = text.trim_start().splitn(4, ' ');
        let (Some("allow"), Some(who), Some(verbs), Some(rest)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(wrong("is `allow WHO VERBS [until MOMENT] ENDPOINT:PATH`"));
        };
        let is_who = |who: &str| {
            who.split_once(':').is_some_and(|(kind, name)| ["token", "unix"].contains(&kind) && !name.is_empty())
        };
        let (until, rest) = told(rest, "until ");
        let (by, place) = told(rest, "by ");
        if !is_who(who) || !by.is_none_or(is_who) {
            return Err(wrong("is for token:NAME or unix:UID"));
        }
        let moment = |text: &str| text.parse::<jiff::Timestamp>().map(|at| at.as_second() * 1000);
        let until = until.map(moment).transpose().map_err(|_| wrong("ends at a moment: until 2027-03-01T06:00:00Z"))?;
        let bit = |word: &str| Verb::ALL.into_iter().find(|verb| verb.word() == word).map(|verb| verb as u8);
        let verbs = verbs.split(',').try_fold(0, |bits, word| Some(bits | bit(word)?));
        let verbs = verbs.ok_or_else(|| wrong("allows list, read, write, delete or manage"))?;
        let (endpoint, path) = place.split_once(':').ok_or_else(|| wrong("ends with ENDPOINT:PATH"))?;
        if endpoint.is_empty() {
            return Err(wrong("names an endpoint"));
        }
        let path = unescape(path.as_bytes()).ok_or_else(|| wrong("has an escape in its path that is not known"))?;
        let path = relative_path(&path).map_err(|_| wrong("names a path below the endpoint's root"))?;
        Ok(Rule { who: who.to_owned(), verbs, until, by: by.map(str::to_owned), endpoint: endpoint.to_owned(), path })
    }

    pub fn verbs(&self) -> impl Iterator<Item = Verb> + '_ {
        Verb::ALL.into_iter().filter(|verb| self.verbs & *verb as u8 != 0)
    }

    pub fn is_over(&self, now: i64) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    pub fn allows(&self, who: &str, verb: Verb, endpoint: &str, path: &[Name]) -> bool {
        let is_below = path.starts_with(&self.path)
            || model::mutant::is_on("rule-compares-text") && join(path).starts_with(&join(&self.path)[..]);
        self.who == who && self.verbs & verb as u8 != 0 && self.endpoint == endpoint && is_below
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verbs: Vec<_> = self.verbs().map(Verb::word).collect();
        write!(f, "allow {} {} ", self.who, verbs.join(","))?;
        if let Some(until) = self.until {
            write!(f, "until {} ", rfc3339(until))?;
        }
        if let Some(by) = &self.by {
            write!(f, "by {by} ")?;
        }
        write!(f, "{}:{}", self.endpoint, Escaped(&join(&self.path)))
    }
}

/// The word behind a prefix, if it is there, and what follows.
fn told<'a>(text: &'a str, prefix: &str) -> (Option<&'a str>, &'a str) {
    let found = text.strip_prefix(prefix).and_then(|more| more.split_once(' '));
    found.map_or((None, text), |(word, rest)| (Some(word), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_reads_as_it_is_shown() {
        for (text, shown) in [
            ("allow token:ci list,read,write siteA:", "allow token:ci list,read,write siteA:"),
            ("allow unix:1000 write,read b:./x//y/", "allow unix:1000 read,write b:x/y"),
            (r"allow token:a delete b:with space\xff", r"allow token:a delete b:with space\xff"),
            (
                "allow token:a read until 2027-03-01T06:00:00+01:00 b:x y",
                "allow token:a read until 2027-03-01T05:00:00Z b:x y",
            ),
            (
                "allow token:a read until 2027-03-01T05:00:00Z by unix:7 b:",
                "allow token:a read until 2027-03-01T05:00:00Z by unix:7 b:",
            ),
        ] {
            let rule = Rule::parse(text).unwrap();
            assert_eq!(rule.to_string(), shown);
            assert_eq!(Rule::parse(shown).unwrap(), rule);
        }
        for text in [
            "",
            "deny token:a read b:",
            "allow token:a read",
            "allow a read b:",
            "allow token: read b:",
            "allow oidc:x read b:",
            "allow token:a reed b:",
            "allow token:a read :x",
            "allow token:a read b",
            "allow token:a read b:../x",
            "allow token:a read b:x\ny",
            "allow token:a read until tomorrow b:x",
            "allow token:a read by somebody b:x",
        ] {
            assert_eq!(Rule::parse(text).unwrap_err().exit, Exit::Usage, "{text}");
        }
    }

    #[test]
    fn a_rule_covers_a_path_and_what_is_below_it_name_by_name() {
        let rule = Rule::parse("allow token:a read b:x/y").unwrap();
        let may = |who: &str, verb, endpoint: &str, path: &str| {
            rule.allows(who, verb, endpoint, &relative_path(path.as_bytes()).unwrap())
        };
        assert!(may("token:a", Verb::Read, "b", "x/y") && may("token:a", Verb::Read, "b", "x/y/z"));
        assert!(!may("token:a", Verb::Read, "b", "x") && !may("token:a", Verb::Read, "b", "x/yz"));
        assert!(!may("token:b", Verb::Read, "b", "x/y") && !may("token:a", Verb::Write, "b", "x/y"));
        assert!(!may("token:a", Verb::Read, "c", "x/y"));
    }
}
