//! The note and the catalogue of a set, found at its holders: each page from whoever has it, believed for its digest.
//!
//! Invariants: what a holder sends is bounded before it is asked for and compared before it is kept; pages that name one another
//! are followed only so far, and none twice. What one holder does, or leaves undone, keeps nobody from the next one.

use super::kept::{Kept, Trust};
use crate::error::{Error, Result};
use crate::trust::PrivateDirectory;
use model::name::Escaped;
use model::selection::Listed;
use model::set::catalogue::{BYTES_MAX, DEPTH_MAX, FILES_MAX, LINES_MAX, PAGE_BYTES_MAX, PageLine, tree_bytes};
use model::set::signed::NOTE_BYTES_MAX;
use model::set::{Catalogue, DIRECTORY, NOTE, Note, Page, page_name, tree_name};
use model::{Digest, DigestAlgorithm, Exit, Location, TransferSpec};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;
use transfer::{Means, Transfer};

/// A holder that has not brought what it was asked for after this time, and so much more for what it is to bring, is left.
const PATIENCE: Duration = Duration::from_secs(60);
const SLOWEST_BYTES_PER_SECOND: u64 = 64 << 10;

pub struct Finder<'a> {
    pub kept: &'a Kept,
    /// The set's directory at each.
    pub holders: &'a [Location],
    /// What a transfer from them is carried out with.
    pub means: &'a dyn Fn() -> Means,
}

/// The latest note, as it was brought.
pub struct Latest {
    pub note: Note,
    pub bytes: Vec<u8>,
    /// Why others were not to be trusted, or not to be had.
    pub refused: Vec<Error>,
}

type Check<'a> = Box<dyn Fn(&[u8]) -> std::result::Result<(), String> + 'a>;

/// Where a holder's files come first: a directory that no other holder has written to. It goes with this.
struct Incoming {
    directory: PrivateDirectory,
    path: PathBuf,
}

impl Incoming {
    fn read(&self, name: &str, bytes_max: u64) -> Option<Vec<u8>> {
        self.directory.read(OsStr::new(name), bytes_max.saturating_add(1)).ok()
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A file that is looked for, and what makes it the right one.
struct Sought<'a> {
    name: String,
    bytes_max: u64,
    check: Check<'a>,
}

impl Finder<'_> {
    /// The latest note that a holder has; it is kept.
    pub fn note(&self, trust: &Trust) -> Result<Latest> {
        // Of two keys that nobody here knows none is better than the other.
        let is_new = *trust == Trust::First && self.kept.note()?.is_none();
        let mut refused = Vec::new();
        let mut latest: Option<(Note, Vec<u8>)> = None;
        for holder in self.holders {
            match self.judged(holder, trust) {
                Ok((note, _)) if is_new && latest.as_ref().is_some_and(|(other, _)| other.key != note.key) => {
                    return Err(strangers(&note.name));
                }
                Ok(found) if latest.as_ref().is_none_or(|(note, _)| note.serial < found.0.serial) => {
                    latest = Some(found)
                }
                Ok(_) => {}
                Err(e) => refused.push(e),
            }
        }
        match latest {
            Some((_, bytes)) => {
                let lock = self.kept.lock()?;
                // Somebody else may have kept a later one meanwhile.
                let note = self.kept.judge(&bytes, trust)?;
                self.kept.keep(&bytes, &lock)?;
                Ok(Latest { note, bytes, refused })
            }
            // Somebody who is not to be trusted is worth more words than somebody who is not there.
            None => {
                let at = refused.iter().position(|e| e.exit == Exit::Authentication).unwrap_or(0);
                Err(refused.into_iter().nth(at).expect("every holder brought a note or an error"))
            }
        }
    }

    /// A holder's note, if it is to be trusted. It is not kept: whoever is looked at first is no better than the next one.
    pub fn judged(&self, holder: &Location, trust: &Trust) -> Result<(Note, Vec<u8>)> {
        let bytes = self.note_bytes(holder)??;
        Ok((self.kept.judge(&bytes, trust)?, bytes))
    }

