//! An S3 store in this process, for tests: one bucket, strict about signatures, checksums and conditions, with faults to order.
//!
//! Invariants: a condition and what it guards are one step; a fault that was ordered is counted when it happens. Signatures are
//! checked by code of its own.

pub mod dav;
pub mod etcd;
pub mod http;
mod fault;
mod listing;
mod parts;

use aws_lc_rs::{digest, hmac};
use data_encoding::{BASE64, HEXLOWER};
pub use fault::Fault;
use fault::{Order, Orders, error};
use http::{Asked, Said};
use model::DigestAlgorithm;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const BUCKET: &str = "bkt";
pub const SECRET: &str = "fake-secret-0123456789";
/// Of longer content a store that keeps none looks at no checksum: that would take longer than all else it does.
const NULL_LOOKS_AT_BYTES: usize = 64 << 10;
/// Of content that comes in chunks with checksums of their own.
const DECODED_LENGTH: &str = "x-amz-decoded-content-length";

#[derive(Clone, Default)]
pub struct Object {
    pub bytes: Vec<u8>,
    pub etag: String,
    pub meta: Vec<(String, String)>,
    pub crc: Option<u64>,
    pub stored: u64,
    /// In place of bytes.
    pub zeros: usize,
}

#[derive(Default)]
pub struct Upload {
    pub key: String,
    pub meta: Vec<(String, String)>,
    pub parts: BTreeMap<u32, Vec<u8>>,
    /// Lengths of parts whose bytes are not kept.
    pub zeros: BTreeMap<u32, usize>,
}

#[derive(Default)]
pub struct State {
    pub objects: BTreeMap<String, Object>,
    pub uploads: BTreeMap<String, Upload>,
    /// The key that was written last, and what stood there before.
    written: Option<(String, Option<Object>)>,
    orders: Orders,
    pub fired: u32,
    pub requests: Vec<String>,
    next: u64,
    /// What its clock is ahead, in seconds.
    pub ahead_seconds: i64,
    /// It passes conditions over.
    pub is_unconditional: bool,
    /// It keeps to them where it is sent content, and passes them over where it copies or puts parts together.
    pub is_conditional_by_put_alone: bool,
    pub page_max: usize,
    /// It begins where it likes.
    pub ignores_start_after: bool,
    /// A page comes again and again.
    pub repeats_pages: bool,
    /// Nothing stands on a page, and another one follows.
    pub has_empty_pages: bool,
    /// Changes what is said of the parts of an upload.
    pub parts_told: Option<fn(String) -> String>,
    /// Of parts, as far as they were taken.
    pub part_bytes_taken: u64,
    /// What it copies by one request.
    pub copy_bytes_max: u64,
    /// Shorter parts make no object, but for the last one.
    pub part_bytes_min: usize,
    /// Each request of that many goes wrong, in one of these ways after another.
    pub faulty: Option<(u64, &'static [Fault])>,
    answered: u64,
    /// What each answer takes at least.
    pub delay: Duration,
    /// Requests are not kept to be counted.
    pub forgets_requests: bool,
    /// The region that it takes signatures for.
    pub region: String,
    /// It takes content whatever the checksum says, and tells none.
    pub takes_damage: bool,
    /// It keeps the lengths of what it is sent alone, and zeros are read: for measurements of whoever sends and reads.
    pub is_null: bool,
}

impl Object {
    fn length(&self) -> usize {
        self.bytes.len() + self.zeros
    }

