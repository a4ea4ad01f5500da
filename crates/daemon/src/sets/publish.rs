//! A directory made a named set: its files are read, and a catalogue and a signed note are written beside them.
//!
//! Invariants:
//! - What the catalogue says of a file was read of one version of it.
//! - The note comes last: whoever finds it finds the catalogue that it names.
//! - A note that lies there is not replaced by one that knows nothing of it: its serial and its readers go on.

use super::kept::Kept;
use crate::error::{Error, Result};
use model::selection::Listed;
use model::set::catalogue::{BYTES_MAX, check_path};
use model::set::{Catalogue, DIRECTORY, Mirror, NOTE, Note, Readers, SetFile, page_name, tree_name};
use model::{ChunkHasher, DigestAlgorithm, Exit, Extent, Kind, Location, TransferOptions, TransferSpec};
use net::Identity;
use net::note::{public_key, sign};
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::{Found, Source, SourceObject};
use transfer::{Means, Transfer};

const BLOCK_BYTES: usize = 128 << 10;
/// What was modified this long before files were last read or later may have changed without being seen.
const RECENT: Duration = Duration::from_secs(2);

/// What is to be published.
pub struct Publication<'a> {
    pub directory: Location,
    pub readers: Readers,
    pub mirrors: Vec<Mirror>,
    pub chunk_bytes: u64,
    pub key: &'a Identity,
    /// The key that signed until now, where another one takes over.
    pub key_before: Option<&'a Identity>,
    /// Also what has the size and time that the last catalogue tells is read.
    pub reads_all: bool,
    pub is_stopped: &'a AtomicBool,
}

pub struct Published {
    pub note: Note,
    /// Files that were not read, because nothing of them had changed.
    pub unchanged: u64,
    /// What is no file, or cannot be read: a line for each.
    pub left_out: Vec<String>,
}

/// Files by their paths.
type Files = Vec<(Vec<u8>, SourceObject)>;

/// What is known of a file: of the catalogue before, or read.
type Known = (SetFile, Vec<u8>);

/// Takes note of what was published there before, perhaps by somebody else or under another state directory.
pub fn recall(kept: &Kept, directory: &Location) -> Result<()> {
    let mut directory = directory.clone();
    directory.name_contents();
    let finder = super::Finder { kept, holders: std::slice::from_ref(&directory), means: &Means::local };
    let Ok(there) = finder.note_bytes(&directory)? else { return Ok(()) };
    let known = kept.note()?;
    if known.is_some_and(|(signed, _)| signed.write().into_bytes() == there) {
        return Ok(());
    }
    match finder.note(&super::Trust::First) {
        Ok(_) => Ok(()),
        // An older one: what is known here comes after it.
        Err(e) if e.exit == Exit::Refused => Ok(()),
        Err(e) => Err(e.hint(format!("remove {directory}{DIRECTORY} to publish it as a new set"))),
    }
}

pub fn publish(kept: &Kept, wanted: &Publication<'_>, before: Option<&Catalogue>) -> Result<Published> {
    let began = SystemTime::now();
    let options = TransferOptions::default();
    let mut directory = wanted.directory.clone();
    directory.name_contents();
    let opened = store::Stores::default().source(&[directory.clone()], &options);
    let source = opened.map_err(|e| Error::from(transfer::Error::from_open(&e)))?.source;
    let (mut found, mut left_out) = listed(&*source)?;
    found.sort_by(|one, other| one.0.cmp(&other.0));
    let known = before.filter(|before| before.chunk_bytes == wanted.chunk_bytes && !wanted.reads_all);
    let catalogue_before = kept.note()?.map(|(_, note)| note.catalogue);
    let until = catalogue_before.and_then(|digest| kept.published(&digest)?.checked_sub(RECENT));
    let unread = Unread { before: known, until };
    let read = read_all(&*source, &found, &unread, wanted)?;
    let mut catalogue = Catalogue::new(wanted.chunk_bytes);
    let mut unchanged = 0;
    for ((path, _), read) in found.iter().zip(read) {
        match read {
            Ok((known, is_unchanged)) => {
                catalogue.add(known.0, &known.1).map_err(|why| Error::new(Exit::Failed, why))?;
                unchanged += u64::from(is_unchanged);
            }
            Err(why) => left_out.push(format!("{}: {why}", model::name::Escaped(path))),
        }
    }
    let note = write(kept, wanted, &directory, &catalogue)?;
    kept.publishes(&note.catalogue, began)?;
    Ok(Published { note, unchanged, left_out })
}

