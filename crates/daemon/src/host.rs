//! What an endpoint lets its clients do: who may come in, which paths can be read and written, what is written down.
//!
//! Invariants:
//! - Everything a client names is reached from the descriptor of the root, opened once, and never outside it (F040-F043).
//! - What a client is told names its own paths, never the server's.
//! - Rights are looked at for every job, and again while it runs (I14): what a session was opened with decides nothing.
//!   What needs which right is in `rights` alone.
//! - `null:` and `gen:COUNTxSIZE` reach no storage; whoever may write may also have what it sends forgotten.

mod drop_box;
mod files;
mod guests;
mod jobs;
mod ordered;
mod record;
pub mod rights;
mod scope;
mod stored;
mod terms;
mod attended;
mod cached;

use crate::advertise::Listening;
use crate::cache::Cache;
use crate::clients::ClientBook;
use crate::events::EventLog;
use crate::gate::Gate;
use crate::history::History;
use crate::hosts::{HostBook, Membership};
use crate::limited::SERVE_TICKET;
use crate::orders::Orders;
use crate::transfer_log::TransferLog;
use crate::warrant::{self, TakenBack};
use guests::Guests;
use jobs::Jobs;
use model::files::{Question, Tally};
use model::name::{self, Escaped, Name, NameError};
use model::options::Fsync;
use model::synthetic::{self, Generated};
use model::warrant::Signed;
use model::{Class, FailureKind, JobId, Pin, TransferOptions};
use mover::files::{How, NotReached};
use mover::session::{Grant, Host, HostFacts, Opened, Roster};
use mover::{Ending, Observer, Progress};
use net::route::LocalAddress;
pub use ordered::deeds_of;
pub use record::RunningJob;
use record::{Books, JobRecord};
use rights::{Deed, Rights};
use rustix::fs::{Access, AtFlags, accessat};
use rustix::io::Errno;
use scope::Asked;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use store::open::{OpenSink, OpenSource, land, look};
use store::posix::beneath::{Bounds, Mounts};
use store::posix::closed::is_closed;
use store::posix::facts::{STAGING_PREFIX, file_system};
use store::posix::{PosixSink, PosixSource};
use store::spool::Spool;
use store::synthetic::{GeneratedSource, NULL_FILE_SYSTEM, NullSink};
use store::{DropBox, Rehearsal, Shelf, Sink};
pub use stored::StoredRoots;
pub use terms::Rates;
use transfer::{LEAVES_ROOT, NOTHING_ELSE};
use wire::handshake::Direction;
use wire::limits::LEVELS_MADE_MAX;
use wire::message::Open;
use wire::{CloseCode, Message, Refusal};

/// Bytes of a path in a refusal: its reason has to fit behind it.
const PATH_SHOWN_BYTES_MAX: usize = 600;

pub struct EndpointHost {
    pub name: String,
    pub is_read_only: bool,
    pub root: Arc<OwnedFd>,
    /// Roots at stores; then nothing is reached in the directory.
    pub stored: StoredRoots,
    /// It serves sets of others; then nothing is reached in the directory either.
    pub cache: Option<Cache>,
    /// Whether clients reach file systems that are mounted below the root.
    pub mounts: Mounts,
    pub is_for_its_owner: bool,
    pub clients: ClientBook,
    pub gate: Arc<Gate>,
    pub log: Arc<TransferLog>,
    pub events: Arc<EventLog>,
    pub history: Arc<History>,
    pub jobs: Jobs,
    /// The key of this endpoint.
    pub pin: Pin,
    /// The hosts that it heads.
    pub hosts: HostBook,
    /// Who tells it of its clients, and of the other hosts, where that is somebody else.
    pub(crate) membership: OnceLock<Arc<Membership>>,
    pub taken_back: TakenBack,
    pub guests: Guests,
    /// What it listens on, and what it is told to advertise.
    pub listening: Listening,
    /// Where what clients send may wait for slow storage.
    pub buffer: Option<Arc<Spool>>,
    /// Jobs that it carries out in its clients' names, where it does.
    pub orders: OnceLock<Arc<Orders>>,
    /// The jobs that run here, its clients' and its own.
    pub roster: Arc<Roster>,
    /// What it agreed to, and who holds its jobs to that.
    pub rates: Rates,
}

