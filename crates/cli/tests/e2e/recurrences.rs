//! Schedules of a hub, its audit log, copies of its state that are put back, and what becomes of warrants.

use crate::bed::{contents, noise, until};
use crate::hubs::House;
use std::fs;
use std::path::{Path, PathBuf};

const SLOW: &str = "source = \"sitea:x/\"\ndestination = \"siteb:y/\"\nrate = \"4M\"\n";

/// What lies in the directories of this name, at any depth.
fn found_in(name: &str, root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            match path.file_name().is_some_and(|own| own == name) {
                true => found.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path())),
                false => found.extend(found_in(name, &path)),
            }
        }
    }
    found
}

/// A hub that was killed has its database back as it was: over the file that is there, as `cp` does it.
struct Backup(Vec<(PathBuf, Vec<u8>)>);

impl Backup {
    fn of(house: &House) -> Backup {
        let names = ["hub.db", "hub.db-wal"];
        let kept = names.iter().map(|name| house.bed.path("hub-state").join(name));
        Backup(kept.filter_map(|path| Some((path.clone(), fs::read(path).ok()?))).collect())
    }

    fn put_back(&self, house: &House) {
        for name in ["hub.db-wal", "hub.db-shm"] {
            let _ = fs::remove_file(house.bed.path("hub-state").join(name));
        }
        self.0.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    }
}

/// How far the database had come: written when a hub starts, and every second in which something happened.
fn mark(house: &House) -> Vec<u8> {
    fs::read(house.bed.path("hub-state/hub.mark")).unwrap()
}

#[test]
fn a_schedule_is_made_shown_run_and_removed_and_the_audit_log_has_it() {
    let house = House::new();
    house.bed.write("root-sitea/x/one", b"one");
    house.bed.write("job.toml", b"source = \"sitea:x/\"\ndestination = \"siteb:y/\"\n");
    let add = |more: &[&str]| {
        let words = [&["schedule", "add", "nightly", "--at", "02:30,14:00", "job.toml"], more].concat();
        house.bed.run(&words)
    };
    for (more, said) in [
        (&["--zone", "Mars/Olympus"][..], "no time zone \"Mars/Olympus\" is known here"),
        (&["--days", "monday"], "\"monday\" is not a day"),
        (&["--at", "25:00"], "\"25:00\" is not a time of day"),
    ] {
        let refused = add(more);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.error().contains(said) && refused.error().contains("hint: "), "{}", refused.stderr);
    }
    add(&["--days", "mon,fri"]).succeeded();
    let listed = || String::from_utf8(house.bed.run(&["schedule", "ls"]).succeeded().stdout).unwrap();
    assert!(listed().starts_with("nightly\t02:30,14:00 mon,fri UTC\tnext "), "{}", listed());
    let again = add(&[]);
    assert!(again.error().contains("there is already a schedule nightly"), "{}", again.stderr);
    let ran = house.bed.run(&["schedule", "run", "nightly"]).succeeded();
    let id = String::from_utf8(ran.stdout).unwrap().split_whitespace().last().unwrap().to_owned();
    house.bed.run(&["job", "watch", &id]).succeeded();
    assert_eq!(fs::read(house.bed.path("root-siteb/y/one")).unwrap(), b"one");
    house.bed.run(&["schedule", "pause", "nightly"]).succeeded();
    assert!(listed().contains("\tpaused\t"), "{}", listed());
    house.bed.run(&["schedule", "resume", "nightly"]).succeeded();
    house.bed.run(&["schedule", "rm", "nightly"]).succeeded();
    assert!(listed().is_empty() && house.bed.run(&["schedule", "run", "a/b"]).error().contains("no schedule"));
    let lines = house.bed.run(&["hub", "audit", "ls"]).succeeded().events();
    let deeds: Vec<_> = lines.iter().filter_map(|line| line["do"].as_str()).collect();
    for deed in ["endpoint add", "schedule add", "schedule run", "schedule pause", "schedule resume", "schedule rm"] {
        assert!(deeds.contains(&deed), "{deeds:?}");
    }
    let verified = house.bed.run(&["hub", "audit", "verify", "--state-dir", "hub-state"]).succeeded();
    assert!(String::from_utf8(verified.stdout).unwrap().contains("in order, up to line"));
}

#[test]
fn a_job_that_is_cancelled_has_its_warrant_taken_back() {
    let house = House::new();
    house.bed.write("root-sitea/x/big", &noise(24 << 20, 7));
    let id = house.submitted(SLOW);
    until("it to run", || house.job("show", &id)["status"] == "running");
    assert!(found_in("warrants", &house.bed.path("siteb")).is_empty());
    house.job("cancel", &id);
    assert_eq!(house.bed.run(&["job", "watch", &id]).code, Some(45));
    until("the warrant to be taken back", || found_in("warrants", &house.bed.path("siteb")).len() == 1);
    // Begun anew, it has another one.
    house.job("retry", &id);
    until("it to run again", || house.job("show", &id)["status"] == "running");
    // It is slow no longer, unless it is over already.
    let _ = house.bed.run(&["job", "rate", &id, "1G"]);
    house.bed.run(&["job", "watch", &id]).succeeded();
    assert_eq!(contents(&house.bed.path("root-sitea/x")), contents(&house.bed.path("root-siteb/y")));
}

#[test]
fn a_hub_on_an_old_copy_of_its_state_takes_over_what_runs_and_ends_what_it_does_not_know() {
    let mut house = House::new();
    house.bed.write("root-sitea/x/big", &noise(24 << 20, 7));
    house.kill();
    let before = Backup::of(&house);
    house.start();
    // It does not end within this test.
    let id = house.submitted(&SLOW.replace("4M", "100K"));
    until("it to run", || house.job("show", &id)["status"] == "running");
    house.job("pause", &id);
    until("the pause", || house.job("show", &id)["status"] == "paused");
    house.kill();
    let paused = Backup::of(&house);
    house.start();
    let at_start = mark(&house);
    house.job("resume", &id);
    until("it to run again", || house.job("show", &id)["status"] == "running");
    let attempt = house.job("show", &id)["attempt"].clone();
    until("the mark", || mark(&house) != at_start);
    house.kill();
    paused.put_back(&house);
    house.start();
    // In this copy it is paused; its order goes on, and is its own again.
    until("its order to be taken over", || house.job("show", &id)["status"] != "paused");
    assert_eq!(house.job("show", &id)["attempt"], attempt);
    house.kill();
    before.put_back(&house);
    house.start();
    assert!(house.all().is_empty());
    until("the order that nobody knows to be ended", || found_in("orders", &house.bed.path("sitea")).is_empty());
    let again = house.submitted(&SLOW.replace("4M", "1G"));
    house.bed.run(&["job", "watch", &again]).succeeded();
    assert_eq!(contents(&house.bed.path("root-sitea/x")), contents(&house.bed.path("root-siteb/y")));
    house.bed.run(&["hub", "audit", "verify", "--state-dir", "hub-state"]).succeeded();
}
