//! What a message may hold, counted on its bytes before anything is allocated for it (docs/protocol.md section 4).
//!
//! A decoder makes a record for each element of a list, and an empty element takes two bytes of a frame: counting afterwards is
//! too late. So a walk over tags and lengths, which allocates nothing, comes first. Clients and servers decode alike.
//!
//! Invariants:
//! - What passes takes at most `DECODED_BYTES_MAX` when it is decoded (`tests/memory.rs` measures it for each message).
//! - Every repeated field of `docs/protocol.proto` has its bound here (a test compares both).
//! - Unknown fields are passed over, as the decoder does, which makes nothing of them.
//!
//! Not here: what the fields mean, and bounds that hold for more than one message.

use crate::close::{CloseCode, Refusal};
use crate::limits::*;
use model::fidelity::WARNINGS_MAX;
use model::filter::RULES_MAX;
use model::options::INSTEAD_OF_MAX;
use model::selection::LISTED_MAX;

/// Lists that any one message has at most, those within lists included.
const LISTS_MAX: usize = 4;
/// As deep as the decoder follows groups, which this protocol does not use.
const GROUPS_MAX: u32 = 100;

/// A message of the envelope.
struct Shape {
    number: u32,
    body_bytes_max: usize,
    /// What the lists are called, and how many elements each may have in all.
    lists: &'static [(&'static str, usize)],
    fields: &'static [Field],
}

/// A field that holds a list, or a message that does. Others need no row.
struct Field {
    tag: u32,
    is: Is,
}