/// The files of the directory with their paths, and what is left out.
fn listed(source: &dyn Source) -> Result<(Files, Vec<String>)> {
    let (mut files, mut left_out) = (Vec::new(), Vec::new());
    let scanned = source.scan(&mut |found| {
        match found {
            Found::Failed(failure) => {
                left_out.push(format!("{}: {}", model::name::Escaped(&failure.path), failure.message));
            }
            Found::Object(object) => {
                let path = source.path(&object);
                let is_own = path == DIRECTORY.as_bytes() || path.starts_with(format!("{DIRECTORY}/").as_bytes());
                match (&object.entry.kind, check_path(&path)) {
                    (Kind::Directory, _) => {}
                    _ if is_own => {}
                    (Kind::File, Ok(())) => files.push((path, object)),
                    (Kind::File, Err(why)) => left_out.push(why),
                    _ => left_out.push(format!("{}: a set holds files alone", model::name::Escaped(&path))),
                }
            }
        }
        true
    });
    scanned.map_err(|e| crate::Error::from(transfer::Error::from_store(&e, "the directory")))?;
    Ok((files, left_out))
}

/// The catalogue before, and until when what it says can be relied on: the reading of its files began then.
struct Unread<'a> {
    before: Option<&'a Catalogue>,
    until: Option<SystemTime>,
}

impl Unread<'_> {
    fn find(&self, path: &[u8], object: &SourceObject) -> Option<Known> {
        let (before, until) = (self.before?, self.until?.duration_since(UNIX_EPOCH).ok()?.as_secs() as i64);
        let number = before.find(path)?;
        let file = &before.files()[number];
        let generation = &object.entry.generation;
        let is_same = (file.size_bytes, file.modified) == (generation.size_bytes, generation.modified.seconds);
        // Whatever was done to it since then changed this too.
        let is_old = file.modified < until && generation.version.changed().seconds < until;
        (is_same && is_old).then(|| (file.clone(), before.tree_of(number)))
    }
}

type Read = std::result::Result<(Known, bool), String>;

/// Reads all files with as many threads as there are processors.
fn read_all(
    source: &dyn Source,
    files: &[(Vec<u8>, SourceObject)],
    unread: &Unread<'_>,
    wanted: &Publication<'_>,
) -> Result<Vec<Read>> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Read>>> = files.iter().map(|_| Mutex::default()).collect();
    let work = || {
        let mut block = vec![0; BLOCK_BYTES];
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some((path, object)) = files.get(at).filter(|_| !wanted.is_stopped.load(Relaxed)) else { return };
            let read = match unread.find(path, object) {
                Some(known) => Ok((known, true)),
                None => read(source, path, object, wanted, &mut block).map(|known| (known, false)),
            };
            *results[at].lock().unwrap() = Some(read);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get()).min(files.len());
    std::thread::scope(|scope| {
        // This thread is one of them: the rest are there where they are to be had.
        (1..threads).for_each(|_| _ = std::thread::Builder::new().name("publish".to_owned()).spawn_scoped(scope, work));
        work();
    });
    let stopped = || Error::new(Exit::Interrupted, "stopped; nothing was published");
    results.into_iter().map(|result| result.into_inner().unwrap().ok_or_else(stopped)).collect()
}

fn read(
    source: &dyn Source,
    path: &[u8],
    object: &SourceObject,
    wanted: &Publication<'_>,
    block: &mut [u8],
) -> std::result::Result<Known, String> {
    let shown = |e: store::Error| e.message();
    let mut lane = source.lane();
    let file = lane.open(object).map_err(shown)?;
    let generation = file.generation().map_err(shown)?;
    let (size, chunk_bytes) = (generation.size_bytes, wanted.chunk_bytes);
    let mut digests = Vec::new();
    for start in (0..size.max(1)).step_by(chunk_bytes as usize) {
        let extent = Extent::new(start, size.min(start + chunk_bytes));
        let mut hasher = ChunkHasher::new(DigestAlgorithm::Blake3, start);
        let got = lane.read_extent(&*file, extent, block, &mut |bytes| {
            hasher.update(bytes);
            !wanted.is_stopped.load(Relaxed)
        });
        if got.map_err(shown)? < extent.length() {
            return Err("it became shorter while it was read".to_owned());
        }
        digests.push(hasher.finish(extent.length() == size));
    }
    if file.generation().map_err(shown)? != generation {
        return Err("it changed while it was read".to_owned());
    }
    let root = DigestAlgorithm::Blake3.combine(&digests, chunk_bytes, size).to_bytes();
    let root = root.try_into().expect("a BLAKE3 digest has 32 bytes");
    let file = SetFile { path: path.into(), size_bytes: size, modified: generation.modified.seconds, root };
    let mut tree = Vec::new();
    if file.chunks(chunk_bytes) > 0 {
        digests.iter().for_each(|digest| digest.put(&mut tree));
    }
    Ok((file, tree))
}

