//! Several holders of the same objects, and one receiver: a job for each holder, of which the first, the lead's, is the one that
//! decides, stages, publishes and counts. The jobs of the others only bring content into it.
//!
//! ```text
//! lead's job     listing ─► decide ─► Book ─► Want, AskDigests ─► lead
//! holder's job   listing ─► offers ─► Book ─► Want ─► holder ═══► lane ─► compared with what the lead told ─► lead's staging
//! ```
//! `book` decides who is asked for what, `spans` knows the chunks of an object, `seats` the holders, `keys` compares listings.
//!
//! Invariants:
//! - What a holder brings is recorded only if it has the digest that the lead told of it.
//! - Messages leave under the book's lock, in the order in which the book decided, and wait for no holder: one that leaves too
//!   much unread loses its session.
//!
//! Not here: sessions, and who becomes the lead (`transfer`).

mod book;
mod keys;
mod proofs;
mod seats;
mod spans;
#[cfg(test)]
mod tests;

pub use keys::Keys;
pub use proofs::Proofs;
pub use seats::{LEAD, Tally};

use super::tell::{Words, resends, wants};
use crate::memory::Permit;
use crate::progress::Progress;
pub use book::Missing;
pub use book::Wanted;
use book::{Action, Book};
use model::options::Compare;
use model::{Digest, DigestAlgorithm, End, Entry, Extent, Kind, ObjectId, TransferOptions, VersionToken};
use os::sync::{Condvar, Mutex};
use os::time::Instant;
use proofs::Told;
use seats::Offer;
use std::any::Any;
use std::hash::RandomState;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use wire::Message;
use wire::listing::Described;
use wire::message::{AskDigests, DigestRecord, ExtentRecord, Held, runs_of};

/// How often the clock is looked at.
pub const TICK: Duration = Duration::from_millis(100);

/// What the jobs of several holders have in common.
pub struct Gather {
    book: Mutex<Book>,
    chairs: Vec<Chair>,
    /// Of the digests of paths.
    key: RandomState,
    chunk_bytes: u64,
    started: Instant,
    /// What a catalogue tells, where it is the lead.
    told: Option<Told>,
    outvoted: OnceLock<String>,
    has_lead: Condvar,
    lead: Mutex<Option<Weak<dyn Seated>>>,
}

/// What the book needs of a receiving job.
pub trait Seated: Send + Sync {
    fn number(&self) -> u32;
    /// Never waits.
    fn send(&self, message: Message);
    fn progress(&self) -> &Arc<Progress>;
    /// So many of what its sender described are over.
    fn count_settled(&self, entries: u64);
    /// So many digests were asked of its sender.
    fn count_asked(&self, digests: u64);
    /// Chunks that an earlier attempt left are what the sender has.
    fn adopt(self: Arc<Self>, id: u64, chunks: &[(Extent, Digest)]);
    /// What an earlier attempt left is not.
    fn start_over(&self, id: u64);
    /// Nobody can bring these.
    fn fail_missing(&self, missing: &[Missing]);
    fn give_up(&self, why: &str);
    /// As if its session were lost.
    fn lose(&self, why: &str);
    /// The job itself, for downcasting.
    fn any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// One holder's.
struct Chair {
    /// As it was asked for there.
    path: Vec<u8>,
    job: Mutex<Option<Weak<dyn Seated>>>,
    /// Of each session with it.
    progress: Mutex<Vec<Arc<Progress>>>,
}

/// A job's place among those of several holders.
pub struct Place {
    pub gather: Arc<Gather>,
    pub holder: usize,
    /// What all that comes is counted with; nothing for the lead.
    lead_progress: Option<Arc<Progress>>,
}

impl Gather {
    /// For one attempt. `paths` as they are asked for at each holder, the lead's first.
    pub fn new(options: &TransferOptions, paths: Vec<Vec<u8>>) -> Arc<Gather> {
        let ignores_times = matches!(options.compare, Compare::Size | Compare::Checksum);
        let book = Book::new(options.chunk_bytes, paths.len(), ignores_times);
        Gather::of(book, options.chunk_bytes, paths, RandomState::new(), None)
    }

