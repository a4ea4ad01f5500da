//! What the kernel knows of a TCP connection, and the options of one that no safe library sets.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The kernel's structure has 248 bytes in Linux 6.7 and grows at its end.
const INFO_BYTES_MAX: usize = 256;

/// A sample of TCP_INFO; what this kernel does not know is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Info {
    /// Payload of a full segment, without the options that each carries.
    pub mss_bytes: u32,
    pub rtt_us: u32,
    pub rtt_us_min: u32,
    pub cwnd_segments: u32,
    pub retransmitted_segments: u32,
    pub delivery_rate_bytes_per_second: u64,
}

pub fn info(socket: &impl AsFd) -> io::Result<Info> {
    let mut bytes = [0_u8; INFO_BYTES_MAX];
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: pointer and length describe `bytes`, which outlives the call; the kernel writes at most that much.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(parse(&bytes)) } else { Err(io::Error::last_os_error()) }
}

/// The receive window never exceeds this from now on, unless the kernel enlarges the receive buffer.
pub fn set_window_clamp(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, &bytes)
}

/// What is sent leaves the host at this rate at most.
pub fn set_pacing_rate(socket: &impl AsFd, bytes_per_second: u64) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes_per_second)
}

/// `T` is an integer type.
fn set<T: Copy + Into<u64>>(socket: &impl AsFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: pointer and length describe one live integer, which the call only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Offsets are those of `struct tcp_info` in the kernel's user API.
fn parse(bytes: &[u8; INFO_BYTES_MAX]) -> Info {
    let u32_at = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let u64_at = |at: usize| {
        let parts = [u64::from(u32_at(at)), u64::from(u32_at(at + 4))];
        if cfg!(target_endian = "little") { parts[1] << 32 | parts[0] } else { parts[0] << 32 | parts[1] }
    };
    Info {
        mss_bytes: u32_at(16),
        rtt_us: u32_at(68),
        cwnd_segments: u32_at(80),
        retransmitted_segments: u32_at(100),
        rtt_us_min: Some(u32_at(148)).filter(|rtt| *rtt != u32::MAX).unwrap_or(0),
        delivery_rate_bytes_per_second: u64_at(160),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_tells_its_segment_size_and_round_trip() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_window_clamp(&listener, 1 << 16).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        set_pacing_rate(&client, 1 << 33).unwrap();
        client.write_all(&[1; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        server.write_all(&[1]).unwrap();
        client.read_exact(&mut [0]).unwrap();
        let info = info(&client).unwrap();
        assert!(info.mss_bytes > 1000 && info.rtt_us > 0 && info.cwnd_segments > 0, "{info:?}");
        assert!(info.rtt_us_min > 0 && info.rtt_us_min < 1_000_000 && info.retransmitted_segments == 0, "{info:?}");
    }
}
