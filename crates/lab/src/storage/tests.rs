//! The slow storage as its users see it: through the mount.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, Instant, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags};

use super::*;

struct Mounted {
    storage: Option<SlowStorage>,
    // After the storage, so that the mountpoint is free when it is removed.
    directory: tempfile::TempDir,
}

impl Mounted {
    /// None where FUSE is not to be had.
    fn new(profile: StorageProfile) -> Option<Mounted> {
        if !needs::fuse() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        for name in ["backing", "mount"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let (backing, mount) = (directory.path().join("backing"), directory.path().join("mount"));
        let storage = SlowStorage::mount(&backing, &mount, profile).unwrap();
        Some(Mounted { storage: Some(storage), directory })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("mount").join(name)
    }

    fn backing(&self, name: &str) -> PathBuf {
        self.directory.path().join("backing").join(name)
    }
}

#[test]
fn what_is_written_is_what_the_backing_directory_holds() {
    let Some(mut mounted) = Mounted::new(StorageProfile::default()) else { return };
    let bytes: Vec<u8> = (0..3_000_001u32).map(|index| (index % 251) as u8).collect();
    fs::create_dir_all(mounted.path("a/b/c")).unwrap();
    fs::write(mounted.path("a/b/c/file"), &bytes).unwrap();
    assert!(fs::read(mounted.path("a/b/c/file")).unwrap() == bytes);
    mounted.storage.take().unwrap().unmount().unwrap();
    assert!(fs::read(mounted.backing("a/b/c/file")).unwrap() == bytes);
    assert_eq!(fs::read_dir(mounted.path("")).unwrap().count(), 0, "the mount is gone");
}

#[test]
fn names_follow_renames_links_and_removals() {
    let Some(mounted) = Mounted::new(StorageProfile::default()) else { return };
    fs::create_dir(mounted.path("old")).unwrap();
    fs::write(mounted.path("old/file"), "one").unwrap();
    fs::rename(mounted.path("old"), mounted.path("new")).unwrap();
    assert_eq!(fs::read_to_string(mounted.path("new/file")).unwrap(), "one");
    assert!(fs::metadata(mounted.path("old")).is_err());

    fs::write(mounted.path("other"), "two").unwrap();
    fs::rename(mounted.path("other"), mounted.path("new/file")).unwrap();
    assert_eq!(fs::read_to_string(mounted.path("new/file")).unwrap(), "two");

    fs::hard_link(mounted.path("new/file"), mounted.path("link")).unwrap();
    fs::remove_file(mounted.path("new/file")).unwrap();
    assert_eq!(fs::read_to_string(mounted.path("link")).unwrap(), "two");

    fs::write(mounted.path("again"), "three").unwrap();
    let refused = rustix::fs::renameat_with(
        rustix::fs::CWD,
        mounted.path("again"),
        rustix::fs::CWD,
        mounted.path("link"),
        rustix::fs::RenameFlags::NOREPLACE,
    );
    assert_eq!(refused, Err(Errno::EXIST));
    fs::remove_dir(mounted.path("new")).unwrap();
    symlink("link", mounted.path("symlink")).unwrap();
    assert_eq!(fs::read_link(mounted.path("symlink")).unwrap(), Path::new("link"));
    assert_eq!(fs::read_to_string(mounted.path("symlink")).unwrap(), "two");
    let mut names: Vec<_> = fs::read_dir(mounted.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["again", "link", "symlink"]);
}

#[test]
fn a_file_without_a_name_is_still_the_same_file() {
    let Some(mounted) = Mounted::new(StorageProfile::default()) else { return };
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(mounted.path("file")).unwrap();
    file.write_all(b"first").unwrap();
    fs::remove_file(mounted.path("file")).unwrap();
    fs::write(mounted.path("file"), "second").unwrap();
    file.write_all(b" and last").unwrap();
    file.set_len(9).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 9);
    // Opened again by descriptor, it is the removed file, not the one that has its name.
    let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let mut text = String::new();
    File::open(name).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "first and");
    assert_eq!(fs::read_to_string(mounted.path("file")).unwrap(), "second");
}

