//! Requests to one bucket: addressed, signed, and sent again where that helps.
//!
//! Invariants: a request is sent at most `ATTEMPTS_MAX` times, and all requests of a bucket share one budget of retries, so that a
//! store in trouble is not asked ever more often. Each cure (other keys, another clock, another region) is tried once a request.

use crate::at_once::{self, AtOnce};
use crate::config::StoreConfig;
use crate::credentials::{Credentials, Keys};
use crate::failure::{Failure, Result, Why};
use crate::known::Known;
use crate::metadata::header_moment;
use crate::sign::{Signed, encode, sign};
use crate::version::Beginning;
use crate::width::Permits;
use aws_lc_rs::rand;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use web::{Client, Crew, Request, Response, Stop, Trust};

const ATTEMPTS_MAX: u32 = 8;
/// One answer in a hundred that goes wrong says nothing of the store: the first wait is short.
const WAIT_FIRST: Duration = Duration::from_millis(20);
const WAIT_MIN: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(20);
/// What retries may cost in all, beyond what successes earn.
const BUDGET_MAX: i64 = 500;
const COST_OF_RETRY: i64 = 5;
const COST_OF_SILENCE: i64 = 10;
/// Of an answer that is read whole: a full page of a listing is below 8 MiB.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// What S3 copies by one request.
const COPY_BYTES_MAX: u64 = 5 << 30;
/// Parts on their way, in bytes: what a transfer keeps in memory beside its own.
const IN_FLIGHT_BYTES: u64 = 128 << 20;

/// Connections that are opened before they are needed.
const WARM_MAX: usize = 16;
/// A row of requests that is worth a thread for each that may be under way.
const LONG_ROW: usize = 512;

pub struct Bucket {
    pub name: String,
    /// As the user names it: `s3://NAME`.
    pub shown: String,
    client: Client,
    is_in_path: bool,
    credentials: Credentials,
    region: Mutex<String>,
    /// What the store's clock is ahead of this host's, in seconds.
    ahead_seconds: AtomicI64,
    budget: AtomicI64,
    /// It is there, or was: a server that is started again is waited for.
    has_answered: AtomicBool,
    /// Requests under way.
    pub at_once: AtOnce,
    /// Threads for small requests.
    pub crew: Crew,
    /// Memory for bodies under way.
    pub permits: Permits,
    /// Known after the first object that is published on one.
    pub conditions: Mutex<Option<Conditions>>,
    /// A listing's beginning that was asked for when the bucket was opened, for whoever lists first.
    pub beginning: Mutex<Option<Beginning>>,
    /// What was learnt of versions of its objects, where this host keeps that.
    pub known: Option<Known>,
    /// Longer objects are copied in parts.
    pub copy_bytes_max: u64,
    /// The store refused to make the copy itself.
    pub copies_not: AtomicBool,
}

/// Which conditions a store keeps to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Conditions {
    pub absent: bool,
    pub version: bool,
}

/// A request, before it is addressed and signed.
#[derive(Clone, Default)]
pub struct Call<'a> {
    pub method: &'static str,
    /// `None` for the bucket itself.
    pub key: Option<&'a str>,
    pub query: Vec<(&'static str, String)>,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: &'a [u8],
    /// How long the answer may take to begin; nothing for what is usual.
    pub patience: Duration,
}

/// An answer that was read whole.
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.trim())
    }
}

/// Each of these is tried once.
#[derive(Default)]
struct Cures {
    keys: bool,
    clock: bool,
    region: bool,
}

impl Bucket {
    pub fn new(name: &str, shown: String, config: &StoreConfig, stop: Stop) -> Result<Bucket> {
        let settings = |text: String| Failure::new(Why::Settings, text);
        let (origin, is_in_path) = config.origin(name).map_err(settings)?;
        let trust = config.ca_file.clone().map_or(Trust::Host, Trust::File);
        let client = Client::stopped_by(origin, &trust, stop).map_err(|e| Failure::of_web(&e))?;
        Ok(Bucket {
            name: name.to_owned(),
            shown,
            client,
            is_in_path,
            credentials: Credentials::new(config),
            region: Mutex::new(config.region()),
            ahead_seconds: AtomicI64::new(0),
            budget: AtomicI64::new(BUDGET_MAX),
            has_answered: AtomicBool::new(false),
            at_once: AtOnce::new(),
            crew: Crew::new(at_once::MAX),
            permits: Permits::new(IN_FLIGHT_BYTES),
            conditions: Mutex::default(),
            beginning: Mutex::default(),
            known: None,
            copy_bytes_max: config.copy_bytes_max.unwrap_or(COPY_BYTES_MAX),
            copies_not: AtomicBool::new(false),
        })
    }

