//! What the far side lets its one client do: read the paths that were named, or write to the one that was.
//!
//! Paths are the user's own, relative to the directory they log in to or absolute: links in what is there already are
//! followed, as in any program they would run there. What is opened here, before the process is confined, is all there is.
//!
//! Invariants:
//! - A session is for reading, for writing, or for questions about files, and for nothing else.
//! - A job that names another path, or the other direction, is refused.
//! - Below what was opened, names are followed one at a time from descriptors (`store::posix::beneath`).

use super::message::{Access, BoundTerms, CopyTerms, ServeRequest};
use daemon::error::{Error, Result, shown};
use daemon::host::{equipped, forbidden, generated, is_no_directory, may_write, names_contents, refuse};
use daemon::sandbox::{self, Left};
use model::filter::{Filter, Rule};
use model::selection::{Bounds, Listed};
use model::{Exit, JobId, Name, Pin, Selection, TransferOptions, synthetic};
use mover::files::{Here, How, NotReached, Reach};
use mover::receiver::Asked;
use mover::session::{Grant, Host, HostFacts, Opened};
use mover::{Ending, Progress};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::open::{land, look};
use store::posix::facts::{STAGING_PREFIX, file_system};
use store::posix::{PosixSink, PosixSource, beneath};
use store::synthetic::{NULL_FILE_SYSTEM, NullSink};
use store::{Rehearsal, Shelf};
use wire::handshake::Direction;
use wire::message::Open;
use wire::{CloseCode, Refusal};

/// Under whom staging is kept. Whoever logs in as this user may do anything with it by other means, and a host that sends for a
/// client has a new key each time.
const WHOEVER: Pin = Pin(*b"thalweg: whoever ssh let in here");

/// What was opened for a request.
pub enum Offer {
    Read(Vec<Readable>),
    Write(Writable),
    /// Questions about files: the user may ask for whatever they could do in a shell there.
    Files,
    /// No storage is touched: `null:` or `gen:COUNTxSIZE`.
    Synthetic(Direction),
}

/// An object that may be read.
pub struct Readable {
    /// The directory it is in, or itself where its contents were asked for.
    base: OwnedFd,
    /// Its name in that directory.
    name: Option<Name>,
}

/// Where may be written.
pub struct Writable {
    /// The deepest directory of the path that is there.
    directory: Arc<OwnedFd>,
    /// What is missing below it.
    names: Vec<Name>,
}

impl Offer {
    pub fn open(request: &ServeRequest) -> Result<Offer> {
        if request.access == Access::Files {
            return Ok(Offer::Files);
        }
        let paths: Vec<&[u8]> = request.paths.iter().map(|path| &path.0[..]).collect();
        if paths.iter().any(|path| synthetic::is_synthetic(path)) {
            return Ok(Offer::Synthetic(direction_of(request.access)));
        }
        match (request.access, &paths[..]) {
            (_, []) => Err(Error::new(Exit::Fatal, "a request without a path")),
            (Access::Write, [path]) => Writable::open(path).map(Offer::Write),
            (Access::Write, _) => Err(Error::new(Exit::Fatal, "a request for more than one destination")),
            (Access::Read | Access::Files, paths) => {
                paths.iter().map(|path| Readable::open(path)).collect::<Result<_>>().map(Offer::Read)
            }
        }
    }

    /// Confines this process to what was opened. Called on its only thread.
    pub fn confine(&self) -> &'static str {
        // Confined, this process could not ask what users are called.
        store::posix::owners::remember();
        store::posix::host::own();
        let objects;
        let left = match self {
            // Which paths will be asked for is not known, and nothing is gained over a shell.
            Offer::Files => return "off",
            Offer::Write(writable) => Left::ReadAndWrite(writable.directory.as_fd(), &[]),
            Offer::Read(readables) => {
                objects = readables.iter().filter_map(|readable| readable.object().ok()).collect::<Vec<_>>();
                Left::Read(&objects)
            }
            Offer::Synthetic(_) => Left::Read(&[]),
        };
        match sandbox::restrict(left) {
            Ok(landlock) => landlock.word(),
            Err(e) => {
                tracing::warn!(error = %e, "landlock cannot be set up");
                "off"
            }
        }
    }
}

