//! Asking etcd: one member after the other until one answers, all of them again while a leader may be on its way, with a token where there
//! is a user.
//!
//! Invariant: a request that changes something is sent to another member only while the first has surely not got it.

use crate::answer::{self, FAILED_PRECONDITION, Refusal, UNAUTHENTICATED, UNAVAILABLE};
use cluster::coordinator::{Answer, Fault, FaultKind};
use serde_json::{Value, json};
use std::fmt;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use web::{Client, ErrorKind, Origin, Request, Trust};
use zeroize::Zeroizing;

/// For one answer of all members together.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// For one step of one member.
const STEP: Duration = Duration::from_millis(1500);
/// Before all members are asked again.
const PAUSE: Duration = Duration::from_millis(100);
pub const ANSWER_BYTES_MAX: usize = 8 << 20;
pub const MEMBERS_MAX: usize = 16;

/// Where etcd is, and who asks.
#[derive(Clone, Default)]
pub struct Config {
    pub urls: Vec<String>,
    pub user: Option<(String, Zeroizing<String>)>,
    /// Certificate authorities in PEM; the host's without it.
    pub ca_file: Option<PathBuf>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("urls", &self.urls).finish_non_exhaustive()
    }
}

pub struct Gateway {
    members: Vec<Client>,
    /// The one that answered last.
    first: AtomicUsize,
    user: Option<(String, Zeroizing<String>)>,
    token: Mutex<Option<Zeroizing<String>>>,
}

/// Why there is no answer.
pub enum Failed {
    /// It may have been done.
    Unclear(Fault),
    /// It was not done.
    Not(Fault, u64),
}

/// Whether it may be sent twice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Harmless,
    Changes,
}

impl Gateway {
    /// Looks names up, which whoever gives up rights afterwards could not.
    pub fn new(config: Config) -> Answer<Gateway> {
        let wrong = |text: String, advice: &str| Fault { kind: FaultKind::Settings, text, advice: advice.to_owned() };
        if config.urls.is_empty() || config.urls.len() > MEMBERS_MAX {
            return Err(wrong(
                format!("etcd has 1 to {MEMBERS_MAX} addresses"),
                "write urls = [\"https://HOST:2379\", ...]",
            ));
        }
        let trust = config.ca_file.map_or(Trust::Host, Trust::File);
        let member = |url: &String| {
            let settings = |e: web::Error| wrong(format!("etcd: {e}"), "check `urls` and `ca-file` in [cluster]");
            let mut origin = Origin::parse(url).map_err(settings)?;
            if !origin.is_tls && !origin.is_loopback() {
                let text = format!("etcd at {} would be asked without TLS", origin.host);
                return Err(wrong(text, "use https://; http:// is for an etcd on this host"));
            }
            let found = (&origin.host[..], origin.port).to_socket_addrs();
            origin.addresses = found.map(Iterator::collect).unwrap_or_default();
            Client::new(origin, &trust).map(|client| client.within(STEP)).map_err(settings)
        };
        let members = config.urls.iter().map(member).collect::<Answer<Vec<_>>>()?;
        Ok(Gateway { members, first: AtomicUsize::new(0), user: config.user, token: Mutex::default() })
    }

    /// The answer of a member to a question, its status being 200.
    pub fn ask(&self, path: &'static str, question: &Value, effect: Effect) -> Result<Value, Failed> {
        let since = Instant::now();
        let answered = self.ask_with_token(path, question, effect, since);
        match answered {
            Err(Failed::Not(fault, code)) if is_of_token(code, &fault.text) && self.user.is_some() => {
                *self.token.lock().unwrap_or_else(PoisonError::into_inner) = None;
                // What becomes of that counts: it may have been done, or nobody answers any more.
                self.ask_with_token(path, question, effect, since)
            }
            answered => answered,
        }
    }

    fn ask_with_token(
        &self,
        path: &'static str,
        question: &Value,
        effect: Effect,
        since: Instant,
    ) -> Result<Value, Failed> {
        let token = self.token(since)?;
        let headers: Vec<_> = token.iter().map(|token| ("Authorization".to_owned(), token.to_string())).collect();
        self.ask_members(path, question, &headers, effect, since)
    }

