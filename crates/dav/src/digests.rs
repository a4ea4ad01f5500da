//! Whose turn it is to ask a server for checksums: one at a time, or many on one connection.
//!
//! XRootD 5.5 crashes when it computes several at once, or has a client wait 30 s (decision 019). It comes to the
//! requests of one connection one after the other: the checksums of files that wait for theirs are asked for in runs,
//! each on one connection, without a round trip for each.
//!
//! Invariants: nobody asks while another one does or while a run is under way; whoever wants a checksum from a run is
//! told once, however the run ends; no file waits for a run while none is under way and somebody takes its answer.
//!
//! Not here: the requests (`checksums`).

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Files of one run.
const RUN_MAX: usize = 64;
/// After so many connections in a row on which a server did not answer several requests it is sent one at a time.
const MISFITS_MAX: u32 = 3;
/// After so many files without a checksum a server is not asked separately for what it did not state with the content.
const UNSTATED_MAX: u32 = 16;

/// The place to ask, while it is taken.
pub type DigestPlace<'a> = MutexGuard<'a, ()>;

/// Asks for the checksums of these files, and tells those that came, in their order.
pub type Ask<'a> = dyn Fn(&[Vec<u8>], &mut dyn FnMut(Option<u32>)) + 'a;

#[derive(Default)]
pub struct Digests {
    place: Mutex<()>,
    queue: Mutex<Queue>,
    told: Condvar,
    /// Connections that did not do for a run, one after the other.
    misfits: AtomicU32,
    /// Files that the server stated none of, one after the other, although it was asked separately.
    unstated: AtomicU32,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(u64, Vec<u8>)>,
    told: HashMap<u64, Option<u32>>,
    is_running: bool,
    wanted: u64,
}

/// A checksum that is wanted; it is to be taken (`Digests::answer`).
pub struct Ticket(u64);

/// A run that is under way.
struct Run<'a> {
    digests: &'a Digests,
    /// Not told yet.
    left: VecDeque<u64>,
}

impl Digests {
    /// Waits for the place to ask.
    pub fn enter(&self) -> DigestPlace<'_> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place, if it is free.
    pub fn try_enter(&self) -> Option<DigestPlace<'_>> {
        self.place.try_lock().ok()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wants the checksum of a file from the next run.
    pub fn want(&self, path: &[u8]) -> Ticket {
        let mut queue = self.queue();
        queue.wanted += 1;
        let ticket = queue.wanted;
        queue.waiting.push_back((ticket, path.to_vec()));
        Ticket(ticket)
    }

    /// Makes a run for those that wait, unless one is under way.
    pub fn go_on(&self, ask: &Ask<'_>) {
        let mut queue = self.queue();
        if queue.is_running || queue.waiting.is_empty() {
            return;
        }
        queue.is_running = true;
        drop(queue);
        let mut run = Run { digests: self, left: VecDeque::new() };
        // Who comes until it is this run's turn goes along.
        let _place = self.enter();
        let paths = run.begin();
        ask(&paths, &mut |stated| run.tell(stated));
    }

    /// The checksum that was wanted, as a run brought it; this makes the run if nobody else does.
    pub fn answer(&self, Ticket(ticket): Ticket, ask: &Ask<'_>) -> Option<u32> {
        loop {
            let is_open = |queue: &mut Queue| queue.is_running && !queue.told.contains_key(&ticket);
            let mut queue = self.told.wait_while(self.queue(), is_open).unwrap_or_else(PoisonError::into_inner);
            if let Some(stated) = queue.told.remove(&ticket) {
                return stated;
            }
            drop(queue);
            self.go_on(ask);
        }
    }

    /// Whether the server may be sent several requests on one connection.
    pub fn bears_runs(&self) -> bool {
        self.misfits.load(Relaxed) < MISFITS_MAX
    }