impl Readable {
    fn open(path: &[u8]) -> Result<Readable> {
        let whole = in_home(path)?;
        let failed = |e: io::Error| not_readable(path, &e);
        if names_contents(path) || path.is_empty() || path == b"~" || path == b".." || path.ends_with(b"/..") {
            let base = beneath::open_directory(&whole).map_err(failed)?;
            return Ok(Readable { base, name: None });
        }
        let name = whole.file_name().and_then(|name| Name::new(name.as_bytes()).ok());
        let (Some(parent), Some(name)) = (whole.parent(), name) else {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        // Only names are looked up in it: a directory that cannot be listed is good enough.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = openat(CWD, parent, flags, Mode::empty()).map_err(|e| failed(e.into()))?;
        let readable = Readable { base, name: Some(name) };
        readable.object().map_err(failed)?;
        Ok(readable)
    }

    /// A descriptor of the object itself, which may be a link.
    fn object(&self) -> io::Result<OwnedFd> {
        let Some(name) = &self.name else { return self.base.try_clone() };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.base, name.as_c_str(), flags, Mode::empty())?)
    }

    /// A directory of contents is opened anew for each job: two listings must not share a position.
    fn add_to(&self, source: &mut PosixSource) -> io::Result<()> {
        match &self.name {
            Some(name) => source.add_child(self.base.try_clone()?, name.clone()),
            None => source.add_contents_of(beneath::resolve_directory(self.base.as_fd(), &[])?),
        }
    }
}

impl Writable {
    fn open(path: &[u8]) -> Result<Writable> {
        let wrong = |message: String| Error::new(Exit::Usage, message).hint("check the path");
        let mut names = Vec::new();
        let mut at = in_home(path)?;
        loop {
            let here = if at.as_os_str().is_empty() { Path::new(".") } else { at.as_path() };
            match beneath::open_directory(here) {
                Ok(directory) => {
                    names.reverse();
                    return Ok(Writable { directory: Arc::new(directory), names });
                }
                Err(e) if is_no_directory(&e) => {
                    let Some(last) = at.file_name() else {
                        return Err(wrong(format!("{}: {e}", text(path))));
                    };
                    let name = Name::new(last.as_bytes()).map_err(|e| wrong(format!("{}: {e}", text(path))))?;
                    if name.as_bytes().starts_with(STAGING_PREFIX) {
                        return Err(wrong(format!("{}: the staging of transfers cannot be written to", text(path))));
                    }
                    names.push(name);
                    at.pop();
                }
                Err(e) => return Err(not_readable(path, &e)),
            }
        }
    }

    fn open_destination(&self, open: &Open) -> std::result::Result<(Arc<OwnedFd>, Option<Name>), Refusal> {
        let path = &open.paths[0];
        let base = self.directory.as_fd();
        let mut make = |names: &[Name]| beneath::make_directories(base, names).map_err(|e| refuse(path, &e));
        let (directory, rename_to) =
            land(&self.names, open.is_single && !names_contents(path), &self.look(path), &mut make)?;
        may_write(&directory).map_err(|e| refuse(path, &io::Error::from(e)))?;
        Ok((Arc::new(directory), rename_to))
    }
}

impl Writable {
    /// The destination of a dry run, as far as it exists, and what a single object would be called there.
    fn look_at_destination(&self, open: &Open) -> std::result::Result<(Option<Arc<OwnedFd>>, Option<Name>), Refusal> {
        let path = &open.paths[0];
        let (there, rename_to) = look(&self.names, open.is_single && !names_contents(path), &self.look(path))?;
        Ok((there.map(Arc::new), rename_to))
    }

