//! What is found where somebody else's storage is looked at as a transfer would use it: words for whoever has to mend it.
//!
//! Not here: what is looked at, which each kind of storage knows.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weight {
    Good,
    Note,
    Needed,
}

/// One thing that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub weight: Weight,
    pub subject: &'static str,
    pub found: String,
    /// Empty where nothing is lost.
    pub cost: &'static str,
    pub advice: Option<String>,
}

impl Seen {
    pub fn good(subject: &'static str, found: impl Into<String>) -> Seen {
        Seen { weight: Weight::Good, subject, found: found.into(), cost: "", advice: None }
    }

    pub fn note(
        subject: &'static str,
        found: impl Into<String>,
        cost: &'static str,
        advice: impl Into<String>,
    ) -> Seen {
        Seen { weight: Weight::Note, cost, advice: Some(advice.into()), ..Seen::good(subject, found) }
    }

    /// Something that transfers need, and that was refused.
    pub fn needed(
        subject: &'static str,
        found: impl Into<String>,
        cost: &'static str,
        advice: impl Into<String>,
    ) -> Seen {
        Seen { weight: Weight::Needed, ..Seen::note(subject, found, cost, advice) }
    }
}
