//! Who did what, and what came of it: a table of lines, each of which names the SHA-256 of the one before it.
//!
//! A line is written with what it tells of in one transaction. `mark` is a file beside the database that says how far it had come: a
//! database that has fewer lines than it was cut short, or is an older copy. The oldest lines go when there are more than `LINES_MAX`.
//!
//! Invariant: what is found is a line that was changed, removed or put in anywhere, and lines that are missing at the end. Not found is
//! what somebody did who rewrote database and mark from some line on: a digest that is kept elsewhere reveals that.

use crate::database::{of_sqlite, path};
use crate::events::rfc3339;
use crate::{Error, Result};
use model::name::Escaped;
use model::{Exit, mutant};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;

/// Lines that are kept.
const LINES_MAX: i64 = 1_000_000;
const TEXT_BYTES_MAX: usize = 1024;
/// Lines within an hour of one who is no administrator: what they do and what they are refused, each.
const LINES_OF_HOUR: u64 = 1000;
const HOUR_MS: u64 = 3_600_000;
/// Named by the first line of all.
const BEGINNING: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Something that somebody did or tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deed {
    pub who: String,
    pub action: &'static str,
    pub target: String,
    /// An exit code with its text; 0 for what was done.
    pub code: i32,
    pub text: String,
}

impl Deed {
    pub fn new<T>(who: &str, action: &'static str, target: &str, outcome: &Result<T>) -> Deed {
        let (code, text) = outcome.as_ref().err().map_or((0, ""), |e| (e.exit as i32, &e.message[..]));
        Deed { who: who.to_owned(), action, target: target.to_owned(), code, text: text.to_owned() }
    }
}

/// The last line, as the next one names it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Head {
    pub n: i64,
    pub digest: String,
}

impl Default for Head {
    fn default() -> Head {
        Head { n: 0, digest: BEGINNING.to_owned() }
    }
}

fn digest(line: &str) -> String {
    net::sha256(line.as_bytes()).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Foreign text, on one line and of a bounded length.
pub fn shown(text: &str) -> String {
    let mut shown = Escaped(text.as_bytes()).to_string();
    let end = (0..=TEXT_BYTES_MAX.min(shown.len())).rev().find(|end| shown.is_char_boundary(*end));
    shown.truncate(end.unwrap_or(0));
    shown
}

/// How many lines each of those has who are no administrators, so that nobody drives others' out of the log.
#[derive(Default)]
pub struct Quota(HashMap<(String, bool), Hour>);

struct Hour {
    began_ms: u64,
    lines: u64,
}

impl Quota {
    /// Whether there is room for another line. What was refused and what was done are counted apart: neither hides the other.
    pub fn admits(&mut self, who: &str, deed: &Deed, now_ms: u64) -> bool {
        let fresh = Hour { began_ms: now_ms, lines: 0 };
        let hour = self.0.entry((who.to_owned(), deed.code != 0)).or_insert(fresh);
        hour.lines += 1;
        hour.lines <= LINES_OF_HOUR
    }

    /// A line for each who found no room in an hour that is over.
    pub fn left_out(&mut self, now_ms: u64) -> Vec<Deed> {
        let over = self.0.extract_if(|_, hour| hour.began_ms.saturating_add(HOUR_MS) <= now_ms);
        let told = over.filter(|(_, hour)| hour.lines > LINES_OF_HOUR).map(|((who, is_refused), hour)| {
            let what = if is_refused { "that were refused" } else { "that were done" };
            let target = format!("{} more requests {what}", hour.lines - LINES_OF_HOUR);
            Deed { who, action: "left out", target, code: 0, text: String::new() }
        });
        told.collect()
    }
}

pub fn head(connection: &Connection) -> rusqlite::Result<Head> {
    let select = "SELECT n, line FROM audit ORDER BY n DESC LIMIT 1";
    let last: Option<(i64, String)> =
        connection.query_row(select, [], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    Ok(last.map_or_else(Head::default, |(n, line)| Head { n, digest: digest(&line) }))
}

/// Writes lines behind a head, and says which is the head then.
pub fn write(connection: &Connection, mut head: Head, deeds: &[Deed], now: i64) -> rusqlite::Result<Head> {
    for deed in deeds {
        head.n += 1;
        let line = json!({"v": 1, "n": head.n, "time": rfc3339(now), "who": shown(&deed.who), "do": deed.action,
            "target": shown(&deed.target), "code": deed.code, "text": shown(&deed.text), "prev": head.digest})
        .to_string();
        connection.prepare_cached("INSERT INTO audit VALUES (?1, ?2)")?.execute(params![head.n, line])?;
        head.digest = digest(&line);
        if head.n % 1000 == 0 && head.n > LINES_MAX {
            connection.execute("DELETE FROM audit WHERE n <= ?1", [head.n - LINES_MAX])?;
            let set =
                "INSERT INTO meta VALUES ('audit_from', ?1) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
            connection.execute(set, [head.n - LINES_MAX + 1])?;
        }
    }
    Ok(head)
}

/// How far a database had come.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Mark {
    pub event: i64,
    pub audit: Head,
}

impl Mark {
    fn path(state_dir: &Path) -> std::path::PathBuf {
        state_dir.join("hub.mark")
    }

    /// One that cannot be read says nothing.
    pub fn read(state_dir: &Path) -> Option<Mark> {
        serde_json::from_slice(&std::fs::read(Mark::path(state_dir)).ok()?).ok()
    }

    pub fn write(&self, state_dir: &Path) -> std::io::Result<()> {
        use std::io::Write;
        let (path, new) = (Mark::path(state_dir), state_dir.join("hub.mark.new"));
        let mut file = std::fs::File::create(&new)?;
        file.write_all(json!(self).to_string().as_bytes())?;
        file.sync_data()?;
        std::fs::rename(new, path)
    }
}

/// What `verify` found in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verified {
    pub first: i64,
    pub head: Head,
}

