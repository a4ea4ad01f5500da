//! What browsers are shown.

use crate::served::Served;
use axum::Router;
use axum::response::Html;
use axum::routing::get;

const PAGE: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Thalweg</title><h1>Thalweg hub</h1>\
    <p>This hub is used by commands and programs: docs/hub.md.</p></html>\n";

pub fn pages() -> Router<Served> {
    Router::new().route("/", get(async || Html(PAGE)))
}
