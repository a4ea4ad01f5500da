//! Comparisons of what grew, where its sender's words come by hand.

use super::*;
use crate::receiver::by_hand::{Altered, Rig};
use crate::receiver::lane::Writer;
use conformance::memory::Memory;
use model::{ObjectId, TransferOptions};
use wire::data::{ChunkHeader, ChunkTrailer, Status};
use wire::message::{Digests, Entries, EntryRecord};

const GROWING: u32 = 10;
const CONTENT: &[u8] = b"what was sent";

/// A job in which one object is wanted that grows.
struct Bench {
    rig: Rig,
    memory: Memory,
}

impl Bench {
    fn new() -> Bench {
        let memory = Memory::default();
        let rig = Rig::new(Altered::of(&memory), TransferOptions::default());
        let record = EntryRecord { name: b"f".to_vec(), kind: GROWING, mode: 0o644, ..EntryRecord::default() };
        rig.job.handle(Entries { job: 1, first: 1, entries: vec![record] }.into()).unwrap();
        rig.hear(|message| matches!(message, Message::Want(_)).then_some(()));
        Bench { rig, memory }
    }

    fn digest_of(&self, content: &[u8]) -> Digest {
        self.rig.job.options.digest.of_object(content)
    }

    fn bring(&self, writer: &mut Writer<'_>) {
        let (object, extent) = (ObjectId(1), Extent::new(0, CONTENT.len() as u64));
        let digest = self.digest_of(CONTENT);
        let bound = digest.bind(object, extent);
        let trailer = ChunkTrailer { status: Status::Good, object_bytes: extent.end, bound };
        writer.fragment(&ChunkHeader { object, extent }, CONTENT, &trailer, digest).unwrap();
    }

    fn seal(&self, modified_seconds: i64) {
        let size_bytes = CONTENT.len() as u64;
        let seal = Seal { job: 1, object: 1, size_bytes, mode: 0o644, modified_seconds, ..Seal::default() };
        self.rig.job.handle(seal.into()).unwrap();
    }

    fn wait_until_asked(&self) {
        self.rig.hear(|message| matches!(message, Message::AskDigests(_)).then_some(()));
    }

    fn tell(&self, digest: Vec<u8>) {
        let digests = vec![DigestRecord { object: 1, digest }];
        self.rig.job.handle(Digests { job: 1, digests }.into()).unwrap();
    }

    /// The source has something else. Whether that is asked for; if not, the object is settled.
    fn differs(&self) -> bool {
        self.wait_until_asked();
        self.tell(self.digest_of(b"what is there").to_bytes());
        self.rig.hear(|message| match message {
            Message::Resend(_) => Some(true),
            Message::Settled(_) => Some(false),
            _ => None,
        })
    }
}

#[test]
fn a_file_that_goes_on_each_time_it_is_compared_waits_for_its_next_seal_however_often() {
    let bench = Bench::new();
    let mut writer = bench.rig.writer();
    bench.bring(&mut writer);
    for version in 1..=2 * i64::from(SETTLE_ROUNDS_MAX) {
        bench.seal(version);
        assert!(bench.differs(), "it failed as version {version}");
        // It went on before what differs was compared again.
        bench.bring(&mut writer);
        bench.wait_until_asked();
        bench.tell(Vec::new());
    }
    bench.seal(100);
    bench.wait_until_asked();
    bench.tell(bench.digest_of(CONTENT).to_bytes());
    let settled = |message: Message| if let Message::Settled(settled) = message { Some(settled) } else { None };
    let settled = bench.rig.hear(settled);
    assert!(settled.failed.is_empty() && settled.published.len() == 1, "{settled:?}");
    assert_eq!(bench.memory.content("f").unwrap(), CONTENT);
}

#[test]
fn a_file_that_is_found_changed_again_and_again_although_it_rests_fails() {
    let bench = Bench::new();
    let mut writer = bench.rig.writer();
    bench.bring(&mut writer);
    bench.seal(1);
    for _ in 0..SETTLE_ROUNDS_MAX {
        assert!(bench.differs());
        bench.bring(&mut writer);
    }
    assert!(!bench.differs());
    assert!(bench.memory.content("f").is_none());
}
