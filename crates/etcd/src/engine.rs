//! The coordinator's operations as transactions and leases of etcd.
//!
//! Invariants:
//! - A change compares revision and value, so that what arrives late changes nothing, nor does what belongs to another history.
//! - A lease counts as renewed when the answer says for how long: one that is gone is answered with 200 as well.

use crate::answer::{self, NOT_FOUND, field, number};
use crate::gateway::{Config, Effect, Failed, Gateway, malformed};
use cluster::coordinator::{Answer, Coordinator, Held, History, KEYS_MAX, Lease};
use data_encoding::BASE64;
use model::mutant;
use serde_json::{Value, json};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keys of a page of a list.
const PAGE: usize = 1000;
/// How often a change is sent whose answer was lost.
const TRIES: usize = 3;

pub struct Etcd {
    gateway: Gateway,
    seen: Mutex<History>,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Etcd")
    }
}

impl Etcd {
    /// Nobody is asked yet.
    ///
    /// # Errors
    /// When it cannot be asked like that.
    pub fn new(config: Config) -> Answer<Etcd> {
        Ok(Etcd { gateway: Gateway::new(config)?, seen: Mutex::default() })
    }

    fn seen(&self) -> MutexGuard<'_, History> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of what reads or changes keys: its answer is not older than one before, or the history is another.
    fn ask_keys(&self, path: &'static str, question: &Value, effect: Effect) -> Result<Value, Failed> {
        let before = *self.seen();
        let answer = self.gateway.ask(path, question, effect)?;
        let header = answer::header(&answer).ok_or_else(|| Failed::Unclear(malformed("its answer has no header")))?;
        let mut seen = self.seen();
        let is_other = before.cluster != 0 && (header.cluster != before.cluster || header.revision < before.revision);
        let revision = if is_other { header.revision } else { seen.revision.max(header.revision) };
        *seen = History { cluster: header.cluster, revision, turns: seen.turns + u64::from(is_other) };
        Ok(answer)
    }

    /// One transaction; what it says, and whether its conditions held.
    fn transact(&self, question: &Value, effect: Effect) -> Result<(bool, Value), Failed> {
        let answer = self.ask_keys("/v3/kv/txn", question, effect)?;
        let has_succeeded = field(&answer, "succeeded").and_then(Value::as_bool).unwrap_or(false);
        Ok((has_succeeded, answer))
    }
}

impl Coordinator for Etcd {
    fn get(&self, keys: &[String]) -> Answer<Vec<Option<Held>>> {
        debug_assert!(keys.len() <= KEYS_MAX);
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let ranges: Vec<_> = keys.iter().map(|key| json!({"request_range": {"key": encoded(key)}})).collect();
        let (_, answer) = self.transact(&json!({"success": ranges}), Effect::Harmless)?;
        let wrong = || malformed("its answer to a transaction makes no sense");
        let responses = field(&answer, "responses").and_then(Value::as_array).ok_or_else(wrong)?;
        if responses.len() != keys.len() {
            return Err(wrong());
        }
        let held = |(key, response): (&String, &Value)| {
            let range = field(response, "response_range").ok_or_else(wrong)?;
            let mut pairs = answer::pairs(range).ok_or_else(wrong)?;
            match (pairs.pop(), pairs.is_empty()) {
                (None, _) => Ok(None),
                (Some((found, held)), true) if found == *key => Ok(Some(held)),
                _ => Err(wrong()),
            }
        };
        keys.iter().zip(responses).map(held).collect()
    }

    fn list(&self, prefix: &str, most: usize) -> Answer<Vec<String>> {
        let mut keys: Vec<String> = Vec::new();
        while keys.len() < most {
            let from = keys.last().map_or_else(|| prefix.to_owned(), |last| format!("{last}\0"));
            let limit = PAGE.min(most - keys.len());
            let question = json!({"key": encoded(&from), "range_end": BASE64.encode(&end_of(prefix)),
                "limit": limit.to_string(), "keys_only": true});
            let answer = self.ask_keys("/v3/kv/range", &question, Effect::Harmless)?;
            let pairs = answer::pairs(&answer).ok_or_else(|| malformed("its list makes no sense"))?;
            let is_in_order = |key: &String| key.starts_with(prefix) && keys.last().is_none_or(|last| last < key);
            if pairs.len() > limit || !pairs.iter().all(|(key, _)| is_in_order(key)) {
                return Err(malformed("its list is none of what was asked for"));
            }
            let is_last = pairs.len() < limit;
            keys.extend(pairs.into_iter().map(|(key, _)| key));
            if is_last {
                break;
            }
        }
        Ok(keys)
    }

