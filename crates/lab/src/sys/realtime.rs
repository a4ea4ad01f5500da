//! Priority over all other programs.

use std::io;

/// Binds the calling thread to that processor, where it then runs before all that has no real-time priority. Needs CAP_SYS_NICE.
pub fn first_on(processor: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    if processor >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    set.set(processor);
    rustix::thread::sched_setaffinity(None, &set)?;
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads one structure that outlives the call; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const lowest) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