impl EndpointHost {
    /// Waits until every job has ended, and writes down how those ended that do not in time.
    pub fn wait_jobs(&self, deadline: Instant) -> bool {
        let is_idle = self.jobs.wait_idle(deadline);
        self.jobs.end_all(JobRecord::abandoned);
        is_idle
    }

    fn record(
        &self,
        grant: &Grant,
        job: JobId,
        direction: Direction,
        open: &Open,
        options: &TransferOptions,
    ) -> Arc<dyn Observer> {
        let (log, events, history) = (self.log.clone(), self.events.clone(), self.history.clone());
        let books = Books { log, events, history };
        let record = JobRecord::begin(books, &self.name, grant, job, direction, open, options);
        self.jobs.add((grant.party(), job, direction as u32), record)
    }

    fn open_destination(&self, rights: &Rights, job: JobId, open: &Open, fsync: Fsync) -> Result<Destination, Refusal> {
        let [path] = &open.paths[..] else {
            return Err(Refusal::new(CloseCode::Malformed, "a job that does not name exactly one destination"));
        };
        refuse_synthetic(path)?;
        let asked = self.locate(rights, path)?;
        check_depth(path, &asked.below)?;
        let is_of_set = |name: &Name| name.as_bytes().eq_ignore_ascii_case(model::set::DIRECTORY.as_bytes());
        if rights.is_drop_box && asked.below.iter().any(is_of_set) {
            return Err(forbidden(path, "a client that may only write makes no sets"));
        }
        let base = asked.make_base(self.root.as_fd()).map_err(|e| refuse(path, &e))?;
        let (bounds, tag) = (self.bounds(rights), rights.is_drop_box.then(|| drop_box::tag_of(job)));
        let is_durable = fsync != Fsync::Never;
        let mut make = |names: &[Name]| {
            let made = match &tag {
                Some(tag) => drop_box::make_directories(bounds, base.as_fd(), names, tag, is_durable),
                None => bounds.make_directories(base.as_fd(), names, is_durable),
            };
            made.map_err(|e| refuse(path, &e))
        };
        let opened = |names: &[Name]| match bounds.resolve_directory(base.as_fd(), names) {
            Err(e) if is_no_directory(&e) || tag.is_some() && drop_box::is_in_the_way(&e) => Ok(None),
            opened => opened.map(Some).map_err(|e| refuse(path, &e)),
        };
        let may_be_new_name = open.is_single && !names_contents(path);
        let (directory, rename_to) = land(&asked.below, may_be_new_name, &opened, &mut make)?;
        may_write(&directory).map_err(|e| refuse(path, &io::Error::from(e)))?;
        let directory = Arc::new(directory);
        // A root that belongs to somebody else can hold writable directories, but no staging.
        let staging_parent = if may_write(&self.root).is_ok() { &self.root } else { &directory };
        Ok(Destination { staging_parent: staging_parent.clone(), directory, rename_to, tag })
    }

    /// The destination of a dry run, as far as it exists, and what a single object would be called there.
    fn look_at_destination(&self, rights: &Rights, open: &Open) -> Result<(Option<PosixSink>, Option<Name>), Refusal> {
        let [path] = &open.paths[..] else {
            return Err(Refusal::new(CloseCode::Malformed, "a job that does not name exactly one destination"));
        };
        refuse_synthetic(path)?;
        let asked = self.locate(rights, path)?;
        let opened = |names: &[Name]| match asked.look_beneath(self.root.as_fd(), names) {
            Ok(directory) => Ok(Some(directory)),
            Err(e) if is_no_directory(&e) => Ok(None),
            Err(e) => Err(refuse(path, &e)),
        };
        let sink = |directory: OwnedFd| {
            let directory = Arc::new(directory);
            PosixSink::new(directory.clone(), directory, None).keep_within(self.bounds(rights))
        };
        let (directory, rename_to) = look(&asked.below, open.is_single && !names_contents(path), &opened)?;
        Ok((directory.map(sink), rename_to))
    }

