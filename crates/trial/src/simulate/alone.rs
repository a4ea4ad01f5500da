//! What a power loss leaves of a store's calls one by one, where the transfers of the seeds do not come by.

use super::disk::SimulatedDisk;
use super::faults::{DiskFaults, Kind};
use super::image::{Found, Image, Kept};
use super::seen::STEPS_MAX;
use model::name::relative_path;
use model::options::Fsync;
use model::{Entry, Extent, Generation, JobId, Location, Name, ObjectId, Timestamp, TransferOptions};
use os::simulation::scheduler::spawn_on;
use os::simulation::{Call, Disk, Verdict, World};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::open::{Rights, Shape, SinkRequest, Stores};
use store::posix::here::here;
use store::posix::target::Target;
use store::posix::{PosixSink, beneath, change};
use store::{How, PublishRule, Sink};

/// A destination of the real host, on a tmpfs.
fn ground() -> (tempfile::TempDir, Arc<OwnedFd>) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let root = Arc::new(beneath::open_directory(dir.path()).unwrap());
    (dir, root)
}

fn carry_out(disk: Arc<dyn Disk>, work: impl FnOnce() + Send + 'static) {
    World::run(1, STEPS_MAX, |world| {
        let host = world.host(Some(disk), [0; 16]);
        spawn_on(world, &host, "work", work);
        while !world.is_empty(&host) {
            world.sleep(Duration::from_millis(20));
        }
    });
}

/// What is sure to be left of a tree after `work` on storage that is not asked to sync everything.
fn left(dir: &Path, work: impl FnOnce() + Send + 'static) -> Image {
    let disk = SimulatedDisk::new(dir, false, DiskFaults::default()).unwrap();
    carry_out(disk.clone(), work);
    disk.storage().after_loss(&mut |_, _| Kept::No).image()
}

/// Remembers which directories were waited for.
#[derive(Default)]
struct Waits(Mutex<BTreeSet<u64>>);

impl Disk for Waits {
    fn before(&self, _: &Call<'_>) -> Verdict {
        Verdict::Go
    }

    fn after(&self, call: &Call<'_>, _: Option<BorrowedFd<'_>>) {
        if let Call::Sync { file } = call {
            self.0.lock().unwrap().insert(fstat(file).unwrap().st_ino);
        }
    }

    fn magic(&self) -> i64 {
        0x6969
    }
}

/// Storage whose directories cannot be synced and whose names are durable without it: OrangeFS, 9p.
struct NoDirectorySync;

impl Disk for NoDirectorySync {
    fn before(&self, call: &Call<'_>) -> Verdict {
        match call {
            Call::Sync { file } if FileType::from_raw_mode(fstat(file).unwrap().st_mode).is_dir() => {
                Verdict::Fail(Errno::INVAL)
            }
            _ => Verdict::Go,
        }
    }

    fn after(&self, _: &Call<'_>, _: Option<BorrowedFd<'_>>) {}

    fn magic(&self) -> i64 {
        0x6969
    }
}

#[test]
fn storage_whose_directories_cannot_be_synced_takes_what_is_to_be_durable() {
    let (dir, root) = ground();
    std::fs::write(dir.path().join("file"), "older").unwrap();
    let entry = Entry {
        id: ObjectId(1),
        parent: ObjectId::ROOT,
        name: Name::new(b"file").unwrap(),
        kind: model::Kind::File,
        mode: 0o644,
        generation: Generation { size_bytes: 7, ..Generation::default() },
        attributes: None,
    };
    let is_done = Arc::new(AtomicBool::new(false));
    let done = is_done.clone();
    carry_out(Arc::new(NoDirectorySync), move || {
        let sink = PosixSink::new(root.clone(), root.clone(), None).with_backup(Some(b"old"));
        drop(sink.open_lines(&Name::new(b"list").unwrap()).unwrap());
        let mut lane = sink.lane(false).unwrap();
        lane.create(&entry, PublishRule::Replace).unwrap();
        lane.write(b"content").unwrap();
        let staged = lane.seal(&entry, false).unwrap();
        sink.sync_group(&mut [staged].into_iter()).unwrap();
        sink.publish(&entry, staged).unwrap();
        sink.sync_names().unwrap();
        // What several hosts write together.
        let slice = PosixSink::new(root.clone(), root, None);
        slice.fence(JobId([2; 16]), &[JobId([1; 16])]).unwrap();
        slice.begin_part(&entry, "tag-stem", Extent::new(0, 7)).unwrap();
        done.store(true, SeqCst);
    });
    assert!(is_done.load(SeqCst));
    let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    assert_eq!((read("file"), read("old/file")), (b"content".to_vec(), b"older".to_vec()));
}

