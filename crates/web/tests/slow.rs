//! Servers that are slow: one that goes on is waited for, one that stops is not.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use web::{Client, ErrorKind, Origin, Request, Stop, Trust};

const PATIENCE: Duration = Duration::from_secs(1);
const GET: Request<'_> = Request { method: "GET", target: "/x", headers: &[], body: b"" };

/// A server that answers as it likes, and then says no more until the client ends it.
fn server(answer: impl FnOnce(&mut TcpStream) + Send + 'static) -> Origin {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = Origin::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        answer(&mut stream);
        let _ = stream.read(&mut [0]);
    });
    origin
}

fn ask(answer: impl FnOnce(&mut TcpStream) + Send + 'static) -> web::Result<Vec<u8>> {
    let client = Client::new(server(answer), &Trust::Host)?.within(PATIENCE);
    client.send(&GET)?.into_bytes(1 << 20)
}

/// An answer of which a byte comes now and then, for a minute.
fn drip(stream: &mut TcpStream) {
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1200\r\n\r\n");
    for _ in 0..1200 {
        std::thread::sleep(Duration::from_millis(50));
        if stream.write_all(b"x").is_err() {
            return;
        }
    }
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

#[test]
fn an_answer_that_drips_is_left_soon_after_the_client_is_to_stop() {
    let flag = Arc::new(AtomicBool::new(false));
    let client = Client::stopped_by(server(drip), &Trust::Host, Stop::by(flag.clone())).unwrap();
    let answer = client.send(&GET).unwrap();
    flag.store(true, Relaxed);
    let begun = Instant::now();
    let error = answer.into_bytes(1 << 20).unwrap_err();
    assert!(error.kind == ErrorKind::Stopped && begun.elapsed() < Duration::from_secs(20), "{error}");
}

#[test]
fn an_answer_that_drips_and_that_nobody_wants_is_closed_soon() {
    let client = Client::new(server(drip), &Trust::Host).unwrap();
    let answer = client.send(&GET).unwrap();
    let begun = Instant::now();
    drop(answer);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(client.idle_count(), 0);
}
