//! Servers that are slow: one that goes on is waited for, one that stops is not.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use web::{Client, ErrorKind, Origin, Request, Trust};

const PATIENCE: Duration = Duration::from_secs(1);

/// Asks a server that answers as it likes, and then says no more until the client ends it.
fn ask(answer: impl FnOnce(&mut TcpStream) + Send + 'static) -> web::Result<Vec<u8>> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = Origin::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        answer(&mut stream);
        let _ = stream.read(&mut [0]);
    });
    let client = Client::new(origin, &Trust::Host)?.within(PATIENCE);
    client.send(&Request { method: "GET", target: "/x", headers: &[], body: b"" })?.into_bytes(1 << 20)
}

#[test]
fn a_server_that_stops_is_given_up_wherever_it_stops() {
    for said in ["", "HTTP/1.1 200 OK\r\ncontent-len", "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf"] {
        let begun = Instant::now();
        let error = ask(move |stream| stream.write_all(said.as_bytes()).unwrap()).unwrap_err();
        assert!(error.kind == ErrorKind::TimedOut && begun.elapsed() >= PATIENCE, "{said:?}: {error}");
    }
}

#[test]
fn a_server_that_goes_on_is_waited_for_however_slow_it_is() {
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nslowly";
    let begun = Instant::now();
    let body = ask(|stream| {
        for piece in ANSWER.chunks(2) {
            std::thread::sleep(Duration::from_millis(60));
            stream.write_all(piece).unwrap();
        }
    });
    assert_eq!(body.unwrap(), b"slowly");
    assert!(begun.elapsed() > PATIENCE);
}