/// Before Linux 6.10 a user without privileges cannot link an unnamed file by its descriptor.
#[test]
fn a_file_that_cannot_be_linked_is_durable_before_it_has_its_name() {
    let (dir, root) = ground();
    let refusal = DiskFaults { error: Some((1, Kind::HardLink, Errno::NOENT)), ..DiskFaults::default() };
    let disk = SimulatedDisk::new(dir.path(), true, refusal).unwrap();
    let modified = Timestamp { seconds: 7, nanoseconds: 5 };
    let entry = Entry {
        id: ObjectId(1),
        parent: ObjectId::ROOT,
        name: Name::new(b"file").unwrap(),
        kind: model::Kind::File,
        mode: 0o644,
        generation: Generation { size_bytes: 7, modified, ..Generation::default() },
        attributes: None,
    };
    carry_out(disk.clone(), move || {
        let sink = PosixSink::new(root.clone(), root, None);
        let mut lane = sink.lane(true).unwrap();
        lane.create(&entry, PublishRule::NoReplace).unwrap();
        lane.write(b"content").unwrap();
        let staged = lane.seal(&entry, true).unwrap();
        lane.publish(&entry, staged).unwrap();
    });
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"content");
    let mut seed = 0u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed >> 33
    };
    let states = disk.storage().each_loss(64, &mut random, &mut |storage| match storage.image().get(&b"file"[..]) {
        None => Ok(()),
        Some(Found::File(content)) if content.bytes == b"content" && content.modified == (7, 5) => Ok(()),
        Some(other) => Err(format!("{other:?}")),
    });
    states.unwrap();
}

#[test]
fn directories_on_the_way_to_a_destination_are_durable_with_their_names() {
    let (dir, root) = ground();
    let image = left(dir.path(), move || {
        beneath::make_directories(root.as_fd(), &relative_path(b"a/b/c").unwrap()).unwrap();
        let target = Target::beneath(root.as_fd(), &relative_path(b"made").unwrap(), false, beneath::Mounts::Kept);
        assert!(change::make(&target.unwrap(), false).unwrap());
        let sink = PosixSink::new(root.clone(), root, None);
        sink.enter(&Name::new(b"entered").unwrap()).unwrap();
        sink.sync_names().unwrap();
    });
    for path in ["a", "a/b", "a/b/c", "made", "entered"] {
        assert_eq!(image.get(path.as_bytes()), Some(&Found::Directory), "{path}");
    }
}

#[test]
fn a_users_own_destination_is_durable_with_its_name_unless_nobody_waits() {
    for (fsync, is_durable) in [(Fsync::Batch, true), (Fsync::File, true), (Fsync::Never, false)] {
        let (dir, _) = ground();
        let (waits, path) = (Arc::new(Waits::default()), dir.path().to_owned());
        carry_out(waits.clone(), move || {
            let location = Location::Local(path.join("x/y/z").as_os_str().as_bytes().to_vec());
            let options = TransferOptions { fsync, ..TransferOptions::default() };
            let request = SinkRequest {
                rights: Rights::Write,
                shape: Shape::Tree,
                is_nameless: false,
                is_own: true,
                options: &options,
            };
            Stores::default().sink(&location, &request).ok().unwrap();
        });
        for above in ["", "x", "x/y"] {
            let inode = std::fs::metadata(dir.path().join(above)).unwrap().ino();
            assert_eq!(waits.0.lock().unwrap().contains(&inode), is_durable, "{fsync:?} {above}");
        }
    }
    let (dir, _) = ground();
    let (waits, path) = (Arc::new(Waits::default()), dir.path().join("x/y"));
    carry_out(waits.clone(), move || {
        let shelf = here(path.as_os_str().as_bytes(), How::Make { with_parents: true }).unwrap();
        shelf.make(false).unwrap();
    });
    for above in ["", "x"] {
        let inode = std::fs::metadata(dir.path().join(above)).unwrap().ino();
        assert!(waits.0.lock().unwrap().contains(&inode), "{above}");
    }
}
