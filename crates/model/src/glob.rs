//! One pattern of a filter, made ready to be compared with paths.
//!
//! The pattern is an automaton whose states are bits: how much of it the path has matched so far, in every way at once. A byte of
//! the path costs one pass over those words, whatever the pattern is.
//!
//! Invariant: a comparison takes at most `words * path.len()` steps and no memory, so that the patterns of a peer cost no more
//! than their length times that of the path. A general engine for regular expressions took seconds and gigabytes for some
//! patterns that fit the bounds.
//! Not here: several patterns and their order (`filter`).

const WORD_BITS: usize = u64::BITS as usize;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// `?`: any byte but a slash.
    Any,
    /// `[...]`, by its number among the sets: one of its bytes, which a slash never is.
    Set(usize),
    /// `*`: any bytes but slashes. `**`: any bytes.
    Star {
        is_deep: bool,
    },
}

/// Bytes that a set has.
type Set = [bool; 256];

#[derive(Clone)]
pub struct Glob {
    /// For each byte, its row in `takes`.
    row_of: Box<[u8; 256]>,
    /// For each row, the states that go on to the next with such a byte.
    takes: Box<[u64]>,
    /// The states that stay with any byte but a slash, and with any.
    stays: Box<[u64]>,
    stays_deep: Box<[u64]>,
    words: usize,
    /// The state in which all of the pattern is matched.
    end: usize,
    start: Start,
    /// How what matches begins and ends: most paths are told apart by that.
    prefix: Box<[u8]>,
    suffix: Box<[u8]>,
}

/// Where in a path the pattern begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Root,
    /// So many names before the end.
    Names(usize),
    /// Any name.
    Anywhere,
}

impl Start {
    /// The part of a path that is compared.
    pub fn text<'a>(self, path: &'a [u8], names: &[usize]) -> Option<&'a [u8]> {
        let from = match self {
            Start::Names(count) => names.get(count - 1),
            Start::Root | Start::Anywhere => Some(&0),
        };
        from.map(|from| &path[*from..])
    }
}

