//! A hub, as its client: requests over this user's socket or to a URL, and its refusals as errors of the program.
//!
//! `place` says which hub it is, `jobs` shows and steers its jobs. Not here: the hub itself (`hub`), its interface (`api`).

pub mod jobs;
mod place;
pub mod own_endpoint;

pub use place::{HubArgs, socket};

use crate::exit::{Error, Result, error};
use crate::output;
use model::{Exit, JobId};
use serde_json::Value;
use web::{Client, ErrorKind, Request};

/// A page of jobs is at most 1,000, of some KiB each; a batch's answer 10,000 ids.
const ANSWER_BYTES_MAX: usize = 256 << 20;

pub struct Service {
    client: Client,
    /// With the token, at a URL.
    headers: Vec<(String, String)>,
}

impl Service {
    /// Nothing is asked yet.
    pub fn new(hub: &HubArgs) -> Result<Service> {
        let (client, headers) = hub.client()?;
        Ok(Service { client, headers })
    }

    /// The hub that was named, or this user's if it runs.
    pub fn running(hub: &HubArgs) -> Result<Option<Service>> {
        let service = Service::new(hub)?;
        let socket = &service.client.origin().socket;
        let is_there = socket.as_ref().is_none_or(|socket| std::os::unix::net::UnixStream::connect(socket).is_ok());
        Ok(is_there.then_some(service))
    }

    /// Where browsers find it, where it is not on this user's socket.
    pub fn url(&self) -> Option<String> {
        let origin = self.client.origin();
        let scheme = if origin.is_tls { "https" } else { "http" };
        origin.socket.is_none().then(|| format!("{scheme}://{}", origin.authority()))
    }

    pub fn get(&self, target: &str) -> Result<Value> {
        self.ask("GET", target, &[], b"")
    }

    pub fn post(&self, target: &str, body: &str, key: Option<&str>) -> Result<Value> {
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        headers.extend(key.map(|key| ("idempotency-key".to_owned(), key.to_owned())));
        self.ask("POST", target, &headers, body.as_bytes())
    }

    pub fn patch(&self, target: &str, body: &str) -> Result<Value> {
        let headers = [("content-type".to_owned(), "application/json".to_owned())];
        self.ask("PATCH", target, &headers, body.as_bytes())
    }

    pub fn delete(&self, target: &str) -> Result<Value> {
        self.ask("DELETE", target, &[], b"")
    }

    fn ask(&self, method: &'static str, target: &str, headers: &[(String, String)], body: &[u8]) -> Result<Value> {
        let target = format!("/api/v1{target}");
        let headers = [&self.headers[..], headers].concat();
        let response = self.client.send(&Request { method, target: &target, headers: &headers, body });
        let lost = |e: web::Error| match e.kind {
            ErrorKind::Unreachable => self.nobody(&e.text),
            ErrorKind::Untrusted => error(
                Exit::Authentication,
                format!("the hub: {}", e.text),
                "compare --hub-pin with the pin that the hub printed when it started; without one, an authority that \
                 this host trusts must have signed its certificate",
            ),
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

    fn nobody(&self, why: &str) -> Error {
        match &self.client.origin().socket {
            Some(socket) => error(
                Exit::Unreachable,
                format!("no hub of this user runs: nobody answers at {}", output::shown(socket)),
                "start one: thalweg hub --state-dir DIR; or name another host's: --hub-url URL",
            ),
            None => error(
                Exit::Unreachable,
                format!("the hub does not answer: {}", output::shown(why)),
                "look at --hub-url, and whether the hub runs with --listen",
            ),
        }
    }
}

fn refused(status: u16, problem: &Value) -> Error {
    let text = problem["detail"].as_str().map_or_else(|| format!("the hub answered {status}"), str::to_owned);
    let exit = problem["code"].as_i64().map_or(Exit::Failed, |code| Exit::from_number(code as i32));
    // What is no hub, or wants TLS, answers in its own words.
    let elsewhere = || "look at --hub-url: is it a hub's address, with https:// where the hub has TLS?".to_owned();
    let hint = problem["hint"].as_str().map(output::shown).or_else(|| problem.is_null().then(elsewhere));
    // A job that is not there fails the command as it does at an endpoint.
    let exit = if exit == Exit::SourceFileNotFound { Exit::Failed } else { exit };
    Error { exit, message: output::shown(&text), hint }
}

/// The id of a job of the hub: without an endpoint before it.
pub fn id_of(text: &str) -> Option<JobId> {
    JobId::from_hex(text)
}
