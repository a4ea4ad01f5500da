//! The fifteen most common mistakes, made as a new user would make them. What is printed is kept, word for word, in
//! `tests/mistakes`: a change there is read aloud before it is committed. `MISTAKES_REWRITE=1` writes the files anew.
//!
//! What differs from run to run stands in brackets. Storage that folds case is the laboratory's. For a quota, and for a file
//! system with shorter names, the kernel's answer is put into the program's system calls by strace.

use crate::bed::{Bed, Ran, as_nobody, behind, is_root, journal_bytes, noise, signal, slow_storage, until};
use crate::resumption::make_large;
use crate::ssh::Hosts;
use crate::sshd::Sshd;
use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// What a user types and reads.
#[derive(Default)]
struct Transcript {
    text: String,
}

impl Transcript {
    fn say(&mut self, words: &str) {
        self.text.push_str(&format!("# {words}\n"));
    }

    /// Runs the client as it is.
    fn run(&mut self, bed: &Bed, args: &[&str]) -> Ran {
        self.add(bed, args, bed.run(args))
    }

    fn add(&mut self, bed: &Bed, args: &[&str], ran: Ran) -> Ran {
        let quoted = args.iter().map(|word| match word.contains(|c: char| " '*\"".contains(c)) {
            true => format!("'{word}'"),
            false => (*word).to_owned(),
        });
        let command = bed.anonymous(&quoted.collect::<Vec<_>>().join(" "));
        let shown = [&ran.stderr[..], &bed.anonymous(&String::from_utf8_lossy(&ran.stdout))].concat();
        let code = ran.code.map_or("a signal".to_owned(), |code| code.to_string());
        self.text.push_str(&format!("$ thalweg {command}\n{}[exit {code}]\n\n", steady(&shown)));
        ran
    }

    /// Compares with what is kept.
    #[track_caller]
    fn kept_as(self, name: &str) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes").join(format!("{name}.txt"));
        let text = self.text.trim_end().to_owned() + "\n";
        if std::env::var_os("MISTAKES_REWRITE").is_some() {
            return fs::write(file, text).unwrap();
        }
        let kept = fs::read_to_string(&file).unwrap_or_default();
        assert!(kept == text, "what is printed now:\n{text}\nwhat is kept in {}:\n{kept}", file.display());
    }
}

/// A text without what differs from run to run.
fn steady(text: &str) -> String {
    let mut steady = String::new();
    let mut is_pace = false;
    for line in text.lines() {
        let is_ours = |word: &&str| line.starts_with(*word);
        if line.starts_with("in ") && line.contains("; verified by ") {
            is_pace = true;
            steady.push_str("[how fast, how verified, what limited it]\n");
            continue;
        }
        if let Some((_, what)) = line.split_once("; no file ").filter(|_| line.starts_with("in ")) {
            is_pace = true;
            steady.push_str(&format!("[how long]; no file {what}\n[what limited it]\n"));
            continue;
        }
        is_pace &= !["error: ", "hint: ", "note: ", "failed: ", "skipped: "].iter().any(is_ours);
        if is_pace {
            continue;
        }
        let line = match (line.find(" of it was there already)"), line.find('(')) {
            (Some(end), Some(start)) if start < end => format!("{}([SOME]{}", &line[..start], &line[end..]),
            _ => line.to_owned(),
        };
        steady.push_str(&line);
        steady.push('\n');
    }
    steady
}

/// What ssh says in its own words depends on its version.
fn without_ssh(mut ran: Ran) -> Ran {
    let is_ours =
        |line: &&str| ["error: ", "hint: ", "no endpoint ", "no port "].iter().any(|word| line.starts_with(word));
    let ours: Vec<&str> = ran.stderr.lines().filter(is_ours).collect();
    let all = ran.stderr.lines().count();
    let place = ours.iter().position(|line| line.starts_with("error: ")).unwrap_or(ours.len());
    let (before, after) = ours.split_at(place);
    let said: &[&str] = if all > ours.len() { &["[ssh's own words]"] } else { &[] };
    let lines = [before, said, after].concat();
    ran.stderr = lines.into_iter().map(|line| format!("{line}\n")).collect();
    ran
}

