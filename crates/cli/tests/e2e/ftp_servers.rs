//! GridFTP servers, which something that stands for ssh starts, as `sshftp://` has it.

use crate::bed::{self, Bed, noise};
use crate::ssh::Hosts;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The hosts of these tests have names that only ssh knows.
pub const TABLE: &str =
    "[stores.grid]\nkind = \"gridftp\"\nendpoint = \"sshftp://far\"\nredirect_hosts = [\"127.0.0.1\"]\n";

/// Switches a server on for whoever comes by ssh; false where none is installed, or the program under test does not speak to it.
pub fn offer(bed: &Bed, home: &str) -> bool {
    let built = bed.run(&["ls", "ftp://me:x@far/"]);
    let is_built = !built.stderr.contains("has no GridFTP");
    if !needs::met(is_built, "the program was built without --features full")
        || !needs::program("globus-gridftp-server")
    {
        return false;
    }
    let as_root = if needs::root() { "-aa -anonymous-user root -allow-root" } else { "" };
    let script = format!("#!/bin/sh\nexec globus-gridftp-server -ssh {as_root} -data-interface 127.0.0.1\n");
    let path = bed.write(&format!("{home}/.globus/sshftp"), script.as_bytes());
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    true
}

fn start() -> Option<Hosts> {
    let hosts = Hosts::new(&["far"]);
    hosts.bed.write("client/config_home/thalweg/config.toml", TABLE.as_bytes());
    offer(&hosts.bed, "hosts/far").then_some(hosts)
}

fn url(hosts: &Hosts, below: &str) -> String {
    format!("sshftp://far{}", hosts.bed.path("far").join(below).display())
}

/// What a tree holds, with times in whole seconds.
fn contents(path: &Path) -> Vec<String> {
    let whole = |line: String| line.rsplit_once('.').map_or(line.clone(), |(whole, _)| whole.to_owned());
    bed::contents(path).into_iter().map(whole).collect()
}

#[test]
fn a_tree_goes_to_a_gridftp_server_and_comes_back() {
    let Some(hosts) = start() else { return };
    let bed = &hosts.bed;
    for (name, bytes) in [("large", 20 << 20), ("empty", 0), ("dir/small", 100), ("dir/ odd %20;=", 3)] {
        bed.write(&format!("tree/{name}"), &noise(bytes, 3));
    }
    let there = url(&hosts, "a/b/");
    let done = hosts.run(&["cp", "--json", "tree/", &there]).succeeded().done();
    assert!(done["notes"].to_string().contains("in clear text"), "{done}");
    assert_eq!(contents(&bed.path("tree")), contents(&bed.path("far/a/b")));
    let again = hosts.run(&["sync", "--delete", "tree/", &there]).succeeded();
    assert!(again.stderr.contains("copied 0 files"), "{}", again.stderr);
    hosts.run(&["check", "tree/", &there]).succeeded();
    let done = hosts.run(&["cp", "--json", "--verify", "reread", &there, &url(&hosts, "copy/")]).succeeded().done();
    assert!(done["notes"].to_string().contains("content went through this host: GridFTP, FTP and SFTP"), "{done}");
    hosts.run(&["cp", &url(&hosts, "copy/"), "back/"]).succeeded();
    assert_eq!(contents(&bed.path("tree")), contents(&bed.path("back")));
    hosts.run(&["mv", &url(&hosts, "copy/large"), &url(&hosts, "copy/dir/moved")]).succeeded();
    fs::remove_file(bed.path("tree/large")).unwrap();
    hosts.run(&["sync", "--delete", "tree/", &url(&hosts, "copy/")]).succeeded();
    assert_eq!(contents(&bed.path("tree")), contents(&bed.path("far/copy")));
    hosts.run(&["rm", "-r", &url(&hosts, "copy")]).succeeded();
    assert!(!bed.path("far/copy").exists());
}

#[test]
fn a_name_that_would_become_another_fails_alone() {
    let Some(hosts) = start() else { return };
    for name in ["caf\u{e9}", "line\nbreak", "plain"] {
        hosts.bed.write(&format!("tree/{name}"), b"x");
    }
    let ran = hosts.run(&["cp", "tree/", &url(&hosts, "a/")]);
    assert_eq!(ran.code, Some(23), "{}", ran.stderr);
    assert!(ran.stderr.contains("2 failed") || ran.stderr.contains("2 files"), "{}", ran.stderr);
    assert_eq!(fs::read_dir(hosts.bed.path("far/a")).unwrap().count(), 1);
}

#[test]
fn a_doctor_looks_at_a_directory_and_leaves_nothing_there() {
    let Some(hosts) = start() else { return };
    let far = hosts.bed.path("far/a");
    fs::create_dir_all(&far).unwrap();
    let told = hosts.run(&["doctor", "--json", &url(&hosts, "a")]).succeeded();
    let level = |subject: &str| {
        let found = told.events().into_iter().find(|event| event["subject"] == subject);
        found.map_or(String::new(), |event| event["level"].as_str().unwrap().to_owned())
    };
    for subject in ["server", "streams", "listings", "checksums", "way", "list", "put", "get", "rename", "delete"] {
        assert_eq!(level(subject), "good", "{subject}: {:?}", told.events());
    }
    assert_eq!((level("data"), told.done()["needed"].clone()), ("note".to_owned(), 0.into()));
    assert_eq!(fs::read_dir(&far).unwrap().count(), 0);
    let none = hosts.run(&["doctor", &url(&hosts, "none")]).succeeded();
    assert!(String::from_utf8_lossy(&none.stdout).contains("needed   path: "), "{:?}", none.stdout);
    assert_eq!(hosts.run(&["doctor", "gsiftp://127.0.0.1:1/f"]).code, Some(43));
    assert_eq!(hosts.run(&["doctor", "davs://127.0.0.1:1/f"]).code, Some(2));
}

#[test]
fn what_a_gridftp_server_refuses_has_its_exit_code() {
    let Some(hosts) = start() else { return };
    hosts.bed.write("f", b"f");
    for (to, code, why) in [
        ("gsiftp://me:secret@127.0.0.1/f", 2, "a password must not stand in a location"),
        ("gsiftp://127.0.0.1:1/f", 43, "connect to 127.0.0.1"),
        ("gsiftp://192.0.2.1/f", 2, "FTP is not encrypted"),
        ("ftp://127.0.0.1", 2, "names no path"),
    ] {
        let ran = hosts.run(&["cp", "f", to]);
        assert_eq!(ran.code, Some(code), "{to}: {}", ran.stderr);
        assert!(ran.error().contains(why) && !ran.stderr.contains("secret"), "{to}: {}", ran.stderr);
    }
    let gone = hosts.run(&["cp", &url(&hosts, "none"), "x"]);
    assert_eq!(gone.code, Some(4), "{}", gone.stderr);
    fs::remove_file(hosts.home("far").join(".globus/sshftp")).unwrap();
    if !Path::new("/etc/grid-security/sshftp").exists() {
        let none = hosts.run(&["ls", &url(&hosts, "")]);
        assert_eq!(none.code, Some(43), "{}", none.stderr);
        assert!(none.error().contains("far offers no GridFTP over ssh"), "{}", none.stderr);
    }
}
