//! What cannot be done is refused with an exit code of its own and two lines: what failed, what to do.

use crate::bed::{Bed, Ran, as_nobody};
use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

#[track_caller]
fn refused(ran: &Ran, code: i32, error: &str) {
    assert_eq!((ran.code, &ran.error()[..]), (Some(code), error), "{}", ran.stderr);
}

#[test]
fn an_unknown_endpoint_is_a_usage_error() {
    let bed = Bed::new();
    bed.write("f", b"f");
    refused(
        &bed.run(&["cp", "--no-ssh", "f", "nosuch:"]),
        2,
        "error: no endpoint nosuch is known, and --no-ssh forbids trying it as a host\n\
         hint: add it with its ticket: `thalweg endpoint add NAME --ticket-file FILE`; a local file with a colon is ./FILE",
    );
    refused(
        &bed.run(&["cp", "f", "tw://127.0.0.1:9/x"]),
        41,
        "error: no endpoint with the address 127.0.0.1:[PORT] is known\n\
         hint: its identity must be known first: `thalweg endpoint add NAME --ticket-file FILE`",
    );
    refused(
        &bed.run(&["endpoint", "rm", "nosuch"]),
        2,
        "error: no endpoint nosuch is known\n\
         hint: no endpoint is known yet: `thalweg endpoint add NAME --ticket-file FILE`",
    );
}

#[test]
fn a_closed_port_is_unreachable() {
    let (bed, server) = Bed::with_endpoint();
    bed.write("f", b"f");
    server.stop();
    refused(
        &bed.run(&["cp", "f", "lab:"]),
        43,
        "error: lab: connect to 127.0.0.1:[PORT]: connection refused (nothing listens on that port, or a firewall refuses it)\n\
         hint: is `thalweg serve` running there, and is the port right?",
    );
}

#[test]
fn what_does_not_speak_the_protocol_is_told_apart() {
    let (bed, server) = Bed::with_endpoint();
    bed.write("f", b"f");
    let address = server.address.clone();
    server.stop();
    let listener = TcpListener::bind(&address).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = is_over.clone();
    let stranger = std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming().take_while(|_| !ends.load(SeqCst)) {
            let mut stream = stream.unwrap();
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n");
            held.push(stream);
        }
    });
    let ran = bed.run(&["cp", "f", "lab:"]);
    is_over.store(true, SeqCst);
    drop(TcpStream::connect(&address).unwrap());
    stranger.join().unwrap();
    refused(
        &ran,
        42,
        "error: lab: connect to 127.0.0.1:[PORT]: the peer does not speak TLS\n\
         hint: check the address and the port: the service there is not a Thalweg endpoint, or has a version that this \
         program cannot talk to",
    );
}

#[test]
fn a_ticket_that_is_damaged_missing_or_not_of_this_endpoint_is_refused() {
    let (bed, _server) = Bed::with_endpoint();
    let text = fs::read_to_string(bed.path("ticket")).unwrap();
    bed.write("damaged", &text.as_bytes()[..text.len() - 9]);
    refused(
        &bed.run(&["endpoint", "add", "x", "--ticket-file", "damaged"]),
        2,
        "error: read ticket damaged: the ticket is damaged or incomplete\n\
         hint: copy the whole line again, from `twt1:` to its end",
    );
    refused(
        &bed.run(&["endpoint", "add", "x", "--ticket-file", "nosuch"]),
        4,
        "error: read ticket nosuch: No such file or directory\nhint: check the path",
    );
    let mut ticket = daemon::Ticket::parse(&text).unwrap();
    ticket.credential[0] ^= 1;
    bed.write("wrong", ticket.to_text().as_bytes());
    // This client is known already: a stranger has to show the credential.
    let ran = bed.finish(bed.command("stranger", &["endpoint", "add", "x", "--ticket-file", "wrong"]));
    assert_eq!(ran.code, Some(41), "{}", ran.stderr);
    assert!(ran.error().starts_with("error: x: "), "{}", ran.stderr);
    assert!(!bed.path("stranger/config_home/thalweg/endpoints/x.toml").exists());
    ticket.credential[0] ^= 1;
    ticket.pin.0[0] ^= 1;
    bed.write("imposter", ticket.to_text().as_bytes());
    let ran = bed.run(&["endpoint", "add", "x", "--ticket-file", "imposter"]);
    assert_eq!(ran.code, Some(41));
    assert!(ran.error().contains("the peer's identity is [PIN], expected [PIN]"), "{}", ran.error());
}

#[test]
fn a_changed_identity_is_refused_and_not_offered_anything() {
    let (bed, server) = Bed::with_endpoint();
    bed.write("f", b"f");
    let address = server.address.clone();
    server.stop();
    let _other = bed.serve_as("other-server", &address, &[]);
    refused(
        &bed.run(&["cp", "f", "lab:"]),
        41,
        "error: lab: connect to 127.0.0.1:[PORT]: the peer's identity is [PIN], expected [PIN]\n\
         hint: something else answers at this address, or the endpoint has a new identity; if you expected that, ask for a \
         new ticket and run `thalweg endpoint add --replace`",
    );
    assert!(!bed.path("root/f").exists());
}

