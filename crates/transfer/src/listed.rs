//! A catalogue as the source of a transfer: it lists, and tells what is in what it lists, but has no content of its own. A long one is
//! gone through slice by slice.
//!
//! Invariant: of a slice both sides can describe everything before anything of it is settled. A holder lists in an order of its own: with
//! more, each side could wait for what the other one has yet to describe.
//!
//! Not here: who brings the content (`replicas`), and why the catalogue is believed.

use crate::error::{Error, Kind};
use model::name::Escaped;
use model::selection::{self, LISTED_BYTES_MAX};
use model::set::{Catalogue, SetFile};
use model::{Digest, Entry, FailureKind, Generation, Name, ObjectId, Timestamp, VersionToken};
use mover::receiver::{Proofs, Tally};
use std::sync::Arc;
use store::{DirectoryKey, End, Found, Source, SourceFile, SourceLane, SourceObject};

/// What files and directories of a set may do: times and content are kept, rights are this host's own.
const FILE_MODE: u32 = 0o666;
const DIRECTORY_MODE: u32 = 0o777;
/// Files of a slice: half of the entries that may be open, so that what a holder has besides leaves room.
const SLICE_FILES: usize = if cfg!(test) { 4 } else { 32_768 };
/// Of the paths that it is named by.
const SLICE_BYTES: usize = if cfg!(test) { 64 } else { LISTED_BYTES_MAX };

pub struct Listed(pub Arc<Catalogue>);

/// What of a catalogue is fetched at once.
pub struct Slice {
    pub catalogue: Arc<Catalogue>,
    /// What it is to those who have it, where it is not all.
    pub listed: Option<selection::Listed>,
    /// The first file behind it.
    pub end: usize,
}

impl Slice {
    /// The one that begins with this file. A directory with all that the catalogue has in it is named as a whole.
    pub fn of(all: &Arc<Catalogue>, first: usize) -> Slice {
        let files = all.files();
        if files.len() <= SLICE_FILES {
            return Slice { catalogue: all.clone(), listed: None, end: files.len() };
        }
        let (mut paths, mut bytes, mut end) = (Vec::new(), 0, first);
        while end < files.len() {
            let (path, next) = whole(files, end, first + SLICE_FILES);
            bytes += path.len();
            if end > first && (next > first + SLICE_FILES || bytes > SLICE_BYTES) {
                break;
            }
            paths.push(path.to_vec());
            end = next;
        }
        let listed = selection::Listed::new(paths).expect("paths of a catalogue are made of names");
        Slice { catalogue: Arc::new(part(all, first..end)), listed: Some(listed), end }
    }
}

/// The largest directory that begins with a file and is at its end by `end`, or the file; and the first file behind it.
fn whole(files: &[SetFile], at: usize, end: usize) -> (&[u8], usize) {
    let path = &*files[at].path;
    for slash in (0..path.len()).filter(|index| path[*index] == b'/') {
        let is_in = |file: &SetFile| file.path.starts_with(&path[..=slash]);
        let next = at + files[at..].partition_point(is_in);
        if next <= end && (at == 0 || !is_in(&files[at - 1])) {
            return (&path[..slash], next);
        }
    }
    (path, at + 1)
}

/// A catalogue of some of the files, in their order.
pub fn part(all: &Catalogue, numbers: impl IntoIterator<Item = usize>) -> Catalogue {
    let mut part = Catalogue::new(all.chunk_bytes);
    for number in numbers {
        part.add(all.files()[number].clone(), &all.tree_of(number)).expect("it was in order in the whole one");
    }
    part
}

impl Proofs for Listed {
    fn paths(&self, each: &mut dyn FnMut(&[u8])) {
        self.0.files().iter().for_each(|file| each(&file.path));
    }

    fn digests(&self, file: usize, first: u64, count: u64) -> Vec<Digest> {
        self.0.digests(file, first, count)
    }
}

/// The directories above the file that was listed last, with their ids: each begins its files' paths.
#[derive(Default)]
struct Above<'a>(Vec<(&'a [u8], ObjectId)>);

