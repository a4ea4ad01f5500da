//! A place in a bucket as a transfer would use it: whose keys, which clock, what is allowed, what the store keeps its word on.
//!
//! Invariants: one scratch object and one scratch upload are written, and both are removed; nothing else is touched; no key is shown.
//! Not here: whether the bucket answers at all, which is found out when it is opened (`open`).

use crate::bucket::{Bucket, Call, Conditions, now, random};
use crate::calls::{Condition, crc_of};
use crate::failure::{Failure, Result, Why};
use crate::metadata::header_moment;
use crate::publish::PROBE_PREFIX;
use data_encoding::HEXLOWER;
use model::Timestamp;
use std::time::{Duration, Instant};
use store::Seen;

/// Signatures count for 15 minutes; a clock that is off by more than this is worth a word.
const CLOCK_SECONDS_MAX: i64 = 60;
const LOOKS: usize = 5;
/// From there on an endpoint beside the bucket is worth its while for many small files.
const FAR: Duration = Duration::from_millis(20);
const OLD_SECONDS: i64 = 7 * 24 * 3600;
/// Of open uploads, so that a bucket with very many is not listed to its end.
const UPLOADS_MAX: usize = 10_000;

/// Something that transfers need, and that was refused; `action` is what a policy calls it.
fn needed(subject: &'static str, failure: &Failure, action: &str, cost: &'static str) -> Seen {
    let advice = match failure.why {
        Why::Forbidden => format!("allow these keys {action}"),
        Why::Unsupported => "the store does not know this request: ask whoever runs it".to_owned(),
        _ => "try again, and ask whoever runs the store if it stays so".to_owned(),
    };
    Seen::needed(subject, failure.text.clone(), cost, advice)
}

impl Bucket {
    /// Looks at everything below a prefix that a transfer would use.
    pub fn diagnose(&self, prefix: &str) -> Vec<Seen> {
        let key = format!("{prefix}{PROBE_PREFIX}{}", HEXLOWER.encode(&random::<8>()));
        let mut seen =
            vec![self.seen_keys(), Seen::good("store", format!("{}, region {}", self.address(), self.region()))];
        seen.extend(self.seen_list(prefix));
        seen.extend(self.seen_way(&key));
        seen.extend(self.seen_object(&key));
        seen.extend(self.seen_parts(&key));
        seen.extend(self.seen_uploads(prefix));
        seen
    }

    fn seen_keys(&self) -> Seen {
        match self.keys_from() {
            Ok(Some(origin)) => Seen::good("keys", format!("from {origin}")),
            Ok(None) => Seen::good("keys", "none: requests are not signed"),
            Err(text) => needed("keys", &Failure::new(Why::Keys, text), "", "nothing can be asked"),
        }
    }

    fn seen_list(&self, prefix: &str) -> Vec<Seen> {
        let query = vec![("list-type", "2".to_owned()), ("max-keys", "1".to_owned()), ("prefix", prefix.to_owned())];
        let call = Call { method: "GET", query, ..Call::default() };
        let answer = match self.call(&call, |_| true) {
            Err(failure) => {
                return vec![needed(
                    "list",
                    &failure,
                    "s3:ListBucket on the bucket",
                    "nothing can be compared or fetched as a tree",
                )];
            }
            Ok(answer) => answer,
        };
        let ahead = answer.header("date").and_then(header_moment).map(|date| date - now());
        let clock = match ahead {
            None => Seen::note("clock", "the store tells no time", "", "nothing can be done about it from here"),
            Some(ahead) if ahead.abs() > CLOCK_SECONDS_MAX => Seen::note(
                "clock",
                format!("the store's is {} s {}", ahead.abs(), if ahead > 0 { "ahead" } else { "behind" }),
                "each run begins with a request that is refused; times of objects are the store's",
                "set this host's clock: timedatectl set-ntp true",
            ),
            Some(_) => Seen::good("clock", "agrees with the store's"),
        };
        vec![clock, Seen::good("list", "allowed")]
    }

    /// How long the store takes for the least that it can be asked.
    fn seen_way(&self, key: &str) -> Option<Seen> {
        let looked = |_| {
            let begun = Instant::now();
            self.head(key).ok().map(|_| begun.elapsed())
        };
        let mut times: Vec<Duration> = (0..LOOKS).map(looked).collect::<Option<_>>()?;
        times.sort();
        let median = times[LOOKS / 2];
        let found = format!("{:.1} ms from question to answer", median.as_secs_f64() * 1e3);
        Some(match median > FAR {
            true => Seen::note(
                "way",
                found,
                "each small object takes so long, up to 128 of them at once",
                "run `thalweg serve` beside the bucket with [roots] (docs/object-stores.md)",
            ),
            false => Seen::good("way", found),
        })
    }

