//! Where a cache gets sets from: its origins, and each set's note, catalogue and holders as they were found there.
//!
//! Invariants:
//! - A note counts as for anybody who fetches: signed by the key that is known, and never one with a lower serial.
//! - However many ask, an origin is asked about a set once in `FRESH`, and so it is about a name that none knows; where
//!   one that may know it is away, once in `AWAY`. Whatever names they ask for, it is searched once in `FRESH`.
//! - Nobody waits for origins that had no part in a set while others have it.
//! - A name that no origin knows leaves nothing behind, and a set that nobody asks for leaves no catalogue in memory.

use super::hold::{OfSet, SetNow};
use crate::endpoints::Endpoint;
use crate::error::{Error, Result};
use crate::known;
use crate::sets::{Finder, Kept, Trust};
use model::files::{Found, Question};
use model::name::Escaped;
use model::set::DIRECTORY;
use model::set::catalogue::PageLine;
use model::{Exit, FailureKind, Location};
use mover::session::Tuning;
use net::Identity;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use tracing::warn;
use transfer::{ConnectOptions, Means, Peer, Peers};

/// What an origin said of a set counts for so long.
const FRESH: Duration = Duration::from_secs(10);
/// An origin that could not be searched, or asked about a set that is not known here, is not dialled for that again
/// before this time has passed.
const AWAY: Duration = Duration::from_secs(2);
/// Everybody else waits while one is searched, at an origin whose storage stands still too.
const SEARCH_MAX: Duration = Duration::from_secs(300);
/// How often whoever waits looks whether the cache ends.
const WAIT: Duration = Duration::from_millis(20);
/// An origin that was away, or did not have a set, is searched again after this time.
const SEARCHED_AGAIN: Duration = Duration::from_secs(300);
/// A set that nobody has asked for this long is not held in memory.
const IDLE: Duration = Duration::from_secs(300);
/// How far below an origin's root sets are looked for, and among how many names.
const LEVELS: u32 = 4;
const NAMES_MAX: usize = 200_000;
const SETS_MAX: usize = 64;
/// Directories of one origin that have the same set.
const DIRECTORIES_MAX: usize = 4;

/// The endpoints that a cache fetches from.
#[derive(Clone)]
struct Known {
    endpoints: Arc<Vec<Endpoint>>,
    identity: Identity,
}

impl Peers for Known {
    fn identity(&self) -> transfer::Result<Identity> {
        Ok(self.identity.clone())
    }

    fn find(&self, location: &Location) -> transfer::Result<Arc<dyn Peer>> {
        let named = |endpoint: &&Endpoint| matches!(location, Location::Named { name, .. } if *name == endpoint.name);
        let unknown = || Error::new(Exit::Usage, format!("{location} is at no origin of this cache")).into();
        self.endpoints
            .iter()
            .find(named)
            .map(|endpoint| Arc::new(endpoint.clone()) as Arc<dyn Peer>)
            .ok_or_else(unknown)
    }
}

/// When an origin was searched, and its directories that hold sets, or why they are not known.
type Searched = (Instant, Result<Vec<Vec<u8>>>);

pub struct Origins {
    known: Known,
    /// The last search of each endpoint. Held while one is under way, for which others wait instead of searching too.
    searched: Vec<Mutex<Option<Searched>>>,
    state: PathBuf,
    sets: Mutex<HashMap<String, Arc<Slot>>>,
}

#[derive(Default)]
struct Slot {
    state: Mutex<State>,
    is_refreshed: AtomicBool,
    /// Origins that had no part in it are searched.
    is_searched: AtomicBool,
}

#[derive(Default)]
struct State {
    now: Option<OfSet>,
    /// When the origins were asked last, and when all of them were searched.
    asked: Option<Instant>,
    searched: Option<Instant>,
    holders: Vec<Location>,
    /// No origin had it when they were asked, or whoever may have it could not be asked.
    absent: Option<Error>,
    /// The pages of the catalogue.
    pages: Vec<String>,
    /// When somebody asked for it last.
    used: Option<Instant>,
}

impl State {
    fn is_fresh(&self) -> bool {
        let is_away = self.absent.as_ref().is_some_and(|e| e.exit != Exit::SourceFileNotFound);
        self.asked.is_some_and(|asked| asked.elapsed() < if is_away { AWAY } else { FRESH })
    }