    /// Opens a directory of the destination that is there.
    fn look<'a>(&'a self, path: &'a [u8]) -> impl Fn(&[Name]) -> std::result::Result<Option<OwnedFd>, Refusal> + 'a {
        move |names| match beneath::resolve_directory(self.directory.as_fd(), names) {
            Err(e) if is_no_directory(&e) => Ok(None),
            opened => opened.map(Some).map_err(|e| refuse(path, &e)),
        }
    }
}

/// The far side as a host of jobs.
pub struct OfferHost {
    pub name: String,
    /// The keys that are let in.
    pub clients: Vec<Pin>,
    pub paths: Vec<Vec<u8>>,
    pub offer: Offer,
    /// What the client was told to send, where it is another host.
    pub terms: Option<Terms>,
}

/// What a client may send that somebody else gave the command to.
pub struct Terms {
    sources: Vec<Vec<u8>>,
    selection: Arc<Selection>,
    may_delete: bool,
    backup: Option<Vec<u8>>,
    fidelity: u32,
}

impl Terms {
    pub fn of(told: &CopyTerms) -> Result<Terms> {
        let wrong = |why: &str| Error::new(Exit::Fatal, format!("the terms of a copy: {why}"));
        let rules = told.rules.iter().map(|rule| Rule::parse(rule)).collect::<Option<Vec<_>>>();
        let filter = Filter::new(rules.ok_or_else(|| wrong("no filter rule"))?).map_err(|why| wrong(&why))?;
        let listed = told.listed.as_ref().map(|paths| Listed::new(paths.iter().map(|path| path.0.clone()).collect()));
        let listed = listed.transpose().map_err(|_| wrong("a list of paths that lead elsewhere"))?;
        Ok(Terms {
            sources: told.sources.iter().map(|path| path.0.clone()).collect(),
            selection: Arc::new(Selection { filter, bounds: bounds(told.bounds), listed }),
            may_delete: told.may_delete,
            backup: told.backup.as_ref().map(|path| path.0.clone()),
            fidelity: told.fidelity,
        })
    }

    /// Refuses a job that takes away or keeps more than the command said.
    fn check(&self, open: &Open, options: &TransferOptions) -> std::result::Result<(), Refusal> {
        let what = if options.deletion.is_some() && !self.may_delete {
            "--delete"
        } else if options.backup.is_some() && options.backup != self.backup {
            "--backup-dir"
        } else if options.fidelity.to_bits() & !self.fidelity != 0 {
            "owners, modes, attributes or special files"
        } else {
            return Ok(());
        };
        let why = format!("the sending host asks for {what}, which the command did not request");
        Err(forbidden(&open.paths[0], &why))
    }

    fn asked(&self) -> Asked {
        Asked::of(&self.sources, self.selection.clone())
    }
}

/// A sending host counts ages by its own clock, and says itself when its files were modified: days are all that is held.
fn bounds(told: BoundTerms) -> Bounds {
    const CLOCKS_APART_SECONDS: i64 = 86_400;
    Bounds {
        size_bytes_min: told.size_bytes_min,
        size_bytes_end: told.size_bytes_end,
        modified_since: told.modified_since.map(|since| since.saturating_sub(CLOCKS_APART_SECONDS)),
        modified_before: told.modified_before.map(|before| before.saturating_add(CLOCKS_APART_SECONDS)),
    }
}

impl Host for OfferHost {
    fn facts(&self) -> HostFacts {
        let is_read_only =
            !matches!(self.offer, Offer::Write(_) | Offer::Files | Offer::Synthetic(Direction::ClientSends));
        HostFacts { name: self.name.clone(), is_read_only }
    }

