//! One run of the mover over the route.

use crate::apart::check_apart;
use crate::capability::{check_receiver, check_sender};
use crate::chunks::Chunks;
use crate::connect::ConnectOptions;
use crate::control::Control;
use crate::error::{Error, Result};
use crate::listed::{Listed, Slice, nobody_left};
use crate::means::Means;
use crate::peer::{Peer, Use, Way};
use crate::replicas::{Leading, Others};
use crate::route::{Replica, Route};
use crate::witness::Witness;
use model::pace::Timetable;
use model::spec::Bounds;
use model::{JobId, Location, Selection, TransferOptions, TransferSpec};
use mover::limits::{BLOCK_BYTES, NO_PROGRESS_TIMEOUT};
use mover::local::{LocalSpec, collect, copy};
use mover::receiver::Tally;
use mover::session::{Client, Guide, PullSpec, PushSpec, Standby, Tuning};
use mover::{Ending, Memory, Observer, Progress, Report};
use net::Identity;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use store::open::{OpenSink, OpenSource, Rights, Shape, SinkRequest};

pub struct Attempt<'a> {
    pub spec: &'a TransferSpec,
    pub options: &'a TransferOptions,
    pub means: &'a Means,
    pub route: &'a Route,
    pub identity: Option<&'a Identity>,
    pub job: JobId,
    pub witness: &'a Arc<Witness>,
    pub control: &'a Arc<Control>,
    pub started: Instant,
    /// Where a session begins after one of several paths was lost.
    pub standby: &'a Arc<Standby>,
    pub chunks: &'a Chunks,
    /// What came of each of several holders, by name.
    pub tallies: Mutex<Vec<(String, Tally)>>,
    /// Why it could not go on, where that says more than its report.
    pub failed: Mutex<Option<Error>>,
}

impl Guide for Attempt<'_> {
    /// For whatever reason.
    fn is_over(&self) -> bool {
        self.control.is_stopped()
            || self.control.is_out_of_time(self.started)
            // Nothing comes after the one object that a pipe takes.
            || (self.spec.bounds.is_fail_fast || self.spec.destination == Location::Pipe) && self.witness.has_failed()
            || self.means.watcher.is_enough()
    }

    fn pace(&self, _: &TransferOptions) -> Option<Arc<Timetable>> {
        self.control.pace()
    }
}

