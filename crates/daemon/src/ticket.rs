//! A ticket: what a client needs to find an endpoint, to know it when it meets it, and to be let in the first time.
//!
//! Text form: one line, `twt1:` and base64url without padding of
//! `version (1 byte) | pin (32) | credential (32) | name (length byte, bytes) | count byte | addresses (each a length
//! byte, bytes) | checksum (4)`. The checksum is the start of a SHA-256 over a label and all that precedes it; it finds
//! slips of copying and pasting, not forgery: whoever can forge a ticket can also make a valid one of their own endpoint.
//! As a link it is `thalweg://HOST:PORT/PATH#` and the line: what stands before `#` is for people, and is not looked at.
//!
//! Invariant: the credential shows in no `Debug` output and no error.

use data_encoding::BASE64URL_NOPAD;
use model::Pin;
use std::fmt;
use zeroize::Zeroizing;

/// Longer text is not a ticket.
pub const TICKET_TEXT_BYTES_MAX: usize = 8 << 10;
pub const ADDRESSES_MAX: usize = 16;
const PREFIX: &str = "twt";
const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 4;
const CHECKSUM_LABEL: &[u8] = b"thalweg ticket";

#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    /// `HOST:PORT`, IPv6 in brackets, the likeliest first. At least one, at most `ADDRESSES_MAX`.
    pub addresses: Vec<String>,
    pub pin: Pin,
    pub credential: Zeroizing<[u8; 32]>,
    /// What the endpoint calls itself.
    pub name: String,
}

/// Why a text is not a ticket that can be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TicketError {
    #[error("this is not a ticket: tickets begin with `twt1:`")]
    NotATicket,
    #[error("the ticket is damaged or incomplete")]
    Damaged,
    #[error("the ticket has format {0}; this program knows format {VERSION} only")]
    NewerVersion(u32),
}

impl TicketError {
    pub fn hint(&self) -> &'static str {
        match self {
            TicketError::NotATicket => "`thalweg serve --ticket-file FILE` writes one when it is ready",
            TicketError::Damaged => "copy the whole line again, from `twt1:` to its end",
            TicketError::NewerVersion(_) => "update this program, or get a ticket from an endpoint of this version",
        }
    }
}

impl Ticket {
    /// The one line. Secret: it holds the credential.
    ///
    /// # Panics
    /// When there are no or too many addresses, or a text is longer than 255 bytes.
    pub fn to_text(&self) -> String {
        assert!((1..=ADDRESSES_MAX).contains(&self.addresses.len()), "a ticket names 1 to {ADDRESSES_MAX} addresses");
        // Made long enough at once, as below: what grows leaves copies behind.
        let mut bytes = Zeroizing::new(Vec::<u8>::with_capacity(TICKET_TEXT_BYTES_MAX));
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.pin.0);
        bytes.extend_from_slice(&self.credential[..]);
        put_text(&mut bytes, &self.name);
        bytes.push(self.addresses.len() as u8);
        self.addresses.iter().for_each(|address| put_text(&mut bytes, address));
        let checksum = checksum(&bytes);
        bytes.extend_from_slice(&checksum);
        format!("{PREFIX}{VERSION}:{}", BASE64URL_NOPAD.encode(&bytes[..]))
    }

    /// The line as a link that says where it leads. As secret: programs that open links send nothing of what is behind `#`.
    pub fn to_link(&self, path: &[u8]) -> String {
        let mut link = format!("thalweg://{}/", self.addresses[0]);
        for byte in path {
            match byte {
                b'/' | b'-' | b'.' | b'_' | b'~' => link.push(char::from(*byte)),
                byte if byte.is_ascii_alphanumeric() => link.push(char::from(*byte)),
                byte => link.push_str(&format!("%{byte:02X}")),
            }
        }
        link + "#" + &self.to_text()
    }

    /// Reads the text form, or a link. White space is left out first: mail programs break long lines.
    pub fn parse(text: &str) -> Result<Ticket, TicketError> {
        if text.len() > TICKET_TEXT_BYTES_MAX {
            return Err(TicketError::NotATicket);
        }
        let mut line = Zeroizing::new(String::with_capacity(text.len()));
        line.extend(text.split_ascii_whitespace());
        let line = line.rsplit('#').next().unwrap_or_default();
        let (prefix, encoded) = line.split_once(':').ok_or(TicketError::NotATicket)?;
        let version = prefix.strip_prefix(PREFIX).filter(|v| v.bytes().all(|b| b.is_ascii_digit()));
        match version.and_then(|v| v.parse::<u32>().ok()) {
            Some(version) if version == u32::from(VERSION) => {}
            Some(version) if version > u32::from(VERSION) => return Err(TicketError::NewerVersion(version)),
            _ => return Err(TicketError::NotATicket),
        }
        let bytes = BASE64URL_NOPAD.decode(encoded.as_bytes()).map(Zeroizing::new);
        let bytes = bytes.map_err(|_| TicketError::Damaged)?;
        let (body, found) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(TicketError::Damaged)?;
        if checksum(body) != *found {
            return Err(TicketError::Damaged);
        }
        match body.first() {
            Some(&VERSION) => read(&body[1..]).ok_or(TicketError::Damaged),
            Some(&version) if version > VERSION => Err(TicketError::NewerVersion(version.into())),
            _ => Err(TicketError::Damaged),
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Ticket");
        shown.field("name", &self.name).field("addresses", &self.addresses).field("pin", &self.pin);
        shown.finish_non_exhaustive()
    }
}

