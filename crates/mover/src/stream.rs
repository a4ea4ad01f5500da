//! What a lane needs of its data stream.
//!
//! The product's is `net::DataStream`: TCP under TLS. Trials give lanes streams that lose, delay and damage what is sent.

use std::io;
use std::sync::Arc;

/// Breaks a stream off from another thread: whoever waits in it comes back with an error.
pub type Breaker = Arc<dyn Fn() + Send + Sync>;

pub trait Stream: Send {
    fn send(&mut self, parts: &[&[u8]]) -> io::Result<()>;

    /// Fills the buffer; a stream that ends before it is full is an error.
    fn recv_exact(&mut self, buffer: &mut [u8]) -> io::Result<()>;

    /// Says that nothing follows, and waits until the other side has heard it.
    fn close(&mut self) -> io::Result<()>;

    /// Whether the stream is known to have ended or failed without anything being sent on it.
    fn is_broken(&self) -> bool;

    fn breaker(&self) -> Breaker;

    /// Time spent waiting in `send` since the stream was made.
    fn send_blocked_ns(&self) -> u64;

    /// Time spent waiting in `recv_exact` since the stream was made.
    fn recv_blocked_ns(&self) -> u64;
}

impl Stream for net::DataStream {
    fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        net::DataStream::send(self, parts)
    }

    fn recv_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        net::DataStream::recv_exact(self, buffer)
    }

    fn close(&mut self) -> io::Result<()> {
        net::DataStream::close(self)
    }

    fn is_broken(&self) -> bool {
        net::DataStream::is_broken(self)
    }

    fn breaker(&self) -> Breaker {
        let aborter = self.aborter();
        Arc::new(move || aborter.abort())
    }

    fn send_blocked_ns(&self) -> u64 {
        self.counters().send_blocked_ns
    }

    fn recv_blocked_ns(&self) -> u64 {
        self.counters().recv_blocked_ns
    }
}
