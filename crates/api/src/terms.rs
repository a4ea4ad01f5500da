//! The terms of endpoints over HTTP, for administrators.

use crate::answering::{Answer, ask, parse, text_of};
use crate::asking::Caller;
use crate::served::Served;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Extension, Json, Router};
use hub::{ContractChange, Error};
use model::Exit;

pub fn routes() -> Router<Served> {
    Router::new().route("/api/v1/endpoints/{name}/terms", get(show).patch(change))
}

async fn show(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    Path(name): Path<String>,
) -> Answer {
    Ok(Json(ask(move || served.hub.terms(&who, &name)).await?).into_response())
}

async fn change(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    Path(name): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let text = text_of(body)?;
    let told = ask(move || {
        let wrong = |e: serde_json::Error| {
            Error::new(Exit::Usage, format!("not a change: {e}"))
                .hint("such as {\"version\": \"…\", \"contracts\": {\"office\": {\"rate\": \"2Gbit\"}}}; null ends a contract")
        };
        let change: ContractChange = parse(&text).map_err(wrong)?;
        served.hub.change_contracts(&who, &name, change)
    });
    Ok(Json(told.await?).into_response())
}
