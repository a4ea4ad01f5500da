//! Network paths that the user named, checked against this host; and where a session begins.
//!
//! Invariant: an address that is not this host's is an error before anything is dialled.
//!
//! Not here: paths that are found while a session runs (`mover::session`).

use model::PathWish;
use model::paths::PathPair;
use mover::session::{Path, Tuning};
use net::route;
use std::net::{IpAddr, UdpSocket};

/// A path that this host does not have.
#[derive(Debug)]
pub struct Unusable {
    pub text: String,
    pub advice: String,
}

/// What a port is where none is told.
const PORT: &str = "7740";

/// The paths that sessions may begin with, the likeliest first: each with all that are known beside it.
pub fn beginnings(tuning: &Tuning, addresses: &[String]) -> Result<Vec<Vec<Path>>, Unusable> {
    let standby = tuning.standby.get();
    if let PathWish::Fixed(pairs) = &tuning.paths {
        let port = addresses.first().and_then(|address| address.rsplit_once(':')).map_or(PORT, |(_, port)| port);
        let paths = pairs.iter().map(|pair| fixed(pair, port)).collect::<Result<Vec<_>, _>>()?;
        let first = standby.and_then(|standby| paths.iter().position(|path| *path == standby)).unwrap_or(0);
        let rotated = |by: usize| paths.iter().cycle().skip(first + by).take(paths.len()).cloned().collect();
        return Ok((0..paths.len()).map(rotated).collect());
    }
    let named = |address: &String| Path { name: address.clone(), remote: address.clone(), ..Path::default() };
    Ok(standby.into_iter().chain(addresses.iter().map(named)).map(|path| vec![path]).collect())
}

fn fixed(pair: &PathPair, port: &str) -> Result<Path, Unusable> {
    let remote = with_port(&pair.remote, port);
    let path = Path { name: format!("{} to {remote}", pair.local), remote, ..Path::default() };
    if let Ok(ip) = pair.local.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return match UdpSocket::bind((ip, 0)) {
            Ok(_) => Ok(Path { local: Some(ip), ..path }),
            Err(_) => Err(not_here(format!("--paths {pair}: {ip} is not an address of this host"))),
        };
    }
    match net::interface::exists(&pair.local) {
        true => Ok(Path { device: Some(pair.local.clone()), ..path }),
        false => Err(not_here(format!("--paths {pair}: this host has no interface and no address {}", pair.local))),
    }
}

fn not_here(what: String) -> Unusable {
    let own = route::local_addresses().unwrap_or_default();
    let shown: Vec<_> = own.iter().map(|own| format!("{} ({})", own.ip, own.name)).collect();
    let advice = match shown.is_empty() {
        true => "this host has no address that leads to others".to_owned(),
        false => format!("LOCAL is one of {}", shown.join(", ")),
    };
    Unusable { text: what, advice }
}

/// `HOST`, `HOST:PORT`, a bare IPv6 address or one in brackets.
fn with_port(remote: &str, port: &str) -> String {
    let is_bare_ipv6 = remote.parse::<std::net::Ipv6Addr>().is_ok();
    let has_port =
        !is_bare_ipv6 && remote.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'));
    match () {
        () if is_bare_ipv6 => format!("[{remote}]:{port}"),
        () if has_port => remote.to_owned(),
        () => format!("{remote}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(paths: &str, standby: Option<usize>) -> Result<Vec<Vec<String>>, Unusable> {
        let tuning = Tuning { paths: paths.parse().unwrap(), ..Tuning::default() };
        let addresses = ["192.0.2.1:7741".to_owned(), "192.0.2.2:7741".to_owned()];
        if let Some(at) = standby {
            tuning.standby.set(beginnings(&tuning, &addresses)?[at][0].clone());
        }
        let names = |paths: Vec<Path>| paths.into_iter().map(|path| path.remote).collect();
        Ok(beginnings(&tuning, &addresses)?.into_iter().map(names).collect())
    }

    #[test]
    fn a_session_begins_where_the_one_before_still_lived() {
        assert_eq!(begin("all", None).unwrap(), [["192.0.2.1:7741"], ["192.0.2.2:7741"]]);
        assert_eq!(begin("all", Some(1)).unwrap(), [["192.0.2.2:7741"], ["192.0.2.1:7741"], ["192.0.2.2:7741"]]);
        let pairs = "127.0.0.1=127.0.0.2,127.0.0.1=127.0.0.3:99";
        assert_eq!(begin(pairs, None).unwrap()[0], ["127.0.0.2:7741", "127.0.0.3:99"]);
        assert_eq!(begin(pairs, Some(1)).unwrap()[0], ["127.0.0.3:99", "127.0.0.2:7741"]);
    }

    #[test]
    fn an_address_that_is_not_this_hosts_is_an_error_that_names_those_that_are() {
        for (paths, what) in [
            ("192.0.2.77=192.0.2.1", "192.0.2.77 is not an address of this host"),
            ("nonesuch0=192.0.2.1", "this host has no interface and no address nonesuch0"),
            ("2001:db8::9=192.0.2.1", "2001:db8::9 is not an address of this host"),
        ] {
            let error = begin(paths, None).unwrap_err();
            assert!(error.text.contains(what) && !error.advice.is_empty(), "{error:?}");
        }
    }

    #[test]
    fn a_remote_end_without_a_port_gets_the_endpoints() {
        for (remote, address) in [
            ("10.0.0.1", "10.0.0.1:1"),
            ("10.0.0.1:2", "10.0.0.1:2"),
            ("fd00::1", "[fd00::1]:1"),
            ("[fd00::1]", "[fd00::1]:1"),
            ("[fd00::1]:2", "[fd00::1]:2"),
        ] {
            assert_eq!(with_port(remote, "1"), address);
        }
    }
}
