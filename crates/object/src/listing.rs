//! What stands directly below a prefix: pages one after another.
//!
//! Invariant: a store that repeats a page is an error and never an endless or partial listing.
//!
//! Not here: everything below a prefix (`cursors`).

use crate::bucket::Bucket;
use crate::calls::{From, Listed, PAGE_MAX};
use crate::failure::{Failure, Result, Why};
use model::Name;
use std::collections::BTreeMap;

/// Names of one directory that are held at once.
pub const NAMES_MAX: usize = 2_000_000;
/// A page counts as so many names at least.
const PAGE_WEIGHT_MIN: usize = 20;
/// Parts of keys that are no names, of one directory.
const ODD_MAX: usize = 1000;

/// What stands at a name of a directory: an object, keys below it, or both.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Child {
    pub object: Option<Listed>,
    pub is_directory: bool,
}

/// The names directly below a prefix.
#[derive(Default)]
pub struct Children {
    pub names: BTreeMap<Vec<u8>, Child>,
    /// Parts of keys that are no names, and why.
    pub odd: Vec<(String, String)>,
    /// The object whose key is the prefix itself.
    pub marker: Option<Listed>,
}

impl Bucket {
    /// The names directly below a prefix, which is empty or ends in a slash; `None` where there are more than `pages_max` pages.
    pub fn children(&self, prefix: &str, pages_max: usize) -> Result<Option<Children>> {
        let mut found = Children::default();
        let (mut next, mut seen): (Option<String>, usize) = (None, 0);
        for number in 0.. {
            if number == pages_max {
                return Ok(None);
            }
            let page = self.page(prefix, false, From::of(next.as_deref()), PAGE_MAX)?;
            // Also of what is not kept, and of pages on which nothing stands: a store that goes on for ever is not followed for ever.
            seen += (page.objects.len() + page.prefixes.len()).max(PAGE_WEIGHT_MIN);
            for listed in page.objects {
                let Some(part) = listed.key.strip_prefix(prefix) else { return Err(astray()) };
                match crate::key::to_name(part) {
                    _ if part.is_empty() => found.marker = Some(listed),
                    Ok(name) => found.names.entry(bytes(&name)).or_default().object = Some(listed),
                    Err(why) => found.odd.push((listed.key, why)),
                }
            }
            for below in page.prefixes {
                let part = below.strip_prefix(prefix).and_then(|part| part.strip_suffix('/'));
                match crate::key::to_name(part.ok_or_else(astray)?) {
                    Ok(name) => found.names.entry(bytes(&name)).or_default().is_directory = true,
                    Err(why) => found.odd.push((below, why)),
                }
            }
            found.odd.truncate(ODD_MAX);
            if seen > NAMES_MAX {
                return Err(Failure::new(Why::Other, format!("more than {NAMES_MAX} names stand in one directory")));
            }
            match page.next {
                None => return Ok(Some(found)),
                Some(token) if next.as_ref() == Some(&token) => return Err(astray()),
                token => next = token,
            }
        }
        Ok(None)
    }

    /// Whether any key stands below a prefix.
    pub fn has_below(&self, prefix: &str) -> Result<bool> {
        let page = self.page(prefix, true, From::Start, 1)?;
        Ok(!page.objects.is_empty())
    }
}

fn bytes(name: &Name) -> Vec<u8> {
    name.as_bytes().to_vec()
}

fn astray() -> Failure {
    Failure::new(Why::Unknown, "the store's listing is not of what was asked for")
}
