//! What stands at a path and directly below it, from `PROPFIND`; of a single file of a plain server, from `HEAD`.
//!
//! Invariants: an answer that names another place than the one asked for, or what is not directly below it, is an error as a
//! whole; documents are bounded (`BODY_BYTES_MAX`, `web::xml`).

use crate::failure::{Failure, Result, Why};
use crate::path;
use crate::site::Site;
use model::{FailureKind, Generation, Timestamp, VersionToken};
use std::collections::BTreeMap;
use web::xml::Element;

const BODY_BYTES_MAX: usize = 64 << 20;

/// What is known of a file or directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    pub is_directory: bool,
    pub size_bytes: u64,
    /// Seconds since 1970.
    pub modified: i64,
    pub etag: String,
    /// The server lists it and tells nothing of it.
    pub is_hidden: bool,
}

impl Stat {
    pub fn time(&self) -> Timestamp {
        Timestamp { seconds: self.modified, nanoseconds: 0 }
    }

    /// Tells versions apart as well as the server does: by its tag, or by time and size.
    pub fn generation(&self, site: &Site) -> Generation {
        let tag = format!("{} {} {}", self.etag, self.modified, self.size_bytes);
        let version = VersionToken::of_tag(tag.as_bytes(), 0).object();
        let version = VersionToken::new(self.time(), version, site.storage);
        Generation { size_bytes: self.size_bytes, modified: self.time(), version }
    }
}

impl Site {
    pub fn stat(&self, path: &[u8]) -> Result<Stat> {
        if !self.is_plain {
            return self.propfind(path, "0").map(|(stat, _)| stat);
        }
        let response = self.ask("HEAD", path, &[], &[200])?;
        let size_bytes =
            response.length().ok_or_else(|| Failure::new(Why::Other, "the server does not say how long it is"))?;
        let modified = response.header("last-modified").and_then(web::date::header_moment).unwrap_or_default();
        let etag = response.header("etag").unwrap_or_default().to_owned();
        Ok(Stat { size_bytes, modified, etag, ..Stat::default() })
    }

    /// What is in a directory, by name, without what is on its way there.
    pub fn list(&self, path: &[u8]) -> Result<BTreeMap<Vec<u8>, Stat>> {
        let mut below = self.list_all(path)?;
        below.retain(|name, _| !name.starts_with(store::STAGING_PREFIX));
        Ok(below)
    }

    pub fn list_all(&self, path: &[u8]) -> Result<BTreeMap<Vec<u8>, Stat>> {
        self.propfind(path, "1").map(|(_, below)| below)
    }

    /// What is at a path, if something is.
    pub fn find(&self, path: &[u8]) -> Result<Option<Stat>> {
        match self.stat(path) {
            Err(failure) if failure.why == Why::Missing => Ok(None),
            found => found.map(Some),
        }
    }

    fn propfind(&self, path: &[u8], depth: &str) -> Result<(Stat, BTreeMap<Vec<u8>, Stat>)> {
        let ask = || self.ask("PROPFIND", path, &[("Depth", depth.to_owned())], &[207]);
        // One that is cut is asked for once more.
        let body = match ask()?.into_bytes(BODY_BYTES_MAX) {
            Err(_) if !self.is_stopped() => ask()?.into_bytes(BODY_BYTES_MAX),
            body => body,
        };
        read(&body.map_err(|e| Failure::of_web(&e))?, path)
    }
}

/// Deeper than that a server may say that there is no end.
pub const DEPTH_MAX: usize = 256;

/// Why nothing is done with something that the server does not tell what it is.
pub fn hidden() -> store::Error {
    store::Error::of_kind(FailureKind::ReadError, "look at", b"", HIDDEN)
}

const HIDDEN: &str = "the server lists it and does not tell what it is";

/// Why something is not removed: a server removes a directory with all that is in it.
pub fn untouchable(stat: &Stat, path: &[u8]) -> Option<Failure> {
    let failed = |text: &str| Some(Failure::new(Why::Other, text));
    match path.iter().filter(|byte| **byte == b'/').count() {
        _ if stat.is_hidden => failed(HIDDEN),
        levels if levels > DEPTH_MAX => failed("it lies too deep"),
        _ => None,
    }
}

