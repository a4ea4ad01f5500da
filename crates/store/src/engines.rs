//! How a job's lanes use the engines that a store has for many blocks in flight, without knowing them.
//!
//! A source reads extents (`SourceLane::read_extent`), a sink lends writers of blocks (`Sink::writer`); whether a queue stands
//! behind them is the store's choice, made from what the user asked for and what it measures. Its memory is charged to the job.
//!
//! Invariant: the bytes are the same whichever way they take.

use crate::{Result, SourceFile, StagedFile};
use model::Extent;
use model::options::Engine;
use std::sync::Arc;

/// What an engine needs of the job it serves.
#[derive(Clone)]
pub struct Engines {
    pub requested: Engine,
    /// Blocks in flight; 0 is the engine's own number.
    pub depth: usize,
    /// What is written has to survive a crash.
    pub is_durable: bool,
    pub account: Arc<dyn Account>,
}

/// Whose memory an engine takes, and who hears of its choices.
pub trait Account: Send + Sync {
    /// Memory for blocks, given back by dropping what is returned; `None` where none is free at once.
    fn hold(&self, bytes: usize) -> Option<Box<dyn Send>>;

    fn note(&self, text: String);
}

/// One lane's way of writing blocks of staged files with several in flight.
///
/// An error of an earlier write surfaces on any later call; from then on every call fails until `drain` has returned it.
pub trait BlockWriter: Send {
    /// Lends the memory of the next block; waits for one that is in flight when all are.
    fn buffer(&mut self) -> Result<&mut [u8]>;

    /// Writes the first `length` bytes of the block last lent; they may be under way when this returns.
    fn write(&mut self, file: &dyn StagedFile, offset: u64, length: usize) -> Result<()>;

    /// Waits for everything that was handed in. Nothing is durable yet.
    fn drain(&mut self) -> Result<()>;

    /// For the report.
    fn name(&self) -> &'static str;
}

/// What writes and reads where no other engine does; for the report.
pub const PLAIN_ENGINE: &str = "pread/pwrite";

/// Reads an extent block by block into `block`; for lanes without an engine.
pub fn read_by_blocks(
    file: &dyn SourceFile,
    extent: Extent,
    block: &mut [u8],
    each: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<u64> {
    let mut at = extent.start;
    while at < extent.end {
        let wanted = block.len().min((extent.end - at) as usize);
        let got = file.read_at(at, &mut block[..wanted])?;
        at += got as u64;
        if (got > 0 && !each(&block[..got])) || got < wanted {
            break;
        }
    }
    Ok(at - extent.start)
}
