//! Waiting for the next unit of work.
//!
//! Not here: which one it is (`split`, `guarded`, `read_ahead`).

use super::work::{Claim, Work};
use super::working::{Entered, Said};
use super::{Book, SendJob};
use model::progress::Stage;
use std::cell::Cell;

impl SendJob {
    /// The next unit of work, waiting for it; `None` when the job is over, or when `on_wait` says that the lane cannot work
    /// any more. It hears in which stage the lane waits; in none while fewer lanes are to work, or what is left is for others.
    pub(crate) fn claim(&self, lane: u32, on_wait: &mut dyn FnMut(Option<Stage>) -> bool) -> Option<Work> {
        let rests = |book: &Book| !self.working.may_work(lane) && !book.split.is_complete();
        let is_resting = Cell::new(false);
        let claim = |book: &mut Book| {
            let claim = if rests(book) {
                self.note_rest(book, lane);
                None
            } else {
                self.claim_guarded(book, lane)
            };
            is_resting.set(claim.is_none());
            claim.unwrap_or(Claim::NoCredit)
        };
        self.claim_by(&claim, &mut |stage| on_wait((!is_resting.get()).then_some(stage)))
    }

    /// Has so many of the lanes work and the others rest; 0 lets all work.
    pub fn set_working(&self, most: u32) {
        self.limit_working(Said::Here, most);
    }

    pub(crate) fn limit_working(&self, said: Said, most: u32) {
        if self.working.set(said, most) {
            self.work.notify_all();
        }
    }

    /// Counts a lane that has its memory among those that work.
    pub(crate) fn enter_work(&self, lane: u32) -> Entered<'_> {
        self.working.enter(lane)
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
