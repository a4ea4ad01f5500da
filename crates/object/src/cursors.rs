//! A long listing by several cursors at once: each goes through a range of keys, and the pages come in the order of keys all the same.
//!
//! Ranges are made by guessing: while a page is waited for, whoever has nothing to do halves what lies before the cursor that is
//! waited for first. A guess that misses costs a page and never a key, because both halves are listed. Where pages come sooner than
//! they are taken, nobody guesses.
//!
//! Invariants: at most `PAGES_MAX` pages wait, besides one under way in each cursor; a page that is not of its range, or out of
//! order, ends the listing with an error.

use crate::bucket::Bucket;
use crate::calls::{From, Listed, PAGE_MAX, Page};
use crate::failure::{Failure, Result, Why};
use model::mutant;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};

const CURSORS: usize = 16;
const RANGES_MAX: usize = 4 * CURSORS;
const PAGES_MAX: usize = 64;
/// That wait in one range: more would keep the others from going on.
const PAGES_OF_RANGE_MAX: usize = 8;
/// Guesses that found nothing, beyond one for so many pages that did.
const MISSES_MAX: usize = 32;
const MISSES_FIRST: usize = 4;
const PAGES_FOR_A_MISS: usize = 4;
/// Pages in a row on which nothing stands.
const EMPTY_MAX: usize = 1000;

/// The keys behind `at`, up to `until`.
#[derive(Default)]
struct Range {
    at: String,
    until: Option<String>,
    /// Where the store said that it goes on.
    token: Option<String>,
    pages: VecDeque<Vec<Listed>>,
    empty: usize,
    is_busy: bool,
    is_done: bool,
    is_guess: bool,
}

#[derive(Default)]
struct State {
    ranges: VecDeque<(u64, Range)>,
    next_number: u64,
    waiting: usize,
    /// Whoever takes the pages has none.
    is_awaited: bool,
    found: usize,
    missed: usize,
    failure: Option<Failure>,
    is_over: bool,
}

struct Listing<'a> {
    bucket: &'a Bucket,
    prefix: &'a str,
    state: Mutex<State>,
    changed: Condvar,
}

fn astray(text: &str) -> Failure {
    Failure::new(Why::Unknown, text)
}

/// Checks that a page is of keys below a prefix behind `at`, in their order.
fn check(page: &Page, prefix: &str, at: &str) -> Result<()> {
    let mut last = at;
    for listed in &page.objects {
        if !listed.key.starts_with(prefix) || listed.key.as_str() < last || (listed.key == last && !last.is_empty()) {
            return Err(astray("the store's listing is out of order"));
        }
        last = &listed.key;
    }
    Ok(())
}

impl Bucket {
    /// Every object below a prefix, a page at a time, in the order of keys; `each` returns false to stop.
    pub fn each_page(&self, prefix: &str, each: &mut dyn FnMut(Vec<Listed>) -> bool) -> Result<()> {
        let first = self.first_page(prefix)?;
        check(&first, prefix, "")?;
        let Some(token) = first.next else {
            each(first.objects);
            return Ok(());
        };
        let at = first.objects.last().map(|listed| listed.key.clone()).unwrap_or_default();
        let mut range = Range { at: at.clone(), token: Some(token), ..Range::default() };
        range.pages.push_back(first.objects);
        let mut state = State { waiting: 1, found: 1, ..State::default() };
        // Whether the store begins behind a key that it is told is seen once, before anything depends on it.
        let mut is_split = false;
        if !at.is_empty() {
            let second = self.page(prefix, true, From::After(&at), PAGE_MAX)?;
            is_split = !second.objects.is_empty() && check(&second, prefix, &at).is_ok();
            if is_split {
                range.take(second);
                state.waiting += 1;
            }
        }
        state.ranges.push_back((0, range));
        state.next_number = 1;
        let listing = Listing { bucket: self, prefix, state: Mutex::new(state), changed: Condvar::new() };
        let listed = listing.run(if is_split { CURSORS } else { 1 }, is_split, each);
        if mutant::is_on("s3-failed-listing-is-its-end") { Ok(()) } else { listed }
    }
}