impl Glob {
    /// Reads a pattern without a slash at its beginning, which is `is_tied`.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn new(pattern: &[u8], is_tied: bool) -> Result<Glob, &'static str> {
        let (tokens, sets) = tokens_of(pattern)?;
        let is_consuming = |token: &&Token| !matches!(token, Token::Star { .. });
        let end = tokens.iter().filter(is_consuming).count();
        let words = end / WORD_BITS + 1;
        let row_of = rows_of(&tokens, &sets);
        let rows = row_of.iter().copied().max().map_or(0, usize::from) + 1;
        let mut takes = vec![0u64; rows * words];
        let (mut stays, mut stays_deep) = (vec![0u64; words], vec![0u64; words]);
        let mut state = 0;
        for token in &tokens {
            let (word, bit) = (state / WORD_BITS, 1u64 << (state % WORD_BITS));
            match token {
                Token::Star { is_deep: true } => stays_deep[word] |= bit,
                Token::Star { is_deep: false } => stays[word] |= bit,
                token => {
                    let of = |byte: u8| match token {
                        Token::Byte(own) => byte == *own,
                        Token::Set(set) => sets[*set][usize::from(byte)],
                        _ => byte != b'/',
                    };
                    for byte in (0..=u8::MAX).filter(|byte| of(*byte)) {
                        takes[usize::from(row_of[usize::from(byte)]) * words + word] |= bit;
                    }
                    state += 1;
                }
            }
        }
        let is_deep = tokens.contains(&Token::Star { is_deep: true });
        let start = match (is_tied, is_deep) {
            (true, _) => Start::Root,
            (false, true) => Start::Anywhere,
            (false, false) => Start::Names(1 + tokens.iter().filter(|token| **token == Token::Byte(b'/')).count()),
        };
        let plain = |token: &Token| if let Token::Byte(byte) = token { Some(*byte) } else { None };
        let mut suffix: Vec<u8> = tokens.iter().rev().map_while(plain).collect();
        suffix.reverse();
        let prefix: Vec<u8> = match start {
            Start::Anywhere => Vec::new(),
            Start::Root | Start::Names(_) => tokens.iter().map_while(plain).collect(),
        };
        let (takes, stays, stays_deep) = (takes.into(), stays.into(), stays_deep.into());
        let (prefix, suffix) = (prefix.into(), suffix.into());
        Ok(Glob { row_of, takes, stays, stays_deep, words, end, start, prefix, suffix })
    }

    /// How everything that it matches begins, at `start`.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    pub fn start(&self) -> Start {
        self.start
    }

    /// How everything that it matches ends.
    pub fn suffix(&self) -> &[u8] {
        &self.suffix
    }

    /// Compares a path, of which `names` says where each name begins, the last one first.
    pub fn matches(&self, path: &[u8], names: &[usize]) -> bool {
        if self.suffix.last().is_some_and(|last| path.last() != Some(last)) || !path.ends_with(&self.suffix) {
            return false;
        }
        let text = self.start.text(path, names).filter(|text| text.starts_with(&self.prefix));
        let Some(text) = text else { return false };
        match self.words {
            1 => self.is_end_reached(text, &mut [0]),
            2..=8 => self.is_end_reached(text, &mut [0; 8][..self.words]),
            _ => self.is_end_reached(text, &mut vec![0; self.words]),
        }
    }

    /// `states` is zero.
    fn is_end_reached(&self, text: &[u8], states: &mut [u64]) -> bool {
        states[0] = 1;
        // Words behind this one are zero.
        let mut last = 0;
        let mut is_at_name = false;
        for byte in text {
            if is_at_name && matches!(self.start, Start::Anywhere) {
                states[0] |= 1;
            }
            is_at_name = *byte == b'/';
            let row = usize::from(self.row_of[usize::from(*byte)]) * self.words;
            let (mut carry, mut any, mut reached) = (0, 0, 0);
            for (at, here) in states.iter_mut().enumerate().take(last + 2) {
                #[cfg(test)]
                tests::STEPS.set(tests::STEPS.get() + 1);
                let state = *here;
                let going = state & self.takes[row + at];
                let staying = state & (self.stays_deep[at] | if is_at_name { 0 } else { self.stays[at] });
                let next = going << 1 | carry | staying;
                carry = going >> (WORD_BITS - 1);
                *here = next;
                any |= next;
                if next != 0 {
                    reached = at;
                }
            }
            last = reached;
            if any == 0 && !matches!(self.start, Start::Anywhere) {
                return false;
            }
        }
        states[self.end / WORD_BITS] >> (self.end % WORD_BITS) & 1 == 1
    }
}

/// Where each name of a path begins, the last one first.
pub fn names_of(path: &[u8]) -> Vec<usize> {
    let slashes = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| at + 1).chain([0]).collect()
}

/// Bytes that all tokens treat alike share a row.
fn rows_of(tokens: &[Token], sets: &[Set]) -> Box<[u8; 256]> {
    let mut is_told: Set = [false; 256];
    is_told[usize::from(b'/')] = true;
    for token in tokens {
        if let Token::Byte(byte) = token {
            is_told[usize::from(*byte)] = true;
        }
    }
    let mut rows = Box::new([0; 256]);
    let mut next: u8 = 0;
    for byte in 0..=255usize {
        if is_told[byte] || sets.iter().any(|set| set[byte]) {
            // With all 256 told, the last shares the row of bytes that are not, of which there are none then.
            next = next.wrapping_add(1);
            rows[byte] = next;
        }
    }
    rows
}

