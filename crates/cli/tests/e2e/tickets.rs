//! Limited tickets with the program itself, and what the kernel keeps an endpoint to.

use crate::bed::{Bed, Ran, noise, until};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A command on the endpoint's host.
fn at_endpoint(bed: &Bed, args: &[&str]) -> Ran {
    bed.finish(bed.command("server", args))
}

#[test]
fn a_guest_gets_a_path_and_a_direction_and_loses_them_by_a_word() {
    let bed = Bed::new();
    let early = at_endpoint(&bed, &["ticket", "new", "--ticket-file", "guest"]);
    assert_eq!(early.code, Some(1));
    assert!(early.error().contains("start `thalweg serve` with this --state-dir first"), "{}", early.stderr);
    let _server = bed.serve(&[]);
    bed.write("root/results/a", b"a");
    bed.write("root/resultsx/b", b"b");
    let made = at_endpoint(
        &bed,
        &[
            "ticket",
            "new",
            "--path",
            "results",
            "--read-only",
            "--expires",
            "7d",
            "--uses",
            "1",
            "--ticket-file",
            "guest",
        ],
    )
    .succeeded();
    assert!(made.stdout.is_empty() && made.stderr.starts_with("ticket "), "{}", made.stderr);
    assert!(made.stderr.contains(": read results, until 20"), "{}", made.stderr);
    assert_eq!(fs::metadata(bed.path("guest")).unwrap().permissions().mode() & 0o777, 0o600);
    let added = bed.run(&["endpoint", "add", "lab", "--ticket-file", "guest"]).succeeded();
    assert!(added.stderr.contains("read only"), "{}", added.stderr);
    bed.run(&["cp", "lab:results/", "got"]).succeeded();
    let refused = bed.run(&["cp", "lab:resultsx", "got"]);
    assert_eq!(
        (refused.code, &refused.error()[..]),
        (
            Some(6),
            "error: lab: resultsx: this client may reach results and what is below it, nothing else\n\
             hint: its ticket is limited to that path: name something below it, or ask for another ticket"
        )
    );
    assert_eq!(bed.run(&["cp", "got/a", "lab:results/new"]).code, Some(6));
    let second = bed.finish(bed.command("second", &["endpoint", "add", "lab", "--ticket-file", "guest"]));
    assert_eq!(second.code, Some(41), "{}", second.stderr);

    let listed = at_endpoint(&bed, &["ticket", "ls", "--json"]).succeeded().events();
    let id = listed[0]["id"].as_str().unwrap();
    assert_eq!(
        (&listed[0]["path"], &listed[0]["uses"], &listed[0]["write"]),
        (&"results".into(), &1.into(), &false.into())
    );
    let text = String::from_utf8(at_endpoint(&bed, &["ticket", "ls"]).succeeded().stdout).unwrap();
    assert!(text.starts_with(&format!("{id}\tread\tresults\tuntil 20")) && text.ends_with("1/1 uses\n"), "{text}");
    let clients = at_endpoint(&bed, &["ticket", "clients", "--json"]).succeeded().events();
    assert_eq!((clients.len(), &clients[0]["ticket"]), (1, &id.into()));
    let revoked = at_endpoint(&bed, &["ticket", "revoke", id]).succeeded();
    assert_eq!(revoked.stderr, format!("revoked {id}: 1 client removed\n"));
    let refused = bed.run(&["cp", "lab:results/", "again"]);
    assert_eq!(refused.code, Some(41), "{}", refused.stderr);
    assert!(refused.error().ends_with("hint: ask for a ticket of this endpoint and run `thalweg endpoint add`"));
    assert_eq!(at_endpoint(&bed, &["ticket", "revoke", id]).code, Some(2));
}

#[test]
fn a_link_says_what_it_shares_and_lets_its_reader_fetch_that() {
    let bed = Bed::new();
    let _server = bed.serve(&[]);
    bed.write("root/results/run 7/a", b"a");
    bed.write("root/results/other", b"b");
    let new = ["ticket", "new", "--path", "results/run 7", "--read-only", "--expires", "7d", "--link"];
    let shown = at_endpoint(&bed, &[&new[..], &["--ticket-file", "-"]].concat()).succeeded();
    let link = String::from_utf8(shown.stdout).unwrap();
    assert!(link.starts_with("thalweg://127.0.0.1:") && link.contains("/results/run%207#twt1:"), "{link}");
    at_endpoint(&bed, &[&new[..], &["--ticket-file", "link"]].concat()).succeeded();
    bed.run(&["endpoint", "add", "shared", "--ticket-file", "link"]).succeeded();
    bed.run(&["cp", "shared:results/run 7/", "got"]).succeeded();
    assert_eq!(fs::read(bed.path("got/a")).unwrap(), b"a");
    assert_eq!(bed.run(&["cat", "shared:results/other"]).code, Some(6));
}