    /// Whether whoever has these rights may do something with a path; before anything of it is looked at.
    fn check(&self, rights: &Rights, deed: Deed, path: &[u8]) -> Result<(), Refusal> {
        deed.refused(rights, self.is_read_only).map_or(Ok(()), |why| Err(forbidden(path, &why)))
    }

    /// What whoever has these rights may enter below the root.
    fn bounds(&self, rights: &Rights) -> Bounds {
        // Who serves a directory of their own reads all that they may read without an endpoint.
        Bounds { mounts: self.mounts, reader: rights.reader.filter(|_| !self.is_for_its_owner) }
    }

    /// Looks again whether a path may be reached, while a job runs on it.
    fn check_open(&self, rights: &Rights, path: &[u8]) -> Result<(), Refusal> {
        let asked = self.locate(rights, path)?;
        if self.cache.is_some() && !synthetic::is_synthetic(path) {
            return self.check_cached(rights, path);
        }
        let is_here = self.stored.is_empty() && !synthetic::is_synthetic(path);
        let closed = is_here.then(|| asked.closed(self.root.as_fd())).flatten();
        closed.map_or(Ok(()), |e| Err(refuse(path, &e)))
    }

    /// What a path means below that which a ticket is limited to.
    fn locate(&self, rights: &Rights, path: &[u8]) -> Result<Asked, Refusal> {
        if synthetic::is_synthetic(path) {
            return Ok(Asked::default());
        }
        Asked::within(&rights.scope, names_of(path)?, self.bounds(rights)).ok_or_else(|| {
            let scope = Escaped(&name::join(&rights.scope)).to_string();
            forbidden(path, &format!("this client may reach {scope} {NOTHING_ELSE}"))
        })
    }

    fn open_sources(&self, rights: &Rights, open: &Open) -> Result<PosixSource, Refusal> {
        let mut source = PosixSource::new();
        source.keep_within(self.bounds(rights));
        for path in &open.paths {
            let asked = self.locate(rights, path)?;
            let (base, below) =
                asked.open_base(self.root.as_fd(), names_contents(path)).map_err(|e| refuse(path, &e))?;
            source.add_beneath(base.as_fd(), &below).map_err(|e| match e.kind {
                FailureKind::NotFound => {
                    Refusal::new(CloseCode::NotFound, &with_path(path, "no such file or directory"))
                }
                _ => refuse(path, &e.source),
            })?;
        }
        Ok(source)
    }
}

struct Destination {
    staging_parent: Arc<OwnedFd>,
    directory: Arc<OwnedFd>,
    rename_to: Option<Name>,
    /// Of what is put aside, where the client may not know what is there.
    tag: Option<String>,
}

impl Host for EndpointHost {
    fn facts(&self) -> HostFacts {
        HostFacts { name: self.name.clone(), is_read_only: self.is_read_only }
    }

    fn addresses(&self) -> Vec<LocalAddress> {
        self.listening.addresses()
    }

    fn authorise(&self, peer: Pin, credential: &[u8]) -> Result<Grant, Refusal> {
        let name = || {
            let from = self.gate.address_of(peer).map_or_else(|| "unknown".to_owned(), |ip| ip.to_string());
            format!("{}@{from}", &peer.to_string()[..8])
        };
        if Signed::is_one(credential) {
            return self.authorise_by_warrant(peer, credential);
        }
        let (client, rights) = self.clients.authorise(peer, credential, name)?;
        let account = client.ticket.unwrap_or_else(|| SERVE_TICKET.to_owned());
        self.gate.admit(peer, &account);
        Ok(Grant {
            pin: peer,
            name: client.name,
            account,
            may_write: rights.may_write && !self.is_read_only,
            warrant: None,
        })
    }