/// With a file system of its own, in a mount namespace of its own, at `small`.
fn with_small_storage(command: &Command) -> Command {
    let script = "mount -t tmpfs -o size=16m thalweg-e2e small && exec \"$0\" \"$@\"";
    behind(&["unshare", "--mount", "sh", "-c", script], command)
}

/// With system calls that fail. Nothing where they cannot be made to.
fn with_faults(command: &Command, faults: &str, log: &Path) -> Option<Command> {
    if !needs::working("strace", &["-f", "-o", "/dev/null", "true"]) {
        return None;
    }
    let (log, inject) = (log.display().to_string(), format!("inject={faults}"));
    Some(behind(&["strace", "-f", "-qq", "-o", &log, "-e", &inject], command))
}

#[test]
fn wrong_host_key() {
    let Some(sshd) = Sshd::start() else { return };
    sshd.bed.write("f", b"f");
    let mut told = Transcript::default();
    told.say("over ssh: the host's key is another one than last time");
    for host in ["changed", "unknown"] {
        let to = sshd.far(host, "f");
        let ran = without_ssh(sshd.run(&["cp", "f", &to]));
        told.add(&sshd.bed, &["cp", "f", &to], ran);
    }
    told.say("an endpoint: something else answers at its address");
    let (bed, server) = Bed::with_endpoint();
    bed.write("f", b"f");
    let address = server.address.clone();
    server.stop();
    let _other = bed.serve_as("other-server", &address, &[]);
    told.run(&bed, &["cp", "f", "lab:"]);
    told.kept_as("01-wrong-host-key");
    assert!(!bed.path("root/f").exists() && !sshd.bed.path("far/f").exists());
}

#[test]
fn no_program_there() {
    let Some(sshd) = Sshd::start() else { return };
    sshd.bed.write("f", b"f");
    fs::remove_file(sshd.bed.path("bin/thalweg")).unwrap();
    let mut told = Transcript::default();
    let to = sshd.far("far", "f");
    let ran = without_ssh(sshd.run(&["cp", "f", &to]));
    told.add(&sshd.bed, &["cp", "f", &to], ran);
    told.kept_as("02-no-program-there");
}

/// An endpoint of another time: has the key that the client expects and speaks only later versions of the protocol.
fn serve_another_version(bed: &Bed, address: &str) -> net::Stopper {
    let identity = net::Identity::load_or_create(&bed.path("server/state_home/thalweg/identity.key")).unwrap();
    let tls = net::ServerTls::new(&identity).unwrap();
    let listener = net::Listener::bind(address).unwrap();
    let stopper = listener.stopper();
    // A frame with an envelope with a `Close` of code 4 (docs/protocol.md sections 3 and 4).
    let text = b"no common protocol version: this side speaks 7 to 8, the other 1 to 1";
    let close = [&[0x08, 4, 0x12, text.len() as u8][..], text].concat();
    let envelope = [&[0x1a, close.len() as u8][..], &close].concat();
    let frame = [&[1, 0, 0, 0][..], &(envelope.len() as u32).to_le_bytes(), &envelope].concat();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        while let Ok(Some((tcp, _))) = listener.accept() {
            let Ok(connection) = net::accept_tls(tcp, &tls, Instant::now() + Duration::from_secs(10)) else { continue };
            let mut stream = connection.into_data();
            let _ = stream.send(&[&frame]);
            let _ = stream.close();
            held.push(stream);
        }
    });
    stopper
}

