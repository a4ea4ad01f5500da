//! A named set: which files belong to it and what is in them, told by a catalogue under one signed note.
//!
//! `note` is what is signed, `signed` its envelope, `catalogue` the files. The files of a set lie in a directory of the publisher's,
//! and these three in `DIRECTORY` below it.
//!
//! Invariant: whatever is read here came from somebody else, is bounded before it is held, and names nothing outside the set.
//!
//! Not here: keys and signatures (`net::note`), where sets are kept and fetched from (`daemon`, `transfer`).

pub mod catalogue;
pub mod note;
pub mod signed;

pub use catalogue::{Catalogue, Page, SetFile};
pub use note::{Mirror, Note, Readers};
pub use signed::Signed;

/// Where a set's note and catalogues lie, in the directory that holds its files.
pub const DIRECTORY: &str = ".thalweg-set";
/// The note's file in it.
pub const NOTE: &str = "note";

/// What a page of a catalogue is called in it, and the digests of chunks that belong to the page.
pub fn page_name(digest: &[u8; 32]) -> String {
    data_encoding::HEXLOWER.encode(digest)
}

pub fn tree_name(digest: &[u8; 32]) -> String {
    format!("{}.tree", page_name(digest))
}

/// Whether this can be the name of a set: letters, digits, `.`, `-`, `_` and `/` between parts, such as `example.org/climate`.
pub fn is_name(name: &str) -> bool {
    let is_part = |part: &str| {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        !part.is_empty() && !part.starts_with('.') && part.bytes().all(is_plain)
    };
    name.len() <= 200 && name.split('/').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_parts_of_plain_letters() {
        for good in ["a", "example.org/climate/cmip3", "x-1_2"] {
            assert!(is_name(good), "{good}");
        }
        for bad in
            ["", "/", "a/", "/a", "a//b", "..", "a/../b", ".a", "a b", "a\nb", "a+b", "a:b", "ä", &"x".repeat(201)]
        {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
