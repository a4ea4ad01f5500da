//! Checks of the walk against the decoder and against the documents.

use super::*;
use crate::message::{self, *};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::{LazyJust, Strategy};

/// What the decoder made of a message's lists, in the order of its row.
fn decoded(message: &Message) -> Counts {
    match message {
        Message::Open(m) => {
            let selection = m.options.as_ref().and_then(|options| options.selection.as_ref());
            [
                m.paths.len(),
                selection.map_or(0, |s| s.rules.len()),
                selection.map_or(0, |s| s.listed.len()),
                m.options.as_ref().map_or(0, |options| options.instead_of.len()),
            ]
        }
        Message::Entries(m) => {
            let xattrs = m.entries.iter().filter_map(|entry| entry.attributes.as_ref()).map(|a| a.xattrs.len());
            [m.entries.len(), xattrs.sum(), 0, 0]
        }
        Message::SourceFailures(m) => [m.failures.len(), 0, 0, 0],
        Message::Want(m) => [m.runs.len(), m.extents.len(), 0, 0],
        Message::Settled(m) => {
            [m.published.len() + m.skipped.len() + m.buffered.len(), m.failed.len(), m.digests.len(), 0]
        }
        Message::Held(m) => [m.extents.len(), 0, 0, 0],
        Message::Resend(m) => [m.runs.len(), m.extents.len(), 0, 0],
        Message::Finished(m) => [m.failures.len(), 0, 0, 0],
        Message::Times(m) => [m.stage_ns.len(), 0, 0, 0],
        Message::Ask(m) => [m.paths.len(), m.versions.len(), 0, 0],
        Message::Records(m) => [m.records.len(), 0, 0, 0],
        Message::AskDigests(m) => [m.runs.len(), 0, 0, 0],
        Message::Digests(m) => [m.digests.len(), 0, 0, 0],
        Message::Changes(m) => [m.changes.len(), 0, 0, 0],
        Message::Names(m) => [m.users.len(), m.groups.len(), 0, 0],
        Message::Warnings(m) => [m.warnings.len(), 0, 0, 0],
        Message::Order(m) => [m.addresses.len(), 0, 0, 0],
        Message::AskAddresses(m) => [m.from.len(), 0, 0, 0],
        Message::Addresses(m) => [m.addresses.len(), m.addresses.iter().map(|a| a.answers_by.len()).sum(), 0, 0],
        Message::Hosts(m) => [m.hosts.len(), m.hosts.iter().map(|host| host.addresses.len()).sum(), 0, 0],
        Message::Attend(m) => [m.addresses.len(), m.pins.len(), 0, 0],
        Message::Standing(m) => [m.clients.len(), 0, 0, 0],
        Message::Terms(m) => [m.shares.len(), 0, 0, 0],
        Message::OrderEvents(m) => [m.failures.len(), 0, 0, 0],
        Message::OrderEnded(m) => [m.order.as_ref().map_or(0, |order| order.addresses.len()), 0, 0, 0],
        _ => Counts::default(),
    }
}

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put(tag: u32, content: &[u8], out: &mut Vec<u8>) {
    put_varint(u64::from(tag) << 3 | DELIMITED, out);
    put_varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

/// Fields that the program does not know, of every form.
fn unknown() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<u64>().prop_map(|value| {
            let mut out = vec![0xf8, 0x3f];
            put_varint(value, &mut out);
            out
        }),
        Just([&[0xf9, 0x3f][..], &[7; 8]].concat()),
        Just([&[0xfd, 0x3f][..], &[7; 4]].concat()),
        vec(any::<u8>(), 0..9).prop_map(|content| {
            let mut out = Vec::new();
            put(1023, &content, &mut out);
            out
        }),
        // Groups within each other.
        (0..9usize).prop_map(|depth| [[0xfb, 0x3f].repeat(depth), [0xfc, 0x3f].repeat(depth)].concat()),
    ]
}

