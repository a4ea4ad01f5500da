//! The two ends of each stream of a flow.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, SendFlags};

use super::wanted::Flow;
use crate::error::{Error, Kind, Result};
use crate::laboratory::Lab;
use crate::sys::tcp::{self, Info};

const BLOCK_BYTES: usize = 256 << 10;
/// Longer than a handshake over any link that a scenario may have, with a lost packet or two.
const CONNECT_WAIT: Duration = Duration::from_secs(20);
/// Of the buffer, what the kernel may keep for its own overhead: the window must fit even if half is overhead.
const BUFFER_WINDOWS: u64 = 4;

pub struct Pair {
    sender: TcpStream,
    receiver: TcpStream,
    window_bytes: Option<u32>,
}

pub fn connect(lab: &Lab, from: &str, to: &str, flow: &Flow) -> Result<Vec<Pair>> {
    let failed = |operation| move |source| Error { kind: Kind::Failed, ..Error::io(operation, to.as_ref(), source) };
    let (own, peer) = (SocketAddr::from((lab.address_v4(from)?, 0)), SocketAddr::from((lab.address_v4(to)?, 0)));
    if let Some(window_bytes) = flow.window_bytes {
        lab.inside(to, || fix_buffers(window_bytes))?.map_err(failed("set the buffers of"))?;
    }
    let listener = lab.inside(to, || TcpListener::bind(peer))?.map_err(failed("listen at"))?;
    if let Some(window_bytes) = flow.window_bytes {
        // Before the handshake, which settles the scale of the window.
        tcp::set_window_clamp(&listener, window_bytes).map_err(failed("clamp the window of"))?;
    }
    let address = listener.local_addr().map_err(failed("listen at"))?;
    listener.set_nonblocking(true).map_err(failed("listen at"))?;
    let mut pairs = Vec::with_capacity(flow.streams);
    for _ in 0..flow.streams {
        let sender = lab.inside(from, || open(own, address))?.map_err(failed("connect to"))?;
        let receiver = accept(&listener).map_err(failed("accept at"))?;
        configure(&sender, flow).map_err(failed("configure a stream to"))?;
        pairs.push(Pair { sender, receiver, window_bytes: flow.window_bytes });
    }
    Ok(pairs)
}

impl Pair {
    /// Sends until it is over or the connection is cut.
    pub fn send(&self, is_over: &AtomicBool) {
        let block = vec![0x5a_u8; BLOCK_BYTES];
        while !is_over.load(Ordering::Relaxed) {
            match rustix::net::send(&self.sender, &block, SendFlags::NOSIGNAL) {
                Ok(_) | Err(rustix::io::Errno::INTR) => (),
                Err(_) => return,
            }
        }
    }

    /// Counts what arrives until the connection is cut.
    pub fn receive(&self, counter: &AtomicU64) {
        let mut block = vec![0_u8; BLOCK_BYTES];
        loop {
            match rustix::net::recv(&self.receiver, &mut block[..], RecvFlags::TRUNC) {
                Ok((_, 0)) => return,
                Ok((_, length)) => {
                    counter.fetch_add(length as u64, Ordering::Relaxed);
                    self.clamp_window();
                }
                Err(rustix::io::Errno::INTR) => (),
                Err(_) => return,
            }
        }
    }

    /// Newer kernels widen the clamp to the whole buffer whenever the packets' overhead changes.
    fn clamp_window(&self) {
        if let Some(bytes) = self.window_bytes {
            // The same call worked on the listener; a connection that has ended needs no window.
            let _ = tcp::set_window_clamp(&self.receiver, bytes);
        }
    }

    pub fn cut(&self) {
        // Either may be cut already.
        let _ = self.receiver.shutdown(Shutdown::Both);
        let _ = self.sender.shutdown(Shutdown::Both);
    }

    pub fn info(&self) -> Info {
        tcp::info(&self.sender).unwrap_or_default()
    }
}

impl Drop for Pair {
    /// Closes with a reset: what is queued is not sent on, so that the next measurement has the link to itself.
    fn drop(&mut self) {
        for socket in [&self.sender, &self.receiver] {
            let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
        }
    }
}

/// A buffer that starts at its largest size does not grow, and only growing overrides a clamp.
fn fix_buffers(window_bytes: u32) -> io::Result<()> {
    let bytes = u64::from(window_bytes) * BUFFER_WINDOWS;
    std::fs::write("/proc/sys/net/ipv4/tcp_rmem", format!("4096 {bytes} {bytes}"))
}

fn open(own: SocketAddr, peer: SocketAddr) -> io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &own)?;
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Send, Some(CONNECT_WAIT))?;
    connect(&socket, &peer)?;
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Send, None)?;
    Ok(socket.into())
}

fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let deadline = Instant::now() + CONNECT_WAIT;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait_for(listener, deadline)?,
            Err(error) => return Err(error),
        }
    }
}

fn wait_for(listener: &TcpListener, deadline: Instant) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    let mut polled = [PollFd::new(listener, PollFlags::IN)];
    match poll(&mut polled, Some(&timeout))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

fn configure(sender: &TcpStream, flow: &Flow) -> io::Result<()> {
    if let Some(name) = &flow.congestion_control {
        rustix::net::sockopt::set_tcp_congestion(sender, name)?;
    }
    if let Some(rate) = flow.pacing_bits_per_second {
        tcp::set_pacing_rate(sender, rate / 8)?;
    }
    Ok(())
}