fn write(kept: &Kept, wanted: &Publication<'_>, directory: &Location, catalogue: &Catalogue) -> Result<Note> {
    let pages = catalogue.pages();
    if pages.iter().map(|page| page.bytes.len() as u64).sum::<u64>() > BYTES_MAX {
        return Err(Error::new(Exit::Failed, "its catalogue is longer than a set's can be")
            .hint("publish parts of it as sets of their own"));
    }
    // Until the note is there nobody takes the pages for those of an older one.
    let lock = kept.lock()?;
    let mut names = Vec::new();
    for page in &pages {
        let mut parts = vec![(page_name(&page.digest), &page.bytes)];
        if !page.tree.is_empty() {
            parts.push((tree_name(&page.digest), &page.tree));
        }
        for (name, bytes) in parts {
            kept.write(&name, bytes)?;
            names.push(name);
        }
    }
    let first = pages.last().expect("even an empty set has a page");
    let serial = kept.note()?.map_or(0, |(_, before)| before.serial) + 1;
    let note = Note {
        name: kept.name().to_owned(),
        serial,
        catalogue: first.digest,
        catalogue_bytes: first.bytes.len() as u64,
        files: catalogue.files().len() as u64,
        bytes: catalogue.bytes(),
        chunk_bytes: wanted.chunk_bytes,
        readers: wanted.readers.clone(),
        key: public_key(wanted.key, kept.name()).write(),
        mirrors: wanted.mirrors.clone(),
    };
    let keys: Vec<_> = std::iter::once(wanted.key).chain(wanted.key_before).map(|key| (key, kept.name())).collect();
    let signed = sign(note.write(), &keys).write();
    let trust = super::Trust::First;
    kept.judge(signed.as_bytes(), &trust).map_err(|e| match e.exit {
        Exit::Authentication => e.hint("name the key that signed until now too, with --previous-key"),
        _ => e,
    })?;
    kept.keep(signed.as_bytes(), &lock)?;
    offer(kept, directory, names, signed.as_bytes())?;
    Ok(note)
}

/// Copies these pages of a set, and its note last, to the directory that holds its files: from there on it is a holder. The note is the
/// one by which the files came: a later one may be kept by now, and tells of others.
pub fn offer(kept: &Kept, directory: &Location, mut names: Vec<String>, note: &[u8]) -> Result<()> {
    names.sort();
    names.dedup();
    put(kept, directory, names, None)?;
    close(kept, directory, note)
}

/// Copies the note alone, ahead of files that not everybody may read: an endpoint that serves the directory opens it to nobody else.
pub fn close(kept: &Kept, directory: &Location, note: &[u8]) -> Result<()> {
    put(kept, directory, Vec::new(), Some(note))
}

fn put(kept: &Kept, directory: &Location, mut names: Vec<String>, note: Option<&[u8]>) -> Result<()> {
    let gathered = kept.gather(&names, note)?;
    names.extend(note.map(|_| NOTE.to_owned()));
    let from = Location::Local([gathered.as_os_str().as_bytes(), b"/"].concat());
    let listed = Listed::new(names.iter().map(|name| format!("{DIRECTORY}/{name}").into_bytes()).collect());
    let mut spec = TransferSpec::new(vec![from], directory.clone());
    spec.choice.listed = Some(listed.expect("names of pages are names"));
    spec.options.chmod = Some((0o644, 0o755));
    spec.options.compare = model::options::Compare::Checksum;
    let ended = Transfer::start(spec, Means::local())?.wait();
    kept.scatter(&gathered);
    match ended.error {
        Some(error) => {
            Err(Error::from(error).hint(format!("{directory}/{DIRECTORY} has to be a directory, and no link")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sets::kept::tests::kept;

    /// Somebody else fetched what was published meanwhile.
    #[test]
    fn a_copy_gets_the_note_by_which_its_files_came_and_not_a_later_one() {
        let directory = tempfile::tempdir().unwrap();
        let kept = kept(&directory, "a/b");
        kept.write("page", b"a page").unwrap();
        kept.keep(b"a later note", &kept.lock().unwrap()).unwrap();
        let copy = directory.path().join("copy");
        std::fs::create_dir(&copy).unwrap();
        let to = Location::Local([copy.as_os_str().as_bytes(), b"/"].concat());
        offer(&kept, &to, vec!["page".to_owned()], b"the note").unwrap();
        let there = |name: &str| std::fs::read(copy.join(DIRECTORY).join(name)).unwrap();
        assert_eq!((there("page"), there(NOTE)), (b"a page".to_vec(), b"the note".to_vec()));
        assert_eq!(kept.read(NOTE, 100).unwrap().unwrap(), b"a later note");
    }
}
