//! The messages of a job in its hold: put down in their order and made durable with the frames that they describe; and beside them
//! what came to its end, which nobody is to bring to its place again.
//!
//! Invariants:
//! - Nothing comes back as buffered before it is synced, and every message that was put down before it.
//! - What finds no room waits for it, as long as something of the job may still make some.
//!
//! Not here: reading them again (`receiver::replay`).

use super::frame::{Frame, What};
use super::{Hold, ROOM_INTERVAL};
use crate::memory::Permit;
use model::options::Buffer;
use model::{Extent, ExtentSet, mutant};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use store::spool::{Kind, Parcel};
use wire::Message;
use wire::limits::SETTLED_TOLD;
use wire::message::{self, Run, Settled};

/// A message as it is put down, and whether the sender leaves with it.
pub(crate) struct Told {
    frame: Vec<u8>,
    is_leave: bool,
}

impl Told {
    pub fn bytes(&self) -> usize {
        self.frame.len()
    }
}

pub(crate) struct Untold {
    frame: Vec<u8>,
    _charge: Option<Permit>,
}

/// What the thread has to do that makes things durable.
pub(crate) struct Due {
    messages: VecDeque<Untold>,
    pub frames: Vec<Arc<Frame>>,
}

impl Hold {
    /// What is put down of a message, if it describes what comes.
    pub fn told(&self, message: &Message) -> Option<Told> {
        let is_kept = matches!(
            message,
            Message::Entries(_)
                | Message::SourceFailures(_)
                | Message::ListEnd(_)
                | Message::Names(_)
                | Message::Finish(_)
        );
        let is_leave = matches!(message, Message::Finish(finish) if finish.is_buffered);
        let is_told = is_kept && self.has_journal && self.how != Buffer::Never;
        is_told.then(|| Told { frame: message::encode(message.clone()), is_leave })
    }

    /// Puts down a message that was accepted, before any of what it describes can come. `charge` goes with it until it is in the
    /// spool.
    pub fn note(&self, Told { frame, is_leave }: Told, charge: Option<Permit>) {
        let mut state = self.state.lock().unwrap();
        state.is_left |= is_leave;
        if state.lost.is_none() {
            state.untold.push_back(Untold { frame, _charge: charge });
            self.changed.notify_all();
        }
    }

    /// Notes what was asked for, in the endpoint's words: the first of the journal.
    pub fn begin(&self, opening: Vec<u8>) {
        self.state.lock().unwrap().untold.push_front(Untold { frame: opening, _charge: None });
    }

    /// What is to be made durable, or nothing after `patience`.
    pub fn take_due(&self, patience: Duration) -> Due {
        let mut state = self.state.lock().unwrap();
        if state.untold.is_empty() && state.unsynced.is_empty() {
            state = self.changed.wait_timeout(state, patience).unwrap().0;
        }
        // Where nothing waits there is nothing that could be brought to its place twice.
        if self.waiting_bytes() > 0 {
            let settled = std::mem::take(&mut state.settled);
            state.untold.extend(as_messages(&settled).into_iter().map(|frame| Untold { frame, _charge: None }));
        }
        Due { messages: std::mem::take(&mut state.untold), frames: std::mem::take(&mut state.unsynced) }
    }

    /// Makes durable what is due; what there is no room for is due again. Frames that may be called buffered come back.
    pub fn make_durable(&self, mut due: Due) -> Vec<Arc<Frame>> {
        if let Err(why) = self.try_make_durable(&mut due) {
            self.lose(&why);
            return Vec::new();
        }
        let mut state = self.state.lock().unwrap();
        if !due.messages.is_empty() {
            if state.lost.is_none() {
                due.messages.append(&mut state.untold);
                state.untold = due.messages;
            }
            // What only this list has is not wanted any more, and makes room.
            state.unsynced.extend(due.frames.into_iter().filter(|frame| Arc::strong_count(frame) > 1));
            return Vec::new();
        }
        // What was let go meanwhile is in staging.
        for frame in due.frames.iter().filter(|frame| Arc::strong_count(frame) > 1) {
            if let What::Chunk { extent, is_seal, .. } = frame.what {
                let covered = state.covered.entry(extent.object).or_default();
                covered.extents.insert(Extent::new(extent.start, extent.end));
                covered.is_sealed |= is_seal;
            }
        }
        due.frames
    }

    fn try_make_durable(&self, due: &mut Due) -> Result<(), String> {
        // At the end of the job nothing of it is to come back.
        if !self.has_journal || self.state.lock().unwrap().is_over {
            return Ok(());
        }
        let mut written = Vec::new();
        while let Some(message) = due.messages.front() {
            let Some(parcel) = self.write_journal(&message.frame)? else { break };
            written.push(parcel);
            due.messages.pop_front();
        }
        // What is not described yet is not safe yet.
        let frames: &[Arc<Frame>] = if due.messages.is_empty() { &due.frames } else { &[] };
        if frames.is_empty() && written.is_empty() {
            return Ok(());
        }
        if !mutant::is_on("buffered-before-sync") {
            let frames = frames.iter().map(|frame| frame.parcel());
            self.spool.sync(written.iter().chain(frames)).map_err(|e| e.to_string())?;
        }
        self.state.lock().unwrap().journal.extend(written);
        Ok(())
    }

    /// Puts a message down; nothing where there is no room for it yet.
    fn write_journal(&self, message: &[u8]) -> Result<Option<Parcel>, String> {
        let bytes = message.len() as u64;
        let room = self.spool.reserve_within(self.owner, Kind::Journal, bytes, ROOM_INTERVAL);
        match room.map_err(|e| e.to_string())? {
            Some(mut room) => room.write(message).and_then(|()| room.commit()).map(Some).map_err(|e| e.to_string()),
            None if self.is_empty() => Err("other jobs have all of the buffer".to_owned()),
            None => Ok(None),
        }
    }

    /// All that was noted and kept is durable.
    pub fn is_durable(&self) -> bool {
        let state = self.state.lock().unwrap();
        state.untold.is_empty() && state.unsynced.is_empty()
    }
}

/// Objects that came to their end, by their ids.
fn as_messages(settled: &ExtentSet) -> Vec<Vec<u8>> {
    let runs: Vec<_> = settled.iter().map(|ids| Run { first: ids.start, count: ids.length() }).collect();
    let encoded = |runs: &[Run]| message::encode(Settled { skipped: runs.to_vec(), ..Settled::default() });
    runs.chunks(SETTLED_TOLD).map(encoded).collect()
}

/// What such a message says.
pub(crate) fn settled_in(message: &Settled, settled: &mut ExtentSet) {
    for ids in message.skipped.iter().map(Run::ids) {
        let ids = Extent::new(ids.start, ids.end);
        if settled.overlaps(ids) {
            // It was put down twice.
            settled.remove(ids);
        }
        settled.insert(ids);
    }
}
