//! Settings from files, and what explains the program: completions, manual pages, hints.

use crate::bed::{Bed, Ran};
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

const USER_FILE: &str = "client/config_home/thalweg/config.toml";

/// `config show` with a system's file of the bed's own.
fn show(bed: &Bed, args: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = bed.command("client", &[&["config", "show", "--origin"], args].concat());
    command.env("THALWEG_SYSTEM_CONFIG", bed.path("system.toml")).envs(variables.iter().copied());
    bed.finish(command)
}

fn text(ran: Ran) -> String {
    String::from_utf8(ran.succeeded().stdout).unwrap()
}

#[test]
fn the_nearest_place_that_says_something_holds_and_is_named() {
    let bed = Bed::new();
    bed.write("system.toml", b"retries = 1\n[cp]\nstreams = 2\nchunk-size = '2MiB'\nfsync = 'never'\n");
    bed.write(USER_FILE, b"[cp]\nstreams = 3\nchunk-size = '4MiB'\n\n[profiles.far.cp]\nchunk-size = '16MiB'\n");
    let shown = |args: &[&str], variables: &[(&str, &str)]| {
        text(show(&bed, args, variables)).replace(&bed.dir.path().display().to_string(), "[DIR]")
    };
    let plain = shown(&["cp"], &[("THALWEG_STREAMS", "5")]);
    for line in [
        "cp.streams = \"5\"   # variable THALWEG_STREAMS\n",
        "cp.chunk-size = \"4MiB\"   # user file, [DIR]/client/config_home/thalweg/config.toml:3\n",
        "cp.fsync = \"never\"   # system file, [DIR]/system.toml:5\n",
        "cp.retries = \"1\"   # system file, [DIR]/system.toml:1\n",
        "cp.verify = \"stream\"   # default\n",
        "cp.cc = (not set)   # default\n",
    ] {
        assert!(plain.contains(line), "{line} in {plain}");
    }
    let far = shown(&["--profile", "far", "cp"], &[]);
    assert!(far.contains("cp.chunk-size = \"16MiB\"   # profile far, "), "{far}");
    let named = shown(&["--config", "system.toml", "cp"], &[]);
    assert!(named.contains("cp.streams = \"2\"   # named file, system.toml:3"), "{named}");
    let set_only = shown(&[], &[]);
    assert!(set_only.contains("cp.streams") && !set_only.contains("cp.verify"), "{set_only}");
}

#[test]
fn a_setting_reaches_the_command_and_a_flag_wins_over_it() {
    let bed = Bed::new();
    bed.write(USER_FILE, b"[cp]\nchmod = '600'\nfsync = 'never'\n");
    bed.write("f", b"f");
    let mode = |name: &str| {
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(bed.path(name)).unwrap().permissions()) & 0o777
    };
    let done = bed.run(&["cp", "--json", "f", "by-file"]).succeeded().done();
    assert_eq!((mode("by-file"), done["durable"].as_str()), (0o600, Some("never")));
    bed.run(&["cp", "--chmod", "640", "f", "by-flag"]).succeeded();
    assert_eq!(mode("by-flag"), 0o640);
    bed.run(&["cp", "--config", "/dev/null", "--chmod", "644", "f", "by-none"]).succeeded();
}

/// A command with a variable.
fn with(bed: &Bed, (name, value): (&str, &str), args: &[&str]) -> Ran {
    let mut command = bed.command("client", args);
    command.env(name, value);
    bed.finish(command)
}

#[test]
fn a_setting_or_a_variable_gives_way_to_a_flag_that_excludes_it() {
    let bed = Bed::new();
    let then = SystemTime::now() - Duration::from_secs(3600);
    let put = || {
        for (path, content) in [("a/f", b"one"), ("b/f", b"two")] {
            let file = bed.write(path, content);
            fs::File::options().append(true).open(file).unwrap().set_modified(then).unwrap();
        }
    };
    let is_sent = || fs::read(bed.path("b/f")).unwrap() == b"one";
    put();
    bed.write(USER_FILE, b"[sync]\ncompare = 'mtime'\n[ls]\njson = true\n");
    bed.run(&["sync", "a/", "b/"]).succeeded();
    assert!(!is_sent(), "both have the same size and time");
    bed.run(&["sync", "-c", "a/", "b/"]).succeeded();
    assert!(is_sent());
    assert_eq!(bed.run(&["ls", "--print0", "a/"]).succeeded().stdout, b"f\0");
    bed.write(USER_FILE, b"");
    put();
    with(&bed, ("THALWEG_COMPARE", "size"), &["cp", "-c", "a/", "b/"]).succeeded();
    assert!(is_sent());
    assert_eq!(with(&bed, ("THALWEG_JSON", "false"), &["ls", "--print0", "a/"]).succeeded().stdout, b"f\0");
    bed.write(USER_FILE, b"[ls]\njson = true\n");
    assert_eq!(with(&bed, ("THALWEG_PRINT0", "true"), &["ls", "a/"]).succeeded().stdout, b"f\0");
}