fn tokens_of(pattern: &[u8]) -> Result<(Vec<Token>, Vec<Set>), &'static str> {
    let (mut tokens, mut sets) = (Vec::new(), Vec::new());
    let mut rest = pattern;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match first {
            b'*' => {
                let more = rest.iter().take_while(|byte| **byte == b'*').count();
                rest = &rest[more..];
                tokens.push(Token::Star { is_deep: more > 0 });
            }
            b'?' => tokens.push(Token::Any),
            b'\\' => {
                let (escaped, behind) = rest.split_first().ok_or("ends in a backslash")?;
                tokens.push(Token::Byte(*escaped));
                rest = behind;
            }
            b'[' => {
                let (set, behind) = set_of(rest)?;
                tokens.push(Token::Set(sets.len()));
                sets.push(set);
                rest = behind;
            }
            plain => tokens.push(Token::Byte(*plain)),
        }
    }
    Ok((tokens, sets))
}

/// Reads a set up to its end; a bracket right at its beginning belongs to it.
fn set_of(mut rest: &[u8]) -> Result<(Set, &[u8]), &'static str> {
    let mut set: Set = [false; 256];
    let is_negated = matches!(rest.first(), Some(b'!' | b'^'));
    rest = &rest[usize::from(is_negated)..];
    let mut is_empty = true;
    loop {
        let (&first, behind) = rest.split_first().ok_or("has a [ without its ]")?;
        rest = behind;
        if first == b']' && !is_empty {
            break;
        }
        if first == b'/' {
            return Err("has a slash in a set of characters");
        }
        is_empty = false;
        let last = match rest {
            [b'-', b']', ..] => first,
            [b'-', b'/', ..] => return Err("has a slash in a set of characters"),
            [b'-', last, behind @ ..] => {
                rest = behind;
                *last
            }
            _ => first,
        };
        if last < first {
            return Err("has a range of characters that ends before it begins");
        }
        set[usize::from(first)..=usize::from(last)].fill(true);
    }
    if is_negated {
        set.iter_mut().for_each(|is_member| *is_member = !*is_member);
    }
    set[usize::from(b'/')] = false;
    Ok((set, rest))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    thread_local! {
        pub static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    #[test]
    fn sets_and_their_ends() {
        let is_in = |pattern: &str, byte: u8| Glob::new(pattern.as_bytes(), false).unwrap().matches(&[byte], &[0]);
        for (pattern, inside, outside) in [
            ("[a-c]", "abc", "d-/"),
            ("[a-]", "a-", "b/"),
            ("[-a]", "a-", "b/"),
            ("[]-a]", "]^_`a", "b[/"),
            ("[!a-c]", "d-", "abc/"),
            ("[.-0]", ".0", "1/"),
            ("[\\x]", "\\x", "y/"),
        ] {
            assert!(inside.bytes().all(|byte| is_in(pattern, byte)), "{pattern}");
            assert!(!outside.bytes().any(|byte| is_in(pattern, byte)), "{pattern}");
        }
        assert!(Glob::new(b"[b-a]", false).is_err());
        // Every byte has a meaning of its own.
        let all: Vec<u8> = (1..=255u8).filter(|byte| !b"*?[\\".contains(byte)).collect();
        let is_like_all = |text: &[u8]| Glob::new(&all, true).unwrap().matches(text, &names_of(text));
        assert!(is_like_all(&all) && !is_like_all(&all.iter().rev().copied().collect::<Vec<_>>()));
    }

    #[test]
    fn a_pattern_of_several_words_matches_as_a_short_one() {
        let path: Vec<u8> = (0..700).map(|at| if at % 100 == 99 { b'/' } else { b'a' + (at % 7) as u8 }).collect();
        for (pattern, expected) in [
            (path.clone(), true),
            ([&path[..300], b"**", &path[305..]].concat(), true),
            ([b"**", &path[5..]].concat(), true),
            ([&path[..650], b"*", &path[660..]].concat(), true),
            ([&path[..650], b"*", &path[640..]].concat(), false),
            ([&path[..590], b"*", &path[601..]].concat(), false),
            ([&path[..590], b"**", &path[601..]].concat(), true),
        ] {
            assert_eq!(Glob::new(&pattern, true).unwrap().matches(&path, &names_of(&path)), expected);
        }
    }
}
