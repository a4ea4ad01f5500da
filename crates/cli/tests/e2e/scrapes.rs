//! How Prometheus reads what endpoints and hubs tell.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// What Prometheus would read at a socket.
pub fn page_at(socket: &Path) -> String {
    let mut socket = UnixStream::connect(socket).unwrap();
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    page.to_owned()
}

/// What Prometheus's own tool says of a page: nothing.
pub fn check_by_promtool(page: &str) {
    if !needs::program("promtool") {
        return;
    }
    let mut promtool = Command::new("promtool");
    let piped = promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut checking = piped.stdout(Stdio::piped()).spawn().unwrap();
    checking.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let checked = checking.wait_with_output().unwrap();
    let said = [&checked.stdout[..], &checked.stderr].concat();
    assert!(checked.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}
