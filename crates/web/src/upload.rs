//! A request whose body the caller sends, piece by piece, after the server gave leave for it.
//!
//! Invariants: no byte of the body is sent before the server said so or kept silent for as long as it is waited for, so that one that
//! refuses or redirects is heard first; a connection whose request was not sent whole is never used again.

use crate::client::{Client, Request, Response};
use crate::connection::{Connection, PROGRESS_MAX};
use crate::error::{Error, ErrorKind, Result};
use std::fmt::Write;
use std::time::Duration;

/// After that a server is taken for one that gives no leave (RFC 9110, section 10.1.1).
const LEAVE_PATIENCE: Duration = Duration::from_secs(1);

/// What came of the head of a request.
pub enum Begun {
    /// The body may follow.
    Upload(Box<Upload>),
    /// The server answered instead.
    Answer(Box<Response>),
}

pub struct Upload {
    client: Client,
    connection: Connection,
    method: &'static str,
    /// Of the body; `None` where its end is not known.
    left: Option<u64>,
}

impl Client {
    /// Sends the head of a request, whose body will have this length, or one that nobody knows yet.
    pub fn begin(&self, request: &Request<'_>, length: Option<u64>) -> Result<Begun> {
        self.begin_within(request, length, LEAVE_PATIENCE)
    }

    /// The same of a server that takes longer to say where the body goes: it is waited for so long.
    pub fn begin_within(&self, request: &Request<'_>, length: Option<u64>, patience: Duration) -> Result<Begun> {
        let framing = match length {
            Some(length) => format!("Content-Length: {length}\r\n"),
            None => "Transfer-Encoding: chunked\r\n".to_owned(),
        };
        // XRootD knows headers only by their usual capitals.
        let head = self.head(request, &format!("Expect: 100-continue\r\n{framing}"))?;
        if let Some(connection) = self.take() {
            match self.ask_leave(connection, (request.method, &head), length, patience) {
                Err(e) if e.kind == ErrorKind::Lost => {}
                begun => return begun,
            }
        }
        self.ask_leave(self.open()?, (request.method, &head), length, patience)
    }

    fn ask_leave(
        &self,
        mut connection: Connection,
        (method, head): (&'static str, &str),
        left: Option<u64>,
        patience: Duration,
    ) -> Result<Begun> {
        connection.write(head.as_bytes())?;
        match connection.leave(patience)? {
            // What follows an answer without the body is no answer of the next request.
            Some(answer) => Ok(Begun::Answer(Box::new(self.answer(connection, method, answer, false)?))),
            None => Ok(Begun::Upload(Box::new(Upload { client: self.clone(), connection, method, left }))),
        }
    }
}

impl Upload {
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.left {
            _ if bytes.is_empty() => Ok(()),
            None => {
                let mut frame = String::new();
                let _ = write!(frame, "{:x}\r\n", bytes.len());
                self.connection.write(frame.as_bytes())?;
                self.connection.write(bytes)?;
                self.connection.write(b"\r\n")
            }
            Some(left) if *left < bytes.len() as u64 => {
                Err(Error::new(ErrorKind::Settings, "more was to be sent than was said"))
            }
            Some(left) => {
                self.connection.write(bytes)?;
                *left -= bytes.len() as u64;
                Ok(())
            }
        }
    }

    /// Ends the body, and reads the head of the answer. After a `write` that failed: what the server said, if it said something.
    pub fn finish(mut self) -> Result<Response> {
        let sent = match self.left {
            None => self.connection.write(b"0\r\n\r\n"),
            Some(0) => Ok(()),
            Some(_) => Err(Error::new(ErrorKind::Lost, "it was not sent whole")),
        };
        let is_whole = sent.is_ok();
        match (sent, self.connection.head(PROGRESS_MAX)) {
            (_, Ok(head)) => self.client.answer(self.connection, self.method, head, is_whole),
            (Err(e), Err(_)) | (Ok(()), Err(e)) => Err(e),
        }
    }
}
