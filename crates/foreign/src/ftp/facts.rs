//! Lines of listings: facts of RFC 3659, and what `ls -l` prints, for servers that have nothing better.
//!
//! Invariant: a line is a name with what is told of it, or nothing; nothing is guessed of a name.

use super::reply::number;
use crate::tree::Attributes;

const FILE: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
/// Something that is none of these.
const OTHER: u32 = 0o010_000;

/// What a line tells.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Told {
    pub name: Vec<u8>,
    pub attributes: Attributes,
    /// Of a link.
    pub target: Vec<u8>,
    /// The directory itself, or the one above it.
    pub is_own: bool,
}

/// Reads `fact=value;fact=value; name`.
pub fn of_facts(line: &[u8]) -> Option<Told> {
    let line = line.strip_prefix(b" ").unwrap_or(line);
    let end = line.iter().position(|byte| *byte == b' ')?;
    let mut told = Told { name: line[end + 1..].to_vec(), ..Told::default() };
    let (mut kind, mut mode) = (None, None);
    for fact in line[..end].split(|byte| *byte == b';').filter(|fact| !fact.is_empty()) {
        let at = fact.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (fact[..at].to_ascii_lowercase(), &fact[at + 1..]);
        let text = std::str::from_utf8(value).unwrap_or_default();
        match &name[..] {
            b"type" => match &text.to_ascii_lowercase()[..] {
                "file" => kind = Some(FILE),
                "dir" => kind = Some(DIRECTORY),
                "cdir" | "pdir" => (kind, told.is_own) = (Some(DIRECTORY), true),
                link if link.starts_with("os.unix=slink") || link.starts_with("os.unix=symlink") || link == "slink" => {
                    kind = Some(LINK);
                    let behind = value.iter().position(|byte| *byte == b':');
                    if let Some(at) = behind
                        && told.target.is_empty()
                    {
                        told.target = value[at + 1..].to_vec();
                    }
                }
                _ => kind = Some(OTHER),
            },
            b"size" => told.attributes.size_bytes = Some(number(text)?),
            b"modify" => told.attributes.modified = Some(seconds(text)?),
            b"unix.mode" => mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o177_777),
            // Globus tells kind and size of what the link leads to.
            b"unix.slink" if !value.is_empty() => told.target = value.to_vec(),
            _ => {}
        }
    }
    let kind = if told.target.is_empty() { kind? } else { LINK };
    let usual = if kind == DIRECTORY { 0o755 } else { 0o644 };
    told.attributes.mode = Some(kind | mode.map_or(usual, |mode| mode & 0o7777));
    told.attributes.size_bytes.get_or_insert(0);
    (!told.name.is_empty()).then_some(told)
}

/// Reads `-rw-r--r--    1 0        0              11 Nov 23 10:33 name`. `now` stands for the year that is missing then.
pub fn of_list(line: &[u8], now: u32) -> Option<Told> {
    let mut rest = line;
    let mut field = || {
        let start = rest.iter().position(|byte| *byte != b' ')?;
        let end = start + rest[start..].iter().position(|byte| *byte == b' ')?;
        let found = std::str::from_utf8(&rest[start..end]).ok()?;
        rest = &rest[end..];
        Some(found)
    };
    let mode = field()?;
    let (_, _, _) = (field()?, field()?, field()?);
    let (size, month, day, clock) = (field()?, field()?, field()?, field()?);
    // One space, and what follows is the name.
    let name = rest.strip_prefix(b" ")?;
    let kind = match mode.as_bytes().first()? {
        b'-' => FILE,
        b'd' => DIRECTORY,
        b'l' => LINK,
        _ => OTHER,
    };
    let mut told = Told { name: name.to_vec(), ..Told::default() };
    if kind == LINK {
        let at = name.windows(4).position(|part| part == b" -> ")?;
        told.target = name[at + 4..].to_vec();
        told.name = name[..at].to_vec();
    }
    told.is_own = matches!(&told.name[..], b"." | b"..");
    told.attributes = Attributes {
        size_bytes: Some(if kind == OTHER { 0 } else { number(size)? }),
        mode: Some(kind | bits(mode)?),
        modified: of_clock(month, day, clock, now),
        owner: None,
    };
    (!told.name.is_empty()).then_some(told)
}

/// `-rwxr-x---` as bits.
fn bits(mode: &str) -> Option<u32> {
    let letters = mode.as_bytes().get(1..10)?;
    let plain = letters.iter().enumerate().fold(0, |bits, (at, letter)| match letter {
        b'r' | b'w' | b'x' | b's' | b't' => bits | 1 << (8 - at),
        _ => bits,
    });
    let special = [(2, 0o4000), (5, 0o2000), (8, 0o1000)];
    let is_special = |at: usize| matches!(letters[at], b's' | b'S' | b't' | b'T');
    Some(special.iter().filter(|(at, _)| is_special(*at)).fold(plain, |bits, (_, bit)| bits | bit))
}

fn of_clock(month: &str, day: &str, clock: &str, now: u32) -> Option<u32> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = MONTHS.iter().position(|known| *known == month)? as u64 + 1;
    let day = number(day)?;
    match clock.split_once(':') {
        None => since_1970(number(clock)?, month, day, [0; 3]),
        Some((hour, minute)) => {
            let this_year = 1970 + u64::from(now) / 31_556_952;
            let at = |year| since_1970(year, month, day, [number(hour)?, number(minute)?, 0]);
            at(this_year).filter(|time| *time <= now.saturating_add(86_400)).or_else(|| at(this_year - 1))
        }
    }
}

