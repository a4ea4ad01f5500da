//! As much of a server's HTTP as the fake store needs.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

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
    pub is_head: bool,
    pub is_lost: bool,
    pub is_cut: bool,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..])
    }

    pub fn query(&self, name: &str) -> Option<String> {
        let (_, query) = self.target.split_once('?')?;
        let value = query.split('&').find_map(|part| part.split_once('=').filter(|(known, _)| *known == name));
        value.map(|(_, value)| decoded(value))
    }

    /// What a store keeps with an object, beside its content.
    pub fn meta(&self) -> Vec<(String, String)> {
        let is_kept = |name: &str| name.starts_with("x-amz-meta-") || KEPT.contains(&name);
        self.headers.iter().filter(|(name, _)| is_kept(name)).cloned().collect()
    }
}

impl Said {
    pub fn new(status: u16, body: &[u8]) -> Said {
        Said { status, headers: Vec::new(), body: body.to_vec(), is_head: false, is_lost: false, is_cut: false }
    }

    /// What it says of a name, if it says anything, is something else.
    pub fn instead(mut self, name: &str, value: &str) -> Said {
        self.headers.iter_mut().filter(|(known, _)| known == name).for_each(|(_, said)| value.clone_into(said));
        self
    }

    pub fn with(mut self, name: &str, value: &str) -> Said {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Answers requests on one connection until it ends.
pub fn serve(stream: TcpStream, answer: &dyn Fn(&Asked) -> Said) {
    // Head and body are two writes: the second would wait for the first's acknowledgement.
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(asked) = read(&mut reader, &mut stream) {
        let said = answer(&asked);
        if said.is_lost {
            return;
        }
        let mut head = format!("HTTP/1.1 {} X\r\n", said.status);
        if said.status != 204 {
            head += &format!("content-length: {}\r\n", said.body.len());
        }
        for (name, value) in &said.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let body = if said.is_head || asked.method == "HEAD" { &[][..] } else { &said.body[..] };
        let body = if said.is_cut { &body[..body.len() / 2] } else { body };
        if stream.write_all((head + "\r\n").as_bytes()).is_err() || stream.write_all(body).is_err() || said.is_cut {
            return;
        }
    }
}

fn read(reader: &mut impl BufRead, stream: &mut TcpStream) -> Option<Asked> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let value = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..]);
    if value("expect") == Some("100-continue") {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    let mut body = vec![0; value("content-length").map_or(0, |value| value.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    let mut is_more = value("transfer-encoding") == Some("chunked");
    while is_more {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let length = usize::from_str_radix(line.trim_end(), 16).ok()?;
        let start = body.len();
        // With the line end behind it.
        body.resize(start + length + 2, 0);
        reader.read_exact(&mut body[start..]).ok()?;
        body.truncate(start + length);
        is_more = length > 0;
    }
    Some(Asked { method, target, headers, body })
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
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let text = model::Timestamp { seconds, nanoseconds: 0 }.rfc3339();
    let month = MONTHS[text[5..7].parse::<usize>().unwrap() - 1];
    format!("Day, {} {month} {} {} GMT", &text[8..10], &text[..4], &text[11..19])
}
