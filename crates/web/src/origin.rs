//! Where a client connects: `http://HOST[:PORT]` or `https://HOST[:PORT]`, without a path; or a socket of this host.

use crate::error::{Error, ErrorKind, Result};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    pub is_tls: bool,
    /// Without the brackets of an IPv6 address.
    pub host: String,
    pub port: u16,
    /// A UNIX socket, in place of host and port.
    pub socket: Option<PathBuf>,
    /// Where it is, for whoever has looked that up; otherwise the resolver is asked.
    pub addresses: Vec<SocketAddr>,
}

impl Origin {
    /// A service of this host that listens on a UNIX socket.
    pub fn local(socket: PathBuf) -> Origin {
        Origin { is_tls: false, host: "localhost".to_owned(), port: 80, socket: Some(socket), addresses: Vec::new() }
    }

    pub fn parse(url: &str) -> Result<Origin> {
        let refused = |why: &str| Error::new(ErrorKind::Settings, format!("{url:?} is not a usable address: {why}"));
        let (is_tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err(refused("it begins with neither https:// nor http://")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains('@') {
            // Not repeated: it may hold a password.
            return Err(Error::new(ErrorKind::Settings, "an address must not hold a user name or password"));
        }
        if rest.contains(['/', '?', '#']) || rest.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(refused("only a host and a port may follow"));
        }
        let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':')),
            None => rest.rsplit_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
        };
        let port = match port {
            None => {
                if is_tls {
                    443
                } else {
                    80
                }
            }
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(|| refused("the port is no number"))?,
        };
        match host.is_empty() {
            true => Err(refused("it names no host")),
            false => Ok(Origin { is_tls, host: host.to_owned(), port, socket: None, addresses: Vec::new() }),
        }
    }

    /// The same service under another host name.
    pub fn with_host(&self, host: String) -> Origin {
        Origin { host, ..self.clone() }
    }

    /// This host itself.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// The value of a `Host` header.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let is_usual = self.port == if self.is_tls { 443 } else { 80 };
        if is_usual { host } else { format!("{host}:{}", self.port) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_scheme_a_host_and_a_port() {
        for (url, shown, authority) in [
            ("https://s3.example.org", (true, "s3.example.org", 443), "s3.example.org"),
            ("http://127.0.0.1:7070/", (false, "127.0.0.1", 7070), "127.0.0.1:7070"),
            ("https://[::1]:8443", (true, "::1", 8443), "[::1]:8443"),
            ("http://[::1]", (false, "::1", 80), "[::1]"),
        ] {
            let origin = Origin::parse(url).unwrap();
            assert_eq!((origin.is_tls, &origin.host[..], origin.port), shown, "{url}");
            assert_eq!(origin.authority(), authority);
        }
        for url in ["s3.example.org", "ftp://x", "https://", "https://x/y", "http://x:0", "http://x:port", "http://a b"]
        {
            assert_eq!(Origin::parse(url).unwrap_err().kind, ErrorKind::Settings, "{url}");
        }
        let secret = Origin::parse("https://me:hunter2@x").unwrap_err();
        assert!(!secret.text.contains("hunter2"), "{secret}");
    }

    #[test]
    fn only_addresses_of_this_host_are_loopback() {
        for (url, is_loopback) in [
            ("http://localhost:1", true),
            ("http://127.9.9.9", true),
            ("http://[::1]", true),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(Origin::parse(url).unwrap().is_loopback(), is_loopback, "{url}");
        }
    }
}
