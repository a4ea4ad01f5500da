//! Signatures of requests: AWS Signature Version 4, in the `Authorization` header.
//!
//! By hand, because the moment of signing is the store's and not this host's where the two differ (docs/decisions/014-object-stores.md).
//! The body is not hashed: its CRC64-NVME is a signed header, and TLS protects both.

use crate::credentials::Keys;
use aws_lc_rs::{digest, hmac};
use data_encoding::HEXLOWER;

pub const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";

/// What is signed of a request. Path and query are encoded, and the query's parts are in order.
pub struct Signed<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub query: &'a str,
    pub region: &'a str,
    /// Seconds since 1970, by the store's clock.
    pub now: i64,
}

/// Adds the headers that sign a request; `headers` has `host` and everything else that is signed, the names in lower case.
pub fn sign(request: &Signed<'_>, headers: &mut Vec<(String, String)>, keys: &Keys) {
    let time = amz_time(request.now);
    headers.push(("x-amz-date".to_owned(), time.clone()));
    headers.push(("x-amz-content-sha256".to_owned(), UNSIGNED_PAYLOAD.to_owned()));
    if let Some(token) = &keys.token {
        headers.push(("x-amz-security-token".to_owned(), token.clone()));
    }
    headers.sort();
    let names = headers.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>().join(";");
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{}\n", single_spaced(value))).collect();
    let Signed { method, path, query, region, .. } = request;
    let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{UNSIGNED_PAYLOAD}");
    let scope = format!("{}/{region}/s3/aws4_request", &time[..8]);
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", sha256(canonical.as_bytes()));
    let mut key = format!("AWS4{}", keys.secret).into_bytes();
    for part in [&time[..8], region, "s3", "aws4_request"] {
        key = mac(&key, part.as_bytes());
    }
    let signature = HEXLOWER.encode(&mac(&key, text.as_bytes()));
    let value =
        format!("AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}", keys.id);
    headers.push(("authorization".to_owned(), value));
}

fn single_spaced(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// `20130524T000000Z`.
fn amz_time(seconds: i64) -> String {
    model::Timestamp { seconds, nanoseconds: 0 }.rfc3339().replace(['-', ':'], "")
}

/// Percent-encodes all but what never needs it; a slash is kept in paths alone.
pub fn encode(text: &[u8], keeps_slashes: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for &byte in text {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            b'/' if keeps_slashes => encoded.push('/'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Undoes percent-encoding, with `+` for a space as listings have it; `None` where it is not one.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_reads_back_whatever_the_bytes() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all, false)), Some(all.clone()));
        assert_eq!(decode(&encode(&all, true)), Some(all));
        assert_eq!(encode(b"a/b +~", true), "a/b%20%2B~");
        assert_eq!((decode("a+b"), decode("%4"), decode("%zz")), (Some(b"a b".to_vec()), None, None));
    }

    #[test]
    fn the_moment_of_signing_has_its_own_form() {
        assert_eq!(amz_time(1_369_353_600), "20130524T000000Z");
    }
}