    /// What came of looking it up. Of a set that is known no absence counts: an origin may lack a part of it for a while.
    fn take(&mut self, found: &Result<OfSet>, is_known: bool) {
        self.absent = found.as_ref().err().filter(|_| !is_known).cloned();
        if found.is_ok() || self.absent.is_some() {
            (self.now, self.asked) = (found.as_ref().ok().cloned(), Some(Instant::now()));
        }
    }

    /// Nobody reads it or has asked for it lately.
    fn is_idle(&self, idle: Duration) -> bool {
        let is_read = self.now.as_ref().is_some_and(|now| Arc::strong_count(&now.0) > 1);
        let patience = if self.now.is_some() { idle } else { FRESH.min(idle) };
        !is_read && self.used.is_some_and(|used| used.elapsed() >= patience)
    }
}

impl Origins {
    pub fn new(endpoints: Vec<Endpoint>, identity: Identity, state: &Path) -> Origins {
        let searched = endpoints.iter().map(|_| Mutex::default()).collect();
        let known = Known { endpoints: Arc::new(endpoints), identity };
        Origins { known, searched, state: state.to_owned(), sets: Mutex::default() }
    }

    /// What a transfer from them is carried out with; `is_over` ends it.
    pub fn means(&self, is_over: &Arc<AtomicBool>) -> Means {
        Means { stop: is_over.clone(), ..Means::new(self.known.clone()) }
    }

    /// What is kept of a set.
    pub fn kept(&self, name: &str) -> Result<Kept> {
        Kept::below(&self.state, name)
    }

    /// The same, where something is.
    pub fn found(&self, name: &str) -> Result<Option<Kept>> {
        Kept::found(&self.state, name)
    }

    /// A set as its origins have it now; as they had it last, where none of them can be reached.
    pub fn set(self: &Arc<Self>, name: &str, is_over: &Arc<AtomicBool>) -> Result<OfSet> {
        if !model::set::is_name(name) {
            return Err(Error::new(
                Exit::SourceFileNotFound,
                format!("{} is no name of a set", Escaped(name.as_bytes())),
            ));
        }
        self.tidy(IDLE);
        let slot = self.sets.lock().unwrap_or_else(PoisonError::into_inner).entry(name.to_owned()).or_default().clone();
        let mut state = slot.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.used = Some(Instant::now());
        if self.is_search_due(&state, Instant::now()) {
            self.search_again(name, &slot, &state.holders, is_over);
        }
        if state.is_fresh() {
            match (&state.now, &state.absent) {
                (Some(now), _) => return Ok(now.clone()),
                (None, Some(absent)) => return Err(absent.clone()),
                (None, None) => {}
            }
        }
        let found = self.kept(name).and_then(|kept| self.look_up(&kept, &mut state, is_over));
        let is_unknown = found.is_err() && self.kept(name).is_ok_and(|kept| matches!(kept.note(), Ok(None)));
        if is_unknown {
            self.forget(name);
        }
        state.take(&found, !is_unknown);
        found
    }

    /// Lets go of what nobody asks for any more.
    fn tidy(&self, idle: Duration) {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        sets.retain(|_, slot| !slot.state.try_lock().is_ok_and(|state| state.is_idle(idle)));
    }

    /// Has a set that somebody reads looked up again in a thread of its own, where its origins were asked long ago.
    pub fn refresh(self: &Arc<Self>, name: &str, is_over: &Arc<AtomicBool>) {
        let slot = self.sets.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        let is_old =
            |slot: &Arc<Slot>| slot.state.try_lock().is_ok_and(|state| state.now.is_some() && !state.is_fresh());
        let Some(slot) = slot.filter(is_old) else { return };
        let (origins, name, is_over) = (self.clone(), name.to_owned(), is_over.clone());
        let look_up = move |_: &Slot| {
            if let Err(error) = origins.set(&name, &is_over) {
                warn!(set = name, %error, "the set could not be looked up again");
            }
        };
        apart(&slot, |slot| &slot.is_refreshed, look_up);
    }

    /// Searches origins of which none is `known` to have a set. Those who have it go on having it, whatever comes of this.
    fn search_again(self: &Arc<Self>, name: &str, slot: &Arc<Slot>, known: &[Location], is_over: &Arc<AtomicBool>) {
        let (origins, name, known, is_over) = (self.clone(), name.to_owned(), known.to_owned(), is_over.clone());
        let search = move |slot: &Slot| {
            let means = || origins.means(&is_over);
            let more = origins.kept(&name).and_then(|kept| origins.holders(&kept, &known, &means, &is_over));
            let mut state = slot.state.lock().unwrap_or_else(PoisonError::into_inner);
            for holder in more.unwrap_or_default() {
                // All may have been searched meanwhile.
                if !state.holders.contains(&holder) {
                    state.holders.push(holder);
                }
            }
            state.searched = Some(Instant::now());
        };
        apart(slot, |slot| &slot.is_searched, search);
    }

