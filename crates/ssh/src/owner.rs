//! Whose process is at the other end of a connection over the loopback interface, as the kernel's table of sockets says.
//!
//! A listener on the loopback interface is there for every user of the host; what it leads to is there for one.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, TcpStream};

/// Whether a process of this user opened the connection. Where the kernel shows no table, nobody is kept out: both ends
/// prove their keys all the same.
pub fn is_own(accepted: &TcpStream) -> bool {
    let (Ok(peer), Ok(here)) = (accepted.peer_addr(), accepted.local_addr()) else { return false };
    let table = if peer.is_ipv4() { "/proc/thread-self/net/tcp" } else { "/proc/thread-self/net/tcp6" };
    let Ok(table) = File::open(table) else { return true };
    owner(BufReader::new(table), peer, here) == Some(rustix::process::geteuid().as_raw())
}

/// The user of the socket whose own address is `local`; `None` when it has gone.
fn owner(table: impl BufRead, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    let (local, remote) = (as_in_table(local), as_in_table(remote));
    table.lines().map_while(Result::ok).find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_it = words.next() == Some(&local) && words.next() == Some(&remote);
        // Then state, queues, timer, retransmissions.
        is_it.then(|| words.nth(4)?.parse().ok())?
    })
}

/// Words of 32 bits as this machine reads them, whatever the network's order.
fn as_in_table(address: SocketAddr) -> String {
    let octets = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let word = |bytes: &[u8]| format!("{:08X}", u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    format!("{}:{:04X}", octets.chunks_exact(4).map(word).collect::<String>(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    #[test]
    fn a_connection_of_this_user_is_told_from_that_of_another() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            // A host may have no IPv6.
            let Ok(listener) = TcpListener::bind(host) else { continue };
            let address = listener.local_addr().unwrap();
            let mine = TcpStream::connect(address).unwrap();
            assert!(is_own(&listener.accept().unwrap().0), "{host}");
            drop(mine);
            if !rustix::process::geteuid().is_root() {
                continue;
            }
            let script = format!("exec 3<>/dev/tcp/{}/{}; read x", address.ip(), address.port());
            let mut other = Command::new("bash");
            other.args(["-c", &script]).uid(65534).gid(65534).stdin(Stdio::piped());
            let mut other = other.spawn().unwrap();
            assert!(!is_own(&listener.accept().unwrap().0), "{host}");
            other.kill().unwrap();
            other.wait().unwrap();
        }
    }

    #[test]
    fn a_row_is_found_by_both_addresses() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             \x20  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1\n\
             \x20  1: 0100007F:D431 0100007F:1F90 01 00000000:00000000 00:00000000 00000000   33        0 2 1\n";
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        if cfg!(target_endian = "little") {
            assert_eq!(owner(table.as_bytes(), at(0xd431), at(0x1f90)), Some(33));
        }
        assert_eq!(owner(table.as_bytes(), at(0xd432), at(0x1f90)), None);
        assert_eq!(as_in_table("[::1]:80".parse().unwrap()).len(), 37);
    }
}
