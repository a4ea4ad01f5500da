//! Tickets: what is read writes back, nothing else passes, and no credential shows.

use super::bytes::Bytes;
use daemon::Ticket;
use daemon::ticket::is_address;
use model::Pin;

pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    if bytes.u8() & 1 == 0 {
        read(&String::from_utf8_lossy(bytes.rest()));
    } else {
        made(&mut bytes);
    }
}

fn read(text: &str) {
    match Ticket::parse(text) {
        Ok(ticket) => {
            assert!(ticket.addresses.iter().all(|address| is_address(address)));
            assert_eq!(Ticket::parse(&ticket.to_text()), Ok(ticket));
        }
        Err(e) => assert!(!e.to_string().is_empty() && !e.hint().is_empty()),
    }
    let _ = is_address(text);
}

/// A ticket that an endpoint makes, and one character of it changed.
fn made(bytes: &mut Bytes<'_>) {
    let mut credential = [0xd7; 32];
    credential[..8].copy_from_slice(&bytes.u64().to_le_bytes());
    let (at, with) = (bytes.u16(), bytes.u8());
    let name = String::from_utf8_lossy(bytes.slice(60)).into_owned();
    let mut addresses: Vec<String> = vec!["192.0.2.1:7740".into()];
    let more = String::from_utf8_lossy(bytes.rest()).into_owned();
    addresses.extend(more.split_whitespace().filter(|address| is_address(address)).take(15).map(str::to_owned));
    let ticket = Ticket { addresses, pin: Pin([3; 32]), credential: credential.into(), name };
    let text = ticket.to_text();
    let nameless = Ticket { name: String::new(), addresses: Vec::new(), ..ticket.clone() };
    let shown = format!("{nameless:?}");
    assert!(!shown.contains("215, 215") && !shown.contains("d7d7"), "a credential shows: {shown}");
    assert_eq!(Ticket::parse(&text).as_ref(), Ok(&ticket));
    let mut changed = text.clone().into_bytes();
    let at = usize::from(at) % changed.len();
    changed[at] = with;
    if let Ok(changed) = std::str::from_utf8(&changed)
        && let Ok(other) = Ticket::parse(changed)
    {
        assert_eq!(other, ticket, "a changed ticket passes as another");
    }
}
