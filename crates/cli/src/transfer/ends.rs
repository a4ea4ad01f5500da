//! Opening the ends of a copy that are on this host.
//!
//! The result never depends on what happens to exist, with one exception that everybody expects: a single file copied
//! to an existing directory goes into it, and otherwise the destination is its new name.

use super::of_store;
use super::route::no_name;
use crate::exit::{self, Result, error, usage};
use crate::output::{self, shown};
use model::{Exit, Location, Name, TransferOptions};
use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::pipe::{PipeSink, PipeSource};
use store::posix::{PosixSink, PosixSource, beneath};
use store::synthetic::{GeneratedSource, NullSink};
use store::{Rehearsal, Sink, Source};

/// What is to be read here.
pub struct LocalSource {
    pub source: Arc<dyn Source>,
    /// One file or link: the destination may be its new name.
    pub is_single: bool,
}

pub fn open_source(
    locations: &[Location],
    stdin: Box<dyn std::io::Read + Send>,
    options: &TransferOptions,
) -> Result<LocalSource> {
    if locations == [Location::Pipe] {
        return Ok(LocalSource { source: Arc::new(PipeSource::new(stdin)), is_single: true });
    }
    if let [Location::Generated(spec)] = locations {
        return Ok(LocalSource { source: Arc::new(GeneratedSource::new(*spec)), is_single: false });
    }
    let mut source = PosixSource::new();
    for location in locations {
        let path = location.path();
        source.add_local(path).map_err(|e| {
            let mut error = of_store(&e, &shown(OsStr::from_bytes(path)));
            if matches!(e.kind, model::FailureKind::NotFound | model::FailureKind::InTheWay) && path.ends_with(b"/") {
                error.exit = Exit::SourceDirectoryNotFound;
            }
            error
        })?;
    }
    source.select(options.selection_at_source());
    source.keep(options.fidelity);
    let is_single = source.is_single_object();
    Ok(LocalSource { source: Arc::new(source), is_single })
}

/// Where things go on this host.
pub struct LocalSink {
    pub sink: Arc<dyn Sink>,
    pub rename_to: Option<Name>,
    pub is_sequential: bool,
    /// Directories made for it, outermost first.
    made: Vec<PathBuf>,
}

/// How much is known of the sources when the destination is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One file or link.
    Single,
    /// One file, or one directory: the endpoint knows.
    SingleOrTree,
    /// Something that needs a directory.
    Tree,
}

impl LocalSink {
    /// `is_own` says that the source is on this host too.
    pub fn open(
        location: &Location,
        shape: Shape,
        is_stdin: bool,
        is_own: bool,
        options: &TransferOptions,
    ) -> Result<LocalSink> {
        if *location == Location::Pipe {
            let sink = Arc::new(PipeSink::new(Box::new(output::Data)));
            return Ok(LocalSink { sink, rename_to: None, is_sequential: true, made: Vec::new() });
        }
        if *location == Location::Null {
            return Ok(LocalSink { sink: Arc::new(NullSink), rename_to: None, is_sequential: false, made: Vec::new() });
        }
        let bytes = location.path();
        let path = Path::new(OsStr::from_bytes(bytes));
        let is_directory = bytes.ends_with(b"/") || path.is_dir();
        if is_stdin && is_directory {
            return Err(no_name());
        }
        let (directory, rename_to) = match (is_directory, shape) {
            (false, Shape::Single | Shape::SingleOrTree) => {
                let name = Name::new(path.file_name().map_or(&b""[..], OsStr::as_bytes));
                let name =
                    name.map_err(|why| usage(format!("{} is no file name: {why}", shown(path)), "check the path"))?;
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                (parent.unwrap_or(Path::new(".")), Some(name))
            }
            (false, Shape::Tree) if fs::symlink_metadata(path).is_ok_and(|there| !there.is_dir()) => {
                let message = format!("{} is a file, and a directory is needed", shown(path));
                return Err(usage(message, "name a directory as the destination"));
            }
            _ => (path, None),
        };
        if options.is_dry_run {
            return Self::rehearse(directory, rename_to, is_own, options);
        }
        let made = make_directories(directory)?;
        let opened = beneath::open_directory(directory).map_err(|e| exit::of_file("open directory", directory, &e))?;
        let opened: Arc<OwnedFd> = Arc::new(opened);
        let sink = posix_sink(opened, is_own, options);
        Ok(LocalSink { sink: Arc::new(sink), rename_to, is_sequential: false, made })
    }

