//! A copy within one process: the sender's and the receiver's half joined lane by lane, without a stream between.
//!
//! The same listing, decisions, staging, verification of the source and publishing as over a network. What is digested
//! is the block that is then written, so nothing is digested twice. `content` moves what is too large for a pack: by blocks,
//! around holes, or, where `ways` allows it, by the kernel. `collect` has the listing alone from here, and the content from others.

mod collect;
mod content;
mod lanes;
mod merge;
mod ways;

use self::lanes::Lanes;
use crate::block::Block;
use crate::job::{Ending, Guide, Observer, Port};
use crate::limits::{BLOCK_BYTES, LANE_BYTES, PERMIT_PATIENCE};
use crate::memory::Memory;
use crate::pace::{By, rate_now};
use crate::progress::{LaneClock, Progress, processors};
use crate::receiver::{LocalLane, PackedFile, ReceiveJob, ReceiveSpec};
use crate::report::Report;
use crate::sender::work::{Batch, Work};
use crate::sender::{SendJob, digest_small, read_small};
pub use collect::collect;
use model::progress::Stage;
use model::{Extent, JobId, Name, Pin, TransferOptions};
use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use store::{Order, Sink, Source, SourceLane};
use ways::Ways;
use wire::data::PackRow;
use wire::limits::{PACK_BYTES_MAX, PACK_FILES_MAX};
use wire::{CloseCode, Message, Refusal};

pub struct LocalSpec {
    pub id: JobId,
    pub options: TransferOptions,
    pub rename_to: Option<Name>,
    /// Lanes; `None` for as many as there are processors.
    pub lanes: Option<u32>,
    /// Where the number begins, if it is not given; it follows what storage is worth.
    pub lanes_first: Option<u32>,
    /// Source or sink takes bytes in order only.
    pub is_sequential: bool,
    pub memory: Memory,
}

/// Hands each half's messages to the other by a call.
struct Bridge {
    to_sender: OnceLock<Weak<SendJob>>,
    to_receiver: OnceLock<Weak<ReceiveJob>>,
}

struct ToSender(Arc<Bridge>);
struct ToReceiver(Arc<Bridge>);

impl Port for ToSender {
    fn send(&self, message: Message) {
        if let Some(job) = self.0.to_sender.get().and_then(Weak::upgrade)
            && let Err(refusal) = job.handle(message)
        {
            job.cancel(refusal.code, &refusal.text);
        }
    }
}

impl Port for ToReceiver {
    fn send(&self, message: Message) {
        if let Some(job) = self.0.to_receiver.get().and_then(Weak::upgrade)
            && let Err(refusal) = job.handle(message)
        {
            job.cancel(refusal.code, &refusal.text);
        }
    }
}

/// Copies `source` into `sink` and waits for the end.
///
/// # Errors
/// When the destination cannot be used.
pub fn copy(
    spec: LocalSpec,
    source: Arc<dyn Source>,
    sink: Arc<dyn Sink>,
    progress: Arc<Progress>,
    observer: Option<Arc<dyn Observer>>,
    guide: &dyn Guide,
) -> store::Result<Report> {
    let bridge = Arc::new(Bridge { to_sender: OnceLock::new(), to_receiver: OnceLock::new() });
    let source_order = source.facts().order;
    let options = spec.options.clone();
    let (source, surplus) = merge::before(source, &sink, (&options, spec.rename_to.is_some()), &progress);
    let receive = ReceiveSpec {
        number: 0,
        id: spec.id,
        sender: Pin([0; 32]),
        options: options.clone(),
        rename_to: spec.rename_to,
    };
    // The receiver's counters would repeat the sender's: it gets its own.
    let receiver = ReceiveJob::new(receive, sink.clone(), Arc::new(ToSender(bridge.clone())), Progress::new(), None)?;
    receiver.prune_by(surplus);
    let port = Arc::new(ToReceiver(bridge.clone()));
    let sender = SendJob::new(0, options.clone(), source.clone(), port, progress.clone(), observer);
    let ways = Arc::new(Ways::new(&options, sender.wants_delivered(), receiver.facts.confirms));
    let _ = bridge.to_sender.set(Arc::downgrade(&sender));
    let _ = bridge.to_receiver.set(Arc::downgrade(&receiver));
    sender.charge_to(spec.memory.clone());
    receiver.charge_to(spec.memory.clone());
    receiver.look_by(ways.footing(&sender, receiver.facts.shares_on));
    sender.pace.set(By::User, rate_now(guide.pace(&options).as_deref()));
    sender.is_taken(receiver.takes_whole());
    receiver.start();
    sender.start();
    let is_in_order = spec.is_sequential || source_order != Order::Any || receiver.facts.order != Order::Any;
    let first = spec.lanes.or(spec.lanes_first).unwrap_or_else(processors).max(1);
    let count = if is_in_order { 1 } else { first };
    let run = {
        let (sender, receiver, ways, memory) = (sender.clone(), receiver.clone(), ways.clone(), spec.memory);
        move |number| run_lane(&sender, &receiver, number, &memory, &ways)
    };
    let mut lanes = Lanes::start((&sender, &receiver), count, is_in_order || spec.lanes.is_some(), run);
    if lanes.count() == 0 {
        sender.cancel(CloseCode::Internal, "this host has no thread to spare");
    }
    let ending = loop {
        sender.pace.set(By::User, rate_now(guide.pace(&options).as_deref()));
        if let Some(ending) = sender.end.wait(Duration::from_millis(50)) {
            break ending;
        }
        if guide.is_over() {
            sender.cancel(CloseCode::Cancelled, "interrupted");
        }
        lanes.adapt();
    };
    if !matches!(ending, Ending::Finished(_)) {
        receiver.stop(ending.clone());
    }
    let adapted = lanes.join();
    receiver.forget_objects();
    progress.set_there(receiver.progress.here());
    let notes = receiver.progress.notes().into_iter().chain(ways.notes()).chain(source.notes()).chain(sink.notes());
    notes.for_each(|note| progress.note(note));
    let mut report = Report::new(&progress, ending, options, true);
    report.streams = adapted.lanes;
    report.notes.extend(adapted.note);
    report.tuning.extend(adapted.log);
    report.unread = ways.unread();
    Ok(report)
}

