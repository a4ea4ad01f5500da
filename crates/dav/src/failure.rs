//! What went wrong with a request, and what it means to storage.

use model::FailureKind;
use web::ErrorKind;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The token is wrong, missing or expired.
    Credentials,
    /// It does not allow this.
    Forbidden,
    Missing,
    Busy,
    Unreachable,
    /// The server is not who its name says, or sends the client elsewhere.
    Untrusted,
    /// What came is no answer that counts.
    Unknown,
    /// Another version stands there.
    Changed,
    Settings,
    Other,
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    pub why: Why,
    pub text: String,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(why: Why, text: impl Into<String>) -> Failure {
        Failure { why, text: text.into() }
    }

    /// Of an answer that is no success.
    pub fn of_status(status: u16, has_token: bool) -> Failure {
        let (why, text) = match status {
            401 if has_token => (Why::Credentials, "the server takes this token no more, or never did".to_owned()),
            401 => (Why::Credentials, "the server asks for a token".to_owned()),
            403 => (Why::Forbidden, "the server forbids it".to_owned()),
            404 | 410 => (Why::Missing, "no such file".to_owned()),
            412 => (Why::Changed, "it changed meanwhile".to_owned()),
            405 | 501 => {
                (Why::Other, format!("the server knows no such request (status {status}): it is no WebDAV server"))
            }
            408 | 429 | 500 | 502..=504 => (Why::Busy, format!("the server answered with status {status}")),
            _ => (Why::Other, format!("the server answered with status {status}")),
        };
        Failure::new(why, text)
    }

    pub fn of_web(error: &web::Error) -> Failure {
        let why = match error.kind {
            ErrorKind::Settings => Why::Settings,
            ErrorKind::Unreachable => Why::Unreachable,
            ErrorKind::Untrusted => Why::Untrusted,
            ErrorKind::TimedOut | ErrorKind::Lost | ErrorKind::Malformed => Why::Unknown,
        };
        Failure::new(why, error.text.chars().filter(|c| !c.is_control()).take(300).collect::<String>())
    }

    /// A later attempt may fare better.
    pub fn may_pass(&self) -> bool {
        matches!(self.why, Why::Busy | Why::Unknown)
    }

    /// The same as an error of storage.
    pub fn on(&self, operation: &'static str, subject: &[u8]) -> store::Error {
        let kind = match self.why {
            Why::Missing => FailureKind::NotFound,
            Why::Credentials | Why::Forbidden => FailureKind::Permission,
            Why::Changed => FailureKind::Changed,
            _ if operation.starts_with("read") => FailureKind::ReadError,
            _ => FailureKind::Other,
        };
        store::Error::of_kind(kind, operation, subject, &self.text)
    }
}
