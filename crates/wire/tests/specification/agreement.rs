//! The documents' tables against the program's types: each message of `docs/protocol.proto` is written by the field
//! numbers of that text, read by the program, and has to come back under the same names and as the same bytes.

use crate::second_decoder::protobuf::{Message, Value};
use crate::second_decoder::schema::{Field, Kind, Schema};
use wire::CloseCode;
use wire::frame::HEADER_BYTES;

const PROTOCOL: &str = include_str!("../../../../docs/protocol.md");
const PROTOCOL_PROTO: &str = include_str!("../../../../docs/protocol.proto");

#[test]
fn every_message_of_the_schema_is_one_of_the_program_with_the_same_fields() {
    let schema = Schema::parse(PROTOCOL_PROTO).unwrap();
    assert_eq!(schema.fields("Envelope").unwrap().len(), 48);
    assert_eq!(disagreements(&schema), [""; 0]);
}

#[test]
fn a_schema_that_differs_in_one_word_disagrees() {
    for (ours, other, kind) in [
        ("Pong pong = 5;", "Pong pong = 6;", "pong"),
        ("bytes session = 4;", "bytes session = 8;", "hello"),
        ("bytes session = 4;", "bytes sessions = 4;", "hello"),
        ("uint64 in_flight_bytes = 3;", "", "credit"),
        ("uint64 in_flight_bytes = 3;", "uint32 in_flight_bytes = 3;", "credit"),
        ("uint32 version = 1;", "uint64 version = 1;", "welcome"),
        ("sint64 changed_seconds = 8;", "uint64 changed_seconds = 8;", "entries"),
        ("uint64 rtt_us_min = 10;", "uint64 rtt_us_min = 10; uint64 rtt_us_max = 99;", "times"),
        ("repeated Run runs = 2;", "Run runs = 2;", "want"),
    ] {
        assert!(PROTOCOL_PROTO.contains(ours), "{ours}");
        let schema = Schema::parse(&PROTOCOL_PROTO.replacen(ours, other, 1)).unwrap();
        let found = disagreements(&schema);
        assert!(found.iter().any(|found| found.starts_with(kind)), "{other}: {found:?}");
    }
}

#[test]
fn the_table_of_messages_has_the_numbers_of_the_schema() {
    let schema = Schema::parse(PROTOCOL_PROTO).unwrap();
    let mut of_schema: Vec<(u64, String)> = Vec::new();
    for (&number, field) in schema.fields("Envelope").unwrap() {
        let Kind::Message(name) = &field.kind else { panic!("{} is no message", field.name) };
        of_schema.push((number, name.clone()));
    }
    let mut of_table = Vec::new();
    for row in rows("## 4. Messages") {
        let numbers = row[0].split(", ").map(|number| number.parse().unwrap());
        of_table.extend(numbers.zip(row[1].split(", ").map(str::to_owned)));
    }
    assert_eq!(of_table, of_schema);
}

#[test]
fn the_table_of_close_codes_has_every_code_of_the_program() {
    let of_table: Vec<u32> = rows("## 9. Closing").iter().map(|row| row[0].parse().unwrap()).collect();
    assert_eq!(of_table, CloseCode::ALL.map(|code| code as u32));
}

/// How the program's messages differ from those of a schema.
fn disagreements(schema: &Schema) -> Vec<String> {
    let kinds = schema.fields("Envelope").unwrap();
    let found = kinds.iter().filter_map(|(&number, kind)| {
        let write = |overflow| Writer { schema, next: 0, overflow }.field(number, kind);
        let read = |body: &[u8]| wire::message::decode(body).ok().flatten();
        let body = write(0);
        let Some(ours) = read(&body) else { return Some(format!("{} is not known", kind.name)) };
        let back = &wire::message::encode(ours.clone())[HEADER_BYTES..];
        if back != body {
            return Some(format!("{} comes back as other bytes", kind.name));
        }
        let envelope = Message::decode(schema, "Envelope", back).unwrap();
        let (shown, theirs) = (shown(&ours), debug_of(schema, envelope.messages(&kind.name).unwrap()[0]));
        if shown != theirs {
            return Some(format!("{}: {shown} is not {theirs}", kind.name));
        }
        // Bits beyond 32 are lost where a number has no more.
        (read(&write(1 << 32)) != Some(ours)).then(|| format!("{} has a number of another size", kind.name))
    });
    found.collect()
}

