//! The requests there are, each as one function: what is sent, and what of the answer counts.

use crate::bucket::{Answer, Bucket, Call};
use crate::failure::{Failure, Result, Why};
use crate::metadata::{self, MODE, MTIME};
pub use crate::version::{CRC, Listed, Object, Page, crc_of};
use crate::version::{crc_text, crc_value, size_told};
use model::mutant;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use web::Response;
use web::xml::{Element, escape};

/// What the store takes of keys in one answer or question.
pub const PAGE_MAX: usize = 1000;
/// What a store may take to copy 5 GiB.
const COPY_PATIENCE: Duration = Duration::from_secs(900);
/// Of an object, in number.
pub const PARTS_MAX: u32 = 10_000;
/// How often content is sent that has another checksum where it has arrived.
const ALTERED_MAX: u32 = 3;

/// Where a listing begins.
#[derive(Clone, Copy)]
pub enum From<'a> {
    Start,
    /// Where the store said that it goes on.
    Token(&'a str),
    /// Behind this key.
    After(&'a str),
}

impl<'a> From<'a> {
    pub fn of(token: Option<&'a str>) -> From<'a> {
        token.map_or(From::Start, From::Token)
    }
}

/// An object that the store has already.
#[derive(Clone)]
pub struct CopyOf {
    pub bucket: String,
    pub key: String,
    pub etag: String,
    pub crc: Option<u64>,
}

/// On what condition a key is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    Any,
    Absent,
    /// The version with this ETag stands there.
    Is(String),
}

impl Condition {
    /// Whether a version with this ETag came after what the condition demands.
    pub fn is_new(&self, etag: &str) -> bool {
        match self {
            Condition::Any => false,
            Condition::Absent => true,
            Condition::Is(before) => plain(before) != plain(etag),
        }
    }
}

fn plain(etag: &str) -> &str {
    etag.trim_matches('"')
}

/// An upload of parts that is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upload {
    pub key: String,
    pub id: String,
    /// Seconds since 1970.
    pub begun: i64,
}

/// A part that the store has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    pub number: u32,
    pub etag: String,
    pub size_bytes: u64,
    pub crc: Option<u64>,
}

type Headers = Vec<(String, String)>;

/// What is said of an object beside its content, and is gone when its metadata is replaced.
const DESCRIPTION: [&str; 8] = [
    "content-type",
    "content-encoding",
    "content-language",
    "content-disposition",
    "cache-control",
    "expires",
    "x-amz-storage-class",
    "x-amz-website-redirect-location",
];

