//! Locations that are looked at or changed, rather than copied: on this host or at an endpoint, by the same questions.
//!
//! `Places::open` is the one way from what the user named to a `Place`; an endpoint named several times is connected to
//! once. What fails on single paths is told here as it comes, and summed up at the end.

use crate::args::ssh::SshArgs;
use crate::exit::{self, Error, Result, error, usage};
use crate::interrupt::Interrupt;
use crate::output;
use crate::transfer::{Remote, Ssh, Use};
use ::transfer::trees::{self, Answers};
pub use ::transfer::trees::{PATHS_AT_ONCE, join, without_slashes};
use daemon::{ConnectOptions, EndpointBook};
use model::files::{Found, Question, Record, Tally};
use model::name::Escaped;
use model::{Exit, FailureKind, Location};
use mover::CloseCode;
use mover::files::{Here, NotReached, Reach, answer};
use mover::session::{AskError, Client, Tuning};
use ssh::Access;
use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex};
use store::{How, OpenError, Shelf, Stores};

/// Their bytes.
const PATH_BYTES_AT_ONCE: usize = 128 << 10;

/// The storages that one command speaks to.
pub struct Places {
    known: Mutex<HashMap<String, Arc<There>>>,
    pub interrupt: Interrupt,
    pub ssh: Ssh,
}

/// A location, opened.
#[derive(Clone)]
pub struct Place {
    pub side: Side,
    /// As the side knows it.
    pub path: Vec<u8>,
    /// What stands before a path of this side when it is shown: `NAME:`, or nothing.
    prefix: String,
}

#[derive(Clone)]
pub enum Side {
    Here,
    There(Arc<There>),
    Store(Arc<InStore>),
}

/// Paths in stores of one scheme; each begins with what a URL names first.
pub struct InStore {
    scheme: String,
    stores: Stores,
}

impl Reach for InStore {
    fn reach(&self, path: &[u8], how: How) -> std::result::Result<Box<dyn Shelf>, NotReached> {
        let location = Location::Url { scheme: self.scheme.clone(), rest: path.to_vec() };
        self.stores.shelf(&location, how).map_err(|e| match e {
            OpenError::Source { error, .. } => NotReached::Failed(error),
            e => NotReached::Failed(store::Error::of_kind(FailureKind::Other, "open", b"", &e.to_string())),
        })
    }
}

/// A session with an endpoint; it is closed in order with the last place that needs it.
pub struct There {
    client: Option<Client>,
    /// Keeps what ssh started.
    remote: Remote,
}

/// What came of a question.
pub struct Answer {
    pub tally: Tally,
    /// The user stopped it.
    stopped: Option<Error>,
}

impl Answer {
    /// # Errors
    /// When it was stopped.
    pub fn finished(self) -> Result<Tally> {
        self.stopped.map_or(Ok(self.tally), Err)
    }
}

impl Places {
    pub fn new(ssh: &SshArgs) -> Result<Places> {
        let ssh = Ssh { options: ssh.options(), is_allowed: ssh.is_allowed(), is_quiet: false };
        Ok(Places { known: Mutex::default(), interrupt: Interrupt::watch()?, ssh })
    }

    /// The same without their sessions, and as if the user had stopped nothing: for what has to be put in order at the end.
    pub fn unstopped(&self) -> Places {
        Places { known: Mutex::default(), interrupt: Interrupt::never(), ssh: self.ssh.clone() }
    }

    /// Opens what the user named.
    pub fn open(&self, text: &OsStr) -> Result<Place> {
        let location = crate::args::values::location(text)?;
        self.place(&location)
    }

    pub fn open_all(&self, texts: &[OsString]) -> Result<Vec<Place>> {
        texts.iter().map(|text| self.open(text)).collect()
    }

    pub fn place(&self, location: &Location) -> Result<Place> {
        if location.is_synthetic() || *location == Location::Pipe {
            return Err(usage(format!("{location} has no files"), "name a path, or NAME:PATH at an endpoint"));
        }
        let stores = crate::stores::all();
        stores.check([location].into_iter()).map_err(|e| transfer::Error::from_open(&e))?;
        let path = location.path().to_vec();
        if path.len() > crate::args::values::PATH_BYTES_MAX {
            return Err(usage(format!("a path of {} bytes is too long", path.len()), "a path has at most 4096 bytes"));
        }
        if !location.is_remote() && !matches!(location, Location::Url { .. }) {
            return Ok(Place { side: Side::Here, path, prefix: String::new() });
        }
        let shown = location.to_string();
        let prefix = shown[..shown.len() - Escaped(&path).to_string().len()].to_owned();
        let side = match location {
            Location::Url { scheme, .. } => {
                // Whether the store can be asked at all is told before anything is.
                stores.shelf(location, How::Look).map_err(|e| transfer::Error::from_open(&e))?;
                Side::Store(Arc::new(InStore { scheme: scheme.clone(), stores }))
            }
            _ => Side::There(self.there(location, &prefix)?),
        };
        Ok(Place { side, path, prefix })
    }