/// Looks at each line of a hub's database, which may be in use.
///
/// # Errors
/// Names the first line that does not follow the one before it, or says which are missing.
pub fn verify(state_dir: &Path) -> Result<Verified> {
    let path = path(state_dir);
    let connection = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let mark = Mark::read(state_dir);
    connection.and_then(|connection| look(&connection, mark.as_ref())).map_err(|e| of_sqlite(&path, &e))?
}

fn look(connection: &Connection, mark: Option<&Mark>) -> rusqlite::Result<Result<Verified>> {
    let from = "SELECT coalesce((SELECT value FROM meta WHERE name = 'audit_from'), 1)";
    let first: i64 = connection.query_row(from, [], |row| row.get(0))?;
    let mut found: Option<Head> = None;
    let mut marked = mark.is_none_or(|mark| mark.audit.n < first);
    let wrong = |n: i64, why: &str| {
        Ok(Err(Error::new(Exit::Failed, format!("line {n} of the audit log {why}"))
            .hint("somebody changed it: the lines before are as they were written")))
    };
    let mut select = connection.prepare("SELECT n, line FROM audit ORDER BY n")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (n, line): (i64, String) = (row.get(0)?, row.get(1)?);
        let expected = found.as_ref().map_or(first, |head| head.n + 1);
        if n != expected && !mutant::is_on("audit-gaps") {
            return wrong(expected, "is missing");
        }
        let value: Value = serde_json::from_str(&line).unwrap_or_default();
        let prev = value["prev"].as_str().unwrap_or_default();
        let follows = found.as_ref().map_or(n > 1 || prev == BEGINNING, |head| head.digest == prev);
        if !follows || value["n"] != json!(n) {
            return wrong(n, "does not follow the one before it");
        }
        let head = Head { n, digest: digest(&line) };
        marked |= mark.is_some_and(|mark| mark.audit == head);
        found = Some(head);
    }
    let head = found.unwrap_or_default();
    match mark {
        Some(mark) if !marked && head.n < mark.audit.n => wrong(
            head.n + 1,
            &format!(
                "is missing, and so are all up to line {}: they were cut off, or the database is an older copy",
                mark.audit.n
            ),
        ),
        Some(mark) if !marked => wrong(mark.audit.n, "is not the one that was written"),
        _ => Ok(Ok(Verified { first, head })),
    }
}

/// Which lines somebody asks for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Behind this one, in the order that is asked for.
    pub after: Option<i64>,
    pub limit: usize,
    pub is_newest_first: bool,
    /// Part of the line, in letters of either case.
    pub text: Option<String>,
}

