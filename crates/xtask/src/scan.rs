//! Text scanning for the checks: which characters of a Rust file are code, and where a word stands.
//!
//! Invariant: masked text has the length and the line breaks of the original, so a position in one is a position in the
//! other. Not here: parsing. Unterminated literals simply run to the end of the file; the compiler reports those.

/// Blanks comments and literals (delimiters included), leaving only code.
pub fn mask(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        if let Some(end) = blank_end(bytes, at) {
            code[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
            at = end;
        } else {
            at += bytes[at..].iter().take_while(|&&byte| is_word(byte)).count().max(1);
        }
    }
    String::from_utf8(code).expect("comments and literals begin and end at character boundaries")
}

/// Positions of `pattern` in `text` that are not part of a longer word on a side where the pattern ends in a word.
pub fn occurrences<'a>(text: &'a str, pattern: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = text.as_bytes();
    let starts_in_word = pattern.bytes().next().is_some_and(is_word);
    let ends_in_word = pattern.bytes().next_back().is_some_and(is_word);
    text.match_indices(pattern).map(|(at, _)| at).filter(move |&at| {
        let before = at.checked_sub(1).map(|before| bytes[before]);
        let after = bytes.get(at + pattern.len()).copied();
        let continues_before = starts_in_word && before.is_some_and(is_word);
        let continues_after = ends_in_word && after.is_some_and(is_word);
        !continues_before && !continues_after
    })
}

/// The line, counted from one, that holds position `at`.
pub fn line_at(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count()
}

/// The identifier that starts after the white space at `at`, if one does.
pub fn identifier_after(code: &str, at: usize) -> Option<&str> {
    let rest = code[at..].trim_start();
    let end = rest.bytes().position(|byte| !is_word(byte)).unwrap_or(rest.len());
    Some(&rest[..end]).filter(|name| name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit()))
}

/// Where the item that starts at `at` in masked code ends: after its body, or after its semicolon when it has none.
pub fn item_end(code: &str, at: usize) -> ItemEnd {
    let bytes = code.as_bytes();
    let mut depth = 0_usize;
    for (at, &byte) in bytes.iter().enumerate().skip(at) {
        match byte {
            b'{' if depth == 0 => return ItemEnd::Body { open: at, end: bracket_end(bytes, at) },
            b';' if depth == 0 => return ItemEnd::Semicolon { end: at + 1 },
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth == 0 => return ItemEnd::Semicolon { end: at },
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
    }
    ItemEnd::Semicolon { end: bytes.len() }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ItemEnd {
    Body { open: usize, end: usize },
    Semicolon { end: usize },
}

impl ItemEnd {
    pub fn position(self) -> usize {
        match self {
            ItemEnd::Body { end, .. } | ItemEnd::Semicolon { end } => end,
        }
    }
}

/// The position after the bracket that closes the one at `open`.
pub fn bracket_end(bytes: &[u8], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, &byte) in bytes.iter().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth <= 1 => return at + 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
    }
    bytes.len()
}

pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// The end of the comment or literal that starts at `at`, if one does.
fn blank_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    match rest[0] {
        b'/' if rest.starts_with(b"//") => Some(at + rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len())),
        b'/' if rest.starts_with(b"/*") => Some(comment_end(bytes, at)),
        b'"' => Some(string_end(bytes, at + 1)),
        b'\'' => char_end(bytes, at),
        b'r' | b'b' | b'c' => prefixed_end(bytes, at),
        _ => None,
    }
}

/// Block comments nest.
fn comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// A quote opens a character only if another closes it after one character or one escape; otherwise it is a lifetime.
fn char_end(bytes: &[u8], at: usize) -> Option<usize> {
    let first = *bytes.get(at + 1)?;
    if first == b'\\' {
        let close = bytes.get(at + 3..)?.iter().position(|&byte| byte == b'\'')?;
        return Some(at + 4 + close);
    }
    let close = at + 1 + char_bytes(first);
    (bytes.get(close) == Some(&b'\'')).then_some(close + 1)
}

fn char_bytes(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    }
}

/// Byte, C and raw strings and byte characters; an ordinary or raw identifier gives nothing.
fn prefixed_end(bytes: &[u8], at: usize) -> Option<usize> {
    let prefix = [b"br".as_slice(), b"cr", b"b", b"c", b"r"].into_iter().find(|p| bytes[at..].starts_with(p))?;
    let at = at + prefix.len();
    let hashes = bytes[at..].iter().take_while(|&&byte| byte == b'#').count();
    match bytes.get(at + hashes)? {
        b'"' if prefix.ends_with(b"r") => Some(raw_string_end(bytes, at + hashes + 1, hashes)),
        b'"' if hashes == 0 => Some(string_end(bytes, at + 1)),
        b'\'' if hashes == 0 && prefix == b"b" => char_end(bytes, at),
        _ => None,
    }
}

fn raw_string_end(bytes: &[u8], start: usize, hashes: usize) -> usize {
    let closes = |at: usize| {
        bytes[at] == b'"' && bytes[at + 1..].iter().take_while(|&&byte| byte == b'#').take(hashes).count() == hashes
    };
    (start..bytes.len()).find(|&at| closes(at)).map_or(bytes.len(), |at| at + 1 + hashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        let masked = mask(text);
        assert_eq!(masked.len(), text.len());
        masked.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_are_blanked_even_when_nested() {
        assert_eq!(code("a // { \" \nb /* x /* { */ ' */ c"), "a b c");
    }

    #[test]
    fn strings_are_blanked_with_escapes_prefixes_and_hashes() {
        assert_eq!(code(r#"a("}\"{", b"{", c"{")"#), "a( , , )");
        assert_eq!(code("a(r\"\\\", r#\"\"{\"#, br##\"\"#{\"##) z"), "a( , , ) z");
        assert_eq!(code("r#type + br"), "r#type + br");
    }

    #[test]
    fn characters_are_blanked_and_lifetimes_are_kept() {
        assert_eq!(code(r"f('{', '\'', '\u{7b}', 'é', b'{', b'\\')"), "f( , , , , , )");
        assert_eq!(code("fn f<'a>(x: &'a str, y: &'static T) { '{' }"), "fn f<'a>(x: &'a str, y: &'static T) { }");
    }

    #[test]
    fn unterminated_literals_run_to_the_end() {
        assert_eq!(code("a \"b"), "a");
        assert_eq!(code("a \"b\\"), "a");
        assert_eq!(code("a /* b"), "a");
        assert_eq!(code("a r#\"b\""), "a");
    }

    #[test]
    fn words_match_whole() {
        let found = |text, pattern| occurrences(text, pattern).collect::<Vec<_>>();
        assert_eq!(found("eprint!() print!()", "print!"), [10]);
        assert_eq!(found("ABCD ABC aABC (ABC)", "ABC"), [5, 15]);
        assert_eq!(found("x.now() now()", ".now()"), [1]);
    }

    #[test]
    fn an_item_ends_after_its_body_or_semicolon() {
        let text = "fn f(x: [u8; { 4 }]) -> [u8; 2] { { } } fn";
        assert_eq!(item_end(text, 0), ItemEnd::Body { open: 32, end: 39 });
        assert_eq!(item_end("fn f(x: [u8; 2]); fn", 0), ItemEnd::Semicolon { end: 17 });
    }
}
