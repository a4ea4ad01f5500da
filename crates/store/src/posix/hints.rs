//! Hints of what changed in watched directories: inotify, one watch for each directory.
//!
//! A hint may be lost, and may be of nothing: the truth is a look at what is there (`watch`).
//!
//! Not here: what a change means.

use super::facts::has_locks_for_all;
use model::Name;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

const BUFFER_BYTES: usize = 64 << 10;
/// What is written to a file in this time is one step: looking costs tens of microseconds, whether 4 KiB came or 400.
const TAKE_INTERVAL: Duration = Duration::from_millis(5);

pub enum Hint {
    /// Something is to be looked at, in the directory of this key.
    Name(u64, Name),
    /// The same, and whoever wrote to it has closed it.
    Closed(u64, Name),
    /// All of a directory is.
    Directory(u64),
    /// Hints were lost: everything is.
    Everything,
}

pub struct Hints {
    inotify: Option<OwnedFd>,
    keys: HashMap<i32, u64>,
    /// Each directory has its watch.
    is_complete: bool,
    /// When there were some last.
    taken: Instant,
}

impl Hints {
    pub fn new() -> Hints {
        // A simulated host is one whose file system tells nothing.
        let own = || inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        let inotify = if os::is_simulated() { None } else { own() };
        Hints { is_complete: inotify.is_some(), inotify, keys: HashMap::new(), taken: Instant::now() }
    }

    /// Whether every change in a watched directory is hinted at, as far as the kernel knows of it.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Before the directory is listed for the first time. Of what other hosts write to their file system, no kernel tells.
    pub fn add(&mut self, key: u64, directory: BorrowedFd<'_>) {
        self.is_complete &= has_locks_for_all(directory);
        let Some(inotify) = &self.inotify else { return };
        let flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR;
        // By its descriptor: the name may be another's by now.
        match inotify::add_watch(inotify, format!("/proc/self/fd/{}", directory.as_raw_fd()), flags) {
            Ok(watch) => _ = self.keys.insert(watch, key),
            Err(_) => self.is_complete = false,
        }
    }

    /// Waits for a hint, at most for `patience`, and tells all there are: at once, or `TAKE_INTERVAL` after the last ones.
    pub fn take(&mut self, patience: Duration, hear: &mut dyn FnMut(Hint)) {
        let Some(inotify) = &self.inotify else { return os::thread::sleep(patience) };
        let timeout = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
        match poll(&mut [PollFd::new(inotify, PollFlags::IN)], Some(&timeout)) {
            Ok(1..) => std::thread::sleep(TAKE_INTERVAL.saturating_sub(self.taken.elapsed())),
            _ => return,
        }
        self.taken = Instant::now();
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = inotify::Reader::new(inotify.as_fd(), &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                hear(Hint::Everything);
                continue;
            }
            let Some(key) = self.keys.get(&event.wd()).copied() else { continue };
            if event.events().contains(ReadFlags::IGNORED) {
                self.keys.remove(&event.wd());
                continue;
            }
            match event.file_name().and_then(|name| Name::new(name.to_bytes()).ok()) {
                Some(name) if event.events().contains(ReadFlags::CLOSE_WRITE) => hear(Hint::Closed(key, name)),
                Some(name) => hear(Hint::Name(key, name)),
                None => hear(Hint::Directory(key)),
            }
        }
    }
}
