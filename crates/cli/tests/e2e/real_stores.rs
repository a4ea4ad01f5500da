//! Object stores of other people, with the program as its users have it: that the fake one of the other tests is not all there is.

use crate::bed::{Bed, noise, until};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

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

/// Both ways, compared, listed and made alike below `top`, where nothing is; and what was written is what `read` finds
/// there. `run` is the client as the store lets it in, and gives what it says.
pub fn goes_both_ways(bed: &Bed, top: &str, run: &dyn Fn(&[&str]) -> Vec<u8>, read: &dyn Fn(&str) -> Vec<u8>) {
    let large = noise(20 << 20, 11);
    bed.write("src/large", &large);
    bed.write("src/sub/a b+\u{e9}", b"small");
    let there = format!("{top}/p/");
    run(&["cp", "src/", &there]);
    assert!(read("p/large") == large);
    run(&["check", "src/", &there]);
    assert_eq!(run(&["ls", &there]), b"large\nsub/\n");
    run(&["cp", &there, "back/"]);
    assert!(fs::read(bed.path("back/large")).unwrap() == large);
    assert_eq!(fs::read(bed.path("back/sub/a b+\u{e9}")).unwrap(), b"small");
    fs::remove_file(bed.path("src/large")).unwrap();
    run(&["sync", "--delete", "src/", &there]);
    assert_eq!(run(&["ls", &there]), b"sub/\n");
}

/// What the client of a server of this host says.
fn said(bed: &Bed, args: &[&str]) -> Vec<u8> {
    let mut command = bed.command("client", args);
    command.env("AWS_ACCESS_KEY_ID", "thalweg").env("AWS_SECRET_ACCESS_KEY", "thalweg-secret");
    command.env("AWS_EC2_METADATA_DISABLED", "true");
    bed.finish(command).succeeded().stdout
}

/// The same with a bucket of this host, in which nothing is left.
fn a_bucket_goes_both_ways(bed: &Bed, read: &dyn Fn(&str) -> Vec<u8>) {
    let run = |args: &[&str]| said(bed, args);
    goes_both_ways(bed, "s3+real://bkt", &run, read);
    run(&["rm", "-r", "s3+real://bkt/p"]);
    assert_eq!(run(&["ls", "s3+real://bkt/"]), b"");
    assert_eq!(run(&["uploads", "ls", "s3+real://bkt"]), b"");
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

/// A moto server with a bucket, and the bed of its client.
struct Moto {
    bed: Bed,
    port: u16,
    _server: Running,
}

/// `None` where something is missing, which is said.
fn moto() -> Option<Moto> {
    let port = port();
    let bed = needs::program("moto_server").then(|| bed_for(port)).flatten()?;
    let server = start(Command::new("moto_server").args(["-H", "127.0.0.1", "-p", &port.to_string()]));
    until("a bucket", || ask(port, "PUT", "/bkt").is_some_and(|answer| answer.contains(" 200 ")));
    Some(Moto { bed, port, _server: server })
}

#[test]
fn moto_takes_and_gives_what_thalweg_writes() {
    let Some(moto) = moto() else { return };
    let read = |key: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", moto.port)).unwrap();
        let head = format!("GET /bkt/{key} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let body = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
        answer.split_off(body)
    };
    a_bucket_goes_both_ways(&moto.bed, &read);
}

#[test]
fn rclone_reads_the_times_and_modes_that_thalweg_writes() {
    let Some(moto) = needs::program("rclone").then(moto).flatten() else { return };
    let bed = &moto.bed;
    for (name, mode) in [("tool", 0o751), ("notes", 0o640)] {
        let path = bed.write(&format!("kept/{name}"), name.as_bytes());
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let time = UNIX_EPOCH + Duration::new(1_577_934_245, 123_456_789);
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    }
    said(bed, &["cp", "-p", "kept/", "s3+real://bkt/kept/"]);
    let mut rclone = Command::new("rclone");
    rclone.arg("--config").arg(bed.path("none")).args(["lsjson", "--metadata", "real:bkt/kept"]);
    let endpoint = format!("http://127.0.0.1:{}", moto.port);
    for (key, value) in [
        ("TYPE", "s3"),
        ("PROVIDER", "Other"),
        ("ENDPOINT", &endpoint[..]),
        ("ACCESS_KEY_ID", "thalweg"),
        ("SECRET_ACCESS_KEY", "thalweg-secret"),
        ("FORCE_PATH_STYLE", "true"),
    ] {
        rclone.env(format!("RCLONE_CONFIG_REAL_{key}"), value);
    }
    // An empty name of certificates is none; times are told in the zone that is set.
    let ran = rclone.env("AWS_CA_BUNDLE", "").env("TZ", "UTC").stdin(Stdio::null()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let listed: Vec<Value> = serde_json::from_slice(&ran.stdout).unwrap();
    for (name, mode) in [("tool", 0o100_751), ("notes", 0o100_640)] {
        let found = listed.iter().find(|found| found["Name"] == name).unwrap_or_else(|| panic!("{listed:?}"));
        assert_eq!(found["Metadata"]["mtime"], "2020-01-02T03:04:05.123456789Z", "{found}");
        assert_eq!(found["Metadata"]["mode"], mode.to_string(), "{found}");
    }
}

/// Not installed by `.ci/run`: it takes a newer Go than Debian has.
#[test]
fn versitygw_takes_and_gives_what_thalweg_writes() {
    let port = port();
    if Command::new("versitygw").arg("--version").output().is_err() {
        let where_from = "a release of https://github.com/versity/versitygw, put into PATH";
        return eprintln!("skipped: no versitygw is installed; get it: {where_from}");
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
    a_bucket_goes_both_ways(&bed, &|key| fs::read(bed.path("gateway/bkt").join(key)).unwrap());
}
