//! A copy within one process: the sender's and the receiver's half joined lane by lane, without a stream between.
//!
//! The same listing, decisions, staging, verification of the source and publishing as over a network. What is digested
//! is the block that is then written, so nothing is digested twice.

use crate::job::{Ending, Observer, Port};
use crate::limits::{LANE_BYTES, PERMIT_PATIENCE};
use crate::memory::Memory;
use crate::pace::rate_now;
use crate::progress::{LaneClock, Progress, processors};
use crate::receiver::{LocalLane, ReceiveJob, ReceiveSpec};
use crate::report::Report;
use crate::sender::split::{Batch, Work};
use crate::sender::{ChunkReader, ChunkTarget, SendJob, digest_small, read_small, send_chunk_payload};
use model::progress::Stage;
use model::{ChunkHasher, Digest, Extent, JobId, Name, Pin, TransferOptions};
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use store::{Sink, Source, SourceLane, SourceObject};
use wire::data::{ChunkHeader, ChunkTrailer, PackRow, Status};
use wire::limits::{PACK_BYTES_MAX, PACK_FILES_MAX};
use wire::{CloseCode, Message, Refusal};

pub struct LocalSpec {
    pub id: JobId,
    pub options: TransferOptions,
    pub rename_to: Option<Name>,
    /// Lanes; `None` for as many as there are processors.
    pub lanes: Option<u32>,
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
    interrupt: &dyn Fn() -> bool,
) -> store::Result<Report> {
    let bridge = Arc::new(Bridge { to_sender: OnceLock::new(), to_receiver: OnceLock::new() });
    let is_sequential = spec.is_sequential || source.is_sequential();
    let options = spec.options.clone();
    let receive = ReceiveSpec {
        number: 0,
        id: spec.id,
        sender: Pin([0; 32]),
        options: options.clone(),
        rename_to: spec.rename_to,
    };
    // The receiver's counters would repeat the sender's: it gets its own.
    let receiver = ReceiveJob::new(receive, sink, Arc::new(ToSender(bridge.clone())), Progress::new(), None)?;
    let port = Arc::new(ToReceiver(bridge.clone()));
    let sender = SendJob::new(0, options.clone(), source, port, progress.clone(), observer);
    let _ = bridge.to_sender.set(Arc::downgrade(&sender));
    let _ = bridge.to_receiver.set(Arc::downgrade(&receiver));
    sender.pace.set(rate_now(options.pace.as_deref()));
    receiver.start();
    sender.start();
    let lanes = if is_sequential { 1 } else { spec.lanes.unwrap_or_else(processors).max(1) };
    let memory = spec.memory;
    let threads: Vec<_> = (0..lanes)
        .map(|number| {
            let (sender, receiver, memory) = (sender.clone(), receiver.clone(), memory.clone());
            let run = move || run_lane(&sender, &receiver, number, &memory);
            std::thread::Builder::new().name(format!("lane-{number}")).spawn(run).expect("the system gives a thread")
        })
        .collect();
    let ending = loop {
        sender.pace.set(rate_now(options.pace.as_deref()));
        if let Some(ending) = sender.end.wait(Duration::from_millis(50)) {
            break ending;
        }
        if interrupt() {
            sender.cancel(CloseCode::Cancelled, "interrupted");
        }
    };
    if !matches!(ending, Ending::Finished(_)) {
        receiver.stop(ending.clone());
    }
    for thread in threads {
        let _ = thread.join();
    }
    progress.set_there(receiver.progress.here());
    for note in receiver.progress.notes() {
        progress.note(note);
    }
    let mut report = Report::new(&progress, ending, options, true);
    report.streams = lanes;
    Ok(report)
}

