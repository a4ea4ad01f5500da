//! `thalweg mv`: other names, and moves from one storage to another.
//!
//! Invariant of a move between storages: an object leaves its source only after the destination, asked again, has the same
//! content under its name, in a file that is not the source itself, and only if it still is the version that was compared.

use crate::args::ssh::SshArgs;
use crate::args::values;
use crate::exit::{self, Result, error, usage};
use crate::output::progress::Mode;
use crate::output::{self, counted, human, list};
use crate::place::{Failures, PATHS_AT_ONCE, Place, Places, Side, join, without_slashes};
use crate::selection::{Chosen, SelectionArgs, check_list_to_send};
use crate::transfer::{self, Finished, Request};
use model::files::{ALL_LEVELS, Doomed, FileKind, FileStatus, Found, Question, Record, Sum, SumAlgorithm, Tally};
use model::name::Escaped;
use model::options::Fsync;
use model::{Exit, FailureKind};
use mover::Ending;
use mover::files::{How, NotReached};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

/// Move or rename files and directories, here, at an endpoint, or from one to the other
///
/// DST is a directory if one exists, or if it ends in a slash; otherwise it is the new name of the single SRC. A slash
/// after SRC has no meaning. Within one file system or one endpoint a move is a rename, in one step. Otherwise
/// everything is copied durably, as with `cp`; then both sides digest what they have, and only files that are the same
/// are removed from the source. Files that could not be copied, or changed meanwhile, stay where they were.
/// Where files are selected, only those move, and never by a rename.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "thalweg mv [OPTIONS] <SRC>... <DST>",
    after_help = "Examples:\n\
\x20   thalweg mv lab:run7.tmp lab:run7\n\
\x20   thalweg mv finished/ lab:archive/"
)]
pub struct Args {
    /// What to move, and finally the destination
    #[arg(required = true, value_name = "LOCATION")]
    locations: Vec<OsString>,
    /// Never replace an existing file
    #[arg(long, env = "THALWEG_NO_CLOBBER")]
    no_clobber: bool,
    /// The digest that is compared before anything is removed
    #[arg(long, value_name = "crc64nvme|blake3", default_value = "crc64nvme", env = "THALWEG_DIGEST")]
    digest: model::DigestAlgorithm,
    /// How progress is shown on standard error
    #[arg(
        long,
        value_name = "auto|bar|plain|none",
        default_value = "auto",
        hide_possible_values = true,
        env = "THALWEG_PROGRESS"
    )]
    progress: Mode,
    /// Only errors
    #[arg(short, long, env = "THALWEG_QUIET")]
    quiet: bool,
    /// A JSON object that says what was done
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[command(flatten)]
    ssh: SshArgs,
    #[command(flatten)]
    selection: SelectionArgs,
}

pub fn run(args: Args) -> Result<Exit> {
    let (sources, destination) = values::sources_and_destination(&args.locations)?;
    let places = Places::new(&args.ssh)?;
    let sources = places.open_all(sources)?;
    let destination = places.open(destination)?;
    let chosen = args.selection.chosen()?;
    if args.selection.is_listed() && sources.len() > 1 {
        return Err(usage("a list of files applies to one source", "give a command for each source"));
    }
    let mut moving = Moving {
        args: &args,
        places: &places,
        chosen: &chosen,
        failures: Failures::default(),
        moved: Tally::default(),
        kept: 0,
    };
    let ended = moving.run(&sources, &destination);
    let code = ended.as_ref().map_or_else(|e| e.exit, |exit| *exit) as i32;
    let Tally { files, directories, bytes, .. } = moving.moved;
    if args.json {
        let line = json!({"files": files, "directories": directories, "bytes": bytes, "kept": moving.kept,
            "failed": moving.failures.count, "code": code});
        output::line(&list::done(line).to_string());
    } else if !args.quiet {
        let files = counted(files, "file", "files");
        output::note(&format!("moved {files}, {}", counted(directories, "directory", "directories")));
    }
    ended
}

struct Moving<'a> {
    args: &'a Args,
    places: &'a Places,
    chosen: &'a Chosen,
    failures: Failures,
    moved: Tally,
    /// Copied, and not removed.
    kept: u64,
}

