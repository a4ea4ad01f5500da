//! Both ends of a TLS connection over the loopback interface, in one process.
//!
//! Trials run the production lanes of a sender and a receiver over such streams, and stand in between.

use net::{ClientTls, DataStream, Identity, ServerTls, accept_tls, connect_tls};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Far more than a handshake takes; only a hang meets it.
const PATIENCE: Duration = Duration::from_secs(20);

struct Keys {
    client: ClientTls,
    server: ServerTls,
}

/// The two ends of a fresh connection.
pub fn data_streams() -> io::Result<(DataStream, DataStream)> {
    let (near, far) = tcp_pair()?;
    over(near, far)
}

/// A connected pair of sockets.
pub fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    Ok((near, far))
}

/// Performs the handshakes of both ends; whatever carries the bytes between the two sockets has to run already.
pub fn over(near: TcpStream, far: TcpStream) -> io::Result<(DataStream, DataStream)> {
    let failed = |e: net::Error| io::Error::other(e.to_string());
    let accepting = std::thread::spawn(move || accept_tls(far, &keys().server, Instant::now() + PATIENCE));
    let connected = connect_tls(near, &keys().client, Instant::now() + PATIENCE);
    let accepted = accepting.join().map_err(|_| io::Error::other("the accepting end panicked"))?;
    Ok((connected.map_err(failed)?.into_data(), accepted.map_err(failed)?.into_data()))
}

/// One pair of identities for the process: making them costs more than a handshake.
fn keys() -> &'static Keys {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    KEYS.get_or_init(|| {
        let make = || Identity::generate().expect("the system gives random bytes");
        let (client, server) = (make(), make());
        Keys {
            client: ClientTls::new(&client, server.pin()).expect("a fresh identity serves"),
            server: ServerTls::new(&server).expect("a fresh identity serves"),
        }
    })
}
