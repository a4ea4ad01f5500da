//! Copies between two servers without a way through this host (HTTP third-party copy of the WLCG): one is told to fetch from the
//! other, or to send to it.
//!
//! Invariants: what a server says that it copied counts when both state the same Adler-32 of it and the same length; a token goes to
//! another server only if the user gave both the same one, and otherwise as a macaroon for one path and one hour. What was given up may
//! still be written: nothing else is written to its name.

use crate::failure::{Failure, Result, Why};
use crate::path;
use crate::reading::{DavFile, adler32};
use crate::site::{Asked, Site};
use model::mutant;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use web::{Origin, Response};

/// Without more bytes by the server's markers, which come every few seconds.
const PROGRESS_MAX: Duration = Duration::from_secs(120);
/// Of a line of markers.
pub const MARKER_BYTES_MAX: usize = 4 << 10;
const MACAROON_BYTES_MAX: usize = 16 << 10;

/// What came of copies between servers.
#[derive(Default)]
pub struct ThirdParty {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    fetched: (u64, u64),
    sent: (u64, u64),
    /// Why it is not tried any more, and how often it failed.
    refusals: Vec<String>,
    is_over: bool,
}

/// Refusals of one job, after which it is not tried any more.
const REFUSALS_MAX: usize = 4;

impl ThirdParty {
    fn may_try(&self) -> bool {
        !self.state.lock().unwrap().is_over
    }

    fn done(&self, is_fetched: bool, bytes: u64) {
        let mut state = self.state.lock().unwrap();
        let (count, sum) = if is_fetched { &mut state.fetched } else { &mut state.sent };
        (*count, *sum) = (*count + 1, *sum + bytes);
    }

    fn refused(&self, why: String, is_final: bool) {
        let mut state = self.state.lock().unwrap();
        state.refusals.push(why);
        state.is_over |= is_final || state.refusals.len() >= REFUSALS_MAX;
    }

    pub fn notes(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let told = |(count, bytes): (u64, u64), how: &str| {
            let bytes = model::quantity::ByteCount(bytes);
            let files = if count == 1 { "file" } else { "files" };
            (count > 0)
                .then(|| format!("{count} {files}, {bytes}, went from server to server: {how} (third-party copy)"))
        };
        let fetched = told(state.fetched, "the destination fetched them");
        let sent = told(state.sent, "the source sent them");
        let refused = state.refusals.first().map(|why| format!("no third-party copy, but through this host: {why}"));
        fetched.into_iter().chain(sent).chain(refused).collect()
    }
}

/// A file that the second server has.
pub struct Copied {
    pub path: Vec<u8>,
    pub adler: u32,
}

/// The two ends of one copy.
struct Ends<'a> {
    source: &'a Site,
    target: &'a Site,
    from: &'a [u8],
    to: &'a [u8],
    size_bytes: u64,
}

impl ThirdParty {
    /// Has two servers copy a file to where it is staged at the second. Nothing where this host has to do it. Each attempt has a path of
    /// its own; those in `given_up` may be there, and appear yet.
    pub fn copy(
        &self,
        file: &DavFile,
        target: &Site,
        paths: [Vec<u8>; 2],
        given_up: &mut Vec<Vec<u8>>,
    ) -> Option<Copied> {
        let source = file.site();
        let is_secure = |origin: &Origin| origin.is_tls || origin.is_loopback();
        if !self.may_try() || source.is_plain {
            return None;
        }
        if !is_secure(source.origin()) || source.origin().is_tls != target.origin().is_tls {
            self.refused("one of the two connections is not encrypted".to_owned(), true);
            return None;
        }
        let mut refusals = Vec::new();
        for (is_fetch, path) in [true, false].into_iter().zip(paths) {
            let ends = Ends { source, target, from: file.path(), to: &path, size_bytes: file.size_bytes() };
            let copied = if is_fetch { ends.fetch() } else { ends.send() };
            match copied.and_then(|()| ends.judge()) {
                Ok(adler) => {
                    self.done(is_fetch, ends.size_bytes);
                    return Some(Copied { path, adler });
                }
                Err(failure) => {
                    let (who, does) = if is_fetch { (target.origin(), "fetch") } else { (source.origin(), "send") };
                    refusals.push((format!("{} does not {does} it ({failure})", who.authority()), failure.why));
                    let _ = target.delete(&path);
                    given_up.push(path);
                }
            }
            if target.is_stopped() {
                return None;
            }
        }
        let is_final = refusals.iter().all(|(_, why)| matches!(why, Why::Other | Why::Forbidden | Why::Credentials));
        let texts: Vec<_> = refusals.into_iter().map(|(text, _)| text).collect();
        self.refused(texts.join("; "), is_final);
        None
    }
}

