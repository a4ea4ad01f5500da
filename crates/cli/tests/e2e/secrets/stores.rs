//! Keys, tokens and passwords of stores: in no argument, output, log or file of a run, also where it is refused, sent
//! elsewhere or killed.
//!
//! The client has the keys of its bucket from its environment, tokens and a password from files, and macaroons from the
//! servers; an endpoint has keys from a file.

#[path = "../../../../foreign/tests/ftp_fake/mod.rs"]
#[expect(dead_code, reason = "most of its lies are for the tests of FTP itself")]
mod ftp_fake;

use super::{Scanner, arguments};
use crate::bed::{Bed, Ran, Server, noise, signal, until};
use fakes::dav::{MACAROON, Manners};
use fakes::http::{Asked, Said};
use fakes::{BUCKET, Fake, SECRET};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SESSION: &str = "session-token-4f1c9a7e2b";
const TOKEN: &str = "bearer-token-83d06b5c1f";
const OTHER_TOKEN: &str = "bearer-token-of-another-5a29e7c0";
const PASSWORD: &str = "ftp-password-5be2716f0d";
const WRONG: &str = "wrong-secret-c27a9e40d8";

/// Runs a command to its end, with everything in its log; meanwhile nothing that runs has a secret among its arguments.
#[track_caller]
fn watched(bed: &Bed, scanner: &Scanner, mut command: Command) -> Ran {
    command.env("THALWEG_LOG", "trace").stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let ran = std::thread::scope(|scope| {
        let ended = scope.spawn(|| bed.wait(child));
        while !ended.is_finished() {
            scanner.clean("what a process was given", &arguments());
            std::thread::park_timeout(Duration::from_millis(1));
        }
        ended.join().unwrap()
    });
    scanner.clean_run("a run", &ran);
    ran
}

fn table(fake: &Fake) -> String {
    format!("[stores.fake]\nkind = \"s3\"\nendpoint = \"{}\"\nregion = \"us-east-1\"\n", fake.url)
}

/// A command of the client with the keys of a bucket.
fn with_keys(bed: &Bed, secret: &str, args: &[&str]) -> Command {
    let mut command = bed.command("client", args);
    command.env("AWS_ACCESS_KEY_ID", "fake").env("AWS_SECRET_ACCESS_KEY", secret).env("AWS_SESSION_TOKEN", SESSION);
    command.env("AWS_EC2_METADATA_DISABLED", "true");
    command
}

/// An endpoint of the bucket, which the client knows as `lab`.
fn endpoint(bed: &Bed, fake: &Fake) -> Server {
    let text = format!("{}\n[roots]\narchive = \"s3+fake://{BUCKET}/pre\"\n", table(fake));
    bed.write("serve.toml", text.as_bytes());
    let args = ["serve", "--config", "serve.toml", "--listen", "127.0.0.1:0", "--ticket-file", "ticket"];
    let mut command = bed.command("server", &args);
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_PROFILE");
    command.env("AWS_SHARED_CREDENTIALS_FILE", bed.path("keys")).env("THALWEG_LOG", "trace");
    let server = bed.serve_with(command);
    bed.enrol();
    server
}

/// An upload that is killed once the store has a part of it, with what it logs in a file of the bed.
fn killed(bed: &Bed, fake: &Fake, scanner: &Scanner, to: &str) {
    let taken = || fake.state.lock().unwrap().part_bytes_taken;
    let before = taken();
    let log = fs::File::create(bed.path("killed.log")).unwrap();
    let mut command = with_keys(bed, SECRET, &["cp", "--json", "-vv", "--bwlimit", "8MiB", "long", to]);
    command.env("THALWEG_LOG", "trace").stdout(log.try_clone().unwrap()).stderr(log);
    let child = command.spawn().unwrap();
    until("a part at the store", || taken() >= before + (8 << 20));
    let given = arguments();
    assert_eq!(Scanner::of([("run", to.as_bytes())]).found(&given), Some("run"), "it runs, and is seen");
    scanner.clean("what a process was given", &given);
    signal(&child, Signal::KILL);
    bed.wait(child);
    let logs = fs::read_dir(bed.path("client/state_home/thalweg/uploads")).unwrap();
    assert!(logs.count() > 0, "what it knew of its upload is among what is looked at");
}

