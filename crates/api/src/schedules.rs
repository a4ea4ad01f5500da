//! Schedules and the audit log over HTTP.

use crate::asking::Peer;
use crate::problem::Problem;
use crate::routes::{Answer, Served, ask, nothing, text_of, who};
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use hub::{Error, ScheduleFile, ScheduleVerb};
use model::Exit;
use serde::Deserialize;
use serde_json::json;

const PAGE_DEFAULT: usize = 100;

pub fn routes() -> Router<Served> {
    Router::new()
        .route("/api/v1/schedules", get(list).post(add))
        .route("/api/v1/schedules/{name}", get(show).delete(remove))
        .route("/api/v1/schedules/{name}/{verb}", post(steer))
        .route("/api/v1/audit", get(audit))
}

async fn list(State(served): State<Served>, ConnectInfo(peer): ConnectInfo<Peer>) -> Answer {
    let who = who(peer)?;
    Ok(Json(ask(move || served.hub.schedules(&who)).await?).into_response())
}

async fn add(
    State(served): State<Served>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let (who, text) = (who(peer)?, text_of(body)?);
    let added = ask(move || served.hub.add_schedule(&who, ScheduleFile::from_json(&text)?)).await?;
    Ok((StatusCode::CREATED, Json(added)).into_response())
}

async fn show(State(served): State<Served>, ConnectInfo(peer): ConnectInfo<Peer>, Path(name): Path<String>) -> Answer {
    let who = who(peer)?;
    Ok(Json(ask(move || served.hub.schedule(&who, &name)).await?).into_response())
}

async fn steer(
    State(served): State<Served>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path((name, verb)): Path<(String, String)>,
) -> Answer {
    let who = who(peer)?;
    let verb = ScheduleVerb::from_word(&verb).filter(|verb| *verb != ScheduleVerb::Remove);
    let Some(verb) = verb else { return Ok(nothing().await.into_response()) };
    let (job, schedule) = ask(move || {
        let job = served.hub.steer_schedule(&who, &name, verb)?;
        Ok((job, served.hub.schedule(&who, &name)?))
    })
    .await?;
    // What began is named as `POST /jobs` names it.
    let answer = job.map_or_else(|| json!(schedule), |job| json!({"id": job.to_string(), "schedule": schedule}));
    Ok(Json(answer).into_response())
}

async fn remove(
    State(served): State<Served>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(name): Path<String>,
) -> Answer {
    let who = who(peer)?;
    ask(move || served.hub.steer_schedule(&who, &name, ScheduleVerb::Remove)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// What of the audit log is asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lines {
    after: Option<i64>,
    limit: Option<usize>,
}

async fn audit(
    State(served): State<Served>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    asked: Result<Query<Lines>, QueryRejection>,
) -> Answer {
    let usage = |e: QueryRejection| {
        Problem::from(Error::new(Exit::Usage, e.body_text()).hint("docs/hub.md lists what can be asked for"))
    };
    let (who, Query(asked)) = (who(peer)?, asked.map_err(usage)?);
    let (after, limit) = (asked.after.unwrap_or(0), asked.limit.unwrap_or(PAGE_DEFAULT));
    Ok(Json(ask(move || served.hub.audit(&who, after, limit)).await?).into_response())
}
