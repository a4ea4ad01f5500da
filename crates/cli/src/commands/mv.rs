//! `thalweg mv`: other names, and moves from one storage to another.
//!
//! Not here: what leaves its source after it was copied (`transfer::trees`).

use crate::args::ssh::SshArgs;
use crate::args::values;
use crate::exit::{self, Error, Result, error, usage};
use crate::output::progress::Mode;
use crate::output::{self, counted, human, list};
use crate::place::{Asking, Failures, Place, Places, Side, join, unasked, without_slashes};
use crate::selection::{Chosen, SelectionArgs, check_list_to_send};
use crate::transfer::{self, Finished, Request, orders};
use ::transfer::trees::{self, Delivery, Stayed, Tree};
use model::files::{FileStatus, Found, Question, Record, Tally};
use model::name::Escaped;
use model::options::Fsync;
use model::order::Kind;
use model::{Exit, Failure, Fidelity, Location};
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
/// everything is copied durably, as with `cp -pogHAX`; then both sides digest what they have, and only files that are the
/// same are removed from the source. Owners, modes, attributes and hard links that could not be kept are reported. Files that
/// could not be copied, or changed meanwhile, stay where they were. Where files are selected, only those move, and never by a
/// rename.
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
    /// Between two endpoints: hand the job in, print its id and end; `thalweg job watch ID` comes back to it
    #[arg(long, env = "THALWEG_DETACH")]
    detach: bool,
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

