//! What a handshake lets through, what it refuses, and what it says about it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use net::{
    ClientTls, DialOptions, Error, ErrorKind, Identity, Listener, ServerTls, accept_tls, connect_tls, dial, dial_addrs,
    random_bytes, resolve,
};
use rustix::event::{PollFd, PollFlags, Timespec};

mod support;
use support::{connections, handshake, soon, tcp_pair};

/// A TLS 1.2 ClientHello: one ECDHE cipher, no extensions.
fn tls12_client_hello() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    body.extend_from_slice(&[0, 0, 2, 0xc0, 0x2f, 1, 0]);
    message(1, &body)
}

/// A TLS 1.2 ServerHello that selects that cipher.
fn tls12_server_hello() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    body.extend_from_slice(&[0, 0xc0, 0x2f, 0]);
    message(2, &body)
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut record = vec![22, 3, 3, 0, body.len() as u8 + 4, kind, 0, 0, body.len() as u8];
    record.extend_from_slice(body);
    record
}

fn server_tls() -> ServerTls {
    ServerTls::new(&Identity::generate().unwrap()).unwrap()
}

fn client_tls() -> ClientTls {
    ClientTls::new(&Identity::generate().unwrap(), Identity::generate().unwrap().pin()).unwrap()
}

/// What the listening side says of a client that sends `bytes` and no more, but stays.
fn accept_after(bytes: &[u8]) -> Error {
    let (mut near, far) = tcp_pair();
    near.write_all(bytes).unwrap();
    accept_tls(far, &server_tls(), soon()).unwrap_err()
}

/// What the dialling side says of a server that answers the first bytes with `bytes` and stays.
fn connect_to(bytes: &'static [u8]) -> Error {
    let (near, mut far) = tcp_pair();
    let answering = thread::spawn(move || {
        let mut hello = [0; 16];
        far.read_exact(&mut hello).unwrap();
        far.write_all(bytes).unwrap();
        // Until the client gives up.
        let _ = far.read_to_end(&mut Vec::new());
    });
    let error = connect_tls(near, &client_tls(), soon()).unwrap_err();
    answering.join().unwrap();
    error
}

#[test]
fn each_side_learns_the_other_ones_key() {
    let (client, server) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let tls = ClientTls::new(&client, server.pin()).unwrap();
    let (near, far) = handshake(&tls, &ServerTls::new(&server).unwrap());
    assert_eq!(near.unwrap().peer_pin(), server.pin());
    assert_eq!(far.unwrap().peer_pin(), client.pin());
}

#[test]
fn a_server_with_another_key_is_refused_by_name() {
    let (client, server) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let expected = Identity::generate().unwrap().pin();
    let tls = ClientTls::new(&client, expected).unwrap();
    let (near, far) = handshake(&tls, &ServerTls::new(&server).unwrap());
    assert_eq!(near.unwrap_err().kind, ErrorKind::IdentityChanged { expected, found: server.pin() });
    assert_eq!(far.unwrap_err().kind, ErrorKind::RefusedByPeer);
}

#[test]
fn exported_values_agree_within_a_connection_and_differ_between_connections() {
    let ((near, far), (other, _far)) = (connections(), connections());
    assert_eq!(near.export(b"EXPORTER-a", b"context"), far.export(b"EXPORTER-a", b"context"));
    let exported = near.export(b"EXPORTER-a", b"context");
    assert_ne!(exported, near.export(b"EXPORTER-b", b"context"));
    assert_ne!(exported, near.export(b"EXPORTER-a", b"another"));
    assert_ne!(exported, other.export(b"EXPORTER-a", b"context"));
    let (before, data) = (near.export(b"x", b""), near.into_data());
    assert_eq!(before, data.export(b"x", b""));
}

#[test]
fn a_client_that_is_not_tls_is_refused() {
    assert_eq!(accept_after(b"GET / HTTP/1.1\r\n\r\n").kind, ErrorKind::NotTls);
    assert_eq!(accept_after(b"SSH-2.0-OpenSSH_9.9\r\n").kind, ErrorKind::NotTls);
    assert_eq!(accept_after(&[0xff; 4096]).kind, ErrorKind::NotTls);
}