impl Attempt<'_> {
    /// `sent_bytes` of content were sent by earlier attempts.
    pub fn run(&self, progress: &Arc<Progress>, sent_bytes: u64) -> Result<Report> {
        self.witness.start_attempt();
        let mut options = self.options.clone();
        options.payload_bytes_max = options.payload_bytes_max.map(|max| max.saturating_sub(sent_bytes));
        options.pace = self.control.pace();
        let report = match self.route {
            Route::Push { peer, path } => self.push(&**peer, path, options, progress),
            Route::Pull { peer, paths, replicas } if self.means.catalogue.is_some() => {
                let lead = Replica { peer: peer.clone(), path: paths[0].clone() };
                self.collect(std::iter::once(lead).chain(replicas.iter().cloned()).collect(), options, progress)
            }
            Route::Pull { peer, paths, replicas } => self.pull(&**peer, paths, replicas, options, progress),
            Route::Local => self.copy_here(options, progress),
        };
        let mut report = report?;
        report.notes.extend(self.chunks.note());
        Ok(report)
    }

    fn push(
        &self,
        peer: &dyn Peer,
        path: &[u8],
        mut options: TransferOptions,
        progress: &Arc<Progress>,
    ) -> Result<Report> {
        let OpenSource { source, is_single } = self.open_source()?;
        let client = self.connect(peer, Way::Push, &[path.to_vec()])?;
        options.chunk_bytes = self.chunks.bytes(self.spec, client.round_trip());
        check_receiver(&client, peer.name(), path, &options)?;
        let spec = PushSpec { id: self.job, path: path.to_vec(), is_single, options };
        let report = client.push(spec, source, progress.clone(), self.observer(), self);
        client.close();
        Ok(report)
    }

    fn pull(
        &self,
        peer: &dyn Peer,
        paths: &[Vec<u8>],
        replicas: &[Replica],
        mut options: TransferOptions,
        progress: &Arc<Progress>,
    ) -> Result<Report> {
        let client = self.connect(peer, Way::Pull, paths)?;
        options.chunk_bytes = self.chunks.bytes(self.spec, client.round_trip());
        if peer.is_endpoint() {
            options.congestion.clone_from(&self.spec.congestion);
        }
        check_sender(&client, peer.name(), paths, &options)?;
        let shape = match paths {
            [path] if !path.is_empty() && !path.ends_with(b"/") && !path.ends_with(b"/.") && path != b"." => {
                Shape::SingleOrTree
            }
            _ => Shape::Tree,
        };
        let destination = self.open_sink(shape, false, &options)?;
        let spec = PullSpec {
            id: self.job,
            paths: paths.to_vec(),
            options,
            rename_to: destination.rename_to.clone(),
            is_sequential: destination.is_sequential,
        };
        let sink = destination.sink.clone();
        if replicas.is_empty() {
            let pulled = client.pull(spec, sink, progress.clone(), self.observer(), self);
            client.close();
            return self.settle(pulled, &destination);
        }
        if spec.is_sequential {
            destination.abandon();
            return Err(Error::request("this destination takes one file in order", "use one source"));
        }
        let others = Others::start(&self.leading(), peer.name(), replicas, &spec);
        let among = Some((&others.gather, 0));
        let pulled = client.pull_among(spec, sink, progress.clone(), self.observer(), self, among);
        client.close();
        let (tallies, outvoted) = others.end();
        *self.tallies.lock().unwrap() = tallies;
        *self.failed.lock().unwrap() = outvoted;
        self.settle(pulled, &destination)
    }

    /// What the catalogue lists, from those who have it, one slice after the other. Who is not to be trusted in one is not asked in the next.
    fn collect(&self, mut holders: Vec<Replica>, options: TransferOptions, progress: &Arc<Progress>) -> Result<Report> {
        let Some(catalogue) = &self.means.catalogue else { unreachable!("there is one, or there is a lead") };
        let mut first = 0;
        let mut told: Vec<(String, Tally)> = Vec::new();
        loop {
            let slice = Slice::of(catalogue, first);
            let (report, tallies) = self.collect_slice(&slice, &holders, &options, progress)?;
            let mut of_each = tallies.iter();
            holders.retain(|_| of_each.next().is_some_and(|(_, tally)| !tally.is_for_good));
            self.tallies.lock().unwrap().extend(tallies.iter().cloned());
            told.retain(|(_, tally)| tally.is_for_good);
            told.extend(tallies);
            match &report.ending {
                Ending::Finished(_) if slice.end < catalogue.files().len() => first = slice.end,
                Ending::Lost(_) => {
                    *self.failed.lock().unwrap() = nobody_left(&told);
                    return Ok(report);
                }
                _ => return Ok(report),
            }
        }
    }

    /// Also tells what came of each holder.
    fn collect_slice(
        &self,
        slice: &Slice,
        holders: &[Replica],
        options: &TransferOptions,
        progress: &Arc<Progress>,
    ) -> Result<(Report, Vec<(String, Tally)>)> {
        let destination = self.open_sink(Shape::Tree, false, options)?;
        let mut pull = PullSpec {
            id: self.job,
            paths: Vec::new(),
            options: options.clone(),
            rename_to: None,
            is_sequential: destination.is_sequential,
        };
        if slice.listed.is_some() {
            let selection = Selection { listed: slice.listed.clone(), ..(*options.selection).clone() };
            pull.options.selection = Arc::new(selection);
        }
        let others = Others::of_list(&self.leading(), holders, &pull, &slice.catalogue);
        let spec = LocalSpec {
            id: self.job,
            options: options.clone(),
            rename_to: None,
            lanes: None,
            lanes_first: None,
            is_sequential: false,
            memory: Memory::new(self.memory_bytes()),
        };
        let source = Arc::new(Listed(slice.catalogue.clone()));
        let (sink, gather) = (destination.sink.clone(), others.gather.clone());
        let collected = collect(spec, source, sink, progress.clone(), self.observer(), (self, &gather));
        let (mut tallies, _) = others.end();
        // The catalogue's own.
        tallies.remove(0);
        Ok((self.settle(collected, &destination)?, tallies))
    }

    fn leading(&self) -> Leading<'_> {
        Leading {
            identity: self.identity.expect("a route to a peer has an identity"),
            memory_bytes: self.memory_bytes(),
            control: self.control,
            connect_options: Box::new(|peer| self.connect_options(peer, Way::Pull)),
        }
    }

    fn copy_here(&self, mut options: TransferOptions, progress: &Arc<Progress>) -> Result<Report> {
        let OpenSource { source, is_single } = self.open_source()?;
        check_apart(&self.spec.sources, &self.spec.destination, is_single, options.deletion.is_some())?;
        let shape = if is_single { Shape::Single } else { Shape::Tree };
        let destination = self.open_sink(shape, self.spec.sources == [Location::Pipe], self.options)?;
        // Users and groups are the same on both sides.
        options.fidelity.numeric_ids = !options.fidelity.is_none();
        let spec = LocalSpec {
            id: self.job,
            options,
            rename_to: destination.rename_to.clone(),
            lanes: self.spec.streams,
            lanes_first: self.spec.streams_first,
            is_sequential: destination.is_sequential,
            memory: Memory::new(self.memory_bytes()),
        };
        let sink = destination.sink.clone();
        let copied = copy(spec, source, sink, progress.clone(), self.observer(), self);
        self.settle(copied, &destination)
    }

    /// A copy that did not begin leaves no empty directory behind.
    fn settle(&self, moved: store::Result<Report>, destination: &OpenSink) -> Result<Report> {
        match &moved {
            Ok(report) if matches!(report.ending, Ending::Finished(_)) => {}
            _ => destination.abandon(),
        }
        moved.map_err(|e| Error::from_store(&e, &self.spec.destination.to_string()))
    }

    fn open_source(&self) -> Result<OpenSource> {
        self.means.stores.source(&self.spec.sources, self.options).map_err(|e| Error::from_open(&e))
    }

    fn open_sink(&self, shape: Shape, is_nameless: bool, options: &TransferOptions) -> Result<OpenSink> {
        let is_own = matches!(self.route, Route::Local);
        let request = SinkRequest { rights: Rights::of(options), shape, is_nameless, is_own, options };
        self.means.stores.sink(&self.spec.destination, &request).map_err(|e| Error::from_open(&e))
    }

    fn connect(&self, peer: &dyn Peer, way: Way, paths: &[Vec<u8>]) -> Result<Client> {
        let options = self.connect_options(peer, way);
        let connected = peer.connect(&Use {
            way,
            paths,
            identity: self.identity.expect("a route to a peer has an identity"),
            options: &options,
            memory_bytes: self.memory_bytes(),
            is_stopped: &|| self.control.is_stopped(),
        });
        // What stops this process may stop what it reaches the peer by, which then gives a reason of its own.
        let client = connected.map_err(|e| if self.control.is_stopped() { Error::stopped(self.spec) } else { e })?;
        if let Some(timeout) = no_progress(&self.spec.bounds, self.options) {
            client.set_no_progress_timeout(timeout);
        }
        if let Some((spool, how)) = &self.means.buffer {
            client.buffer_in(spool.clone(), *how);
        }
        Ok(client)
    }

    fn connect_options(&self, peer: &dyn Peer, way: Way) -> ConnectOptions {
        ConnectOptions {
            // Of streams that this host sends on, or that a host accepts for the session; an endpoint is asked with the job.
            congestion: match (peer.is_endpoint(), way) {
                (true, Way::Pull) => None,
                _ => self.spec.congestion.clone(),
            },
            tuning: Tuning {
                streams: self.spec.streams,
                streams_first: self.spec.streams_first,
                paths: self.spec.paths.clone(),
                standby: self.standby.clone(),
            },
            memory: Memory::new(self.memory_bytes()),
        }
    }

    fn memory_bytes(&self) -> usize {
        self.spec.memory_bytes.unwrap_or(mover::limits::MEMORY_BYTES_MAX)
    }

    fn observer(&self) -> Option<Arc<dyn Observer>> {
        Some(self.witness.clone())
    }
}

/// How long an attempt may stand still. At a low rate a block takes its time: that is no standstill.
fn no_progress(bounds: &Bounds, options: &TransferOptions) -> Option<Duration> {
    let slowest = options.pace.as_deref().and_then(Timetable::rate_min);
    let blocks = slowest.map_or(Duration::ZERO, |rate| Duration::from_secs(4 * BLOCK_BYTES as u64 / rate.max(1)));
    match bounds.no_progress {
        Some(asked) => Some(asked.max(blocks)),
        None => (blocks > NO_PROGRESS_TIMEOUT).then_some(blocks),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_low_rate_is_no_standstill() {
        let bounds = Bounds { no_progress: Some(Duration::from_secs(10)), ..Bounds::default() };
        let mut options = TransferOptions::default();
        assert_eq!(no_progress(&bounds, &options), Some(Duration::from_secs(10)));
        assert_eq!(no_progress(&Bounds::default(), &options), None);
        options.pace = Some(Arc::new(Timetable::parse("08:00,1K 12:00,off").unwrap()));
        assert_eq!(no_progress(&bounds, &options), Some(Duration::from_secs(512)));
        assert_eq!(no_progress(&Bounds::default(), &options), None);
    }
}
