//! What the lanes and uploads of one sink have in common: directories, what was decided, and how objects get their names.
//!
//! Invariants: a key that the job wrote is not believed to be as it was listed; a rehearsal sends nothing but looks.

use crate::bucket::Bucket;
use crate::calls::{Condition, Object};
use crate::compared::Compared;
use crate::crowd::{Crowd, Seen};
use crate::failure::{Failure, Why};
use crate::key::{KEY_BYTES_MAX, of_name};
use crate::listing::{Child, Children};
use crate::metadata;
use crate::upload_log::UploadLogs;
use crate::width::Rooms;
use model::fidelity::Warnings;
use model::{Entry, FailureKind, Fidelity, Kind, Name, ObjectId};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use store::{Decision, Error, PublishRule, Result, There};

/// Pages of a directory's listing that are kept by name; of a larger one hashes are.
const PAGES_MAX: usize = 16;
/// Names of listings that are kept: some 30 MiB.
const LISTED_NAMES_MAX: usize = 100_000;
/// So many hashes take the room of a name.
const NAMES_IN_HASHES: usize = 16;

/// What the lanes and uploads of one sink have in common.
pub struct Job {
    pub bucket: Arc<Bucket>,
    pub is_rehearsal: bool,
    pub keeps: Fidelity,
    /// The length of the chunks that objects come in.
    pub chunk_bytes: u64,
    /// For what is put together or on its way.
    pub rooms: Rooms,
    /// Of uploads that the next attempt goes on with.
    pub logs: Option<UploadLogs>,
    pub is_swept: AtomicBool,
    pub directories: Mutex<HashMap<ObjectId, Arc<Directory>>>,
    /// Directories whose listings are kept, the latest last, and how many names they have.
    pub listed: Mutex<VecDeque<(Arc<Directory>, usize)>>,
    /// What stands at a key whose object is wanted.
    pub decided: Mutex<HashMap<String, Condition>>,
    pub compared: Compared,
    /// Numbers of keys that this job wrote: what was listed of them is out of date.
    pub written: Mutex<HashSet<u64>>,
    /// Numbers of keys whose object the store did not copy: its content comes through this host.
    pub uncopied: Mutex<HashSet<u64>>,
    pub warnings: Mutex<Warnings>,
}

pub struct Directory {
    /// Empty, or with a slash behind it.
    pub prefix: String,
    pub path: Vec<u8>,
    state: Mutex<DirectoryState>,
}

#[derive(Default)]
struct DirectoryState {
    /// What was there when it was first looked at; given up again when others need the room.
    listed: Option<Listing>,
}

/// What stood in a directory when it was listed.
#[derive(Clone)]
enum Listing {
    Names(Arc<Children>),
    /// More of them than are kept by name.
    Hashes(Arc<Crowd>),
    /// Too many of them.
    Unknown,
}

impl Directory {
    pub fn new(prefix: String, path: Vec<u8>) -> Arc<Directory> {
        Arc::new(Directory { prefix, path, state: Mutex::default() })
    }

    /// Nothing was there when it was first looked at.
    pub fn is_new(&self) -> bool {
        let state = self.state.lock().unwrap();
        matches!(&state.listed, Some(Listing::Names(children)) if children.is_empty())
    }
}

impl Job {
    pub fn directory(&self, id: ObjectId) -> Result<Arc<Directory>> {
        let found = self.directories.lock().unwrap().get(&id).cloned();
        found.ok_or_else(Error::no_directory)
    }

    /// Ends, once in each job, what this host left in the bucket and did not go on with.
    pub fn sweep(&self) {
        let Some(logs) = self.logs.as_ref().filter(|_| !self.is_swept.swap(true, Relaxed)) else { return };
        logs.sweep(&self.bucket.address(), &self.bucket.name, &|key, id| self.bucket.abort(key, id).is_ok());
    }

