//! Everything a person or a program reads: standard output carries data, standard error carries talk.
//!
//! Nothing outside this folder prints. A reader that goes away (a closed pipe) is a normal end of output, never an error; data
//! that cannot be written otherwise is one, whatever the command itself came to.

pub mod changes;
pub mod human;
pub mod json;
pub mod list;
pub mod meant;
pub mod progress;
pub mod report;

use crate::exit::{self, Error};
use model::name::Escaped;
pub use model::quantity::{counted, duration, grouped};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use transfer::Ended;

/// Where lines of data go instead, once set.
static ELSEWHERE: OnceLock<LineSink> = OnceLock::new();

/// Takes a line; false when nobody reads any more.
pub type LineSink = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// Sends every line of data from here on somewhere else than to standard output. Only the first call counts.
pub fn send_elsewhere(sink: LineSink) {
    let _ = ELSEWHERE.set(sink);
}

/// Set when data for standard output is lost, as on a full disk behind a redirection.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Why data for standard output was not written. A reader that went away has seen enough, and nothing is lost then.
pub fn lost() -> Option<&'static io::Error> {
    LOST.get()
}

/// True when it was written.
fn is_written(written: io::Result<()>) -> bool {
    let Err(e) = written else { return true };
    if e.kind() != io::ErrorKind::BrokenPipe {
        let _ = LOST.set(e);
    }
    false
}

/// A line of data. False when nobody reads any more.
pub fn line(text: &str) -> bool {
    if let Some(sink) = ELSEWHERE.get() {
        return sink(text);
    }
    let mut out = std::io::stdout().lock();
    is_written(writeln!(out, "{text}").and_then(|()| out.flush()))
}

/// Data of several lines. False when nobody reads any more.
pub fn text(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    is_written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Set when the reader of standard output has gone away.
static NOBODY_READS: AtomicBool = AtomicBool::new(false);

/// Whether the reader of copied data has gone away, as `head` does when it has seen enough.
pub fn nobody_reads() -> bool {
    NOBODY_READS.load(Relaxed)
}

/// Standard output as the destination of a copy.
pub struct Data;

impl Write for Data {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        note_reader(std::io::stdout().lock().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        note_reader(std::io::stdout().lock().flush())
    }
}

fn note_reader<T>(written: io::Result<T>) -> io::Result<T> {
    written.inspect_err(|e| {
        if e.kind() == io::ErrorKind::BrokenPipe {
            NOBODY_READS.store(true, Relaxed);
        }
    })
}

/// A line of talk.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// The two lines of an error: what failed, what to do.
pub fn error(error: &Error) {
    let hint = error.hint.as_deref().unwrap_or_else(|| exit::hint_for(error.exit));
    let _ = write!(std::io::stderr().lock(), "error: {}\nhint: {hint}\n", readable(&error.message));
}

/// A message in which no path is longer than anyone reads: of a long one its beginning and its end stay. Whoever names it knows
/// the rest, and events of `--json` have it whole.
fn readable(message: &str) -> String {
    /// A name of 255 bytes stays whole, and so does a path of some names.
    const PART_CHARS_MAX: usize = 320;
    const HEAD_CHARS: usize = 80;
    const TAIL_CHARS: usize = 60;
    let short = |part: &str| {
        let chars: Vec<char> = part.chars().collect();
        if chars.len() <= PART_CHARS_MAX {
            return part.to_owned();
        }
        let (head, tail) = (&chars[..HEAD_CHARS], &chars[chars.len() - TAIL_CHARS..]);
        let left_out = chars.len() - HEAD_CHARS - TAIL_CHARS;
        format!("{}[... {left_out} characters ...]{}", String::from_iter(head), String::from_iter(tail))
    };
    // A path may hold blanks, but what an error says around it has a colon and a blank.
    message.split(": ").map(short).collect::<Vec<_>>().join(": ")
}

/// A store has taken content without comparing it with its checksum.
pub fn is_unverified(ended: &Ended) -> bool {
    ended.report.iter().flat_map(|report| &report.warnings).any(|warning| warning.text == store::UNVERIFIED)
}

/// A path so that it cannot harm a terminal.
pub fn shown(path: impl AsRef<OsStr>) -> String {
    Escaped(path.as_ref().as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_in_an_error_keeps_its_beginning_and_its_end() {
        let path = format!("/first{}/last", "/d".repeat(2000));
        let shown = readable(&format!("make directory {path}: File name too long"));
        assert!(
            shown.starts_with("make directory /first/d/d") && shown.ends_with("/d/last: File name too long"),
            "{shown}"
        );
        assert!(shown.contains("[... 3886 characters ...]") && shown.len() < 250, "{shown}");
        let name = format!("read {}: why", "n".repeat(255));
        assert_eq!(readable(&name), name);
    }
}