fn astray(why: &str) -> Failure {
    Failure::new(Why::Other, format!("the server's listing is not of what was asked for: {why}"))
}

fn read(body: &[u8], path: &[u8]) -> Result<(Stat, BTreeMap<Vec<u8>, Stat>)> {
    let root = Element::parse(body).filter(|root| root.name == "multistatus");
    let root = root.ok_or_else(|| {
        Failure::new(Why::Other, "the server's listing cannot be read: it is not WebDAV, is cut, or has too many names")
    })?;
    let asked = path::names(path).map_err(|e| astray(&e))?;
    let (mut this, mut below) = (None, BTreeMap::new());
    let is_literal = root.all("response").any(|response| is_no_url(href(response), path));
    for response in root.all("response") {
        let href = href(response);
        let at = if is_literal { href.as_bytes().to_vec() } else { path::decoded(href) };
        let names = path::names(&at).map_err(|e| astray(&e))?;
        let is_gone = response.get("status").and_then(|status| status.split(' ').nth(1)) == Some("404");
        let stat = match stat(response)? {
            Some(stat) => stat,
            None if is_gone || names == asked => continue,
            None => Stat { is_hidden: true, ..Stat::default() },
        };
        match names.strip_prefix(&asked[..]) {
            Some([]) => this = Some(stat),
            Some([name]) => {
                if below.insert(name.as_bytes().to_vec(), stat).is_some() {
                    return Err(astray("it has one name twice"));
                }
            }
            _ => return Err(astray("it names another place")),
        }
    }
    let this = this.ok_or_else(|| astray("it does not name that"))?;
    Ok((this, below))
}

fn href(response: &Element) -> &str {
    let href = response.get("href").unwrap_or_default().trim();
    let after = href.split_once("://").filter(|_| !href.starts_with('/'));
    after.map_or(href, |(_, rest)| rest.find('/').map_or("/", |at| &rest[at..]))
}

/// Whether a server that writes this leaves out the escapes of URLs, as XRootD 5 does: it is none, or is the path that was asked for as
/// it stands.
fn is_no_url(href: &str, path: &[u8]) -> bool {
    let is_path = path.contains(&b'%') && href.trim_end_matches('/').as_bytes() == path;
    is_path || href.bytes().any(|byte| !byte.is_ascii_graphic() || b"\"<>\\^`{|}".contains(&byte))
}

