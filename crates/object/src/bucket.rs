//! Requests to one bucket: addressed, signed, and sent again where that helps.
//!
//! Invariants: a request is sent at most `ATTEMPTS_MAX` times, and all requests of a bucket share one budget of retries, so that a
//! store in trouble is not asked ever more often. Each cure (other keys, another clock, another region) is tried once a request. A
//! store's word on its region leads to no other host but Amazon's of that region, and only where no endpoint is named.

use crate::at_once::{self, AtOnce};
use crate::config::StoreConfig;
use crate::credentials::{Credentials, Keys};
use crate::failure::{Failure, Result, Why, is_region};
use crate::known::Known;
use crate::metadata::header_moment;
use crate::sign::{Signed, encode, sign};
use crate::version::{Beginning, Object};
use crate::width::Permits;
use aws_lc_rs::rand;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use web::{Client, Crew, Origin, Request, Response, Stop, Trust};

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
/// Connections that are opened before they are needed.
const WARM_MAX: usize = 16;
/// A row of requests that is worth a thread for each that may be under way.
const LONG_ROW: usize = 512;

pub struct Bucket {
    pub name: String,
    /// As the user names it: `s3://NAME`.
    pub shown: String,
    config: StoreConfig,
    way: Mutex<Arc<Way>>,
    is_in_path: bool,
    credentials: Credentials,
    /// What the store's clock is ahead of this host's, in seconds.
    ahead_seconds: AtomicI64,
    budget: AtomicI64,
    /// It is there, or was: a server that is started again is waited for.
    has_answered: AtomicBool,
    /// Requests under way.
    pub at_once: AtOnce,
    /// Threads for small requests.
    pub crew: Crew,
    /// Memory for bodies that are sent, and for what is fetched before it is asked for.
    pub permits: Permits,
    /// Known after the first object that is published on one.
    pub conditions: Mutex<Tried>,
    /// A listing's beginning that was asked for when the bucket was opened, for whoever lists first.
    pub beginning: Mutex<Option<Beginning>>,
    /// What was learnt of versions of its objects, where this host keeps that.
    pub known: Option<Known>,
    /// Longer objects are copied in parts.
    pub copy_bytes_max: u64,
    /// The store refused to make the copy itself.
    pub copies_not: AtomicBool,
    /// It made one.
    pub has_copied: AtomicBool,
    /// It took content, and did not say of which checksum.
    pub is_silent: AtomicBool,
    /// How long a store that says nothing is waited for, if not for as long as is usual.
    pub patience: Option<Duration>,
}

/// Where requests go, and the region that they are signed for.
struct Way {
    client: Client,
    region: String,
}

/// What one attempt at a request is made with.
struct Means {
    keys: Option<Keys>,
    way: Arc<Way>,
}

/// What came of trying which conditions a store keeps to.
#[derive(Default)]
pub struct Tried {
    pub known: Option<Conditions>,
    /// Below which prefixes it was not allowed, and when.
    pub refused: HashMap<String, Instant>,
    /// The trial object could not be removed.
    pub left: Option<String>,
}

