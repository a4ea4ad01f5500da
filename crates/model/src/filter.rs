//! Filter rules: which paths of a tree a job takes.
//!
//! An ordered list of rules, each a pattern that takes or leaves; the first that matches decides. Where none matches, an
//! object is taken, unless every rule takes: then the rest is left. Patterns are those of rsync: a leading slash ties to
//! the root of the job, a trailing one means directories, `*` and `?` stop at a slash, `**` does not, `[...]` is a set of
//! characters, a backslash takes away a meaning. A pattern without a slash within is compared with the name alone,
//! wherever it lies, one with a slash with the end of the path.
//!
//! Invariant: patterns are bounded in number and length, and comparing a path with all of them takes at most their length by that
//! of the path, sixty-four pairs of bytes at a time (`glob`): a peer's cost no more.
//! Not here: walking a tree (see `store`), and the order in which rules were given (see the program).

use crate::glob::{Glob, Start, names_of};
use std::collections::HashMap;

pub const RULES_MAX: usize = 1024;
/// Bytes of one pattern, and of all together.
pub const RULE_BYTES_MAX: usize = 4096;
pub const RULES_BYTES_MAX: usize = 128 << 10;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// It takes what it matches; otherwise it leaves it.
    pub takes: bool,
    pub pattern: String,
}

impl Rule {
    pub fn take(pattern: &str) -> Rule {
        Rule { takes: true, pattern: pattern.to_owned() }
    }

    pub fn leave(pattern: &str) -> Rule {
        Rule { takes: false, pattern: pattern.to_owned() }
    }

    /// Reads `+ PATTERN` or `- PATTERN`.
    pub fn parse(text: &str) -> Option<Rule> {
        match text.split_once(' ')? {
            ("+", pattern) => Some(Rule::take(pattern)),
            ("-", pattern) => Some(Rule::leave(pattern)),
            _ => None,
        }
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", if self.takes { '+' } else { '-' }, self.pattern)
    }
}

/// What the rules say of one path, without those above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    Take,
    Leave,
    /// No rule matches.
    None,
}

/// What becomes of a path, and which rule decided it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Explained {
    pub is_taken: bool,
    /// Its number from 0; `None` where no rule matched.
    pub rule: Option<usize>,
    /// How much of the path the rule matched: less than all where a directory above decides.
    pub length: usize,
}

/// Rules that are ready to be asked.
#[derive(Clone, Default)]
pub struct Filter {
    rules: Vec<Rule>,
    /// In the order of the rules, with the number of the rule and whether it matches directories only.
    globs: Vec<(Glob, usize, bool)>,
    index: Index,
}

/// First or last bytes by which most patterns are told apart from a path without looking at them.
type Edge = [u8; 4];

/// Globs by how what they match ends or begins, each list in the order of the rules: of a thousand rules, few have to be compared.
#[derive(Clone, Default)]
struct Index {
    by_ending: HashMap<Edge, Vec<usize>>,
    /// Shorter endings, by the last byte.
    by_last: HashMap<u8, Vec<usize>>,
    /// Those that may end in anything, by how they begin and where.
    by_beginning: Vec<(Start, HashMap<Edge, Vec<usize>>)>,
    rest: Vec<usize>,
}

impl Index {
    fn of(globs: &[(Glob, usize, bool)]) -> Index {
        let mut index = Index::default();
        for (at, (glob, ..)) in globs.iter().enumerate() {
            let list = match (glob.suffix().last_chunk(), glob.suffix().last(), glob.prefix().first_chunk()) {
                (Some(ending), ..) => index.by_ending.entry(*ending).or_default(),
                (None, Some(last), _) => index.by_last.entry(*last).or_default(),
                (None, None, Some(beginning)) => index.beginning_at(glob.start()).entry(*beginning).or_default(),
                (None, None, None) => &mut index.rest,
            };
            list.push(at);
        }
        index
    }

    fn beginning_at(&mut self, start: Start) -> &mut HashMap<Edge, Vec<usize>> {
        let known = self.by_beginning.iter().position(|(of, _)| *of == start);
        let at = known.unwrap_or_else(|| {
            self.by_beginning.push((start, HashMap::new()));
            self.by_beginning.len() - 1
        });
        &mut self.by_beginning[at].1
    }

    /// The lists of those that may match a path.
    fn candidates<'a>(&'a self, path: &'a [u8], names: &'a [usize]) -> impl Iterator<Item = &'a Vec<usize>> {
        let by_ending = path.last_chunk().and_then(|ending| self.by_ending.get(ending));
        let by_last = path.last().and_then(|last| self.by_last.get(last));
        let by_beginning = self.by_beginning.iter().filter_map(|(start, lists)| {
            let text = start.text(path, names)?;
            lists.get(text.first_chunk()?)
        });
        by_ending.into_iter().chain(by_last).chain(by_beginning).chain([&self.rest])
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Filter) -> bool {
        self.rules == other.rules
    }
}

