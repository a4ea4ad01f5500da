//! What FTP and GridFTP servers say: replies cut anywhere, addresses of data connections, lines of listings.

use super::bytes::Bytes;
use foreign::ftp::said::{Parser, Reply, Told, extended_port, of_facts, of_list, passive_address};

pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let kind = bytes.u8();
    match kind % 4 {
        0 | 1 => {
            let cut = usize::from(bytes.u8());
            replies(bytes.rest(), cut, kind % 2 == 1);
        }
        2 => {
            let now = bytes.u32();
            listing(bytes.rest(), now);
        }
        _ => addresses(&String::from_utf8_lossy(bytes.rest())),
    }
}

/// All replies in some bytes that arrive in pieces of this length, and whether they end in an error.
fn heard(bytes: &[u8], piece: usize, is_after_words: bool) -> (Vec<Reply>, bool) {
    let mut parser = if is_after_words { Parser::after_words() } else { Parser::default() };
    let mut replies = Vec::new();
    for mut some in bytes.chunks(piece) {
        while !some.is_empty() {
            match parser.feed(some) {
                Ok((taken, reply)) => {
                    assert!((1..=some.len()).contains(&taken));
                    replies.extend(reply);
                    some = &some[taken..];
                }
                Err(_) => return (replies, true),
            }
        }
    }
    (replies, false)
}

fn replies(bytes: &[u8], cut: usize, is_after_words: bool) {
    let whole = heard(bytes, bytes.len().max(1), is_after_words);
    assert_eq!(heard(bytes, cut + 1, is_after_words), whole, "replies depend on where they are cut");
    for reply in &whole.0 {
        assert!((100..600).contains(&reply.code));
        assert!(reply.text.chars().all(|c| !c.is_control()), "control characters are shown: {:?}", reply.text);
        addresses(&reply.text);
        reply.lines.iter().filter_map(|line| of_facts(line)).for_each(|told| is_told(&told));
    }
}

fn listing(bytes: &[u8], now: u32) {
    for line in bytes.split(|byte| *byte == b'\n') {
        for told in [of_facts(line), of_list(line, now)].into_iter().flatten() {
            is_told(&told);
            let stands = |text: &[u8]| text.is_empty() || line.windows(text.len()).any(|part| part == text);
            assert!(stands(&told.name) && stands(&told.target), "a name is not what stands in its line");
        }
    }
}

fn is_told(told: &Told) {
    assert!(!told.name.is_empty());
    let attributes = &told.attributes;
    assert!(attributes.mode.is_some() && attributes.size_bytes.is_some());
    let kinds = [attributes.is_file(), attributes.is_directory(), attributes.is_link()];
    assert!(kinds.iter().filter(|is_it| **is_it).count() <= 1);
    assert!(!attributes.is_directory() || told.target.is_empty(), "a directory leads somewhere else");
}

fn addresses(text: &str) {
    assert!(extended_port(text) != Some(0));
    assert!(passive_address(text).is_none_or(|address| address.port() > 0 && address.is_ipv4()));
}
