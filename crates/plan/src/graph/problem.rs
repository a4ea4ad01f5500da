//! What is wrong with a model, as an error that says where, what, and what to do.

use std::fmt;

/// What is wrong with a model: where, what, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    pub subject: String,
    pub what: String,
    pub cure: &'static str,
}

impl Problem {
    pub(crate) fn new(subject: impl Into<String>, what: impl Into<String>, cure: &'static str) -> Problem {
        Problem { subject: subject.into(), what: what.into(), cure }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.what)
    }
}

impl std::error::Error for Problem {}
