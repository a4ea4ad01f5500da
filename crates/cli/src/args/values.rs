//! How the values of arguments read: locations, sizes, times, addresses.

use crate::exit::{Result, usage};
use crate::output;
use model::Location;
use model::name::NAME_BYTES_MAX;
use model::options::Buffer;
use model::options::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN};
use std::ffi::{OsStr, OsString};
use std::net::Ipv6Addr;
use std::path::PathBuf;

/// PATH_MAX, and what the protocol allows.
pub const PATH_BYTES_MAX: usize = 4096;

/// Less than a ticket has behind its colon, and more than chance has there.
const TICKET_BYTES_MIN: usize = 32;

/// Reads `PATH`, `NAME:PATH`, `tw://ADDR:PORT/PATH` or `-`. Its bytes need not be text.
pub fn location(text: &OsStr) -> Result<Location> {
    if is_ticket(text) {
        return Err(usage(
            "this is a ticket, which is never put on a command line: others on this host can read it there",
            "put it into a file, give that to `thalweg endpoint add NAME --ticket-file FILE`, and write NAME:PATH here",
        ));
    }
    let location = Location::parse(text).map_err(|e| {
        usage(
            e.to_string(),
            "a location is PATH, NAME:PATH, USER@HOST:PATH, tw://ADDR:PORT/PATH, `-`, gen:COUNTxSIZE or null:",
        )
    })?;
    check_length(&location)?;
    Ok(location)
}

/// Whether it looks like a ticket or the link of one, whole or cut off, which would be taken for a path on a host.
fn is_ticket(text: &OsStr) -> bool {
    let text = text.to_string_lossy();
    let line = match text.strip_prefix("thalweg://") {
        Some(link) => link.rsplit('#').next().unwrap_or_default(),
        None => &text[..],
    };
    let Some((version, code)) = line.strip_prefix("twt").and_then(|rest| rest.split_once(':')) else { return false };
    // It may have been given like a host, with a path behind it.
    let code = code.split(['/', ':']).next().unwrap_or_default();
    let is_number = !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit());
    let is_code = code.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    is_number && is_code && code.len() >= TICKET_BYTES_MIN
}

/// What no other side would take is told before one is asked.
fn check_length(location: &Location) -> Result<()> {
    let path = location.path();
    let names = path.split(|b| *b == b'/').map(<[u8]>::len);
    match names.max() {
        _ if !location.is_remote() => Ok(()),
        _ if path.len() > PATH_BYTES_MAX => {
            Err(usage(format!("a path of {} bytes is too long", path.len()), "a path has at most 4096 bytes"))
        }
        Some(bytes) if bytes > NAME_BYTES_MAX => Err(usage(
            format!("a name of {bytes} bytes is too long"),
            "a name has at most 255 bytes: choose a shorter one",
        )),
        _ => Ok(()),
    }
}

/// The sources, and last the destination. They are one list for the parser: given two, it cannot tell a source from the
/// destination where flags stand between them, nor where a name begins with a dash.
pub fn sources_and_destination(locations: &[OsString]) -> Result<(&[OsString], &OsStr)> {
    match locations {
        [sources @ .., destination] if !sources.is_empty() => Ok((sources, destination.as_os_str())),
        _ => {
            let named = locations.first().map(output::shown).unwrap_or_default();
            Err(usage(
                format!("only {named} is named: a source and a destination are needed"),
                "name the destination too; `.` is the current directory",
            ))
        }
    }
}

/// Reads `640` or `640,750`: permission bits of files and of directories.
///
/// One number is for files; directories get it with the right to enter wherever there is one to read.
pub fn chmod(text: &str) -> Result<(u32, u32), String> {
    let octal = |text: &str| match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err(format!("{text:?} is not an octal mode from 000 to 777, such as 640 or 640,750")),
    };
    match text.split_once(',') {
        Some((files, directories)) => Ok((octal(files)?, octal(directories)?)),
        None => octal(text).map(|files| (files, files | (files & 0o444) >> 2)),
    }
}

/// Reads a chunk length such as `8MiB`.
pub fn chunk_bytes(text: &str) -> Result<u64, String> {
    let bytes = model::quantity::parse_bytes(text)?;
    if bytes.is_power_of_two() && (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&bytes) {
        return Ok(bytes);
    }
    Err("the chunk size must be a power of two from 1MiB to 1GiB".into())
}

/// Reads the memory for blocks: enough for one lane, or nothing would ever move.
pub fn memory_bytes(text: &str) -> Result<usize, String> {
    let bytes = usize::try_from(model::quantity::parse_bytes(text)?).unwrap_or(usize::MAX);
    if bytes >= mover::limits::LANE_BYTES {
        return Ok(bytes);
    }
    Err(format!("one stream alone takes {} of memory", model::quantity::ByteCount(mover::limits::LANE_BYTES as u64)))
}

/// Reads how much a cache keeps.
pub fn cache_bytes(text: &str) -> Result<u64, String> {
    match model::quantity::parse_bytes(text)? {
        0 => Err("a cache that keeps nothing cannot serve anything".into()),
        bytes => Ok(bytes),
    }
}

