//! The hub of this user, as its client: requests over its socket, and its refusals as errors of the program.
//!
//! `jobs` shows and steers its jobs. Not here: the hub itself (`hub`), its interface (`api`).

pub mod jobs;

use crate::exit::{Error, Result, error};
use crate::output;
use daemon::Paths;
use model::{Exit, JobId};
use serde_json::Value;
use std::path::PathBuf;
use web::{Client, ErrorKind, Origin, Request, Trust};

/// A page of jobs is at most 1,000, of some KiB each; a batch's answer 10,000 ids.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Where the hub listens, and its clients look for it.
pub fn socket() -> Result<PathBuf> {
    Ok(Paths::from_env()?.runtime.join("hub.sock"))
}

pub struct Service {
    client: Client,
    socket: PathBuf,
}

impl Service {
    /// Nothing is asked yet.
    pub fn new() -> Result<Service> {
        let socket = socket()?;
        let client = Client::new(Origin::local(socket.clone()), &Trust::default())
            .map_err(|e| error(Exit::Failed, e.text, "this is a mistake of the program"))?;
        Ok(Service { client, socket })
    }

    /// The hub, if one runs.
    pub fn running() -> Result<Option<Service>> {
        let service = Service::new()?;
        let is_there = std::os::unix::net::UnixStream::connect(&service.socket).is_ok();
        Ok(is_there.then_some(service))
    }

    pub fn get(&self, target: &str) -> Result<Value> {
        self.ask("GET", target, &[], b"")
    }

    pub fn post(&self, target: &str, body: &str, key: Option<&str>) -> Result<Value> {
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        headers.extend(key.map(|key| ("idempotency-key".to_owned(), key.to_owned())));
        self.ask("POST", target, &headers, body.as_bytes())
    }

    pub fn delete(&self, target: &str) -> Result<()> {
        self.ask("DELETE", target, &[], b"").map(drop)
    }

    fn ask(&self, method: &'static str, target: &str, headers: &[(String, String)], body: &[u8]) -> Result<Value> {
        let target = format!("/api/v1{target}");
        let response = self.client.send(&Request { method, target: &target, headers, body });
        let lost = |e: web::Error| match e.kind {
            ErrorKind::Unreachable => self.nobody(),
            _ => error(Exit::Temporary, format!("the hub: {}", e.text), "give the command again when the hub runs"),
        };
        let response = response.map_err(lost)?;
        let status = response.status;
        let bytes = response.into_bytes(ANSWER_BYTES_MAX).map_err(lost)?;
        if bytes.is_empty() && status < 300 {
            return Ok(Value::Null);
        }
        let value: Option<Value> = serde_json::from_slice(&bytes).ok();
        match value {
            Some(value) if status < 300 => Ok(value),
            value => Err(refused(status, &value.unwrap_or_default())),
        }
    }

    fn nobody(&self) -> Error {
        let text = format!("no hub of this user runs: nobody answers at {}", output::shown(&self.socket));
        error(Exit::Unreachable, text, "start one: thalweg hub --state-dir DIR")
    }
}

fn refused(status: u16, problem: &Value) -> Error {
    let text = problem["detail"].as_str().map_or_else(|| format!("the hub answered {status}"), str::to_owned);
    let exit = problem["code"].as_i64().map_or(Exit::Failed, |code| Exit::from_number(code as i32));
    let hint = problem["hint"].as_str().map(output::shown);
    // A job that is not there fails the command as it does at an endpoint.
    let exit = if exit == Exit::SourceFileNotFound { Exit::Failed } else { exit };
    Error { exit, message: output::shown(&text), hint }
}

/// The id of a job of the hub: without an endpoint before it.
pub fn id_of(text: &str) -> Option<JobId> {
    JobId::from_hex(text)
}
