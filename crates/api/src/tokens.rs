//! Tokens, for administrators, and rules, which others make as well of what they manage.

use crate::answering::{Answer, ask, parse, text_of};
use crate::asking::Caller;
use crate::problem::Problem;
use crate::served::Served;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use hub::{Error, Scopes};
use model::Exit;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;

fn read<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>) -> Result<T, Problem> {
    let wrong = |e: serde_json::Error| Error::new(Exit::Usage, e.to_string()).hint("docs/hub.md says what is expected");
    Ok(parse(&text_of(body)?).map_err(wrong)?)
}

pub async fn list(State(served): State<Served>) -> Json<Value> {
    Json(json!(served.hub.access().tokens()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    name: String,
    scopes: Vec<String>,
    /// For how long.
    seconds: u64,
}

/// The one answer that holds the token.
pub async fn add(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let New { name, scopes, seconds } = read(body)?;
    let scopes = Scopes::parse(&scopes.join(","))?;
    let lifetime = Duration::from_secs(seconds);
    let principal = format!("token:{name}");
    let token = ask(move || served.hub.add_token(&who, &name, scopes, lifetime)).await?;
    Ok((StatusCode::CREATED, Json(json!({"token": token, "principal": principal}))).into_response())
}

pub async fn remove(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    Path(name): Path<String>,
) -> Answer {
    let cancelled = ask(move || served.hub.remove_token(&who, &name)).await?;
    Ok(Json(json!({"cancelled": cancelled})).into_response())
}

pub async fn rules(State(served): State<Served>, Extension(Caller { who, .. }): Extension<Caller>) -> Json<Value> {
    Json(json!(served.hub.access().rules(&who)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewRule {
    rule: String,
}

pub async fn add_rule(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let NewRule { rule } = read(body)?;
    let added = ask(move || served.hub.add_rule(&who, &rule)).await?;
    Ok((StatusCode::CREATED, Json(added)).into_response())
}

pub async fn remove_rule(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    Path(id): Path<u64>,
) -> Answer {
    let cancelled = ask(move || served.hub.remove_rule(&who, id)).await?;
    Ok(Json(json!({"cancelled": cancelled})).into_response())
}
