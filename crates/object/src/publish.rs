//! Giving an object its name: one request, on a condition, and a success that is proven.
//!
//! Invariants: where a store keeps to conditions, nothing is replaced but what was decided on; where it does not, or where it is not
//! known to (copies, and uploads of parts), one look stands right before the request, and a rival within that moment may not be
//! noticed. What a request came to that was not answered is found out by looking: size and checksum decide.

use crate::bucket::{Bucket, Call, Conditions, random};
use crate::calls::{CRC, Condition, CopyOf, Object, Part, crc_of};
use crate::failure::{Failure, Result, Why};
use crate::version::crc_text;
use data_encoding::HEXLOWER;
use model::mutant;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// What the names of scratch objects begin with.
pub const PROBE_PREFIX: &str = ".thalweg-probe-";
/// A trial that was refused is not made again for so long, where every object would be a reason for one.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// How often a store that is busy is sent what it is to refuse.
const DAMAGE_TRIES: u32 = 3;

type Meta<'a> = &'a [(String, String)];

/// What stands before a key's last name.
pub fn prefix_of(key: &str) -> &str {
    key.rfind('/').map_or("", |at| &key[..=at])
}

impl Bucket {
    /// What the store does with conditions, and with damage: found out once, on a scratch key, before the first object is published.
    /// Whoever comes meanwhile waits.
    pub fn conditions(&self, prefix: &str) -> Result<Conditions> {
        let mut tried = self.conditions.lock().unwrap();
        if let Some(known) = tried.known {
            return Ok(known);
        }
        tried.refused.retain(|_, when| when.elapsed() < REFUSED_FOR);
        if tried.refused.contains_key(prefix) {
            return Ok(Conditions::default());
        }
        let key = format!("{prefix}{PROBE_PREFIX}{}", HEXLOWER.encode(&random::<8>()));
        let found = self.probe(&key);
        let removed = self.delete(&key);
        let Some(found) = found? else {
            // That tells nothing of the store: elsewhere, or later, the trial may be allowed.
            tried.refused.insert(prefix.to_owned(), Instant::now());
            return Ok(Conditions::default());
        };
        // Whoever may write and not remove writes all the same.
        tried.left = removed.err().map(|failure| {
            let shown = &self.shown;
            format!("{shown}: the trial object {key} stays there ({failure}): remove it, and allow s3:DeleteObject")
        });
        Ok(*tried.known.insert(found))
    }

    /// The same by a scratch key that the caller removes; nothing where that must not be written.
    pub fn probe(&self, key: &str) -> Result<Option<Conditions>> {
        let is_kept = |condition| match self.put(key, b"probe", &[], &condition) {
            Ok(_) => Ok(false),
            Err(failure) if failure.why == Why::Condition => Ok(true),
            Err(failure) if failure.may_pass() || failure.why == Why::Keys => Err(failure),
            Err(_) => Ok(false),
        };
        match self.put(key, b"probe", &[], &Condition::Any) {
            Err(failure) if failure.may_pass() || failure.why == Why::NoBucket || failure.why == Why::Keys => {
                Err(failure)
            }
            // A client that may write below other names alone.
            Err(_) => Ok(None),
            Ok(_) => Ok(Some(Conditions {
                absent: is_kept(Condition::Absent)?,
                version: is_kept(Condition::Is("\"00000000000000000000000000000000\"".to_owned()))?,
                refuses_damage: self.refuses_damage(key),
            })),
        }
    }

    /// Whether a body is refused that is not what its checksum says. Nothing where the store gives no answer that counts.
    fn refuses_damage(&self, key: &str) -> Option<bool> {
        let body = b"damaged";
        let headers = vec![(CRC.to_owned(), crc_text(!crc_of(body)))];
        let call = Call { method: "PUT", key: Some(key), headers, body, ..Call::default() };
        (0..DAMAGE_TRIES).find_map(|_| match self.call_once(&call) {
            Ok(answer) => answer.header("etag").map(|_| false),
            // What is refused for another reason (a right, a condition, a quota) tells nothing of damage.
            Err(failure) => matches!(failure.why, Why::Damaged | Why::Other).then_some(true),
        })
    }

