//! Looking where the kernel hints at nothing, because another host writes: at files that grow, and at the times of directories.
//!
//! Not here: the listing of everything, which finds whatever these looks miss.

use super::PosixWatch;
use crate::posix::list::date_of;
use os::time::Instant;
use std::os::fd::AsFd;
use std::time::Duration;

const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// With more directories looks are rarer: each costs a request to the server of the file system.
const LOOK_INTERVAL_PER_DIRECTORY: Duration = Duration::from_millis(1);

impl PosixWatch {
    /// Notes files that grow, and directories in which names were made or removed, as what is to be looked at, once a second.
    pub(super) fn look_unhinted(&mut self) {
        let count = self.directories.len().min(10_000) as u32;
        if self.hints.is_complete() || self.looked.elapsed() < LOOK_INTERVAL.max(LOOK_INTERVAL_PER_DIRECTORY * count) {
            return;
        }
        let growing = self.growing.iter().filter_map(|number| self.files.get(number));
        self.to_look.extend(growing.map(|file| (file.key, file.name.clone())));
        let directories = self.directories.iter().filter(|(_, directory)| directory.only.is_none());
        let is_changed = |(key, at): &(&u64, &super::Directory)| {
            self.tree.open(**key).is_ok_and(|directory| date_of(directory.as_fd()) != at.dated)
        };
        self.to_list.extend(directories.filter(is_changed).map(|(key, _)| *key));
        self.looked = Instant::now();
    }
}