    fn forget(&self, name: &str) {
        if let Ok(kept) = self.kept(name) {
            let _ = std::fs::remove_dir_all(kept.path());
        }
    }

    /// Whether origins that had no part in a set are to be searched again.
    fn is_search_due(&self, state: &State, now: Instant) -> bool {
        let was_long_ago = |at: Instant| now.saturating_duration_since(at) >= SEARCHED_AGAIN;
        // Where nobody has it, looking it up searches them all.
        !state.holders.is_empty()
            && state.searched.is_some_and(was_long_ago)
            && self.known.endpoints.iter().any(|at| !holds(&state.holders, at))
    }

    fn look_up(&self, kept: &Kept, state: &mut State, is_over: &Arc<AtomicBool>) -> Result<OfSet> {
        let means = || self.means(is_over);
        let mut asked = self.ask(kept, &state.holders, &means);
        if asked.is_err() {
            let holders = self.holders(kept, &[], &means, is_over);
            state.searched = Some(Instant::now());
            asked = holders.and_then(|holders| {
                state.holders = holders;
                self.ask(kept, &state.holders, &means)
            });
        }
        let note = match (asked, kept.note()?) {
            (Ok(note), _) => note,
            // A word against it counts, silence does not.
            (Err(e), Some((_, note))) if !matches!(e.exit, Exit::Refused | Exit::Authentication | Exit::Integrity) => {
                warn!(set = kept.name(), error = %e, "no origin can be asked: the set is served as it was last");
                note
            }
            (Err(e), _) => return Err(e),
        };
        if let Some(now) = state.now.as_ref().filter(|now| now.0.note == note && now.0.holders == state.holders) {
            return Ok(now.clone());
        }
        let finder = Finder { kept, holders: &state.holders, means: &means };
        let (catalogue, pages) = finder.catalogue(PageLine { digest: note.catalogue, bytes: note.catalogue_bytes })?;
        let told = (note.files, note.bytes, note.chunk_bytes);
        if told != (catalogue.files().len() as u64, catalogue.bytes(), catalogue.chunk_bytes) {
            let text = format!("the note of {} and its catalogue tell of different files", note.name);
            return Err(Error::new(Exit::Integrity, text));
        }
        // Whoever has begun with the catalogue before this one finds its pages.
        let before = std::mem::replace(&mut state.pages, pages);
        kept.leave_pages(&note, state.pages.iter().chain(&before));
        Ok(OfSet(Arc::new(SetNow { note, catalogue: Arc::new(catalogue), holders: state.holders.clone() })))
    }

    fn ask(&self, kept: &Kept, holders: &[Location], means: &dyn Fn() -> Means) -> Result<model::set::Note> {
        if holders.is_empty() {
            return Err(Error::new(Exit::Unreachable, "no origin has the set, or none can be reached"));
        }
        Finder { kept, holders, means }.note(&Trust::First).map(|latest| latest.note)
    }

    /// The directories that hold the set, at origins of which none is `known` yet. An origin that is a cache has it under its name.
    fn holders(
        &self,
        kept: &Kept,
        known: &[Location],
        means: &dyn Fn() -> Means,
        is_over: &AtomicBool,
    ) -> Result<Vec<Location>> {
        let (mut holders, mut failed) = (Vec::new(), None);
        let unknown = self.known.endpoints.iter().enumerate().filter(|(_, endpoint)| !holds(known, endpoint));
        for (number, endpoint) in unknown {
            let at = |path: &[u8]| {
                let mut location = Location::Named { name: endpoint.name.clone(), path: path.to_vec() };
                location.name_contents();
                location
            };
            let mut has_it = |location: &Location| {
                let asked = self.ask(kept, std::slice::from_ref(location), means);
                let has_it = asked.is_ok();
                // What is refused says more than what is not there.
                failed = asked.err().filter(|e| failed.is_none() || e.exit == Exit::Refused).or(failed.take());
                has_it
            };
            let named = at(kept.name().as_bytes());
            if has_it(&named) {
                holders.push(named);
                continue;
            }
            match self.searched(number, is_over) {
                Ok(found) => {
                    let found = found.iter().map(|path| at(path)).filter(|location| has_it(location));
                    holders.extend(found.take(DIRECTORIES_MAX));
                }
                Err(e) => failed = failed.filter(|known| known.exit == Exit::Refused).or(Some(e)),
            }
        }
        if !holders.is_empty() {
            return Ok(holders);
        }
        let is_absent = |e: &Error| matches!(e.exit, Exit::SourceFileNotFound | Exit::SourceDirectoryNotFound);
        let nobody = || Error::new(Exit::SourceFileNotFound, format!("no origin has the set {}", kept.name()));
        Err(failed.filter(|e| !is_absent(e)).unwrap_or_else(nobody))
    }

