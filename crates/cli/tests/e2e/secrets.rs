//! Secrets are where they belong and nowhere else (F039): not in arguments, environments, output, logs, ledgers, staging or
//! other files, also where things fail and everything is logged. `stores` has those of other people's servers.

mod stores;

use crate::bed::{Bed, Ends, Ran, behind, noise, program, signal, until};
use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER, HEXUPPER};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The parts of base64 that hold nothing but the secret, wherever it begins among the groups of three bytes.
fn in_base64(secret: &[u8], encode: impl Fn(&[u8]) -> String) -> Vec<Vec<u8>> {
    let part = |before: usize| {
        let text = encode(&[&vec![0; before][..], secret].concat());
        text.as_bytes()[4 * before.min(1)..text.len() / 4 * 4 - 4].to_vec()
    };
    (0..3).map(part).collect()
}

/// The ways in which a secret could have been written.
fn forms(secret: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = vec![secret.to_vec(), HEXLOWER.encode(secret).into_bytes(), HEXUPPER.encode(secret).into_bytes()];
    forms.extend(in_base64(secret, |bytes| BASE64.encode(bytes)));
    forms.extend(in_base64(secret, |bytes| BASE64URL_NOPAD.encode(bytes)));
    // As Rust shows bytes.
    forms.push(format!("{secret:?}").trim_matches(['[', ']']).as_bytes().to_vec());
    forms
}

struct Scanner {
    secrets: Vec<(String, Vec<Vec<u8>>)>,
}

impl Scanner {
    fn of<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Scanner {
        Scanner { secrets: secrets.into_iter().map(|(name, secret)| (name.to_owned(), forms(secret))).collect() }
    }

    fn found(&self, content: &[u8]) -> Option<&str> {
        let holds = |form: &Vec<u8>| memchr::memmem::find(content, form).is_some();
        self.secrets.iter().find(|(_, forms)| forms.iter().any(holds)).map(|(name, _)| &name[..])
    }

    #[track_caller]
    fn clean(&self, what: &str, content: &[u8]) {
        assert_eq!(self.found(content), None, "{what} holds a secret: {}", String::from_utf8_lossy(content));
    }

    #[track_caller]
    fn clean_run(&self, what: &str, ran: &Ran) {
        self.clean(&format!("the error output of {what}"), ran.stderr.as_bytes());
        self.clean(&format!("the output of {what}"), &ran.stdout);
    }

    /// Arguments and environment as every process of this user can see them.
    #[track_caller]
    fn clean_process(&self, pid: u32) {
        for file in ["cmdline", "environ"] {
            match fs::read(format!("/proc/{pid}/{file}")) {
                Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied && file == "environ" => {}
                content => self.clean(file, &content.unwrap()),
            }
        }
    }

    /// Every file below a directory, but for those of some names.
    #[track_caller]
    fn clean_files(&self, below: &Path, allowed: &[&str]) {
        for path in files(below) {
            if !allowed.contains(&path.file_name().unwrap().to_str().unwrap()) {
                self.clean(&path.display().to_string(), &fs::read(&path).unwrap());
            }
        }
    }
}

/// The arguments of every process on this host.
fn arguments() -> Vec<u8> {
    let of = |entry: std::io::Result<fs::DirEntry>| fs::read(entry.ok()?.path().join("cmdline")).ok();
    fs::read_dir("/proc").unwrap().filter_map(of).flatten().collect()
}

/// Every file below a directory.
fn files(below: &Path) -> Vec<PathBuf> {
    let mut pending = vec![below.to_owned()];
    let mut files = Vec::new();
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() && !path.is_symlink() {
                true => pending.push(path),
                false => files.push(path),
            }
        }
    }
    files
}