#[test]
fn a_client_that_is_removed_by_its_identity_stays_out_until_there_is_a_later_ticket() {
    let (bed, _server) = Bed::with_endpoint();
    let clients = at_endpoint(&bed, &["ticket", "clients", "--json"]).succeeded().events();
    let identity = clients[0]["identity"].as_str().unwrap();
    let revoked = at_endpoint(&bed, &["ticket", "revoke", identity]).succeeded();
    assert!(revoked.stderr.starts_with("revoked [PIN]: 1 client removed\n"), "{}", revoked.stderr);
    assert!(revoked.stderr.contains("whoever has one of them can enrol another identity"), "{}", revoked.stderr);
    let add = |ticket: &str| bed.run(&["endpoint", "add", "lab", "--ticket-file", ticket, "--replace"]);
    let refused = add("ticket");
    assert_eq!(refused.code, Some(41), "{}", refused.stderr);
    assert!(refused.error().contains("only a ticket made after that"), "{}", refused.stderr);
    at_endpoint(&bed, &["ticket", "new", "--ticket-file", "later"]).succeeded();
    add("later").succeeded();
    bed.run(&["cp", "ticket", "lab:copied"]).succeeded();
}

#[test]
fn a_copy_under_way_ends_when_its_ticket_is_revoked() {
    let bed = Bed::new();
    let _server = bed.serve(&[]);
    at_endpoint(&bed, &["ticket", "new", "--path", "in", "--write-only", "--ticket-file", "guest"]).succeeded();
    bed.run(&["endpoint", "add", "lab", "--ticket-file", "guest"]).succeeded();
    let mut command = bed.command("client", &["cp", "-", "lab:in/piped"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&noise(9 << 20, 1)).unwrap();
    until("the open job", || bed.path("root/in").exists());
    let id = at_endpoint(&bed, &["ticket", "ls", "--json"]).succeeded().events()[0]["id"].as_str().unwrap().to_owned();
    at_endpoint(&bed, &["ticket", "revoke", &id]).succeeded();
    until("its end", || child.try_wait().unwrap().is_some());
    drop(input);
    let ran = bed.wait(child);
    assert_eq!(ran.code, Some(41), "{}", ran.stderr);
    assert!(!bed.path("root/in/piped").exists());
}

/// In the other direction, and where a client would go on for ever: the bytes stop within seconds.
#[test]
fn fetching_and_following_end_when_their_ticket_is_revoked() {
    let bed = Bed::new();
    let _server = bed.serve(&[]);
    bed.write("root/large", &noise(64 << 20, 1));
    bed.write("growing/log", b"begun\n");
    at_endpoint(&bed, &["ticket", "new", "--ticket-file", "guest"]).succeeded();
    bed.run(&["endpoint", "add", "lab", "--ticket-file", "guest"]).succeeded();
    let start = |args: &[&str]| {
        let mut command = bed.command("client", args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut clients =
        [start(&["cp", "--bwlimit", "1MiB", "lab:large", "fetched/"]), start(&["follow", "growing", "lab:followed"])];
    until("what is fetched", || bed.path("fetched").exists());
    until("what is followed", || bed.path("root/followed").exists());
    let id = at_endpoint(&bed, &["ticket", "ls", "--json"]).succeeded().events()[0]["id"].as_str().unwrap().to_owned();
    at_endpoint(&bed, &["ticket", "revoke", &id]).succeeded();
    let revoked = Instant::now();
    until("their end", || clients.iter_mut().all(|client| client.try_wait().unwrap().is_some()));
    assert!(revoked.elapsed() < Duration::from_secs(10), "{:?}", revoked.elapsed());
    for client in clients {
        let ran = bed.wait(client);
        assert_eq!(ran.code, Some(41), "{}", ran.stderr);
    }
    assert!(!bed.path("fetched/large").exists());
}

#[test]
fn tickets_that_make_no_sense_are_usage_errors() {
    let bed = Bed::new();
    let _server = bed.serve(&[]);
    for args in [
        &["--path", "../x"][..],
        &["--path", "/x"],
        &["--uses", "0"],
        &["--expires", "soon"],
        &["--read-only", "--write-only"],
    ] {
        let ran = at_endpoint(&bed, &[&["ticket", "new", "--ticket-file", "guest"], args].concat());
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(!bed.path("guest").exists());
    }
    let piped = at_endpoint(&bed, &["ticket", "new", "--ticket-file", "-"]).succeeded();
    assert!(piped.stdout.starts_with(b"twt1:"));
}

#[test]
fn an_endpoint_says_whether_the_kernel_confines_it_and_works_either_way() {
    let confined: &[&str] = if needs::landlock() { &["on", "partly"] } else { &["off"] };
    for (more, words) in [(&[][..], confined), (&["--no-landlock"], &["off"])] {
        let bed = Bed::new();
        let server = bed.serve(more);
        bed.enrol();
        bed.write("t/sub/small", b"small");
        bed.write("t/large", &noise(20 << 20, 1));
        std::os::unix::fs::symlink("sub/small", bed.path("t/link")).unwrap();
        for fsync in ["batch", "file", "never"] {
            let to = format!("lab:in-{fsync}");
            bed.run(&["cp", "--fsync", fsync, "--verify", "reread", "--engine", "uring", "t", &to]).succeeded();
            bed.run(&["cp", &format!("{to}/t"), &format!("back-{fsync}")]).succeeded();
        }
        let (code, log) = server.stop();
        assert_eq!(code, Some(0));
        let serving = log.lines().find(|line| line.contains("serving")).unwrap();
        let said = words.iter().any(|word| serving.contains(&format!("landlock=\"{word}\"")));
        assert!(said, "{words:?}: {serving}");
        assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
    }
}
