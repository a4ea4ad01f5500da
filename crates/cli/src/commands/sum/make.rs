//! Writes a manifest or a list of the files below locations.

use super::args::{Args, Format};
use crate::exit::{Result, usage};
use crate::output::list::{self, Lines};
use crate::place::{Failures, Places, join};
use crate::selection::Chosen;
use model::files::{ALL_LEVELS, FileKind, Found, Question, SumAlgorithm};
use model::name::Escaped;
use model::{Exit, manifest, sum_list};
use std::ffi::OsString;

pub fn make(args: &Args, places: &Places, chosen: &Chosen, locations: &[OsString]) -> Result<Exit> {
    let algorithm = args.digest.unwrap_or(SumAlgorithm::Crc64Nvme);
    let manifest_digest = match (args.format, algorithm.in_chunks()) {
        (Format::Manifest, None) => {
            let message = format!("a manifest cannot have {algorithm} digests");
            return Err(usage(message, "omit --format, or choose crc64nvme or blake3"));
        }
        (Format::List, _) => None,
        // NUL is no end of a manifest's line.
        (Format::Auto, digest) => digest.filter(|_| !args.zero),
        (Format::Manifest, digest) => digest,
    };
    let opened = places.open_all(locations)?;
    let mut lines = Lines::new();
    // Not before something was answered: a first line alone would pass for the list of an empty tree.
    let mut first_line = manifest_digest.filter(|_| !args.json).map(manifest::first_line);
    let mut failures = Failures::default();
    for place in &opened {
        let prefix = chosen.prefix(place);
        let question = Question::List { paths: place.paths(), levels: ALL_LEVELS, digest: Some(algorithm) };
        let answer = place.ask(&question, &places.interrupt, &mut |record| {
            if failures.note(place, &record) {
                return !args.json || lines.json(&list::record(&place.shown(&record.path), &record));
            }
            let Found::Object { status, sum: Some(sum) } = &record.found else { return true };
            if status.kind != FileKind::File || !chosen.takes_record(prefix, &record) {
                return true;
            }
            let path = join(prefix, &record.path);
            if let Some(line) = first_line.take() {
                lines.bytes(line.as_bytes());
            }
            match manifest_digest {
                _ if args.json => lines.json(&list::record(&Escaped(&path).to_string(), &record)),
                Some(_) => lines.bytes(manifest::line(sum, status.size_bytes, &path).as_bytes()),
                // A terminal must not be controlled by a name; who reads with a program gets the bytes.
                None if lines.is_terminal() => lines.text(&format!("{sum}  {}", Escaped(&path))),
                None => lines.bytes(&sum_list::line(sum, &path, args.zero)),
            }
        })?;
        lines.flush();
        answer.finished()?;
    }
    if let Some(line) = first_line.filter(|_| failures.count == 0) {
        lines.bytes(line.as_bytes());
        lines.flush();
    }
    failures.conclude(Exit::Done, "read: the list is not complete")
}
