//! Finding out what a server does with requests that change something: servers differ, and their names tell nothing.
//!
//! XRootD 5.5 takes the escapes of a `Destination` for themselves, and replaces although it was told `Overwrite: F`.
//!
//! Invariant: what the trial writes lies under names of staging, and is removed.

use crate::failure::{Failure, Result, Why};
use crate::habits::{Habits, STAGED_PREFIX, mark};
use crate::path;
use crate::site::Site;
use std::time::{SystemTime, UNIX_EPOCH};

/// A modification time that the server would never choose for a file.
const TIME: i64 = 1_000_000_000;

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

impl Site {
    /// What the server does, tried once in a directory where this process may write.
    pub fn habits(&self, directory: &[u8]) -> Result<Habits> {
        if let Some(known) = self.habits.get() {
            return Ok(*known);
        }
        let mark = mark();
        let name = |end: &str| path::below(directory, format!("{STAGED_PREFIX}{mark}{end}").as_bytes());
        let (first, second, plain) = (name("-1"), name("-2"), name("-3 x"));
        // What the last one is called where escapes stand for themselves.
        let odd = path::encoded(&plain).into_bytes();
        let tried = self.tried(&first, &second, &plain, &odd);
        for path in [&first, &second, &plain, &odd] {
            let _ = self.delete(path);
        }
        let habits = tried?;
        if !habits.decodes {
            self.remove_strays(&odd, directory);
        }
        Ok(*self.habits.get_or_init(|| habits))
    }

    /// Removes directories that a server made because it took escapes for themselves; they are none of the way to `directory`.
    fn remove_strays(&self, odd: &[u8], directory: &[u8]) {
        let mut at = odd;
        while let Some(slash) = at.iter().rposition(|byte| *byte == b'/').filter(|slash| *slash > 0) {
            at = &at[..slash];
            let is_way = directory == at || directory.starts_with(&[at, b"/"].concat());
            if is_way || self.remove_one(at, true).is_err() {
                return;
            }
        }
    }

    fn tried(&self, first: &[u8], second: &[u8], plain: &[u8], odd: &[u8]) -> Result<Habits> {
        let time = [("X-OC-Mtime", TIME.to_string())];
        let began = now();
        self.put(first, &time, b"probe")?;
        let there = self.stat(first)?;
        let takes_times = there.modified == TIME;
        self.put(second, &[], b"probe")?;
        let ahead_seconds = match self.stat(second)?.modified {
            0 => 0,
            stored => stored - (began + now()) / 2,
        };
        let habits = Habits { decodes: true, keeps: false, takes_times, ahead_seconds };
        let moved = match self.move_to(first, plain, &habits, true) {
            Err(failure) if failure.why != Why::Unknown => return Err(failure),
            moved => moved,
        };
        // Where the file is now is looked for even if the answer does not tell whether it was renamed.
        let decodes = self.find(plain)?.is_some();
        if !decodes && self.find(odd)?.is_none() {
            moved?;
            return Err(Failure::new(Why::Other, "the server says that it renamed a file, and the file is gone"));
        }
        let habits = Habits { decodes, ..habits };
        let keeps = match self.move_to(second, if decodes { plain } else { odd }, &habits, false) {
            Ok(()) => false,
            Err(failure) if failure.why == Why::Changed => true,
            // It is not relied on: each name is looked at first.
            Err(failure) if failure.why == Why::Unknown => false,
            Err(failure) => return Err(failure),
        };
        Ok(Habits { keeps, ..habits })
    }
}
