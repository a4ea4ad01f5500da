//! Memory for bodies: for what is sent, from when it is begun until the store has it, and for what is fetched ahead. The buckets of
//! a process have it together, and `--memory` says how much it is. Many small requests go by `web::in_parallel`.
//!
//! Invariants: what is taken, and the buffers that are kept beside it, stay within the bound, but for what keeps a job going. Its
//! first body is taken in any case, and others up to `OWN_BYTES`, so that no job waits for another one, or for what was fetched
//! ahead. Its second one may go beyond the bound by its length, or `BESIDE_BYTES`, so that one is filled while another is on its
//! way. One body counts as a third of the bound at most, so that small ones find room beside long ones. One more is let in when
//! nothing of the job has moved for `STUCK`: what its bodies lack may come behind that one. Objects that wait whole for their names
//! leave half to parts. Whoever fetches ahead never waits, and leaves a third of it to what is sent; `AHEAD_BYTES` it has in any case.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What `--memory` is where nobody says it.
const USUAL_BYTES: u64 = 96 << 20;
/// However little it says: four parts of the usual length.
const LEAST_BYTES: u64 = 32 << 20;
/// Another part of the longest that a pipe makes, beside one, within the usual bound.
const BESIDE_BYTES: u64 = 32 << 20;
/// What a job has in any case: two parts of the usual length, or many small objects.
const OWN_BYTES: u64 = 16 << 20;
/// What is fetched ahead in any case: two windows of whoever reads block by block.
const AHEAD_BYTES: u64 = 16 << 20;
/// How long nothing of a job moves before it is let beyond the bound.
const STUCK: Duration = Duration::from_secs(10);
/// What a job takes then at most, or so many bodies, however long they are.
const STUCK_BYTES_MAX: u64 = 1 << 30;
const STUCK_MIN: u64 = 4;
/// And how long before it is refused.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often whoever waits looks after what else there is to do.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Buffers of such a length are worth keeping: fresh memory costs as much as sending them.
const KEPT_BYTES: std::ops::RangeInclusive<usize> = 1 << 20..=16 << 20;

/// Memory for bodies. Clones are the same memory.
#[derive(Clone)]
pub struct Permits(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    whole: u64,
    taken: u64,
    /// Of that, for what is fetched ahead.
    ahead: u64,
    /// Of that, for objects that wait whole for their names.
    objects: u64,
    /// That were used, for whoever needs one next; none once nothing is taken.
    buffers: Vec<Vec<u8>>,
}

/// What a job has of that memory.
pub struct Rooms {
    permits: Permits,
    share: Arc<Share>,
}

#[derive(Default)]
struct Share {
    bytes: AtomicU64,
    /// Bodies that requests carry. A request ends, whatever comes of it.
    leaving: AtomicU64,
    /// What has happened so far.
    moves: AtomicU64,
    is_over: AtomicBool,
}

/// The right to hold so many bytes. Given back when it is dropped.
pub struct Permit {
    of: Permits,
    /// What it counts as.
    bytes: u64,
    holder: Holder,
    /// One that comes with it, or that goes back with it.
    buffer: Vec<u8>,
}

enum Holder {
    Ahead,
    Job {
        share: Arc<Share>,
        /// As long as it is, whatever it counts as.
        body_bytes: u64,
        is_whole: bool,
        is_leaving: bool,
    },
}

impl Default for Permits {
    fn default() -> Permits {
        Permits::new(USUAL_BYTES)
    }
}

impl Permits {
    pub fn new(memory_bytes: u64) -> Permits {
        let permits = Permits(Arc::default());
        permits.resize(memory_bytes);
        permits
    }

