//! From `ftp://`, `gsiftp://` and `sshftp://[USER@]HOST[:PORT]/ABSOLUTE` to a server that lets us in.
//!
//! Invariants: nothing is sent in clear text to another host unless its table allows that; no secret stands in a location.

use super::fault::{Fault, said};
use super::login::Account;
use super::server::{DialWires, Ftp, Server, Wires, by_tcp};
use super::session::Reach;
use crate::sftp::{Dial, Line};
use crate::tree::{Host, Place, Places, split};
use model::{Location, TransferOptions};
use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use store::open::{OpenSink, OpenSource, Opener, Refused, SinkRequest};
use store::{How, OpenError, Seen, Shelf};

pub const SCHEMES: [&str; 3] = ["ftp", "gsiftp", "sshftp"];
const FORM: &str =
    "gsiftp://HOST[:PORT]/ABSOLUTE, ftp://[USER@]HOST[:PORT]/ABSOLUTE or sshftp://[USER@]HOST[:PORT]/ABSOLUTE";
/// A file of passwords is not longer.
const NETRC_BYTES_MAX: u64 = 1 << 20;

/// What a table of the configuration says of a server.
#[derive(Clone, Default)]
pub struct FtpConfig {
    pub endpoint: String,
    pub allow_clear: bool,
    /// In the form of `.netrc`.
    pub credentials_file: Option<String>,
    /// Other hosts that the server may send data connections to.
    pub data_hosts: Vec<String>,
}

/// The servers that a program speaks to.
pub struct FtpServers {
    tables: Vec<FtpConfig>,
    ssh: Arc<dyn Dial>,
    open: Mutex<HashMap<Target, Arc<Ftp>>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Target {
    scheme: String,
    host: Host,
}

impl Target {
    fn parse(scheme: &str, authority: &str) -> Result<Target, OpenError> {
        Ok(Target { scheme: scheme.to_owned(), host: Host::parse(authority, FORM)? })
    }

    fn user(&self) -> Option<&str> {
        self.host.name.rsplit_once('@').map(|(user, _)| user)
    }

    fn bare(&self) -> &str {
        self.host.name.rsplit_once('@').map_or(&self.host.name, |(_, host)| host)
    }

    fn port(&self) -> u16 {
        self.host.port.unwrap_or(if self.scheme == "ftp" { 21 } else { 2811 })
    }

    fn is_by_ssh(&self) -> bool {
        self.scheme == "sshftp"
    }
}

impl FtpServers {
    /// `ssh` starts a GridFTP server on another host, at the other end of two pipes.
    pub fn new(tables: Vec<FtpConfig>, ssh: Arc<dyn Dial>) -> FtpServers {
        FtpServers { tables, ssh, open: Mutex::default() }
    }

    fn table(&self, target: &Target) -> Result<FtpConfig, OpenError> {
        for table in &self.tables {
            let meant = table.endpoint.split_once("://").filter(|(scheme, _)| SCHEMES.contains(scheme));
            let meant = meant.and_then(|(scheme, rest)| Target::parse(scheme, rest.trim_end_matches('/')).ok());
            let Some(meant) = meant else {
                let text = format!("{:?} is no address of a GridFTP or FTP server", table.endpoint);
                let advice = "write endpoint = \"gsiftp://HOST:PORT\" in its table";
                return Err(OpenError::refused(Refused::Request, text, advice));
            };
            let is_it = meant.bare() == target.bare()
                && meant.is_by_ssh() == target.is_by_ssh()
                && (target.is_by_ssh() || meant.port() == target.port());
            if is_it {
                return Ok(table.clone());
            }
        }
        Ok(FtpConfig::default())
    }

    fn place(&self, location: &Location) -> Result<Place<Ftp>, OpenError> {
        let (authority, path, is_directory) = split(location, FORM)?;
        let server = self.server(Target::parse(location.scheme(), authority)?)?;
        Ok(Place { server, path, is_directory })
    }

    fn server(&self, target: Target) -> Result<Arc<Ftp>, OpenError> {
        let mut open = self.open.lock().unwrap();
        if let Some(server) = open.get(&target) {
            return Ok(server.clone());
        }
        let server = Arc::new(Ftp(self.connect(&target)?));
        Ok(open.entry(target).or_insert(server).clone())
    }

