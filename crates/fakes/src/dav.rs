//! A WebDAV server over a directory of this host, as one that keeps to the standard, or with the manners of others.
//!
//! Invariant: what it says of a file is read from the file system for each answer.

use crate::http::{Asked, Said, serve};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The pass that a server makes for whoever asks it for one.
pub const MACAROON: &str = "MDAxY2xvY2F0aW9uIGZha2U";

/// How a server is; the default is what XRootD 5.5 does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manners {
    /// Takes the escapes of a `Destination` for what they stand for.
    pub decodes: bool,
    /// Keeps to `Overwrite: F`.
    pub keeps: bool,
    /// Keeps to `X-OC-Mtime`.
    pub takes_times: bool,
    /// States an Adler-32 that is wrong.
    pub lies: bool,
    /// What its clock is ahead, in seconds.
    pub ahead_seconds: i64,
}

/// Says something before the server does, or nothing.
pub type Before = dyn Fn(&Asked) -> Option<Said> + Send + Sync;

/// Serves a directory at a port of its own, for as long as this process lives; returns the address.
pub fn start(root: &Path, manners: Manners, before: Arc<Before>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let root = root.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (root, before) = (root.clone(), before.clone());
            let answer = move |asked: &Asked| {
                before(asked).unwrap_or_else(|| Server { root: root.clone(), manners }.answer(asked))
            };
            std::thread::spawn(move || serve(stream, &answer));
        }
    });
    address
}

struct Server {
    root: PathBuf,
    manners: Manners,
}

fn decoded(text: &str) -> Vec<u8> {
    let (bytes, mut at, mut path) = (text.as_bytes(), 0, Vec::new());
    while at < bytes.len() {
        let digits = text.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match digits.filter(|_| bytes[at] == b'%') {
            Some(byte) => path.push(byte),
            None => path.push(bytes[at]),
        }
        at += if bytes[at] == b'%' && digits.is_some() { 3 } else { 1 };
    }
    path
}

