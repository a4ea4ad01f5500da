//! The journal of a job where all hosts of an endpoint see it: the command that goes on with the job may be given at another one.
//!
//! `crews/JOB/slices.json` at the coordinator, and `crews/JOB/lock` under a lease: which command coordinates the job. A thread keeps both.
//!
//! Invariants:
//! - Nothing that moves data waits for the coordinator. Numbers of slices are written down there before they are used; only when it is
//!   silent for so long that none is left, others are used, which it hears of later.
//! - Whoever finds the lock in other hands hands out nothing more.
//!
//! Not here: what keeps a late host from publishing (`store::posix::fence`). The lock spares work; it proves nothing.

use crate::error::{Error, Result};
use crate::hosts::Shared;
use cluster::coordinator::Lease;
use model::options::INSTEAD_OF_MAX;
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
}

#[derive(Default)]
struct State {
    lease: Option<Lease>,
    /// Those that are open.
    used: Vec<JobId>,
    ahead: Vec<JobId>,
    /// Who else coordinates the job.
    other: Option<String>,
    is_over: bool,
}

impl State {
    /// How many to have written down: so that what a command leaves can be taken over by the next one, however often that happens.
    fn wanted(&self) -> usize {
        AHEAD.min(INSTEAD_OF_MAX.saturating_sub(self.used.len()) / 2)
    }

    fn is_low(&self) -> bool {
        2 * self.ahead.len() < self.wanted()
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
        let (state, changed) = Default::default();
        let mirror = Arc::new(Mirror { shared: shared.clone(), job, own, state, changed });
        mirror.lock_job()?;
        if let Some(other) = &mirror.lock().other {
            return Err(taken(other));
        }
        let bytes = mirror.shared.records.get(&mirror.key("slices.json"), BYTES_MAX, false)?.unwrap_or_default();
        let texts =
            if bytes.is_empty() { Some(Vec::new()) } else { serde_json::from_slice::<Vec<String>>(&bytes).ok() };
        let left = texts.and_then(|texts| texts.iter().map(|text| JobId::from_hex(text)).collect::<Option<Vec<_>>>());
        let left = left.ok_or_else(|| {
            Error::new(Exit::Failed, format!("{} is damaged", shared.records.named(&mirror.key("slices.json")))).hint(
                "make sure that no host still works on this job (`thalweg job ls`), and remove it with `etcdctl del`",
            )
        })?;
        mirror.lock().used.clone_from(&left);
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

    /// How many are written down and not used.
    pub fn ahead(&self) -> usize {
        self.lock().ahead.len()
    }

    /// What is open, as the journal has it.
    pub fn keep(&self, slices: &[JobId]) {
        self.lock().used = slices.to_vec();
    }

    /// Lets the next command begin at once; the job is done, or goes on later.
    pub fn close(&self, is_done: bool) {
        let lease = {
            let mut state = self.lock();
            state.is_over = true;
            self.changed.notify_all();
            if state.other.is_some() {
                return;
            }
            state.lease.take()
        };
        if is_done {
            let _ = self.shared.records.remove(&self.key("slices.json"));
        }
        if let Some(lease) = lease {
            let _ = self.shared.end(lease);
        }
    }

    /// Writes down what is open, and more numbers, which nobody uses before.
    fn replenish(&self) -> Result<()> {
        let fresh: Vec<_> = std::iter::repeat_with(|| JobId(net::random_bytes())).take(AHEAD).collect();
        let (texts, fresh) = {
            let state = self.lock();
            let fresh = if state.is_low() { &fresh[state.ahead.len()..state.wanted()] } else { &[] };
            let all = state.used.iter().chain(&state.ahead).chain(fresh);
            (all.map(ToString::to_string).collect::<Vec<_>>(), fresh.to_vec())
        };
        let text = serde_json::to_vec(&texts).expect("texts");
        self.shared.records.put(&self.key("slices.json"), &text)?;
        self.lock().ahead.extend(fresh);
        Ok(())
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

/// Until the job is over, or nobody has the mirror any more.
fn keep(mirror: &Weak<Mirror>) {
    while let Some(this) = mirror.upgrade() {
        let is_calm = |state: &mut State| !state.is_over && !state.is_low();
        let waited = this.changed.wait_timeout_while(this.lock(), INTERVAL, is_calm);
        if waited.unwrap_or_else(PoisonError::into_inner).0.is_over {
            return;
        }
        let kept = this.lock_job().and_then(|()| this.replenish());
        if let Err(e) = kept {
            warn!(error = %e, "which parts of the job are open is not written down for other hosts");
            // Not again and again while nobody answers.
            let is_going_on = |state: &mut State| !state.is_over;
            let waited = this.changed.wait_timeout_while(this.lock(), INTERVAL, is_going_on);
            drop(waited);
        }
    }
}

/// The coordinator does not answer; everything else is a reason not to go on.
pub fn is_silent(e: &Error) -> bool {
    e.exit == Exit::Temporary && !e.message.starts_with(TAKEN)
}

const TAKEN: &str = "the same command runs on ";

fn taken(other: &str) -> Error {
    Error::new(Exit::Temporary, format!("{TAKEN}{other}, or ran there less than {LEASE_SECONDS} s ago"))
        .hint("wait for it, or stop it there; what is delivered stays")
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::coordinator::Coordinator;
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
        // Should it come back, it begins nothing more.
        first.lock_job().unwrap();
        assert!(first.take().is_err());
        second.close(true);
        let (third, left) = Mirror::open(&shared, job).unwrap();
        assert_eq!(left, [], "the job was done");
        third.close(false);
    }
}