    fn authorise(&self, peer: Pin, _credential: &[u8]) -> std::result::Result<Grant, Refusal> {
        if !self.clients.contains(&peer) {
            return Err(Refusal::new(CloseCode::Authentication, "this endpoint is for another client"));
        }
        Ok(Grant {
            pin: WHOEVER,
            name: "ssh".to_owned(),
            account: "ssh".to_owned(),
            may_write: !self.facts().is_read_only,
            warrant: None,
        })
    }

    fn open(
        &self,
        _grant: &Grant,
        _job: JobId,
        direction: Direction,
        open: &Open,
        options: &TransferOptions,
    ) -> std::result::Result<Opened, Refusal> {
        let way = match &self.offer {
            Offer::Files => return Err(forbidden(&open.paths[0], "this session was opened for queries about files")),
            Offer::Read(_) => Direction::ServerSends,
            Offer::Write(_) => Direction::ClientSends,
            Offer::Synthetic(way) => *way,
        };
        if direction != way || open.paths != self.paths {
            return Err(forbidden(&open.paths[0], "this session was not opened for that"));
        }
        if let Some(terms) = self.terms.as_ref().filter(|_| way == Direction::ClientSends) {
            terms.check(open, options)?;
        }
        let asked = self.terms.as_ref().map(Terms::asked);
        match &self.offer {
            Offer::Files => unreachable!("refused above"),
            Offer::Read(readables) => {
                let mut source = PosixSource::new();
                for (readable, path) in readables.iter().zip(&open.paths) {
                    readable.add_to(&mut source).map_err(|e| refuse(path, &e))?;
                }
                source.select(options.selection.clone());
                source.keep(options.fidelity);
                let is_single = source.is_single_object();
                Ok(Opened::Send { source: Arc::new(source), is_single, observer: None })
            }
            Offer::Write(writable) if options.is_dry_run => {
                let (there, rename_to) = writable.look_at_destination(open)?;
                let sink = there.map(|there| equipped(PosixSink::new(there.clone(), there, options.chmod), options));
                let sink = Arc::new(Rehearsal::new(sink));
                Ok(Opened::Receive { sink, rename_to, observer: None, file_system: String::new(), asked })
            }
            Offer::Write(writable) => {
                let (directory, rename_to) = writable.open_destination(open)?;
                let file_system = file_system(directory.as_fd()).to_owned();
                let sink = equipped(PosixSink::new(directory.clone(), directory, options.chmod), options);
                Ok(Opened::Receive { sink: Arc::new(sink), rename_to, observer: None, file_system, asked })
            }
            Offer::Synthetic(Direction::ClientSends) => {
                let file_system = NULL_FILE_SYSTEM.to_owned();
                Ok(Opened::Receive {
                    sink: Arc::new(NullSink),
                    rename_to: None,
                    observer: None,
                    file_system,
                    asked: None,
                })
            }
            Offer::Synthetic(Direction::ServerSends) => {
                Ok(Opened::Send { source: Arc::new(generated(open)?), is_single: false, observer: None })
            }
        }
    }

    fn reach(&self, _grant: &Grant, path: &[u8], how: How) -> std::result::Result<Box<dyn Shelf>, NotReached> {
        if !matches!(self.offer, Offer::Files) {
            return Err(NotReached::Refused(forbidden(path, "this session was not opened for that")));
        }
        let whole = in_home(path).map_err(|e| NotReached::Refused(Refusal::new(CloseCode::Internal, &e.message)))?;
        let whole = whole.as_os_str().as_bytes();
        Here.reach(if whole.is_empty() { b"." } else { whole }, how)
    }

    fn ended(&self, _grant: &Grant, job: JobId, _direction: Direction, _progress: &Progress, ending: &Ending) {
        tracing::debug!(%job, %ending, "job ended");
    }
}

fn direction_of(access: Access) -> Direction {
    match access {
        Access::Read | Access::Files => Direction::ServerSends,
        Access::Write => Direction::ClientSends,
    }
}

