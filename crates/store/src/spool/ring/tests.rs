//! What the ring promises, on real files: crashes are what a scan finds of files that were cut, zeroed and exchanged.

use super::super::format::OWNER_BYTES;
use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const QUOTA: u64 = 8 * MIB;

fn owner(number: u8) -> Owner {
    Owner([number; OWNER_BYTES])
}

fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("spool");
    (dir, path)
}

fn content(bytes: u64, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

fn put(spool: &Arc<Spool>, of: Owner, kind: Kind, bytes: &[u8]) -> Option<Parcel> {
    let mut room = spool.reserve(of, kind, bytes.len() as u64).unwrap()?;
    bytes.chunks(100_000).for_each(|block| room.write(block).unwrap());
    Some(room.commit().unwrap())
}

fn scanned(path: &Path) -> Vec<(Owner, Vec<Vec<u8>>)> {
    let spool = Spool::open(path, QUOTA).unwrap();
    let mut owners = spool.found();
    owners.sort();
    let read = |owner| {
        let parcels = spool.take_found(owner).into_iter().filter(|parcel| parcel.is_sound().unwrap());
        (owner, parcels.map(|parcel| parcel.read().unwrap()).collect())
    };
    owners.into_iter().map(read).collect()
}

#[test]
fn what_was_committed_is_there_for_the_next_process_in_its_order_also_across_segments() {
    let (_dir, path) = place();
    let large = content(2 * MIB + 12_345, 1);
    {
        let spool = Spool::open(&path, QUOTA).unwrap();
        put(&spool, owner(1), Kind::Journal, b"job").unwrap();
        let first = put(&spool, owner(1), Kind::Content, &large).unwrap();
        assert_eq!(first.pieces.len(), 3);
        assert_eq!(first.read().unwrap(), large);
        put(&spool, owner(1), Kind::Content, b"small").unwrap();
        let torn = spool.reserve(owner(1), Kind::Content, 70).unwrap().unwrap();
        put(&spool, owner(1), Kind::Content, b"behind what is torn").unwrap();
        // Killed while it was being filled: nothing is written to say so.
        drop(torn);
    }
    let expected = vec![b"job".to_vec(), large, b"small".to_vec(), b"behind what is torn".to_vec()];
    assert_eq!(scanned(&path), [(owner(1), expected.clone())]);
    assert_eq!(scanned(&path), [(owner(1), expected)]);
}

#[test]
fn never_more_is_held_than_the_quota_and_what_is_released_is_room_again() {
    let (_dir, path) = place();
    let spool = Spool::open(&path, QUOTA).unwrap();
    put(&spool, owner(1), Kind::Journal, b"job").unwrap();
    let mut held = Vec::new();
    for round in 0..8u8 {
        while let Some(parcel) = put(&spool, owner(1), Kind::Content, &content(400_000, round)) {
            held.push((round, parcel));
            assert!(spool.used_bytes() <= QUOTA);
        }
        assert!(spool.used_bytes() >= QUOTA - 2 * MIB, "one segment is left to others, one may be begun");
        for (round, parcel) in held.drain(..) {
            assert_eq!(parcel.read().unwrap(), content(400_000, round));
            spool.release(&parcel);
        }
        assert_eq!(spool.used_bytes(), MIB, "the journal");
    }
    let on_disk: u64 = std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(on_disk < QUOTA + 4096, "{on_disk}");
    spool.end(owner(1)).unwrap();
    assert_eq!(spool.used_bytes(), 0);
}

#[test]
fn one_owner_that_takes_all_it_may_leaves_room_for_others() {
    let (_dir, path) = place();
    let spool = Spool::open(&path, QUOTA).unwrap();
    let fill = |of| std::iter::from_fn(|| put(&spool, of, Kind::Content, &content(500_000, 0))).count();
    put(&spool, owner(1), Kind::Journal, b"job").unwrap();
    assert!(fill(owner(1)) >= 10);
    // The last segment is the second's; the first gets nothing more of what is freed than its part.
    assert!(put(&spool, owner(2), Kind::Journal, b"job").is_some());
    assert_eq!(fill(owner(1)), 0);
}

#[test]
fn an_owner_that_ended_does_not_come_back_and_a_writer_that_was_late_does_no_harm() {
    let (_dir, path) = place();
    let spool = Spool::open(&path, QUOTA).unwrap();
    put(&spool, owner(1), Kind::Journal, b"job").unwrap();
    put(&spool, owner(1), Kind::Content, b"content").unwrap();
    let mut late = spool.reserve(owner(1), Kind::Content, 4).unwrap().unwrap();
    spool.end(owner(1)).unwrap();
    assert!(spool.used_bytes() > 0, "somebody still writes to it");
    put(&spool, owner(2), Kind::Journal, b"other").unwrap();
    late.write(b"late").unwrap();
    spool.release(&late.commit().unwrap());
    assert_eq!(spool.used_bytes(), MIB);
    drop(spool);
    assert_eq!(scanned(&path), [(owner(2), vec![b"other".to_vec()])]);
}

#[test]
fn a_segment_is_nobody_elses_before_the_head_of_its_last_use_is_gone() {
    let (_dir, path) = place();
    let spool = Spool::open(&path, QUOTA).unwrap();
    put(&spool, owner(1), Kind::Journal, b"job").unwrap();
    let content = put(&spool, owner(1), Kind::Content, b"content").unwrap();
    // In the middle of its end.
    let over = spool.close(owner(1));
    spool.release(&content);
    assert_eq!(spool.used_bytes(), 2 * MIB, "the next owner's head would be written over");
    spool.hand_on(&over);
    assert_eq!(spool.used_bytes(), 0);
}

#[test]
fn content_of_an_earlier_use_of_a_segment_does_not_exist() {
    let (_dir, path) = place();
    {
        let spool = Spool::open(&path, QUOTA).unwrap();
        put(&spool, owner(1), Kind::Journal, b"job").unwrap();
        let old: Vec<_> = (0..5).map(|_| put(&spool, owner(1), Kind::Content, &content(1000, 9)).unwrap()).collect();
        old.iter().for_each(|parcel| spool.release(parcel));
        // In the same segment, as long as the first of the old ones: the next old one lies right behind it.
        let new = put(&spool, owner(1), Kind::Content, &content(1000, 8)).unwrap();
        assert_eq!(new.pieces[0].segment, old[0].pieces[0].segment);
    }
    assert_eq!(scanned(&path), [(owner(1), vec![b"job".to_vec(), content(1000, 8)])]);
}

#[test]
fn content_of_an_owner_that_ended_before_a_restart_is_not_the_next_owners() {
    let (_dir, path) = place();
    {
        let spool = Spool::open(&path, QUOTA).unwrap();
        put(&spool, owner(1), Kind::Journal, b"job").unwrap();
        (0..3).for_each(|_| _ = put(&spool, owner(1), Kind::Content, &content(1000, 9)).unwrap());
        spool.end(owner(1)).unwrap();
    }
    {
        // In the same segments, and as long as what was first in them.
        let spool = Spool::open(&path, QUOTA).unwrap();
        put(&spool, owner(2), Kind::Journal, b"job").unwrap();
        put(&spool, owner(2), Kind::Content, &content(1000, 8)).unwrap();
    }
    assert_eq!(scanned(&path), [(owner(2), vec![b"job".to_vec(), content(1000, 8)])]);
}

#[test]
fn what_describes_content_has_room_where_content_has_none() {
    let (_dir, path) = place();
    let spool = Spool::open(&path, QUOTA).unwrap();
    put(&spool, owner(1), Kind::Journal, b"job").unwrap();
    while put(&spool, owner(1), Kind::Content, &content(500_000, 0)).is_some() {}
    assert!(put(&spool, owner(1), Kind::Journal, &content(MIB, 1)).is_some());
    assert!(put(&spool, owner(1), Kind::Journal, &content(MIB, 2)).is_none(), "that was the last of it");
}

#[test]
fn what_was_left_is_told_in_the_order_in_which_it_came() {
    let (_dir, path) = place();
    let order = [7, 3, 9, 1, 5].map(owner);
    {
        let spool = Spool::open(&path, 2 * QUOTA).unwrap();
        order.iter().for_each(|owner| _ = put(&spool, *owner, Kind::Journal, b"job").unwrap());
    }
    assert_eq!(Spool::open(&path, 2 * QUOTA).unwrap().found(), order);
}

#[test]
fn storage_that_stood_still_is_remembered_by_the_next_process_and_each_side_for_itself() {
    let (_dir, path) = place();
    let minute = Duration::from_secs(60);
    let spool = Spool::open(&path, QUOTA).unwrap();
    assert!(!spool.has_stalled(Side::Source, minute) && !spool.has_stalled(Side::Destination, minute));
    spool.note_stall(Side::Source);
    assert!(spool.has_stalled(Side::Source, minute) && !spool.has_stalled(Side::Destination, minute));
    drop(spool);
    let mark = || std::fs::File::options().write(true).open(path.join("source-stalled")).unwrap();
    let marked_at = |time| {
        mark().set_modified(time).unwrap();
        Spool::open(&path, QUOTA).unwrap().has_stalled(Side::Source, minute)
    };
    let now = std::time::SystemTime::now();
    assert!(marked_at(now - minute / 2));
    assert!(!marked_at(now - 2 * minute), "too long ago");
    assert!(!marked_at(now + 60 * minute), "by a clock that has been set back since");
}

/// A power loss keeps any of the pages that were not synced: whatever of a segment is lost, what is found is whole.
#[test]
fn after_a_power_loss_what_is_found_is_whole() {
    let (_dir, path) = place();
    let parcels: Vec<_> = (0..6).map(|at| content(3000 + at * 2500, at as u8)).collect();
    let segment = {
        let spool = Spool::open(&path, QUOTA).unwrap();
        put(&spool, owner(1), Kind::Journal, b"job").unwrap();
        let put = |bytes: &Vec<u8>| put(&spool, owner(1), Kind::Content, bytes).unwrap();
        let put: Vec<_> = parcels.iter().map(put).collect();
        path.join(format!("segment-{:05}", put[0].pieces[0].segment))
    };
    let whole = std::fs::read(&segment).unwrap();
    let pages = 4096 + parcels.iter().map(|bytes| bytes.len() + PIECE_BYTES as usize).sum::<usize>();
    let mut lost_some = 0;
    for page in 0..pages.div_ceil(4096) {
        for lost in [page..page + 1, page..pages.div_ceil(4096)] {
            let mut torn = whole.clone();
            torn[lost.start * 4096..lost.end * 4096].fill(0);
            std::fs::write(&segment, torn).unwrap();
            let found = scanned(&path);
            let (_, found) = &found[0];
            assert_eq!(found[0], b"job");
            assert!(found[1..].iter().all(|bytes| parcels.contains(bytes)), "page {page}");
            lost_some += usize::from(found.len() <= parcels.len());
        }
    }
    assert!(lost_some > pages / 4096);
}

#[test]
fn a_second_process_a_link_other_users_and_another_version_are_refused_with_a_reason() {
    let (dir, path) = place();
    let spool = Spool::open(&path, QUOTA).unwrap();
    let why = |path: &Path, quota| Spool::open(path, quota).err().unwrap().to_string();
    assert!(why(&path, QUOTA).contains("another process uses it"));
    put(&spool, owner(1), Kind::Journal, b"job").unwrap();
    drop(spool);
    assert!(why(&path, 2 * QUOTA).contains("not delivered yet"));
    assert!(why(&dir.path().join("small"), MIB).contains("at least"));

    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
    assert!(why(&path, QUOTA).contains("chmod 700"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    symlink(&path, dir.path().join("link")).unwrap();
    Spool::open(&dir.path().join("link"), QUOTA).err().unwrap();

    let (segment, aside) = (path.join("segment-00003"), dir.path().join("aside"));
    std::fs::rename(&segment, &aside).unwrap();
    symlink(&aside, &segment).unwrap();
    assert!(why(&path, QUOTA).contains("segment-00003 in it is not a file of a buffer"));
    std::fs::remove_file(&segment).unwrap();
    std::fs::hard_link(&aside, &segment).unwrap();
    assert!(why(&path, QUOTA).contains("segment-00003"));
    std::fs::remove_file(&aside).unwrap();
    assert_eq!(scanned(&path).len(), 1);

    let mut made = std::fs::read(path.join("spool")).unwrap();
    made[20] ^= 1;
    std::fs::write(path.join("spool"), made).unwrap();
    assert!(why(&path, QUOTA).contains("no buffer of this version"));
}

#[test]
fn segments_that_were_swapped_cut_or_brought_from_another_spool_hold_nothing() {
    let (dir, path) = place();
    let other = dir.path().join("other");
    for path in [&path, &other] {
        let spool = Spool::open(path, QUOTA).unwrap();
        put(&spool, owner(1), Kind::Journal, b"job").unwrap();
        put(&spool, owner(1), Kind::Content, &content(5000, 3)).unwrap();
    }
    let [journal, content, free] = ["segment-00000", "segment-00001", "segment-00002"];
    std::fs::copy(other.join(content), path.join(content)).unwrap();
    std::fs::copy(path.join(journal), path.join(free)).unwrap();
    assert_eq!(scanned(&path), [(owner(1), vec![b"job".to_vec()])]);
    let file = std::fs::OpenOptions::new().write(true).open(other.join(content)).unwrap();
    file.set_len(7000).unwrap();
    assert_eq!(scanned(&other), [(owner(1), vec![b"job".to_vec()])]);
}

#[test]
fn what_one_owner_takes_leaves_others_half_of_their_parts_by_weight() {
    let (_dir, path) = place();
    let spool = Spool::open(&path, 64 * MIB).unwrap();
    let segment = spool.segment_bytes();
    let all = spool.capacity_bytes() / segment;
    let fill = |of: Owner| {
        let mut held = Vec::new();
        while let Some(parcel) = put(&spool, of, Kind::Content, &vec![0; (segment / 2) as usize]) {
            held.push(parcel);
        }
        held.iter().map(|parcel| parcel.bytes).sum::<u64>() / segment
    };
    for (number, weight) in [(1, 16), (2, 4), (3, 4), (4, 16)] {
        spool.expect(owner(number), weight);
    }
    // Its storage hangs: nothing of it is ever released.
    let hung = fill(owner(1));
    assert!(hung >= all * 4 / 10 && hung <= all * 16 / 40 + all * 24 / 80, "{hung} of {all}");
    let (low, high) = (fill(owner(2)), fill(owner(4)));
    assert!(low + 1 >= all * 4 / 80 && high + 1 >= all * 16 / 80, "{low} and {high} of {all}");
    assert!(fill(owner(3)) + 1 >= all * 4 / 80, "who comes last has its half too");
    spool.end(owner(1)).unwrap();
    assert!(fill(owner(2)) > 0, "what an owner leaves is lent");
}
