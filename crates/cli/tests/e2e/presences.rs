//! A running transfer as others see it: `top`, a snapshot on request, its priority; an endpoint as systemd sees it.

use crate::bed::{Bed, noise, signal, staged, until};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, ChildStdin, Stdio};

/// A copy that lasts until its input is closed.
fn lasting(bed: &Bed, more: &[&str]) -> (Child, ChildStdin) {
    let mut command = bed.command("client", &[&["cp", "-", "slow"], more].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"some").unwrap();
    (child, input)
}

fn top(bed: &Bed) -> Vec<Value> {
    bed.run(&["top", "--once", "--json"]).succeeded().events()
}

#[test]
fn a_running_transfer_is_listed_says_how_far_it_is_and_is_gone_at_its_end() {
    let bed = Bed::new();
    assert!(top(&bed).is_empty());
    let (mut child, input) = lasting(&bed, &[]);
    until("the transfer to be listed", || !top(&bed).is_empty());
    let listed = top(&bed).remove(0);
    assert_eq!(
        (&listed["pid"], &listed["command"], &listed["destination"]),
        (&child.id().into(), &"cp".into(), &"slow".into())
    );
    assert_eq!(listed["progress"]["files"]["listed"], 1);
    let text = String::from_utf8(bed.run(&["top"]).succeeded().stdout).unwrap();
    assert!(text.starts_with("1 transfer is running\n") && text.contains("cp - slow"), "{text}");
    signal(&child, Signal::USR1);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.by_ref().map(Result::unwrap).find(|line| line.starts_with("snapshot: ")).unwrap();
    assert!(first.starts_with("snapshot: cp - slow, attempt 1, "), "{first}");
    assert!(lines.next().unwrap().unwrap().starts_with("snapshot: 0 of 1"));
    drop(input);
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success(), "{rest:?}");
    assert!(top(&bed).is_empty());
    assert_eq!(std::fs::read(bed.path("slow")).unwrap(), b"some");
}

#[test]
fn what_a_killed_transfer_leaves_is_swept() {
    let bed = Bed::new();
    let (mut child, _input) = lasting(&bed, &[]);
    until("the transfer to be listed", || !top(&bed).is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    let files = || std::fs::read_dir(bed.path("client/runtime_dir/thalweg/transfers")).unwrap().count();
    assert_eq!(files(), 1);
    assert!(top(&bed).is_empty());
    assert_eq!(files(), 0);
}

#[test]
fn a_transfer_can_give_way_to_others() {
    let bed = Bed::new();
    let (mut child, input) = lasting(&bed, &["--nice=7"]);
    let priority = || {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        text.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().parse::<i32>().unwrap()
    };
    until("the lower priority", || priority() >= 7);
    drop(input);
    assert!(child.wait().unwrap().success());
    assert_eq!(bed.run(&["cp", "--nice=20", "a", "b"]).code, Some(2));
}

#[test]
fn systemd_hears_when_an_endpoint_is_ready_alive_and_stopping() {
    let bed = Bed::new();
    let socket = UnixDatagram::bind(bed.path("notify")).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let hear = || {
        let mut buffer = [0; 4096];
        let bytes = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..bytes].to_vec()).unwrap()
    };
    let mut command = bed.command("server", &["serve", "--listen", "127.0.0.1:0", "--root", "root"]);
    command.env("NOTIFY_SOCKET", bed.path("notify")).env("WATCHDOG_USEC", "200000").env_remove("WATCHDOG_PID");
    let server = bed.serve_with(command);
    assert!(hear().starts_with("READY=1\nSTATUS=ready on 127.0.0.1:"));
    assert_eq!(hear(), "WATCHDOG=1");
    let (code, _) = server.stop();
    assert_eq!(code, Some(0));
    let last = loop {
        match hear() {
            text if text == "WATCHDOG=1" => {}
            text => break text,
        }
    };
    assert!(last.starts_with("STOPPING=1\n") && last.contains("EXTEND_TIMEOUT_USEC="), "{last}");
}

/// Ends with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_endpoint_tells_what_it_does_and_goes_on() {
    let bed = Bed::new();
    let args = ["serve", "--listen", "127.0.0.1:0", "--root", "root", "--ticket-file", "ticket"];
    let mut command = bed.command("server", &args);
    let mut server = Killed(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut ready = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    bed.enrol();
    let mut command = bed.command("client", &["cp", "-", "lab:slow"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&noise(9 << 20, 1)).unwrap();
    until("content at the endpoint", || staged(&bed.path("root")).iter().any(|(_, bytes)| *bytes > 0));
    signal(&server.0, Signal::USR1);
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.find(|line| line.starts_with("snapshot: ")).unwrap();
    assert_eq!(first, "snapshot: 1 session, 1 job");
    let job = lines.find(|line| line.starts_with("snapshot: ")).unwrap();
    assert!(job.contains(" sends: 0 files, 0 B delivered in "), "{job}");
    // Its log is read on, so that it never waits for a reader.
    std::thread::spawn(move || lines.for_each(drop));
    drop(input);
    assert!(child.wait().unwrap().success());
    assert_eq!(std::fs::metadata(bed.path("root/slow")).unwrap().len(), 9 << 20);
}