impl Eq for Filter {}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.rules.fmt(f)
    }
}

impl Filter {
    /// # Errors
    /// With words for the user, when a pattern cannot be read or there are too many.
    pub fn new(rules: Vec<Rule>) -> Result<Filter, String> {
        let bytes: usize = rules.iter().map(|rule| rule.pattern.len()).sum();
        if rules.len() > RULES_MAX || bytes > RULES_BYTES_MAX {
            return Err(format!("more than {RULES_MAX} filter rules, or more than 128 KiB of them"));
        }
        let mut globs = Vec::new();
        for (number, rule) in rules.iter().enumerate() {
            let wrong = |why: &str| format!("filter pattern {:?}: {why}", rule.pattern);
            let of_rule = globs_of(&rule.pattern).map_err(wrong)?;
            globs.extend(of_rule.into_iter().map(|(glob, is_directory)| (glob, number, is_directory)));
        }
        let index = Index::of(&globs);
        Ok(Filter { rules, globs, index })
    }

    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Every rule takes: what none matches is left.
    pub fn leaves_rest(&self) -> bool {
        !self.rules.is_empty() && self.rules.iter().all(|rule| rule.takes)
    }

    /// What the rules say of the path itself.
    pub fn word(&self, path: &[u8], is_directory: bool) -> Word {
        match self.first_match(path, is_directory) {
            Some(number) if self.rules[number].takes => Word::Take,
            Some(_) => Word::Leave,
            None => Word::None,
        }
    }

    /// What becomes of a path: whoever walks the tree from its root comes to the same.
    pub fn explain(&self, path: &[u8], is_directory: bool) -> Explained {
        let mut taken_by = None;
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for length in ends.chain([path.len()]) {
            let is_whole = length == path.len();
            let found = self.first_match(&path[..length], is_directory || !is_whole);
            match found {
                Some(number) if !self.rules[number].takes => {
                    return Explained { is_taken: false, rule: Some(number), length };
                }
                Some(number) if is_whole || self.leaves_rest() => taken_by = Some((number, length)),
                _ => {}
            }
        }
        match taken_by {
            Some((number, length)) => Explained { is_taken: true, rule: Some(number), length },
            None => Explained { is_taken: !self.leaves_rest(), rule: None, length: path.len() },
        }
    }

    fn first_match(&self, path: &[u8], is_directory: bool) -> Option<usize> {
        if self.rules.is_empty() {
            return None;
        }
        let names = names_of(path);
        let mut first = self.globs.len();
        for list in self.index.candidates(path, &names) {
            let before = list.iter().copied().take_while(|at| *at < first);
            let found = before.into_iter().find(|at| {
                let (glob, _, of_directory) = &self.globs[*at];
                (is_directory || !of_directory) && glob.matches(path, &names)
            });
            first = found.unwrap_or(first);
        }
        self.globs.get(first).map(|(_, number, _)| *number)
    }
}

