//! Handing jobs in: one, or a batch that is taken whole or not at all.

use crate::access::Principal;
use crate::hub::Hub;
use crate::intake::{After, Submission};
use crate::job_file::{BODY_BYTES_MAX, JobFile};
use crate::{Error, Result};
use model::{Exit, JobId};
use std::collections::HashMap;

/// Jobs of one batch.
pub const BATCH_JOBS_MAX: usize = 10_000;
const KEY_BYTES_MAX: usize = 128;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    New,
    /// It was there already: by its key, or as an open job that asks for the same.
    Known,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submitted {
    pub id: JobId,
    pub taken: Taken,
}

/// For the audit log.
fn first_and_last(taken: &Result<Vec<(JobId, bool)>>) -> String {
    match taken.as_deref() {
        Ok([(only, _)]) => only.to_string(),
        Ok([(first, _), .., (last, _)]) => {
            format!("{} jobs, {first} to {last}", taken.as_ref().map_or(0, Vec::len))
        }
        _ => String::new(),
    }
}

impl Hub {
    /// Durable when this returns. The same key with the same job is the same job.
    pub fn submit(&self, who: &Principal, file: JobFile, key: Option<&str>) -> Result<Submitted> {
        let mut taken = self.take(who, vec![file], key)?;
        taken.pop().ok_or_else(|| Error::new(Exit::Fatal, "no answer for a job"))
    }

    /// All of them or none; in the order given. With a key, each has it with its position.
    pub fn batch(&self, who: &Principal, files: Vec<JobFile>, key: Option<&str>) -> Result<Vec<Submitted>> {
        if files.is_empty() {
            return Err(wrong("a batch without a job", "write one JSON object a line"));
        }
        if files.len() > BATCH_JOBS_MAX {
            return Err(wrong(format!("a batch of {} jobs is too large", files.len()), "give at most 10,000 at once"));
        }
        self.take(who, files, key)
    }

    fn take(&self, who: &Principal, files: Vec<JobFile>, key: Option<&str>) -> Result<Vec<Submitted>> {
        if key.is_some_and(|key| key.is_empty() || key.len() > KEY_BYTES_MAX) {
            return Err(wrong("a key has 1 to 128 bytes", "a random word is best"));
        }
        let is_batch = files.len() > 1;
        let order = in_order(&files)?;
        let mut place = vec![0; files.len()];
        order.iter().enumerate().for_each(|(new, old)| place[*old] = new);
        let names: HashMap<&str, usize> =
            files.iter().enumerate().filter_map(|(at, file)| Some((file.name.as_deref()?, at))).collect();
        let mut jobs = Vec::with_capacity(files.len());
        for old in &order {
            let file = &files[*old];
            let at =
                |e: Error| if is_batch { Error { message: format!("job {}: {}", old + 1, e.message), ..e } } else { e };
            let wish = file.wish(&who.name).map_err(at)?;
            if !who.is_admin() {
                self.inner.access.check(&who.name, &wish).map_err(at)?;
            }
            let body = serde_json::to_string(file).unwrap_or_default();
            if body.len() > BODY_BYTES_MAX {
                return Err(wrong("the job is larger than 256 KiB", "list fewer paths in one job"));
            }
            let mut after = Vec::new();
            for text in file.after.iter().filter(|_| !file.is_rehearsal()) {
                after.push(match (names.get(text.as_str()), JobId::from_hex(text)) {
                    (Some(position), _) => After::Here(place[*position]),
                    (None, Some(id)) => After::Job(id),
                    (None, None) => {
                        return Err(at(wrong(
                            format!("after = {text:?} is neither the id of a job nor the name of one here"),
                            "`thalweg job ls` lists the ids",
                        )));
                    }
                });
            }
            let digest = net::sha256(body.as_bytes());
            let key = key.map(|key| if is_batch { format!("{key}#{old}") } else { key.to_owned() });
            let key = key.map(|key| (key, digest));
            jobs.push(Submission { owner: who.name.clone(), file: file.clone(), wish, body, key, after });
        }
        let taken = self.carry_out(&who.name, "submit", first_and_last, move |owner, now| owner.submit(now, jobs))?;
        let of = |new: usize| {
            let (id, is_new) = taken[new];
            Submitted { id, taken: if is_new { Taken::New } else { Taken::Known } }
        };
        Ok(place.into_iter().map(of).collect())
    }
}

fn wrong(text: impl Into<String>, hint: &str) -> Error {
    Error::new(Exit::Usage, text).hint(hint)
}

/// Positions, those that others come after before them.
fn in_order(files: &[JobFile]) -> Result<Vec<usize>> {
    let mut names: HashMap<&str, usize> = HashMap::new();
    for (at, file) in files.iter().enumerate() {
        if let Some(name) = &file.name
            && names.insert(name, at).is_some()
        {
            return Err(wrong(format!("two jobs of the batch are called {name}"), "give each a name of its own"));
        }
    }
    let mut left: Vec<usize> = vec![0; files.len()];
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); files.len()];
    for (at, file) in files.iter().enumerate() {
        for before in file.after.iter().filter_map(|name| names.get(name.as_str())) {
            left[at] += 1;
            followers[*before].push(at);
        }
    }
    let mut order: Vec<usize> = (0..files.len()).filter(|at| left[*at] == 0).collect();
    let mut next = 0;
    while let Some(at) = order.get(next).copied() {
        next += 1;
        for follower in &followers[at] {
            left[*follower] -= 1;
            if left[*follower] == 0 {
                order.push(*follower);
            }
        }
    }
    if order.len() == files.len() {
        return Ok(order);
    }
    let in_loop: Vec<&str> = files
        .iter()
        .zip(&left)
        .filter(|(_, left)| **left > 0)
        .filter_map(|(file, _)| file.name.as_deref())
        .take(5)
        .collect();
    Err(wrong(format!("jobs come after each other in a loop: {}", in_loop.join(", ")), "no job can come after itself"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, after: &[&str]) -> JobFile {
        let mut file = JobFile::from_json(r#"{"source":"a:x","destination":"b:y"}"#).unwrap();
        file.name = Some(name.to_owned());
        file.after = after.iter().map(|name| (*name).to_owned()).collect();
        file
    }

    #[test]
    fn a_batch_is_put_in_order_and_a_loop_is_refused() {
        assert_eq!(in_order(&[file("c", &["b"]), file("b", &["a"]), file("a", &[])]).unwrap(), [2, 1, 0]);
        let refused = in_order(&[file("a", &["b"]), file("b", &["a"]), file("c", &[])]).unwrap_err();
        assert!(refused.message.contains("in a loop: a, b"), "{refused:?}");
        assert!(in_order(&[file("a", &["a"])]).unwrap_err().message.contains("loop"));
        assert!(in_order(&[file("a", &[]), file("a", &[])]).unwrap_err().message.contains("two jobs"));
    }
}
