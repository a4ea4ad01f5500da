//! The store by the whole suite, over the fake one.

use conformance::{Ability, Fault, Place, Stand, run};
use fakes::{BUCKET, Fake, SECRET};
use model::{Location, Name, TransferOptions};
use object::{Buckets, StoreConfig};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::open::{Opener, Rights, Shape, SinkRequest};
use store::{How, Shelf, Sink, Source};

struct Bucket;

struct InBucket {
    fake: Fake,
    buckets: Buckets,
    _keys: tempfile::NamedTempFile,
}

const LACKS: &[Ability] = &[
    Ability::InOrder,
    Ability::ReadsOnce,
    Ability::Journals,
    Ability::ReadsStaged,
    Ability::Nodes,
    Ability::HardLinks,
    Ability::Modes,
    Ability::Skip,
    Ability::Renames,
    Ability::LongPaths,
    Ability::OneByOne,
];

impl Stand for Bucket {
    fn name(&self) -> String {
        "a bucket".into()
    }

    fn lacks(&self) -> &[Ability] {
        LACKS
    }

    fn place(&self) -> Box<dyn Place> {
        let fake = Fake::start();
        fake.state.lock().unwrap().page_max = 300;
        let keys = tempfile::NamedTempFile::new().unwrap();
        let text = format!("[default]\naws_access_key_id = fake\naws_secret_access_key = {SECRET}\n");
        std::fs::write(keys.path(), text).unwrap();
        let config = StoreConfig {
            endpoint: Some(fake.url.clone()),
            region: Some("us-east-1".into()),
            credentials_file: Some(keys.path().to_owned()),
            ..StoreConfig::default()
        };
        let buckets = Buckets::new(BTreeMap::from([("fake".to_owned(), config)]));
        Box::new(InBucket { fake, buckets, _keys: keys })
    }
}

fn location(path: &[u8]) -> Location {
    Location::Url { scheme: "s3+fake".into(), rest: [BUCKET.as_bytes(), b"/root/", path].concat() }
}

impl Place for InBucket {
    fn sink(&self) -> Option<Arc<dyn Sink>> {
        let options = TransferOptions::default();
        let (rights, shape) = (Rights::Write, Shape::Tree);
        let request = SinkRequest { rights, shape, is_nameless: false, is_own: false, options: &options };
        Some(self.buckets.sink(&location(b""), &request).ok().unwrap().sink)
    }

    fn source(&self) -> Option<Arc<dyn Source>> {
        if self.fake.state.lock().unwrap().objects.keys().all(|key| !key.starts_with("root/")) {
            self.fake.put("root/", b"");
        }
        Some(self.buckets.source(&[location(b"")], &TransferOptions::default()).ok().unwrap().source)
    }

    /// From the store itself: a source is told that the version it reads was replaced, and this has nobody to tell.
    fn content(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let key = format!("root/{}", String::from_utf8_lossy(path));
        Ok(self.fake.content(&key))
    }

    fn shelf(&self, path: &[u8], how: How) -> store::Result<Box<dyn Shelf>> {
        self.buckets.shelf_below(&location(b""), path, how)
    }

    fn put(&self, name: &Name, content: &[u8]) {
        self.fake.put(&format!("root/{}", String::from_utf8_lossy(name.as_bytes())), content);
    }

    fn remove(&self, name: &Name) {
        let key = format!("root/{}", String::from_utf8_lossy(name.as_bytes()));
        self.fake.state.lock().unwrap().objects.remove(&key);
    }

    fn left(&self) -> Vec<String> {
        let state = self.fake.state.lock().unwrap();
        let uploads = state.uploads.keys().map(|id| format!("upload {id}"));
        uploads.chain(state.objects.keys().filter(|key| key.contains(".thalweg-probe-")).cloned()).collect()
    }
}

#[test]
fn a_bucket_conforms() {
    let report = run(&Bucket);
    report.assert_conforms();
    assert!(!report.not_applicable().contains(&"replace-only-what-was-decided-on"), "{report}");
}
