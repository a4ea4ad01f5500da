//! What endpoints and a hub do in a client's name beside copying: moving, comparing, rehearsing.

use crate::bed::{contents, noise, until};
use crate::hubs::House;
use crate::orders::{Sites, id_of};
use std::fs;
use std::os::unix::fs::MetadataExt;

#[test]
fn a_move_between_endpoints_needs_its_command_no_more() {
    let sites = Sites::new();
    sites.tree();
    let before = contents(&sites.bed.path("root-sitea/x"));
    let id = id_of(sites.bed.run(&["mv", "--detach", "sitea:x", "siteb:y"]).succeeded());
    let watched = sites.bed.run(&["job", "watch", &id]).succeeded();
    assert!(watched.stderr.contains("moved 3 files"), "{}", watched.stderr);
    assert_eq!(contents(&sites.bed.path("root-siteb/y")), before);
    assert!(!sites.bed.path("root-sitea/x").exists());
    // Into a directory, several at once.
    sites.bed.write("root-sitea/p", b"p");
    sites.bed.write("root-sitea/q/r", b"r");
    fs::hard_link(sites.bed.path("root-sitea/q/r"), sites.bed.path("root-sitea/q/s")).unwrap();
    let id = id_of(sites.bed.run(&["mv", "--detach", "sitea:p", "sitea:q/", "siteb:in/"]).succeeded());
    sites.bed.run(&["job", "watch", &id]).succeeded();
    for name in ["r", "s"] {
        let at = sites.bed.path("root-siteb/in/q").join(name);
        assert_eq!((fs::read(&at).unwrap(), at.metadata().unwrap().nlink()), (b"r".to_vec(), 1), "{name}");
    }
    assert_eq!(
        fs::read_dir(sites.bed.path("root-sitea"))
            .unwrap()
            .filter(|e| !e.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'))
            .count(),
        0
    );
    let refused = sites.bed.run(&["mv", "--detach", "x", "siteb:y"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
}

#[test]
fn what_is_at_the_destination_already_and_other_stays_at_the_source() {
    let sites = Sites::new();
    sites.bed.write("root-sitea/x/same", b"same");
    sites.bed.write("root-sitea/x/other", b"here");
    sites.bed.write("root-siteb/y/other", b"there");
    let id = id_of(sites.bed.run(&["mv", "--detach", "--no-clobber", "sitea:x", "siteb:y/"]).succeeded());
    sites.bed.run(&["job", "watch", &id]).succeeded();
    sites.bed.write("root-sitea/x/other", b"here");
    sites.bed.write("root-siteb/y/x/other", b"there");
    // The same job again; it may be over before the command is.
    let again = sites.bed.run(&["mv", "--detach", "--no-clobber", "sitea:x", "siteb:y/"]);
    assert!(matches!(again.code, Some(0 | 23)), "{}", again.stderr);
    let watched = sites.bed.run(&["job", "watch", &id]);
    assert_eq!(watched.code, Some(23), "{}", watched.stderr);
    let shown = sites.job("show", &id);
    assert!(shown["failures"].to_string().contains("kept at the source"), "{shown}");
    assert_eq!(fs::read(sites.bed.path("root-sitea/x/other")).unwrap(), b"here");
    assert_eq!(fs::read(sites.bed.path("root-siteb/y/x/other")).unwrap(), b"there");
}

#[test]
fn an_endpoint_compares_its_tree_with_anothers() {
    let sites = Sites::new();
    sites.tree();
    sites.bed.run(&["cp", "sitea:x/", "siteb:y/"]).succeeded();
    let id = id_of(sites.bed.run(&["check", "--detach", "sitea:x", "siteb:y"]).succeeded());
    let watched = sites.bed.run(&["job", "watch", &id]).succeeded();
    assert!(watched.stderr.contains("3 files are the same"), "{}", watched.stderr);
    sites.bed.write("root-siteb/y/one", b"damaged---");
    fs::remove_file(sites.bed.path("root-siteb/y/sub/two")).unwrap();
    sites.bed.write("root-siteb/y/more", b"more");
    sites.bed.run(&["job", "retry", &id]).succeeded();
    let watched = sites.bed.run(&["job", "watch", &id]);
    assert_eq!(watched.code, Some(1), "{}", watched.stderr);
    assert!(watched.stderr.contains("the two differ in 3 objects"), "{}", watched.stderr);
    let shown = sites.job("show", &id);
    let failures = shown["failures"].to_string();
    for text in ["one", "differs: content", "sub/two", "missing at the destination", "more", "only at the destination"]
    {
        assert!(failures.contains(text), "{text}: {failures}");
    }
    // Nothing was changed by it.
    assert_eq!(fs::read(sites.bed.path("root-siteb/y/one")).unwrap(), b"damaged---");
}

#[test]
fn a_hub_moves_compares_and_rehearses() {
    let house = House::new();
    house.bed.write("root-sitea/x/one", &noise(3 << 20, 1));
    house.bed.write("root-sitea/x/sub/two", b"two");
    house.bed.write("root-siteb/y/old", b"old");
    let before = contents(&house.bed.path("root-sitea/x"));
    let job = "kind = \"sync\"\nsource = \"sitea:x/\"\ndestination = \"siteb:y/\"\nfinish_by = 2020-01-01T00:00:00Z\n";
    house.bed.write("job.toml", format!("{job}[options]\ndelete = true\n").as_bytes());
    let ran = house.bed.run(&["submit", "--dry-run", "job.toml"]).succeeded();
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(text.starts_with("would copy 2 files, 3.00 MiB; 1 removed\n"), "{text}");
    assert!(text.contains("its duration cannot be estimated"), "{text}");
    // Nothing was done.
    assert_eq!(fs::read(house.bed.path("root-siteb/y/old")).unwrap(), b"old");
    assert_eq!(fs::read_dir(house.bed.path("root-siteb/y")).unwrap().count(), 1);
    // What was rehearsed is what is handed in: its deadline has passed long ago.
    let id = text.split_whitespace().last().unwrap();
    let late = house.bed.run(&["submit", "--rehearsed", id, "--json"]);
    assert_eq!(late.code, Some(2), "{}", late.stderr);
    assert!(late.error().contains("finish_by is 2020-01-01T00:00:00Z, which has passed"), "{}", late.stderr);
    house.bed.write("job.toml", job.replace("finish_by = 2020-01-01T00:00:00Z\n", "").as_bytes());
    let copied = house.bed.run(&["submit", "job.toml", "--json"]).succeeded().events().pop().unwrap();
    house.bed.run(&["job", "watch", copied["id"].as_str().unwrap()]).succeeded();
    house.bed.write("root-sitea/x/three", b"three");
    let again = house.bed.run(&["submit", "--dry-run", "--json", "job.toml"]).succeeded().events().pop().unwrap();
    assert_eq!((&again["files"], &again["skipped"]), (&1.into(), &2.into()), "{again}");
    assert!(again["predicted"]["p50"].as_f64().is_some_and(|seconds| seconds > 0.0), "{again}");
    fs::remove_file(house.bed.path("root-sitea/x/three")).unwrap();

    let check = house.submitted("kind = \"check\"\nsource = \"sitea:x\"\ndestination = \"siteb:y\"\n");
    let watched = house.bed.run(&["job", "watch", &check]);
    assert_eq!(watched.code, Some(1), "{}", watched.stderr);
    assert!(house.job("show", &check)["failures"].to_string().contains("only at the destination"));
    let moved = house.submitted("kind = \"move\"\nsource = \"sitea:x/\"\ndestination = \"siteb:z/\"\n");
    let watched = house.bed.run(&["job", "watch", &moved]).succeeded();
    assert!(watched.stderr.contains("moved 2 files"), "{}", watched.stderr);
    assert_eq!(contents(&house.bed.path("root-siteb/z")), before);
    until("the source to be gone", || !house.bed.path("root-sitea/x").exists());
}

#[test]
fn a_hub_has_an_endpoint_follow_what_is_written_there_through_its_own_kill() {
    let mut house = House::new();
    house.bed.write("root-sitea/daq/first", b"first");
    house.bed.write("root-sitea/daq/run.inprogress", b"a beginning");
    let job = "kind = \"follow\"\nsource = \"sitea:daq/\"\ndestination = \"siteb:daq/\"\n";
    let refused = house.submit(job);
    assert!(refused.error().contains("when a file is complete"), "{}", refused.stderr);
    let id =
        house.submitted(&format!("{job}[options]\nuntil = \"rename\"\nshow = \"prefix\"\nend = [\"marker:STOP\"]\n"));
    let there = |name: &str| fs::read(house.bed.path("root-siteb/daq").join(name)).unwrap_or_default();
    until("what grows to be shown", || there("first") == b"first" && there("run.inprogress") == b"a beginning");
    house.kill();
    house.bed.write("root-sitea/daq/run.inprogress", b"a beginning and an end");
    fs::rename(house.bed.path("root-sitea/daq/run.inprogress"), house.bed.path("root-sitea/daq/run")).unwrap();
    let there = |name: &str| fs::read(house.bed.path("root-siteb/daq").join(name)).unwrap_or_default();
    until("the whole file to be there without the hub", || there("run") == b"a beginning and an end");
    house.start();
    until("the hub to see it run", || house.job("show", &id)["status"] == "running");
    house.bed.write("root-sitea/daq/STOP", b"");
    let watched = house.bed.run(&["job", "watch", &id]).succeeded();
    assert!(watched.stderr.contains("copied"), "{}", watched.stderr);
    assert_eq!(house.job("show", &id)["attempt"], 1);
}

/// The same file without a hub, where the files are.
#[test]
fn a_job_file_that_follows_is_carried_out_on_this_host_too() {
    let house = House::new();
    house.bed.write("daq/one", b"one");
    house.bed.write("daq/STOP", b"");
    let options = "[options]\nuntil = \"never\"\nend = [\"marker:STOP\"]\n";
    house.bed.write(
        "job.toml",
        format!("kind = \"follow\"\nsource = \"daq/\"\ndestination = \"out/\"\n{options}").as_bytes(),
    );
    house.bed.run(&["run", "job.toml"]).succeeded();
    assert_eq!(fs::read(house.bed.path("out/one")).unwrap(), b"one");
}