#[test]
fn attributes_are_kept_as_they_were_set() {
    let Some(mounted) = Mounted::new(StorageProfile::default()) else { return };
    fs::write(mounted.path("file"), "text").unwrap();
    fs::set_permissions(mounted.path("file"), fs::Permissions::from_mode(0o640)).unwrap();
    let time = UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    File::options().write(true).open(mounted.path("file")).unwrap().set_modified(time).unwrap();
    for path in [mounted.path("file"), mounted.backing("file")] {
        let metadata = fs::metadata(path).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.modified().unwrap()), (0o640, time));
    }
    let mut file = File::options().read(true).write(true).open(mounted.path("file")).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 100_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100_000);
    file.seek(SeekFrom::Start(50_000)).unwrap();
    file.sync_all().unwrap();
    File::open(mounted.path("")).unwrap().sync_all().unwrap();
}

#[test]
fn a_directory_of_thousands_is_listed_whole() {
    let Some(mounted) = Mounted::new(StorageProfile::default()) else { return };
    for index in 0..3000 {
        fs::write(mounted.backing(&format!("a file with a rather long name, number {index}")), "").unwrap();
    }
    for _ in 0..2 {
        let entries = fs::read_dir(mounted.path("")).unwrap();
        assert_eq!(entries.filter(|entry| entry.as_ref().unwrap().metadata().unwrap().is_file()).count(), 3000);
    }
}

#[test]
fn upper_and_lower_case_are_one_where_that_is_asked_for() {
    let Some(mounted) = Mounted::new(StorageProfile { folds_case: true, ..StorageProfile::default() }) else { return };
    fs::create_dir(mounted.path("Docs")).unwrap();
    fs::write(mounted.path("docs/README"), "first").unwrap();
    assert_eq!(fs::read(mounted.path("DOCS/readme")).unwrap(), b"first");
    assert!(File::options().write(true).create_new(true).open(mounted.path("Docs/ReadMe")).is_err());
    fs::write(mounted.path("Docs/other"), "second").unwrap();
    fs::rename(mounted.path("Docs/OTHER"), mounted.path("docs/readme")).unwrap();
    assert_eq!(fs::read(mounted.backing("Docs/README")).unwrap(), b"second");
    fs::remove_file(mounted.path("Docs/readme")).unwrap();
    assert_eq!(fs::read_dir(mounted.backing("Docs")).unwrap().count(), 0);
    fs::write(mounted.path("Docs/readme"), "third").unwrap();
    assert_eq!(fs::read(mounted.path("docs/README")).unwrap(), b"third");
}

#[test]
fn every_operation_takes_its_latency_and_they_overlap() {
    let latency = Duration::from_millis(20);
    let profile = StorageProfile {
        read_latency: latency,
        write_latency: latency,
        create_latency: latency,
        ..StorageProfile::default()
    };
    let Some(mounted) = Mounted::new(profile) else { return };
    let timed = |work: &dyn Fn()| {
        let started = Instant::now();
        work();
        started.elapsed()
    };
    let path = mounted.path("file");
    assert!(timed(&|| drop(File::create(&path).unwrap())) >= latency);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    assert!(timed(&|| file.write_all_at(&[1; 4096], 0).unwrap()) >= latency);
    assert!(timed(&|| file.read_exact_at(&mut [0; 4096], 0).unwrap()) >= latency);
    // Read twice: no cache hides the second.
    assert!(timed(&|| file.read_exact_at(&mut [0; 4096], 0).unwrap()) >= latency);
    assert!(timed(&|| file.sync_data().unwrap()) >= latency);
    let side_by_side = timed(&|| {
        std::thread::scope(|scope| {
            for lane in 0..16 {
                let file = &file;
                scope.spawn(move || file.read_exact_at(&mut [0; 4096], lane * 4096).unwrap());
            }
        });
    });
    // One after the other would be 16 of them.
    assert!(side_by_side >= latency && side_by_side < latency * 8, "{side_by_side:?}");
}

#[test]
fn the_page_cache_answers_when_it_is_allowed_to() {
    let latency = Duration::from_millis(200);
    let profile = StorageProfile { read_latency: latency, page_cache: true, ..StorageProfile::default() };
    let Some(mounted) = Mounted::new(profile) else { return };
    fs::write(mounted.backing("file"), [5; 4096]).unwrap();
    let file = File::open(mounted.path("file")).unwrap();
    file.read_exact_at(&mut [0; 4096], 0).unwrap();
    let started = Instant::now();
    file.read_exact_at(&mut [0; 4096], 0).unwrap();
    assert!(started.elapsed() < latency);
}