impl Ends<'_> {
    fn fetch(&self) -> Result<()> {
        let mut headers = vec![("Source", self.source.url(&path::encoded(self.from)))];
        headers.extend(passes(self.source, self.target, self.from, "DOWNLOAD")?);
        self.target.copy(self.to, headers)
    }

    fn send(&self) -> Result<()> {
        let mut headers = vec![("Destination", self.target.url(&path::encoded(self.to)))];
        headers.extend(passes(self.target, self.source, self.to, "UPLOAD,MANAGE")?);
        self.source.copy(self.from, headers)
    }

    /// Both say that they have the same.
    fn judge(&self) -> Result<u32> {
        let (size, stated) = self.target.state(self.to, self.size_bytes)?;
        let (_, there) = self.source.state(self.from, self.size_bytes)?;
        match (stated, there) {
            (Some(one), Some(two)) if one == two && size == self.size_bytes => Ok(one),
            (_, Some(two)) if mutant::is_on("dav-end-of-markers-is-success") => Ok(two),
            (Some(_), Some(_)) => Err(Failure::new(Why::Damaged, "what it copied is not what the source holds")),
            _ => Err(Failure::new(Why::Other, "without an Adler-32 of both nobody could compare them")),
        }
    }
}

/// The header by which one server proves to another that it may.
fn passes(of: &Site, to: &Site, path: &[u8], activity: &str) -> Result<Option<(&'static str, String)>> {
    let pass = match of.token() {
        None => return Ok(None),
        Some(token) if to.token().as_ref() == Some(&token) => token,
        Some(_) => of.macaroon(path, activity)?,
    };
    Ok(Some(("TransferHeaderAuthorization", format!("Bearer {pass}"))))
}

impl Site {
    /// The length and the Adler-32 that a server states of a file.
    fn state(&self, path: &[u8], size_bytes: u64) -> Result<(u64, Option<u32>)> {
        let response = self.digest_of(path, size_bytes)?;
        let size = response.length().ok_or_else(|| Failure::new(Why::Other, "it does not say how long the file is"))?;
        Ok((size, response.header("digest").and_then(adler32)))
    }

    /// A pass for one path, which the server makes of the token.
    fn macaroon(&self, path: &[u8], activity: &str) -> Result<String> {
        let body = format!("{{\"caveats\": [\"activity:{activity}\"], \"validity\": \"PT60M\"}}");
        let headers = [("Content-Type", "application/macaroon-request".to_owned())];
        let asked = Asked {
            method: "POST",
            headers: &headers,
            body: body.as_bytes(),
            wanted: &[200],
            patience: Duration::ZERO,
        };
        let none = || {
            let who = self.origin().authority();
            Failure::new(Why::Other, format!("{who} makes no macaroon, and its token goes to no other server"))
        };
        let answer = self.ask_for(&asked, path).map_err(|failure| match failure.why {
            Why::Other => none(),
            _ => failure,
        })?;
        let answer = answer.into_bytes(MACAROON_BYTES_MAX).map_err(|e| Failure::of_web(&e))?;
        let text = String::from_utf8_lossy(&answer);
        let value = text.split_once("\"macaroon\"").and_then(|(_, rest)| rest.split('"').nth(1));
        let is_pass = |value: &&str| !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic());
        value.filter(is_pass).map(str::to_owned).ok_or_else(none)
    }

    /// Has the server copy, and hears its markers to their end.
    fn copy(&self, path: &[u8], mut headers: Vec<(&str, String)>) -> Result<()> {
        headers.push(("Credential", "none".to_owned()));
        headers.push(("Overwrite", "T".to_owned()));
        let wanted = &[200, 201, 202, 204];
        let asked = Asked { method: "COPY", headers: &headers, body: b"", wanted, patience: PROGRESS_MAX };
        let response = self.ask_once(&asked, path)?;
        if response.status == 204 || response.length() == Some(0) {
            return Ok(());
        }
        let passes = headers.iter().filter_map(|(_, value)| value.strip_prefix("Bearer ")).map(str::to_owned);
        let secrets = passes.chain(self.token()).filter(|secret| !secret.is_empty()).collect();
        self.hear(response, Markers { secrets, ..Markers::default() })
    }

    fn hear(&self, mut response: Response, mut markers: Markers) -> Result<()> {
        let (mut block, mut since) = (vec![0; 4 << 10], Instant::now());
        loop {
            let read = response.read(&mut block).map_err(|e| Failure::of_web(&e))?;
            if read == 0 {
                return markers.end();
            }
            if markers.take(&block[..read])? {
                since = Instant::now();
            }
            // A server that sends a marker each second would hide from a waiting read that it is to stop.
            if self.is_stopped() {
                return Err(Failure::new(Why::Unknown, "interrupted"));
            }
            if since.elapsed() > PROGRESS_MAX {
                return Err(Failure::new(Why::Unknown, "it made no progress for two minutes"));
            }
        }
    }
}