#[test]
fn random_bytes_never_pass_and_never_outlast_the_deadline() {
    for round in 0..64 {
        let mut bytes: [u8; 2048] = random_bytes();
        if round % 2 == 1 {
            // The shape of a TLS handshake record, with noise in it.
            bytes[..5].copy_from_slice(&[22, 3, 1, 4, 0]);
        }
        let (mut near, far) = tcp_pair();
        near.write_all(&bytes).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        let error = accept_tls(far, &server_tls(), soon()).unwrap_err();
        let refused = [ErrorKind::NotTls, ErrorKind::HandshakeInvalid, ErrorKind::IncompatiblePeer, ErrorKind::Reset];
        assert!(refused.contains(&error.kind), "{error:?}");
    }
}

#[test]
fn a_tls_1_2_client_is_refused() {
    assert_eq!(accept_after(&tls12_client_hello()).kind, ErrorKind::IncompatiblePeer);
}

#[test]
fn a_server_that_is_not_tls_1_3_is_refused() {
    assert_eq!(connect_to(b"SSH-2.0-OpenSSH_9.9\r\n").kind, ErrorKind::NotTls);
    assert_eq!(connect_to(b"HTTP/1.1 400 Bad Request\r\n\r\n").kind, ErrorKind::NotTls);
    // Alert protocol_version.
    assert_eq!(connect_to(&[21, 3, 3, 0, 2, 2, 70]).kind, ErrorKind::IncompatiblePeer);
    assert_eq!(connect_to(tls12_server_hello().leak()).kind, ErrorKind::IncompatiblePeer);
}

#[test]
fn a_handshake_without_end_is_cut_off() {
    let (mut near, far) = tcp_pair();
    let flooding = thread::spawn(move || {
        // One ClientHello of 65,520 bytes, in records that never complete it before the limit.
        let mut record = vec![22, 3, 1, 0x3f, 0xf0, 1, 0, 0xff, 0xf0];
        record.resize(5 + 0x3ff0, 0);
        while near.write_all(&record).is_ok() {
            record[5..9].fill(0);
        }
    });
    assert_eq!(accept_tls(far, &server_tls(), soon()).unwrap_err().kind, ErrorKind::HandshakeInvalid);
    flooding.join().unwrap();
}

#[test]
fn a_client_without_a_key_is_refused() {
    // All that TLS needs, but no client key: what a browser would offer.
    let (near, far) = tcp_pair();
    let tls = server_tls();
    let accepting = thread::spawn(move || accept_tls(far, &tls, soon()).map(|_| ()).unwrap_err());
    let config = rustls::ClientConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let mut client = rustls::ClientConnection::new(config.into(), "x.invalid".try_into().unwrap()).unwrap();
    let _ = client.complete_io(&mut &near);
    assert_eq!(accepting.join().unwrap().kind, ErrorKind::IncompatiblePeer);
}

#[test]
fn a_peer_that_leaves_during_the_handshake_is_a_broken_connection() {
    let (near, far) = tcp_pair();
    drop(near);
    assert_eq!(accept_tls(far, &server_tls(), soon()).unwrap_err().kind, ErrorKind::Reset);
}

#[test]
fn a_silent_peer_is_ended_by_the_deadline() {
    let (_near, far) = tcp_pair();
    let deadline = Instant::now() + Duration::from_millis(50);
    assert_eq!(accept_tls(far, &server_tls(), deadline).unwrap_err().kind, ErrorKind::TimedOut);
    let (near, _far) = tcp_pair();
    let deadline = Instant::now() + Duration::from_millis(50);
    assert_eq!(connect_tls(near, &client_tls(), deadline).unwrap_err().kind, ErrorKind::TimedOut);
}

#[test]
fn a_handshake_in_single_bytes_is_ended_by_the_total_deadline() {
    let (mut near, far) = tcp_pair();
    let dripping = thread::spawn(move || {
        let mut record = vec![22, 3, 1, 0x3f, 0xff];
        record.resize(5 + 0x3fff, 0);
        for byte in record.chunks(1) {
            let gone = near.write_all(byte).is_err() || is_readable_within(&near, 2);
            if gone {
                return;
            }
        }
        panic!("the handshake outlived {} bytes", 0x3fff);
    });
    let started = Instant::now();
    let error = accept_tls(far, &server_tls(), started + Duration::from_millis(100)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TimedOut);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    dripping.join().unwrap();
}

