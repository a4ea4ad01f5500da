//! Single requests to one server: redirects, repetitions, and the token, which is read again when it is refused.
//!
//! Invariant: with a token nothing is asked of another host that the user has not named, and never less than TLS where TLS was asked
//! for.

use crate::digests::Digests;
use crate::failure::{Failure, Result, Why};
use crate::habits::Habits;
use crate::path;
use crate::token;
use model::{VersionToken, mutant};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};
use web::{Begun, Client, Crew, Origin, PROGRESS_MAX, Request, Response, Stop, Trust, Upload, WIDTH};

const REDIRECTS_MAX: usize = 5;
const TRIES_MAX: u32 = 4;
/// However long a server wants not to be asked again.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// Servers that redirects led to, with their connections: one that sends each request elsewhere could go on for ever.
const OTHERS_MAX: usize = 64;

/// What the user says of a server, in a table `[stores.NAME]`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SiteConfig {
    /// `davs://HOST:PORT`: the server that is meant.
    pub endpoint: String,
    pub ca_file: Option<PathBuf>,
    pub token_file: Option<PathBuf>,
    /// Requests may go out unencrypted to other hosts.
    pub allow_clear: bool,
    /// Hosts to which the token may follow a redirect.
    pub redirect_hosts: Vec<String>,
}

pub struct Site {
    client: Client,
    token: Mutex<Option<String>>,
    /// Where the user has the token of this server, if not where that of the process is.
    token_file: Option<PathBuf>,
    redirect_hosts: Vec<String>,
    trust: Trust,
    /// Where redirects led.
    others: Mutex<HashMap<String, Client>>,
    /// Single files by HEAD, no listings.
    pub is_plain: bool,
    pub storage: u64,
    /// Known once something is written.
    pub habits: OnceLock<Habits>,
    /// It sent a PUT elsewhere before, and is waited for until it says where to.
    redirects_puts: AtomicBool,
    /// Whose turn it is to ask it for checksums.
    pub digests: Digests,
    /// The shortest time in which a request was answered.
    nearest_us: AtomicU64,
    /// Threads that fetch small files ahead.
    pub crew: Crew,
    /// Memory for these files, of all lanes.
    pub ahead_bytes: AtomicU64,
}

/// A server is far if none of its answers came sooner.
const FAR_US: u64 = 5_000;

/// One request, before it is addressed.
pub struct Asked<'a> {
    pub method: &'static str,
    pub headers: &'a [(&'a str, String)],
    pub body: &'a [u8],
    /// Answers that are a success.
    pub wanted: &'a [u16],
    /// How long the answer may take to begin; nothing for what is usual.
    pub patience: Duration,
}

impl Site {
    pub fn new(origin: Origin, token: Option<String>, is_plain: bool, config: &SiteConfig, stop: Stop) -> Result<Site> {
        let storage = VersionToken::of_tag(origin.authority().as_bytes(), 0).object();
        let trust = config.ca_file.clone().map_or(Trust::Host, Trust::File);
        let client = Client::stopped_by(origin, &trust, stop).map_err(|e| Failure::of_web(&e))?;
        Ok(Site {
            client,
            token: Mutex::new(token),
            token_file: config.token_file.clone(),
            redirect_hosts: config.redirect_hosts.clone(),
            trust,
            others: Mutex::default(),
            is_plain,
            storage,
            habits: OnceLock::new(),
            redirects_puts: AtomicBool::new(false),
            digests: Digests::default(),
            nearest_us: AtomicU64::new(u64::MAX),
            crew: Crew::new(WIDTH),
            ahead_bytes: AtomicU64::new(0),
        })
    }

    pub fn origin(&self) -> &Origin {
        self.client.origin()
    }

    /// The URL of a path there, as other servers and headers have it.
    pub fn url(&self, path: &str) -> String {
        let origin = self.origin();
        format!("{}://{}{path}", if origin.is_tls { "https" } else { "http" }, origin.authority())
    }

    /// Asks until the answer is a success that `wanted` names. XRootD knows headers only by their usual capitals.
    pub fn ask(
        &self,
        method: &'static str,
        path: &[u8],
        headers: &[(&str, String)],
        wanted: &[u16],
    ) -> Result<Response> {
        self.ask_for(&Asked { method, headers, body: b"", wanted, patience: Duration::ZERO }, path)
    }

    pub fn ask_for(&self, asked: &Asked<'_>, path: &[u8]) -> Result<Response> {
        self.with_token(|was_asked| self.ask_again(asked, path, was_asked))
    }