impl Range {
    /// Takes in what was listed behind `at`.
    fn take(&mut self, page: Page) {
        let Page { mut objects, next, .. } = page;
        let within =
            self.until.as_ref().map_or(objects.len(), |until| objects.partition_point(|listed| listed.key <= *until));
        self.is_done = next.is_none() || within < objects.len();
        objects.truncate(within);
        if let Some(last) = objects.last() {
            self.at.clone_from(&last.key);
        }
        // What is not split any more goes on where the store says.
        self.token = next;
        self.empty = if objects.is_empty() { self.empty + 1 } else { 0 };
        if !objects.is_empty() {
            self.pages.push_back(objects);
        }
    }
}

impl Listing<'_> {
    fn run(&self, cursors: usize, is_split: bool, each: &mut dyn FnMut(Vec<Listed>) -> bool) -> Result<()> {
        std::thread::scope(|scope| {
            let cursor = || while self.step(is_split) {};
            let spawn =
                |_: &usize| std::thread::Builder::new().name("store".to_owned()).spawn_scoped(scope, cursor).is_ok();
            let count = (0..cursors).take_while(spawn).count();
            let listed = self.tell(count > 0, is_split, each);
            self.state.lock().unwrap().is_over = true;
            self.changed.notify_all();
            listed
        })
    }

    /// Hands over the pages of the first range, until there is none.
    fn tell(&self, has_cursors: bool, is_split: bool, each: &mut dyn FnMut(Vec<Listed>) -> bool) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            let Some((_, first)) = state.ranges.front_mut() else { return Ok(()) };
            if let Some(page) = first.pages.pop_front() {
                state.waiting -= 1;
                state.is_awaited = false;
                drop(state);
                self.changed.notify_all();
                if !each(page) {
                    return Ok(());
                }
                state = self.state.lock().unwrap();
            } else if first.is_done && !first.is_busy {
                state.ranges.pop_front();
                self.changed.notify_all();
            } else if has_cursors {
                if !std::mem::replace(&mut state.is_awaited, true) {
                    self.changed.notify_all();
                }
                state = self.changed.wait(state).unwrap();
            } else {
                drop(state);
                self.step(is_split);
                state = self.state.lock().unwrap();
            }
        }
    }

    /// Lists a page of the first range that has room for it. False when the listing is over.
    fn step(&self, is_split: bool) -> bool {
        let mut state = self.state.lock().unwrap();
        let (number, at, token) = loop {
            if state.is_over || state.failure.is_some() || state.ranges.iter().all(|(_, range)| range.is_done) {
                return false;
            }
            if let Some(next) = state.begin() {
                break next;
            }
            if !(is_split && state.split(self.prefix)) {
                state = self.changed.wait(state).unwrap();
            }
        };
        drop(state);
        let from = token.as_deref().map_or(From::After(&at), From::Token);
        let listed = self.bucket.page(self.prefix, true, from, PAGE_MAX);
        let listed = listed.and_then(|page| check(&page, self.prefix, &at).map(|()| page));
        let mut state = self.state.lock().unwrap();
        if let Err(failure) = state.took(number, &token, listed) {
            state.failure.get_or_insert(failure);
        }
        drop(state);
        self.changed.notify_all();
        true
    }
}

impl State {
    /// What to ask for next, which is under way from then on.
    fn begin(&mut self) -> Option<(u64, String, Option<String>)> {
        let is_full = self.waiting >= PAGES_MAX;
        let mut ranges = self.ranges.iter_mut().enumerate();
        // The first range is what is waited for: it always has room for a page.
        let (_, (number, range)) = ranges.find(|(at, (_, range))| {
            let room = if is_full { 1 } else { PAGES_OF_RANGE_MAX };
            let has_room = range.pages.len() < room && !(is_full && *at > 0);
            !range.is_busy && !range.is_done && has_room
        })?;
        range.is_busy = true;
        Some((*number, range.at.clone(), range.token.clone()))
    }