fn encoded(path: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    path.iter().map(|byte| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

pub fn adler32(bytes: &[u8]) -> u32 {
    let (mut low, mut high) = (1u32, 0u32);
    for byte in bytes {
        low = (low + u32::from(*byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    high << 16 | low
}

/// One request to another server; the status and the body of its answer.
fn request(method: &str, url: &str, pass: Option<&str>, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    let rest = url.strip_prefix("http://").ok_or(io::ErrorKind::Unsupported)?;
    let (authority, target) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let pass = pass.map_or(String::new(), |pass| format!("Authorization: {pass}\r\n"));
    let head = format!("{method} {target} HTTP/1.1\r\nContent-Length: {}\r\n{pass}\r\n", body.len());
    let mut stream = TcpStream::connect(authority)?;
    stream.write_all(&[head.as_bytes(), body].concat())?;
    // The other server answers, finds that nothing follows, and closes the connection.
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    let status = std::str::from_utf8(&answer[..end]).ok().and_then(|head| head.split(' ').nth(1)?.parse().ok());
    Ok((status.ok_or(io::ErrorKind::InvalidData)?, answer.split_off(end + 4)))
}

impl Server {
    fn path(&self, name: &[u8]) -> PathBuf {
        let name = name.strip_prefix(b"/").unwrap_or(name);
        self.root.join(OsStr::from_bytes(name))
    }

    fn answer(&self, asked: &Asked) -> Said {
        let name = decoded(asked.target.split('?').next().unwrap_or_default());
        let path = self.path(&name);
        let done = match &asked.method[..] {
            "PROPFIND" => self.propfind(&name, &path, asked.header("depth") == Some("1")),
            "GET" | "HEAD" => self.get(&path, asked),
            "PUT" => self.put(&path, asked),
            "MKCOL" if path.exists() => Ok(Said::new(405, b"")),
            "MKCOL" => fs::create_dir(&path).map(|()| Said::new(201, b"")),
            "MOVE" => self.rename(&path, asked),
            "COPY" => self.copy(&path, asked),
            // As dCache answers.
            "POST" if asked.header("content-type") == Some("application/macaroon-request") => {
                Ok(Said::new(200, format!("{{\"macaroon\": \"{MACAROON}\", \"uri\": {{}}}}").as_bytes()))
            }
            // Whatever is in it.
            "DELETE" if path.is_dir() => fs::remove_dir_all(&path).map(|()| Said::new(204, b"")),
            "DELETE" => fs::remove_file(&path).map(|()| Said::new(204, b"")),
            _ => Ok(Said::new(405, b"")),
        };
        done.unwrap_or_else(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                let is_made = matches!(&asked.method[..], "PUT" | "MKCOL" | "MOVE");
                Said::new(if is_made { 409 } else { 404 }, b"")
            }
            io::ErrorKind::StorageFull => Said::new(507, b""),
            _ => Said::new(500, e.to_string().as_bytes()),
        })
    }

    fn put(&self, path: &Path, asked: &Asked) -> io::Result<Said> {
        fs::write(path, &asked.body)?;
        let time = asked.header("x-oc-mtime").and_then(|text| text.parse().ok()).filter(|_| self.manners.takes_times);
        let time = time.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let ahead = SystemTime::now() + Duration::from_secs(self.manners.ahead_seconds.max(0) as u64);
        File::options().write(true).open(path)?.set_modified(time.unwrap_or(ahead))?;
        Ok(Said::new(201, b""))
    }

    fn rename(&self, path: &Path, asked: &Asked) -> io::Result<Said> {
        let destination = asked.header("destination").unwrap_or_default();
        let after = destination.split_once("://").map_or(destination, |(_, rest)| rest);
        let to = after.find('/').map_or("/", |at| &after[at..]);
        let to = if self.manners.decodes { decoded(to) } else { to.as_bytes().to_vec() };
        let to = self.path(&to);
        fs::symlink_metadata(path)?;
        let is_there = to.exists();
        if is_there && self.manners.keeps && asked.header("overwrite") == Some("F") {
            return Ok(Said::new(412, b""));
        }
        if to.is_dir() {
            // As the standard asks for.
            fs::remove_dir_all(&to)?;
        }
        fs::rename(path, &to)?;
        Ok(Said::new(if is_there { 204 } else { 201 }, b""))
    }

    /// Fetches a file from `Source`, or sends it to `Destination`, and tells how that went by markers, as dCache and XRootD do.
    fn copy(&self, path: &Path, asked: &Asked) -> io::Result<Said> {
        let pass = asked.header("transferheaderauthorization");
        let status = match (asked.header("source"), asked.header("destination")) {
            (Some(url), _) => {
                let (status, content) = request("GET", url, pass, b"")?;
                if status == 200 {
                    fs::write(path, content)?;
                }
                status
            }
            (None, Some(url)) => request("PUT", url, pass, &fs::read(path)?)?.0,
            (None, None) => return Ok(Said::new(400, b"")),
        };
        let end = match status {
            200 | 201 | 204 => "success: Created".to_owned(),
            status => format!("failure: the other server answered with status {status}"),
        };
        let bytes = fs::metadata(path).map_or(0, |of| of.len());
        let marker = format!("    Timestamp: 1\n    Stripe Index: 0\n    Stripe Bytes Transferred: {bytes}\n");
        let markers = format!("Perf Marker\n{marker}    Total Stripe Count: 1\nEnd\n{end}\n");
        Ok(Said::new(202, markers.as_bytes()))
    }

    fn get(&self, path: &Path, asked: &Asked) -> io::Result<Said> {
        let content = fs::read(path)?;
        let lie = u32::from(self.manners.lies);
        let digest = asked.header("want-digest").map(|_| format!("adler32={:08x}", adler32(&content) ^ lie));
        let etag = etag(&fs::metadata(path)?);
        if asked.header("if-match").is_some_and(|wanted| wanted != etag) {
            return Ok(Said::new(412, b""));
        }
        let range = asked.header("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let said = match range {
            Some((start, end)) => {
                let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
                let range = format!("bytes {start}-{end}/{}", content.len());
                Said::new(206, &content[start..=end]).with("content-range", &range)
            }
            None => Said::new(200, &content),
        };
        let said = said.with("etag", &etag);
        Ok(match digest {
            Some(digest) => said.with("digest", &digest),
            None => said,
        })
    }

    fn propfind(&self, name: &[u8], path: &Path, lists: bool) -> io::Result<Said> {
        let mut body = "<D:multistatus xmlns:D=\"DAV:\">".to_owned();
        let name = name.strip_suffix(b"/").unwrap_or(name);
        body += &response(name, &fs::metadata(path)?);
        for found in if lists && path.is_dir() { Some(fs::read_dir(path)?) } else { None }.into_iter().flatten() {
            let found = found?;
            // It may be gone again.
            if let Ok(of) = found.metadata() {
                body += &response(&[name, b"/", found.file_name().as_bytes()].concat(), &of);
            }
        }
        Ok(Said::new(207, (body + "</D:multistatus>").as_bytes()))
    }
}

fn etag(of: &Metadata) -> String {
    format!("\"{}-{}-{}\"", of.ino(), of.ctime(), of.ctime_nsec())
}

fn response(name: &[u8], of: &Metadata) -> String {
    let (slash, prop) = match of.is_dir() {
        true => ("/", "<D:resourcetype><D:collection/></D:resourcetype>".to_owned()),
        false => {
            ("", format!("<D:getcontentlength>{}</D:getcontentlength><D:getetag>{}</D:getetag>", of.len(), etag(of)))
        }
    };
    let (href, date) = (encoded(name), crate::http::date(of.mtime()));
    format!(
        "<D:response><D:href>{href}{slash}</D:href><D:propstat><D:prop>{prop}<D:getlastmodified>{date}</D:getlastmodified></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
    )
}
