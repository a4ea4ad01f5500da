//! Whether the kernel's clock follows a reference, as the kernel was told by whoever steers it; and what time it is here.

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

/// The minute of the week by this host's clock and time zone, counted from Sunday 00:00.
pub fn local_minute_of_week() -> u32 {
    // SAFETY: a null pointer asks for the result alone.
    let now = unsafe { libc::time(std::ptr::null_mut()) };
    // SAFETY: `tm` is plain old data, for which all zeroes is a value.
    let mut local: libc::tm = unsafe { mem::zeroed() };
    // SAFETY: both pointers are to values that outlive the call; nothing in this program changes the environment.
    if unsafe { libc::localtime_r(&now, &mut local) }.is_null() {
        return 0;
    }
    let minutes = (local.tm_wday * 24 + local.tm_hour) * 60 + local.tm_min;
    u32::try_from(minutes).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_answers() {
        // Beyond 16 s the kernel calls its clock not synchronised, and counts no further.
        let clock = super::read().unwrap();
        assert!(clock.error_us_max <= 16_000_000, "{clock:?}");
    }

    #[test]
    fn the_time_of_the_week_lies_in_the_week() {
        assert!(super::local_minute_of_week() < 7 * 24 * 60);
    }
}
