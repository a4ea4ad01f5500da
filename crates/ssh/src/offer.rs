//! What the remote side opens for its one client: the paths to read that were named, or the one to write to.
//!
//! Paths are the user's own, relative to the directory they log in to or absolute: links in what is there already are
//! followed, as in any program they would run there. What is opened here, before the process is confined, is all there is.
//!
//! Invariants:
//! - A session is for reading, for writing, or for questions about files, and for nothing else.
//! - Below what was opened, names are followed one at a time from descriptors (`store::posix::beneath`).
//!
//! Not here: the jobs that the client opens (`host`).

use super::message::{Access, ServeRequest};
use daemon::error::{Error, Result, shown};
use daemon::host::{is_no_directory, may_write, names_contents, refuse};
use daemon::sandbox::{self, Left};
use model::options::Fsync;
use model::{Exit, Name, synthetic};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::open::{land, look};
use store::posix::beneath::Bounds;
use store::posix::facts::STAGING_PREFIX;
use store::posix::{PosixSource, beneath};
use wire::Refusal;
use wire::handshake::Direction;
use wire::message::Open;

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
    pub(super) fn add_to(&self, source: &mut PosixSource) -> io::Result<()> {
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

    pub(super) fn open_destination(
        &self,
        open: &Open,
        fsync: Fsync,
    ) -> std::result::Result<(Arc<OwnedFd>, Option<Name>), Refusal> {
        let path = &open.paths[0];
        let base = self.directory.as_fd();
        let mut make = |names: &[Name]| {
            let made = Bounds::default().make_directories(base, names, fsync != Fsync::Never);
            made.map_err(|e| refuse(path, &e))
        };
        let (directory, rename_to) =
            land(&self.names, open.is_single && !names_contents(path), &self.look(path), &mut make)?;
        may_write(&directory).map_err(|e| refuse(path, &io::Error::from(e)))?;
        Ok((Arc::new(directory), rename_to))
    }
}

impl Writable {
    /// The destination of a dry run, as far as it exists, and what a single object would be called there.
    pub(super) fn look_at_destination(
        &self,
        open: &Open,
    ) -> std::result::Result<(Option<Arc<OwnedFd>>, Option<Name>), Refusal> {
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

fn direction_of(access: Access) -> Direction {
    match access {
        Access::Read | Access::Files => Direction::ServerSends,
        Access::Write => Direction::ClientSends,
    }
}

/// Where a path leads: `~` and `~/` stand for the home directory, everything else is as it is.
pub(super) fn in_home(path: &[u8]) -> Result<PathBuf> {
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
    use model::Pin;

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

    #[test]
    fn the_deepest_directory_that_is_there_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/file"), b"x").unwrap();
        for (path, names) in [("a", ""), ("a/", ""), ("a/b/c", "b/c"), ("a/file", "file"), ("new/", "new")] {
            let writable = Writable::open(dir.path().join(path).as_os_str().as_bytes()).unwrap();
            assert_eq!(model::name::join(&writable.names), names.as_bytes(), "{path}");
        }
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
}
