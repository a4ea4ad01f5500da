//! A relay between a client and a server: one that buffers, or one that flips a bit on the way.
//!
//! Owns: a listener in a network namespace, two threads for each connection, and the counters that prove what it did.
//! Bytes pass in order and none is lost; when one side ends, the other is told after everything has been passed on.

use anyhow::{Context, Result};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PIECE_BYTES: usize = 64 << 10;
/// How long a thread may not notice that the relay ends.
const PATIENCE: Duration = Duration::from_millis(50);
/// A side that takes nothing for so long is given up.
const STUCK: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug)]
pub enum Manner {
    /// Passes on what has come to so many bytes, or has waited so long.
    Hold { bytes: usize, pause: Duration },
    /// Flips one bit of the byte at this place of all that clients send.
    Flip { at: u64 },
}

/// Where connections go on to.
#[derive(Clone, Copy, Debug)]
pub enum Onward {
    To(SocketAddr),
    /// Where they were going before the packet filter led them here.
    Original,
}

/// What it did.
#[derive(Debug, Default)]
pub struct Counts {
    pub connections: AtomicU64,
    /// From clients.
    pub bytes: AtomicU64,
    pub flips: AtomicU64,
}

/// Ends when dropped.
pub struct Relay {
    pub port: u16,
    pub counts: Arc<Counts>,
    is_over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Relay {
    /// Listens in a namespace on `port`, 0 for any.
    pub fn start(namespace: &str, port: u16, onward: Onward, manner: Manner) -> Result<Relay> {
        let listen = || {
            let listener = TcpListener::bind(("0.0.0.0", port))?;
            listener.set_nonblocking(true)?;
            Ok::<_, std::io::Error>(listener)
        };
        let listener = lab::network::inside(namespace, listen)?.context("listen for a relay")?;
        let port = listener.local_addr()?.port();
        let (counts, is_over) = (Arc::<Counts>::default(), Arc::<AtomicBool>::default());
        let (shared, over, namespace) = (counts.clone(), is_over.clone(), namespace.to_owned());
        let accepting = std::thread::spawn(move || {
            // Its threads dial from there.
            if lab::network::enter(&namespace).is_ok() {
                accept(&listener, onward, manner, &shared, &over);
            }
        });
        Ok(Relay { port, counts, is_over, accepting: Some(accepting) })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn accept(listener: &TcpListener, onward: Onward, manner: Manner, counts: &Arc<Counts>, is_over: &Arc<AtomicBool>) {
    while !is_over.load(Relaxed) {
        let Ok((near, _)) = listener.accept() else {
            std::thread::park_timeout(Duration::from_millis(1));
            continue;
        };
        counts.connections.fetch_add(1, Relaxed);
        let (counts, is_over) = (counts.clone(), is_over.clone());
        std::thread::spawn(move || {
            // A server that cannot be reached shows as a closed connection.
            let _ = relay(near, onward, manner, &counts, &is_over);
        });
    }
}

fn relay(
    near: TcpStream,
    onward: Onward,
    manner: Manner,
    counts: &Arc<Counts>,
    is_over: &Arc<AtomicBool>,
) -> std::io::Result<()> {
    let address = match onward {
        Onward::To(address) => address,
        Onward::Original => rustix::net::sockopt::ip_original_dst(&near)?.into(),
    };
    let far = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
    for stream in [&near, &far] {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(STUCK))?;
    }
    let (near_again, far_again) = (near.try_clone()?, far.try_clone()?);
    let (shared, over) = (counts.clone(), is_over.clone());
    let forth = std::thread::spawn(move || pump(&near_again, &far_again, manner, Some(&shared), &over));
    pump(&far, &near, manner, None, is_over);
    let _ = forth.join();
    Ok(())
}

/// Passes on what comes from `from`; `counts` belongs to what clients send.
fn pump(from: &TcpStream, to: &TcpStream, manner: Manner, counts: Option<&Counts>, is_over: &AtomicBool) {
    let (mut reader, mut writer) = (from, to);
    let (hold_bytes, pause) = match manner {
        Manner::Hold { bytes, pause } => (bytes, pause),
        Manner::Flip { .. } => (1, Duration::ZERO),
    };
    let (mut held, mut piece) = (Vec::with_capacity(hold_bytes + PIECE_BYTES), vec![0; PIECE_BYTES]);
    let mut since = Instant::now();
    let _ = from.set_read_timeout(Some(PATIENCE));
    while !is_over.load(Relaxed) {
        let read = match reader.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => 0,
            Err(_) => break,
        };
        if held.is_empty() {
            since = Instant::now();
        }
        if let Some(counts) = counts {
            let before = counts.bytes.fetch_add(read as u64, Relaxed);
            if let Manner::Flip { at } = manner
                && (before..before + read as u64).contains(&at)
            {
                piece[(at - before) as usize] ^= 1 << (at % 8);
                counts.flips.fetch_add(1, Relaxed);
            }
        }
        held.extend_from_slice(&piece[..read]);
        let is_due = held.len() >= hold_bytes || since.elapsed() >= pause;
        if is_due && !held.is_empty() {
            if writer.write_all(&held).is_err() {
                break;
            }
            held.clear();
        }
    }
    let _ = writer.write_all(&held);
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