    fn part(&self, start: usize, end: usize) -> Vec<u8> {
        if self.zeros > 0 { vec![0; end - start] } else { self.bytes[start..end].to_vec() }
    }
}

#[derive(Clone)]
pub struct Fake {
    pub state: Arc<Mutex<State>>,
    pub url: String,
}

impl Fake {
    pub fn start() -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = State {
            page_max: 1000,
            copy_bytes_max: 5 << 30,
            part_bytes_min: 5 << 20,
            region: "us-east-1".to_owned(),
            ..State::default()
        };
        let fake = Fake { state: Arc::new(Mutex::new(state)), url };
        let server = fake.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                std::thread::spawn(move || {
                    http::serve_unless(stream, &|asked| server.is_reset(asked), &|asked| server.answer(asked));
                });
            }
        });
        fake
    }

    /// Has requests go wrong that hold a text: after so many that do not, so many times.
    pub fn order(&self, method: &'static str, holds: &'static str, passes: u32, times: u32, fault: Fault) {
        self.state.lock().unwrap().orders.take(Order { method, holds, passes, times, fault });
    }

    pub fn put(&self, key: &str, bytes: &[u8]) {
        self.state.lock().unwrap().put(key, bytes.to_vec(), Vec::new());
    }

    pub fn content(&self, key: &str) -> Option<Vec<u8>> {
        self.state.lock().unwrap().objects.get(key).map(|object| object.bytes.clone())
    }

    pub fn fired(&self) -> u32 {
        self.state.lock().unwrap().fired
    }

    /// Requests so far that hold a text.
    pub fn count(&self, holds: &str) -> usize {
        self.state.lock().unwrap().requests.iter().filter(|request| request.contains(holds)).count()
    }

    /// Whether a request of which the head has come is not heard to its end.
    fn is_reset(&self, asked: &Asked) -> bool {
        let mut state = self.state.lock().unwrap();
        let line = format!("{} {}", asked.method, asked.target);
        let is_reset = state.orders.draw(&asked.method, &line, true).is_some();
        state.fired += u32::from(is_reset);
        is_reset
    }

    fn answer(&self, asked: &Asked) -> Said {
        let mut state = self.state.lock().unwrap();
        let line = format!("{} {}", asked.method, asked.target);
        if !state.forgets_requests {
            state.requests.push(line.clone());
        }
        let delay = state.delay;
        let fault = state.fault(&asked.method, &line);
        let date = http::date(now() + state.ahead_seconds);
        let flipped = (fault == Some(Fault::FlippedSent)).then(|| asked.flipped());
        let asked = flipped.as_ref().unwrap_or(asked);
        let said = fault.and_then(Fault::instead).or_else(|| state.check(asked));
        let said = said.unwrap_or_else(|| state.carry_out(asked, fault));
        let said = match fault {
            Some(fault) => fault.bend(said),
            None => said,
        };
        drop(state);
        std::thread::sleep(delay);
        said.with("date", &date)
    }
}

fn now() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64
}

fn crc(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(
        DigestAlgorithm::Crc64Nvme
            .of_object(bytes)
            .to_string()
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect::<Vec<_>>()
            .try_into()
            .unwrap(),
    )
}

/// The length of content, however it was sent.
fn sent_bytes(asked: &Asked) -> usize {
    let decoded = asked.header(DECODED_LENGTH).and_then(|length| length.parse().ok());
    decoded.unwrap_or(asked.body.len())
}

