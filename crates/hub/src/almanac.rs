//! The calendar of the queue: windows and schedules by the time zones of this host.

use crate::times;
use crate::windows::{Parsed, Window};
use jiff::Timestamp;
use queue::{Calendar, Opening, Slots};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Knows each set of windows once it has been asked for it.
#[derive(Default)]
pub struct Almanac {
    known: Mutex<HashMap<String, Option<Arc<Vec<Parsed>>>>>,
}

/// Sets that are remembered.
const KNOWN_MAX: usize = 10_000;

impl Calendar for Almanac {
    fn opening(&self, windows: &str, unix_ms: i64) -> Opening {
        let parsed = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() > KNOWN_MAX {
                known.clear();
            }
            let parse = || {
                let windows: Vec<Window> = serde_json::from_str(windows).ok()?;
                windows.iter().map(|window| window.parse().ok()).collect::<Option<Vec<_>>>().map(Arc::new)
            };
            known.entry(windows.to_owned()).or_insert_with(parse).clone()
        };
        // What cannot be read any more, because its zone is gone, holds nobody up.
        let (Some(parsed), Ok(now)) = (parsed, Timestamp::from_millisecond(unix_ms)) else {
            return Opening { is_open: true, until: i64::MAX };
        };
        let spans: Vec<_> = parsed.iter().flat_map(|window| window.spans(now)).collect();
        let mut until = spans.iter().filter(|(from, to)| (*from..*to).contains(&unix_ms)).map(|(_, to)| *to).max();
        let is_open = until.is_some();
        // One that begins before another ends goes on with it.
        while let Some(end) = until
            && let Some(later) = spans.iter().filter(|(from, to)| *from <= end && *to > end).map(|(_, to)| *to).max()
        {
            until = Some(later);
        }
        let next = spans.iter().map(|(from, _)| *from).filter(|from| *from > unix_ms).min();
        Opening { is_open, until: until.or(next).unwrap_or(i64::MAX) }
    }

    fn slots(&self, times: &str, unix_ms: i64) -> Slots {
        times::slots(times, unix_ms)
    }
}
