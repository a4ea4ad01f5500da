//! Standard input and output as ends of a copy.

use crate::bed::{Bed, Ran, noise, signal, staged, until};
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Stdio};

fn feed(bed: &Bed, args: &[&str], input: &[u8]) -> Ran {
    let mut command = bed.command("client", args);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A refused copy does not read: the write fails, and the copy's error counts.
            let _ = stdin.write_all(input);
        });
        bed.wait(child)
    })
}

#[test]
fn standard_input_becomes_a_file_and_a_file_standard_output() {
    let (bed, _server) = Bed::with_endpoint();
    for bytes in [0, 5, 70_000, (8 << 20), (20 << 20) + 3] {
        let input = noise(bytes, 3);
        feed(&bed, &["cp", "-", &format!("lab:in/{bytes}")], &input).succeeded();
        assert!(fs::read(bed.path(format!("root/in/{bytes}"))).unwrap() == input, "push {bytes}");
        let ran = bed.run(&["cp", &format!("lab:in/{bytes}"), "-"]).succeeded();
        assert!(ran.stdout == input, "pull {bytes}: {} bytes", ran.stdout.len());
        feed(&bed, &["cp", "-", &format!("here/{bytes}")], &input).succeeded();
        assert!(fs::read(bed.path(format!("here/{bytes}"))).unwrap() == input, "here {bytes}");
        let ran = bed.run(&["cp", &format!("here/{bytes}"), "-"]).succeeded();
        assert!(ran.stdout == input, "out {bytes}");
    }
}

#[test]
fn a_tree_does_not_fit_into_standard_output() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("root/t/a", b"a");
    bed.write("root/t/b", b"b");
    for (command, from) in
        [("cp", "lab:t"), ("cp", "root/t"), ("cp", "lab:t/"), ("cp", "root/t/"), ("cat", "lab:t"), ("cat", "root/t")]
    {
        let more = if command == "cp" { Some("-") } else { None };
        let ran = bed.run(&[command, from].into_iter().chain(more).collect::<Vec<_>>());
        assert_eq!((ran.code, &ran.stdout[..]), (Some(2), &b""[..]), "{command} {from}: {}", ran.stderr);
        // That is all: not each object that is in it.
        let said = format!(
            "error: {from} is a directory: standard output takes one file, not a tree\n\
             hint: name a file; `thalweg ls` lists what is there\n"
        );
        assert_eq!(ran.stderr, said, "{command} {from}");
    }
}

/// A list of digests that was cut off by a full disk must not pass for one of everything.
#[test]
fn output_that_cannot_be_written_fails_the_command() {
    let bed = Bed::new();
    bed.write("t/f", b"f");
    for args in [&["ls", "t"][..], &["sum", "t"], &["cp", "--json", "t", "copy"], &["endpoint", "ls", "--json"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = bed.command("client", args);
        let ran = bed.wait(command.stdout(full).stderr(Stdio::piped()).spawn().unwrap());
        // Nothing is listed, so nothing is lost.
        let code = if args[0] == "endpoint" { 0 } else { 1 };
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.contains("error: write standard output: No space left on device"), code == 1, "{args:?}");
    }
}

#[test]
fn a_link_is_not_written_to_standard_output_and_the_reason_is_said() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("root/f", b"f");
    std::os::unix::fs::symlink("f", bed.path("root/link")).unwrap();
    for from in ["lab:link", "root/link"] {
        let ran = bed.run(&["cat", from]);
        assert_eq!((ran.code, &ran.stdout[..]), (Some(23), &b""[..]), "{}", ran.stderr);
        assert!(ran.stderr.contains("links are not followed: name what it points to"), "{}", ran.stderr);
    }
}

#[test]
fn standard_input_needs_a_name_at_the_destination() {
    let bed = Bed::new();
    fs::create_dir(bed.path("there")).unwrap();
    for to in ["there", "new/"] {
        let ran = feed(&bed, &["cp", "-", to], b"x");
        assert_eq!(
            (ran.code, &ran.error()[..]),
            (
                Some(2),
                "error: standard input has no name of its own\n\
                 hint: name the file at the destination, such as lab:results.tar"
            )
        );
    }
}

#[test]
fn a_pipeline_that_is_interrupted_publishes_nothing() {
    let (bed, _server) = Bed::with_endpoint();
    let mut command = bed.command("client", &["cp", "-", "lab:half"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&noise(12 << 20, 1)).unwrap();
    // The signal comes, and with it the end of the program that fills the pipe.
    signal(&child, rustix::process::Signal::INT);
    drop(stdin);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert!(
        said.contains("error: stopped\nhint: a copy through a pipe cannot be resumed: nothing was published"),
        "{said}"
    );
    assert!(!bed.path("root/half").exists());
}

/// Nothing could go on with it: what came by a pipe does not come again.
#[test]
fn a_pipeline_that_is_broken_off_leaves_nothing_in_staging() {
    let (bed, mut server) = Bed::with_endpoint();
    let begun = |to: &str, root: &str| -> (Child, ChildStdin) {
        let mut command = bed.command("client", &["cp", "-", to]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&noise(12 << 20, 1)).unwrap();
        until("the first chunk", || !staged(&bed.path(root)).is_empty());
        (child, stdin)
    };
    let is_empty = |root: &str| staged(&bed.path(root)).is_empty();
    fs::create_dir(bed.path("here")).unwrap();
    for (to, root) in [("lab:half", "root"), ("here/half", "here")] {
        let (child, stdin) = begun(to, root);
        signal(&child, rustix::process::Signal::INT);
        drop(stdin);
        assert_eq!(bed.wait(child).code, Some(130));
        until("what was staged to go", || is_empty(root));
    }
    let (mut child, stdin) = begun("lab:half", "root");
    child.kill().unwrap();
    drop(stdin);
    child.wait().unwrap();
    until("what a killed client sent to go", || is_empty("root"));
    let (child, stdin) = begun("lab:half", "root");
    server.kill();
    drop(stdin);
    assert_ne!(bed.wait(child).code, Some(0));
    assert!(!is_empty("root"), "nobody was left to remove it");
    server = bed.serve(&[]);
    bed.enrol();
    feed(&bed, &["cp", "-", "lab:next"], b"next").succeeded();
    until("what a killed endpoint left to go", || is_empty("root"));
    drop(server);
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_copy_as_it_ends_cat() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("root/large", &noise(64 << 20, 1));
    bed.write("here", &noise(64 << 20, 1));
    for from in ["lab:large", "here"] {
        let mut command = bed.command("client", &["cp", from, "-"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut [0; 1000]).unwrap();
        drop(output);
        let ran = bed.wait(child);
        assert_eq!((ran.code, &ran.stderr[..]), (Some(141), ""), "{from}");
    }
}
