//! What every request passes before it is answered: which host it was meant for, who asks, whether that one may, where a browser's
//! request came from, how much it sends and how long it takes.
//!
//! Invariants: a request without a row in `table` is not answered; nothing of a body is read before its sender may send it and there is
//! room for it (`bodies`); what a browser sends unasked changes nothing unless a page of this hub made it.

use crate::asking::{Caller, Peer, caller};
use crate::bodies::Room;
use crate::failures::{TOKENS_MAX, network};
use crate::problem::{MEDIA_TYPE, Problem};
use crate::served::Served;
use crate::table::{self, Needs, Route};
use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hub::Error;
use model::{Exit, mutant};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// For a body to come whole, and before that for its room.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// The most that is read of the text with which axum refuses a request.
const REFUSAL_BYTES_MAX: usize = 4096;

/// Of answers that say nothing else: they run nothing, load nothing from elsewhere, and stand in no frame.
const HEADERS: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-store"),
];

pub async fn gate(State(served): State<Served>, request: Request, next: Next) -> Response {
    let (began, route) = (Instant::now(), route_of(&request));
    let mut answer = match pass(&served, request).await {
        Ok((request, None)) => next.run(request).await,
        Ok((request, Some(room))) => carry_out(request, room, next).await,
        Err(problem) => problem.into_response(),
    };
    if answer.status().is_client_error() || answer.status().is_server_error() {
        answer = as_problem(answer).await;
    }
    let (method, path) = route.map_or(("any", "other"), |route| (route.method, route.path));
    served.requests.note((method, path, answer.status().as_u16()), began.elapsed());
    let headers = answer.headers_mut();
    for (name, value) in HEADERS {
        headers.entry(HeaderName::from_static(name)).or_insert(HeaderValue::from_static(value));
    }
    answer
}

/// The room of a body is taken until its request is answered, also where whoever sent it does not wait for that.
async fn carry_out(request: Request, room: Room, next: Next) -> Response {
    let answered = tokio::spawn(async move {
        let answer = next.run(request).await;
        drop(room);
        answer
    });
    answered.await.unwrap_or_else(|_| {
        Problem::from(Error::new(Exit::Fatal, "a thread of the hub failed; this is a bug")).into_response()
    })
}

/// A query or a path that cannot be read, and a method that a path does not have, are refused like anything else.
async fn as_problem(answer: Response) -> Response {
    if answer.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == MEDIA_TYPE) {
        return answer;
    }
    let status = answer.status();
    let said = to_bytes(answer.into_body(), REFUSAL_BYTES_MAX).await.unwrap_or_default();
    let text = match said.is_empty() {
        true => status.canonical_reason().unwrap_or_default().to_lowercase(),
        false => model::name::Escaped(&said).to_string(),
    };
    Problem::new(status, Error::new(Exit::Usage, text).hint("docs/hub.md lists what can be asked for")).into_response()
}

fn route_of(request: &Request) -> Option<&'static Route> {
    let path = request.extensions().get::<MatchedPath>()?;
    table::find(request.method(), path.as_str())
}

/// The request with its body, and the room that this takes.
async fn pass(served: &Served, request: Request) -> Result<(Request, Option<Room>), Problem> {
    let (mut parts, body) = request.into_parts();
    let peer = parts.extensions.get::<Peer>().copied().unwrap_or(Peer::Local(None));
    check_host(served, peer, &parts.headers)?;
    let matched = parts.extensions.get::<MatchedPath>().map(|path| path.as_str().to_owned());
    // What the router does not know either is refused by it.
    let Some(path) = matched else { return Ok((Request::from_parts(parts, Body::empty()), None)) };
    let Some(route) = table::find(&parts.method, &path) else {
        return match table::ROUTES.iter().any(|route| route.path == path) {
            true => Ok((Request::from_parts(parts, Body::empty()), None)),
            false => Err(Problem::absent()),
        };
    };
    let is_change = !matches!(parts.method, Method::GET | Method::HEAD);
    let sender = if route.needs == Needs::Nothing {
        // A page of somebody else's could log its reader in as somebody else.
        if is_change && parts.headers.contains_key(header::ORIGIN) {
            check_origin(peer, &parts.headers)?;
        }
        stranger(peer)
    } else {
        let caller = known(served, peer, &parts.headers)?;
        check_scope(route, &caller)?;
        if is_change && caller.is_by_cookie {
            check_origin(peer, &parts.headers)?;
        }
        if !caller.who.is_admin() {
            served.paces.take(&caller.who.name).map_err(|wait| Problem::too_many("requests of this token", wait))?;
        }
        let name = caller.who.name.clone();
        parts.extensions.insert(caller);
        name
    };
    let (body, room) = whole(served, route, &parts.headers, body, &sender).await?;
    Ok((Request::from_parts(parts, body), room))
}