#[test]
fn a_variable_for_one_way_of_using_a_command_does_not_stand_in_the_way_of_another() {
    let bed = Bed::new();
    bed.write("a/f", b"f");
    with(&bed, ("THALWEG_MAX_DELETE", "0"), &["sync", "a/", "b/"]).succeeded();
    fs::remove_file(bed.path("a/f")).unwrap();
    let ran = with(&bed, ("THALWEG_MAX_DELETE", "0"), &["sync", "--delete", "a/", "b/"]);
    assert_eq!((ran.code, bed.path("b/f").exists()), (Some(25), true), "{}", ran.stderr);
    let ran = bed.run(&["sync", "--max-delete", "9", "a/", "b/"]);
    assert!(ran.code == Some(2) && ran.error().contains("give --delete too"), "{}", ran.stderr);
}

#[test]
fn a_mistake_in_a_file_ends_the_command_and_says_what_was_meant() {
    let bed = Bed::new();
    bed.write("f", b"f");
    for (file, error, hint) in [
        ("retires = 3\n", "unknown setting retires", "did you mean retries?"),
        ("[cp]\n\nstreams = 'many'\n", "streams: invalid value 'many' for '--streams <N>'", "`thalweg cp --help`"),
        ("[cp]\nquiet = 3\n", "quiet: it is switched on or off", "write quiet = true"),
        (
            "[cp]\nchecksum = true\ncompare = 'size'\n",
            "compare and checksum exclude each other",
            "remove one of the two",
        ),
        ("retries = \n", "", "the file is TOML"),
    ] {
        bed.write(USER_FILE, file.as_bytes());
        let ran = bed.run(&["cp", "f", "g"]);
        let said = ran.error();
        assert_eq!(ran.code, Some(2), "{said}");
        assert!(said.starts_with("error: [DIR]/client/config_home/thalweg/config.toml:"), "{said}");
        assert!(said.contains(error) && said.contains(&format!("\nhint: {hint}")), "{said}");
        assert!(!bed.path("g").exists());
    }
    let paths = text(bed.run(&["config", "path"]));
    assert!(paths.starts_with("user file\t") && paths.contains("\tread\nsystem file\t"), "{paths}");
    let unknown = bed.run(&["cp", "--config", "/dev/null", "--profile", "fast", "f", "g"]);
    assert!(unknown.error().starts_with("error: no profile fast is configured\nhint: "), "{}", unknown.stderr);
}

#[test]
fn a_wrong_command_line_ends_with_a_hint() {
    let bed = Bed::new();
    let ran = bed.run(&["cp", "--stream", "3", "a", "b"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.starts_with("error: unexpected argument '--stream' found"), "{}", ran.stderr);
    assert!(ran.stderr.contains("'--streams'"), "{}", ran.stderr);
    assert!(
        ran.stderr.ends_with("hint: `thalweg cp --help` explains what it takes, with examples\n"),
        "{}",
        ran.stderr
    );
}

#[test]
fn completions_are_scripts_that_their_shells_take() {
    let bed = Bed::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = text(bed.run(&["completions", shell]));
        assert!(script.contains("no-clobber"), "{shell}");
        let file = bed.write("script", script.as_bytes());
        if needs::program(shell) {
            let check = Command::new(shell).arg("-n").arg(file).stdin(Stdio::null()).output().unwrap();
            assert!(check.status.success(), "{shell}: {}", String::from_utf8_lossy(&check.stderr));
        }
    }
    assert!(bed.run(&["completions", "tcsh"]).stderr.contains("there are completions for bash, zsh and fish"));
}

#[test]
fn every_command_has_a_manual_page_without_mistakes() {
    let bed = Bed::new();
    bed.run(&["man", "--out", "man"]).succeeded();
    let pages: Vec<_> = fs::read_dir(bed.path("man")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(pages.iter().any(|page| page.ends_with("thalweg-endpoint-add.1")), "{pages:?}");
    if needs::program("groff") {
        let checked = Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]).args(&pages).output().unwrap();
        assert_eq!((checked.status.success(), String::from_utf8_lossy(&checked.stderr).as_ref()), (true, ""));
    }
    assert!(text(bed.run(&["man", "cp"])).contains("thalweg\\-cp"));
    assert_eq!(bed.run(&["man", "nothing"]).code, Some(2));
}
