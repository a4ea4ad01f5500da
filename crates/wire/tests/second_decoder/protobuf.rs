//! Reads protobuf bytes into named values by a schema.
//!
//! Stricter than protobuf in what it takes for damage: a known field with the wrong wire type, a number that does not fit
//! its type, text that is no UTF-8. Every value that was read stays visible, also where a later one replaces it.

use std::collections::BTreeMap;
use std::fmt;

use super::schema::{Field, Kind, Schema};

/// One message. Every declared field has a list, empty when the field was absent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub kind: String,
    /// Names and values by field number.
    fields: BTreeMap<u64, (String, Vec<Value>)>,
    unknown: Vec<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    Unsigned(u64),
    Signed(i64),
    Bool(bool),
    Text(String),
    Bytes(Vec<u8>),
    Message(Message),
}

impl Message {
    pub fn decode(schema: &Schema, kind: &str, mut bytes: &[u8]) -> Result<Message, String> {
        let declared = schema.fields(kind)?;
        let fields = declared.iter().map(|(&number, field)| (number, (field.name.clone(), Vec::new()))).collect();
        let mut message = Message { kind: kind.to_owned(), fields, unknown: Vec::new() };
        while !bytes.is_empty() {
            let tag = varint(&mut bytes)?;
            let (number, wire_type) = (tag >> 3, tag & 7);
            let raw = Raw::read(wire_type, &mut bytes).map_err(|e| format!("{kind}, field {number}: {e}"))?;
            match (declared.get(&number), message.fields.get_mut(&number)) {
                _ if number == 0 => return Err(format!("{kind} has a field 0")),
                (Some(field), Some((name, values))) => {
                    values.extend(field.values(schema, raw).map_err(|e| format!("{kind}.{name}: {e}"))?);
                }
                _ => message.unknown.push(number),
            }
        }
        Ok(message)
    }

    pub fn number(&self, name: &str) -> Result<u64, String> {
        match self.all(name)?.last() {
            None => Ok(0),
            Some(&Value::Unsigned(number)) => Ok(number),
            Some(&Value::Bool(is_set)) => Ok(is_set.into()),
            Some(&Value::Signed(number)) => Ok(number.cast_unsigned()),
            Some(_) => Err(format!("{}.{name} is no number", self.kind)),
        }
    }

    /// The bytes of a field of type bytes or string.
    pub fn bytes(&self, name: &str) -> Result<&[u8], String> {
        match self.all(name)?.last() {
            None => Ok(&[]),
            Some(value) => value.as_bytes().ok_or_else(|| format!("{}.{name} is no bytes", self.kind)),
        }
    }

    pub fn all_bytes(&self, name: &str) -> Result<Vec<&[u8]>, String> {
        let values = self.all(name)?.iter().map(Value::as_bytes);
        values.collect::<Option<_>>().ok_or_else(|| format!("{}.{name} is no bytes", self.kind))
    }

    pub fn messages(&self, name: &str) -> Result<Vec<&Message>, String> {
        let values = self.all(name)?.iter().map(|value| match value {
            Value::Message(message) => Some(message),
            _ => None,
        });
        values.collect::<Option<_>>().ok_or_else(|| format!("{}.{name} is no message", self.kind))
    }

    /// The fields that were there, by number. Several of them in an envelope are an error of the peer.
    pub fn present(&self) -> impl Iterator<Item = (&str, &[Value])> {
        let lists = self.fields.values().map(|(name, values)| (name.as_str(), values.as_slice()));
        lists.filter(|(_, values)| !values.is_empty())
    }

    pub fn has_unknown(&self) -> bool {
        !self.unknown.is_empty()
    }

    fn all(&self, name: &str) -> Result<&[Value], String> {
        let field = self.fields.values().find(|(declared, _)| declared == name);
        field.map(|(_, values)| values.as_slice()).ok_or_else(|| format!("{} has no field {name}", self.kind))
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        for (name, values) in self.present() {
            for value in values {
                write!(f, " {name}={value}")?;
            }
        }
        self.unknown.iter().try_for_each(|number| write!(f, " unknown={number}"))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unsigned(number) => write!(f, "{number}"),
            Value::Signed(number) => write!(f, "{number}"),
            Value::Bool(is_set) => write!(f, "{is_set}"),
            Value::Text(text) => write!(f, "{text:?}"),
            Value::Bytes(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Value::Message(message) => write!(f, "({message})"),
        }
    }
}

