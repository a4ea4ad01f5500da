//! The hub's interface over HTTP, `/api/v1`: on a UNIX socket, for those whom the kernel names.
//!
//! `routes` and `schedules` say what can be asked, `asking` who asks, `problem` how a refusal reads, `follow` is the stream of events. docs/hub.md lists the
//! routes. tokio is here and nowhere else; the hub's blocking calls run on its threads for such.
//!
//! Invariants: what is answered comes from `hub::Hub`, which decides what somebody may see; a body, a head and the number of those
//! who ask at once are bounded; an error is `application/problem+json` with the program's exit code.
//!
//! Not here: jobs (`hub`), storage.

mod asking;
mod follow;
mod problem;
mod routes;
mod schedules;

use hub::Hub;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;
use tokio::sync::watch;

/// Threads for calls that block.
const BLOCKING_MAX: usize = 64;

/// The interface of a running hub; it ends when this is dropped.
pub struct Api {
    socket: PathBuf,
    stop: watch::Sender<bool>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Api {
    /// Listens on a socket, which nobody else can connect to. One that an earlier hub left is replaced.
    pub fn start(hub: Hub, socket: &Path) -> io::Result<Api> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(BLOCKING_MAX)
            .thread_name("api")
            .enable_all()
            .build()?;
        let listener = runtime.block_on(async { listen(socket) })?;
        let (stop, stopped) = watch::channel(false);
        let router = routes::router(hub, stopped.clone());
        let service = router.into_make_service_with_connect_info::<asking::Peer>();
        let mut ended = stopped;
        runtime.spawn(async move {
            let until = async move { _ = ended.wait_for(|is_over| *is_over).await };
            if let Err(e) = axum::serve(listener, service).with_graceful_shutdown(until).await {
                tracing::error!(error = %e, "the interface over HTTP ended");
            }
        });
        Ok(Api { socket: socket.to_owned(), stop, runtime: Some(runtime) })
    }
}

fn listen(socket: &Path) -> io::Result<UnixListener> {
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

impl Drop for Api {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(std::time::Duration::from_secs(2));
        }
        let _ = std::fs::remove_file(&self.socket);
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
}