    /// Directories of an origin that hold sets, as they were a moment ago: anybody can make up names of which none is there.
    fn searched(&self, number: usize, is_over: &AtomicBool) -> Result<Vec<Vec<u8>>> {
        let mut searched = self.last_search(number, is_over)?;
        let is_fresh = |(at, found): &&Searched| at.elapsed() < if found.is_ok() { FRESH } else { AWAY };
        if let Some((_, found)) = searched.as_ref().filter(is_fresh) {
            return found.clone();
        }
        let found = self.search(&self.known.endpoints[number], is_over);
        *searched = Some((Instant::now(), found.clone()));
        found
    }

    /// Waits for a search that is under way, as long as the cache does not end.
    fn last_search(&self, number: usize, is_over: &AtomicBool) -> Result<MutexGuard<'_, Option<Searched>>> {
        loop {
            match self.searched[number].try_lock() {
                Ok(searched) => return Ok(searched),
                Err(TryLockError::Poisoned(searched)) => return Ok(searched.into_inner()),
                Err(TryLockError::WouldBlock) if is_over.load(Relaxed) => {
                    return Err(Error::new(Exit::Temporary, "this cache is shutting down; try again later"));
                }
                Err(TryLockError::WouldBlock) => std::thread::park_timeout(WAIT),
            }
        }
    }

    /// Directories that hold sets.
    fn search(&self, endpoint: &Endpoint, is_over: &AtomicBool) -> Result<Vec<Vec<u8>>> {
        let tuning = Tuning { streams: Some(0), ..Tuning::default() };
        let options = ConnectOptions { tuning, ..ConnectOptions::default() };
        let client = known::connect(endpoint, &self.known.identity, &options)?;
        let question = Question::List { paths: vec![Vec::new()], levels: LEVELS, digest: None };
        let (mut found, mut names, mut closed) = (Vec::new(), 0, None);
        let until = Instant::now() + SEARCH_MAX;
        let is_stopped = || is_over.load(Relaxed) || Instant::now() >= until;
        let answered = client.ask(&question, &is_stopped, &mut |record| {
            names += 1;
            let above = record.path.strip_suffix(DIRECTORY.as_bytes());
            found.extend(above.filter(|above| above.is_empty() || above.ends_with(b"/")).map(<[u8]>::to_vec));
            if let Found::Failed { kind: FailureKind::Permission, text } = &record.found {
                closed.get_or_insert_with(|| format!("{}:{}: {text}", endpoint.name, Escaped(&record.path)));
            }
            names < NAMES_MAX && found.len() < SETS_MAX
        });
        client.close();
        match answered {
            Ok(_) => match closed.filter(|_| found.is_empty()) {
                Some(why) => Err(Error::new(Exit::Refused, format!("this cache cannot have it: {why}"))),
                None => Ok(found),
            },
            Err(mover::session::AskError::Refused(refusal)) => Err(Error::from_refusal(&endpoint.name, &refusal)),
            Err(e) => Err(Error::new(Exit::Temporary, format!("{}: {e}", endpoint.name))),
        }
    }
}

/// Does something for a slot in a thread of its own, unless one does it already. Without a thread now there is one at the next look.
fn apart(slot: &Arc<Slot>, is_done: fn(&Slot) -> &AtomicBool, work: impl FnOnce(&Slot) + Send + 'static) {
    if is_done(slot).swap(true, Relaxed) {
        return;
    }
    let of = slot.clone();
    let work = move || {
        work(&of);
        is_done(&of).store(false, Relaxed);
    };
    if std::thread::Builder::new().name("cache".into()).spawn(work).is_err() {
        is_done(slot).store(false, Relaxed);
    }
}

