//! Rehearsals over HTTP.

use crate::answering::{Answer, ask, job_id, key_of, submitted, text_of};
use crate::asking::Caller;
use crate::served::Served;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use hub::{JobFile, Submitted, Taken};

pub fn routes() -> Router<Served> {
    Router::new()
        .route("/api/v1/rehearsals", post(begin))
        .route("/api/v1/rehearsals/{id}", get(show))
        .route("/api/v1/rehearsals/{id}/submit", post(submit))
}

fn taken(one: &Submitted) -> Response {
    let status = if one.taken == Taken::New { StatusCode::CREATED } else { StatusCode::OK };
    (status, Json(submitted(one))).into_response()
}

async fn begin(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let text = text_of(body)?;
    let begun = ask(move || served.hub.rehearse(&who, JobFile::from_json(&text)?)).await?;
    Ok(taken(&begun))
}

async fn show(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    let id = job_id(&id)?;
    Ok(Json(ask(move || served.hub.rehearsal(&who, id)).await?).into_response())
}

async fn submit(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Answer {
    let (id, key) = (job_id(&id)?, key_of(&headers)?);
    let handed_in = ask(move || served.hub.submit_rehearsed(&who, id, key.as_deref())).await?;
    Ok(taken(&handed_in))
}