/// Which conditions a store keeps to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Conditions {
    pub absent: bool,
    pub version: bool,
    /// Content that is not what its checksum says; nothing where that did not come out.
    pub refuses_damage: Option<bool>,
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
    /// The checksum that a success tells, if it tells one. For bodies that are sent again as they are.
    pub crc: Option<u64>,
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

    /// The checksum of content that it tells.
    pub fn crc(&self) -> Option<u64> {
        Object::of_answer(|name| self.header(name).map(str::to_owned)).crc
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
        let region = config.region();
        let (origin, is_in_path) = config.origin(name, &region).map_err(settings)?;
        let client = client(config, origin, stop)?;
        Ok(Bucket {
            name: name.to_owned(),
            shown,
            config: config.clone(),
            way: Mutex::new(Arc::new(Way { client, region })),
            is_in_path,
            credentials: Credentials::new(config),
            ahead_seconds: AtomicI64::new(0),
            budget: AtomicI64::new(BUDGET_MAX),
            has_answered: AtomicBool::new(false),
            at_once: AtOnce::new(),
            crew: Crew::new(at_once::MAX),
            permits: Permits::default(),
            conditions: Mutex::default(),
            beginning: Mutex::default(),
            known: None,
            copy_bytes_max: config.copy_bytes_max.unwrap_or(COPY_BYTES_MAX),
            copies_not: AtomicBool::new(false),
            has_copied: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
            patience: None,
        })
    }

    /// What was found out about the store.
    pub fn notes(&self) -> Vec<String> {
        let left = self.conditions.lock().unwrap().left.clone();
        self.at_once.note(&self.shown).into_iter().chain(left).collect()
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
        self.repeat(call, |call, means| {
            let was_sent = std::mem::replace(&mut is_repeated, true);
            let response = self.send(call, means)?;
            let answer = self.read(response, call, was_sent)?;
            match takes(&answer) {
                true if call.crc.is_some() && answer.crc().is_some_and(|told| call.crc != Some(told)) => {
                    Err(Failure::new(Why::Damaged, "the store says that something else arrived than was sent"))
                }
                true => Ok(answer),
                false => Err(Failure::of_answer(answer.status, &answer.body, call.key.is_some())),
            }
        })
    }

    /// Sends a request once, and reads whatever comes.
    pub fn call_once(&self, call: &Call<'_>) -> Result<Answer> {
        self.read(self.send(call, &self.means()?)?, call, false)
    }

    /// Sends a request until its answer begins; the body is the caller's to read. `takes` says whether a success is one.
    pub fn open(&self, call: &Call<'_>, takes: impl Fn(&Response) -> bool) -> Result<Response> {
        self.repeat(call, |call, means| {
            let response = self.send(call, means)?;
            match response.status {
                200 | 206 if takes(&response) => Ok(response),
                _ => Err(match self.read(response, call, false) {
                    Ok(answer) => Failure::of_answer(answer.status, &answer.body, call.key.is_some()),
                    Err(failure) => failure,
                }),
            }
        })
    }

    fn repeat<T>(&self, call: &Call<'_>, mut attempt: impl FnMut(&Call<'_>, &Means) -> Result<T>) -> Result<T> {
        if !matches!(call.method, "GET" | "HEAD") {
            // What was listed before is not what stands there any more.
            *self.beginning.lock().unwrap() = None;
        }
        let (mut attempts, mut cures) = (0, Cures::default());
        loop {
            attempts += 1;
            let means = self.means()?;
            let place = self.at_once.enter(call.body.len());
            let attempted = attempt(call, &means);
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
            if self.cure(&failure, &mut cures, &means) {
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
            if !means.way.client.stop().wait(failure.wait.unwrap_or_else(|| jitter(attempts)).min(WAIT_MAX)) {
                return Err(failure);
            }
        }
    }

    fn way(&self) -> Arc<Way> {
        self.way.lock().unwrap().clone()
    }

    fn means(&self) -> Result<Means> {
        let keys = self.credentials.keys().map_err(|text| Failure::new(Why::Keys, text))?;
        Ok(Means { keys, way: self.way() })
    }

    /// True when what was wrong with what an attempt was made with is put right.
    fn cure(&self, failure: &Failure, cures: &mut Cures, means: &Means) -> bool {
        match (failure.why, &failure.region) {
            (Why::Keys, _) if !std::mem::replace(&mut cures.keys, true) => {
                means.keys.as_ref().is_some_and(|keys| self.credentials.expire(keys))
            }
            (Why::Clock, _) if !std::mem::replace(&mut cures.clock, true) => true,
            (_, Some(region)) if !std::mem::replace(&mut cures.region, true) => {
                *region != means.way.region && self.turn_to(region)
            }
            _ => false,
        }
    }

    /// Goes to another region from now on, which is another host where no endpoint is named.
    fn turn_to(&self, region: &str) -> bool {
        let mut way = self.way.lock().unwrap();
        // Another request was faster.
        if way.region == region {
            return true;
        }
        let Ok((origin, _)) = self.config.origin(&self.name, region) else { return false };
        let client = match origin == *way.client.origin() {
            true => Ok(way.client.clone()),
            false => client(&self.config, origin, way.client.stop().clone()),
        };
        let Ok(client) = client else { return false };
        *way = Arc::new(Way { client, region: region.to_owned() });
        true
    }

    fn send(&self, call: &Call<'_>, means: &Means) -> Result<Response> {
        let client = &means.way.client;
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
        headers.push(("host".to_owned(), client.origin().authority()));
        if let Some(keys) = &means.keys {
            let now = now() + self.ahead_seconds.load(Relaxed);
            let region = &means.way.region;
            sign(&Signed { method: call.method, path: &path, query: &query, region, now }, &mut headers, keys);
        }
        let target = if query.is_empty() { path } else { format!("{path}?{query}") };
        let request = Request { method: call.method, target: &target, headers: &headers, body: call.body };
        let patient = self.patience.map_or_else(|| client.patient(call.patience), |patience| client.within(patience));
        let answered = patient.send(&request).map_err(|e| Failure::of_web(&e))?;
        self.has_answered.store(true, Relaxed);
        Ok(answered)
    }

    fn read(&self, response: Response, call: &Call<'_>, is_repeated: bool) -> Result<Answer> {
        let is_repeated = is_repeated || response.is_resent;
        let (status, headers) = (response.status, response.headers().to_vec());
        let date = response.header("date").and_then(header_moment);
        let wait = response.header("retry-after").and_then(|text| text.parse().ok()).map(Duration::from_secs);
        let region = response.header("x-amz-bucket-region").filter(|region| is_region(region)).map(str::to_owned);
        let body = response.into_bytes(ANSWER_BYTES_MAX).map_err(|e| Failure::of_web(&e))?;
        if (200..300).contains(&status) {
            return Ok(Answer { status, headers, body });
        }
        let mut failure = Failure::of_answer(status, &body, call.key.is_some());
        failure.wait = wait;
        if matches!(status, 301 | 307 | 400) && failure.region.is_none() {
            failure.region = region;
        }
        if (call.method, status) == ("HEAD", 400)
            && failure.region.as_ref().is_none_or(|region| *region == self.way().region)
        {
            // No body says why: with this status stores refuse a look with keys that have expired.
            failure.why = Why::Keys;
            failure.text.push_str(": the keys may have expired, or the object have a key of its own (SSE-C)");
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
        self.way().client.is_far()
    }

    /// Opens connections for requests that are about to come, where that takes a while, beside whatever is done meanwhile.
    pub fn warm(self: &Arc<Bucket>, count: usize) {
        let way = self.way();
        let missing = if self.is_far() { count.min(WARM_MAX).saturating_sub(way.client.idle_count()) } else { 0 };
        for _ in 0..missing {
            let way = way.clone();
            self.crew.hand_in(move || way.client.open_ahead());
        }
    }

    pub fn address(&self) -> String {
        let way = self.way();
        let origin = way.client.origin();
        format!("{}://{}", if origin.is_tls { "https" } else { "http" }, origin.authority())
    }

    pub fn region(&self) -> String {
        self.way().region.clone()
    }
}

fn client(config: &StoreConfig, origin: Origin, stop: Stop) -> Result<Client> {
    let trust = config.ca_file.clone().map_or(Trust::Host, Trust::File);
    Client::stopped_by(origin, &trust, stop).map_err(|e| Failure::of_web(&e))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(endpoint: Option<&str>) -> Bucket {
        let (endpoint, region) = (endpoint.map(str::to_owned), Some("us-east-1".to_owned()));
        let config = StoreConfig { endpoint, region, anonymous: true, ..StoreConfig::default() };
        Bucket::new("b", "s3://b".to_owned(), &config, Stop::default()).ok().unwrap()
    }

    fn moved(region: &str) -> Failure {
        Failure { region: Some(region.to_owned()), ..Failure::new(Why::Other, "it is elsewhere") }
    }

    #[test]
    fn a_bucket_that_says_where_it_is_is_asked_there() {
        let amazons = Origin::parse("https://s3.us-east-1.amazonaws.com").unwrap();
        if !needs::met(Client::new(amazons, &Trust::Host).is_ok(), "it takes certificate authorities") {
            return;
        }
        let bucket = bucket(None);
        assert_eq!(bucket.address(), "https://b.s3.us-east-1.amazonaws.com");
        let (means, mut cures) = (bucket.means().unwrap(), Cures::default());
        assert!(bucket.cure(&moved("eu-central-1"), &mut cures, &means));
        assert_eq!(bucket.address(), "https://b.s3.eu-central-1.amazonaws.com");
        assert_eq!(bucket.region(), "eu-central-1");
        assert!(!bucket.cure(&moved("eu-central-1"), &mut cures, &means), "once a request");
        // Whoever had asked there before comes too, and nobody is sent to where he came from.
        assert!(bucket.cure(&moved("eu-central-1"), &mut Cures::default(), &means));
        assert!(!bucket.cure(&moved("eu-central-1"), &mut Cures::default(), &bucket.means().unwrap()));
    }

    #[test]
    fn an_endpoint_that_is_named_stays_whatever_region_it_tells() {
        let bucket = bucket(Some("http://127.0.0.1:7070"));
        assert!(bucket.cure(&moved("eu-central-1"), &mut Cures::default(), &bucket.means().unwrap()));
        assert_eq!((&bucket.address()[..], &bucket.region()[..]), ("http://127.0.0.1:7070", "eu-central-1"));
    }
}