    fn ask_again(&self, asked: &Asked<'_>, path: &[u8], was_asked_before: bool) -> Result<Response> {
        let mut wait = Duration::from_millis(100);
        for tried in 1.. {
            let failure = match self.follow(asked, path, false) {
                Ok(response) if asked.wanted.contains(&response.status) => return Ok(response),
                Ok(response) => self.refused(response, was_asked_before || tried > 1),
                Err(failure) => failure,
            };
            if tried == TRIES_MAX || !failure.may_pass_after(tried) || !self.client.stop().wait(pause(&failure, wait)) {
                return Err(failure);
            }
            wait *= 4;
        }
        unreachable!("the last try returns")
    }

    /// Whether requests are on their way for longer than the server works on them, as far as its fastest answer tells.
    pub fn is_far(&self) -> bool {
        (FAR_US..u64::MAX).contains(&self.nearest_us.load(Relaxed))
    }

    /// Asks once: the request is one that does its work whether it is answered or not.
    pub fn ask_once(&self, asked: &Asked<'_>, path: &[u8]) -> Result<Response> {
        self.once(asked, path, false)
    }

    /// The same over connections on which nothing was asked before.
    pub fn ask_anew(&self, asked: &Asked<'_>, path: &[u8]) -> Result<Response> {
        self.once(asked, path, true)
    }

    fn once(&self, asked: &Asked<'_>, path: &[u8], is_new: bool) -> Result<Response> {
        self.with_token(|was_asked| match self.follow(asked, path, is_new)? {
            response if asked.wanted.contains(&response.status) => Ok(response),
            response => Err(self.refused(response, was_asked)),
        })
    }

    pub fn token(&self) -> Option<String> {
        self.token.lock().unwrap().clone()
    }

    /// Makes a request, and makes it once more where the token was refused and is another one by now. `attempt` is told whether the
    /// request was made before.
    fn with_token<T>(&self, attempt: impl Fn(bool) -> Result<T>) -> Result<T> {
        let token = self.token();
        match attempt(false) {
            Err(failure) if failure.why == Why::Credentials && self.renew(token.as_deref()) => {
                attempt(failure.is_repeated)
            }
            attempted => attempted,
        }
    }

