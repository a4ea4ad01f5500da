//! Small files that are fetched before they are read, many at once.
//!
//! Invariants: of a lane at most `FILES_MAX` are under way or at hand, those that it reads first; of all lanes of a
//! server they take `BYTES_MAX` at most, beside one file of each lane, so that no lane waits for another one's. What
//! came of a file, an error too, is told once, when it is read; what was named before others were is not told any more.
//! A file that waits for its turn to be asked for with its checksum is waited for, however long that takes; of one that
//! is silent the lane itself asks for what is missing, and whoever asked before leaves off.
//!
//! Not here: requests, and what content is compared with (`reading`); whose turn it is (`digests`).

use crate::listing::Stat;
use crate::reading::DavFile;
use crate::site::Site;
use model::{Extent, Generation, ObjectId};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};
use store::SourceFile;
use web::WIDTH;

/// Twice as many as are asked for at once, so that there are more to ask for while the lane is elsewhere.
const FILES_MAX: usize = 2 * WIDTH;
/// Far more than are on their way over a long and fast path.
const BYTES_MAX: u64 = 16 << 20;
/// A lane asks itself for a file of which nothing comes for so long: XRootD 5.5 has a client wait 30 s, now and then.
const LATE: Duration = Duration::from_secs(2);
/// How often a lane that waits looks whether its file is late.
const LOOK: Duration = Duration::from_millis(100);
const BLOCK_BYTES: u64 = 128 << 10;

/// A file as it was listed.
pub struct Wanted {
    pub id: ObjectId,
    pub path: Vec<u8>,
    pub size_bytes: u64,
}

/// Content, and the generation seen after it was read.
pub type Fetched = store::Result<(Vec<u8>, Generation)>;

/// What came of a file, with the memory that it has until it is read.
type Came = (Fetched, Option<Room>);

/// A file that is asked for.
#[derive(Default)]
struct UnderWay(Mutex<State>);

#[derive(Default)]
struct State {
    /// Since when something is to come of it; nothing while it may wait for its turn, or is compared.
    due: Option<Instant>,
    /// What came, from its start.
    bytes: Vec<u8>,
    /// Somebody else goes on with it.
    is_taken: bool,
}

/// What one lane reads next.
pub struct Ahead {
    /// Not asked for yet.
    next: VecDeque<Wanted>,
    /// Asked for, and not read; with what came so far, until whoever asks is done.
    asked: HashMap<ObjectId, Weak<UnderWay>>,
    here: HashMap<ObjectId, Came>,
    tell: Sender<(ObjectId, Came)>,
    coming: Receiver<(ObjectId, Came)>,
}

impl Ahead {
    /// Asks for files that are read in this order.
    pub fn begin(site: &Arc<Site>, next: VecDeque<Wanted>) -> Ahead {
        let (tell, coming) = channel();
        let mut ahead = Ahead { next, asked: HashMap::new(), here: HashMap::new(), tell, coming };
        ahead.go_on(site);
        ahead
    }

    /// Asks for as many more as may be under way or at hand.
    fn go_on(&mut self, site: &Arc<Site>) {
        while self.asked.len() < FILES_MAX
            && let Some(wanted) = self.next.pop_front()
        {
            let room = Room::take(site, wanted.size_bytes);
            if room.is_none() && !self.asked.is_empty() {
                return self.next.push_front(wanted);
            }
            let under_way = Arc::new(UnderWay::default());
            self.asked.insert(wanted.id, Arc::downgrade(&under_way));
            let (of, tell) = (site.clone(), self.tell.clone());
            site.crew.hand_in(move || {
                let fetched = fetch(&of, &wanted, wanted.size_bytes, &under_way);
                let _ = tell.send((wanted.id, (fetched, room)));
            });
        }
    }

    /// What came of a file that was asked for; of another one, or one that does not come, what comes of asking now for
    /// what is missing of its first `bytes_max`.
    pub fn take(&mut self, site: &Arc<Site>, wanted: &Wanted, bytes_max: u64) -> Fetched {
        let mut begun = UnderWay::default();
        while let Some(under_way) = self.asked.get(&wanted.id)
            && !self.here.contains_key(&wanted.id)
        {
            // What was told until now is found without waiting.
            let under_way = under_way.upgrade();
            let is_late = under_way.as_ref().is_none_or(|file| file.state().is_late());
            let wait = if is_late { Duration::ZERO } else { LOOK };
            match self.coming.recv_timeout(wait) {
                Ok((id, came)) if self.asked.contains_key(&id) => _ = self.here.insert(id, came),
                // Its lane did not wait for it.
                Ok(_) => {}
                Err(_) if is_late => match under_way.map(|file| file.take_over()) {
                    Some(Some(taken)) => {
                        begun = taken;
                        break;
                    }
                    // It is late no longer: something came meanwhile.
                    Some(None) => {}
                    None => break,
                },
                Err(_) => {}
            }
        }
        self.asked.remove(&wanted.id);
        let came = self.here.remove(&wanted.id).map(|(fetched, _)| fetched);
        self.go_on(site);
        came.unwrap_or_else(|| fetch(site, wanted, bytes_max, &begun))
    }
}

/// Reads a file without looking at it first: the generation afterwards tells whether it is the one that was listed.
/// At a far server that states no checksums it waits for no turn to ask for one; near by that costs little.
fn fetch(site: &Arc<Site>, wanted: &Wanted, bytes_max: u64, under_way: &UnderWay) -> Fetched {
    let listed = Stat { size_bytes: wanted.size_bytes, ..Stat::default() };
    let mut file = DavFile::new(site.clone(), wanted.path.clone(), listed).begun(&under_way.state().bytes);
    if site.is_far() && site.digests.states_none() {
        file = file.uncompared();
        under_way.state().due = Some(Instant::now());
    }
    read(&file, bytes_max, under_way)?;
    under_way.state().due = Some(Instant::now());
    let generation = file.generation()?;
    Ok((under_way.end(), generation))
}

