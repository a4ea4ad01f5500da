//! How a laboratory that another process holds is asked and told: lines of JSON over a socket in its record's directory.
//!
//! Invariant: the directory belongs to the holder's user alone, so whoever reaches the socket may use it.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};
use crate::laboratory::Lab;
use crate::lease::Lease;
use crate::probe::RoundTrips;
use crate::record::Record;
use crate::scenario::parse_changes;

/// Longest request; a change of every property is a tenth of it.
const REQUEST_BYTES_MAX: u64 = 4096;
/// How long one peer may keep the holder from the next.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    Status,
    /// Words such as `rtt=100ms` or `forward.loss=1%`.
    Set {
        link: String,
        words: Vec<String>,
    },
    Down,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Record(Box<Record>),
    Error { text: String, hint: Option<String> },
}

pub struct Control {
    listener: UnixListener,
}

impl Control {
    pub fn open(lab: &Lab) -> Result<Control> {
        let path = path(lab.lease());
        let private = fs::Permissions::from_mode(0o700);
        let listener = fs::set_permissions(&lab.lease().dir, private).and_then(|()| UnixListener::bind(&path));
        Ok(Control { listener: listener.map_err(|source| Error::io("listen at", &path, source))? })
    }

    /// Answers requests until one asks to end; to be stopped from elsewhere, send `Request::Down`.
    pub fn serve(&self, lab: &Lab, round_trips: &[RoundTrips]) {
        for stream in self.listener.incoming().flatten() {
            // A peer that breaks off or sends garbage has only itself to blame.
            if let Ok(Request::Down) = answer(&stream, lab, round_trips) {
                return;
            }
        }
    }
}

/// Sends one request to the holder of a laboratory.
pub fn ask(lease: &Lease, request: &Request) -> Result<Record> {
    let path = path(lease);
    let failed = |source| {
        Error::io("reach the holder of the laboratory at", &path, source)
            .hint("remove it with `thalweg lab down --all`")
    };
    let mut stream = UnixStream::connect(&path).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let line = serde_json::to_string(request).map_err(|error| failed(error.into()))?;
    writeln!(stream, "{line}").map_err(failed)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(failed)?;
    match serde_json::from_str(&answer).map_err(|error| failed(error.into()))? {
        Answer::Record(record) => Ok(*record),
        Answer::Error { text, hint } => Err(Error { hint, ..Error::new(Kind::Refused, "change", &lease.token, text) }),
    }
}

fn path(lease: &Lease) -> PathBuf {
    lease.dir.join("control")
}

fn answer(stream: &UnixStream, lab: &Lab, round_trips: &[RoundTrips]) -> io::Result<Request> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    io::Read::take(BufReader::new(stream), REQUEST_BYTES_MAX).read_line(&mut line)?;
    let request: Request = serde_json::from_str(&line)?;
    let result = match &request {
        Request::Status | Request::Down => Ok(()),
        Request::Set { link, words } => {
            parse_changes(words).map_err(Error::from).and_then(|changes| lab.set(link, &changes))
        }
    };
    let answer = match result {
        Ok(()) => Answer::Record(Box::new(Record::of(lab, round_trips.to_vec()))),
        Err(error) => Answer::Error { text: error.to_string(), hint: error.hint },
    };
    let mut writer = stream;
    let told = writeln!(writer, "{}", serde_json::to_string(&answer)?);
    // Whoever asked for the end need not wait for the answer.
    if request == Request::Down { Ok(request) } else { told.map(|()| request) }
}
