//! A transfer that runs: started, looked at, steered, stopped and waited for.

use crate::apart::check_outside;
use crate::chunks::Chunks;
use crate::control::{Control, Observed, Steering};
use crate::ended::Ended;
use crate::error::{Error, Kind, Result, plain};
use crate::means::Means;
use crate::route::{Direction, Route};
use crate::run::{Run, Sums};
use crate::witness::Witness;
use model::{JobId, TransferSpec};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, SystemTime};

/// Dropped, it stops in order, as by `cancel`; what was verified is kept.
pub struct Transfer {
    control: Arc<Control>,
    thread: Option<JoinHandle<Ended>>,
    spec: TransferSpec,
    direction: Direction,
    job: JobId,
}

impl Transfer {
    /// Finds the way and sets out on it.
    ///
    /// # Errors
    /// When nothing was tried: the request makes no sense, its peers are not known, or the host has no thread to spare.
    pub fn start(spec: TransferSpec, means: Means) -> Result<Transfer> {
        means.stores.check(spec.sources.iter().chain([&spec.destination])).map_err(|e| Error::from_open(&e))?;
        let route = Route::find(&spec, &*means.peers)?;
        let direction = route.direction();
        let identity = if direction == Direction::Local { None } else { Some(means.peers.identity()?) };
        let job = means.peers.job().unwrap_or_else(|| route.job_id(&spec, identity.as_ref()));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
        let options = spec.options_at(now);
        means.manifest.iter().try_for_each(|file| check_outside(&spec.sources, &options.selection, file))?;
        let wants_changes = options.tells_changes;
        let witness = Witness::new(means.manifest.as_deref(), options.digest, means.watcher.clone(), wants_changes)?;
        let control = Arc::new(Control::new(&spec, means.stop.clone()));
        means.watcher.started(job, direction);
        let run = Run {
            spec: spec.clone(),
            options,
            started: means.started,
            means,
            route,
            identity,
            job,
            witness: Arc::new(witness),
            control: control.clone(),
            sums: Sums::default(),
            standby: Arc::default(),
            chunks: Chunks::default(),
        };
        let ending = Ending(control.clone());
        let run = move || {
            let _ending = ending;
            run.run()
        };
        let thread = Builder::new().name("transfer".into()).spawn(run).map_err(|e| {
            let text = format!("start a thread: {}", plain(&e));
            Error::new(Kind::Temporary, "", text)
                .advice("this user has too many processes: try again when there are fewer")
        })?;
        Ok(Transfer { control, thread: Some(thread), spec, direction, job })
    }

    /// The same for the same request of the same identity.
    pub fn job(&self) -> JobId {
        self.job
    }

    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// How it stands. Rates are of the time since the last looks, so look at it every second or so.
    pub fn observe(&self) -> Observed {
        self.control.observe()
    }

    /// Changes the transfer while it runs.
    pub fn steer(&self, steering: Steering) {
        self.control.steer(steering);
    }

    /// Asks it to stop in order. What was verified is kept, and the same request goes on from there.
    pub fn cancel(&self) {
        self.control.stop();
    }

    /// Waits for the end, but no longer than this; true when it has come.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.control.wait_ended(timeout)
    }

    /// Waits for the end.
    pub fn wait(mut self) -> Ended {
        let ended = self.thread.take().map(JoinHandle::join);
        ended.and_then(|ended| ended.ok()).unwrap_or_else(|| {
            let text = "the transfer ended unexpectedly, which is a bug; what was verified is kept";
            let error = Error::new(Kind::Fault, "", text).advice("report it with the output of THALWEG_LOG=debug");
            Ended { error: Some(error), ..Ended::before_the_start(&self.spec, self.direction) }
        })
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.cancel();
            let _ = thread.join();
        }
    }
}

/// Says that the transfer has ended, however it did.
struct Ending(Arc<Control>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}
