//! The life of a job: its states, and what leads from one to the next.
//!
//! | before    | begin    | run     | pause  | succeed   | fail   | cancel    |
//! |-----------|----------|---------|--------|-----------|--------|-----------|
//! | (absent)  | Planning | -       | -      | -         | -      | -         |
//! | Queued    | Planning | -       | -      | -         | -      | Cancelled |
//! | Planning  | Planning | Running | Paused | -         | Failed | Cancelled |
//! | Running   | Planning | -       | Paused | Succeeded | Failed | Cancelled |
//! | Paused    | Planning | Running | -      | -         | Failed | Cancelled |
//! | Succeeded | Planning | -       | -      | -         | -      | -         |
//! | Failed    | Planning | -       | -      | -         | -      | -         |
//! | Cancelled | Planning | -       | -      | -         | -      | -         |
//!
//! Queued is a state of the format that this program reads and does not write.
//!
//! `begin` is possible from every state, because the process that ran the attempt before may be gone without a word. The
//! earlier attempt, should it still live, is superseded.

use std::fmt;

/// In lifecycle order. The last three are final.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum State {
    Queued,
    Planning,
    Running,
    Paused,
    Succeeded,
    Failed,
    Cancelled,
}

/// What changes a job's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Verb {
    Begin,
    Run,
    Pause,
    Succeed,
    Fail,
    Cancel,
}

impl State {
    pub const ALL: [State; 7] = [
        State::Queued,
        State::Planning,
        State::Running,
        State::Paused,
        State::Succeeded,
        State::Failed,
        State::Cancelled,
    ];

    /// The state after `verb`; `None` when the verb is not allowed. `before` is `None` for a job not in the ledger.
    pub fn after(before: Option<State>, verb: Verb) -> Option<State> {
        use State::*;
        let is_open = matches!(before, Some(Planning | Running | Paused));
        match verb {
            Verb::Begin => Some(Planning),
            Verb::Run if matches!(before, Some(Planning | Paused)) => Some(Running),
            Verb::Pause if matches!(before, Some(Planning | Running)) => Some(Paused),
            Verb::Succeed if before == Some(Running) => Some(Succeeded),
            Verb::Fail if is_open => Some(Failed),
            Verb::Cancel if is_open || before == Some(Queued) => Some(Cancelled),
            _ => None,
        }
    }

    pub fn is_final(self) -> bool {
        matches!(self, State::Succeeded | State::Failed | State::Cancelled)
    }

    /// The form in the ledger; part of its format.
    pub fn name(self) -> &'static str {
        match self {
            State::Queued => "queued",
            State::Planning => "planning",
            State::Running => "running",
            State::Paused => "paused",
            State::Succeeded => "succeeded",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.name() == name)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written out apart from `after`, row by row as in the table above.
    #[test]
    fn transitions_are_those_of_the_table() {
        use State::*;
        const NO: Option<State> = None;
        let verbs = [Verb::Begin, Verb::Run, Verb::Pause, Verb::Succeed, Verb::Fail, Verb::Cancel];
        let table = [
            (None, [Some(Planning), NO, NO, NO, NO, NO]),
            (Some(Queued), [Some(Planning), NO, NO, NO, NO, Some(Cancelled)]),
            (Some(Planning), [Some(Planning), Some(Running), Some(Paused), NO, Some(Failed), Some(Cancelled)]),
            (Some(Running), [Some(Planning), NO, Some(Paused), Some(Succeeded), Some(Failed), Some(Cancelled)]),
            (Some(Paused), [Some(Planning), Some(Running), NO, NO, Some(Failed), Some(Cancelled)]),
            (Some(Succeeded), [Some(Planning), NO, NO, NO, NO, NO]),
            (Some(Failed), [Some(Planning), NO, NO, NO, NO, NO]),
            (Some(Cancelled), [Some(Planning), NO, NO, NO, NO, NO]),
        ];
        for (before, row) in table {
            for (verb, after) in verbs.into_iter().zip(row) {
                assert_eq!(State::after(before, verb), after, "{before:?} {verb:?}");
            }
        }
    }

    #[test]
    fn names_read_back() {
        for state in State::ALL {
            assert_eq!(State::from_name(state.name()), Some(state));
        }
        assert_eq!(State::from_name("done"), None);
    }
}
