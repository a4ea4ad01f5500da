//! What the fake store makes objects of beside content that comes whole: parts of uploads, and copies of what it has.
//!
//! Invariants: an object is made of all parts of its upload, listed as they were confirmed; a store that keeps no bytes looks at
//! nothing of that, and takes content however it was sent.

use crate::fault::error;
use crate::http::{self, Asked, Said};
use crate::{BUCKET, Object, State, Upload, crc, hash, sent_bytes};
use data_encoding::BASE64;

impl State {
    pub(crate) fn put_part(&mut self, asked: &Asked) -> Said {
        if self.is_damaged(asked) {
            return error(400, "BadDigest");
        }
        let (kept, zeros) = match self.is_null {
            true => (Vec::new(), sent_bytes(asked)),
            false => (asked.body.clone(), 0),
        };
        match self.insert_part(asked, kept, zeros) {
            Ok(etag) => self.taken(asked, &etag),
            Err(said) => said,
        }
    }

    fn insert_part(&mut self, asked: &Asked, bytes: Vec<u8>, zeros: usize) -> Result<String, Said> {
        let number: u32 = asked.query("partNumber").unwrap().parse().unwrap();
        let Some(upload) = self.uploads.get_mut(&asked.query("uploadId").unwrap_or_default()) else {
            return Err(error(404, "NoSuchUpload"));
        };
        let etag = etag_of(&bytes);
        self.part_bytes_taken += bytes.len() as u64;
        upload.parts.insert(number, bytes);
        upload.zeros.insert(number, zeros);
        Ok(etag)
    }

    /// Whether parts make no object of what was stated, and why.
    fn refuses_parts(&self, asked: &Asked, upload: &Upload, bytes: &[u8]) -> Option<Said> {
        let lengths: Vec<usize> = upload.parts.values().map(Vec::len).collect();
        // Parts but the last are equal, as some stores demand.
        let is_equal = lengths.windows(2).all(|pair| pair[0] >= pair[1])
            && lengths.iter().rev().skip(1).all(|length| *length == lengths[0]);
        let is_small = lengths.iter().rev().skip(1).any(|length| *length < self.part_bytes_min);
        if !self.has_listed(asked, upload) || lengths.is_empty() || !is_equal || is_small {
            return Some(error(400, "InvalidPart"));
        }
        let stated = asked.header("x-amz-checksum-crc64nvme");
        let is_right = self.takes_damage || stated == Some(&sum_of(bytes)[..]);
        (!is_right).then(|| error(400, "BadDigest"))
    }

    /// Whether a request lists the parts of an upload by their numbers and ETags, and by their checksums if by any.
    fn has_listed(&self, asked: &Asked, upload: &Upload) -> bool {
        let text = String::from_utf8_lossy(&asked.body).replace("&quot;", "\"");
        let numbers: Vec<String> = upload.parts.keys().map(|number| number.to_string()).collect();
        let etags: Vec<String> = upload.parts.values().map(|part| etag_of(part)).collect();
        let stated = texts(&text, "ChecksumCRC64NVME");
        let is_summed = || upload.parts.values().map(|part| sum_of(part)).collect::<Vec<_>>() == stated;
        texts(&text, "PartNumber") == numbers
            && texts(&text, "ETag") == etags
            && (self.takes_damage || stated.is_empty() || is_summed())
    }

    pub(crate) fn complete(&mut self, asked: &Asked, key: &str) -> Said {
        let id = asked.query("uploadId").unwrap_or_default();
        let Some(upload) = self.uploads.get(&id) else { return error(404, "NoSuchUpload") };
        let bytes = upload.parts.values().map(Vec::as_slice).collect::<Vec<_>>().concat();
        if !self.is_null
            && let Some(refused) = self.refuses_parts(asked, upload, &bytes)
        {
            return refused;
        }
        if !self.is_conditional_by_put_alone && self.refuses(asked, key) {
            return error(412, "PreconditionFailed");
        }
        let upload = self.uploads.remove(&id).unwrap();
        let etag = match self.is_null {
            true => self.put_zeros(key, upload.zeros.values().sum(), upload.meta),
            false => self.put(key, bytes, upload.meta),
        };
        let mut xml = format!("<CompleteMultipartUploadResult><ETag>{}</ETag>", etag.replace('"', "&quot;"));
        if let Some(sum) = self.compared(asked) {
            xml += &format!("<ChecksumCRC64NVME>{sum}</ChecksumCRC64NVME><ChecksumType>FULL_OBJECT</ChecksumType>");
        }
        Said::new(200, (xml + "</CompleteMultipartUploadResult>").as_bytes())
    }

    fn copied(&self, asked: &Asked) -> Result<Object, Said> {
        let source = http::decoded(asked.header("x-amz-copy-source").unwrap());
        let source = source.trim_start_matches('/').trim_start_matches(BUCKET).trim_start_matches('/');
        let Some(object) = self.objects.get(source).cloned() else { return Err(error(404, "NoSuchKey")) };
        if object.zeros > 0 {
            return Err(error(501, "NotImplemented"));
        }
        match asked.header("x-amz-copy-source-if-match").is_some_and(|etag| etag != object.etag) {
            true => Err(error(412, "PreconditionFailed")),
            false => Ok(object),
        }
    }

