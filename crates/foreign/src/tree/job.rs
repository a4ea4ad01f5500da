//! What the lanes and large files of one sink have in common: directories, what a file gets besides content, and its name.
//!
//! Invariants: a name appears by one rename; where the server cannot replace in one step, nothing is replaced.

use super::attributes::Attributes;
use super::held::Small;
use super::remote::{Asked, Faulty, Remote, Rename, absent, join};
use model::{Entry, FailureKind, ObjectId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use store::{Error, Held, PublishRule, Result, StagedFile};

pub struct Job<R> {
    pub server: Arc<R>,
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

/// How large files are staged at a server.
pub trait Stage: Remote {
    fn begin(job: &Arc<Job<Self>>, entry: &Entry, stem: &str) -> Result<(Arc<dyn StagedFile>, Vec<u8>)>;
}

#[derive(Clone)]
pub struct Directory {
    pub path: Vec<u8>,
    /// For reports: empty, or with a slash behind it.
    pub shown: Vec<u8>,
    pub is_fresh: bool,
}

/// A time in whole seconds.
pub fn seconds(entry: &Entry) -> u32 {
    entry.generation.modified.seconds.clamp(0, i64::from(u32::MAX)) as u32
}

impl<R: Remote> Job<R> {
    pub fn directory(&self, id: ObjectId) -> Result<Directory> {
        let found = self.directories.lock().unwrap().get(&id).cloned();
        found.ok_or_else(Error::no_directory)
    }

    pub fn path(&self, entry: &Entry) -> Result<Vec<u8>> {
        if entry.name.as_bytes().starts_with(store::STAGING_PREFIX) {
            return Err(Error::name_kept(entry));
        }
        Ok(join(&self.directory(entry.parent)?.path, entry.name.as_bytes()))
    }

    pub fn may_write(&self) -> Result<()> {
        match self.is_rehearsal {
            true => Err(Error::rehearses()),
            false => Ok(()),
        }
    }

    /// A name beside an entry's own that nothing has.
    pub fn staged_path(&self, entry: &Entry, mark: &str) -> Result<Vec<u8>> {
        let directory = self.directory(entry.parent)?.path;
        Ok(join(&directory, format!("{}{mark}", R::STAGED_PREFIX).as_bytes()))
    }

    pub fn next_mark(&self) -> String {
        format!("{}-{}", self.server.attempts().mark, self.numbers.fetch_add(1, Relaxed))
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

    /// A stem of its own for one attempt at a large file: another of this process may have the one that is asked for.
    pub fn hold(&self, stem: &str) -> String {
        let attempts = self.server.attempts();
        let mut stem = stem.to_owned();
        if !attempts.hold(&stem) {
            stem = format!("{stem}-{}", self.next_mark());
            attempts.hold(&stem);
        }
        stem
    }

    pub fn journal_path(&self, entry: &Entry, stem: &str) -> Result<Vec<u8>> {
        Ok([&self.staged_path(entry, stem)?, &b".journal"[..]].concat())
    }

    pub fn has_journal(&self, entry: &Entry, stem: &str) -> bool {
        let find = || self.server.find(&self.journal_path(entry, stem).ok()?).ok()?;
        find().and_then(|there| there.size_bytes).is_some_and(|size| size > 0)
    }

    /// Gives a staged file its name.
    pub fn publish(&self, staged: &[u8], entry: &Entry, rule: PublishRule) -> Result<()> {
        self.publish_group(&[(staged, entry, rule)]).remove(0)
    }

    /// As `publish` of each, all at once.
    pub fn publish_group(&self, group: &[(&[u8], &Entry, PublishRule)]) -> Vec<Result<()>> {
        let failed = |fault: R::Fault| fault.on("publish", b"");
        let replaces = match self.server.replaces() {
            Ok(replaces) => replaces,
            Err(fault) => return group.iter().map(|_| Err(failed(fault.clone()))).collect(),
        };
        let paths: Vec<_> = group.iter().map(|(_, entry, _)| self.path(entry)).collect();
        let is_free = self.free(group, &paths, replaces);
        let renames: Vec<_> = group
            .iter()
            .zip(&paths)
            .zip(&is_free)
            .filter_map(|(((from, _, rule), path), is_free)| {
                let to = path.as_ref().ok().filter(|_| matches!(is_free, Ok(true)))?;
                Some(Rename { from, to, is_over: *rule == PublishRule::Replace && replaces })
            })
            .collect();
        let mut renamed = self.server.rename_all(&renames).into_iter();
        let mut publish = |path: Result<Vec<u8>>, entry: &Entry, rule, is_free: Asked<bool, R>| {
            let path = path?;
            match is_free {
                Err(fault) => Err(fault.on("publish", &path)),
                Ok(false) => Err(Self::in_the_way(entry, rule)),
                Ok(true) => match renamed.next().expect("each was asked for") {
                    Ok(()) => {
                        *self.newest.lock().unwrap() = Some(path);
                        Ok(())
                    }
                    Err(fault) => Err(self.why_not(&path, entry, rule, &fault)),
                },
            }
        };
        let each = paths.into_iter().zip(group).zip(is_free);
        each.map(|((path, (_, entry, rule)), is_free)| publish(path, entry, *rule, is_free)).collect()
    }

    /// Which of the names may be given. A server may replace by a rename that should not: whoever must not replace looks before.
    fn free(
        &self,
        group: &[(&[u8], &Entry, PublishRule)],
        paths: &[Result<Vec<u8>>],
        replaces: bool,
    ) -> Vec<Asked<bool, R>> {
        let must_look = |rule: &PublishRule| !replaces || *rule == PublishRule::NoReplace;
        let wanted = group.iter().zip(paths).filter(|((_, _, rule), _)| must_look(rule));
        let wanted: Vec<_> = wanted.filter_map(|(_, path)| path.as_ref().ok().cloned()).collect();
        let mut looks = self.server.look_all(&wanted).into_iter();
        let each = group.iter().zip(paths);
        each.map(|((_, _, rule), path)| match path.is_ok() && must_look(rule) {
            // A look that failed says nothing.
            true => looks.next().map_or(Ok(false), |look| Ok(absent(look)?.is_none())),
            false => Ok(path.is_ok()),
        })
        .collect()
    }

    /// Why a rename was refused: a status does not tell.
    fn why_not(&self, path: &[u8], entry: &Entry, rule: PublishRule, why: &R::Fault) -> Error {
        let error = why.on("publish", path);
        let there: Asked<_, R> = self.server.find(path);
        match there {
            Ok(Some(there)) if there.is_directory() => Error::directory_there("publish", entry),
            Ok(Some(_)) if rule == PublishRule::NoReplace => Self::in_the_way(entry, rule),
            _ => error,
        }
    }

    fn in_the_way(entry: &Entry, rule: PublishRule) -> Error {
        let why = match rule {
            PublishRule::NoReplace => "something appeared there meanwhile",
            PublishRule::Replace => R::NO_REPLACING,
        };
        Error::of_entry(FailureKind::InTheWay, "publish", entry, why)
    }
}
