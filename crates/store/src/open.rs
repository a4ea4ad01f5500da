//! The one way from what a location names to a store that is open.
//!
//! `Stores` is a registry of schemes: which store has `s3://` is decided by what a program put in, and a scheme without a store is
//! refused by its name. `land` is the one rule of where objects go below a directory that is held already: endpoints resolve
//! what their clients name by it, and `Paths` what the user of this process does.
//!
//! Invariants:
//! - The result never depends on what happens to exist, with one exception that everybody expects: a single file that is copied to
//!   an existing directory goes into it, and otherwise the destination is its new name.
//! - A rehearsal makes nothing.
//!
//! Not here: who may reach what, and endpoints, which are no stores of this process.

use crate::pipe::{PipeSink, PipeSource};
use crate::posix::here::make_directories;
use crate::posix::{PosixSink, PosixSource, beneath};
use crate::rehearsal::Rehearsal;
use crate::synthetic::{GeneratedSource, NullSink};
use crate::{Error, How, Seen, Shelf, Sink, Source};
use model::name::{Escaped, NameError};
use model::options::Fsync;
use model::{Location, Name, TransferOptions};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What may be done at a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    Write,
    /// Everything is looked at, and nothing made.
    Rehearse,
}

impl Rights {
    pub fn of(options: &TransferOptions) -> Rights {
        if options.is_dry_run { Rights::Rehearse } else { Rights::Write }
    }
}

/// How much is known of the sources when the destination is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// One file or link.
    Single,
    /// One file, or one directory: whoever has the source knows.
    SingleOrTree,
    /// Something that needs a directory.
    Tree,
}

pub struct OpenSource {
    pub source: Arc<dyn Source>,
    /// One file or link: the destination may be its new name.
    pub is_single: bool,
}

/// What is wanted of a destination.
pub struct SinkRequest<'a> {
    pub rights: Rights,
    pub shape: Shape,
    /// What arrives has no name of its own.
    pub is_nameless: bool,
    /// The source is on this host too.
    pub is_own: bool,
    pub options: &'a TransferOptions,
}

pub struct OpenSink {
    pub sink: Arc<dyn Sink>,
    pub rename_to: Option<Name>,
    pub is_sequential: bool,
    /// Directories made for it, outermost first.
    made: Vec<PathBuf>,
}

impl OpenSink {
    pub fn new(sink: Arc<dyn Sink>, rename_to: Option<Name>) -> OpenSink {
        OpenSink { sink, rename_to, is_sequential: false, made: Vec::new() }
    }

    /// Removes what was made for a copy that did not happen, as far as it is empty.
    pub fn abandon(&self) {
        for directory in self.made.iter().rev() {
            if fs::remove_dir(directory).is_err() {
                return;
            }
        }
    }
}

/// Why a location could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("this build has no store for {}", shown_scheme(.0))]
    NoStore(String),
    #[error("standard input has no name of its own")]
    Nameless,
    #[error("{} is not a file name: {why}", Escaped(.path))]
    Name { path: Vec<u8>, why: NameError },
    #[error("{} is a file, but a directory is needed", Escaped(.0))]
    NoDirectory(Vec<u8>),
    /// A source.
    #[error("{error}")]
    Source { path: Vec<u8>, error: Error },
    /// Something on the way to the destination.
    #[error("{operation} {}: {error}", Escaped(.path))]
    Destination { operation: &'static str, path: Vec<u8>, error: io::Error },
    /// A store that somebody else runs.
    #[error("{text}")]
    Refused { why: Refused, text: String, advice: String },
}

impl OpenError {
    pub fn refused(why: Refused, text: impl Into<String>, advice: &str) -> OpenError {
        OpenError::Refused { why, text: text.into(), advice: advice.to_owned() }
    }
}

/// Why a store that somebody else runs is not open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// What was asked for makes no sense.
    Request,
    /// No store of this kind does what was asked for. The text names no place.
    Unable,
    Keys,
    /// What holds the objects is not there.
    Missing,
    Unreachable,
    /// It is not who its name says.
    Untrusted,
}

