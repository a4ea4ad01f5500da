//! Keys and tokens of stores: in no argument, output, log or file of a run, also where it is refused, sent elsewhere or killed.
//!
//! The client has the keys of its bucket from its environment, and its token from a file; an endpoint has keys from a file.

use super::{Scanner, arguments};
use crate::bed::{Bed, Ran, Server, noise, signal, until};
use fakes::dav::Manners;
use fakes::http::{Asked, Said};
use fakes::{BUCKET, Fake, SECRET};
use rustix::process::Signal;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SESSION: &str = "session-token-4f1c9a7e2b";
const TOKEN: &str = "bearer-token-83d06b5c1f";
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
