//! Scheduling of the emulator's threads.

use std::io;

/// Above every ordinary thread, below the kernel's own.
const PRIORITY: i32 = 50;

/// Makes the calling thread preempt ordinary ones and wake at the time it asked for.
///
/// Fails without the right (CAP_SYS_NICE) or where the control group has no real-time budget; the thread then runs as before,
/// only its timer is exact.
pub fn become_realtime() -> io::Result<()> {
    // SAFETY: sets a number of the calling thread; no memory is passed.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0_u64, 0_u64, 0_u64) };
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    // Children of the process must not inherit the priority.
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: 0 is the calling thread; the pointer is to a live local of the type the call reads.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}