fn shown_scheme(scheme: &str) -> String {
    let is_url = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+.-".contains(&b)) && scheme != "-";
    if is_url { format!("{scheme}://") } else { scheme.to_owned() }
}

/// Opens the locations of one scheme.
pub trait Opener: Send + Sync {
    fn source(&self, locations: &[Location], options: &TransferOptions) -> Result<OpenSource, OpenError>;
    fn sink(&self, location: &Location, request: &SinkRequest<'_>) -> Result<OpenSink, OpenError>;

    /// What a location leads to, for questions. Paths of this host are reached by `here`.
    fn shelf(&self, location: &Location, how: How) -> Result<Box<dyn Shelf>, OpenError> {
        let _ = how;
        Err(OpenError::NoStore(location.scheme().to_owned()))
    }

    /// What a path below a location leads to, for whoever may reach nothing else; the location itself stays.
    fn shelf_below(&self, base: &Location, path: &[u8], how: How) -> Result<Box<dyn Shelf>, OpenError> {
        let _ = (path, how);
        Err(OpenError::NoStore(base.scheme().to_owned()))
    }

    /// Looks at a place as a transfer would use it; what it writes there it removes.
    fn diagnose(&self, location: &Location) -> Result<Vec<Seen>, OpenError> {
        let text = format!("nothing can be found out about {}", shown_scheme(location.scheme()));
        let advice =
            "name a bucket, a directory of an SFTP, FTP or GridFTP server, an endpoint, or nothing for this host";
        Err(OpenError::refused(Refused::Request, text, advice))
    }
}

/// The stores that a program has, by their schemes.
#[derive(Clone)]
pub struct Stores {
    openers: Vec<(&'static str, Arc<dyn Opener>)>,
}

impl Default for Stores {
    /// Paths of this host, standard input and output, and what uses no storage.
    fn default() -> Stores {
        let pipes = Pipes { input: Box::new(|| Box::new(io::stdin())), output: Box::new(|| Box::new(io::stdout())) };
        let stores = Stores { openers: Vec::new() }.with("file", Arc::new(Paths)).with("-", Arc::new(pipes));
        stores.with("gen:", Arc::new(Synthetic)).with("null:", Arc::new(Synthetic))
    }
}

impl Stores {
    /// Puts a store in, or in the place of another one. A URL's scheme stands without its colon.
    pub fn with(mut self, scheme: &'static str, opener: Arc<dyn Opener>) -> Stores {
        self.openers.retain(|(known, _)| *known != scheme);
        self.openers.push((scheme, opener));
        self
    }

    /// Whether locations can be opened at all, before anything is. Endpoints are reached by other means.
    pub fn check<'a>(&self, mut locations: impl Iterator<Item = &'a Location>) -> Result<(), OpenError> {
        locations.try_for_each(|location| if location.is_remote() { Ok(()) } else { self.opener(location).map(drop) })
    }

    /// Opens sources of one store, which are read as one.
    pub fn source(&self, locations: &[Location], options: &TransferOptions) -> Result<OpenSource, OpenError> {
        self.check(locations.iter())?;
        match locations {
            [] => Err(OpenError::NoStore(String::new())),
            [first, others @ ..] => {
                let opener = self.opener(first)?;
                let is_elsewhere = |other| self.opener(other).is_ok_and(|its| !std::ptr::addr_eq(its, opener));
                if let Some(other) = others.iter().find(|other| is_elsewhere(other)) {
                    let text = format!("{first} and {other} are in different kinds of storage");
                    return Err(OpenError::refused(Refused::Request, text, "give a command for each kind"));
                }
                opener.source(locations, options)
            }
        }
    }

    pub fn sink(&self, location: &Location, request: &SinkRequest<'_>) -> Result<OpenSink, OpenError> {
        self.opener(location)?.sink(location, request)
    }

    pub fn shelf(&self, location: &Location, how: How) -> Result<Box<dyn Shelf>, OpenError> {
        self.opener(location)?.shelf(location, how)
    }