#[test]
fn version_mismatch() {
    let (bed, server) = Bed::with_endpoint();
    bed.write("f", b"f");
    let address = server.address.clone();
    server.stop();
    let mut told = Transcript::default();
    told.say("an endpoint of a later time");
    let later = serve_another_version(&bed, &address);
    told.run(&bed, &["cp", "f", "lab:"]);
    later.stop();
    told.say("something that is no endpoint");
    let is_over = Arc::new(AtomicBool::new(false));
    let listener = {
        let mut bound = None;
        until("the port to be free", || {
            bound = TcpListener::bind(&address).ok();
            bound.is_some()
        });
        bound.unwrap()
    };
    let ends = is_over.clone();
    let stranger = std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming().take_while(|_| !ends.load(SeqCst)) {
            let mut stream = stream.unwrap();
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n");
            held.push(stream);
        }
    });
    told.run(&bed, &["cp", "f", "lab:"]);
    is_over.store(true, SeqCst);
    drop(TcpStream::connect(&address).unwrap());
    stranger.join().unwrap();
    told.say("over ssh, a program there that is too old for that");
    let hosts = Hosts::new(&["far"]);
    hosts.bed.write("f", b"f");
    let program = hosts.bed.path("bin/thalweg");
    fs::remove_file(&program).unwrap();
    fs::write(&program, "#!/bin/sh\necho \"error: unexpected argument '--stdio' found\" >&2\nexit 2\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = without_ssh(hosts.run(&["cp", "f", "me@far:"]));
    told.add(&hosts.bed, &["cp", "f", "me@far:"], ran);
    told.kept_as("03-version-mismatch");
}

#[test]
fn typo_in_a_flag() {
    let bed = Bed::new();
    bed.write("f", b"f");
    let mut told = Transcript::default();
    for args in [
        &["cp", "--retires", "3", "f", "copy"][..],
        &["cp", "--delete", "f", "copy"],
        &["cp", "--nothing-like-it", "f", "copy"],
        &["cp", "--fsync", "nevr", "f", "copy"],
        &["cp", "f"],
        &["cpy", "f", "copy"],
        &["endpoint", "ad", "lab"],
    ] {
        told.run(&bed, args);
    }
    told.say("a name that begins with a dash, and a flag behind the names, are no mistakes");
    told.run(&bed, &["cp", "--", "f", "-x"]);
    told.run(&bed, &["cp", "f", "-q", "copy"]);
    told.kept_as("04-typo-in-a-flag");
    assert!(bed.path("-x").exists() && bed.path("copy").exists());
}

#[test]
fn missing_slash_or_colon() {
    let (bed, _server) = Bed::with_endpoint();
    for name in ["data/a", "data/sub/b"] {
        bed.write(name, b"x");
    }
    let mut told = Transcript::default();
    told.run(&bed, &["cp", "data", "lab:backup/data"]);
    told.run(&bed, &["cp", "lab:backup/data/data", "data"]);
    told.say("with the slash");
    told.run(&bed, &["cp", "data/", "lab:backup/other"]);
    told.say("without the colon");
    told.run(&bed, &["cp", "data/a", "lab"]);
    told.run(&bed, &["cp", "data/a", "me@host"]);
    told.run(&bed, &["cp", "lab/data", "here"]);
    told.kept_as("05-missing-slash");
    assert!(bed.path("root/backup/data/data/sub/b").exists());
}

#[test]
fn path_that_looks_like_a_host() {
    let hosts = Hosts::new(&[]);
    hosts.bed.write("2026-11-20T12:30.log", b"x");
    hosts.bed.write("f", b"f");
    let mut told = Transcript::default();
    for args in [
        &["cp", "2026-11-20T12:30.log", "copy"][..],
        &["cp", "f", "2026-11-20T12:31.log"],
        &["cp", "f", "C:\\data"],
        &["cp", "--no-ssh", "f", "notes:today"],
        &["cp", "f", "gs://bucket/key"],
    ] {
        let ran = without_ssh(hosts.run(args));
        told.add(&hosts.bed, args, ran);
    }
    told.say("as it is meant");
    let args = ["cp", "./2026-11-20T12:30.log", "./a:b"];
    let ran = hosts.run(&args);
    told.add(&hosts.bed, &args, ran);
    told.kept_as("06-path-that-looks-like-a-host");
    assert!(hosts.bed.path("a:b").exists());
}

