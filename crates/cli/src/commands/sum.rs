//! `thalweg sum`: manifests of local files, written and verified.
//!
//! The paths are those that `cp` would give the files at its destination, so that `sum SRC` and `cp --manifest` list the
//! same, and `sum -c` verifies a copy. Results come in the order of the listing, however many threads read.

mod read;

use crate::exit::{self, Result, error, usage};
use crate::output::{self, counted, duration, shown};
use model::manifest::{self, LINE_BYTES_MAX, ManifestEntry, Parser};
use model::name::Escaped;
use model::quantity::{ByteCount, Rate};
use model::{Digest, DigestAlgorithm, Exit, Failure, FailureKind, Generation, Kind, Location};
use read::{Opener, Reading, digest_all};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use store::posix::PosixSource;
use store::{Found, Source, SourceFile, SourceObject};

/// Print a manifest of files (digest, size, path), or verify one
///
/// The listing of `sum SRC` is that of `cp --manifest FILE SRC DST`: with `dir/` paths are relative to dir, with `dir` they
/// begin with its name. Links and special files are not listed. `sum -c` prints a line for each file that is missing or
/// differs; its exit code is 0 if all are as listed, 1 if one differs, 23 if some could not be read.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg sum data/ > data.manifest\n\
\x20   thalweg sum -c data.manifest copy/\n\
\x20   thalweg sum data/ | thalweg sum -c - copy/")]
pub struct Args {
    /// Files and directories of this host; with -c the directory that the manifest's paths are relative to [default: .]
    #[arg(value_name = "LOC")]
    locations: Vec<PathBuf>,
    /// Verify the files that this manifest lists; `-` reads it from standard input
    #[arg(short, long, value_name = "FILE|-", env = "THALWEG_CHECK")]
    check: Option<PathBuf>,
    /// The digest; with -c the manifest says which
    #[arg(long, value_name = "crc64nvme|blake3", default_value = "crc64nvme", env = "THALWEG_DIGEST")]
    digest: DigestAlgorithm,
    /// Only what is wrong
    #[arg(short, long, env = "THALWEG_QUIET")]
    quiet: bool,
}

pub fn run(args: Args) -> Result<Exit> {
    for location in &args.locations {
        let parsed = Location::parse(location.as_os_str());
        if parsed.is_ok_and(|location| location.is_remote()) {
            let message =
                format!("{} is at an endpoint; manifests of remote files come with a later version", shown(location));
            return Err(usage(message, "run `thalweg sum` on that host, or copy with `cp --manifest FILE`"));
        }
    }
    match (&args.check, &args.locations[..]) {
        (Some(file), []) => check(file, Path::new("."), args.quiet),
        (Some(file), [directory]) => check(file, directory, args.quiet),
        (Some(_), _) => Err(usage("a manifest is verified in one directory", "give -c FILE and at most one directory")),
        (None, []) => Err(usage("nothing to list", "name files or directories, or -c FILE to verify a manifest")),
        (None, locations) => list(locations, args.digest),
    }
}

fn list(locations: &[PathBuf], algorithm: DigestAlgorithm) -> Result<Exit> {
    let mut source = PosixSource::new();
    for location in locations {
        let path = location.as_os_str().as_bytes();
        source.add_local(path).map_err(|e| crate::transfer::of_store(&e, &shown(location)))?;
    }
    let listing = Listing { source };
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let mut exit = Exit::Done;
    let mut is_read = out.write_all(manifest::first_line(algorithm).as_bytes()).is_ok();
    digest_all(algorithm, &listing, &mut |item, digest| {
        match (item, digest) {
            (Listed::File(object), Ok(digest)) => {
                let line = manifest::line(&digest, object.entry.size_bytes(), &listing.source.path(object));
                is_read = is_read && out.write_all(line.as_bytes()).is_ok();
            }
            (Listed::File(object), Err(e)) => {
                exit = Exit::Partial;
                output::note(&format!(
                    "failed: {}: {}",
                    Escaped(&listing.source.path(object)),
                    exit::plain(&e.message())
                ));
            }
            (Listed::Failed(failure), _) if failure.kind == FailureKind::Special => {}
            (Listed::Failed(failure), _) => {
                exit = Exit::Partial;
                output::note(&format!("failed: {}: {}", Escaped(&failure.path), exit::plain(&failure.message)));
            }
        }
        is_read
    });
    // A reader that went away has read what it wanted.
    let _ = out.flush();
    match exit {
        Exit::Done => Ok(exit),
        exit => Err(error(exit, "some files could not be read and are not listed", "put right what is listed above")),
    }
}

