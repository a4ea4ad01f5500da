//! A bucket of the fake store, and how the tests of this crate write to it and read of it.
#![allow(dead_code)] // Each test file uses its part.

use fakes::{BUCKET, Fake, SECRET};
use model::{Entry, Extent, FailureKind, Generation, Kind, Location, Name, ObjectId, Timestamp, TransferOptions};
use object::{Buckets, StoreConfig};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::open::{Opener, Rights, Shape, SinkRequest};
use store::{Found, PublishRule, Sink, Source, SourceFile, SourceObject};

pub struct Bed {
    pub fake: Fake,
    pub buckets: Buckets,
    pub config: StoreConfig,
    pub keys: tempfile::NamedTempFile,
}

pub fn buckets(config: &StoreConfig) -> Buckets {
    Buckets::new(BTreeMap::from([("fake".to_owned(), config.clone())]))
}

pub fn bed() -> Bed {
    bed_with("fake", SECRET)
}

pub fn bed_with(id: &str, secret: &str) -> Bed {
    bed_of(id, secret, None, str::to_owned)
}

pub fn bed_of(id: &str, secret: &str, copy_bytes_max: Option<u64>, way: impl Fn(&str) -> String) -> Bed {
    let fake = Fake::start();
    let keys = tempfile::NamedTempFile::new().unwrap();
    let text = format!("[default]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
    std::fs::write(keys.path(), text).unwrap();
    let config = StoreConfig {
        endpoint: Some(way(&fake.url)),
        region: Some("us-east-1".into()),
        credentials_file: Some(keys.path().to_owned()),
        copy_bytes_max,
        ..StoreConfig::default()
    };
    Bed { fake, buckets: buckets(&config), config, keys }
}

pub fn location(path: &str) -> Location {
    Location::Url { scheme: "s3+fake".into(), rest: path.as_bytes().to_vec() }
}

pub fn file(number: u64, name: &str, size_bytes: u64) -> Entry {
    let modified = Timestamp { seconds: 1_600_000_000, nanoseconds: 5 };
    Entry {
        id: ObjectId(number),
        parent: ObjectId::ROOT,
        name: Name::new(name.as_bytes()).unwrap(),
        kind: Kind::File,
        mode: 0o644,
        generation: Generation { size_bytes, modified, ..Generation::default() },
        attributes: None,
    }
}

impl Bed {
    pub fn sink(&self) -> Arc<dyn Sink> {
        self.sink_at("")
    }

    /// Below a prefix that is empty or ends in a slash.
    pub fn sink_at(&self, prefix: &str) -> Arc<dyn Sink> {
        sink_of(&self.buckets, prefix)
    }

    /// The whole bucket.
    pub fn source(&self) -> Arc<dyn Source> {
        let source = self.buckets.source(&[location(&format!("{BUCKET}/"))], &TransferOptions::default());
        source.ok().unwrap().source
    }

    pub fn put(&self, name: &str, bytes: &[u8]) -> store::Result<()> {
        put(&*self.sink(), name, bytes, PublishRule::NoReplace)
    }

    pub fn put_large(&self, name: &str, bytes: &[u8]) -> store::Result<()> {
        let (sink, entry) = (self.sink(), file(1, name, bytes.len() as u64));
        let (upload, _) = sink.begin(&entry, "stem")?;
        for (at, block) in bytes.chunks(1 << 20).enumerate() {
            upload.write_at((at as u64) << 20, block)?;
        }
        upload.publish(&entry, PublishRule::NoReplace)
    }

    pub fn open(&self, key: &str) -> Arc<dyn SourceFile> {
        let source = self.buckets.source(&[location(&format!("{BUCKET}/{key}"))], &TransferOptions::default());
        open_in(&*source.ok().unwrap().source, key)
    }

    /// The one object, as the source lists it, and what a lane reads of it.
    pub fn read(&self) -> store::Result<(SourceObject, Vec<u8>)> {
        let source = self.source();
        let object = objects(&*source)?.pop().expect("an object was put there");
        let bytes = content(&*source, &object)?;
        Ok((object, bytes))
    }
}

pub fn sink_of(buckets: &Buckets, prefix: &str) -> Arc<dyn Sink> {
    let options = TransferOptions::default();
    let (rights, shape) = (Rights::Write, Shape::Tree);
    let request = SinkRequest { rights, shape, is_nameless: false, is_own: false, options: &options };
    buckets.sink(&location(&format!("{BUCKET}/{prefix}")), &request).ok().unwrap().sink
}

/// What a source lists, but for what it lists as failed.
pub fn objects(source: &dyn Source) -> store::Result<Vec<SourceObject>> {
    let mut objects = Vec::new();
    source.scan(&mut |found| {
        if let Found::Object(object) = found {
            objects.push(object);
        }
        true
    })?;
    Ok(objects)
}

/// What a lane reads of the version that was listed.
pub fn content(source: &dyn Source, object: &SourceObject) -> store::Result<Vec<u8>> {
    let (mut lane, mut bytes) = (source.lane(), Vec::new());
    let opened = lane.open(object)?;
    let size = object.entry.size_bytes();
    for start in (0..size).step_by(8 << 20) {
        let extent = Extent::new(start, size.min(start + (8 << 20)));
        lane.read_extent(&*opened, extent, &mut [0; 100_000], &mut |block| {
            bytes.extend_from_slice(block);
            true
        })?;
    }
    match opened.generation()? == object.entry.generation {
        true => Ok(bytes),
        false => Err(other_version(object)),
    }
}

/// As whoever copies tells it.
pub fn other_version(object: &SourceObject) -> store::Error {
    store::Error::of_kind(FailureKind::Changed, "read file", object.entry.name.as_bytes(), "it is another version")
}

/// Opens the object of this name as a lane does, after it was listed.
pub fn open_in(source: &dyn Source, name: &str) -> Arc<dyn SourceFile> {
    let found = objects(source).unwrap().into_iter().find(|one| one.entry.name.as_bytes() == name.as_bytes());
    source.lane().open(&found.unwrap()).unwrap()
}

pub fn put(sink: &dyn Sink, name: &str, bytes: &[u8], rule: PublishRule) -> store::Result<()> {
    let entry = file(1, name, bytes.len() as u64);
    let mut lane = sink.lane(false)?;
    lane.create(&entry, rule)?;
    lane.write(bytes)?;
    let staged = lane.seal(&entry, true)?;
    sink.publish(&entry, staged)
}

pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    (0..length).map(|_| next()).collect()
}