#[test]
fn the_rate_bounds_all_operations_together() {
    let profile = StorageProfile { bytes_per_second: Some(10 << 20), ..StorageProfile::default() };
    let Some(mounted) = Mounted::new(profile) else { return };
    let started = Instant::now();
    fs::write(mounted.path("file"), vec![1; 1 << 20]).unwrap();
    assert_eq!(fs::read(mounted.path("file")).unwrap().len(), 1 << 20);
    assert!(started.elapsed() >= Duration::from_millis(200), "{:?}", started.elapsed());
}

#[test]
fn a_live_mount_is_not_taken_for_a_stale_one() {
    let Some(mounted) = Mounted::new(StorageProfile::default()) else { return };
    fs::write(mounted.path("file"), "text").unwrap();
    clean_stale(&mounted.path("")).unwrap();
    assert_eq!(fs::read_to_string(mounted.path("file")).unwrap(), "text");
}

#[test]
fn a_storage_still_in_use_can_be_dropped() {
    let Some(mut mounted) = Mounted::new(StorageProfile::default()) else { return };
    fs::write(mounted.path("file"), "text").unwrap();
    let mut open = File::open(mounted.path("file")).unwrap();
    drop(mounted.storage.take());
    assert_eq!(fs::read_dir(mounted.path("")).unwrap().count(), 0);
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
}

#[test]
fn a_link_put_into_the_middle_of_a_path_leads_nowhere() {
    let Some(mounted) = Mounted::new(StorageProfile::default()) else { return };
    fs::create_dir_all(mounted.path("a/b")).unwrap();
    fs::write(mounted.path("a/b/file"), "inside").unwrap();
    let directory = File::open(mounted.path("a/b")).unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(outside.path().join("b")).unwrap();
    for name in ["secret", "file"] {
        fs::write(outside.path().join("b").join(name), "outside").unwrap();
    }
    fs::rename(mounted.backing("a"), mounted.backing("away")).unwrap();
    symlink(outside.path(), mounted.backing("a")).unwrap();

    let open = |name: &str, flags| rustix::fs::openat(&directory, name, flags, Mode::from_raw_mode(0o600));
    assert!(open("secret", OFlags::RDONLY).is_err());
    assert!(open("file", OFlags::RDONLY).is_err());
    assert!(open("made", OFlags::WRONLY | OFlags::CREATE).is_err());
    assert!(rustix::fs::mkdirat(&directory, "made", Mode::from_raw_mode(0o700)).is_err());
    assert!(rustix::fs::symlinkat("x", &directory, "made").is_err());
    assert!(rustix::fs::renameat(&directory, "file", &directory, "made").is_err());
    assert!(rustix::fs::unlinkat(&directory, "file", rustix::fs::AtFlags::empty()).is_err());
    let entries = fs::read_dir(outside.path().join("b")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["file", "secret"]);

    // Only the link was in the way.
    fs::remove_file(mounted.backing("a")).unwrap();
    fs::rename(mounted.backing("away"), mounted.backing("a")).unwrap();
    let mut text = String::new();
    File::from(open("file", OFlags::RDONLY).unwrap()).read_to_string(&mut text).unwrap();
    assert_eq!(text, "inside");
}

#[test]
fn a_link_put_in_place_of_a_file_has_no_mode_of_others_changed() {
    let Some(mounted) = Mounted::new(StorageProfile::default()) else { return };
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(mounted.path("file"), "inside").unwrap();
    fs::metadata(mounted.path("file")).unwrap();
    fs::remove_file(mounted.backing("file")).unwrap();
    symlink(outside.path(), mounted.backing("file")).unwrap();
    // The kernel may remember the file, and ask for a change of its mode.
    let _ = fs::set_permissions(mounted.path("file"), fs::Permissions::from_mode(0o777));
    assert_eq!(outside.as_file().metadata().unwrap().mode() & 0o7777, 0o600);
}