#[test]
fn keys_of_an_object_store_are_in_no_argument_output_log_or_file() {
    let bed = Bed::new();
    let built = !bed.run(&["ls", "s3+none://x/"]).stderr.contains("has no object stores");
    if !needs::met(built, "the program was built without --features full") {
        return;
    }
    let fake = Fake::start();
    bed.write("client/config_home/thalweg/config.toml", table(&fake).as_bytes());
    let keys = format!("aws_access_key_id = fake\naws_secret_access_key = {SECRET}\naws_session_token = {SESSION}\n");
    bed.write("keys", format!("[default]\n{keys}").as_bytes());
    let secrets = [("key", SECRET), ("session", SESSION), ("wrong", WRONG)];
    let scanner = Scanner::of(secrets.map(|(name, secret)| (name, secret.as_bytes())));
    assert_eq!(scanner.found(&fs::read(bed.path("keys")).unwrap()), Some("key"), "it finds what is there");
    bed.write("t/small", b"small");
    bed.write("t/large", &noise(9 << 20, 4));
    bed.write("long", &noise(24 << 20, 5));
    let there = format!("s3+fake://{BUCKET}/p/");
    for (secret, args, code) in [
        (SECRET, &["cp", "--json", "--explain", "-vv", "t/", &there][..], 0),
        (SECRET, &["cp", "-vv", &there, "back/"], 0),
        (SECRET, &["ls", "-l", &there], 0),
        (SECRET, &["doctor", &there], 0),
        (WRONG, &["cp", "--json", "-vv", "t/", &there], 41),
        (WRONG, &["ls", &there], 41),
        (WRONG, &["doctor", &there], 41),
    ] {
        let ran = watched(&bed, &scanner, with_keys(&bed, secret, args));
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
    }
    let server = endpoint(&bed, &fake);
    for args in [
        &["cp", "--json", "-vv", "t/", "lab:archive/in/"][..],
        &["cp", "-vv", "lab:archive/in/", "again/"],
        &["ls", "lab:archive/in"],
    ] {
        watched(&bed, &scanner, bed.command("client", args)).succeeded();
    }
    scanner.clean_process(server.pid());
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("TRACE") || log.contains("DEBUG") || log.contains("INFO"), "{log}");
    scanner.clean("the endpoint's log", log.as_bytes());

    killed(&bed, &fake, &scanner, &there);
    // What was sent, and has no secret.
    let allowed = ["keys", "large", "long"];
    scanner.clean_files(bed.dir.path(), &allowed);
    watched(&bed, &scanner, with_keys(&bed, SECRET, &["cp", "--json", "-vv", "long", &there])).succeeded();
    scanner.clean_files(bed.dir.path(), &allowed);
}

