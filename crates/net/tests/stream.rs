//! Data streams over loopback: bytes arrive whole and in order, or the failure says why.

use std::io::{self, Write};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

mod support;
use support::{connections, data_streams, pattern, soon};

#[test]
fn parts_of_any_length_arrive_as_one_sequence() {
    let (mut near, mut far) = data_streams();
    let bytes = pattern(1, 700_000);
    let sizes = [0, 1, 31, 0, 16_383, 16_384, 16_385, 5, 40_000, 131_072, 300_000, 1, 0];
    let mut parts = Vec::new();
    let mut rest = &bytes[..];
    for size in sizes {
        let (part, tail) = rest.split_at(size);
        parts.push(part);
        rest = tail;
    }
    parts.push(rest);
    let expected = bytes.clone();
    let receiving = thread::spawn(move || {
        let mut received = vec![0; expected.len()];
        // Odd lengths, so that records end everywhere in the buffer.
        for (piece, length) in received.chunks_mut(9_973).zip([1, 100, 9_973].into_iter().cycle()) {
            for piece in piece.chunks_mut(length) {
                far.recv_exact(piece).unwrap();
            }
        }
        assert!(received == expected);
        assert_eq!(far.recv(&mut [0]).unwrap(), 0);
    });
    near.send(&parts).unwrap();
    near.send(&[]).unwrap();
    near.close().unwrap();
    near.close().unwrap();
    receiving.join().unwrap();
}

#[test]
fn both_directions_of_one_stream_carry_large_transfers() {
    const BLOCK_BYTES: usize = 128 * 1024;
    const BLOCKS: u64 = 256;
    let (mut near, mut far) = data_streams();
    let echoing = thread::spawn(move || {
        let mut block = vec![0; BLOCK_BYTES + 32];
        for _ in 0..BLOCKS {
            far.recv_exact(&mut block).unwrap();
            far.send(&[&block[..32], &block[32..]]).unwrap();
        }
        assert_eq!(far.recv(&mut block).unwrap(), 0);
        far.close().unwrap();
        assert!(far.counters().wire_bytes_sent > BLOCKS * BLOCK_BYTES as u64);
    });
    let body = pattern(2, BLOCK_BYTES);
    let mut received = vec![0; BLOCK_BYTES + 32];
    for block in 0..BLOCKS {
        let header = [block as u8; 32];
        near.send(&[&header, &body]).unwrap();
        near.recv_exact(&mut received).unwrap();
        assert!(received[..32] == header && received[32..] == body);
    }
    near.close().unwrap();
    assert_eq!(near.recv(&mut received).unwrap(), 0);
    echoing.join().unwrap();
    let counters = near.counters();
    let expected = BLOCKS * (BLOCK_BYTES as u64 + 32);
    assert!((expected..expected + expected / 100).contains(&counters.wire_bytes_sent), "{counters:?}");
    assert!(counters.recv_blocked_ns > 0, "{counters:?}");
}