fn is_readable_within(tcp: &TcpStream, milliseconds: i64) -> bool {
    let timeout = Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
    let mut fds = [PollFd::from_borrowed_fd(tcp.as_fd(), PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&timeout)).unwrap() > 0
}

#[test]
fn dialling_reaches_a_dual_stack_listener_over_both_families() {
    let server = Identity::generate().unwrap();
    let listener = Listener::bind("[::]:0").unwrap();
    let port = listener.local_addr().port();
    let tls = ServerTls::new(&server).unwrap();
    let stopper = listener.stopper();
    let serving = thread::spawn(move || {
        let mut accepted = 0;
        while let Some((tcp, _)) = listener.accept().unwrap() {
            accept_tls(tcp, &tls, soon()).unwrap();
            accepted += 1;
        }
        accepted
    });
    let options = DialOptions::new(&Identity::generate().unwrap(), server.pin()).unwrap();
    assert_eq!(dial(&format!("127.0.0.1:{port}"), &options).unwrap().peer_pin(), server.pin());
    assert_eq!(dial(&format!("[::1]:{port}"), &options).unwrap().peer_pin(), server.pin());
    assert_eq!(dial(&format!("localhost:{port}"), &options).unwrap().peer_pin(), server.pin());
    stopper.stop();
    assert_eq!(serving.join().unwrap(), 3);
}

#[test]
fn the_next_address_is_tried_when_one_refuses() {
    let server = Identity::generate().unwrap();
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let addrs = [closed, listener.local_addr()];
    let tls = ServerTls::new(&server).unwrap();
    let serving = thread::spawn(move || accept_tls(listener.accept().unwrap().unwrap().0, &tls, soon()).unwrap());
    let options = DialOptions::new(&Identity::generate().unwrap(), server.pin()).unwrap();
    assert_eq!(dial_addrs(&addrs, &options).unwrap().peer_addr(), addrs[1]);
    serving.join().unwrap();
}

#[test]
fn dialling_says_what_stood_in_the_way() {
    let options = DialOptions::new(&Identity::generate().unwrap(), Identity::generate().unwrap().pin()).unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(dial(&closed.to_string(), &options).unwrap_err().kind, ErrorKind::Refused);
    assert_eq!(dial("127.0.0.1", &options).unwrap_err().kind, ErrorKind::InvalidAddress);
    assert_eq!(dial("::1:7740", &options).unwrap_err().kind, ErrorKind::InvalidAddress);
    assert_eq!(dial("127.0.0.1:77400", &options).unwrap_err().kind, ErrorKind::InvalidAddress);
    let unknown = DialOptions { congestion: Some("no-such-one".into()), ..options.clone() };
    let error = dial(&closed.to_string(), &unknown).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::CongestionUnavailable { .. }), "{error}");
    assert_eq!(resolve("[::1]:7740").unwrap(), ["[::1]:7740".parse().unwrap()]);
}

#[test]
fn a_backlog_that_is_full_times_out() {
    // Loopback drops the SYN to a socket whose backlog is full, which is what a silent host looks like.
    let listener =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&listener, &"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let listener = TcpListener::from(listener);
    let addr = listener.local_addr().unwrap();
    let mut options = DialOptions::new(&Identity::generate().unwrap(), Identity::generate().unwrap().pin()).unwrap();
    options.connect_timeout = Duration::from_millis(100);
    options.handshake_timeout = Duration::from_millis(100);
    let kinds: Vec<_> = (0..4).map(|_| dial_addrs(&[addr], &options).unwrap_err().kind).collect();
    assert_eq!(kinds, vec![ErrorKind::TimedOut; 4]);
}

#[test]
fn a_taken_port_is_said_to_be_taken() {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let error = Listener::bind(&listener.local_addr().to_string()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::AddressInUse);
}

#[test]
fn a_stopped_listener_stays_stopped() {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    listener.stopper().stop();
    assert!(listener.accept().unwrap().is_none());
    assert!(listener.accept().unwrap().is_none());
}
