//! What one host does while the others wait: it takes over what was left or lost, where that is too much to be told to every slice, and
//! at the end it does the whole job once more.
//!
//! Not here: slices that are handed out side by side (`super`).

use super::Crew;
use super::slice::Outcome;
use super::state::Part;
use crate::error::{Error, Result};
use crate::hand_in::Told;
use model::Exit;
use model::options::INSTEAD_OF_MAX;
use model::order::Status;

/// Lost slices that every other one is told of: as many again may be lost while they are.
const LOST_MAX: usize = INSTEAD_OF_MAX / 2;

impl Crew<'_> {
    /// Has slices that were lost taken over until few enough are left.
    pub(super) fn clear(&self) -> Result<()> {
        let mut turn = 0;
        while self.has_much_lost() {
            self.alone(turn, Part::Nothing)?;
            turn += 1;
        }
        Ok(())
    }

    /// One host goes over everything.
    pub(super) fn finish(&self) -> Result<Told> {
        let mut turn = 0;
        loop {
            self.clear()?;
            if let Some(told) = self.alone(turn, Part::All)? {
                return Ok(told);
            }
            turn += 1;
        }
    }

    fn has_much_lost(&self) -> bool {
        let mut state = self.lock();
        state.hear();
        state.lost.len() > LOST_MAX
    }

    /// Has one host do a part; nothing when another try is due.
    fn alone(&self, turn: usize, part: Part) -> Result<Option<Told>> {
        if (self.work.stop)() {
            return Err(Error::new(Exit::Interrupted, "stopped"));
        }
        let mut state = self.lock();
        if let Some(error) = state.failed.take() {
            return Err(error);
        }
        let Some(host) = state.lone(turn, self.now_ms())? else {
            drop(self.wait(state));
            return Ok(None);
        };
        let is_all = matches!(part, Part::All);
        let task = state.task(self.work, host, part, self.now_ms())?;
        drop(state);
        let outcome = self.carry_out(&task);
        if let Outcome::Ended(told) = &outcome {
            let told = told.as_ref().clone();
            match told.status() {
                Status::Cancelled => {}
                // Its word is the result.
                Status::Failed if is_all => return Ok(Some(told)),
                Status::Failed => {}
                _ => {
                    self.settle(&task, outcome);
                    return Ok(Some(told));
                }
            }
        }
        self.lock().lost.push(task.job);
        self.settle(&task, outcome);
        Ok(None)
    }
}
