//! Making TUN devices.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use rustix::net::{AddressFamily, SocketType};

/// Packets that may wait for the emulator. The default of 500 is less than one burst of a fast sender.
const QUEUE_PACKETS: i32 = 10_000;
const OFFLOADS: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// A TUN device; it goes away with this.
#[derive(Debug)]
pub struct Device {
    pub name: String,
    pub file: File,
    /// The counters of all interfaces of its network namespace, also when read from another.
    pub statistics: File,
}

/// Makes a device in the calling thread's network namespace, where it still needs addresses and to be brought up.
///
/// Reads and writes give `WouldBlock` instead of waiting. Frames begin with a virtio_net header of 10 bytes, and may be
/// aggregates of TCP segments whose checksums are still to be completed.
pub fn create(name: &str) -> io::Result<Device> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_TUN_EXCL;
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: the call reads and writes one `ifreq`, which lives until it returns.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
    // SAFETY: the argument is a number, no memory is passed.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(OFFLOADS)) })?;
    let header_bytes: libc::c_int = 10;
    // SAFETY: the call reads one int, which lives until it returns.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &raw const header_bytes) })?;
    set_queue(name)?;
    Ok(Device { name: name.to_owned(), file, statistics: File::open("/proc/thread-self/net/dev")? })
}

fn set_queue(name: &str) -> io::Result<()> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut request = request(name)?;
    // The kernel's `ifr_qlen` is another name of the same int.
    request.ifr_ifru.ifru_metric = QUEUE_PACKETS;
    // SAFETY: the call reads one `ifreq`, which lives until it returns.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFTXQLEN as _, &raw mut request) })
}

fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all-zero is a valid `ifreq`: an empty name and a union of plain numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a device name has 1 to 15 bytes"));
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    Ok(request)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