#[test]
fn a_client_that_is_not_enrolled_is_refused() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("f", b"f");
    fs::remove_dir_all(bed.path("client/state_home")).unwrap();
    let ran = bed.run(&["cp", "f", "lab:"]);
    assert_eq!(ran.code, Some(41), "{}", ran.stderr);
    assert!(
        ran.error().ends_with("hint: ask for a ticket of this endpoint and run `thalweg endpoint add`"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_missing_source_is_3_for_a_directory_and_4_for_a_file() {
    let (bed, _server) = Bed::with_endpoint();
    let check = "No such file or directory\nhint: check the path";
    for to in ["lab:", "here"] {
        refused(&bed.run(&["cp", "nosuch", to]), 4, &format!("error: open source nosuch: {check}"));
        refused(&bed.run(&["cp", "nosuch/", to]), 3, &format!("error: open source nosuch/: {check}"));
    }
    let hint = "hint: paths are relative to the endpoint's root";
    let ran = bed.run(&["cp", "lab:nosuch", "new/here/"]);
    refused(&ran, 4, &format!("error: lab: nosuch: no such file or directory\n{hint}"));
    let ran = bed.run(&["cp", "lab:nosuch/", "new/here/"]);
    refused(&ran, 3, &format!("error: lab: nosuch/: no such file or directory\n{hint}"));
    assert!(!bed.path("new").exists(), "nothing is left of a copy that did not happen");
}

#[test]
fn paths_that_leave_the_root_are_refused() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("f", b"f");
    bed.write("secret/f", b"secret");
    symlink(bed.path("secret"), bed.path("root/absolute")).unwrap();
    symlink("../secret", bed.path("root/climbs")).unwrap();
    let hint = "hint: the reason is above: name another path or option, or ask the endpoint's operator";
    let outside = "hint: omit the leading slash or the `..`: paths begin at the endpoint's root";
    for (path, why) in [
        ("../secret", "paths are relative to the endpoint's root and cannot leave it"),
        ("a/../../secret", "paths are relative to the endpoint's root and cannot leave it"),
        ("/etc/passwd", "paths are relative to the endpoint's root and cannot leave it"),
        ("absolute/f", "the path leads outside the endpoint's root"),
        ("climbs/f", "the path leads outside the endpoint's root"),
    ] {
        let hint = if why.starts_with("paths are") { outside } else { hint };
        let error = format!("error: lab: {path}: {why}\n{hint}");
        refused(&bed.run(&["cp", &format!("lab:{path}"), "here/"]), 6, &error);
        let path = format!("{path}/");
        let error = format!("error: lab: {path}: {why}\n{hint}");
        refused(&bed.run(&["cp", "f", &format!("lab:{path}")]), 6, &error);
    }
    assert_eq!(fs::read(bed.path("secret/f")).unwrap(), b"secret");
    assert_eq!(fs::read_dir(bed.path("secret")).unwrap().count(), 1);
    // A link is copied as a link, wherever it points.
    bed.run(&["cp", "lab:absolute", "link"]).succeeded();
    assert!(bed.path("link").is_symlink());
}

#[test]
fn a_read_only_endpoint_takes_nothing_and_gives() {
    let bed = Bed::new();
    bed.write("f", b"f");
    bed.write("root/g", b"g");
    let _server = bed.serve(&["--read-only"]);
    bed.enrol();
    refused(
        &bed.run(&["cp", "f", "lab:in"]),
        6,
        "error: lab: in: this endpoint is read-only\n\
         hint: the reason is above: name another path or option, or ask the endpoint's operator",
    );
    bed.run(&["cp", "lab:g", "g"]).succeeded();
}

#[test]
fn a_destination_that_may_not_be_written_is_refused() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    bed.write("f", b"f");
    fs::set_permissions(bed.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = bed.command("server", &["serve", "--listen", "127.0.0.1:0", "--root", "root"]);
    command.args(["--ticket-file", "server/ticket"]);
    as_nobody(&mut command, &[bed.path("server")]);
    let _server = bed.serve_with(command);
    bed.run(&["endpoint", "add", "lab", "--ticket-file", "server/ticket"]).succeeded();
    refused(
        &bed.run(&["cp", "f", "lab:"]),
        6,
        "error: lab: its root: the endpoint's user has no permission\n\
         hint: the reason is above: name another path or option, or ask the endpoint's operator",
    );
    let mut command = bed.command("client", &["cp", "f", "root/sub/"]);
    as_nobody(&mut command, &[bed.path("client")]);
    refused(
        &bed.finish(command),
        1,
        "error: make directory root/sub/: Permission denied\n\
         hint: give this user permission, or run as a user who has it",
    );
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    let bed = Bed::new();
    bed.write("t/sub/f", b"f");
    refused(
        &bed.run(&["cp", "t", "t/sub"]),
        2,
        "error: t/sub is inside t, which is to be copied\nhint: choose a destination outside the source",
    );
    refused(
        &bed.run(&["cp", "t/sub/f", "t/sub"]),
        2,
        "error: t/sub/f and t/sub are the same\nhint: choose another destination",
    );
    assert_eq!(fs::read_dir(bed.path("t/sub")).unwrap().count(), 1);
}

#[test]
fn wrong_values_are_usage_errors() {
    let bed = Bed::new();
    refused(
        &bed.run(&["cp", "a", "b2://bucket/key"]),
        2,
        "error: this build has no store for b2://\n\
         hint: a location is PATH, NAME:PATH, USER@HOST:PATH, tw://ADDR:PORT/PATH, `-`, gen:COUNTxSIZE or null:",
    );
    for args in [
        &["cp", "a"][..],
        &["cp", "a", "b", "--chmod", "999"],
        &["cp", "a", "b", "--chunk-size", "3MiB"],
        &["cp", "a", "b", "--fsync", "maybe"],
        &["cp", "--json", "a", "-"],
        &["serve"],
        &["nosuch"],
        &["gen", "lots", "d"],
    ] {
        let ran = bed.run(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("error: "), "{args:?}: {}", ran.stderr);
        assert!(ran.stdout.is_empty());
    }
}
