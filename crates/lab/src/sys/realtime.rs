//! Priority over all other programs.

use std::io;

/// Above the emulator's own threads.
const PRIORITY: i32 = 90;

/// Binds the calling thread to that processor, where it then runs before all others, the emulator too. Needs CAP_SYS_NICE.
pub fn first_on(processor: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    if processor >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    set.set(processor);
    rustix::thread::sched_setaffinity(None, &set)?;
    let first = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the kernel reads one structure that outlives the call; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const first) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
