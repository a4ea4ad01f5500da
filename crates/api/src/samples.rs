//! What the console draws: rates over time, of a job and of all, and what happened to a job.

use crate::answering::{Answer, ask, job_id};
use crate::asking::Caller;
use crate::served::Served;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Extension, Json, Router};
use serde_json::json;

pub fn routes() -> Router<Served> {
    Router::new()
        .route("/api/v1/samples", get(total))
        .route("/api/v1/jobs/{id}/samples", get(of_job))
        .route("/api/v1/jobs/{id}/events", get(past))
}

async fn total(State(served): State<Served>, Extension(Caller { who, .. }): Extension<Caller>) -> Answer {
    let points = ask(move || served.hub.total_samples(&who)).await?;
    Ok(Json(json!({"points": points})).into_response())
}

async fn of_job(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    let id = job_id(&id)?;
    Ok(Json(ask(move || served.hub.samples(&who, id)).await?).into_response())
}

async fn past(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    let id = job_id(&id)?;
    Ok(Json(ask(move || served.hub.past(&who, id)).await?).into_response())
}
