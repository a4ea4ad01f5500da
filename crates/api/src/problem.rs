//! How a refusal reads: `application/problem+json`, with the exit code and the hint of the command line.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hub::Error;
use model::Exit;
use serde_json::json;
use std::time::Duration;

pub const MEDIA_TYPE: &str = "application/problem+json";

pub struct Problem {
    status: StatusCode,
    error: Error,
    /// When to ask again.
    wait: Option<Duration>,
}

impl Problem {
    pub fn new(status: StatusCode, error: Error) -> Problem {
        Problem { status, error, wait: None }
    }

    pub fn absent() -> Problem {
        let error = Error::new(Exit::Usage, "there is nothing of this name").hint("docs/hub.md lists the routes");
        Problem::new(StatusCode::NOT_FOUND, error)
    }

    /// Too many of something: to be asked again after a while.
    pub fn too_many(what: &str, wait: Duration) -> Problem {
        let error = Error::new(Exit::Temporary, format!("too many {what}")).hint("wait, then ask again");
        Problem { status: StatusCode::TOO_MANY_REQUESTS, error, wait: Some(wait) }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        let status = match error.exit {
            Exit::Usage => StatusCode::BAD_REQUEST,
            Exit::SourceFileNotFound => StatusCode::NOT_FOUND,
            Exit::Refused => StatusCode::FORBIDDEN,
            Exit::Failed | Exit::LimitCrossed => StatusCode::CONFLICT,
            Exit::Inconclusive => StatusCode::PRECONDITION_FAILED,
            Exit::Temporary => StatusCode::SERVICE_UNAVAILABLE,
            Exit::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
            Exit::Unreachable | Exit::Authentication | Exit::Version => StatusCode::BAD_GATEWAY,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Problem::new(status, error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Problem { status, error, wait } = self;
        let seconds = wait.map(|wait| wait.as_secs().max(1));
        let mut body = json!({"title": status.canonical_reason(), "status": status.as_u16(), "detail": error.message,
            "hint": error.hint, "code": error.exit as i32});
        if let Some(seconds) = seconds {
            body["retry_after"] = json!(seconds);
        }
        let mut response = (status, body.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        headers.extend(seconds.map(|seconds| (header::RETRY_AFTER, HeaderValue::from(seconds))));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"thalweg\""));
        }
        response
    }
}