    /// What a holder shows as the note of its set, which nobody has judged; or why there is none.
    pub fn note_bytes(&self, holder: &Location) -> Result<Result<Vec<u8>>> {
        let incoming = self.incoming()?;
        let brought = self.bring(holder, &incoming, vec![NOTE.to_owned()], NOTE_BYTES_MAX as u64);
        let bytes = incoming.read(NOTE, NOTE_BYTES_MAX as u64);
        Ok(bytes.ok_or_else(|| brought.err().unwrap_or_else(|| no_set(holder))))
    }

    /// Whether a holder has the first page of a catalogue, or why that is not to be found out. What it has is kept.
    pub fn has_page(&self, holder: &Location, digest: [u8; 32]) -> Result<()> {
        let (incoming, name) = (self.incoming()?, page_name(&digest));
        let brought = self.bring(holder, &incoming, vec![name.clone()], PAGE_BYTES_MAX);
        match incoming.read(&name, PAGE_BYTES_MAX).filter(|bytes| is_page(&digest, bytes)) {
            Some(bytes) => self.kept.write(&name, &bytes),
            None => Err(brought.err().unwrap_or_else(|| no_catalogue(holder))),
        }
    }

    /// The catalogue of this digest, and what its files are called.
    pub fn catalogue(&self, root: PageLine) -> Result<(Catalogue, Vec<String>)> {
        let (mut level, mut names) = (vec![root], Vec::new());
        let mut seen: HashSet<[u8; 32]> = HashSet::from([root.digest]);
        let mut bytes_left = BYTES_MAX;
        for _ in 0..=DEPTH_MAX {
            let (mut below, mut catalogue) = (Vec::new(), None);
            let bytes = level.iter().fold(0, |sum: u64, line| sum.saturating_add(line.bytes));
            bytes_left = bytes_left.checked_sub(bytes).ok_or_else(|| bad("it is longer than this program holds"))?;
            self.pages(&level)?;
            for line in &level {
                names.push(page_name(&line.digest));
                match self.page(line)? {
                    Page::Pages(lines) if catalogue.is_none() => {
                        let is_new = lines.iter().all(|line| seen.insert(line.digest));
                        if !is_new || seen.len() as u64 > FILES_MAX / LINES_MAX as u64 + LINES_MAX as u64 {
                            return Err(bad("a catalogue names a page twice, or too many pages"));
                        }
                        below.extend(lines);
                    }
                    Page::Files { chunk_bytes, files } if below.is_empty() => {
                        let whole = catalogue.get_or_insert_with(|| Catalogue::new(chunk_bytes));
                        let bytes = tree_bytes(&files, chunk_bytes).filter(|_| chunk_bytes == whole.chunk_bytes);
                        let bytes = bytes.ok_or_else(|| bad("a page of the catalogue does not fit the others"))?;
                        let tree = if bytes > 0 { self.tree(line, bytes)? } else { Vec::new() };
                        names.extend((bytes > 0).then(|| tree_name(&line.digest)));
                        whole.add_page(files, &tree).map_err(|why| bad(&why))?;
                    }
                    _ => return Err(bad("a catalogue names pages and files side by side")),
                }
            }
            if let Some(catalogue) = catalogue {
                return Ok((catalogue, names));
            }
            level = below;
        }
        Err(bad("a catalogue names catalogues without end"))
    }

    /// Gets the pages that are not kept yet.
    fn pages(&self, lines: &[PageLine]) -> Result<()> {
        let sought = |line: &PageLine| {
            let (digest, bytes) = (line.digest, line.bytes);
            let check = move |content: &[u8]| match is_page(&digest, content) {
                true => Ok(()),
                false => Err("it has another digest than the one that it is called by".to_owned()),
            };
            Sought { name: page_name(&digest), bytes_max: bytes, check: Box::new(check) }
        };
        self.seek(lines.iter().map(sought).collect())
    }

    fn page(&self, line: &PageLine) -> Result<Page> {
        let bytes = self.kept.read(&page_name(&line.digest), line.bytes)?.unwrap_or_default();
        Page::parse(&bytes).map_err(|why| bad(&why))
    }

