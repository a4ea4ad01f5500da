//! Claims of lanes: the next unit of work, or waiting for it, or resting.
//!
//! Not here: what is claimed (`split`), which of several paths may (`guarded`), how many lanes work (`working`).

use super::work::{Claim, Pause, Work};
use super::working::{Entered, Said};
use super::{CLAIM_PATIENCE, SendJob};

impl SendJob {
    /// Has so many of the lanes work and the others rest; 0 lets all work.
    pub fn set_working(&self, most: u32) {
        self.working.set(Said::Here, most);
        self.work.notify_all();
    }

    /// The next unit of work, waiting for it; `None` when the job is over, or when `on_wait` says that the lane cannot work
    /// any more. It hears what is waited for.
    pub(crate) fn claim(&self, lane: u32, on_wait: &mut dyn FnMut(Pause) -> bool) -> Option<Work> {
        let mut book = self.book.lock().unwrap();
        loop {
            if self.end.is_set() {
                return None;
            }
            let is_resting = !self.working.may_work(lane) && !book.split.is_complete();
            let pause = match () {
                () if is_resting => Pause::Rest,
                () => match self.claim_guarded(&mut book, lane) {
                    Claim::Work(work) => return Some(work),
                    Claim::Complete => return None,
                    Claim::NoWork if book.split.is_all_sent() => Pause::Credit,
                    Claim::NoWork => Pause::Work,
                    Claim::Spent if book.split.is_idle() => {
                        drop(book);
                        self.spent();
                        return None;
                    }
                    Claim::NoCredit | Claim::Spent => Pause::Credit,
                },
            };
            if !on_wait(pause) {
                return None;
            }
            book = self.work.wait_timeout(book, CLAIM_PATIENCE).unwrap().0;
        }
    }

    /// Counts a lane that has its memory among those that work.
    pub(crate) fn enter_work(&self, lane: u32) -> Entered<'_> {
        self.working.enter(lane)
    }
}
