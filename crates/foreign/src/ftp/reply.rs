//! What a server says on its control connection (RFC 959, 2389, 2428; GFD.20), as values.
//!
//! Invariant: whatever bytes arrive are a reply or an error; a line and a reply have a longest length.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Of one line. Names have 255 bytes, paths 4096.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Of all lines of a reply, with what it takes to keep each.
const REPLY_BYTES_MAX: usize = 1 << 20;
/// Of what is shown of a reply.
const TEXT_BYTES_MAX: usize = 500;

/// Lines of login scripts.
const STRANGE_MAX: usize = 100;

/// An answer. Those that begin with 1 say that another one follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    pub code: u16,
    /// Of its first and its last line, without what controls terminals.
    pub text: String,
    /// Between the first line and the last.
    pub lines: Vec<Vec<u8>>,
}

impl Reply {
    pub fn is_preliminary(&self) -> bool {
        self.code < 200
    }

    /// What it takes to keep it.
    pub fn bytes(&self) -> usize {
        self.text.len() + self.lines.iter().map(|line| line.len() + size_of::<Vec<u8>>()).sum::<usize>()
    }

    pub fn is_good(&self) -> bool {
        (200..400).contains(&self.code)
    }
}

/// Bytes that make no reply, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

/// Takes replies out of what arrives, cut as it may be.
#[derive(Default)]
pub struct Parser {
    line: Vec<u8>,
    open: Option<(u16, Vec<u8>)>,
    lines: Vec<Vec<u8>>,
    bytes: usize,
    /// Lines before the greeting that may be none of the server's.
    strange: usize,
}

impl Parser {
    /// Behind ssh, where login scripts may have something to say first.
    pub fn after_words() -> Parser {
        Parser { strange: STRANGE_MAX, ..Parser::default() }
    }

    /// Takes bytes until a reply is complete; returns how many it took, and the reply.
    ///
    /// # Errors
    /// When what came is none; nothing after it can be understood.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(usize, Option<Reply>), Malformed> {
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = &bytes[taken..];
            let end = rest.iter().position(|byte| *byte == b'\n');
            let part = &rest[..end.map_or(rest.len(), |end| end + 1)];
            taken += part.len();
            if self.line.len() + part.len() > LINE_BYTES_MAX {
                return Err(Malformed("a line of a reply is longer than 16 KiB"));
            }
            self.line.extend_from_slice(part);
            if end.is_some()
                && let Some(reply) = self.line()?
            {
                return Ok((taken, Some(reply)));
            }
        }
        Ok((taken, None))
    }

    fn line(&mut self) -> Result<Option<Reply>, Malformed> {
        let mut line = std::mem::take(&mut self.line);
        while line.last().is_some_and(|byte| matches!(byte, b'\r' | b'\n')) {
            line.pop();
        }
        self.bytes += line.len() + size_of::<Vec<u8>>();
        if self.bytes > REPLY_BYTES_MAX {
            return Err(Malformed("a reply is longer than 1 MiB"));
        }
        let coded = code_of(&line);
        if coded.is_some() {
            self.strange = 0;
        }
        match (&mut self.open, coded) {
            (None, None) if self.strange > 0 => {
                self.strange -= 1;
                Ok(None)
            }
            (None, None) => Err(Malformed("a line begins with no code of a reply")),
            (None, Some((code, true))) => {
                self.open = Some((code, line[4..].to_vec()));
                Ok(None)
            }
            (None, Some((code, false))) => Ok(Some(self.complete(code, Vec::new(), &line))),
            (Some((code, _)), Some((same, false))) if *code == same => {
                let (code, first) = self.open.take().expect("it is open");
                Ok(Some(self.complete(code, first, &line)))
            }
            (Some(_), _) => {
                self.lines.push(line);
                Ok(None)
            }
        }
    }

    fn complete(&mut self, code: u16, first: Vec<u8>, last: &[u8]) -> Reply {
        self.bytes = 0;
        let last = last.get(4..).unwrap_or_default();
        let both = [&first[..], if first.is_empty() { b"" } else { b" " }, last].concat();
        let text = crate::tree::shown(&both[..both.len().min(TEXT_BYTES_MAX)]);
        Reply { code, text: text.trim().to_owned(), lines: std::mem::take(&mut self.lines) }
    }
}

/// The code that a line begins with, and whether more lines follow.
fn code_of(line: &[u8]) -> Option<(u16, bool)> {
    let (digits, rest) = line.split_at_checked(3)?;
    if !digits.iter().all(u8::is_ascii_digit) || !(b'1'..=b'5').contains(&digits[0]) {
        return None;
    }
    let code = digits.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    match rest.first() {
        None | Some(b' ') => Some((code, false)),
        Some(b'-') => Some((code, true)),
        _ => None,
    }
}