    fn tree(&self, line: &PageLine, bytes: u64) -> Result<Vec<u8>> {
        let Page::Files { chunk_bytes, files } = self.page(line)? else { return Ok(Vec::new()) };
        let check = move |content: &[u8]| Catalogue::new(chunk_bytes).add_page(files.clone(), content);
        let name = tree_name(&line.digest);
        self.seek(vec![Sought { name: name.clone(), bytes_max: bytes, check: Box::new(check) }])?;
        self.kept.read(&name, bytes)?.ok_or_else(|| bad("the digests of its chunks are gone"))
    }

    /// Gets what is not kept yet, or not as it should be, from one holder after the other.
    fn seek(&self, sought: Vec<Sought<'_>>) -> Result<()> {
        let mut missing = Vec::new();
        for one in sought {
            let kept = self.kept.read(&one.name, one.bytes_max)?;
            if kept.is_none_or(|bytes| (one.check)(&bytes).is_err()) {
                missing.push(one);
            }
        }
        let (mut wrong, mut failed) = (None, None);
        for holder in self.holders {
            if missing.is_empty() {
                break;
            }
            let incoming = self.incoming()?;
            let names: Vec<String> = missing.iter().map(|one| one.name.clone()).collect();
            let bytes_max = missing.iter().map(|one| one.bytes_max).max().unwrap_or(0);
            failed = self.bring(holder, &incoming, names, bytes_max).err().or(failed);
            let mut left = Vec::new();
            for one in missing {
                match incoming.read(&one.name, one.bytes_max).map(|bytes| (one.check)(&bytes).map(|()| bytes)) {
                    Some(Ok(bytes)) => self.kept.write(&one.name, &bytes)?,
                    Some(Err(why)) => {
                        wrong = Some(format!("{} of {holder}: {why}", one.name));
                        left.push(one);
                    }
                    None => left.push(one),
                }
            }
            missing = left;
        }
        match (missing.is_empty(), wrong) {
            (true, _) => Ok(()),
            (false, Some(why)) => Err(bad(&why)),
            (false, None) => Err(failed.unwrap_or_else(|| bad("none of the holders has all of it"))),
        }
    }

    fn incoming(&self) -> Result<Incoming> {
        let path = self.kept.path().join(crate::trust::random_name("incoming-"));
        Ok(Incoming { directory: PrivateDirectory::make(&path)?, path })
    }

    /// Copies files of the set's own from a holder.
    fn bring(&self, holder: &Location, into: &Incoming, names: Vec<String>, bytes_max: u64) -> Result<()> {
        let bytes = bytes_max.saturating_mul(names.len() as u64);
        let mut from = holder.clone();
        from.go_below(DIRECTORY.as_bytes());
        let into = Location::Local([into.path.as_os_str().as_bytes(), b"/"].concat());
        let listed = Listed::new(names.into_iter().map(String::into_bytes).collect());
        let mut spec = TransferSpec::new(vec![from], into);
        spec.choice.listed = Some(listed.expect("names of pages are names"));
        spec.choice.size_bytes_max = Some(bytes_max);
        spec.options.fsync = model::options::Fsync::Never;
        spec.streams = Some(1);
        spec.retries = 1;
        let transfer = Transfer::start(spec, (self.means)())?;
        if !transfer.wait_timeout(PATIENCE + Duration::from_secs(bytes / SLOWEST_BYTES_PER_SECOND)) {
            // It is cancelled with this; what came of it is looked at all the same.
            let text = format!("{} does not bring what it was asked for", Escaped(holder.to_string().as_bytes()));
            return Err(Error::new(Exit::Temporary, text).hint("name another holder with --from"));
        }
        transfer.wait().error.map_or(Ok(()), |error| Err(error.into()))
    }
}

fn no_set(holder: &Location) -> Error {
    let text = format!("{} has no note of a set", Escaped(holder.to_string().as_bytes()));
    Error::new(Exit::SourceFileNotFound, text).hint("name the directory that was published, as NAME:PATH")
}

