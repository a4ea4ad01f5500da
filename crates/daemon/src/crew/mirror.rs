//! The journal of a job where all hosts of an endpoint see it: the command that goes on with the job may be given at another one.
//!
//! `crews/JOB/slices.json` at the coordinator, and `crews/JOB/lock` under a lease: which command coordinates the job. A thread keeps both.
//!
//! Invariants:
//! - Nothing that moves data waits for the coordinator. Numbers of slices are written down there before they are used; only when it is
//!   silent for so long that none is left, others are used, which it hears of later.
//! - Whoever finds the lock in other hands hands out nothing more, and writes nothing down.
//! - The list is written in place of the one that was read or written before, and of no other: what another command has begun while
//!   this one stood still is taken in, and is lost here.
//!
//! Not here: what keeps a late host from publishing (`store::posix::fence`). The lock spares work; it proves nothing.

use crate::error::{Error, Result};
use crate::hosts::Shared;
use cluster::coordinator::Lease;
use model::{Exit, JobId};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tracing::warn;

/// Numbers that are written down and not used: about a minute's work of eight hosts.
const AHEAD: usize = 64;
const LEASE_SECONDS: u64 = 30;
const INTERVAL: Duration = Duration::from_secs(5);
const BYTES_MAX: u64 = 1 << 20;

pub struct Mirror {
    shared: Shared,
    job: JobId,
    /// Of this command, unlike any other.
    own: Vec<u8>,
    state: Mutex<State>,
    changed: Condvar,
    /// Held by whoever asks the coordinator for something while the job runs.
    asking: Mutex<()>,
}

#[derive(Default)]
struct State {
    lease: Option<Lease>,
    /// Those that are open.
    used: Vec<JobId>,
    /// What another command has begun, as long as the journal has not heard of it.
    found: Vec<JobId>,
    ahead: Vec<JobId>,
    /// The list as it was read or written last.
    known: Option<Vec<u8>>,
    /// One that may have been written in its place, and the numbers that it adds.
    tried: Option<(Vec<u8>, Vec<JobId>)>,
    /// Who else coordinates the job.
    other: Option<String>,
    is_over: bool,
}

impl State {
    fn is_low(&self) -> bool {
        2 * self.ahead.len() < AHEAD
    }

    /// The list as it is to be, and the numbers that it adds: nobody uses them before it is written.
    fn list(&self) -> (Vec<u8>, Vec<JobId>) {
        let count = if self.is_low() { AHEAD - self.ahead.len() } else { 0 };
        let fresh: Vec<_> = std::iter::repeat_with(|| JobId(net::random_bytes())).take(count).collect();
        (text_of(self.used.iter().chain(&self.found).chain(&self.ahead).chain(&fresh)), fresh)
    }

    /// Takes in what another command has written down. Numbers that were ahead it took for begun, and may have voided them.
    fn hear(&mut self, listed: &[JobId], fresh: &[JobId]) {
        let own = [&self.used[..], &self.found[..], &self.ahead[..], fresh].concat();
        self.found.extend(listed.iter().filter(|number| !own.contains(number)));
        self.ahead.clear();
    }
}

impl Mirror {
    /// Takes the lock, and returns what a command before this one left.
    ///
    /// # Errors
    /// When another command coordinates the job, or the coordinator does not answer.
    pub fn open(shared: &Shared, job: JobId) -> Result<(Arc<Mirror>, Vec<JobId>)> {
        let random = data_encoding::HEXLOWER.encode(&net::random_bytes::<8>());
        let own = format!("{} {random}", shared.name).into_bytes();
        let (state, changed, asking) = Default::default();
        let mirror = Arc::new(Mirror { shared: shared.clone(), job, own, state, changed, asking });
        mirror.lock_job()?;
        if let Some(other) = &mirror.lock().other {
            return Err(taken(other));
        }
        let known = mirror.read()?;
        let left = mirror.numbers(known.as_deref())?;
        {
            let mut state = mirror.lock();
            (state.used, state.known) = (left.clone(), known);
        }
        mirror.replenish()?;
        let weak = Arc::downgrade(&mirror);
        let spawned = std::thread::Builder::new().name("journal".into()).spawn(move || keep(&weak));
        spawned.map_err(|e| Error::new(Exit::Failed, format!("start a thread: {e}")))?;
        Ok((mirror, left))
    }

