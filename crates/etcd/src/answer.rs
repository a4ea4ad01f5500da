//! What etcd says, as far as it is used: each field looked for, none believed to be there.
//!
//! Field names come as in its protocol (`mod_revision`) or in JSON's manner (`modRevision`), numbers as texts or numbers.

use cluster::coordinator::{Fault, FaultKind, Held, Lease, VALUE_BYTES_MAX};
use data_encoding::BASE64;
use serde_json::Value;

/// gRPC's codes.
pub const NOT_FOUND: u64 = 5;
const PERMISSION_DENIED: u64 = 7;
const RESOURCE_EXHAUSTED: u64 = 8;
pub const FAILED_PRECONDITION: u64 = 9;
pub const UNAVAILABLE: u64 = 14;
pub const UNAUTHENTICATED: u64 = 16;

/// Shown of a text of the other side.
const SHOWN_CHARS_MAX: usize = 200;

/// What an error says, its code being one of gRPC's, or HTTP's status where it names none.
pub struct Refusal {
    pub code: u64,
    pub text: String,
}

/// Which history, and where in it.
#[derive(Clone, Copy)]
pub struct Header {
    pub cluster: u64,
    pub revision: u64,
}

pub fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let camel = || {
        let mut parts = name.split('_');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| text + &part[..1].to_ascii_uppercase() + &part[1..])
    };
    value.get(name).or_else(|| value.get(camel()))
}

pub fn number<T: std::str::FromStr>(value: &Value, name: &str) -> Option<T> {
    match field(value, name)? {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

pub fn bytes(value: &Value, name: &str) -> Option<Vec<u8>> {
    match field(value, name) {
        None => Some(Vec::new()),
        Some(Value::String(text)) => BASE64.decode(text.as_bytes()).ok().filter(|bytes| bytes.len() <= VALUE_BYTES_MAX),
        Some(_) => None,
    }
}

pub fn header(answer: &Value) -> Option<Header> {
    let header = field(answer, "header")?;
    Some(Header { cluster: number(header, "cluster_id")?, revision: number(header, "revision")? })
}

/// The pairs of a range; nothing where one of them makes no sense.
pub fn pairs(range: &Value) -> Option<Vec<(String, Held)>> {
    let pairs = match field(range, "kvs") {
        None | Some(Value::Null) => return Some(Vec::new()),
        Some(pairs) => pairs.as_array()?,
    };
    let pair = |pair: &Value| {
        let key = String::from_utf8(bytes(pair, "key")?).ok()?;
        let lease = match field(pair, "lease") {
            None => 0,
            Some(_) => number(pair, "lease")?,
        };
        let held = Held {
            value: bytes(pair, "value")?,
            revision: number(pair, "mod_revision").filter(|revision| *revision > 0)?,
            lease: (lease != 0).then_some(Lease(lease)),
        };
        Some((key, held))
    };
    pairs.iter().map(pair).collect()
}

/// What an error's body says.
pub fn refusal(status: u16, body: &[u8]) -> Option<Refusal> {
    let body: Value = serde_json::from_slice(body).ok()?;
    // What fails in a stream comes wrapped.
    let error = body.get("error").filter(|error| error.is_object()).unwrap_or(&body);
    let text = ["message", "error"].iter().find_map(|name| error.get(name)?.as_str())?;
    let code = number(error, "code").or_else(|| number(error, "grpc_code")).unwrap_or(u64::from(status));
    Some(Refusal { code, text: shown(text) })
}

/// What can be read without harm.
pub fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS_MAX).collect()
}

/// What an error means for whoever asked.
pub fn fault(refusal: &Refusal) -> Fault {
    let (kind, advice) = match refusal.code {
        UNAVAILABLE | 1 | 2 | 4 | 10 | 13 => (FaultKind::Silent, "see whether a majority of its members runs"),
        RESOURCE_EXHAUSTED => (FaultKind::Silent, "compact and defragment it, then `etcdctl alarm disarm`"),
        // Something on the way answers, such as a proxy: no word of etcd.
        code if code > UNAUTHENTICATED => {
            (FaultKind::Silent, "see whether it is etcd that answers at `urls` in [cluster]")
        }
        PERMISSION_DENIED => (FaultKind::Refused, "grant the user's role reading and writing below /thalweg/"),
        _ => (FaultKind::Refused, "check `user` and `password-file` in [cluster], and what etcd's log says"),
    };
    Fault { kind, text: format!("etcd: {}", refusal.text), advice: advice.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_manners_of_writing_are_read_and_nothing_else_is_believed() {
        for range in [
            json!({"kvs": [{"key": "YQ==", "value": "Yg==", "mod_revision": "7", "lease": "5"}]}),
            json!({"kvs": [{"key": "YQ==", "value": "Yg==", "modRevision": 7, "lease": 5}]}),
        ] {
            let held = Held { value: b"b".to_vec(), revision: 7, lease: Some(Lease(5)) };
            assert_eq!(pairs(&range), Some(vec![("a".to_owned(), held)]));
        }
        assert_eq!((pairs(&json!({})), pairs(&json!({"kvs": null}))), (Some(vec![]), Some(vec![])));
        for kv in [
            json!({"key": "YQ==", "value": "Yg=="}),
            json!({"key": "YQ==", "value": 5, "mod_revision": "7"}),
            json!({"key": "/w==", "value": "Yg==", "mod_revision": "7"}),
            json!({"key": "YQ==", "value": "!", "mod_revision": "7"}),
            json!({"key": "YQ==", "value": "Yg==", "mod_revision": "-7"}),
            json!({"key": "YQ==", "value": "Yg==", "mod_revision": "7", "lease": {}}),
            json!([]),
        ] {
            assert_eq!(pairs(&json!({"kvs": [kv]})), None, "{kv}");
        }
        assert_eq!(pairs(&json!({"kvs": "x"})), None);
        assert!(header(&json!({"header": {"cluster_id": "1"}})).is_none());
        assert!(refusal(404, b"<html>not here</html>").is_none());
        assert_eq!(refusal(400, b"{\"error\":\"a\",\"message\":\"b\\u001b[1m\",\"code\":9}").unwrap().text, "b[1m");
    }

    #[test]
    fn what_answers_in_etcds_place_refuses_nobody() {
        let kind = |status: u16, body: &str| fault(&refusal(status, body.as_bytes()).unwrap()).kind;
        assert_eq!(kind(503, r#"{"message":"no upstream"}"#), FaultKind::Silent);
        assert_eq!(kind(403, r#"{"error":"forbidden"}"#), FaultKind::Silent);
        assert_eq!(kind(403, r#"{"error":"etcdserver: permission denied","code":7}"#), FaultKind::Refused);
        assert_eq!(kind(401, r#"{"error":"etcdserver: user name is empty","code":16}"#), FaultKind::Refused);
    }
}