    fn roster(&self) -> Option<&Arc<Roster>> {
        Some(&self.roster)
    }

    fn class(&self, grant: &Grant, options: &TransferOptions) -> Class {
        options
            .class
            .unwrap_or_else(|| self.rights(grant).map_or(Class::Low, |rights| rights.class_max.min(Class::Normal)))
    }

    fn may_go_on(&self, grant: &Grant, job: Option<(Direction, &[Vec<u8>])>) -> Result<(), Refusal> {
        let rights = self.rights(grant)?;
        let (direction, paths) = job.unwrap_or((Direction::ServerSends, &[]));
        let deed = if direction == Direction::ServerSends { Deed::Fetch } else { Deed::Send };
        paths.iter().try_for_each(|path| {
            self.check(&rights, deed, path)?;
            check_mandate(grant, deed, path)?;
            self.check_open(&rights, path)
        })
    }

    fn open(
        &self,
        grant: &Grant,
        job: JobId,
        direction: Direction,
        open: &Open,
        options: &TransferOptions,
    ) -> Result<Opened, Refusal> {
        let rights = self.rights(grant)?;
        if grant.warrant.as_ref().is_some_and(|mandate| mandate.warrant.job != job) {
            return Err(Refusal::new(CloseCode::Authentication, "the warrant is for another job"));
        }
        for deed in Deed::of_job(direction, &open.paths, options) {
            self.check(&rights, deed, &open.paths[0])?;
            open.paths.iter().try_for_each(|path| check_mandate(grant, deed, path))?;
        }
        rights.check_class(options.class)?;
        match direction {
            Direction::ClientSends if open.paths.iter().any(|path| synthetic::is_null(path)) => {
                let observer = Some(self.record(grant, job, direction, open, options));
                let file_system = NULL_FILE_SYSTEM.to_owned();
                Ok(Opened::Receive { sink: Arc::new(NullSink), rename_to: None, observer, file_system, asked: None })
            }
            Direction::ClientSends if !self.stored.is_empty() => {
                let opened = self.open_stored(&rights, job, open, options)?;
                let observer = Some(self.record(grant, job, direction, open, options));
                let file_system = opened.sink.facts().map_or("", |facts| facts.file_system).to_owned();
                let OpenSink { sink, rename_to, .. } = opened;
                Ok(Opened::Receive { sink, rename_to, observer, file_system, asked: None })
            }
            Direction::ClientSends if options.is_dry_run => {
                let (there, rename_to) = self.look_at_destination(&rights, open)?;
                let there = there.map(|there| equipped(there, options));
                let sink = Arc::new(Rehearsal::new(there));
                let observer = Some(self.record(grant, job, direction, open, options));
                Ok(Opened::Receive { sink, rename_to, observer, file_system: String::new(), asked: None })
            }
            Direction::ClientSends => {
                let destination = self.open_destination(&rights, job, open, options.fsync)?;
                let file_system = file_system(destination.directory.as_fd()).to_owned();
                let sink = PosixSink::new(destination.staging_parent, destination.directory, options.chmod);
                let sink: Arc<dyn Sink> = Arc::new(equipped(sink.keep_within(self.bounds(&rights)), options));
                let sink = match destination.tag {
                    Some(tag) => Arc::new(DropBox::new(sink, &tag)),
                    None => sink,
                };
                let observer = Some(self.record(grant, job, direction, open, options));
                let rename_to = destination.rename_to;
                Ok(Opened::Receive { sink, rename_to, observer, file_system, asked: None })
            }
            Direction::ServerSends if open.paths.iter().any(|path| synthetic::is_synthetic(path)) => {
                let source = Arc::new(generated(open)?);
                let observer = Some(self.record(grant, job, direction, open, options));
                Ok(Opened::Send { source, is_single: false, observer })
            }
            Direction::ServerSends if self.cache.is_some() || !self.stored.is_empty() => {
                let OpenSource { source, is_single } = self.elsewhere(&rights, open, options, &options.selection)?;
                let observer = Some(self.record(grant, job, direction, open, options));
                Ok(Opened::Send { source, is_single, observer })
            }
            Direction::ServerSends => {
                let mut source = self.open_sources(&rights, open)?;
                source.select(options.selection.clone());
                source.keep(options.fidelity);
                let is_single = source.is_single_object();
                let observer = self.record(grant, job, direction, open, options);
                Ok(Opened::Send { source: Arc::new(source), is_single, observer: Some(observer) })
            }
        }
    }