/// As a rename does: what is not kept beside content is lost with the source. Special files do not move.
const KEPT: Fidelity = Fidelity {
    owner: true,
    group: true,
    numeric_ids: false,
    mode: true,
    xattrs: true,
    acls: true,
    hard_links: true,
    sparse: false,
    devices: false,
    specials: false,
};

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
    if args.detach {
        return moving.detach(&sources, &destination);
    }
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
        let (is_into, is_directory) = self.shape(sources, destination)?;
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

    /// Whether what is moved goes into the destination, and whether that is there.
    fn shape(&self, sources: &[Place], destination: &Place) -> Result<(bool, bool)> {
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
        Ok((is_into, is_directory))
    }

    fn is_directory(&self, place: &Place) -> Result<bool> {
        let asking = Asking(place, &self.places.interrupt);
        let tree = Tree { at: &asking, path: &place.path };
        trees::is_directory(tree).map_err(|e| unasked(e, &self.places.interrupt))
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
        let (from, target) = self.ends(source, to, (destination, is_into), status.is_directory());
        let location = |place: &Place| {
            let bytes = place.location(b"");
            values::location(OsStr::from_bytes(&bytes))
        };
        if !matches!(from.side, Side::Here) {
            check_list_to_send(&self.chosen.choice)?;
        }
        let mut request = self.request(vec![location(&from)?], location(&target)?);
        let mut lost = None;
        let Finished { ended, error: failed, durable } = loop {
            let finished = transfer::run(&request, Instant::now(), &self.places.interrupt, None)?;
            let fidelity = request.spec.options.fidelity;
            let failed = finished.error.as_ref();
            let Some(rest) = failed.and_then(|e| less(fidelity, e, &finished.ended.failures)) else { break finished };
            (request.spec.options.fidelity, lost) = (rest.0, Some(rest.1));
        };
        human::failures(&ended, human::FAILURES_SHOWN).iter().for_each(|line| output::note(line));
        let is_finished = ended.report.as_ref().is_none_or(|report| matches!(report.ending, Ending::Finished(_)));
        let is_durable = is_finished && matches!(&durable[..], "batch" | "file" | "memory" | "store");
        if !is_durable {
            let not_durable = || error(Exit::Failed, "the copy is not durable", "nothing was removed; use cp to copy");
            return Err(failed.unwrap_or_else(not_durable));
        }
        if !self.args.quiet {
            lost.iter().for_each(|lost| output::note(&format!("warning: {}: {lost}", to.shown(b""))));
            human::warnings(&ended).iter().for_each(|line| output::note(line));
        }
        self.remove_delivered(source, to, self.chosen.prefix(&from))?;
        failed.map_or(Ok(()), Err)
    }

    /// What is copied, and where to, so that it comes to stand at `to`.
    fn ends(&self, source: &Place, to: &Place, (into, is_into): (&Place, bool), is_tree: bool) -> (Place, Place) {
        let with_slash = |place: &Place| place.at([without_slashes(&place.path), b"/"].concat());
        match () {
            () if is_into && !into.path.is_empty() => (source.clone(), with_slash(into)),
            () if is_into || !is_tree => (source.clone(), into.clone()),
            // The contents of a directory are copied without what is said of itself.
            () => match self.above(source, to) {
                Some(above) => (source.clone(), above),
                None => (with_slash(source), to.clone()),
            },
        }
    }

    /// The directory of this host in which a source gets the place that it is to have by keeping its name.
    fn above(&self, source: &Place, to: &Place) -> Option<Place> {
        let name = source.name().filter(|name| to.name() == Some(*name))?;
        let above = to.path.strip_suffix(name)?;
        let is_whole = self.chosen.is_everything && !matches!(source.side, Side::Store(_));
        let is_kept = is_whole && matches!(to.side, Side::Here);
        is_kept.then(|| to.at(if above.is_empty() { b"./".to_vec() } else { above.to_vec() }))
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

    /// Removes what the destination has too. `prefix`: what rules see before the paths of the source.
    fn remove_delivered(&mut self, source: &Place, to: &Place, prefix: &[u8]) -> Result<()> {
        let interrupt = &self.places.interrupt;
        let (from_here, to_there) = (Asking(source, interrupt), Asking(to, interrupt));
        let (failures, kept) = (&mut self.failures, &mut self.kept);
        let mut tell = |stayed: Stayed<'_>| {
            let why = Escaped(stayed.why.as_bytes()).to_string();
            let what = if stayed.is_unread { "failed" } else { "kept" };
            *kept += u64::from(!stayed.is_unread);
            failures.add(stayed.kind, stayed.is_unread && stayed.path.is_empty());
            output::note(&format!("{what}: {}: {}", source.shown(stayed.path), exit::plain(&why)));
        };
        let mut delivery = Delivery {
            source: Tree { at: &from_here, path: &source.path },
            to: Tree { at: &to_there, path: &to.path },
            digest: self.args.digest,
            chosen: self.chosen.behind(prefix),
            tell: &mut tell,
            moved: Tally::default(),
            is_one_place: false,
        };
        let removed = delivery.remove().map_err(|e| unasked(e, interrupt));
        let moved = delivery.moved;
        self.moved.add(&moved);
        removed
    }

    /// Has the endpoints move without this command.
    fn detach(&self, sources: &[Place], destination: &Place) -> Result<Exit> {
        let (is_into, _) = self.shape(sources, destination)?;
        let location = |bytes: Vec<u8>| values::location(OsStr::from_bytes(&bytes));
        let with_slash = |place: &Place| [&place.location(b""), &b"/"[..]].concat();
        let mut froms = Vec::new();
        for source in sources {
            let source = source.at(without_slashes(&source.path).to_vec());
            let is_contents = !is_into && self.is_directory(&source)?;
            froms.push(location(if is_contents { with_slash(&source) } else { source.location(b"") })?);
        }
        let is_named = !is_into || destination.path.is_empty() || destination.path.ends_with(b"/");
        let to = location(if is_named { destination.location(b"") } else { with_slash(destination) })?;
        let mut request = self.request(froms, to);
        // Whether the destination gives files several names shows when the job has begun, and nobody is there to begin it again.
        request.spec.options.fidelity.hard_links = false;
        loop {
            let handed_in = orders::detach(&request, Kind::Move, self.args.json);
            let failed = handed_in.as_ref().err();
            let Some((fidelity, lost)) = failed.and_then(|e| less(request.spec.options.fidelity, e, &[])) else {
                return handed_in;
            };
            request.spec.options.fidelity = fidelity;
            if !self.args.quiet {
                output::note(&format!("warning: {}: {lost}", destination.shown(b"")));
            }
        }
    }

    fn request(&self, sources: Vec<Location>, destination: Location) -> Request {
        let is_of_store = |location: &Location| matches!(location, Location::Url { .. });
        let keeps_content_alone = sources.iter().chain([&destination]).any(is_of_store);
        let mut request = Request::plain(sources, destination);
        request.command = "mv";
        request.ssh = self.places.ssh.clone();
        request.progress = self.args.progress.resolved(self.args.json, self.args.quiet);
        request.spec.choice = self.chosen.choice.clone();
        let options = &mut request.spec.options;
        options.no_clobber = self.args.no_clobber;
        options.digest = self.args.digest;
        options.fsync = Fsync::Batch;
        options.fidelity = if keeps_content_alone { Fidelity::default() } else { KEPT };
        request
    }
}

