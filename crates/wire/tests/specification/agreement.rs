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
    let kinds = schema.fields("Envelope").unwrap();
    assert_eq!(kinds.len(), 20);
    for (&number, kind) in kinds {
        let mut writer = Writer { schema: &schema, next: 0, overflow: 0 };
        let body = writer.field(number, kind);
        let ours = wire::message::decode(&body).unwrap().unwrap_or_else(|| panic!("{} is not known", kind.name));
        let back = wire::message::encode(ours.clone());
        assert_eq!(back[HEADER_BYTES..], body, "{}", kind.name);
        let theirs = Message::decode(&schema, "Envelope", &back[HEADER_BYTES..]).unwrap();
        assert_eq!(shown(&ours), debug_of(&schema, &theirs.messages(&kind.name).unwrap()[0].clone()), "{}", kind.name);
    }
}

#[test]
fn numbers_of_32_bits_are_so_in_the_program_too() {
    let schema = Schema::parse(PROTOCOL_PROTO).unwrap();
    for (&number, kind) in schema.fields("Envelope").unwrap() {
        let read = |overflow| {
            let body = Writer { schema: &schema, next: 0, overflow }.field(number, kind);
            wire::message::decode(&body).unwrap().unwrap()
        };
        assert_eq!(read(1 << 32), read(0), "{}", kind.name);
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