#[test]
fn a_bearer_token_is_in_no_argument_output_log_or_file_and_goes_to_no_other_host() {
    let bed = Bed::new();
    let built = !bed.run(&["ls", "dav://127.0.0.1:1/"]).stderr.contains("has no WebDAV");
    if !needs::met(built, "the program was built without --features full") {
        return;
    }
    fs::create_dir(bed.path("served")).unwrap();
    let manners = Manners { decodes: true, keeps: true, takes_times: true, ..Manners::default() };
    let abroad = Arc::new(Mutex::new(0));
    let asked_abroad = abroad.clone();
    let count = move |_: &Asked| -> Option<Said> {
        *asked_abroad.lock().unwrap() += 1;
        None
    };
    let elsewhere = format!("http://{}/", fakes::dav::start(&bed.path("served"), manners, Arc::new(count)));
    let guard = move |asked: &Asked| -> Option<Said> {
        let given = asked.header("authorization").and_then(|given| given.strip_prefix("Bearer "));
        match given == Some(TOKEN) {
            false => Some(Said::new(401, b"")),
            true => asked.target.starts_with("/moved").then(|| Said::new(307, b"").with("location", &elsewhere)),
        }
    };
    let address = fakes::dav::start(&bed.path("served"), manners, Arc::new(guard));
    let [there, moved] = ["in/", "moved/x"].map(|path| format!("dav://{address}/{path}"));
    let scanner = Scanner::of([("token", TOKEN.as_bytes()), ("wrong", WRONG.as_bytes())]);
    bed.write("t/small", b"small");
    bed.write("t/large", &noise(9 << 20, 6));
    for (token, args, code, said) in [
        (TOKEN, &["cp", "--json", "--explain", "-vv", "t/", &there][..], 0, ""),
        (TOKEN, &["cp", "-vv", &there, "back/"], 0, ""),
        (TOKEN, &["ls", "-l", &there], 0, ""),
        (WRONG, &["cp", "--json", "-vv", "t/", &there], 41, "takes this token no more, or never did"),
        (WRONG, &["cp", "-vv", &there, "x"], 41, "takes this token no more, or never did"),
        (TOKEN, &["cp", "-vv", &moved, "x"], 41, "where this token does not go"),
    ] {
        bed.write("token", token.as_bytes());
        let mut command = bed.command("client", args);
        command.env_remove("BEARER_TOKEN").env("BEARER_TOKEN_FILE", bed.path("token"));
        let ran = watched(&bed, &scanner, command);
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
        let output = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.stderr.contains(said) || output.contains(said), "{args:?}: {}", ran.stderr);
    }
    assert_eq!(scanner.found(&fs::read(bed.path("token")).unwrap()), Some("token"), "it finds what is there");
    assert_eq!(fs::read(bed.path("back/small")).unwrap(), b"small");
    assert_eq!(*abroad.lock().unwrap(), 0, "the token went to another host");
    scanner.clean_files(bed.dir.path(), &["token", "large"]);
}

#[test]
fn a_macaroon_between_two_servers_and_their_tokens_are_in_no_argument_output_log_or_file() {
    let bed = Bed::new();
    let built = !bed.run(&["ls", "dav://127.0.0.1:1/"]).stderr.contains("has no WebDAV");
    if !needs::met(built, "the program was built without --features full") {
        return;
    }
    let handed = Arc::new(Mutex::new(0));
    // One that takes its own token and its macaroon, and fetches nothing into `sent`: the other one is to send that.
    let site = |name: &str, token: &'static str| {
        let handed = handed.clone();
        let guard = move |asked: &Asked| -> Option<Said> {
            let given = asked.header("authorization").and_then(|given| given.strip_prefix("Bearer "));
            *handed.lock().unwrap() += u32::from(given == Some(MACAROON));
            let is_to_fetch = asked.target.starts_with("/sent/") && asked.header("source").is_some();
            match given == Some(token) || given == Some(MACAROON) {
                false => Some(Said::new(401, b"")),
                true => is_to_fetch.then(|| Said::new(405, b"")),
            }
        };
        fs::create_dir(bed.path(name)).unwrap();
        let manners = Manners { decodes: true, keeps: true, takes_times: true, ..Manners::default() };
        let address = fakes::dav::start(&bed.path(name), manners, Arc::new(guard));
        let file = bed.write(&format!("{name}.token"), token.as_bytes());
        let table = format!("[stores.{name}]\nkind = \"dav\"\nendpoint = \"dav://{address}\"\n");
        (format!("dav://{address}/"), format!("{table}token_file = \"{}\"\n", file.display()))
    };
    let ((first, of_first), (second, of_second)) = (site("first", TOKEN), site("second", OTHER_TOKEN));
    bed.write("client/config_home/thalweg/config.toml", [of_first, of_second].concat().as_bytes());
    let secrets = [("token", TOKEN), ("other", OTHER_TOKEN), ("macaroon", MACAROON)];
    let scanner = Scanner::of(secrets.map(|(name, secret)| (name, secret.as_bytes())));
    assert_eq!(scanner.found(&fs::read(bed.path("second.token")).unwrap()), Some("other"), "it finds what is there");
    let content = noise(9 << 20, 7);
    bed.write("first/in/large", &content);
    let from = format!("{first}in/");
    for (directory, told) in [("fetched", "the destination fetched them"), ("sent", "the source sent them")] {
        let before = *handed.lock().unwrap();
        let to = format!("{second}{directory}/");
        let command = bed.command("client", &["cp", "--json", "--explain", "-vvv", &from, &to]);
        let ran = watched(&bed, &scanner, command).succeeded();
        let done = ran.done();
        assert_eq!(done["store_copied_bytes"], 9 << 20, "{done}: {}", ran.stderr);
        assert!(done["notes"].to_string().contains(told), "{done}");
        assert!(*handed.lock().unwrap() > before, "no server had the macaroon of the other one");
        assert!(fs::read(bed.path("second").join(directory).join("large")).unwrap() == content);
    }
    scanner.clean_files(bed.dir.path(), &["first.token", "second.token", "large"]);
}