    /// What was found out about the store.
    pub fn notes(&self) -> Vec<String> {
        self.at_once.note(&self.shown).into_iter().collect()
    }

    /// Does the same to many by requests, as many at once as the store is good for.
    pub fn in_parallel<T: Sync, R: Send>(&self, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
        web::in_parallel(self.at_once.limit(), items, work)
    }

    /// The same, and tells of each as soon as it is done. Of a long row more may be under way in the end than at first.
    pub fn each_in_parallel<T: Send + 'static, R: Send + 'static>(
        &self,
        items: Vec<T>,
        work: impl Fn(T) -> R + Send + Sync + 'static,
        told: &mut dyn FnMut(usize, R) -> bool,
    ) {
        let width = if items.len() > LONG_ROW { at_once::MAX } else { self.at_once.limit() };
        self.crew.each(width, items, work, told);
    }

    /// Sends a request until it is answered, and reads the answer; `takes` says whether a success is one.
    pub fn call(&self, call: &Call<'_>, takes: impl Fn(&Answer) -> bool) -> Result<Answer> {
        let mut is_repeated = false;
        self.repeat(call, |call, keys| {
            let was_sent = std::mem::replace(&mut is_repeated, true);
            let response = self.send(call, keys)?;
            let answer = self.read(response, call, was_sent)?;
            match takes(&answer) {
                true => Ok(answer),
                false => Err(Failure::of_answer(answer.status, &answer.body, call.key.is_some())),
            }
        })
    }

    /// Sends a request once, and reads whatever comes.
    pub fn call_once(&self, call: &Call<'_>) -> Result<Answer> {
        let keys = self.credentials.keys().map_err(|text| Failure::new(Why::Keys, text))?;
        self.read(self.send(call, keys.as_ref())?, call, false)
    }

    /// Sends a request until its answer begins; the body is the caller's to read.
    pub fn open(&self, call: &Call<'_>) -> Result<Response> {
        self.repeat(call, |call, keys| {
            let response = self.send(call, keys)?;
            match response.status {
                200 | 206 => Ok(response),
                _ => Err(self
                    .read(response, call, false)
                    .err()
                    .unwrap_or_else(|| Failure::new(Why::Unknown, "the store gave no content"))),
            }
        })
    }