/// The rows of the first table below a heading whose first column is numeric.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let section = PROTOCOL.split_once(heading).unwrap().1;
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let rows = rows.map(|row| row.trim_end_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    rows.filter(|row| row[0].starts_with(|first: char| first.is_ascii_digit())).collect()
}

/// Writes messages in which every field is there and no two values are alike.
struct Writer<'a> {
    schema: &'a Schema,
    next: u64,
    /// Added to numbers of 32 bits.
    overflow: u64,
}

impl Writer<'_> {
    fn message(&mut self, kind: &str) -> Vec<u8> {
        let schema = self.schema;
        let fields = schema.fields(kind).unwrap();
        fields.iter().flat_map(|(&number, field)| self.field(number, field)).collect()
    }

    fn field(&mut self, number: u64, field: &Field) -> Vec<u8> {
        let mut bytes = Vec::new();
        let is_scalar = matches!(field.kind, Kind::Uint32 | Kind::Uint64 | Kind::Sint64 | Kind::Bool);
        if field.is_repeated && is_scalar {
            let packed = [self.scalar(&field.kind), self.scalar(&field.kind)].concat();
            put(&mut bytes, number, &packed);
            return bytes;
        }
        for _ in 0..1 + u64::from(field.is_repeated) {
            match &field.kind {
                Kind::Message(kind) => {
                    let body = self.message(kind);
                    put(&mut bytes, number, &body);
                }
                Kind::Text | Kind::Bytes => {
                    self.next += 1;
                    put(&mut bytes, number, format!("value {}", self.next).as_bytes());
                }
                scalar => {
                    bytes.extend(varint(number << 3));
                    bytes.extend(self.scalar(scalar));
                }
            }
        }
        bytes
    }

    fn scalar(&mut self, kind: &Kind) -> Vec<u8> {
        self.next += 1;
        match kind {
            Kind::Uint32 => varint(u64::from(u32::MAX) - self.next + self.overflow),
            Kind::Uint64 => varint(u64::MAX - self.next),
            // An odd number is negative in zigzag form.
            Kind::Sint64 => varint(u64::MAX - 2 * self.next),
            _ => vec![1],
        }
    }
}

fn put(bytes: &mut Vec<u8>, number: u64, content: &[u8]) {
    bytes.extend(varint(number << 3 | 2));
    bytes.extend(varint(content.len() as u64));
    bytes.extend_from_slice(content);
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// What `Debug` shows of the program's message: names of type and fields, and values.
fn shown(message: &wire::Message) -> String {
    let shown = format!("{message:?}");
    // The variant's name stands around that of the type.
    let (_, inner) = shown.split_once('(').unwrap();
    inner.strip_suffix(')').unwrap().to_owned()
}

/// The same of a message that was read by the schema.
fn debug_of(schema: &Schema, message: &Message) -> String {
    let mut parts = Vec::new();
    for field in schema.fields(&message.kind).unwrap().values() {
        let (_, values) = message.present().find(|(name, _)| *name == field.name).unwrap();
        let values: Vec<String> = values.iter().map(|value| debug_of_value(schema, value)).collect();
        let shown = match (&field.kind, field.is_repeated) {
            (_, true) => format!("[{}]", values.join(", ")),
            (Kind::Message(_), false) => format!("Some({})", values[0]),
            _ if field.is_optional => format!("Some({})", values[0]),
            _ => values[0].clone(),
        };
        parts.push(format!("{}: {shown}", field.name));
    }
    assert!(!message.has_unknown());
    format!("{} {{ {} }}", message.kind, parts.join(", "))
}

fn debug_of_value(schema: &Schema, value: &Value) -> String {
    match value {
        Value::Message(message) => debug_of(schema, message),
        Value::Bytes(bytes) => format!("{bytes:?}"),
        other => other.to_string(),
    }
}
