//! What this user keeps of a set below the state directory: the note that was seen last, and pages of catalogues.
//!
//! Invariants:
//! - The kept note never goes back to a lower serial of whoever is trusted, and no second note of one serial takes its place, however
//!   many processes keep one (`lock`).
//! - While somebody fetches or publishes a set, its pages stay (`IN_USE`).

use crate::error::{Error, Result};
use crate::paths::Paths;
use crate::trust::PrivateDirectory;
use model::set::note::digest_of;
use model::set::signed::{NOTE_BYTES_MAX, PublicKey};
use model::set::{DIRECTORY, NOTE, Note, Signed, page_name};
use model::{Exit, mutant};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What was published here last: a catalogue's digest, and seconds since 1970.
const PUBLISHED: &str = "published";
/// Locked by all who need pages that are here, and by whoever removes some.
const IN_USE: &str = "in-use";
/// Files that are looked at for old pages: a catalogue has a page for 65,536 files.
const NAMES_MAX: usize = 100_000;

/// Whose signature is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trust {
    /// This key, as the user says.
    Signer(PublicKey),
    /// Whoever signed the note that was seen before; without one whoever signed the first.
    First,
}

pub struct Kept {
    path: PathBuf,
    directory: PrivateDirectory,
    name: String,
    _in_use: Option<File>,
}

impl Kept {
    /// For whoever fetches or publishes: as long as this is there, so are the pages.
    pub fn open(paths: &Paths, name: &str) -> Result<Kept> {
        let kept = Kept::below(&paths.state, name)?;
        let in_use = kept.locked(IN_USE, File::lock_shared)?;
        Ok(Kept { _in_use: Some(in_use), ..kept })
    }

    /// In this state directory.
    pub fn below(state: &Path, name: &str) -> Result<Kept> {
        if !model::set::is_name(name) {
            let text = format!("{} is no name of a set", model::name::Escaped(name.as_bytes()));
            return Err(Error::new(Exit::Usage, text).hint(
                "a name has letters, digits, `.`, `-`, `_` and `/` between its parts, such as example.org/climate",
            ));
        }
        let path = place_of(state, name);
        crate::trust::make_private_directory(state)?;
        crate::trust::make_private_directory(&state.join("sets"))?;
        Ok(Kept { directory: PrivateDirectory::make(&path)?, path, name: name.to_owned(), _in_use: None })
    }

