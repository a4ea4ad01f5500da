//! What stores answer in XML: any bytes are no document, or a tree that is bounded and writes back.

use web::xml::{Element, escape};

/// Of the tree that is handed out.
const DEPTH_MAX: usize = 17;

pub fn run(data: &[u8]) {
    let Some(root) = Element::parse(data) else { return };
    assert!(depth(&root) <= DEPTH_MAX, "a document is as deep as it likes");
    if is_plain(&root) {
        let mut text = String::new();
        write(&root, &mut text);
        assert_eq!(Element::parse(text.as_bytes()), Some(root), "a document does not write back");
    }
}

fn depth(element: &Element) -> usize {
    1 + element.below.iter().map(depth).max().unwrap_or(0)
}

/// Of other names the part before a colon is left out when they are read.
fn is_plain(element: &Element) -> bool {
    let is_name = !element.name.is_empty() && element.name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_name && element.below.iter().all(is_plain)
}

fn write(element: &Element, out: &mut String) {
    let Element { name, text, below } = element;
    if text.is_empty() && below.is_empty() {
        // As nothing but an empty element may stand at the bottom.
        out.push_str(&format!("<{name}/>"));
        return;
    }
    out.push_str(&format!("<{name}>{}", escape(text)));
    below.iter().for_each(|element| write(element, out));
    out.push_str(&format!("</{name}>"));
}