/// What is known of somebody who need not say who it is. No principal is called so.
fn stranger(peer: Peer) -> String {
    match peer {
        Peer::Remote { address, .. } => format!("network {}", network(address.ip())),
        Peer::Local(_) => "this host".to_owned(),
    }
}

/// Who asks. Wrong tokens are counted by address.
fn known(served: &Served, peer: Peer, headers: &HeaderMap) -> Result<Caller, Problem> {
    caller(peer, headers, &served.hub, &served.sessions).map_err(|refused| match peer {
        Peer::Remote { address, .. } if headers.contains_key(header::AUTHORIZATION) => {
            let wait = served.failures.note(address.ip(), TOKENS_MAX);
            wait.map_or(refused, |wait| Problem::too_many("wrong tokens from this address", wait))
        }
        _ => refused,
    })
}

fn check_scope(route: &Route, caller: &Caller) -> Result<(), Problem> {
    let Needs::Scope(scope) = route.needs else { return Ok(()) };
    if caller.who.scopes.has(scope) {
        return Ok(());
    }
    let has = caller.who.scopes.words().join(", ");
    let text = format!("{} has the scopes {has}, and this needs {}", caller.who.name, scope.word());
    Err(Error::new(Exit::Refused, text).hint("an administrator makes a token with more: thalweg token new").into())
}

/// A name that somebody else's page had resolved to this address is none of ours (DNS rebinding). Addresses need no resolving.
fn check_host(served: &Served, peer: Peer, headers: &HeaderMap) -> Result<(), Problem> {
    if matches!(peer, Peer::Local(_)) || mutant::is_on("host-unchecked") {
        return Ok(());
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let is_ours = |known: &String| known.eq_ignore_ascii_case(name.trim_end_matches('.'));
    if name.parse::<IpAddr>().is_ok() || served.names.iter().any(is_ours) {
        return Ok(());
    }
    let text = format!("this hub is not called {}", model::name::Escaped(name.as_bytes()));
    let hint = "use its address, or have it started with --host NAME";
    Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, Error::new(Exit::Usage, text).hint(hint)))
}

/// What a browser sends with a cookie must come from a page of this hub.
fn check_origin(peer: Peer, headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let scheme = if matches!(peer, Peer::Remote { is_tls: true, .. }) { "https" } else { "http" };
    let own = text(header::HOST).map(|host| format!("{scheme}://{host}"));
    let is_own = match (text(HeaderName::from_static("sec-fetch-site")), text(header::ORIGIN)) {
        // Pages cannot set it; behind a proxy it is right where the scheme is not.
        (Some(site), _) => site == "same-origin",
        (None, origin) => origin.is_some() && origin == own.as_deref(),
    };
    if is_own || mutant::is_on("origin-unchecked") {
        return Ok(());
    }
    let error = Error::new(Exit::Refused, "the request comes from a page that is not this hub's");
    Err(error.hint("use the hub's own console, or a token").into())
}

/// The body, within bounds of size and of time, and the room that it takes.
async fn whole(
    served: &Served,
    route: &Route,
    headers: &HeaderMap,
    body: Body,
    sender: &str,
) -> Result<(Body, Option<Room>), Problem> {
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let has_body = declared.is_some_and(|length| length > 0) || headers.contains_key(header::TRANSFER_ENCODING);
    if !has_body {
        return Ok((Body::empty(), None));
    }
    let too_large = || {
        let text = format!("the body is larger than {} bytes", route.body_bytes_max);
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, Error::new(Exit::Usage, text).hint("send less at once"))
    };
    let bytes = declared.unwrap_or(route.body_bytes_max);
    if bytes > route.body_bytes_max {
        return Err(too_large());
    }
    let share = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
    let Ok(Some(room)) = timeout(BODY_TIME_MAX, served.bodies.room(sender, share)).await else {
        let error = Error::new(Exit::Temporary, "the hub has as many requests with large bodies as it can hold");
        return Err(error.hint("try again later, or send less at once").into());
    };
    match timeout(BODY_TIME_MAX, to_bytes(body, route.body_bytes_max)).await {
        Ok(Ok(bytes)) => Ok((Body::from(bytes), Some(room))),
        Ok(Err(_)) => Err(too_large()),
        Err(_) => {
            let error = Error::new(Exit::Usage, "the body did not come within 30 s").hint("send it without pauses");
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, error))
        }
    }
}
