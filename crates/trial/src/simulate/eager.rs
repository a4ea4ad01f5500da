//! A source whose lanes say that they ask for the next chunk before the present one is read, as those with a queue do: senders then
//! claim it ahead.
//!
//! Not here: such a queue, which no simulated disk has.

use model::fidelity::Warning;
use model::follow::Follow;
use model::{Extent, Generation, ObjectId};
use std::sync::Arc;
use store::posix::PosixSource;
use store::{Engines, Footing, Found, Late, Result, Source, SourceFacts, SourceFile, SourceLane, SourceObject, Watch};

pub struct Eager(pub PosixSource);

impl Source for Eager {
    fn facts(&self) -> SourceFacts {
        self.0.facts()
    }

    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> Result<()> {
        self.0.scan(emit)
    }

    fn sort_by_key(&self) -> bool {
        self.0.sort_by_key()
    }

    fn leave_times(&self, bytes_max: u64) {
        self.0.leave_times(bytes_max);
    }

    fn watch(&self, rules: &Follow) -> Result<Option<Box<dyn Watch>>> {
        self.0.watch(rules)
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        Box::new(EagerLane(self.0.lane()))
    }

    fn path(&self, object: &SourceObject) -> Vec<u8> {
        self.0.path(object)
    }

    fn look_again(&self, object: &SourceObject) -> Result<SourceObject> {
        self.0.look_again(object)
    }

    fn look_again_at_all(&self, objects: &[&SourceObject]) -> Vec<Result<SourceObject>> {
        self.0.look_again_at_all(objects)
    }

    fn footing(&self, object: &SourceObject) -> Option<Footing> {
        self.0.footing(object)
    }

    fn owner_name(&self, is_group: bool, number: u32) -> Option<Box<[u8]>> {
        self.0.owner_name(is_group, number)
    }

    fn notes(&self) -> Vec<String> {
        self.0.notes()
    }

    fn take_warnings(&self) -> Vec<Warning> {
        self.0.take_warnings()
    }
}

struct EagerLane(Box<dyn SourceLane>);

impl SourceLane for EagerLane {
    fn read_whole(&mut self, object: &SourceObject, buffer: &mut [u8]) -> Result<(usize, Generation)> {
        self.0.read_whole(object, buffer)
    }

    fn late(&mut self, object: ObjectId) -> Option<Late> {
        self.0.late(object)
    }

    fn open(&mut self, object: &SourceObject) -> Result<Arc<dyn SourceFile>> {
        self.0.open(object)
    }

    fn ahead(&mut self, next: &[SourceObject]) {
        self.0.ahead(next);
    }

    fn serve(&mut self, engines: Engines) {
        self.0.serve(engines);
    }

    fn reads_ahead(&self) -> bool {
        true
    }

    fn expect(&mut self, file: Arc<dyn SourceFile>, extent: Extent) {
        self.0.expect(file, extent);
    }

    fn read_extent(
        &mut self,
        file: &dyn SourceFile,
        extent: Extent,
        block: &mut [u8],
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<u64> {
        self.0.read_extent(file, extent, block, each)
    }
}