/// The files of local trees.
struct Listing {
    source: PosixSource,
}

enum Listed {
    File(SourceObject),
    Failed(Failure),
}

impl Reading for Listing {
    type Item = Listed;

    fn list(&self, emit: &mut dyn FnMut(Listed) -> bool) {
        let scanned = self.source.scan(&mut |found| match found {
            Found::Object(object) if object.entry.kind == Kind::File => emit(Listed::File(object)),
            Found::Object(_) => true,
            Found::Failed(failure) => emit(Listed::Failed(failure)),
        });
        if let Err(e) = scanned {
            emit(Listed::Failed(Failure { path: e.subject.clone(), kind: e.kind, message: e.message() }));
        }
    }

    fn size_bytes(&self, item: &Listed) -> u64 {
        match item {
            Listed::File(object) => object.entry.size_bytes(),
            Listed::Failed(_) => 0,
        }
    }

    fn opener(&self) -> Opener<'_, Listed> {
        let mut lane = self.source.lane();
        Box::new(move |item| match item {
            Listed::File(object) => lane.open(object),
            Listed::Failed(failure) => Err(store::Error::of_kind(failure.kind, "list", b"", &failure.message)),
        })
    }

    fn settle(&self, item: &Listed, file: &dyn SourceFile) -> store::Result<()> {
        match item {
            Listed::File(object) if file.generation()? != object.entry.generation => {
                Err(store::Error::of_kind(FailureKind::Changed, "read file", b"", "it changed while it was read"))
            }
            _ => Ok(()),
        }
    }
}

fn check(manifest: &Path, directory: &Path, is_quiet: bool) -> Result<Exit> {
    let started = Instant::now();
    let reader: Box<dyn Read + Send> = match manifest.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(manifest).map_err(|e| exit::of_file("open manifest", manifest, &e))?),
    };
    let mut lines = Lines { reader: BufReader::with_capacity(64 << 10, reader), line: Vec::new() };
    let unreadable = |why: String| {
        let hint = "give a file that `thalweg sum`, `gen` or `cp --manifest` wrote";
        error(Exit::Usage, format!("read manifest {}: {why}", shown(manifest)), hint)
    };
    let first = lines.next().map_err(|e| unreadable(exit::plain(&e)))?.unwrap_or_default();
    let parser = Parser::new(first).map_err(|e| unreadable(e.to_string()))?;
    let algorithm = parser.algorithm();
    let checking = Checking { directory, lines: Mutex::new(Some((lines, parser))), failure: Mutex::default() };
    let mut tally = Tally::default();
    digest_all(algorithm, &checking, &mut |entry, found| tally.count(entry, found));
    if let Some(why) = checking.failure.into_inner().unwrap() {
        return Err(unreadable(why));
    }
    let seconds = started.elapsed().as_secs_f64();
    if !is_quiet {
        let rate = Rate::over(tally.bytes, seconds).bytes_per_second as u64;
        output::note(&format!(
            "{} as listed, {} by {algorithm} in {} ({}/s)",
            counted(tally.good, "file is", "files are"),
            ByteCount(tally.bytes),
            duration(seconds),
            ByteCount(rate)
        ));
    }
    tally.verdict()
}

/// What a check found.
#[derive(Default)]
struct Tally {
    good: u64,
    bytes: u64,
    different: u64,
    unread: u64,
}