    /// The destination of a dry run, as far as it exists.
    fn rehearse(
        directory: &Path,
        rename_to: Option<Name>,
        is_own: bool,
        options: &TransferOptions,
    ) -> Result<LocalSink> {
        let there = match beneath::open_directory(directory) {
            Ok(opened) => Some(posix_sink(Arc::new(opened), is_own, options)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(exit::of_file("open directory", directory, &e)),
        };
        Ok(LocalSink { sink: Arc::new(Rehearsal::new(there)), rename_to, is_sequential: false, made: Vec::new() })
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

fn posix_sink(opened: Arc<OwnedFd>, is_own: bool, options: &TransferOptions) -> PosixSink {
    let sink = PosixSink::new(opened.clone(), opened, options.chmod).with_backup(options.backup.as_deref());
    sink.with_fidelity(options.fidelity, is_own)
}

/// Makes a directory and what is missing above it; returns what was made.
fn make_directories(path: &Path) -> Result<Vec<PathBuf>> {
    let mut missing: Vec<_> = path.ancestors().take_while(|at| !at.as_os_str().is_empty() && !at.exists()).collect();
    let mut made = Vec::new();
    while let Some(directory) = missing.pop() {
        match fs::create_dir(directory) {
            Ok(()) => made.push(directory.to_owned()),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && directory.is_dir() => {}
            Err(e) => {
                let mut error = exit::of_file("make directory", directory, &e);
                // A missing source has a code of its own; this is the destination.
                error.exit = if error.exit == Exit::SourceFileNotFound { Exit::Failed } else { error.exit };
                return Err(error);
            }
        }
    }
    Ok(made)
}

/// Refuses to copy a directory into itself, or anything onto itself.
pub fn check_apart(sources: &[Location], destination: &Location) -> Result<()> {
    let Location::Local(to) = destination else { return Ok(()) };
    let to_path = Path::new(OsStr::from_bytes(to));
    let into = resolved(to_path);
    let is_directory = to.ends_with(b"/") || to_path.is_dir();
    for source in sources {
        let Location::Local(from) = source else { continue };
        let from_path = Path::new(OsStr::from_bytes(from));
        let names_contents = from.ends_with(b"/") || from.ends_with(b"/.") || from == b".";
        let is_link = !names_contents && from_path.is_symlink();
        let is_tree = from_path.is_dir() && !is_link;
        let at = if is_link { link_itself(from_path) } else { resolved(from_path) };
        if is_tree && into.starts_with(&at) && (into != at || !names_contents) {
            return Err(error(
                Exit::Usage,
                format!("{} lies in {}, which is to be copied", shown(to_path), shown(from_path)),
                "choose a destination outside the source",
            ));
        }
        let lands = match from_path.file_name() {
            Some(name) if !names_contents && (is_directory || is_tree || sources.len() > 1) => into.join(name),
            _ => into.clone(),
        };
        if lands == at {
            let message = format!("{} and {} are the same", shown(from_path), shown(to_path));
            return Err(error(Exit::Usage, message, "choose another destination"));
        }
    }
    Ok(())
}

/// The path without links and dots, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for ancestor in absolute.ancestors() {
        if let Ok(there) = fs::canonicalize(ancestor) {
            return match absolute.strip_prefix(ancestor) {
                Ok(rest) if !rest.as_os_str().is_empty() => there.join(rest),
                _ => there,
            };
        }
    }
    absolute
}

/// Where a link stands, not where it points.
fn link_itself(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    resolved(parent).join(path.file_name().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(path: &Path) -> Location {
        Location::Local(path.as_os_str().as_bytes().to_vec())
    }

    #[test]
    fn a_directory_is_not_copied_into_itself_and_nothing_onto_itself() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| local(&dir.path().join(path));
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::create_dir(dir.path().join("other")).unwrap();
        fs::write(dir.path().join("a/f"), b"x").unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        for (from, to) in [
            ("a", "a"),
            ("a", "a/"),
            ("a", "a/b"),
            ("a", "a/new/deep"),
            ("a/", "a/b/"),
            ("a/", "a"),
            ("a", ""),
            ("a/f", "a"),
            ("a/f", "a/f"),
            ("a/f", "a/./f"),
            ("link/", "a/b"),
            ("a/", "link/b"),
        ] {
            assert!(check_apart(&[at(from)], &at(to)).is_err(), "{from} to {to}");
        }
        for (from, to) in [("a", "other"), ("a/f", "a/g"), ("a/f", ""), ("a", "ab"), ("link", "a/"), ("a/b", "other/")]
        {
            assert!(check_apart(&[at(from)], &at(to)).is_ok(), "{from} to {to}");
        }
    }

    #[test]
    fn the_destination_rule_makes_a_new_name_of_a_single_file_only() {
        let dir = tempfile::tempdir().unwrap();
        let open = |path: &str, shape| {
            LocalSink::open(&local(&dir.path().join(path)), shape, false, true, &TransferOptions::default())
        };
        fs::create_dir(dir.path().join("there")).unwrap();
        fs::write(dir.path().join("file"), b"x").unwrap();
        let renamed = |sink: LocalSink| sink.rename_to.map(|name| name.as_bytes().to_vec());
        assert_eq!(renamed(open("new", Shape::Single).unwrap()), Some(b"new".to_vec()));
        assert_eq!(renamed(open("deep/er/new", Shape::Single).unwrap()), Some(b"new".to_vec()));
        assert_eq!(renamed(open("file", Shape::Single).unwrap()), Some(b"file".to_vec()));
        assert_eq!(renamed(open("there", Shape::Single).unwrap()), None);
        assert_eq!(renamed(open("made/", Shape::Single).unwrap()), None);
        assert_eq!(renamed(open("tree", Shape::Tree).unwrap()), None);
        assert!(dir.path().join("made").is_dir() && dir.path().join("tree").is_dir());
        assert!(open("file", Shape::Tree).is_err());
        assert!(
            LocalSink::open(&local(&dir.path().join("there")), Shape::Single, true, true, &TransferOptions::default())
                .is_err()
        );
    }

    #[test]
    fn directories_made_for_nothing_are_removed_while_empty() {
        let dir = tempfile::tempdir().unwrap();
        let sink =
            LocalSink::open(&local(&dir.path().join("a/b/")), Shape::Tree, false, true, &TransferOptions::default())
                .ok()
                .unwrap();
        fs::create_dir(dir.path().join("a/other")).unwrap();
        sink.abandon();
        assert!(!dir.path().join("a/b").exists() && dir.path().join("a/other").exists());
    }
}