    fn token(&self, since: Instant) -> Result<Option<Zeroizing<String>>, Failed> {
        let Some((user, password)) = &self.user else { return Ok(None) };
        if let Some(token) = &*self.token.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(Some(token.clone()));
        }
        let who = json!({"name": user, "password": &password[..]});
        let answer = self.ask_members("/v3/auth/authenticate", &who, &[], Effect::Harmless, since);
        let answer = answer.map_err(|failed| match failed {
            Failed::Not(mut fault, FAILED_PRECONDITION) => {
                fault.advice = "run `etcdctl auth enable`, or omit `user` and `password-file`".to_owned();
                Failed::Not(fault, FAILED_PRECONDITION)
            }
            failed => failed,
        })?;
        let token =
            answer.get("token").and_then(Value::as_str).filter(|token| token.is_ascii() && token.len() < 8 << 10);
        let token = token.ok_or_else(|| Failed::Not(malformed("it lets this user in and gives no token"), 0))?;
        let token = Zeroizing::new(token.to_owned());
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
        Ok(Some(token))
    }

    fn ask_members(
        &self,
        path: &'static str,
        question: &Value,
        headers: &[(String, String)],
        effect: Effect,
        since: Instant,
    ) -> Result<Value, Failed> {
        let body = Zeroizing::new(question.to_string());
        let request = Request { method: "POST", target: path, headers, body: body.as_bytes() };
        loop {
            match self.ask_each(&request, effect, since) {
                Err((_, true)) if since.elapsed() + PAUSE < PATIENCE => std::thread::park_timeout(PAUSE),
                answered => return answered.map_err(|(failed, _)| failed),
            }
        }
    }

    /// Each member once, until one answers. A failure comes with whether it may pass within moments.
    fn ask_each(&self, request: &Request<'_>, effect: Effect, since: Instant) -> Result<Value, (Failed, bool)> {
        let first = self.first.load(Relaxed);
        let (mut last, mut may_pass) = (None, false);
        for turn in 0..self.members.len() {
            let at = (first + turn) % self.members.len();
            if turn > 0 && since.elapsed() >= PATIENCE {
                break;
            }
            let failed = match one(&self.members[at], request, since) {
                Ok(answer) => {
                    self.first.store(at, Relaxed);
                    return Ok(answer);
                }
                Err(failed) => failed,
            };
            match failed {
                // Whoever asks next begins with another.
                Failed::Unclear(_) if effect == Effect::Changes => {
                    self.first.store((at + 1) % self.members.len(), Relaxed);
                    return Err((failed, false));
                }
                Failed::Not(ref fault, code) if is_word(fault) || is_of_token(code, &fault.text) => {
                    self.first.store(at, Relaxed);
                    return Err((failed, false));
                }
                failed => {
                    may_pass |= is_passing(&failed);
                    last = Some(failed);
                }
            }
        }
        self.first.store((first + 1) % self.members.len(), Relaxed);
        Err((last.unwrap_or_else(|| Failed::Not(malformed("it has no members"), 0)), may_pass))
    }
}

/// One member's answer.
fn one(member: &Client, request: &Request<'_>, since: Instant) -> Result<Value, Failed> {
    let unsent = |e: &web::Error| matches!(e.kind, ErrorKind::Unreachable | ErrorKind::Untrusted | ErrorKind::Settings);
    let mut response = member
        .send(request)
        .map_err(|e| if unsent(&e) { Failed::Not(of_web(&e), 0) } else { Failed::Unclear(of_web(&e)) })?;
    let (status, mut whole, mut block) = (response.status, Vec::new(), vec![0; 16 << 10]);
    loop {
        let read = response.read(&mut block).map_err(|e| Failed::Unclear(of_web(&e)))?;
        if whole.len() + read > ANSWER_BYTES_MAX {
            return Err(Failed::Unclear(malformed("its answer is longer than 8 MiB")));
        }
        if since.elapsed() > 2 * PATIENCE {
            return Err(Failed::Unclear(malformed("its answer does not end")));
        }
        match read {
            0 => break,
            read => whole.extend_from_slice(&block[..read]),
        }
    }
    let whole = Zeroizing::new(whole);
    if status == 200 {
        // Of a stream, what comes first.
        let answer = serde_json::Deserializer::from_slice(&whole).into_iter::<Value>().next();
        let answer = answer.and_then(Result::ok).filter(Value::is_object);
        return answer.ok_or_else(|| Failed::Unclear(malformed("its answer is no JSON object")));
    }
    let refusal = answer::refusal(status, &whole);
    let Some(refusal) = refusal else {
        let text = format!("{} answers {status}, and not as etcd does", member.origin().authority());
        return Err(Failed::Unclear(malformed(&text)));
    };
    Err(judge(&refusal))
}

/// A time-out of its own says nothing of what becomes of the request.
fn judge(refusal: &Refusal) -> Failed {
    let is_unclear = refusal.code > UNAUTHENTICATED || matches!(refusal.code, UNAVAILABLE | 1 | 2 | 4 | 10 | 13);
    let fault = answer::fault(refusal);
    if is_unclear && !is_of_token(refusal.code, &fault.text) {
        Failed::Unclear(fault)
    } else {
        Failed::Not(fault, refusal.code)
    }
}

/// A leader is being chosen, or a member is just starting: it was not done, or may be done twice.
fn is_passing(failed: &Failed) -> bool {
    matches!(failed, Failed::Unclear(fault) | Failed::Not(fault, 0) if fault.kind == FaultKind::Silent)
}

/// Another member would say the same.
fn is_word(fault: &Fault) -> bool {
    !matches!(fault.kind, FaultKind::Silent | FaultKind::Malformed)
}

/// What a new token may cure.
fn is_of_token(code: u64, text: &str) -> bool {
    code == UNAUTHENTICATED || text.contains("invalid auth token") || text.contains("revision of auth store is old")
}

fn of_web(e: &web::Error) -> Fault {
    let (kind, advice) = match e.kind {
        ErrorKind::Untrusted => (FaultKind::Silent, "check `ca-file` in [cluster], and the names in the certificate"),
        ErrorKind::Malformed => {
            (FaultKind::Malformed, "check `urls` in [cluster]: they are those for clients, by default port 2379")
        }
        ErrorKind::Settings => (FaultKind::Settings, "check `urls` in [cluster]"),
        _ => (FaultKind::Silent, "see whether a majority of its members runs, and whether this host reaches them"),
    };
    Fault { kind, text: format!("etcd: {e}"), advice: advice.to_owned() }
}

pub fn malformed(text: &str) -> Fault {
    let advice = "check `urls` in [cluster]: they are those for clients, by default port 2379".to_owned();
    Fault { kind: FaultKind::Malformed, text: format!("etcd: {text}"), advice }
}

impl From<Failed> for Fault {
    fn from(failed: Failed) -> Fault {
        match failed {
            Failed::Unclear(fault) | Failed::Not(fault, _) => fault,
        }
    }
}
