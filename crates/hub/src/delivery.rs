//! Brings one message to where its channel leads: a signed webhook, mail, or a program of the operator.
//!
//! A webhook is a POST in the form of Standard Webhooks: `webhook-id`, `webhook-timestamp` and `webhook-signature`, the HMAC-SHA256 of
//! id, time and body in base64. No redirect is followed. Its name is resolved once; what is no public address is not connected to,
//! unless the operator allowed it. What is answered is read up to a bound and not believed.

use crate::channels::Means;
use data_encoding::BASE64;
use model::Pin;
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use web::{Client, Origin, Request, Trust};

/// For a webhook to take a message and answer, however often a byte comes.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// For a program to take a message.
const PROGRAM_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// What is told: the same in each try.
#[derive(Clone, Debug)]
pub struct Message {
    pub id: i64,
    pub webhook_id: String,
    pub body: String,
    /// For mail.
    pub subject: String,
}

/// What no other message has, of this hub or of another one: its number is given once, also after an old copy of the database was put
/// back (`store`).
pub fn webhook_id(hub: Pin, id: i64) -> String {
    let pin = hub.to_string();
    format!("thalweg-{}-{id}", &pin[..8])
}

/// Why it did not arrive.
pub fn deliver(means: &Means, message: &Message, unix_seconds: i64) -> Result<(), String> {
    match means {
        Means::Webhook { url, secret, allow_private, ca_file } => {
            let trust = ca_file.clone().map_or(Trust::Host, Trust::File);
            post(url, &trust, secret, *allow_private, message, unix_seconds, ANSWER_MAX)
        }
        Means::Mail { to, sendmail } => {
            let head = format!("To: {}\nSubject: {}\n", to.join(", "), message.subject);
            let type_ = "MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nAuto-Submitted: auto-generated\n";
            let words = ["-i", "--"].into_iter().chain(to.iter().map(String::as_str));
            run(sendmail, words, format!("{head}{type_}\n{}\n", message.body).as_bytes(), PROGRAM_MAX)
        }
        Means::Command { words } => {
            let input = format!("{}\n", message.body);
            run(Path::new(&words[0]), words[1..].iter().map(String::as_str), input.as_bytes(), PROGRAM_MAX)
        }
    }
}

/// What proves that a message is of somebody who has the secret.
pub fn signature(secret: &[u8], id: &str, unix_seconds: i64, body: &[u8]) -> String {
    let head = format!("{id}.{unix_seconds}.");
    format!("v1,{}", BASE64.encode(&net::hmac_sha256(secret, &[head.as_bytes(), body])))
}

fn post(
    url: &str,
    trust: &Trust,
    secret: &[u8],
    allow_private: bool,
    message: &Message,
    unix_seconds: i64,
    within: Duration,
) -> Result<(), String> {
    let until = Instant::now() + within;
    let after_scheme = url.find("://").map_or(0, |at| at + 3);
    let path_at = url[after_scheme..].find(['/', '?']).map_or(url.len(), |at| after_scheme + at);
    let (origin, target) = url.split_at(path_at);
    let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
    let mut origin = Origin::parse(origin).map_err(|e| e.text)?;
    origin.addresses = addresses(&origin.host, origin.port, allow_private)?;
    let id = &message.webhook_id;
    let headers = [
        ("content-type", "application/json".to_owned()),
        ("user-agent", "thalweg".to_owned()),
        ("webhook-id", id.clone()),
        ("webhook-timestamp", unix_seconds.to_string()),
        ("webhook-signature", signature(secret, id, unix_seconds, message.body.as_bytes())),
    ]
    .map(|(name, value)| (name.to_owned(), value));
    let request = Request { method: "POST", target: &target, headers: &headers, body: message.body.as_bytes() };
    let client = Client::new(origin, trust).map_err(|e| e.text)?.until(until);
    let response = client.send(&request).map_err(|e| e.text)?;
    let status = response.status;
    let _ = response.into_bytes(ANSWER_BYTES_MAX);
    match status {
        200..=299 => Ok(()),
        300..=399 => Err(format!("it answered {status}, and redirects are not followed")),
        _ => Err(format!("it answered {status}")),
    }
}

