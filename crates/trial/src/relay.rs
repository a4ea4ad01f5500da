//! A relay of TCP connections between client and endpoint that counts the bytes.
//!
//! It gives the endpoint one address for a whole trial, however often it is started anew, and it is the witness of how
//! much was sent: neither program is asked. Connections are passed on as they are, ends and resets included.

use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

const BUFFER_BYTES: usize = 64 << 10;

pub struct Relay {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Where connections go. Held for one read or write of it.
    endpoint: Mutex<Option<SocketAddr>>,
    to_endpoint: AtomicU64,
    to_client: AtomicU64,
    is_over: AtomicBool,
}

impl Relay {
    pub fn start() -> Result<Relay> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("listen for the relay")?;
        let address = listener.local_addr().context("listen for the relay")?;
        let shared = Arc::new(Shared::default());
        let for_thread = shared.clone();
        let accept = move || accept(&listener, &for_thread);
        let accepting = std::thread::Builder::new().name("relay".into()).spawn(accept).context("start a thread")?;
        Ok(Relay { address, shared, accepting: Some(accepting) })
    }

    /// From now on connections go there; `None` refuses them.
    pub fn lead_to(&self, endpoint: Option<SocketAddr>) {
        *self.shared.endpoint.lock().unwrap() = endpoint;
    }

    /// What has passed on, for a thread of its own.
    pub fn witness(&self) -> Witness {
        Witness(self.shared.clone())
    }

    /// Bytes passed on so far: (to the endpoint, to the client).
    pub fn passed(&self) -> (u64, u64) {
        (self.shared.to_endpoint.load(Relaxed), self.shared.to_client.load(Relaxed))
    }
}

/// Sees how much has passed a relay.
#[derive(Clone)]
pub struct Witness(Arc<Shared>);

impl Witness {
    pub fn bytes(&self) -> u64 {
        self.0.to_endpoint.load(Relaxed) + self.0.to_client.load(Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((client, _)) = listener.accept() {
        if shared.is_over.load(Relaxed) {
            return;
        }
        let endpoint = *shared.endpoint.lock().unwrap();
        let Some(Ok(endpoint)) = endpoint.map(TcpStream::connect) else { continue };
        let _ = (client.set_nodelay(true), endpoint.set_nodelay(true));
        let (Ok(client_too), Ok(endpoint_too)) = (client.try_clone(), endpoint.try_clone()) else { continue };
        let (up, down) = (shared.clone(), shared.clone());
        std::thread::spawn(move || pump(client, endpoint, &up.to_endpoint));
        std::thread::spawn(move || pump(endpoint_too, client_too, &down.to_client));
    }
}

/// Passes bytes on until an end or an error, which it passes on too.
fn pump(mut from: TcpStream, mut to: TcpStream, counter: &AtomicU64) {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            Ok(read) => {
                counter.fetch_add(read as u64, Relaxed);
                if to.write_all(&buffer[..read]).is_err() {
                    break;
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_by_direction_and_ends_are_passed_on() {
        let endpoint = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let relay = Relay::start().unwrap();
        relay.lead_to(Some(endpoint.local_addr().unwrap()));
        let mut client = TcpStream::connect(relay.address).unwrap();
        let (mut served, _) = endpoint.accept().unwrap();
        client.write_all(b"abc").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        served.read_to_end(&mut got).unwrap();
        served.write_all(b"fg").unwrap();
        drop(served);
        client.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"abcfg");
        assert_eq!(relay.passed(), (3, 2));
    }

    #[test]
    fn without_an_endpoint_connections_are_closed() {
        let relay = Relay::start().unwrap();
        let mut client = TcpStream::connect(relay.address).unwrap();
        assert!(matches!(client.read(&mut [0; 1]), Ok(0) | Err(_)));
    }
}