    fn reach(&self, grant: &Grant, path: &[u8], how: How) -> Result<Box<dyn Shelf>, NotReached> {
        self.reach_file(grant, path, how)
    }

    fn answered(&self, grant: &Grant, question: &Question, answered: &Result<Tally, Refusal>) {
        self.record_answer(grant, question, answered);
    }

    fn request(&self, grant: &Grant, message: Message) -> Result<(Vec<Message>, u32), Refusal> {
        self.answer_request(grant, message)
    }

    fn buffer(&self) -> Option<Arc<Spool>> {
        self.buffer.clone()
    }

    fn ended(&self, grant: &Grant, job: JobId, direction: Direction, progress: &Progress, ending: &Ending) {
        let snapshot = progress.snapshot();
        self.jobs.end((grant.party(), job, direction as u32), |record| record.end(&snapshot, ending));
    }
}

/// Holds whoever is here by a warrant to what that says.
fn check_mandate(grant: &Grant, deed: Deed, path: &[u8]) -> Result<(), Refusal> {
    match &grant.warrant {
        None => Ok(()),
        Some(mandate) => warrant::check_deed(mandate, deed, path).map_err(|why| forbidden(path, &why)),
    }
}

/// A sink with what a client asks of it besides content. What clients describe is never this host's own.
pub fn equipped(sink: PosixSink, options: &TransferOptions) -> PosixSink {
    sink.with_backup(options.backup.as_deref()).with_fidelity(options.fidelity, false)
}

/// The source that `gen:` names; it comes alone.
pub fn generated(open: &Open) -> Result<GeneratedSource, Refusal> {
    match &open.paths[..] {
        [path] => match Generated::parse(path) {
            Some(Ok(spec)) => Ok(GeneratedSource::new(spec)),
            Some(Err(why)) => Err(Refusal::new(CloseCode::Forbidden, &why)),
            None => Err(forbidden(path, "nothing can be read there")),
        },
        _ => Err(forbidden(&open.paths[0], "a generated source must be the only one")),
    }
}

/// The names of a path that a client sent.
fn names_of(path: &[u8]) -> Result<Vec<Name>, Refusal> {
    let names = model::name::relative_path(path).map_err(|e| match e {
        NameError::Separator if path.first() == Some(&b'/') => forbidden(path, LEAVES_ROOT),
        NameError::Dots => forbidden(path, LEAVES_ROOT),
        e => forbidden(path, &e.to_string()),
    })?;
    if names.iter().any(|name| name.as_bytes().starts_with(STAGING_PREFIX)) {
        return Err(forbidden(path, "the staging of transfers belongs to the endpoint"));
    }
    Ok(names)
}

/// What a client names is made for it, level by level: no more of them than anybody needs.
fn check_depth(path: &[u8], names: &[Name]) -> Result<(), Refusal> {
    if names.len() <= LEVELS_MADE_MAX {
        return Ok(());
    }
    Err(forbidden(path, &format!("a path to write to has at most {LEVELS_MADE_MAX} names")))
}

/// The path can only mean a directory.
pub fn names_contents(path: &[u8]) -> bool {
    path.ends_with(b"/") || path.ends_with(b"/.") || path == b"."
}