#[test]
fn full_disk() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    bed.write("large", &noise(40 << 20, 1));
    fs::create_dir(bed.path("small")).unwrap();
    let mut told = Transcript::default();
    told.say("on this host");
    let args = ["cp", "large", "small/"];
    let ran = bed.finish(with_small_storage(&bed.command("client", &args)));
    told.add(&bed, &args, ran);
    told.say("at an endpoint");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--root", "small", "--ticket-file", "ticket"];
    let _server = bed.serve_with(with_small_storage(&bed.command("server", &serve)));
    bed.enrol();
    told.run(&bed, &["cp", "large", "lab:"]);
    told.kept_as("07-full-disk");
}

/// A client who may read everything and write only to its home.
fn run_as_nobody(told: &mut Transcript, bed: &Bed, args: &[&str]) {
    let mut command = bed.command("client", args);
    as_nobody(&mut command, &[bed.path("client")]);
    told.add(bed, args, bed.finish(command));
}

#[test]
fn no_permission() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    fs::set_permissions(bed.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    bed.write("f", b"f");
    bed.write("locked/inside", b"x");
    fs::set_permissions(bed.path("locked"), fs::Permissions::from_mode(0o700)).unwrap();
    let mut told = Transcript::default();
    told.say("the destination is another user's");
    run_as_nobody(&mut told, &bed, &["cp", "f", "root/sub/"]);
    run_as_nobody(&mut told, &bed, &["cp", "f", "root/"]);
    told.say("the source is");
    run_as_nobody(&mut told, &bed, &["cp", "locked/", "client/copy"]);
    told.say("at an endpoint whose user may not write");
    let mut command = bed.command("server", &["serve", "--listen", "127.0.0.1:0", "--root", "root"]);
    command.args(["--ticket-file", "server/ticket"]);
    as_nobody(&mut command, &[bed.path("server")]);
    let _server = bed.serve_with(command);
    let mut add = bed.command("client", &["endpoint", "add", "lab", "--ticket-file", "server/ticket"]);
    as_nobody(&mut add, &[]);
    bed.finish(add).succeeded();
    run_as_nobody(&mut told, &bed, &["cp", "f", "lab:"]);
    told.say("at an endpoint, outside what it serves");
    run_as_nobody(&mut told, &bed, &["cp", "f", "lab:/etc/f"]);
    run_as_nobody(&mut told, &bed, &["cp", "f", "lab:../f"]);
    told.kept_as("08-no-permission");
}

#[test]
fn unreadable_files() {
    let bed = Bed::new();
    for name in ["t/a", "t/b", "t/secret/c"] {
        bed.write(name, b"x");
    }
    fs::set_permissions(bed.path("t/b"), fs::Permissions::from_mode(0o000)).unwrap();
    let mut told = Transcript::default();
    let args = ["cp", "--report", "client/report", "t/", "client/copy"];
    if is_root() {
        fs::set_permissions(bed.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        run_as_nobody(&mut told, &bed, &args);
    } else {
        told.run(&bed, &args);
    }
    told.say("the report");
    told.text.push_str(&fs::read_to_string(bed.path("client/report")).unwrap());
    told.kept_as("09-unreadable-files");
    assert!(bed.path("client/copy/secret/c").exists());
}

#[test]
fn name_too_long() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("f", b"f");
    let long = "x".repeat(300);
    let deep = ["d/"; 3000].concat();
    let mut told = Transcript::default();
    for to in [long.clone(), format!("lab:{long}"), format!("{deep}f"), format!("lab:{deep}f")] {
        told.run(&bed, &["cp", "f", &to]);
    }
    told.say("a file system with shorter names (put into the system calls: none is at hand)");
    bed.write("t/a", b"x");
    let command = bed.command("client", &["cp", "t/", "copy"]);
    let faults = "linkat,renameat2:error=ENAMETOOLONG";
    let Some(command) = with_faults(&command, faults, &bed.path("trace")) else { return };
    told.add(&bed, &["cp", "t/", "copy"], bed.finish(command));
    told.text = told.text.replace(&long, "[300 times x]").replace(deep.trim_end_matches('/'), "[3000 times d]");
    told.kept_as("10-name-too-long");
}