impl Value {
    fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Text(text) => Some(text.as_bytes()),
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

impl Field {
    /// The values of one occurrence on the wire: several when a repeated number is packed.
    fn values(&self, schema: &Schema, raw: Raw<'_>) -> Result<Vec<Value>, String> {
        match (&self.kind, raw) {
            (Kind::Message(kind), Raw::Bytes(bytes)) => {
                Message::decode(schema, kind, bytes).map(|message| vec![Value::Message(message)])
            }
            (Kind::Bytes, Raw::Bytes(bytes)) => Ok(vec![Value::Bytes(bytes.to_vec())]),
            (Kind::Text, Raw::Bytes(bytes)) => {
                let text = str::from_utf8(bytes).map_err(|_| "text is no UTF-8")?;
                Ok(vec![Value::Text(text.to_owned())])
            }
            (Kind::Uint32 | Kind::Uint64 | Kind::Sint64 | Kind::Bool, Raw::Varint(number)) => {
                self.number(number).map(|value| vec![value])
            }
            (Kind::Uint32 | Kind::Uint64 | Kind::Sint64 | Kind::Bool, Raw::Bytes(mut bytes)) if self.is_repeated => {
                let mut values = Vec::new();
                while !bytes.is_empty() {
                    values.push(self.number(varint(&mut bytes)?)?);
                }
                Ok(values)
            }
            _ => Err("the wire type is not that of the field".to_owned()),
        }
    }

    fn number(&self, number: u64) -> Result<Value, String> {
        match self.kind {
            Kind::Uint32 if number > u64::from(u32::MAX) => Err(format!("{number} does not fit 32 bits")),
            Kind::Bool if number > 1 => Err(format!("{number} is no truth value")),
            Kind::Bool => Ok(Value::Bool(number == 1)),
            Kind::Sint64 => Ok(Value::Signed((number >> 1).cast_signed() ^ -(number & 1).cast_signed())),
            _ => Ok(Value::Unsigned(number)),
        }
    }
}

/// A field's content before its type is known.
enum Raw<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Types 1 and 5, which no declared field has.
    Fixed,
}

impl<'a> Raw<'a> {
    fn read(wire_type: u64, bytes: &mut &'a [u8]) -> Result<Raw<'a>, String> {
        match wire_type {
            0 => varint(bytes).map(Raw::Varint),
            1 => take(bytes, 8).map(|_| Raw::Fixed),
            2 => {
                let length = varint(bytes)?;
                take(bytes, length).map(Raw::Bytes)
            }
            5 => take(bytes, 4).map(|_| Raw::Fixed),
            other => Err(format!("wire type {other} does not exist")),
        }
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut number = 0;
    for place in 0..10 {
        let byte = take(bytes, 1)?[0];
        if place == 9 && byte > 1 {
            return Err("a number does not fit 64 bits".to_owned());
        }
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("a number has more than ten bytes".to_owned())
}

fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Result<&'a [u8], String> {
    let length = usize::try_from(length).map_err(|_| "a length does not fit")?;
    let (taken, rest) = bytes.split_at_checked(length).ok_or("the message ends in a field")?;
    *bytes = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = "message A { uint32 a = 1; sint64 b = 2; repeated uint64 c = 3; string d = 4; A e = 5; }";

    fn decode(bytes: &[u8]) -> Result<String, String> {
        Message::decode(&Schema::parse(SCHEMA).unwrap(), "A", bytes).map(|message| message.to_string())
    }

    #[test]
    fn every_kind_of_field_is_read_and_shown() {
        let bytes = [8, 0xac, 2, 16, 3, 26, 2, 1, 2, 24, 3, 34, 1, b'x', 42, 2, 8, 1, 0x98, 6, 0];
        assert_eq!(decode(&bytes).unwrap(), "A a=300 b=-2 c=1 c=2 c=3 d=\"x\" e=(A a=1) unknown=99");
    }

    #[test]
    fn damaged_fields_are_refused() {
        for bytes in [
            [8].as_slice(),                                        // Ends after a tag.
            &[34, 2, b'x'],                                        // Ends in a text.
            &[34, 1, 0xff],                                        // No UTF-8.
            &[8, 0x80, 0x80, 0x80, 0x80, 0x10],                    // 33 bits.
            &[10, 1, 1],                                           // Bytes where a number is declared.
            &[0, 0],                                               // Field zero.
            &[15],                                                 // Wire type 7.
            &[24, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2], // 65 bits.
        ] {
            assert!(decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
