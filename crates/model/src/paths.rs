//! Which network paths between two hosts a transfer uses, as its user says it: `auto`, `all`, a number, or pairs of addresses.
//!
//! Invariant: what is written reads back as the same value.
//!
//! Not here: which paths there are (`net::route`), and which of them are used (`plan::paths`).

use std::fmt;
use std::str::FromStr;

/// Paths of one session.
pub const PATHS_MAX: usize = 16;
/// A path's end on the command line: a host name, an address or an interface.
const END_BYTES_MAX: usize = 255;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum PathWish {
    /// One, and more where both hosts have more cards and more of them carry more.
    #[default]
    Auto,
    /// Every path there is, at once.
    All,
    /// As many at once, if there are.
    Most(u32),
    /// These and no others.
    Fixed(Vec<PathPair>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathPair {
    /// An address of this host, or the name of one of its interfaces.
    pub local: String,
    /// An address of the other host, with a port where it is not the usual one.
    pub remote: String,
}

impl PathWish {
    /// More than one path is asked for, now or while the transfer runs; `auto` asks for nothing.
    pub fn is_explicit(&self) -> bool {
        match self {
            PathWish::Auto => false,
            PathWish::Most(count) => *count > 1,
            PathWish::All | PathWish::Fixed(_) => true,
        }
    }

    /// Paths to be opened at once.
    pub fn most(&self) -> usize {
        match self {
            PathWish::Auto => 1,
            PathWish::All => PATHS_MAX,
            PathWish::Most(count) => *count as usize,
            PathWish::Fixed(pairs) => pairs.len(),
        }
    }
}

const ADVICE: &str =
    "give auto, all, a number from 1 to 16, or LOCAL=REMOTE such as 10.1.0.1=10.1.0.2, several with commas";

impl FromStr for PathWish {
    type Err = String;

    fn from_str(text: &str) -> Result<PathWish, String> {
        match text {
            "auto" => return Ok(PathWish::Auto),
            "all" => return Ok(PathWish::All),
            _ => {}
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let count = text.parse().ok().filter(|count| (1..=PATHS_MAX as u32).contains(count));
            return count.map(PathWish::Most).ok_or_else(|| format!("{text} is no number of paths: {ADVICE}"));
        }
        let pairs = text.split(',').map(pair).collect::<Result<Vec<_>, _>>()?;
        if pairs.len() > PATHS_MAX {
            return Err(format!("{} pairs: a transfer uses at most {PATHS_MAX} paths", pairs.len()));
        }
        match pairs.iter().enumerate().find(|(at, pair)| pairs[..*at].contains(pair)) {
            Some((_, twice)) => Err(format!("{twice} is named twice")),
            None => Ok(PathWish::Fixed(pairs)),
        }
    }
}

fn pair(text: &str) -> Result<PathPair, String> {
    let is_end = |end: &str| {
        (1..=END_BYTES_MAX).contains(&end.len()) && end.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'=')
    };
    match text.split_once('=') {
        Some((local, remote)) if is_end(local) && is_end(remote) => {
            Ok(PathPair { local: local.to_owned(), remote: remote.to_owned() })
        }
        _ => Err(format!("{text:?} is no path: {ADVICE}")),
    }
}

impl fmt::Display for PathPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.local, self.remote)
    }
}

impl fmt::Display for PathWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathWish::Auto => f.write_str("auto"),
            PathWish::All => f.write_str("all"),
            PathWish::Most(count) => write!(f, "{count}"),
            PathWish::Fixed(pairs) => f.write_str(&pairs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for text in ["auto", "all", "1", "16", "10.0.0.1=10.0.0.2", "eth1=[fd00::2]:7741,10.0.0.1=b.example:7740"] {
            assert_eq!(text.parse::<PathWish>().unwrap().to_string(), text);
        }
        assert_eq!("007".parse::<PathWish>(), Ok(PathWish::Most(7)));
    }

    #[test]
    fn garbage_is_refused_with_what_may_be_given() {
        let many = vec!["a=b"; 17].join(",");
        for text in
            ["", "0", "17", "99999999999999999999", "-1", "al", "a=", "=b", "a=b,", "a=b=c", "a b=c", "a\n=b", &many]
        {
            let error = text.parse::<PathWish>().unwrap_err();
            assert!(error.contains("auto, all, a number") || error.contains("at most 16"), "{text:?}: {error}");
        }
        assert_eq!("a=b,a=b".parse::<PathWish>().unwrap_err(), "a=b is named twice");
    }

    #[test]
    fn only_more_than_one_path_is_a_wish() {
        let wish = |text: &str| text.parse::<PathWish>().unwrap();
        assert!(!wish("auto").is_explicit() && !wish("1").is_explicit());
        assert!(wish("2").is_explicit() && wish("all").is_explicit() && wish("a=b").is_explicit());
        assert_eq!((wish("auto").most(), wish("all").most(), wish("a=b,c=d").most()), (1, 16, 2));
    }
}
