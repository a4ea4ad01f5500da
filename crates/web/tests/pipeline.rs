//! Several requests on one connection before the first is answered, at servers that answer them all, some, or more.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use web::{Client, ErrorKind, Origin, Request, Trust};

/// A status, and a digest.
type Told = (u16, Option<String>);

/// Asks for three heads at once, of a server that says this once it has heard all three. What was told, how that ended,
/// and how many connections are kept.
fn ask(said: &'static str) -> (Vec<Told>, Option<ErrorKind>, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = Origin::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let heads = lines.filter(|line| line.is_empty()).take(3).count();
        stream.write_all(said.as_bytes()).unwrap();
        heads
    });
    let client = Client::new(origin, &Trust::Host).unwrap();
    let requests = ["/a", "/b", "/c"].map(|target| Request { method: "HEAD", target, headers: &[], body: b"" });
    let mut told = Vec::new();
    let ended = client.heads(&requests, false, &mut |answer| {
        told.push((answer.status, answer.header("digest").map(str::to_owned)));
    });
    assert_eq!(server.join().unwrap(), 3);
    (told, ended.err().map(|e| e.kind), client.idle_count())
}

#[test]
fn heads_are_asked_for_at_once_and_answered_in_their_order() {
    const SAID: &str = "HTTP/1.1 200 OK\r\ncontent-length: 7\r\ndigest: a\r\n\r\n\
        HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 307 X\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n\
        HTTP/1.1 200 OK\r\ncontent-length: 9\r\ndigest: c\r\n\r\n";
    let (told, error, kept) = ask(SAID);
    assert_eq!(told, [(200, Some("a".to_owned())), (307, None), (200, Some("c".to_owned()))]);
    assert_eq!((error, kept), (None, 1));
}

#[test]
fn answers_that_do_not_come_are_an_error_behind_those_that_did() {
    let one = "HTTP/1.1 200 OK\r\ndigest: a\r\n\r\n";
    let then_closed = "HTTP/1.1 200 OK\r\ndigest: a\r\nconnection: close\r\n\r\nHTTP/1.1 200 OK\r\ndigest: b\r\n\r\n";
    for said in [one, then_closed] {
        assert_eq!(ask(said), (vec![(200, Some("a".to_owned()))], Some(ErrorKind::Lost), 0), "{said:?}");
    }
}

#[test]
fn a_connection_on_which_more_came_than_was_asked_for_is_not_used_again() {
    const SAID: &str = "HTTP/1.1 204 X\r\n\r\nHTTP/1.1 204 X\r\n\r\nHTTP/1.1 204 X\r\n\r\nHTTP/1.1 204 X\r\n\r\n";
    let (told, error, kept) = ask(SAID);
    assert_eq!((told.len(), error, kept), (3, None, 0));
}
