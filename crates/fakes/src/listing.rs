//! What the fake store lists: keys a page at a time, the parts of an upload, open uploads.

use crate::fault::error;
use crate::http::{self, Asked, Said};
use crate::{Object, State, crc, hash};
use data_encoding::BASE64;
use std::collections::BTreeMap;
use std::ops::Bound;

impl State {
    /// A page of a listing of these objects.
    pub(crate) fn list(&self, asked: &Asked, objects: &BTreeMap<String, Object>, is_whole: bool) -> Said {
        let get = |name: &str| asked.query(name).unwrap_or_default();
        let (prefix, delimiter, after) = (get("prefix"), get("delimiter"), get("continuation-token"));
        if self.has_empty_pages {
            let next = after.parse().unwrap_or(0) + 1;
            let xml = format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{next}</NextContinuationToken>");
            return Said::new(200, format!("<ListBucketResult>{xml}</ListBucketResult>").as_bytes());
        }
        let max = get("max-keys").parse().unwrap_or(1000).min(self.page_max);
        let start = if self.ignores_start_after { String::new() } else { get("start-after") };
        let after = if self.repeats_pages || is_whole { String::new() } else { after.max(start) };
        let mut items: Vec<(String, Option<&Object>)> = Vec::new();
        let mut from = Bound::Included(prefix.clone());
        if after > prefix {
            from = Bound::Excluded(after.clone());
        }
        while items.len() <= max {
            let next = objects.range((from, Bound::Unbounded)).next();
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
        let mut xml = String::from("<?xml version=\"1.0\"?><ListBucketResult>");
        let is_encoded = get("encoding-type") == "url";
        xml += if is_encoded { "<EncodingType>url</EncodingType>" } else { "" };
        for (key, object) in &items {
            let key_text = if is_encoded { http::encoded(key) } else { escaped(key) };
            xml += &match object {
                None => format!("<CommonPrefixes><Prefix>{key_text}</Prefix></CommonPrefixes>"),
                Some(object) => format!(
                    "<Contents><Key>{key_text}</Key><Size>{}</Size><ETag>{}</ETag><LastModified>{}</LastModified></Contents>",
                    object.length(),
                    object.etag.replace('"', "&quot;"),
                    model::Timestamp { seconds: object.stored as i64, nanoseconds: 0 }.rfc3339()
                ),
            };
        }
        let next = items.last().map(|(key, _)| escaped(key)).unwrap_or_default();
        xml += &format!("<IsTruncated>{is_cut}</IsTruncated>");
        if is_cut {
            xml += &format!("<NextContinuationToken>{next}</NextContinuationToken>");
        }
        Said::new(200, (xml + "</ListBucketResult>").as_bytes())
    }

    pub(crate) fn list_parts(&self, asked: &Asked) -> Said {
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
            if !self.takes_damage {
                xml += &format!("<ChecksumCRC64NVME>{crc}</ChecksumCRC64NVME>");
            }
            xml += "</Part>";
        }
        xml += "</ListPartsResult>";
        Said::new(200, self.parts_told.map_or(xml.clone(), |tell| tell(xml)).as_bytes())
    }

    pub(crate) fn list_uploads(&self) -> Said {
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

/// Text as it stands in an element.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
