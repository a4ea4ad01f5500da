//! The kernel's side of a queue: takes operations and says what became of each, in any order.
//!
//! In trials a simulated host stands in for the kernel (`Disorder`): it carries operations out one by one, in an order drawn
//! from the seed, cuts some short and interrupts some; its disk fails the ones it is told to.
//!
//! Not here: blocks, what is in flight, and what an error means.

use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
use std::io;
use std::os::fd::RawFd;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
}

/// One operation, as the kernel sees it.
#[derive(Clone, Copy)]
pub(super) struct Operation {
    pub index: usize,
    pub fd: RawFd,
    pub direction: Direction,
    pub start: *mut u8,
    pub length: u32,
    pub offset: u64,
}

pub(super) enum Ring {
    Kernel(Box<IoUring>),
    #[cfg(feature = "simulation")]
    Simulated(disorder::Disorder),
}

impl Ring {
    /// Completions are delivered only when asked for, where the kernel can do that (6.1).
    pub fn new(entries: u32) -> io::Result<Ring> {
        #[cfg(feature = "simulation")]
        if os::simulation::is_simulated() {
            return Ok(Ring::Simulated(disorder::Disorder::default()));
        }
        let ring = IoUring::builder()
            .dontfork()
            .setup_single_issuer()
            .setup_defer_taskrun()
            // Started by the first thread that submits, which need not be the one that made it.
            .setup_r_disabled()
            .build(entries)
            .or_else(|error| match error.raw_os_error() {
                Some(libc::EINVAL) => IoUring::builder().dontfork().build(entries),
                _ => Err(error),
            });
        ring.map(Box::new).map(Ring::Kernel)
    }

    /// Ties the ring to the calling thread. Once.
    pub fn bind(&mut self, workers: u32) -> Result<(), Errno> {
        match self {
            Ring::Kernel(ring) => {
                if ring.params().is_setup_single_issuer() {
                    ring.submitter().register_enable_rings().map_err(errno_of)?;
                }
                // File systems without asynchronous I/O of their own are served by kernel threads, by default at most four
                // for each core: too few for the depth on a small host. Refused by old kernels, which is no harm.
                let _ = ring.submitter().register_iowq_max_workers(&mut [workers, 0]);
                Ok(())
            }
            #[cfg(feature = "simulation")]
            Ring::Simulated(_) => Ok(()),
        }
    }

    /// Takes an operation; it begins with the next `submit`.
    ///
    /// # Safety
    /// The bytes stay mapped and the descriptor open until the completion, and nobody touches the bytes before it.
    pub unsafe fn push(&mut self, operation: Operation) -> Result<(), Errno> {
        match self {
            Ring::Kernel(ring) => {
                let Operation { index, fd, direction, start, length, offset } = operation;
                let fd = types::Fd(fd);
                let entry = match direction {
                    Direction::Read => opcode::Read::new(fd, start, length).offset(offset).build(),
                    Direction::Write => opcode::Write::new(fd, start, length).offset(offset).build(),
                };
                // SAFETY: what the caller promises.
                let pushed = unsafe { ring.submission().push(&entry.user_data(index as u64)) };
                pushed.map_err(|_| Errno::BUSY)
            }
            #[cfg(feature = "simulation")]
            Ring::Simulated(disorder) => {
                disorder.take(operation);
                Ok(())
            }
        }
    }

    pub fn submit(&mut self) -> Result<(), Errno> {
        match self {
            Ring::Kernel(ring) => ring.submit().map(|_| ()).map_err(errno_of),
            #[cfg(feature = "simulation")]
            Ring::Simulated(_) => Ok(()),
        }
    }

    /// Waits until something is complete.
    pub fn wait(&mut self) -> Result<(), Errno> {
        match self {
            Ring::Kernel(ring) => ring.submit_and_wait(1).map(|_| ()).map_err(errno_of),
            #[cfg(feature = "simulation")]
            Ring::Simulated(disorder) => {
                disorder.carry_one_out();
                Ok(())
            }
        }
    }

    /// The index of an operation that is complete, and its bytes or its error.
    pub fn next(&mut self) -> Option<(usize, Result<usize, Errno>)> {
        match self {
            Ring::Kernel(ring) => {
                let entry = ring.completion().next()?;
                let result = match entry.result() {
                    done if done >= 0 => Ok(done as usize),
                    error => Err(Errno::from_raw_os_error(-error)),
                };
                Some((entry.user_data() as usize, result))
            }
            #[cfg(feature = "simulation")]
            Ring::Simulated(disorder) => disorder.complete.pop(),
        }
    }
}

fn errno_of(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(feature = "simulation")]
mod disorder {
    use crate::posix::engine::uring::ring::{Direction, Operation};
    use rustix::io::Errno;
    use std::os::fd::BorrowedFd;

    #[derive(Default)]
    pub struct Disorder {
        in_flight: Vec<Operation>,
        pub complete: Vec<(usize, Result<usize, Errno>)>,
    }

    // SAFETY: whoever pushes an operation promises that its bytes stay until it is complete, on whatever thread.
    unsafe impl Send for Disorder {}

    impl Disorder {
        pub fn take(&mut self, operation: Operation) {
            self.in_flight.push(operation);
        }

        /// One of those in flight, whichever was handed in first.
        pub fn carry_one_out(&mut self) {
            let Some(last) = self.in_flight.len().checked_sub(1) else { return };
            let operation = self.in_flight.swap_remove(below(last + 1));
            self.complete.push((operation.index, carry_out(operation)));
        }
    }

    fn below(bound: usize) -> usize {
        (os::simulation::random().unwrap_or(0) % bound as u64) as usize
    }

    fn carry_out(operation: Operation) -> Result<usize, Errno> {
        let whole = operation.length as usize;
        let length = match below(12) {
            0 => return Err(Errno::INTR),
            1 => return Err(Errno::AGAIN),
            2 | 3 => 1 + below(whole),
            _ => whole,
        };
        // SAFETY: the bytes are mapped and nobody else's until this is complete (`Ring::push`).
        let bytes = unsafe { std::slice::from_raw_parts_mut(operation.start, length) };
        // SAFETY: the descriptor is open until this is complete (`Ring::push`).
        let file = unsafe { BorrowedFd::borrow_raw(operation.fd) };
        match operation.direction {
            Direction::Read => os::fs::pread(file, bytes, operation.offset),
            Direction::Write => os::fs::pwrite(file, bytes, operation.offset),
        }
    }
}