    pub fn may_write(&self) -> Result<()> {
        match self.is_rehearsal {
            true => Err(Error::rehearses()),
            false => Ok(()),
        }
    }

    pub fn key(&self, entry: &Entry) -> Result<String> {
        let above = self.directory(entry.parent)?;
        let key = format!("{}{}", above.prefix, of_name(entry.name.as_bytes()));
        // A directory's key has a slash behind it.
        let slash_bytes = usize::from(entry.kind == Kind::Directory);
        match key.len() + slash_bytes <= KEY_BYTES_MAX {
            true => Ok(key),
            false => {
                let why = "its key would be longer than 1,024 bytes";
                Err(Error::of_entry(FailureKind::NameRefused, "name file", entry, why))
            }
        }
    }

    /// The headers that keep what an entry says besides content.
    pub fn meta(&self, entry: &Entry) -> Vec<(String, String)> {
        let mut meta = vec![(metadata::MTIME.to_owned(), metadata::time_text(entry.generation.modified))];
        let mode = match entry.kind {
            Kind::Symlink(_) => Some(metadata::link_mode()),
            Kind::Directory => self.keeps.mode.then(|| metadata::directory_mode(entry.mode)),
            _ => self.keeps.mode.then(|| metadata::file_mode(entry.mode)),
        };
        meta.extend(mode.map(|mode| (metadata::MODE.to_owned(), mode)));
        meta
    }

    /// Writes a key on the condition that what stands there is what was decided on, or was compared. That holds for the next
    /// attempt too where this one fails.
    pub fn write<T>(
        &self,
        key: &str,
        rule: PublishRule,
        write: impl FnOnce(&Condition) -> crate::failure::Result<T>,
    ) -> crate::failure::Result<T> {
        self.written.lock().unwrap().insert(self.bucket.number(key, ""));
        let decided = self.decided.lock().unwrap().remove(key);
        let compared = self.compared.take(key);
        let condition = match rule {
            PublishRule::NoReplace => Condition::Absent,
            PublishRule::Replace => decided.or(compared.map(Condition::Is)).unwrap_or(Condition::Any),
        };
        let written = write(&condition);
        if written.is_err() && rule == PublishRule::Replace && condition != Condition::Any {
            self.decided.lock().unwrap().insert(key.to_owned(), condition);
        }
        written
    }

    /// An error where a directory has the name of a file, as far as is known without asking.
    pub fn is_free(&self, entry: &Entry, key: &str) -> Result<()> {
        let above = self.directory(entry.parent)?;
        let is_made = self.written.lock().unwrap().contains(&self.bucket.number(&format!("{key}/"), ""));
        let child = match &above.state.lock().unwrap().listed {
            Some(Listing::Names(children)) => children.names.get(entry.name.as_bytes()).cloned(),
            _ => None,
        };
        match is_made || child.is_some_and(|child| child.is_directory && child.object.is_none()) {
            true => Err(Error::directory_there("publish", entry)),
            false => Ok(()),
        }
    }

    pub fn publish(&self, entry: &Entry, key: &str, bytes: &[u8], rule: PublishRule) -> Result<()> {
        self.is_free(entry, key)?;
        let meta = self.meta(entry);
        let published = self.write(key, rule, |condition| self.bucket.publish(key, bytes, &meta, condition));
        published.map_err(|failure| failure.on("publish", key))?;
        self.note_unverified(entry);
        Ok(())
    }

    /// Warns of content that has arrived, where the store does not compare it with its checksum.
    pub fn note_unverified(&self, entry: &Entry) {
        if self.bucket.vouches() {
            return;
        }
        let above = || self.directory(entry.parent).map_or_else(|_| Vec::new(), |above| above.path.clone());
        self.warnings.lock().unwrap().note(store::UNVERIFIED, &|| [above(), entry.name.as_bytes().to_vec()].concat());
    }