/// A query as it is signed: in order, and with a value for each name.
fn canonical_query(query: &str) -> String {
    let parts = query.split('&').filter(|part| !part.is_empty());
    let mut parts: Vec<_> = parts.map(|part| part.split_once('=').unwrap_or((part, ""))).collect();
    parts.sort_unstable();
    parts.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

/// What a range asks for of so many bytes; nothing where it asks for none of them.
fn bounds(range: &str, length: usize) -> Option<(usize, usize)> {
    let (start, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let start: usize = start.parse().ok()?;
    let end = last.parse().map_or(length, |last: usize| length.min(last.saturating_add(1)));
    (start < end).then_some((start, end))
}

/// A header's value as it is signed: with single spaces.
fn signed(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn hash(bytes: &[u8]) -> String {
    HEXLOWER.encode(digest::digest(&digest::SHA256, bytes).as_ref())
}

impl State {
    fn fault(&mut self, method: &str, line: &str) -> Option<Fault> {
        self.answered += 1;
        if let Some((every, faults)) = self.faulty
            && self.answered.is_multiple_of(every)
        {
            self.fired += 1;
            return Some(faults[(self.answered / every) as usize % faults.len()]);
        }
        let drawn = self.orders.draw(method, line, false);
        self.fired += u32::from(drawn.is_some());
        drawn
    }

    pub fn put(&mut self, key: &str, bytes: Vec<u8>, meta: Vec<(String, String)>) -> String {
        self.next += 1;
        let etag = format!("\"{}-{}\"", &hash(&bytes)[..16], self.next);
        let (crc, stored) = (Some(crc(&bytes)), 1_000_000_000 + self.next);
        let object = Object { bytes, etag: etag.clone(), meta, crc, stored, zeros: 0 };
        self.written = Some((key.to_owned(), self.objects.insert(key.to_owned(), object)));
        etag
    }

    pub fn put_zeros(&mut self, key: &str, zeros: usize, meta: Vec<(String, String)>) -> String {
        let etag = self.put(key, Vec::new(), meta);
        let object = self.objects.get_mut(key).expect("it was put there");
        // An empty one has its checksum.
        (object.zeros, object.crc) = (zeros, object.crc.filter(|_| zeros == 0));
        etag
    }

    /// Whether whoever asks may: signature, clock and region.
    fn check(&self, asked: &Asked) -> Option<Said> {
        let Some(authorization) = asked.header("authorization") else { return Some(error(403, "AccessDenied")) };
        let field =
            |name: &str| authorization.split([' ', ',']).find_map(|part| part.strip_prefix(name)).unwrap_or_default();
        let (scope, names) = (field("Credential="), field("SignedHeaders="));
        let Some(scope) = scope.strip_prefix("fake/") else { return Some(error(403, "InvalidAccessKeyId")) };
        let region = scope.split('/').nth(1).unwrap_or_default();
        if region != self.region {
            let body =
                format!("<Error><Code>AuthorizationHeaderMalformed</Code><Region>{}</Region></Error>", self.region);
            return Some(Said::new(400, body.as_bytes()));
        }
        let time = asked.header("x-amz-date").unwrap_or_default();
        let here = http::amz_date(now() + self.ahead_seconds);
        if time[..time.len().min(11)] != here[..11] {
            return Some(error(403, "RequestTimeTooSkewed"));
        }
        let (path, query) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
        let value = |name: &str| signed(asked.header(name).unwrap_or_default());
        let lines: String = names.split(';').map(|name| format!("{name}:{}\n", value(name))).collect();
        let payload = asked.header("x-amz-content-sha256").unwrap_or_default();
        let query = canonical_query(query);
        let canonical = format!("{}\n{path}\n{query}\n{lines}\n{names}\n{payload}", asked.method);
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hash(canonical.as_bytes()));
        let mut key = format!("AWS4{SECRET}").into_bytes();
        for part in scope.split('/') {
            key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec();
        }
        let right = HEXLOWER.encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), text.as_bytes()).as_ref());
        (right != field("Signature=")).then(|| error(403, "SignatureDoesNotMatch"))
    }

    /// What it had before the last write.
    fn older(&self) -> BTreeMap<String, Object> {
        let mut objects = self.objects.clone();
        match self.written.clone() {
            Some((key, Some(before))) => _ = objects.insert(key, before),
            Some((key, None)) => _ = objects.remove(&key),
            None => {}
        }
        objects
    }

    fn carry_out(&mut self, asked: &Asked, fault: Option<Fault>) -> Said {
        if !self.is_null && asked.header(DECODED_LENGTH).is_some() {
            // Chunks with checksums of their own: it takes content as it is.
            return error(501, "NotImplemented");
        }
        let is_whole = fault == Some(Fault::NoRange);
        let (path, _) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
        let path = http::decoded(path);
        let Some(rest) = path.strip_prefix(&format!("/{BUCKET}")) else { return error(404, "NoSuchBucket") };
        let key = rest.strip_prefix('/').unwrap_or_default().to_owned();
        let has = |name: &str| asked.query(name).is_some();
        match &asked.method[..] {
            "GET" if key.is_empty() && has("uploads") => self.list_uploads(),
            "GET" if key.is_empty() && fault == Some(Fault::Stale) => self.list(asked, &self.older(), false),
            "GET" if key.is_empty() => self.list(asked, &self.objects, is_whole),
            "GET" if has("uploadId") => self.list_parts(asked),
            "GET" | "HEAD" => self.get(asked, &key, is_whole),
            "DELETE" => match asked.query("uploadId") {
                Some(id) if self.uploads.remove(&id).is_none() => error(404, "NoSuchUpload"),
                Some(_) => Said::new(204, b""),
                None => {
                    self.objects.remove(&key);
                    Said::new(204, b"")
                }
            },
            "POST" if has("delete") => self.delete_many(asked),
            "POST" if has("uploads") => {
                self.next += 1;
                let id = format!("upload{}", self.next);
                self.uploads.insert(id.clone(), Upload { key, meta: asked.meta(), ..Upload::default() });
                let xml =
                    format!("<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>");
                Said::new(200, xml.as_bytes())
            }
            "POST" => self.complete(asked, &key),
            "PUT" if has("partNumber") && asked.header("x-amz-copy-source").is_some() => self.copy_part(asked),
            "PUT" if has("partNumber") => self.put_part(asked),
            "PUT" if asked.header("x-amz-copy-source").is_some() => self.copy(asked, &key),
            "PUT" => self.put_object(asked, &key),
            _ => error(501, "NotImplemented"),
        }
    }

    fn is_damaged(&self, asked: &Asked) -> bool {
        let is_passed_over = self.takes_damage || (self.is_null && asked.body.len() > NULL_LOOKS_AT_BYTES);
        let stated = asked.header("x-amz-checksum-crc64nvme").filter(|_| !is_passed_over);
        stated.is_some_and(|stated| stated != BASE64.encode(&crc(&asked.body).to_be_bytes()))
    }

    /// The checksum that a store says to have compared with what it got.
    fn compared<'a>(&self, asked: &'a Asked) -> Option<&'a str> {
        asked.header("x-amz-checksum-crc64nvme").filter(|_| !self.takes_damage)
    }

    /// An answer to content that was taken.
    fn taken(&self, asked: &Asked, etag: &str) -> Said {
        let said = Said::new(200, b"").with("etag", etag);
        match self.compared(asked) {
            Some(sum) => said.with("x-amz-checksum-crc64nvme", sum).with("x-amz-checksum-type", "FULL_OBJECT"),
            None => said,
        }
    }

    /// Whether the condition of a request is not met.
    fn refuses(&self, asked: &Asked, key: &str) -> bool {
        let there = self.objects.get(key);
        let (none, only) = (asked.header("if-none-match"), asked.header("if-match"));
        !self.is_unconditional
            && ((none == Some("*") && there.is_some())
                || only.is_some_and(|etag| there.is_none_or(|there| there.etag != etag)))
    }

    fn put_object(&mut self, asked: &Asked, key: &str) -> Said {
        if self.is_damaged(asked) {
            return error(400, "BadDigest");
        }
        if self.refuses(asked, key) {
            return error(412, "PreconditionFailed");
        }
        let etag = match self.is_null {
            true => self.put_zeros(key, sent_bytes(asked), asked.meta()),
            false => self.put(key, asked.body.clone(), asked.meta()),
        };
        self.taken(asked, &etag)
    }

    /// Keys with `stays` in them are refused.
    fn delete_many(&mut self, asked: &Asked) -> Said {
        if self.is_damaged(asked) || asked.header("x-amz-checksum-crc64nvme").is_none() {
            return error(400, "BadDigest");
        }
        let text = String::from_utf8_lossy(&asked.body).into_owned();
        let mut xml = String::from("<DeleteResult>");
        for key in text.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next()) {
            if key.contains("stays") {
                xml += &format!("<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>no</Message></Error>");
                continue;
            }
            let plain = key.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'");
            self.objects.remove(&plain.replace("&amp;", "&"));
            // One that it was not asked to be silent about and is.
            if !key.contains("untold") {
                xml += &format!("<Deleted><Key>{key}</Key></Deleted>");
            }
        }
        Said::new(200, (xml + "</DeleteResult>").as_bytes())
    }

    fn get(&self, asked: &Asked, key: &str, is_whole: bool) -> Said {
        let Some(object) = self.objects.get(key) else { return error(404, "NoSuchKey") };
        if asked.header("if-match").is_some_and(|etag| etag != object.etag) {
            return error(412, "PreconditionFailed");
        }
        let length = object.length();
        let range = asked.header("range").filter(|_| !is_whole);
        let (start, end) = match range.map(|range| bounds(range, length)) {
            None => (0, length),
            Some(Some(bounds)) => bounds,
            Some(None) => {
                let size = format!("<ActualObjectSize>{length}</ActualObjectSize>");
                let text = format!("<Error><Code>InvalidRange</Code>{size}</Error>");
                return Said::new(416, text.as_bytes()).with("content-type", "application/xml");
            }
        };
        // Whatever it was made of, it is one part by now.
        let is_part = length > 0 && asked.query("partNumber").is_some();
        let mut said = Said::new(if range.is_some() || is_part { 206 } else { 200 }, b"");
        match &asked.method[..] {
            "HEAD" => said.length = Some((end - start) as u64),
            _ => said.body = object.part(start, end),
        }
        if range.is_some() || is_part {
            said = said.with("content-range", &format!("bytes {start}-{}/{length}", end - 1));
        }
        said = said.with("etag", &object.etag).with("last-modified", &http::date(object.stored as i64));
        if asked.header("x-amz-checksum-mode").is_some()
            && let Some(crc) = object.crc.filter(|_| !self.takes_damage)
        {
            said = said.with("x-amz-checksum-crc64nvme", &BASE64.encode(&crc.to_be_bytes()));
            said = said.with("x-amz-checksum-type", "FULL_OBJECT");
        }
        for (name, value) in &object.meta {
            said = said.with(name, value);
        }
        said
    }
}
