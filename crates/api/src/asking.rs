//! Who asks: on the UNIX socket, whom the kernel says (`SO_PEERCRED`).

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use hub::Principal;
use tokio::net::UnixListener;

/// The other side of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    user: Option<u32>,
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Peer {
        Peer { user: stream.io().peer_cred().ok().map(|found| found.uid()) }
    }
}

impl Peer {
    /// Whoever runs the hub is its administrator, and so is root. Others come as far as the socket's mode lets them.
    pub fn principal(self) -> Option<Principal> {
        let user = self.user?;
        let own = rustix::process::getuid().as_raw();
        Some(Principal { name: format!("unix:{user}"), is_admin: user == own || user == 0 })
    }
}
