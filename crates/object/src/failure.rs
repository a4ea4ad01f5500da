//! What went wrong with a request, as the store or the network told it, and what it means to storage.

use model::FailureKind;
use std::time::Duration;
use web::ErrorKind;
use web::xml::Element;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The keys are wrong, missing or expired.
    Keys,
    /// These keys may not do this.
    Forbidden,
    NoBucket,
    NoKey,
    NoUpload,
    /// What stands there is not what the condition asked for.
    Condition,
    /// Another request for the same key is under way.
    Conflict,
    /// The store is busy, or failed.
    Busy,
    /// Nobody answers.
    Unreachable,
    /// The other side is not who its name says.
    Untrusted,
    /// What came is no answer that counts: what was asked may have been done.
    Unknown,
    /// What arrived was not what was sent.
    Damaged,
    /// And it had the object's name: it was removed, or stands there now.
    Altered,
    NoRoom,
    /// It lies in an archive tier.
    Archived,
    Clock,
    /// The store knows no such request or header.
    Unsupported,
    Settings,
    Other,
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    pub why: Why,
    pub text: String,
    /// Of the store's own, where it said one.
    pub region: Option<String>,
    pub wait: Option<Duration>,
    /// An attempt before this one may have been carried out.
    pub is_repeated: bool,
    /// The store wants fewer requests.
    pub is_throttled: bool,
    /// Nothing was answered, or not to its end: that tells nothing of the store.
    pub is_silence: bool,
}

pub type Result<T> = std::result::Result<T, Failure>;

/// Of a success that is a page for people, or nothing.
const NO_ANSWER: &str = "is not a store's: see whether a proxy or a sign-in page stands in between";

impl Failure {
    pub fn new(why: Why, text: impl Into<String>) -> Failure {
        let (region, wait, is_repeated, is_throttled, is_silence) = Default::default();
        Failure { why, text: text.into(), region, wait, is_repeated, is_throttled, is_silence }
    }

    /// Of an answer that is no success. `is_for_object`: it named a key.
    pub fn of_answer(status: u16, body: &[u8], is_for_object: bool) -> Failure {
        let error = Element::parse(body).filter(|root| root.name == "Error");
        let get = |name| error.as_ref().and_then(|error| error.get(name)).map(printable);
        let code = get("Code").unwrap_or_default();
        let why = match (&code[..], status) {
            ("NoSuchBucket", _) => Why::NoBucket,
            ("NoSuchUpload", _) => Why::NoUpload,
            ("NoSuchKey", _) => Why::NoKey,
            (
                "InvalidAccessKeyId"
                | "SignatureDoesNotMatch"
                | "ExpiredToken"
                | "InvalidToken"
                | "TokenRefreshRequired"
                | "InvalidSecurity"
                | "NotSignedUp"
                | "AccountProblem"
                | "InvalidClientTokenId"
                | "AuthFailure",
                _,
            )
            | (_, 401) => Why::Keys,
            ("RequestTimeTooSkewed", _) => Why::Clock,
            ("PreconditionFailed", _) | (_, 412) => Why::Condition,
            ("ConditionalRequestConflict" | "OperationAborted", _) | (_, 409) => Why::Conflict,
            ("BadDigest" | "XAmzContentChecksumMismatch" | "IncompleteBody" | "InvalidDigest", _) => Why::Damaged,
            (
                "RequestTimeout" | "SlowDown" | "InternalError" | "ServiceUnavailable" | "RequestTimeTooSkewedRetry",
                _,
            ) => Why::Busy,
            ("EntityTooLarge" | "QuotaExceeded" | "XMinioStorageFull", _) | (_, 507) => Why::NoRoom,
            ("InvalidObjectState", _) => Why::Archived,
            ("NotImplemented", _) | (_, 501) => Why::Unsupported,
            (_, 408 | 429 | 500 | 502 | 503 | 504) => Why::Busy,
            (_, 403) => Why::Forbidden,
            (_, 404) if is_for_object => Why::NoKey,
            (_, 404) => Why::NoBucket,
            (_, 200..=299) => Why::Unknown,
            _ => Why::Other,
        };
        let text = match (get("Message").filter(|text| !text.is_empty()), &code[..]) {
            (Some(message), "") => message,
            (Some(message), code) => format!("{message} ({code})"),
            (None, "") if why == Why::Unknown => format!("the answer (status {status}) {NO_ANSWER}"),
            (None, "") => format!("the store answered with status {status}"),
            (None, code) => format!("the store answered {code}"),
        };
        let region = get("Region").filter(|region| is_region(region));
        let is_throttled = matches!(status, 429 | 503) || code == "SlowDown";
        Failure { region, is_throttled, ..Failure::new(why, text) }
    }

