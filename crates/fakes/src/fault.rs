//! What goes wrong with a request to the fake store: what may be ordered, and what becomes of the answer then.
//!
//! Invariant: a fault happens as often as it was ordered, to requests that its order names. One that has nothing to change in an
//! answer leaves it as it is.

use crate::http::Said;

const HUGE_BYTES: usize = 17 << 20;

/// What goes wrong with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Status(u16),
    /// It is busy, and may be asked again without waiting.
    AtOnce,
    /// It is asked too much, and may be asked again after a second.
    Later,
    /// A success that is none.
    OkWithError,
    OkEmpty,
    /// Somebody on the way answers with a page for people.
    Html,
    /// It is carried out, and the connection ends before it is answered.
    LostAnswer,
    /// The connection is reset within the body of the request.
    Reset,
    /// Nothing is carried out or said, for as long as the client waits.
    Stall,
    /// The answer comes in tiny pieces.
    Drip,
    /// The body ends half way.
    Cut,
    /// A byte of the body is another one.
    Flipped,
    /// A byte of the request's body is another one when it arrives.
    FlippedSent,
    /// Whole objects where a range was asked for, and listings from their start wherever they were to go on.
    NoRange,
    /// The range that was asked for, by another name.
    WrongRange,
    /// More follows what was asked for, and the length tells so.
    Longer,
    /// The same, by more than an answer may have that is read whole.
    Huge,
    /// It passes the condition over, and sends what was written since.
    OtherVersion,
    /// Somebody on the way has compressed it.
    Packed,
    /// A redirect to another host.
    Abroad,
    /// The keys were good once.
    Expired,
    /// The object lies in an archive tier.
    Archived,
    /// Another checksum is told than that of the content.
    WrongSum,
    /// The checksum that is told is one of checksums of parts.
    Composite,
    /// No checksum is told.
    Unsummed,
    /// The keys of a page come backwards.
    Unsorted,
    /// The last key of a page comes twice.
    Doubled,
    /// A listing is as it was before the last write.
    Stale,
}

impl Fault {
    /// What is said in place of carrying the request out.
    pub(crate) fn instead(self) -> Option<Said> {
        Some(match self {
            Fault::Status(403) => error(403, "AccessDenied"),
            Fault::Status(status) => error(status, if status == 503 { "SlowDown" } else { "InternalError" }),
            Fault::AtOnce => error(503, "SlowDown").with("retry-after", "0"),
            Fault::Later => error(429, "TooManyRequests").with("retry-after", "1"),
            Fault::Expired => error(400, "ExpiredToken"),
            Fault::Archived => error(403, "InvalidObjectState"),
            Fault::OkWithError => Said::new(200, b"<Error><Code>InternalError</Code></Error>"),
            Fault::Html => {
                // As long as such pages are.
                let page = format!("<html><body>Sign in to this network.{}</body></html>", " ".repeat(70_000));
                Said::new(200, page.as_bytes()).with("content-type", "text/html")
            }
            Fault::Abroad => Said::new(307, b"").with("location", "http://127.0.0.1:1/"),
            Fault::Stall => {
                let mut said = Said::new(200, b"");
                said.is_stalled = true;
                said
            }
            _ => return None,
        })
    }

    /// What becomes of the store's answer on its way.
    pub(crate) fn bend(self, mut said: Said) -> Said {
        match self {
            Fault::OkEmpty => return Said::new(200, b""),
            Fault::WrongSum => return said.instead("x-amz-checksum-crc64nvme", "AAAAAAAAAAE="),
            Fault::Composite => {
                let said_of = [("x-amz-checksum-crc64nvme", "AAAAAAAAAAE="), ("x-amz-checksum-type", "COMPOSITE")];
                return said_of.into_iter().fold(said, |said, (name, value)| said.instead(name, value));
            }
            Fault::Unsummed => return said.without("x-amz-checksum-"),
            Fault::WrongRange => return said.instead("content-range", "bytes 1-2/3"),
            Fault::OtherVersion => {
                said.body.reverse();
                return said.instead("etag", "\"another\"");
            }
            Fault::Packed => {
                said.body.truncate(said.body.len() / 2);
                said.length = said.length.map(|length| length / 2);
                return said.with("content-encoding", "gzip");
            }
            Fault::Unsorted => said.body = relisted(&said.body, |keys| keys.reverse()),
            Fault::Doubled => {
                said.body = relisted(&said.body, |keys| {
                    let last = keys.last().cloned();
                    keys.extend(last);
                });
            }
            Fault::Longer => return said.lengthened(4096, 7),
            Fault::Huge => return said.lengthened(HUGE_BYTES, b' '),
            Fault::LostAnswer => said.is_lost = true,
            Fault::Drip => said.is_dripping = true,
            Fault::Cut => said.is_cut = true,
            Fault::Flipped if !said.body.is_empty() => {
                let middle = said.body.len() / 2;
                said.body[middle] ^= 1;
            }
            _ => {}
        }
        said
    }
}

/// A page of a listing with its keys changed; anything else as it is.
fn relisted(page: &[u8], change: impl Fn(&mut Vec<String>)) -> Vec<u8> {
    const END: &str = "</Contents>";
    let text = String::from_utf8_lossy(page);
    let (Some(start), Some(last)) = (text.find("<Contents>"), text.rfind(END)) else { return page.to_vec() };
    let end = last + END.len();
    let mut keys: Vec<String> = text[start..end].split_inclusive(END).map(str::to_owned).collect();
    change(&mut keys);
    format!("{}{}{}", &text[..start], keys.concat(), &text[end..]).into_bytes()
}

pub(crate) fn error(status: u16, code: &str) -> Said {
    Said::new(
        status,
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{code}!</Message></Error>").as_bytes(),
    )
}

/// What was ordered.
#[derive(Default)]
pub(crate) struct Orders(Vec<Order>);

pub(crate) struct Order {
    pub method: &'static str,
    /// In path and query.
    pub holds: &'static str,
    pub passes: u32,
    pub times: u32,
    pub fault: Fault,
}

impl Orders {
    pub fn take(&mut self, order: Order) {
        self.0.push(order);
    }

    /// What goes wrong with a request of which the head `is_begun` to be answered for, or all of it has come.
    pub fn draw(&mut self, method: &str, line: &str, is_begun: bool) -> Option<Fault> {
        let order = self.0.iter_mut().find(|order| {
            let is_its_time = (order.fault == Fault::Reset) == is_begun;
            is_its_time && order.method == method && line.contains(order.holds) && order.times > 0
        })?;
        if order.passes > 0 {
            order.passes -= 1;
            return None;
        }
        order.times -= 1;
        Some(order.fault)
    }
}
