//! The life of an endpoint, and of what a client knows of it.

use crate::bed::{Bed, behind, signal, until};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn an_endpoint_says_when_it_is_ready_and_ends_in_order() {
    let bed = Bed::new();
    let server = bed.serve(&["--name", "depot"]);
    let mode = fs::metadata(bed.path("ticket")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert!(server.ready.starts_with("ready on 127.0.0.1:"), "{}", server.ready);
    assert!(server.ready.contains(", identity ") && server.ready.ends_with(", ticket in ticket\n"), "{}", server.ready);
    let ran = bed.run(&["endpoint", "add", "lab", "--ticket-file", "ticket"]).succeeded();
    assert!(ran.stderr.starts_with("added endpoint lab (depot) at 127.0.0.1:[PORT]\n"), "{}", ran.stderr);
    assert!(ran.stdout.is_empty());
    let (code, log) = server.stop();
    assert_eq!(code, Some(0));
    let ticket = fs::read_to_string(bed.path("ticket")).unwrap();
    assert!(!log.contains(ticket.trim()), "the ticket is no business of the log's");
}

#[test]
fn endpoints_are_listed_and_forgotten() {
    let (bed, server) = Bed::with_endpoint();
    let listed = String::from_utf8(bed.run(&["endpoint", "ls"]).succeeded().stdout).unwrap();
    assert!(listed.starts_with(&format!("lab\t{}\t", server.address)), "{listed}");
    let json = bed.run(&["endpoint", "ls", "--json"]).succeeded().events();
    assert_eq!((&json[0]["name"], &json[0]["addresses"][0]), (&"lab".into(), &server.address[..].into()));
    bed.run(&["endpoint", "rm", "lab"]).succeeded();
    assert!(bed.run(&["endpoint", "ls"]).succeeded().stdout.is_empty());
}

#[test]
fn a_ticket_comes_from_standard_input_too() {
    let bed = Bed::new();
    let _server = bed.serve(&[]);
    let mut command = bed.command("client", &["endpoint", "add", "lab", "--ticket-file", "-"]);
    command.stdin(fs::File::open(bed.path("ticket")).unwrap());
    bed.finish(command).succeeded();
    bed.write("f", b"f");
    bed.run(&["cp", "f", "lab:"]).succeeded();
}

#[test]
fn one_ticket_serves_many_clients_and_survives_a_restart() {
    let bed = Bed::new();
    let server = bed.serve(&[]);
    let address = server.address.clone();
    bed.write("f", b"f");
    for home in ["one", "two"] {
        bed.finish(bed.command(home, &["endpoint", "add", "lab", "--ticket-file", "ticket"])).succeeded();
    }
    server.stop();
    let _server = bed.serve_as("server", &address, &[]);
    for home in ["one", "two"] {
        bed.finish(bed.command(home, &["cp", "f", &format!("lab:{home}")])).succeeded();
        assert!(bed.path("root").join(home).exists());
    }
}

#[test]
fn an_address_can_be_named_instead_of_the_endpoint() {
    let (bed, server) = Bed::with_endpoint();
    bed.write("f", b"f");
    bed.run(&["cp", "f", &format!("tw://{}/x/y", server.address)]).succeeded();
    assert!(bed.path("root/x/y").exists());
}

#[test]
fn both_ends_may_speak_ipv6() {
    if !needs::met(std::net::TcpListener::bind("[::1]:0").is_ok(), "this host has no IPv6") {
        return;
    }
    let bed = Bed::new();
    let _server = bed.serve_as("server", "[::1]:0", &[]);
    bed.enrol();
    bed.write("f", b"f");
    bed.run(&["cp", "f", "lab:"]).succeeded();
    assert!(bed.path("root/f").exists());
}

#[test]
fn ctrl_c_ends_an_idle_endpoint_in_order() {
    let bed = Bed::new();
    let mut command = bed.command("server", &["serve", "--listen", "127.0.0.1:0", "--root", "root"]);
    let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut ready = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut ready).unwrap();
    signal(&child, rustix::process::Signal::INT);
    until("its end", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn root_reads_and_writes_what_others_own_with_super_only() {
    if !needs::root() {
        return;
    }
    let cases = [(&[][..], "privileges=\"none\"", false), (&["--super"], "cap_dac_override cap_fowner", true)];
    for (more, words, may) in cases {
        let bed = Bed::new();
        fs::create_dir_all(bed.path("root/theirs")).unwrap();
        let theirs = bed.write("root/theirs/file", b"theirs");
        bed.write("new", b"ours");
        for path in [&theirs, &bed.path("root/theirs")] {
            std::os::unix::fs::chown(path, Some(1234), Some(1234)).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let server = bed.serve(more);
        bed.enrol();
        let read = bed.run(&["cp", "lab:theirs/file", "copy"]);
        let written = bed.run(&["cp", "new", "lab:theirs/"]);
        assert_eq!((read.code == Some(0), written.code == Some(0)), (may, may), "{}{}", read.stderr, written.stderr);
        assert_eq!(bed.path("root/theirs/new").exists(), may);
        let (_, log) = server.stop();
        assert!(log.lines().any(|line| line.contains("serving") && line.contains(words)), "{log}");
    }
}

/// A terminal that is closed must not cost the clients the word that the endpoint stops, nor the endpoint its records.
#[test]
fn a_hangup_stops_an_endpoint_in_order_unless_it_was_told_to_ignore_it() {
    let hangup = rustix::process::Signal::HUP;
    let bed = Bed::new();
    bed.write("f", b"f");
    // This test may run under nohup itself.
    let heard = ["env", "--default-signal=HUP"];
    let served = ["serve", "--listen", "127.0.0.1:0", "--root", "root", "--ticket-file", "ticket"];
    let server = bed.serve_with(behind(&heard, &bed.command("server", &served)));
    bed.enrol();
    let (code, log) = server.stop_by(hangup);
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("endpoint stopped"), "{log}");
    let nohup = ["sh", "-c", "trap '' HUP; exec \"$0\" \"$@\""];
    let server = bed.serve_with(behind(&nohup, &bed.command("server", &served)));
    rustix::process::kill_process(rustix::process::Pid::from_raw(server.pid() as i32).unwrap(), hangup).unwrap();
    bed.run(&["endpoint", "rm", "lab"]).succeeded();
    bed.enrol();
    bed.run(&["cp", "f", "lab:"]).succeeded();
    assert_eq!(server.stop().0, Some(0));
}
