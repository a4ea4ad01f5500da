//! What went wrong with a request, and what it means to storage.

use model::FailureKind;
use std::time::Duration;
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
    NoRoom,
    /// Something else has that name, or is in it.
    InTheWay,
    /// What lies at the server is not what was sent.
    Damaged,
    Other,
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    pub why: Why,
    pub text: String,
    /// The request was made before, and may have been carried out then.
    pub is_repeated: bool,
    /// The server does not do that to what has this name.
    pub is_method: bool,
    /// It says that it does not know the method: XRootD 5.5 does so now and then of methods that it knows.
    pub is_unknown_method: bool,
    /// For so long it wants not to be asked again.
    pub wait: Option<Duration>,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(why: Why, text: impl Into<String>) -> Failure {
        Failure { why, text: text.into(), is_repeated: false, is_method: false, is_unknown_method: false, wait: None }
    }

    /// Of an answer that is no success.
    pub fn of_status(status: u16, has_token: bool) -> Failure {
        let (why, text) = match status {
            401 if has_token => (Why::Credentials, "the server takes this token no more, or never did".to_owned()),
            401 => (Why::Credentials, "the server asks for a token".to_owned()),
            403 => (Why::Forbidden, "the server forbids it".to_owned()),
            404 | 410 => (Why::Missing, "no such file".to_owned()),
            412 => (Why::Changed, "it changed meanwhile".to_owned()),
            409 => (Why::Missing, "the directory above it is not there".to_owned()),
            423 => (Why::Other, "somebody holds a lock on it: have that released, or try again later".to_owned()),
            507 => (Why::NoRoom, "there is no room left on the server".to_owned()),
            405 | 501 => {
                (Why::Other, format!("the server knows no such request (status {status}): it is no WebDAV server"))
            }
            408 | 429 | 500 | 502..=504 => (Why::Busy, format!("the server answered with status {status}")),
            _ => (Why::Other, format!("the server answered with status {status}")),
        };
        Failure { is_method: status == 405, is_unknown_method: status == 501, ..Failure::new(why, text) }
    }

    pub fn of_web(error: &web::Error) -> Failure {
        let why = match error.kind {
            ErrorKind::Settings => Why::Settings,
            ErrorKind::Unreachable => Why::Unreachable,
            ErrorKind::Untrusted => Why::Untrusted,
            ErrorKind::TimedOut | ErrorKind::Lost | ErrorKind::Malformed | ErrorKind::Stopped => Why::Unknown,
        };
        Failure::new(why, error.text.chars().filter(|c| !c.is_control()).take(300).collect::<String>())
    }

    /// A later attempt may fare better.
    pub fn may_pass(&self) -> bool {
        matches!(self.why, Why::Busy | Why::Unknown)
    }

    /// The same after so many attempts: a method that was not known is tried once more.
    pub fn may_pass_after(&self, tries: u32) -> bool {
        self.may_pass() || self.is_unknown_method && tries == 1
    }

    /// The request may have been carried out all the same.
    pub fn may_be_done(&self) -> bool {
        // A server that has done it finds nothing there any more, or something at the new name, whichever it looks at first.
        self.may_pass() || (self.is_repeated && matches!(self.why, Why::Missing | Why::Changed))
    }

    /// The same as an error of storage.
    pub fn on(&self, operation: &'static str, subject: &[u8]) -> store::Error {
        let kind = match self.why {
            Why::Missing => FailureKind::NotFound,
            Why::Credentials | Why::Forbidden => FailureKind::Permission,
            Why::Changed => FailureKind::Changed,
            Why::NoRoom => FailureKind::NoSpace,
            Why::InTheWay => FailureKind::InTheWay,
            Why::Damaged => FailureKind::WriteError,
            _ => FailureKind::Other.or_by(operation),
        };
        store::Error::of_kind(kind, operation, subject, &self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_that_failed_is_an_error_of_writing() {
        let failure = Failure::of_status(502, false);
        let kind = |operation| failure.on(operation, b"f").kind;
        assert_eq!((kind("write file"), kind("read file")), (FailureKind::WriteError, FailureKind::ReadError));
        assert_eq!(kind("publish"), FailureKind::Other);
    }
}