/// The globs that a pattern stands for, and whether they match directories only.
fn globs_of(pattern: &str) -> Result<Vec<(Glob, bool)>, &'static str> {
    if pattern.len() > RULE_BYTES_MAX {
        return Err("longer than 4096 bytes");
    }
    if pattern.contains('\0') {
        return Err("contains a NUL byte");
    }
    let is_tied = pattern.starts_with('/');
    let below = pattern.strip_prefix('/').unwrap_or(pattern);
    // `dir/***` is the directory and everything in it.
    let (body, is_directory, has_contents) = match (below.strip_suffix("/***"), below.strip_suffix('/')) {
        (Some(body), _) => (body, true, true),
        (None, Some(body)) => (body, true, false),
        (None, None) => (below, false, false),
    };
    if body.is_empty() {
        return Err("names nothing");
    }
    let mut globs = vec![(Glob::new(body.as_bytes(), is_tied)?, is_directory)];
    if has_contents {
        globs.push((Glob::new(format!("{body}/**").as_bytes(), is_tied)?, false));
    }
    Ok(globs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::glob::tests::STEPS;
    use proptest::prelude::*;

    fn filter(rules: &[&str]) -> Filter {
        Filter::new(rules.iter().map(|rule| Rule::parse(rule).unwrap()).collect()).unwrap()
    }

    fn leaves(pattern: &str, path: &str) -> bool {
        let path = path.as_bytes();
        let (path, is_directory) = path.strip_suffix(b"/").map_or((path, false), |path| (path, true));
        filter(&[&format!("- {pattern}")]).word(path, is_directory) == Word::Leave
    }

    #[test]
    fn patterns_match_as_in_rsync() {
        for (pattern, path, expected) in [
            ("*.o", "a.o", true),
            ("*.o", "d/e/a.o", true),
            ("*.o", "a.o/b", false),
            ("/*.o", "d/a.o", false),
            ("/d/*.o", "d/a.o", true),
            ("/d/*.o", "d/e/a.o", false),
            ("/d/**.o", "d/e/a.o", true),
            ("d/e", "x/d/e", true),
            ("d/e", "xd/e", false),
            ("tmp/", "tmp", false),
            ("tmp/", "a/tmp/", true),
            ("/foo/*/bar", "foo/x/bar", true),
            ("/foo/*/bar", "foo/x/y/bar", false),
            ("/foo/**/bar", "foo/x/y/bar", true),
            ("/foo/**/bar", "foo/bar", false),
            ("dir/***", "dir/", true),
            ("dir/***", "dir", false),
            ("dir/***", "a/dir/b/c", true),
            ("dir/**", "dir/", false),
            ("a**z", "x/ab/cz", true),
            ("fil?", "file", true),
            ("fil?", "fil", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            // A set never has a slash.
            ("a[!b]c", "a/c", false),
            ("[^a-c]x", "dx", true),
            ("[]x]y", "]y", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("{a,b}", "{a,b}", true),
            ("{a,b}", "a", false),
            ("trailing.", "d/trailing.", true),
            ("**", "a/b", true),
        ] {
            assert_eq!(leaves(pattern, path), expected, "{pattern} and {path}");
        }
    }

    #[test]
    fn patterns_that_cannot_be_read_are_refused_with_a_reason() {
        for (pattern, why) in [
            ("[a", "has a [ without its ]"),
            ("a\\", "ends in a backslash"),
            ("/", "names nothing"),
            ("", "names nothing"),
            ("[a/b]", "has a slash in a set of characters"),
        ] {
            let error = Filter::new(vec![Rule::leave(pattern)]).unwrap_err();
            assert!(error.ends_with(why), "{error}");
        }
        assert!(Filter::new(vec![Rule::leave(&"x".repeat(RULE_BYTES_MAX + 1))]).is_err());
        assert!(Filter::new(vec![Rule::leave("x"); RULES_MAX + 1]).is_err());
    }

    /// Endings and beginnings of every length, and none, in one list: the order of the rules decides, not how they are found.
    #[test]
    fn the_first_rule_decides_however_it_is_found() {
        let rules = ["+ *log", "- a*", "+ *.log", "- *g", "+ keep.log", "- *", "+ keep*", "- /keep*", "+ d/ke?p*"];
        for turn in 0..rules.len() {
            let turned: Vec<_> = rules.iter().cycle().skip(turn).take(rules.len()).copied().collect();
            let filter = filter(&turned);
            for path in ["keep.log", "a.log", "g", "xg", "log", "abc", "d/keep.log", "d/keeper", "no"] {
                let matching = |rule: &&&str| {
                    let one = Filter::new(vec![Rule::parse(rule).unwrap()]).unwrap();
                    one.word(path.as_bytes(), false) != Word::None
                };
                let expected = turned.iter().position(|rule| matching(&rule));
                assert_eq!(filter.first_match(path.as_bytes(), false), expected, "{turned:?} {path}");
            }
        }
    }

    /// As many and as bad patterns as a peer may send: a path costs a fixed number of steps.
    #[test]
    fn the_worst_patterns_cost_their_length_by_that_of_the_path() {
        let mut random = 88_172_645_463_325_252u64;
        let mut bit = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random & 1
        };
        let path: Vec<u8> = (0..1023).map(|at| if at % 256 == 255 { b'/' } else { b'a' + bit() as u8 }).collect();
        for pattern in ["*a", "**a", "?", "[!b-y]", "a?*", "?a*b", "**a?**b"] {
            for rules in [32, RULES_MAX] {
                let length = RULES_BYTES_MAX / rules - 2;
                let rule = format!("**{}a", pattern.repeat((length - 3) / pattern.len()));
                let filter = Filter::new(vec![Rule::leave(&rule); rules]).unwrap();
                let before = STEPS.get();
                filter.word(&path, false);
                let (steps, words) = (STEPS.get() - before, rules * (rule.len() / 64 + 1));
                assert!(steps <= words * path.len(), "{rules} of {rule:.20}: {steps} steps");
            }
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides_and_a_directory_decides_for_what_is_in_it() {
        let rules = filter(&["+ keep.log", "- *.log", "- /build/"]);
        let explained = |path: &str| rules.explain(path.as_bytes(), false);
        assert_eq!(explained("a/keep.log"), Explained { is_taken: true, rule: Some(0), length: 10 });
        assert_eq!(explained("a/x.log"), Explained { is_taken: false, rule: Some(1), length: 7 });
        assert_eq!(explained("build/keep.log"), Explained { is_taken: false, rule: Some(2), length: 5 });
        assert_eq!(explained("a/x"), Explained { is_taken: true, rule: None, length: 3 });
    }

    #[test]
    fn rules_that_only_take_leave_the_rest() {
        let rules = filter(&["+ *.c", "+ docs/"]);
        for (path, is_taken) in [("a/x.c", true), ("a/x.h", false), ("docs/a/b", true), ("a/docs/b", true)] {
            assert_eq!(rules.explain(path.as_bytes(), false).is_taken, is_taken, "{path}");
        }
        assert!(filter(&[]).explain(b"a", false).is_taken);
    }

    #[test]
    fn names_that_are_no_text_are_matched_by_their_bytes() {
        assert_eq!(filter(&["- a?b"]).word(b"a\xffb", false), Word::Leave);
        assert_eq!(filter(&["- *.x"]).word(b"d/\xff\xfe.x", false), Word::Leave);
    }

    /// The same meaning, written as slowly and plainly as it goes.
    mod reference {
        fn glob(pattern: &[u8], text: &[u8]) -> bool {
            match pattern {
                [] => text.is_empty(),
                [b'*', b'*', rest @ ..] => {
                    let rest = rest.iter().position(|b| *b != b'*').map_or(&[][..], |at| &rest[at..]);
                    (0..=text.len()).any(|at| glob(rest, &text[at..]))
                }
                [b'*', rest @ ..] => {
                    let stop = text.iter().position(|b| *b == b'/').unwrap_or(text.len());
                    (0..=stop).any(|at| glob(rest, &text[at..]))
                }
                [b'?', rest @ ..] => text.first().is_some_and(|b| *b != b'/') && glob(rest, &text[1..]),
                [first, rest @ ..] => text.first() == Some(first) && glob(rest, &text[1..]),
            }
        }

        pub fn matches(pattern: &str, path: &[u8], is_directory: bool) -> bool {
            let pattern = pattern.as_bytes();
            let tied = pattern.first() == Some(&b'/');
            let body = if tied { &pattern[1..] } else { pattern };
            if let Some(body) = body.strip_suffix(b"/***") {
                let whole = [body, b"/**"].concat();
                return is_directory && ends(body, path, tied) || ends(&whole, path, tied);
            }
            match body.strip_suffix(b"/") {
                Some(body) => is_directory && ends(body, path, tied),
                None => ends(body, path, tied),
            }
        }

        fn ends(body: &[u8], path: &[u8], tied: bool) -> bool {
            let starts = (0..path.len()).filter(|at| *at == 0 || !tied && path[at - 1] == b'/');
            starts.into_iter().any(|at| glob(body, &path[at..]))
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]
        #[test]
        fn the_matcher_agrees_with_a_slow_reference(
            pattern in "/?[ab.*?/]{1,7}(/|/\\*\\*\\*)?",
            // No name is `.` or `..`.
            path in r"\.{0,2}[ab][ab.]{0,2}(/\.{0,2}[ab][ab.]{0,2}){0,3}",
            is_directory: bool,
        ) {
            // No path has two slashes in a row.
            let pattern = pattern.replace("//", "/");
            let Ok(ours) = Filter::new(vec![Rule::leave(&pattern)]) else { return Ok(()) };
            let expected = reference::matches(&pattern, path.as_bytes(), is_directory);
            prop_assert_eq!(ours.word(path.as_bytes(), is_directory) == Word::Leave, expected);
        }

        #[test]
        fn a_walk_from_the_root_comes_to_what_is_explained(
            rules in proptest::collection::vec(("[+-]", "/?[ab*]{1,3}(/[ab*]{1,3})?/?"), 0..5),
            path in "[ab]{1,2}(/[ab]{1,2}){0,3}",
        ) {
            let rules: Vec<_> = rules.into_iter().map(|(sign, pattern)| Rule { takes: sign == "+", pattern }).collect();
            let filter = Filter::new(rules).unwrap();
            let names: Vec<&str> = path.split('/').collect();
            let mut is_whole = !filter.leaves_rest();
            let mut is_taken = true;
            for depth in 1..=names.len() {
                let is_directory = depth < names.len();
                let word = filter.word(names[..depth].join("/").as_bytes(), is_directory);
                is_whole |= word == Word::Take;
                is_taken = word == Word::Take || word == Word::None && (is_whole || is_directory);
                if !is_taken {
                    break;
                }
            }
            prop_assert_eq!(filter.explain(path.as_bytes(), false).is_taken, is_taken);
        }
    }
}