    /// A number for a slice.
    ///
    /// # Errors
    /// When another command coordinates the job.
    pub fn take(&self) -> Result<JobId> {
        let mut state = self.lock();
        if let Some(other) = &state.other {
            return Err(taken(other));
        }
        let number = state.ahead.pop().unwrap_or_else(|| JobId(net::random_bytes()));
        state.used.push(number);
        if state.is_low() {
            self.changed.notify_all();
        }
        Ok(number)
    }

    /// What another command of the job has begun, told once: it is open here too from then on.
    pub fn found(&self) -> Vec<JobId> {
        let mut state = self.lock();
        let found = std::mem::take(&mut state.found);
        state.used.extend(&found);
        found
    }

    /// What is open, as the journal has it.
    pub fn keep(&self, slices: &[JobId]) {
        self.lock().used = slices.to_vec();
    }

    /// Lets the next command begin at once; the job is done, or goes on later. What it has to know is what was begun: numbers that
    /// nobody used are left out.
    pub fn close(&self, is_done: bool) {
        self.lock().is_over = true;
        self.changed.notify_all();
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let (lease, known, tried, open) = {
            let mut state = self.lock();
            if state.other.is_some() {
                return;
            }
            let open = if is_done { state.found.clone() } else { [&state.used[..], &state.found[..]].concat() };
            (state.lease.take(), state.known.take(), state.tried.take(), open)
        };
        let (key, records) = (self.key("slices.json"), &self.shared.records);
        // A list that somebody else has written stays.
        let is_own = |there: &[u8]| -> Result<bool> {
            Ok(known.as_deref() == Some(there) || tried.as_ref().is_some_and(|(text, _)| text[..] == *there))
        };
        let kept = match open.is_empty() {
            true => records.remove_if(&key, &is_own),
            false => records.swap(&key, known.as_deref(), &text_of(open.iter())),
        };
        // Where nobody answers, the lease runs out.
        if let Some(lease) = lease.filter(|_| kept.is_ok()) {
            let _ = self.shared.end(lease);
        }
    }

    /// Has the lock and the list as they are to be.
    fn attend(&self) -> Result<()> {
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        // It may have been closed meanwhile.
        if self.lock().is_over {
            return Ok(());
        }
        self.lock_job()?;
        self.replenish()
    }

    /// Writes down what is open, and more numbers.
    fn replenish(&self) -> Result<()> {
        // What was tried before comes first: nobody knows whether it was written.
        if self.lock().tried.is_some() {
            self.write()?;
        }
        self.write()
    }

    fn write(&self) -> Result<()> {
        let (known, text, fresh) = {
            let mut state = self.lock();
            if state.other.is_some() {
                return Ok(());
            }
            let tried = state.tried.take();
            let (text, fresh) = tried.unwrap_or_else(|| state.list());
            if state.known.as_ref() == Some(&text) {
                return Ok(());
            }
            state.tried = Some((text.clone(), fresh.clone()));
            (state.known.clone(), text, fresh)
        };
        let is_swapped = self.shared.records.swap(&self.key("slices.json"), known.as_deref(), &text)?;
        let there = if is_swapped { Some(text.clone()) } else { self.read()? };
        let is_written = there.as_ref() == Some(&text);
        let listed = if is_written { Vec::new() } else { self.numbers(there.as_deref())? };
        let mut state = self.lock();
        match is_written {
            true => state.ahead.extend(fresh),
            false => state.hear(&listed, &fresh),
        }
        (state.known, state.tried) = (there, None);
        Ok(())
    }

    fn read(&self) -> Result<Option<Vec<u8>>> {
        self.shared.records.get(&self.key("slices.json"), BYTES_MAX, false)
    }

    fn numbers(&self, list: Option<&[u8]>) -> Result<Vec<JobId>> {
        let Some(bytes) = list.filter(|bytes| !bytes.is_empty()) else { return Ok(Vec::new()) };
        let texts = serde_json::from_slice::<Vec<String>>(bytes).ok();
        let numbers =
            texts.and_then(|texts| texts.iter().map(|text| JobId::from_hex(text)).collect::<Option<Vec<_>>>());
        numbers.ok_or_else(|| {
            let named = self.shared.records.named(&self.key("slices.json"));
            Error::new(Exit::Failed, format!("{named} is damaged")).hint(
                "make sure that no host still works on this job (`thalweg job ls`), and remove it with `etcdctl del`",
            )
        })
    }

