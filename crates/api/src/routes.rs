//! What can be asked. Each answer is JSON of what `hub::Hub` says.

use crate::asking::Peer;
use crate::follow::{follow, reset};
use crate::problem::Problem;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{ConnectInfo, DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use hub::{Error, Filter, Hub, JobFile, JobView, Principal, Submitted, Taken, Verb};
use model::order::Status;
use model::{Exit, JobId};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

const BODY_BYTES_MAX: usize = 1 << 20;
const BATCH_BYTES_MAX: usize = 8 << 20;
const PAGE_DEFAULT: usize = 100;

pub(crate) type Answer = Result<Response, Problem>;

#[derive(Clone)]
pub(crate) struct Served {
    pub hub: Hub,
    stopped: watch::Receiver<bool>,
}

pub fn router(hub: Hub, stopped: watch::Receiver<bool>) -> Router {
    let batch = post(batch).layer(DefaultBodyLimit::max(BATCH_BYTES_MAX));
    Router::new()
        .route("/api/v1/jobs", get(list).post(submit))
        .route("/api/v1/jobs:batch", batch)
        .route("/api/v1/jobs/{id}", get(show).delete(remove))
        .route("/api/v1/jobs/{id}/failures", get(failures))
        .route("/api/v1/jobs/{id}/{verb}", post(steer))
        .route("/api/v1/endpoints", get(endpoints).post(add_endpoint))
        .route("/api/v1/events", get(events))
        .route("/api/v1/summary", get(summary))
        .merge(crate::schedules::routes())
        .fallback(nothing)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Served { hub, stopped })
}

pub(crate) async fn nothing() -> Problem {
    let error = Error::new(Exit::Usage, "there is nothing of this name").hint("docs/hub.md lists the routes");
    Problem::new(StatusCode::NOT_FOUND, error)
}

/// Runs a call that blocks.
pub(crate) async fn ask<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Problem> {
    let failed = |_| Error::new(Exit::Fatal, "a thread of the hub failed; this is a bug");
    Ok(spawn_blocking(call).await.map_err(failed)??)
}

pub(crate) fn who(peer: Peer) -> Result<Principal, Problem> {
    let nobody = || Error::new(Exit::Authentication, "the kernel does not say who asks");
    peer.principal().ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, nobody()))
}

fn job_id(text: &str) -> Result<JobId, Problem> {
    let wrong = || {
        Error::new(Exit::SourceFileNotFound, "the hub has no job of this id").hint("an id has 32 hexadecimal digits")
    };
    JobId::from_hex(text).ok_or_else(|| wrong().into())
}

pub(crate) fn text_of(body: Result<Bytes, BytesRejection>) -> Result<String, Problem> {
    let usage = |text: String| Error::new(Exit::Usage, text).hint("docs/hub.md says what is expected");
    let body = body.map_err(|e| Problem::new(e.status(), usage(e.body_text())))?;
    String::from_utf8(body.to_vec()).map_err(|_| usage("the body is not UTF-8".to_owned()).into())
}

fn key_of(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let wrong = || Error::new(Exit::Usage, "Idempotency-Key is not plain text").hint("use letters and digits");
    key.to_str().map(|key| Some(key.to_owned())).map_err(|_| wrong().into())
}

fn version_of(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(tag) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let version = tag.to_str().ok().and_then(|tag| tag.trim_matches('"').parse().ok());
    let wrong = || Error::new(Exit::Inconclusive, "If-Match is none of this job's versions").hint("look at it again");
    version.map(Some).ok_or_else(|| wrong().into())
}

fn submitted(one: &Submitted) -> Value {
    json!({"id": one.id.to_string(), "is_new": one.taken == Taken::New})
}

async fn submit(
    State(served): State<Served>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let (who, key, text) = (who(peer)?, key_of(&headers)?, text_of(body)?);
    let taken = ask(move || served.hub.submit(&who, JobFile::from_json(&text)?, key.as_deref())).await?;
    let status = if taken.taken == Taken::New { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(submitted(&taken))).into_response())
}

async fn batch(
    State(served): State<Served>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let (who, key, text) = (who(peer)?, key_of(&headers)?, text_of(body)?);
    let taken = ask(move || {
        let mut files = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let at = |e: Error| Error { message: format!("line {}: {}", number + 1, e.message), ..e };
            files.push(JobFile::from_json(line).map_err(at)?);
        }
        served.hub.batch(&who, files, key.as_deref())
    })
    .await?;
    let all: Vec<_> = taken.iter().map(submitted).collect();
    Ok((StatusCode::CREATED, Json(Value::Array(all))).into_response())
}

/// What a list is asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    status: Option<String>,
    owner: Option<String>,
    endpoint: Option<String>,
    label: Option<String>,
    q: Option<String>,
    after: Option<u64>,
    limit: Option<usize>,
    /// `oldest` or `newest`.
    order: Option<String>,
}

