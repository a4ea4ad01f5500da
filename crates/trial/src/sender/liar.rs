//! An endpoint that describes what it is told to, whatever was asked for: the engine of the product with a source that lies.

use anyhow::{Context, Result};
use daemon::Ticket;
use model::{Entry, Generation, JobId, Pin, TransferOptions};
use mover::files::{How, NotReached};
use mover::session::{Grant, Host, HostFacts, Opened, Server};
use mover::{Ending, Memory, Progress};
use net::{Identity, Listener, ServerTls, accept_tls};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use store::posix::beneath::{self, Mounts};
use store::posix::target::Target;
use store::{DirectoryKey, End, Error, Found, Shelf, Source, SourceFile, SourceLane, SourceObject};
use wire::handshake::Direction;
use wire::message::Open;
use wire::{CloseCode, Refusal};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// What every file holds.
pub const CONTENT: &[u8] = b"evil";

pub struct Liar {
    script: Arc<Mutex<Vec<SourceObject>>>,
    ticket: Ticket,
}

impl Liar {
    /// `root` is what it answers questions from: a file `report` lies there.
    pub fn start(root: &Path) -> Result<Liar> {
        fs::create_dir_all(root).context("make a root for lies")?;
        fs::write(root.join("report"), CONTENT).context("make a root for lies")?;
        let script = Arc::new(Mutex::new(Vec::new()));
        let root = beneath::open_directory(root).context("open a root for lies")?;
        let identity = Identity::generate().map_err(|e| anyhow::anyhow!("{e}"))?;
        let listener = Listener::bind("127.0.0.1:0").map_err(|e| anyhow::anyhow!("{e}"))?;
        let ticket = Ticket {
            addresses: vec![listener.local_addr().to_string()],
            pin: identity.pin(),
            credential: [7; 32].into(),
            name: "evil".to_owned(),
        };
        let tls = ServerTls::new(&identity).map_err(|e| anyhow::anyhow!("{e}"))?;
        let server = Server::new(Arc::new(LiarHost { script: script.clone(), root }), Memory::default());
        std::thread::spawn(move || {
            while let Ok(Some((tcp, _))) = listener.accept() {
                let (server, tls, arrived) = (server.clone(), tls.clone(), Instant::now());
                std::thread::spawn(move || {
                    if let Ok(connection) = accept_tls(tcp, &tls, Instant::now() + HANDSHAKE_TIMEOUT) {
                        let _ = server.serve(connection, arrived);
                    }
                });
            }
        });
        Ok(Liar { script, ticket })
    }

    pub fn ticket(&self) -> String {
        self.ticket.to_text()
    }

    /// What the next job is told.
    pub fn say(&self, script: Vec<SourceObject>) {
        *self.script.lock().unwrap() = script;
    }
}

struct LiarHost {
    script: Arc<Mutex<Vec<SourceObject>>>,
    root: OwnedFd,
}

impl Host for LiarHost {
    fn facts(&self) -> HostFacts {
        HostFacts { name: "evil".to_owned(), is_read_only: false }
    }

    fn authorise(&self, peer: Pin, _: &[u8]) -> Result<Grant, Refusal> {
        Ok(Grant { pin: peer, name: "anyone".to_owned(), account: "any".to_owned(), may_write: true, warrant: None })
    }

    fn open(
        &self,
        _: &Grant,
        _: JobId,
        direction: Direction,
        _: &Open,
        _: &TransferOptions,
    ) -> Result<Opened, Refusal> {
        if direction == Direction::ClientSends {
            return Err(Refusal::new(CloseCode::Forbidden, "only lies are told here"));
        }
        let source = Arc::new(LyingSource(self.script.lock().unwrap().clone()));
        Ok(Opened::Send { source, is_single: true, observer: None })
    }

    fn reach(&self, _: &Grant, path: &[u8], how: How) -> Result<Box<dyn Shelf>, NotReached> {
        let failed = |e| NotReached::Failed(Error::new("open", b"", e));
        let names = model::name::relative_path(path).unwrap_or_default();
        let follows = how == How::Look && path.ends_with(b"/");
        let target = Target::beneath(self.root.as_fd(), &names, follows, Mounts::Kept).map_err(failed)?;
        Ok(Box::new(target))
    }

    fn ended(&self, _: &Grant, _: JobId, _: Direction, _: &Progress, _: &Ending) {}
}

struct LyingSource(Vec<SourceObject>);

impl Source for LyingSource {
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> store::Result<()> {
        let _ = self.0.iter().all(|object| emit(Found::Object(object.clone())));
        Ok(())
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        Box::new(LyingLane)
    }

    fn path(&self, object: &SourceObject) -> Vec<u8> {
        object.entry.name.as_bytes().to_vec()
    }

    fn look_again(&self, object: &SourceObject) -> store::Result<SourceObject> {
        Ok(object.clone())
    }
}

struct LyingLane;
struct LyingFile(Generation);

impl SourceLane for LyingLane {
    fn read_whole(&mut self, object: &SourceObject, buffer: &mut [u8]) -> store::Result<(usize, Generation)> {
        let read = CONTENT.len().min(buffer.len());
        buffer[..read].copy_from_slice(&CONTENT[..read]);
        Ok((read, object.entry.generation))
    }

    fn open(&mut self, object: &SourceObject) -> store::Result<Arc<dyn SourceFile>> {
        Ok(Arc::new(LyingFile(object.entry.generation)))
    }
}

impl SourceFile for LyingFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> store::Result<usize> {
        let rest = CONTENT.get(offset as usize..).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn is_at_end(&self) -> bool {
        true
    }

    fn generation(&self) -> store::Result<Generation> {
        Ok(self.0)
    }
}

pub fn object(entry: Entry, is_open_ended: bool) -> SourceObject {
    let end = if is_open_ended { End::ReadOnce } else { End::Known };
    SourceObject { directory: DirectoryKey(entry.parent.0), entry, end }
}