    /// Has the lock, or knows who else does.
    fn lock_job(&self) -> Result<()> {
        let lease = self.lock().lease;
        if let Some(lease) = lease
            && self.shared.renew(lease)?
        {
            return Ok(());
        }
        let lease = self.shared.grant(LEASE_SECONDS)?;
        let key = self.key("lock");
        let is_ours = self.shared.records.add_leased(&key, &self.own, lease)?;
        let holder = if is_ours { None } else { self.shared.records.get(&key, BYTES_MAX, false)? };
        let mut state = self.lock();
        // One that ended between the two looks is tried for again.
        state.lease = is_ours.then_some(lease);
        state.other = holder.filter(|holder| *holder != self.own).map(|holder| {
            let holder = String::from_utf8_lossy(&holder);
            model::name::Escaped(holder.split(' ').next().unwrap_or_default().as_bytes()).to_string()
        });
        drop(state);
        if !is_ours {
            let _ = self.shared.end(lease);
        }
        Ok(())
    }

    fn key(&self, name: &str) -> String {
        format!("crews/{}/{name}", self.job)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text_of<'a>(numbers: impl Iterator<Item = &'a JobId>) -> Vec<u8> {
    serde_json::to_vec(&numbers.map(ToString::to_string).collect::<Vec<_>>()).expect("texts")
}

/// Until the job is over, or nobody has the mirror any more.
fn keep(mirror: &Weak<Mirror>) {
    while let Some(this) = mirror.upgrade() {
        // Where another command has the job, nothing is written down.
        let is_calm = |state: &mut State| !state.is_over && (!state.is_low() || state.other.is_some());
        let waited = this.changed.wait_timeout_while(this.lock(), INTERVAL, is_calm);
        if waited.unwrap_or_else(PoisonError::into_inner).0.is_over {
            return;
        }
        if let Err(e) = this.attend() {
            warn!(error = %e, "which parts of the job are open is not written down for other hosts");
            // Not again and again while nobody answers.
            let is_going_on = |state: &mut State| !state.is_over;
            let waited = this.changed.wait_timeout_while(this.lock(), INTERVAL, is_going_on);
            drop(waited);
        }
    }
}

/// The coordinator does not answer, or not this host; everything else is a reason not to go on.
pub fn is_silent(e: &Error) -> bool {
    matches!(e.exit, Exit::Temporary | Exit::Refused) && !e.message.starts_with(TAKEN)
}

const TAKEN: &str = "the same command runs on ";

fn taken(other: &str) -> Error {
    Error::new(Exit::Temporary, format!("{TAKEN}{other}, or ran there less than {LEASE_SECONDS} s ago"))
        .hint("wait for it, or stop it there; what is delivered stays")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::watched::Watched;
    use crate::records::of_fault;
    use cluster::coordinator::{Coordinator, Fault, FaultKind};
    use conformance::coordinators::Memory;
    use net::Identity;

    #[test]
    fn a_job_is_coordinated_once_and_what_was_begun_is_known_to_whoever_goes_on() {
        let (state, memory) = (tempfile::tempdir().unwrap(), Arc::new(Memory::default()));
        let coordinator: Arc<dyn Coordinator> = memory.clone();
        let shared = Shared::begin(state.path(), &coordinator, None, &Identity::generate().unwrap(), "h1").unwrap();
        let job = JobId([7; 16]);
        let (first, left) = Mirror::open(&shared, job).unwrap();
        assert_eq!(left, []);
        let refused = Mirror::open(&shared, job).err().unwrap();
        assert!(refused.message.contains("runs on h1") && !is_silent(&refused), "{refused}");
        // Nobody waits while it is silent, and what is used until then is known.
        memory.silence(true);
        let used: Vec<_> = std::iter::repeat_with(|| first.take().unwrap()).take(AHEAD + 9).collect();
        assert!(is_silent(&Mirror::open(&shared, JobId([8; 16])).err().unwrap()));
        // Its host dies.
        first.lock().is_over = true;
        memory.silence(false);
        memory.advance(LEASE_SECONDS + 1);
        let (second, left) = Mirror::open(&shared, job).unwrap();
        assert!(used[..AHEAD].iter().all(|number| left.contains(number)));
        let theirs = second.take().unwrap();
        // Should it come back, it begins nothing more, and leaves what the other one has written down.
        first.lock_job().unwrap();
        first.replenish().unwrap();
        assert!(first.take().is_err());
        first.close(true);
        second.close(false);
        let (third, left) = Mirror::open(&shared, job).unwrap();
        assert!(left.contains(&theirs));
        assert_eq!(left.len(), AHEAD + 1, "what nobody used is not taken over");
        third.close(true);
        let (fourth, left) = Mirror::open(&shared, job).unwrap();
        assert_eq!(left, [], "the job was done");
        fourth.close(false);
    }

    #[test]
    fn what_another_command_has_begun_meanwhile_is_heard_of_and_stays_written_down() {
        let (state, memory) = (tempfile::tempdir().unwrap(), Arc::new(Memory::default()));
        let coordinator: Arc<dyn Coordinator> = memory.clone();
        let shared = Shared::begin(state.path(), &coordinator, None, &Identity::generate().unwrap(), "h1").unwrap();
        let job = JobId([7; 16]);
        let (first, _) = Mirror::open(&shared, job).unwrap();
        let own = first.take().unwrap();
        // It stands still while the same command comes and goes.
        first.lock().is_over = true;
        memory.advance(LEASE_SECONDS + 1);
        let (second, left) = Mirror::open(&shared, job).unwrap();
        assert!(left.contains(&own));
        let theirs = second.take().unwrap();
        second.close(false);
        first.lock_job().unwrap();
        first.replenish().unwrap();
        assert_eq!((first.found(), first.found()), (vec![theirs], vec![]));
        assert_eq!(first.lock().ahead, [], "the other one may have voided them");
        first.keep(&[own, theirs]);
        first.replenish().unwrap();
        first.close(false);
        let (third, left) = Mirror::open(&shared, job).unwrap();
        assert_eq!(left, [own, theirs]);
        third.close(true);
    }

    #[test]
    fn what_may_have_been_written_is_known_again() {
        let (state, memory) = (tempfile::tempdir().unwrap(), Arc::new(Memory::default()));
        let coordinator: Arc<dyn Coordinator> = memory.clone();
        let shared = Shared::begin(state.path(), &coordinator, None, &Identity::generate().unwrap(), "h1").unwrap();
        let (mirror, _) = Mirror::open(&shared, JobId([7; 16])).unwrap();
        let _asking = mirror.asking.lock().unwrap();
        let used: Vec<_> = std::iter::repeat_with(|| mirror.take().unwrap()).take(AHEAD).collect();
        memory.silence(true);
        assert!(mirror.replenish().is_err());
        memory.silence(false);
        // It arrived, and the answer was lost.
        let (text, fresh) = mirror.lock().tried.clone().unwrap();
        shared.records.put(&mirror.key("slices.json"), &text).unwrap();
        mirror.replenish().unwrap();
        let state = mirror.lock();
        assert_eq!((&state.ahead, &state.found), (&fresh, &vec![]));
        assert!(state.used == used && state.tried.is_none());
    }

    #[test]
    fn a_coordinator_that_refuses_this_host_is_no_reason_not_to_copy() {
        let of = |kind| of_fault(&Fault { kind, text: "no".into(), advice: "ask".into() });
        assert!(is_silent(&of(FaultKind::Refused)) && is_silent(&of(FaultKind::Silent)));
        assert!(!is_silent(&of(FaultKind::Malformed)));
    }

    #[test]
    fn the_end_of_a_job_waits_for_a_silent_coordinator_once() {
        let (state, watched) = (tempfile::tempdir().unwrap(), Arc::new(Watched::default()));
        let coordinator: Arc<dyn Coordinator> = watched.clone();
        let shared = Shared::begin(state.path(), &coordinator, None, &Identity::generate().unwrap(), "h1").unwrap();
        let (mirror, _) = Mirror::open(&shared, JobId([7; 16])).unwrap();
        watched.memory.silence(true);
        watched.before("end", || panic!("it was asked once more"));
        mirror.close(true);
    }
}
