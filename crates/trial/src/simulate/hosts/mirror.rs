//! Which slices are open, where other hosts see it, as `daemon::crew::mirror` keeps it: a list that is swapped for the
//! one seen last, numbers that are written down before they are used, and a lock under a lease.
//!
//! A model of that file, which has a thread, files and JSON; the calls and their order are the same, and so are the
//! times. Where no number is left, a command here waits: numbers that are written down nowhere are promised to one host
//! alone.

use super::etcd::Etcd;
use crate::random::Random;
use cluster::coordinator::{Answer, Coordinator, Lease};
use model::JobId;

const LOCK: &str = "lock";
const LIST: &str = "slices";
const LEASE_SECONDS: u64 = 30;
/// Fewer than the 64 of a real command, so that it comes to their end.
const AHEAD: usize = 8;
const NUMBER_BYTES: usize = 16;

pub struct Mirror {
    /// Of this command, unlike any other.
    own: Vec<u8>,
    lease: Option<Lease>,
    used: Vec<JobId>,
    /// What another command has begun, as long as nobody here has heard of it.
    found: Vec<JobId>,
    ahead: Vec<JobId>,
    /// The list as it was read or written last.
    known: Option<Vec<u8>>,
    /// One that may have been written in its place, and the numbers that it adds.
    tried: Option<(Vec<u8>, Vec<JobId>)>,
    has_other: bool,
}

/// A number that nobody has had.
pub fn fresh(random: &mut Random) -> JobId {
    let mut number = [0; NUMBER_BYTES];
    number[..8].copy_from_slice(&random.next().to_be_bytes());
    number[8..].copy_from_slice(&random.next().to_be_bytes());
    JobId(number)
}

impl Mirror {
    /// Takes the lock, and returns what a command before this one left; nothing where another one has it.
    pub fn open(etcd: &mut Etcd, random: &mut Random) -> Answer<Option<(Mirror, Vec<JobId>)>> {
        let own = random.next().to_be_bytes().to_vec();
        let (lease, used, found, ahead, known, tried, has_other) = Default::default();
        let mut mirror = Mirror { own, lease, used, found, ahead, known, tried, has_other };
        mirror.lock(etcd)?;
        if mirror.has_other {
            return Ok(None);
        }
        mirror.known = etcd.value(LIST)?;
        let left = numbers(mirror.known.as_deref());
        mirror.used.clone_from(&left);
        mirror.replenish(etcd, random)?;
        Ok(Some((mirror, left)))
    }

    /// Another command coordinates the job.
    pub fn has_other(&self) -> bool {
        self.has_other
    }

    /// A number is written down that nobody used.
    pub fn is_ready(&self) -> bool {
        !self.ahead.is_empty()
    }

    pub fn take(&mut self) -> Option<JobId> {
        let number = self.ahead.pop()?;
        self.used.push(number);
        Some(number)
    }

    /// What another command of the job has begun, told once.
    pub fn found(&mut self) -> Vec<JobId> {
        let found = std::mem::take(&mut self.found);
        self.used.extend(&found);
        found
    }

    /// What is open, as the journal has it.
    pub fn keep(&mut self, slices: &[JobId]) {
        self.used = slices.to_vec();
    }

    /// Has the lock and the list as they are to be.
    pub fn attend(&mut self, etcd: &mut Etcd, random: &mut Random) -> Answer<()> {
        self.lock(etcd)?;
        self.replenish(etcd, random)
    }

    /// Lets the next command begin at once.
    pub fn close(&mut self, etcd: &mut Etcd, is_done: bool) {
        if self.has_other {
            return;
        }
        let open = if is_done { self.found.clone() } else { [&self.used[..], &self.found[..]].concat() };
        let kept = match open.is_empty() {
            true => self.remove_own(etcd),
            false => swap(etcd, self.known.as_deref(), &text_of(&open)).map(drop),
        };
        // Where nobody answers, the lease runs out.
        if let Some(lease) = self.lease.filter(|_| kept.is_ok()) {
            let _ = etcd.ask(|memory| memory.end(lease));
        }
    }

    fn lock(&mut self, etcd: &mut Etcd) -> Answer<()> {
        if let Some(lease) = self.lease
            && etcd.ask(|memory| memory.renew(lease))?
        {
            return Ok(());
        }
        let lease = etcd.ask(|memory| memory.grant(LEASE_SECONDS))?;
        let is_ours = etcd.ask(|memory| memory.change(LOCK, None, Some(&self.own), Some(lease)))?;
        let holder = if is_ours { None } else { etcd.value(LOCK)? };
        // One that ended between the two looks is tried for again.
        self.lease = is_ours.then_some(lease);
        self.has_other = holder.is_some_and(|holder| holder != self.own);
        if !is_ours {
            let _ = etcd.ask(|memory| memory.end(lease));
        }
        Ok(())
    }

    fn replenish(&mut self, etcd: &mut Etcd, random: &mut Random) -> Answer<()> {
        // What was tried before comes first: nobody knows whether it was written.
        if self.tried.is_some() {
            self.write(etcd, random)?;
        }
        self.write(etcd, random)
    }