    /// Reads the token again, of which this one was refused; true where it is another one.
    fn renew(&self, refused: Option<&str>) -> bool {
        let mut token = self.token.lock().unwrap();
        // Another request may have been faster.
        if token.as_deref() != refused {
            return true;
        }
        match token::find(self.token_file.as_deref(), self.origin()) {
            Ok(Some(found)) if Some(&found[..]) != refused => {
                *token = Some(found);
                true
            }
            _ => false,
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.client.stop().is_set()
    }

    /// Begins a request whose body is sent piece by piece.
    pub fn begin(&self, path: &[u8], headers: &[(&str, String)], length: Option<u64>) -> Result<Upload> {
        self.with_token(|_| self.begin_again(path, headers, length))
    }

    fn begin_again(&self, path: &[u8], headers: &[(&str, String)], length: Option<u64>) -> Result<Upload> {
        let mut wait = Duration::from_millis(100);
        for tried in 1.. {
            let failure = match self.follow_upload(path, headers, length) {
                Ok(Begun::Upload(upload)) => return Ok(*upload),
                Ok(Begun::Answer(response)) => self.refused(*response, false),
                Err(failure) => failure,
            };
            if tried == TRIES_MAX || !failure.may_pass_after(tried) || !self.client.stop().wait(pause(&failure, wait)) {
                return Err(failure);
            }
            wait *= 4;
        }
        unreachable!("the last try returns")
    }

    /// What an answer says that is not the one that was wanted.
    pub fn refused(&self, response: Response, was_asked_before: bool) -> Failure {
        if (200..300).contains(&response.status) {
            let text = format!("the server answered with status {}, which is no answer to that", response.status);
            return Failure::new(Why::Other, text);
        }
        if is_redirect(&response) {
            // It is heard in time when the file is sent again.
            self.redirects_puts.store(true, Relaxed);
            return Failure::new(Why::Other, "the server sent the file elsewhere when it was under way already");
        }
        let is_repeated = was_asked_before || response.is_resent;
        let wait = response.header("retry-after").and_then(|text| text.parse().ok()).map(Duration::from_secs);
        Failure { is_repeated, wait, ..Failure::of_status(response.status, self.token().is_some()) }
    }

    fn headers(&self, of: &[(&str, String)]) -> Vec<(String, String)> {
        let mut headers: Vec<(String, String)> =
            of.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        headers.push(("User-Agent".to_owned(), "thalweg".to_owned()));
        if let Some(token) = self.token() {
            headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
        }
        headers
    }

    fn follow(&self, asked: &Asked<'_>, path: &[u8], is_new: bool) -> Result<Response> {
        let headers = self.headers(asked.headers);
        // What proves to another server that this one may.
        let has_pass = asked.headers.iter().any(|(name, _)| *name == "TransferHeaderAuthorization");
        let by = |client: Client| if is_new { client.anew() } else { client };
        let (mut client, mut target) = (by(self.client.clone()), path::encoded(path));
        for _ in 0..=REDIRECTS_MAX {
            let request = Request { method: asked.method, target: &target, headers: &headers, body: asked.body };
            let began = Instant::now();
            let response = client.patient(asked.patience).send(&request).map_err(|e| Failure::of_web(&e))?;
            self.nearest_us.fetch_min(began.elapsed().as_micros() as u64, Relaxed);
            match self.redirect(&response, client, has_pass)? {
                None => return Ok(response),
                Some((to, at)) => (client, target) = (by(to), at),
            }
            if asked.method == "PUT" {
                self.redirects_puts.store(true, Relaxed);
            }
        }
        Err(in_circles())
    }

    fn follow_upload(&self, path: &[u8], headers: &[(&str, String)], length: Option<u64>) -> Result<Begun> {
        let headers = self.headers(headers);
        let (mut client, mut target) = (self.client.clone(), path::encoded(path));
        for redirects in 0..=REDIRECTS_MAX {
            let request = Request { method: "PUT", target: &target, headers: &headers, body: b"" };
            // Whoever it is sent to sends it nowhere else, as a rule, and may give no leave.
            let begun = match redirects == 0 && self.redirects_puts.load(Relaxed) {
                true => client.begin_within(&request, length, PROGRESS_MAX),
                false => client.begin(&request, length),
            };
            let response = match begun.map_err(|e| Failure::of_web(&e))? {
                Begun::Answer(response) => *response,
                upload => return Ok(upload),
            };
            match self.redirect(&response, client, false)? {
                None => return Ok(Begun::Answer(Box::new(response))),
                Some(next) => (client, target) = next,
            }
            self.redirects_puts.store(true, Relaxed);
        }
        Err(in_circles())
    }

    /// Where an answer sends the client, if it does.
    fn redirect(&self, response: &Response, client: Client, has_pass: bool) -> Result<Option<(Client, String)>> {
        if !is_redirect(response) {
            return Ok(None);
        }
        let location = response.header("location").unwrap_or_default().to_owned();
        if location.starts_with('/') && !location.starts_with("//") {
            return Ok(Some((client, location)));
        }
        let after = location.split_once("://").map_or("", |(_, rest)| rest);
        let end = location.len() - after.len() + after.find(['/', '?']).unwrap_or(after.len());
        let origin = Origin::parse(&location[..end])
            .map_err(|_| Failure::new(Why::Untrusted, "the server redirects to an address that is none"))?;
        let home = self.client.origin();
        let may_have_token =
            origin.is_tls && self.redirect_hosts.contains(&origin.host) || mutant::is_on("dav-token-follows-redirects");
        let to = origin.authority();
        if origin != *home && (self.token().is_some() || has_pass) && !may_have_token {
            let text = format!("the server redirects to {to}, where this token does not go");
            return Err(Failure::new(Why::Untrusted, text));
        }
        if home.is_tls && !origin.is_tls {
            let text = format!("the server redirects to {to}, which is not encrypted");
            return Err(Failure::new(Why::Untrusted, text));
        }
        let mut target = location[end..].to_owned();
        if !target.starts_with('/') {
            target.insert(0, '/');
        }
        Ok(Some((self.at(origin)?, target)))
    }

    fn at(&self, origin: Origin) -> Result<Client> {
        if origin == *self.client.origin() {
            return Ok(self.client.clone());
        }
        let mut others = self.others.lock().unwrap();
        if let Some(client) = others.get(&origin.authority()) {
            return Ok(client.clone());
        }
        let shown = origin.authority();
        let client = self.client.elsewhere(origin, &self.trust).map_err(|e| Failure::of_web(&e))?;
        if others.len() >= OTHERS_MAX {
            others.clear();
        }
        others.insert(shown, client.clone());
        Ok(client)
    }
}

/// Before another attempt: what is usual, or longer where the server says so.
fn pause(failure: &Failure, usual: Duration) -> Duration {
    failure.wait.unwrap_or_default().clamp(usual, WAIT_MAX)
}

fn is_redirect(response: &Response) -> bool {
    matches!(response.status, 301 | 302 | 303 | 307 | 308)
}

fn in_circles() -> Failure {
    Failure::new(Why::Other, format!("the server redirects more than {REDIRECTS_MAX} times"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fakes::http::{Said, serve};
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_token_goes_to_no_other_host() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let abroad = TcpListener::bind("127.0.0.1:0").unwrap();
        abroad.set_nonblocking(true).unwrap();
        let to = format!("http://{}/x", abroad.local_addr().unwrap());
        let origin = Origin::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(stream, &|asked| {
                    assert_eq!(asked.header("authorization"), Some("Bearer hunter2"));
                    Said::new(307, b"").with("location", &to)
                });
            }
        });
        let site =
            Site::new(origin, Some("hunter2".to_owned()), false, &SiteConfig::default(), Stop::default()).unwrap();
        let failure = site.ask("GET", b"/x", &[], &[200]).err().unwrap();
        assert!(failure.why == Why::Untrusted && !failure.text.contains("hunter2"), "{failure}");
        assert!(failure.text.contains("where this token does not go"), "{failure}");
        assert_eq!(abroad.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_server_says_when_it_may_be_asked_again_within_bounds() {
        let usual = Duration::from_millis(400);
        let paused = |wait: Option<u64>| {
            let wait = wait.map(Duration::from_secs);
            pause(&Failure { wait, ..Failure::new(Why::Busy, "later") }, usual)
        };
        let seconds = Duration::from_secs;
        assert_eq!([None, Some(0), Some(3), Some(u64::MAX)].map(paused), [usual, usual, seconds(3), WAIT_MAX]);
    }

    #[test]
    fn of_servers_that_redirects_led_to_no_more_are_kept_than_may_be() {
        let origin = |number: usize| Origin::parse(&format!("http://far{number}.example")).unwrap();
        let site = Site::new(origin(0), None, false, &SiteConfig::default(), Stop::default()).unwrap();
        for number in 1..=2 * OTHERS_MAX {
            assert_eq!(site.at(origin(number)).ok().unwrap().origin(), &origin(number));
            assert!(site.others.lock().unwrap().len() <= OTHERS_MAX);
        }
    }

    /// Sends each PUT of five bytes elsewhere; one that asks for leave after longer than a server is usually waited for.
    fn send_elsewhere(mut stream: TcpStream, to: &str) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut body = [0; 5];
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if !reader.read_line(&mut head).is_ok_and(|read| read > 0) {
                    return;
                }
            }
            let asks = head.contains("100-continue");
            match asks {
                // Whoever does not wait so long sends the body.
                true => {
                    stream.set_read_timeout(Some(Duration::from_millis(1300))).unwrap();
                    let _ = stream.peek(&mut body);
                    stream.set_read_timeout(None).unwrap();
                }
                false => reader.read_exact(&mut body).unwrap(),
            }
            let said = format!("HTTP/1.1 307 X\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
            if stream.write_all(said.as_bytes()).is_err() || asks {
                // Without what comes of the body the answer would be lost with the connection.
                let _ = reader.read_exact(&mut body);
                return;
            }
        }
    }

    #[test]
    fn a_server_that_sends_files_elsewhere_is_waited_for_from_then_on() {
        let (listener, there) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let to = format!("http://{}/there", there.local_addr().unwrap());
        let origin = Origin::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let to = to.clone();
                std::thread::spawn(move || send_elsewhere(stream, &to));
            }
        });
        std::thread::spawn(move || {
            for stream in there.incoming().flatten() {
                std::thread::spawn(move || serve(stream, &|_| Said::new(201, b"")));
            }
        });
        let site = || Site::new(origin.clone(), None, false, &SiteConfig::default(), Stop::default()).unwrap();
        // A small file is sent whole, and tells what becomes of a large one.
        let first = site();
        first.put(b"/x", &[], b"small").unwrap();
        let mut upload = first.begin(b"/x", &[], Some(5)).unwrap();
        upload.write(b"large").unwrap();
        assert_eq!(upload.finish().unwrap().status, 201);
        // So does a large one that was under way already.
        let second = site();
        let request = Request { method: "PUT", target: "/x", headers: &[], body: b"large" };
        let answer = second.client.send(&request).unwrap();
        assert!(!second.redirects_puts.load(Relaxed));
        let failure = second.refused(answer, false);
        assert!(failure.text.contains("elsewhere") && second.redirects_puts.load(Relaxed), "{failure}");
    }
}
