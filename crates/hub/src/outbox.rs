//! What is to be told of jobs: written down with the change that it tells of, brought by a thread for each channel, tried again.
//!
//! Invariant: what a job asked to be told is told at least once, or given up after `TRIES_MAX` tries in a day, which the audit log says;
//! or it was one too many of `ROWS_MAX`, which the hub's own log says.

use crate::audit::Deed;
use crate::channels::{Channels, states};
use crate::delivery::{Message, deliver};
use crate::events::rfc3339;
use crate::job_file::JobFile;
use crate::owner::{Command, Owner};
use crate::{Error, Result, unix_ms};
use model::{Exit, JobId};
use queue::{Job, Now};
use rusqlite::{Connection, params};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tracing::warn;

/// Messages that wait, of all channels.
const ROWS_MAX: i64 = 10_000;
/// Messages that a channel's thread is given ahead.
const AHEAD_MAX: usize = 16;
const LOOK_MS: u64 = 1000;
/// What is waited for after each try that failed.
const PAUSES_S: [i64; 7] = [10, 60, 300, 1800, 7200, 21_600, 43_200];
const TRIES_MAX: usize = PAUSES_S.len() + 1;

pub struct Outgoing {
    pub channel: String,
    pub body: String,
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
    for Outgoing { channel, body } in messages {
        left_out += 1 - connection.prepare_cached(put)?.execute(params![channel, body, now, ROWS_MAX])?;
    }
    Ok(left_out)
}