/// A copy from standard input that runs as long as its input is open.
fn endless(bed: &Bed, args: &[&str]) -> Child {
    let mut command = bed.command("client", args);
    command.env("THALWEG_LOG", "trace").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn secrets_are_in_no_argument_output_log_or_foreign_file() {
    let bed = Bed::new();
    let mut command =
        bed.command("server", &["serve", "--listen", "127.0.0.1:0", "--root", "root", "--ticket-file", "ticket"]);
    command.env("THALWEG_LOG", "trace");
    let server = bed.serve_with(command);
    let run = |args: &[&str]| {
        let mut command = bed.command("client", args);
        command.env("THALWEG_LOG", "trace");
        bed.finish(command)
    };
    let added = run(&["endpoint", "add", "lab", "--ticket-file", "ticket"]).succeeded();
    let made = bed.finish(bed.command("server", &["ticket", "new", "--path", "box", "--ticket-file", "guest"]));
    let made = made.succeeded();
    let of_state = |home: &str, file: &str| fs::read(bed.path(home).join("state_home/thalweg").join(file)).unwrap();
    let ticket_credential = |name: &str| {
        let text = fs::read_to_string(bed.path(name)).unwrap();
        daemon::Ticket::parse(&text).unwrap().credential.to_vec()
    };
    let credential = of_state("server", "credential");
    assert_eq!(credential, ticket_credential("ticket"));
    let mut secrets = vec![("credential".to_owned(), credential), ("guest".into(), ticket_credential("guest"))];
    for home in ["server", "client"] {
        // The seed of the key lies behind a header of 16 bytes.
        secrets.push((format!("{home}'s key"), of_state(home, "identity.key")[16..48].to_vec()));
    }
    let scanner = Scanner::of(secrets.iter().map(|(name, secret)| (&name[..], &secret[..])));
    for (file, name) in [("ticket", "credential"), ("guest", "guest")] {
        assert_eq!(scanner.found(&fs::read(bed.path(file)).unwrap()), Some(name), "the scanner finds what is there");
    }
    assert_eq!(scanner.found(&of_state("client", "identity.key")), Some("client's key"));

    bed.write("t/small", b"small");
    bed.write("t/large", &noise(9 << 20, 1));
    let damaged = fs::read_to_string(bed.path("ticket")).unwrap().replace("twt1:A", "twt1:B");
    bed.write("damaged", damaged.as_bytes());
    let mut child = endless(&bed, &["cp", "-vv", "-", "lab:piped"]);
    let mut input = child.stdin.take().unwrap();
    input.write_all(&noise(9 << 20, 2)).unwrap();
    until("what it stages", || fs::read_dir(bed.path("root")).unwrap().count() > 0);
    scanner.clean_process(server.pid());
    scanner.clean_process(child.id());
    drop(input);
    scanner.clean_run("cp -vv", &bed.wait(child).succeeded());

    scanner.clean_run("endpoint add", &added);
    scanner.clean_run("ticket new", &made);
    for (args, is_done) in [
        (&["cp", "--json", "-vv", "t", "lab:in"][..], true),
        (&["cp", "--json", "--explain", "-vv", "lab:in", "back"], true),
        (&["endpoint", "ls", "--json"], true),
        (&["cp", "--json", "-vv", "t", "lab:../out"], false),
        (&["cp", "-vv", "lab:nosuch", "x"], false),
        (&["cp", "-vv", "t", "tw://127.0.0.1:1/x"], false),
        (&["endpoint", "add", "other", "--ticket-file", "damaged"], false),
        (&["endpoint", "add", "n/o", "--ticket-file", "ticket"], false),
    ] {
        let ran = run(args);
        assert_eq!(ran.code == Some(0), is_done, "{args:?}: {}", ran.stderr);
        scanner.clean_run(&format!("{args:?}"), &ran);
    }
    for args in [&["ticket", "ls", "--json"][..], &["ticket", "clients", "--json"], &["ticket", "revoke", "serve"]] {
        scanner.clean_run(&format!("{args:?}"), &bed.finish(bed.command("server", args)).succeeded());
    }
    let refused = run(&["endpoint", "add", "again", "--ticket-file", "ticket"]);
    assert_eq!(refused.code, Some(41), "{}", refused.stderr);
    scanner.clean_run("a ticket that was revoked", &refused);
    let (code, log) = server.stop();
    assert_eq!(code, Some(0));
    assert!(log.contains("TRACE") || log.contains("DEBUG") || log.contains("INFO"), "{log}");
    scanner.clean("the endpoint's log", log.as_bytes());

    scanner.clean_files(bed.dir.path(), &["ticket", "guest", "identity.key", "credential", "damaged"]);
}

#[test]
fn a_ticket_in_the_place_of_a_location_is_refused_and_not_shown() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("f", b"f");
    let text = fs::read_to_string(bed.path("ticket")).unwrap();
    let ticket = text.trim();
    let link = format!("thalweg://lab.example.org:7740/results#{ticket}");
    for args in [
        &["cp", "f", ticket][..],
        &["cp", ticket, "x"],
        &["cp", &link, "x"],
        &["sync", "./", &ticket[..60]],
        &["ls", ticket],
    ] {
        let ran = bed.run(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        let error = ran.error();
        assert!(error.starts_with("error: this is a ticket, which is never put on a command line"), "{error}");
        assert!(error.contains("`thalweg endpoint add NAME --ticket-file FILE`"), "{error}");
        assert!(!ran.stderr.contains(&ticket[5..40]) && ran.stdout.is_empty(), "{}", ran.stderr);
    }
}

#[test]
fn a_secret_among_the_arguments_of_a_process_is_found() {
    // No other run of this test has it.
    let planted = format!("planted-6d1f0b7c-{}", std::process::id());
    let scanner = Scanner::of([("planted", planted.as_bytes())]);
    assert_eq!(scanner.found(&arguments()), None);
    let waiting = Command::new("sh").args(["-c", "read line", &planted]).stdin(Stdio::piped()).spawn().unwrap();
    let _ends = Ends(waiting);
    until("its arguments", || scanner.found(&arguments()) == Some("planted"));
}

/// An ordinary user's: root looks into every process.
const ORDINARY: u32 = 65534;

/// A command of the copy in the bed (others may not reach where it was built) as an ordinary user, who is allowed core dumps of any size.
fn as_ordinary(bed: &Bed, home: &str, args: &[&str]) -> Command {
    let mut command =
        behind(&["sh", "-c", "ulimit -c unlimited; shift; exec ./thalweg \"$@\"", "sh"], &bed.command(home, args));
    if rustix::process::geteuid().is_root() {
        command.uid(ORDINARY).gid(ORDINARY);
    }
    command
}

/// Whether a process of the same user may look at a file of the process.
fn may_look(bed: &Bed, pid: u32, file: &str) -> bool {
    let mut look = Command::new("sh");
    look.arg("-c").arg(format!("cat /proc/{pid}/{file} >/dev/null")).current_dir(bed.dir.path());
    if rustix::process::geteuid().is_root() {
        look.uid(ORDINARY).gid(ORDINARY);
    }
    look.stderr(Stdio::null()).status().unwrap().success()
}

fn cores(bed: &Bed) -> Vec<PathBuf> {
    let is_core = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("core");
    files(bed.dir.path()).into_iter().filter(is_core).collect()
}

#[test]
fn keys_reach_neither_a_core_dump_nor_another_process_of_the_user() {
    let bed = Bed::new();
    fs::copy(program(), bed.path("thalweg")).unwrap();
    if rustix::process::geteuid().is_root() {
        for path in ["", "root", "client", "server"] {
            std::os::unix::fs::chown(bed.path(path), Some(ORDINARY), Some(ORDINARY)).unwrap();
        }
    }
    // What this host does with a program that has no secrets.
    let mut plain = behind(&["sh", "-c", "ulimit -c unlimited; exec sleep 60"], &bed.command("client", &[""; 0]));
    if rustix::process::geteuid().is_root() {
        plain.uid(ORDINARY).gid(ORDINARY);
    }
    let mut plain = plain.spawn().unwrap();
    until("sleep", || fs::read(format!("/proc/{}/cmdline", plain.id())).unwrap().starts_with(b"sleep"));
    assert!(may_look(&bed, plain.id(), "environ"), "without the right to look nothing is shown here");
    signal(&plain, rustix::process::Signal::ABORT);
    // Where not even this one is dumped, the rest shows nothing of dumps, and still something of looking.
    if !plain.wait().unwrap().core_dumped() {
        eprintln!("this host dumps no program: what is said of core dumps is not shown");
    }
    cores(&bed).iter().for_each(|core| fs::remove_file(core).unwrap());

    let serve = ["serve", "--listen", "127.0.0.1:0", "--root", "root", "--ticket-file", "server/ticket"];
    let mut server = as_ordinary(&bed, "server", &serve);
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert!(ready.starts_with("ready on "), "{ready}");
    let added =
        as_ordinary(&bed, "client", &["endpoint", "add", "lab", "--ticket-file", "server/ticket"]).output().unwrap();
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    let mut client = as_ordinary(&bed, "client", &["cp", "-", "lab:piped"]);
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    client.stdin.as_mut().unwrap().write_all(&noise(9 << 20, 3)).unwrap();
    until("what it stages", || fs::read_dir(bed.path("root")).unwrap().count() > 0);
    for child in [&mut client, &mut server] {
        for file in ["environ", "mem", "maps"] {
            assert!(!may_look(&bed, child.id(), file), "{file} of a process with keys");
        }
        assert!(may_look(&bed, child.id(), "stat"), "what shows no memory is there for everybody");
        signal(child, rustix::process::Signal::ABORT);
        let status = child.wait().unwrap();
        assert_eq!((status.signal(), status.core_dumped()), (Some(6), false));
    }
    assert_eq!(cores(&bed), Vec::<PathBuf>::new());
}
