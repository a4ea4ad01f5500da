//! One run of the mover over the route.

use super::Request;
use super::ends::{LocalSink, LocalSource, Shape, check_apart, open_source};
use super::far::{Far, Use};
use super::route::Route;
use super::witness::Witness;
use super::{of_store, stopped};
use crate::exit::{Error, Result, error};
use crate::interrupt::Interrupt;
use crate::output::nobody_reads;
use daemon::ConnectOptions;
use model::options::Compression;
use model::synthetic::is_synthetic;
use model::{Exit, JobId, Location, TransferOptions};
use mover::local::{LocalSpec, copy};
use mover::session::{Client, PullSpec, PushSpec, Tuning};
use mover::wishes::{needs_fidelity_receiver, needs_fidelity_sender, needs_sync_receiver, needs_sync_sender};
use mover::{Ending, Memory, Observer, Progress, Report};
use net::Identity;
use ssh::Access;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct Attempt<'a> {
    pub request: &'a Request,
    pub route: &'a Route,
    pub identity: Option<Identity>,
    pub job: JobId,
    pub witness: &'a Arc<Witness>,
    pub interrupt: &'a Interrupt,
    /// When the run has to stop.
    pub deadline: Option<Instant>,
}

impl Attempt<'_> {
    /// `sent_bytes` of content were sent by earlier attempts.
    pub fn run(&self, progress: &Arc<Progress>, sent_bytes: u64) -> Result<Report> {
        self.witness.start_attempt();
        let mut options = self.request.options.clone();
        options.payload_bytes_max = options.payload_bytes_max.map(|max| max.saturating_sub(sent_bytes));
        match self.route {
            Route::Push { far, path } => self.push(far, path, options, progress),
            Route::Pull { far, paths } => self.pull(far, paths, options, progress),
            Route::Local => self.copy_here(options, progress),
        }
    }

    /// What is left of a wait until the run has to stop.
    pub fn left(&self, wait: Duration) -> Duration {
        self.deadline.map_or(wait, |deadline| wait.min(deadline.saturating_duration_since(Instant::now())))
    }

    /// Whether the attempt is to stop, for whatever reason.
    fn is_over(&self) -> bool {
        self.interrupt.is_set()
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
            || self.request.bounds.is_fail_fast && self.witness.has_failed()
    }

    fn push(&self, far: &Far, path: &[u8], options: TransferOptions, progress: &Arc<Progress>) -> Result<Report> {
        let LocalSource { source, is_single } = self.open_source()?;
        let client = self.connect(far, Access::Write, &[path.to_vec()])?;
        check_synthetic(&client, far.name(), &[path])?;
        check_sync(&client, far.name(), needs_sync_receiver(&self.request.options))?;
        check_limits(&client, far.name(), options.compression != Compression::None)?;
        check_delta(&client, far.name(), self.request.options.is_delta)?;
        check_fidelity(&client, far.name(), needs_fidelity_receiver(&options))?;
        let spec = PushSpec { id: self.job, path: path.to_vec(), is_single, options };
        let report = client.push(spec, source, progress.clone(), self.observer(), &|| self.is_over());
        client.close();
        Ok(report)
    }

    fn pull(
        &self,
        far: &Far,
        paths: &[Vec<u8>],
        mut options: TransferOptions,
        progress: &Arc<Progress>,
    ) -> Result<Report> {
        let client = self.connect(far, Access::Read, paths)?;
        check_synthetic(&client, far.name(), paths)?;
        check_sync(&client, far.name(), needs_sync_sender(&self.request.options))?;
        check_delta(&client, far.name(), self.request.options.is_delta)?;
        check_fidelity(&client, far.name(), needs_fidelity_sender(&self.request.options))?;
        let is_bound = options.pace.is_some() || options.payload_bytes_max.is_some();
        check_limits(&client, far.name(), is_bound || options.compression != Compression::None)?;
        if let Far::Endpoint(endpoint) = far {
            check_congestion(&client, &endpoint.name, self.request.congestion.is_some())?;
            options.congestion.clone_from(&self.request.congestion);
        }
        let shape = match paths {
            [path] if !path.is_empty() && !path.ends_with(b"/") && !path.ends_with(b"/.") && path != b"." => {
                Shape::SingleOrTree
            }
            _ => Shape::Tree,
        };
        let destination = self.open_sink(shape, false)?;
        let spec = PullSpec {
            id: self.job,
            paths: paths.to_vec(),
            options,
            rename_to: destination.rename_to.clone(),
            is_sequential: destination.is_sequential,
        };
        let interrupted = || self.is_over() || nobody_reads();
        let sink = destination.sink.clone();
        let pulled = client.pull(spec, sink, progress.clone(), self.observer(), &interrupted);
        client.close();
        self.settle(pulled, &destination)
    }

    fn copy_here(&self, mut options: TransferOptions, progress: &Arc<Progress>) -> Result<Report> {
        let LocalSource { source, is_single } = self.open_source()?;
        check_apart(&self.request.sources, &self.request.destination)?;
        let shape = if is_single { Shape::Single } else { Shape::Tree };
        let destination = self.open_sink(shape, self.request.sources == [Location::Pipe])?;
        // Users and groups are the same on both sides.
        options.fidelity.numeric_ids = !options.fidelity.is_none();
        let spec = LocalSpec {
            id: self.job,
            options,
            rename_to: destination.rename_to.clone(),
            lanes: self.request.streams,
            is_sequential: destination.is_sequential,
            memory: Memory::new(self.request.memory_bytes),
        };
        let interrupted = || self.is_over() || nobody_reads();
        let sink = destination.sink.clone();
        let copied = copy(spec, source, sink, progress.clone(), self.observer(), &interrupted);
        self.settle(copied, &destination)
    }

    /// A copy that did not begin leaves no empty directory behind.
    fn settle(&self, moved: store::Result<Report>, destination: &LocalSink) -> Result<Report> {
        match &moved {
            Ok(report) if matches!(report.ending, Ending::Finished(_)) => {}
            _ => destination.abandon(),
        }
        moved.map_err(|e| of_store(&e, &self.request.destination.to_string()))
    }

    fn open_source(&self) -> Result<LocalSource> {
        let stdin = Box::new(Stdin { interrupt: self.interrupt.clone() });
        open_source(&self.request.sources, stdin, &self.request.options)
    }

    fn open_sink(&self, shape: Shape, is_stdin: bool) -> Result<LocalSink> {
        let is_own = matches!(self.route, Route::Local);
        LocalSink::open(&self.request.destination, shape, is_stdin, is_own, &self.request.options)
    }

    fn connect(&self, far: &Far, access: Access, paths: &[Vec<u8>]) -> Result<Client> {
        let connected = far.connect(&Use {
            access,
            paths,
            identity: self.identity.as_ref().expect("a route to an endpoint has an identity"),
            options: ConnectOptions {
                // Of streams that this host sends on, or that an endpoint over ssh accepts; an endpoint is asked with the job.
                congestion: match (far, access) {
                    (Far::Endpoint(_), Access::Read) => None,
                    _ => self.request.congestion.clone(),
                },
                tuning: Tuning { streams: self.request.streams },
                memory: Memory::new(self.request.memory_bytes),
            },
            memory_bytes: self.request.memory_bytes,
            interrupt: self.interrupt,
        });
        if let (Ok(client), Some(timeout)) = (&connected, self.request.bounds.no_progress(&self.request.options)) {
            client.set_no_progress_timeout(timeout);
        }
        // Ctrl-C ends ssh too, which then gives a reason of its own.
        connected.map_err(|e| if self.interrupt.is_set() { stopped(self.interrupt) } else { e })
    }

    fn observer(&self) -> Option<Arc<dyn Observer>> {
        Some(self.witness.clone())
    }
}