    pub(crate) fn copy_part(&mut self, asked: &Asked) -> Said {
        let object = match self.copied(asked) {
            Ok(object) => object,
            Err(said) => return said,
        };
        let range = asked.header("x-amz-copy-source-range").and_then(|range| range.strip_prefix("bytes="));
        let (start, end) = range.and_then(|range| range.split_once('-')).expect("a range of the source");
        let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
        match self.insert_part(asked, object.bytes[start..=end].to_vec(), 0) {
            Ok(etag) => {
                let etag = etag.replace('"', "&quot;");
                Said::new(200, format!("<CopyPartResult><ETag>{etag}</ETag></CopyPartResult>").as_bytes())
            }
            Err(said) => said,
        }
    }

    pub(crate) fn copy(&mut self, asked: &Asked, key: &str) -> Said {
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
}

fn etag_of(part: &[u8]) -> String {
    format!("\"{}\"", &hash(part)[..32])
}

fn sum_of(bytes: &[u8]) -> String {
    BASE64.encode(&crc(bytes).to_be_bytes())
}

/// What stands in the elements of a name.
fn texts<'a>(xml: &'a str, name: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    xml.split(&open[..]).skip(1).filter_map(|rest| rest.split(&close[..]).next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store that keeps no bytes, and is asked without signatures.
    fn asked(state: &mut State, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Said {
        state.carry_out(&Asked::of(method, &format!("/bkt/{target}"), headers, body), None)
    }

    /// As the AWS CRT client and those by the SDK for Go ask, beside what the program's own client does.
    #[test]
    fn a_store_that_keeps_no_bytes_serves_the_clients_of_other_makers() {
        let mut state = State { is_null: true, ..State::default() };
        let begun = asked(&mut state, "POST", "k?uploads", &[], b"");
        assert_eq!((begun.status, state.uploads.len()), (200, 1));
        let id = state.uploads.keys().next().unwrap().clone();
        let chunked = [("content-encoding", "aws-chunked"), ("x-amz-decoded-content-length", "4")];
        for (number, headers) in [(1, &chunked[..]), (2, &[])] {
            let target = format!("k?partNumber={number}&uploadId={id}");
            let said = asked(&mut state, "PUT", &target, headers, b"4\r\ndata\r\n0\r\n\r\n");
            assert!(said.status == 200 && said.header("etag").is_some());
        }
        let list = b"<CompleteMultipartUpload><Part><ETag>e</ETag></Part></CompleteMultipartUpload>";
        assert_eq!(asked(&mut state, "POST", &format!("k?uploadId={id}"), &[], list).status, 200);
        let mut get = |method: &str, target: &str, range: &str| {
            let range = [("range", range)];
            let said = asked(&mut state, method, target, &range[usize::from(range[0].1.is_empty())..], b"");
            (said.status, said.header("content-range").unwrap_or("-").to_owned(), said.body.len(), said.length)
        };
        let whole = || "bytes 0-17/18".to_owned();
        assert_eq!(get("HEAD", "k", ""), (200, "-".to_owned(), 0, Some(18)));
        assert_eq!(get("GET", "k?partNumber=1", ""), (206, whole(), 18, None));
        assert_eq!(get("GET", "k", "bytes=0-8388607"), (206, whole(), 18, None));
        assert_eq!(get("GET", "k", "bytes=4-"), (206, "bytes 4-17/18".to_owned(), 14, None));
        assert_eq!(get("GET", "k", "bytes=18-20").0, 416);
    }

    #[test]
    fn a_store_that_keeps_bytes_takes_none_in_chunks_and_makes_no_object_of_other_parts_than_it_has() {
        let mut state = State::default();
        let chunked = [("x-amz-decoded-content-length", "4")];
        assert_eq!(asked(&mut state, "PUT", "k", &chunked, b"4\r\ndata\r\n0\r\n\r\n").status, 501);
        asked(&mut state, "POST", "k?uploads=", &[], b"");
        let id = state.uploads.keys().next().unwrap().clone();
        let etag = asked(&mut state, "PUT", &format!("k?partNumber=1&uploadId={id}"), &[], b"part");
        let etag = etag.header("etag").unwrap().replace('"', "&quot;");
        let sum = sum_of(b"part");
        let mut complete = |number: &str, etag: &str, sum_of_part: &str| {
            let sums = format!("<ChecksumCRC64NVME>{sum_of_part}</ChecksumCRC64NVME>");
            let list = format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag>{sums}</Part>");
            let headers = [("x-amz-checksum-crc64nvme", &sum[..])];
            asked(&mut state, "POST", &format!("k?uploadId={id}"), &headers, list.as_bytes()).status
        };
        assert_eq!([complete("2", &etag, &sum), complete("1", "e", &sum), complete("1", &etag, "e")], [400; 3]);
        assert_eq!(complete("1", &etag, &sum), 200);
    }
}
