//! What a watch tells of files whose writers close and lock them, and after lost hints.

use crate::posix::PosixSource;
use crate::source::{Event, Restart, Source, Watch};
use model::follow::{Follow, FollowEnd, Until};
use model::{Kind, Name, ObjectId};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longer than anything here takes, shorter than the time between two full listings.
const LIMIT: Duration = Duration::from_secs(40);

struct Watched {
    watch: Box<dyn Watch>,
    names: HashMap<ObjectId, String>,
    ended: Vec<String>,
    failed: Vec<String>,
    replaced: Vec<ObjectId>,
    is_over: bool,
}

impl Watched {
    fn new(dir: &Path, until: Until) -> Watched {
        Watched::ended_by(dir, until, Vec::new())
    }

    fn ended_by(dir: &Path, until: Until, ends: Vec<FollowEnd>) -> Watched {
        let mut source = PosixSource::new();
        source.add_local(format!("{}/", dir.display()).as_bytes()).unwrap();
        let watch = source.watch(&Follow::new(until, ends)).unwrap().unwrap();
        let (names, ended, failed, replaced) = Default::default();
        Watched { watch, names, ended, failed, replaced, is_over: false }
    }

    fn look(&mut self) {
        let mut events = Vec::new();
        self.watch.next(Duration::from_millis(20), &mut |event| events.push(event)).unwrap();
        for event in events {
            match event {
                Event::Found(object) => {
                    let name = String::from_utf8(object.entry.name.as_bytes().to_vec()).unwrap();
                    if !object.is_growing() && object.entry.kind == Kind::File {
                        self.ended.push(name.clone());
                    }
                    self.names.insert(object.entry.id, name);
                }
                Event::Ended { id, .. } => self.ended.push(self.names[&id].clone()),
                Event::Restarted { object, why: Restart::Replaced } => self.replaced.push(object.entry.id),
                Event::Failed(failure) => self.failed.push(failure.message),
                Event::Over => self.is_over = true,
                _ => {}
            }
        }
    }

    fn wait_until_found(&mut self, name: &str) {
        let began = Instant::now();
        while !self.names.values().any(|found| found == name) {
            assert!(began.elapsed() < LIMIT, "{name} was not found");
            self.look();
        }
    }

    fn wait_until_ended(&mut self, name: &str) {
        let began = Instant::now();
        while !self.ended.iter().any(|ended| ended == name) {
            assert!(began.elapsed() < LIMIT, "{name} did not come to its end: {:?}", self.ended);
            self.look();
        }
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new().append(true).create(true).open(path).unwrap()
}

#[test]
fn where_very_many_grow_a_young_file_of_a_finished_name_is_told_once_it_rests() {
    let dir = tempfile::tempdir().unwrap();
    (0..super::GROWING_MAX).for_each(|number| drop(File::create(dir.path().join(format!("{number}.part"))).unwrap()));
    let mut watched = Watched::new(dir.path(), Until::parse("rename").unwrap());
    watched.wait_until_found("0.part");
    fs::write(dir.path().join("young"), b"whole").unwrap();
    watched.wait_until_found("young");
    assert_eq!(watched.ended, ["young"], "it is told as a file that is complete");
}

#[test]
fn where_very_many_grow_one_that_takes_the_place_of_another_that_grows_is_told_at_once() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut growing = open(&dir.path().join("f"));
    let mut watched = Watched::new(dir.path(), Until::parse("rename").unwrap());
    watched.wait_until_found("f");
    let id = *watched.names.keys().find(|id| watched.names[*id] == "f").unwrap();
    (0..super::GROWING_MAX).for_each(|number| drop(File::create(dir.path().join(format!("{number}.part"))).unwrap()));
    let began = Instant::now();
    while watched.names.len() <= super::GROWING_MAX {
        assert!(began.elapsed() < LIMIT, "{} were found", watched.names.len());
        growing.write_all(b"more").unwrap();
        watched.look();
    }
    fs::write(elsewhere.path().join("new"), b"another").unwrap();
    fs::rename(elsewhere.path().join("new"), dir.path().join("f")).unwrap();
    while watched.replaced != [id] {
        assert!(began.elapsed() < LIMIT, "nothing is told of the file that grew: {:?}", watched.replaced);
        watched.look();
    }
}

#[test]
fn a_file_of_two_writers_is_complete_when_both_have_closed_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut watched = Watched::new(dir.path(), Until::Close);
    let mut writers = [open(&dir.path().join("f")), open(&dir.path().join("f"))];
    writers.iter_mut().for_each(|writer| writer.write_all(b"x").unwrap());
    watched.wait_until_found("f");
    let [first, second] = writers;
    drop(first);
    // What is closed later is complete, and so would that be.
    fs::write(dir.path().join("later"), b"y").unwrap();
    watched.wait_until_ended("later");
    assert!(!watched.ended.contains(&"f".to_owned()), "a writer has it open");
    drop(second);
    watched.wait_until_ended("f");
    // A file that nobody writes to when it is found is an ordinary one.
    let mut again = Watched::new(dir.path(), Until::Close);
    again.wait_until_ended("f");
}

