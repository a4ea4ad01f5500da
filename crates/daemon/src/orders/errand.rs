//! What an order does with two trees beside copying: it compares them, or removes from the source what was copied.
//!
//! This endpoint's tree is asked in its owner's name, the other one by the order's warrant, so that each question is answered as far
//! as the owner's rights go at that moment. Invariant: nothing is removed whose copy is not durable (`may_remove`).
//!
//! Not here: how trees are compared, and what may leave a source (`transfer::trees`).

use super::Ground;
use super::reach::Partner;
use super::record::Record;
use model::files::{FileKind, Question, Tally};
use model::name::Escaped;
use model::options::Compare;
use model::order::Role;
use model::progress::Counts;
use model::quantity::Rate;
use model::selection::Selection;
use model::{Failure, FailureKind, Pin, TransferSpec};
use mover::limits::LANE_BYTES;
use mover::session::{AskError, Client, Tuning};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use transfer::trees::{self, Answers, Chosen, Delivery, Met, Tree};
use transfer::{ConnectOptions, Direction, Ended, Error, Kind as Why, Peer, Peers, Sample, Use, Way, reason};
use wire::limits::ORDER_FAILURES_MAX;

/// Whether what was copied may leave its source now.
pub fn may_remove(ended: &Ended) -> bool {
    let is_finished = ended.report.as_ref().is_some_and(|report| matches!(report.ending, mover::Ending::Finished(_)));
    let durable = ended.report.as_ref().map_or("", |report| &report.durable[..]);
    is_finished && matches!(durable, "batch" | "file" | "memory" | "store")
}

/// A comparison or a removal that runs.
pub struct Errand {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Ended>>,
}

struct Shared {
    is_stopped: AtomicBool,
    counts: Mutex<Counts>,
    is_over: Mutex<bool>,
    over: Condvar,
    started: Instant,
}

