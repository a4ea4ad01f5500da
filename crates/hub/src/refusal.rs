//! What is refused of a job as it stands, in words for people.

use crate::Error;
use model::Exit;

/// What was decided on by an older state of a job than the present one.
pub fn changed_meanwhile() -> Error {
    Error::new(Exit::Inconclusive, "the job has changed meanwhile").hint("look at it again, then decide")
}

pub fn refused(refused: &queue::Refused) -> Error {
    match refused {
        queue::Refused::Full { is_owner: true } => {
            Error::new(Exit::Temporary, "this user has reached the limit of open jobs")
                .hint("try again when some have ended")
        }
        queue::Refused::Full { is_owner: false } => {
            Error::new(Exit::Temporary, "the queue holds as many open jobs as it keeps")
                .hint("try again when some have ended")
        }
        queue::Refused::NoSuchJob => {
            Error::new(Exit::SourceFileNotFound, "the hub has no job of this id").hint("`thalweg job ls` lists them")
        }
        queue::Refused::WrongState { status, help } => Error::new(Exit::Failed, format!("the job is {status}: {help}"))
            .hint("`thalweg job show` says how it stands"),
    }
}
