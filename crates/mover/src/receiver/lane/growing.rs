//! Fragments of objects that grow: verified before anything of them is written, in any order.
//!
//! Not here: what is held of such an object, and how far it was put down (`large`), and what comes before it is published (`seal`).

use super::{Writer, malformed};
use crate::receiver::commit;
use crate::receiver::large::{Claimed, kind_of};
use crate::receiver::table::Found;
use crate::receiver::verify::{self, Verdict};
use model::progress::Stage;
use model::{Digest, FailureKind};
use wire::data::{ChunkHeader, ChunkTrailer, Status};
use wire::message::{ExtentRecord, Held, Resend};
use wire::{Message, Refusal};

impl Writer<'_> {
    /// Takes a fragment of an object that grows, with the digest that its bytes have here.
    pub fn fragment(
        &mut self,
        header: &ChunkHeader,
        payload: &[u8],
        trailer: &ChunkTrailer,
        digest: Digest,
    ) -> Result<(), Refusal> {
        let found = self.job.table.lock().unwrap().take(header.object.0);
        let large = match found {
            Found::NotNow => return Ok(()),
            Found::Large(large) if large.is_growing => large,
            _ => return Err(malformed("a fragment of an object that does not grow")),
        };
        if trailer.status != Status::Good {
            return Err(malformed("a fragment with a last word on its object"));
        }
        let extent = ExtentRecord { object: header.object.0, start: header.extent.start, end: header.extent.end };
        if verify::chunk(trailer, header.object, header.extent, digest) == Verdict::Mismatch {
            let (listed, index) = large.place().clone();
            self.job.ask_again(&listed, index, Some(extent), "digest mismatch", FailureKind::DigestMismatch);
            return Ok(());
        }
        if large.is_too_scattered(header.extent) {
            // What lies before it is still on its way.
            let why = "too many pieces before it are missing".to_owned();
            let again = Resend { job: self.job.number, extents: vec![extent], why, ..Resend::default() };
            self.job.port.send(Message::Resend(again));
            return Ok(());
        }
        let turn = match large.turn(header.extent, &self.breaker, &self.job.end) {
            Claimed::Turn(turn) => Some(turn),
            Claimed::Held(_) | Claimed::Nothing => None,
        };
        let file = match large.file(self.job) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(()),
            Err(e) => {
                let (listed, index) = large.place().clone();
                self.job.fail(&listed, index, kind_of(&e), e.message());
                return Ok(());
            }
        };
        self.clock.enter(Stage::Write);
        if turn.is_some()
            && let Err(e) = file.write_at(header.extent.start, payload)
        {
            commit::chunk_failed(self.job, &large, &file, &e);
            return Ok(());
        }
        let recorded = large.record(&file, header.extent, digest, None, false);
        drop(turn);
        match recorded {
            Ok(None) => return Ok(()),
            Ok(_) => {}
            Err(e) => {
                commit::chunk_failed(self.job, &large, &file, &e);
                return Ok(());
            }
        }
        self.job.came_right(large.id, header.extent);
        if !self.job.charge_pieces(&large) {
            return Ok(());
        }
        self.job.port.send(Message::Held(Held { job: self.job.number, extents: vec![extent] }));
        if large.covered().is_some() {
            self.job.covered(large.id);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Port;
    use crate::limits::LANE_BYTES;
    use crate::receiver::large::Large;
    use crate::receiver::listed::{Expected, Listed};
    use crate::receiver::tries::CHUNKS_MAX;
    use crate::receiver::{ReceiveJob, ReceiveSpec};
    use crate::{Memory, Progress};
    use model::{DigestAlgorithm, End, Entry, Extent, Generation, JobId, Kind, Name, ObjectId, Pin, TransferOptions};
    use os::sync::Mutex;
    use std::sync::Arc;
    use store::PublishRule;
    use store::posix::{PosixSink, beneath};

    const ID: u64 = 1;
    const ALGORITHM: DigestAlgorithm = DigestAlgorithm::Crc64Nvme;

    #[derive(Default)]
    struct Said(Mutex<Vec<Message>>);

    impl Port for Said {
        fn send(&self, message: Message) {
            self.0.lock().unwrap().push(message);
        }
    }

    /// A job in which one object is wanted that grows.
    struct Bench {
        job: Arc<ReceiveJob>,
        said: Arc<Said>,
        memory: Memory,
        _directory: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Bench {
            let directory = tempfile::tempdir().unwrap();
            let root = Arc::new(beneath::open_directory(directory.path()).unwrap());
            let sink = Arc::new(PosixSink::new(root.clone(), root, None));
            let options = TransferOptions { digest: ALGORITHM, ..TransferOptions::default() };
            let spec = ReceiveSpec { number: 1, id: JobId([3; 16]), sender: Pin([7; 32]), options, rename_to: None };
            let said = Arc::new(Said::default());
            let job = ReceiveJob::new(spec, sink, said.clone(), Progress::new(), None).unwrap();
            let memory = Memory::of_endpoint(LANE_BYTES);
            job.charge_to(memory.clone());
            let entry = Entry {
                id: ObjectId(ID),
                parent: ObjectId::ROOT,
                name: Name::new(b"growing").unwrap(),
                kind: Kind::File,
                mode: 0o644,
                generation: Generation::default(),
                attributes: None,
            };
            let rule = PublishRule::NoReplace;
            let large = Large::new(&job, &entry, rule, End::Growing).unwrap();
            let objects = vec![(0, Expected { entry, rule, room_bytes: 0 })];
            let listed = Arc::new(Listed { first: ID, described: 1, objects, _charge: None });
            large.belongs_to(listed.clone(), 0);
            job.table.lock().unwrap().insert(listed, vec![(ID, large)]);
            Bench { job, said, memory, _directory: directory }
        }

        fn writer(&self) -> Writer<'_> {
            Writer::new(&self.job, self.job.progress.lane(Stage::Receive), Arc::new(|| {})).unwrap()
        }

        /// Brings a fragment; returns what is said of it.
        fn bring(&self, writer: &mut Writer<'_>, extent: Extent, is_damaged: bool) -> Vec<Message> {
            let payload = vec![b'x'; extent.length() as usize];
            let digest = ALGORITHM.of_object(&payload);
            let told = if is_damaged { ALGORITHM.of_object(b"what was sent") } else { digest };
            let (object, bound) = (ObjectId(ID), told.bind(ObjectId(ID), extent));
            let trailer = ChunkTrailer { status: Status::Good, object_bytes: extent.end, bound };
            writer.fragment(&ChunkHeader { object, extent }, &payload, &trailer, digest).unwrap();
            std::mem::take(&mut *self.said.0.lock().unwrap())
        }
    }

    fn is_held(said: &[Message]) -> bool {
        said.iter().any(|message| matches!(message, Message::Held(_)))
    }

    #[test]
    fn what_came_damaged_and_comes_again_is_forgotten_in_whatever_pieces() {
        let bench = Bench::new();
        let mut writer = bench.writer();
        for extent in [Extent::new(0, 4), Extent::new(4, 9)] {
            assert!(matches!(&bench.bring(&mut writer, extent, true)[..], [Message::Resend(_)]));
        }
        assert!(!bench.job.tries.lock().unwrap().is_empty());
        assert!(is_held(&bench.bring(&mut writer, Extent::new(0, 9), false)));
        assert!(bench.job.tries.lock().unwrap().is_empty());
    }

    #[test]
    fn an_object_of_which_everything_comes_damaged_fails_and_nothing_of_it_is_remembered() {
        let bench = Bench::new();
        let mut writer = bench.writer();
        let fails = |at: u64| {
            let said = bench.bring(&mut writer, Extent::new(2 * at, 2 * at + 1), true);
            said.iter().any(|message| matches!(message, Message::Settled(settled) if settled.failed.len() == 1))
        };
        assert_eq!((0..2 * CHUNKS_MAX as u64).position(fails), Some(CHUNKS_MAX));
        assert!(bench.job.tries.lock().unwrap().is_empty() && bench.job.table.lock().unwrap().is_empty());
    }

    #[test]
    fn pieces_that_are_held_apart_are_charged_and_one_too_many_is_asked_for_again() {
        let bench = Bench::new();
        let mut writer = bench.writer();
        let before = bench.memory.free_to_hold_bytes();
        let mut bring = |extent| bench.bring(&mut writer, extent, false);
        let held = (0..70_000_u64).take_while(|at| is_held(&bring(Extent::new(2 * at + 1, 2 * at + 2)))).count();
        assert_eq!(held, 65_536);
        let charged = before - bench.memory.free_to_hold_bytes();
        assert!(charged >= held * size_of::<Extent>(), "{charged}");
        let beyond = Extent::new(1 << 30, (1 << 30) + 1);
        assert!(matches!(&bring(beyond)[..], [Message::Resend(_)]));
        // What joins others makes room.
        assert!(is_held(&bring(Extent::new(2, 3))) && is_held(&bring(beyond)));
    }
}