    /// Has the store copy an object. Where it does not, content comes through this host; a store that copies nothing is not asked
    /// again. What is not there, or lies in an archive, is not to be had that way either.
    pub fn publish_copy(
        &self,
        entry: &Entry,
        key: &str,
        rule: PublishRule,
        copy: impl FnOnce(&Condition) -> crate::failure::Result<()>,
    ) -> Result<()> {
        self.is_free(entry, key)?;
        let failure = match self.write(key, rule, copy) {
            Ok(()) => {
                self.bucket.has_copied.store(true, Relaxed);
                return Ok(());
            }
            Err(failure) => failure,
        };
        match failure.why {
            Why::Condition | Why::Conflict => return Err(failure.on("publish", key)),
            Why::NoKey | Why::Archived => return Err(failure.on("read file", key)),
            _ if failure.may_pass() => return Err(failure.on("publish", key)),
            Why::Unsupported | Why::Other => self.bucket.copies_not.store(true, Relaxed),
            // Later ones are refused for what they are.
            Why::Forbidden if !self.bucket.has_copied.load(Relaxed) => self.bucket.copies_not.store(true, Relaxed),
            _ => {}
        }
        self.uncopied.lock().unwrap().insert(self.bucket.number(key, ""));
        let why = format!("copy within the store: {failure}");
        Err(Error::of_kind(FailureKind::Other, "publish", key.as_bytes(), &why))
    }

    /// What stood in a directory, as far as that can be kept.
    fn listing(&self, directory: &Arc<Directory>) -> Result<Listing> {
        let mut state = directory.state.lock().unwrap();
        if let Some(listed) = &state.listed {
            return Ok(listed.clone());
        }
        let failed = |failure: Failure| failure.on("list", &directory.prefix);
        let listed = match self.bucket.children(&directory.prefix, PAGES_MAX).map_err(failed)? {
            Some(children) => Listing::Names(Arc::new(children)),
            None => {
                let crowd = Crowd::list(&self.bucket, &directory.prefix).map_err(failed)?;
                crowd.map_or(Listing::Unknown, |crowd| Listing::Hashes(Arc::new(crowd)))
            }
        };
        state.listed = Some(listed.clone());
        drop(state);
        self.make_room(directory, &listed);
        Ok(listed)
    }

    /// Gives up the listings of directories that were listed longest ago. Entries come directory by directory: few are wanted again.
    fn make_room(&self, directory: &Arc<Directory>, listed: &Listing) {
        let weight = match listed {
            Listing::Names(children) => children.names.len(),
            Listing::Hashes(crowd) => crowd.len() / NAMES_IN_HASHES,
            Listing::Unknown => 0,
        };
        if weight == 0 {
            return;
        }
        let mut kept = self.listed.lock().unwrap();
        kept.push_back((directory.clone(), weight));
        let mut sum: usize = kept.iter().map(|(_, weight)| weight).sum();
        while sum > LISTED_NAMES_MAX && kept.len() > 1 {
            let Some((oldest, weight)) = kept.pop_front() else { return };
            sum -= weight;
            oldest.state.lock().unwrap().listed = None;
        }
    }

    /// What a listing says of a name; nothing where it has to be asked.
    pub fn child(&self, above: &Arc<Directory>, name: &Name) -> Result<Option<Child>> {
        let key = format!("{}{}", above.prefix, of_name(name.as_bytes()));
        if self.written.lock().unwrap().contains(&self.bucket.number(&key, "")) {
            return Ok(None);
        }
        Ok(match self.listing(above)? {
            Listing::Names(children) => Some(children.names.get(name.as_bytes()).cloned().unwrap_or_default()),
            Listing::Hashes(crowd) => (crowd.find(name.as_bytes()) == Seen::Nothing).then(Child::default),
            Listing::Unknown => None,
        })
    }

