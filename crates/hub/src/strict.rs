//! JSON as others send it: no key stands twice in an object, and nothing is nested deeper than makes sense.
//!
//! Of two values of one key programs take one or the other; what was checked must be what is done.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

const DEPTH_MAX: usize = 32;

pub fn parse(text: &str) -> serde_json::Result<Value> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict(DEPTH_MAX).deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// With how much deeper it may go.
#[derive(Clone, Copy)]
struct Strict(usize);

impl Strict {
    fn below<E: Error>(self) -> Result<Strict, E> {
        let deeper = self.0.checked_sub(1).map(Strict);
        deeper.ok_or_else(|| E::custom(format!("nested deeper than {DEPTH_MAX}")))
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let (below, mut list) = (self.below()?, Vec::new());
        while let Some(value) = seq.next_element_seed(below)? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let (below, mut map) = (self.below()?, Map::new());
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(below)?;
            if map.contains_key(&key) {
                return Err(Error::custom(format!("the key {key:?} stands twice")));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_reads_as_ever_but_for_keys_that_stand_twice_and_great_depth() {
        for text in ["null", "[1, -2, 3.5, \"a\", true, {\"b\": {}}]", "{\"a\": {\"a\": 1}, \"b\": {\"a\": 2}}"] {
            assert_eq!(parse(text).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        }
        let said = |text: &str| parse(text).unwrap_err().to_string();
        assert!(said("{\"a\": 1, \"b\": 2, \"\\u0061\": 3}").contains("\"a\" stands twice"));
        assert!(said("{} x").contains("trailing"));
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        parse(&nested(DEPTH_MAX)).unwrap();
        assert!(said(&nested(DEPTH_MAX + 1)).contains("nested deeper than 32"));
    }
}
