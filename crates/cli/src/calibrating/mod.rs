//! `thalweg calibrate`: measures the parts of a way with real transfers, and keeps the raw runs for plans.
//!
//! Invariants: nothing is measured while others use the processors, unless that is asked for and then said; what was written
//! is removed. A part that cannot be measured is named, and the others are measured all the same.

mod quiet;
mod probe;

use crate::calibrations;
use crate::commands::calibrate::{Args, PROFILES, Profile};
use crate::commands::plan::values::{read_text, shown_rate};
use crate::exit::{Result, error, usage};
use crate::output::{counted, line, note, shown};
use crate::place::Places;
use daemon::{EndpointBook, Paths};
use model::{Exit, Location};
use plan::calibration::{Calibration, Measured, Part, Run, VERSION, bytes_of};
use plan::fit::{Point, SmallFiles};
use probe::Prober;
use std::ffi::OsStr;
use std::path::PathBuf;

pub fn run(args: &Args, profile: Option<&str>) -> Result<Exit> {
    let profile = PROFILES.into_iter().find(|known| profile == Some(known.name)).unwrap_or(PROFILES[0]);
    let (of, destination) = target(&args.of)?;
    if let Some(source) = args.source.as_ref().filter(|source| !source.is_dir()) {
        return Err(usage(format!("{} is not a directory", shown(source)), "--source names one on this host"));
    }
    calibrations::file(&of)?;
    if args.source.is_none() && args.import.iter().any(|(part, _)| *part == Part::Read) {
        let hint = "--source names the directory whose storage was read: reading holds for that storage alone";
        return Err(usage("--import read=FILE needs --source".to_owned(), hint));
    }
    let imported = args.import.iter().map(imported).collect::<Result<Vec<_>>>()?;
    check_imports(&args.import, &destination)?;
    let places = Places::new(&args.ssh)?;
    let busy = quiet::wait(&places.interrupt)?;
    if busy.is_loaded() && !args.despite_load {
        let hint = "run it when the host is quiet, or with --despite-load, which says so in the result";
        return Err(error(Exit::Temporary, format!("not measured: {}", busy.words()), hint));
    }
    let mut prober = Prober::new(&places, profile, destination);
    if busy.is_loaded() {
        prober.notes.push(format!("measured although {}", busy.words()));
    }
    for (measured, note) in imported {
        prober.notes.push(note);
        prober.measured.push(measured);
    }
    let ended = prober.measure(args.source.as_deref());
    prober.clean();
    ended?;
    let after = quiet::look();
    if after.is_loaded() {
        prober.notes.push(format!("at the end {}", after.words()));
    }
    let absolute = |source: &PathBuf| shown(std::fs::canonicalize(source).unwrap_or_else(|_| source.clone()));
    let source = args.source.as_ref().map(absolute);
    let calibration = calibration(of, source, profile, prober);
    let file = calibrations::keep(&calibration)?;
    if args.json {
        line(&serde_json::to_string(&calibration).expect("plain values have a JSON form"));
    } else {
        show(&calibration);
        line(&format!("kept in {}", shown(&file)));
    }
    Ok(Exit::Done)
}

/// Refuses figures that no part of this way has, or that a part has twice.
fn check_imports(imports: &[(Part, PathBuf)], destination: &Location) -> Result<()> {
    for (nth, (part, _)) in imports.iter().enumerate() {
        if imports[..nth].iter().any(|(other, _)| other == part) {
            return Err(usage(format!("--import names {} twice", part.word()), "give each part one file"));
        }
        if *part == Part::Network && !destination.is_remote() {
            let what = "--import network=FILE: no network leads to a directory of this host";
            return Err(usage(what, "leave it out, or calibrate an endpoint"));
        }
    }
    Ok(())
}

/// What another tool measured of a part, and a note that says so.
fn imported((part, file): &(Part, PathBuf)) -> Result<(Measured, String)> {
    let text = read_text(file)?;
    let (tool, runs) = plan::calibration::import(*part, &text)
        .map_err(|why| usage(format!("{}: {why}", shown(file)), "omit --import to have the part measured"))?;
    let note = format!("{} was not measured but taken from what {tool} printed ({})", part.word(), shown(file));
    Ok((Measured { part: *part, runs, is_imported: true }, note))
}

