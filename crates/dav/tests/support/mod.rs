//! How the tests of this crate open servers, read from them and write to them.
#![allow(dead_code)] // Each test file uses its part.

use dav::Sites;
use model::{Entry, Generation, Kind, Location, Name, ObjectId, Timestamp, TransferOptions};
use std::sync::Arc;
use store::open::{Opener, Rights, Shape, SinkRequest};
use store::{Found, OpenError, PublishRule, Sink, Source, SourceObject};

pub fn location(scheme: &str, rest: &str) -> Location {
    Location::Url { scheme: scheme.to_owned(), rest: rest.as_bytes().to_vec() }
}

pub fn open(scheme: &str, rest: &str) -> Result<Arc<dyn Source>, OpenError> {
    Sites::default().source(&[location(scheme, rest)], &TransferOptions::default()).map(|open| open.source)
}

pub fn scan(source: &dyn Source) -> (Vec<SourceObject>, Vec<model::Failure>) {
    let (mut objects, mut failures) = (Vec::new(), Vec::new());
    source
        .scan(&mut |found| {
            match found {
                Found::Object(object) => objects.push(object),
                Found::Failed(failure) => failures.push(failure),
            }
            true
        })
        .unwrap();
    (objects, failures)
}

pub fn read(source: &dyn Source, object: &SourceObject) -> store::Result<Vec<u8>> {
    let mut buffer = vec![0; object.entry.size_bytes() as usize];
    let (read, _) = source.lane().read_whole(object, &mut buffer)?;
    buffer.truncate(read);
    Ok(buffer)
}

pub fn put(sink: &dyn Sink, entry: &Entry, content: &[u8], rule: PublishRule) -> store::Result<()> {
    let mut lane = sink.lane(false)?;
    lane.create(entry, rule)?;
    lane.write(content)?;
    let staged = lane.seal(entry, false)?;
    lane.publish(entry, staged)
}

pub fn entry(name: &str, size_bytes: usize) -> Entry {
    let modified = Timestamp { seconds: 1_234_567_890, nanoseconds: 0 };
    let generation = Generation { size_bytes: size_bytes as u64, modified, ..Generation::default() };
    let (id, name) = (ObjectId(1), Name::new(name.as_bytes()).unwrap());
    Entry { id, parent: ObjectId::ROOT, name, kind: Kind::File, mode: 0o644, generation, attributes: None }
}

pub fn sink_at(sites: &Sites, rest: &str) -> Arc<dyn Sink> {
    let options = TransferOptions::default();
    let (rights, shape) = (Rights::Write, Shape::Tree);
    let wish = SinkRequest { rights, shape, is_nameless: false, is_own: false, options: &options };
    sites.sink(&location("dav", rest), &wish).ok().unwrap().sink
}
