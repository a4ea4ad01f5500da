//! Secrets are where they belong and nowhere else (F039): not in arguments, environments, output, logs, ledgers, staging or
//! other files, also where things fail and everything is logged.

use crate::bed::{Bed, Ran, noise, until};
use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER, HEXUPPER};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

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
    fn found(&self, content: &[u8]) -> Option<&str> {
        let holds = |form: &Vec<u8>| content.windows(form.len()).any(|window| window == form);
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
            self.clean(file, &fs::read(format!("/proc/{pid}/{file}")).unwrap());
        }
    }
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
    let scanner = Scanner { secrets: secrets.into_iter().map(|(name, secret)| (name, forms(&secret))).collect() };
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

    let allowed = ["ticket", "guest", "identity.key", "credential", "damaged"];
    for path in files(bed.dir.path()) {
        if !allowed.contains(&path.file_name().unwrap().to_str().unwrap()) {
            let mut content = Vec::new();
            fs::File::open(&path).unwrap().read_to_end(&mut content).unwrap();
            scanner.clean(&path.display().to_string(), &content);
        }
    }
}
