//! The trees of one attack, and the thread that swaps.
//!
//! ```text
//! root/d          a directory with f and sub/g; stands in turn under d and x
//! root/x          link to ../outside/d
//! root/d/f, y     a file, and a link to ../../outside/d/f
//! root/inner      link to e/../d: stays inside, and makes the kernel look twice
//! root/d/top/sub  what a call removes; root/d/top/x is a link to ../../../outside/d/sub. A round makes them
//! root/old        where backups go, and root/w, a link to ../outside/d
//! outside/d       the same names with other content, and a name of its own
//! aside           where root/d is moved to and back
//! ```

use super::outside::{self, LINKED, Snapshot};
use anyhow::{Context, Result};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::cell::{Cell, OnceCell};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use store::posix::{PosixSink, beneath};

pub const INSIDE: &[u8] = b"inside";
pub const OUTSIDE_BYTES: u64 = 7777;
/// A name that only the outside tree has.
pub const OUTSIDE_ONLY: &[u8] = b"outside-only";

/// What is exchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pair {
    /// The directory and a link to the outside one.
    Directory,
    /// A file in it and a link to an outside one.
    File,
    /// A directory in what is removed, and a link to an outside one.
    Inner,
    /// The directory of backups and a link to an outside one.
    Backup,
    /// The staging directory and a link to an outside one.
    Staging,
    /// A lane's left-over staging and a link to an outside directory.
    Lane,
    /// The directory is moved out of the root and back.
    Moved,
    /// Nothing: the attacker has prepared names before. A round counts where the call met one.
    Prepared,
}

pub struct Arena {
    pub root: PathBuf,
    pub root_fd: Arc<std::os::fd::OwnedFd>,
    /// The directory itself, wherever it stands.
    pub inside_fd: std::os::fd::OwnedFd,
    pub inside_inode: u64,
    pub sub_inode: u64,
    /// Of all hosts, and of this one.
    pub shared: PathBuf,
    pub staging: PathBuf,
    pub outside: PathBuf,
    /// For calls that go on with what they have open.
    pub held: OnceCell<PosixSink>,
    /// The call of this round met a name that was prepared.
    pub has_met: Cell<bool>,
    aside: PathBuf,
}

