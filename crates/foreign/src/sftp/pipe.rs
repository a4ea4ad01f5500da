//! The pipe, or socket, to a server, which may stop to read.
//!
//! Invariant: a write waits no longer than it may for the other side to take anything.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// What is written to. It is made non-blocking: nobody may read by the same open file, as from a clone of a socket.
pub trait Pipe: Write + AsFd {}

impl<T: Write + AsFd> Pipe for T {}

pub struct Writer {
    pipe: Box<dyn Pipe + Send>,
    /// For how long the other side may take nothing.
    silence: Duration,
}

impl Writer {
    pub fn new(pipe: Box<dyn Pipe + Send>, silence: Duration) -> io::Result<Writer> {
        rustix::io::ioctl_fionbio(pipe.as_fd(), true)?;
        Ok(Writer { pipe, silence })
    }

    /// Waits until more is taken; `TimedOut` where nothing is.
    fn wait(&self) -> io::Result<()> {
        let until = Instant::now() + self.silence;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut [PollFd::from_borrowed_fd(self.pipe.as_fd(), PollFlags::OUT)], Some(&left)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.pipe.write(bytes) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.wait()?,
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pipe.flush()
    }
}
