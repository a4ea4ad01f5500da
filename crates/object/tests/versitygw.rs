//! The store by the whole suite, over versitygw where it is installed: that the fake store of `conforms` is not all there is.
//!
//! `.ci/run` does not install it, because it takes a newer Go than Debian has; docs/object-stores.md says how to get it.

mod support;

use conformance::{Ability, Fault, Place, Stand, run};
use model::{Entry, Kind, Name, TransferOptions};
use object::{Buckets, StoreConfig};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use store::open::{Opener, Rights, Shape, SinkRequest};
use store::{How, PublishRule, Shelf, Sink, Source};
use support::{buckets, file, location, put};

/// A gateway over a directory, which ends with the test.
struct Gateway {
    child: Child,
    directory: tempfile::TempDir,
    config: StoreConfig,
    _keys: tempfile::NamedTempFile,
    count: AtomicUsize,
}

/// One of its buckets, which is a directory.
struct InBucket {
    name: String,
    path: PathBuf,
    config: StoreConfig,
    buckets: Buckets,
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

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Gateway {
    fn start() -> Gateway {
        let (directory, keys) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let text = "[default]\naws_access_key_id = thalweg\naws_secret_access_key = thalweg-secret\n";
        std::fs::write(keys.path(), text).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut command = Command::new("versitygw");
        command.args(["--access", "thalweg", "--secret", "thalweg-secret", "--quiet", "--port", &address]);
        command.arg("posix").arg(directory.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let config = StoreConfig {
            endpoint: Some(format!("http://{address}")),
            region: Some("us-east-1".into()),
            credentials_file: Some(keys.path().to_owned()),
            ..StoreConfig::default()
        };
        let child = command.spawn().unwrap();
        let gateway = Gateway { child, directory, config, _keys: keys, count: AtomicUsize::new(0) };
        let began = Instant::now();
        while TcpStream::connect(&address).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "versitygw does not listen");
            std::thread::park_timeout(Duration::from_millis(20));
        }
        gateway
    }
}

impl Stand for Gateway {
    fn name(&self) -> String {
        "a bucket of versitygw".into()
    }

    fn lacks(&self) -> &[Ability] {
        LACKS
    }

    fn place(&self) -> Box<dyn Place> {
        let name = format!("bkt{}", self.count.fetch_add(1, Relaxed));
        let path = self.directory.path().join(&name);
        std::fs::create_dir(&path).unwrap();
        let (config, buckets) = (self.config.clone(), buckets(&self.config));
        // As an object: a directory that is none is not there.
        let root = Entry { kind: Kind::Directory, ..file(1, "root", 0) };
        sink_at(&buckets, &name).make_directory(&root).unwrap();
        Box::new(InBucket { name, path, config, buckets })
    }
}

fn sink_at(buckets: &Buckets, path: &str) -> Arc<dyn Sink> {
    let options = TransferOptions::default();
    let (rights, shape) = (Rights::Write, Shape::Tree);
    let request = SinkRequest { rights, shape, is_nameless: false, is_own: false, options: &options };
    buckets.sink(&location(&format!("{path}/")), &request).ok().unwrap().sink
}

impl InBucket {
    fn root(&self) -> String {
        format!("{}/root", self.name)
    }

    fn file(&self, path: &[u8]) -> PathBuf {
        self.path.join("root").join(&*String::from_utf8_lossy(path))
    }
}

impl Place for InBucket {
    fn sink(&self) -> Option<Arc<dyn Sink>> {
        Some(sink_at(&self.buckets, &self.root()))
    }

    fn source(&self) -> Option<Arc<dyn Source>> {
        let locations = [location(&format!("{}/", self.root()))];
        Some(self.buckets.source(&locations, &TransferOptions::default()).ok().unwrap().source)
    }

    /// From the directory: a source is told that the version it reads was replaced, and this has nobody to tell.
    fn content(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        Ok(std::fs::read(self.file(path)).ok())
    }

    /// It writes keys into listings as they are, and XML has no way to say most control characters.
    fn can_say(&self, name: &Name) -> bool {
        !name.as_bytes().iter().any(|byte| *byte < b' ' && *byte != b'\n')
    }

    fn shelf(&self, path: &[u8], how: How) -> store::Result<Box<dyn Shelf>> {
        self.buckets.shelf_below(&location(&format!("{}/", self.root())), path, how)
    }

    /// By requests of its own: a file that came past the gateway has no ETag.
    fn put(&self, name: &Name, content: &[u8]) {
        let sink = sink_at(&buckets(&self.config), &self.root());
        put(&*sink, &String::from_utf8_lossy(name.as_bytes()), content, PublishRule::Replace).unwrap();
    }

    fn remove(&self, name: &Name) {
        std::fs::remove_file(self.file(name.as_bytes())).unwrap();
    }

    fn left(&self) -> Vec<String> {
        let (mut left, place) = (Vec::new(), self.buckets.place(&location(&format!("{}/", self.name))));
        let listed = place.ok().unwrap().bucket.uploads("", &mut |upload| {
            left.push(format!("upload {}", upload.key));
            true
        });
        listed.unwrap();
        let names = std::fs::read_dir(self.path.join("root")).unwrap().map(|one| one.unwrap().file_name());
        left.extend(names.filter_map(|name| name.into_string().ok()).filter(|name| name.contains(".thalweg-probe-")));
        left
    }
}

#[test]
fn a_bucket_of_versitygw_conforms() {
    if Command::new("versitygw").arg("--version").output().is_err() {
        return eprintln!("skipped: no versitygw is installed (docs/object-stores.md says how to get it)");
    }
    let report = run(&Gateway::start());
    report.assert_conforms();
    assert!(!report.not_applicable().contains(&"replace-only-what-was-decided-on"), "{report}");
}