fn run_lane(sender: &Arc<SendJob>, receiver: &Arc<ReceiveJob>, number: u32, memory: &Memory, ways: &Ways) {
    let mut clock = sender.progress.lane(Stage::Memory);
    let _permit = loop {
        match memory.acquire(LANE_BYTES, PERMIT_PATIENCE) {
            Some(permit) => break permit,
            None if sender.end.is_set() || sender.is_complete() => return,
            None => clock.enter(Stage::Memory),
        }
    };
    let _working = sender.enter_work(number);
    let writer = match LocalLane::new(receiver, receiver.progress.lane(Stage::Receive), Arc::new(|| {})) {
        Ok(writer) => writer,
        Err(e) => return sender.cancel(CloseCode::Forbidden, &e.to_string()),
    };
    let mut lane = Lane {
        sender,
        number,
        source: sender.source_lane(),
        block: Block::new(BLOCK_BYTES),
        writer,
        clock,
        ways,
        buffer: Block::new(PACK_BYTES_MAX),
    };
    let mut end = Ok(());
    if crate::job::panics(|| end = lane.run()) {
        sender.cancel(CloseCode::Internal, "a lane of this program failed; this is a bug");
    }
    if let Err(refusal) = end {
        sender.cancel(refusal.code, &refusal.text);
    }
}

struct Lane<'a> {
    sender: &'a Arc<SendJob>,
    number: u32,
    source: Box<dyn SourceLane>,
    block: Block,
    writer: LocalLane<'a>,
    clock: LaneClock,
    ways: &'a Ways,
    buffer: Block,
}

impl Lane<'_> {
    fn run(&mut self) -> Result<(), Refusal> {
        loop {
            self.clock.enter(Stage::Scan);
            let clock = &mut self.clock;
            let work = self.sender.claim(self.number, &mut |waits_in| {
                clock.wait(waits_in);
                true
            });
            let Some(work) = work else { return Ok(()) };
            match work {
                Work::Files { batch, range } => self.copy_files(&batch, range)?,
                Work::Chunk { batch, index, extent } => self.copy_chunk(&batch.objects[index], extent)?,
                Work::Ready(_) => unreachable!("a copy within one host reads nothing ahead"),
            }
            self.clock.note_cpu();
        }
    }

    fn copy_files(&mut self, batch: &Batch, mut range: Range<usize>) -> Result<(), Refusal> {
        let algorithm = self.sender.options.digest;
        // What a store is asked for ahead is reading too.
        self.clock.enter(Stage::Read);
        self.source.ahead(&batch.objects[range.clone()]);
        while !range.is_empty() {
            let mut rows = Vec::with_capacity(range.len().min(PACK_FILES_MAX));
            let mut read = Vec::with_capacity(rows.capacity());
            let mut at = 0;
            self.clock.enter(Stage::Read);
            while !range.is_empty() && rows.len() < PACK_FILES_MAX {
                let object = &batch.objects[range.start];
                let size = object.entry.size_bytes() as usize;
                if at + size > self.buffer.len() {
                    break;
                }
                let place = &mut self.buffer[at..at + size];
                at += size;
                range.start += 1;
                let status = read_small(self.sender, &mut *self.source, object, place);
                let digest = match self.ways.digests {
                    true => digest_small(algorithm, place, &mut self.clock),
                    false => ways::undigested(algorithm),
                };
                let bound = digest.bind(object.entry.id, Extent::new(0, size as u64));
                rows.push(PackRow { object: object.entry.id, length: size as u32, status, bound });
                read.push((digest, self.source.late(object.entry.id)));
            }
            let contents = rows.iter().zip(&read).filter(|(_, (_, late))| !late.is_some_and(|late| late.is_link));
            self.sender.note_digests(&mut contents.map(|(row, (digest, _))| (row.object.0, *digest)));
            self.take_turn(at);
            let mut rest = &self.buffer[..at];
            let mut files = Vec::with_capacity(rows.len());
            for (row, (digest, late)) in rows.iter().zip(&read) {
                let (bytes, after) = rest.split_at(row.length as usize);
                files.push(PackedFile { row, bytes, digest: Some(*digest), late: *late });
                rest = after;
            }
            self.clock.enter(Stage::Publish);
            self.writer.packed(&files)?;
            self.sender.progress.payload_moved(at as u64);
        }
        Ok(())
    }

    /// Waits where a rate was set.
    fn take_turn(&mut self, bytes: usize) {
        take_turn(self.sender, &mut self.clock, bytes);
    }
}

/// Waits where a rate was set.
fn take_turn(sender: &SendJob, clock: &mut LaneClock, bytes: usize) {
    if sender.pace.rate().is_some() {
        clock.enter(Stage::Limit);
        sender.pace.wait(bytes, &|| sender.end.is_set());
    }
}
