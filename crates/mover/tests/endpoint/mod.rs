//! An endpoint in this process for tests: loopback, a temporary root, everyone is let in.

use model::name::relative_path;
use model::{JobId, Pin, TransferOptions};
use mover::session::{Client, ClientOptions, Direct, Grant, Host, HostFacts, Opened, Server, Tuning};
use mover::{Ending, Memory, Progress};
use net::{DialOptions, Identity, Listener, ServerTls};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use store::posix::{PosixSink, PosixSource, beneath};
use wire::handshake::Direction;
use wire::message::Open;
use wire::{CloseCode, Refusal};

pub struct OpenHost {
    pub root: PathBuf,
}

impl Host for OpenHost {
    fn facts(&self) -> HostFacts {
        HostFacts { name: "test".into(), is_read_only: false }
    }

    fn authorise(&self, pin: Pin, _: &[u8]) -> Result<Grant, Refusal> {
        Ok(Grant { pin, name: "test".into(), account: "test".into(), may_write: true, warrant: None })
    }

    fn open(
        &self,
        _: &Grant,
        _: JobId,
        direction: Direction,
        open: &Open,
        options: &TransferOptions,
    ) -> Result<Opened, Refusal> {
        let refuse = |e: &dyn std::fmt::Display| Refusal::new(CloseCode::NotFound, &e.to_string());
        let root = Arc::new(beneath::open_directory(&self.root).map_err(|e| refuse(&e))?);
        match direction {
            Direction::ClientSends => {
                let names = relative_path(&open.paths[0]).map_err(|e| refuse(&e))?;
                let directory = Arc::new(beneath::make_directories(root.as_fd(), &names).map_err(|e| refuse(&e))?);
                let sink = Arc::new(PosixSink::new(root, directory, options.chmod));
                Ok(Opened::Receive { sink, rename_to: None, observer: None, file_system: "test".into(), asked: None })
            }
            Direction::ServerSends => {
                let mut source = PosixSource::new();
                for path in &open.paths {
                    source.add_beneath(root.as_fd(), path).map_err(|e| refuse(&e))?;
                }
                Ok(Opened::Send { source: Arc::new(source), is_single: false, observer: None })
            }
        }
    }

    fn ended(&self, _: &Grant, _: JobId, _: Direction, _: &Progress, _: &Ending) {}
}

pub struct Endpoint {
    pub address: String,
    pub pin: Pin,
}

/// Starts an endpoint that lives as long as the test process.
pub fn endpoint(root: &Path) -> Endpoint {
    serve(Server::new(Arc::new(OpenHost { root: root.to_owned() }), Memory::default()))
}

/// Listens for a server, and accepts as long as the test process lives.
pub fn serve(server: Arc<Server>) -> Endpoint {
    serve_telling(server, |_| {})
}

/// The same; tells how each connection ended.
pub fn serve_telling(server: Arc<Server>, told: impl Fn(Result<(), Refusal>) + Clone + Send + 'static) -> Endpoint {
    let identity = Identity::generate().unwrap();
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().to_string();
    let tls = ServerTls::new(&identity).unwrap();
    std::thread::spawn(move || {
        while let Ok(Some((tcp, _))) = listener.accept() {
            let (server, tls, told, arrived) = (server.clone(), tls.clone(), told.clone(), Instant::now());
            std::thread::spawn(move || {
                if let Ok(connection) = net::accept_tls(tcp, &tls, Instant::now() + Duration::from_secs(10)) {
                    told(server.serve(connection, arrived));
                }
            });
        }
    });
    Endpoint { address, pin: identity.pin() }
}

pub fn client(endpoint: &Endpoint, streams: Option<u32>) -> Client {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    let identity = IDENTITY.get_or_init(|| Identity::generate().unwrap());
    let options = ClientOptions {
        connector: Arc::new(Direct::new(&endpoint.address, DialOptions::new(identity, endpoint.pin).unwrap())),
        credential: Vec::new(),
        tuning: Tuning { streams, ..Tuning::default() },
        memory: Memory::default(),
    };
    Client::connect(options).map_err(|e| format!("{e:?}")).unwrap()
}

/// Content that differs in every file and place.
pub fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// A small tree with everything in it.
pub fn make_tree(root: &Path) {
    use std::os::unix::fs::{PermissionsExt, symlink};
    for (i, directory) in ["a", "a/b", "a/b/empty", "many"].iter().enumerate() {
        std::fs::create_dir_all(root.join(directory)).unwrap();
        std::fs::write(root.join(directory).join("f"), content(i as u64, i * 1000)).unwrap();
    }
    std::fs::remove_file(root.join("a/b/empty/f")).unwrap();
    for i in 0..700usize {
        std::fs::write(root.join(format!("many/{i:04}")), content(i as u64, (i * 37) % 3000)).unwrap();
    }
    for (i, size) in
        [0, 1, 131_072, 131_073, 1 << 20, (8 << 20) - 1, 8 << 20, (8 << 20) + 1, 20 << 20].iter().enumerate()
    {
        std::fs::write(root.join(format!("size{i}")), content(100 + i as u64, *size)).unwrap();
    }
    symlink("../nowhere", root.join("a/link")).unwrap();
    std::fs::set_permissions(root.join("size1"), std::fs::Permissions::from_mode(0o640)).unwrap();
    let old = std::time::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    std::fs::File::options().write(true).open(root.join("size2")).unwrap().set_modified(old).unwrap();
    std::fs::File::open(root.join("a/b/empty")).unwrap().set_modified(old).unwrap();
}

/// Every path with its kind, mode, time and content.
pub fn describe(root: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let mut lines = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for item in std::fs::read_dir(&directory).unwrap() {
            let path = item.unwrap().path();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let what = if meta.is_symlink() {
                format!("-> {:?}", std::fs::read_link(&path).unwrap())
            } else if meta.is_dir() {
                pending.push(path.clone());
                format!("dir {:o} {}.{:09}", meta.mode(), meta.mtime(), meta.mtime_nsec())
            } else {
                let digest = model::DigestAlgorithm::Blake3.of_object(&std::fs::read(&path).unwrap());
                format!("{:o} {} {}.{:09} {digest}", meta.mode(), meta.len(), meta.mtime(), meta.mtime_nsec())
            };
            lines.push(format!("{} {what}", path.strip_prefix(root).unwrap().display()));
        }
    }
    lines.sort();
    lines
}
