//! Hosts without Thalweg, over the real ssh and its own SFTP server.

use crate::bed::{self, noise};
use crate::sshd::Sshd;
use std::fs;
use std::path::Path;

/// `None` where no server is installed, or the program under test has no SFTP.
fn start() -> Option<Sshd> {
    let sshd = Sshd::start()?;
    let built = sshd.run(&["ls", "sftp://me:x@far/"]);
    let is_built = !built.stderr.contains("has no SFTP");
    needs::met(is_built, "the program was built without --features full").then_some(sshd)
}

fn url(sshd: &Sshd, host: &str, below: &str) -> String {
    format!("sftp://{host}{}", sshd.bed.path("far").join(below).display())
}

/// What a tree holds, with times in whole seconds, as SFTP has them.
fn contents(path: &Path) -> Vec<String> {
    let whole = |line: String| line.rsplit_once('.').map_or(line.clone(), |(whole, _)| whole.to_owned());
    bed::contents(path).into_iter().map(whole).collect()
}

#[test]
fn a_tree_goes_to_an_sftp_server_and_comes_back() {
    let Some(sshd) = start() else { return };
    for (name, bytes) in [("large", 20 << 20), ("empty", 0), ("dir/small", 100), ("dir/odd \u{e9}%20", 3)] {
        sshd.bed.write(&format!("tree/{name}"), &noise(bytes, 3));
    }
    let there = url(&sshd, "far", "a/b/");
    let ran = sshd.run(&["cp", "tree/", &there]).succeeded();
    assert!(ran.stderr.contains("; durable"), "{}", ran.stderr);
    assert_eq!(contents(&sshd.bed.path("tree")), contents(&sshd.bed.path("far/a/b")));
    let again = sshd.run(&["sync", "--delete", "tree/", &there]).succeeded();
    assert!(again.stderr.contains("copied 0 files"), "{}", again.stderr);
    sshd.run(&["check", "tree/", &there]).succeeded();
    let copy = url(&sshd, "twin", "copy/");
    let done = sshd.run(&["cp", "--json", "--verify", "reread", &there, &copy]).succeeded().done();
    assert!(done["notes"].to_string().contains("content went through this host: GridFTP, FTP and SFTP"), "{done}");
    sshd.run(&["cp", &url(&sshd, "twin", "copy/"), "back/"]).succeeded();
    assert_eq!(contents(&sshd.bed.path("tree")), contents(&sshd.bed.path("back")));
    sshd.run(&["mv", &url(&sshd, "far", "copy/large"), &url(&sshd, "far", "copy/dir/moved")]).succeeded();
    fs::remove_file(sshd.bed.path("tree/large")).unwrap();
    sshd.run(&["sync", "--delete", "tree/", &url(&sshd, "far", "copy/")]).succeeded();
    assert_eq!(contents(&sshd.bed.path("tree")), contents(&sshd.bed.path("far/copy")));
    let doctor = sshd.run(&["doctor", &url(&sshd, "far", "copy")]).succeeded();
    let told = String::from_utf8(doctor.stdout).unwrap();
    assert!(told.contains("good     replacing: ") && told.contains("\n0 needed, 0 to know, "), "{told}");
    assert_eq!(contents(&sshd.bed.path("tree")), contents(&sshd.bed.path("far/copy")));
    sshd.run(&["rm", "-r", &url(&sshd, "far", "copy")]).succeeded();
    assert!(!sshd.bed.path("far/copy").exists());
}

#[test]
fn what_an_sftp_server_refuses_has_its_exit_code() {
    let Some(sshd) = start() else { return };
    sshd.bed.write("f", b"f");
    for (host, code, why) in [
        ("changed", 41, "ssh does not accept the host key of changed"),
        ("closed", 43, "ssh does not reach closed"),
        ("me:secret@far", 2, "a password must not stand in a location"),
        ("far:0", 2, "the port is no number"),
    ] {
        let ran = sshd.run(&["cp", "f", &url(&sshd, host, "f")]);
        assert_eq!(ran.code, Some(code), "{host}: {}", ran.stderr);
        assert!(ran.error().contains(why) && !ran.stderr.contains("secret"), "{host}: {}", ran.stderr);
    }
    let gone = sshd.run(&["cp", &url(&sshd, "far", "none"), "x"]);
    assert_eq!(gone.code, Some(4), "{}", gone.stderr);
    let mut command = sshd.bed.command("client", &["ls", "sftp://far/"]);
    command.env("THALWEG_SSH", "sh -c 'echo no subsystem >&2; exit 1' sh");
    let none = sshd.bed.finish(command);
    assert_eq!(none.code, Some(43), "{}", none.stderr);
    assert!(none.error().contains("far offers no sftp over ssh"), "{}", none.stderr);
    let mut command = sshd.bed.command("client", &["ls", "sftp://far/"]);
    command.env("THALWEG_SSH", "sh -c 'echo Welcome to far' sh");
    let talks = sshd.bed.finish(command);
    assert_eq!(talks.code, Some(43), "{}", talks.stderr);
    assert!(talks.error().contains("its login scripts must print nothing"), "{}", talks.stderr);
}
