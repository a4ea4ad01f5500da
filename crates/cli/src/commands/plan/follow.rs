//! A copy that follows a plan: the settings it begins with, what its result says of them, and what is kept of it for the next one.

use super::prediction::{self, Planned};
use crate::calibrations;
use crate::exit::Result;
use crate::output;
use crate::transfer::{Finished, Request};
use ::transfer::Ended;
use model::TransferSpec;
use std::ffi::OsString;

/// Shorter copies come to nothing that would help the next.
const REMEMBERED_SECONDS_MIN: f64 = 5.0;

/// Lets a plan choose the settings.
pub fn plan(plan: Option<&OsString>, request: &mut Request) -> Result<Option<Planned>> {
    let Some(plan) = plan else { return Ok(None) };
    let planned = prediction::for_copy(plan, &request.spec.sources, &request.spec.destination)?;
    match &planned {
        Some(planned) => planned.apply(&mut request.spec)?,
        None => request.spec.streams_first = endpoint(request).and_then(|name| calibrations::known_streams(&name)),
    }
    Ok(planned)
}

/// Says what was planned, and keeps what came of it.
pub fn note(plan: Option<&OsString>, planned: Option<&Planned>, request: &Request, finished: &mut Finished) {
    let (Some(plan), Some(report)) = (plan, &mut finished.ended.report) else { return };
    match planned {
        Some(planned) => report.notes.extend(prediction::told(plan, planned)),
        None => report.notes.push(match request.spec.streams_first {
            Some(streams) => format!(
                "plan auto: not calibrated; it began with {streams} streams, as many as an earlier copy came to"
            ),
            None => {
                "plan auto: this source and destination were not calibrated; streams are chosen as usual".to_owned()
            }
        }),
    }
    if finished.error.is_some() {
        return;
    }
    let kept = match planned {
        Some(planned) => keep_outcome(planned, &finished.ended),
        None => remember(request, &finished.ended),
    };
    if let Err(e) = kept {
        output::note(&format!("note: {}", e.message));
    }
}

/// The endpoint of a copy that has one.
fn endpoint(request: &Request) -> Option<String> {
    let TransferSpec { sources, destination, .. } = &request.spec;
    let remote = sources.first().filter(|source| source.is_remote()).unwrap_or(destination);
    remote.to_string().split_once(':').filter(|_| remote.is_remote()).map(|(name, _)| name.to_owned())
}

/// Where no calibration is, the next copy begins where one of some length came to.
fn remember(request: &Request, ended: &Ended) -> Result<()> {
    let tuning = ended.report.as_ref().map_or(&[][..], |report| &report.tuning);
    match (endpoint(request), tuning) {
        (Some(name), [log]) if ended.seconds >= REMEMBERED_SECONDS_MIN => {
            calibrations::remember(&name, log.changes.last().map_or(log.streams, |change| change.to))
        }
        _ => Ok(()),
    }
}

/// Keeps what came of a plan, where the copy moved all that was planned. That it cannot be kept fails no copy.
fn keep_outcome(planned: &Planned, ended: &Ended) -> Result<()> {
    let is_whole = ended.files_skipped == 0 && ended.resumed_bytes == 0 && !ended.options.is_dry_run && ended.bytes > 0;
    if !is_whole || planned.of.is_empty() {
        return Ok(());
    }
    calibrations::record(&planned.outcome(ended.bytes, ended.files_ok, ended.seconds))
}