    /// For one attempt at what a catalogue lists. `paths` as they are asked for at each holder.
    pub fn of_list(options: &TransferOptions, paths: Vec<Vec<u8>>, proofs: Arc<dyn Proofs>) -> Arc<Gather> {
        let key = RandomState::new();
        let told = Told::new(proofs, &key);
        let paths: Vec<_> = std::iter::once(Vec::new()).chain(paths).collect();
        let book = Book::of_list(options.chunk_bytes, paths.len());
        Gather::of(book, options.chunk_bytes, paths, key, Some(told))
    }

    fn of(book: Book, chunk_bytes: u64, paths: Vec<Vec<u8>>, key: RandomState, told: Option<Told>) -> Arc<Gather> {
        let chair = |path| Chair { path, job: Mutex::default(), progress: Mutex::default() };
        Arc::new(Gather {
            book: Mutex::new(book),
            chairs: paths.into_iter().map(chair).collect(),
            key,
            chunk_bytes,
            told,
            started: Instant::now(),
            outvoted: OnceLock::new(),
            has_lead: Condvar::new(),
            lead: Mutex::default(),
        })
    }

    /// Whether the lead's job has begun, and runs.
    pub fn has_lead(&self, patience: Duration) -> bool {
        let is_there = |lead: &Option<Weak<dyn Seated>>| lead.as_ref().is_some_and(|lead| lead.strong_count() > 0);
        let lead = self.lead.lock().unwrap();
        is_there(&lead) || is_there(&self.has_lead.wait_timeout(lead, patience).unwrap().0)
    }

    pub fn lead(&self) -> Option<Arc<dyn Seated>> {
        self.job(LEAD)
    }

    /// Gives a job its place, before it starts. `None` for a holder whose lead's job is over.
    pub fn seat(self: &Arc<Gather>, holder: usize, job: &Arc<dyn Seated>) -> Option<Place> {
        let is_lead = holder == LEAD;
        let lead = self.job(LEAD);
        if !is_lead && lead.is_none() {
            return None;
        }
        let chair = &self.chairs[holder];
        *chair.job.lock().unwrap() = Some(Arc::downgrade(job));
        chair.progress.lock().unwrap().push(job.progress().clone());
        let lead_progress = lead.filter(|_| !is_lead).map(|lead| lead.progress().clone());
        Some(Place { gather: self.clone(), holder, lead_progress })
    }

    /// The job is ready for what it will be asked.
    pub fn join(&self, holder: usize) {
        self.act(|book| book.join(holder));
        if holder == LEAD {
            *self.lead.lock().unwrap() = self.chairs[LEAD].job.lock().unwrap().clone();
            self.has_lead.notify_all();
        }
    }

    /// A holder brings nothing more, or not before it is back.
    pub fn gone(&self, holder: usize, why: &str, is_for_good: bool) {
        self.act(|book| book.gone(holder, why, is_for_good));
    }

    pub fn tallies(&self) -> Vec<Tally> {
        self.book.lock().unwrap().tallies()
    }

    /// Whether a holder is not to come back.
    pub fn is_dropped(&self, holder: usize) -> bool {
        self.book.lock().unwrap().seats[holder].is_dropped
    }

    /// Why the lead is not to be trusted.
    pub fn outvoted(&self) -> Option<&String> {
        self.outvoted.get()
    }

    /// Changes the book, and does what follows from it.
    fn act<T>(&self, change: impl FnOnce(&mut Book) -> T) -> T {
        let mut book = self.book.lock().unwrap();
        let changed = change(&mut book);
        // What is not a message may come back here.
        let later: Vec<_> = self.decided(&mut book).into_iter().filter_map(|action| self.say(action)).collect();
        drop(book);
        later.into_iter().for_each(|action| self.carry_out(action));
        changed
    }

    /// What is to be done now; what a catalogue tells is told at once.
    fn decided(&self, book: &mut Book) -> Vec<Action> {
        let mut decided = Vec::new();
        loop {
            book.assign();
            let actions = book.take_actions();
            let Some(told) = &self.told else { return actions };
            let before = decided.len();
            let count = actions.len();
            for action in actions {
                match action {
                    Action::AskWhole(ids) => ids.into_iter().for_each(|id| told.tell(book, id, 0, 1)),
                    Action::AskWindow(id, window) => {
                        let first = window.start / self.chunk_bytes;
                        told.tell(book, id, first, window.length().div_ceil(self.chunk_bytes));
                    }
                    other => decided.push(other),
                }
            }
            if decided.len() - before == count {
                return decided;
            }
        }
    }

    fn job(&self, holder: usize) -> Option<Arc<dyn Seated>> {
        self.chairs[holder].job.lock().unwrap().as_ref()?.upgrade()
    }