    /// Whether the store compares what it is sent with its checksum: by the trial, or where that did not come out because it says
    /// each time what it has got.
    pub fn vouches(&self) -> bool {
        let tried = self.conditions.lock().unwrap().known.and_then(|known| known.refuses_damage);
        tried.unwrap_or(!self.is_silent.load(Relaxed))
    }

    /// The condition as the store keeps to it; where it does not, what stands there is looked at now.
    fn settled(&self, key: &str, condition: &Condition) -> Result<Condition> {
        let prefix = prefix_of(key);
        let is_kept = match condition {
            Condition::Any => true,
            Condition::Absent => self.conditions(prefix)?.absent,
            Condition::Is(_) => self.conditions(prefix)?.version,
        };
        if is_kept {
            return Ok(condition.clone());
        }
        self.look_for(key, condition)?;
        Ok(Condition::Any)
    }

    /// The same for requests that make an object of what the store has. A store that keeps to conditions where it is sent content may
    /// pass them over there (Amazon's learnt those of copies a year after the others), and the trial tells nothing of that: what
    /// stands there is looked at in any case.
    fn settled_by_looking(&self, key: &str, condition: &Condition) -> Result<Condition> {
        let condition = self.settled(key, condition)?;
        self.look_for(key, &condition)?;
        Ok(condition)
    }

    /// An error where what stands at a key now is not what a condition asks for.
    fn look_for(&self, key: &str, condition: &Condition) -> Result<()> {
        let is_met = match condition {
            Condition::Any => true,
            Condition::Absent => self.head(key)?.is_none(),
            Condition::Is(etag) => self.head(key)?.is_some_and(|there| there.etag == *etag),
        };
        match is_met {
            true => Ok(()),
            false => Err(Failure::new(Why::Condition, "")),
        }
    }

    pub fn publish(&self, key: &str, body: &[u8], meta: Meta<'_>, condition: &Condition) -> Result<()> {
        if body.is_empty() && mutant::is_on("s3-empty-is-not-written") {
            return Ok(());
        }
        let condition = self.settled(key, condition)?;
        match self.put(key, body, meta, &condition) {
            Ok(_) => Ok(()),
            Err(failure) => {
                if mutant::is_on("s3-failed-put-deletes") {
                    self.delete(key)?;
                }
                self.resolve(key, (body.len() as u64, crc_of(body)), meta, &condition, failure)
            }
        }
    }

    /// Makes an object of the parts of an upload, which was begun with this metadata. `crc` is of the whole.
    pub fn publish_parts(
        &self,
        (key, id): (&str, &str),
        parts: &[Part],
        crc: u64,
        meta: Meta<'_>,
        condition: &Condition,
    ) -> Result<()> {
        let condition = match mutant::is_on("s3-parts-without-condition") {
            true => Condition::Any,
            false => self.settled_by_looking(key, condition)?,
        };
        let size = parts.iter().map(|part| part.size_bytes).sum();
        match self.complete(key, id, parts, crc, &condition) {
            Ok(()) => Ok(()),
            Err(failure) => self.resolve(key, (size, crc), meta, &condition, failure),
        }
    }

    /// Has the store copy an object of its own, and compares what it then says of both.
    pub fn publish_copy(
        &self,
        key: &str,
        from: &CopyOf,
        size_bytes: u64,
        meta: Meta<'_>,
        condition: &Condition,
    ) -> Result<()> {
        let condition = self.settled_by_looking(key, condition)?;
        let copied = self.copy((&from.bucket, &from.key, &from.etag), key, Some(meta), &condition);
        if let Err(failure) = copied {
            let Some(crc) = from.crc else { return Err(failure) };
            return self.resolve(key, (size_bytes, crc), meta, &condition, failure);
        }
        let there = self.head(key)?;
        let is_equal = |there: &Object| match mutant::is_on("s3-etag-is-md5") {
            // It names a version, and a copy is another one.
            true => there.etag == from.etag,
            false => from.crc.is_none() || there.crc.is_none() || there.crc == from.crc,
        };
        let is_same = |there: &Object| there.size_bytes == size_bytes && is_equal(there);
        match there {
            Some(there) if is_same(&there) => Ok(()),
            Some(there) if there.has(meta) => Err(self.undone(key, &there.etag, from.crc.unwrap_or_default())),
            _ => Err(Failure::new(Why::Damaged, "what the store copied is not what it had")),
        }
    }