    /// Halves the first range that is not listed to its end.
    fn split(&mut self, prefix: &str) -> bool {
        // Of a short listing there is little to be found beside its pages.
        let misses_max = (MISSES_FIRST + self.found).min(MISSES_MAX + self.found / PAGES_FOR_A_MISS);
        let guesses = self.ranges.iter().filter(|(_, range)| range.is_guess).count();
        let is_worth_it = self.missed + guesses < misses_max;
        if !is_worth_it || !self.is_awaited || self.waiting >= PAGES_MAX || self.ranges.len() >= RANGES_MAX {
            return false;
        }
        let halves = self.ranges.iter().enumerate().filter(|(_, (_, range))| !range.is_done && !range.is_guess);
        let mut halves =
            halves.filter_map(|(at, (_, range))| Some((at, middle(prefix, &range.at, range.until.as_deref())?)));
        let Some((at, middle)) = halves.next() else { return false };
        let range = &mut self.ranges[at].1;
        let until = range.until.replace(middle.clone());
        let second = Range { at: middle, until, is_guess: true, ..Range::default() };
        self.ranges.insert(at + 1, (self.next_number, second));
        self.next_number += 1;
        true
    }

    fn took(&mut self, number: u64, token: &Option<String>, listed: Result<Page>) -> Result<()> {
        let page = listed?;
        let found = self.ranges.iter_mut().find(|(known, _)| *known == number);
        let (_, range) = found.expect("a range that is under way stays");
        if token.is_some() && page.next == *token {
            return Err(astray("the store's listing repeats itself"));
        }
        let before = range.pages.len();
        range.is_busy = false;
        range.take(page);
        if range.empty > EMPTY_MAX {
            return Err(astray("the store's listing does not go on"));
        }
        let came = range.pages.len() - before;
        let is_missed = std::mem::take(&mut range.is_guess) && came == 0;
        self.waiting += came;
        self.found += came;
        self.missed += usize::from(is_missed);
        Ok(())
    }
}

/// A text between two keys, of which the second may be missing: somewhere about the middle of what can stand between them.
fn middle(prefix: &str, at: &str, until: Option<&str>) -> Option<String> {
    const FIRST: u8 = b' ' - 1;
    const END: u8 = 0x7f;
    let low = at.strip_prefix(prefix)?;
    let high = until.map(|until| until.strip_prefix(prefix).unwrap_or_default().as_bytes());
    let mut is_bound = high.is_some();
    for index in 0..=low.len() {
        let from = low.as_bytes().get(index).copied().unwrap_or(FIRST);
        let to = match high.filter(|_| is_bound) {
            Some(high) => high.get(index).copied().unwrap_or(FIRST),
            None => END,
        };
        let (from, to) = (from.min(END), to.min(END));
        if to > from.saturating_add(1) && low.is_char_boundary(index) {
            let byte = from + (to - from) / 2;
            return Some(format!("{prefix}{}{}", &low[..index], char::from(byte)));
        }
        // Behind a byte in which they differ nothing bounds it from above.
        is_bound &= from == to;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_guesses_while_pages_wait() {
        let range = Range { at: "f3".to_owned(), ..Range::default() };
        let mut state = State { ranges: [(0, range)].into(), next_number: 1, ..State::default() };
        assert!(!state.split("") && state.ranges.len() == 1);
        state.is_awaited = true;
        assert!(state.split("") && state.ranges.len() == 2);
    }

    #[test]
    fn a_middle_lies_between_whatever_the_two_are() {
        let keys = ["", "a", "a/", "a/b", "a0", "ab", "az~", "b", "f000", "f001", "f1", "é", "éa", "\u{7f}", "x‛FF"];
        for prefix in ["", "p/"] {
            for low in keys {
                for high in keys.iter().copied().map(Some).chain([None]) {
                    let low = format!("{prefix}{low}");
                    let high = high.map(|high| format!("{prefix}{high}"));
                    if high.as_ref().is_some_and(|high| *high <= low) {
                        continue;
                    }
                    if let Some(middle) = middle(prefix, &low, high.as_deref()) {
                        assert!(
                            middle > low && high.as_ref().is_none_or(|high| middle < *high),
                            "{low} {middle} {high:?}"
                        );
                        assert!(middle.starts_with(prefix));
                    }
                }
            }
        }
        assert_eq!(middle("", "f000", Some("f009")), Some("f004".to_owned()));
        assert!(middle("p/", "p/d0/f1", None).is_some());
    }
}
