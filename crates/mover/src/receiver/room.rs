//! Room at the destination: what the wanted objects take, held against what is free.
//!
//! What is free is read when the job begins, and again before the job would end for want of it: others may have made room since.
//!
//! Invariant: a job ends here only if what is still to come does not fit into what is free at that moment. What an object has on
//! storage already is not to come.
//!
//! Not here: storage that turns out to be full (`settle`), and what an object has there (`large::account`).

use super::ReceiveJob;
use super::listed::Expected;
use super::table::ToCome;
use model::quantity::ByteCount;
use store::{PublishRule, SinkFacts};

pub struct Room {
    free_bytes: u64,
    free_inodes: Option<u64>,
    /// What takes room of that.
    wanted_bytes: u64,
    wanted_files: u64,
    /// The part of it that is not in the table yet.
    pending_bytes: u64,
    pending_files: u64,
}

impl Room {
    pub fn new(facts: &SinkFacts) -> Room {
        Room {
            free_bytes: facts.free_bytes,
            free_inodes: facts.free_inodes,
            wanted_bytes: 0,
            wanted_files: 0,
            pending_bytes: 0,
            pending_files: 0,
        }
    }

    /// An object is wanted that takes so much more.
    pub fn want(&mut self, bytes: u64, rule: PublishRule) {
        let files = u64::from(rule == PublishRule::NoReplace);
        self.wanted_bytes = self.wanted_bytes.saturating_add(bytes);
        self.wanted_files += files;
        self.pending_bytes = self.pending_bytes.saturating_add(bytes);
        self.pending_files += files;
    }

    /// Objects that were wanted come into the table.
    pub fn tabled(&mut self, objects: &[(u32, Expected)]) {
        for (_, Expected { rule, room_bytes, .. }) in objects {
            self.pending_bytes = self.pending_bytes.saturating_sub(*room_bytes);
            self.pending_files = self.pending_files.saturating_sub(u64::from(*rule == PublishRule::NoReplace));
        }
    }

    /// Why what is wanted does not fit, if it does not.
    pub fn lack(&mut self, job: &ReceiveJob) -> Option<String> {
        let released_bytes = job.table.lock().unwrap().take_released_bytes();
        self.wanted_bytes = self.wanted_bytes.saturating_sub(released_bytes);
        // A dry run brings nothing that could be looked at.
        if !self.fits() && !job.options.is_dry_run {
            self.look_again(job);
        }
        if self.fits() {
            return None;
        }
        let (needed, free) = (ByteCount(self.wanted_bytes), ByteCount(self.free_bytes));
        Some(match self.wanted_bytes > self.free_bytes {
            true => format!("no space at the destination: {needed} needed so far, {free} free"),
            false => format!("no room for more files at the destination: {} needed so far", self.wanted_files),
        })
    }

    fn fits(&self) -> bool {
        self.wanted_bytes <= self.free_bytes && self.free_inodes.is_none_or(|free| self.wanted_files <= free)
    }

    /// Begins anew with what is free now, and with what is still to come.
    fn look_again(&mut self, job: &ReceiveJob) {
        let Ok(facts) = job.sink.facts() else { return };
        (self.free_bytes, self.free_inodes) = (facts.free_bytes, facts.free_inodes);
        (self.wanted_bytes, self.wanted_files) = (self.pending_bytes, self.pending_files);
        let to_come = job.table.lock().unwrap().to_come();
        for ToCome { room_bytes, size_bytes, is_new, large } in to_come {
            // Looking at staging may wait for storage: not under the table's lock.
            let rest_bytes = large.map_or(room_bytes, |large| size_bytes.saturating_sub(large.taken_bytes()));
            self.wanted_bytes = self.wanted_bytes.saturating_add(rest_bytes.min(room_bytes));
            self.wanted_files += u64::from(is_new);
        }
    }
}

#[cfg(test)]
mod tests;