/// Bytes of a message with the lists of its row, each of up to 40 elements, and unknown fields between them.
fn fields_of(fields: &'static [Field]) -> BoxedStrategy<Vec<u8>> {
    let field = |field: &'static Field| match field.is {
        Is::One(inner) => fields_of(inner)
            .prop_map(move |content| {
                let mut out = Vec::new();
                put(field.tag, &content, &mut out);
                out
            })
            .boxed(),
        Is::Many(_, inner) => vec(fields_of(inner), 0..40)
            .prop_map(move |elements| {
                let mut out = Vec::new();
                elements.iter().for_each(|element| put(field.tag, element, &mut out));
                out
            })
            .boxed(),
        Is::Numbers(_) => (vec(any::<u64>(), 0..9), any::<bool>())
            .prop_map(move |(numbers, is_packed)| {
                let (mut out, mut packed) = (Vec::new(), Vec::new());
                for number in numbers {
                    if !is_packed {
                        put_varint(u64::from(field.tag) << 3, &mut out);
                    }
                    put_varint(number, if is_packed { &mut packed } else { &mut out });
                }
                if is_packed {
                    put(field.tag, &packed, &mut out);
                }
                out
            })
            .boxed(),
    };
    let mut all = unknown().boxed();
    for one in fields {
        all = prop_oneof![all, field(one)].boxed();
    }
    vec(all, 0..4).prop_map(|parts| parts.concat()).boxed()
}

fn message_of(shape: &'static Shape) -> impl Strategy<Value = Vec<u8>> {
    (fields_of(shape.fields), unknown(), any::<bool>()).prop_map(move |(content, unknown, is_first)| {
        let mut out = if is_first { unknown.clone() } else { Vec::new() };
        put(shape.number, &content, &mut out);
        if !is_first {
            out.extend(unknown);
        }
        out
    })
}

fn any_message() -> impl Strategy<Value = Vec<u8>> {
    LazyJust::new(|| ()).prop_flat_map(|()| (0..SHAPES.len()).prop_flat_map(|at| message_of(&SHAPES[at])))
}

/// How long the message is, if it is one of that shape.
fn body_bytes_of(mut body: &[u8], shape: &Shape) -> Option<usize> {
    while !body.is_empty() {
        let (tag, wire) = key(&mut body).ok()?;
        if tag == shape.number {
            return Some(delimited(&mut body).ok()?.len());
        }
        skip(&mut body, tag, wire, 0).ok()?;
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]
    #[test]
    fn the_walk_counts_what_the_decoder_makes(body in any_message()) {
        let message = message::decode_unchecked(&body).unwrap().expect("a known message");
        let shape = SHAPES.iter().find(|shape| body_bytes_of(&body, shape).is_some()).expect("it has a row");
        let is_over = shape.lists.iter().zip(decoded(&message)).any(|((_, max), count)| count > *max);
        match check(&body) {
            Ok(counts) => prop_assert!(counts == decoded(&message) && !is_over),
            Err(refusal) => {
                prop_assert_eq!(refusal.code, CloseCode::Limit);
                prop_assert!(is_over || body.len() > shape.body_bytes_max);
            }
        }
    }

    /// The walk comes first, so it may refuse nothing that the decoder would take.
    #[test]
    fn what_the_walk_cannot_read_the_decoder_cannot_either(
        body in any_message(),
        damage in vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
        end in any::<proptest::sample::Index>(),
    ) {
        let mut body = body;
        for (at, byte) in damage {
            if !body.is_empty() {
                let at = at.index(body.len());
                body[at] = byte;
            }
        }
        body.truncate(end.index(body.len() + 1).max(body.len() / 2));
        let refused = check(&body).err().filter(|refusal| refusal.code == CloseCode::Malformed);
        if let Some(refusal) = refused.filter(|refusal| !refusal.text.ends_with("two messages in one frame")) {
            prop_assert!(message::decode_unchecked(&body).is_err(), "{}", refusal.text);
        }
        if let (Ok(counts), Ok(Some(message))) = (check(&body), message::decode_unchecked(&body)) {
            prop_assert_eq!(counts, decoded(&message));
        }
    }
}