impl Tally {
    /// Counts a file and tells of one that is not as listed. False when nobody listens.
    fn count(&mut self, entry: &ManifestEntry, found: store::Result<Digest>) -> bool {
        let why = match found {
            Ok(digest) if digest == entry.digest => {
                self.good += 1;
                self.bytes += entry.size_bytes;
                return true;
            }
            Ok(_) => "content differs".to_owned(),
            Err(e) if e.kind == FailureKind::DigestMismatch => e.source.to_string(),
            Err(e) => {
                self.unread += 1;
                let why = if e.kind == FailureKind::NotFound { "missing".to_owned() } else { e.message() };
                return output::line(&format!("{}: FAILED ({})", Escaped(&entry.path), exit::plain(&why)));
            }
        };
        self.different += 1;
        output::line(&format!("{}: FAILED ({why})", Escaped(&entry.path)))
    }

    fn verdict(&self) -> Result<Exit> {
        let hint = "copy these files again";
        match (self.different, self.unread) {
            (0, 0) => Ok(Exit::Done),
            (0, n) => {
                let files = counted(n, "file is", "files are");
                Err(error(Exit::Partial, format!("{files} missing or cannot be read"), hint))
            }
            (n, unread) => {
                let files = counted(n, "file differs", "files differ");
                let more = if unread > 0 {
                    format!(", {} missing or cannot be read", output::grouped(unread))
                } else {
                    String::new()
                };
                Err(error(Exit::Failed, format!("{files} from the manifest{more}"), hint))
            }
        }
    }
}

/// The files that a manifest lists, below a directory.
struct Checking<'a> {
    directory: &'a Path,
    lines: Mutex<Option<(Lines, Parser)>>,
    /// Why the manifest could not be read to its end.
    failure: Mutex<Option<String>>,
}

impl Reading for Checking<'_> {
    type Item = ManifestEntry;

    fn list(&self, emit: &mut dyn FnMut(ManifestEntry) -> bool) {
        let Some((mut lines, mut parser)) = self.lines.lock().unwrap().take() else { return };
        loop {
            let entry = match lines.next() {
                Ok(Some(line)) => parser.line(line).map_err(|e| e.to_string()),
                Ok(None) => return,
                Err(e) => Err(exit::plain(&e)),
            };
            match entry {
                Ok(Some(entry)) => {
                    if !emit(entry) {
                        return;
                    }
                }
                Ok(None) => {}
                Err(why) => {
                    *self.failure.lock().unwrap() = Some(why);
                    return;
                }
            }
        }
    }

    fn size_bytes(&self, entry: &ManifestEntry) -> u64 {
        entry.size_bytes
    }

    fn opener(&self) -> Opener<'_, ManifestEntry> {
        Box::new(|entry| {
            let path = self.directory.join(OsStr::from_bytes(&entry.path));
            let failed = |e| store::Error::new("open file", b"", e);
            // Never blocks on a FIFO that stands where the file was.
            let file = File::options().read(true).custom_flags(NONBLOCK).open(path).map_err(failed)?;
            let metadata = file.metadata().map_err(failed)?;
            let differs = |why: String| store::Error::of_kind(FailureKind::DigestMismatch, "check file", b"", &why);
            if !metadata.is_file() {
                return Err(differs("not a regular file".into()));
            }
            if metadata.len() != entry.size_bytes {
                return Err(differs(format!("{} bytes long, not {}", metadata.len(), entry.size_bytes)));
            }
            Ok(Arc::new(ListedFile { file }))
        })
    }

    fn settle(&self, _: &ManifestEntry, _: &dyn SourceFile) -> store::Result<()> {
        Ok(())
    }
}

const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;

struct ListedFile {
    file: File,
}

impl SourceFile for ListedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> store::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(store::Error::new("read file", b"", e)),
            }
        }
        Ok(filled)
    }

    fn generation(&self) -> store::Result<Generation> {
        Ok(Generation::default())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

/// Lines of bounded length.
struct Lines {
    reader: BufReader<Box<dyn Read + Send>>,
    line: Vec<u8>,
}

impl Lines {
    /// The next line without its line feed. A longer one than a manifest has comes in parts, which do not parse.
    fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        let bytes = (&mut self.reader).take(LINE_BYTES_MAX as u64 + 2).read_until(b'\n', &mut self.line)?;
        if bytes == 0 {
            return Ok(None);
        }
        Ok(Some(self.line.strip_suffix(b"\n").unwrap_or(&self.line)))
    }
}
