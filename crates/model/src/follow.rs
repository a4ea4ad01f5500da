//! What following a source means: when a file that is being written counts as complete, and when the job is over.
//!
//! Its words are those of `thalweg follow` and of job files: what is written here reads back as the same rule.
//!
//! Not here: watching (`store`).

mod words;

use crate::name::Name;
use std::time::Duration;

/// Names that programs give to what they have not finished.
pub const UNFINISHED: [&[u8]; 4] = [b"*.inprogress", b"*.tmp", b"*.part", b"*.partial"];

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Follow {
    pub until: Until,
    /// The first of these that comes ends the job; without any it goes on until it is stopped.
    pub ends: Vec<FollowEnd>,
    /// Writers only append: of what was read once, only the first and the last chunk are read again to compare them.
    pub is_append_only: bool,
    /// From when on it is told that the destination is far behind.
    pub alarm: Option<LagAlarm>,
}

/// How far the destination may be behind before that is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LagAlarm {
    Time(Duration),
    Bytes(u64),
}

impl Follow {
    pub fn new(until: Until, ends: Vec<FollowEnd>) -> Follow {
        Follow { until, ends, is_append_only: false, alarm: None }
    }
}

/// When a file is complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Until {
    /// Its name does not match any of these patterns any more.
    Rename(Vec<Box<[u8]>>),
    /// A file of this name is in its directory, or above; or, with `{name}` in it, one that is called so for the file.
    Marker(Box<[u8]>),
    /// Nobody has it open for writing.
    Close,
    /// Its writer holds no fcntl lock on it any more.
    Lock,
    /// Size and times have not changed for so long.
    Quiet(Duration),
    /// The job is over.
    Never,
}

/// How the part of a growing file that has arrived can be read at the destination.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// A file whose name matches one of these is shown under it: that is not its final name.
    pub unfinished: Vec<Box<[u8]>>,
}

impl View {
    /// What the rule calls unfinished is shown under that name.
    pub fn of(until: Option<&Until>) -> View {
        match until {
            Some(Until::Rename(patterns)) => View { unfinished: patterns.clone() },
            _ => View::default(),
        }
    }
}

/// What is appended to the names of others.
const SHOWN_SUFFIX: &[u8] = b".partial";

impl View {
    /// The name under which a growing file is shown; `None` where that would be too long for a name.
    pub fn name_of(&self, name: &Name) -> Option<Name> {
        match self.unfinished.iter().any(|pattern| matches(pattern, name.as_bytes())) {
            true => Some(name.clone()),
            false => Name::new(&[name.as_bytes(), SHOWN_SUFFIX].concat()).ok(),
        }
    }
}

/// When the job is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FollowEnd {
    /// A file of this name is at the top of the source.
    Marker(Name),
    /// Nothing has changed for so long.
    Idle(Duration),
    /// So long after it began.
    For(Duration),
}

impl Until {
    /// Whether a file of this name is unfinished for its name alone; `None` where the name says nothing.
    pub fn is_unfinished(&self, name: &[u8]) -> Option<bool> {
        match self {
            Until::Rename(patterns) => Some(patterns.iter().any(|pattern| matches(pattern, name))),
            _ => None,
        }
    }

    /// What marks a file of this name as complete, and whether in its own directory only.
    pub fn marker_of(&self, name: &[u8]) -> Option<(Vec<u8>, bool)> {
        const PLACE: &[u8] = b"{name}";
        let Until::Marker(marker) = self else { return None };
        match marker.windows(PLACE.len()).position(|window| window == PLACE) {
            Some(at) => Some(([&marker[..at], name, &marker[at + PLACE.len()..]].concat(), true)),
            None => Some((marker.to_vec(), false)),
        }
    }

    /// Whether a name may be that of a marker.
    pub fn is_marker(&self, name: &[u8]) -> bool {
        const PLACE: &[u8] = b"{name}";
        let Until::Marker(marker) = self else { return false };
        match marker.windows(PLACE.len()).position(|window| window == PLACE) {
            Some(at) => {
                let (head, tail) = (&marker[..at], &marker[at + PLACE.len()..]);
                name.len() > head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail)
            }
            None => name == &marker[..],
        }
    }
}

/// Whether a name matches a pattern in which `*` stands for any bytes and `?` for one.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut rest) = (0, name);
    // Where to go on with the last star taking one byte more.
    let mut star: Option<(usize, &[u8])> = None;
    loop {
        match (pattern.get(at), rest.split_first()) {
            (Some(b'*'), _) => {
                star = Some((at, rest));
                at += 1;
            }
            (Some(b'?'), Some((_, tail))) => (at, rest) = (at + 1, tail),
            (Some(wanted), Some((byte, tail))) if wanted == byte => (at, rest) = (at + 1, tail),
            (None, None) => return true,
            _ => match star {
                Some((from, taken)) if !taken.is_empty() => {
                    star = Some((from, &taken[1..]));
                    (at, rest) = (from + 1, &taken[1..]);
                }
                _ => return false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, is_match) in [
            ("*.tmp", "a.tmp", true),
            ("*.tmp", ".tmp", true),
            ("*.tmp", "a.tmp.gz", false),
            ("run?-*.part", "run1-a-b.part", true),
            ("run?-*.part", "run-a.part", false),
            ("*a*b", "xaxbxb", true),
            ("*a*b", "xaxbx", false),
            ("", "", true),
            ("", "a", false),
            ("**", "", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), is_match, "{pattern} {name}");
        }
    }

    #[test]
    fn what_grows_is_shown_under_a_name_that_is_not_its_final_one() {
        let view = View { unfinished: vec![b"*.inprogress"[..].into()] };
        let shown = |name: &[u8]| view.name_of(&Name::new(name).unwrap());
        assert_eq!(shown(b"x.inprogress"), Name::new(b"x.inprogress").ok());
        assert_eq!(shown(b"x"), Name::new(b"x.partial").ok());
        assert_eq!(shown(&[b'x'; 250]), None);
    }

    #[test]
    fn a_marker_belongs_to_a_directory_or_to_one_file() {
        let all = Until::Marker(b"DONE"[..].into());
        assert_eq!(all.marker_of(b"a"), Some((b"DONE".to_vec(), false)));
        assert!(all.is_marker(b"DONE") && !all.is_marker(b"a.DONE"));
        let each = Until::Marker(b"{name}.done"[..].into());
        assert_eq!(each.marker_of(b"a"), Some((b"a.done".to_vec(), true)));
        assert!(each.is_marker(b"a.done") && !each.is_marker(b".done") && !each.is_marker(b"a"));
    }
}