fn addresses(host: &str, port: u16, allow_private: bool) -> Result<Vec<SocketAddr>, String> {
    let found = (host, port).to_socket_addrs().map_err(|e| format!("{host} has no address: {e}"))?;
    let (usable, others): (Vec<SocketAddr>, Vec<_>) =
        found.partition(|address| allow_private || is_public(address.ip()));
    match (usable.is_empty(), others.first()) {
        (false, _) => Ok(usable),
        (true, Some(private)) => Err(format!("{host} is {}, which is no public address", private.ip())),
        (true, None) => Err(format!("{host} has no address")),
    }
}

/// An address of the Internet: not of this host, of a local network, of a special range, nor one of these in other clothes.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = matches!((a, b, c), (0, ..) | (100, 64..=127, _) | (192, 0, 0) | (198, 18..=19, _) | (240.., ..));
    let is_local = address.is_private() || address.is_loopback() || address.is_link_local();
    !(is_special || is_local || address.is_multicast() || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let [.., high, low] = segments;
    let last = Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match segments {
        [0, 0, 0, 0, 0, 0xffff | 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            is_public_v4(last) && address != Ipv6Addr::LOCALHOST
        }
        // 6to4.
        [0x2002, high, low, ..] => is_public_v4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low))),
        [0x2001, 0xdb8, ..] | [0x2001, 0, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// Runs a program with something on its standard input, for so long at most. It gets nothing else of this process.
fn run<'a>(
    program: &Path,
    words: impl Iterator<Item = &'a str>,
    mut input: &[u8],
    within: Duration,
) -> Result<(), String> {
    let shown = program.display();
    let mut command = Command::new(program);
    command.args(words).env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().map_err(|e| format!("{shown} cannot be run: {e}"))?;
    // One that does not read is not waited for any longer than one that does.
    let mut stdin = child.stdin.take().filter(|stdin| rustix::io::ioctl_fionbio(stdin, true).is_ok());
    let until = Instant::now() + within;
    loop {
        stdin = stdin.and_then(|stdin| feed(stdin, &mut input));
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("{shown} ended with {status}")),
            Ok(None) if Instant::now() < until => std::thread::park_timeout(LOOK_EVERY),
            _ => {
                let group = rustix::process::Pid::from_child(&child);
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                let _ = child.wait();
                return Err(format!("{shown} took longer than {within:?}"));
            }
        }
    }
}

