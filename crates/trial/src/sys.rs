//! Stopping a program at its system calls, and ending programs together with this one.
//!
//! A seccomp filter stops the traced program at a chosen list of calls and at nothing else; every stop is handed to a
//! callback that lets the call go on, makes it fail, shortens it, or kills the whole program before or after it.
//!
//! Invariants:
//! - No traced program outlives its tracer: the kernel kills it when the tracing thread ends, however that ends.
//! - One thread starts and traces one program; it waits for its own children only.
//!
//! Not here: what a call means (see `calls`). Tracing is written for x86_64; elsewhere it says so.

#[cfg(target_arch = "x86_64")]
mod tracer;

#[cfg(target_arch = "x86_64")]
pub use tracer::{text_at, trace};

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A thread of the traced program at one of the chosen calls.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    pub thread: u32,
    /// The number of the call.
    pub number: i64,
    pub arguments: [u64; 6],
    pub moment: Moment,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Nothing of the call has happened.
    Before,
    /// The call has returned this.
    After(i64),
}

/// What is to happen at a stop. After a call only `GoOn` and `Kill` mean something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    GoOn,
    /// Carry the call out and stop once more when it has returned.
    StopAfter,
    /// End all threads of the program now, as `kill -9` does.
    Kill,
    /// Do not carry the call out; it returns this errno.
    Fail(i32),
    /// Carry the call out with this as its third argument: the length of a read or a write.
    Shorten(u64),
}

#[cfg(not(target_arch = "x86_64"))]
pub fn trace(
    _command: Command,
    _calls: &[i64],
    _started: impl FnOnce(u32),
    _each: &mut dyn FnMut(&Stop) -> Answer,
) -> io::Result<i32> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "stopping at system calls is written for x86_64 only"))
}

#[cfg(not(target_arch = "x86_64"))]
pub fn text_at(_thread: u32, _address: u64) -> Option<Vec<u8>> {
    None
}

/// Makes the kernel kill the program when the thread that starts it ends.
pub fn dies_with_its_starter(command: &mut Command) {
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
}