    fn repeat<T>(&self, call: &Call<'_>, mut attempt: impl FnMut(&Call<'_>, Option<&Keys>) -> Result<T>) -> Result<T> {
        if !matches!(call.method, "GET" | "HEAD") {
            // What was listed before is not what stands there any more.
            *self.beginning.lock().unwrap() = None;
        }
        let (mut attempts, mut cures) = (0, Cures::default());
        loop {
            attempts += 1;
            let keys = self.credentials.keys().map_err(|text| Failure::new(Why::Keys, text))?;
            let place = self.at_once.enter(call.body.len());
            let attempted = attempt(call, keys.as_ref());
            drop(place);
            let failure = match attempted {
                Ok(done) => {
                    if self.budget.fetch_add(1, Relaxed) >= BUDGET_MAX {
                        self.budget.store(BUDGET_MAX, Relaxed);
                    }
                    return Ok(done);
                }
                Err(failure) => failure,
            };
            if failure.is_throttled {
                self.at_once.throttled();
            }
            if self.cure(&failure, &mut cures) {
                continue;
            }
            let cost = if failure.why == Why::Unknown { COST_OF_SILENCE } else { COST_OF_RETRY };
            let is_worth_it = failure.may_pass() && attempts < ATTEMPTS_MAX && self.budget.load(Relaxed) >= cost;
            // A store that could not be reached at all is reported after fewer attempts.
            let is_nobody = failure.why == Why::Unreachable && !self.has_answered.load(Relaxed);
            if !is_worth_it || (is_nobody && attempts >= 3) {
                return Err(failure);
            }
            self.budget.fetch_sub(cost, Relaxed);
            if !self.client.stop().wait(failure.wait.unwrap_or_else(|| jitter(attempts)).min(WAIT_MAX)) {
                return Err(failure);
            }
        }
    }

    /// True when what was wrong is put right.
    fn cure(&self, failure: &Failure, cures: &mut Cures) -> bool {
        match (failure.why, &failure.region) {
            (Why::Keys, _) if !std::mem::replace(&mut cures.keys, true) => self.credentials.expire(),
            (Why::Clock, _) if !std::mem::replace(&mut cures.clock, true) => true,
            (_, Some(region)) if !std::mem::replace(&mut cures.region, true) => {
                let mut known = self.region.lock().unwrap();
                let is_new = *known != *region;
                known.clone_from(region);
                is_new
            }
            _ => false,
        }
    }

    fn send(&self, call: &Call<'_>, keys: Option<&Keys>) -> Result<Response> {
        let mut path = if self.is_in_path { format!("/{}", self.name) } else { String::new() };
        path.push('/');
        if let Some(key) = call.key {
            path.push_str(&encode(key.as_bytes(), true));
        } else if self.is_in_path {
            path.pop();
        }
        let mut query: Vec<_> =
            call.query.iter().map(|(name, value)| format!("{name}={}", encode(value.as_bytes(), false))).collect();
        query.sort();
        let query = query.join("&");
        let mut headers = call.headers.clone();
        headers.push(("host".to_owned(), self.client.origin().authority()));
        if let Some(keys) = keys {
            let now = now() + self.ahead_seconds.load(Relaxed);
            let region = self.region.lock().unwrap().clone();
            sign(&Signed { method: call.method, path: &path, query: &query, region: &region, now }, &mut headers, keys);
        }
        let target = if query.is_empty() { path } else { format!("{path}?{query}") };
        let request = Request { method: call.method, target: &target, headers: &headers, body: call.body };
        let answered = self.client.patient(call.patience).send(&request).map_err(|e| Failure::of_web(&e))?;
        self.has_answered.store(true, Relaxed);
        Ok(answered)
    }

    fn read(&self, response: Response, call: &Call<'_>, is_repeated: bool) -> Result<Answer> {
        let is_repeated = is_repeated || response.is_resent;
        let (status, headers) = (response.status, response.headers().to_vec());
        let date = response.header("date").and_then(header_moment);
        let wait = response.header("retry-after").and_then(|text| text.parse().ok()).map(Duration::from_secs);
        let region = response.header("x-amz-bucket-region").map(str::to_owned);
        let body = response.into_bytes(ANSWER_BYTES_MAX).map_err(|e| Failure::of_web(&e))?;
        if (200..300).contains(&status) {
            return Ok(Answer { status, headers, body });
        }
        let mut failure = Failure::of_answer(status, &body, call.key.is_some());
        failure.wait = wait;
        if matches!(status, 301 | 307 | 400) && failure.region.is_none() {
            failure.region = region;
        }
        if failure.why == Why::Clock
            && let Some(date) = date
        {
            self.ahead_seconds.store(date - now(), Relaxed);
        }
        failure.is_repeated = is_repeated;
        Err(failure)
    }

    /// Where the keys came from; `None` where requests are not signed.
    pub fn keys_from(&self) -> std::result::Result<Option<&'static str>, String> {
        Ok(self.credentials.keys()?.map(|keys| keys.origin))
    }

    /// The store is so far away that connections differ in what they carry.
    pub fn is_far(&self) -> bool {
        self.client.is_far()
    }

    /// Opens connections for requests that are about to come, where that takes a while, beside whatever is done meanwhile.
    pub fn warm(self: &Arc<Bucket>, count: usize) {
        let missing = if self.is_far() { count.min(WARM_MAX).saturating_sub(self.client.idle_count()) } else { 0 };
        for _ in 0..missing {
            let bucket = self.clone();
            self.crew.hand_in(move || bucket.client.open_ahead());
        }
    }

    pub fn address(&self) -> String {
        let origin = self.client.origin();
        format!("{}://{}", if origin.is_tls { "https" } else { "http" }, origin.authority())
    }

    pub fn region(&self) -> String {
        self.region.lock().unwrap().clone()
    }
}

pub fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// Full jitter: anything up to a bound that doubles after the first.
fn jitter(attempt: u32) -> Duration {
    let bound = if attempt == 1 { WAIT_FIRST } else { (WAIT_MIN * 2u32.saturating_pow(attempt)).min(WAIT_MAX) };
    bound.mul_f64(f64::from(u32::from_le_bytes(random())) / f64::from(u32::MAX))
}

pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).expect("the kernel has random bytes");
    bytes
}
