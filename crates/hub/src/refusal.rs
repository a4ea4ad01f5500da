//! What the queue refuses, in words for people.

use crate::Error;
use model::Exit;

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
