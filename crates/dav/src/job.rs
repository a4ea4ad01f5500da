//! What the lanes and large files of one sink have in common: directories, where files are staged, and how they get their names.
//!
//! Files are staged at the top of the destination.
//!
//! Invariants: a name appears by one MOVE of what lies complete at the server, and was compared there as far as the server can; no MOVE
//! goes to the name of a directory, which would be removed with all in it. A name that was decided on is not held any longer.

use crate::failure::{Failure, Why};
use crate::habits::{Habits, STAGED_PREFIX, mark};
use crate::held::Small;
use crate::listing::Stat;
use crate::path;
use crate::site::Site;
use crate::third_party::ThirdParty;
use model::{Entry, FailureKind, ObjectId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};
use store::{Decision, Error, Held, PublishRule, Result, There};

/// What nobody finished by then is nobody's.
const STAGED_SECONDS_MAX: i64 = 7 * 24 * 3600;

pub struct Job {
    pub site: Arc<Site>,
    pub held: Held<Small>,
    pub is_rehearsal: bool,
    pub third_party: ThirdParty,
    pub directories: Mutex<HashMap<ObjectId, Arc<Directory>>>,
}

pub struct Directory {
    pub path: Vec<u8>,
    /// For reports: empty, or with a slash behind it.
    pub shown: Vec<u8>,
    pub is_fresh: bool,
    names: Mutex<Names>,
}

/// What is known of the names in a directory.
#[derive(Default)]
struct Names {
    /// What was there when it was first looked at, and was not told since.
    listed: Option<BTreeMap<Vec<u8>, Stat>>,
    /// Of names that were told, or that the job put there, a hash each: when one comes again the server is asked.
    known: HashSet<u64>,
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// What is to get its name.
pub struct Complete<'a> {
    pub staged: &'a [u8],
    pub entry: &'a Entry,
    pub rule: PublishRule,
    pub adler: u32,
}

impl Directory {
    pub fn new(path: Vec<u8>, shown: Vec<u8>, is_fresh: bool) -> Arc<Directory> {
        let names = Names { listed: is_fresh.then(BTreeMap::new), ..Names::default() };
        Arc::new(Directory { path, shown, is_fresh, names: Mutex::new(names) })
    }

    /// The job put something there.
    pub fn note(&self, name: &[u8]) {
        self.names.lock().unwrap().known.insert(hash(name));
    }
}

impl Job {
    pub fn directory(&self, id: ObjectId) -> Result<Arc<Directory>> {
        let found = self.directories.lock().unwrap().get(&id).cloned();
        found.ok_or_else(Error::no_directory)
    }

    pub fn path(&self, entry: &Entry) -> Result<Vec<u8>> {
        if entry.name.as_bytes().starts_with(store::STAGING_PREFIX) {
            return Err(Error::name_kept(entry));
        }
        Ok(path::below(&self.directory(entry.parent)?.path, entry.name.as_bytes()))
    }

    pub fn may_write(&self) -> Result<()> {
        match self.is_rehearsal {
            true => Err(Error::rehearses()),
            false => Ok(()),
        }
    }

    /// A name that nothing has.
    pub fn staged_path(&self) -> Result<Vec<u8>> {
        let root = self.directory(ObjectId::ROOT)?;
        Ok(path::below(&root.path, format!("{STAGED_PREFIX}{}", mark()).as_bytes()))
    }

    /// How the server takes requests. A rehearsal does not try: it expects the best.
    pub fn habits(&self) -> Result<Habits> {
        if self.is_rehearsal {
            return Ok(Habits { decodes: true, ..Habits::default() });
        }
        let root = self.directory(ObjectId::ROOT)?;
        self.site.habits(&root.path).map_err(|failure| failure.on("try the server", &root.path))
    }

    /// The headers by which a server that can gives a file its time.
    pub fn time(&self, entry: &Entry) -> Result<Vec<(&'static str, String)>> {
        let seconds = entry.generation.modified.seconds.max(0);
        Ok(if self.habits()?.takes_times { vec![("X-OC-Mtime", seconds.to_string())] } else { Vec::new() })
    }

