//! The manual's first copy, followed word for word: in an empty directory, with an empty home, on a network of its own.

use crate::bed::{Bed, contents, program};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

/// The commands below a heading.
fn commands(page: &str, heading: &str) -> String {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page)).unwrap();
    let behind = text.split_once(&format!("\n## {heading}")).expect("the heading is there").1;
    behind.split("```").nth(1).expect("commands are there").to_owned()
}

#[test]
fn the_first_copy_goes_as_the_manual_says() {
    if !needs::network_namespaces() {
        return;
    }
    let bed = Bed::new();
    for name in ["bin", "home", "empty"] {
        fs::create_dir(bed.path(name)).unwrap();
    }
    symlink(program(), bed.path("bin/thalweg")).unwrap();
    // An endpoint that is left over, because a command before its end failed, dies with the namespace; and so does a
    // command that never comes back.
    let script = "ip link set lo up && exec timeout 60 bash -em -c \"$0\"";
    let mut command = Command::new("unshare");
    command.args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]);
    command.arg(commands("first-copy.md", "On one machine"));
    command.env_clear().env("HOME", bed.path("home")).stdin(Stdio::null()).current_dir(bed.path("empty"));
    command.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bed.path("bin").display()));
    let ran = bed.finish(command);
    let told = [&ran.stderr[..], &String::from_utf8_lossy(&ran.stdout)].concat();
    assert_eq!(ran.code, Some(0), "{told}");
    let at = |below: &str| contents(&bed.path("empty").join(below));
    assert_eq!((at("run42"), at("run42")), (at("far/first"), at("back/first")), "{told}");
    assert!(told.contains("copied 2 files, 47.7 MiB to lab:first/\n"), "{told}");
    assert!(told.contains("copied 0 files, 0 B to lab:first/; 2 skipped\n"), "{told}");
}
