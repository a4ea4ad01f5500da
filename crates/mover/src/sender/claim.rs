//! Waiting for the next unit of work.
//!
//! Not here: which one it is (`split`, `guarded`, `read_ahead`).

use super::work::{Claim, Work};
use super::{Book, SendJob};
use model::progress::Stage;

impl SendJob {
    /// The next unit of work, waiting for it; `None` when the job is over, or when `on_wait` says that the lane cannot work
    /// any more. It hears in which stage the lane waits.
    pub(crate) fn claim(&self, lane: u32, on_wait: &mut dyn FnMut(Stage) -> bool) -> Option<Work> {
        self.claim_by(&|book| self.claim_guarded(book, lane), on_wait)
    }

    pub(super) fn claim_by(
        &self,
        claim: &dyn Fn(&mut Book) -> Claim,
        on_wait: &mut dyn FnMut(Stage) -> bool,
    ) -> Option<Work> {
        let mut book = self.book.lock().unwrap();
        loop {
            if self.end.is_set() {
                return None;
            }
            let is_fit = match claim(&mut book) {
                Claim::Work(work) => return Some(work),
                Claim::Complete => return None,
                Claim::NoWork => on_wait(self.waits_in(&book)),
                Claim::NoCredit => on_wait(Stage::Credit),
                Claim::Spent if book.split.is_idle() => {
                    drop(book);
                    self.spent();
                    return None;
                }
                Claim::Spent => on_wait(Stage::Credit),
            };
            if !is_fit {
                return None;
            }
            book = self.work.wait_timeout(book, super::CLAIM_PATIENCE).unwrap().0;
        }
    }

    /// What a lane without work waits for.
    fn waits_in(&self, book: &Book) -> Stage {
        match () {
            () if self.is_read_ahead() => Stage::Read,
            () if book.split.is_all_sent() => Stage::Credit,
            () => Stage::Scan,
        }
    }
}