impl Asked {
    fn filter(&self) -> Result<Filter, Problem> {
        let wrong =
            |text: String| Problem::from(Error::new(Exit::Usage, text).hint("docs/hub.md lists what can be asked for"));
        let mut filter = Filter {
            owner: self.owner.clone(),
            endpoint: self.endpoint.clone(),
            text: self.q.clone(),
            ..Filter::default()
        };
        for word in self.status.iter().flat_map(|words| words.split(',')) {
            match (word, Status::from_word(word)) {
                ("open", _) => filter.is_open = true,
                (_, Some(status)) => filter.statuses.push(status),
                _ => return Err(wrong(format!("{word:?} is no status"))),
            }
        }
        if let Some(label) = &self.label {
            let (name, value) =
                label.split_once('=').ok_or_else(|| wrong("a label is asked for as NAME=VALUE".to_owned()))?;
            filter.label = Some((name.to_owned(), value.to_owned()));
        }
        filter.is_oldest_first = match self.order.as_deref() {
            None | Some("newest") => false,
            Some("oldest") => true,
            Some(other) => return Err(wrong(format!("{other:?} is no order: oldest or newest"))),
        };
        Ok(filter)
    }
}

async fn list(
    State(served): State<Served>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Answer {
    let usage =
        |e: QueryRejection| Error::new(Exit::Usage, e.body_text()).hint("docs/hub.md lists what can be asked for");
    let (who, Query(asked)) = (who(peer)?, asked.map_err(usage)?);
    let filter = asked.filter()?;
    let limit = asked.limit.unwrap_or(PAGE_DEFAULT);
    let page = ask(move || served.hub.list(&who, &filter, asked.after, limit)).await?;
    Ok(Json(page).into_response())
}

fn of_job(status: StatusCode, job: &JobView) -> Response {
    let tag = format!("\"{}\"", job.version);
    (status, [(header::ETAG, tag)], Json(job)).into_response()
}

async fn show(State(served): State<Served>, ConnectInfo(peer): ConnectInfo<Peer>, Path(id): Path<String>) -> Answer {
    let (who, id) = (who(peer)?, job_id(&id)?);
    let job = ask(move || served.hub.show(&who, id)).await?;
    Ok(of_job(StatusCode::OK, &job))
}

async fn failures(
    State(served): State<Served>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(id): Path<String>,
    Query(asked): Query<Asked>,
) -> Answer {
    let (who, id) = (who(peer)?, job_id(&id)?);
    let (after, limit) = (asked.after.unwrap_or(0), asked.limit.unwrap_or(PAGE_DEFAULT));
    let found = ask(move || served.hub.failures(&who, id, after, limit)).await?;
    Ok(Json(found).into_response())
}

async fn steer(
    State(served): State<Served>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path((id, verb)): Path<(String, String)>,
    headers: HeaderMap,
) -> Answer {
    let (who, id, version) = (who(peer)?, job_id(&id)?, version_of(&headers)?);
    let verb = Verb::from_word(&verb).filter(|verb| *verb != Verb::Remove);
    let Some(verb) = verb else { return Ok(nothing().await.into_response()) };
    let job = ask(move || {
        served.hub.steer(&who, id, verb, version)?;
        served.hub.show(&who, id)
    })
    .await?;
    let status = if job.status == Status::Stopping.word() { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok(of_job(status, &job))
}

async fn remove(
    State(served): State<Served>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Answer {
    let (who, id, version) = (who(peer)?, job_id(&id)?, version_of(&headers)?);
    ask(move || served.hub.steer(&who, id, Verb::Remove, version)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn endpoints(State(served): State<Served>, ConnectInfo(peer): ConnectInfo<Peer>) -> Answer {
    who(peer)?;
    Ok(Json(ask(move || served.hub.endpoints()).await?).into_response())
}

/// An endpoint that the hub is to know, by its ticket.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewEndpoint {
    name: String,
    ticket: String,
    #[serde(default)]
    replace: bool,
}

async fn add_endpoint(
    State(served): State<Served>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let (who, text) = (who(peer)?, text_of(body)?);
    let endpoint = ask(move || {
        // What serde says of a text that is wrong would repeat parts of the ticket.
        let wrong = |_| Error::new(Exit::Usage, "an endpoint is `name`, `ticket` and `replace`");
        let NewEndpoint { name, ticket, replace } = serde_json::from_str(&text).map_err(wrong)?;
        served.hub.add_endpoint(&who, &name, &ticket, replace)
    })
    .await?;
    Ok((StatusCode::CREATED, Json(endpoint)).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Following {
    after: Option<i64>,
}

async fn events(
    State(served): State<Served>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Query(asked): Query<Following>,
    headers: HeaderMap,
) -> Answer {
    let who = who(peer)?;
    let named = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(|id| id.parse().ok());
    let after = named.or(asked.after);
    let stopped = served.stopped.clone();
    match ask(move || served.hub.events(&who, after)).await? {
        Ok(subscription) => Ok(follow(subscription, stopped)),
        Err(missed) => Ok(reset(missed.last)),
    }
}

async fn summary(State(served): State<Served>, ConnectInfo(peer): ConnectInfo<Peer>) -> Answer {
    who(peer)?;
    let pin = served.hub.pin();
    let counts = ask(move || served.hub.counts()).await?;
    let open: serde_json::Map<String, Value> =
        counts.into_iter().map(|(status, count)| (status, json!(count))).collect();
    Ok(Json(json!({"pin": pin, "open": open})).into_response())
}
