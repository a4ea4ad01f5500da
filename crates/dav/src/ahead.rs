//! Small files that are fetched before they are read, many at once.
//!
//! Invariants: of a lane at most `FILES_MAX` are under way or at hand, those that it reads first; of all lanes of a
//! server they take `BYTES_MAX` at most, beside one file of each lane, so that no lane waits for another one's. What
//! came of a file, an error too, is told once, when it is read; what was named before others were is not told any more.
//! Content that its checksum does not confirm counts for nothing: the file is read as any other one is.
//!
//! Not here: requests, and what the content of other files is compared with (`reading`); how checksums come
//! (`checksums`).

use crate::listing::Stat;
use crate::reading::DavFile;
use crate::site::Site;
use model::{Extent, Generation, ObjectId};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use store::SourceFile;
use web::WIDTH;

/// Twice as many as are asked for at once, so that there are more to ask for while the lane is elsewhere.
const FILES_MAX: usize = 2 * WIDTH;
/// Far more than are on their way over a long and fast path.
const BYTES_MAX: u64 = 16 << 20;
/// If nothing comes for so long, a lane asks for its file itself: XRootD 5.5 has a client wait 30 s, now and then.
const LATE: Duration = Duration::from_secs(2);
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

/// What one lane reads next.
pub struct Ahead {
    /// Not asked for yet.
    next: VecDeque<Wanted>,
    /// Asked for, and not read.
    asked: HashSet<ObjectId>,
    here: HashMap<ObjectId, Came>,
    tell: Sender<(ObjectId, Came)>,
    coming: Receiver<(ObjectId, Came)>,
}

impl Ahead {
    /// Asks for files that are read in this order.
    pub fn begin(site: &Arc<Site>, next: VecDeque<Wanted>) -> Ahead {
        let (tell, coming) = channel();
        let mut ahead = Ahead { next, asked: HashSet::new(), here: HashMap::new(), tell, coming };
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
            self.asked.insert(wanted.id);
            let (of, tell) = (site.clone(), self.tell.clone());
            site.crew.hand_in(move || {
                let fetched = fetch(&of, &wanted, wanted.size_bytes);
                let _ = tell.send((wanted.id, (fetched, room)));
            });
        }
    }

    /// What came of a file that was asked for; of another one, or one that does not come, what comes of asking now for
    /// its first `bytes_max`.
    pub fn take(&mut self, site: &Arc<Site>, wanted: &Wanted, bytes_max: u64) -> Fetched {
        while self.asked.contains(&wanted.id) && !self.here.contains_key(&wanted.id) {
            match self.coming.recv_timeout(LATE) {
                Ok((id, came)) if self.asked.contains(&id) => _ = self.here.insert(id, came),
                // Its lane did not wait for it.
                Ok(_) => {}
                Err(_) => break,
            }
        }
        self.asked.remove(&wanted.id);
        let came = self.here.remove(&wanted.id).map(|(fetched, _)| fetched);
        self.go_on(site);
        came.unwrap_or_else(|| fetch(site, wanted, bytes_max))
    }
}

/// Reads a file without looking at it first: the generation afterwards tells whether it is the one that was listed.
fn fetch(site: &Arc<Site>, wanted: &Wanted, bytes_max: u64) -> Fetched {
    let is_whole = (1..=bytes_max).contains(&wanted.size_bytes);
    if is_whole
        && site.is_asked_in_runs()
        && let Some(fetched) = fetch_apart(site, wanted)?
    {
        return Ok(fetched);
    }
    let file = file(site, wanted);
    Ok((read(&file, bytes_max)?, file.generation()?))
}

/// Reads a file whole, and asks for its checksum then; nothing where what comes for it does not confirm the content.
fn fetch_apart(site: &Arc<Site>, wanted: &Wanted) -> store::Result<Option<(Vec<u8>, Generation)>> {
    let file = file(site, wanted).uncompared();
    let bytes = read(&file, wanted.size_bytes)?;
    if (bytes.len() as u64) < wanted.size_bytes || site.digests.states_none() {
        return Ok(Some((bytes, file.generation()?)));
    }
    let ticket = site.want_in_run(&wanted.path);
    let generation = file.generation();
    let is_confirmed = match site.stated_in_run(ticket) {
        Some(stated) => stated == simd_adler32::adler32(&&bytes[..]),
        None => site.digests.states_none(),
    };
    if is_confirmed { Ok(Some((bytes, generation?))) } else { Ok(None) }
}

fn file(site: &Arc<Site>, wanted: &Wanted) -> DavFile {
    let listed = Stat { size_bytes: wanted.size_bytes, ..Stat::default() };
    DavFile::new(site.clone(), wanted.path.clone(), listed)
}

/// The first `bytes_max` of a file; nothing of another version than was listed.
fn read(file: &DavFile, bytes_max: u64) -> store::Result<Vec<u8>> {
    let (mut bytes, mut block) = (Vec::new(), vec![0; file.size_bytes().clamp(1, BLOCK_BYTES) as usize]);
    let read = file.extent(Extent { start: 0, end: bytes_max }, &mut block, &mut |some| {
        bytes.extend_from_slice(some);
        true
    })?;
    bytes.truncate(read as usize);
    Ok(bytes)
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
