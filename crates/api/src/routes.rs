//! What can be asked. Each answer is JSON of what `hub::Hub` says.

use crate::answering::{Answer, ask, job_id, key_of, parse, submitted, text_of};
use crate::asking::Caller;
use crate::follow::{follow, reset};
use crate::problem::Problem;
use crate::served::Served;
use crate::{console, gate, rehearsals, samples, schedules, session, terms, tokens};
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Extension, Json, Router};
use hub::{Error, Filter, JobFile, JobView, Taken, Verb};
use model::Exit;
use model::order::Status;
use serde::Deserialize;
use serde_json::{Value, json};

const PAGE_DEFAULT: usize = 100;

/// Who may ask for what stands in `table`, and is looked at in `gate`.
pub fn router(served: Served) -> Router {
    Router::new()
        .route("/api/v1/jobs", get(list).post(submit))
        .route("/api/v1/jobs:batch", post(batch))
        .route("/api/v1/jobs/{id}", get(show).patch(change).delete(remove))
        .route("/api/v1/jobs/{id}/failures", get(failures))
        .route("/api/v1/jobs/{id}/{verb}", post(steer))
        .route("/api/v1/endpoints", get(endpoints).post(add_endpoint))
        .route("/api/v1/events", get(events))
        .route("/api/v1/summary", get(summary))
        .route("/api/v1/tokens", get(tokens::list).post(tokens::add))
        .route("/api/v1/tokens/{name}", delete(tokens::remove))
        .route("/api/v1/rules", get(tokens::rules).post(tokens::add_rule))
        .route("/api/v1/rules/{id}", delete(tokens::remove_rule))
        .route("/api/v1/session/code", post(session::code))
        .route("/api/v1/session", get(session::show).post(session::begin).delete(session::end))
        .route("/api/v1/openapi.json", get(openapi))
        .route("/healthz", get(async || "ok\n"))
        .merge(rehearsals::routes())
        .merge(schedules::routes())
        .merge(terms::routes())
        .merge(samples::routes())
        .merge(console::pages())
        .fallback(async || Problem::absent())
        // How much each may send is in the table.
        .layer(DefaultBodyLimit::disable())
        .layer(axum::middleware::from_fn_with_state(served.clone(), gate::gate))
        .with_state(served)
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], crate::table::OPENAPI).into_response()
}

fn version_of(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(tag) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let version = tag.to_str().ok().and_then(|tag| tag.trim_matches('"').parse().ok());
    let wrong = || Error::new(Exit::Inconclusive, "If-Match is none of this job's versions").hint("look at it again");
    version.map(Some).ok_or_else(|| wrong().into())
}

async fn submit(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let (key, text) = (key_of(&headers)?, text_of(body)?);
    let taken = ask(move || served.hub.submit(&who, JobFile::from_json(&text)?, key.as_deref())).await?;
    let status = if taken.taken == Taken::New { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(submitted(&taken))).into_response())
}

async fn batch(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let (key, text) = (key_of(&headers)?, text_of(body)?);
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
    Extension(Caller { who, .. }): Extension<Caller>,
    Query(asked): Query<Asked>,
) -> Answer {
    let filter = asked.filter()?;
    let limit = asked.limit.unwrap_or(PAGE_DEFAULT);
    let page = ask(move || served.hub.list(&who, &filter, asked.after, limit)).await?;
    Ok(Json(page).into_response())
}

fn of_job(status: StatusCode, job: &JobView) -> Response {
    let tag = format!("\"{}\"", job.version);
    (status, [(header::ETAG, tag)], Json(job)).into_response()
}

async fn show(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    let id = job_id(&id)?;
    let job = ask(move || served.hub.show(&who, id)).await?;
    Ok(of_job(StatusCode::OK, &job))
}

async fn failures(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    Path(id): Path<String>,
    Query(asked): Query<Asked>,
) -> Answer {
    let id = job_id(&id)?;
    let (after, limit) = (asked.after.unwrap_or(0), asked.limit.unwrap_or(PAGE_DEFAULT));
    let found = ask(move || served.hub.failures(&who, id, after, limit)).await?;
    Ok(Json(found).into_response())
}

async fn steer(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    Path((id, verb)): Path<(String, String)>,
    headers: HeaderMap,
) -> Answer {
    let (id, version) = (job_id(&id)?, version_of(&headers)?);
    let verb = Verb::from_word(&verb).filter(|verb| *verb != Verb::Remove);
    let Some(verb) = verb else { return Err(Problem::absent()) };
    let job = ask(move || {
        served.hub.steer(&who, id, verb, version)?;
        served.hub.show(&who, id)
    })
    .await?;
    let status = if job.status == Status::Stopping.word() { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok(of_job(status, &job))
}

async fn change(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let (id, version, text) = (job_id(&id)?, version_of(&headers)?, text_of(body)?);
    let wrong =
        || Error::new(Exit::Usage, "a change is an object").hint("such as {\"rate\": \"80Mbit\"}; null takes one away");
    let changes = match hub::parse_json(&text) {
        Ok(Value::Object(changes)) if !changes.is_empty() => changes,
        _ => return Err(wrong().into()),
    };
    let job = ask(move || {
        served.hub.change(&who, id, changes, version)?;
        served.hub.show(&who, id)
    })
    .await?;
    Ok(of_job(StatusCode::OK, &job))
}

async fn remove(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Answer {
    let (id, version) = (job_id(&id)?, version_of(&headers)?);
    ask(move || served.hub.steer(&who, id, Verb::Remove, version)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn endpoints(State(served): State<Served>, Extension(Caller { who, .. }): Extension<Caller>) -> Answer {
    Ok(Json(ask(move || served.hub.endpoints(&who)).await?).into_response())
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
    Extension(Caller { who, .. }): Extension<Caller>,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let text = text_of(body)?;
    let endpoint = ask(move || {
        // What serde says of a text that is wrong would repeat parts of the ticket.
        let wrong = |_| Error::new(Exit::Usage, "an endpoint is `name`, `ticket` and `replace`");
        let NewEndpoint { name, ticket, replace } = parse(&text).map_err(wrong)?;
        served.hub.add_endpoint(&who, &name, &ticket, replace)
    })
    .await?;
    Ok((StatusCode::CREATED, Json(endpoint)).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Following {
    after: Option<i64>,
    /// Also what runs, each second.
    #[serde(default)]
    rates: bool,
}

async fn events(
    State(served): State<Served>,
    Extension(Caller { who, .. }): Extension<Caller>,
    Query(asked): Query<Following>,
    headers: HeaderMap,
) -> Answer {
    let named = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(|id| id.parse().ok());
    let after = named.or(asked.after);
    let place = served.streams.place(&who)?;
    let rates = asked.rates.then(|| served.hub.watch(&who));
    let (hub, asker) = (served.hub.clone(), who.clone());
    match ask(move || hub.events(&asker, after)).await? {
        Ok(subscription) => Ok(follow(subscription, rates, place, &served, who)),
        Err(missed) => Ok(reset(missed.last)),
    }
}

async fn summary(State(served): State<Served>, Extension(Caller { who, .. }): Extension<Caller>) -> Answer {
    let pin = served.hub.pin();
    let counts = ask(move || served.hub.counts(&who)).await?;
    let open: serde_json::Map<String, Value> =
        counts.into_iter().map(|(status, count)| (status, json!(count))).collect();
    Ok(Json(json!({"pin": pin, "open": open})).into_response())
}