/// What is calibrated by which name, and the directory there that may be written to.
fn target(of: &OsStr) -> Result<(String, Location)> {
    let missing = |what: String| usage(what, "name an endpoint that was added (`thalweg endpoint ls`), or a directory");
    let name = of.to_str().map(|name| name.strip_suffix(':').unwrap_or(name)).unwrap_or_default();
    let book = EndpointBook::new(Paths::from_env()?.endpoints());
    let is_endpoint = |name: &str| !name.contains('/') && !name.is_empty() && book.get(name).is_ok();
    if is_endpoint(name) {
        return Ok((name.to_owned(), crate::args::values::location(OsStr::new(&format!("{name}:")))?));
    }
    let location = crate::args::values::location(of)?;
    if location.is_remote() {
        return match &location {
            Location::Named { name, path } if is_endpoint(name) => Ok((calibrations::name_at(name, path), location)),
            _ => Err(missing(format!("{} is not an endpoint that was added", shown(of)))),
        };
    }
    if !matches!(location, Location::Local(_)) {
        return Err(missing(format!("{} is neither an endpoint nor a directory", shown(of))));
    }
    let path = std::fs::canonicalize(of).map_err(|e| crate::exit::of_file("find", of, &e))?;
    if !path.is_dir() {
        return Err(missing(format!("{} is neither an endpoint nor a directory", shown(of))));
    }
    Ok((shown(&path), crate::args::values::location(path.as_os_str())?))
}

fn calibration(of: String, source: Option<String>, profile: Profile, prober: Prober) -> Calibration {
    let mut calibration = Calibration {
        v: VERSION,
        of,
        source,
        circumstances: calibrations::circumstances(profile.name),
        start_seconds: prober.start_seconds,
        usual_streams: prober.usual_streams,
        rtt_seconds: prober.rtt_seconds,
        measured: prober.measured,
        small_files: None,
        engines: prober.engines,
        sizes: prober.sizes,
        notes: prober.notes,
    };
    let point = |run: &Run| Point {
        at: run.file_bytes as f64,
        bytes_per_second: bytes_of(run) / calibration.steady_seconds(Part::Write, run),
    };
    let points: Vec<Point> = calibration.sizes.iter().map(point).collect();
    calibration.small_files = SmallFiles::fit(&points).ok().map(Into::into);
    calibration
}

fn show(calibration: &Calibration) {
    line(&format!("start     {:.3} s before the first byte", calibration.start()));
    for part in Part::ALL {
        let runs = calibration.runs(part);
        let rate = |run: &Run| {
            let amount = if part == Part::Metadata { run.files as f64 } else { bytes_of(run) };
            amount / calibration.steady_seconds(part, run)
        };
        let Some(best) = runs.iter().max_by(|a, b| rate(a).total_cmp(&rate(b))) else { continue };
        let shown = match part {
            Part::Metadata => format!("{:.0} files/s", rate(best)),
            _ => shown_rate(rate(best)),
        };
        let streams = counted(best.streams.into(), "stream", "streams");
        line(&format!("{:<9} {shown} with {streams} (tried: {})", part.word(), tried(runs)));
    }
    if let Some(curve) = &calibration.small_files {
        let each = curve.a_seconds * 1e6;
        line(&format!("each file {each:.0} us beside its bytes; the two overlap with p = {} (1: not at all)", curve.p));
    }
    for part in calibration.unstable() {
        note(&format!(
            "note: {} is unstable: runs with the same settings differ by more than 8 %; repeat with --profile standard",
            part.word()
        ));
    }
    calibration.notes.iter().for_each(|text| note(&format!("note: {text}")));
}

fn tried(runs: &[Run]) -> String {
    let mut all: Vec<u32> = runs.iter().map(|run| run.streams).collect();
    all.sort_unstable();
    all.dedup();
    all.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
