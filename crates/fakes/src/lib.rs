//! An S3 store in this process, for tests: one bucket, strict about signatures, checksums and conditions, with faults to order.
//!
//! Invariants: a condition and what it guards are one step; a fault that was ordered is counted when it happens. Signatures are
//! checked by code of its own.

pub mod dav;
pub mod etcd;
pub mod http;

use aws_lc_rs::{digest, hmac};
use data_encoding::{BASE64, HEXLOWER};
use http::{Asked, Said};
use model::DigestAlgorithm;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::ops::Bound;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const BUCKET: &str = "bkt";
pub const SECRET: &str = "fake-secret-0123456789";

#[derive(Clone, Default)]
pub struct Object {
    pub bytes: Vec<u8>,
    pub etag: String,
    pub meta: Vec<(String, String)>,
    pub crc: Option<u64>,
    pub stored: u64,
}

#[derive(Default)]
pub struct Upload {
    pub key: String,
    pub meta: Vec<(String, String)>,
    pub parts: BTreeMap<u32, Vec<u8>>,
}

/// What goes wrong with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Status(u16),
    /// It is busy, and may be asked again without waiting.
    AtOnce,
    /// A success that is none.
    OkWithError,
    OkEmpty,
    /// It is carried out, and the connection ends before it is answered.
    LostAnswer,
    /// The body ends half way.
    Cut,
    /// A byte of the body is another one.
    Flipped,
    /// Whole objects where a range was asked for.
    NoRange,
    /// More follows what was asked for, and the length tells so.
    Longer,
    /// It passes the condition over, and sends what was written since.
    OtherVersion,
    /// Somebody on the way has compressed it.
    Packed,
    /// A redirect to another host.
    Abroad,
    /// The keys were good once.
    Expired,
    /// The checksum that is told is one of checksums of parts.
    Composite,
}

struct Rule {
    method: &'static str,
    /// In path and query.
    holds: &'static str,
    passes: u32,
    times: u32,
    fault: Fault,
}

#[derive(Default)]
pub struct State {
    pub objects: BTreeMap<String, Object>,
    pub uploads: BTreeMap<String, Upload>,
    rules: Vec<Rule>,
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
    /// Each request of that many goes wrong, in one of these ways after another.
    pub faulty: Option<(u64, &'static [Fault])>,
    answered: u64,
    /// What each answer takes at least.
    pub delay: Duration,
    /// Requests are not kept to be counted.
    pub forgets_requests: bool,
    /// The region that it takes signatures for.
    pub region: String,
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
        let state =
            State { page_max: 1000, copy_bytes_max: 5 << 30, region: "us-east-1".to_owned(), ..State::default() };
        let fake = Fake { state: Arc::new(Mutex::new(state)), url };
        let server = fake.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                std::thread::spawn(move || http::serve(stream, &|asked| server.answer(asked)));
            }
        });
        fake
    }

    /// Has requests go wrong that hold a text: after so many that do not, so many times.
    pub fn order(&self, method: &'static str, holds: &'static str, passes: u32, times: u32, fault: Fault) {
        self.state.lock().unwrap().rules.push(Rule { method, holds, passes, times, fault });
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

    fn answer(&self, asked: &Asked) -> Said {
        let mut state = self.state.lock().unwrap();
        let line = format!("{} {}", asked.method, asked.target);
        if !state.forgets_requests {
            state.requests.push(line.clone());
        }
        let delay = state.delay;
        let fault = state.fault(&asked.method, &line);
        let date = http::date(now() + state.ahead_seconds);
        let mut said = match fault {
            Some(Fault::Status(403)) => error(403, "AccessDenied"),
            Some(Fault::Status(status)) => error(status, if status == 503 { "SlowDown" } else { "InternalError" }),
            Some(Fault::AtOnce) => error(503, "SlowDown").with("retry-after", "0"),
            Some(Fault::Expired) => error(400, "ExpiredToken"),
            // It is not carried out.
            Some(Fault::OkWithError) => Said::new(200, b"<Error><Code>InternalError</Code></Error>"),
            Some(Fault::Abroad) => Said::new(307, b"").with("location", "http://127.0.0.1:1/"),
            _ => state.check(asked).unwrap_or_else(|| state.carry_out(asked, fault == Some(Fault::NoRange))),
        };
        match fault {
            Some(Fault::OkEmpty) => said = Said::new(200, b""),
            Some(Fault::Composite) => {
                let said_of = [("x-amz-checksum-crc64nvme", "AAAAAAAAAAE="), ("x-amz-checksum-type", "COMPOSITE")];
                said = said_of.into_iter().fold(said, |said, (name, value)| said.instead(name, value));
            }
            Some(Fault::Longer) => said.body.extend_from_slice(&[7; 4096]),
            Some(Fault::OtherVersion) => {
                said.body.reverse();
                said = said.instead("etag", "\"another\"");
            }
            Some(Fault::Packed) => {
                said.body.truncate(said.body.len() / 2);
                said = said.with("content-encoding", "gzip");
            }
            Some(Fault::LostAnswer) => said.is_lost = true,
            Some(Fault::Cut) => said.is_cut = true,
            Some(Fault::Flipped) if !said.body.is_empty() => {
                let middle = said.body.len() / 2;
                said.body[middle] ^= 1;
            }
            _ => {}
        }
        drop(state);
        std::thread::sleep(delay);
        said.with("date", &date)
    }
}