fn run_lane(sender: &Arc<SendJob>, receiver: &Arc<ReceiveJob>, number: u32, memory: &Memory) {
    let mut clock = sender.progress.lane(Stage::Memory);
    let _permit = loop {
        match memory.acquire(LANE_BYTES, PERMIT_PATIENCE) {
            Some(permit) => break permit,
            None if sender.end.is_set() || sender.is_complete() => return,
            None => clock.enter(Stage::Memory),
        }
    };
    let writer = match LocalLane::new(receiver, receiver.progress.lane(Stage::Receive), Arc::new(|| {})) {
        Ok(writer) => writer,
        Err(e) => return sender.cancel(CloseCode::Forbidden, &e.to_string()),
    };
    let mut lane = Lane {
        sender,
        number,
        source: sender.source_lane(),
        reader: ChunkReader::new(sender.options.engine, sender.progress.clone()),
        target: Target { sender, writer, clock, refused: None },
        buffer: vec![0; PACK_BYTES_MAX],
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
    reader: ChunkReader,
    target: Target<'a>,
    buffer: Vec<u8>,
}

impl Lane<'_> {
    fn run(&mut self) -> Result<(), Refusal> {
        loop {
            self.target.clock.enter(Stage::Scan);
            let clock = &mut self.target.clock;
            let work = self.sender.claim(self.number, &mut |is_credit| {
                clock.enter(if is_credit { Stage::Credit } else { Stage::Scan });
                true
            });
            let Some(work) = work else { return Ok(()) };
            match work {
                Work::Files { batch, range } => self.copy_files(&batch, range)?,
                Work::Chunk { batch, index, extent } => self.copy_chunk(&batch.objects[index], extent)?,
            }
            self.target.clock.note_cpu();
        }
    }

    fn copy_files(&mut self, batch: &Batch, mut range: Range<usize>) -> Result<(), Refusal> {
        let algorithm = self.sender.options.digest;
        while !range.is_empty() {
            let mut rows = Vec::with_capacity(range.len().min(PACK_FILES_MAX));
            let mut digests = Vec::with_capacity(rows.capacity());
            let mut at = 0;
            self.target.clock.enter(Stage::Read);
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
                let digest = digest_small(algorithm, place, &mut self.target.clock);
                let bound = digest.bind(object.entry.id, Extent::new(0, size as u64));
                rows.push(PackRow { object: object.entry.id, length: size as u32, status, bound });
                digests.push((object.entry.id.0, digest));
            }
            self.sender.note_digests(&mut digests.into_iter());
            let mut rest = &self.buffer[..at];
            let mut files = Vec::with_capacity(rows.len());
            for row in &rows {
                let (bytes, after) = rest.split_at(row.length as usize);
                files.push((row, bytes));
                rest = after;
            }
            self.target.take_turn(at);
            self.target.clock.enter(Stage::Publish);
            self.target.writer.packed(&files)?;
            self.sender.progress.payload_moved(at as u64);
        }
        Ok(())
    }

    fn copy_chunk(&mut self, object: &SourceObject, extent: Extent) -> Result<(), Refusal> {
        self.target.clock.enter(Stage::Read);
        let source = &mut self.source;
        let file = match self.sender.file(object, &mut || source.open(object)) {
            Ok(file) => file,
            Err(e) => {
                self.sender.source_failed(object, e.kind, e.message());
                return Ok(());
            }
        };
        if object.is_open_ended {
            return self.copy_open_ended(object, extent, &*file);
        }
        let header = ChunkHeader { object: object.entry.id, extent };
        let moved = send_chunk_payload(self.sender, &mut self.reader, object, &*file, extent, &mut self.target, header);
        match (moved, self.target.refused.take()) {
            (_, Some(refusal)) => Err(refusal),
            (Err(e), None) => Err(Refusal::new(CloseCode::Internal, &e.to_string())),
            (Ok(()), None) => Ok(()),
        }
    }

    fn copy_open_ended(
        &mut self,
        object: &SourceObject,
        extent: Extent,
        file: &dyn store::SourceFile,
    ) -> Result<(), Refusal> {
        let mut content = vec![0; extent.length() as usize];
        let got = match file.read_at(extent.start, &mut content) {
            Ok(got) => got,
            Err(e) => {
                self.sender.source_failed(object, e.kind, e.message());
                return Ok(());
            }
        };
        content.truncate(got);
        let ended = file.is_at_end();
        let extent = Extent::new(extent.start, extent.start + got as u64);
        let mut hasher = ChunkHasher::new(self.sender.options.digest, extent.start);
        hasher.update(&content);
        let digest = hasher.finish(ended && extent.start == 0);
        let is_last = self.sender.chunk_was_read(object, extent, digest, ended);
        let status = if is_last { Status::GoodLast } else { Status::Good };
        let bound = digest.bind(object.entry.id, extent);
        self.target.writer.start(&ChunkHeader { object: object.entry.id, extent })?;
        self.target.take_turn(content.len());
        self.target.writer.write(&content);
        self.target.writer.end(&ChunkTrailer { status, object_bytes: extent.end, bound }, digest)?;
        self.sender.progress.payload_moved(got as u64);
        Ok(())
    }
}

/// The receiving half as the target of a chunk.
struct Target<'a> {
    sender: &'a Arc<SendJob>,
    writer: LocalLane<'a>,
    clock: LaneClock,
    refused: Option<Refusal>,
}

impl ChunkTarget for Target<'_> {
    fn start(&mut self, header: &ChunkHeader, _: usize) -> io::Result<()> {
        self.clock.enter(Stage::Publish);
        self.keep(|writer| writer.start(header))
    }

    fn block(&mut self, block: &[u8]) -> io::Result<()> {
        self.take_turn(block.len());
        self.clock.enter(Stage::Send);
        self.writer.write_block(block);
        Ok(())
    }

    fn end(&mut self, trailer: &ChunkTrailer, digest: Digest) -> io::Result<()> {
        self.clock.enter(Stage::Publish);
        self.keep(|writer| writer.end(trailer, digest))
    }

    fn clock(&mut self) -> &mut LaneClock {
        &mut self.clock
    }
}

impl<'a> Target<'a> {
    /// Waits where a rate was set.
    fn take_turn(&mut self, bytes: usize) {
        if self.sender.pace.rate().is_some() {
            self.clock.enter(Stage::Limit);
            self.sender.pace.wait(bytes, &|| self.sender.end.is_set());
        }
    }

    /// A refusal between the two halves of one process is this program's own mistake: it ends the copy.
    fn keep(&mut self, step: impl FnOnce(&mut LocalLane<'a>) -> Result<(), Refusal>) -> io::Result<()> {
        step(&mut self.writer).map_err(|refusal| {
            let error = io::Error::other(refusal.text.clone());
            self.refused = Some(refusal);
            error
        })
    }
}
