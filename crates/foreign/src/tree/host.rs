//! Who a location names.
//!
//! Invariant: a password in a location is refused, and not shown.

use store::OpenError;
use store::open::Refused;

/// Who is to be reached.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Host {
    /// `USER@HOST`, or `HOST`; an IPv6 address in brackets.
    pub name: String,
    pub port: Option<u16>,
}

impl Host {
    /// `form` is what a location looks like.
    pub fn parse(text: &str, form: &str) -> Result<Host, OpenError> {
        let wrong = |why: &str| OpenError::refused(Refused::Request, why, &format!("a location is {form}"));
        let (user, rest) = match text.rsplit_once('@') {
            Some((user, rest)) => (Some(user), rest),
            None => (None, text),
        };
        if user.is_some_and(|user| user.contains(':')) {
            let advice = "leave it out: it would be seen by others on this host";
            return Err(OpenError::refused(Refused::Request, "a password must not stand in a location", advice));
        }
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (rest, None),
        };
        let port = port.map(|port| port.parse().ok().filter(|port| *port > 0));
        let port = port.map(|port| port.ok_or_else(|| wrong("the port is no number from 1 to 65535"))).transpose()?;
        if host.is_empty() || host.contains(':') && !host.starts_with('[') {
            return Err(wrong("the location names no host"));
        }
        let name = user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"));
        Ok(Host { name, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_user_and_a_port_and_never_a_password() {
        let parsed = |text: &str| Host::parse(text, "x").ok().map(|host| (host.name, host.port));
        assert_eq!(parsed("far"), Some(("far".into(), None)));
        assert_eq!(parsed("me@far:2222"), Some(("me@far".into(), Some(2222))));
        assert_eq!(parsed("me@[2001:db8::1]:22"), Some(("me@[2001:db8::1]".into(), Some(22))));
        assert_eq!(parsed("[2001:db8::1]"), Some(("[2001:db8::1]".into(), None)));
        for wrong in ["", "me:secret@far", "far:0", "far:70000", "far:x", "2001:db8::1", ":22"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
        let OpenError::Refused { text, advice, .. } = Host::parse("me:secret@far", "x").unwrap_err() else { panic!() };
        assert!(!format!("{text}{advice}").contains("secret"));
    }
}
