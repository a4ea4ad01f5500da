//! What answers have in common: calls of the hub that block, ids, and bodies as text.

use crate::problem::Problem;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::response::Response;
use hub::Error;
use model::{Exit, JobId};
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
    String::from_utf8(body.to_vec()).map_err(|_| usage("the body is not UTF-8".to_owned()).into())
}

pub fn job_id(text: &str) -> Result<JobId, Problem> {
    let wrong = || {
        Error::new(Exit::SourceFileNotFound, "the hub has no job of this id").hint("an id has 32 hexadecimal digits")
    };
    JobId::from_hex(text).ok_or_else(|| wrong().into())
}
