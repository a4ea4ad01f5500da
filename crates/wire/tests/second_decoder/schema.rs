//! The messages as `docs/protocol.proto` declares them: the only source of field numbers for this decoder.
//!
//! Reads the part of proto3 that the file uses: messages, one level of `oneof`, `repeated`, `optional`, scalar types and line
//! comments. Anything else is an error, so that a new construct is not passed over.

use std::collections::BTreeMap;

#[derive(Debug)]
pub struct Schema {
    messages: BTreeMap<String, BTreeMap<u64, Field>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    pub name: String,
    pub kind: Kind,
    pub is_repeated: bool,
    /// A scalar of which it is told apart whether it was said.
    pub is_optional: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    Uint32,
    Uint64,
    Sint64,
    Bool,
    Text,
    Bytes,
    Message(String),
}

impl Schema {
    pub fn of_the_documents() -> Result<Schema, String> {
        Schema::parse(include_str!("../../../../docs/protocol.proto"))
    }

    pub fn parse(text: &str) -> Result<Schema, String> {
        let mut words = words(text).into_iter().peekable();
        let mut messages = BTreeMap::new();
        while let Some(word) = words.next() {
            match word.as_str() {
                "syntax" | "package" => while words.next().ok_or("the file ends in a statement")? != ";" {},
                "message" => {
                    let name = words.next().ok_or("a message has no name")?;
                    expect(&mut words, "{")?;
                    let mut fields = BTreeMap::new();
                    read_fields(&mut words, &mut fields, true)?;
                    if messages.insert(name.clone(), fields).is_some() {
                        return Err(format!("{name} is declared twice"));
                    }
                }
                other => return Err(format!("{other:?} where a message should start")),
            }
        }
        for field in messages.values().flat_map(BTreeMap::values) {
            if let Kind::Message(name) = &field.kind
                && !messages.contains_key(name)
            {
                return Err(format!("{name} is used and not declared"));
            }
        }
        Ok(Schema { messages })
    }

    /// Fields of a message by number.
    pub fn fields(&self, message: &str) -> Result<&BTreeMap<u64, Field>, String> {
        self.messages.get(message).ok_or_else(|| format!("the schema has no message {message}"))
    }
}

fn read_fields(
    words: &mut impl Iterator<Item = String>,
    fields: &mut BTreeMap<u64, Field>,
    may_hold_oneof: bool,
) -> Result<(), String> {
    loop {
        let word = words.next().ok_or("the file ends in a message")?;
        if word == "}" {
            return Ok(());
        }
        if word == "oneof" && may_hold_oneof {
            words.next().ok_or("a oneof has no name")?;
            expect(words, "{")?;
            read_fields(words, fields, false)?;
            continue;
        }
        let (is_repeated, is_optional) = (word == "repeated", word == "optional");
        let has_label = is_repeated || is_optional;
        let kind = if has_label { words.next().ok_or("a field has no type")? } else { word };
        let name = words.next().ok_or("a field has no name")?;
        expect(words, "=")?;
        let number = words.next().ok_or("a field has no number")?;
        let number: u64 = number.parse().map_err(|_| format!("{number:?} is no field number"))?;
        expect(words, ";")?;
        if number == 0 || fields.values().any(|field| field.name == name) {
            return Err(format!("field {name} = {number} is not allowed here"));
        }
        if fields.insert(number, Field { name, kind: kind_of(&kind)?, is_repeated, is_optional }).is_some() {
            return Err(format!("field number {number} is used twice"));
        }
    }
}

fn kind_of(word: &str) -> Result<Kind, String> {
    match word {
        "uint32" => Ok(Kind::Uint32),
        "uint64" => Ok(Kind::Uint64),
        "sint64" => Ok(Kind::Sint64),
        "bool" => Ok(Kind::Bool),
        "string" => Ok(Kind::Text),
        "bytes" => Ok(Kind::Bytes),
        name if name.starts_with(|first: char| first.is_ascii_uppercase()) => Ok(Kind::Message(name.to_owned())),
        other => Err(format!("{other:?} is no type that this reader knows")),
    }
}

fn expect(words: &mut impl Iterator<Item = String>, sign: &str) -> Result<(), String> {
    let found = words.next();
    if found.as_deref() == Some(sign) { Ok(()) } else { Err(format!("{found:?} where {sign:?} should stand")) }
}

/// Identifiers, numbers and single signs, without comments.
fn words(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    let mut words = Vec::new();
    for line in lines {
        let mut word = String::new();
        for letter in line.chars() {
            if letter.is_ascii_alphanumeric() || letter == '_' {
                word.push(letter);
                continue;
            }
            words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
            words.extend(Some(letter.to_string()).filter(|_| !letter.is_whitespace()));
        }
        words.extend(Some(word).filter(|word| !word.is_empty()));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_schema_declares_the_envelope_by_number() {
        let schema = Schema::of_the_documents().unwrap();
        let envelope = schema.fields("Envelope").unwrap();
        assert_eq!(envelope[&23].kind, Kind::Message("Want".to_owned()));
        assert!(schema.fields("Entries").unwrap()[&3].is_repeated);
    }

    #[test]
    fn a_schema_with_a_clash_or_an_unknown_type_is_refused() {
        assert!(Schema::parse("message A { uint32 a = 1; uint32 b = 1; }").is_err());
        assert!(Schema::parse("message A { uint32 a = 1; uint32 a = 2; }").is_err());
        assert!(Schema::parse("message A { fixed32 a = 1; }").is_err());
        assert!(Schema::parse("message A { B b = 1; }").is_err());
        assert!(Schema::parse("message A { uint32 a = 1;").is_err());
    }
}