#[test]
fn case_collision() {
    if !needs::fuse() {
        return;
    }
    let bed = Bed::new();
    let _storage = slow_storage(&bed, "usb", &["--fold-case"]);
    for name in ["t/README", "t/readme"] {
        bed.write(name, name.as_bytes());
    }
    let mut told = Transcript::default();
    told.say("storage that does not tell upper from lower case");
    let there = || bed.path("usb-backing/copy").read_dir().unwrap().flatten().filter(|found| !found.path().is_dir());
    let ran = told.run(&bed, &["cp", "t/", "usb/copy"]);
    assert_eq!(ran.code, Some(23));
    // Which of the two comes first is the directory's choice.
    let first = there().next().unwrap();
    let content = fs::read(first.path()).unwrap();
    assert_eq!(content, format!("t/{}", first.file_name().display()).as_bytes());
    told.say("again: what is there is not replaced by the other");
    let ran = told.run(&bed, &["cp", "t/", "usb/copy"]);
    assert_eq!((ran.code, there().count()), (Some(23), 1));
    assert_eq!(fs::read(first.path()).unwrap(), content);
    told.text = told.text.replace("failed: README", "failed: readme");
    told.kept_as("11-case-collision");
}

/// What the source calls otherwise is not removed as something that it does not have.
#[test]
fn a_directory_whose_case_changed_at_the_source_stays_where_case_does_not_count() {
    if !needs::fuse() {
        return;
    }
    let bed = Bed::new();
    let _storage = slow_storage(&bed, "usb", &["--fold-case"]);
    bed.write("t/photos/one", b"one");
    bed.run(&["cp", "t/", "usb/copy"]).succeeded();
    bed.write("usb-backing/copy/extraneous", b"x");
    fs::rename(bed.path("t/photos"), bed.path("t/Photos")).unwrap();
    for _ in 0..2 {
        let ran = bed.run(&["sync", "--delete", "t/", "usb/copy"]);
        assert_eq!(ran.code, Some(23), "{}", ran.stderr);
        assert!(ran.stderr.contains("does not distinguish upper from lower case"), "{}", ran.stderr);
        assert_eq!(fs::read(bed.path("usb-backing/copy/photos/one")).unwrap(), b"one");
    }
    fs::rename(bed.path("usb-backing/copy/photos"), bed.path("usb-backing/copy/Photos")).unwrap();
    bed.run(&["sync", "--delete", "t/", "usb/copy"]).succeeded();
    assert!(!bed.path("usb-backing/copy/extraneous").exists());
    assert_eq!(fs::read(bed.path("usb-backing/copy/Photos/one")).unwrap(), b"one");
}

#[test]
fn quota() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("root/large", &noise(20 << 20, 1));
    let mut told = Transcript::default();
    told.say("a quota (its answer is put into the system calls: no file system with quotas is at hand)");
    let args = ["cp", "lab:large", "here/"];
    // Without a ring, whose writes are no calls of their own.
    let mut command = bed.command("client", &args);
    command.env("THALWEG_ENGINE", "pread");
    let Some(command) = with_faults(&command, "pwrite64:error=EDQUOT:when=2+", &bed.path("trace")) else { return };
    told.add(&bed, &args, bed.finish(command));
    told.say("with room again");
    told.run(&bed, &args);
    told.kept_as("12-quota");
    assert!(fs::read(bed.path("here/large")).unwrap() == noise(20 << 20, 1));
}

