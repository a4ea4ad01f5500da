//! Names as they stand in keys of object stores: what the order of a listing is the order of.
//!
//! A key is names joined by `/`, and that of a directory ends in one. Bytes of a name that are not UTF-8 stand as `‛` (U+201B) and two
//! hexadecimal digits, and `‛` itself twice, as rclone writes them.
//!
//! Not here: what of a key is no path (`object`).

pub const QUOTE: char = '\u{201b}';

/// A name in a key.
pub fn of_name(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len() + 1);
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            text.push(character);
            if character == QUOTE {
                text.push(QUOTE);
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("{QUOTE}{byte:02X}"));
        }
    }
    text
}