    /// Whether it answered several requests on one connection.
    pub fn note_run(&self, is_fit: bool) {
        match is_fit {
            true => self.misfits.store(0, Relaxed),
            false => _ = self.misfits.fetch_add(1, Relaxed),
        }
    }

    pub fn give_up_runs(&self) {
        self.misfits.store(MISFITS_MAX, Relaxed);
    }

    /// Whether it is taken for a server that states no checksums.
    pub fn states_none(&self) -> bool {
        self.unstated.load(Relaxed) >= UNSTATED_MAX
    }

    /// Whether it stated the checksum of a file.
    pub fn note_stated(&self, is_stated: bool) {
        match is_stated {
            true => self.unstated.store(0, Relaxed),
            false => _ = self.unstated.fetch_add(1, Relaxed),
        }
    }
}

impl Run<'_> {
    /// Takes those along that wait.
    fn begin(&mut self) -> Vec<Vec<u8>> {
        let mut queue = self.digests.queue();
        let count = queue.waiting.len().min(RUN_MAX);
        let (left, paths) = queue.waiting.drain(..count).unzip();
        self.left = left;
        paths
    }

    fn tell(&mut self, stated: Option<u32>) {
        let Some(ticket) = self.left.pop_front() else { return };
        self.digests.queue().told.insert(ticket, stated);
        self.digests.told.notify_all();
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let mut queue = self.digests.queue();
        queue.is_running = false;
        queue.told.extend(self.left.drain(..).map(|ticket| (ticket, None)));
        drop(queue);
        self.digests.told.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_place_is_taken_once_and_free_again_when_its_request_ends() {
        let digests = Digests::default();
        let place = digests.enter();
        assert!(digests.try_enter().is_none());
        drop(place);
        assert!(digests.try_enter().is_some());
    }

    /// A server with its runs, and those under way.
    #[derive(Default)]
    struct Asked {
        digests: Digests,
        runs: AtomicU32,
        under_way: AtomicU32,
    }

    impl Asked {
        /// States the first byte of each path.
        fn run(&self, paths: &[Vec<u8>], tell: &mut dyn FnMut(Option<u32>)) {
            assert!(self.digests.try_enter().is_none() && paths.len() <= RUN_MAX);
            assert_eq!(self.under_way.fetch_add(1, Relaxed), 0);
            self.runs.fetch_add(1, Relaxed);
            std::thread::sleep(Duration::from_millis(20));
            paths.iter().for_each(|path| tell(Some(u32::from(path[0]))));
            self.under_way.fetch_sub(1, Relaxed);
        }
    }

    #[test]
    fn each_is_told_its_own_checksum_by_runs_that_are_made_one_at_a_time() {
        let server = Asked::default();
        std::thread::scope(|scope| {
            for number in 0..100_u8 {
                let server = &server;
                scope.spawn(move || {
                    let ticket = server.digests.want(&[number]);
                    server.digests.go_on(&|paths, tell| server.run(paths, tell));
                    let stated = server.digests.answer(ticket, &|paths, tell| server.run(paths, tell));
                    assert_eq!(stated, Some(u32::from(number)));
                });
            }
        });
        let runs = server.runs.load(Relaxed);
        assert!((2..50).contains(&runs), "{runs} runs");
        assert!(server.digests.queue().told.is_empty() && server.digests.try_enter().is_some());
    }

    #[test]
    fn whom_a_run_leaves_out_is_told_so() {
        let digests = Digests::default();
        let tickets = [1, 2, 3].map(|number| digests.want(&[number]));
        let told = tickets.map(|ticket| digests.answer(ticket, &|_, tell| tell(Some(7))));
        assert_eq!(told, [Some(7), None, None]);
    }

    #[test]
    fn a_server_that_fails_runs_again_and_again_is_sent_none() {
        let digests = Digests::default();
        for is_fit in [false, false, true, false, false] {
            digests.note_run(is_fit);
            assert!(digests.bears_runs());
        }
        digests.note_run(false);
        assert!(!digests.bears_runs());
    }
}