impl Moving<'_> {
    fn run(&mut self, sources: &[Place], destination: &Place) -> Result<Exit> {
        let is_directory = self.is_directory(destination)?;
        // A list is of the contents of its source.
        let is_into = (is_directory || destination.path.ends_with(b"/")) && !self.args.selection.is_listed();
        if sources.len() > 1 && !is_into {
            let message = format!("{} is not a directory", destination.shown(b""));
            return Err(usage(message, "several sources need a directory: create it, or end its name with a slash"));
        }
        if let Some(source) = sources.iter().find(|source| source.name().is_none()) {
            return Err(usage(format!("{} has no name of its own", source.shown(b"")), "name its contents"));
        }
        if is_into && !is_directory {
            self.make(destination)?;
        }
        for source in sources {
            let source = source.at(without_slashes(&source.path).to_vec());
            let name = source.name().expect("looked at above").to_vec();
            let to = match is_into {
                true => destination.at(join(&destination.path, &name)),
                false => destination.clone(),
            };
            if !self.chosen.is_everything || !self.rename(&source, &to)? {
                self.transfer(&source, &to, destination, is_into)?;
            }
        }
        self.failures.conclude(Exit::Done, "moved")
    }

    fn is_directory(&self, place: &Place) -> Result<bool> {
        let path = match &place.path[..] {
            b"" => Vec::new(),
            path if path.ends_with(b"/") => path.to_vec(),
            path => [path, b"/"].concat(),
        };
        let question = Question::List { paths: vec![path], levels: 0, digest: None };
        let mut is_directory = false;
        let answer = place.ask(&question, &self.places.interrupt, &mut |record| {
            is_directory |= matches!(&record.found, Found::Object { status, .. } if status.is_directory());
            true
        })?;
        answer.finished()?;
        Ok(is_directory)
    }

    fn make(&mut self, place: &Place) -> Result<()> {
        let question = Question::Make { paths: place.paths(), with_parents: true };
        let failures = &mut self.failures;
        place.ask(&question, &self.places.interrupt, &mut |record| {
            failures.note(place, &record);
            true
        })?;
        self.failures.conclude(Exit::Done, "made").map(drop)
    }

    /// Gives an object its new name; false where it has to be copied.
    fn rename(&mut self, source: &Place, to: &Place) -> Result<bool> {
        let may_replace = !self.args.no_clobber;
        match (&source.side, &to.side) {
            (Side::Here, Side::Here) | (Side::Store(_), Side::Store(_)) => self.rename_here(source, to, may_replace),
            (one, two) if one.is(two) => {
                let question = Question::Rename { from: source.path.clone(), to: to.path.clone(), may_replace };
                let failures = &mut self.failures;
                let answer = source.ask(&question, &self.places.interrupt, &mut |record| {
                    failures.note(if record.asked == 0 { source } else { to }, &record);
                    true
                })?;
                self.moved.add(&answer.finished()?);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The same for what this process reaches itself.
    fn rename_here(&mut self, source: &Place, to: &Place, may_replace: bool) -> Result<bool> {
        let reach = |place: &Place| match place.side.reach().reach(&place.path, How::Take) {
            Ok(target) => Ok(target),
            Err(NotReached::Failed(e)) => Err(exit::of_store(&e, &place.shown(b""))),
            Err(NotReached::Refused(refusal)) => Err(exit::Error::from_refusal("this host", &refusal)),
        };
        let (old, new) = (reach(source)?, reach(to)?);
        let status = old.look().map_err(|e| exit::of_store(&e, &source.shown(b"")))?;
        match old.rename(&*new, may_replace) {
            Ok(()) => {
                self.moved.count(&status);
                Ok(true)
            }
            Err(e) if e.source.kind() == std::io::ErrorKind::CrossesDevices => Ok(false),
            Err(e) => {
                let text = e.message();
                let found = Found::Failed { kind: e.kind, text };
                self.failures.note(source, &Record { asked: 0, path: Vec::new(), is_last: true, found });
                Ok(true)
            }
        }
    }

    /// Copies, compares, and removes what is the same.
    fn transfer(&mut self, source: &Place, to: &Place, destination: &Place, is_into: bool) -> Result<()> {
        let Some(status) = self.status(source)? else { return Ok(()) };
        let from = match status.is_directory() && !is_into {
            true => source.at([&source.path[..], b"/"].concat()),
            false => source.clone(),
        };
        let target = match is_into && !destination.path.is_empty() {
            true => destination.at([without_slashes(&destination.path), b"/"].concat()),
            false => destination.clone(),
        };
        let location = |place: &Place| {
            let bytes = place.location(b"");
            values::location(OsStr::from_bytes(&bytes))
        };
        if !matches!(from.side, Side::Here) {
            check_list_to_send(&self.chosen.choice)?;
        }
        let mut request = Request::plain(vec![location(&from)?], location(&target)?);
        request.command = "mv";
        request.ssh = self.places.ssh.clone();
        request.progress = self.args.progress.resolved(self.args.json, self.args.quiet);
        request.spec.choice = self.chosen.choice.clone();
        let options = &mut request.spec.options;
        options.no_clobber = self.args.no_clobber;
        options.digest = self.args.digest;
        options.fsync = Fsync::Batch;
        let Finished { ended, error: failed, durable } =
            transfer::run(&request, Instant::now(), &self.places.interrupt, None)?;
        human::failures(&ended, human::FAILURES_SHOWN).iter().for_each(|line| output::note(line));
        let is_finished = ended.report.as_ref().is_none_or(|report| matches!(report.ending, Ending::Finished(_)));
        let is_durable = is_finished && matches!(&durable[..], "batch" | "file" | "memory" | "store");
        if !is_durable {
            let not_durable = || error(Exit::Failed, "the copy is not durable", "nothing was removed; use cp to copy");
            return Err(failed.unwrap_or_else(not_durable));
        }
        self.remove_delivered(source, to, self.chosen.prefix(&from))?;
        failed.map_or(Ok(()), Err)
    }

    fn status(&mut self, place: &Place) -> Result<Option<FileStatus>> {
        let question = Question::List { paths: place.paths(), levels: 0, digest: None };
        let (mut found, failures) = (None, &mut self.failures);
        let answer = place.ask(&question, &self.places.interrupt, &mut |record| {
            failures.note(place, &record);
            if let Found::Object { status, .. } = record.found {
                found = Some(status);
            }
            true
        })?;
        answer.finished()?;
        Ok(found)
    }

    /// Goes through the source with its digests and removes what the destination has too; directories last, innermost first.
    /// `prefix`: what rules see before the paths of the source.
    fn remove_delivered(&mut self, source: &Place, to: &Place, prefix: &[u8]) -> Result<()> {
        let algorithm = match self.args.digest {
            model::DigestAlgorithm::Crc64Nvme => SumAlgorithm::Crc64Nvme,
            model::DigestAlgorithm::Blake3 => SumAlgorithm::Blake3,
        };
        let question = Question::List { paths: source.paths(), levels: ALL_LEVELS, digest: Some(algorithm) };
        let (mut batch, mut directories): (Vec<Seen>, Vec<Seen>) = Default::default();
        let mut outcome = Ok(());
        let answer = source.ask(&question, &self.places.interrupt, &mut |record| {
            if self.failures.note(source, &record) || !self.chosen.takes_record(prefix, &record) {
                return true;
            }
            let Found::Object { status, sum } = record.found else { return true };
            let seen = Seen { path: record.path, status, sum };
            if seen.status.is_directory() {
                directories.push(seen);
                return true;
            }
            batch.push(seen);
            if batch.len() == PATHS_AT_ONCE {
                outcome = self.settle(source, to, algorithm, std::mem::take(&mut batch));
            }
            outcome.is_ok()
        })?;
        answer.finished()?;
        outcome?;
        self.settle(source, to, algorithm, batch)?;
        while !directories.is_empty() {
            let rest = directories.len().saturating_sub(PATHS_AT_ONCE);
            let batch: Vec<Seen> = directories.drain(rest..).rev().collect();
            let is_there = self.delivered(to, None, &batch)?;
            let mut objects = Vec::new();
            for (seen, delivered) in batch.into_iter().zip(is_there) {
                match delivered {
                    Delivered::Same => objects.push(Doomed { path: source.below(&seen.path), version: None }),
                    Delivered::Itself => self.keep(&source.shown(&seen.path), REACHED_ITSELF),
                    // Why it is not there was told by the copy.
                    Delivered::Not => {}
                }
            }
            if objects.is_empty() {
                continue;
            }
            let question = Question::Remove { objects, is_recursive: false, may_be_directory: true };
            // One that is not empty holds what was told already.
            let answer = source.ask(&question, &self.places.interrupt, &mut |_| true)?;
            self.moved.directories += answer.finished()?.directories;
        }
        Ok(())
    }

    fn keep(&mut self, shown: &str, why: &str) {
        self.kept += 1;
        self.failures.add(FailureKind::Other, false);
        output::note(&format!("kept: {shown}: {why}"));
    }

    /// What the destination has of each object of a batch.
    fn delivered(&self, to: &Place, digest: Option<SumAlgorithm>, batch: &[Seen]) -> Result<Vec<Delivered>> {
        let paths = batch.iter().map(|seen| to.below(&seen.path)).collect();
        let question = Question::List { paths, levels: 0, digest };
        let mut delivered = vec![Delivered::Not; batch.len()];
        let answer = to.ask(&question, &self.places.interrupt, &mut |record| {
            let which = record.asked as usize;
            delivered[which] = batch[which].delivered(&record.found);
            true
        })?;
        answer.finished()?;
        Ok(delivered)
    }

    /// Removes those of a batch that the destination has.
    fn settle(&mut self, source: &Place, to: &Place, algorithm: SumAlgorithm, batch: Vec<Seen>) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let is_there = self.delivered(to, Some(algorithm), &batch)?;
        let mut doomed = Vec::new();
        for (seen, delivered) in batch.into_iter().zip(is_there) {
            match delivered {
                Delivered::Same => {
                    self.moved.bytes += if seen.status.kind == FileKind::File { seen.status.size_bytes } else { 0 };
                    doomed.push(Doomed { path: source.below(&seen.path), version: Some(seen.status.version()) });
                }
                Delivered::Itself => self.keep(&source.shown(&seen.path), REACHED_ITSELF),
                Delivered::Not => {
                    self.keep(&source.shown(&seen.path), "the destination does not have the same content");
                }
            }
        }
        if doomed.is_empty() {
            return Ok(());
        }
        let shown: Vec<Vec<u8>> = doomed.iter().map(|object| object.path.clone()).collect();
        let question = Question::Remove { objects: doomed, is_recursive: false, may_be_directory: false };
        let answer = source.ask(&question, &self.places.interrupt, &mut |record| {
            if let Found::Failed { kind, text } = &record.found {
                self.kept += 1;
                self.failures.add(*kind, false);
                let path = Escaped(&shown[record.asked as usize]);
                output::note(&format!("kept: {path}: {}", Escaped(text.as_bytes())));
            }
            true
        })?;
        self.moved.files += answer.finished()?.files;
        Ok(())
    }
}

/// Why an object stays whose destination is itself.
const REACHED_ITSELF: &str = "the destination is the same object, reached by another path";

/// An object of the source, with what was read of it.
struct Seen {
    path: Vec<u8>,
    status: FileStatus,
    sum: Option<Sum>,
}

/// What the destination has of an object.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Delivered {
    Not,
    Same,
    /// The object itself: a mount, a shared file system or a link leads back to the source.
    Itself,
}