fn no_catalogue(holder: &Location) -> Error {
    let text = format!("{} does not have the catalogue", Escaped(holder.to_string().as_bytes()));
    Error::new(Exit::SourceFileNotFound, text).hint("name the directory that was published, as NAME:PATH")
}

fn is_page(digest: &[u8; 32], content: &[u8]) -> bool {
    DigestAlgorithm::Blake3.of_object(content) == Digest::Blake3(*digest)
}

fn strangers(set: &str) -> Error {
    let text = format!("holders of {set} have notes by different keys, and neither key is known here");
    Error::new(Exit::Authentication, text)
        .hint("ask whoever published the set for its key, and name its file with --signer")
}

fn bad(why: &str) -> Error {
    Error::new(Exit::Integrity, format!("the catalogue is not to be trusted: {why}"))
        .hint("what is verified is kept; name another holder with --from")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sets::kept::tests::kept;

    /// Keeps a page, as if a holder had brought it, and tells the line that names it.
    fn page(kept: &Kept, content: &str) -> PageLine {
        let Digest::Blake3(digest) = DigestAlgorithm::Blake3.of_object(content.as_bytes()) else {
            panic!("not BLAKE3")
        };
        kept.write(&page_name(&digest), content.as_bytes()).unwrap();
        PageLine { digest, bytes: content.len() as u64 }
    }

    fn above(kept: &Kept, lines: &[PageLine]) -> PageLine {
        let line = |line: &PageLine| format!("{} {}\n", page_name(&line.digest), line.bytes);
        page(kept, &format!("thalweg catalogue 1 catalogues\n{}", lines.iter().map(line).collect::<String>()))
    }

    fn found(kept: &Kept, root: PageLine) -> std::result::Result<usize, String> {
        let finder = Finder { kept, holders: &[], means: &Means::local };
        let found = finder.catalogue(root);
        found.map(|(catalogue, _)| catalogue.files().len()).map_err(|e| {
            assert_eq!(e.exit, Exit::Integrity);
            e.message
        })
    }

    #[test]
    fn pages_are_followed_only_so_far_and_none_twice() {
        let directory = tempfile::tempdir().unwrap();
        let kept = kept(&directory, "a/b");
        let file = |name: &str| format!("thalweg catalogue 1 files 1048576\n{} 1 0 {name}\n", "0".repeat(64));
        let (one, two) = (page(&kept, &file("a")), page(&kept, &file("b")));
        assert_eq!(found(&kept, above(&kept, &[one, two])), Ok(2));
        assert!(found(&kept, above(&kept, &[one, one])).unwrap_err().contains("twice"));
        assert!(found(&kept, above(&kept, &[two, one])).unwrap_err().contains("not in order"));
        let mixed = above(&kept, &[one, above(&kept, &[two])]);
        assert!(found(&kept, mixed).unwrap_err().contains("side by side"));
        let mut deep = above(&kept, &[one]);
        (0..DEPTH_MAX).for_each(|_| deep = above(&kept, &[deep]));
        assert!(found(&kept, deep).unwrap_err().contains("without end"));
        assert!(found(&kept, page(&kept, &file("../a"))).unwrap_err().contains("no path in a set"));
        let short = format!("thalweg catalogue 1 files 1048576\n{} 9999999 0 large\n", "0".repeat(64));
        assert!(found(&kept, page(&kept, &short)).is_err(), "nobody has the digests of its chunks");
        let absent = PageLine { digest: [7; 32], bytes: 9 };
        assert!(found(&kept, absent).unwrap_err().contains("none of the holders"));
    }

    #[test]
    fn a_page_that_rotted_here_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let kept = kept(&directory, "a/b");
        let line = page(&kept, "thalweg catalogue 1 files 1048576\n");
        assert_eq!(found(&kept, line), Ok(0));
        kept.write(&page_name(&line.digest), b"thalweg catalogue 1 files 2097152\n").unwrap();
        assert!(found(&kept, line).is_err());
    }
}
