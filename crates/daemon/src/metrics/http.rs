//! Answers `GET /metrics`, over TCP or a UNIX socket, and nothing else.
//!
//! Invariants: one request at a time, of at most `REQUEST_BYTES_MAX` and `PATIENCE`, then the connection is closed; nothing of a
//! request is used but its first line; whoever asks can change nothing.

use crate::error::{Error, Result, shown};
use model::Exit;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};
use tracing::warn;

const REQUEST_BYTES_MAX: usize = 8 << 10;
/// For the whole of a request and its answer: whoever is slower does not keep others waiting for longer.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Where to be asked: `PORT` on this host's loopback, `ADDR:PORT`, or `unix:PATH`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Place, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Place::Unix(path.into()));
        }
        if let Ok(port) = text.parse::<u16>() {
            return Ok(Place::Tcp(SocketAddr::from(([127, 0, 0, 1], port))));
        }
        let wrong =
            |_| format!("{text:?} is not a port, a numeric address with a port such as [::1]:9464, or unix:PATH");
        text.parse().map(Place::Tcp).map_err(wrong)
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Somewhere to be asked, which nobody answers yet.
pub struct Metrics {
    listener: Listener,
}

impl Metrics {
    /// Listens. Before the process is confined, so that it may.
    pub fn bind(place: &Place) -> Result<Metrics> {
        let listener = match place {
            Place::Tcp(address) => TcpListener::bind(address).map(Listener::Tcp).map_err(|e| {
                Error::new(Exit::Failed, format!("--metrics: listen on {address}: {e}"))
                    .hint("choose another port, or end what listens there")
            })?,
            Place::Unix(path) => {
                // Of an endpoint that has ended; a socket that somebody answers on stays.
                let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
                if is_socket && UnixStream::connect(path).is_err() {
                    let _ = std::fs::remove_file(path);
                }
                UnixListener::bind(path).map(Listener::Unix).map_err(|e| {
                    Error::new(Exit::Failed, format!("--metrics: make the socket {}: {e}", shown(path)))
                        .hint("name a path that is not there, in a directory that this user can write to")
                })?
            }
        };
        Ok(Metrics { listener })
    }

    /// The port that the kernel chose.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.listener {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(_) => None,
        }
    }

    /// Answers on a thread of its own, until `tell` has nothing to say any more.
    pub fn answer(self, tell: impl Fn() -> Option<String> + Send + 'static) -> Result<()> {
        let run = move || {
            loop {
                let answered = match &self.listener {
                    Listener::Tcp(listener) => listener.accept().and_then(|(stream, _)| {
                        stream.set_read_timeout(Some(PATIENCE))?;
                        stream.set_write_timeout(Some(PATIENCE))?;
                        Ok(attend(stream, &tell))
                    }),
                    Listener::Unix(listener) => listener.accept().and_then(|(stream, _)| {
                        stream.set_read_timeout(Some(PATIENCE))?;
                        stream.set_write_timeout(Some(PATIENCE))?;
                        Ok(attend(stream, &tell))
                    }),
                };
                match answered {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(e) => {
                        warn!(error = %e, "a question for metrics could not be taken");
                        std::thread::park_timeout(PAUSE_AFTER_FAILURE);
                    }
                }
            }
        };
        let spawned = std::thread::Builder::new().name("metrics".into()).spawn(run);
        spawned.map(drop).map_err(|e| Error::new(Exit::Failed, format!("start a thread: {e}")))
    }
}

/// False when there is nothing to tell any more.
fn attend(mut stream: impl Read + Write, tell: &dyn Fn() -> Option<String>) -> bool {
    let Ok(head) = request(&mut stream) else { return true };
    let line = head.split(|byte| *byte == b'\r' || *byte == b'\n').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let target = target.unwrap_or_default().split(|byte| *byte == b'?').next().unwrap_or_default();
    let is_http = version.is_some_and(|version| version.starts_with(b"HTTP/1."));
    let (status, text) = match (method, target) {
        _ if !is_http => ("400 Bad Request", Some("this is HTTP/1\n".to_owned())),
        (Some(b"GET" | b"HEAD"), b"/metrics") => ("200 OK", tell()),
        (_, b"/metrics") => ("405 Method Not Allowed", Some("GET it\n".to_owned())),
        _ => ("404 Not Found", Some("only /metrics is here\n".to_owned())),
    };
    let Some(text) = text else { return false };
    let length = text.len();
    let body = if method == Some(b"HEAD") { "" } else { &text };
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n{body}"
    );
    let _ = stream.write_all(answer.as_bytes());
    true
}

/// The head of a request. What a client says after it is not read.
fn request(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        if head.len() > REQUEST_BYTES_MAX || Instant::now() > until {
            return Err(io::ErrorKind::InvalidData.into());
        }
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => head.extend_from_slice(&part[..read]),
        }
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    fn asked(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn only_a_get_of_the_page_is_answered_with_it() {
        let metrics = Metrics::bind(&"0".parse().unwrap()).unwrap();
        let address = metrics.local_addr().unwrap();
        assert!(address.ip().is_loopback());
        metrics.answer(|| Some("page\n".to_owned())).unwrap();
        for (request, status) in [
            (&b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"[..], "200 OK"),
            (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200 OK"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET / HTTP/1.1\r\n\r\n", "404"),
            (b"GET /../metrics HTTP/1.1\r\n\r\n", "404"),
            (b"\0\xff\r\n\r\n", "400"),
            (b"GET /metrics HTTP/2\r\n\r\n", "400"),
        ] {
            let answer = asked(address, request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
            assert_eq!(answer.ends_with("\r\n\r\npage\n"), status == "200 OK", "{answer}");
        }
        assert_eq!(asked(address, &vec![b'x'; REQUEST_BYTES_MAX * 2]), "");
        // Whoever says nothing keeps others waiting for a bounded time only.
        let _silent = TcpStream::connect(address).unwrap();
        assert!(asked(address, b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn a_place_is_on_loopback_unless_it_says_otherwise() {
        let place = |text: &str| text.parse::<Place>();
        assert_eq!(place("9464"), Ok(Place::Tcp("127.0.0.1:9464".parse().unwrap())));
        assert_eq!(place("[::]:1"), Ok(Place::Tcp("[::]:1".parse().unwrap())));
        assert_eq!(place("unix:/run/m"), Ok(Place::Unix("/run/m".into())));
        assert!(["", "unix:", "host:1", ":1", "1.2.3.4", "70000"].iter().all(|text| place(text).is_err()));
    }

    #[test]
    fn a_socket_that_was_left_is_replaced_and_a_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::Unix(dir.path().join("s"));
        drop(Metrics::bind(&place).unwrap());
        let held = Metrics::bind(&place).unwrap();
        assert!(Metrics::bind(&place).is_err(), "it is in use");
        drop(held);
        let file = dir.path().join("f");
        std::fs::write(&file, b"precious").unwrap();
        assert!(Metrics::bind(&Place::Unix(file.clone())).is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    }
}
