//! Who one is, and how a browser is let in: a code, made for somebody who is known, is exchanged for a cookie.
//!
//! The code stands in the fragment of a URL, which no browser sends anywhere; the page there posts it. The cookie is out of reach of
//! scripts and is sent by pages of this hub alone.

use crate::answering::{Answer, parse, text_of};
use crate::asking::{Caller, Peer, cookie, cookie_name};
use crate::failures::CODES_MAX;
use crate::problem::Problem;
use crate::served::Served;
use crate::sessions::{CODE_LIFETIME, SESSION_LIFETIME};
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json};
use hub::{Error, Principal};
use model::Exit;
use serde::Deserialize;
use serde_json::{Value, json};

fn shown(who: &Principal) -> Value {
    json!({"name": who.name, "scopes": who.scopes.words(), "is_admin": who.is_admin()})
}

pub async fn show(Extension(Caller { who, .. }): Extension<Caller>) -> Json<Value> {
    Json(shown(&who))
}

/// A code for the one who asks, and where to take it.
pub async fn code(State(served): State<Served>, Extension(Caller { who, .. }): Extension<Caller>) -> Json<Value> {
    let code = served.sessions.code(&who);
    Json(json!({"code": code, "seconds": CODE_LIFETIME.as_secs(), "url": served.url.as_deref()}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    code: String,
}

pub async fn begin(
    State(served): State<Served>,
    Extension(peer): Extension<Peer>,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    // What serde says of a text that is wrong would repeat parts of the code.
    let wrong = |_| Error::new(Exit::Usage, "a session begins with {\"code\": ...}").hint("thalweg console makes one");
    let Begin { code } = parse(&text_of(body)?).map_err(wrong)?;
    let Some((who, secret)) = served.sessions.redeem(&code) else {
        let wait = match peer {
            Peer::Remote { address, .. } => served.failures.note(address.ip(), CODES_MAX),
            Peer::Local(_) => None,
        };
        let error = Error::new(Exit::Authentication, "the code is not known: it is good once, for a minute");
        let refused = Problem::new(StatusCode::UNAUTHORIZED, error.hint("have another one made: thalweg console"));
        return Err(wait.map_or(refused, |wait| Problem::too_many("wrong codes from this address", wait)));
    };
    let cookie = set_cookie(peer, &secret, SESSION_LIFETIME.as_secs());
    Ok((StatusCode::CREATED, [(header::SET_COOKIE, cookie)], Json(shown(&who))).into_response())
}

pub async fn end(State(served): State<Served>, Extension(peer): Extension<Peer>, headers: HeaderMap) -> Answer {
    if let Some(secret) = cookie(peer, &headers) {
        served.sessions.end(secret);
    }
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, set_cookie(peer, "", 0))]).into_response())
}

fn set_cookie(peer: Peer, secret: &str, seconds: u64) -> String {
    let secure = if matches!(peer, Peer::Remote { is_tls: true, .. }) { "; Secure" } else { "" };
    format!("{}={secret}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}", cookie_name(peer))
}