/// Adds what is missing of the first `bytes_max` of a file; nothing of another version than was listed.
fn read(file: &DavFile, bytes_max: u64, under_way: &UnderWay) -> store::Result<()> {
    let (start, end) = (under_way.state().bytes.len() as u64, bytes_max.min(file.size_bytes()));
    let mut block = vec![0; file.size_bytes().clamp(1, BLOCK_BYTES) as usize];
    let read = file.extent(Extent { start, end }, &mut block, &mut |some| under_way.add(some, end))?;
    under_way.state().bytes.truncate((start + read) as usize);
    Ok(())
}

impl UnderWay {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Takes what came, unless somebody else goes on with the file.
    fn add(&self, some: &[u8], end: u64) -> bool {
        let mut state = self.state();
        if state.is_taken {
            return false;
        }
        state.bytes.extend_from_slice(some);
        // Once it is whole, its checksum may have to be asked for.
        let is_whole = state.bytes.len() as u64 == end;
        state.due = (!is_whole).then(Instant::now);
        true
    }

    /// All that came. Nobody goes on with the file from here on: it is about to be told of.
    fn end(&self) -> Vec<u8> {
        let mut state = self.state();
        state.due = None;
        std::mem::take(&mut state.bytes)
    }

    /// Hands what came so far to whoever goes on with the file, if it is still late. What is whole was compared by
    /// then.
    fn take_over(&self) -> Option<UnderWay> {
        let mut state = self.state();
        if !state.is_late() {
            return None;
        }
        state.is_taken = true;
        let bytes = std::mem::take(&mut state.bytes);
        Some(UnderWay(Mutex::new(State { bytes, ..State::default() })))
    }
}

impl State {
    fn is_late(&self) -> bool {
        self.due.is_some_and(|since| since.elapsed() >= LATE)
    }
}

/// Memory for a file that is fetched ahead.
struct Room(Arc<Site>, u64);

impl Room {
    fn take(site: &Arc<Site>, bytes: u64) -> Option<Room> {
        let more = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= BYTES_MAX);
        let is_there = site.ahead_bytes.fetch_update(Relaxed, Relaxed, more).is_ok();
        is_there.then(|| Room(site.clone(), bytes))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.0.ahead_bytes.fetch_sub(self.1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::SiteConfig;
    use fakes::dav::Manners;
    use web::{Origin, Stop};

    /// A server that has no file.
    fn site() -> Arc<Site> {
        let dir = tempfile::tempdir().unwrap();
        let address = fakes::dav::start(dir.path(), Manners::default(), Arc::new(|_| None));
        let origin = Origin::parse(&format!("http://{address}")).unwrap();
        Arc::new(Site::new(origin, None, false, &SiteConfig::default(), Stop::default()).unwrap())
    }

    fn files(count: u64, size_bytes: u64) -> VecDeque<Wanted> {
        let wanted = |number: u64| Wanted { id: ObjectId(number), path: format!("/{number}").into_bytes(), size_bytes };
        (1..=count).map(wanted).collect()
    }

    #[test]
    fn a_file_that_has_come_late_and_whole_is_not_fetched_once_more() {
        let late = Instant::now().checked_sub(LATE).unwrap();
        let file = || UnderWay(Mutex::new(State { due: Some(late), bytes: b"content".to_vec(), is_taken: false }));
        let (taken, ended) = (file(), file());
        assert_eq!(taken.take_over().map(|begun| begun.end()).as_deref(), Some(&b"content"[..]));
        assert!(ended.end() == b"content" && ended.take_over().is_none());
    }

    #[test]
    fn no_more_files_are_asked_for_than_may_wait_to_be_read() {
        let (site, count) = (site(), 3 * FILES_MAX);
        let mut ahead = Ahead::begin(&site, files(count as u64, 10));
        assert_eq!((ahead.asked.len(), ahead.next.len()), (FILES_MAX, count - FILES_MAX));
        for (number, wanted) in files(count as u64, 10).iter().enumerate() {
            assert_eq!(ahead.take(&site, wanted, 10).unwrap_err().kind, model::FailureKind::NotFound);
            let left = count - number - 1;
            assert_eq!((ahead.asked.len(), ahead.here.len() < FILES_MAX), (left.min(FILES_MAX), true));
        }
    }

    #[test]
    fn lanes_share_the_memory_for_what_they_fetch_and_each_has_one_file_in_any_case() {
        const EACH_BYTES: u64 = BYTES_MAX / 8;
        let site = site();
        let mut lanes = [(); 3].map(|()| Ahead::begin(&site, files(20, EACH_BYTES)));
        assert_eq!([0, 1, 2].map(|lane: usize| lanes[lane].asked.len()), [8, 1, 1]);
        assert_eq!(site.ahead_bytes.load(Relaxed), BYTES_MAX);
        for wanted in files(20, EACH_BYTES) {
            for ahead in &mut lanes {
                assert!(ahead.take(&site, &wanted, EACH_BYTES).is_err());
                assert!(site.ahead_bytes.load(Relaxed) <= BYTES_MAX);
            }
        }
        assert_eq!(site.ahead_bytes.load(Relaxed), 0);
        assert!(lanes.iter().all(|ahead| ahead.asked.is_empty() && ahead.here.is_empty()));
    }
}
