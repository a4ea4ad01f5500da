//! `thalweg rm`: files and trees removed where they are.

use crate::args::ssh::SshArgs;
use crate::exit::Result;
use crate::output::{self, counted, list};
use crate::place::{Failures, PATHS_AT_ONCE, Place, Places, in_questions};
use crate::selection::{Chosen, SelectionArgs};
use model::files::{ALL_LEVELS, Doomed, Found, Question, Tally};
use model::{Exit, FailureKind};
use serde_json::json;
use std::ffi::OsString;

/// Remove files, and with -r directories and their contents, here or at an endpoint
///
/// Does not ask for confirmation. The host that has the files removes them, with several threads. A link is removed,
/// not its target. The root of an endpoint, and the path of a limited ticket, cannot be removed. Where
/// files are selected, a tree is listed; selected files are removed unless they change meanwhile, and behind them directories
/// that are empty and that no rule excludes.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg rm lab:results/run7.h5\n\
\x20   thalweg rm -r lab:scratch/old\n\
\x20   thalweg rm -r --older-than 30d --exclude keep/ lab:scratch/")]
pub struct Args {
    /// What to remove: PATH, NAME:PATH or tw://ADDR:PORT/PATH
    #[arg(required = true, value_name = "LOC")]
    locations: Vec<OsString>,
    /// Also directories, with everything below them
    #[arg(short, long)]
    recursive: bool,
    /// A missing file is not an error
    #[arg(short, long)]
    force: bool,
    /// Only errors
    #[arg(short, long, env = "THALWEG_QUIET")]
    quiet: bool,
    /// A JSON object that says what was done
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[command(flatten)]
    ssh: SshArgs,
    #[command(flatten)]
    selection: SelectionArgs,
}

pub fn run(args: Args) -> Result<Exit> {
    let places = Places::new(&args.ssh)?;
    let mut failures = Failures::default();
    let mut total = Tally::default();
    let mut removed = Ok(());
    let chosen = args.selection.chosen()?;
    for group in by_side(places.open_all(&args.locations)?) {
        if !chosen.is_everything {
            let mut choosing = Choosing { args: &args, places: &places, chosen: &chosen, failures, total };
            removed = group.iter().try_for_each(|place| choosing.remove(place));
            (failures, total) = (choosing.failures, choosing.total);
            if removed.is_err() {
                break;
            }
            continue;
        }
        let objects = group.iter().map(|place| Doomed { path: place.path.clone(), version: None }).collect();
        let question = Question::Remove { objects, is_recursive: args.recursive, may_be_directory: false };
        let answer = group[0].ask(&question, &places.interrupt, &mut |record| {
            let is_missing = matches!(record.found, Found::Failed { kind: FailureKind::NotFound, .. });
            // `asked` was checked against the question.
            let place = &group[record.asked as usize];
            if !(args.force && is_missing && record.path.is_empty()) {
                failures.note(place, &record);
            }
            true
        });
        removed = answer.and_then(|answer| {
            total.add(&answer.tally);
            answer.finished().map(drop)
        });
        if removed.is_err() {
            break;
        }
    }
    let ended = removed.and_then(|()| failures.conclude(Exit::Done, "removed"));
    if args.json {
        let code = ended.as_ref().map_or_else(|e| e.exit, |exit| *exit) as i32;
        let line = json!({"files": total.files, "directories": total.directories, "failed": failures.count,
            "code": code});
        output::line(&list::done(line).to_string());
    } else if !args.quiet {
        let files = counted(total.files, "file", "files");
        output::note(&format!("removed {files}, {}", counted(total.directories, "directory", "directories")));
    }
    ended
}

/// Removes what is chosen of trees.
struct Choosing<'a> {
    args: &'a Args,
    places: &'a Places,
    chosen: &'a Chosen,
    failures: Failures,
    total: Tally,
}