    fn seen_object(&self, key: &str) -> Vec<Seen> {
        let body = b"thalweg doctor";
        if let Err(failure) = self.put(key, body, &[], &Condition::Any) {
            return vec![needed("put", &failure, "s3:PutObject on its objects", "nothing can be written")];
        }
        let mut seen = vec![Seen::good("put", "allowed")];
        seen.extend(self.seen_content(key, body));
        let tried = self.probe(key);
        let damage = |kept: Conditions| match kept.refuses_damage {
            Some(true) => Seen::good("damage", "content with a wrong checksum is refused"),
            Some(false) => Seen::note(
                "damage",
                "content with a wrong checksum is taken",
                "damage on the way to the store is not noticed when it is written: results say that nothing is verified",
                "compare afterwards: thalweg check",
            ),
            None => Seen::note(
                "damage",
                "the store gave no answer to content with a wrong checksum",
                "whether damage on the way to the store is noticed is not known",
                "try again, and ask whoever runs the store if it stays so",
            ),
        };
        // Where the trial was not made, nothing is known of it.
        seen.extend(tried.as_ref().ok().copied().flatten().map(damage));
        seen.push(match tried {
            Ok(Some(kept)) if kept.absent && kept.version => {
                Seen::good("conditions", "If-None-Match and If-Match are kept to")
            }
            Ok(None) => Seen::note(
                "conditions",
                "not tried: the store did not let a trial object be written over",
                "until that is known, an object that a rival writes in the same moment may be replaced",
                "see whether a policy of the bucket forbids to write over objects, and try again",
            ),
            Ok(Some(_)) => Seen::note(
                "conditions",
                "the store does not keep to conditions",
                "an object that a rival writes in the same moment may be replaced",
                "let one writer at a time write to this prefix",
            ),
            Err(failure) => needed("conditions", &failure, "s3:PutObject on its objects", "nothing can be written"),
        });
        seen.push(match self.delete(key) {
            Ok(()) => Seen::good("delete", "allowed"),
            Err(failure) => {
                let seen =
                    needed("delete", &failure, "s3:DeleteObject on its objects", "nothing can be removed or moved");
                Seen { found: format!("{}; {key} stays there", seen.found), ..seen }
            }
        });
        seen
    }

    fn seen_content(&self, key: &str, body: &[u8]) -> Vec<Seen> {
        let (action, cost) = ("s3:GetObject on its objects", "nothing can be read");
        let there = match (self.head(key), self.get(key, None, "")) {
            (Ok(Some(there)), Ok(_)) => there,
            (Err(failure), _) | (_, Err(failure)) => return vec![needed("get", &failure, action, cost)],
            (Ok(None), Ok(_)) => {
                let failure = Failure::new(Why::Other, "what was written is not found");
                return vec![needed("get", &failure, action, cost)];
            }
        };
        let checksum = match there.crc == Some(crc_of(body)) {
            true => Seen::good("checksum", "CRC64-NVME of objects is kept"),
            false => Seen::note(
                "checksum",
                "CRC64-NVME of objects is not kept",
                "what is read is not compared with a sum of the store's",
                "a newer release of the store may keep it",
            ),
        };
        vec![Seen::good("get", "allowed"), checksum]
    }

    fn seen_parts(&self, key: &str) -> Vec<Seen> {
        const COST: &str = "files above 8 MiB cannot be written";
        const ACTION: &str = "s3:PutObject and s3:AbortMultipartUpload on its objects";
        let tried = |id: &str| -> Result<Seen> {
            let part = self.put_part(key, id, 1, b"part")?;
            Ok(match self.parts(key, id) {
                Ok(there) if there.get(&1).is_some_and(|there| there.crc == part.crc) => {
                    Seen::good("resume", "the store lists parts with their checksums")
                }
                told => Seen::note(
                    "resume",
                    told.err().map_or("the store lists parts without their checksums".to_owned(), |e| e.text),
                    "an interrupted upload starts again",
                    "allow these keys s3:ListMultipartUploadParts, where the store has CRC64-NVME",
                ),
            })
        };
        let id = match self.begin_upload(key, &[]) {
            Ok(id) => id,
            Err(failure) => return vec![needed("multipart", &failure, ACTION, COST)],
        };
        let mut seen = match tried(&id) {
            Ok(resume) => vec![Seen::good("multipart", "allowed"), resume],
            Err(failure) => vec![needed("multipart", &failure, ACTION, COST)],
        };
        if let Err(failure) = self.abort(key, &id) {
            let cost = "uploads that fail stay at the store, which charges for them";
            seen.push(needed("abort", &failure, "s3:AbortMultipartUpload on its objects", cost));
        }
        seen
    }

    fn seen_uploads(&self, prefix: &str) -> Option<Seen> {
        let (mut count, mut old, mut oldest) = (0, 0, i64::MAX);
        let listed = self.uploads(prefix, &mut |upload| {
            count += 1;
            old += usize::from(upload.begun < now() - OLD_SECONDS);
            oldest = oldest.min(upload.begun);
            count < UPLOADS_MAX
        });
        match listed {
            Err(failure) => Some(Seen::note(
                "uploads",
                failure.text,
                "open uploads cannot be found",
                "allow these keys s3:ListBucketMultipartUploads on the bucket",
            )),
            Ok(()) if old > 0 => Some(Seen::note(
                "uploads",
                format!(
                    "{old} older than a week, the oldest of {}",
                    Timestamp { seconds: oldest, nanoseconds: 0 }.rfc3339()
                ),
                "the store charges for them",
                "thalweg uploads ls, then thalweg uploads abort; or a lifecycle rule of the bucket",
            )),
            Ok(()) => Some(Seen::good("uploads", format!("{count} open, none older than a week"))),
        }
    }
}
