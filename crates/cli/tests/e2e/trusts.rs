//! What the program does not believe, and what does not arm it: files of others, variables and settings for all commands.

use crate::bed::{Bed, is_root};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};

const CONFIGURATION: &str = "client/config_home/thalweg/config.toml";

fn set_mode(bed: &Bed, name: &str, mode: u32) {
    fs::set_permissions(bed.path(name), Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_variable_that_was_set_for_another_command_arms_no_removal() {
    let bed = Bed::new();
    bed.write("tree/leaf", b"x");
    fs::create_dir(bed.path("empty")).unwrap();
    for (variable, args) in [
        ("THALWEG_RECURSIVE", &["rm", "tree"][..]),
        ("THALWEG_FORCE", &["rm", "absent"]),
        ("THALWEG_DELETE", &["sync", "empty/", "tree/"]),
    ] {
        let mut command = bed.command("client", args);
        command.env(variable, "true");
        let ran = bed.finish(command);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.error().starts_with(&format!("error: {variable} is set, but `thalweg ")), "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!("env -u {variable}")), "{}", ran.stderr);
        assert!(bed.path("tree/leaf").exists());
    }
    let mut given = bed.command("client", &["rm", "-r", "tree"]);
    given.env("THALWEG_RECURSIVE", "true");
    bed.finish(given).succeeded();
    assert!(!bed.path("tree").exists());
}

#[test]
fn a_setting_for_all_commands_arms_no_removal() {
    let bed = Bed::new();
    bed.write("tree/leaf", b"x");
    bed.write(CONFIGURATION, b"recursive = true\n");
    assert_ne!(bed.run(&["rm", "tree"]).code, Some(0));
    assert!(bed.path("tree/leaf").exists());
    bed.write(CONFIGURATION, b"[rm]\nrecursive = true\n");
    let ran = bed.run(&["rm", "tree"]);
    assert!(
        ran.code == Some(2) && ran.stderr.contains("config.toml:2: recursive cannot be set here"),
        "{}",
        ran.stderr
    );
    bed.write(CONFIGURATION, b"[endpoint.add]\nreplace = true\n[serve]\nsuper = true\n");
    bed.run(&["rm", "-r", "tree"]).succeeded();
}

#[test]
fn a_configuration_that_others_own_or_may_change_is_not_read() {
    let bed = Bed::new();
    bed.write("f", b"x");
    bed.write(CONFIGURATION, b"[cp]\nssh = \"touch ran\"\n");
    let refused = |why: &str| {
        let ran = bed.run(&["cp", "f", "nowhere.invalid:x"]);
        assert_eq!(ran.code, Some(model::Exit::Refused as i32), "{}", ran.stderr);
        assert!(ran.stderr.contains(why) && ran.stderr.contains("hint: "), "{}", ran.stderr);
        assert!(!bed.path("ran").exists());
    };
    for mode in [0o666, 0o664] {
        set_mode(&bed, CONFIGURATION, mode);
        refused("chmod go-w");
    }
    set_mode(&bed, CONFIGURATION, 0o644);
    set_mode(&bed, "client/config_home/thalweg", 0o777);
    refused("above the configuration");
    set_mode(&bed, "client/config_home/thalweg", 0o755);
    if is_root() {
        chown(bed.path(CONFIGURATION), Some(4711), None).unwrap();
        refused("belongs to user 4711");
        chown(bed.path(CONFIGURATION), Some(0), None).unwrap();
    }
    bed.run(&["cp", "--config", "/dev/null", "f", "g"]).succeeded();
    // It is read again, and does what it says.
    assert_ne!(bed.run(&["cp", "f", "nowhere.invalid:x"]).code, Some(0));
    assert!(bed.path("ran").exists());
}

#[test]
fn a_state_directory_that_others_may_write_is_not_used() {
    let bed = Bed::new();
    fs::create_dir(bed.path("state")).unwrap();
    set_mode(&bed, "state", 0o777);
    let serve = ["serve", "--listen", "127.0.0.1:0", "--root", "root", "--state-dir", "state"];
    let ran = bed.run(&serve);
    assert_eq!(ran.code, Some(model::Exit::Refused as i32), "{}", ran.stderr);
    assert!(ran.stderr.contains("can be changed by other users (mode 0777)"), "{}", ran.stderr);
    assert!(fs::read_dir(bed.path("state")).unwrap().next().is_none());
}

#[test]
fn a_ticket_replaces_no_link_fifo_or_other_file() {
    let bed = Bed::new();
    bed.write("precious", b"precious");
    std::os::unix::fs::symlink("precious", bed.path("link")).unwrap();
    let serve =
        |ticket: &str| bed.run(&["serve", "--listen", "127.0.0.1:0", "--root", "root", "--ticket-file", ticket]);
    for (ticket, why) in [("link", "a link or a special file"), ("precious", "a file that is not a ticket")] {
        let ran = serve(ticket);
        assert!(ran.code != Some(0) && ran.stderr.contains(why), "{}", ran.stderr);
    }
    let ran = serve("-");
    assert!(ran.code == Some(2) && ran.stderr.contains("ticket new --ticket-file -"), "{}", ran.stderr);
    assert_eq!(fs::read(bed.path("precious")).unwrap(), b"precious");
    assert!(bed.path("link").is_symlink());
}