    /// Sends what is a message, and returns what is not.
    fn say(&self, action: Action) -> Option<Action> {
        match action {
            Action::AskWhole(ids) => self.ask(ids, 0, 0),
            Action::AskWindow(id, window) => {
                let chunks = window.length().div_ceil(self.chunk_bytes) as u32;
                self.ask(vec![id], window.start / self.chunk_bytes, chunks);
            }
            Action::Want { holder, is_again, whole, parts } => {
                let job = self.job(holder)?;
                let record = |(object, part): (u64, Extent)| ExtentRecord { object, start: part.start, end: part.end };
                let mut extents: Vec<_> = parts.into_iter().map(record).collect();
                extents.sort_by_key(|extent| (extent.object, extent.start));
                let (number, runs) = (job.number(), runs_of(whole));
                match is_again {
                    true => resends(number, runs, extents).for_each(|again| job.send(Message::Resend(again))),
                    false => wants(number, runs, &extents).into_iter().for_each(|want| job.send(Message::Want(want))),
                }
            }
            Action::Settled { holder, brought, others } => {
                let job = self.job(holder)?;
                let count = (brought.len() + others.len()) as u64;
                let published = brought.into_iter().map(|id| (id, None)).collect();
                let words = Words { published, skipped: others, failed: Vec::new() };
                words.messages(job.number()).for_each(|settled| job.send(Message::Settled(settled)));
                job.count_settled(count);
            }
            later => return Some(later),
        }
        None
    }

    fn ask(&self, ids: Vec<u64>, chunk_first: u64, chunk_count: u32) {
        let Some(job) = self.job(LEAD) else { return };
        job.count_asked(ids.len() as u64);
        let runs = runs_of(ids);
        job.send(Message::AskDigests(AskDigests { job: job.number(), runs, chunk_first, chunk_count }));
    }

    fn carry_out(&self, action: Action) {
        let holder = if let Action::Drop(holder, _) = &action { *holder } else { LEAD };
        let Some(job) = self.job(holder) else { return };
        match action {
            Action::Adopt(id, chunks) => job.adopt(id, &chunks),
            // In this order: what came into the old staging is asked for again, whenever the book hears of it.
            Action::StartOver(id) => {
                job.start_over(id);
                self.again(id, None);
            }
            Action::Unobtainable(missing) => job.fail_missing(&missing),
            Action::Outvoted(why) => {
                let _ = self.outvoted.set(why.clone());
                job.give_up(&why);
            }
            // Without the lead the attempt is over; the next one begins with another.
            Action::Drop(LEAD, why) => job.lose(&why),
            Action::Drop(_, why) => job.give_up(&why),
            _ => {}
        }
    }

    /// Of the lead's listing, what is wanted and what is not.
    pub fn listed(&self, wanted: Vec<Wanted>, passed: Vec<u64>) {
        self.act(|book| {
            book.passed(passed);
            book.listed(wanted);
        });
    }

    pub fn lead_listed(&self) {
        if !self.book.lock().unwrap().is_lead_listed() {
            self.act(Book::lead_listed);
        }
    }

    /// A holder has described everything that it has.
    pub fn holder_listed(&self, holder: usize) {
        self.book.lock().unwrap().holder_listed(holder);
    }

    /// What the lead told, as far as it was asked here. Returns the rest.
    pub fn told(&self, records: Vec<DigestRecord>) -> Vec<DigestRecord> {
        let algorithm = DigestAlgorithm::Blake3;
        self.act(|book| {
            let of_others = |record: &DigestRecord| !book.is_asking(record.object);
            let (others, own): (Vec<_>, Vec<_>) = records.into_iter().partition(of_others);
            for record in own {
                let digests = record.digest.chunks_exact(algorithm.digest_bytes());
                let digests: Vec<_> = digests.filter_map(|bytes| algorithm.digest_from_bytes(bytes)).collect();
                book.told(record.object, &digests);
            }
            others
        })
    }

    pub fn settled(&self, ids: impl Iterator<Item = u64>) {
        self.act(|book| book.settled(ids));
    }

    /// An object, or a chunk of one, is to be asked for again.
    pub fn again(&self, id: u64, extent: Option<Extent>) {
        self.act(|book| book.release(id, extent));
    }

