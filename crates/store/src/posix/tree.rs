//! The directories of one job, by number, opened on demand below their parents.
//!
//! Invariants:
//! - A directory is reached only from a base descriptor through `open_child`, one name at a time: no link on the way is
//!   followed and no path is ever resolved as text.
//! - A job holds at most `OPEN_MAX` descriptors, and all jobs of the process a quarter of those it may have, `OPEN_MIN` for
//!   each job above that. Evicted ones are opened again when needed.
//!
//! Memory: about 100 bytes for each directory of the job.

use super::beneath::Bounds;
use model::Name;
use rustix::process::{Resource, getrlimit};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};

/// Descriptors held open for one job.
const OPEN_MAX: usize = 512;
/// What a job may hold whatever others do: the directory it is in, and the one it comes to.
const OPEN_MIN: usize = 2;
/// A chain of parents longer than this is refused (F047 asks for 1,000 levels).
const DEPTH_MAX: usize = 4096;

enum Node {
    /// A directory opened by its owner; `path` is what it is called below the job's destination.
    Base {
        directory: Arc<OwnedFd>,
        path: Box<[u8]>,
    },
    Below {
        parent: u64,
        name: Name,
        is_fresh: bool,
    },
}

/// Directories on the way that are not open, innermost first.
type Missing = Vec<(u64, Name)>;

pub struct Tree {
    /// What is entered on the way to a directory.
    pub bounds: Bounds,
    nodes: RwLock<HashMap<u64, Node>>,
    open: Mutex<Open>,
}

/// The descriptors that one job holds, counted with those of all others.
struct Open {
    by_key: HashMap<u64, Arc<OwnedFd>>,
    all: &'static AtomicUsize,
}

/// Descriptors that the jobs of this process may hold for directories, of as many as it may have in all.
pub fn directories_max(descriptors: usize) -> usize {
    descriptors / 4
}

impl Default for Tree {
    fn default() -> Tree {
        static ALL: AtomicUsize = AtomicUsize::new(0);
        Tree::counted_in(&ALL)
    }
}

impl Tree {
    fn counted_in(all: &'static AtomicUsize) -> Tree {
        Tree {
            bounds: Bounds::default(),
            nodes: RwLock::default(),
            open: Mutex::new(Open { by_key: HashMap::new(), all }),
        }
    }

    pub fn insert_base(&self, key: u64, directory: Arc<OwnedFd>, path: &[u8]) {
        self.nodes.write().unwrap().insert(key, Node::Base { directory, path: path.into() });
    }

    /// `is_fresh` says that the directory was made by this job, so that nothing can be in it.
    pub fn insert(&self, key: u64, parent: u64, name: Name, is_fresh: bool) {
        self.nodes.write().unwrap().insert(key, Node::Below { parent, name, is_fresh });
    }

    /// Where a directory lies: below which one, and its name there. `None` for those that the job goes below.
    pub fn place(&self, key: u64) -> Option<(u64, Name)> {
        match self.nodes.read().unwrap().get(&key)? {
            Node::Below { parent, name, .. } => Some((*parent, name.clone())),
            Node::Base { .. } => None,
        }
    }

    /// Lets a directory go that will not be asked for again.
    pub fn forget(&self, key: u64) {
        self.nodes.write().unwrap().remove(&key);
        self.open.lock().unwrap().forget(key);
    }

    /// The nearest directory, itself or one above it, that this job has not made.
    pub fn found_above(&self, key: u64) -> u64 {
        let nodes = self.nodes.read().unwrap();
        let mut at = key;
        while let Some(Node::Below { parent, is_fresh: true, .. }) = nodes.get(&at) {
            at = *parent;
        }
        at
    }

    pub fn is_fresh(&self, key: u64) -> bool {
        matches!(self.nodes.read().unwrap().get(&key), Some(Node::Below { is_fresh: true, .. }))
    }

    /// Opens a directory, or hands out the descriptor that is open.
    pub fn open(&self, key: u64) -> io::Result<Arc<OwnedFd>> {
        let (mut at, missing) = self.nearest_open(key)?;
        for (key, name) in missing.into_iter().rev() {
            at = Arc::new(self.bounds.open_child(at.as_fd(), &name)?);
            self.open.lock().unwrap().insert(key, &at, directories_max(descriptors_max()));
        }
        Ok(at)
    }