    pub fn shelf_below(&self, base: &Location, path: &[u8], how: How) -> Result<Box<dyn Shelf>, OpenError> {
        self.opener(base)?.shelf_below(base, path, how)
    }

    pub fn diagnose(&self, location: &Location) -> Result<Vec<Seen>, OpenError> {
        self.opener(location)?.diagnose(location)
    }

    /// Of `s3+NAME` the opener of `s3`, which knows the names.
    fn opener(&self, location: &Location) -> Result<&dyn Opener, OpenError> {
        let kind = location.scheme().split('+').next().unwrap_or_default();
        let found = self.openers.iter().find(|(scheme, _)| *scheme == kind);
        found.map(|(_, opener)| &**opener).ok_or_else(|| OpenError::NoStore(location.scheme().to_owned()))
    }
}

/// Standard input and output, or what stands for them.
pub struct Pipes {
    pub input: Box<dyn Fn() -> Box<dyn Read + Send> + Send + Sync>,
    pub output: Box<dyn Fn() -> Box<dyn Write + Send> + Send + Sync>,
}

impl Opener for Pipes {
    fn source(&self, _locations: &[Location], _options: &TransferOptions) -> Result<OpenSource, OpenError> {
        Ok(OpenSource { source: Arc::new(PipeSource::new((self.input)())), is_single: true })
    }

    fn sink(&self, _location: &Location, _request: &SinkRequest<'_>) -> Result<OpenSink, OpenError> {
        let sink = Arc::new(PipeSink::new((self.output)()));
        Ok(OpenSink { is_sequential: true, ..OpenSink::new(sink, None) })
    }
}

/// What uses no storage.
struct Synthetic;

impl Opener for Synthetic {
    fn source(&self, locations: &[Location], _options: &TransferOptions) -> Result<OpenSource, OpenError> {
        match locations {
            [Location::Generated(spec)] => {
                Ok(OpenSource { source: Arc::new(GeneratedSource::new(*spec)), is_single: false })
            }
            _ => Err(OpenError::NoStore("null: as a source".to_owned())),
        }
    }

    fn sink(&self, location: &Location, _request: &SinkRequest<'_>) -> Result<OpenSink, OpenError> {
        match location {
            Location::Null => Ok(OpenSink::new(Arc::new(NullSink), None)),
            _ => Err(OpenError::NoStore("gen: as a destination".to_owned())),
        }
    }
}

/// Paths of this host, as the user of this process names them: links in them are that user's own business.
struct Paths;

impl Opener for Paths {
    fn source(&self, locations: &[Location], options: &TransferOptions) -> Result<OpenSource, OpenError> {
        let mut source = PosixSource::new();
        for location in locations {
            let path = location.path();
            source.add_local(path).map_err(|error| OpenError::Source { path: path.to_vec(), error })?;
        }
        source.select(options.selection_at_source());
        source.keep(options.fidelity);
        let is_single = source.is_single_object();
        Ok(OpenSource { source: Arc::new(source), is_single })
    }

