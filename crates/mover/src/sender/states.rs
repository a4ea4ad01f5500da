//! How far each object of a batch has come, as one row of bits for each state, so that a peer's word on a run of ids costs what is
//! in that state of it, and not what the run names.
//!
//! Not here: which transitions there are (`split`).

use std::ops::Range;
use wire::message::Run;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Described,
    Wanted,
    Sending,
    /// Sent, and durable in the receiver's buffer.
    Buffered,
    Settled,
}

const WORD_BITS: usize = u64::BITS as usize;
/// States of which there are rows; what is in none of them is settled.
const ROWS: [State; 4] = [State::Described, State::Wanted, State::Sending, State::Buffered];

pub struct States {
    len: usize,
    rows: [Box<[u64]>; ROWS.len()],
}

impl States {
    pub fn new(states: impl ExactSizeIterator<Item = State>) -> States {
        let len = states.len();
        let mut new = States { len, rows: std::array::from_fn(|_| vec![0; len.div_ceil(WORD_BITS)].into()) };
        for (at, state) in states.enumerate() {
            new.set(at, state);
        }
        new
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, at: usize) -> State {
        let is_in = |state: &State| self.rows[*state as usize][at / WORD_BITS] >> (at % WORD_BITS) & 1 == 1;
        ROWS.into_iter().find(is_in).unwrap_or(State::Settled)
    }

    /// Returns what it was before.
    pub fn set(&mut self, at: usize, state: State) -> State {
        let before = self.get(at);
        let bit = 1 << (at % WORD_BITS);
        for row in ROWS {
            let word = &mut self.rows[row as usize][at / WORD_BITS];
            *word = if row == state { *word | bit } else { *word & !bit };
        }
        before
    }

    /// The first object of `range` in one of these states.
    pub fn first_of(&self, states: &[State], range: Range<usize>) -> Option<usize> {
        let end = range.end.min(self.len);
        let mut at = range.start;
        while at < end {
            note_step();
            let word = states.iter().fold(0, |word, state| word | self.rows[*state as usize][at / WORD_BITS]);
            match (word >> (at % WORD_BITS)).trailing_zeros() as usize {
                WORD_BITS => at = (at / WORD_BITS + 1) * WORD_BITS,
                next => return Some(at + next).filter(|at| *at < end),
            }
        }
        None
    }
}

/// Ids that a peer names in runs, from the first on.
pub struct Ids<'a> {
    runs: std::slice::Iter<'a, Run>,
    rest: Range<u64>,
}

impl<'a> Ids<'a> {
    pub fn of(runs: &'a [Run]) -> Ids<'a> {
        Ids { runs: runs.iter(), rest: 0..0 }
    }

    /// The next id that `first` finds in a stretch of them.
    pub fn next(&mut self, first: impl Fn(Range<u64>) -> Option<u64>) -> Option<u64> {
        loop {
            if let Some(id) = first(self.rest.clone()) {
                self.rest.start = id + 1;
                return Some(id);
            }
            self.rest = self.runs.next()?.ids();
        }
    }
}

/// Counts a step through the book, for the tests of what a peer's words cost.
pub fn note_step() {
    #[cfg(test)]
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

#[cfg(test)]
thread_local! {
    pub static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [State; 4] = [State::Described, State::Wanted, State::Sending, State::Settled];

    proptest! {
        #[test]
        fn rows_of_bits_are_as_good_as_a_list(
            list in proptest::collection::vec(0..4usize, 1..200),
            changes in proptest::collection::vec((0..200usize, 0..4usize), 0..50),
            range in (0..210usize, 0..210usize),
        ) {
            let mut list: Vec<State> = list.into_iter().map(|number| ALL[number]).collect();
            let mut states = States::new(list.iter().copied());
            for (at, state) in changes {
                let at = at % list.len();
                prop_assert_eq!(states.set(at, ALL[state]), list[at]);
                list[at] = ALL[state];
            }
            prop_assert_eq!(states.len(), list.len());
            let range = range.0..range.1;
            for wanted in [&[State::Sending][..], &[State::Described, State::Wanted]] {
                let expected = range.clone().take_while(|at| *at < list.len()).find(|at| wanted.contains(&list[*at]));
                prop_assert_eq!(states.first_of(wanted, range.clone()), expected);
            }
            prop_assert!((0..list.len()).all(|at| states.get(at) == list[at]));
        }
    }
}
