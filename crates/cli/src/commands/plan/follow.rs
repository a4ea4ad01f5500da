//! A copy that follows a plan: the settings it begins with, what its result says of them, and what is kept of it for the next one.

use super::prediction::{self, Planned};
use crate::calibrations;
use crate::exit::Result;
use crate::interrupt::Interrupt;
use crate::output;
use crate::transfer::{Finished, Request};
use ::transfer::Ended;
use model::quantity::ByteCount;
use model::{Location, TransferSpec};
use mover::Ending;
use std::ffi::OsString;

/// Shorter copies come to nothing that would help the next.
const REMEMBERED_SECONDS_MIN: f64 = 5.0;

/// Files grow while a plan is made of them.
const SAME_BYTES: f64 = 0.01;

/// What a copy with --plan goes by.
pub struct Followed {
    planned: Option<Planned>,
    /// What speaks against the calibration, or why no plan was made.
    notes: Vec<String>,
}

/// Lets a plan choose the settings.
pub fn plan(plan: Option<&OsString>, request: &mut Request) -> Result<Option<Followed>> {
    let Some(plan) = plan else { return Ok(None) };
    let mut notes = Vec::new();
    let planned = prediction::for_copy(plan, &request.spec.sources, &request.spec.destination, &mut notes)?;
    match &planned {
        Some(planned) => planned.apply(&mut request.spec)?,
        None => request.spec.streams_first = endpoint(request).and_then(|name| calibrations::known_streams(&name)),
    }
    Ok(Some(Followed { planned, notes }))
}

/// Says what was planned, and keeps what came of it.
pub fn note(plan: Option<&OsString>, followed: Option<&Followed>, request: &Request, finished: &mut Finished) {
    let of_file =
        followed.and_then(|followed| followed.planned.as_ref()).filter(|_| plan.is_some_and(|plan| plan != "auto"));
    let of_others = of_file.and_then(|planned| of_other_files(planned, &finished.ended));
    let (Some(plan), Some(followed), Some(report)) = (plan, followed, &mut finished.ended.report) else { return };
    let notes = followed.notes.iter().chain(&of_others);
    report.notes.extend(notes.map(|note| format!("plan {}: {note}", output::shown(plan))));
    match (&followed.planned, request.spec.streams_first) {
        (Some(planned), _) => report.notes.extend(prediction::told(plan, planned)),
        (None, Some(streams)) => report.notes.push(format!(
            "plan auto: not calibrated; it began with {streams} streams, as many as an earlier copy came to"
        )),
        (None, None) if followed.notes.is_empty() => report
            .notes
            .push("plan auto: this source and destination were not calibrated; streams are chosen as usual".to_owned()),
        (None, None) => report.notes.push("plan auto: streams are chosen as usual".to_owned()),
    }
    if finished.error.is_some() {
        return;
    }
    let kept = match &followed.planned {
        Some(planned) => keep_outcome(planned, request, &finished.ended),
        None => remember(request, &finished.ended),
    };
    if let Err(e) = kept {
        output::note(&format!("note: {}", e.message));
    }
}

/// Of a copy that was only rehearsed, how long it would take, as far as that is known. With a rate limit it depends on that.
pub fn expected(followed: Option<&Followed>, request: &Request, ended: &Ended, interrupt: &Interrupt) -> Vec<String> {
    if !is_rehearsed(ended) || request.spec.options.pace.is_some() {
        return Vec::new();
    }
    let planned = followed.and_then(|followed| followed.planned.as_ref());
    let is_stopped = || interrupt.is_set();
    let found = prediction::of_rehearsal(&request.spec, planned, ended.files_ok, ended.bytes, &is_stopped);
    if is_stopped() {
        return Vec::new();
    }
    found.unwrap_or_else(|e| vec![format!("how long it would take is not known: {}", e.message)])
}

/// It was only rehearsed, came to every file, and would move some.
fn is_rehearsed(ended: &Ended) -> bool {
    let is_whole = ended.report.as_ref().is_some_and(|report| matches!(report.ending, Ending::Finished(_)));
    ended.options.is_dry_run && is_whole && ended.files_ok > 0 && ended.bytes > 0
}