impl Source for Listed {
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> store::Result<()> {
        let mut above = Above::default();
        let mut id = 0;
        for (number, file) in self.0.files().iter().enumerate() {
            let path = &*file.path;
            above.0.retain(|(directory, _)| path.strip_prefix(*directory).is_some_and(|rest| rest.starts_with(b"/")));
            let from = above.0.last().map_or(0, |(directory, _)| directory.len() + 1);
            let ends = (from..path.len()).filter(|at| path[*at] == b'/');
            for end in ends {
                id += 1;
                let begin = above.0.last().map_or(0, |(directory, _)| directory.len() + 1);
                let parent = above.0.last().map_or(ObjectId::ROOT, |(_, id)| *id);
                // What is above a file is as old as its first file.
                let generation = Generation { modified: generation(file).modified, ..Generation::default() };
                let entry = entry(ObjectId(id), parent, &path[begin..end], model::Kind::Directory, generation)?;
                above.0.push((&path[..end], ObjectId(id)));
                if !emit(object(entry, number)) {
                    return Ok(());
                }
            }
            id += 1;
            let begin = above.0.last().map_or(0, |(directory, _)| directory.len() + 1);
            let parent = above.0.last().map_or(ObjectId::ROOT, |(_, id)| *id);
            let entry = entry(ObjectId(id), parent, &path[begin..], model::Kind::File, generation(file))?;
            if !emit(object(entry, number)) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        Box::new(NoContent)
    }

    /// Of the file itself, or of the first file in a directory.
    fn path(&self, object: &SourceObject) -> Vec<u8> {
        self.0.files().get(object.directory.0 as usize).map_or_else(Vec::new, |file| file.path.to_vec())
    }

    fn look_again(&self, object: &SourceObject) -> store::Result<SourceObject> {
        Ok(object.clone())
    }
}

fn generation(file: &SetFile) -> Generation {
    Generation {
        size_bytes: file.size_bytes,
        modified: Timestamp { seconds: file.modified, nanoseconds: 0 },
        version: VersionToken::of_tag(&file.root, 0),
    }
}

fn entry(
    id: ObjectId,
    parent: ObjectId,
    name: &[u8],
    kind: model::Kind,
    generation: Generation,
) -> store::Result<Entry> {
    let mode = if kind == model::Kind::Directory { DIRECTORY_MODE } else { FILE_MODE };
    let name =
        Name::new(name).map_err(|e| store::Error::of_kind(FailureKind::NameRefused, "list", name, &e.to_string()))?;
    Ok(Entry { id, parent, name, kind, mode, generation, attributes: None })
}

fn object(entry: Entry, file: usize) -> Found {
    Found::Object(SourceObject { entry, directory: DirectoryKey(file as u64), end: End::Known })
}

/// What a catalogue answers to whoever wants to read.
struct NoContent;

fn no_content(object: &SourceObject) -> store::Error {
    let name = object.entry.name.as_bytes();
    store::Error::of_kind(FailureKind::ReadError, "read", name, "a catalogue has no content")
}

impl SourceLane for NoContent {
    fn read_whole(&mut self, object: &SourceObject, _: &mut [u8]) -> store::Result<(usize, Generation)> {
        Err(no_content(object))
    }

