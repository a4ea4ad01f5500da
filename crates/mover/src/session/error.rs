//! Why a session could not be opened.

use wire::Refusal;

/// Why there is no session.
#[derive(Debug)]
pub enum ConnectError {
    Net(net::Error),
    Refused(Refusal),
    Lost(String),
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConnectError::Net(e) => write!(f, "{e}"),
            ConnectError::Refused(refusal) => write!(f, "the endpoint refused: {refusal}"),
            ConnectError::Lost(why) => write!(f, "the connection was lost: {why}"),
        }
    }
}

impl std::error::Error for ConnectError {}
