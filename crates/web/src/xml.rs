//! What a server answers in XML, as a tree of elements.
//!
//! Invariants: no document type and no entities but those of XML itself; depth and size are bounded. Namespaces are passed over.

use quick_xml::Reader;
use quick_xml::events::Event;

const DEPTH_MAX: usize = 16;
/// More than a full page of a bucket, or a directory of 50,000 names, has.
const ELEMENTS_MAX: usize = 600_000;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Element {
    pub name: String,
    pub text: String,
    pub below: Vec<Element>,
}

impl Element {
    /// Reads a document whose root has one of these names; anything else is none.
    pub fn parse(bytes: &[u8]) -> Option<Element> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
        let mut open: Vec<Element> = Vec::new();
        let mut count = 0;
        loop {
            let event = reader.read_event().ok()?;
            match event {
                Event::Start(start) => {
                    count += 1;
                    if open.len() >= DEPTH_MAX || count > ELEMENTS_MAX {
                        return None;
                    }
                    let name = String::from_utf8_lossy(start.local_name().as_ref().as_ref()).into_owned();
                    open.push(Element { name, ..Element::default() });
                }
                Event::Empty(empty) => {
                    count += 1;
                    let name = String::from_utf8_lossy(empty.local_name().as_ref().as_ref()).into_owned();
                    let element = Element { name, ..Element::default() };
                    match open.last_mut() {
                        _ if count > ELEMENTS_MAX => return None,
                        Some(above) => above.below.push(element),
                        None => return Some(element),
                    }
                }
                Event::End(_) => {
                    let element = open.pop()?;
                    match open.last_mut() {
                        Some(above) => above.below.push(element),
                        None => return Some(element),
                    }
                }
                Event::Text(text) => put(&mut open, &text.xml10_content()),
                Event::CData(text) => put(&mut open, &text.xml10_content()),
                Event::GeneralRef(reference) => {
                    let character = match reference.resolve_char_ref().ok()? {
                        Some(character) => character,
                        None => match &*reference.xml10_content() {
                            "amp" => '&',
                            "lt" => '<',
                            "gt" => '>',
                            "quot" => '"',
                            "apos" => '\'',
                            _ => return None,
                        },
                    };
                    put(&mut open, character.encode_utf8(&mut [0; 4]));
                }
                Event::DocType(_) | Event::Eof => return None,
                Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
            }
        }
    }

    /// The text of the first element of a name directly below.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.below.iter().find(|element| element.name == name).map(|element| &element.text[..])
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.below.iter().filter(move |element| element.name == name)
    }
}

fn put(open: &mut [Element], text: &str) {
    if let Some(element) = open.last_mut() {
        element.text.push_str(text);
    }
}

/// Text as it stands in an element.
pub fn escape(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_with_entities_and_without_namespaces() {
        let text = br#"<?xml version="1.0"?><a:Error xmlns:a="x"><Code>A&amp;B &#x41;</Code><Empty/></a:Error>"#;
        let read = Element::parse(text).unwrap();
        assert_eq!((&read.name[..], read.get("Code"), read.get("Empty")), ("Error", Some("A&B A"), Some("")));
        assert_eq!(read.get("None"), None);
    }

    #[test]
    fn what_is_cut_or_deep_or_no_xml_is_none() {
        let deep = "<a>".repeat(100) + &"</a>".repeat(100);
        for text in ["", "<a>", "<a><b></a>", "{}", "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "<a>&b;</a>", &deep] {
            assert_eq!(Element::parse(text.as_bytes()), None, "{text}");
        }
    }
}