/// Where a path leads: `~` and `~/` stand for the home directory, everything else is as it is.
fn in_home(path: &[u8]) -> Result<PathBuf> {
    let below = match path {
        b"~" => &b""[..],
        _ => match path.strip_prefix(b"~/") {
            Some(below) => below,
            None => return Ok(PathBuf::from(OsStr::from_bytes(path))),
        },
    };
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    let home = home.ok_or_else(|| Error::new(Exit::Failed, "this user has no home directory there"))?;
    Ok(home.join(OsStr::from_bytes(below)))
}

fn not_readable(path: &[u8], e: &io::Error) -> Error {
    let (exit, what, hint) = match e.kind() {
        io::ErrorKind::NotFound if path.ends_with(b"/") => (
            Exit::SourceDirectoryNotFound,
            "no such directory".to_owned(),
            "check the path; a relative one begins in the home directory there",
        ),
        io::ErrorKind::NotFound => (
            Exit::SourceFileNotFound,
            "no such file or directory".to_owned(),
            "check the path; a relative one begins in the home directory there",
        ),
        io::ErrorKind::PermissionDenied => (
            Exit::Refused,
            "permission denied".to_owned(),
            "give that user permission, or name a user who has it: USER@HOST:PATH",
        ),
        io::ErrorKind::NotADirectory => {
            (Exit::SourceDirectoryNotFound, "not a directory".to_owned(), "omit the slash at its end")
        }
        _ => (Exit::Failed, e.to_string(), "the operating system's reason is above"),
    };
    Error::new(exit, format!("{}: {what}", text(path))).hint(hint)
}

