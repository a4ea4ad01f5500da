//! Whole measurements on small sizes, and what they leave behind.

use std::fs;

use super::measured::{Call, Operation};
use super::*;

fn small(dir: &Path) -> Options {
    Options {
        sizes: vec![3 << 10, (1 << 20) + 100],
        volume_bytes: 2 << 20,
        files_max: 20,
        block_bytes: 64 << 10,
        threads: 2,
        metadata_files: 60,
        group_files: 20,
        rounds: 1,
        ..Options::new(dir)
    }
}

fn measure(options: &Options) -> Outcome {
    run(options, &AtomicBool::new(false), &mut |_| ()).unwrap()
}

/// On a file system that has a device, so that caches can be dropped.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

#[test]
fn every_operation_is_measured_complete_and_nothing_is_left() {
    let dir = directory();
    let outcome = measure(&small(dir.path()));
    let found: Vec<(Operation, u64, u64)> = outcome.rows.iter().map(|r| (r.operation, r.file_bytes, r.files)).collect();
    use Operation::*;
    assert_eq!(
        found,
        [
            (Create, 0, 60),
            (Close, 0, 60),
            (Stat, 0, 60),
            (Open, 0, 60),
            (Rename, 0, 60),
            (List, 0, 60),
            (Publish, 1 << 10, 60),
            (PublishDurable, 1 << 10, 60),
            (Write, 3 << 10, 20),
            (Read, 3 << 10, 20),
            (Write, (1 << 20) + 100, 1),
            (Read, (1 << 20) + 100, 1),
            (Unlink, 0, 60),
        ]
    );
    assert!(outcome.rows.iter().all(|row| row.operations_per_second.median > 0.0 && !row.calls.is_empty()));
    assert!(outcome.all.iter().all(|measured| !measured.is_cut), "{:?}", outcome.warnings);
    let read = outcome.rows.iter().find(|row| row.operation == Read && row.file_bytes > 1 << 20).unwrap();
    // 17 blocks of 64 KiB, the last one short, in two pieces.
    assert!(read.calls.iter().any(|(call, p)| *call == Call::ReadBlock && p.count == 17), "{read:?}");
    assert!(outcome.binds.is_some() && outcome.ceilings(true).publish_files_per_second.is_some());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn every_engine_past_the_cache_and_through_it_moves_all_bytes() {
    let dir = directory();
    for engine in [Engine::Plain, Engine::Uring] {
        for is_direct in [false, true] {
            for sync in [Sync::Never, Sync::File, Sync::End] {
                let depth = if engine == Engine::Uring { 4 } else { 1 };
                let wanted = Options { engine, is_direct, sync, depth, with_metadata: false, ..small(dir.path()) };
                let outcome = measure(&wanted);
                let totals: Vec<u64> = outcome.all.iter().map(|measured| measured.bytes).collect();
                let (first, second) = (20 * (3 << 10), (1 << 20) + 100);
                assert_eq!(totals, [first, first, first, first, second, second, second, second], "{wanted:?}");
                let syncs = outcome.rows[0].calls.iter().find(|(call, _)| *call == Call::Sync).map(|(_, p)| p.count);
                let expected = [(Sync::Never, None), (Sync::File, Some(20)), (Sync::End, Some(1))];
                assert!(expected.contains(&(sync, syncs)), "{sync:?} {syncs:?}");
            }
        }
    }
}

#[test]
fn what_the_page_cache_answered_is_said() {
    let dir = directory();
    let storage = device::Storage::below(dir.path());
    if !needs::met(!storage.devices.is_empty(), format!("no block device below {}", dir.path().display())) {
        return;
    }
    let share = |cache| {
        let options = Options { sizes: vec![1 << 20], cache, with_metadata: false, ..small(dir.path()) };
        measure(&options).rows.iter().find(|row| row.operation == Operation::Read).unwrap().cached_share.unwrap()
    };
    assert!(share(Cache::Warm) > 0.9);
    assert!(share(Cache::Dropped) < 0.5);
}

#[test]
fn too_little_space_is_refused_before_anything_is_written() {
    let dir = directory();
    let options = Options { sizes: vec![1 << 50], ..small(dir.path()) };
    let error = run(&options, &AtomicBool::new(false), &mut |_| ()).unwrap_err();
    assert_eq!((error.kind, fs::read_dir(dir.path()).unwrap().count()), (Kind::NoSpace, 0));
    let (plan, free) = dry_run(&options).unwrap();
    assert!(plan.space_bytes > free && plan.steps[0].files == 1);
}

#[test]
fn a_file_or_nothing_in_place_of_the_directory_is_refused() {
    let dir = directory();
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    for (path, cause) in [(file, "is not a directory"), (dir.path().join("none"), "there is no such directory")] {
        let error = dry_run(&small(&path)).unwrap_err();
        assert!(error.kind == Kind::Usage && error.chain().ends_with(cause), "{}", error.chain());
    }
}

#[test]
fn a_cancelled_measurement_leaves_nothing() {
    let dir = directory();
    let cancel = AtomicBool::new(false);
    let mut said = 0;
    let ended = run(&small(dir.path()), &cancel, &mut |_| {
        said += 1;
        cancel.store(said == 3, Relaxed);
    });
    assert_eq!(ended.unwrap_err().kind, Kind::Cancelled);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_limit_cuts_an_operation_short_and_the_reads_follow_the_writes() {
    let dir = directory();
    let options = Options { limit: Duration::ZERO, with_metadata: false, ..small(dir.path()) };
    let outcome = measure(&options);
    assert!(outcome.all.iter().all(|measured| measured.is_cut && measured.bytes == 0));
    assert!(outcome.warnings.iter().any(|warning| warning.contains("ended at the limit")));
}

#[test]
fn injected_latency_limits_one_operation_at_a_time_and_more_in_flight_makes_up_for_it() {
    if !needs::fuse() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (backing, mount) = (dir.path().join("backing"), dir.path().join("mount"));
    fs::create_dir(&backing).unwrap();
    fs::create_dir(&mount).unwrap();
    let latency = Duration::from_millis(5);
    let profile = lab::storage::StorageProfile { read_latency: latency, write_latency: latency, ..Default::default() };
    let _slow = lab::storage::SlowStorage::mount(&backing, &mount, profile).unwrap();
    let options = Options {
        sizes: vec![4 << 20],
        volume_bytes: 4 << 20,
        engine: Engine::Uring,
        is_direct: true,
        threads: 1,
        depth: 1,
        with_metadata: false,
        limit: Duration::from_millis(400),
        // 64 KiB in 5 ms are 13 MB/s: four times that needs at least five blocks in flight.
        target_bytes_per_second: Some(50e6),
        ..small(&mount)
    };
    let outcome = measure(&options);
    let verdict = outcome.verdict.as_ref().unwrap();
    for side in &verdict.sides {
        assert!(side.latency_alone_us >= 5_000.0 && side.concurrency_needed >= 4, "{side:?}");
        assert!(!side.is_concurrent_enough && !side.is_fast_enough, "{side:?}");
        let recommended = side.recommended.unwrap();
        assert!(recommended.depth >= 4, "{side:?}");
    }
    assert!(!verdict.passes && report::text(&outcome).contains("FAIL"));
}

#[test]
fn storage_that_ignores_a_sync_of_the_whole_is_synced_file_by_file() {
    if !needs::fuse() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (backing, mount) = (dir.path().join("backing"), dir.path().join("mount"));
    fs::create_dir(&backing).unwrap();
    fs::create_dir(&mount).unwrap();
    let profile = lab::storage::StorageProfile { write_latency: Duration::from_millis(2), ..Default::default() };
    let _slow = lab::storage::SlowStorage::mount(&backing, &mount, profile).unwrap();
    let sizes = vec![1 << 10];
    let options = Options { sizes, files_max: 100, sync: Sync::End, with_metadata: false, ..small(&mount) };
    let outcome = measure(&options);
    let written = outcome.rows.iter().find(|row| row.operation == Operation::Write).unwrap();
    let (_, sync) = written.calls.iter().find(|(call, _)| *call == Call::Sync).unwrap();
    // Each of the files waits for the storage.
    assert!(written.files == 100 && sync.mean_us >= 100.0 * 1_900.0, "{written:?}");
}