#[test]
fn an_end_without_close_notify_is_an_error() {
    let (mut near, mut far) = data_streams();
    near.send(&[b"part of it"]).unwrap();
    drop(near);
    let mut received = [0; 100];
    assert_eq!(far.recv(&mut received).unwrap(), 10);
    assert_eq!(far.recv(&mut received).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn receiving_goes_on_after_close() {
    let (mut near, mut far) = data_streams();
    near.close().unwrap();
    assert_eq!(near.send(&[b"more"]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    let mut received = [0; 6];
    assert_eq!(far.recv(&mut received).unwrap(), 0);
    assert_eq!(far.recv(&mut received).unwrap(), 0);
    far.send(&[b"answer"]).unwrap();
    near.recv_exact(&mut received).unwrap();
    assert_eq!(&received, b"answer");
}

#[test]
fn an_exact_receive_that_meets_the_end_is_an_error() {
    let (mut near, mut far) = data_streams();
    near.send(&[b"123"]).unwrap();
    near.close().unwrap();
    assert_eq!(far.recv_exact(&mut [0; 4]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn bytes_from_outside_the_connection_break_it() {
    // A middlebox that injects a record: the same socket, without the keys.
    let (near, far) = connections();
    let mut raw = near_socket(&near);
    let (_near, mut far) = (near.into_data(), far.into_data());
    raw.write_all(&[23, 3, 3, 0, 40]).unwrap();
    raw.write_all(&[0x5a; 40]).unwrap();
    assert_eq!(far.recv(&mut [0; 100]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert_eq!(far.recv(&mut [0; 100]).unwrap_err().kind(), io::ErrorKind::NotConnected);
    assert_eq!(far.send(&[b"x"]).unwrap_err().kind(), io::ErrorKind::NotConnected);
}

fn near_socket(connection: &net::Connection) -> std::net::TcpStream {
    use std::os::fd::AsFd;
    connection.as_fd().try_clone_to_owned().unwrap().into()
}

#[test]
fn an_abort_ends_a_receive_that_waits() {
    let (near, mut far) = data_streams();
    let aborter = far.aborter();
    let (done, is_done) = mpsc::channel();
    let receiving = thread::spawn(move || {
        done.send(far.recv(&mut [0; 100]).unwrap_err().kind()).unwrap();
        done.send(far.recv(&mut [0; 100]).unwrap_err().kind()).unwrap();
    });
    assert!(is_done.recv_timeout(Duration::from_millis(50)).is_err());
    aborter.abort();
    assert_eq!(is_done.recv().unwrap(), io::ErrorKind::ConnectionAborted);
    assert_eq!(is_done.recv().unwrap(), io::ErrorKind::NotConnected);
    receiving.join().unwrap();
    assert!(aborter.tcp_info().is_none());
    aborter.abort();
    drop(near);
}

#[test]
fn an_abort_ends_a_send_that_waits() {
    let (mut near, _far) = data_streams();
    let aborter = near.aborter();
    let (done, is_done) = mpsc::channel();
    let sending = thread::spawn(move || {
        let block = vec![0; 1 << 20];
        let error = loop {
            if let Err(e) = near.send(&[&block]) {
                break e;
            }
        };
        done.send(error.kind()).unwrap();
        assert!(near.counters().send_blocked_ns > 0);
    });
    assert!(is_done.recv_timeout(Duration::from_millis(100)).is_err());
    assert!(aborter.tcp_info().unwrap().bytes_sent > 0);
    aborter.abort();
    assert_eq!(is_done.recv().unwrap(), io::ErrorKind::ConnectionAborted);
    sending.join().unwrap();
}

#[test]
fn an_aborter_does_not_keep_the_connection_open() {
    let (near, mut far) = data_streams();
    let _aborter = near.aborter();
    drop(near);
    assert_eq!(far.recv(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn no_progress_and_the_deadline_end_a_wait_and_leave_a_receive_repeatable() {
    let (mut near, mut far) = data_streams();
    far.set_io_timeout(Some(Duration::from_millis(30)));
    assert_eq!(far.recv(&mut [0; 100]).unwrap_err().kind(), io::ErrorKind::TimedOut);
    far.set_io_timeout(None);
    far.set_deadline(Some(Instant::now() + Duration::from_millis(30)));
    assert_eq!(far.recv(&mut [0; 100]).unwrap_err().kind(), io::ErrorKind::TimedOut);
    far.set_deadline(Some(soon()));
    near.send(&[b"late"]).unwrap();
    let mut received = [0; 4];
    far.recv_exact(&mut received).unwrap();
    assert_eq!(&received, b"late");
    assert!(far.counters().recv_blocked_ns >= 60_000_000);

    near.set_io_timeout(Some(Duration::from_millis(30)));
    let block = vec![0; 1 << 20];
    let error = (0..64).find_map(|_| near.send(&[&block]).err()).unwrap();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    // Part of a record has left.
    assert_eq!(near.send(&[b"x"]).unwrap_err().kind(), io::ErrorKind::NotConnected);
}

#[test]
fn plain_text_after_the_handshake_is_refused() {
    let (near, far) = connections();
    let mut raw = near_socket(&near);
    let mut far = far.into_data();
    raw.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(far.recv(&mut [0; 100]).unwrap_err().kind(), io::ErrorKind::InvalidData);
}