/// Writes what a pipe has room for; it is closed behind the last of it, and where nobody reads any more.
fn feed(mut stdin: ChildStdin, input: &mut &[u8]) -> Option<ChildStdin> {
    match stdin.write(input) {
        Ok(written) => *input = &input[written..],
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
        Err(_) => return None,
    }
    Some(stdin).filter(|_| !input.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read};
    use std::net::TcpListener;

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for text in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.1",
            "172.16.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "192.0.0.8",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "::7f00:1",
            "64:ff9b::a00:1",
            "2002:a00:1::",
            "2001:db8::1",
            "2001::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in ["9.9.9.9", "172.32.0.1", "2606:4700::1111", "::ffff:9.9.9.9", "64:ff9b::909:909"] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    /// The vector of the specification.
    #[test]
    fn the_signature_is_that_of_standard_webhooks() {
        let secret = BASE64.decode(b"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = br#"{"test": 2432232314}"#;
        let made = signature(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(made, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    /// One answer, and what was asked.
    fn server(answer: &'static str) -> (u16, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                head.push_str(&line);
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            head + &String::from_utf8(body).unwrap()
        });
        (port, served)
    }

    fn hook(port: u16, allow_private: bool) -> Means {
        let url = format!("http://127.0.0.1:{port}/in?x=1");
        Means::Webhook { url, secret: b"0123456789abcdef".to_vec(), allow_private, ca_file: None }
    }

    fn message() -> Message {
        let webhook_id = webhook_id(Pin([0x6f; 32]), 7);
        Message { id: 7, webhook_id, body: "{\"v\":1}".into(), subject: "thalweg: job x failed".into() }
    }

    #[test]
    fn a_webhook_is_signed_and_goes_nowhere_else() {
        let (port, served) = server("HTTP/1.1 204 No Content\r\n\r\n");
        deliver(&hook(port, true), &message(), 1000).unwrap();
        let asked = served.join().unwrap();
        assert!(asked.starts_with("POST /in?x=1 HTTP/1.1\r\n") && asked.ends_with("{\"v\":1}"), "{asked}");
        let expected = signature(b"0123456789abcdef", "thalweg-6f6f6f6f-7", 1000, b"{\"v\":1}");
        assert!(asked.contains(&expected) && asked.contains("webhook-timestamp: 1000"), "{asked}");
        assert!(asked.contains("webhook-id: thalweg-6f6f6f6f-7\r\n"), "{asked}");
        let (port, served) =
            server("HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n");
        assert!(deliver(&hook(port, true), &message(), 1000).unwrap_err().contains("redirects are not followed"));
        served.join().unwrap();
        assert!(deliver(&hook(port, false), &message(), 1000).unwrap_err().contains("no public address"));
    }

    #[test]
    fn a_webhook_that_answers_byte_by_byte_holds_nobody_up() {
        // Within its head, where the status counts for nothing yet, or after it.
        for (begins, is_taken) in [("HTTP/1.1 204 No Content\r\nx: ", false), ("HTTP/1.1 200 OK\r\n\r\n", true)] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://127.0.0.1:{}/", listener.local_addr().unwrap().port());
            let dripping = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(begins.as_bytes()).unwrap();
                while stream.write_all(b"x").is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            let within = Duration::from_secs(1);
            let (began, secret) = (Instant::now(), b"0123456789abcdef");
            let posted = post(&url, &Trust::Host, secret, true, &message(), 1000, within);
            assert!(began.elapsed() < Duration::from_secs(20) && posted.is_ok() == is_taken, "{posted:?}");
            dripping.join().unwrap();
        }
    }

    #[test]
    fn a_message_larger_than_a_pipe_arrives_and_one_that_is_not_read_holds_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let (out, input) = (dir.path().join("out"), vec![b'x'; 200 << 10]);
        let script = format!("cat > {}", out.display());
        run(Path::new("/bin/sh"), ["-c", &script].into_iter(), &input, PROGRAM_MAX).unwrap();
        assert_eq!(std::fs::read(&out).unwrap(), input);
        let unread = run(Path::new("/bin/sleep"), ["600"].into_iter(), &input, Duration::from_millis(50));
        assert!(unread.unwrap_err().contains("took longer than 50ms"));
    }

    #[test]
    fn a_program_gets_the_message_and_none_of_our_surroundings() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let script = format!("cat > {0}; env >> {0}", out.display());
        let words = vec!["/bin/sh".to_owned(), "-c".to_owned(), script];
        deliver(&Means::Command { words }, &message(), 0).unwrap();
        let told = std::fs::read_to_string(&out).unwrap();
        assert!(told.starts_with("{\"v\":1}\n") && !told.contains("HOME=") && !told.contains("CARGO"), "{told}");
        let failing = vec!["/bin/sh".to_owned(), "-c".to_owned(), "exit 3".to_owned()];
        assert!(deliver(&Means::Command { words: failing }, &message(), 0).unwrap_err().contains("exit status: 3"));
        let sendmail = dir.path().join("sendmail");
        std::fs::write(&sendmail, format!("#!/bin/sh\necho \"$@\" > {0}; cat >> {0}\n", out.display())).unwrap();
        std::fs::set_permissions(&sendmail, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        deliver(&Means::Mail { to: vec!["a@b.example".into()], sendmail }, &message(), 0).unwrap();
        let told = std::fs::read_to_string(&out).unwrap();
        assert!(told.starts_with("-i -- a@b.example\nTo: a@b.example\nSubject: thalweg: job x failed\n"), "{told}");
    }
}
