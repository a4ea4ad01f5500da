//! A location: which storage, and where in it.
//!
//! `PATH | NAME:PATH | tw://ADDR:PORT/PATH | - | gen:COUNTxSIZE | null: | SCHEME://REST`. As in rsync and scp a colon before the
//! first slash names another host, unless two slashes follow it: that is a URL, never a host. `./a:b` is a local file.
//!
//! Not here: whether NAME is a configured endpoint, and whether there is a store for a scheme (`store::open`).

use crate::name::Escaped;
use crate::synthetic::{self, Generated};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// Standard input or output.
    Pipe,
    /// `gen:COUNTxSIZE`: files that are made while they are read.
    Generated(Generated),
    /// `null:`: what arrives is verified and forgotten.
    Null,
    Local(Vec<u8>),
    /// `NAME:PATH` or `USER@HOST:PATH`; the path is relative to the endpoint's root.
    Named {
        name: String,
        path: Vec<u8>,
    },
    /// `tw://ADDR:PORT/PATH`.
    Address {
        address: String,
        path: Vec<u8>,
    },
    /// `SCHEME://REST`, such as `s3://bucket/key`; the scheme in lower case.
    Url {
        scheme: String,
        rest: Vec<u8>,
    },
}

/// Why a text is not a location.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LocationError {
    #[error("a location must not be empty")]
    Empty,
    #[error("{}:// locations are not supported; use a path, NAME:PATH or tw://ADDR:PORT/PATH", Escaped(.0.as_bytes()))]
    Scheme(String),
    #[error("the address in {0:?} is not ADDR:PORT")]
    Address(String),
    #[error("{0}")]
    Generated(String),
    #[error("the endpoint name in {0:?} is not text")]
    Name(String),
}

impl Location {
    /// Names the contents of the directory instead of the directory.
    pub fn name_contents(&mut self) {
        match self {
            Location::Local(path) | Location::Url { rest: path, .. } if !path.ends_with(b"/") => path.push(b'/'),
            Location::Named { path, .. } | Location::Address { path, .. }
                if !path.is_empty() && !path.ends_with(b"/") =>
            {
                path.push(b'/');
            }
            _ => {}
        }
    }

    /// The contents of a directory of this name in it.
    pub fn go_below(&mut self, name: &[u8]) {
        self.name_contents();
        if let Location::Local(path)
        | Location::Url { rest: path, .. }
        | Location::Named { path, .. }
        | Location::Address { path, .. } = self
        {
            path.extend_from_slice(name);
            path.push(b'/');
        }
    }

    pub fn parse(text: &OsStr) -> Result<Location, LocationError> {
        let bytes = text.as_bytes();
        match bytes {
            b"" => return Err(LocationError::Empty),
            b"-" => return Ok(Location::Pipe),
            _ if synthetic::is_null(bytes) => return Ok(Location::Null),
            _ => {}
        }
        if let Some(generated) = Generated::parse(bytes) {
            return generated.map(Location::Generated).map_err(LocationError::Generated);
        }
        if let Some(rest) = bytes.strip_prefix(b"tw://") {
            let slash = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
            let address = std::str::from_utf8(&rest[..slash]).ok().filter(|a| a.rsplit_once(':').is_some_and(is_port));
            let address =
                address.ok_or_else(|| LocationError::Address(text.to_string_lossy().into_owned()))?.to_owned();
            return Ok(Location::Address { address, path: rest.get(slash + 1..).unwrap_or_default().to_vec() });
        }
        if let Some((scheme, rest)) = scheme_of(bytes) {
            return Ok(Location::Url { scheme: scheme.to_ascii_lowercase(), rest: rest.to_vec() });
        }
        let colon = end_of_host(bytes);
        let slash = bytes.iter().position(|&b| b == b'/').unwrap_or(bytes.len());
        match colon {
            Some(at) if at < slash && at > 0 => {
                let name = std::str::from_utf8(&bytes[..at])
                    .map_err(|_| LocationError::Name(text.to_string_lossy().into_owned()))?
                    .to_owned();
                if let Some(Err(why)) = Generated::parse(&bytes[at + 1..]) {
                    return Err(LocationError::Generated(why));
                }
                if bytes[at + 1..].starts_with(b"//") {
                    return Err(LocationError::Scheme(name));
                }
                Ok(Location::Named { name, path: bytes[at + 1..].to_vec() })
            }
            _ => Ok(Location::Local(bytes.to_vec())),
        }
    }

    /// The path part, without what names the host.
    pub fn path(&self) -> &[u8] {
        match self {
            Location::Pipe => b"-",
            Location::Generated(_) => b"gen:",
            Location::Null => b"null:",
            Location::Local(path) | Location::Named { path, .. } | Location::Address { path, .. } => path,
            Location::Url { rest, .. } => rest,
        }
    }

    /// What names the kind of storage; where an endpoint has it, that it does.
    pub fn scheme(&self) -> &str {
        match self {
            Location::Pipe => "-",
            Location::Generated(_) => "gen:",
            Location::Null => "null:",
            Location::Local(_) => "file",
            Location::Named { .. } | Location::Address { .. } => "tw",
            Location::Url { scheme, .. } => scheme,
        }
    }

