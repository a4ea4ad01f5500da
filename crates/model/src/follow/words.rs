//! Rules of following in the words of `thalweg follow`.
//!
//! Invariant: what is written of a rule that was read reads back as the same rule, whatever bytes its patterns hold.

use super::{FollowEnd, LagAlarm, UNFINISHED, Until};
use crate::name::Name;
use crate::quantity::{parse_bytes, parse_span};
use std::time::Duration;

const UNTIL: &str = "expected close, rename, rename:GLOB, marker:NAME, lock, quiet:TIME such as quiet:60s, or never";
const END: &str = "expected marker:NAME, idle:TIME or for:TIME, such as idle:10m";
const ALARM: &str = "expected a time such as 10s or a size such as 500MiB";

impl Until {
    pub fn parse(text: &str) -> Result<Until, String> {
        Until::from_bytes(text.as_bytes())
    }

    /// Patterns and names may be no text.
    pub fn from_bytes(text: &[u8]) -> Result<Until, String> {
        match halves(text) {
            (b"rename", b"") => Ok(Until::Rename(UNFINISHED.map(Box::from).to_vec())),
            // No name has a slash in it.
            (b"rename", globs) => Ok(Until::Rename(globs.split(|byte| *byte == b'/').map(Box::from).collect())),
            (b"marker", name) => marker(name).map(|name| Until::Marker(name.as_bytes().into())),
            (b"quiet", time) => span(time).map(Until::Quiet),
            (b"close", b"") => Ok(Until::Close),
            (b"lock", b"") => Ok(Until::Lock),
            (b"never", b"") => Ok(Until::Never),
            _ => Err(UNTIL.to_owned()),
        }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Until::Rename(patterns) if patterns.iter().map(|one| &one[..]).eq(UNFINISHED) => b"rename".to_vec(),
            Until::Rename(patterns) => [b"rename:", &patterns.join(&b'/')[..]].concat(),
            Until::Marker(name) => [b"marker:", &name[..]].concat(),
            Until::Close => b"close".to_vec(),
            Until::Lock => b"lock".to_vec(),
            Until::Quiet(time) => format!("quiet:{}", written(*time)).into_bytes(),
            Until::Never => b"never".to_vec(),
        }
    }
}

impl FollowEnd {
    pub fn parse(text: &str) -> Result<FollowEnd, String> {
        FollowEnd::from_bytes(text.as_bytes())
    }

    pub fn from_bytes(text: &[u8]) -> Result<FollowEnd, String> {
        match halves(text) {
            (b"marker", name) => marker(name).map(FollowEnd::Marker),
            (b"idle", time) => span(time).map(FollowEnd::Idle),
            (b"for", time) => span(time).map(FollowEnd::For),
            _ => Err(END.to_owned()),
        }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            FollowEnd::Marker(name) => [b"marker:", name.as_bytes()].concat(),
            FollowEnd::Idle(time) => format!("idle:{}", written(*time)).into_bytes(),
            FollowEnd::For(time) => format!("for:{}", written(*time)).into_bytes(),
        }
    }
}

impl LagAlarm {
    /// A size has a unit of bytes.
    pub fn parse(text: &str) -> Result<LagAlarm, String> {
        match parse_span(text) {
            Ok(time) => Ok(LagAlarm::Time(time)),
            Err(_) => match parse_bytes(text) {
                Ok(bytes @ 1..) if text.ends_with(['B', 'b']) => Ok(LagAlarm::Bytes(bytes)),
                _ => Err(ALARM.to_owned()),
            },
        }
    }

    pub fn written(&self) -> String {
        match self {
            LagAlarm::Time(time) => written(*time),
            LagAlarm::Bytes(bytes) => format!("{bytes}B"),
        }
    }
}

/// Around the first colon.
fn halves(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|byte| *byte == b':') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, b""),
    }
}

fn marker(name: &[u8]) -> Result<Name, String> {
    let shown = || String::from_utf8_lossy(name).into_owned();
    Name::new(name)
        .map_err(|_| format!("{:?} is not the name of a file: a marker is one name without slashes", shown()))
}

fn span(text: &[u8]) -> Result<Duration, String> {
    parse_span(&String::from_utf8_lossy(text))
}

/// In the largest unit that has it whole; below a second, what is quiet for one is quiet.
fn written(time: Duration) -> String {
    let seconds = time.as_secs().max(1);
    let units = [(7 * 86_400, 'w'), (86_400, 'd'), (3600, 'h'), (60, 'm'), (1, 's')];
    let (unit, letter) = units.into_iter().find(|(unit, _)| seconds.is_multiple_of(*unit)).unwrap_or((1, 's'));
    format!("{}{letter}", seconds / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_read_as_the_help_writes_them() {
        assert_eq!(Until::parse("quiet:2s"), Ok(Until::Quiet(Duration::from_secs(2))));
        assert_eq!(Until::parse("rename:*.new"), Ok(Until::Rename(vec![b"*.new"[..].into()])));
        assert!(matches!(Until::parse("rename"), Ok(Until::Rename(patterns)) if patterns.len() == UNFINISHED.len()));
        assert_eq!(Until::parse("marker:{name}.done"), Ok(Until::Marker(b"{name}.done"[..].into())));
        assert_eq!(LagAlarm::parse("10s"), Ok(LagAlarm::Time(Duration::from_secs(10))));
        assert_eq!(LagAlarm::parse("500MiB"), Ok(LagAlarm::Bytes(500 << 20)));
        assert!(["", "0s", "0B", "much", "10 apples"].iter().all(|wrong| LagAlarm::parse(wrong).is_err()));
        assert_eq!(FollowEnd::parse("marker:STOP"), Ok(FollowEnd::Marker(Name::new(b"STOP").unwrap())));
        assert_eq!(FollowEnd::parse("idle:1m"), Ok(FollowEnd::Idle(Duration::from_secs(60))));
        for wrong in ["", "close:1", "lock:x", "marker:", "marker:a/b", "quiet", "quiet:0s", "quiet:x", "never:1"] {
            assert!(Until::parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "never", "marker:../x", "idle:", "for:0"] {
            assert!(FollowEnd::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_written_reads_back_as_the_same_rule() {
        for text in ["rename", "rename:*.new/*.\u{ff}", "marker:{name}.done", "close", "lock", "quiet:90s", "never"] {
            let rule = Until::parse(text).unwrap();
            assert_eq!(Until::from_bytes(&rule.to_bytes()), Ok(rule), "{text}");
        }
        let raw = Until::Rename(vec![b"\xff*"[..].into()]);
        assert_eq!(Until::from_bytes(&raw.to_bytes()), Ok(raw));
        for text in ["marker:STOP", "idle:2w", "for:1000000w", "idle:61m"] {
            let end = FollowEnd::parse(text).unwrap();
            assert_eq!(FollowEnd::from_bytes(&end.to_bytes()), Ok(end), "{text}");
        }
        for text in ["10s", "500MiB"] {
            let alarm = LagAlarm::parse(text).unwrap();
            assert_eq!(LagAlarm::parse(&alarm.written()), Ok(alarm));
        }
    }
}
