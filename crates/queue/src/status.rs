//! The words for where a job stands, and which may follow which.
//!
//! | before | after |
//! |---|---|
//! | queued | running, waiting, paused, failed (a deadline, a job it waits for), cancelled |
//! | waiting | queued, running, stopping (where an executor has it), paused, any end |
//! | running | waiting, stopping, queued (its executor does not know it), any end |
//! | stopping | queued, waiting, paused, any end |
//! | paused | queued, waiting, failed (a deadline), cancelled |
//! | any end | queued, waiting (`retry`) |

pub use model::order::Status;
use std::fmt;

/// Whether a job may go from one state to another.
pub fn may_follow(before: Status, after: Status) -> bool {
    use Status::{Cancelled, Failed, Partial, Paused, Queued, Running, Stopping, Succeeded, Waiting};
    match before {
        Queued => matches!(after, Running | Waiting | Paused | Failed | Cancelled),
        Waiting => after != Waiting,
        Running => !matches!(after, Running | Paused),
        Stopping => !matches!(after, Stopping | Running),
        Paused => matches!(after, Queued | Waiting | Failed | Cancelled),
        Succeeded | Partial | Failed | Cancelled => matches!(after, Queued | Waiting),
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($(#[$of])* $variant),+ }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$variant),+];

            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }

            pub fn from_word(word: &str) -> Option<$name> {
                Self::ALL.iter().copied().find(|one| one.word() == word)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

words! {
    /// What a job waits for, and for an ended one what ended it beside its own errors.
    Reason {
        None = "",
        /// Another try after a pause.
        Retry = "retry",
        /// The endpoint that would carry it out does not answer.
        Endpoint = "endpoint",
        /// The two endpoints do not reach each other.
        Unreachable = "unreachable",
        Space = "space",
        /// A ticket or a warrant; until `retry`.
        Credentials = "credentials",
        /// A job that it comes after.
        Dependency = "dependency",
        /// A job that writes below the same destination.
        Destination = "destination",
        Window = "window",
        /// All slots of an endpoint or a pair are taken; said of queued jobs alone.
        Slot = "slot",
        /// `start_by` or `finish_by` has passed.
        Deadline = "deadline",
    }
}

words! {
    /// What the order is stopped for.
    Goal {
        Pause = "pause",
        Cancel = "cancel",
        /// It begins anew, as soon as it may.
        Again = "again",
        Deadline = "deadline",
        /// A job of the class high needs its slot; it begins anew.
        Yield = "yield",
        /// The other endpoint is to carry it out.
        Switch = "switch",
    }
}

words! {
    /// What people do with a job.
    Verb { Pause = "pause", Resume = "resume", Cancel = "cancel", Retry = "retry", Remove = "rm" }
}

impl From<model::order::Reason> for Reason {
    fn from(reason: model::order::Reason) -> Reason {
        use model::order::Reason as Told;
        match reason {
            Told::None => Reason::None,
            Told::Retry => Reason::Retry,
            Told::Endpoint => Reason::Endpoint,
            Told::Space => Reason::Space,
            Told::Credentials => Reason::Credentials,
            Told::Unreachable => Reason::Unreachable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written out apart from `may_follow`, row by row as in the table above.
    #[test]
    fn what_may_follow_is_the_table() {
        use Status::{Cancelled, Failed, Partial, Paused, Queued, Running, Stopping, Succeeded, Waiting};
        let ends = [Succeeded, Partial, Failed, Cancelled];
        let with_ends = |some: &[Status]| [some, &ends].concat();
        let mut table = vec![
            (Queued, vec![Running, Waiting, Paused, Failed, Cancelled]),
            (Waiting, with_ends(&[Queued, Running, Stopping, Paused])),
            (Running, with_ends(&[Waiting, Stopping, Queued])),
            (Stopping, with_ends(&[Queued, Waiting, Paused])),
            (Paused, vec![Queued, Waiting, Failed, Cancelled]),
        ];
        table.extend(ends.map(|end| (end, vec![Queued, Waiting])));
        for (before, after) in table {
            for one in Status::ALL {
                assert_eq!(may_follow(before, *one), after.contains(one), "{before} {one}");
            }
        }
    }
}