/// An FTP server that lets nobody in and repeats what it was told; its port.
fn repeating() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut output = stream.try_clone().unwrap();
            let _ = output.write_all(b"220 ready\r\n");
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let code = if line.starts_with("USER ") { 331 } else { 530 };
                let _ = output.write_all(format!("{code} you said {line}\r\n").as_bytes());
            }
        }
    });
    port
}

#[test]
fn a_password_for_ftp_is_in_no_argument_output_log_or_file_where_the_server_repeats_it_too() {
    let bed = Bed::new();
    let built = !bed.run(&["ls", "ftp://me:x@far/"]).stderr.contains("has no GridFTP");
    if !needs::met(built, "the program was built without --features full") {
        return;
    }
    let fake = ftp_fake::start(ftp_fake::Lie::Nothing);
    let servers = [("taking", fake.port, PASSWORD), ("repeating", repeating(), WRONG)];
    let tables = servers.map(|(name, port, password)| {
        let text = format!("machine 127.0.0.1 login me password {password}\n");
        let file = bed.write(&format!("{name}.netrc"), text.as_bytes());
        let table = format!("[stores.{name}]\nkind = \"gridftp\"\nendpoint = \"ftp://127.0.0.1:{port}\"\n");
        format!("{table}credentials_file = \"{}\"\n", file.display())
    });
    bed.write("client/config_home/thalweg/config.toml", tables.concat().as_bytes());
    let scanner = Scanner::of([("password", PASSWORD.as_bytes()), ("wrong", WRONG.as_bytes())]);
    assert_eq!(scanner.found(&fs::read(bed.path("taking.netrc")).unwrap()), Some("password"), "it finds what is there");
    bed.write("t/small", b"small");
    let [there, closed] = servers.map(|(_, port, _)| format!("ftp://127.0.0.1:{port}/d/"));
    for (args, code, said) in [
        (&["cp", "--json", "--explain", "-vvv", "t/", &there][..], 0, ""),
        (&["cp", "-vvv", &there, "back/"], 0, ""),
        (&["ls", "-l", &there], 0, ""),
        (&["doctor", &there], 0, ""),
        (&["cp", "--json", "-vvv", "t/", &closed], 41, "530 you said PASS ..."),
        (&["cp", "-vvv", &closed, "x"], 41, "530 you said PASS ..."),
        (&["ls", &closed], 41, "530 you said PASS ..."),
        (&["doctor", &closed], 41, "530 you said PASS ..."),
    ] {
        let ran = watched(&bed, &scanner, bed.command("client", args));
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
        let output = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.stderr.contains(said) || output.contains(said), "{args:?}: {}", ran.stderr);
    }
    let given = fake.heard("PASS");
    assert!(!given.is_empty() && given.iter().all(|line| line.ends_with(PASSWORD)), "{given:?}");
    assert_eq!(fs::read(bed.path("back/small")).unwrap(), b"small");
    scanner.clean_files(bed.dir.path(), &["taking.netrc", "repeating.netrc"]);
}
