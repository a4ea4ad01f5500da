//! Identifies the caller: on the UNIX socket by `SO_PEERCRED`; on any connection that presents one, by token or session cookie.

use crate::problem::Problem;
use crate::sessions::Sessions;
use axum::http::{HeaderMap, StatusCode, header};
use hub::{Error, Hub, Principal};
use model::Exit;
use std::net::SocketAddr;

/// The other side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A process of this user on this host.
    Local(Option<u32>),
    Remote {
        address: SocketAddr,
        /// Where it reached us.
        local: SocketAddr,
        is_tls: bool,
    },
}

/// Somebody who may ask, and whether a browser says so unasked, wherever the request came from.
#[derive(Clone, Debug)]
pub struct Caller {
    pub who: Principal,
    pub is_by_cookie: bool,
}

/// The name of the cookie: browsers send a host's cookies to each of its ports.
pub fn cookie_name(peer: Peer) -> String {
    match peer {
        Peer::Remote { local, .. } => format!("thalweg_{}", local.port()),
        Peer::Local(_) => "thalweg".to_owned(),
    }
}

/// The secret of a session that a request came with.
pub fn cookie(peer: Peer, headers: &HeaderMap) -> Option<&str> {
    let name = cookie_name(peer);
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';')).find_map(|pair| pair.trim().strip_prefix(&name)?.strip_prefix('='))
}

pub fn caller(peer: Peer, headers: &HeaderMap, hub: &Hub, sessions: &Sessions) -> Result<Caller, Problem> {
    let nobody = |text: &str, hint: &str| {
        Problem::new(StatusCode::UNAUTHORIZED, Error::new(Exit::Authentication, text).hint(hint))
    };
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let token = value.to_str().ok().and_then(|value| value.split_once(' '));
        let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
        let who = token.and_then(|token| hub.access().recognise(token));
        let wrong =
            || nobody("the token is not known, or has expired", "an administrator makes one: thalweg token new");
        return who.map(|who| Caller { who, is_by_cookie: false }).ok_or_else(wrong);
    }
    if let Some(secret) = cookie(peer, headers) {
        let who = sessions.find(secret).filter(|who| hub.access().is_current(who));
        let over = || nobody("the session is over", "log in again: thalweg console");
        return who.map(|who| Caller { who, is_by_cookie: true }).ok_or_else(over);
    }
    match peer {
        Peer::Local(Some(user)) => Ok(Caller { who: Principal::local(user), is_by_cookie: false }),
        Peer::Local(None) => Err(nobody("the kernel does not say who asks", "ask with a token")),
        Peer::Remote { .. } => Err(nobody(
            "the request carries no credentials",
            "send a token as `Authorization: Bearer twh_...`, or log in",
        )),
    }
}
