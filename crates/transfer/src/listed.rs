//! A catalogue as the source of a transfer: it lists, and tells what is in what it lists, but has no content of its own.
//!
//! Not here: who brings the content (`replicas`), and why the catalogue is believed.

use crate::error::{Error, Kind};
use model::name::Escaped;
use model::set::{Catalogue, SetFile};
use model::{Digest, Entry, FailureKind, Generation, Name, ObjectId, Timestamp, VersionToken};
use mover::receiver::{Proofs, Tally};
use std::sync::Arc;
use store::{DirectoryKey, End, Found, Source, SourceFile, SourceLane, SourceObject};

/// What files and directories of a set may do: times and content are kept, rights are this host's own.
const FILE_MODE: u32 = 0o666;
const DIRECTORY_MODE: u32 = 0o777;

pub struct Listed(pub Arc<Catalogue>);

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

/// Why the attempt could not go on, where every holder was dropped.
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
    let (kind, advice) = match is_liar {
        true => (Kind::Integrity, "what is verified is kept; name another holder with --from"),
        false => {
            (Kind::Unreachable, "name another holder with --from; the same command continues where this one stopped")
        }
    };
    Some(Error::new(kind, "", format!("no holder is left: {}", whys.join("; "))).advice(advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_before_what_is_in_them_and_once() {
        let mut catalogue = Catalogue::new(1 << 20);
        for path in ["a", "b-c/x", "b/c/d", "b/c/e", "b/f", "g/h"] {
            let path = path.as_bytes().into();
            catalogue.add(SetFile { path, size_bytes: 1, modified: 5, root: [0; 32] }, &[]).unwrap();
        }
        let mut found = Vec::new();
        let source = Listed(Arc::new(catalogue));
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
}