/// Reads `YYYYMMDDHHMMSS`, with or without a fraction.
pub fn seconds(text: &str) -> Option<u32> {
    let digits = text.split('.').next().filter(|digits| digits.len() == 14)?;
    let part = |from: usize, to: usize| number(&digits[from..to]);
    number(digits)?;
    since_1970(part(0, 4)?, part(4, 6)?, part(6, 8)?, [part(8, 10)?, part(10, 12)?, part(12, 14)?])
}

/// Seconds of a Gregorian date, up to 2106. Years are counted from March, so that the leap day comes last.
fn since_1970(year: u64, month: u64, day: u64, [hour, minute, second]: [u64; 3]) -> Option<u32> {
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if !is_date || !(1970..=2106).contains(&year) {
        return None;
    }
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    // From 0000-03-01 to 1970-01-01.
    let days = days.checked_sub(719_468)?;
    u32::try_from(days * 86_400 + hour * 3600 + minute * 60 + second).ok()
}

/// Writes `YYYYMMDDHHMMSS`.
pub fn stamp(seconds: u32) -> String {
    let time = model::Timestamp { seconds: i64::from(seconds), nanoseconds: 0 };
    time.rfc3339().chars().filter(char::is_ascii_digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u32 = 1_795_000_000; // 2026-11-18

    #[test]
    fn facts_are_read_in_any_order_and_names_are_kept_as_they_are() {
        let told = of_facts(b"Type=file;Size=11;Modify=20261123103300.5;UNIX.mode=0640;  odd; name=").unwrap();
        assert_eq!(told.name, b" odd; name=");
        let expected =
            Attributes { size_bytes: Some(11), mode: Some(0o100_640), modified: Some(1_795_429_980), owner: None };
        assert_eq!(told.attributes, expected);
        assert!(of_facts(b"type=cdir;modify=20261123103300; .").unwrap().is_own);
        let link = of_facts(b"Type=slink;UNIX.slink=../a b; link");
        // A space ends the facts: what stands behind it is the name, however odd.
        assert_eq!(link.unwrap().name, b"b; link");
        assert_eq!(of_facts(b"Type=OS.unix=slink:/to;size=3; l").unwrap().target, b"/to");
        for wrong in
            [&b""[..], b"name", b"size=1; a", b"type=file;size=-1; a", b"type=file; ", b"type=file;modify=2; a"]
        {
            assert_eq!(of_facts(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_size_that_is_no_number_of_64_bits_is_none() {
        let facts = |size: &str| of_facts(format!("type=file;size={size}; a").as_bytes());
        let listed = |size: &str| of_list(format!("-rw-r--r-- 1 0 0 {size} Nov 10 2020 a").as_bytes(), NOW);
        for size in [0, 1 << 63, u64::MAX] {
            for told in [facts(&size.to_string()), listed(&size.to_string())] {
                assert_eq!(told.and_then(|told| told.attributes.size_bytes), Some(size));
            }
        }
        for size in ["18446744073709551616", "-1", "+1", "1e3", "0x10", "1.5", "\u{663}"] {
            assert_eq!((facts(size), listed(size)), (None, None), "{size}");
        }
        assert_eq!(facts(""), None);
    }

    #[test]
    fn lists_are_read_as_vsftpd_and_others_print_them() {
        let told = of_list(b"-rw-r--r--    1 0        0              11 Nov 10 10:33  two  spaces ", NOW).unwrap();
        assert_eq!((&told.name[..], told.attributes.size_bytes), (&b" two  spaces "[..], Some(11)));
        assert_eq!(told.attributes.modified, seconds("20261110103300"));
        let old = of_list(b"drwxr-sr-t 2 ftp ftp 4096 Dec 24  2020 dir", NOW).unwrap();
        assert_eq!((old.attributes.mode, old.attributes.modified), (Some(0o043_755), seconds("20201224000000")));
        assert_eq!(
            of_list(b"-rw-r--r-- 1 0 0 1 Dec 24 08:00 f", NOW).unwrap().attributes.modified,
            seconds("20251224080000")
        );
        let link = of_list(b"lrwxrwxrwx 1 0 0 4 Nov 10 10:33 a -> b -> c", NOW).unwrap();
        assert_eq!((&link.name[..], &link.target[..]), (&b"a"[..], &b"b -> c"[..]));
        for wrong in [&b"total 12"[..], b"", b"-rw-r--r-- 1 0 0 x Nov 10 10:33 f", b"-rw 1 0 0 1 Nov 10 10:33 f"] {
            assert_eq!(of_list(wrong, NOW), None, "{wrong:?}");
        }
    }

    #[test]
    fn times_read_back_as_they_are_written() {
        for time in [0, 951_782_400, 1_795_429_980, u32::MAX] {
            assert_eq!(seconds(&stamp(time)), Some(time), "{}", stamp(time));
        }
        for wrong in ["", "2026112310330", "20261323103300", "2026112310330x", "19691231235959", "21070101000000"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