#[test]
fn a_locked_file_is_complete_when_its_lock_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut watched = Watched::new(dir.path(), Until::Lock);
    let mut writer = open(&dir.path().join("f"));
    // A lock of the open file, which one of the same process conflicts with.
    // SAFETY: all of the structure is numbers; the call reads it.
    let lock = unsafe { libc::flock { l_type: libc::F_WRLCK as libc::c_short, ..std::mem::zeroed() } };
    // SAFETY: the descriptor is open and the structure is alive.
    assert_eq!(unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_OFD_SETLK, &lock) }, 0);
    writer.write_all(b"x").unwrap();
    watched.wait_until_found("f");
    fs::write(dir.path().join("later"), b"y").unwrap();
    watched.wait_until_ended("later");
    assert!(!watched.ended.contains(&"f".to_owned()), "its writer holds a lock");
    drop(writer);
    watched.wait_until_ended("f");
}

#[test]
fn two_names_of_a_file_that_grows_are_two_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut watched = Watched::new(dir.path(), Until::Close);
    let mut writer = open(&dir.path().join("f"));
    writer.write_all(b"x").unwrap();
    watched.wait_until_found("f");
    fs::hard_link(dir.path().join("f"), dir.path().join("g")).unwrap();
    watched.wait_until_found("g");
    drop(writer);
    watched.wait_until_ended("f");
    watched.wait_until_ended("g");
}

#[test]
fn an_overflow_of_hints_is_made_up_for_by_listing() {
    let dir = tempfile::tempdir().unwrap();
    let mut watched = Watched::new(dir.path(), Until::Close);
    fs::write(dir.path().join("first"), b"").unwrap();
    watched.wait_until_found("first");
    let text = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let queued: usize = text.trim().parse().unwrap();
    // Each makes an event at least when it is made and one when it is closed.
    for number in 0..queued.min(200_000) / 2 + 10 {
        File::create(dir.path().join(format!("f{number}"))).unwrap();
    }
    fs::write(dir.path().join("last"), b"").unwrap();
    watched.wait_until_found("last");
}

/// Some programs give a file its name by a link, and take the unfinished one away.
#[test]
fn a_finished_name_that_is_a_link_is_complete_when_the_unfinished_one_goes_at_the_very_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let stop = FollowEnd::Marker(Name::new(b"STOP").unwrap());
    let mut watched = Watched::ended_by(dir.path(), Until::parse("rename").unwrap(), vec![stop]);
    fs::write(path("f.part"), b"whole").unwrap();
    watched.wait_until_found("f.part");
    fs::hard_link(path("f.part"), path("f")).unwrap();
    watched.wait_until_found("f");
    fs::write(path("STOP"), b"").unwrap();
    // Everything is listed the last time.
    (0..5).for_each(|_| watched.look());
    fs::remove_file(path("f.part")).unwrap();
    watched.wait_until_ended("f");
}

#[test]
fn a_directory_that_was_removed_is_no_failure_when_everything_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let stop = FollowEnd::Marker(Name::new(b"STOP").unwrap());
    let mut watched = Watched::ended_by(dir.path(), Until::Close, vec![stop]);
    fs::create_dir(dir.path().join("d")).unwrap();
    watched.wait_until_found("d");
    fs::remove_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("STOP"), b"").unwrap();
    // Everything is listed the last time.
    (0..5).for_each(|_| watched.look());
    assert!(watched.failed.is_empty(), "{:?}", watched.failed);
}

#[test]
fn what_comes_into_a_directory_that_was_renamed_is_told_under_its_new_name_alone() {
    // Also before anybody has looked at the new name.
    for is_found_first in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let stop = FollowEnd::Marker(Name::new(b"STOP").unwrap());
        let mut watched = Watched::ended_by(dir.path(), Until::Close, vec![stop]);
        fs::create_dir_all(path("run.tmp/below")).unwrap();
        watched.wait_until_found("below");
        fs::rename(path("run.tmp"), path("run")).unwrap();
        if is_found_first {
            watched.wait_until_found("run");
        }
        fs::write(path("run/f"), b"x").unwrap();
        fs::write(path("run/below/g"), b"x").unwrap();
        watched.wait_until_found("f");
        watched.wait_until_found("g");
        fs::write(path("STOP"), b"").unwrap();
        // Everything is listed the last time.
        (0..5).for_each(|_| watched.look());
        let told = |name: &str| watched.names.values().filter(|told| *told == name).count();
        assert_eq!((told("f"), told("g")), (1, 1), "the new name was found first: {is_found_first}");
    }
}

#[test]
fn where_very_many_grow_a_file_that_waits_and_is_replaced_by_a_known_one_does_not_keep_following_from_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    (0..super::GROWING_MAX).for_each(|number| drop(File::create(path(&format!("{number}.part"))).unwrap()));
    let stop = FollowEnd::Marker(Name::new(b"STOP").unwrap());
    let mut watched = Watched::ended_by(dir.path(), Until::parse("rename").unwrap(), vec![stop]);
    watched.wait_until_found("0.part");
    fs::write(path("f"), b"waits").unwrap();
    (0..5).for_each(|_| watched.look());
    fs::rename(path("0.part"), path("f")).unwrap();
    fs::write(path("STOP"), b"").unwrap();
    let began = Instant::now();
    while !watched.is_over {
        assert!(began.elapsed() < LIMIT, "following goes on");
        watched.look();
    }
}