fn header(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

impl Condition {
    fn put(&self, headers: &mut Headers) {
        match self {
            Condition::Any => {}
            Condition::Absent => headers.push(header("if-none-match", "*")),
            Condition::Is(etag) => headers.push(header("if-match", etag)),
        }
    }
}

fn unknown(text: &str) -> Failure {
    Failure::new(Why::Unknown, text)
}

fn object_of(answer: &Answer) -> Object {
    Object::of_answer(|name| answer.header(name).map(str::to_owned))
}

/// The root of an answer, if it has the name that it has to have.
fn root(answer: &Answer, name: &str) -> Option<Element> {
    Element::parse(&answer.body).filter(|root| root.name == name)
}

impl Bucket {
    pub fn head(&self, key: &str) -> Result<Option<Object>> {
        Ok(self.answer_of(key)?.as_ref().map(object_of))
    }

    /// The same, with what an object of the same content has to be sent with to be the same to others.
    pub fn head_with_description(&self, key: &str) -> Result<Option<(Object, Headers)>> {
        let is_description =
            |(name, _): &(String, String)| name.starts_with("x-amz-meta-") || DESCRIPTION.contains(&&name[..]);
        let described = |answer: Answer| {
            let object = object_of(&answer);
            (object, answer.headers.into_iter().filter(is_description).collect())
        };
        Ok(self.answer_of(key)?.map(described))
    }

    fn answer_of(&self, key: &str) -> Result<Option<Answer>> {
        let headers = vec![header("x-amz-checksum-mode", "ENABLED")];
        let call = Call { method: "HEAD", key: Some(key), headers, ..Call::default() };
        // One that names no version is of somebody on the way.
        match self.call(&call, |answer| answer.header("etag").is_some()) {
            Ok(answer) if answer.header("content-length").is_some_and(|told| size_told(told).is_none()) => {
                Err(unknown("the store tells a length that no file has"))
            }
            Ok(answer) => Ok(Some(answer)),
            Err(failure) if failure.why == Why::NoKey => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// What was learnt before of an object of a listing.
    pub fn at_hand(&self, listed: &Listed) -> Option<Object> {
        self.known.as_ref().and_then(|known| known.find(listed))
    }

    /// The same of an object of a listing, asked for where nothing was learnt.
    pub fn look(&self, listed: &Listed) -> Result<Option<Object>> {
        self.at_hand(listed).map_or_else(|| self.ask(&listed.key), |found| Ok(Some(found)))
    }

    /// Asks for an object and learns what it is.
    pub fn ask(&self, key: &str) -> Result<Option<Object>> {
        let found = self.head(key)?;
        found.iter().for_each(|found| self.learn(key, found));
        Ok(found)
    }

    pub fn learn(&self, key: &str, object: &Object) {
        if let Some(known) = &self.known {
            known.learn(key, object);
        }
    }

    /// Bytes of one version of an object; the whole of it where no range is given.
    pub fn get(&self, key: &str, range: Option<(u64, u64)>, etag: &str) -> Result<Response> {
        let mut headers = Headers::new();
        if let Some((start, end)) = range {
            headers.push(header("range", format!("bytes={start}-{}", end - 1)));
        }
        if !etag.is_empty() {
            headers.push(header("if-match", etag));
        }
        if range.is_none() {
            headers.push(header("x-amz-checksum-mode", "ENABLED"));
        }
        let call = Call { method: "GET", key: Some(key), headers, ..Call::default() };
        // A page for people has a length too, which is not that of the object. Some stores tell no `ETag` of what was written beside them.
        let marks = ["etag", "content-range", "x-amz-request-id"];
        let response = self.open(&call, |response| marks.iter().any(|name| response.header(name).is_some()))?;
        if response.header("content-encoding").is_some_and(|coding| coding.contains("aws-chunked")) {
            return Err(unknown("the store sent content in a coding that was not asked for"));
        }
        // Whether or not it knows conditions.
        let is_other = response.header("etag").is_some_and(|told| !etag.is_empty() && told != etag);
        if is_other && !mutant::is_on("s3-any-version-will-do") {
            return Err(Failure::new(Why::Condition, "the store sent another version than was asked for"));
        }
        let Some((start, end)) = range else { return Ok(response) };
        let place = response.header("content-range").and_then(|range| range.strip_prefix("bytes "));
        let place = place.and_then(|range| range.split('/').next());
        let length = response.header("content-length").is_none_or(|length| length == (end - start).to_string());
        match response.status == 206 && length && place == Some(&format!("{start}-{}", end - 1)) {
            true => Ok(response),
            false => Err(unknown("the store sent another range than was asked for")),
        }
    }

    pub fn put(&self, key: &str, body: &[u8], meta: &[(String, String)], condition: &Condition) -> Result<String> {
        let (mut condition, crc, mut tries) = (condition.clone(), crc_of(body), 0);
        let mut altered: Option<String> = None;
        let (answer, etag) = loop {
            let mut headers = meta.to_vec();
            headers.push(header(CRC, crc_text(crc)));
            condition.put(&mut headers);
            let call = Call { method: "PUT", key: Some(key), headers, body, ..Call::default() };
            let answered = self.call(&call, |answer| answer.status == 200 && answer.header("etag").is_some());
            let answer = match (answered, &altered) {
                (Err(_), Some(etag)) => return Err(self.undone(key, etag, crc)),
                (answered, _) => answered?,
            };
            let etag = answer.header("etag").unwrap_or_default().to_owned();
            tries += 1;
            if self.is_confirmed(answer.crc(), crc) {
                break (answer, etag);
            }
            if tries == ALTERED_MAX {
                return Err(self.undone(key, &etag, crc));
            }
            // It stands there by now, and is what is to be replaced.
            if condition != Condition::Any {
                condition = Condition::Is(etag.clone());
            }
            altered = Some(etag);
        };
        if let Some(stored) = answer.header("date").and_then(metadata::header_moment) {
            let said = |name: &str| meta.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..]);
            let (modified, mode) = (said(MTIME).and_then(metadata::time), said(MODE).and_then(metadata::mode));
            let size_bytes = body.len() as u64;
            self.learn(key, &Object { size_bytes, etag: etag.clone(), stored, modified, mode, crc: None });
        }
        Ok(etag)
    }

    /// Whether a store has got what was sent, as far as its answer tells.
    fn is_confirmed(&self, told: Option<u64>, crc: u64) -> bool {
        if told.is_none() {
            self.is_silent.store(true, Relaxed);
        }
        told.is_none_or(|told| told == crc)
    }

    /// The store says that the version with this ETag is not what was sent: removes it, if that is what stands there. The next run
    /// would take it for the same by its size and time.
    pub fn undone(&self, key: &str, etag: &str, crc: u64) -> Failure {
        let removed = self.head(key).and_then(|there| {
            let Some(there) = there else { return Ok(true) };
            if plain(&there.etag) != plain(etag) || there.crc == Some(crc) {
                return Ok(false);
            }
            let headers = vec![header("if-match", there.etag)];
            let call = Call { method: "DELETE", key: Some(key), headers, ..Call::default() };
            match self.call(&call, |_| true) {
                Ok(_) => Ok(true),
                // It may have been carried out before, without an answer; or a rival was faster.
                Err(failure) if matches!(failure.why, Why::NoKey | Why::Condition) => Ok(self.head(key)?.is_none()),
                Err(failure) => Err(failure),
            }
        });
        let text = match removed {
            Ok(true) => "the store got something else than was sent, and does not have it any more: send it again",
            Ok(false) => {
                "the store got something else than was sent, and has another version by now: look at it, and send it again"
            }
            Err(_) => "the store says that what stands there now is not what was sent: remove it, and send it again",
        };
        Failure::new(Why::Altered, text)
    }

    /// Removes a key, whether or not it is there.
    pub fn delete(&self, key: &str) -> Result<()> {
        let call = Call { method: "DELETE", key: Some(key), ..Call::default() };
        match self.call(&call, |_| true) {
            Ok(_) => Ok(()),
            Err(failure) if failure.why == Why::NoKey => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Removes many keys, at most `PAGE_MAX`, and says of each what came of it, in their order. Only what the store names
    /// counts: as removed, or as not there, as some stores say of a request that is repeated because its answer was lost.
    pub fn delete_many(&self, keys: &[&str]) -> Result<Vec<Result<()>>> {
        let mut body = String::from("<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
        keys.iter().for_each(|key| body.push_str(&format!("<Object><Key>{}</Key></Object>", escape(key))));
        body.push_str("</Delete>");
        let headers = vec![header(CRC, crc_text(crc_of(body.as_bytes())))];
        let query = vec![("delete", String::new())];
        let call = Call { method: "POST", query, headers, body: body.as_bytes(), ..Call::default() };
        let answer = self.call(&call, |answer| root(answer, "DeleteResult").is_some())?;
        let root = root(&answer, "DeleteResult").expect("looked at above");
        let removed: HashSet<&str> = root.all("Deleted").filter_map(|one| one.get("Key")).collect();
        let mut failed: HashMap<&str, Failure> = HashMap::new();
        for one in root.all("Error") {
            let [code, message] = ["Code", "Message"].map(|name| one.get(name).unwrap_or_default());
            failed.insert(one.get("Key").unwrap_or_default(), Failure::of_code(code, message));
        }
        let told = |key: &&str| match (failed.get(*key).cloned(), removed.contains(*key)) {
            (Some(failure), _) if failure.why != Why::NoKey => Err(failure),
            (Some(_), _) | (None, true) => Ok(()),
            (None, false) => Err(unknown("the store does not say that it removed it")),
        };
        Ok(keys.iter().map(told).collect())
    }

    /// Copies an object of a bucket of this store, which is still the version with this ETag. `meta` replaces its metadata.
    pub fn copy(
        &self,
        from: (&str, &str, &str),
        to: &str,
        meta: Option<&[(String, String)]>,
        condition: &Condition,
    ) -> Result<()> {
        let (bucket, key, etag) = from;
        let source = format!("/{bucket}/{}", crate::sign::encode(key.as_bytes(), true));
        let mut headers = meta.unwrap_or_default().to_vec();
        headers.push(header("x-amz-copy-source", source));
        headers.push(header("x-amz-copy-source-if-match", etag));
        headers.push(header("x-amz-metadata-directive", if meta.is_some() { "REPLACE" } else { "COPY" }));
        condition.put(&mut headers);
        let call = Call { method: "PUT", key: Some(to), headers, patience: COPY_PATIENCE, ..Call::default() };
        self.call(&call, |answer| root(answer, "CopyObjectResult").is_some()).map(drop)
    }

    /// Has the store copy a range of one of its objects, which is still that version, into an upload.
    pub fn copy_part(&self, from: &CopyOf, key: &str, id: &str, number: u32, (start, end): (u64, u64)) -> Result<Part> {
        let query = vec![("partNumber", number.to_string()), ("uploadId", id.to_owned())];
        let source = format!("/{}/{}", from.bucket, crate::sign::encode(from.key.as_bytes(), true));
        let headers = vec![
            header("x-amz-copy-source", source),
            header("x-amz-copy-source-if-match", &from.etag),
            header("x-amz-copy-source-range", format!("bytes={start}-{}", end - 1)),
        ];
        let call = Call { method: "PUT", key: Some(key), query, headers, patience: COPY_PATIENCE, ..Call::default() };
        let etag = |answer: &Answer| root(answer, "CopyPartResult")?.get("ETag").map(str::to_owned);
        let answer = self.call(&call, |answer| etag(answer).is_some())?;
        let crc = root(&answer, "CopyPartResult").and_then(|root| crc_value(root.get("ChecksumCRC64NVME")?));
        Ok(Part { number, etag: etag(&answer).expect("looked at above"), size_bytes: end - start, crc })
    }

    pub fn page(&self, prefix: &str, is_flat: bool, from: From<'_>, count: usize) -> Result<Page> {
        let mut query = vec![
            ("list-type", "2".to_owned()),
            ("encoding-type", "url".to_owned()),
            ("max-keys", count.to_string()),
            ("prefix", prefix.to_owned()),
        ];
        query.extend((!is_flat).then(|| ("delimiter", "/".to_owned())));
        match from {
            From::Start => {}
            From::Token(token) => query.push(("continuation-token", token.to_owned())),
            From::After(key) => query.push(("start-after", key.to_owned())),
        }
        let call = Call { method: "GET", query, ..Call::default() };
        let answer = self.call(&call, |answer| root(answer, "ListBucketResult").is_some())?;
        let root = root(&answer, "ListBucketResult").expect("looked at above");
        page(&root).ok_or_else(|| unknown("the store's listing makes no sense"))
    }

    pub fn begin_upload(&self, key: &str, meta: &[(String, String)]) -> Result<String> {
        let mut headers = meta.to_vec();
        headers.push(header("x-amz-checksum-algorithm", "CRC64NVME"));
        headers.push(header("x-amz-checksum-type", "FULL_OBJECT"));
        let query = vec![("uploads", String::new())];
        let call = Call { method: "POST", key: Some(key), query, headers, ..Call::default() };
        let id = |answer: &Answer| {
            let root = root(answer, "InitiateMultipartUploadResult")?;
            root.get("UploadId").filter(|id| !id.is_empty()).map(str::to_owned)
        };
        let answer = self.call(&call, |answer| id(answer).is_some())?;
        Ok(id(&answer).expect("looked at above"))
    }

    pub fn put_part(&self, key: &str, id: &str, number: u32, body: &[u8]) -> Result<Part> {
        let crc = crc_of(body);
        let query = vec![("partNumber", number.to_string()), ("uploadId", id.to_owned())];
        let headers = vec![header(CRC, crc_text(crc))];
        let call = Call { method: "PUT", key: Some(key), query, headers, body, crc: Some(crc), ..Call::default() };
        let answer = self.call(&call, |answer| answer.status == 200 && answer.header("etag").is_some())?;
        let etag = answer.header("etag").unwrap_or_default().to_owned();
        Ok(Part { number, etag, size_bytes: body.len() as u64, crc: Some(crc) })
    }

    /// The parts that the store holds of an upload, by their numbers. One that it names twice, and not alike, has no ETag.
    pub fn parts(&self, key: &str, id: &str) -> Result<BTreeMap<u32, Part>> {
        let (mut parts, mut marker) = (BTreeMap::new(), 0);
        loop {
            let mut query = vec![("uploadId", id.to_owned())];
            query.extend((marker > 0).then(|| ("part-number-marker", marker.to_string())));
            let call = Call { method: "GET", key: Some(key), query, ..Call::default() };
            let answer = self.call(&call, |answer| root(answer, "ListPartsResult").is_some())?;
            let root = root(&answer, "ListPartsResult").expect("looked at above");
            if root.get("UploadId").is_some_and(|named| named != id) {
                return Err(unknown("the store told of another upload than was asked for"));
            }
            for part in root.all("Part").filter_map(part) {
                let alike = parts.insert(part.number, part.clone()).is_none_or(|before| before == part);
                if !alike {
                    parts.insert(part.number, Part { etag: String::new(), ..part });
                }
            }
            if root.get("IsTruncated") != Some("true") {
                return Ok(parts);
            }
            let next = root.get("NextPartNumberMarker").and_then(|next| next.parse().ok());
            marker = next
                .filter(|next| (marker + 1..=PARTS_MAX).contains(next))
                .ok_or_else(|| unknown("the store's list of parts does not go on"))?;
        }
    }

    /// Makes an object of parts. `crc` is of the whole.
    pub fn complete(&self, key: &str, id: &str, parts: &[Part], crc: u64, condition: &Condition) -> Result<()> {
        let mut body = String::from("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
        for Part { number, etag, crc, .. } in parts {
            let crc = crc.map(|crc| format!("<ChecksumCRC64NVME>{}</ChecksumCRC64NVME>", crc_text(crc)));
            let (etag, crc) = (escape(etag), crc.unwrap_or_default());
            body.push_str(&format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag>{crc}</Part>"));
        }
        body.push_str("</CompleteMultipartUpload>");
        let size: u64 = parts.iter().map(|part| part.size_bytes).sum();
        let mut headers = vec![
            header(CRC, crc_text(crc)),
            header("x-amz-checksum-type", "FULL_OBJECT"),
            header("x-amz-mp-object-size", size.to_string()),
        ];
        condition.put(&mut headers);
        let query = vec![("uploadId", id.to_owned())];
        let call = Call { method: "POST", key: Some(key), query, headers, body: body.as_bytes(), ..Call::default() };
        // A success may be said before the work is done: only the result itself counts.
        let is_result = |root: &Element| {
            let is_named =
                ["CompleteMultipartUploadResult", "CompleteMultipartUploadResponse"].contains(&&root.name[..]);
            is_named && root.get("ETag").is_some_and(|etag| !etag.is_empty())
        };
        let is_done = |answer: &Answer| Element::parse(&answer.body).is_some_and(|root| is_result(&root));
        let answer = self.call(&call, |answer| is_done(answer) || mutant::is_on("s3-200-is-success"))?;
        let told = |root: &Element| {
            let is_whole = root.get("ChecksumType").is_none_or(|kind| kind == "FULL_OBJECT");
            root.get("ChecksumCRC64NVME").filter(|_| is_whole).and_then(crc_value)
        };
        let result = Element::parse(&answer.body);
        match self.is_confirmed(result.as_ref().and_then(told), crc) {
            true => Ok(()),
            false => {
                let etag = result.as_ref().and_then(|root| root.get("ETag"));
                Err(self.undone(key, etag.unwrap_or_default(), crc))
            }
        }
    }

    pub fn abort(&self, key: &str, id: &str) -> Result<()> {
        let query = vec![("uploadId", id.to_owned())];
        let call = Call { method: "DELETE", key: Some(key), query, ..Call::default() };
        match self.call(&call, |_| true) {
            Err(failure) if failure.why != Why::NoUpload && failure.why != Why::NoKey => Err(failure),
            _ => Ok(()),
        }
    }

    /// Uploads that are open below a prefix.
    pub fn uploads(&self, prefix: &str, each: &mut dyn FnMut(Upload) -> bool) -> Result<()> {
        let (mut key_marker, mut id_marker) = (String::new(), String::new());
        // The marker of page 1, 2, 4, 8 and so on is kept: a list that goes round comes to it again.
        let mut kept = (String::new(), String::new());
        for page in 1u64.. {
            let mut query =
                vec![("uploads", String::new()), ("encoding-type", "url".to_owned()), ("prefix", prefix.to_owned())];
            if !key_marker.is_empty() {
                query.extend([("key-marker", key_marker.clone()), ("upload-id-marker", id_marker.clone())]);
            }
            let call = Call { method: "GET", query, ..Call::default() };
            let answer = self.call(&call, |answer| root(answer, "ListMultipartUploadsResult").is_some())?;
            let root = root(&answer, "ListMultipartUploadsResult").expect("looked at above");
            let is_encoded = root.get("EncodingType") == Some("url");
            for upload in root.all("Upload") {
                let key = text(upload.get("Key"), is_encoded).ok_or_else(|| unknown("an upload has no key"))?;
                let id = upload.get("UploadId").unwrap_or_default().to_owned();
                let begun = upload.get("Initiated").and_then(metadata::moment).unwrap_or_default();
                if !each(Upload { key, id, begun }) {
                    return Ok(());
                }
            }
            let next_key = text(root.get("NextKeyMarker"), is_encoded).unwrap_or_default();
            let next_id = root.get("NextUploadIdMarker").unwrap_or_default().to_owned();
            if root.get("IsTruncated") != Some("true") {
                return Ok(());
            }
            let next = (next_key, next_id);
            if next.0.is_empty() || next == kept || (&next.0, &next.1) == (&key_marker, &id_marker) {
                return Err(unknown("the store's list of uploads does not go on"));
            }
            (key_marker, id_marker) = next;
            if page.is_power_of_two() {
                kept = (key_marker.clone(), id_marker.clone());
            }
        }
        unreachable!("a list ends, or goes round")
    }
}

/// A part of a list, if it can be one.
fn part(found: &Element) -> Option<Part> {
    let number = found.get("PartNumber")?.parse().ok().filter(|number| (1..=PARTS_MAX).contains(number))?;
    let crc = found.get("ChecksumCRC64NVME").and_then(crc_value);
    Some(Part { number, etag: found.get("ETag")?.to_owned(), size_bytes: size_told(found.get("Size")?)?, crc })
}

fn text(value: Option<&str>, is_encoded: bool) -> Option<String> {
    let value = value?;
    if !is_encoded {
        return Some(value.to_owned());
    }
    String::from_utf8(crate::sign::decode(value)?).ok()
}

fn page(root: &Element) -> Option<Page> {
    let is_encoded = root.get("EncodingType") == Some("url");
    let mut page = Page::default();
    for found in root.all("Contents") {
        page.objects.push(Listed {
            key: text(found.get("Key"), is_encoded)?,
            size_bytes: size_told(found.get("Size")?)?,
            etag: found.get("ETag").unwrap_or_default().to_owned(),
            stored: found.get("LastModified").and_then(metadata::moment).unwrap_or_default(),
        });
    }
    for found in root.all("CommonPrefixes") {
        page.prefixes.push(text(found.get("Prefix"), is_encoded)?);
    }
    if root.get("IsTruncated") == Some("true") {
        page.next = Some(root.get("NextContinuationToken").filter(|token| !token.is_empty())?.to_owned());
    }
    Some(page)
}
