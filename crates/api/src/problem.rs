//! How a refusal reads: `application/problem+json`, with the exit code and the hint of the command line.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hub::Error;
use model::Exit;
use serde_json::json;

pub struct Problem {
    status: StatusCode,
    error: Error,
}

impl Problem {
    pub fn new(status: StatusCode, error: Error) -> Problem {
        Problem { status, error }
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
        Problem { status, error }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Problem { status, error } = self;
        let body = json!({"title": status.canonical_reason(), "status": status.as_u16(), "detail": error.message,
            "hint": error.hint, "code": error.exit as i32});
        let mut response = (status, body.to_string()).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }
}
