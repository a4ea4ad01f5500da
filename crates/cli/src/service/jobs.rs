//! Jobs of the hub, shown and steered from the command line.

use super::Service;
use crate::exit::{Error, Result, error};
use crate::interrupt::Interrupt;
use crate::output::{self, counted, shown};
use model::quantity::{ByteCount, Rate};
use model::{Exit, JobId};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(300);
const LINE_EVERY: Duration = Duration::from_secs(30);
/// How long the hub may be away before whoever follows a job gives up. The job goes on.
const AWAY_MAX: Duration = Duration::from_secs(300);
const PAGE: usize = 500;

impl Service {
    pub fn job(&self, id: JobId) -> Result<Value> {
        self.get(&format!("/jobs/{id}"))
    }

    /// Whether the hub has the job.
    pub fn has(&self, id: JobId) -> Result<bool> {
        match self.job(id) {
            Ok(_) => Ok(true),
            Err(e) if e.exit == Exit::Failed => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The pages of a list, one after the other, until `each` has enough.
    pub fn jobs(&self, query: &str, each: &mut dyn FnMut(&Value) -> bool) -> Result<()> {
        let mut after = String::new();
        loop {
            let page = self.get(&format!("/jobs?limit={PAGE}{query}{after}"))?;
            let jobs = page["jobs"].as_array().map_or(&[][..], Vec::as_slice);
            if !jobs.iter().all(&mut *each) {
                return Ok(());
            }
            match page["next"].as_u64() {
                Some(next) => after = format!("&after={next}"),
                None => return Ok(()),
            }
        }
    }

    pub fn list(&self, is_json: bool) -> Result<()> {
        self.jobs("", &mut |job| output::line(&if is_json { with_version(job).to_string() } else { line(job) }))
    }

    pub fn show(&self, id: JobId, is_json: bool) -> Result<Exit> {
        let job = self.job(id)?;
        let failures = self.get(&format!("/jobs/{id}/failures?limit=1000"))?;
        if is_json {
            let mut value = with_version(&job);
            value["failures"] = failures;
            output::line(&value.to_string());
            return Ok(Exit::Done);
        }
        details(&job).iter().chain(&failed(&job, &failures)).for_each(|line| _ = output::line(line));
        Ok(Exit::Done)
    }

    pub fn steer(&self, id: JobId, verb: &str, is_json: bool) -> Result<Exit> {
        if verb == "rm" {
            self.delete(&format!("/jobs/{id}"))?;
            if is_json {
                output::line(&json!({"v": 1, "id": id.to_string()}).to_string());
            }
            return Ok(Exit::Done);
        }
        let job = self.post(&format!("/jobs/{id}/{verb}"), "", None)?;
        if is_json {
            output::line(&with_version(&job).to_string());
        }
        Ok(Exit::Done)
    }

    pub fn change(&self, id: JobId, changes: &Value, is_json: bool) -> Result<Exit> {
        let job = self.patch(&format!("/jobs/{id}"), &changes.to_string())?;
        if is_json {
            output::line(&with_version(&job).to_string());
        }
        Ok(Exit::Done)
    }

    /// Follows a job to its end, through restarts of the hub, and ends with its code.
    pub fn watch(&self, id: JobId, is_json: bool) -> Result<Exit> {
        let interrupt = Interrupt::watch()?;
        let (mut last, mut told, mut away) = (String::new(), Instant::now(), None::<Instant>);
        let job = loop {
            match self.job(id) {
                Ok(job) if is_ended(&job) => break job,
                Ok(job) => {
                    away = None;
                    let state = state_of(&job);
                    let is_changed = state != last && job["status"] != "running";
                    if !is_json && (is_changed || told.elapsed() >= LINE_EVERY) {
                        output::note(&format!("{state}: {}", amounts(&job)));
                        told = Instant::now();
                    }
                    last = state;
                }
                Err(e) if !matches!(e.exit, Exit::Temporary | Exit::Unreachable) => return Err(e),
                Err(e) => {
                    let since = *away.get_or_insert_with(|| {
                        output::note(&format!(
                            "{}; the job goes on without this command, which tries again",
                            e.message
                        ));
                        Instant::now()
                    });
                    if since.elapsed() >= AWAY_MAX {
                        return Err(e);
                    }
                }
            }
            if interrupt.wait(LOOK) {
                let hint = format!("to come back to it: thalweg job watch {id}");
                return Err(error(interrupt.exit(), "no longer followed; the job goes on", hint));
            }
        };
        if is_json {
            output::line(&with_version(&job).to_string());
        } else if job["code"] == 0 {
            summary(&job).iter().for_each(|line| output::note(line));
        }
        error_of(&job).map_or(Ok(Exit::Done), Err)
    }
}

impl Service {
    /// Waits for a rehearsal's end, and says what the job would do.
    pub fn rehearse(&self, id: &str, is_json: bool) -> Result<Exit> {
        let interrupt = Interrupt::watch()?;
        let found = loop {
            let found = self.get(&format!("/rehearsals/{id}"))?;
            if is_ended(&found) {
                break found;
            }
            if interrupt.wait(LOOK) {
                return Err(error(
                    interrupt.exit(),
                    "stopped",
                    format!("`thalweg job watch {id}` follows the rehearsal"),
                ));
            }
        };
        if let Some(e) = error_of(&found) {
            return Err(e);
        }
        if is_json {
            output::line(&with_version(&found).to_string());
            return Ok(Exit::Done);
        }
        rehearsed(&found, id).iter().for_each(|line| _ = output::line(line));
        Ok(Exit::Done)
    }
}

fn rehearsed(found: &Value, id: &str) -> Vec<String> {
    let count = |what: &str| found[what].as_u64().unwrap_or(0);
    let mut first = format!("would copy {}, {}", counted(count("files"), "file", "files"), ByteCount(count("bytes")));
    for (count, what) in [(count("skipped"), "skipped"), (count("removed"), "removed")] {
        if count > 0 {
            first.push_str(&format!("; {count} {what}"));
        }
    }
    let span = |of: &str| crate::output::duration(found["predicted"][of].as_f64().unwrap_or(0.0));
    let time = match found["predicted"]["jobs"].as_u64() {
        Some(jobs) => {
            let similar = counted(jobs, "similar job", "similar jobs");
            format!("in about {} ({} to {}), estimated from {similar}", span("p50"), span("p5"), span("p95"))
        }
        None => "its duration cannot be estimated: no job between the two has moved anything yet".to_owned(),
    };
    let until = text(found, "valid_until");
    vec![first, time, format!("until {until}: thalweg submit --rehearsed {}", shown(id))]
}

fn with_version(job: &Value) -> Value {
    let mut value = job.clone();
    value["v"] = json!(1);
    value
}

fn is_ended(job: &Value) -> bool {
    job["code"].is_i64()
}

/// Foreign text, safe on a terminal.
pub fn text(value: &Value, key: &str) -> String {
    shown(value[key].as_str().unwrap_or_default())
}

pub fn sources(job: &Value) -> String {
    match &job["job"]["source"] {
        Value::Array(all) if all.len() > 1 => {
            format!("{} and {} more", shown(all[0].as_str().unwrap_or_default()), all.len() - 1)
        }
        Value::Array(all) => shown(all.first().and_then(Value::as_str).unwrap_or_default()),
        one => shown(one.as_str().unwrap_or_default()),
    }
}

/// How a job stands, with what it waits for.
pub fn state_of(job: &Value) -> String {
    let (status, reason, why) = (text(job, "status"), text(job, "reason"), text(job, "text"));
    match (reason.is_empty(), why.is_empty()) {
        (true, true) => status,
        (true, false) => format!("{status} ({why})"),
        (false, true) => format!("{status} ({reason})"),
        (false, false) => format!("{status} ({reason}: {why})"),
    }
}

pub fn amounts(job: &Value) -> String {
    let count = |of: &str, what: &str| job[of][what].as_u64().unwrap_or(0);
    let mut text = format!("{}, {}", counted(count("files", "ok"), "file", "files"), ByteCount(count("bytes", "ok")));
    let rate = job["bytes_per_second"].as_u64().unwrap_or(0);
    if rate > 0 {
        text.push_str(&format!(", {}", Rate { bytes_per_second: rate as f64 }));
    }
    text
}

/// One job in one line, as `job ls` has it.
pub fn line(job: &Value) -> String {
    let destination = shown(job["job"]["destination"].as_str().unwrap_or_default());
    let (id, status, created) = (text(job, "id"), text(job, "status"), text(job, "created"));
    format!("{id}\t{status}\t{created}\t{}\t{destination}\t{}", sources(job), amounts(job))
}

/// One job of the queue in one line: with why it is there.
pub fn waiting_line(job: &Value) -> String {
    let destination = shown(job["job"]["destination"].as_str().unwrap_or_default());
    let class = job["job"]["class"].as_str().unwrap_or("normal");
    format!(
        "{}\t{}\t{}\t{}\t{destination}\t{}",
        text(job, "id"),
        shown(class),
        text(job, "owner"),
        sources(job),
        state_of(job)
    )
}

fn details(job: &Value) -> Vec<String> {
    let destination = shown(job["job"]["destination"].as_str().unwrap_or_default());
    let mut lines = vec![
        format!("id           {}", text(job, "id")),
        format!("status       {}", state_of(job)),
        format!("from         {}", sources(job)),
        format!("to           {destination}"),
        format!("submitted    {} by {}", text(job, "created"), text(job, "owner")),
    ];
    if job["attempt"].as_u64().unwrap_or(0) > 0 {
        let executor = text(job, "executor");
        let at = if executor.is_empty() { String::new() } else { format!(", carried out by {executor}") };
        lines.push(format!("attempt      {}{at}", job["attempt"]));
    }
    if let Some(until) = job["until"].as_str() {
        lines.push(format!("until        {}", shown(until)));
    }
    if !is_ended(job) {
        lines.push(format!("moved        {}", amounts(job)));
        let pace = text(job, "bottleneck");
        lines.extend((!pace.is_empty()).then(|| format!("now          {pace}")));
        return lines;
    }
    lines.push(format!("ended        {}", text(job, "ended")));
    lines.extend(summary(job).into_iter().map(|line| format!("             {line}")));
    if let Some(e) = error_of(job) {
        lines.push(format!("error        {} (exit code {})", e.message, e.exit as i32));
        lines.extend(e.hint.map(|hint| format!("hint         {hint}")));
    }
    lines
}

/// What failed, one by one: an endpoint tells only some of many.
fn failed(job: &Value, failures: &Value) -> Vec<String> {
    let one = |failure: &Value| format!("failed       {}: {}", text(failure, "path"), text(failure, "message"));
    let mut lines: Vec<String> = failures.as_array().into_iter().flatten().map(one).collect();
    let untold = job["report"]["failures_untold"].as_u64().unwrap_or(0);
    if untold > 0 {
        lines.push(format!("and {} that are not listed", counted(untold, "failure", "failures")));
    }
    lines
}

fn summary(job: &Value) -> Vec<String> {
    let report = &job["report"];
    if report.is_null() {
        return Vec::new();
    }
    let count = |what: &str| report["files"][what].as_u64().unwrap_or(0);
    let destination = shown(job["job"]["destination"].as_str().unwrap_or_default());
    let bytes = ByteCount(report["bytes"].as_u64().unwrap_or(0));
    let files = counted(count("ok"), "file", "files");
    let mut first = match (&job["job"]["options"]["dry-run"], job["job"]["kind"].as_str()) {
        (Value::Bool(true), _) => format!("would copy {files}, {bytes} to {destination}"),
        (_, Some("move")) => format!("moved {files}, {bytes} to {destination}"),
        (_, Some("check")) => format!("compared: {files} and {bytes} are the same"),
        _ => format!("copied {files}, {bytes} to {destination}"),
    };
    let removed = report["removed"].as_u64().unwrap_or(0);
    for (count, what) in [(count("skipped"), "skipped"), (removed, "removed"), (count("failed"), "failed")] {
        if count > 0 {
            first.push_str(&format!("; {count} {what}"));
        }
    }
    let hosts = report["hosts"].as_array().map_or(&[][..], Vec::as_slice);
    let limited = Some(text(report, "bottleneck")).filter(|limited| !limited.is_empty());
    std::iter::once(first).chain(hosts.iter().map(share)).chain(limited).collect()
}

/// What one of several hosts has done.
fn share(host: &Value) -> String {
    let count = |what: &str| host[what].as_u64().unwrap_or(0);
    let (files, bytes) = (counted(count("files"), "file", "files"), ByteCount(count("bytes")));
    let mut line = format!("{}: {files}, {bytes} in {}", text(host, "name"), counted(count("slices"), "part", "parts"));
    if count("lost") > 0 {
        line.push_str(&format!("; {} taken over by others", count("lost")));
    }
    line
}

/// What an ended job failed with, as the command would have said it.
fn error_of(job: &Value) -> Option<Error> {
    let exit = Exit::from_number(job["code"].as_i64()? as i32);
    let why = text(job, "text");
    let message = if why.is_empty() { format!("the job is {}", text(job, "status")) } else { why };
    let hint = Some(text(job, "hint")).filter(|hint| !hint.is_empty());
    (exit != Exit::Done).then_some(Error { exit, message, hint })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_the_endpoint_did_not_tell_are_said_to_be_there() {
        let listed = json!([{"path": "a", "message": "why"}]);
        let lines = |untold: u64| failed(&json!({"report": {"failures_untold": untold}}), &listed);
        assert_eq!(lines(0), ["failed       a: why"]);
        assert_eq!(lines(4900)[1..], ["and 4,900 failures that are not listed"]);
        assert!(failed(&json!({"report": null}), &Value::Null).is_empty());
    }
}