pub fn note(connection: &Connection, posted: &Posted) -> rusqlite::Result<()> {
    match posted.again {
        None => connection.execute("DELETE FROM outbox WHERE id = ?1", [posted.id])?,
        Some((tries, due)) => connection
            .execute("UPDATE outbox SET tries = ?2, due = ?3 WHERE id = ?1", params![posted.id, tries as i64, due])?,
    };
    Ok(())
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

/// The threads, and what they have.
#[derive(Default)]
pub struct Posting {
    pub channels: Channels,
    threads: HashMap<String, SyncSender<(Message, usize)>>,
    under_way: HashSet<i64>,
    looked_ms: u64,
    /// Open jobs that ask for something.
    watched: HashSet<JobId>,
}

impl Posting {
    pub fn start(channels: Channels, commands: &SyncSender<Command>) -> std::io::Result<Posting> {
        let mut threads = HashMap::new();
        for (name, channel) in channels.iter() {
            let (sender, messages) = sync_channel(AHEAD_MAX);
            let (name, means, commands) = (name.to_owned(), channel.means.clone(), commands.clone());
            let post = {
                let name = name.clone();
                move || post_all(&name, &means, &messages, &commands)
            };
            std::thread::Builder::new().name("channel".into()).spawn(post)?;
            threads.insert(name, sender);
        }
        Ok(Posting { channels, threads, ..Posting::default() })
    }

    pub fn watch(&mut self, id: JobId, file: &JobFile) {
        if !file.notify.is_empty() {
            self.watched.insert(id);
        }
    }
}

fn post_all(
    name: &str,
    means: &crate::channels::Means,
    messages: &Receiver<(Message, usize)>,
    commands: &SyncSender<Command>,
) {
    while let Ok((message, tries)) = messages.recv() {
        let outcome = deliver(means, &message, unix_ms() / 1000);
        let (id, channel) = (message.id, name.to_owned());
        let change = move |owner: &mut Owner, now: Now| {
            owner.posted(now, &channel, id, tries + 1, outcome);
            Box::new(|_: Option<&Error>| {}) as crate::owner::Reply
        };
        if commands.send(Command::Change(Box::new(change))).is_err() {
            return;
        }
    }
}

impl Owner {
    /// What is to be told of changes that are about to be written down.
    pub(crate) fn tell(&mut self, changes: &[Job]) -> Result<()> {
        let mut seen = HashMap::new();
        for job in changes {
            let before = seen.insert(job.id, job.status);
            let is_watched = self.posting.watched.contains(&job.id);
            let mut to: BTreeSet<String> = self.posting.channels.always(job.status).map(str::to_owned).collect();
            if to.is_empty() && !is_watched {
                continue;
            }
            let Some(file) = self.file_of(job.id)? else { continue };
            let before = before.map_or_else(|| self.store.status(job.id), |status| Ok(Some(status)))?;
            if before == Some(job.status) {
                continue;
            }
            let wants = |words: &Vec<String>| states(words).is_ok_and(|states| states.contains(&job.status));
            to.extend(file.notify.iter().filter(|(_, words)| wants(words)).map(|(name, _)| name.clone()));
            if job.status.is_end() {
                self.posting.watched.remove(&job.id);
            }
            let body = message(job, &file).to_string();
            self.group.messages.extend(to.into_iter().map(|channel| Outgoing { channel, body: body.clone() }));
        }
        Ok(())
    }

    fn file_of(&self, id: JobId) -> Result<Option<JobFile>> {
        let new = self.group.new.iter().find(|new| new.id == id);
        match new {
            Some(new) => JobFile::from_json(&new.body).map(Some),
            None => Ok(self.store.job(id)?.map(|stored| stored.file)),
        }
    }

    /// Gives the threads what is due, every second.
    pub(crate) fn post(&mut self, now: Now) -> Result<()> {
        if now.ms < self.posting.looked_ms {
            return Ok(());
        }
        self.posting.looked_ms = now.ms + LOOK_MS;
        for (name, thread) in &self.posting.threads {
            for (id, body, tries) in self.store.due(name, now.unix_ms)? {
                if self.posting.under_way.contains(&id) {
                    continue;
                }
                let subject = subject(&body);
                if thread.try_send((Message { id, body, subject }, tries)).is_err() {
                    break;
                }
                self.posting.under_way.insert(id);
            }
        }
        Ok(())
    }

    fn posted(&mut self, now: Now, channel: &str, id: i64, tries: usize, outcome: std::result::Result<(), String>) {
        self.posting.under_way.remove(&id);
        let again = match &outcome {
            Err(why) if tries < TRIES_MAX => {
                warn!(channel, tries, why, "a message did not arrive and is tried again");
                Some((tries, now.unix_ms + PAUSES_S[tries - 1] * 1000))
            }
            Err(why) => {
                warn!(channel, tries, why, "a message did not arrive and is given up");
                let failed: Result<()> = Err(Error::new(Exit::Unreachable, why.clone()));
                self.group.audit.push(Deed::new("hub", "notify", channel, &failed));
                None
            }
            Ok(()) => None,
        };
        self.group.posted.push(Posted { id, again });
    }
}

fn message(job: &Job, file: &JobFile) -> Value {
    let word = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    json!({"v": 1, "event": "job", "time": rfc3339(unix_ms()), "job": job.id.to_string(), "status": job.status.word(),
        "reason": word(job.reason.word()), "text": word(&job.text), "hint": word(&job.hint), "code": job.code,
        "owner": *job.facts.owner, "source": file.source, "destination": file.destination, "labels": file.labels,
        "attempt": job.attempt, "files": job.work.files_done, "bytes": job.work.bytes_done})
}

/// Made of our own words: no text of others is in a header.
fn subject(body: &str) -> String {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let word = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    format!("thalweg: job {} {}", word("job"), word("status"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{anna, jobs, start, state, until};
    use queue::Verb;

    #[test]
    fn what_a_job_asks_for_is_told_once_and_what_fails_is_tried_again() {
        let dir = state();
        let out = dir.path().join("out");
        let text = format!(
            "[good]\ncommand = [\"/bin/sh\", \"-c\", \"cat >> {}\"]\n[bad]\ncommand = [\"/bin/false\"]\non = [\"cancelled\"]",
            out.display()
        );
        let hub = start(dir.path(), Channels::from_toml(&text).unwrap());
        let file = |notify: &str| {
            JobFile::from_json(&format!(r#"{{"source":"a:x","destination":"b:y","notify":{{{notify}}}}}"#)).unwrap()
        };
        let refused = hub.submit(&anna(), file(r#""none":["ended"]"#), None).unwrap_err();
        assert!(refused.message.contains("no channel none"), "{}", refused.message);
        assert!(hub.submit(&anna(), file(r#""good":["over"]"#), None).is_err());
        let id = hub.submit(&anna(), file(r#""good":["paused","ended"]"#), None).unwrap().id;
        hub.steer(&anna(), id, Verb::Pause, None).unwrap();
        hub.steer(&anna(), id, Verb::Cancel, None).unwrap();
        let told = || -> Vec<Value> {
            let text = std::fs::read_to_string(&out).unwrap_or_default();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        until(|| told().len() == 2);
        assert_eq!((&told()[0]["status"], &told()[1]["status"]), (&json!("paused"), &json!("cancelled")));
        assert_eq!((&told()[1]["job"], &told()[1]["code"]), (&json!(id.to_string()), &json!(45)));
        let rows = || {
            let connection = Connection::open(crate::database::path(dir.path())).unwrap();
            let select = "SELECT channel, tries FROM outbox";
            connection.query_row(select, [], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))).ok()
        };
        // The other channel is told of every job, and does not take it.
        until(|| rows() == Some(("bad".to_owned(), 1)));
        hub.stop();
        drop(hub);
        assert_eq!((told().len(), rows()), (2, Some(("bad".to_owned(), 1))));
        let hub = start(dir.path(), Channels::default());
        assert_eq!(jobs(&hub).len(), 1);
        hub.stop();
    }
}