/// True for `HOST:PORT` with a port above 0, IPv6 in brackets, and nothing that could control a terminal.
pub fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(is_ipv6),
        None => !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)),
    };
    let is_port = port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    text.len() <= 255 && is_host && is_port
}

/// An IPv6 address, perhaps with the zone of a link-local one.
fn is_ipv6(text: &str) -> bool {
    let (address, zone) = text.split_once('%').unwrap_or((text, "0"));
    let is_zone = !zone.is_empty() && zone.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    is_zone && address.parse::<std::net::Ipv6Addr>().is_ok()
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.push(u8::try_from(text.len()).expect("texts of a ticket are at most 255 bytes long"));
    bytes.extend_from_slice(text.as_bytes());
}

fn checksum(body: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let digest = net::sha256(&Zeroizing::new([CHECKSUM_LABEL, body].concat()));
    [digest[0], digest[1], digest[2], digest[3]]
}

fn read(body: &[u8]) -> Option<Ticket> {
    let (pin, rest) = body.split_first_chunk::<32>()?;
    let (credential, rest) = rest.split_first_chunk::<32>()?;
    let (name, rest) = read_text(rest)?;
    let (&count, mut rest) = rest.split_first()?;
    let mut addresses = Vec::new();
    for _ in 0..count {
        let (address, after) = read_text(rest)?;
        if !is_address(&address) {
            return None;
        }
        addresses.push(address);
        rest = after;
    }
    let is_whole = rest.is_empty() && (1..=ADDRESSES_MAX).contains(&addresses.len());
    is_whole.then_some(Ticket { addresses, pin: Pin(*pin), credential: (*credential).into(), name })
}

