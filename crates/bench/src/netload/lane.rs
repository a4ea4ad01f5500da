//! One stream at one end: the thread that sends or receives as fast as it can, and the counters that others read.
//!
//! Nothing is allocated and no lock is taken while bytes flow.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use net::{Aborter, Connection, DataStream, TcpInfo};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::time::{ClockId, clock_gettime};

use super::Load;
use super::counters::Counters;

/// Blocks between two looks at the thread's own clock, which is a system call.
const BLOCKS_PER_CLOCK: u64 = 8;

pub struct Lane {
    is_sending: bool,
    link: Link,
    bytes: AtomicU64,
    cpu_us: AtomicU64,
    is_broken: AtomicBool,
}

enum Link {
    Clear(TcpStream),
    /// The thread that moves bytes takes the stream.
    Sealed {
        stream: Mutex<Option<Box<DataStream>>>,
        aborter: Aborter,
    },
}

/// An established connection, before it is known what it will do.
pub enum Joined {
    Clear(TcpStream),
    Sealed(Box<Connection>),
}

impl AsFd for Joined {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Joined::Clear(tcp) => tcp.as_fd(),
            Joined::Sealed(connection) => connection.as_fd(),
        }
    }
}

impl Lane {
    /// Sets what the load asks of a sending socket.
    pub fn new(joined: Joined, is_sending: bool, load: &Load) -> Result<Lane, net::Error> {
        // Closes with a reset: what is queued is not sent on, so that the next run has the path to itself.
        let _ = rustix::net::sockopt::set_socket_linger(&joined, Some(Duration::ZERO));
        if is_sending {
            if let Some(name) = &load.congestion {
                net::socket::set_congestion(&joined, name)?;
            }
            if let Some(rate) = load.pacing_bits_per_second {
                // A socket of ours that is open takes any rate; the kernel has known this option since 3.13.
                let _ = net::socket::set_max_pacing_rate(&joined, rate / 8);
            }
        }
        let link = match joined {
            Joined::Clear(tcp) => Link::Clear(tcp),
            Joined::Sealed(connection) => {
                let mut stream = connection.into_data();
                stream.widen();
                let aborter = stream.aborter();
                Link::Sealed { stream: Mutex::new(Some(Box::new(stream))), aborter }
            }
        };
        let (bytes, cpu_us, is_broken) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Ok(Lane { is_sending, link, bytes, cpu_us, is_broken })
    }

    /// Moves bytes until it is over or the connection breaks.
    pub fn pump(&self, block_bytes: usize, is_over: &AtomicBool) {
        let result = match &self.link {
            Link::Clear(tcp) if self.is_sending => self.send_clear(tcp, block_bytes, is_over),
            Link::Clear(tcp) => self.receive_clear(tcp, block_bytes),
            Link::Sealed { stream, .. } => {
                let taken = stream.lock().expect("nobody panics while holding it").take();
                let mut stream = taken.expect("a lane is pumped once");
                if self.is_sending {
                    self.send_sealed(&mut stream, block_bytes, is_over)
                } else {
                    self.receive_sealed(&mut stream, block_bytes)
                }
            }
        };
        self.note_cpu();
        if result.is_err() && !is_over.load(Relaxed) {
            self.is_broken.store(true, Relaxed);
        }
    }

    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Relaxed)
    }

    /// Moved by this end so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// All but the bytes; asks the kernel if this end sends.
    pub fn counters(&self) -> Counters {
        let cpu_us = self.cpu_us.load(Relaxed);
        if !self.is_sending {
            return Counters { cpu_us, ..Counters::default() };
        }
        let info = match &self.link {
            Link::Clear(tcp) => TcpInfo::sample(tcp).ok(),
            Link::Sealed { aborter, .. } => aborter.tcp_info(),
        };
        Counters { cpu_us, ..Counters::of(&info.unwrap_or_default()) }
    }

    /// Wakes the thread, whatever it waits for.
    pub fn cut(&self) {
        match &self.link {
            // The peer may have been faster.
            Link::Clear(tcp) => drop(tcp.shutdown(Shutdown::Both)),
            Link::Sealed { aborter, .. } => aborter.abort(),
        }
    }

    fn send_clear(&self, tcp: &TcpStream, block_bytes: usize, is_over: &AtomicBool) -> io::Result<()> {
        let block = noise(block_bytes);
        let mut blocks = 0;
        while !is_over.load(Relaxed) {
            match rustix::net::send(tcp, &block, SendFlags::NOSIGNAL) {
                Ok(bytes) => self.count(bytes, &mut blocks),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn receive_clear(&self, tcp: &TcpStream, block_bytes: usize) -> io::Result<()> {
        let mut block = vec![0; block_bytes];
        let mut blocks = 0;
        loop {
            match rustix::net::recv(tcp, &mut block[..], RecvFlags::empty()) {
                Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((_, bytes)) => self.count(bytes, &mut blocks),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn send_sealed(&self, stream: &mut DataStream, block_bytes: usize, is_over: &AtomicBool) -> io::Result<()> {
        let block = noise(block_bytes);
        let mut blocks = 0;
        while !is_over.load(Relaxed) {
            stream.send(&[&block])?;
            self.count(block_bytes, &mut blocks);
        }
        Ok(())
    }

    fn receive_sealed(&self, stream: &mut DataStream, block_bytes: usize) -> io::Result<()> {
        let mut block = vec![0; block_bytes];
        let mut blocks = 0;
        loop {
            match stream.recv(&mut block)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => self.count(bytes, &mut blocks),
            }
        }
    }

    fn count(&self, bytes: usize, blocks: &mut u64) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        *blocks += 1;
        if blocks.is_multiple_of(BLOCKS_PER_CLOCK) {
            self.note_cpu();
        }
    }

    fn note_cpu(&self) {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let time = Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32);
        self.cpu_us.store(time.as_micros() as u64, Relaxed);
    }
}

/// Bytes that no device on the way can compress.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = Vec::with_capacity(bytes + 8);
    while block.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        block.extend_from_slice(&(state ^ (state >> 31)).to_le_bytes());
    }
    block.truncate(bytes);
    block
}
