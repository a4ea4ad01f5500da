//! Whether the thread that lists a source gets on while it finds nothing: little of a large tree may be selected.
//!
//! A listing that goes through names takes processor time, and one that hangs in storage takes none. Where the thread waits for
//! something else, such as credit, nothing is said of its source.
//!
//! Not here: what is found (`scan`), and how long a job may stand still (`crate::stall`).

use crate::progress::Account;
use os::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

#[derive(Default)]
pub struct Scanning {
    /// Of the thread that lists, while it does.
    account: Mutex<Option<Account>>,
    is_in_source: AtomicBool,
    /// Its processor time, when that was looked at last.
    seen_ns: AtomicU64,
}

impl Scanning {
    /// The calling thread lists from here on.
    pub fn begin(&self) {
        *self.account.lock().unwrap() = Account::open();
        self.is_in_source.store(true, Relaxed);
    }

    pub fn end(&self) {
        self.is_in_source.store(false, Relaxed);
        *self.account.lock().unwrap() = None;
    }

    /// Does on that thread what is no part of listing.
    pub fn outside<T>(&self, work: impl FnOnce() -> T) -> T {
        self.is_in_source.store(false, Relaxed);
        let done = work();
        self.is_in_source.store(true, Relaxed);
        done
    }

    /// Whether the listing got on since the last call. Where the kernel keeps no account, nobody can say that it hangs.
    pub fn got_on(&self) -> bool {
        let is_in_source = self.is_in_source.load(Relaxed);
        let cpu_ns = self.account.lock().unwrap().as_ref().and_then(Account::cpu_ns);
        cpu_ns.is_none_or(|cpu_ns| self.seen_ns.swap(cpu_ns, Relaxed) != cpu_ns) && is_in_source
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    /// Far more than anything takes that comes at all.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Takes processor time until it is seen, or for so long.
    fn is_seen(scanning: &Scanning, patience: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < patience {
            if scanning.got_on() {
                return true;
            }
        }
        false
    }

    #[test]
    fn a_listing_that_takes_processor_time_gets_on_and_other_work_of_its_thread_is_none() {
        let scanning = Scanning::default();
        assert!(!scanning.got_on());
        scanning.begin();
        assert!(is_seen(&scanning, PATIENCE) && is_seen(&scanning, PATIENCE));
        assert!(!scanning.outside(|| is_seen(&scanning, Duration::from_millis(50))));
        assert!(is_seen(&scanning, PATIENCE));
        scanning.end();
        assert!(!scanning.got_on());
    }

    #[test]
    fn a_listing_that_hangs_does_not_get_on() {
        let scanning = Scanning::default();
        let ((release, released), (tell, told)) = (mpsc::channel::<()>(), mpsc::channel());
        std::thread::scope(|scope| {
            // With this, a check that fails ends the thread too.
            let (scanning, released, release) = (&scanning, released, release);
            scope.spawn(move || {
                scanning.begin();
                tell.send(()).unwrap();
                let _ = released.recv();
            });
            told.recv().unwrap();
            let begun = Instant::now();
            // It may be on its way to where it hangs.
            while scanning.got_on() {
                assert!(begun.elapsed() < PATIENCE);
                std::thread::yield_now();
            }
            std::thread::park_timeout(Duration::from_millis(50));
            let got_on = (0..3).filter(|_| scanning.got_on()).count();
            drop(release);
            assert!(got_on <= 1, "{got_on}");
        });
    }
}
