//! What servers answer by HTTP/1.1: heads, and bodies that end by a length, in chunks or with the connection. What is heard does not
//! depend on where it is cut on its way.

use super::bytes::Bytes;
use rustix::net::{SendFlags, send};
use std::io::Read;
use std::os::unix::net::UnixListener;
use web::{Client, ErrorKind, Origin, Request, Trust};

const BODY_BYTES_MAX: usize = 512;

/// Status, headers and body.
type Heard = Result<(u16, Vec<(String, String)>, Vec<u8>), ErrorKind>;

pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let method = if bytes.u8().is_multiple_of(4) { "HEAD" } else { "GET" };
    let piece = usize::from(bytes.u8()) + 1;
    let said = bytes.rest();
    let whole = heard(method, said, said.len().max(1));
    assert_eq!(heard(method, said, piece), whole, "an answer depends on where it is cut");
    let Ok((status, headers, body)) = whole else { return };
    assert!(status >= 200 && body.len() <= BODY_BYTES_MAX && (method == "GET" || body.is_empty()));
    assert!(headers.iter().all(|(name, _)| !name.bytes().any(|byte| byte.is_ascii_uppercase())));
}

/// What a client makes of an answer that comes in such pieces, before the connection ends.
fn heard(method: &'static str, said: &[u8], piece: usize) -> Heard {
    let directory = tempfile::tempdir().expect("a directory for a socket");
    let socket = directory.path().join("s");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let client = Client::new(Origin::local(socket), &Trust::Host).expect("nothing is asked of certificates");
    std::thread::scope(|scope| -> Heard {
        scope.spawn(|| say(&listener, said, piece));
        let request = Request { method, target: "/", headers: &[], body: b"" };
        let answer = client.send(&request).map_err(|error| error.kind)?;
        let (status, headers) = (answer.status, answer.headers().to_vec());
        let body = answer.into_bytes(BODY_BYTES_MAX).map_err(|error| error.kind)?;
        Ok((status, headers, body))
    })
}

fn say(listener: &UnixListener, said: &[u8], piece: usize) {
    let (mut stream, _) = listener.accept().expect("the client connects");
    let (mut asked, mut block) = (Vec::<u8>::new(), [0; 1024]);
    while !asked.ends_with(b"\r\n\r\n") {
        match stream.read(&mut block) {
            Ok(count) if count > 0 => asked.extend_from_slice(&block[..count]),
            _ => return,
        }
    }
    for piece in said.chunks(piece) {
        // A client that has heard enough is gone, and no signal is to say so.
        if send(&stream, piece, SendFlags::NOSIGNAL).is_err() {
            return;
        }
        std::thread::yield_now();
    }
}