    /// Of one of many that were asked for together.
    pub fn of_code(code: &str, message: &str) -> Failure {
        let why = match code {
            "AccessDenied" => Why::Forbidden,
            "NoSuchKey" => Why::NoKey,
            "InternalError" | "SlowDown" | "ServiceUnavailable" => Why::Busy,
            _ => Why::Other,
        };
        Failure::new(why, printable(&format!("{message} ({code})")))
    }

    pub fn of_web(error: &web::Error) -> Failure {
        let why = match error.kind {
            ErrorKind::Settings => Why::Settings,
            ErrorKind::Unreachable => Why::Unreachable,
            ErrorKind::Untrusted => Why::Untrusted,
            ErrorKind::TimedOut | ErrorKind::Lost | ErrorKind::Malformed | ErrorKind::Stopped => Why::Unknown,
        };
        let is_silence = matches!(error.kind, ErrorKind::TimedOut | ErrorKind::Lost | ErrorKind::Stopped);
        Failure { is_silence, ..Failure::new(why, printable(&error.text)) }
    }

    /// A later attempt may fare better.
    pub fn may_pass(&self) -> bool {
        matches!(self.why, Why::Busy | Why::Unreachable | Why::Unknown | Why::Damaged)
    }

    /// What was sent before may still become an object: later, or with other keys.
    pub fn may_stay(&self) -> bool {
        self.may_pass() || self.why == Why::Keys
    }

    /// The same as an error of storage.
    pub fn on(&self, operation: &'static str, subject: &str) -> store::Error {
        let kind = match self.why {
            Why::NoBucket | Why::NoKey => FailureKind::NotFound,
            Why::Keys | Why::Forbidden => FailureKind::Permission,
            Why::Condition | Why::Conflict => FailureKind::InTheWay,
            Why::NoRoom => FailureKind::NoSpace,
            Why::Altered => FailureKind::DigestMismatch,
            _ => FailureKind::Other.or_by(operation),
        };
        let text = match self.why {
            Why::Condition => "something else was written there meanwhile",
            Why::NoKey => "no such object",
            Why::Archived => "it lies in an archive tier: restore it first (aws s3api restore-object)",
            _ => &self.text,
        };
        store::Error::of_kind(kind, operation, subject.as_bytes(), text)
    }
}

pub fn is_region(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// What a store or a program says, short and without control characters.
pub fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, code: &str) -> Why {
        let body = format!("<Error><Code>{code}</Code><Message>m</Message></Error>");
        Failure::of_answer(status, body.as_bytes(), true).why
    }

    #[test]
    fn codes_tell_more_than_the_status() {
        assert_eq!(of(403, "InvalidAccessKeyId"), Why::Keys);
        assert_eq!(of(403, "AccessDenied"), Why::Forbidden);
        assert_eq!(of(403, "RequestTimeTooSkewed"), Why::Clock);
        assert_eq!(of(404, "NoSuchBucket"), Why::NoBucket);
        assert_eq!(of(400, "BadDigest"), Why::Damaged);
        assert_eq!(of(200, "InternalError"), Why::Busy);
        assert_eq!(Failure::of_answer(404, b"", true).why, Why::NoKey);
        assert_eq!(Failure::of_answer(404, b"", false).why, Why::NoBucket);
    }

    #[test]
    fn a_page_for_people_is_told_as_what_it_is_and_may_pass() {
        for body in [&b"<html><body>Sign in</body></html>"[..], b"Sign in", b""] {
            let failure = Failure::of_answer(200, body, true);
            assert!(failure.may_pass() && failure.text.contains("(status 200) is not a store's"), "{failure}");
            assert!(failure.text.contains("a proxy"), "{failure}");
        }
        // What a store itself says wrong is told in its own words.
        let failure = Failure::of_answer(200, b"<Error><Code>SlowDown</Code></Error>", true);
        assert_eq!(failure.text, "the store answered SlowDown");
    }

    #[test]
    fn what_a_store_says_is_short_and_harmless() {
        let body = format!("<Error><Message>a\u{1b}[2J{}</Message></Error>", "x".repeat(1000));
        let failure = Failure::of_answer(400, body.as_bytes(), true);
        assert!(failure.text.len() <= 300 && !failure.text.contains('\u{1b}'));
    }
}