    /// The same where something of the set is kept: nothing is made for a name that nobody knows.
    pub fn found(state: &Path, name: &str) -> Result<Option<Kept>> {
        let path = place_of(state, name);
        let is_there = path.try_exists().map_err(|e| Error::of_file("open directory", &path, e))?;
        is_there.then(|| Kept::below(state, name)).transpose()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn path(&self) -> &PathBuf {
        &self.path
    }

    /// The note that was seen last.
    pub fn note(&self) -> Result<Option<(Signed, Note)>> {
        let Some(bytes) = self.read(NOTE, NOTE_BYTES_MAX as u64)? else { return Ok(None) };
        let damaged = |why: String| {
            Error::new(Exit::Failed, format!("{} is damaged: {why}", self.path.join(NOTE).display()))
                .hint("restore it, or remove it if you know whose signature to ask for (--signer)")
        };
        let signed = Signed::parse(&bytes).map_err(damaged)?;
        let note = Note::parse(&signed.text).map_err(damaged)?;
        Ok(Some((signed, note)))
    }

    /// A file that is kept here; nothing where there is none, or a longer one.
    pub fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>> {
        match self.directory.read(OsStr::new(name), bytes_max.saturating_add(1)) {
            Ok(bytes) => Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= bytes_max)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::of_file("read", &self.path.join(name), e)),
        }
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.directory.write(name, bytes).map_err(|e| Error::of_file("write", &self.path.join(name), e))
    }

    /// Removes pages of other catalogues than this note's, if it is still the one that is kept and nobody needs others.
    pub fn leave_pages<'a>(&self, note: &Note, pages: impl Iterator<Item = &'a String>) {
        let Ok(_lock) = self.lock() else { return };
        if !matches!(self.note(), Ok(Some((_, kept))) if kept.catalogue == note.catalogue) {
            return;
        }
        let unless_used = self.locked(IN_USE, |file| file.try_lock().map_err(|_| ErrorKind::WouldBlock.into()));
        let Ok(_unused) = unless_used else { return };
        let pages: HashSet<&str> = pages.map(String::as_str).collect();
        let is_page = |name: &str| digest_of(name.strip_suffix(".tree").unwrap_or(name)).is_some();
        for name in self.directory.names(NAMES_MAX).unwrap_or_default() {
            if name.to_str().is_some_and(|name| is_page(name) && !pages.contains(name)) {
                let _ = self.directory.remove(&name);
            }
        }
    }

    /// A directory that holds these files, and a note, below the name that they have beside those of a set: copied from there,
    /// what stands at that name is not followed.
    pub fn gather(&self, names: &[String], note: Option<&[u8]>) -> Result<PathBuf> {
        let path = self.path.join(format!("outgoing-{}", std::process::id()));
        self.scatter(&path);
        PrivateDirectory::make(&path)?;
        let below = path.join(DIRECTORY);
        let directory = PrivateDirectory::make(&below)?;
        for name in names {
            let at = below.join(name);
            std::fs::hard_link(self.path.join(name), &at).map_err(|e| Error::of_file("link", &at, e))?;
        }
        if let Some(note) = note {
            directory.write(NOTE, note).map_err(|e| Error::of_file("write", &below.join(NOTE), e))?;
        }
        Ok(path)
    }

    /// Removes what was gathered.
    pub fn scatter(&self, gathered: &Path) {
        let _ = std::fs::remove_dir_all(gathered);
    }

    /// Notes down that a catalogue was published here, and when the reading of its files began.
    pub fn publishes(&self, catalogue: &[u8; 32], began: SystemTime) -> Result<()> {
        let began = began.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.write(PUBLISHED, format!("{} {began}\n", page_name(catalogue)).as_bytes())
    }

    /// When the reading of this catalogue's files began, if it was published here. A note that was only seen says nothing of the
    /// files that are here.
    pub fn published(&self, catalogue: &[u8; 32]) -> Option<SystemTime> {
        let text = String::from_utf8(self.read(PUBLISHED, 100).ok()??).ok()?;
        let seconds = text.strip_prefix(&page_name(catalogue))?.trim().parse().ok()?;
        Some(UNIX_EPOCH + Duration::from_secs(seconds))
    }

    /// Nobody else keeps a note until what is returned is gone.
    pub fn lock(&self) -> Result<File> {
        self.locked("lock", File::lock)
    }

    fn locked(&self, name: &str, lock: fn(&File) -> std::io::Result<()>) -> Result<File> {
        let path = self.path.join(name);
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let locked = opened.and_then(|file| lock(&file).map(|()| file));
        locked.map_err(|e| Error::of_file("lock", &path, e))
    }

    /// What a note says, if it is this set's, signed by whom it has to be, and none that a later one has replaced.
    pub fn judge(&self, bytes: &[u8], trust: &Trust) -> Result<Note> {
        let forged = |why: &str| {
            Error::new(Exit::Authentication, format!("the note of {} is not to be trusted: {why}", self.name))
                .hint("ask whoever published the set for its key, and name its file with --signer")
        };
        let signed = Signed::parse(bytes).map_err(|why| forged(&why))?;
        let note = Note::parse(&signed.text).map_err(|why| forged(&why))?;
        if note.name != self.name {
            let text = format!("the set there is {}, and not {}", note.name, self.name);
            return Err(Error::new(Exit::SourceFileNotFound, text).hint("check the name, and where the set lies"));
        }
        let own = PublicKey::parse(&note.key).ok_or_else(|| forged("its key cannot be read"))?;
        if !net::note::is_signed_by(&signed, &own) {
            return Err(forged("it bears no signature of the key that it names"));
        }
        // What somebody else signed before says nothing of those whose key the user names.
        let is_theirs = |(seen, _): &(Signed, Note)| match trust {
            Trust::Signer(key) => net::note::is_signed_by(seen, key),
            Trust::First => true,
        };
        let seen = self.note()?.filter(is_theirs);
        let known = match (trust, &seen) {
            (Trust::Signer(key), _) => Some(key.clone()),
            (Trust::First, Some((_, seen))) => PublicKey::parse(&seen.key),
            (Trust::First, None) => None,
        };
        if known.is_some_and(|known| !net::note::is_signed_by(&signed, &known)) {
            return Err(forged("it is signed by another key than the one that is known"));
        }
        match seen {
            Some((_, seen)) if note.serial < seen.serial && !mutant::is_on("older-serial") => {
                let text = format!(
                    "the note of {} has serial {}, and one with serial {} was seen before",
                    self.name, note.serial, seen.serial
                );
                Err(Error::new(Exit::Refused, text).hint("name a holder that is up to date with --from"))
            }
            Some((before, seen)) if note.serial == seen.serial && before.text != signed.text => Err(forged(&format!(
                "it is another one than the note with serial {} that was seen before",
                seen.serial
            ))),
            _ => Ok(note),
        }
    }

    /// Keeps a note that was judged, under the lock.
    pub fn keep(&self, bytes: &[u8], _: &File) -> Result<()> {
        let written = self.directory.write_durably(NOTE, bytes);
        written.map_err(|e| Error::of_file("write", &self.path.join(NOTE), e))
    }
}