#[derive(Clone, Copy)]
enum Is {
    One(&'static [Field]),
    /// Elements of the list with this place among the message's lists.
    Many(usize, &'static [Field]),
    /// Numbers, alone or several in one field.
    Numbers(usize),
}

const fn one(tag: u32, fields: &'static [Field]) -> Field {
    Field { tag, is: Is::One(fields) }
}

const fn many(tag: u32, list: usize) -> Field {
    Field { tag, is: Is::Many(list, &[]) }
}

const fn plain(number: u32) -> Shape {
    Shape { number, body_bytes_max: PLAIN_BODY_BYTES_MAX, lists: &[], fields: &[] }
}

const ATTRIBUTES: &[Field] = &[many(4, 1)];
const ENTRY: &[Field] = &[one(60, ATTRIBUTES)];
const SELECTION: &[Field] = &[many(1, 1), many(9, 2)];
const ORDER: &[Field] = &[many(6, 0)];
const OPTIONS: &[Field] = &[one(9, SELECTION), many(32, 3)];

#[rustfmt::skip]
const SHAPES: &[Shape] = &[
    plain(1), plain(2), plain(3), plain(4), plain(5),
    Shape {
        number: 10,
        body_bytes_max: CONTROL_BODY_BYTES_MAX,
        lists: &[
            ("paths", OPEN_PATHS_MAX),
            ("filter rules", RULES_MAX),
            ("listed paths", LISTED_MAX),
            ("slices", INSTEAD_OF_MAX),
        ],
        fields: &[many(4, 0), one(5, OPTIONS)],
    },
    plain(11), plain(12),
    Shape {
        number: 20,
        body_bytes_max: CONTROL_BODY_BYTES_MAX,
        lists: &[("entries", ENTRIES_MAX), ("extended attributes", XATTRS_TOLD_MAX)],
        fields: &[Field { tag: 3, is: Is::Many(0, ENTRY) }],
    },
    Shape {
        number: 21,
        body_bytes_max: CONTROL_BODY_BYTES_MAX,
        lists: &[("failures", FAILURES_MAX)],
        fields: &[many(2, 0)],
    },
    plain(22),
    Shape {
        number: 23,
        body_bytes_max: CONTROL_BODY_BYTES_MAX,
        lists: &[("runs", RUNS_MAX), ("extents", EXTENTS_MAX)],
        fields: &[many(2, 0), many(3, 1)],
    },
    Shape {
        number: 24,
        body_bytes_max: CONTROL_BODY_BYTES_MAX,
        lists: &[("runs", RUNS_MAX), ("failures", FAILURES_MAX), ("digests", SETTLED_DIGESTS_MAX)],
        fields: &[many(2, 0), many(3, 0), many(4, 1), many(5, 2), many(6, 0)],
    },
    Shape {
        number: 25,
        body_bytes_max: LISTS_BODY_BYTES_MAX,
        lists: &[("extents", RESENT_MAX)],
        fields: &[many(2, 0)],
    },
    Shape {
        number: 26,
        body_bytes_max: LISTS_BODY_BYTES_MAX,
        lists: &[("runs", RESENT_MAX), ("extents", RESENT_MAX)],
        fields: &[many(2, 0), many(3, 1)],
    },
    plain(27), plain(28),
    Shape {
        number: 29,
        body_bytes_max: CONTROL_BODY_BYTES_MAX,
        lists: &[("failures", FAILURES_MAX)],
        fields: &[many(3, 0)],
    },
    plain(30),
    Shape {
        number: 31,
        body_bytes_max: PLAIN_BODY_BYTES_MAX,
        lists: &[("stages", STAGES_MAX)],
        fields: &[Field { tag: 4, is: Is::Numbers(0) }],
    },
    Shape {
        number: 40,
        body_bytes_max: ASK_BODY_BYTES_MAX,
        lists: &[("paths", ASK_PATHS_MAX), ("versions", ASK_PATHS_MAX)],
        fields: &[many(3, 0), many(8, 1)],
    },
    Shape {
        number: 41,
        body_bytes_max: RECORDS_BODY_BYTES_MAX,
        lists: &[("records", RECORDS_MAX)],
        fields: &[many(2, 0)],
    },
    plain(42), plain(43), plain(44),
    Shape {
        number: 50,
        body_bytes_max: LISTS_BODY_BYTES_MAX,
        lists: &[("runs", ENTRIES_MAX)],
        fields: &[many(2, 0)],
    },
    Shape {
        number: 51,
        body_bytes_max: LISTS_BODY_BYTES_MAX,
        lists: &[("digests", ENTRIES_MAX)],
        fields: &[many(2, 0)],
    },
    Shape {
        number: 52,
        body_bytes_max: CONTROL_BODY_BYTES_MAX,
        lists: &[("changes", CHANGES_MAX)],
        fields: &[many(2, 0)],
    },
    Shape {
        number: 60,
        body_bytes_max: CONTROL_BODY_BYTES_MAX,
        lists: &[("users", OWNERS_TOLD_MAX), ("groups", OWNERS_TOLD_MAX)],
        fields: &[many(2, 0), many(3, 1)],
    },
    Shape {
        number: 61,
        body_bytes_max: CONTROL_BODY_BYTES_MAX,
        lists: &[("warnings", WARNINGS_MAX)],
        fields: &[many(2, 0)],
    },
    plain(70), plain(80),
    Shape {
        number: 90,
        body_bytes_max: ORDER_BODY_BYTES_MAX,
        lists: &[("addresses", ORDER_ADDRESSES_MAX)],
        fields: ORDER,
    },
    plain(91), plain(92),
    Shape {
        number: 93,
        body_bytes_max: CONTROL_BODY_BYTES_MAX,
        lists: &[("failures", ORDER_FAILURES_MAX)],
        fields: &[many(3, 0)],
    },
    plain(94), plain(95),
    Shape {
        number: 96,
        body_bytes_max: ORDER_BODY_BYTES_MAX,
        lists: &[("addresses", ORDER_ADDRESSES_MAX)],
        fields: &[one(15, ORDER)],
    },
    plain(97),
    Shape {
        number: 100,
        body_bytes_max: PLAIN_BODY_BYTES_MAX,
        lists: &[("addresses", ADDRESSES_MAX)],
        fields: &[many(1, 0)],
    },
    Shape {
        number: 101,
        body_bytes_max: PLAIN_BODY_BYTES_MAX,
        lists: &[("addresses", ADDRESSES_MAX), ("cards", ADDRESSES_MAX * ADDRESSES_MAX)],
        fields: &[Field { tag: 1, is: Is::Many(0, &[Field { tag: 3, is: Is::Numbers(1) }]) }],
    },
    plain(115),
    Shape {
        number: 116,
        body_bytes_max: CONTROL_BODY_BYTES_MAX,
        lists: &[("hosts", HOSTS_MAX), ("addresses", HOSTS_MAX * ADDRESSES_MAX)],
        fields: &[Field { tag: 2, is: Is::Many(0, &[many(3, 1)]) }],
    },
    Shape {
        number: 117,
        body_bytes_max: PLAIN_BODY_BYTES_MAX,
        lists: &[("addresses", ADDRESSES_MAX), ("pins", CLIENTS_ASKED_MAX)],
        fields: &[many(2, 0), many(4, 1)],
    },
    Shape {
        number: 118,
        body_bytes_max: CONTROL_BODY_BYTES_MAX,
        lists: &[("clients", CLIENTS_ASKED_MAX)],
        fields: &[many(3, 0)],
    },
    Shape { number: 119, body_bytes_max: ORDER_BODY_BYTES_MAX, lists: &[], fields: &[] },
    Shape {
        number: 120,
        body_bytes_max: CONTROL_BODY_BYTES_MAX,
        lists: &[("shares", SHARES_TOLD_MAX)],
        fields: &[many(10, 0)],
    },
];

/// A list that a message may have.
pub struct List {
    /// Numbers of the fields that lead to it; the first is that of the message in the envelope.
    pub path: Vec<u32>,
    pub what: &'static str,
    /// Elements that all such lists of one message may have together.
    pub elements_max: usize,
    /// Whether its elements are numbers, and not messages or bytes.
    pub is_of_numbers: bool,
}

/// Every list of every message.
pub fn lists() -> Vec<List> {
    fn gather(shape: &Shape, fields: &[Field], path: &[u32], out: &mut Vec<List>) {
        for field in fields {
            let path = [path, &[field.tag]].concat();
            let (list, inner, is_of_numbers): (_, &[Field], _) = match field.is {
                Is::One(inner) => (None, inner, false),
                Is::Many(list, inner) => (Some(list), inner, false),
                Is::Numbers(list) => (Some(list), &[], true),
            };
            if let Some((what, elements_max)) = list.map(|list| shape.lists[list]) {
                out.push(List { path: path.clone(), what, elements_max, is_of_numbers });
            }
            gather(shape, inner, &path, out);
        }
    }
    let mut out = Vec::new();
    SHAPES.iter().for_each(|shape| gather(shape, shape.fields, &[shape.number], &mut out));
    out
}

/// Number and longest body of every message.
pub fn kinds() -> impl Iterator<Item = (u32, usize)> {
    SHAPES.iter().map(|shape| (shape.number, shape.body_bytes_max))
}

/// Elements of the message's lists.
pub(crate) type Counts = [usize; LISTS_MAX];

/// How long a message may be, by the first bytes of its body; as long as any while they do not say which it is.
pub(crate) fn body_bytes_max(mut start: &[u8]) -> usize {
    let of = |(tag, wire)| SHAPES.iter().find(|shape| shape.number == tag && wire == DELIMITED);
    key(&mut start).ok().and_then(of).map_or(CONTROL_BODY_BYTES_MAX, |shape| shape.body_bytes_max)
}

/// Refuses the body of a message frame that holds more than one may, and what is no protobuf.
pub(crate) fn check(mut body: &[u8]) -> Result<Counts, Refusal> {
    let whole = body.len();
    let mut found = None;
    let mut counts = Counts::default();
    while !body.is_empty() {
        let (tag, wire) = key(&mut body)?;
        let shape = SHAPES.iter().find(|shape| shape.number == tag && wire == DELIMITED);
        let Some(shape) = shape else {
            skip(&mut body, tag, wire, 0)?;
            continue;
        };
        if found.replace(tag).is_some() {
            return Err(malformed("two messages in one frame"));
        }
        if whole > shape.body_bytes_max {
            return Err(too_long(whole));
        }
        let content = delimited(&mut body)?;
        walk(content, shape.fields, shape, &mut counts)?;
    }
    Ok(counts)
}

pub(crate) fn too_long(bytes: usize) -> Refusal {
    Refusal::new(CloseCode::Limit, &format!("a control frame of {bytes} bytes is too long"))
}

/// Goes through a message of the tree of shapes, which is four levels deep.
fn walk(mut bytes: &[u8], fields: &[Field], shape: &Shape, counts: &mut Counts) -> Result<(), Refusal> {
    while !bytes.is_empty() {
        let (tag, wire) = key(&mut bytes)?;
        let field = fields.iter().find(|field| field.tag == tag);
        match (field.map(|field| field.is), wire) {
            (Some(Is::One(fields)), DELIMITED) => walk(delimited(&mut bytes)?, fields, shape, counts)?,
            (Some(Is::Many(list, fields)), DELIMITED) => {
                add(shape, counts, list, 1)?;
                let element = delimited(&mut bytes)?;
                // Elements without lists are left to the decoder: they may be bytes and no messages.
                if !fields.is_empty() {
                    walk(element, fields, shape, counts)?;
                }
            }
            (Some(Is::Numbers(list)), DELIMITED) => {
                let numbers = delimited(&mut bytes)?.iter().filter(|byte| **byte < 0x80).count();
                add(shape, counts, list, numbers)?;
            }
            (Some(Is::Numbers(list)), _) => {
                add(shape, counts, list, 1)?;
                skip(&mut bytes, tag, wire, 0)?;
            }
            _ => skip(&mut bytes, tag, wire, 0)?,
        }
    }
    Ok(())
}

fn add(shape: &Shape, counts: &mut Counts, list: usize, count: usize) -> Result<(), Refusal> {
    let (what, max) = shape.lists[list];
    counts[list] += count;
    if counts[list] > max {
        return Err(Refusal::new(CloseCode::Limit, &format!("a message with more than {max} {what}")));
    }
    Ok(())
}

const VARINT: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const DELIMITED: u64 = 2;
const GROUP: u64 = 3;
const END_OF_GROUP: u64 = 4;
const FOUR_BYTES: u64 = 5;

fn malformed(what: &str) -> Refusal {
    Refusal::new(CloseCode::Malformed, &format!("a control message cannot be read: {what}"))
}

/// Number and wire type of the next field.
fn key(bytes: &mut &[u8]) -> Result<(u32, u64), Refusal> {
    let key = varint(bytes)?;
    match u32::try_from(key) {
        Ok(number) if number >> 3 > 0 => Ok((number >> 3, key & 7)),
        _ => Err(malformed("a field without a number")),
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Refusal> {
    let mut value = 0;
    for at in 0..10 {
        let Some((byte, rest)) = bytes.split_first() else { break };
        *bytes = rest;
        // The tenth has one bit left.
        if at == 9 && *byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << (7 * at);
        if *byte < 0x80 {
            return Ok(value);
        }
    }
    Err(malformed("a number that does not end"))
}

fn delimited<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Refusal> {
    let length = varint(bytes)?;
    take(bytes, length)
}

fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Result<&'a [u8], Refusal> {
    let at = usize::try_from(length).ok().filter(|length| *length <= bytes.len());
    let (taken, rest) = bytes.split_at(at.ok_or_else(|| malformed("a field that does not end"))?);
    *bytes = rest;
    Ok(taken)
}

fn skip(bytes: &mut &[u8], tag: u32, wire: u64, depth: u32) -> Result<(), Refusal> {
    match wire {
        VARINT => varint(bytes).map(drop),
        EIGHT_BYTES => take(bytes, 8).map(drop),
        DELIMITED => delimited(bytes).map(drop),
        FOUR_BYTES => take(bytes, 4).map(drop),
        GROUP if depth < GROUPS_MAX => loop {
            match key(bytes)? {
                (end, END_OF_GROUP) if end == tag => return Ok(()),
                (inner, wire) => skip(bytes, inner, wire, depth + 1)?,
            }
        },
        _ => Err(malformed("a field of no known form")),
    }
}

#[cfg(test)]
#[path = "bounds_tests.rs"]
mod tests;