impl Errand {
    /// `copied`: what came of the copy that a move begins with.
    pub fn start(
        host: Arc<dyn Ground>,
        partner: Partner,
        record: &Record,
        spec: TransferSpec,
        copied: Option<Ended>,
    ) -> transfer::Result<Errand> {
        let shared = Arc::new(Shared {
            is_stopped: AtomicBool::new(false),
            counts: Mutex::default(),
            is_over: Mutex::new(false),
            over: Condvar::new(),
            started: Instant::now(),
        });
        let owner = record.key().map(|(owner, _)| owner);
        let owner = owner.ok_or_else(|| Error::new(Why::Fault, "", "the job names no owner"))?;
        let work = Work { host, partner, owner, role: record.role(), spec, shared: shared.clone() };
        let run = move || {
            let _over = Over(work.shared.clone());
            match copied {
                Some(ended) => work.remove(ended),
                None => work.compare(),
            }
        };
        let thread = std::thread::Builder::new()
            .name("errand".into())
            .spawn(run)
            .map_err(|e| Error::new(Why::Temporary, "", format!("start a thread: {e}")))?;
        Ok(Errand { shared, thread: Some(thread) })
    }

    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        let over = self.shared.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.shared.over.wait_timeout_while(over, timeout, |over| !*over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    pub fn sample(&self) -> Option<Sample> {
        let counts = *self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let time = self.shared.started.elapsed();
        let rate = Rate::over(counts.bytes_done, time.as_secs_f64());
        let mut sample = Sample::told(counts, false, rate, time);
        sample.bottleneck.sentence = "both endpoints read their own files".to_owned();
        Some(sample)
    }

    pub fn cancel(&self) {
        self.shared.is_stopped.store(true, Relaxed);
    }

    pub fn wait(mut self) -> Ended {
        let ended = self.thread.take().and_then(|thread| thread.join().ok());
        ended.unwrap_or_else(|| {
            let mut ended = nothing();
            ended.error = Some(Error::new(Why::Fault, "", "the comparison ended unexpectedly, which is a bug"));
            ended
        })
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        self.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Says that it is over, however it ended.
struct Over(Arc<Shared>);

impl Drop for Over {
    fn drop(&mut self) {
        *self.0.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.over.notify_all();
    }
}

fn nothing() -> Ended {
    let nowhere = TransferSpec::new(vec![model::Location::Null], model::Location::Null);
    let mut ended = Ended::before_the_start(&nowhere, Direction::Push);
    ended.bottleneck.sentence.clear();
    ended
}

struct Work {
    host: Arc<dyn Ground>,
    partner: Partner,
    owner: Pin,
    role: Role,
    spec: TransferSpec,
    shared: Arc<Shared>,
}

impl Work {
    /// The source's side and the destination's.
    fn with_sides<T>(&self, ask: impl FnOnce([&dyn Answers; 2]) -> transfer::Result<T>) -> transfer::Result<T> {
        let is_stopped = || self.shared.is_stopped.load(Relaxed);
        let options = ConnectOptions {
            // Questions travel on the control stream.
            tuning: Tuning { streams: Some(0), ..Tuning::default() },
            ..ConnectOptions::default()
        };
        let client = self.partner.connect(&Use {
            way: Way::Pull,
            paths: &[],
            identity: &self.partner.identity()?,
            options: &options,
            memory_bytes: LANE_BYTES,
            is_stopped: &is_stopped,
        })?;
        let (own, far) = (Own(self), Far { work: self, client: &client });
        let asked = match self.role {
            Role::Sends => ask([&own, &far]),
            Role::Fetches => ask([&far, &own]),
        };
        client.close();
        asked
    }

    fn is_stopped(&self) -> bool {
        self.shared.is_stopped.load(Relaxed)
    }

    fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Without its age rules, what of a source is chosen is settled when the work begins.
    fn selection(&self) -> Selection {
        self.spec.choice.at(crate::warrant::now() as i64)
    }

    fn compare(&self) -> Ended {
        let (mut ended, mut differences) = (nothing(), Differences::default());
        let selection = self.selection();
        let is_everything = self.spec.choice.is_everything();
        let chosen = Chosen { selection: &selection, is_everything, prefix: b"" };
        let digest = (self.spec.options.compare != Compare::Size).then(|| trees::sum_of(self.spec.options.digest));
        let compared = self.with_sides(|[first, second]| {
            let first = Tree { at: first, path: self.spec.sources[0].path() };
            let second = Tree { at: second, path: self.spec.destination.path() };
            trees::compare([first, second], digest, chosen, &mut |met| {
                differences.note(&met, &mut ended);
                self.count(|counts| {
                    counts.files_done = ended.files_ok;
                    counts.bytes_done = ended.bytes;
                    counts.files_failed = ended.files_failed;
                });
                !self.is_stopped()
            })
        });
        ended.error = match compared {
            _ if self.is_stopped() => Some(stopped()),
            Err(e) => Some(e),
            Ok(()) => differences.verdict(),
        };
        ended.seconds = self.shared.started.elapsed().as_secs_f64();
        ended
    }

    fn remove(&self, mut ended: Ended) -> Ended {
        let (selection, mut stayed) = (self.selection(), Kept::default());
        let mut removed = 0;
        let done = self.with_sides(|[from, at]| {
            for source in &self.spec.sources {
                self.remove_one(source.path(), [from, at], &selection, &mut stayed, &mut removed)?;
            }
            Ok(())
        });
        ended.removed += removed;
        ended.seconds += self.shared.started.elapsed().as_secs_f64();
        let count = stayed.failures.len() as u64 + stayed.untold;
        ended.files_failed += count;
        ended.failures.extend(stayed.failures);
        ended.failures_not_kept += stayed.untold;
        let failed = match done {
            _ if self.is_stopped() => Some(stopped()),
            Err(e) => Some(e),
            Ok(()) if count > 0 => Some(
                Error::new(Why::Partial, "", format!("not removed from the source: {count}"))
                    .advice("the reasons are listed; `thalweg job retry` tries again"),
            ),
            Ok(()) => None,
        };
        // What the copy had to say comes first, but for a stop.
        ended.error = match failed {
            Some(e) if e.kind == Why::Stopped => Some(e),
            failed => ended.error.take().or(failed),
        };
        ended
    }

    /// Removes of one source what the destination has.
    fn remove_one(
        &self,
        path: &[u8],
        [from, at]: [&dyn Answers; 2],
        selection: &Selection,
        stayed: &mut Kept,
        removed: &mut u64,
    ) -> transfer::Result<()> {
        let is_contents = path.ends_with(b"/") || path.ends_with(b"/.") || selection.listed.is_some();
        let named = trees::without_slashes(path);
        let destination = self.spec.destination.path();
        let is_into = !is_contents && trees::is_directory(Tree { at, path: destination })?;
        let name = trees::name_of(path).unwrap_or_default();
        let to = if is_into { trees::join(destination, name) } else { destination.to_vec() };
        let is_everything = self.spec.choice.is_everything();
        let prefix = if is_contents { b"" } else { name };
        let mut delivery = Delivery {
            source: Tree { at: from, path: named },
            to: Tree { at, path: &to },
            digest: self.spec.options.digest,
            chosen: Chosen { selection, is_everything, prefix },
            tell: &mut |one| stayed.note(named, &one),
            moved: Tally::default(),
            is_one_place: false,
        };
        let outcome = delivery.remove();
        *removed += delivery.moved.files + delivery.moved.directories;
        outcome
    }
}

/// What stays at the source.
#[derive(Default)]
struct Kept {
    failures: Vec<Failure>,
    untold: u64,
}

impl Kept {
    fn note(&mut self, source: &[u8], one: &trees::Stayed<'_>) {
        if self.failures.len() >= ORDER_FAILURES_MAX {
            self.untold += 1;
            return;
        }
        let message = match one.is_unread {
            true => reason(one.why).to_owned(),
            false => format!("kept at the source: {}", reason(one.why)),
        };
        self.failures.push(Failure { path: trees::join(source, one.path), kind: one.kind, message });
    }
}

fn stopped() -> Error {
    Error::new(Why::Stopped, "", "stopped; what was done so far is kept")
}

/// What two trees differ in, as failures of the job.
#[derive(Default)]
struct Differences {
    different: u64,
    unread: u64,
    is_named_missing: bool,
}

impl Differences {
    fn note(&mut self, met: &Met<'_>, ended: &mut Ended) {
        let (path, kind, text): (&[u8], _, String) = match met {
            Met::Same(status) => {
                ended.files_ok += u64::from(!status.is_directory());
                ended.bytes += if status.kind == FileKind::File { status.size_bytes } else { 0 };
                return;
            }
            Met::Missing(path) => (path, FailureKind::Other, "missing at the destination".to_owned()),
            Met::Extra(path) => (path, FailureKind::Other, "only at the destination".to_owned()),
            Met::Differs { path, why } => (path, FailureKind::Other, format!("differs: {why}")),
            Met::Unread { side, record } => {
                let model::files::Found::Failed { kind, text } = &record.found else { return };
                self.unread += 1;
                self.is_named_missing |= record.path.is_empty() && *kind == FailureKind::NotFound;
                let side = if *side == 0 { "source" } else { "destination" };
                (&record.path, *kind, format!("cannot be read at the {side}: {}", reason(text)))
            }
        };
        self.different += u64::from(!matches!(met, Met::Unread { .. }));
        ended.files_failed += 1;
        let path = if path.is_empty() { b"." } else { path };
        match ended.failures.len() < ORDER_FAILURES_MAX {
            true => ended.failures.push(Failure { path: path.to_vec(), kind, message: text }),
            false => ended.failures_not_kept += 1,
        }
    }

    /// The codes of `thalweg check`.
    fn verdict(&self) -> Option<Error> {
        match (self.different, self.unread) {
            (0, 0) => None,
            (0, _) if self.is_named_missing => {
                Some(Error::new(Why::SourceNotFound, "", "one of the two is not there").advice("check the paths"))
            }
            (0, unread) => Some(
                Error::new(Why::Partial, "", format!("{unread} objects could not be read, and the rest is the same"))
                    .advice("the reasons are listed"),
            ),
            (different, _) => Some(
                Error::new(Why::Failed, "", format!("the two differ in {different} objects"))
                    .advice("`thalweg sync A/ B/` copies what is missing or different"),
            ),
        }
    }
}

/// This endpoint's tree.
struct Own<'a>(&'a Work);

impl Answers for Own<'_> {
    fn ask(&self, question: &Question, each: &mut dyn FnMut(model::files::Record) -> bool) -> transfer::Result<Tally> {
        let work = self.0;
        let answered = work.host.answer(work.owner, question, &|| work.is_stopped(), each);
        match answered {
            _ if work.is_stopped() => Err(stopped()),
            answered => answered.map_err(|refusal| Error::from_refusal(work.partner.own(), &refusal)),
        }
    }
}

/// The other endpoint's.
struct Far<'a> {
    work: &'a Work,
    client: &'a Client,
}

impl Answers for Far<'_> {
    fn ask(&self, question: &Question, each: &mut dyn FnMut(model::files::Record) -> bool) -> transfer::Result<Tally> {
        let name = self.work.partner.name();
        let lost = |why: String| Error::new(Why::Temporary, name, format!("{name}: the connection was lost: {why}"));
        self.client.ask(question, &|| self.work.is_stopped(), each).map_err(|e| match e {
            AskError::Connect(e) => Error::from_connect(name, &e),
            AskError::Refused(refusal) => self.work.partner.refused(&refusal),
            AskError::Lost(why) => lost(Escaped(why.to_string().as_bytes()).to_string()),
            AskError::Interrupted(_) => stopped(),
        })
    }
}