    /// The session with the endpoint of a location.
    fn there(&self, location: &Location, key: &str) -> Result<Arc<There>> {
        let mut known = self.known.lock().unwrap();
        if let Some(there) = known.get(key) {
            return Ok(there.clone());
        }
        let paths = daemon::Paths::from_env()?;
        let book = EndpointBook::new(paths.endpoints());
        let remote = Remote::find(location, &book, &self.ssh)?;
        let client = remote.open(&Use {
            access: Access::Files,
            paths: &[Vec::new()],
            identity: &paths.identity()?,
            // No data streams: questions travel on the control stream.
            options: ConnectOptions {
                tuning: Tuning { streams: Some(0), ..Tuning::default() },
                ..ConnectOptions::default()
            },
            memory_bytes: mover::limits::LANE_BYTES,
            is_stopped: &|| self.interrupt.is_set(),
        })?;
        let there = Arc::new(There { client: Some(client), remote });
        known.insert(key.to_owned(), there.clone());
        Ok(there)
    }
}

impl Drop for There {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            client.close();
        }
    }
}

impl Side {
    /// Asks, and hands over what is answered; `each` returns false when it has enough.
    pub fn ask(
        &self,
        question: &Question,
        interrupt: &Interrupt,
        each: &mut dyn FnMut(Record) -> bool,
    ) -> Result<Answer> {
        let stopped = || error(interrupt.exit(), "stopped", "what was done so far is kept");
        let is_interrupted = || interrupt.is_set();
        match self {
            Side::Here | Side::Store(_) => {
                let answered = answer(question, self.reach(), &is_interrupted, each);
                let tally = answered.map_err(|refusal| Error::from_refusal("this host", &refusal))?;
                Ok(Answer { tally, stopped: interrupt.is_set().then(stopped) })
            }
            Side::There(there) => {
                let client = there.client.as_ref().expect("there until it is dropped");
                match client.ask(question, &is_interrupted, each) {
                    Ok(tally) => Ok(Answer { tally, stopped: None }),
                    Err(AskError::Interrupted(tally)) => Ok(Answer { tally, stopped: Some(stopped()) }),
                    Err(e) => Err(unanswered(there.remote.name(), &e)),
                }
            }
        }
    }

    /// How this process reaches what is not behind an endpoint.
    pub fn reach(&self) -> &dyn Reach {
        if let Side::Store(store) = self { &**store } else { &Here }
    }