impl Arena {
    pub fn make(base: &Path) -> Result<Arena> {
        let (root, outside, aside) = (base.join("root"), base.join("outside"), base.join("aside"));
        let user = rustix::process::geteuid().as_raw();
        let shared = root.join(format!(".thalweg-staging-{user}"));
        let staging = shared.join(std::str::from_utf8(store::posix::host::own().as_bytes())?);
        for directory in
            [&root.join("d/sub"), &root.join("e"), &root.join("old"), &outside.join("d/sub"), &aside, &staging]
        {
            std::fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
        }
        let theirs = vec![b'O'; OUTSIDE_BYTES as usize];
        for name in ["f", "sub/g"] {
            std::fs::write(root.join("d").join(name), INSIDE)?;
            std::fs::write(outside.join("d").join(name), &theirs)?;
        }
        std::fs::write(outside.join("d").join(std::str::from_utf8(OUTSIDE_ONLY)?), &theirs)?;
        std::fs::write(outside.join("d").join(LINKED), &theirs)?;
        std::fs::write(aside.join("keep"), &theirs)?;
        // Staging that is not empty stays when a job closes, so that it can be swapped in every round.
        std::fs::write(staging.join("keep"), b"")?;
        for (target, link) in [
            ("../outside/d", root.join("x")),
            ("../../outside/d/f", root.join("d/y")),
            ("../outside/d", root.join("z")),
            ("../outside/d", root.join("w")),
            ("e/../d", root.join("inner")),
            ("../../../outside/d", staging.join("lane-link")),
            ("f", outside.join("d/link")),
        ] {
            symlink(target, &link).with_context(|| format!("make {}", link.display()))?;
        }
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(&shared, private.clone())?;
        std::fs::set_permissions(&staging, private.clone())?;
        // As inviting as staging has to be.
        std::fs::set_permissions(outside.join("d"), private)?;
        std::fs::set_permissions(outside.join("d/f"), std::fs::Permissions::from_mode(0o604))?;
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_234_567_890);
        std::fs::File::open(outside.join("d/f"))?.set_modified(old)?;
        // Where the file system has them; the checker looks at what there is.
        let _ = rustix::fs::lsetxattr(outside.join("d/f"), "user.trial", b"1", rustix::fs::XattrFlags::CREATE);
        Ok(Arena {
            root_fd: Arc::new(beneath::open_directory(&root)?),
            inside_fd: beneath::open_directory(&root.join("d"))?,
            inside_inode: std::fs::metadata(root.join("d"))?.ino(),
            sub_inode: std::fs::metadata(root.join("d/sub"))?.ino(),
            root,
            shared,
            staging,
            outside,
            held: OnceCell::new(),
            has_met: Cell::new(false),
            aside,
        })
    }

    /// Everything outside the root that must not change.
    pub fn outside(&self) -> Result<Snapshot> {
        let mut snapshot = Snapshot::new();
        outside::look(&self.outside, &mut snapshot)?;
        outside::look(&self.aside.join("keep"), &mut snapshot)?;
        Ok(snapshot)
    }

    fn ends(&self, pair: Pair) -> Option<(PathBuf, PathBuf, RenameFlags)> {
        let (root, staging) = (&self.root, &self.staging);
        let shared = &self.shared;
        Some(match pair {
            Pair::Directory => (root.join("d"), root.join("x"), RenameFlags::EXCHANGE),
            Pair::File => (root.join("d/f"), root.join("d/y"), RenameFlags::EXCHANGE),
            Pair::Inner => (root.join("d/top/sub"), root.join("d/top/x"), RenameFlags::EXCHANGE),
            Pair::Backup => (root.join("old"), root.join("w"), RenameFlags::EXCHANGE),
            Pair::Staging => (shared.clone(), root.join("z"), RenameFlags::EXCHANGE),
            Pair::Lane => (staging.join("lane-dead"), staging.join("lane-link"), RenameFlags::EXCHANGE),
            Pair::Moved => (root.join("d"), self.aside.join("d"), RenameFlags::NOREPLACE),
            Pair::Prepared => return None,
        })
    }
}

/// Swaps until it is stopped, and then leaves things as they were.
pub struct Swapper {
    swaps: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    /// None where nothing is exchanged.
    thread: Option<JoinHandle<()>>,
}

impl Swapper {
    pub fn start(arena: &Arena, pair: Pair) -> Result<Swapper> {
        let (swaps, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = arena.ends(pair).map(|(one, other, flags)| {
            let (swaps, is_over) = (swaps.clone(), is_over.clone());
            std::thread::spawn(move || swap(&one, &other, flags, &swaps, &is_over))
        });
        Ok(Swapper { swaps, is_over, thread })
    }

    /// Exchanges that have ended.
    pub fn swaps(&self) -> u64 {
        self.swaps.load(SeqCst)
    }

    pub fn stop(mut self) -> u64 {
        self.is_over.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.swaps.load(SeqCst)
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
    }
}

fn swap(one: &Path, other: &Path, flags: RenameFlags, swaps: &AtomicU64, is_over: &AtomicBool) {
    let mut is_swapped = false;
    while !is_over.load(SeqCst) || is_swapped {
        // An exchange has no direction; a move has.
        let (from, to) = if is_swapped && flags == RenameFlags::NOREPLACE { (other, one) } else { (one, other) };
        match renameat_with(CWD, from, CWD, to, flags) {
            Ok(()) => {
                is_swapped = !is_swapped;
                swaps.fetch_add(1, SeqCst);
            }
            // The other side may have removed one of the two, and makes it again.
            Err(_) if is_over.load(SeqCst) => return,
            Err(_) => std::thread::yield_now(),
        }
    }
}