fn read_text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    let (text, rest) = rest.split_at_checked(length.into())?;
    Some((std::str::from_utf8(text).ok()?.to_owned(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ticket() -> Ticket {
        Ticket {
            addresses: vec!["192.0.2.1:7740".into(), "[2001:db8::1]:7740".into()],
            pin: Pin([0x11; 32]),
            credential: [0x22; 32].into(),
            name: "lab".into(),
        }
    }

    /// Made by another program from the description above.
    const GOLDEN: &str = concat!(
        "twt1:ARERERERERERERERERERERERERERERERERERERERERERIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiI",
        "iIiIiIiIiIiIDbGFiAg4xOTIuMC4yLjE6Nzc0MBJbMjAwMTpkYjg6OjFdOjc3NDB8cdx8"
    );

    #[test]
    fn text_of_version_1_is_what_it_was() {
        assert_eq!(ticket().to_text(), GOLDEN);
        assert_eq!(Ticket::parse(GOLDEN), Ok(ticket()));
    }

    #[test]
    fn white_space_of_mail_programs_does_no_harm() {
        let (front, back) = GOLDEN.split_at(60);
        assert_eq!(Ticket::parse(&format!("  {front}\r\n {back}\n")), Ok(ticket()));
    }

    #[test]
    fn a_link_says_where_it_leads_and_reads_as_the_ticket() {
        let link = ticket().to_link("a b/\u{e4}#?".as_bytes());
        assert_eq!(link, format!("thalweg://192.0.2.1:7740/a%20b/%C3%A4%23%3F#{GOLDEN}"));
        assert_eq!(Ticket::parse(&link), Ok(ticket()));
        assert_eq!(Ticket::parse("thalweg://192.0.2.1:7740/a"), Err(TicketError::NotATicket));
        assert_eq!(Ticket::parse(&link[..link.len() - 1]), Err(TicketError::Damaged));
    }

    #[test]
    fn what_is_wrong_with_a_text_is_said() {
        for text in ["", "hello", "twt:abc", "twt0:abc", "http://x", "twtx:y", &"a".repeat(1 << 20)] {
            assert_eq!(Ticket::parse(text), Err(TicketError::NotATicket), "{text:.20}");
        }
        for end in 5..GOLDEN.len() {
            assert_eq!(Ticket::parse(&GOLDEN[..end]), Err(TicketError::Damaged), "{end}");
        }
        assert_eq!(Ticket::parse(&GOLDEN.replace("twt1:", "twt2:")), Err(TicketError::NewerVersion(2)));
        assert_eq!(Ticket::parse("twt12:anything"), Err(TicketError::NewerVersion(12)));
        assert_eq!(Ticket::parse(&format!("{GOLDEN}A")), Err(TicketError::Damaged));
    }

    #[test]
    fn debug_and_errors_hold_no_secret() {
        let shown = format!("{:?}", Ticket { credential: [0xd7; 32].into(), ..ticket() });
        assert!(!shown.contains("d7") && !shown.contains("215") && shown.contains("lab"), "{shown}");
    }

    #[test]
    fn addresses_are_hosts_with_ports() {
        for good in ["a:1", "node-1.example:7740", "10.0.0.1:65535", "[::1]:7740", "[fe80::1%eth0]:7740"] {
            assert!(is_address(good), "{good}");
        }
        for bad in
            ["a", "a:0", "a:65536", ":1", "::1:7740", "[::1]", "[x]:1", "a b:1", "\u{1b}[2J:1", "[fe80::1%]:1", "a:+1"]
        {
            assert!(!is_address(bad), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_ticket_reads_back(
            pin: [u8; 32],
            credential: [u8; 32],
            name in "\\PC{0,60}",
            hosts in prop::collection::vec("[a-z0-9.-]{1,40}:[1-9][0-9]{0,3}", 1..=ADDRESSES_MAX),
        ) {
            let ticket = Ticket { addresses: hosts, pin: Pin(pin), credential: credential.into(), name };
            prop_assert_eq!(Ticket::parse(&ticket.to_text()), Ok(ticket));
        }

        #[test]
        fn no_text_panics_and_no_changed_character_passes(text in "\\PC{0,200}", at in 5usize..GOLDEN.len(), with in "[A-Za-z0-9_-]") {
            let _ = Ticket::parse(&text);
            let _ = Ticket::parse(&format!("twt1:{text}"));
            let mut changed = GOLDEN.to_owned();
            changed.replace_range(at..=at, &with);
            prop_assert_eq!(Ticket::parse(&changed).is_ok(), changed == GOLDEN);
        }
    }
}