/// Why an object gets no second name where no object gets one, in the words of the C libraries that receivers are built with.
const NO_LINKS: [&str; 6] = [
    "Operation not permitted",
    "Operation not supported",
    "Not supported",
    "Too many links",
    "Invalid cross-device link",
    "Cross-device link",
];
/// How a version is refused because of what is to be kept: by this side, and by the other one.
const TOO_OLD_TO_KEEP: [&str; 2] = ["does not know owners, attributes", "owners and attributes need a feature"];

/// What can be kept where a destination could not keep all of it, and what is lost then.
fn less(kept: Fidelity, failed: &Error, failures: &[Failure]) -> Option<(Fidelity, &'static str)> {
    let is_refused =
        |failure: &Failure| failure.message.strip_prefix("link: ").is_some_and(|why| NO_LINKS.contains(&why));
    let are_links_refused = || failed.message.contains("--hard-links") || failures.iter().any(is_refused);
    let is_too_old = || TOO_OLD_TO_KEEP.iter().any(|words| failed.message.contains(words));
    match failed.exit {
        Exit::Version if !kept.is_none() && is_too_old() => {
            let lost = "owners, exact modes, attributes and hard links are not kept: one of the two sides is too old";
            Some((Fidelity::default(), lost))
        }
        _ if kept.hard_links && are_links_refused() => {
            let lost = "hard links are not kept: each name becomes a file of its own there";
            Some((Fidelity { hard_links: false, ..kept }, lost))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::FailureKind;

    #[test]
    fn what_a_destination_cannot_keep_does_not_keep_files_from_moving() {
        let without_links = Fidelity { hard_links: false, ..KEPT };
        let left = |kept, exit, message: &str, of_file: &str| {
            let failure = Failure { path: Vec::new(), kind: FailureKind::Other, message: of_file.to_owned() };
            less(kept, &error(exit, message, ""), &[failure]).map(|(fidelity, _)| fidelity)
        };
        let bucket = "lab: begin: this kind of destination (s3) cannot give a file several names (--hard-links)";
        let refused = "link: Operation not permitted";
        assert_eq!(left(KEPT, Exit::Refused, bucket, ""), Some(without_links));
        assert_eq!(left(KEPT, Exit::Partial, "1 file failed", refused), Some(without_links));
        let too_old = "endpoint lab does not know owners, attributes, hard links or special files";
        assert_eq!(left(KEPT, Exit::Version, too_old, ""), Some(Fidelity::default()));
        assert_eq!(left(without_links, Exit::Partial, "1 file failed", refused), None);
        assert_eq!(left(Fidelity::default(), Exit::Version, too_old, ""), None);
    }

    #[test]
    fn nothing_is_given_up_for_a_file_that_failed_alone_or_a_version_that_keeps_all() {
        let failures = [
            "open file: Permission denied",
            "link: the file it is a hard link to did not arrive",
            "link: No space left on device",
            "link: Input/output error",
        ];
        for message in failures {
            let failure = Failure { path: Vec::new(), kind: FailureKind::Other, message: message.to_owned() };
            assert!(less(KEPT, &error(Exit::Partial, "1 file failed", ""), &[failure]).is_none(), "{message}");
        }
        for message in ["lab: the service there is not a Thalweg endpoint", "endpoint lab does not know --delta"] {
            assert!(less(KEPT, &error(Exit::Version, message, ""), &[]).is_none(), "{message}");
        }
    }
}
