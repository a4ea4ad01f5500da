//! Schedules and the audit log over HTTP.

use crate::answering::{Answer, ask, text_of};
use crate::asking::Caller;
use crate::problem::Problem;
use crate::served::Served;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use hub::{AuditWanted, Error, ScheduleFile, ScheduleVerb};
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
        .route("/api/v1/audit/chain", get(chain))
}

async fn list(State(served): State<Served>, Extension(Caller { who, .. }): Extension<Caller>) -> Answer {
    Ok(Json(ask(move || served.hub.schedules(&who)).await?).into_response())
}

async fn add(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let text = text_of(body)?;
    let added = ask(move || served.hub.add_schedule(&who, ScheduleFile::from_json(&text)?)).await?;
    Ok((StatusCode::CREATED, Json(added)).into_response())
}

async fn show(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    Path(name): Path<String>,
) -> Answer {
    Ok(Json(ask(move || served.hub.schedule(&who, &name)).await?).into_response())
}

async fn steer(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    Path((name, verb)): Path<(String, String)>,
) -> Answer {
    let verb = ScheduleVerb::from_word(&verb).filter(|verb| *verb != ScheduleVerb::Remove);
    let Some(verb) = verb else { return Err(Problem::absent()) };
    let steered = ask(move || {
        served.hub.steer_schedule(&who, &name, verb)?;
        served.hub.schedule(&who, &name)
    })
    .await?;
    Ok(Json(steered).into_response())
}

async fn remove(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    Path(name): Path<String>,
) -> Answer {
    ask(move || served.hub.steer_schedule(&who, &name, ScheduleVerb::Remove)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// What of the audit log is asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lines {
    after: Option<i64>,
    limit: Option<usize>,
    /// `oldest` or `newest`.
    order: Option<String>,
    q: Option<String>,
}

async fn audit(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    Query(Lines { after, limit, order, q }): Query<Lines>,
) -> Answer {
    let is_newest_first = match order.as_deref() {
        None | Some("oldest") => false,
        Some("newest") => true,
        Some(other) => {
            let text = format!("{other:?} is no order: oldest or newest");
            return Err(Error::new(Exit::Usage, text).hint("docs/hub.md lists what can be asked for").into());
        }
    };
    let text = q.filter(|text| !text.is_empty());
    let wanted = AuditWanted { after, limit: limit.unwrap_or(PAGE_DEFAULT), is_newest_first, text };
    Ok(Json(ask(move || served.hub.audit(&who, &wanted)).await?).into_response())
}

/// A chain that is broken is an answer like another: what it says is why.
async fn chain(State(served): State<Served>, Extension(Caller { who, .. }): Extension<Caller>) -> Answer {
    let told = ask(move || match served.hub.verify_audit(&who) {
        Ok(found) => {
            Ok(json!({"is_whole": true, "first": found.first, "last": found.head.n, "digest": found.head.digest}))
        }
        Err(e) if e.exit == Exit::Failed => Ok(json!({"is_whole": false, "text": e.message})),
        Err(e) => Err(e),
    });
    Ok(Json(told.await?).into_response())
}