    /// From now on; what is taken stays taken.
    pub fn resize(&self, memory_bytes: u64) {
        self.state().whole = memory_bytes.max(LEAST_BYTES);
        self.0.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    /// For what may never be wanted: without waiting, and beyond `AHEAD_BYTES` only while it is within the bound.
    pub fn spare(&self, bytes: u64) -> Option<Permit> {
        let mut state = self.state();
        let is_within = state.ahead + bytes <= state.whole / 3 * 2 && state.taken + bytes <= state.whole;
        if state.ahead + bytes > AHEAD_BYTES && !is_within {
            return None;
        }
        state.ahead += bytes;
        Some(self.grant(state, bytes, Holder::Ahead))
    }

    fn grant(&self, mut state: MutexGuard<'_, State>, bytes: u64, holder: Holder) -> Permit {
        state.taken += bytes;
        // None that is longer than what is paid for.
        let at = state.buffers.iter().position(|buffer| buffer.capacity() as u64 <= bytes);
        let buffer = at.map(|at| state.buffers.swap_remove(at)).unwrap_or_default();
        state.trim();
        drop(state);
        Permit { of: self.clone(), bytes, holder, buffer }
    }
}

impl State {
    /// Whether a job that has `own` bytes may have so many more.
    fn fits(&self, bytes: u64, own: u64, is_whole: bool) -> bool {
        let beside = if own <= bytes { BESIDE_BYTES.max(bytes) } else { 0 };
        let has_parts = self.taken > self.objects;
        let is_crowded = is_whole && has_parts && self.objects + bytes > self.whole / 2;
        own == 0 || own + bytes <= OWN_BYTES || (!is_crowded && self.taken + bytes <= self.whole + beside)
    }

    /// Gives buffers up that are beyond the bound.
    fn trim(&mut self) {
        let kept = |buffers: &[Vec<u8>]| buffers.iter().map(|buffer| buffer.capacity() as u64).sum::<u64>();
        while self.taken + kept(&self.buffers) > self.whole && self.buffers.pop().is_some() {}
    }
}

impl Rooms {
    pub fn new(permits: Permits) -> Rooms {
        Rooms { permits, share: Arc::default() }
    }

    /// Bytes of a body have come.
    pub fn moved(&self) {
        self.share.moves.fetch_add(1, Relaxed);
    }

    /// A request is under way that carries no body, and lets others leave when it ends.
    pub fn busy(&self) -> Permit {
        let mut permit = self.grant(self.permits.state(), 0, false);
        permit.leaves();
        permit
    }

    /// The job is over: whoever waits for room hears so at once, and there is none any more.
    pub fn end(&self) {
        self.share.is_over.store(true, Relaxed);
        self.permits.0.changed.notify_all();
    }

    pub fn is_over(&self) -> bool {
        self.share.is_over.load(Relaxed)
    }

    /// Waits until there is room for a body, and does something else now and then `meanwhile`. Nothing when none of the job's bodies
    /// moves for long, or the job is over.
    ///
    /// # Errors
    /// Those of what it does meanwhile.
    pub fn take(&self, bytes: u64, meanwhile: &mut dyn FnMut() -> store::Result<()>) -> store::Result<Option<Permit>> {
        self.take_within(bytes, false, (STUCK, PATIENCE), meanwhile)
    }

    /// The same for an object that waits whole for its name.
    ///
    /// # Errors
    /// None.
    pub fn take_whole(&self, bytes: u64) -> store::Result<Option<Permit>> {
        self.take_within(bytes, true, (STUCK, PATIENCE), &mut || Ok(()))
    }

    fn take_within(
        &self,
        bytes: u64,
        is_whole: bool,
        (stuck, patience): (Duration, Duration),
        meanwhile: &mut dyn FnMut() -> store::Result<()>,
    ) -> store::Result<Option<Permit>> {
        let share = &self.share;
        let (mut moves, mut since, mut is_stuck) = (share.moves.load(Relaxed), Instant::now(), false);
        loop {
            if self.is_over() {
                return Ok(None);
            }
            let state = self.permits.state();
            let own = share.bytes.load(Relaxed);
            let may_exceed = is_stuck && own + bytes <= STUCK_BYTES_MAX.max(STUCK_MIN * bytes);
            if may_exceed || state.fits(bytes, own, is_whole) {
                return Ok(Some(self.grant(state, bytes, is_whole)));
            }
            drop(self.permits.0.changed.wait_timeout(state, LOOK_INTERVAL.min(patience)).unwrap());
            let now = share.moves.load(Relaxed);
            let is_moving = now != moves || share.leaving.load(Relaxed) > 0;
            if is_moving {
                (moves, since) = (now, Instant::now());
            } else if since.elapsed() >= patience {
                return Ok(None);
            }
            is_stuck = !is_moving && since.elapsed() >= stuck;
            meanwhile()?;
        }
    }