    fn change(&self, key: &str, seen: Option<&Held>, new: Option<&[u8]>, lease: Option<Lease>) -> Answer<bool> {
        let name = encoded(key);
        let compare = match seen {
            None => json!([{"key": name, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}]),
            Some(held) => json!([
                {"key": name, "target": "MOD", "result": "EQUAL", "mod_revision": held.revision.to_string()},
                {"key": name, "target": "VALUE", "result": "EQUAL", "value": BASE64.encode(&held.value)}]),
        };
        let act = match new {
            Some(value) => {
                let lease = lease.map_or(0, |lease| lease.0).to_string();
                json!({"request_put": {"key": name, "value": BASE64.encode(value), "lease": lease}})
            }
            None => json!({"request_delete_range": {"key": name}}),
        };
        let question = json!({"compare": compare, "success": [act]});
        let look = || -> Answer<Option<Held>> { Ok(self.get(&[key.to_owned()])?.pop().flatten()) };
        let is_done = |now: Option<Held>| now.map(|held| held.value).as_deref() == new;
        let mut lost = None;
        for _ in 0..TRIES {
            match self.transact(&question, Effect::Changes) {
                // What was lost may have come late, and be what this one found.
                Ok((false, _)) if lost.is_some() => return Ok(is_done(look()?)),
                Ok((has_succeeded, _)) => return Ok(has_succeeded),
                Err(Failed::Not(_, NOT_FOUND)) if lease.is_some() => return Ok(false),
                Err(Failed::Unclear(_)) if mutant::is_on("timeout-means-done") => return Ok(true),
                Err(Failed::Unclear(fault)) => {
                    lost = Some(fault);
                    let now = look()?;
                    if now.as_ref() != seen {
                        return Ok(is_done(now));
                    }
                }
                Err(Failed::Not(fault, _)) => return Err(fault),
            }
        }
        Err(lost.unwrap_or_else(|| malformed("it does not answer")))
    }

    fn grant(&self, seconds: u64) -> Answer<Lease> {
        let answer = self.gateway.ask("/v3/lease/grant", &json!({"TTL": seconds.to_string()}), Effect::Harmless)?;
        let lease = number(&answer, "ID").filter(|lease| *lease > 0 && is_lasting(&answer));
        lease.map(Lease).ok_or_else(|| malformed("it grants a lease without a number or an end"))
    }

    fn renew(&self, lease: Lease) -> Answer<bool> {
        let answer = self.gateway.ask("/v3/lease/keepalive", &json!({"ID": lease.0.to_string()}), Effect::Harmless)?;
        let result = answer.get("result").unwrap_or(&answer);
        if number::<i64>(result, "ID") != Some(lease.0) {
            return Err(malformed("it renews another lease"));
        }
        Ok(is_lasting(result) || mutant::is_on("200-means-renewed"))
    }

    fn left_seconds(&self, lease: Lease) -> Answer<Option<(u64, u64)>> {
        let question = json!({"ID": lease.0.to_string()});
        let answer = match self.gateway.ask("/v3/lease/timetolive", &question, Effect::Harmless) {
            Err(Failed::Not(_, NOT_FOUND)) => return Ok(None),
            answer => answer?,
        };
        let left = number::<i64>(&answer, "TTL").unwrap_or_default();
        let granted = number::<u64>(&answer, "grantedTTL").unwrap_or_default();
        Ok(u64::try_from(left).ok().filter(|left| (1..=granted).contains(left)).map(|left| (left, granted)))
    }

    fn end(&self, lease: Lease) -> Answer<()> {
        match self.gateway.ask("/v3/lease/revoke", &json!({"ID": lease.0.to_string()}), Effect::Harmless) {
            Err(Failed::Not(_, NOT_FOUND)) => Ok(()),
            answer => Ok(answer.map(drop)?),
        }
    }

    fn history(&self) -> History {
        *self.seen()
    }

    fn recall(&self, history: History) {
        let mut seen = self.seen();
        if seen.cluster == 0 {
            *seen = history;
        }
    }
}

fn is_lasting(answer: &Value) -> bool {
    number::<i64>(answer, "TTL").is_some_and(|seconds| seconds > 0)
}

fn encoded(key: &str) -> String {
    BASE64.encode(key.as_bytes())
}

/// The first key behind all that begin so.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // Keys are text of this program, none of whose bytes is 0xff.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}