impl Choosing<'_> {
    fn remove(&mut self, place: &Place) -> Result<()> {
        let prefix = self.chosen.prefix(place);
        let levels = if self.args.recursive { ALL_LEVELS } else { 0 };
        let question = Question::List { paths: place.paths(), levels, digest: None };
        let (mut files, mut directories, mut removed) = (Vec::new(), Directories::default(), Ok(()));
        let is_quiet_about_missing = self.args.force;
        let answer = place.ask(&question, &self.places.interrupt, &mut |record| {
            let is_missing = matches!(record.found, Found::Failed { kind: FailureKind::NotFound, .. });
            let is_fine = is_missing && is_quiet_about_missing && record.path.is_empty();
            if is_fine || self.failures.note(place, &record) || !self.chosen.takes_record(prefix, &record) {
                return true;
            }
            let Found::Object { status, .. } = record.found else { return true };
            let path = place.below(&record.path);
            if status.is_directory() && self.args.recursive {
                let left = directories.enter(record.path);
                if !left.is_empty() {
                    let before = self.remove_files(place, std::mem::take(&mut files));
                    removed = before.and_then(|()| self.remove_directories(place, &left));
                }
                return removed.is_ok();
            }
            files.push(Doomed { path, version: Some(status.version()).filter(|_| !status.is_directory()) });
            if files.len() == PATHS_AT_ONCE {
                removed = self.remove_files(place, std::mem::take(&mut files));
            }
            removed.is_ok()
        })?;
        answer.finished()?;
        removed?;
        self.remove_files(place, files)?;
        self.remove_directories(place, &directories.leave())
    }

    /// Removes those that are empty; one that is not holds what was left.
    fn remove_directories(&mut self, place: &Place, paths: &[Vec<u8>]) -> Result<()> {
        let objects = paths.iter().map(|path| Doomed { path: place.below(path), version: None }).collect();
        for objects in in_questions(objects, |object: &Doomed| object.path.len()) {
            let question = Question::Remove { objects, is_recursive: false, may_be_directory: true };
            let answer = place.ask(&question, &self.places.interrupt, &mut |_| true)?;
            self.total.directories += answer.finished()?.directories;
        }
        Ok(())
    }

    fn remove_files(&mut self, place: &Place, objects: Vec<Doomed>) -> Result<()> {
        for objects in in_questions(objects, |object| object.path.len()) {
            let paths: Vec<Vec<u8>> = objects.iter().map(|object| object.path.clone()).collect();
            let question = Question::Remove { objects, is_recursive: false, may_be_directory: false };
            let answer = place.ask(&question, &self.places.interrupt, &mut |record| {
                // `asked` was checked against the question.
                self.failures.note(&place.at(paths[record.asked as usize].clone()), &record);
                true
            })?;
            self.total.add(&answer.tally);
            answer.finished()?;
        }
        Ok(())
    }
}

/// Directories of a listing, which go when all in them has gone: those that it is in, and those that it has left, which
/// are removed many at once. Paths are as it tells them.
#[derive(Default)]
struct Directories {
    /// Each lies in the one before.
    entered: Vec<Vec<u8>>,
    /// The innermost first.
    left: Vec<Vec<u8>>,
}

impl Directories {
    /// The listing comes to a directory. Those that it has left, once they are many.
    fn enter(&mut self, path: Vec<u8>) -> Vec<Vec<u8>> {
        while let Some(last) = self.entered.pop_if(|last| !is_below(&path, last)) {
            self.left.push(last);
        }
        self.entered.push(path);
        if self.left.len() < PATHS_AT_ONCE { Vec::new() } else { std::mem::take(&mut self.left) }
    }

    /// The listing is over: all that were not told yet.
    fn leave(mut self) -> Vec<Vec<u8>> {
        self.left.extend(self.entered.into_iter().rev());
        self.left
    }
}

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    directory.is_empty() || path.strip_prefix(directory).is_some_and(|rest| rest.starts_with(b"/"))
}

/// Neighbours of one side together, in questions of bounded length; the order stays.
fn by_side(places: Vec<Place>) -> Vec<Vec<Place>> {
    let mut groups: Vec<Vec<Place>> = Vec::new();
    for place in places {
        match groups.last_mut() {
            Some(last) if last[0].side.is(&place.side) => last.push(place),
            _ => groups.push(vec![place]),
        }
    }
    groups.into_iter().flat_map(|group| in_questions(group, |place| place.path.len())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_goes_behind_those_in_it_and_few_wait_however_many_there_are() {
        const MANY: u32 = 40;
        let below = |above: &[u8], number: u32| [above, format!("/{number:02}").as_bytes()].concat();
        let mut listed = vec![Vec::new()];
        for top in 0..MANY {
            let top = format!("{top:02}").into_bytes();
            listed.push(top.clone());
            listed.extend((0..MANY).map(|number| below(&top, number)));
            // It is no directory of the one before.
            listed.push([&top[..], b"-"].concat());
        }
        let (mut directories, mut gone) = (Directories::default(), Vec::new());
        for path in &listed {
            gone.extend(directories.enter(path.clone()));
            assert!(directories.entered.len() <= 3 && directories.left.len() < PATHS_AT_ONCE + 3);
        }
        gone.extend(directories.leave());
        let place = |path: &Vec<u8>| gone.iter().position(|one| one == path).unwrap();
        assert_eq!(gone.len(), listed.len());
        for top in listed.iter().filter(|path| path.len() == 2) {
            assert!((0..MANY).all(|number| place(&below(top, number)) < place(top)));
        }
        assert_eq!(gone.last(), Some(&Vec::new()), "what was named");
    }
}
