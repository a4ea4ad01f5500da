//! The server as `tree` asks for it.

use super::calls::target_of;
use super::large::SftpLarge;
use super::reading::{Handle, SftpFile};
use super::server::Server;
use super::session::{Fault, Result, Session, Ticket};
use super::source::SftpLane;
use crate::tree::{Asked, Attempts, Attributes, Children, Faulty, Job, Remote, Rename, Small, Stage, absent};
use model::{Entry, Extent};
use std::sync::Arc;
use store::{Abilities, Directories, Order, Seen, SinkFacts, SourceFile, SourceLane, StagedFile};

impl Server {
    /// Sends a request for each, and hears all answers.
    fn each<A, T>(
        &self,
        all: &[A],
        ask: impl Fn(&Session, &A) -> Ticket,
        hear: fn(Ticket) -> Result<T>,
    ) -> Vec<Result<T>> {
        let session = match self.session() {
            Ok((session, _)) => session,
            Err(fault) => return all.iter().map(|_| Err(fault.clone())).collect(),
        };
        let asked: Vec<_> = all.iter().map(|one| ask(&session, one)).collect();
        asked.into_iter().map(hear).collect()
    }

    fn one<T>(&self, ask: impl Fn(&Session) -> Ticket, hear: fn(Ticket) -> Result<T>) -> Result<T> {
        self.each(&[()], |session, ()| ask(session), hear).remove(0)
    }
}

impl Remote for Server {
    type Fault = Fault;

    const PROTOCOL: &'static str = "SFTP";
    const STAGED_PREFIX: &'static str = ".thalweg-staging-sftp-";
    const NO_REPLACING: &'static str =
        "this server cannot replace a file in one step (no posix-rename@openssh.com): remove it there first";

    fn name(&self) -> &str {
        &self.name
    }

    fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    fn look(&self, path: &[u8]) -> Asked<Attributes, Self> {
        self.one(|session| session.lstat(path), Ticket::attributes)
    }

    fn look_behind(&self, path: &[u8]) -> Asked<Attributes, Self> {
        self.one(|session| session.stat(path), Ticket::attributes)
    }

    fn look_all(&self, paths: &[Vec<u8>]) -> Vec<Asked<Attributes, Self>> {
        self.each(paths, |session, path| session.lstat(path), Ticket::attributes)
    }

    fn link_target(&self, path: &[u8]) -> Asked<Vec<u8>, Self> {
        self.one(|session| session.readlink(path), target_of)
    }

    fn children(&self, path: &[u8], with_targets: bool) -> Asked<Children, Self> {
        self.session()?.0.children(path, with_targets)
    }

    fn make(&self, path: &[u8]) -> Asked<(), Self> {
        self.one(|session| session.mkdir(path), Ticket::done)
    }

    fn make_link(&self, target: &[u8], path: &[u8]) -> Asked<(), Self> {
        self.one(|session| session.symlink(target, path), Ticket::done)
    }

    fn remove_all(&self, paths: &[Vec<u8>]) -> Vec<Asked<(), Self>> {
        self.each(paths, |session, path| session.remove(path), Ticket::done)
    }

    fn remove_directory(&self, path: &[u8]) -> Asked<(), Self> {
        self.one(|session| session.rmdir(path), Ticket::done)
    }

    fn rename_all(&self, renames: &[Rename<'_>]) -> Vec<Asked<(), Self>> {
        let rename = |session: &Session, one: &Rename<'_>| match one.is_over {
            true => session.rename_over(one.from, one.to),
            false => session.rename(one.from, one.to),
        };
        self.each(renames, rename, Ticket::done)
    }

    fn replaces(&self) -> Asked<bool, Self> {
        Ok(self.session()?.0.can.posix_rename)
    }

    fn set(&self, path: &[u8], attributes: &Attributes) -> Asked<(), Self> {
        self.one(|session| session.setstat(path, attributes), Ticket::done)
    }

    fn open(self: &Arc<Self>, path: Vec<u8>) -> store::Result<Arc<dyn SourceFile>> {
        Ok(Arc::new(SftpFile::open(self, path)?))
    }

    fn lane(self: &Arc<Self>, directories: Arc<Directories>) -> Box<dyn SourceLane> {
        Box::new(SftpLane::new(self.clone(), directories))
    }

    fn read_all(self: &Arc<Self>, path: &[u8], bytes_max: u64, each: &mut dyn FnMut(&[u8])) -> store::Result<()> {
        let failed = |fault: Fault| fault.on("read back", path);
        let (session, limits) = self.session().map_err(failed)?;
        let handle = session.open_to_read(path).handle().map_err(failed)?;
        let handle = Handle::new(session, limits, handle);
        // One more, by which a longer file is known.
        let read = handle.read(Extent { start: 0, end: bytes_max.saturating_add(1) }, &mut |bytes| {
            each(bytes);
            true
        });
        read.map(drop).map_err(failed)
    }

    fn facts(&self, root: &[u8]) -> store::Result<SinkFacts> {
        let (session, _) = self.session().map_err(|fault| fault.on("look at", b""))?;
        let room = session.room(root);
        Ok(SinkFacts {
            file_system: "sftp",
            // Nothing can be made to last on a server that does not sync.
            is_memory_backed: !session.can.fsync,
            cannot_sync: !session.can.fsync,
            free_bytes: room.map_or(u64::MAX, |room| room.free_bytes),
            free_inodes: room.and_then(|room| room.free_inodes),
            order: Order::Any,
            part_rule: None,
            shares_on: None,
            confirms: false,
            can: Abilities {
                compare: true,
                prune: true,
                amend: true,
                touch: true,
                reread: true,
                growth: true,
                ..Abilities::NONE
            },
        })
    }

    fn seen(&self) -> Vec<Seen> {
        let Ok((session, _)) = self.session() else { return Vec::new() };
        let can = session.can;
        vec![
            Seen::good("server", format!("{} speaks SFTP", self.name)),
            match can.posix_rename {
                true => Seen::good("replacing", "in one step (posix-rename@openssh.com)"),
                false => {
                    Seen::note("replacing", "not in one step", "no file that is there is replaced", Self::NO_REPLACING)
                }
            },
            match can.fsync {
                true => Seen::good("durability", "on demand (fsync@openssh.com)"),
                false => Seen::note(
                    "durability",
                    "nothing can be made to last (no fsync@openssh.com)",
                    "after a power loss there, files may lack content",
                    "OpenSSH 6.5 and later has it",
                ),
            },
        ]
    }

    fn send(self: &Arc<Self>, group: &mut [(u64, Small)], sync: bool) -> store::Result<()> {
        self.send_group(group, sync)
    }

    /// No request syncs a name. One that syncs the newest file has a file system with a journal write its names down too.
    fn sync_names(&self, newest: &[u8]) -> store::Result<()> {
        let failed = |fault: Fault| fault.on("sync names", newest);
        let (session, _) = self.session().map_err(failed)?;
        if !session.can.fsync {
            return Ok(());
        }
        match absent(session.open_to_read(newest).handle()) {
            Ok(Some(handle)) => {
                let synced = session.fsync(&handle).done();
                let _ = session.close(&handle);
                synced.map_err(failed)
            }
            // Gone, or not for its own writer to read.
            Ok(None) | Err(Fault::Status { .. }) => Ok(()),
            Err(fault) => Err(failed(fault)),
        }
    }
}

impl Stage for Server {
    fn begin(job: &Arc<Job<Self>>, entry: &Entry, stem: &str) -> store::Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        let (file, journal) = SftpLarge::begin(job.clone(), entry, stem)?;
        Ok((Arc::new(file), journal))
    }
}