/// A path as it may stand in a message.
fn text(path: &[u8]) -> String {
    let text = shown(Path::new(OsStr::from_bytes(path)));
    if text.is_empty() { "the home directory".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{PathBytes, PinText};
    use model::entry::{Entry, Generation, Kind, Timestamp};
    use model::options::Deletion;
    use model::{End, Fidelity, ObjectId};
    use wire::listing::Described;

    fn request(access: Access, paths: &[&Path]) -> ServeRequest {
        ServeRequest {
            access,
            paths: paths.iter().map(|path| PathBytes(path.as_os_str().as_bytes().to_vec())).collect(),
            clients: vec![PinText(Pin([1; 32]))],
            ports: None,
            is_tunnel_only: false,
            memory_bytes: 0,
            congestion: None,
            terms: None,
        }
    }

    fn host(access: Access, path: &Path) -> OfferHost {
        let offer = Offer::open(&request(access, &[path])).ok().unwrap();
        let paths = vec![path.as_os_str().as_bytes().to_vec()];
        OfferHost { name: "far".into(), clients: vec![Pin([1; 32])], paths, offer, terms: None }
    }

    fn open(
        host: &OfferHost,
        direction: Direction,
        path: &Path,
        is_single: bool,
    ) -> std::result::Result<Opened, Refusal> {
        let grant = host.authorise(Pin([1; 32]), b"").unwrap();
        let paths = vec![path.as_os_str().as_bytes().to_vec()];
        let open = Open {
            job: 1,
            job_id: vec![0; 16],
            direction: direction as u32,
            paths,
            options: None,
            is_single,
            is_sequential: false,
        };
        host.open(&grant, JobId([0; 16]), direction, &open, &TransferOptions::default())
    }

    #[test]
    fn the_deepest_directory_that_is_there_is_opened_and_the_rest_made_later() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/file"), b"x").unwrap();
        for (path, names) in [("a", ""), ("a/", ""), ("a/b/c", "b/c"), ("a/file", "file"), ("new/", "new")] {
            let writable = Writable::open(dir.path().join(path).as_os_str().as_bytes()).unwrap();
            assert_eq!(model::name::join(&writable.names), names.as_bytes(), "{path}");
        }
        let path = dir.path().join("a/b/c");
        let there = host(Access::Write, &path);
        assert!(!dir.path().join("a/b").exists());
        let opened = open(&there, Direction::ClientSends, &path, true).unwrap();
        let Opened::Receive { rename_to, .. } = opened else { panic!("a sink is opened") };
        assert_eq!(rename_to.unwrap().as_bytes(), b"c");
        assert!(dir.path().join("a/b").is_dir() && !dir.path().join("a/b/c").exists());
        open(&there, Direction::ClientSends, &path, false).unwrap();
        assert!(dir.path().join("a/b/c").is_dir());
    }

    #[test]
    fn another_path_another_direction_and_another_client_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), b"x").unwrap();
        let path = dir.path().join("f");
        let there = host(Access::Read, &path);
        open(&there, Direction::ServerSends, &path, false).unwrap();
        for refused in [
            open(&there, Direction::ClientSends, &path, false),
            open(&there, Direction::ServerSends, dir.path(), false),
            open(&there, Direction::ServerSends, Path::new("null:"), false),
        ] {
            assert_eq!(refused.err().unwrap().code, CloseCode::Forbidden);
        }
        assert_eq!(there.authorise(Pin([2; 32]), b"x").unwrap_err().code, CloseCode::Authentication);
        assert!(there.facts().is_read_only && !host(Access::Write, &path).facts().is_read_only);
    }

    #[test]
    fn a_host_that_copies_here_takes_away_and_keeps_no_more_than_the_command_said() {
        let dir = tempfile::tempdir().unwrap();
        let told = CopyTerms {
            sources: vec![PathBytes(b"a/report".to_vec())],
            rules: vec!["- *.o".to_owned()],
            may_delete: false,
            backup: None,
            fidelity: Fidelity { mode: true, ..Fidelity::default() }.to_bits(),
            bounds: BoundTerms::default(),
            listed: None,
        };
        let mut there = host(Access::Write, dir.path());
        there.terms = Some(Terms::of(&told).unwrap());
        let open = |there: &OfferHost, options: &TransferOptions| {
            let paths = vec![dir.path().as_os_str().as_bytes().to_vec()];
            let open = Open { job: 1, direction: Direction::ClientSends as u32, paths, ..Open::default() };
            let grant = there.authorise(Pin([1; 32]), b"").unwrap();
            there.open(&grant, JobId([0; 16]), Direction::ClientSends, &open, options)
        };
        let plain = TransferOptions::default;
        let deletion = Some(Deletion { is_at_root: true, removals_max: None });
        let keeps = |fidelity| TransferOptions { fidelity, ..plain() };
        let owner = Fidelity { owner: true, mode: true, ..Fidelity::default() };
        for options in [
            TransferOptions { deletion, ..plain() },
            TransferOptions { backup: Some(b"old".to_vec()), ..plain() },
            keeps(owner),
        ] {
            assert_eq!(open(&there, &options).err().unwrap().code, CloseCode::Forbidden);
        }
        let mode = Fidelity { mode: true, ..Fidelity::default() };
        let opened = open(&there, &keeps(mode)).unwrap();
        assert!(
            matches!(opened, Opened::Receive { asked: Some(_), .. }),
            "what it sends is held to what was asked for"
        );
        there.terms = Some(Terms::of(&CopyTerms { may_delete: true, ..told.clone() }).unwrap());
        open(&there, &TransferOptions { deletion, ..plain() }).unwrap();
        assert!(Terms::of(&CopyTerms { rules: vec!["x".to_owned()], ..told }).is_err());
    }

    /// The list and the bounds of the command hold where the files arrive, whatever the sending host made of its flags.
    #[test]
    fn a_host_that_copies_here_sends_what_is_listed_and_within_the_bounds() {
        let bounds = BoundTerms { size_bytes_end: 100, modified_since: Some(1_000_000), ..BoundTerms::default() };
        let told = CopyTerms {
            sources: vec![PathBytes(b"a/".to_vec())],
            rules: Vec::new(),
            may_delete: false,
            backup: None,
            fidelity: 0,
            bounds,
            listed: Some(vec![PathBytes(b"kept".to_vec()), PathBytes(b"d/e".to_vec())]),
        };
        let sends = |name: &str, size_bytes: u64, seconds: i64| {
            let modified = Timestamp { seconds, nanoseconds: 0 };
            let entry = Entry {
                id: ObjectId(1),
                parent: ObjectId::ROOT,
                name: Name::new(name.as_bytes()).unwrap(),
                kind: Kind::File,
                mode: 0o644,
                generation: Generation { size_bytes, modified, ..Generation::default() },
                attributes: None,
            };
            let described = Described::Entry { entry, end: End::Known, replaces: None };
            Terms::of(&told).unwrap().asked().check(&[described]).map_err(|refusal| refusal.text)
        };
        // Clocks may be a day apart.
        assert_eq!((sends("kept", 99, 1_000_000), sends("kept", 99, 920_000)), (Ok(()), Ok(())));
        for (name, size_bytes, seconds) in [("other", 9, 1_000_000), ("kept", 100, 1_000_000), ("kept", 9, 900_000)] {
            assert!(sends(name, size_bytes, seconds).unwrap_err().contains("which was not asked for"), "{name}");
        }
        let listed = Some(vec![PathBytes(b"../x".to_vec())]);
        assert!(Terms::of(&CopyTerms { listed, ..told.clone() }).is_err());
        // What an older program says has neither.
        let text = serde_json::to_string(&CopyTerms { listed: None, ..told.clone() }).unwrap();
        let older = text.replace(&format!(",\"bounds\":{}", serde_json::to_string(&bounds).unwrap()), "");
        assert_ne!(text, older);
        let older: CopyTerms = serde_json::from_str(&older).unwrap();
        assert_eq!((older.bounds, older.listed), (BoundTerms::default(), None));
    }

    #[test]
    fn what_cannot_be_read_is_told_before_anything_starts() {
        let dir = tempfile::tempdir().unwrap();
        let exit = |path: &str| Offer::open(&request(Access::Read, &[&dir.path().join(path)])).err().unwrap().exit;
        std::fs::write(dir.path().join("f"), b"x").unwrap();
        assert_eq!(exit("nosuch"), Exit::SourceFileNotFound);
        assert_eq!(exit("nosuch/"), Exit::SourceDirectoryNotFound);
        assert_eq!(exit("f/"), Exit::SourceDirectoryNotFound);
        assert!(Offer::open(&request(Access::Read, &[])).is_err());
        assert!(Offer::open(&request(Access::Write, &[Path::new("a"), Path::new("b")])).is_err());
    }

    #[test]
    fn a_confined_far_side_reads_what_was_asked_for_and_nothing_beside() {
        if !needs::landlock() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("tree/sub")).unwrap();
        std::fs::write(dir.path().join("tree/sub/f"), b"x").unwrap();
        std::fs::write(dir.path().join("beside"), b"y").unwrap();
        let tree = dir.path().join("tree");
        // A thread of its own: it does not get out again.
        let confined = std::thread::spawn(move || {
            let there = host(Access::Read, &tree);
            assert_ne!(there.offer.confine(), "off");
            assert_eq!(std::fs::read(tree.join("sub/f")).unwrap(), b"x");
            assert!(std::fs::read(dir.path().join("beside")).is_err());
            assert!(std::fs::write(tree.join("new"), b"z").is_err());
            let Opened::Send { source, .. } = open(&there, Direction::ServerSends, &tree, false).unwrap() else {
                panic!("a source is opened")
            };
            let mut found = 0;
            source
                .scan(&mut |one| {
                    found += usize::from(matches!(one, store::Found::Object(_)));
                    true
                })
                .unwrap();
            assert_eq!(found, 3);
        });
        confined.join().unwrap();
    }
}