/// The markers of one copy, as their bytes come.
#[derive(Default)]
pub struct Markers {
    /// What the server was given to prove itself with, and may repeat: it is not told.
    secrets: Vec<String>,
    line: Vec<u8>,
    /// The last line that told of bytes.
    progress: String,
    /// What the last line said that told of the end.
    outcome: Option<Result<()>>,
}

impl Markers {
    /// Hears some bytes; whether they tell of more that was copied.
    pub fn take(&mut self, bytes: &[u8]) -> Result<bool> {
        let mut has_moved = false;
        for byte in bytes {
            match byte {
                b'\n' => has_moved |= self.end_line(),
                _ if self.line.len() < MARKER_BYTES_MAX => self.line.push(*byte),
                _ => return Err(Failure::new(Why::Unknown, "its markers have no end")),
            }
        }
        Ok(has_moved)
    }

    /// What came of the copy. Without a word on its end, whether it was done is seen by what lies there.
    pub fn end(mut self) -> Result<()> {
        self.end_line();
        self.outcome.unwrap_or(Ok(()))
    }

    fn end_line(&mut self) -> bool {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line).into_owned();
        let line = self.secrets.iter().fold(line, |line, secret| line.replace(&secret[..], "[...]"));
        let line = line.trim();
        if let Some(outcome) = outcome(line) {
            self.outcome = Some(outcome);
        }
        let has_moved = begins(line, "stripe bytes transferred") && line != self.progress;
        if has_moved {
            line.clone_into(&mut self.progress);
        }
        has_moved
    }
}

/// What a line of markers says of the end, if it does.
fn outcome(line: &str) -> Option<Result<()>> {
    if ["failure", "failed", "aborted"].into_iter().any(|word| begins(line, word)) {
        let text: String = line.chars().filter(|c| !c.is_control()).take(200).collect();
        return Some(Err(Failure::new(Why::Other, text)));
    }
    begins(line, "success").then_some(Ok(()))
}

fn begins(line: &str, word: &str) -> bool {
    line.to_ascii_lowercase().starts_with(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::SiteConfig;
    use fakes::http::{Said, serve};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use web::Stop;

    #[test]
    fn a_server_that_goes_on_with_its_markers_does_not_hold_whoever_is_to_stop() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = Origin::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(stream, &|_| Said::new(202, b"Perf Marker\nsuccess: Created\n"));
            }
        });
        let stop = Stop::by(Arc::new(AtomicBool::new(true)));
        let site = Site::new(origin, None, false, &SiteConfig::default(), stop).unwrap();
        assert_eq!(site.copy(b"/x", Vec::new()).unwrap_err().text, "interrupted");
    }

    #[test]
    fn the_end_of_markers_is_told_by_its_own_line() {
        assert!(matches!(outcome("success: Created"), Some(Ok(()))));
        for line in ["failure: 404", "Failed to connect", "aborted: by a user"] {
            assert!(matches!(outcome(line), Some(Err(_))), "{line}");
        }
        assert!(outcome("Perf Marker").is_none() && outcome("").is_none());
    }

    #[test]
    fn a_pass_that_the_server_repeats_is_not_told() {
        let mut markers = Markers { secrets: vec!["MDAyZ".into(), "token".into()], ..Markers::default() };
        markers.take(b"failure: 401 for Bearer MDAyZ and token\n").unwrap();
        assert_eq!(markers.end().unwrap_err().text, "failure: 401 for Bearer [...] and [...]");
    }
}
