//! Who has a set: the directories and endpoints that the command names, and those that the last note names and this host knows.
//!
//! Where an endpoint is named without a directory, the set is looked for under its name, where caches have it, and then among all
//! that lie a few levels below the root.
//!
//! Invariant: an endpoint that is away, or has nothing of the set, keeps nobody from the others.

use crate::args::values;
use crate::exit::{Error, Result, error, usage};
use crate::output;
use crate::place::Places;
use daemon::EndpointBook;
use daemon::sets::Kept;
use model::files::{Found, Question};
use model::name::Escaped;
use model::set::DIRECTORY;
use model::{Exit, FailureKind, Location};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// How far below the root of an endpoint sets are looked for, in how many names, and how many are looked at.
const LEVELS: u32 = 4;
const NAMES_MAX: usize = 200_000;
const SETS_MAX: usize = 64;
/// Directories of one endpoint that are read at once.
const DIRECTORIES_MAX: usize = 4;
/// What stands for the name of a set where a digest is asked for.
pub const BY_DIGEST: &str = "by-digest";

/// Whether a directory holds the set that is asked for, or why that is not to be found out.
type HasIt<'a> = &'a dyn Fn(&Location) -> Result<()>;

pub fn find(
    named: &[OsString],
    kept: &Kept,
    book: &EndpointBook,
    places: &Places,
    has_it: HasIt<'_>,
) -> Result<Vec<Location>> {
    let (mut holders, mut failed) = (Vec::new(), Vec::new());
    for from in named {
        let location = read(from)?;
        if !location.path().is_empty() {
            holders.push(location);
            continue;
        }
        match search(&location, kept.name(), places, has_it) {
            Ok(found) => holders.extend(found),
            Err(e) => failed.push(e),
        }
    }
    let mirrors = kept.note()?.map(|(_, note)| note.mirrors).unwrap_or_default();
    let known = if mirrors.is_empty() { Vec::new() } else { book.list()? };
    for mirror in mirrors {
        let Some(endpoint) = known.iter().find(|known| known.pin == mirror.pin) else { continue };
        let is_this = |holder: &Location| matches!(holder, Location::Named { name, .. } if *name == endpoint.name);
        if !holders.iter().any(is_this) {
            let location = Location::Named { name: endpoint.name.clone(), path: Vec::new() };
            // One that does not answer, or has it no more, is not worth a word.
            holders.extend(search(&location, kept.name(), places, has_it).unwrap_or_default());
        }
    }
    if holders.is_empty() {
        return Err(most_telling(failed));
    }
    failed.iter().for_each(|e| output::note(&format!("not taken: {}", e.message)));
    Ok(holders)
}

/// Of what came of the endpoints that were named. Somebody who refuses it, or is not to be trusted, has it at least.
fn most_telling(mut failed: Vec<Error>) -> Error {
    if failed.is_empty() {
        return usage("no known endpoint has this set", "name an endpoint, or the set's directory there, with --from");
    }
    let says_more = |e: &Error| matches!(e.exit, Exit::Authentication | Exit::Refused);
    failed.swap_remove(failed.iter().position(says_more).unwrap_or(0))
}

fn read(from: &OsStr) -> Result<Location> {
    let is_name = !from.as_bytes().iter().any(|byte| b":/".contains(byte));
    let text = if is_name { OsString::from_iter([from, OsStr::new(":")]) } else { from.to_owned() };
    let mut location = values::location(&text)?;
    if !location.is_remote() {
        return Err(usage(
            format!("{location} is no endpoint or host"),
            "name an endpoint, or the set's directory there, such as lab:cmip3",
        ));
    }
    location.name_contents();
    Ok(location)
}

/// The directories of an endpoint that hold the set.
fn search(endpoint: &Location, set: &str, places: &Places, has_it: HasIt<'_>) -> Result<Vec<Location>> {
    let mut by_name = endpoint.clone();
    set.split('/').for_each(|part| by_name.go_below(part.as_bytes()));
    let told = match set {
        BY_DIGEST => None,
        _ => match has_it(&by_name) {
            Ok(()) => return Ok(vec![by_name]),
            Err(e) => Some(e),
        },
    };
    // A cache says more about the set than about its files.
    let found = listed(endpoint, places).map_err(|e| told.unwrap_or(e))?;
    let at = |path: Vec<u8>| {
        let mut location = endpoint.clone();
        if let Location::Named { path: below, .. } | Location::Address { path: below, .. } = &mut location {
            *below = path;
        }
        location
    };
    let found: Vec<_> = found.into_iter().map(at).collect();
    let (count, is_only) = (found.len(), found.len() == 1);
    // Of a single one the reason is told later, if it is another set.
    let is_holder = |holder: &Location| is_only || has_it(holder).is_ok();
    let holders: Vec<_> = found.into_iter().filter(is_holder).take(DIRECTORIES_MAX).collect();
    if holders.is_empty() {
        let text = match count {
            0 => format!("{endpoint} holds no set within {LEVELS} levels of its root"),
            _ => format!("none of the {count} sets of {endpoint} is this one, or is to be trusted"),
        };
        return Err(error(Exit::SourceFileNotFound, text, "name the set's directory there with --from NAME:PATH"));
    }
    Ok(holders)
}

/// The directories of an endpoint that hold sets.
fn listed(endpoint: &Location, places: &Places) -> Result<Vec<Vec<u8>>> {
    let place = places.place(endpoint)?;
    let question = Question::List { paths: place.paths(), levels: LEVELS, digest: None };
    let (mut found, mut names, mut closed) = (Vec::new(), 0, None);
    let answer = place.ask(&question, &places.interrupt, &mut |record| {
        names += 1;
        if let Some(above) = record.path.strip_suffix(DIRECTORY.as_bytes())
            && (above.is_empty() || above.ends_with(b"/"))
        {
            found.push(above.to_vec());
        }
        if let Found::Failed { kind: FailureKind::Permission, text } = &record.found {
            closed.get_or_insert_with(|| (record.path.clone(), text.clone()));
        }
        names < NAMES_MAX && found.len() < SETS_MAX
    })?;
    answer.finished()?;
    match closed.filter(|_| found.is_empty()) {
        Some((path, text)) => {
            let text = format!("{}: {}", place.shown(&path), Escaped(text.as_bytes()));
            Err(error(Exit::Refused, text, "name the set's directory there with --from NAME:PATH if it is another one"))
        }
        None => Ok(found),
    }
}
