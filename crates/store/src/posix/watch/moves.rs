//! What is no longer where it was found.
//!
//! Invariant: an error that does not say that a name is gone says nothing.
//!
//! Not here: what follows from it (`watch`).

use super::PosixWatch;
use model::Name;
use os::time::Instant;
use rustix::fs::{AtFlags, fstat, statat};
use rustix::io::Errno;

impl PosixWatch {
    /// Nothing is at a name. Whether its file went, or got another name, the rest of the look tells.
    pub(super) fn missing(&mut self, key: u64, name: &Name) {
        self.young.remove(&(key, name.clone()));
        let number = self.places.remove(key, name);
        if let Some(number) = number.filter(|number| self.files.contains_key(number)) {
            self.absent.entry(number).or_insert_with(Instant::now);
        }
    }

    /// Whether a file is not at the name it had.
    pub(super) fn is_moved(&self, number: u64) -> bool {
        let Some(file) = self.files.get(&number) else { return false };
        if self.absent.contains_key(&number) {
            return true;
        }
        match self.tree.open(file.key) {
            Ok(directory) => statat(&directory, file.name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)
                .map_or_else(|e| e == Errno::NOENT, |status| status.st_ino != file.generation.version.object()),
            Err(e) => Errno::from_io_error(&e) == Some(Errno::NOENT),
        }
    }

    /// Whether a name is new in a directory that has another name by now: what came there is found under that one.
    /// `has_moved` keeps the answer for the directory, where several of its names are looked at.
    pub(super) fn is_elsewhere(&mut self, key: u64, name: &Name, has_moved: &mut Option<bool>) -> bool {
        let place = (key, name.clone());
        let is_new = self.places.get(&place).is_none();
        let is_elsewhere = is_new && *has_moved.get_or_insert_with(|| self.has_moved(key));
        if is_elsewhere {
            self.young.remove(&place);
        }
        is_elsewhere
    }

    /// Whether a directory, or one above it, has another name than that by which it was found.
    fn has_moved(&self, key: u64) -> bool {
        let mut at = key;
        while let Some((above, name)) = self.tree.place(at) {
            let open = self.tree.open(at).map(|at| fstat(&at));
            let named = self.tree.open(above).map(|above| statat(&above, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW));
            match (open, named) {
                (Ok(Ok(a)), Ok(Ok(b))) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino) => at = above,
                (Ok(Ok(_)), Ok(Ok(_) | Err(Errno::NOENT))) => return true,
                _ => return false,
            }
        }
        false
    }
}
