//! A host's interface, seen from the emulator.
//!
//! Owns: the TUN device, and the count of packets that the host lost at it. Not here: where packets go (`Tun`).

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use crate::sys::tun::Device;

/// Dropping it removes the interface from the host.
#[derive(Debug)]
pub struct Port {
    device: Device,
}

impl Port {
    pub fn new(device: Device) -> Port {
        Port { device }
    }

    /// Reads one frame; returns its bytes. Longer ones are cut.
    pub fn read(&self, room: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::retry_on_intr(|| rustix::io::read(&self.device.file, &mut *room))
    }

    /// Hands a frame to the host; returns how many were lost because the kernel had no room for it.
    pub fn write(&self, frame: &[u8]) -> u64 {
        match rustix::io::retry_on_intr(|| rustix::io::write(&self.device.file, frame)) {
            // An interface that is down, or gone, loses packets as a real one does.
            Ok(_) | Err(Errno::IO | Errno::BADFD) => 0,
            Err(_) => 1,
        }
    }

    /// Packets that the host sent and that found the device's queue full.
    pub fn dropped(&self) -> u64 {
        let mut text = [0; 16 << 10];
        let length = self.device.statistics.read_at(&mut text, 0).unwrap_or(0);
        sent_and_dropped(&String::from_utf8_lossy(&text[..length]), &self.device.name).unwrap_or(0)
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.file.as_fd()
    }
}

/// From `/proc/net/dev`: a name, a colon, eight numbers of what was received and eight of what was sent.
fn sent_and_dropped(text: &str, name: &str) -> Option<u64> {
    let numbers = text.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    numbers.split_whitespace().nth(11)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packets_that_a_host_could_not_send_are_found_by_the_name_of_its_interface() {
        let text = "Inter-|   Receive\n face |bytes packets\n    lo:  1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  \
                    eth0: 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36\n";
        assert_eq!(sent_and_dropped(text, "eth0"), Some(32));
        assert_eq!(sent_and_dropped(text, "eth"), None);
    }
}
