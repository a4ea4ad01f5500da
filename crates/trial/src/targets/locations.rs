//! Locations, names and relative paths: nothing that is read climbs, is absolute, or names a host it does not say.

use super::bytes::Bytes;
use model::Location;
use model::name::{Escaped, Name, join, relative_path, unescape};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let kind = bytes.u8();
    let text = bytes.rest();
    match kind % 4 {
        0 | 1 => location(text),
        2 => path(text),
        _ => shown(text),
    }
}

fn location(text: &[u8]) {
    let parsed = Location::parse(OsStr::from_bytes(text));
    let shown = match &parsed {
        Ok(location) => location.to_string(),
        Err(e) => e.to_string(),
    };
    assert!(shown.chars().all(|c| !c.is_control()), "control characters are shown: {shown:?}");
    let Ok(location) = parsed else { return };
    match &location {
        Location::Named { name, path } => {
            assert!(!name.is_empty() && !name.contains('/') && location.is_remote());
            if let Some(colon) = name.find(':') {
                // Of an IPv6 address, which is in brackets.
                assert!(name.find('[').is_some_and(|bracket| bracket < colon) && name.ends_with(']'), "{name:?}");
            }
            assert_eq!([name.as_bytes(), b":", path].concat(), text);
        }
        Location::Address { address, .. } => {
            let (host, port) = address.rsplit_once(':').expect("an address has a port");
            assert!(!host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) && !address.contains('/'));
        }
        Location::Local(path) => assert_eq!(path, text),
        Location::Generated(made) => {
            let again = Location::parse(OsStr::new(&made.to_string()));
            assert_eq!(again.as_ref(), Ok(&location), "a generated location does not write back");
        }
        Location::Url { scheme, rest } => {
            assert!(!location.is_remote() && scheme.bytes().all(|b| b.is_ascii_graphic() && !b"/:@".contains(&b)));
            assert_eq!([&text[..scheme.len()].to_ascii_lowercase(), &b"://"[..], rest].concat(), {
                let mut lower = text.to_vec();
                lower[..scheme.len()].make_ascii_lowercase();
                lower
            });
        }
        Location::Pipe | Location::Null => assert!(!location.is_remote()),
    }
}

fn path(text: &[u8]) {
    let Ok(names) = relative_path(text) else { return };
    let joined = join(&names);
    assert_eq!(relative_path(&joined).as_ref(), Ok(&names), "a path does not write back");
    assert!(!joined.starts_with(b"/") && joined.split(|&b| b == b'/').all(|part| part != b".."));
    for name in &names {
        assert_eq!(Name::new(name.as_bytes()).as_ref(), Ok(name));
    }
}

fn shown(text: &[u8]) {
    let escaped = Escaped(text).to_string();
    assert!(escaped.chars().all(|c| !c.is_control()));
    assert_eq!(unescape(escaped.as_bytes()).as_deref(), Some(text), "an escaped text does not read back");
    if let Some(bytes) = unescape(text) {
        assert_eq!(unescape(Escaped(&bytes).to_string().as_bytes()), Some(bytes));
    }
    if let Ok(text) = std::str::from_utf8(text) {
        let _ = model::quantity::parse_bytes(text);
    }
}