/// The properties that the server has; `None` where it has none of them.
fn stat(response: &Element) -> Result<Option<Stat>> {
    let is_success = |of: &&Element| of.get("status").is_none_or(|status| status.split(' ').nth(1) == Some("200"));
    let Some(of) = response.all("propstat").find(is_success) else { return Ok(None) };
    let Some(prop) = of.all("prop").next() else { return Ok(None) };
    let is_directory = prop.all("resourcetype").any(|of| of.all("collection").next().is_some());
    let length = prop.get("getcontentlength").map(str::trim).filter(|text| !text.is_empty());
    let size_bytes = match (is_directory, length.map(str::parse::<u64>)) {
        (true, _) => 0,
        (false, Some(Ok(length))) if length <= i64::MAX as u64 => length,
        (false, _) => return Err(astray("it has a file without a length")),
    };
    let modified =
        prop.get("getlastmodified").and_then(|text| web::date::header_moment(text.trim())).unwrap_or_default();
    let etag = prop.get("getetag").unwrap_or_default().trim().to_owned();
    Ok(Some(Stat { is_directory, size_bytes, modified, etag, is_hidden: false }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(href: &str, prop: &str) -> String {
        format!(
            "<D:response><D:href>{href}</D:href><D:propstat><D:prop>{prop}</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        )
    }

    fn listing(below: &str) -> String {
        let this = one("/a%20b/", "<D:resourcetype><D:collection/></D:resourcetype>");
        format!("<D:multistatus xmlns:D=\"DAV:\">{this}{below}</D:multistatus>")
    }

    #[test]
    fn a_listing_has_names_sizes_and_times() {
        let file = one(
            "https://h:1/a%20b/x%25y",
            "<D:getcontentlength>7</D:getcontentlength><D:getlastmodified>Sun, 09 Sep 2001 01:46:40 GMT</D:getlastmodified>",
        );
        let (this, below) = read(listing(&file).as_bytes(), b"/a b").unwrap();
        assert!(this.is_directory);
        let stat = Stat { size_bytes: 7, modified: 1_000_000_000, ..Stat::default() };
        assert_eq!(below, BTreeMap::from([(b"x%y".to_vec(), stat)]));
    }

    #[test]
    fn what_is_listed_without_a_word_on_it_is_there_all_the_same() {
        let hidden = |status: &str| format!("<D:response><D:href>/a%20b/x</D:href>{status}</D:response>");
        for status in [
            "<D:status>HTTP/1.1 403 Forbidden</D:status>",
            "<D:propstat><D:prop><D:getcontentlength/></D:prop><D:status>HTTP/1.1 403 Forbidden</D:status></D:propstat>",
        ] {
            let (_, below) = read(listing(&hidden(status)).as_bytes(), b"/a b").unwrap();
            let stat = &below[&b"x"[..]];
            assert!(stat.is_hidden && untouchable(stat, b"x").is_some(), "{status}");
        }
        let gone = hidden("<D:status>HTTP/1.1 404 Not Found</D:status>");
        assert!(read(listing(&gone).as_bytes(), b"/a b").unwrap().1.is_empty());
    }

    #[test]
    fn a_server_that_leaves_out_escapes_is_told_by_what_it_writes() {
        let length = "<D:getcontentlength>7</D:getcontentlength>";
        let collection = "<D:resourcetype><D:collection/></D:resourcetype>";
        let body = |hrefs: [&str; 2]| {
            let listed = [one(hrefs[0], collection), one(hrefs[1], length)].concat();
            format!("<D:multistatus xmlns:D=\"DAV:\">{listed}</D:multistatus>")
        };
        for (path, hrefs, name) in [
            (&b"/a b"[..], ["/a b", "/a b/x%20y"], "x%20y"),
            (b"/a", ["/a/", "/a/x%20y"], "x y"),
            (b"/a%20b", ["/a%20b/", "/a%20b/x%20y"], "x%20y"),
        ] {
            let (_, below) = read(body(hrefs).as_bytes(), path).unwrap();
            assert_eq!(below.into_keys().collect::<Vec<_>>(), [name.as_bytes()], "{hrefs:?}");
        }
    }

    #[test]
    fn a_hostile_listing_is_an_error_as_a_whole() {
        let length = "<D:getcontentlength>7</D:getcontentlength>";
        for (href, prop) in [
            ("/a%20b/..", length),
            ("/a%20b/%2e%2e", length),
            ("/a%20b/x/y", length),
            ("/a%20b/x%2Fy", length),
            ("/etc/passwd", length),
            ("/a%20b/x%00", length),
            ("/a%20b/x", ""),
            ("/a%20b/x", "<D:getcontentlength>-1</D:getcontentlength>"),
            ("/a%20b/x", "<D:getcontentlength>18446744073709551615</D:getcontentlength>"),
        ] {
            assert!(read(listing(&one(href, prop)).as_bytes(), b"/a b").is_err(), "{href} {prop}");
        }
        let bomb = "<!DOCTYPE a [<!ENTITY b 'cc'>]><multistatus>&b;</multistatus>";
        for body in [bomb, "<html/>", "", "<multistatus>", "<multistatus/>"] {
            assert!(read(body.as_bytes(), b"/a b").is_err(), "{body}");
        }
        let twice = one("/a%20b/x", length) + &one("/a%20b/x", length);
        assert!(read(listing(&twice).as_bytes(), b"/a b").is_err());
    }
}
