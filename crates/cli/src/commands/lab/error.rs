//! Errors of the laboratory as the program tells them.

use crate::exit::Error;
use lab::Kind;
use model::Exit;

/// An error of the laboratory with what to do about it.
pub fn of_lab(error: lab::Error) -> Error {
    let exit = if error.kind == Kind::Refused { Exit::Usage } else { Exit::Failed };
    let hint = error.hint.clone().unwrap_or_else(|| {
        match error.kind {
            Kind::Denied => "run it as root",
            Kind::Missing => "install what is named",
            Kind::Refused => "docs/lab.md lists what is possible",
            Kind::Failed => "`thalweg lab down --all` removes what may be left; then try again",
        }
        .into()
    });
    crate::exit::error(exit, error.to_string(), hint)
}