pub fn is_no_directory(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Asks the kernel, without trying. A kernel or file system that cannot say does not forbid.
pub fn may_write(directory: &OwnedFd) -> Result<(), Errno> {
    match accessat(directory, c".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
        Err(e @ (Errno::ACCESS | Errno::PERM | Errno::ROFS)) => Err(e),
        _ => Ok(()),
    }
}

pub fn refuse(path: &[u8], e: &io::Error) -> Refusal {
    match e.kind() {
        io::ErrorKind::NotFound => Refusal::new(CloseCode::NotFound, &with_path(path, "no such file or directory")),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Refusal::new(CloseCode::NoSpace, &with_path(path, "no space left at the endpoint"))
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            forbidden(path, "a file or a symbolic link stands where a directory is needed")
        }
        io::ErrorKind::ReadOnlyFilesystem => forbidden(path, "the endpoint's file system is read-only"),
        _ if is_closed(e) => forbidden(path, &e.to_string()),
        io::ErrorKind::PermissionDenied if e.raw_os_error().is_none() => {
            forbidden(path, "the path leads outside the endpoint's root")
        }
        // It says which mount, by its path below what the client may reach.
        io::ErrorKind::CrossesDevices if e.raw_os_error().is_none() => forbidden(path, &e.to_string()),
        io::ErrorKind::PermissionDenied => forbidden(path, "the endpoint's user has no permission"),
        io::ErrorKind::InvalidFilename => forbidden(path, "the name is too long"),
        _ if e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => forbidden(path, "too many symbolic links"),
        _ => Refusal::new(CloseCode::Internal, &with_path(path, &e.to_string())),
    }
}

/// A name of something else than a file is none of the storage's, whatever a ticket reaches there.
fn refuse_synthetic(path: &[u8]) -> Result<(), Refusal> {
    match synthetic::is_synthetic(path) {
        true => Err(forbidden(path, "there is no storage behind this path")),
        false => Ok(()),
    }
}

pub fn forbidden(path: &[u8], why: &str) -> Refusal {
    Refusal::new(CloseCode::Forbidden, &with_path(path, why))
}

/// The other side escapes what could harm whoever reads it; what is no UTF-8 would not get there.
fn with_path(path: &[u8], why: &str) -> String {
    let mut shown = if path.is_empty() { "its root".to_owned() } else { String::new() };
    for chunk in path.utf8_chunks() {
        shown.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| shown.push_str(&format!("\\x{byte:02x}")));
    }
    if shown.len() > PATH_SHOWN_BYTES_MAX {
        let end = (0..=PATH_SHOWN_BYTES_MAX).rev().find(|at| shown.is_char_boundary(*at)).unwrap_or(0);
        shown.truncate(end);
        shown.push_str("...");
    }
    format!("{shown}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_of_the_file_system_has_its_words_and_code() {
        let refusal = |errno: Errno| refuse(b"a/b", &errno.into());
        for (errno, code, words) in [
            (Errno::NOENT, CloseCode::NotFound, "a/b: no such file or directory"),
            (Errno::ACCESS, CloseCode::Forbidden, "a/b: the endpoint's user has no permission"),
            (Errno::ROFS, CloseCode::Forbidden, "a/b: the endpoint's file system is read-only"),
            (Errno::LOOP, CloseCode::Forbidden, "a/b: too many symbolic links"),
            (Errno::NOSPC, CloseCode::NoSpace, "a/b: no space left at the endpoint"),
            (Errno::IO, CloseCode::Internal, "a/b: Input/output error (os error 5)"),
        ] {
            assert_eq!(refusal(errno), Refusal { code, text: words.to_owned() });
        }
    }

    #[test]
    fn the_reason_fits_behind_any_path() {
        let refusal = refuse(&[0xff; 4096], &Errno::ACCESS.into());
        assert!(refusal.text.ends_with("...: the endpoint's user has no permission"), "{}", refusal.text);
    }

    #[test]
    fn directories_are_asked_for_by_a_slash_or_a_dot() {
        assert!(names_contents(b"a/") && names_contents(b"a/.") && names_contents(b"."));
        assert!(!names_contents(b"a") && !names_contents(b"a/b.") && !names_contents(b""));
    }
}