/// The port of a reply to EPSV, which names no address.
pub fn extended_port(text: &str) -> Option<u16> {
    let inner = &text[text.find('(')? + 1..];
    let mark = inner.chars().next().filter(char::is_ascii_graphic)?;
    let mut fields = inner.split(mark);
    let port = match (fields.next(), fields.next(), fields.next(), fields.next()) {
        (Some(""), Some(_), Some(_), Some(port)) => port,
        _ => return None,
    };
    number(port).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
}

/// The address in a reply to PASV, or in a line of one to SPAS.
pub fn passive_address(text: &str) -> Option<SocketAddr> {
    let is_part = |c: char| c.is_ascii_digit() || c == ',';
    let found = text.split(|c| !is_part(c)).find(|part| part.matches(',').count() == 5)?;
    let mut bytes = [0u8; 6];
    for (byte, part) in bytes.iter_mut().zip(found.split(',')) {
        *byte = u8::try_from(number(part)?).ok()?;
    }
    let [a, b, c, d, high, low] = bytes;
    let port = u16::from_be_bytes([high, low]);
    (port > 0).then(|| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), port))
}

/// Digits and nothing else.
pub fn number(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(mut bytes: &[u8]) -> Result<Vec<Reply>, Malformed> {
        let (mut parser, mut found) = (Parser::default(), Vec::new());
        while !bytes.is_empty() {
            let (taken, reply) = parser.feed(bytes)?;
            found.extend(reply);
            bytes = &bytes[taken..];
        }
        Ok(found)
    }

    #[test]
    fn replies_have_one_line_or_many_however_they_are_cut() {
        let sent = b"220 ready\r\n211-Features:\r\n MDTM\r\n211-not the end\r\n200 nor this\r\n211 End\r\n226\n";
        let found = replies(sent).unwrap();
        assert_eq!(found.iter().map(|reply| reply.code).collect::<Vec<_>>(), [220, 211, 226]);
        assert_eq!((&found[0].text[..], &found[1].text[..], &found[2].text[..]), ("ready", "Features: End", ""));
        assert_eq!(found[1].lines, [&b" MDTM"[..], b"211-not the end", b"200 nor this"]);
        let mut parser = Parser::default();
        let singly: Vec<_> = sent.iter().filter_map(|byte| parser.feed(&[*byte]).unwrap().1).collect();
        assert_eq!(singly, found);
    }

    #[test]
    fn what_is_no_reply_is_an_error_and_what_is_too_long_too() {
        for wrong in [&b"hello\r\n"[..], b"2x0 a\r\n", b"620 a\r\n", b"22\r\n", b"220_a\r\n", b"\r\n"] {
            assert!(replies(wrong).is_err(), "{wrong:?}");
        }
        assert!(replies(&[b'2'; LINE_BYTES_MAX + 1]).is_err());
        let mut endless = b"211-a\r\n".to_vec();
        endless.extend(b" x\r\n".repeat(REPLY_BYTES_MAX / 3));
        assert!(replies(&endless).is_err());
        // Lines in which nothing stands are kept too.
        let empty = [&b"211-a\r\n"[..], &b"\r\n".repeat(REPLY_BYTES_MAX / 8), b"211 End\r\n"].concat();
        assert!(replies(&empty).is_err());
        assert_eq!(replies(b"550 \x1b[2Jno\r\n").unwrap()[0].text, "[2Jno");
        let greeted = Parser::after_words().feed(b"Welcome\n\n220 ready\r\n").unwrap().1.unwrap();
        assert_eq!(greeted.code, 220);
        assert!(Parser::after_words().feed(b"220 ready\r\nWelcome\r\n").unwrap().0 == 11);
        assert!(Parser::after_words().feed(&b"x\n".repeat(STRANGE_MAX + 1)).is_err());
    }

    #[test]
    fn addresses_are_read_and_nothing_else_is() {
        assert_eq!(extended_port("Entering Extended Passive Mode (|||40001|)"), Some(40001));
        for wrong in ["(|||0|)", "(|||70000|)", "(||40001|)", "|||1|", "(|||+1|)", "(", ""] {
            assert_eq!(extended_port(wrong), None, "{wrong}");
        }
        let address = passive_address("Entering Passive Mode (127,0,0,1,156,65).").unwrap();
        assert_eq!(address.to_string(), "127.0.0.1:40001");
        assert_eq!(passive_address(" 10,0,0,2,0,21").unwrap().to_string(), "10.0.0.2:21");
        for wrong in ["(127,0,0,1,156)", "(256,0,0,1,1,1)", "(1,2,3,4,0,0)", "(,,,,,)", "127.0.0.1"] {
            assert_eq!(passive_address(wrong), None, "{wrong}");
        }
    }
}
