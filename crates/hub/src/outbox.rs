//! What is to be told of jobs: written down with the change that it tells of, brought by a thread for each channel, tried again.
//!
//! Invariants: what a job asked to be told is told at least once, or given up after `TRIES_MAX` tries in a day, which the audit log says;
//! or it was one too many of `ASKED_MAX`, which the hub's own log says; or its channel was taken away, which the audit log says. What
//! jobs ask for leaves room for what is told of every job.

use crate::channels::{Channels, Means};
use crate::delivery::{Message, deliver};
use crate::job_file::JobFile;
use crate::unix_ms;
use model::JobId;
use rusqlite::{Connection, params};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Messages that wait, of all channels.
const ROWS_MAX: i64 = 10_000;
/// Where so many wait, none is added that a job asked for.
const ASKED_MAX: i64 = ROWS_MAX / 2;
/// Messages that a channel's thread is given ahead.
const AHEAD_MAX: usize = 16;
/// What is waited for after each try that failed.
pub const PAUSES_S: [i64; 7] = [10, 60, 300, 1800, 7200, 21_600, 43_200];
pub const TRIES_MAX: usize = PAUSES_S.len() + 1;

pub struct Outgoing {
    pub channel: String,
    pub body: String,
    /// By its job; otherwise the channel is told of every job.
    pub is_asked_for: bool,
}

/// A try was made: the message goes, or is tried again.
pub struct Posted {
    pub id: i64,
    pub again: Option<(usize, i64)>,
}

/// How many found no room.
pub fn put(connection: &Connection, messages: &[Outgoing], now: i64) -> rusqlite::Result<usize> {
    let put = "INSERT INTO outbox (channel, body, made, tries, due) SELECT ?1, ?2, ?3, 0, ?3
        WHERE (SELECT count(*) FROM outbox) < ?4";
    let mut left_out = 0;
    for Outgoing { channel, body, is_asked_for } in messages {
        let rows_max = if *is_asked_for { ASKED_MAX } else { ROWS_MAX };
        left_out += 1 - connection.prepare_cached(put)?.execute(params![channel, body, now, rows_max])?;
    }
    Ok(left_out)
}

/// Gives the messages that come numbers from beyond this one.
pub fn number_from(connection: &Connection, from: i64) -> rusqlite::Result<()> {
    let there = "INSERT INTO sqlite_sequence (name, seq) SELECT 'outbox', 0
        WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'outbox')";
    connection.execute(there, [])?;
    connection.execute("UPDATE sqlite_sequence SET seq = max(seq, ?1) WHERE name = 'outbox'", [from]).map(drop)
}

pub fn note(connection: &Connection, posted: &Posted) -> rusqlite::Result<()> {
    match posted.again {
        None => connection.execute("DELETE FROM outbox WHERE id = ?1", [posted.id])?,
        Some((tries, due)) => connection
            .execute("UPDATE outbox SET tries = ?2, due = ?3 WHERE id = ?1", params![posted.id, tries as i64, due])?,
    };
    Ok(())
}

/// All that wait, each with its channel.
pub fn waiting(connection: &Connection) -> rusqlite::Result<Vec<(i64, String)>> {
    let mut select = connection.prepare_cached("SELECT id, channel FROM outbox")?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

/// The messages of a channel that are due, with the tries that were made.
pub fn due(connection: &Connection, channel: &str, now: i64) -> rusqlite::Result<Vec<(i64, String, usize)>> {
    let select = "SELECT id, body, tries FROM outbox WHERE channel = ?1 AND due <= ?2 ORDER BY id LIMIT ?3";
    let mut select = connection.prepare_cached(select)?;
    let rows = select.query_map(params![channel, now, 2 * AHEAD_MAX as i64], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)? as usize))
    })?;
    rows.collect()
}

/// What came of a try.
pub struct Outcome {
    pub channel: String,
    pub id: i64,
    pub tries: usize,
    pub of: std::result::Result<(), String>,
}

/// By whom the outcome is heard.
pub type Tell = dyn Fn(Outcome) + Send + Sync;

/// The threads, and what they have.
#[derive(Default)]
pub struct Posting {
    pub channels: Channels,
    pub threads: HashMap<String, SyncSender<(Message, usize)>>,
    pub under_way: HashSet<i64>,
    pub looked_ms: u64,
    /// Open jobs that ask for something.
    pub watched: HashSet<JobId>,
}

impl Posting {
    pub fn start(channels: Channels, tell: &Arc<Tell>) -> std::io::Result<Posting> {
        let mut threads = HashMap::new();
        for (name, channel) in channels.iter() {
            let (sender, messages) = sync_channel(AHEAD_MAX);
            let (name, means, tell) = (name.to_owned(), channel.means.clone(), tell.clone());
            let post = {
                let name = name.clone();
                move || post_all(&name, &means, &messages, &*tell)
            };
            std::thread::Builder::new().name("channel".into()).spawn(post)?;
            threads.insert(name, sender);
        }
        Ok(Posting { channels, threads, ..Posting::default() })
    }

    /// Of a rehearsal nothing is told.
    pub fn watch(&mut self, id: JobId, file: &JobFile) {
        if !file.notify.is_empty() && !file.is_rehearsal() {
            self.watched.insert(id);
        }
    }
}

fn post_all(name: &str, means: &Means, messages: &Receiver<(Message, usize)>, tell: &Tell) {
    while let Ok((message, tries)) = messages.recv() {
        tell(Outcome {
            channel: name.to_owned(),
            id: message.id,
            tries: tries + 1,
            of: deliver(means, &message, unix_ms() / 1000),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_jobs_ask_for_leaves_room_for_what_is_told_of_every_job() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(concat!(include_str!("schema_1.sql"), include_str!("schema_2.sql"))).unwrap();
        let fill = "WITH RECURSIVE rows (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM rows WHERE n < ?1)
            INSERT INTO outbox (channel, body, made, tries, due) SELECT 'ops', '', 0, 0, 0 FROM rows";
        connection.execute(fill, [ASKED_MAX]).unwrap();
        let left_out = |is_asked_for: bool| {
            let message = || Outgoing { channel: "ops".to_owned(), body: String::new(), is_asked_for };
            put(&connection, &[message(), message(), message()], 0).unwrap()
        };
        assert_eq!((left_out(true), left_out(false), left_out(true)), (2, 0, 3));
    }
}
