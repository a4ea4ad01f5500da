//! What stands directly below a prefix: pages one after another; and the first question that a bucket is asked.
//!
//! Invariant: a store that repeats a page is an error and never an endless or partial listing.
//!
//! Not here: everything below a prefix (`cursors`).

use crate::bucket::Bucket;
use crate::calls::{From, Listed, PAGE_MAX, Page};
use crate::failure::{Failure, Result, Why};
use crate::version::Beginning;
use model::Name;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Names of one directory that are held at once.
pub const NAMES_MAX: usize = 2_000_000;
/// A page counts as so many names at least.
const PAGE_WEIGHT_MIN: usize = 20;
/// Parts of keys that are no names, of one directory.
const ODD_MAX: usize = 1000;
/// A listing's beginning counts as one of this moment for so long.
const BEGINNING_AGE_MAX: Duration = Duration::from_secs(2);

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

impl Children {
    /// Nothing stands there, by a name or without one.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.odd.is_empty() && self.marker.is_none()
    }
}

/// The names directly below a prefix as far as they were listed.
#[derive(Default)]
pub struct Listing {
    pub found: Children,
    next: Option<String>,
    seen: usize,
    is_whole: bool,
}

impl Bucket {
    /// The names directly below a prefix, which is empty or ends in a slash; `None` where there are more than `pages_max` pages.
    pub fn children(&self, prefix: &str, pages_max: usize) -> Result<Option<Children>> {
        let mut listing = Listing::default();
        self.list_on(prefix, &mut listing, pages_max)?;
        Ok(listing.is_whole.then_some(listing.found))
    }

    /// Goes on with a listing by at most so many pages.
    pub fn list_on(&self, prefix: &str, listing: &mut Listing, pages_max: usize) -> Result<()> {
        let Listing { found, next, seen, is_whole } = listing;
        for _ in 0..pages_max {
            if *is_whole {
                break;
            }
            let page = self.page(prefix, false, From::of(next.as_deref()), PAGE_MAX)?;
            // Also of what is not kept, and of pages on which nothing stands: a store that goes on for ever is not followed for ever.
            *seen += (page.objects.len() + page.prefixes.len()).max(PAGE_WEIGHT_MIN);
            for listed in page.objects {
                let Some(part) = listed.key.strip_prefix(prefix) else { return Err(astray()) };
                match crate::key::to_name(part) {
                    _ if part.is_empty() && listed.size_bytes > 0 => {
                        found.odd.push((listed.key, "it has content, and the name of a directory".to_owned()));
                    }
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
            if *seen > NAMES_MAX {
                return Err(Failure::new(Why::Other, format!("more than {NAMES_MAX} names stand in one directory")));
            }
            match page.next {
                None => *is_whole = true,
                Some(token) if next.as_ref() == Some(&token) => return Err(astray()),
                token => *next = token,
            }
        }
        Ok(())
    }

    /// Whether anything at all may be asked here: keys, bucket and region are right. `below` is a prefix that is going to be listed,
    /// of which that keeps the beginning.
    pub fn check(&self, below: Option<&str>) -> Result<()> {
        let (prefix, asked) = (below.unwrap_or_default(), Instant::now());
        match self.page(prefix, true, From::Start, if below.is_some() { PAGE_MAX } else { 1 }) {
            // A client that may write and not list.
            Err(failure) if failure.why == Why::Forbidden => {}
            page => {
                let beginning = Beginning { prefix: prefix.to_owned(), page: page?, asked };
                *self.beginning.lock().unwrap() = below.map(|_| beginning);
            }
        }
        Ok(())
    }

    /// Whether any key stands below a prefix.
    pub fn has_below(&self, prefix: &str) -> Result<bool> {
        if let Some(beginning) = self.beginning.lock().unwrap().as_ref().filter(|one| one.is_of(prefix)) {
            return Ok(!beginning.page.objects.is_empty());
        }
        let page = self.page(prefix, true, From::Start, 1)?;
        Ok(!page.objects.is_empty())
    }

    /// The first page of a listing of all below a prefix: that of this moment, if it was asked for already.
    pub fn first_page(&self, prefix: &str) -> Result<Page> {
        let beginning = self.beginning.lock().unwrap().take();
        match beginning.filter(|one| one.is_of(prefix)) {
            Some(beginning) => Ok(beginning.page),
            None => self.page(prefix, true, From::Start, PAGE_MAX),
        }
    }
}

impl Beginning {
    fn is_of(&self, prefix: &str) -> bool {
        self.prefix == prefix && self.asked.elapsed() < BEGINNING_AGE_MAX
    }
}

fn bytes(name: &Name) -> Vec<u8> {
    name.as_bytes().to_vec()
}

fn astray() -> Failure {
    Failure::new(Why::Unknown, "the store's listing is not of what was asked for")
}
