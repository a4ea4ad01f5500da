//! Connected pairs over loopback for the tests of this crate.
#![allow(dead_code)] // Each test file uses its part.

use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use net::{ClientTls, Connection, DataStream, Error, Identity, ServerTls, accept_tls, connect_tls};

/// Far more than any step takes; only a hang meets it.
pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

pub fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    (near, far)
}

/// Performs both sides' handshakes and returns what each made of it.
pub fn handshake(client: &ClientTls, server: &ServerTls) -> (Result<Connection, Error>, Result<Connection, Error>) {
    let (near, far) = tcp_pair();
    let server = server.clone();
    let accepting = thread::spawn(move || accept_tls(far, &server, soon()));
    let connected = connect_tls(near, client, soon());
    (connected, accepting.join().unwrap())
}

/// A client's and a server's end of one connection.
pub fn connections() -> (Connection, Connection) {
    let (client, server) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let tls = ClientTls::new(&client, server.pin()).unwrap();
    let (near, far) = handshake(&tls, &ServerTls::new(&server).unwrap());
    (near.unwrap(), far.unwrap())
}

pub fn data_streams() -> (DataStream, DataStream) {
    let (near, far) = connections();
    (near.into_data(), far.into_data())
}

/// Bytes that differ from position to position and from seed to seed.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}