impl Seen {
    fn delivered(&self, found: &Found) -> Delivered {
        let Found::Object { status, sum } = found else { return Delivered::Not };
        let is_same = match (&self.status.kind, &status.kind) {
            (FileKind::File, FileKind::File) => {
                self.sum.is_some() && self.sum == *sum && self.status.size_bytes == status.size_bytes
            }
            (FileKind::Symlink(here), FileKind::Symlink(there)) => here == there,
            (FileKind::Directory, FileKind::Directory) => true,
            _ => false,
        };
        match is_same {
            true if self.is_itself(status) => Delivered::Itself,
            true => Delivered::Same,
            false => Delivered::Not,
        }
    }

    /// Two hosts give one file system different devices, but an inode and the time of its last change are the same on both, and no
    /// copy has both from its original.
    fn is_itself(&self, there: &FileStatus) -> bool {
        let identity = |status: &FileStatus| (status.inode, status.changed);
        let is_known = self.status.inode != 0 && !model::mutant::is_on("move-onto-itself");
        is_known && identity(&self.status) == identity(there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Timestamp;

    #[test]
    fn an_object_is_not_its_own_copy_whatever_its_host_calls_the_device() {
        let at = |seconds| Timestamp { seconds, nanoseconds: 7 };
        let here = FileStatus {
            kind: FileKind::File,
            mode: 0o644,
            size_bytes: 3,
            allocated_bytes: 4096,
            owner: 0,
            group: 0,
            links: 1,
            inode: 12,
            device: 1,
            modified: at(1),
            changed: at(2),
        };
        let sum = Some(Sum::from(&model::DigestAlgorithm::Crc64Nvme.of_object(b"abc")));
        let seen = Seen { path: Vec::new(), status: here.clone(), sum: sum.clone() };
        let delivered = |status, sum: &Option<Sum>| seen.delivered(&Found::Object { status, sum: sum.clone() });
        assert_eq!(delivered(FileStatus { device: 2, ..here.clone() }, &sum), Delivered::Itself);
        assert_eq!(delivered(FileStatus { inode: 13, ..here.clone() }, &sum), Delivered::Same);
        assert_eq!(delivered(FileStatus { changed: at(3), ..here.clone() }, &sum), Delivered::Same);
        assert_eq!(delivered(here.clone(), &None), Delivered::Not);
        assert_eq!(delivered(FileStatus { size_bytes: 4, ..here }, &sum), Delivered::Not);
    }
}
