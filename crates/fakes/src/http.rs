//! As much of a server's HTTP as the fake store needs.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// An answer that drips comes in so many pieces, one after each pause.
const DRIPS: usize = 64;
const DRIP_PAUSE: Duration = Duration::from_millis(2);
/// Headers that a store keeps with an object, beside those of `x-amz-meta-`.
const KEPT: [&str; 7] = [
    "content-type",
    "content-encoding",
    "content-language",
    "content-disposition",
    "cache-control",
    "expires",
    "x-amz-storage-class",
];

#[derive(Clone)]
pub struct Asked {
    pub method: String,
    pub target: String,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

pub struct Said {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// What is told of the length where the body is not sent, if that is not here.
    pub length: Option<u64>,
    pub is_lost: bool,
    pub is_cut: bool,
    /// Nothing is said for as long as the client waits.
    pub is_stalled: bool,
    pub is_dripping: bool,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..])
    }

    pub fn query(&self, name: &str) -> Option<String> {
        let (_, query) = self.target.split_once('?')?;
        let mut parts = query.split('&').map(|part| part.split_once('=').unwrap_or((part, "")));
        parts.find(|(known, _)| *known == name).map(|(_, value)| decoded(value))
    }

    /// What a store keeps with an object, beside its content. How content was sent is not of that.
    pub fn meta(&self) -> Vec<(String, String)> {
        let is_kept = |name: &str| name.starts_with("x-amz-meta-") || KEPT.contains(&name);
        let kept = self.headers.iter().filter(|(name, value)| is_kept(name) && value != "aws-chunked");
        kept.cloned().collect()
    }

    /// The same with another byte in the middle of its body, if it has one.
    pub fn flipped(&self) -> Asked {
        let mut flipped = self.clone();
        let middle = flipped.body.len() / 2;
        flipped.body.iter_mut().skip(middle).take(1).for_each(|byte| *byte ^= 1);
        flipped
    }

    #[cfg(test)]
    pub fn of(method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Asked {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Asked { method: method.to_owned(), target: target.to_owned(), headers, body: body.to_vec() }
    }
}

impl Said {
    pub fn new(status: u16, body: &[u8]) -> Said {
        let (length, is_lost, is_cut, is_stalled, is_dripping) = Default::default();
        Said { status, headers: Vec::new(), body: body.to_vec(), length, is_lost, is_cut, is_stalled, is_dripping }
    }

    /// What it says of a name, if it says it.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..])
    }

    /// So many bytes more, and the length tells so.
    pub fn lengthened(mut self, count: usize, byte: u8) -> Said {
        match &mut self.length {
            Some(length) => *length += count as u64,
            None => self.body.resize(self.body.len() + count, byte),
        }
        self
    }

    /// What it says of a name, if it says anything, is something else.
    pub fn instead(mut self, name: &str, value: &str) -> Said {
        self.headers.iter_mut().filter(|(known, _)| known == name).for_each(|(_, said)| value.clone_into(said));
        self
    }

    /// It says nothing of names that begin so.
    pub fn without(mut self, prefix: &str) -> Said {
        self.headers.retain(|(known, _)| !known.starts_with(prefix));
        self
    }

    pub fn with(mut self, name: &str, value: &str) -> Said {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Answers requests on one connection until it ends.
pub fn serve(stream: TcpStream, answer: &dyn Fn(&Asked) -> Said) {
    serve_unless(stream, &|_| false, answer);
}

/// The same. A request whose head `is_reset` is not heard to its end: the connection ends within its body.
pub fn serve_unless(stream: TcpStream, is_reset: &dyn Fn(&Asked) -> bool, answer: &dyn Fn(&Asked) -> Said) {
    // Head and body are two writes: the second would wait for the first's acknowledgement.
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(asked) = read(&mut reader, &mut stream, is_reset) {
        let said = answer(&asked);
        if said.is_stalled {
            let _ = reader.read(&mut [0]);
        }
        if said.is_lost || said.is_stalled {
            return;
        }
        let mut head = format!("HTTP/1.1 {} X\r\n", said.status);
        if said.status != 204 {
            head += &format!("content-length: {}\r\n", said.length.unwrap_or(said.body.len() as u64));
        }
        for (name, value) in &said.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let body = if asked.method == "HEAD" { &[][..] } else { &said.body[..] };
        let body = if said.is_cut { &body[..body.len() / 2] } else { body };
        head += "\r\n";
        let sent = match said.is_dripping {
            true => drip(&mut stream, &[head.as_bytes(), body].concat()),
            false => stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)),
        };
        if sent.is_err() || said.is_cut {
            return;
        }
    }
}

fn drip(stream: &mut TcpStream, answer: &[u8]) -> io::Result<()> {
    for piece in answer.chunks(answer.len().div_ceil(DRIPS)) {
        std::thread::sleep(DRIP_PAUSE);
        stream.write_all(piece)?;
    }
    Ok(())
}

fn read(reader: &mut impl BufRead, stream: &mut TcpStream, is_reset: &dyn Fn(&Asked) -> bool) -> Option<Asked> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut asked = Asked { method, target, headers, body: Vec::new() };
    let length: usize = asked.header("content-length").map_or(0, |value| value.parse().unwrap());
    if is_reset(&asked) {
        // What is not read of it has the connection reset when it is closed.
        let _ = reader.read_exact(&mut vec![0; length / 2]);
        return None;
    }
    if asked.header("expect") == Some("100-continue") {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    asked.body = vec![0; length];
    reader.read_exact(&mut asked.body).ok()?;
    let mut is_more = asked.header("transfer-encoding") == Some("chunked");
    while is_more {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let length = usize::from_str_radix(line.trim_end(), 16).ok()?;
        let start = asked.body.len();
        // With the line end behind it.
        asked.body.resize(start + length + 2, 0);
        reader.read_exact(&mut asked.body[start..]).ok()?;
        asked.body.truncate(start + length);
        is_more = length > 0;
    }
    Some(asked)
}

pub fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                u8::from_str_radix(&String::from_utf8(vec![rest.next().unwrap(), rest.next().unwrap()]).unwrap(), 16)
                    .unwrap()
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}

pub fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() || byte == b'/' {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

pub fn amz_date(seconds: i64) -> String {
    model::Timestamp { seconds, nanoseconds: 0 }.rfc3339().replace(['-', ':'], "")
}

/// As headers have it.
pub fn date(seconds: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let text = model::Timestamp { seconds, nanoseconds: 0 }.rfc3339();
    let month = MONTHS[text[5..7].parse::<usize>().unwrap() - 1];
    let day = DAYS[seconds.div_euclid(86_400).rem_euclid(7) as usize];
    format!("{day}, {} {month} {} {} GMT", &text[8..10], &text[..4], &text[11..19])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_has_its_day_of_the_week() {
        assert_eq!(date(1_000_000_000), "Sun, 09 Sep 2001 01:46:40 GMT");
        assert_eq!(&date(0)[..16], "Thu, 01 Jan 1970");
    }
}
