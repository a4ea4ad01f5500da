//! What the lanes and large files of one sink have in common: directories, what a file gets besides content, and its name.
//!
//! Invariants: a name appears by one rename; where the server cannot replace in one step, nothing is replaced.

use super::listing::join;
use super::packet::Attributes;
use super::server::Server;
use super::session::{Fault, Session};
use super::held::Small;

use model::{Entry, FailureKind, ObjectId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use store::{Error, Held, PublishRule, Result};

/// What names of staged files begin with.
pub const STAGED_PREFIX: &str = ".thalweg-staging-sftp-";
/// Less room than this is none: a server does not say why a write failed.
const ROOM_BYTES: u64 = 1 << 20;

pub struct Job {
    pub server: Arc<Server>,
    pub held: Held<Small>,
    pub is_rehearsal: bool,
    pub keeps_mode: bool,
    /// Permission bits in place of the source's: of files, of directories.
    pub chmod: Option<(u32, u32)>,
    pub directories: Mutex<HashMap<ObjectId, Directory>>,
    pub numbers: AtomicU64,
    /// The file that was published last.
    pub newest: Mutex<Option<Vec<u8>>>,
}

#[derive(Clone)]
pub struct Directory {
    pub path: Vec<u8>,
    /// For reports: empty, or with a slash behind it.
    pub shown: Vec<u8>,
    pub is_fresh: bool,
}

pub fn fault(kind: FailureKind, operation: &'static str, entry: &Entry, why: &str) -> Error {
    Error::of_kind(kind, operation, entry.name.as_bytes(), why)
}

/// A time as SFTP carries it.
pub fn seconds(entry: &Entry) -> u32 {
    entry.generation.modified.seconds.clamp(0, i64::from(u32::MAX)) as u32
}

impl Job {
    pub fn session(&self, operation: &'static str) -> Result<Arc<Session>> {
        let session = self.server.session().map_err(|fault| fault.on(operation, b""))?;
        Ok(session.0)
    }

    pub fn directory(&self, id: ObjectId) -> Result<Directory> {
        let found = self.directories.lock().unwrap().get(&id).cloned();
        found.ok_or_else(|| Error::of_kind(FailureKind::NotFound, "open directory", b"", "its directory is not there"))
    }

    pub fn path(&self, entry: &Entry) -> Result<Vec<u8>> {
        if entry.name.as_bytes().starts_with(store::STAGING_PREFIX) {
            let why = "names that begin so are kept for what is being copied";
            return Err(fault(FailureKind::NameRefused, "name file", entry, why));
        }
        Ok(join(&self.directory(entry.parent)?.path, entry.name.as_bytes()))
    }

    pub fn may_write(&self) -> Result<()> {
        match self.is_rehearsal {
            true => Err(Error::of_kind(FailureKind::ReadOnly, "write", b"", "a dry run writes nothing")),
            false => Ok(()),
        }
    }

    /// A name beside an entry's own that nothing has.
    pub fn staged_path(&self, entry: &Entry, mark: &str) -> Result<Vec<u8>> {
        let directory = self.directory(entry.parent)?.path;
        Ok(join(&directory, format!("{STAGED_PREFIX}{mark}").as_bytes()))
    }

    pub fn next_mark(&self) -> String {
        format!("{}-{}", self.server.mark, self.numbers.fetch_add(1, Relaxed))
    }

    /// The bits that a new file is opened with, from which the server takes those that its own rules forbid.
    pub fn mode(&self, entry: &Entry) -> u32 {
        self.chmod.map_or(entry.mode & 0o777, |(files, _)| files)
    }

    /// What a file gets before it has its name. Without `--perms` the server's own rules for new files stay in force.
    pub fn attributes(&self, entry: &Entry) -> Attributes {
        let mode = match self.chmod {
            Some((files, _)) => Some(files),
            None => self.keeps_mode.then_some(entry.mode),
        };
        Attributes { mode, modified: Some(seconds(entry)), ..Attributes::default() }
    }

    /// An error of a write, which may be that there is no room: the server does not say.
    pub fn write_failed(&self, session: &Session, fault: &Fault, path: &[u8]) -> Error {
        let error = fault.on("write file", path);
        let is_vague = matches!(fault, Fault::Status { .. }) && error.kind == FailureKind::WriteError;
        match is_vague.then(|| session.room(path).or_else(|| session.room(self.root()?.as_slice()))).flatten() {
            Some(room) if room.free_bytes < ROOM_BYTES => {
                Error::of_kind(FailureKind::NoSpace, "write file", path, "there is no room left on the server")
            }
            _ => error,
        }
    }

    fn root(&self) -> Option<Vec<u8>> {
        self.directory(ObjectId::ROOT).ok().map(|root| root.path)
    }

    /// Gives a staged file its name.
    pub fn publish(&self, session: &Session, staged: &[u8], entry: &Entry, rule: PublishRule) -> Result<()> {
        self.publish_group(session, &[(staged, entry, rule)]).remove(0)
    }

    /// As `publish` of each, with all renames under way at once.
    pub fn publish_group(&self, session: &Session, group: &[(&[u8], &Entry, PublishRule)]) -> Vec<Result<()>> {
        let paths: Vec<_> = group.iter().map(|(_, entry, _)| self.path(entry)).collect();
        // A server that is not like OpenSSH may take a plain rename for leave to replace.
        let looks: Vec<_> = paths
            .iter()
            .map(|path| path.as_ref().ok().filter(|_| !session.can.posix_rename).map(|path| session.lstat(path)))
            .collect();
        let is_taken: Vec<_> =
            looks.into_iter().map(|look| look.is_some_and(|look| look.attributes().is_ok())).collect();
        let renames: Vec<_> = group
            .iter()
            .zip(&paths)
            .zip(&is_taken)
            .map(|(((staged, _, rule), path), is_taken)| match (path, rule) {
                (Err(_), _) => None,
                (Ok(_), _) if *is_taken => None,
                (Ok(path), PublishRule::Replace) if session.can.posix_rename => Some(session.rename_over(staged, path)),
                (Ok(path), _) => Some(session.rename(staged, path)),
            })
            .collect();
        let renamed = renames.into_iter().zip(paths).zip(group);
        renamed
            .map(|((ticket, path), (_, entry, rule))| {
                let path = path?;
                match ticket.map(|ticket| ticket.done()) {
                    Some(Ok(())) => {
                        *self.newest.lock().unwrap() = Some(path);
                        Ok(())
                    }
                    Some(Err(fault)) => Err(self.why_not(session, &path, entry, *rule, &fault)),
                    None => Err(in_the_way(entry, *rule)),
                }
            })
            .collect()
    }

    /// Why a rename was refused: a status does not tell.
    fn why_not(&self, session: &Session, path: &[u8], entry: &Entry, rule: PublishRule, why: &Fault) -> Error {
        let error = why.on("publish", path);
        match session.look(path) {
            Ok(Some(there)) if there.is_directory() => {
                fault(FailureKind::InTheWay, "publish", entry, "a directory stands where a file is to be")
            }
            Ok(Some(_)) if rule == PublishRule::NoReplace => in_the_way(entry, rule),
            _ => error,
        }
    }
}

fn in_the_way(entry: &Entry, rule: PublishRule) -> Error {
    let why = match rule {
        PublishRule::NoReplace => "something appeared there meanwhile",
        PublishRule::Replace => {
            "this server cannot replace a file in one step (no posix-rename@openssh.com): remove it there first"
        }
    };
    fault(FailureKind::InTheWay, "publish", entry, why)
}