    fn write(&mut self, etcd: &mut Etcd, random: &mut Random) -> Answer<()> {
        if self.has_other {
            return Ok(());
        }
        let tried = self.tried.take();
        let (text, fresh) = tried.unwrap_or_else(|| self.list(random));
        if self.known.as_ref() == Some(&text) {
            return Ok(());
        }
        self.tried = Some((text.clone(), fresh.clone()));
        let is_swapped = swap(etcd, self.known.as_deref(), &text)?;
        let there = if is_swapped { Some(text.clone()) } else { etcd.value(LIST)? };
        match there.as_ref() == Some(&text) {
            true => self.ahead.extend(fresh),
            false => self.hear(&numbers(there.as_deref()), &fresh),
        }
        (self.known, self.tried) = (there, None);
        Ok(())
    }

    /// The list as it is to be, and the numbers that it adds.
    fn list(&self, random: &mut Random) -> (Vec<u8>, Vec<JobId>) {
        let count = if 2 * self.ahead.len() < AHEAD { AHEAD - self.ahead.len() } else { 0 };
        let added: Vec<JobId> = (0..count).map(|_| fresh(random)).collect();
        (text_of(&[&self.used[..], &self.found[..], &self.ahead[..], &added[..]].concat()), added)
    }

    /// Takes in what another command has written down. Numbers that were ahead it took for begun, and may have voided
    /// them.
    fn hear(&mut self, listed: &[JobId], fresh: &[JobId]) {
        let own = [&self.used[..], &self.found[..], &self.ahead[..], fresh].concat();
        self.found.extend(listed.iter().filter(|number| !own.contains(number)));
        self.ahead.clear();
    }

    /// A list that somebody else has written stays.
    fn remove_own(&self, etcd: &mut Etcd) -> Answer<()> {
        let Some(held) = etcd.held(LIST)? else { return Ok(()) };
        let is_tried = self.tried.as_ref().is_some_and(|(text, _)| *text == held.value);
        if self.known.as_ref() == Some(&held.value) || is_tried {
            etcd.ask(|memory| memory.change(LIST, Some(&held), None, None))?;
        }
        Ok(())
    }
}

/// Replaces the list if it is still `old`.
fn swap(etcd: &mut Etcd, old: Option<&[u8]>, new: &[u8]) -> Answer<bool> {
    let held = match old {
        None => None,
        Some(old) => match etcd.held(LIST)? {
            Some(held) if held.value == old => Some(held),
            _ => return Ok(false),
        },
    };
    etcd.ask(|memory| memory.change(LIST, held.as_ref(), Some(new), None))
}

fn text_of(numbers: &[JobId]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.0).collect()
}

fn numbers(text: Option<&[u8]>) -> Vec<JobId> {
    text.unwrap_or_default().chunks(NUMBER_BYTES).filter_map(JobId::from_slice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calm() -> (Etcd, Random) {
        let mut etcd = Etcd::new(1);
        etcd.is_calm = true;
        (etcd, Random::new(1))
    }

    #[test]
    fn what_was_begun_is_known_to_whoever_goes_on_and_whoever_was_late_begins_nothing() {
        let (mut etcd, mut random) = calm();
        let (mut first, left) = Mirror::open(&mut etcd, &mut random).unwrap().unwrap();
        assert_eq!(left, []);
        let begun: Vec<JobId> = std::iter::from_fn(|| first.take()).collect();
        assert_eq!(begun.len(), AHEAD);
        assert!(Mirror::open(&mut etcd, &mut random).unwrap().is_none(), "one is at work");
        // Its host stands still.
        etcd.pass_to(31_000);
        let (mut second, left) = Mirror::open(&mut etcd, &mut random).unwrap().unwrap();
        assert!(begun.iter().all(|number| left.contains(number)));
        first.attend(&mut etcd, &mut random).unwrap();
        assert!(first.has_other() && !first.is_ready());
        let theirs = second.take().unwrap();
        second.close(&mut etcd, false);
        let (mut third, left) = Mirror::open(&mut etcd, &mut random).unwrap().unwrap();
        assert!(left.contains(&theirs) && left.len() == AHEAD + 1, "what nobody used is not taken over");
        third.close(&mut etcd, true);
        assert_eq!(Mirror::open(&mut etcd, &mut random).unwrap().unwrap().1, [], "the job was done");
    }

    #[test]
    fn a_list_whose_answer_was_lost_is_taken_for_written_only_when_it_is_there() {
        let (mut etcd, mut random) = calm();
        let (mut mirror, _) = Mirror::open(&mut etcd, &mut random).unwrap().unwrap();
        while mirror.take().is_some() {}
        etcd.is_calm = false;
        while mirror.tried.is_none() {
            let _ = mirror.attend(&mut etcd, &mut random);
            while mirror.take().is_some() {}
        }
        etcd.is_calm = true;
        mirror.attend(&mut etcd, &mut random).unwrap();
        let listed = numbers(etcd.value(LIST).unwrap().as_deref());
        assert!(mirror.is_ready() && mirror.ahead.iter().chain(&mirror.used).all(|number| listed.contains(number)));
    }
}