    /// No storage is read or written there, on this host or at an endpoint.
    pub fn is_synthetic(&self) -> bool {
        match self {
            Location::Generated(_) | Location::Null => true,
            Location::Named { path, .. } | Location::Address { path, .. } => synthetic::is_synthetic(path),
            Location::Pipe | Location::Local(_) | Location::Url { .. } => false,
        }
    }

    pub fn is_remote(&self) -> bool {
        matches!(self, Location::Named { .. } | Location::Address { .. })
    }
}

/// The scheme of a URL as RFC 3986 has it, and what follows the two slashes.
fn scheme_of(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let at = bytes.windows(3).position(|three| three == b"://")?;
    let scheme = std::str::from_utf8(&bytes[..at]).ok()?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(is_plain);
    is_scheme.then(|| (scheme, &bytes[at + 3..]))
}

/// Where the name of a host ends, if there is one. An IPv6 address stands in brackets, perhaps behind `USER@`.
fn end_of_host(bytes: &[u8]) -> Option<usize> {
    let first = bytes.iter().position(|&b| matches!(b, b':' | b'/' | b'['))?;
    let is_address = bytes[first] == b'[' && (first == 0 || bytes[first - 1] == b'@');
    let close = bytes.windows(2).position(|pair| pair == b"]:").filter(|_| is_address);
    close.map(|at| at + 1).or_else(|| bytes.iter().position(|&b| b == b':'))
}

fn is_port((host, port): (&str, &str)) -> bool {
    !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0)
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = Escaped(self.path());
        match self {
            Location::Generated(generated) => write!(f, "{generated}"),
            Location::Pipe | Location::Null | Location::Local(_) => write!(f, "{path}"),
            Location::Named { name, .. } => write!(f, "{}:{path}", Escaped(name.as_bytes())),
            Location::Address { address, .. } => write!(f, "tw://{}/{path}", Escaped(address.as_bytes())),
            Location::Url { scheme, .. } => write!(f, "{scheme}://{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Location, LocationError> {
        Location::parse(OsStr::new(text))
    }

    #[test]
    fn a_colon_before_the_first_slash_names_a_host() {
        assert_eq!(parse("lab:data/x"), Ok(Location::Named { name: "lab".into(), path: b"data/x".to_vec() }));
        assert_eq!(parse("lab:"), Ok(Location::Named { name: "lab".into(), path: vec![] }));
        for (text, name) in [("[::1]:x", "[::1]"), ("me@[fe80::1%eth0]:x", "me@[fe80::1%eth0]"), ("a[1]:x", "a[1]")] {
            assert_eq!(parse(text), Ok(Location::Named { name: name.into(), path: b"x".to_vec() }));
        }
        assert_eq!(parse("./[::1]:x"), Ok(Location::Local(b"./[::1]:x".to_vec())));
        assert_eq!(parse("[a"), Ok(Location::Local(b"[a".to_vec())));
        assert_eq!(parse("./a:b"), Ok(Location::Local(b"./a:b".to_vec())));
        assert_eq!(parse("/a:b"), Ok(Location::Local(b"/a:b".to_vec())));
        assert_eq!(parse(":x"), Ok(Location::Local(b":x".to_vec())));
        assert_eq!(parse("-"), Ok(Location::Pipe));
        assert_eq!(parse(""), Err(LocationError::Empty));
        assert_eq!(parse("gen:3x1KiB"), Ok(Location::Generated(Generated { files: 3, file_bytes: 1024 })));
        assert!(matches!(parse("gen:3"), Err(LocationError::Generated(_))));
        assert_eq!(parse("null:"), Ok(Location::Null));
        assert!(parse("far:null:").unwrap().is_synthetic() && !parse("./null:").unwrap().is_synthetic());
    }

    #[test]
    fn what_is_shown_holds_no_control_characters() {
        for text in ["a\x1b[2J:x", "tw://a\x07:1/x", "./a\nb", "\u{9b}s://x"] {
            let shown = parse(text).map_or_else(|e| e.to_string(), |location| location.to_string());
            assert!(shown.chars().all(|c| !c.is_control()), "{shown:?}");
        }
    }

    #[test]
    fn urls_need_a_known_scheme_and_a_port() {
        let found = parse("tw://[::1]:7740/a/b");
        assert_eq!(found, Ok(Location::Address { address: "[::1]:7740".into(), path: b"a/b".to_vec() }));
        let url = |scheme: &str, rest: &str| Ok(Location::Url { scheme: scheme.into(), rest: rest.into() });
        for (text, scheme, rest) in [
            ("s3://bucket/key", "s3", "bucket/key"),
            ("HTTPS://host:8443/a?b", "https", "host:8443/a?b"),
            ("gsiftp://host/a", "gsiftp", "host/a"),
            ("sftp://me@host/a", "sftp", "me@host/a"),
            ("dav+x://", "dav+x", ""),
        ] {
            assert_eq!(parse(text), url(scheme, rest), "{text}");
            assert!(!parse(text).unwrap().is_remote());
        }
        assert_eq!(parse("s3://b/k").unwrap().to_string(), "s3://b/k");
        assert_eq!(parse("./s3://b"), Ok(Location::Local(b"./s3://b".to_vec())));
        assert_eq!(parse("me@host://a"), Err(LocationError::Scheme("me@host".into())));
        assert!(matches!(parse("tw://host/a"), Err(LocationError::Address(_))));
    }
}