/// Reads where a buffer is, and its size.
pub fn buffer(text: &str) -> Result<(PathBuf, u64), String> {
    let (path, size) = text.rsplit_once(':').ok_or("a buffer is DIR:SIZE, such as /nvme/thalweg:2TiB")?;
    let bytes = model::quantity::parse_bytes(size)?;
    match path.is_empty() {
        true => Err("a buffer is DIR:SIZE, such as /nvme/thalweg:2TiB".into()),
        false => Ok((path.into(), bytes)),
    }
}

/// Whether buffers are used, or where there is one on this host.
#[derive(Clone, Debug)]
pub enum BufferWish {
    How(Buffer),
    Here(PathBuf, u64),
}

pub fn buffer_wish(text: &str) -> Result<BufferWish, String> {
    if let Ok(how) = text.parse() {
        return Ok(BufferWish::How(how));
    }
    let here = buffer(text).map(|(path, bytes)| BufferWish::Here(path, bytes));
    here.map_err(|why| format!("{why}; or auto, always or never"))
}

/// Reads what can be the name of a congestion control; whether there is one of that name is for the kernel that sends.
pub fn congestion(text: &str) -> Result<String, String> {
    match model::options::is_congestion_name(text) {
        true => Ok(text.to_owned()),
        false => Err("a congestion control has a short name of letters and digits, such as bbr or cubic".into()),
    }
}

/// Reads `HOST:PORT`; the port is 7740 where none is given.
pub fn address(text: &str) -> Result<String, String> {
    const PORT: u16 = 7740;
    let has_port = match text.rsplit_once(':') {
        Some((host, port)) => port.parse::<u16>().is_ok() && (host.ends_with(']') || !host.contains(':')),
        None => false,
    };
    match text {
        "" => Err("an address is HOST:PORT, such as '[::]:7740'".into()),
        _ if has_port => Ok(text.to_owned()),
        _ if text.matches(':').count() == 1 || (text.starts_with('[') && !text.ends_with(']')) => {
            Err("a port is a number up to 65535, and an address HOST:PORT, such as '[::]:7740'".into())
        }
        _ if text.contains(':') && !text.starts_with('[') => match text.rsplit_once(':') {
            _ if is_ipv6(text) => Ok(format!("[{text}]:{PORT}")),
            Some((host, port)) if is_ipv6(host) => {
                Err(format!("an IPv6 address stands in brackets before its port: write '[{host}]:{port}'"))
            }
            _ => Err("an address is HOST:PORT, such as '[::]:7740'".into()),
        },
        _ => Ok(format!("{text}:{PORT}")),
    }
}

/// With or without the interface that it is of.
fn is_ipv6(text: &str) -> bool {
    text.split('%').next().is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_and_directories_can_be_entered_by_those_who_can_read() {
        assert_eq!(chmod("640"), Ok((0o640, 0o750)));
        assert_eq!(chmod("600,711"), Ok((0o600, 0o711)));
        assert!(chmod("888").is_err());
        assert!(chmod("4755").is_err());
        assert!(chmod("640,").is_err());
    }

    #[test]
    fn a_ticket_is_told_from_a_path_on_a_host() {
        let code = "AREREREREREREREREREREREREREREREREREREREREREiIiIi";
        let link = format!("thalweg://h:1/a%20b#twt1:{code}");
        let given_like_hosts = [format!("twt1:{code}/data"), format!("twt1:{code}:/data"), format!("{link}/data")];
        for text in [format!("twt1:{code}"), format!("twt12:{code}"), link].into_iter().chain(given_like_hosts) {
            assert!(is_ticket(text.as_ref()) && location(text.as_ref()).is_err(), "{text}");
        }
        for text in ["twt1:data".to_owned(), format!("twt1:data/{code}"), format!("lab:{code}")] {
            assert!(!is_ticket(text.as_ref()), "{text}");
        }
    }

    #[test]
    fn an_address_without_a_port_gets_the_usual_one() {
        for (text, address) in [
            ("127.0.0.1", "127.0.0.1:7740"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("::1", "[::1]:7740"),
            ("[::1]", "[::1]:7740"),
            ("fe80::1%eth0", "[fe80::1%eth0]:7740"),
            ("[::]:99", "[::]:99"),
            ("host:1", "host:1"),
        ] {
            assert_eq!(super::address(text).as_deref(), Ok(address));
        }
        for wrong in ["127.0.0.1:99999", "host:", "[::1]:x", "host:-1"] {
            assert!(super::address(wrong).unwrap_err().starts_with("a port is a number"), "{wrong}");
        }
        for (wrong, right) in [(":::7740", "'[::]:7740'"), ("1:2:3:4:5:6:7:8:9", "'[1:2:3:4:5:6:7:8]:9'")] {
            assert!(super::address(wrong).unwrap_err().ends_with(right), "{wrong}");
        }
        assert!(super::address("a:b:7740").unwrap_err().starts_with("an address is HOST:PORT"));
    }

    #[test]
    fn chunk_sizes_are_powers_of_two_within_bounds() {
        assert_eq!(chunk_bytes("8MiB"), Ok(8 << 20));
        assert!(chunk_bytes("3MiB").is_err());
        assert!(chunk_bytes("512KiB").is_err());
        assert!(chunk_bytes("2GiB").is_err());
    }
}