    fn grant(&self, mut state: MutexGuard<'_, State>, body_bytes: u64, is_whole: bool) -> Permit {
        self.share.bytes.fetch_add(body_bytes, Relaxed);
        self.moved();
        let bytes = body_bytes.min(state.whole / 3);
        state.objects += if is_whole { bytes } else { 0 };
        let holder = Holder::Job { share: self.share.clone(), body_bytes, is_whole, is_leaving: false };
        self.permits.grant(state, bytes, holder)
    }
}

impl Permit {
    /// An empty buffer, which may have room already.
    pub fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer
    }

    /// A buffer of so many bytes, whatever they are.
    pub fn filled(&mut self, length: usize) -> Vec<u8> {
        let mut buffer = std::mem::take(&mut self.buffer);
        match buffer.capacity() < length {
            true => vec![0; length],
            false => {
                buffer.resize(length, 0);
                buffer
            }
        }
    }

    /// A request carries it from here on.
    pub fn leaves(&mut self) {
        if let Holder::Job { share, is_leaving, .. } = &mut self.holder
            && !std::mem::replace(is_leaving, true)
        {
            share.leaving.fetch_add(1, Relaxed);
        }
    }

    /// Gives it back, with a buffer whose bytes are not wanted any more.
    pub fn end_with(mut self, buffer: Vec<u8>) {
        self.buffer = buffer;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut state = self.of.state();
        state.taken -= self.bytes;
        match &self.holder {
            Holder::Ahead => state.ahead -= self.bytes,
            Holder::Job { share, body_bytes, is_whole, is_leaving } => {
                state.objects -= if *is_whole { self.bytes } else { 0 };
                share.bytes.fetch_sub(*body_bytes, Relaxed);
                share.leaving.fetch_sub(u64::from(*is_leaving), Relaxed);
                share.moves.fetch_add(1, Relaxed);
            }
        }
        if state.taken == 0 {
            state.buffers.clear();
        } else if KEPT_BYTES.contains(&buffer.capacity()) {
            state.buffers.push(buffer);
            state.trim();
        }
        drop(state);
        self.of.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: u64 = 8 << 20;
    const LONG: Duration = Duration::from_secs(600);

    /// As many as are to be had without waiting.
    fn all(rooms: &Rooms, bytes: u64) -> Vec<Permit> {
        all_of(rooms, bytes, false)
    }

    fn all_of(rooms: &Rooms, bytes: u64, is_whole: bool) -> Vec<Permit> {
        let take = || rooms.take_within(bytes, is_whole, (LONG, Duration::ZERO), &mut || Ok(())).unwrap();
        std::iter::from_fn(take).collect()
    }

    #[test]
    fn jobs_take_what_is_granted_and_none_waits_for_another_one_to_begin() {
        let permits = Permits::new(96 << 20);
        let [one, other] = [(); 2].map(|()| Rooms::new(permits.clone()));
        let mut of_one = all(&one, PART);
        assert_eq!(of_one.len(), 12);
        let of_other = all(&other, PART);
        assert_eq!(of_other.len(), 2, "one is filled while one is on its way");
        of_one.pop();
        assert!(all(&one, PART).is_empty());
        drop(of_other);
        assert_eq!(all(&one, PART).len(), 1);
        // However little is granted, and however long parts are.
        let few = |memory_bytes, bytes| all(&Rooms::new(Permits::new(memory_bytes)), bytes).len();
        assert_eq!([few(1, PART), few(96 << 20, 64 << 20), few(96 << 20, 128 << 20), few(1, 4 << 30)], [4, 2, 2, 2]);
        permits.resize(192 << 20);
        assert_eq!(all(&one, PART).len(), 24 - of_one.len());
    }

    #[test]
    fn whoever_waits_gets_the_room_of_what_ends() {
        let rooms = Rooms::new(Permits::default());
        let first = all(&rooms, 4 << 30);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| rooms.take(4 << 30, &mut || Ok(())).unwrap().is_some());
            drop(first);
            assert!(waiting.join().unwrap());
        });
    }

    /// What the parts of a job lack may come behind the one that waits.
    #[test]
    fn a_job_of_which_nothing_moves_is_let_beyond_the_bound_and_not_while_a_request_may_end() {
        let rooms = Rooms::new(Permits::default());
        let mut parts = all(&rooms, PART);
        let stuck = |meanwhile: &mut dyn FnMut() -> store::Result<()>| {
            rooms.take_within(PART, false, (Duration::from_millis(1), LONG), meanwhile).unwrap()
        };
        parts.extend(stuck(&mut || Ok(())));
        assert_eq!(parts.len(), 13);
        let (mut leaving, mut looks) = (parts.drain(..2).collect::<Vec<_>>(), 0);
        leaving.iter_mut().for_each(Permit::leaves);
        let taken = stuck(&mut || {
            looks += 1;
            if looks == 3 {
                leaving.clear();
            }
            Ok(())
        });
        assert!(taken.is_some() && looks == 3, "{looks}");
        // In the end it is refused.
        drop(taken);
        parts.extend(all(&rooms, PART));
        assert!(rooms.take_within(PART, false, (LONG, Duration::from_millis(1)), &mut || Ok(())).unwrap().is_none());
    }

    #[test]
    fn whoever_waits_hears_at_once_that_the_job_is_over() {
        let rooms = Rooms::new(Permits::default());
        let _parts = all(&rooms, PART);
        let mut looks = 0;
        let taken = rooms.take_within(PART, false, (LONG, Duration::from_secs(30)), &mut || {
            looks += 1;
            if looks == 3 {
                rooms.end();
            }
            Ok(())
        });
        assert!(taken.unwrap().is_none() && looks == 3, "{looks}");
        assert!(rooms.take(0, &mut || Ok(())).unwrap().is_none());
    }

    #[test]
    fn small_bodies_find_room_beside_long_ones_and_beside_other_jobs() {
        let permits = Permits::new(96 << 20);
        let [one, other] = [(); 2].map(|()| Rooms::new(permits.clone()));
        let long = all(&one, 1 << 30);
        assert_eq!(long.len(), 2, "one is filled while one is on its way");
        let parts = all(&one, PART);
        assert_eq!(parts.len(), 4);
        let of_other = all(&other, 1 << 20);
        assert_eq!(of_other.len(), 16);
        drop((long, parts, of_other));
        assert_eq!(permits.state().taken, 0);
    }

    #[test]
    fn objects_that_wait_for_their_names_leave_half_to_parts_while_there_are_any() {
        let rooms = Rooms::new(Permits::new(96 << 20));
        let part = rooms.take(PART, &mut || Ok(())).unwrap();
        let objects = all_of(&rooms, PART, true);
        assert_eq!(objects.len(), 6);
        let parts = all(&rooms, PART);
        assert_eq!(parts.len(), 5);
        drop((part, parts));
        assert_eq!(all_of(&rooms, PART, true).len(), 6);
        drop(objects);
        assert_eq!(rooms.permits.state().objects, 0);
    }

    #[test]
    fn what_is_fetched_ahead_leaves_a_third_to_what_is_sent() {
        let permits = Permits::new(96 << 20);
        let ahead: Vec<_> = std::iter::from_fn(|| permits.spare(PART)).collect();
        assert_eq!(ahead.len(), 8);
        let parts = all(&Rooms::new(permits.clone()), PART);
        assert_eq!(parts.len(), 4);
        drop(ahead);
        assert!(permits.spare(PART).is_some());
    }

    #[test]
    fn two_windows_are_fetched_ahead_however_much_is_sent() {
        let permits = Permits::new(96 << 20);
        let _parts = all(&Rooms::new(permits.clone()), PART);
        assert_eq!(std::iter::from_fn(|| permits.spare(PART)).collect::<Vec<_>>().len(), 2);
    }

    #[test]
    fn buffers_are_kept_while_something_is_taken_and_within_the_bound() {
        let rooms = Rooms::new(Permits::new(32 << 20));
        let mut parts = all(&rooms, PART);
        let first = parts.pop();
        parts.into_iter().for_each(|part| part.end_with(Vec::with_capacity(PART as usize)));
        rooms.busy().end_with(Vec::with_capacity(10));
        assert_eq!(rooms.permits.state().buffers.len(), 3);
        let mut second = rooms.take(PART, &mut || Ok(())).unwrap().unwrap();
        assert_eq!((second.buffer().capacity() as u64, rooms.permits.state().buffers.len()), (PART, 2));
        let third = rooms.take(2 * PART - 1, &mut || Ok(())).unwrap();
        assert_eq!(rooms.permits.state().buffers.len(), 0, "nothing is left beside what is taken");
        drop((first, second, third));
        assert_eq!(rooms.permits.state().taken, 0);
    }
}