    pub fn is(&self, other: &Side) -> bool {
        match (self, other) {
            (Side::Here, Side::Here) => true,
            (Side::There(one), Side::There(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }
}

fn unanswered(name: &str, e: &AskError) -> Error {
    match e {
        AskError::Connect(e) => Error::from_connect(name, e),
        AskError::Refused(refusal) if refusal.code == CloseCode::Version => error(
            Exit::Version,
            format!("{name}: {refusal}"),
            "bring the other side up to date: install this version there",
        ),
        AskError::Refused(refusal) => Error::from_refusal(name, refusal),
        AskError::Lost(_) | AskError::Interrupted(_) => {
            error(Exit::Temporary, format!("{name}: {}", exit::plain(e)), "give the same command again")
        }
    }
}

impl Place {
    /// Asks about this place alone.
    pub fn ask(
        &self,
        question: &Question,
        interrupt: &Interrupt,
        each: &mut dyn FnMut(Record) -> bool,
    ) -> Result<Answer> {
        self.side.ask(question, interrupt, each)
    }

    pub fn paths(&self) -> Vec<Vec<u8>> {
        vec![self.path.clone()]
    }

    /// A path below this one, as the side knows it.
    pub fn below(&self, path: &[u8]) -> Vec<u8> {
        join(&self.path, path)
    }

    /// The same as a location, safe for a terminal.
    pub fn shown(&self, path: &[u8]) -> String {
        let whole = self.below(path);
        let shown: &[u8] = if whole.is_empty() && self.prefix.is_empty() { b"." } else { &whole };
        format!("{}{}", self.prefix, Escaped(shown))
    }

    /// What a path of this side is called as a location, in bytes.
    pub fn location(&self, path: &[u8]) -> Vec<u8> {
        [self.prefix.as_bytes(), &self.below(path)].concat()
    }

    /// This place with another path of the same side.
    pub fn at(&self, path: Vec<u8>) -> Place {
        Place { path, ..self.clone() }
    }

    /// The contents of a directory were named, and not itself.
    pub fn names_contents(&self) -> bool {
        self.path.ends_with(b"/") || self.path.ends_with(b"/.")
    }

    /// The last name of the path, if it has one.
    pub fn name(&self) -> Option<&[u8]> {
        trees::name_of(&self.path)
    }
}

/// A place with what stops the asking.
pub struct Asking<'a>(pub &'a Place, pub &'a Interrupt);

impl Answers for Asking<'_> {
    fn ask(&self, question: &Question, each: &mut dyn FnMut(Record) -> bool) -> ::transfer::Result<Tally> {
        let Asking(place, interrupt) = self;
        place.ask(question, interrupt, each).and_then(Answer::finished).map_err(Into::into)
    }
}

/// What ended the asking; the user's signal has the code that it has everywhere.
pub fn unasked(error: ::transfer::Error, interrupt: &Interrupt) -> Error {
    let error = Error::from(error);
    let exit = if error.exit == Exit::Interrupted { interrupt.exit() } else { error.exit };
    Error { exit, ..error }
}

/// Cuts a list of paths into what fits one question.
pub fn in_questions<T>(items: Vec<T>, bytes: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut questions: Vec<Vec<T>> = Vec::new();
    let mut room_bytes = 0;
    for item in items {
        let needed = bytes(&item);
        match questions.last_mut() {
            Some(last) if last.len() < PATHS_AT_ONCE && room_bytes >= needed => last.push(item),
            _ => {
                room_bytes = PATH_BYTES_AT_ONCE;
                questions.push(vec![item]);
            }
        }
        room_bytes = room_bytes.saturating_sub(needed);
    }
    questions
}

/// What failed singly; each was told when it was met.
#[derive(Default)]
pub struct Failures {
    pub count: u64,
    kinds: BTreeSet<FailureKind>,
    is_named_path: bool,
}

impl Failures {
    /// Tells of a record if it is a failure; true then.
    pub fn note(&mut self, place: &Place, record: &Record) -> bool {
        let Found::Failed { kind, text } = &record.found else { return false };
        let text = Escaped(text.as_bytes()).to_string();
        output::note(&format!("failed: {}: {}", place.shown(&record.path), exit::plain(&text)));
        self.add(*kind, record.path.is_empty());
        true
    }

    pub fn add(&mut self, kind: FailureKind, is_named_path: bool) {
        self.count += 1;
        self.kinds.insert(kind);
        self.is_named_path |= is_named_path;
    }

    /// The end of a command: what it would be without failures, or one error for all of them.
    pub fn conclude(&self, exit: Exit, what: &str) -> Result<Exit> {
        if self.count == 0 {
            return Ok(exit);
        }
        let only = |kind| self.kinds.iter().all(|found| *found == kind);
        let (exit, hint) = match () {
            () if only(FailureKind::NotFound) && self.is_named_path => (Exit::SourceFileNotFound, "check the path"),
            () if only(FailureKind::NoSpace) => (Exit::NoSpace, "make room there first"),
            () if only(FailureKind::NameRefused) => (Exit::Usage, "check the path: the reason is above"),
            () => (Exit::Partial, "fix the problems listed above and give the command again"),
        };
        let paths = output::counted(self.count, "path", "paths");
        Err(error(exit, format!("{paths} could not be {what}"), hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> Place {
        Place { side: Side::Here, path: path.into(), prefix: "lab:".into() }
    }

    #[test]
    fn paths_are_joined_and_named_as_the_user_would() {
        assert_eq!(place("a").shown(b"b"), "lab:a/b");
        assert_eq!(place("a/").shown(b"b\x1b"), "lab:a/b\\x1b");
        assert_eq!(place("").shown(b""), "lab:");
        assert_eq!(place("a/").shown(b""), "lab:a/");
        assert_eq!(place("x/a//").name(), Some(&b"a"[..]));
        for path in ["", "/", ".", "..", "a/..", "a/."] {
            assert_eq!(place(path).name(), None, "{path}");
        }
    }

    #[test]
    fn long_lists_are_cut_into_questions() {
        let sizes = |items: Vec<usize>| in_questions(items, |n| *n).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(vec![1; 600]), [256, 256, 88]);
        assert_eq!(sizes(vec![PATH_BYTES_AT_ONCE / 2; 5]), [2, 2, 1]);
        assert_eq!(sizes(vec![PATH_BYTES_AT_ONCE * 2; 2]), [1, 1]);
        assert!(sizes(vec![]).is_empty());
    }
}