    fn open(&mut self, object: &SourceObject) -> store::Result<Arc<dyn SourceFile>> {
        Err(no_content(object))
    }
}

/// Why the attempt could not go on, where every holder was dropped. Another one is worth it as long as one of them may come back.
pub fn nobody_left(tallies: &[(String, Tally)]) -> Option<Error> {
    let dropped: Option<Vec<_>> =
        tallies.iter().map(|(name, tally)| tally.dropped.as_ref().map(|why| (name, why))).collect();
    let whys: Vec<_> = dropped?
        .into_iter()
        .map(|(name, why)| {
            let (name, why) = (Escaped(name.as_bytes()).to_string(), Escaped(why.as_bytes()).to_string());
            if why.starts_with(&name) { why } else { format!("{name}: {why}") }
        })
        .collect();
    let is_liar = tallies.iter().any(|(_, tally)| tally.bad_chunks > 0);
    let (kind, advice) = match tallies.iter().all(|(_, tally)| tally.is_for_good) {
        true if is_liar => (Kind::Integrity, "what is verified is kept; name another holder with --from"),
        true => {
            (Kind::Unreachable, "name another holder with --from; the same command continues where this one stopped")
        }
        false => (Kind::Temporary, "the same command continues where this one stopped"),
    };
    Some(Error::new(kind, "", format!("no holder is left: {}", whys.join("; "))).advice(advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue(paths: &[impl AsRef<str>]) -> Arc<Catalogue> {
        let mut catalogue = Catalogue::new(1 << 20);
        for path in paths {
            let path = path.as_ref().as_bytes().into();
            catalogue.add(SetFile { path, size_bytes: 1, modified: 5, root: [0; 32] }, &[]).unwrap();
        }
        Arc::new(catalogue)
    }

    #[test]
    fn directories_come_before_what_is_in_them_and_once() {
        let mut found = Vec::new();
        let source = Listed(catalogue(&["a", "b-c/x", "b/c/d", "b/c/e", "b/f", "g/h"]));
        let mut names = std::collections::HashMap::from([(ObjectId::ROOT, String::new())]);
        let scanned = source.scan(&mut |one| {
            let Found::Object(object) = one else { panic!("a catalogue has no failures") };
            let path = format!("{}/{}", names[&object.entry.parent], object.entry.name);
            names.insert(object.entry.id, path.clone());
            found.push(path);
            true
        });
        scanned.unwrap();
        assert_eq!(found, ["/a", "/b-c", "/b-c/x", "/b", "/b/c", "/b/c/d", "/b/c/e", "/b/f", "/g", "/g/h"]);
    }

    /// What each slice is named by, and the files in it.
    fn slices(all: &Arc<Catalogue>) -> Vec<(Vec<String>, usize)> {
        let (mut slices, mut first) = (Vec::new(), 0);
        while first < all.files().len() {
            let slice = Slice::of(all, first);
            let paths = slice.listed.map_or_else(Vec::new, |listed| listed.paths);
            assert_eq!(slice.catalogue.files(), &all.files()[first..slice.end]);
            slices.push((paths.into_iter().map(|path| String::from_utf8(path).unwrap()).collect(), slice.end - first));
            first = slice.end;
        }
        slices
    }

    #[test]
    fn a_catalogue_is_gone_through_in_slices_that_name_directories_as_a_whole_where_all_of_them_is_in_it() {
        let few = catalogue(&["a", "b/c", "b/d", "e"]);
        assert_eq!(slices(&few), [(Vec::<String>::new(), 4)], "one that is short is not cut");
        let many = catalogue(&["a", "b/c/1", "b/c/2", "b/d", "e/1", "e/2", "e/3", "e/4", "e/5", "e/6/7", "f"]);
        let named = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
        let expected =
            [(named(&["a", "b"]), 4), (named(&["e/1", "e/2", "e/3", "e/4"]), 4), (named(&["e/5", "e/6", "f"]), 3)];
        assert_eq!(slices(&many), expected);
        // What is named goes to an endpoint: it is bounded too.
        let long = catalogue(&["d/a", "d/b", "d/c", "d/d", "d/e", "e"].map(|path| format!("{path}{}", "-".repeat(27))));
        assert_eq!(slices(&long).iter().map(|(_, files)| *files).collect::<Vec<_>>(), [2, 2, 2]);
    }

    #[test]
    fn without_a_holder_the_attempt_is_worth_another_one_unless_none_of_them_may_come_back() {
        let gone = |is_for_good, bad_chunks| {
            let dropped = Some("the connection was lost".to_owned());
            ("lab".to_owned(), Tally { dropped, is_for_good, bad_chunks, ..Tally::default() })
        };
        let kind = |tallies: &[(String, Tally)]| nobody_left(tallies).map(|error| error.kind);
        assert_eq!(kind(&[gone(false, 0)]), Some(Kind::Temporary));
        assert_eq!(kind(&[gone(true, 3), gone(false, 0)]), Some(Kind::Temporary));
        assert_eq!(kind(&[gone(true, 0)]), Some(Kind::Unreachable));
        assert_eq!(kind(&[gone(true, 3), gone(true, 0)]), Some(Kind::Integrity));
        assert_eq!(kind(&[gone(true, 3), ("kit".to_owned(), Tally::default())]), None);
    }
}
