//! A lane moves a file that is too large for a pack, chunk by chunk.
//!
//! Invariants: a chunk's digest is of what was read, holes counting as the zeros they read as; whatever moved the bytes, the
//! source's generation is compared before its file is complete.

use super::ways::undigested;
use super::{Lane, take_turn};
use crate::sender::{judge_read, read_fragment};
use model::progress::Stage;
use model::{ChunkHasher, Extent, FailureKind};
use store::{Holes, Piece, SourceFile, SourceObject};
use wire::Refusal;
use wire::data::{ChunkHeader, ChunkTrailer, Status};

/// What becomes of blocks that are all zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Zeros {
    Written,
    LeftOut,
}

impl Lane<'_> {
    pub(super) fn copy_chunk(&mut self, object: &SourceObject, extent: Extent) -> Result<(), Refusal> {
        self.clock.enter(Stage::Read);
        let source = &mut self.source;
        let file = match self.sender.file(object, &mut || source.open(object)) {
            Ok(file) => file,
            Err(e) => {
                self.sender.source_failed(object, e.kind, e.message());
                return Ok(());
            }
        };
        if object.is_growing() {
            return self.copy_fragment(object, extent, &*file);
        }
        if object.is_open_ended() {
            return self.copy_open_ended(object, extent, &*file);
        }
        self.clock.enter(Stage::Publish);
        self.writer.start(&ChunkHeader { object: object.entry.id, extent })?;
        let size = object.entry.size_bytes();
        let is_shared = self.share(&*file);
        let (read, hasher) = match is_shared {
            true => (Ok(extent.length()), None),
            false => self.content(&*file, extent),
        };
        let algorithm = self.sender.options.digest;
        let digest = |is_whole| hasher.as_ref().map_or_else(|| undigested(algorithm), |hasher| hasher.finish(is_whole));
        let whole = digest(extent == Extent::new(0, size));
        if is_shared {
            self.sender.progress.payload_moved(extent.length());
        }
        let status = judge_read(self.sender, object, &*file, extent, read, whole);
        // What is not sealed is no whole object, to whoever verifies it.
        let digest = if status == Status::GoodLast { whole } else { digest(false) };
        if is_shared && matches!(status, Status::Good | Status::GoodLast) {
            self.ways.shared(extent.length(), status == Status::GoodLast);
        }
        self.clock.enter(Stage::Publish);
        let bound = digest.bind(object.entry.id, extent);
        self.writer.end(&ChunkTrailer { status, object_bytes: size, bound }, digest)
    }

    fn share(&mut self, file: &dyn SourceFile) -> bool {
        if !self.ways.shares {
            return false;
        }
        self.clock.enter(Stage::Send);
        self.writer.share(file)
    }

    /// Moves the bytes of an extent. Returns how many there were, and what digested them, if anything did.
    fn content(&mut self, file: &dyn SourceFile, extent: Extent) -> (store::Result<u64>, Option<ChunkHasher>) {
        let algorithm = self.sender.options.digest;
        if !self.ways.digests {
            self.writer.forgo_journal();
        }
        let mut hasher = self.ways.digests.then(|| ChunkHasher::new(algorithm, extent.start));
        let holes = if self.writer.has_places() { file.holes() } else { Holes::None };
        let moved = match holes {
            Holes::None => self.data(file, extent, Zeros::Written, &mut hasher),
            Holes::Told => self.pieces(file, extent, &mut hasher),
            Holes::Somewhere => self.data(file, extent, Zeros::LeftOut, &mut hasher),
        };
        (moved, hasher)
    }

    fn pieces(
        &mut self,
        file: &dyn SourceFile,
        mut left: Extent,
        hasher: &mut Option<ChunkHasher>,
    ) -> store::Result<u64> {
        let mut moved = 0;
        while !left.is_empty() {
            let wanted = match file.piece(left) {
                Piece::Hole(hole) => {
                    left.start = hole.end;
                    self.clock.enter(Stage::Digest);
                    if let Some(hasher) = hasher {
                        hasher.zeros(hole.length());
                    }
                    self.clock.enter(Stage::Send);
                    self.writer.hole(hole.length());
                    self.ways.left_out(hole.length());
                    self.sender.progress.payload_moved(hole.length());
                    moved += hole.length();
                    continue;
                }
                Piece::Data(data) => data,
            };
            left.start = wanted.end;
            let got = self.data(file, wanted, Zeros::Written, hasher)?;
            moved += got;
            if got < wanted.length() {
                break;
            }
        }
        Ok(moved)
    }

    /// Moves an extent that is all data, as far as is known.
    fn data(
        &mut self,
        file: &dyn SourceFile,
        mut extent: Extent,
        zeros: Zeros,
        hasher: &mut Option<ChunkHasher>,
    ) -> store::Result<u64> {
        let mut handed_on = 0;
        // A rate is held block by block.
        let hands_on = self.ways.hands_on && zeros == Zeros::Written && self.sender.pace.rate().is_none();
        if hands_on {
            self.clock.enter(Stage::Send);
            handed_on = self.writer.copy_from(file, extent);
            self.ways.handed_on(handed_on);
            self.sender.progress.payload_moved(handed_on);
            extent.start += handed_on;
        }
        let (sender, clock, writer) = (self.sender, &mut self.clock, &mut self.writer);
        // A queue's blocks are longer: zeros are looked for in pieces of the same length.
        let piece_bytes = self.block.len();
        clock.enter(Stage::Read);
        let read = self.source.read_extent(file, extent, &mut self.block, &mut |block| {
            if let Some(hasher) = hasher {
                clock.enter(Stage::Digest);
                hasher.update(block);
            }
            take_turn(sender, clock, block.len());
            clock.enter(Stage::Send);
            match zeros {
                Zeros::LeftOut => {
                    block.chunks(piece_bytes).for_each(|piece| match piece.iter().all(|byte| *byte == 0) {
                        true => writer.hole(piece.len() as u64),
                        false => writer.write_block(piece),
                    })
                }
                Zeros::Written => writer.write_block(block),
            }
            sender.progress.payload_moved(block.len() as u64);
            clock.enter(Stage::Read);
            true
        });
        read.map(|read| handed_on + read)
    }

    fn copy_fragment(&mut self, object: &SourceObject, extent: Extent, file: &dyn SourceFile) -> Result<(), Refusal> {
        let payload = &mut self.buffer[..extent.length() as usize];
        if !read_fragment(self.sender, object, extent, file, payload) {
            return Ok(());
        }
        self.clock.enter(Stage::Digest);
        let digest = self.sender.options.digest.of_object(payload);
        let bound = digest.bind(object.entry.id, extent);
        take_turn(self.sender, &mut self.clock, payload.len());
        let header = ChunkHeader { object: object.entry.id, extent };
        let trailer = ChunkTrailer { status: Status::Good, object_bytes: extent.end, bound };
        self.writer.fragment(&header, payload, &trailer, digest)?;
        self.sender.progress.payload_moved(extent.length());
        Ok(())
    }

    fn copy_open_ended(&mut self, object: &SourceObject, extent: Extent, file: &dyn SourceFile) -> Result<(), Refusal> {
        let _charge = match self.sender.memory().hold(extent.length() as usize, "a chunk of a pipe (--chunk-size)") {
            Ok(charge) => charge,
            Err(refusal) => {
                self.sender.source_failed(object, FailureKind::Other, refusal.text);
                return Ok(());
            }
        };
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
        self.writer.start(&ChunkHeader { object: object.entry.id, extent })?;
        self.take_turn(content.len());
        self.writer.write(&content);
        self.writer.end(&ChunkTrailer { status, object_bytes: extent.end, bound }, digest)?;
        self.sender.progress.payload_moved(got as u64);
        Ok(())
    }
}
