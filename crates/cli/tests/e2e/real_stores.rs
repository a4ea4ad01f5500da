//! Object stores of other people, with the program as its users have it: that the fake one of the other tests is not all there is.

use crate::bed::{Bed, noise, until};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

/// A server that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that was free a moment ago.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Sends a request without a signature; the head of the answer.
fn ask(port: u16, method: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Both ways, compared, listed, removed; and what was written is what another program reads.
fn goes_both_ways(bed: &Bed, read: &dyn Fn(&str) -> Vec<u8>) {
    let large = noise(20 << 20, 11);
    bed.write("src/large", &large);
    bed.write("src/sub/a b+\u{e9}", b"small");
    let run = |args: &[&str]| {
        let mut command = bed.command("client", args);
        command.env("AWS_ACCESS_KEY_ID", "thalweg").env("AWS_SECRET_ACCESS_KEY", "thalweg-secret");
        command.env("AWS_EC2_METADATA_DISABLED", "true");
        String::from_utf8(bed.finish(command).succeeded().stdout).unwrap()
    };
    run(&["cp", "src/", "s3+real://bkt/p/"]);
    assert!(read("p/large") == large);
    run(&["check", "src/", "s3+real://bkt/p/"]);
    assert_eq!(run(&["ls", "s3+real://bkt/p/"]), "large\nsub/\n");
    run(&["cp", "s3+real://bkt/p/", "back/"]);
    assert!(fs::read(bed.path("back/large")).unwrap() == large);
    assert_eq!(fs::read(bed.path("back/sub/a b+\u{e9}")).unwrap(), b"small");
    fs::remove_file(bed.path("src/large")).unwrap();
    run(&["sync", "--delete", "src/", "s3+real://bkt/p/"]);
    assert_eq!(run(&["ls", "s3+real://bkt/p/"]), "sub/\n");
    run(&["rm", "-r", "s3+real://bkt/p"]);
    assert_eq!(run(&["ls", "s3+real://bkt/"]), "");
    assert_eq!(run(&["uploads", "ls", "s3+real://bkt"]), "");
}

/// A bed whose client knows the server as `real`; nothing where the program is built without stores.
fn bed_for(port: u16) -> Option<Bed> {
    let bed = Bed::new();
    let built = !bed.run(&["ls", "s3://x/"]).stderr.contains("has no object stores");
    if !needs::met(built, "the program was built without --features full") {
        return None;
    }
    let text =
        format!("[stores.real]\nkind = \"s3\"\nendpoint = \"http://127.0.0.1:{port}\"\nregion = \"us-east-1\"\n");
    bed.write("client/config_home/thalweg/config.toml", text.as_bytes());
    Some(bed)
}

fn start(command: &mut Command) -> Running {
    Running(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

#[test]
fn moto_takes_and_gives_what_thalweg_writes() {
    let port = port();
    let Some(bed) = needs::program("moto_server").then(|| bed_for(port)).flatten() else { return };
    let _moto = start(Command::new("moto_server").args(["-H", "127.0.0.1", "-p", &port.to_string()]));
    until("a bucket", || ask(port, "PUT", "/bkt").is_some_and(|answer| answer.contains(" 200 ")));
    let read = |key: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let head = format!("GET /bkt/{key} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let body = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
        answer.split_off(body)
    };
    goes_both_ways(&bed, &read);
}

/// Not installed by `.ci/run`: it takes a newer Go than Debian has.
#[test]
fn versitygw_takes_and_gives_what_thalweg_writes() {
    let port = port();
    if Command::new("versitygw").arg("--version").output().is_err() {
        return eprintln!("skipped: no versitygw is installed");
    }
    let Some(bed) = bed_for(port) else { return };
    fs::create_dir_all(bed.path("gateway/bkt")).unwrap();
    let mut command = Command::new("versitygw");
    command.args([
        "--access",
        "thalweg",
        "--secret",
        "thalweg-secret",
        "--quiet",
        "--port",
        &format!("127.0.0.1:{port}"),
    ]);
    let _gateway = start(command.arg("posix").arg(bed.path("gateway")));
    until("the gateway", || ask(port, "GET", "/").is_some());
    goes_both_ways(&bed, &|key| fs::read(bed.path("gateway/bkt").join(key)).unwrap());
}