#[test]
fn port_blocked() {
    if !needs::root() || !needs::network_namespaces() {
        return;
    }
    let (bed, server) = Bed::with_endpoint();
    bed.write("f", b"f");
    let mut told = Transcript::default();
    let port = server.address.rsplit_once(':').unwrap().1.to_owned();
    for (what, verdict) in [
        ("a firewall drops the port without a word", "DROP"),
        ("a firewall refuses it", "REJECT --reject-with icmp-port-unreachable"),
    ] {
        told.say(what);
        let script =
            format!("ip link set lo up && iptables -A INPUT -p tcp --dport {port} -j {verdict} && exec \"$0\" \"$@\"");
        let args = ["cp", "f", "lab:"];
        let command = bed.command("client", &args);
        let ran = bed.finish(behind(&["unshare", "--net", "sh", "-c", &script], &command));
        told.add(&bed, &args, ran);
    }
    told.say("nothing listens there");
    server.stop();
    told.run(&bed, &["cp", "f", "lab:"]);
    told.say("over ssh: no port can be reached");
    let hosts = Hosts::new(&["far"]);
    fs::write(hosts.home("far").join(crate::ssh::BLOCKED), b"").unwrap();
    hosts.bed.write("f", b"f");
    let ran = hosts.run(&["cp", "f", "me@far:"]);
    told.add(&hosts.bed, &["cp", "f", "me@far:"], ran);
    told.kept_as("13-port-blocked");
}

#[test]
fn clock_wrong() {
    let bed = Bed::new();
    let _server = bed.serve(&[]);
    let mut told = Transcript::default();
    let new = ["ticket", "new", "--expires", "1h", "--ticket-file", "guest"];
    bed.finish(bed.command("server", &new)).succeeded();
    bed.run(&["endpoint", "add", "lab", "--ticket-file", "guest"]).succeeded();
    bed.write("f", b"f");
    told.say("the endpoint's clock is a day ahead of the one by which the ticket was made for an hour");
    let tickets = bed.path("server/state_home/thalweg/tickets");
    let mut files = fs::read_dir(tickets).unwrap().map(|entry| entry.unwrap().path());
    let file: PathBuf = files.find(|path| path.extension().is_some_and(|kind| kind == "toml")).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    let is_time = |line: &&str| line.starts_with("expires_unix_seconds");
    let time = text.lines().find(is_time).unwrap();
    let seconds: u64 = time.rsplit(' ').next().unwrap().parse().unwrap();
    let earlier = text.replace(time, &format!("expires_unix_seconds = {}", seconds - 86_400));
    fs::write(&file, earlier).unwrap();
    let ran = told.run(&bed, &["cp", "f", "lab:"]);
    let id = file.file_stem().unwrap().to_string_lossy().into_owned();
    told.text = told.text.replace(&id, "[ID]");
    for time in ran.stderr.split_whitespace().filter(|word| word.len() >= 20 && word.starts_with("20")) {
        told.text = told.text.replace(time.trim_end_matches([',', ';']), "[TIME]");
    }
    told.say("files from the future are copied as they are, and found unchanged the next time");
    let file = fs::File::options().append(true).open(bed.path("f")).unwrap();
    file.set_modified(std::time::SystemTime::now() + Duration::from_secs(10 * 365 * 86_400)).unwrap();
    told.run(&bed, &["cp", "f", "copy"]);
    told.run(&bed, &["cp", "f", "copy"]);
    told.kept_as("14-clock-wrong");
}

#[test]
fn interrupted() {
    let (bed, _server) = Bed::with_endpoint();
    make_large(&bed, "large");
    let mut told = Transcript::default();
    let args = ["cp", "large", "lab:dir/"];
    let child = bed.start(&args);
    until("verified chunks", || journal_bytes(&bed.path("root")) >= 16 * 64);
    signal(&child, rustix::process::Signal::INT);
    let ran = bed.wait(child);
    told.add(&bed, &args, ran);
    // The hint repeats the command as it was given, with the program's own name.
    let program = crate::bed::program().display().to_string();
    told.text = told.text.replace(&bed.anonymous(&program), "thalweg");
    told.run(&bed, &args);
    told.kept_as("15-interrupted");
}
