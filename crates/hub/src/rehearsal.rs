//! Rehearsals: what a job would do, found out by its endpoints without doing it, and how long it would take.
//!
//! A rehearsal is a job with the option `dry-run`; what only says when a job runs is left out of it. Invariant: what is handed in
//! from a rehearsal is the job that was rehearsed, and nothing else.
//!
//! Not here: looking (the endpoints' rehearsing sinks), and waiting (`queue`).

use crate::access::Principal;
use crate::hub::Hub;
use crate::job_file::JobFile;
use crate::reader::Moved;
use crate::submission::Submitted;
use crate::{Error, Result, unix_ms};
use model::{Exit, JobId};
use serde::Serialize;
use serde_json::Value;

/// How long what was seen may be acted on.
const VALID_MS: i64 = 3_600_000;
/// Jobs of the same two endpoints that a time is predicted from, and how many of them are most like it.
pub const PAST_MAX: usize = 200;
const LIKE_MAX: usize = 15;
/// What a file costs beside its bytes, as turns count it.
const FILE_BYTES: f64 = 262_144.0;

/// What a job would do.
#[derive(Clone, Debug, Serialize)]
pub struct RehearsalView {
    pub id: String,
    pub status: String,
    /// The job that was rehearsed.
    pub job: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// To be copied, left as they are, removed; once it has ended.
    pub files: u64,
    pub bytes: u64,
    pub skipped: u64,
    pub removed: u64,
    pub failed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Predicted>,
    /// Until then it can be handed in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<String>,
}

/// Seconds, from what jobs like it took: one in twenty is quicker than `p5`, one in twenty slower than `p95`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Predicted {
    pub p5: f64,
    pub p50: f64,
    pub p95: f64,
    pub jobs: usize,
}

impl Hub {
    /// Has a job rehearsed. The same one, while it is rehearsed, is the same rehearsal.
    pub fn rehearse(&self, who: &Principal, mut file: JobFile) -> Result<Submitted> {
        if !matches!(&file.kind[..], "copy" | "sync") {
            let text = format!("a job of the kind {} cannot be rehearsed", file.kind);
            return Err(Error::new(Exit::Usage, text).hint("only copies can: of the kind copy or sync"));
        }
        file.options.insert("dry-run".to_owned(), Value::Bool(true));
        self.submit(who, file, None)
    }

    pub fn rehearsal(&self, who: &Principal, id: JobId) -> Result<RehearsalView> {
        let job = self.show(who, id)?;
        let mut file = JobFile::from_value(job.job)?;
        if file.options.remove("dry-run") != Some(Value::Bool(true)) {
            return Err(Error::new(Exit::SourceFileNotFound, "the hub has no rehearsal of this id")
                .hint("`thalweg submit --dry-run JOB` makes one"));
        }
        let of = |what: &str| job.report.as_ref().and_then(|report| report[what].as_u64()).unwrap_or(0);
        let of_files = |what: &str| job.report.as_ref().and_then(|all| all["files"][what].as_u64()).unwrap_or(0);
        let (files, bytes) = (of_files("ok"), of("bytes"));
        let has_seen = job.code == Some(0);
        let wish = file.wish(&job.owner)?;
        let predicted = match has_seen {
            true => predict(files, bytes, &self.inner.reader.moved(&wish.facts.from, &wish.facts.to, PAST_MAX)?),
            false => None,
        };
        let ended = self.inner.reader.ended(id)?.filter(|_| has_seen);
        Ok(RehearsalView {
            id: job.id,
            status: job.status,
            job: serde_json::to_value(&file).unwrap_or_default(),
            code: job.code,
            text: job.text,
            hint: job.hint,
            files,
            bytes,
            skipped: of_files("skipped"),
            removed: of("removed"),
            failed: of_files("failed"),
            predicted,
            valid_until: ended.map(|ended| crate::events::rfc3339(ended.saturating_add(VALID_MS))),
        })
    }

    /// Hands in what was rehearsed.
    pub fn submit_rehearsed(&self, who: &Principal, id: JobId, key: Option<&str>) -> Result<Submitted> {
        let rehearsal = self.rehearsal(who, id)?;
        let again = "rehearse the job again: thalweg submit --dry-run JOB";
        if rehearsal.code != Some(0) {
            let text = format!("the rehearsal is {}: what the job would do is not known", rehearsal.status);
            return Err(Error::new(Exit::Inconclusive, text).hint(again));
        }
        let ended = self.inner.reader.ended(id)?.unwrap_or(0);
        if ended.saturating_add(VALID_MS) < unix_ms() {
            let text = "the rehearsal is more than an hour old: what it saw may be no more";
            return Err(Error::new(Exit::Inconclusive, text).hint(again));
        }
        self.submit(who, JobFile::from_value(rehearsal.job)?, key)
    }
}

/// From the jobs whose files were most like these in size.
fn predict(files: u64, bytes: u64, past: &[Moved]) -> Option<Predicted> {
    let cost = |files: u64, bytes: u64| bytes as f64 + files as f64 * FILE_BYTES;
    let size = |files: u64, bytes: u64| ((bytes + 1) as f64 / files.max(1) as f64).ln();
    let wanted = size(files, bytes);
    let mut like: Vec<(f64, f64)> = past
        .iter()
        .filter(|job| job.files > 0 && job.seconds > 0.0)
        .map(|job| ((size(job.files, job.bytes) - wanted).abs(), cost(job.files, job.bytes) / job.seconds))
        .collect();
    like.sort_by(|a, b| a.0.total_cmp(&b.0));
    like.truncate(LIKE_MAX);
    let mut rates: Vec<f64> = like.into_iter().map(|(_, rate)| rate).collect();
    rates.sort_by(f64::total_cmp);
    let at = |part: f64| rates.get(((rates.len() - 1) as f64 * part).round() as usize).copied();
    let jobs = rates.len();
    if jobs == 0 {
        return None;
    }
    let seconds = |part| at(part).map(|rate| (cost(files, bytes) / rate * 1000.0).round() / 1000.0);
    Some(Predicted { p5: seconds(0.95)?, p50: seconds(0.5)?, p95: seconds(0.05)?, jobs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_predicted_from_jobs_with_files_of_that_size() {
        assert_eq!(predict(1, 1, &[]), None);
        let large = |seconds| Moved { files: 1, bytes: 1 << 30, seconds };
        let small = |seconds| Moved { files: 10_000, bytes: 10_000 << 10, seconds };
        let mut past: Vec<Moved> = (0..LIKE_MAX).map(|n| large(10.0 + n as f64 / 10.0)).collect();
        past.extend((0..LIKE_MAX).map(|_| small(2.0)));
        let found = predict(2, 2 << 30, &past).unwrap();
        assert!(found.p5 <= found.p50 && found.p50 <= found.p95, "{found:?}");
        assert!((found.p50 - 21.4).abs() < 0.5 && found.jobs == LIKE_MAX, "{found:?}");
        let found = predict(20_000, 20_000 << 10, &past).unwrap();
        assert!((found.p50 - 4.0).abs() < 0.1, "{found:?}");
        // What took no time says nothing.
        assert_eq!(predict(1, 1, &[Moved { files: 0, bytes: 0, seconds: 0.0 }]), None);
    }
}
