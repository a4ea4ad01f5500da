//! What a `credential_process` prints and a metadata service answers: any bytes are no keys, or keys that write back, last as
//! long as was said, and are not shown.

use super::bytes::Bytes;
use model::Timestamp;
use object::said::{Keys, OF_PROCESS, OF_ROLE, from_json};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

const ORIGIN: &str = "somewhere";
/// From there on a year has five digits.
const YEAR_10000_SECONDS: u64 = 253_402_300_800;

pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let names = if bytes.u8().is_multiple_of(2) { OF_PROCESS } else { OF_ROLE };
    let text = bytes.rest();
    let Some(keys) = from_json(text, names, ORIGIN) else { return };
    assert_eq!(format!("{keys:?}"), format!("Keys({ORIGIN})"), "keys are shown");
    assert_eq!(seconds(&keys), told(text), "keys last longer or shorter than was said");
    if seconds(&keys).is_none_or(|end| end < YEAR_10000_SECONDS) {
        let again = from_json(&written(&keys, names), names, ORIGIN).expect("what has id and secret is keys");
        let parts = |keys: &Keys| (keys.id.clone(), keys.secret.clone(), keys.token.clone(), keys.expires);
        assert!(parts(&again) == parts(&keys), "keys do not write back");
    }
}

/// When they end.
fn seconds(keys: &Keys) -> Option<u64> {
    let since = keys.expires?.duration_since(SystemTime::UNIX_EPOCH);
    Some(since.as_ref().map_or(0, Duration::as_secs))
}

/// When they end as the answer has it. Programs write times before 1970 where there is no end.
fn told(text: &[u8]) -> Option<u64> {
    let answer: Value = serde_json::from_slice(text).ok()?;
    web::date::moment(answer.get("Expiration")?.as_str()?)?.try_into().ok()
}

fn written(keys: &Keys, (id, secret, token): (&str, &str, &str)) -> Vec<u8> {
    let end = seconds(keys).map(|seconds| Timestamp { seconds: seconds as i64, nanoseconds: 0 }.rfc3339());
    json!({ id: keys.id, secret: keys.secret, token: keys.token, "Expiration": end }).to_string().into_bytes()
}