    fn sink(&self, location: &Location, request: &SinkRequest<'_>) -> Result<OpenSink, OpenError> {
        let bytes = location.path();
        let path = Path::new(OsStr::from_bytes(bytes));
        let is_directory = bytes.ends_with(b"/") || path.is_dir();
        if request.is_nameless && is_directory {
            return Err(OpenError::Nameless);
        }
        let is_file = || fs::symlink_metadata(path).is_ok_and(|there| !there.is_dir());
        let (parent, names) = match request.shape {
            Shape::Single | Shape::SingleOrTree if !is_directory => {
                let name = Name::new(path.file_name().map_or(&b""[..], OsStr::as_bytes));
                let name = name.map_err(|why| OpenError::Name { path: bytes.to_vec(), why })?;
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                (parent.unwrap_or(Path::new(".")), vec![name])
            }
            Shape::Tree if !is_directory && is_file() => return Err(OpenError::NoDirectory(bytes.to_vec())),
            _ => (path, Vec::new()),
        };
        let mut made = Vec::new();
        let failed = |operation, at: &Path, error| OpenError::Destination {
            operation,
            path: at.as_os_str().as_bytes().to_vec(),
            error,
        };
        let opened = |at: &Path| beneath::open_directory(at).map_err(|e| failed("open directory", at, e));
        let open = |names: &[Name]| match names {
            // Were it a directory, nothing would be named in it.
            [_, ..] => Ok(None),
            [] => match opened(parent) {
                Err(OpenError::Destination { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                opened => opened.map(Some),
            },
        };
        let mut make = |_: &[Name]| {
            let is_durable = request.options.fsync != Fsync::Never;
            made = make_directories(parent, is_durable).map_err(|(at, e)| failed("make directory", &at, e))?;
            opened(parent)
        };
        let (directory, rename_to) = match request.rights {
            Rights::Write => land(&names, true, &open, &mut make).map(|(directory, name)| (Some(directory), name))?,
            Rights::Rehearse => look(&names, true, &open)?,
        };
        let there = directory.map(|directory| posix_sink(Arc::new(directory), request));
        let sink: Arc<dyn Sink> = match (request.rights, there) {
            (Rights::Write, Some(sink)) => Arc::new(sink),
            (_, there) => Arc::new(Rehearsal::new(there)),
        };
        Ok(OpenSink { made, ..OpenSink::new(sink, rename_to) })
    }
}

fn posix_sink(directory: Arc<OwnedFd>, request: &SinkRequest<'_>) -> PosixSink {
    let options = request.options;
    let sink = PosixSink::new(directory.clone(), directory, options.chmod).with_backup(options.backup.as_deref());
    sink.with_fidelity(options.fidelity, request.is_own)
}

/// Opens a directory below one that the caller holds; nothing where none is there.
pub type OpenBelow<'a, E> = dyn Fn(&[Name]) -> Result<Option<OwnedFd>, E> + 'a;

/// Decides where objects go, of a destination that `names` lead to from a directory which the caller holds: the directory, and
/// what a single object is called there.
///
/// `may_be_new_name`: the source is one object, and the destination does not say that it is a directory. `make`
/// opens a directory too, and makes what is missing of it.
pub fn land<E>(
    names: &[Name],
    may_be_new_name: bool,
    open: &OpenBelow<'_, E>,
    make: &mut dyn FnMut(&[Name]) -> Result<OwnedFd, E>,
) -> Result<(OwnedFd, Option<Name>), E> {
    match names.split_last().filter(|_| may_be_new_name) {
        Some((last, parents)) => match open(names)? {
            Some(directory) => Ok((directory, None)),
            None => Ok((make(parents)?, Some(last.clone()))),
        },
        None => Ok((make(names)?, None)),
    }
}

/// Where `land` would, as far as it is there.
pub fn look<E>(
    names: &[Name],
    may_be_new_name: bool,
    open: &OpenBelow<'_, E>,
) -> Result<(Option<OwnedFd>, Option<Name>), E> {
    match (open(names)?, names.split_last().filter(|_| may_be_new_name)) {
        (None, Some((last, parents))) => Ok((open(parents)?, Some(last.clone()))),
        (there, _) => Ok((there, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(path: &Path) -> Location {
        Location::Local(path.as_os_str().as_bytes().to_vec())
    }

    fn open(path: &Path, shape: Shape, options: &TransferOptions) -> Result<OpenSink, OpenError> {
        let rights = Rights::of(options);
        Stores::default().sink(&local(path), &SinkRequest { rights, shape, is_nameless: false, is_own: true, options })
    }

    fn sinks_name(sink: &OpenSink) -> Option<&[u8]> {
        sink.rename_to.as_ref().map(Name::as_bytes)
    }

    #[test]
    fn the_destination_rule_makes_a_new_name_of_a_single_file_only() {
        let dir = tempfile::tempdir().unwrap();
        let options = TransferOptions::default();
        let open = |path: &str, shape| open(&dir.path().join(path), shape, &options);
        fs::create_dir(dir.path().join("there")).unwrap();
        fs::write(dir.path().join("file"), b"x").unwrap();
        for (path, shape, name) in [
            ("new", Shape::Single, Some(&b"new"[..])),
            ("deep/er/new", Shape::Single, Some(b"new")),
            ("file", Shape::SingleOrTree, Some(b"file")),
            ("there", Shape::Single, None),
            ("made/", Shape::Single, None),
            ("tree", Shape::Tree, None),
        ] {
            assert_eq!(sinks_name(&open(path, shape).unwrap()), name, "{path}");
        }
        assert!(dir.path().join("made").is_dir() && dir.path().join("tree").is_dir());
        assert!(matches!(open("file", Shape::Tree), Err(OpenError::NoDirectory(_))));
        assert!(matches!(open("x/..", Shape::Single), Err(OpenError::Name { .. })));
        let request = SinkRequest {
            rights: Rights::Write,
            shape: Shape::Single,
            is_nameless: true,
            is_own: true,
            options: &options,
        };
        let nameless = Stores::default().sink(&local(&dir.path().join("there")), &request);
        assert!(matches!(nameless, Err(OpenError::Nameless)));
    }

    #[test]
    fn a_rehearsal_finds_the_same_place_and_makes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let options = TransferOptions { is_dry_run: true, ..TransferOptions::default() };
        let open = |path: &str, shape| open(&dir.path().join(path), shape, &options);
        for (path, shape, name) in [
            ("new", Shape::Single, Some(&b"new"[..])),
            ("deep/er/new", Shape::Single, Some(b"new")),
            ("made/", Shape::Single, None),
            ("tree", Shape::Tree, None),
        ] {
            assert_eq!(sinks_name(&open(path, shape).unwrap()), name, "{path}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn directories_made_for_nothing_are_removed_while_empty() {
        let dir = tempfile::tempdir().unwrap();
        let sink = open(&dir.path().join("a/b/"), Shape::Tree, &TransferOptions::default()).ok().unwrap();
        fs::create_dir(dir.path().join("a/other")).unwrap();
        sink.abandon();
        assert!(!dir.path().join("a/b").exists() && dir.path().join("a/other").exists());
    }

    #[test]
    fn a_scheme_without_a_store_is_refused_by_its_name() {
        let stores = Stores::default();
        for (text, shown) in [("s3://b/k", "s3://"), ("https://h/x", "https://"), ("gsiftp://h/x", "gsiftp://")] {
            let location = Location::parse(text.as_ref()).unwrap();
            let refused = stores.check([&location].into_iter()).unwrap_err().to_string();
            assert_eq!(refused, format!("this build has no store for {shown}"));
            assert!(stores.source(&[location], &TransferOptions::default()).is_err());
        }
        let lab = Location::parse("lab:x".as_ref()).unwrap();
        assert!(stores.check([&lab, &Location::Null].into_iter()).is_ok());
    }

    #[test]
    fn a_store_that_is_put_in_is_found_by_its_scheme() {
        struct Nothing;
        impl Opener for Nothing {
            fn source(&self, _: &[Location], _: &TransferOptions) -> Result<OpenSource, OpenError> {
                Err(OpenError::Nameless)
            }
            fn sink(&self, _: &Location, _: &SinkRequest<'_>) -> Result<OpenSink, OpenError> {
                Ok(OpenSink::new(Arc::new(NullSink), None))
            }
        }
        let stores = Stores::default().with("s3", Arc::new(Nothing));
        let bucket = Location::parse("s3://b/k".as_ref()).unwrap();
        let options = TransferOptions::default();
        let request = SinkRequest {
            rights: Rights::Write,
            shape: Shape::Tree,
            is_nameless: false,
            is_own: false,
            options: &options,
        };
        assert!(stores.sink(&bucket, &request).is_ok());
        assert!(matches!(stores.source(&[bucket], &options), Err(OpenError::Nameless)));
    }
}