    /// What is decided of an entry from what was listed and learnt already; nothing where something has to be asked.
    pub fn decide_at_hand(&self, entry: &Entry) -> Option<Decision> {
        let (above, key) = (self.directory(entry.parent).ok()?, self.key(entry).ok()?);
        if self.written.lock().unwrap().contains(&self.bucket.number(&key, "")) {
            return None;
        }
        let listed = above.state.lock().unwrap().listed.clone()?;
        let there = match listed {
            Listing::Names(children) => match children.names.get(entry.name.as_bytes()) {
                None => None,
                Some(Child { object: Some(listed), .. }) => Some(self.bucket.at_hand(listed)?),
                Some(_) => return None,
            },
            Listing::Hashes(crowd) => match crowd.find(entry.name.as_bytes()) {
                Seen::Nothing => None,
                Seen::Object(mark) if mark == crowd.mark(entry.size_bytes(), entry.generation.modified) => {
                    return Some(Decision::Same);
                }
                Seen::Object(_) | Seen::Ask => return None,
            },
            Listing::Unknown => return None,
        };
        Some(self.decide_on(entry, key, there))
    }

    /// What stands at the name of a file or link.
    pub fn there(&self, entry: &Entry) -> Result<Option<Object>> {
        let (above, key) = (self.directory(entry.parent)?, self.key(entry)?);
        let looked = |failure: Failure| failure.on("look at", &key);
        match self.child(&above, &entry.name)? {
            Some(Child { object: None, is_directory: false }) => Ok(None),
            Some(Child { object: None, is_directory: true }) => Err(Error::directory_there("write file", entry)),
            Some(Child { object: Some(listed), .. }) => self.bucket.look(&listed).map_err(looked),
            None => self.bucket.head(&key).map_err(looked),
        }
    }

    pub fn decide(&self, entry: &Entry) -> Result<Decision> {
        let there = self.there(entry)?;
        Ok(self.decide_on(entry, self.key(entry)?, there))
    }

    fn decide_on(&self, entry: &Entry, key: String, there: Option<Object>) -> Decision {
        let Some(there) = there else {
            self.note_decided(key, Condition::Absent);
            return Decision::Absent;
        };
        let is_file = !there.mode.is_some_and(metadata::is_link);
        let modified = there.modified();
        if is_file && there.size_bytes == entry.size_bytes() && modified == entry.generation.modified {
            return Decision::Same;
        }
        self.note_decided(key, Condition::Is(there.etag));
        Decision::Replace { size_bytes: there.size_bytes, there: There { is_file, modified } }
    }

    /// Keeps on what condition a key will be written, until it is. Where nothing is written nothing is kept.
    pub fn note_decided(&self, key: String, condition: Condition) {
        if !self.is_rehearsal {
            self.decided.lock().unwrap().insert(key, condition);
        }
    }

    pub fn find_directory(&self, entry: &Entry) -> Result<Arc<Directory>> {
        let (above, key) = (self.directory(entry.parent)?, self.key(entry)?);
        let directory = Directory::new(format!("{key}/"), [&above.path, entry.name.as_bytes(), b"/"].concat());
        match self.child(&above, &entry.name)? {
            Some(Child { object: Some(_), .. }) => {
                let why = "a file stands where a directory is needed";
                return Err(Error::of_entry(FailureKind::InTheWay, "make directory", entry, why));
            }
            Some(Child { object: None, is_directory: false }) => {
                directory.state.lock().unwrap().listed = Some(Listing::Names(Arc::default()));
            }
            Some(Child { object: None, is_directory: true }) => {}
            None => _ = self.listing(&directory)?,
        }
        self.written.lock().unwrap().insert(self.bucket.number(&directory.prefix, ""));
        self.directories.lock().unwrap().insert(entry.id, directory.clone());
        Ok(directory)
    }

    /// Makes the marker of a directory.
    pub fn mark(&self, directory: &Directory, entry: &Entry, on: &Condition) -> crate::failure::Result<()> {
        self.bucket.publish(&directory.prefix, b"", &self.meta(entry), on)
    }
}
