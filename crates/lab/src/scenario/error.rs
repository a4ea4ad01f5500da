//! Why a scenario cannot be read, changed or built.
//!
//! Every text is one line that names the place, says what is wrong there and what would be right.

#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("{subject}: {problem}")]
pub struct Error {
    pub kind: Kind,
    /// Where: `line 4, link.wan.rate`, `link wan`, or the word that was given.
    pub subject: String,
    /// What is wrong, and how to mend it.
    pub problem: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The file is not TOML, or a word is not `KEY=VALUE`.
    Syntax,
    UnknownKey,
    /// A key that must be there is not, or is there twice.
    Keys,
    /// Cannot be read as what its key holds.
    Value,
    /// Can be read and cannot be built.
    Impossible,
    /// The packets in flight do not fit the memory of this host.
    Memory,
}

impl Error {
    pub(super) fn new(kind: Kind, subject: impl Into<String>, problem: impl Into<String>) -> Error {
        Error { kind, subject: subject.into(), problem: problem.into() }
    }

    /// The same problem, named by the place where it was found.
    pub(super) fn found_at(self, subject: String) -> Error {
        Error { subject, ..self }
    }
}