fn now() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64
}

fn error(status: u16, code: &str) -> Said {
    Said::new(
        status,
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{code}!</Message></Error>").as_bytes(),
    )
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
        let rule =
            self.rules.iter_mut().find(|rule| rule.method == method && line.contains(rule.holds) && rule.times > 0)?;
        if rule.passes > 0 {
            rule.passes -= 1;
            return None;
        }
        rule.times -= 1;
        self.fired += 1;
        Some(rule.fault)
    }

    pub fn put(&mut self, key: &str, bytes: Vec<u8>, meta: Vec<(String, String)>) -> String {
        self.next += 1;
        let etag = format!("\"{}-{}\"", &hash(&bytes)[..16], self.next);
        let (crc, stored) = (Some(crc(&bytes)), 1_000_000_000 + self.next);
        self.objects.insert(key.to_owned(), Object { bytes, etag: etag.clone(), meta, crc, stored });
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
        let canonical = format!("{}\n{path}\n{query}\n{lines}\n{names}\n{payload}", asked.method);
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hash(canonical.as_bytes()));
        let mut key = format!("AWS4{SECRET}").into_bytes();
        for part in scope.split('/') {
            key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec();
        }
        let right = HEXLOWER.encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), text.as_bytes()).as_ref());
        (right != field("Signature=")).then(|| error(403, "SignatureDoesNotMatch"))
    }

    fn carry_out(&mut self, asked: &Asked, is_whole: bool) -> Said {
        let (path, _) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
        let path = http::decoded(path);
        let Some(rest) = path.strip_prefix(&format!("/{BUCKET}")) else { return error(404, "NoSuchBucket") };
        let key = rest.strip_prefix('/').unwrap_or_default().to_owned();
        let has = |name: &str| asked.query(name).is_some();
        match &asked.method[..] {
            "GET" if key.is_empty() && has("uploads") => self.list_uploads(),
            "GET" if key.is_empty() => self.list(asked),
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

    fn is_damaged(asked: &Asked) -> bool {
        let stated = asked.header("x-amz-checksum-crc64nvme");
        stated.is_some_and(|stated| stated != BASE64.encode(&crc(&asked.body).to_be_bytes()))
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
        if State::is_damaged(asked) {
            return error(400, "BadDigest");
        }
        if self.refuses(asked, key) {
            return error(412, "PreconditionFailed");
        }
        let etag = self.put(key, asked.body.clone(), asked.meta());
        Said::new(200, b"").with("etag", &etag)
    }

    /// Keys with `stays` in them are refused.
    fn delete_many(&mut self, asked: &Asked) -> Said {
        if State::is_damaged(asked) || asked.header("x-amz-checksum-crc64nvme").is_none() {
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

    fn put_part(&mut self, asked: &Asked) -> Said {
        if State::is_damaged(asked) {
            return error(400, "BadDigest");
        }
        match self.insert_part(asked, asked.body.clone()) {
            Ok(etag) => Said::new(200, b"").with("etag", &etag),
            Err(said) => said,
        }
    }

    fn insert_part(&mut self, asked: &Asked, bytes: Vec<u8>) -> Result<String, Said> {
        let number: u32 = asked.query("partNumber").unwrap().parse().unwrap();
        let Some(upload) = self.uploads.get_mut(&asked.query("uploadId").unwrap_or_default()) else {
            return Err(error(404, "NoSuchUpload"));
        };
        let etag = format!("\"{}\"", &hash(&bytes)[..32]);
        self.part_bytes_taken += bytes.len() as u64;
        upload.parts.insert(number, bytes);
        Ok(etag)
    }

    fn complete(&mut self, asked: &Asked, key: &str) -> Said {
        let id = asked.query("uploadId").unwrap_or_default();
        let Some(upload) = self.uploads.get(&id) else { return error(404, "NoSuchUpload") };
        let text = String::from_utf8_lossy(&asked.body).into_owned();
        let listed = text.matches("<PartNumber>").count();
        let lengths: Vec<usize> = upload.parts.values().map(Vec::len).collect();
        // Parts but the last are equal, as some stores demand.
        let is_equal = lengths.windows(2).all(|pair| pair[0] >= pair[1])
            && lengths.iter().rev().skip(1).all(|length| *length == lengths[0]);
        let is_small = lengths.iter().rev().skip(1).any(|length| *length < 5 << 20);
        if listed != upload.parts.len() || listed == 0 || !is_equal || is_small {
            return error(400, "InvalidPart");
        }
        let bytes = upload.parts.values().map(Vec::as_slice).collect::<Vec<_>>().concat();
        let stated = asked.header("x-amz-checksum-crc64nvme");
        if stated != Some(&BASE64.encode(&crc(&bytes).to_be_bytes())) {
            return error(400, "BadDigest");
        }
        if !self.is_conditional_by_put_alone && self.refuses(asked, key) {
            return error(412, "PreconditionFailed");
        }
        let upload = self.uploads.remove(&id).unwrap();
        let etag = self.put(key, bytes, upload.meta);
        let xml = format!("<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>");
        Said::new(200, xml.replace("\"", "&quot;").as_bytes())
    }

    fn copied(&self, asked: &Asked) -> Result<Object, Said> {
        let source = http::decoded(asked.header("x-amz-copy-source").unwrap());
        let source = source.trim_start_matches('/').trim_start_matches(BUCKET).trim_start_matches('/');
        let Some(object) = self.objects.get(source).cloned() else { return Err(error(404, "NoSuchKey")) };
        match asked.header("x-amz-copy-source-if-match").is_some_and(|etag| etag != object.etag) {
            true => Err(error(412, "PreconditionFailed")),
            false => Ok(object),
        }
    }

    fn copy_part(&mut self, asked: &Asked) -> Said {
        let object = match self.copied(asked) {
            Ok(object) => object,
            Err(said) => return said,
        };
        let range = asked.header("x-amz-copy-source-range").and_then(|range| range.strip_prefix("bytes="));
        let (start, end) = range.and_then(|range| range.split_once('-')).expect("a range of the source");
        let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
        match self.insert_part(asked, object.bytes[start..=end].to_vec()) {
            Ok(etag) => {
                let etag = etag.replace('"', "&quot;");
                Said::new(200, format!("<CopyPartResult><ETag>{etag}</ETag></CopyPartResult>").as_bytes())
            }
            Err(said) => said,
        }
    }

    fn copy(&mut self, asked: &Asked, key: &str) -> Said {
        let object = match self.copied(asked) {
            Ok(object) => object,
            Err(said) => return said,
        };
        if object.bytes.len() as u64 > self.copy_bytes_max {
            return error(400, "InvalidRequest");
        }
        if !self.is_conditional_by_put_alone && self.refuses(asked, key) {
            return error(412, "PreconditionFailed");
        }
        let is_replaced = asked.header("x-amz-metadata-directive") == Some("REPLACE");
        let etag = self.put(key, object.bytes, if is_replaced { asked.meta() } else { object.meta });
        Said::new(
            200,
            format!("<CopyObjectResult><ETag>{}</ETag></CopyObjectResult>", etag.replace('"', "&quot;")).as_bytes(),
        )
    }

    fn get(&self, asked: &Asked, key: &str, is_whole: bool) -> Said {
        let Some(object) = self.objects.get(key) else { return error(404, "NoSuchKey") };
        if asked.header("if-match").is_some_and(|etag| etag != object.etag) {
            return error(412, "PreconditionFailed");
        }
        let range = asked.header("range").and_then(|range| range.strip_prefix("bytes=")).filter(|_| !is_whole);
        let (start, end) =
            range.and_then(|range| range.split_once('-')).map_or((0, object.bytes.len()), |(start, end)| {
                (start.parse().unwrap(), (end.parse::<usize>().unwrap() + 1).min(object.bytes.len()))
            });
        let mut said = Said::new(if range.is_some() { 206 } else { 200 }, &object.bytes[start..end]);
        if range.is_some() {
            said = said.with("content-range", &format!("bytes {start}-{}/{}", end - 1, object.bytes.len()));
        }
        said = said.with("etag", &object.etag).with("last-modified", &http::date(object.stored as i64));
        if asked.header("x-amz-checksum-mode").is_some()
            && let Some(crc) = object.crc
        {
            said = said.with("x-amz-checksum-crc64nvme", &BASE64.encode(&crc.to_be_bytes()));
            said = said.with("x-amz-checksum-type", "FULL_OBJECT");
        }
        for (name, value) in &object.meta {
            said = said.with(name, value);
        }
        said.is_head = asked.method == "HEAD";
        said
    }

    fn list(&self, asked: &Asked) -> Said {
        let get = |name: &str| asked.query(name).unwrap_or_default();
        let (prefix, delimiter, after) = (get("prefix"), get("delimiter"), get("continuation-token"));
        if self.has_empty_pages {
            let next = after.parse().unwrap_or(0) + 1;
            let xml = format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{next}</NextContinuationToken>");
            return Said::new(200, format!("<ListBucketResult>{xml}</ListBucketResult>").as_bytes());
        }
        let max = get("max-keys").parse().unwrap_or(1000).min(self.page_max);
        let start = if self.ignores_start_after { String::new() } else { get("start-after") };
        let after = if self.repeats_pages { String::new() } else { after.max(start) };
        let mut items: Vec<(String, Option<&Object>)> = Vec::new();
        let mut from = Bound::Included(prefix.clone());
        if after > prefix {
            from = Bound::Excluded(after.clone());
        }
        while items.len() <= max {
            let next = self.objects.range((from, Bound::Unbounded)).next();
            let Some((key, object)) = next.filter(|(key, _)| key.starts_with(&prefix)) else { break };
            let end = key[prefix.len()..].find('/').filter(|_| !delimiter.is_empty());
            let item = end.map_or((key.clone(), Some(object)), |end| (key[..=prefix.len() + end].to_owned(), None));
            // Behind everything that one prefix stands for.
            from = match item.1 {
                Some(_) => Bound::Excluded(key.clone()),
                None => Bound::Included(format!("{}0", &item.0[..item.0.len() - 1])),
            };
            if item.0 > after || self.repeats_pages {
                items.push(item);
            }
        }
        let is_cut = items.len() > max;
        items.truncate(max);
        let mut xml = String::from("<?xml version=\"1.0\"?><ListBucketResult><EncodingType>url</EncodingType>");
        for (key, object) in &items {
            let key_text = http::encoded(key);
            xml += &match object {
                None => format!("<CommonPrefixes><Prefix>{key_text}</Prefix></CommonPrefixes>"),
                Some(object) => format!(
                    "<Contents><Key>{key_text}</Key><Size>{}</Size><ETag>{}</ETag><LastModified>{}</LastModified></Contents>",
                    object.bytes.len(),
                    object.etag.replace('"', "&quot;"),
                    model::Timestamp { seconds: object.stored as i64, nanoseconds: 0 }.rfc3339()
                ),
            };
        }
        let next = items.last().map(|(key, _)| http::encoded(key)).unwrap_or_default();
        xml += &format!("<IsTruncated>{is_cut}</IsTruncated>");
        if is_cut {
            xml += &format!(
                "<NextContinuationToken>{}</NextContinuationToken>",
                http::decoded(&next).replace('&', "&amp;").replace('<', "&lt;")
            );
        }
        Said::new(200, (xml + "</ListBucketResult>").as_bytes())
    }

    fn list_parts(&self, asked: &Asked) -> Said {
        let id = asked.query("uploadId").unwrap();
        let Some(upload) = self.uploads.get(&id) else { return error(404, "NoSuchUpload") };
        let after: u32 = asked.query("part-number-marker").map_or(0, |marker| marker.parse().unwrap());
        let mut parts: Vec<_> = upload.parts.range(after + 1..).collect();
        let is_cut = parts.len() > self.page_max;
        parts.truncate(self.page_max);
        let next = parts.last().map_or(0, |(number, _)| **number);
        let mut xml = format!("<ListPartsResult><UploadId>{id}</UploadId><IsTruncated>{is_cut}</IsTruncated>");
        xml += &format!("<NextPartNumberMarker>{next}</NextPartNumberMarker>");
        for (number, bytes) in parts {
            let (etag, crc) = (&hash(bytes)[..32], BASE64.encode(&crc(bytes).to_be_bytes()));
            let (size, etag) = (bytes.len(), format!("&quot;{etag}&quot;"));
            xml += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag><Size>{size}</Size>");
            xml += &format!("<ChecksumCRC64NVME>{crc}</ChecksumCRC64NVME></Part>");
        }
        xml += "</ListPartsResult>";
        Said::new(200, self.parts_told.map_or(xml.clone(), |tell| tell(xml)).as_bytes())
    }

    fn list_uploads(&self) -> Said {
        let mut xml = String::from(
            "<ListMultipartUploadsResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>",
        );
        for (id, upload) in &self.uploads {
            let key = http::encoded(&upload.key);
            xml += &format!(
                "<Upload><Key>{key}</Key><UploadId>{id}</UploadId><Initiated>2026-01-01T00:00:00.000Z</Initiated></Upload>"
            );
        }
        Said::new(200, (xml + "</ListMultipartUploadsResult>").as_bytes())
    }
}