    pub fn tick(&self) {
        let mut moved: Vec<u64> = Vec::new();
        for chair in &self.chairs {
            let sessions = chair.progress.lock().unwrap();
            moved.push(sessions.iter().map(|progress| progress.counters.bytes_sent.load(Relaxed)).sum());
        }
        // All that comes is counted with the lead's. A catalogue sends nothing, whatever came by another one before.
        moved[LEAD] = match self.told {
            Some(_) => 0,
            None => moved[LEAD].saturating_sub(moved[1..].iter().sum()),
        };
        let now_us = self.started.elapsed().as_micros() as u64;
        self.act(|book| book.tick(now_us, &moved));
    }
}

impl Place {
    pub fn is_lead(&self) -> bool {
        self.holder == LEAD
    }

    pub fn keys(&self) -> Keys {
        Keys::new(&self.gather.key, &self.gather.chairs[self.holder].path)
    }

    /// Counts content with the job that it goes to, too.
    pub fn payload_moved(&self, bytes: u64) {
        if let Some(progress) = &self.lead_progress {
            progress.payload_moved(bytes);
        }
    }

    /// What a holder describes: files are offered, and everything else is the lead's to bring.
    /// Returns how many are settled by being described.
    pub fn offered(&self, keys: &mut Keys, batch: Vec<Described>, charge: &Arc<Permit>) -> u64 {
        let mut offers = Vec::new();
        let mut unused = Vec::new();
        let mut settled = 0;
        for described in batch {
            keys.note(&described);
            match described {
                Described::Entry { entry, end, .. } => match entry.kind {
                    Kind::File if end == End::Known => {
                        let key = keys.of(entry.parent, &entry.name);
                        offers.push((key, offer_of(entry, charge.clone())));
                    }
                    Kind::Directory | Kind::HardLink(_) => settled += 1,
                    _ => unused.push(entry.id.0),
                },
                Described::BadName { id, .. } => unused.push(id.0),
            }
        }
        self.gather.act(|book| {
            offers.into_iter().for_each(|(key, offer)| book.offered(self.holder, key, offer));
            book.unused(self.holder, unused);
        });
        settled
    }

    /// Objects of a holder failed there, or changed.
    pub fn gave_up(&self, theirs: impl IntoIterator<Item = u64>) {
        let theirs = theirs.into_iter();
        let open = self.gather.act(|book| theirs.filter(|theirs| book.withdrawn(self.holder, *theirs)).count());
        // Only what was open: a holder must not raise its own credit by giving up what it never described.
        if open > 0
            && let Some(job) = self.gather.job(self.holder)
        {
            job.count_settled(open as u64);
        }
    }

    /// The lead's number of what comes from a holder, and the digest that it has to have. Nothing if it was not asked of it.
    pub fn expected(&self, theirs: ObjectId, extent: Extent) -> Option<(u64, Digest)> {
        self.gather.book.lock().unwrap().expected(self.holder, theirs.0, extent)
    }

    /// A chunk went into staging; it counts if it is still there, which is asked while the book stands still.
    pub fn brought(&self, id: u64, extent: Extent, is_there: impl FnOnce() -> bool) {
        self.gather.act(|book| book.brought(self.holder, id, extent, is_there()));
    }

    /// A small file broke off on its way from this holder.
    pub fn broke_off(&self, id: u64) {
        self.gather.act(|book| book.broke_off(self.holder, id));
    }

    pub fn staged(&self, id: u64) {
        self.gather.act(|book| book.staged(self.holder, id));
    }

    pub fn bad(&self, id: u64, extent: Extent, digest: Digest) {
        self.gather.act(|book| book.bad(self.holder, id, extent, digest));
    }

    /// Tells a holder that a chunk of its came, whatever it was worth.
    pub fn tell_held(&self, theirs: ObjectId, extent: Extent) {
        if let Some(job) = self.gather.job(self.holder) {
            let extents = vec![ExtentRecord { object: theirs.0, start: extent.start, end: extent.end }];
            job.send(Message::Held(Held { job: job.number(), extents }));
        }
    }
}

/// What tells versions apart on one file system means nothing on another.
pub fn without_version(mut entry: Entry) -> Entry {
    entry.generation.version = VersionToken::default();
    entry
}

fn offer_of(entry: Entry, charge: Arc<Permit>) -> Offer {
    let (size_bytes, modified) = (entry.size_bytes(), entry.generation.modified);
    Offer { theirs: entry.id.0, name: entry.name, size_bytes, modified, _charge: Some(charge) }
}
