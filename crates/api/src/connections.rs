//! Connections: a UNIX socket, and a port with TLS. What each may cost is bounded before it says who it is.
//!
//! On a port of this host's own loopback plain HTTP is answered as well: nothing leaves the host there. Elsewhere it is told off.
//! Invariants: so many connections in all and of one network; a handshake, a head and each piece of an answer have their time.

use crate::asking::Peer;
use crate::failures::network;
use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

/// Of each listener; of one network at a port.
const CONNECTIONS_MAX: usize = 4096;
const OF_ONE_NETWORK_MAX: usize = 1536;
/// Request line and headers.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// To the end of a head, also of the next one on a connection that is kept: longer than clients of ours keep theirs.
const HEAD_TIME_MAX: Duration = Duration::from_secs(12);
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// For a reader to take any of an answer.
const WRITE_TIME_MAX: Duration = Duration::from_secs(60);
/// After an accept that failed, mostly for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// What a TLS connection begins with.
const HANDSHAKE_RECORD: u8 = 0x16;
const TOLD_OFF: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: 35\r\n\r\n\
    this port speaks TLS: use https://\n";

/// A socket that nobody else can connect to. One that an earlier hub left is replaced.
pub fn listen(socket: &Path) -> io::Result<UnixListener> {
    if std::os::unix::net::UnixStream::connect(socket).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another hub listens there"));
    }
    match std::fs::symlink_metadata(socket) {
        Ok(there) if there.file_type().is_socket() => std::fs::remove_file(socket)?,
        Ok(_) => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "what has that name is no socket, and stays"));
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

type Stopped = watch::Receiver<bool>;

async fn is_over(stopped: &mut Stopped) {
    let _ = stopped.wait_for(|is_over| *is_over).await;
}

pub async fn serve_local(listener: UnixListener, router: Router, mut stopped: Stopped) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&room, listener.accept()) => accepted,
            () = is_over(&mut stopped) => return,
        };
        let Some(((stream, _), permit)) = accepted else { continue };
        let peer = Peer::Local(stream.peer_cred().ok().map(|found| found.uid()));
        let (router, stopped) = (router.clone(), stopped.clone());
        tokio::spawn(async move {
            serve(stream, peer, router, stopped).await;
            drop(permit);
        });
    }
}

/// A connection and its place, or a pause.
async fn accept<T>(
    room: &Arc<Semaphore>,
    accepting: impl Future<Output = io::Result<T>>,
) -> Option<(T, OwnedSemaphorePermit)> {
    let permit = room.clone().acquire_owned().await.ok()?;
    match accepting.await {
        Ok(accepted) => Some((accepted, permit)),
        Err(e) => {
            tracing::warn!(error = %e, "a connection was not accepted");
            sleep(PAUSE).await;
            None
        }
    }
}

pub async fn serve_network(
    listener: TcpListener,
    tls: watch::Receiver<TlsAcceptor>,
    router: Router,
    mut stopped: Stopped,
) {
    let (room, crowds) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), Crowds::default());
    let may_be_plain = listener.local_addr().is_ok_and(|own| own.ip().is_loopback());
    loop {
        let accepted = tokio::select! {
            accepted = accept(&room, listener.accept()) => accepted,
            () = is_over(&mut stopped) => return,
        };
        let Some(((stream, address), permit)) = accepted else { continue };
        let Some(member) = crowds.admit(address.ip()) else { continue };
        let (tls, router, stopped) = (tls.borrow().clone(), router.clone(), stopped.clone());
        tokio::spawn(async move {
            let _ = serve_one(stream, address, tls, may_be_plain, router, stopped).await;
            drop((permit, member));
        });
    }
}

async fn serve_one(
    stream: TcpStream,
    address: SocketAddr,
    tls: TlsAcceptor,
    may_be_plain: bool,
    router: Router,
    stopped: Stopped,
) -> io::Result<()> {
    let _ = stream.set_nodelay(true);
    let local = stream.local_addr()?;
    let mut first = [0];
    timeout(HANDSHAKE_MAX, stream.peek(&mut first)).await??;
    if first[0] == HANDSHAKE_RECORD {
        let stream = timeout(HANDSHAKE_MAX, tls.accept(stream)).await??;
        serve(stream, Peer::Remote { address, local, is_tls: true }, router, stopped).await;
    } else if may_be_plain {
        serve(stream, Peer::Remote { address, local, is_tls: false }, router, stopped).await;
    } else {
        // What came is taken first: a connection that is closed over unread bytes loses what was said.
        let _ = stream.try_read(&mut [0; HEAD_BYTES_MAX]);
        timeout(HANDSHAKE_MAX, stream.writable()).await??;
        stream.try_write(TOLD_OFF)?;
    }
    Ok(())
}

/// The requests of one connection.
async fn serve(stream: impl AsyncRead + AsyncWrite + Send, peer: Peer, router: Router, mut stopped: Stopped) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIME_MAX));
    let answer = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        router.clone().call(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX).max_buf_size(HEAD_BYTES_MAX);
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(Box::pin(stream)), answer));
    tokio::select! {
        // What a client did wrong it was told; that it went is no news.
        _ = connection.as_mut() => return,
        () = is_over(&mut stopped) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// How many connections each network has.
#[derive(Clone, Default)]
struct Crowds {
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

struct Member {
    crowds: Crowds,
    network: IpAddr,
}

impl Crowds {
    fn admit(&self, address: IpAddr) -> Option<Member> {
        let network = network(address);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(network).or_default();
        if *count >= OF_ONE_NETWORK_MAX {
            return None;
        }
        *count += 1;
        Some(Member { crowds: self.clone(), network })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut counts = self.crowds.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_socket_makes_room_for_a_socket() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hub.sock");
        drop(listen(&path).unwrap());
        assert_eq!(std::fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(listen(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "a file of the user").unwrap();
        assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"a file of the user");
    }

    #[test]
    fn a_network_has_so_many_connections_and_leaves_room_to_others() {
        let crowds = Crowds::default();
        let one: IpAddr = "10.0.0.1".parse().unwrap();
        let mut members: Vec<_> = (0..OF_ONE_NETWORK_MAX).map(|_| crowds.admit(one).unwrap()).collect();
        assert!(crowds.admit(one).is_none() && crowds.admit("10.0.0.2".parse().unwrap()).is_some());
        members.pop();
        assert!(crowds.admit(one).is_some());
        members.clear();
        assert!(crowds.counts.lock().unwrap().is_empty());
    }
}