pub fn lines(connection: &Connection, wanted: &Wanted) -> rusqlite::Result<Vec<Value>> {
    let (comparison, order) = if wanted.is_newest_first { ("<", "DESC") } else { (">", "ASC") };
    let mut select = connection.prepare_cached(&format!(
        "SELECT line FROM audit WHERE (?1 IS NULL OR n {comparison} ?1) AND (?2 IS NULL OR instr(lower(line), lower(?2)) > 0)
        ORDER BY n {order} LIMIT ?3"
    ))?;
    let rows =
        select.query_map(params![wanted.after, wanted.text, wanted.limit as i64], |row| row.get::<_, String>(0))?;
    rows.map(|line| line.map(|line| serde_json::from_str(&line).unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Group, Store};

    fn deed(target: &str) -> Deed {
        Deed::new("anna", "submit", target, &Ok(()))
    }

    /// A log of nine lines, of several transactions.
    fn log() -> (tempfile::TempDir, Connection) {
        let dir = tempfile::tempdir().unwrap();
        for run in 0..3 {
            let mut store = Store::open(dir.path()).unwrap();
            for n in 0..3 {
                let audit = vec![deed(&format!("job {run} {n}"))];
                store.commit(&Group { audit, ..Group::default() }).unwrap();
            }
            store.mark_now();
        }
        let connection = Connection::open(path(dir.path())).unwrap();
        (dir, connection)
    }

    #[test]
    fn a_log_that_nobody_touched_is_found_whole() {
        let (dir, connection) = log();
        let found = verify(dir.path()).unwrap();
        assert_eq!((found.first, found.head.n), (1, 9));
        let of = |after, limit, is_newest_first, text: Option<&str>| {
            lines(&connection, &Wanted { after, limit, is_newest_first, text: text.map(str::to_owned) }).unwrap()
        };
        let all = of(None, 100, false, None);
        assert_eq!((all.len(), &all[4]["target"], &all[4]["who"]), (9, &json!("job 1 1"), &json!("anna")));
        assert_eq!(of(Some(7), 1, false, None)[0]["n"], 8);
        let numbers = |found: Vec<Value>| found.iter().map(|line| line["n"].as_i64().unwrap()).collect::<Vec<_>>();
        assert_eq!(numbers(of(None, 2, true, None)), [9, 8]);
        assert_eq!(numbers(of(Some(8), 100, true, Some("JOB 1"))), [6, 5, 4]);
        assert!(of(None, 100, true, Some("nobody%")).is_empty());
    }

    #[test]
    fn a_line_that_was_changed_removed_or_cut_off_is_found() {
        for (change, line) in [
            ("UPDATE audit SET line = replace(line, 'anna', 'bert') WHERE n = 4", 5),
            ("UPDATE audit SET line = replace(line, 'anna', 'bert') WHERE n = 9", 9),
            ("DELETE FROM audit WHERE n = 4", 4),
            ("DELETE FROM audit WHERE n = 1", 1),
            ("DELETE FROM audit WHERE n = 9", 9),
            ("DELETE FROM audit WHERE n > 3", 4),
            ("DELETE FROM audit", 1),
            ("UPDATE audit SET n = 20 WHERE n = 9", 9),
            ("INSERT INTO audit SELECT 10, line FROM audit WHERE n = 9", 10),
        ] {
            let (dir, connection) = log();
            connection.execute(change, []).unwrap();
            let error = verify(dir.path()).unwrap_err();
            assert!(error.message.contains(&format!("line {line} ")), "{change}: {}", error.message);
        }
    }

    #[test]
    fn foreign_text_stays_on_its_line_and_is_cut() {
        let long = "é\n".repeat(2000);
        let text = shown(&long);
        assert!(text.len() <= TEXT_BYTES_MAX && !text.contains('\n'));
        assert_eq!(shown(&"\x01".repeat(2000)).len(), TEXT_BYTES_MAX);
    }

    #[test]
    fn a_flood_of_requests_leaves_room_for_others_and_is_counted() {
        let mut quota = Quota::default();
        let refused = Deed { code: 1, ..deed("x") };
        let admitted = (0..LINES_OF_HOUR + 7).filter(|_| quota.admits("anna", &refused, 0)).count();
        assert_eq!(admitted as u64, LINES_OF_HOUR);
        assert!(quota.admits("anna", &deed("x"), 0) && quota.admits("bert", &refused, 0));
        assert_eq!(quota.left_out(HOUR_MS - 1), []);
        let left_out = quota.left_out(HOUR_MS);
        assert_eq!(left_out.len(), 1);
        assert_eq!((&left_out[0].who[..], &left_out[0].target[..]), ("anna", "7 more requests that were refused"));
        assert!(quota.admits("anna", &refused, HOUR_MS) && quota.left_out(HOUR_MS).is_empty());
    }
}