    /// What stands at a name in a directory. The directory is listed once; a name that comes again is looked at.
    pub fn there(&self, directory: &Directory, name: &[u8]) -> Result<Option<Stat>> {
        let mut names = directory.names.lock().unwrap();
        if names.known.contains(&hash(name)) {
            drop(names);
            let path = path::below(&directory.path, name);
            return self.site.find(&path).map_err(|failure| failure.on("look at", &path));
        }
        if names.listed.is_none() {
            names.listed = Some(self.list(directory)?);
        }
        let there = names.listed.get_or_insert_default().remove(name);
        if there.is_some() {
            names.known.insert(hash(name));
        }
        Ok(there)
    }

    fn list(&self, directory: &Directory) -> Result<BTreeMap<Vec<u8>, Stat>> {
        let mut all = match self.site.list_all(&directory.path) {
            Err(failure) if failure.why == Why::Missing => BTreeMap::new(),
            listed => listed.map_err(|failure| failure.on("list", &directory.path))?,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        all.retain(|name, stat| {
            let is_ours = name.starts_with(STAGED_PREFIX.as_bytes());
            if is_ours && !self.is_rehearsal && !stat.is_directory && begun(name) < now - STAGED_SECONDS_MAX {
                let _ = self.site.delete(&path::below(&directory.path, name));
            }
            !name.starts_with(store::STAGING_PREFIX)
        });
        Ok(all)
    }

    pub fn decide(&self, entry: &Entry) -> Result<Decision> {
        let above = self.directory(entry.parent)?;
        let Some(there) = self.there(&above, entry.name.as_bytes())? else { return Ok(Decision::Absent) };
        if there.is_directory {
            return Err(Error::directory_there("replace", entry));
        }
        if there.size_bytes == entry.size_bytes() && self.is_current(entry, &there)? {
            return Ok(Decision::Same);
        }
        let (size_bytes, there) = (there.size_bytes, There { is_file: true, modified: there.time() });
        Ok(Decision::Replace { size_bytes, there })
    }

    /// Whether a file of equal length has the time of an entry; at a server that keeps no times, whether it came there after the
    /// source was changed last.
    fn is_current(&self, entry: &Entry, there: &Stat) -> Result<bool> {
        let changed = entry.generation.modified.seconds;
        if there.modified == changed {
            return Ok(true);
        }
        let habits = self.habits()?;
        let came = there.modified - habits.ahead_seconds;
        Ok(!habits.takes_times && there.modified > 0 && came > changed.saturating_add(1))
    }

    pub fn publish(&self, complete: &Complete<'_>) -> Result<()> {
        let Complete { staged, entry, rule, adler } = *complete;
        let (to, habits, size) = (self.path(entry)?, self.habits()?, entry.size_bytes());
        let failed = |failure: Failure| failure.on("publish", &to);
        self.site.compare(staged, size, adler).map_err(failed)?;
        // In a directory that this job made nobody else is expected; XRootD ends the connection with each look in vain.
        let is_fresh = self.directory(entry.parent)?.is_fresh;
        if rule == PublishRule::Replace || !(habits.keeps || is_fresh) {
            match self.site.find(&to).map_err(failed)? {
                Some(there) if there.is_directory => return Err(Error::directory_there("publish", entry)),
                Some(_) if rule == PublishRule::NoReplace => return Err(in_the_way(entry)),
                _ => {}
            }
        }
        match self.site.move_to(staged, &to, &habits, rule == PublishRule::Replace) {
            Ok(()) => {}
            Err(failure) => {
                let is_done = failure.may_be_done()
                    && self.site.find(staged).map_err(failed)?.is_none()
                    && self.site.compare(&to, size, adler).is_ok();
                match failure.why {
                    _ if is_done => {}
                    Why::Changed => return Err(in_the_way(entry)),
                    _ => return Err(failed(failure)),
                }
            }
        }
        // Where escapes are needed a server may have taken them for something else.
        if path::encoded(&to).as_bytes() != to && self.site.find(&to).map_err(failed)?.is_none() {
            let why = "the server gave it another name, of which it spoilt the special characters";
            return Err(Error::of_entry(FailureKind::NameRefused, "publish", entry, why));
        }
        self.directory(entry.parent)?.note(entry.name.as_bytes());
        Ok(())
    }

    /// Takes away what will not be published.
    pub fn remove_staged(&self, staged: &[u8]) {
        self.remove_staged_now(staged, false);
    }

    /// `is_cut`: its upload was given up a moment ago. A server that has not begun with it has nothing to remove yet, and makes it then.
    pub fn remove_staged_now(&self, staged: &[u8], is_cut: bool) {
        for _ in 0..if is_cut { CUT_TRIES } else { 1 } {
            match self.site.delete(staged) {
                Ok(false) if is_cut => std::thread::park_timeout(CUT_PAUSE),
                _ => return,
            }
        }
    }
}

/// How often, and after what pause, what a server may still make is looked for.
const CUT_TRIES: usize = 4;
const CUT_PAUSE: Duration = Duration::from_millis(100);

/// When a staged file was begun, by its name: some servers give it the time of its source.
fn begun(name: &[u8]) -> i64 {
    let mark = name.strip_prefix(STAGED_PREFIX.as_bytes()).and_then(|mark| mark.split(|byte| *byte == b'-').next());
    let nanoseconds = mark.and_then(|mark| u128::from_str_radix(std::str::from_utf8(mark).ok()?, 16).ok());
    nanoseconds.map_or(i64::MAX, |nanoseconds| i64::try_from(nanoseconds / 1_000_000_000).unwrap_or(i64::MAX))
}

fn in_the_way(entry: &Entry) -> Error {
    Error::of_entry(FailureKind::InTheWay, "publish", entry, "something appeared there meanwhile")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::SiteConfig;
    use fakes::dav::Manners;
    use model::{Generation, Kind, Name, Timestamp};
    use web::{Origin, Stop};

    fn rehearsal(site: Site) -> Job {
        Job {
            site: Arc::new(site),
            held: Held::default(),
            is_rehearsal: true,
            third_party: ThirdParty::default(),
            directories: Mutex::default(),
        }
    }

    #[test]
    fn what_came_after_the_source_was_changed_is_current_whatever_times_there_are() {
        let origin = Origin::parse("http://127.0.0.1:1").unwrap();
        let job = rehearsal(Site::new(origin, None, false, &SiteConfig::default(), Stop::default()).unwrap());
        let is_current = |changed: i64| {
            let modified = Timestamp { seconds: changed, nanoseconds: 0 };
            let generation = Generation { modified, ..Generation::default() };
            let (parent, name) = (ObjectId::ROOT, Name::new(b"f").unwrap());
            let entry =
                Entry { id: ObjectId(1), parent, name, kind: Kind::File, mode: 0o644, generation, attributes: None };
            job.is_current(&entry, &Stat { modified: 5, ..Stat::default() }).unwrap()
        };
        assert_eq!([i64::MIN, 3, 4, i64::MAX].map(is_current), [true, true, false, false]);
    }

    #[test]
    fn a_name_that_was_told_is_held_no_longer_and_looked_at_when_it_comes_again() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &str| std::fs::write(dir.path().join(name), content).unwrap();
        write("f", "one");
        let address = fakes::dav::start(dir.path(), Manners::default(), Arc::new(|_| None));
        let origin = Origin::parse(&format!("http://{address}")).unwrap();
        let site = Site::new(origin, None, false, &SiteConfig::default(), Stop::default()).unwrap();
        let root = Directory::new(b"/".to_vec(), Vec::new(), false);
        let job = rehearsal(site);
        let size_of = |name: &[u8]| job.there(&root, name).unwrap().map(|there| there.size_bytes);
        assert_eq!((size_of(b"f"), size_of(b"g")), (Some(3), None));
        assert!(root.names.lock().unwrap().listed.as_ref().is_some_and(BTreeMap::is_empty), "a name is held");
        write("f", "three");
        write("g", "new");
        assert_eq!((size_of(b"f"), size_of(b"g")), (Some(5), None), "what is another's is seen when it is in the way");
        root.note(b"g");
        assert_eq!(size_of(b"g"), Some(3));
    }
}
