//! Receiving many datagrams with one call, and an option of netlink sockets.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Buffers for `COUNT` datagrams of at most `BYTES` each.
pub struct Batch<const COUNT: usize, const BYTES: usize> {
    buffers: Box<[[u8; BYTES]; COUNT]>,
    lengths: [usize; COUNT],
}

impl<const COUNT: usize, const BYTES: usize> Default for Batch<COUNT, BYTES> {
    fn default() -> Self {
        Batch { buffers: Box::new([[0; BYTES]; COUNT]), lengths: [0; COUNT] }
    }
}

impl<const COUNT: usize, const BYTES: usize> Batch<COUNT, BYTES> {
    /// Receives what is there without waiting; returns how many datagrams. Longer ones are cut.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let mut parts: [libc::iovec; COUNT] =
            std::array::from_fn(|i| libc::iovec { iov_base: self.buffers[i].as_mut_ptr().cast(), iov_len: BYTES });
        let mut headers: [libc::mmsghdr; COUNT] = std::array::from_fn(|i| {
            // SAFETY: all-zero is a valid `mmsghdr`: null pointers and zero lengths.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = &raw mut parts[i];
            header.msg_hdr.msg_iovlen = 1;
            header
        });
        // SAFETY: each header points to one part, each part to a buffer of `BYTES`, and all outlive the call.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                COUNT as u32,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        if received < 0 {
            return Err(io::Error::last_os_error());
        }
        let received = received as usize;
        for (length, header) in self.lengths.iter_mut().zip(&headers).take(received) {
            *length = (header.msg_len as usize).min(BYTES);
        }
        Ok(received)
    }

    /// The datagram at `index` of the last call.
    pub fn datagram(&self, index: usize) -> &[u8] {
        &self.buffers[index][..self.lengths[index]]
    }
}

/// A full receive buffer is not reported as an error of the next call.
pub fn ignore_netlink_overruns(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option takes an int; pointer and length describe a live local.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_NETLINK,
            libc::NETLINK_NO_ENOBUFS,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn datagrams_arrive_whole_in_order_and_nothing_is_waited_for() {
        let (a, b) = UnixDatagram::pair().unwrap();
        let mut batch = Batch::<4, 8>::default();
        assert_eq!(batch.receive(b.as_fd()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        for text in ["one", "two", "much too long"] {
            a.send(text.as_bytes()).unwrap();
        }
        assert_eq!(batch.receive(b.as_fd()).unwrap(), 3);
        assert_eq!([0, 1, 2].map(|i| batch.datagram(i)), [&b"one"[..], b"two", b"much too"]);
    }
}