fn place_of(state: &Path, name: &str) -> PathBuf {
    state.join("sets").join(name.replace('/', "%"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use model::set::Readers;
    use net::Identity;
    use net::note::{public_key, sign};

    pub fn kept(directory: &tempfile::TempDir, name: &str) -> Kept {
        let home = directory.path().to_owned();
        let paths = Paths::from_values(|variable| (variable == "HOME").then(|| home.clone().into())).unwrap();
        crate::trust::make_private_directory(&home.join(".local/state")).unwrap();
        Kept::open(&paths, name).unwrap()
    }

    fn note(serial: u64, key: &Identity) -> Note {
        Note {
            name: "a/b".into(),
            serial,
            catalogue: [1; 32],
            catalogue_bytes: 1,
            files: 1,
            bytes: 1,
            chunk_bytes: 1 << 20,
            readers: Readers::Public,
            key: public_key(key, "a/b").write(),
            mirrors: Vec::new(),
        }
    }

    fn signed(note: &Note, keys: &[&Identity]) -> Vec<u8> {
        let keys: Vec<_> = keys.iter().map(|key| (*key, "a/b")).collect();
        sign(note.write(), &keys).write().into_bytes()
    }

    #[test]
    fn a_note_counts_with_the_known_signature_and_never_goes_back() {
        let directory = tempfile::tempdir().unwrap();
        let kept = kept(&directory, "a/b");
        let (one, two) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let judge = |bytes: &[u8]| kept.judge(bytes, &Trust::First).map(|note| note.serial).map_err(|e| e.exit);
        let second = signed(&note(2, &one), &[&one]);
        assert_eq!(judge(&second), Ok(2));
        kept.keep(&second, &kept.lock().unwrap()).unwrap();
        assert_eq!(judge(&second), Ok(2));
        assert_eq!(judge(&signed(&note(1, &one), &[&one])), Err(Exit::Refused));
        assert_eq!(judge(&signed(&note(3, &two), &[&two])), Err(Exit::Authentication), "another key");
        assert_eq!(judge(&signed(&note(3, &two), &[&one])), Err(Exit::Authentication), "not by its own key");
        assert_eq!(judge(&signed(&note(3, &two), &[&two, &one])), Ok(3), "two signatures change a key");
        let twin = Note { files: 2, ..note(2, &one) };
        assert_eq!(judge(&signed(&twin, &[&one])), Err(Exit::Authentication), "two notes of one serial");
        let other = Note { name: "a/c".into(), ..note(3, &one) };
        assert_eq!(judge(&signed(&other, &[&one])), Err(Exit::SourceFileNotFound), "another set's");
        let mut forged = signed(&note(3, &one), &[&one]);
        let at = forged.windows(8).position(|bytes| bytes == b"serial 3").unwrap();
        forged[at + 7] = b'4';
        assert_eq!(judge(&forged), Err(Exit::Authentication), "changed after it was signed");
    }

    #[test]
    fn a_signer_that_is_named_wins_over_the_first_one() {
        let directory = tempfile::tempdir().unwrap();
        let kept = kept(&directory, "a/b");
        let (one, two) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let bytes = signed(&note(1, &one), &[&one]);
        assert!(kept.judge(&bytes, &Trust::Signer(public_key(&two, "a/b"))).is_err());
        assert!(kept.judge(&bytes, &Trust::Signer(public_key(&one, "a/b"))).is_ok());
        // Nor does a note that somebody else brought first stand in the way.
        kept.keep(&signed(&note(1 << 62, &two), &[&two]), &kept.lock().unwrap()).unwrap();
        assert!(kept.judge(&bytes, &Trust::First).is_err());
        assert!(kept.judge(&bytes, &Trust::Signer(public_key(&one, "a/b"))).is_ok());
    }

    #[test]
    fn pages_of_other_catalogues_go_once_nobody_needs_them_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let (fetching, key) = (kept(&directory, "a/b"), Identity::generate().unwrap());
        let kept = Kept::below(fetching.path().ancestors().nth(2).unwrap(), "a/b").unwrap();
        let now = note(1, &key);
        kept.keep(&signed(&now, &[&key]), &kept.lock().unwrap()).unwrap();
        kept.publishes(&[1; 32], UNIX_EPOCH).unwrap();
        let names = |digest| [page_name(&digest), model::set::tree_name(&digest)];
        let (own, others) = (names([1; 32]), names([2; 32]));
        own.iter().chain(&others).for_each(|name| kept.write(name, b"x").unwrap());
        let is_there = |name: &String| kept.read(name, 1).unwrap().is_some();
        kept.leave_pages(&now, own.iter());
        assert!(own.iter().chain(&others).all(is_there), "somebody fetches");
        drop(fetching);
        // Somebody has kept another note meanwhile.
        kept.leave_pages(&Note { catalogue: [2; 32], ..note(1, &key) }, others.iter());
        assert!(own.iter().chain(&others).all(is_there));
        kept.leave_pages(&now, own.iter());
        assert!(own.iter().all(is_there) && !others.iter().any(is_there));
        assert!(kept.note().unwrap().is_some() && kept.published(&[1; 32]).is_some());
    }

    #[test]
    fn when_files_were_read_is_known_of_what_was_published_here_alone() {
        let directory = tempfile::tempdir().unwrap();
        let kept = kept(&directory, "a/b");
        let began = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        assert_eq!(kept.published(&[1; 32]), None);
        kept.publishes(&[1; 32], began).unwrap();
        assert_eq!((kept.published(&[1; 32]), kept.published(&[2; 32])), (Some(began), None));
    }
}