/// The endpoint of a copy that has one with a name.
fn endpoint(request: &Request) -> Option<String> {
    let TransferSpec { sources, destination, .. } = &request.spec;
    match sources.first().filter(|source| source.is_remote()).unwrap_or(destination) {
        Location::Named { name, .. } => Some(name.clone()),
        _ => None,
    }
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

/// What is said of a plan that was made for other files than were copied.
fn of_other_files(planned: &Planned, ended: &Ended) -> Option<String> {
    let files = |files: u64, bytes: u64| format!("{}, {}", output::counted(files, "file", "files"), ByteCount(bytes));
    let is_other = is_whole(ended) && ended.error.is_none() && !is_all(planned, ended);
    is_other.then(|| {
        let (planned, moved) = (files(planned.files, planned.bytes as u64), files(ended.files_ok, ended.bytes));
        format!(
            "it was made for {planned}, and {moved} were copied: what it expects does not hold for these; \
             `thalweg plan SRC DST --json` makes another one"
        )
    })
}

/// Nothing was there before, or only rehearsed.
fn is_whole(ended: &Ended) -> bool {
    ended.files_skipped == 0 && ended.resumed_bytes == 0 && !ended.options.is_dry_run && ended.bytes > 0
}

/// As many bytes were moved as were planned for.
fn is_all(planned: &Planned, ended: &Ended) -> bool {
    (ended.bytes as f64 / planned.bytes - 1.0).abs() < SAME_BYTES
}

/// Keeps what came of a plan, where the copy moved what was planned, as it was planned, to where it was planned for. That it cannot
/// be kept fails no copy.
fn keep_outcome(planned: &Planned, request: &Request, ended: &Ended) -> Result<()> {
    let spec = &request.spec;
    let is_free = spec.choice.is_everything() && spec.options.pace.is_none();
    let is_as_planned = is_whole(ended) && is_all(planned, ended) && planned.is_followed_by(spec);
    if !is_free || !is_as_planned || planned.of.is_empty() {
        return Ok(());
    }
    match calibrations::of_destination(&spec.destination)? {
        Some(calibration) if calibration.of == planned.of => {
            calibrations::record(&planned.outcome(ended.bytes, ended.files_ok, ended.seconds))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::plan::prediction::Interval;
    use ::transfer::Direction;
    use mover::{CloseCode, Progress, Refusal, Report};

    #[test]
    fn a_plan_that_was_made_for_other_files_is_named_after_a_copy_that_moved_all() {
        let planned = Planned {
            streams: 4,
            settings: Vec::new(),
            interval: Interval { p5: 1e6, p50: 2e6, p95: 3e6 },
            seconds: 1.0,
            files: 2,
            bytes: 2e6,
            of: "lab".into(),
            limits: Vec::new(),
        };
        let told = |bytes: u64, files_skipped: u64| {
            let spec = TransferSpec::new(vec![Location::Local(b"a".to_vec())], Location::Null);
            let ended = Ended { bytes, files_ok: 3, files_skipped, ..Ended::before_the_start(&spec, Direction::Local) };
            of_other_files(&planned, &ended)
        };
        let other = told(5_000_000, 0).unwrap();
        assert!(other.starts_with("it was made for 2 files, 1.91 MiB, and 3 files, 4.77 MiB were copied"), "{other}");
        assert_eq!([told(2_010_000, 0), told(5_000_000, 1), told(0, 0)], [None, None, None]);
    }

    #[test]
    fn of_a_rehearsal_that_was_broken_off_nothing_is_expected() {
        let ended = |ending: Ending, is_dry_run: bool| {
            let mut spec = TransferSpec::new(vec![Location::Local(b"a".to_vec())], Location::Null);
            spec.options.is_dry_run = is_dry_run;
            let mut ended = Ended::before_the_start(&spec, Direction::Local);
            ended.report = Some(Report::new(&Progress::new(), ending, spec.options, true));
            (ended.files_ok, ended.bytes) = (1, 1);
            ended
        };
        let stopped = Ending::Cancelled { by_peer: false, refusal: Refusal::new(CloseCode::Cancelled, "stopped") };
        assert!(is_rehearsed(&ended(Ending::Finished(Default::default()), true)));
        assert!(!is_rehearsed(&ended(Ending::Finished(Default::default()), false)));
        assert!(!is_rehearsed(&ended(stopped, true)));
    }
}