/// An endpoint that does not know these paths would take them for names of files.
fn check_synthetic(client: &Client, endpoint: &str, paths: &[impl AsRef<[u8]>]) -> Result<()> {
    if !paths.iter().any(|path| is_synthetic(path.as_ref())) {
        return Ok(());
    }
    if client.knows_synthetic().map_err(|e| Error::from_connect(endpoint, &e))? {
        return Ok(());
    }
    let message = format!("endpoint {endpoint} does not know gen: and null:");
    Err(error(Exit::Usage, message, "the thalweg there is older: install this version there"))
}

/// An endpoint that does not know what is asked would pass it over: a dry run would write.
fn check_sync(client: &Client, endpoint: &str, is_needed: bool) -> Result<()> {
    if !is_needed || client.knows_sync().map_err(|e| Error::from_connect(endpoint, &e))? {
        return Ok(());
    }
    let message = format!("endpoint {endpoint} does not know filters, comparisons, dry runs or removal");
    Err(error(Exit::Version, message, "bring the other side up to date: install this version of thalweg there"))
}

/// An endpoint that does not know them would send as fast and as far as it can.
fn check_limits(client: &Client, endpoint: &str, is_needed: bool) -> Result<()> {
    if !is_needed || client.knows_limits().map_err(|e| Error::from_connect(endpoint, &e))? {
        return Ok(());
    }
    let message = format!("endpoint {endpoint} does not know compression, or limits on what it sends");
    Err(error(Exit::Version, message, "bring the other side up to date: install this version of thalweg there"))
}

/// One that does not know it would send as its system does.
fn check_congestion(client: &Client, endpoint: &str, is_needed: bool) -> Result<()> {
    if !is_needed || client.knows_congestion().map_err(|e| Error::from_connect(endpoint, &e))? {
        return Ok(());
    }
    let message = format!("endpoint {endpoint} does not know --cc for what it sends");
    Err(error(Exit::Version, message, "leave it away, or bring the other side up to date: install this version there"))
}

/// One that does not know digests of chunks would send or take everything.
fn check_delta(client: &Client, endpoint: &str, is_needed: bool) -> Result<()> {
    if !is_needed || client.knows_delta().map_err(|e| Error::from_connect(endpoint, &e))? {
        return Ok(());
    }
    let message = format!("endpoint {endpoint} does not know --delta");
    Err(error(Exit::Version, message, "leave it away, or bring the other side up to date: install this version there"))
}

/// An endpoint that does not know them would leave them away without a word.
fn check_fidelity(client: &Client, endpoint: &str, is_needed: bool) -> Result<()> {
    if !is_needed || client.knows_fidelity().map_err(|e| Error::from_connect(endpoint, &e))? {
        return Ok(());
    }
    let message = format!("endpoint {endpoint} does not know owners, attributes, hard links or special files");
    Err(error(Exit::Version, message, "bring the other side up to date: install this version of thalweg there"))
}

/// Standard input, whose end does not count when the user stops the whole pipeline: the program that fills the pipe
/// dies of the same Ctrl-C, and what it wrote until then is not all it meant to write.
struct Stdin {
    interrupt: Interrupt,
}

/// The two programs are signalled within microseconds of each other.
const SIGNAL_PATIENCE: Duration = Duration::from_millis(20);

impl Read for Stdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = io::stdin().lock().read(buffer)?;
        if read == 0 && !buffer.is_empty() && self.interrupt.wait(SIGNAL_PATIENCE) {
            return Err(io::Error::other("stopped before the end was certain"));
        }
        Ok(read)
    }
}
