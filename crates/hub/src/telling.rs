//! What is told of which change, to whom, and what became of each try.

use crate::audit::Deed;
use crate::channels::states;
use crate::delivery::{Message, webhook_id};
use crate::events::rfc3339;
use crate::job_file::JobFile;
use crate::outbox::{Outcome, Outgoing, PAUSES_S, Posted, TRIES_MAX};
use crate::owner::Owner;
use crate::{Error, Result, unix_ms};
use model::quantity::counted;
use model::{Exit, JobId};
use queue::{Job, Now};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use tracing::warn;

const LOOK_MS: u64 = 1000;

impl Owner {
    /// What is to be told of changes that are about to be written down.
    pub(crate) fn tell(&mut self, changes: &[Job]) -> Result<()> {
        let mut seen = HashMap::new();
        // Nothing was copied by a rehearsal, and whoever is told of its end would act as if it had been.
        for job in changes.iter().filter(|job| !job.facts.is_rehearsal) {
            let before = seen.insert(job.id, job.status);
            let is_watched = self.posting.watched.contains(&job.id);
            // With whether the job has to ask for it.
            let always = self.posting.channels.always(job.status).map(|name| (name.to_owned(), false));
            let mut to: BTreeMap<String, bool> = always.collect();
            if to.is_empty() && !is_watched {
                continue;
            }
            let Some(file) = self.file_of(job.id)? else { continue };
            let before = before.map_or_else(|| self.store.status(job.id), |status| Ok(Some(status)))?;
            if before == Some(job.status) {
                continue;
            }
            let wants = |words: &Vec<String>| states(words).is_ok_and(|states| states.contains(&job.status));
            // A channel may have been taken away since the job was handed in.
            let has = |name: &String| self.posting.threads.contains_key(name);
            for (name, _) in file.notify.iter().filter(|(name, words)| has(name) && wants(words)) {
                to.entry(name.clone()).or_insert(true);
            }
            let body = message(job, &file).to_string();
            let outgoing = |(channel, is_asked_for)| Outgoing { channel, body: body.clone(), is_asked_for };
            self.group.messages.extend(to.into_iter().map(outgoing));
        }
        for job in changes.iter().filter(|job| job.status.is_end()) {
            // One that was retried since is open.
            if self.queue.get(job.id).is_none() {
                self.posting.watched.remove(&job.id);
            }
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

    /// Gives up what waits for channels that were taken away.
    pub(crate) fn give_up_unknown(&mut self) -> Result<()> {
        let mut unknown: BTreeMap<String, usize> = BTreeMap::new();
        for (id, channel) in self.store.waiting()? {
            if !self.posting.threads.contains_key(&channel) {
                *unknown.entry(channel).or_default() += 1;
                self.group.posted.push(Posted { id, again: None });
            }
        }
        for (channel, messages) in unknown {
            let given_up = counted(messages as u64, "message", "messages");
            let text = format!("the hub no longer has the channel {channel}: {given_up} given up");
            let failed: Result<()> = Err(Error::new(Exit::Unreachable, text));
            self.group.audit.push(Deed::new("hub", "notify", &channel, &failed));
        }
        Ok(())
    }

    /// Gives the threads what is due, every second.
    pub(crate) fn post(&mut self, now: Now) -> Result<()> {
        if now.ms < self.posting.looked_ms {
            return Ok(());
        }
        self.posting.looked_ms = now.ms + LOOK_MS;
        let pin = self.identity.pin();
        for (name, thread) in &self.posting.threads {
            for (id, body, tries) in self.store.due(name, now.unix_ms)? {
                if self.posting.under_way.contains(&id) {
                    continue;
                }
                let (subject, webhook_id) = (subject(&body), webhook_id(pin, id));
                if thread.try_send((Message { id, webhook_id, body, subject }, tries)).is_err() {
                    break;
                }
                self.posting.under_way.insert(id);
            }
        }
        Ok(())
    }

    pub(crate) fn posted(&mut self, now: Now, outcome: Outcome) {
        let Outcome { channel, id, tries, of: outcome } = outcome;
        self.posting.under_way.remove(&id);
        let again = match &outcome {
            Err(why) if tries < TRIES_MAX => {
                warn!(channel, tries, why, "a message did not arrive and is tried again");
                Some((tries, now.unix_ms + PAUSES_S[tries - 1] * 1000))
            }
            Err(why) => {
                warn!(channel, tries, why, "a message did not arrive and is given up");
                let failed: Result<()> = Err(Error::new(Exit::Unreachable, why.clone()));
                self.group.audit.push(Deed::new("hub", "notify", &channel, &failed));
                None
            }
            Ok(()) => None,
        };
        self.group.posted.push(Posted { id, again });
    }
}

fn message(job: &Job, file: &JobFile) -> Value {
    let word = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    json!({"v": 1, "event": "job", "time": rfc3339(unix_ms()), "job": job.id.to_string(), "kind": file.kind,
        "status": job.status.word(), "reason": word(job.reason.word()), "text": word(&job.text), "hint": word(&job.hint), "code": job.code,
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
    use crate::audit::Wanted;
    use crate::channels::Channels;
    use crate::scene::{anna, jobs, start, state, until};
    use queue::Verb;
    use rusqlite::Connection;

    #[test]
    fn nobody_is_told_of_a_rehearsal() {
        let dir = state();
        let text = "[all]\ncommand = [\"/bin/false\"]\non = [\"cancelled\"]\n[asked]\ncommand = [\"/bin/false\"]";
        let channels = || Channels::from_toml(text).unwrap();
        let file = |options: &str| {
            let more = format!(r#""options":{options},"notify":{{"asked":["ended"]}}"#);
            JobFile::from_json(&format!(r#"{{"source":"a:x","destination":"b:y",{more}}}"#)).unwrap()
        };
        let hub = start(dir.path(), channels());
        let [rehearsal, job] =
            [r#"{"dry-run":true}"#, "{}"].map(|options| hub.submit(&anna(), file(options), None).unwrap().id);
        hub.stop();
        drop(hub);
        let hub = start(dir.path(), channels());
        let told = || -> Vec<Value> {
            let connection = Connection::open(crate::database::path(dir.path())).unwrap();
            let mut select = connection.prepare("SELECT body FROM outbox").unwrap();
            let bodies = select.query_map([], |row| row.get::<_, String>(0)).unwrap();
            bodies.map(|body| serde_json::from_str(&body.unwrap()).unwrap()).collect()
        };
        hub.steer(&anna(), rehearsal, Verb::Cancel, None).unwrap();
        assert!(told().is_empty(), "{:?}", told());
        // Of the job itself both channels are told, and do not take it.
        hub.steer(&anna(), job, Verb::Cancel, None).unwrap();
        let told = told();
        assert!(told.len() == 2 && told.iter().all(|one| one["kind"] == "copy"), "{told:?}");
        hub.stop();
    }

    #[test]
    fn a_job_that_was_retried_before_its_end_was_written_down_is_told_of_again() {
        let dir = state();
        let hub = start(dir.path(), Channels::from_toml("[ops]\ncommand = [\"/bin/false\"]").unwrap());
        let text = r#"{"source":"a:x","destination":"b:y","notify":{"ops":["ended"]}}"#;
        let id = hub.submit(&anna(), JobFile::from_json(text).unwrap(), None).unwrap().id;
        let steered = hub.look(move |owner| {
            let now = owner.now();
            [Verb::Cancel, Verb::Retry].map(|verb| owner.steer(now, id, verb, None).is_ok())
        });
        assert_eq!(steered.unwrap(), [true; 2]);
        hub.steer(&anna(), id, Verb::Cancel, None).unwrap();
        let connection = Connection::open(crate::database::path(dir.path())).unwrap();
        let told: i64 = connection.query_row("SELECT count(*) FROM outbox", [], |row| row.get(0)).unwrap();
        assert_eq!(told, 2);
        hub.stop();
    }

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
        // Without its channels it gives up what waits for them, once.
        for _ in 0..2 {
            let hub = start(dir.path(), Channels::default());
            assert_eq!(jobs(&hub).len(), 1);
            let again = hub.steer(&anna(), id, Verb::Retry, None);
            again.and_then(|()| hub.steer(&anna(), id, Verb::Pause, None)).unwrap();
            hub.steer(&anna(), id, Verb::Cancel, None).unwrap();
            let wanted = Wanted {
                limit: 100,
                text: Some("no longer has the channel bad: 1 message".into()),
                ..Wanted::default()
            };
            assert_eq!((rows(), hub.audit(&anna(), &wanted).unwrap().len()), (None, 1));
            hub.stop();
        }
    }
}
