//! The manual's first copy and its tour of a site, followed word for word: in an empty directory, with an empty home, on a network of its own.

use crate::bed::{Bed, Ran, contents, program};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)).unwrap()
}

/// The blocks of commands in a text.
fn blocks(text: &str) -> Vec<&str> {
    text.split("```").skip(1).step_by(2).collect()
}

/// Runs commands with an empty home in an empty directory, both in the bed, on a network of its own.
fn follow(bed: &Bed, commands: &str) -> Ran {
    for name in ["bin", "home", "empty"] {
        fs::create_dir(bed.path(name)).unwrap();
    }
    symlink(program(), bed.path("bin/thalweg")).unwrap();
    // An endpoint that is left over, because a command before its end failed, dies with the namespace; and so does a
    // command that never comes back.
    let script = "ip link set lo up && exec timeout 60 bash -em -c \"$0\"";
    let mut command = Command::new("unshare");
    command.args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]).arg(commands);
    command.env_clear().env("HOME", bed.path("home")).stdin(Stdio::null()).current_dir(bed.path("empty"));
    command.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bed.path("bin").display()));
    let mut ran = bed.finish(command);
    ran.stderr.push_str(&String::from_utf8_lossy(&ran.stdout));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran
}

#[test]
fn the_first_copy_goes_as_the_manual_says() {
    if !needs::network_namespaces() {
        return;
    }
    let bed = Bed::new();
    let page = page("first-copy.md");
    let behind = page.split_once("\n## On one machine").expect("the heading is there").1;
    let told = follow(&bed, blocks(behind)[0]).stderr;
    let at = |below: &str| contents(&bed.path("empty").join(below));
    assert_eq!((at("run42"), at("run42")), (at("far/first"), at("back/first")), "{told}");
    assert!(told.contains("copied 2 files, 47.7 MiB to lab:first/\n"), "{told}");
    assert!(told.contains("copied 0 files, 0 B to lab:first/; 2 skipped\n"), "{told}");
}

#[test]
fn the_tour_of_a_site_goes_as_the_manual_says() {
    if !needs::network_namespaces() {
        return;
    }
    let bed = Bed::new();
    let told = follow(&bed, &blocks(&page("site-guide.md")).concat()).stderr;
    let at = |below: &str| contents(&bed.path("empty").join(below));
    assert_eq!(at("daq/run42"), at("archive/runs/run42"), "{told}");
    assert_eq!(at("daq/calibration"), at("archive/runs/calibration"), "{told}");
    for said in ["4 files are the same", "4 files are as listed", "follow each other"] {
        assert!(told.contains(said), "{said}: {told}");
    }
}