    fn connect(&self, target: &Target) -> Result<Arc<Server>, OpenError> {
        let table = self.table(target)?;
        let others = table.data_hosts.iter().map(|host| addresses(host)).collect::<Result<Vec<_>, _>>()?.concat();
        let mut reach = Reach { others, allow_clear: table.allow_clear, ..Reach::default() };
        let (host, port, allow_clear) = (target.bare().to_owned(), target.port(), table.allow_clear);
        let dial: Box<DialWires> = match target.is_by_ssh() {
            false => Box::new(move || by_tcp(&host, port, allow_clear)),
            true => {
                // A name that only ssh knows leads nowhere else: the table says where data may go.
                reach.others.extend(addresses(&host).unwrap_or_default());
                let (ssh, host) = (self.ssh.clone(), target.host.clone());
                Box::new(move || {
                    let Line { input, output, why } = ssh.dial(&host)?;
                    Ok(Wires { input: output, output: Box::new(input), why: Some(why), peer: None, here: None })
                })
            }
        };
        let account = account(target, &table)?;
        let server = Server::connect(format!("{}://{}", target.scheme, target.host.name), account, reach, dial)?;
        // Where data would go, and in clear text, is known before anything is begun.
        match server.lease().and_then(|mut lease| lease.passive()) {
            Ok(_) => Ok(server),
            Err(Fault::Abroad(why)) => {
                let text = format!("{}: {why}", server.name);
                Err(OpenError::refused(Refused::Request, text, "docs/gridftp.md says more of it"))
            }
            Err(fault) => {
                let text = format!("{} offers no passive data connections: {}", server.name, said(&fault));
                let advice = "ask its administrator for passive mode (EPSV or PASV)";
                Err(OpenError::refused(Refused::Unreachable, text, advice))
            }
        }
    }
}

fn addresses(host: &str) -> Result<Vec<IpAddr>, OpenError> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let found = (bare, 0).to_socket_addrs().map_err(|e| {
        let advice = "list addresses, or names that can be looked up";
        OpenError::refused(Refused::Request, format!("redirect_hosts: look up {host}: {e}"), advice)
    })?;
    Ok(found.map(|address| address.ip().to_canonical()).collect())
}

fn account(target: &Target, table: &FtpConfig) -> Result<Account, OpenError> {
    let anonymous = || Account { user: "anonymous".to_owned(), password: "anonymous@".to_owned() };
    let wrong = |text: String| OpenError::refused(Refused::Keys, text, "docs/gridftp.md shows the form of the file");
    if target.is_by_ssh() {
        return Ok(Account { user: ":globus-mapping:".to_owned(), password: "ssh".to_owned() });
    }
    let Some(path) = &table.credentials_file else {
        return match target.user() {
            None => Ok(anonymous()),
            Some(user) => Ok(Account { user: user.to_owned(), password: String::new() }),
        };
    };
    let size = std::fs::metadata(path).map_err(|e| wrong(format!("{path}: {e}")))?.len();
    if size > NETRC_BYTES_MAX {
        return Err(wrong(format!("{path} is longer than 1 MiB")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| wrong(format!("{path}: {e}")))?;
    let found = of_netrc(&text, target.bare(), target.user());
    found.ok_or_else(|| wrong(format!("{path} has no login and password for {}", target.host.name)))
}

/// The login of a machine, and its password.
fn of_netrc(text: &str, machine: &str, user: Option<&str>) -> Option<Account> {
    let mut words = text.split_whitespace();
    let (mut is_it, mut login) = (false, None);
    while let Some(word) = words.next() {
        match word {
            "machine" => (is_it, login) = (words.next()? == machine, None),
            "default" => (is_it, login) = (true, None),
            "login" => login = words.next(),
            "password" => {
                let password = words.next()?;
                let is_meant = |login: &&str| user.is_none_or(|user| user == *login);
                if is_it && let Some(login) = login.filter(is_meant) {
                    return Some(Account { user: login.to_owned(), password: password.to_owned() });
                }
            }
            _ => {}
        }
    }
    None
}

impl Opener for FtpServers {
    fn source(&self, locations: &[Location], options: &TransferOptions) -> Result<OpenSource, OpenError> {
        Places(&|location| self.place(location)).source(locations, options)
    }

    fn sink(&self, location: &Location, request: &SinkRequest<'_>) -> Result<OpenSink, OpenError> {
        Places(&|location| self.place(location)).sink(location, request)
    }

    fn shelf(&self, location: &Location, how: How) -> Result<Box<dyn Shelf>, OpenError> {
        Places(&|location| self.place(location)).shelf(location, how)
    }

    fn diagnose(&self, location: &Location) -> Result<Vec<Seen>, OpenError> {
        Places(&|location| self.place(location)).diagnose(location)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_passwords_has_those_of_many_machines() {
        let text = "machine a login me password one\nmachine b login you password two login he password three\ndefault login x password y";
        let found = |machine, user| of_netrc(text, machine, user).map(|account| (account.user, account.password));
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(found("a", None), pair("me", "one"));
        assert_eq!(found("b", Some("he")), pair("he", "three"));
        assert_eq!(found("c", None), pair("x", "y"));
        assert_eq!(found("a", Some("nobody")), None);
    }
}
