//! Servers whose answers have no end where one is due.

use std::io::{Read, Write};
use std::net::TcpListener;
use web::{Begun, Client, ErrorKind, Origin, Request, Trust};

/// Asks a server that says `first`, and then `again` for as long as somebody listens.
fn ask(first: &'static str, again: &'static str) -> web::Result<Vec<u8>> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = Origin::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(first.as_bytes());
        while stream.write_all(again.as_bytes()).is_ok() {}
    });
    let client = Client::new(origin, &Trust::Host)?;
    client.send(&Request { method: "GET", target: "/x", headers: &[], body: b"" })?.into_bytes(1 << 20)
}

#[test]
fn what_has_no_end_is_an_error() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let ended = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n";
    for (first, again, why) in [
        ("", "HTTP/1.1 100 Continue\r\n\r\n", "again and again"),
        ("HTTP/1.1 200 OK\r\n", "a: b\r\n", "too many headers"),
        ("HTTP/1.1 200 OK\r\na: ", "bbbbbbbbbbbbbbbb", "more than 64 KiB of headers"),
        (ended, "a: b\r\n", "more headers than any does"),
        (chunked, "1\r\nx\r\n", "more than 1048576 bytes"),
        (chunked, "1;", "a line has no end"),
    ] {
        let error = ask(first, again).unwrap_err();
        assert!(error.kind == ErrorKind::Malformed && error.text.contains(why), "{why}: {error}");
    }
}

#[test]
fn leave_to_send_that_has_no_end_is_an_error() {
    for (first, again, why) in [
        ("", "HTTP/1.1 102 Processing\r\n\r\n", "again and again"),
        ("HTTP/1.1 100 Continue\r\na: ", "bbbbbbbbbbbbbbbb", "more than 64 KiB of headers"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = Origin::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(first.as_bytes());
            while stream.write_all(again.as_bytes()).is_ok() {}
        });
        let client = Client::new(origin, &Trust::Host).unwrap();
        let request = Request { method: "PUT", target: "/x", headers: &[], body: b"" };
        let error = client.begin(&request, Some(10)).err().unwrap();
        assert!(error.kind == ErrorKind::Malformed && error.text.contains(why), "{why}: {error}");
    }
}

/// The rest of a body that was given up would be taken for the next request.
#[test]
fn a_connection_is_used_again_only_after_a_request_that_was_sent_whole() {
    for (sent, idle) in [(4, 0), (10, 1)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = Origin::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
            stream.read_exact(&mut [0; 10][..sent]).unwrap();
            stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").unwrap();
            stream
        });
        let client = Client::new(origin, &Trust::Host).unwrap();
        let request = Request { method: "PUT", target: "/x", headers: &[], body: b"" };
        let Begun::Upload(mut upload) = client.begin(&request, Some(10)).unwrap() else { panic!("it gave leave") };
        upload.write(&[0; 10][..sent]).unwrap();
        let answer = upload.finish().unwrap();
        assert_eq!((answer.status, answer.into_bytes(10).unwrap().len()), (403, 0));
        assert_eq!(client.idle_count(), idle, "{sent} of 10 bytes were sent");
        drop(server.join().unwrap());
    }
}
