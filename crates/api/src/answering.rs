//! What answers have in common: calls of the hub that block, ids, and bodies as text.

use crate::problem::Problem;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::HeaderMap;
use axum::response::Response;
use hub::{Error, Submitted, Taken};
use model::{Exit, JobId};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

pub type Answer = Result<Response, Problem>;

/// Runs a call that blocks.
pub async fn ask<T: Send + 'static>(call: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Problem> {
    let failed = |_| Error::new(Exit::Fatal, "a thread of the hub failed; this is a bug");
    Ok(spawn_blocking(call).await.map_err(failed)??)
}

pub fn text_of(body: Result<Bytes, BytesRejection>) -> Result<String, Problem> {
    let usage = |text: String| Error::new(Exit::Usage, text).hint("docs/hub.md says what is expected");
    let body = body.map_err(|e| Problem::new(e.status(), usage(e.body_text())))?;
    String::from_utf8(body.into()).map_err(|_| usage("the body is not UTF-8".to_owned()).into())
}

/// What a body says; no key stands in it twice.
pub fn parse<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    hub::parse_json(text).and_then(serde_json::from_value)
}

pub fn job_id(text: &str) -> Result<JobId, Problem> {
    let wrong = || {
        Error::new(Exit::SourceFileNotFound, "the hub has no job of this id").hint("an id has 32 hexadecimal digits")
    };
    JobId::from_hex(text).ok_or_else(|| wrong().into())
}

/// What the same request again is known by.
pub fn key_of(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let wrong = || Error::new(Exit::Usage, "Idempotency-Key is not plain text").hint("use letters and digits");
    key.to_str().map(|key| Some(key.to_owned())).map_err(|_| wrong().into())
}

pub fn submitted(one: &Submitted) -> Value {
    json!({"id": one.id.to_string(), "is_new": one.taken == Taken::New})
}