    /// The nearest open ancestor and what is to be opened below it, innermost first.
    fn nearest_open(&self, key: u64) -> io::Result<(Arc<OwnedFd>, Missing)> {
        let mut missing = Vec::new();
        let mut at = key;
        loop {
            if let Some(found) = self.open.lock().unwrap().by_key.get(&at) {
                return Ok((found.clone(), missing));
            }
            let nodes = self.nodes.read().unwrap();
            match nodes.get(&at) {
                Some(Node::Base { directory, .. }) => return Ok((directory.clone(), missing)),
                Some(Node::Below { parent, name, .. }) if missing.len() < DEPTH_MAX => {
                    missing.push((at, name.clone()));
                    at = *parent;
                }
                Some(Node::Below { .. }) => return Err(io::Error::other("the directory lies too deep")),
                None => return Err(io::Error::other("the directory was not made")),
            }
        }
    }

    /// The path of `name` in a directory, relative to the destination of the job.
    pub fn path(&self, directory: u64, name: &[u8]) -> Vec<u8> {
        let nodes = self.nodes.read().unwrap();
        let mut parts: Vec<&[u8]> = vec![name];
        let mut at = directory;
        while let Some(node) = nodes.get(&at) {
            match node {
                Node::Base { path, .. } => {
                    parts.push(path);
                    break;
                }
                Node::Below { parent, name, .. } if parts.len() < DEPTH_MAX => {
                    parts.push(name.as_bytes());
                    at = *parent;
                }
                Node::Below { .. } => break,
            }
        }
        parts.retain(|part| !part.is_empty());
        parts.reverse();
        parts.join(&b'/')
    }
}

impl Open {
    fn forget(&mut self, key: u64) {
        if self.by_key.remove(&key).is_some() {
            self.all.fetch_sub(1, Relaxed);
        }
    }

    fn insert(&mut self, key: u64, directory: &Arc<OwnedFd>, all_max: usize) {
        let held = self.by_key.len();
        if held >= OPEN_MAX || (held >= OPEN_MIN && self.all.load(Relaxed) >= all_max) {
            // Directories are visited one after the other: which half goes matters little.
            let mut kept = 0;
            self.by_key.retain(|_, _| {
                kept += 1;
                kept % 2 == 0
            });
            self.all.fetch_sub(held - self.by_key.len(), Relaxed);
        }
        if self.by_key.insert(key, directory.clone()).is_none() {
            self.all.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.all.fetch_sub(self.by_key.len(), Relaxed);
    }
}

/// Asked each time, because an endpoint raises it; a fraction of what opening a directory costs.
fn descriptors_max() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::beneath;
    use super::*;

    #[test]
    fn a_directory_swapped_for_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("root/a")).unwrap();
        std::fs::create_dir_all(dir.path().join("outside/b")).unwrap();
        let root = Arc::new(beneath::open_directory(&dir.path().join("root")).unwrap());
        let tree = Tree::default();
        tree.insert_base(0, root, b"");
        tree.insert(1, 0, Name::new(b"a").unwrap(), false);
        tree.insert(2, 1, Name::new(b"b").unwrap(), false);
        std::fs::remove_dir(dir.path().join("root/a")).unwrap();
        std::os::unix::fs::symlink("../outside", dir.path().join("root/a")).unwrap();
        assert!(tree.open(2).is_err());
        assert_eq!(tree.path(2, b"f"), b"a/b/f");
    }

    #[test]
    fn more_directories_than_descriptors_stay_reachable() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::default();
        tree.insert_base(0, Arc::new(beneath::open_directory(dir.path()).unwrap()), b"");
        for i in 1..=(OPEN_MAX as u64 * 2) {
            std::fs::create_dir(dir.path().join(i.to_string())).unwrap();
            tree.insert(i, 0, Name::new(i.to_string().as_bytes()).unwrap(), true);
        }
        for i in (1..=(OPEN_MAX as u64 * 2)).chain(1..10) {
            tree.open(i).unwrap();
            assert!(tree.open.lock().unwrap().by_key.len() <= OPEN_MAX);
        }
    }

    #[test]
    fn many_jobs_together_hold_no_more_descriptors_than_the_process_can_spare() {
        const ALL_MAX: usize = 64;
        static ALL: AtomicUsize = AtomicUsize::new(0);
        let dir = tempfile::tempdir().unwrap();
        let directory = Arc::new(beneath::open_directory(dir.path()).unwrap());
        let trees: Vec<_> = (0..20).map(|_| Tree::counted_in(&ALL)).collect();
        for tree in &trees {
            for key in 1..=40 {
                tree.open.lock().unwrap().insert(key, &directory, ALL_MAX);
            }
            assert!(tree.open.lock().unwrap().by_key.contains_key(&40), "what was opened last is held");
        }
        let held = trees.iter().map(|tree| tree.open.lock().unwrap().by_key.len()).sum::<usize>();
        assert_eq!(held, ALL.load(Relaxed));
        assert!(held <= ALL_MAX + trees.len() * OPEN_MIN, "{held}");
        drop(trees);
        assert_eq!(ALL.load(Relaxed), 0);
    }
}