/// Whether a directory of this origin is among them.
fn holds(holders: &[Location], origin: &Endpoint) -> bool {
    holders.iter().any(|holder| matches!(holder, Location::Named { name, .. } if *name == origin.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Pin;
    use model::set::{Catalogue, Note, Readers, page_name};
    use net::note::{public_key, sign};

    const NAME: &str = "example.org/a";

    fn origins(directory: &tempfile::TempDir, names: &[&str]) -> Arc<Origins> {
        let endpoint = |name: &&str| {
            let (name, addresses, added) = ((*name).to_owned(), Vec::new(), String::new());
            Endpoint { name, addresses, pin: Pin([1; 32]), added }
        };
        let identity = Identity::generate().unwrap();
        Arc::new(Origins::new(names.iter().map(endpoint).collect(), identity, &directory.path().join("state")))
    }

    /// As if an origin had brought a set without files.
    fn bring(origins: &Origins) {
        let (kept, key) = (origins.kept(NAME).unwrap(), Identity::generate().unwrap());
        let page = Catalogue::new(1 << 20).pages().pop().unwrap();
        kept.write(&page_name(&page.digest), &page.bytes).unwrap();
        let note = Note {
            name: NAME.into(),
            serial: 1,
            catalogue: page.digest,
            catalogue_bytes: page.bytes.len() as u64,
            files: 0,
            bytes: 0,
            chunk_bytes: 1 << 20,
            readers: Readers::Public,
            key: public_key(&key, NAME).write(),
            mirrors: Vec::new(),
        };
        let signed = sign(note.write(), &[(&key, NAME)]).write();
        kept.keep(signed.as_bytes(), &kept.lock().unwrap()).unwrap();
    }

    fn at(name: &str) -> Location {
        Location::Named { name: name.to_owned(), path: b"set/".to_vec() }
    }

    #[test]
    fn a_name_that_no_origin_knows_is_looked_for_once_in_a_while_and_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let (origins, is_over) = (origins(&directory, &[]), Arc::default());
        let absent = origins.set(NAME, &is_over).unwrap_err();
        assert_eq!(absent.exit, Exit::SourceFileNotFound);
        let sets = directory.path().join("state/sets");
        assert_eq!(std::fs::read_dir(&sets).unwrap().count(), 0);
        // What would be found now is not looked for yet.
        bring(&origins);
        assert_eq!(origins.set(NAME, &is_over).unwrap_err(), absent);
        origins.sets.lock().unwrap()[NAME].state.lock().unwrap().asked = None;
        assert_eq!(origins.set(NAME, &is_over).unwrap().0.note.name, NAME);
    }

    #[test]
    fn a_set_that_nobody_reads_or_asks_for_is_not_held_in_memory() {
        let directory = tempfile::tempdir().unwrap();
        let (origins, is_over) = (origins(&directory, &[]), Arc::default());
        bring(&origins);
        let read = origins.set(NAME, &is_over).unwrap();
        let is_held = |idle| {
            origins.tidy(idle);
            !origins.sets.lock().unwrap().is_empty()
        };
        assert!(is_held(Duration::ZERO), "somebody reads it");
        drop(read);
        assert!(is_held(IDLE), "somebody asked for it just now");
        assert!(!is_held(Duration::ZERO));
    }

    #[test]
    fn origins_that_had_no_part_in_a_set_are_searched_again_after_some_time() {
        let directory = tempfile::tempdir().unwrap();
        let (origins, now) = (origins(&directory, &["a", "b"]), Instant::now());
        let mut state = State { holders: vec![at("a")], searched: Some(now), ..State::default() };
        assert!(!origins.is_search_due(&state, now));
        assert!(origins.is_search_due(&state, now + SEARCHED_AGAIN));
        state.holders.push(at("b"));
        assert!(!origins.is_search_due(&state, now + SEARCHED_AGAIN));
    }

    #[test]
    fn an_origin_is_searched_once_in_a_while_whatever_names_are_looked_for() {
        let directory = tempfile::tempdir().unwrap();
        let (origins, is_over) = (origins(&directory, &["a"]), AtomicBool::new(false));
        let found = vec![b"set/".to_vec()];
        *origins.searched[0].lock().unwrap() = Some((Instant::now() + IDLE, Ok(found.clone())));
        // It has no address: whoever asks it fails.
        assert_eq!(origins.searched(0, &is_over).unwrap(), found);
        let long_ago = Instant::now().checked_sub(FRESH).unwrap();
        *origins.searched[0].lock().unwrap() = Some((long_ago, Ok(found)));
        let why = origins.searched(0, &is_over).unwrap_err();
        let at = || origins.searched[0].lock().unwrap().as_ref().map(|(at, _)| *at);
        let failed = at();
        assert_eq!((origins.searched(0, &is_over).unwrap_err(), at()), (why, failed), "it is not dialled at once");
    }

    #[test]
    fn whoever_waits_while_an_origin_is_searched_does_not_outstay_the_cache() {
        let directory = tempfile::tempdir().unwrap();
        let (origins, is_over) = (origins(&directory, &["a"]), AtomicBool::new(false));
        let under_way = origins.searched[0].lock().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| origins.searched(0, &is_over));
            std::thread::park_timeout(3 * WAIT);
            let has_waited = !waiting.is_finished();
            is_over.store(true, Relaxed);
            let deadline = Instant::now() + Duration::from_secs(30);
            while !waiting.is_finished() && Instant::now() < deadline {
                std::thread::park_timeout(Duration::from_millis(1));
            }
            let is_let_go = waiting.is_finished();
            drop(under_way);
            assert_eq!(waiting.join().unwrap().unwrap_err().exit, Exit::Temporary);
            assert!(has_waited && is_let_go);
        });
    }

    #[test]
    fn origins_that_are_away_are_not_dialled_again_at_once_for_a_name_that_is_not_known() {
        let directory = tempfile::tempdir().unwrap();
        // It has no address: whoever asks it fails.
        let (origins, is_over) = (origins(&directory, &["a"]), Arc::default());
        let away = origins.set(NAME, &is_over).unwrap_err();
        assert_ne!(away.exit, Exit::SourceFileNotFound);
        let ask_at = |asked| {
            let slot = origins.sets.lock().unwrap()[NAME].clone();
            slot.state.lock().unwrap().asked = asked;
            origins.set(NAME, &is_over)
        };
        // What would be found now is not looked for yet.
        bring(&origins);
        assert_eq!(ask_at(Some(Instant::now() + IDLE)).unwrap_err(), away);
        assert_eq!(ask_at(Instant::now().checked_sub(AWAY)).unwrap().0.note.name, NAME);
    }

    #[test]
    fn nobody_waits_for_an_origin_that_is_searched_again_and_does_not_answer() {
        let directory = tempfile::tempdir().unwrap();
        let (mut origins, is_over) = (origins(&directory, &["a", "b"]), Arc::default());
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let known = &mut Arc::get_mut(&mut origins).unwrap().known.endpoints;
        Arc::get_mut(known).unwrap()[1].addresses.push(silent.local_addr().unwrap().to_string());
        bring(&origins);
        let (_, note) = origins.kept(NAME).unwrap().note().unwrap().unwrap();
        let (catalogue, holders) = (Arc::new(Catalogue::new(1 << 20)), vec![at("a")]);
        let now = OfSet(Arc::new(SetNow { note, catalogue, holders: holders.clone() }));
        // `a` said all of it just now, and `b` was searched long ago.
        let (asked, searched) = (Some(Instant::now() + IDLE), Instant::now().checked_sub(SEARCHED_AGAIN));
        let state = State { now: Some(now.clone()), asked, searched, holders, ..State::default() };
        let slot = Arc::new(Slot { state: Mutex::new(state), ..Slot::default() });
        origins.sets.lock().unwrap().insert(NAME.to_owned(), slot.clone());
        assert_eq!(origins.set(NAME, &is_over).unwrap(), now);
        let _asked = silent.accept().unwrap();
        assert!(slot.is_searched.load(Relaxed));
        assert_eq!(origins.set(NAME, &is_over).unwrap(), now);
        is_over.store(true, Relaxed);
    }

    #[test]
    fn a_set_that_is_known_is_kept_where_an_origin_lacks_a_part_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let (origins, is_over) = (origins(&directory, &[]), Arc::default());
        bring(&origins);
        let read = origins.set(NAME, &is_over).unwrap();
        let slot = origins.sets.lock().unwrap()[NAME].clone();
        let mut state = slot.state.lock().unwrap();
        let lacks = Err(Error::new(Exit::SourceFileNotFound, "a page is not there"));
        state.take(&lacks, true);
        assert!(state.now.as_ref() == Some(&read) && state.absent.is_none());
        state.take(&lacks, false);
        assert!(state.now.is_none() && state.absent.is_some());
    }
}