/// Half a million empty elements fit a frame; as many as the bound says are taken, and one more is refused.
#[test]
fn every_list_is_taken_up_to_its_bound_and_refused_beyond() {
    for List { path, elements_max, is_of_numbers, .. } in lists() {
        let body = |count: usize| {
            let (tag, above) = path.split_last().unwrap();
            let mut one = Vec::new();
            put_varint(u64::from(*tag) << 3 | if is_of_numbers { VARINT } else { DELIMITED }, &mut one);
            one.push(0);
            above.iter().rev().fold(one.repeat(count), |content, tag| {
                let mut out = Vec::new();
                put(*tag, &content, &mut out);
                out
            })
        };
        let full = check(&body(elements_max)).unwrap_or_else(|refusal| panic!("{path:?}: {refusal}"));
        assert!(full.contains(&elements_max), "{path:?}");
        assert_eq!(check(&body(elements_max + 1)).unwrap_err().code, CloseCode::Limit, "{path:?}");
        assert_eq!(message::decode(&body(elements_max + 1)).unwrap_err().code, CloseCode::Limit, "{path:?}");
    }
}

#[test]
fn a_frame_has_one_message_of_its_length() {
    let mut twice = Vec::new();
    put(4, &[], &mut twice);
    put(4, &[], &mut twice);
    assert_eq!(check(&twice).unwrap_err().code, CloseCode::Malformed);
    let mut long = Vec::new();
    put(4, &vec![0; PLAIN_BODY_BYTES_MAX], &mut long);
    assert_eq!(check(&long).unwrap_err().code, CloseCode::Limit);
    assert_eq!(body_bytes_max(&long), PLAIN_BODY_BYTES_MAX);
    // Behind a field that nobody knows it is found when it is counted.
    let hidden = [&[0xf8, 0x3f, 0][..], &long].concat();
    assert_eq!(body_bytes_max(&hidden), CONTROL_BODY_BYTES_MAX);
    assert_eq!(check(&hidden).unwrap_err().code, CloseCode::Limit);
}

/// `docs/protocol.proto` and the rows have the same lists: a list that is added there and not here would be unbounded.
#[test]
fn every_list_of_the_documents_has_a_bound() {
    let text = include_str!("../../../docs/protocol.proto");
    let mut name = "";
    // Message, word before the name, field's type, number.
    let mut fields: Vec<(&str, bool, &str, u32)> = Vec::new();
    for line in text.lines().map(str::trim) {
        let words: Vec<&str> = line.split([' ', ';']).filter(|word| !word.is_empty()).collect();
        match words[..] {
            ["message", found, "{"] => name = found,
            ["repeated", kind, _, "=", number, ..] => fields.push((name, true, kind, number.parse().unwrap())),
            [kind, _, "=", number, ..] if kind != "syntax" => {
                fields.push((name, false, kind, number.parse().unwrap()));
            }
            _ => {}
        }
    }
    // Lists below a message, as paths of numbers.
    fn repeated(fields: &[(&str, bool, &str, u32)], message: &str, path: &[u32], out: &mut Vec<Vec<u32>>) {
        for (_, is_repeated, kind, number) in fields.iter().filter(|field| field.0 == message) {
            let path = [path, &[*number]].concat();
            if *is_repeated {
                out.push(path.clone());
            }
            repeated(fields, kind, &path, out);
        }
    }
    let mut told = Vec::new();
    repeated(&fields, "Envelope", &[], &mut told);
    let mut ours: Vec<Vec<u32>> = lists().into_iter().map(|list| list.path).collect();
    told.sort();
    ours.sort();
    assert_eq!(ours, told);
    let numbers: Vec<u32> = fields.iter().filter(|field| field.0 == "Envelope").map(|field| field.3).collect();
    assert_eq!(SHAPES.iter().map(|shape| shape.number).collect::<Vec<_>>(), numbers);
}