    /// Whether this bucket and another one belong to one store, which can copy between them.
    pub fn is_store_of(&self, other: &Bucket) -> bool {
        let scheme = |bucket: &Bucket| bucket.shown.split("://").next().unwrap_or_default().to_owned();
        scheme(self) == scheme(other)
    }

    /// Whether a request that was not answered, or only the second time, or with another checksum, was carried out: what stands there
    /// has the content that was sent, and the time and mode, which also say of what kind it is.
    fn resolve(
        &self,
        key: &str,
        (size_bytes, crc): (u64, u64),
        meta: Meta<'_>,
        condition: &Condition,
        failure: Failure,
    ) -> Result<()> {
        let may_be_done = match failure.why {
            Why::Unknown | Why::Busy | Why::Altered => true,
            Why::Condition | Why::NoUpload | Why::Conflict => failure.is_repeated,
            _ => false,
        };
        if !may_be_done || mutant::is_on("s3-lost-answer-is-a-failure") {
            return Err(failure);
        }
        match self.head(key) {
            Ok(Some(there)) if there.size_bytes == size_bytes && there.has(meta) => match there.crc {
                Some(told) if told == crc => Ok(()),
                // It was carried out, as it is not what stood there before, and what has arrived is not what was sent. The next run
                // would take it for the same.
                Some(_) if condition.is_new(&there.etag) => Err(self.undone(key, &there.etag, crc)),
                _ => Err(failure),
            },
            Err(unseen) if failure.why != Why::Altered => Err(unseen),
            _ => Err(failure),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::config::StoreConfig;
    use fakes::http::{Asked, Said, serve};
    use std::net::TcpListener;
    use std::sync::atomic::AtomicBool;
    use std::sync::{Arc, Mutex};

    /// A bucket of a store that answers so.
    pub fn bucket(answer: impl Fn(&Asked) -> Said + Send + Sync + 'static) -> Bucket {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Some(format!("http://{}", listener.local_addr().unwrap()));
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = answer.clone();
                std::thread::spawn(move || serve(stream, &*answer));
            }
        });
        let region = Some("us-east-1".to_owned());
        let config = StoreConfig { endpoint, region, anonymous: true, ..StoreConfig::default() };
        Bucket::new("b", "s3://b".to_owned(), &config, web::Stop::default()).ok().unwrap()
    }

    fn taken(crc: Option<u64>) -> Said {
        let said = Said::new(200, b"").with("etag", "\"e\"");
        crc.map(crc_text).iter().fold(said, |said, crc| said.with(CRC, crc))
    }

    #[test]
    fn a_store_vouches_for_content_if_it_refuses_damage_or_tells_the_checksum_of_what_it_got() {
        let of = |of_damage: u16, tells: bool| {
            let bucket = bucket(move |asked| {
                let crc = crc_of(&asked.body);
                let is_damaged = asked.header(CRC) != Some(&crc_text(crc)[..]);
                let has_condition = asked.header("if-none-match").or(asked.header("if-match")).is_some();
                match &asked.method[..] {
                    "PUT" if has_condition => Said::new(412, b""),
                    "PUT" if is_damaged && of_damage != 200 => Said::new(of_damage, b""),
                    "PUT" => taken(tells.then_some(crc)),
                    _ => Said::new(204, b""),
                }
            });
            (bucket.conditions("").unwrap().refuses_damage, bucket.vouches())
        };
        assert_eq!(of(400, false), (Some(true), true));
        assert_eq!(of(200, false), (Some(false), false));
        // Where it gave no answer that counts.
        for status in [403, 409, 412, 503] {
            assert_eq!([of(status, false), of(status, true)], [(None, false), (None, true)], "{status}");
        }
    }

    #[test]
    fn what_has_arrived_as_something_else_is_sent_again_in_its_place_and_is_removed_in_the_end() {
        let of = |wrong: usize| {
            let sent = Arc::new(Mutex::new(Vec::new()));
            let heard = sent.clone();
            let bucket = bucket(move |asked| {
                let mut heard = heard.lock().unwrap();
                heard.push(format!("{} {}", asked.method, asked.header("if-match").unwrap_or("-")));
                taken(Some(if heard.len() > wrong { crc_of(&asked.body) } else { 1 }))
            });
            let put = bucket.put("k", b"content", &[], &Condition::Absent).map_err(|failure| failure.why);
            (put, sent.lock().unwrap().clone())
        };
        let told = |requests: &[&str]| requests.iter().map(|request| (*request).to_owned()).collect::<Vec<_>>();
        let (etag, again) = (|| "\"e\"".to_owned(), "PUT \"e\"");
        assert_eq!(of(0), (Ok(etag()), told(&["PUT -"])));
        assert_eq!(of(1), (Ok(etag()), told(&["PUT -", again])));
        assert_eq!(of(9), (Err(Why::Altered), told(&["PUT -", again, again, "HEAD -", "DELETE \"e\""])));
    }

    #[test]
    fn what_has_arrived_damaged_is_told_as_gone_if_the_request_that_removed_it_was_not_answered() {
        // What stores say of the second request for what is not there any more.
        for status in [404, 412] {
            let is_removed = AtomicBool::new(false);
            let bucket = bucket(move |asked| match &asked.method[..] {
                "PUT" => taken(Some(1)),
                "DELETE" if is_removed.swap(true, Relaxed) => Said::new(status, b""),
                "DELETE" => {
                    let mut said = Said::new(204, b"");
                    said.is_lost = true;
                    said
                }
                _ if is_removed.load(Relaxed) => Said::new(404, b""),
                _ => Said::new(200, b"").with("etag", "\"e\""),
            });
            let failure = bucket.put("k", b"content", &[], &Condition::Absent).unwrap_err();
            let is_told = failure.text.contains("does not have it any more");
            assert!(failure.why == Why::Altered && is_told, "{status}: {failure}");
        }
    }

    #[test]
    fn what_a_rival_wrote_over_what_has_arrived_damaged_is_not_removed() {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let heard = requests.clone();
        let bucket = bucket(move |asked| {
            heard.lock().unwrap().push(asked.method.clone());
            match &asked.method[..] {
                "PUT" if asked.header("if-match").is_some() => Said::new(412, b""),
                "PUT" => taken(Some(1)),
                _ => Said::new(200, b"").with("etag", "\"rival\""),
            }
        });
        let put = bucket.put("k", b"content", &[], &Condition::Absent).map_err(|failure| failure.why);
        assert_eq!((put, requests.lock().unwrap().join(" ")), (Err(Why::Altered), "PUT PUT HEAD".to_owned()));
    }

    #[test]
    fn parts_that_have_arrived_as_something_else_come_again_and_make_no_object() {
        let count = Arc::new(Mutex::new(0));
        let heard = count.clone();
        let bucket = bucket(move |asked| {
            let mut heard = heard.lock().unwrap();
            *heard += 1;
            if asked.method == "POST" {
                let xml = "<ETag>e</ETag><ChecksumCRC64NVME>AAAAAAAAAAE=</ChecksumCRC64NVME>";
                let xml = format!("<CompleteMultipartUploadResult>{xml}</CompleteMultipartUploadResult>");
                return Said::new(200, xml.as_bytes());
            }
            taken(Some(if *heard > 2 { crc_of(&asked.body) } else { 1 }))
        });
        let part = bucket.put_part("k", "id", 1, b"part").unwrap();
        assert_eq!((part.crc, *count.lock().unwrap()), (Some(crc_of(b"part")), 3));
        let complete = |crc| bucket.complete("k", "id", std::slice::from_ref(&part), crc, &Condition::Any);
        assert!(complete(1).is_ok());
        assert_eq!(complete(2).unwrap_err().why, Why::Altered);
    }
}
