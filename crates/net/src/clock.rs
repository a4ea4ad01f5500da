//! Whether the kernel's clock follows a reference, as the kernel was told by whoever steers it.

use std::io;
use std::mem;

/// The kernel's view of its clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    pub is_synchronised: bool,
    /// The most that it can be wrong by, as estimated by whoever steers it; meaningless when it is not synchronised.
    pub error_us_max: u64,
}

const STATUS_NOT_SYNCHRONISED: i32 = 0x40;
const STATE_ERROR: i32 = 5;

/// Asks the kernel; changes nothing.
pub fn read() -> io::Result<Clock> {
    // SAFETY: `timex` is plain old data, for which all zeroes is a value; mode 0 asks and sets nothing.
    let mut asked: libc::timex = unsafe { mem::zeroed() };
    // SAFETY: the pointer is to a `timex` that outlives the call.
    let state = unsafe { libc::adjtimex(&mut asked) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    let is_synchronised = state != STATE_ERROR && asked.status & STATUS_NOT_SYNCHRONISED == 0;
    Ok(Clock { is_synchronised, error_us_max: u64::try_from(asked.maxerror).unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_answers() {
        super::read().unwrap();
    }
}
