//! Whose files this program believes and where it writes its own: those of its user and of root that nobody else can
//! change.
//!
//! What is read here decides which programs run, which endpoint is believed and what clients may reach; what is written
//! here is written with this user's rights. So the owner is looked at besides the mode, and so is the way there: whoever
//! may rename a directory on it, or a link, chooses the file.
//!
//! Invariants:
//! - A file is judged by its descriptor, a way name by name, links included.
//! - In a `PrivateDirectory` everything is reached from its descriptor; names are made with O_EXCL and never followed.
//!
//! Not here: what the files say, and the storage that is served (`store`).

use crate::error::{Error, Result, shown};
use model::{Exit, mutant};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

/// Links on the way to one file: what the kernel allows.
const LINKS_MAX: usize = 40;
const STICKY: u32 = 0o1000;
/// Written by the group, written by others.
const BY_OTHERS: u32 = 0o022;

/// Whether what belongs to this user is believed: the process's own, and root.
pub fn is_trusted(owner: u32) -> bool {
    mutant::is_on("trust-foreign-files")
        || owner == 0
        || owner == rustix::process::geteuid().as_raw()
        || Some(owner) == unmapped()
}

/// How owners appear that this process's user namespace does not know, the real root among them; nothing in the first
/// namespace, where such a number is a user like any other.
fn unmapped() -> Option<u32> {
    static UNMAPPED: OnceLock<Option<u32>> = OnceLock::new();
    *UNMAPPED.get_or_init(|| {
        let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
        let is_whole = map.split_whitespace().eq(["0", "0", "4294967295"]);
        let number = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
        if is_whole { None } else { number.trim().parse().ok() }
    })
}

/// Refuses a file that someone else owns or may write to, `what` being the name of its kind.
pub fn check_file(what: &str, path: &Path, found: &Metadata) -> Result<()> {
    if !is_trusted(found.uid()) {
        return Err(foreign(what, path, found.uid()));
    }
    check_mode(what, path, found)
}

fn check_mode(what: &str, path: &Path, found: &Metadata) -> Result<()> {
    // A device, such as /dev/null, gives everybody the same; who may write to a link is its directory's matter.
    let has_mode = !found.file_type().is_char_device() && !found.is_symlink();
    if has_mode && found.mode() & BY_OTHERS != 0 && !mutant::is_on("trust-foreign-files") {
        return Err(open_to_others(what, path, found.mode()));
    }
    Ok(())
}

/// Refuses a directory of the program's own that others own, may write to, or may put another in the place of.
pub fn check_directory(what: &str, path: &Path) -> Result<()> {
    check_way(what, path)?;
    let found = std::fs::metadata(path).map_err(|e| Error::of_file("look at", path, e))?;
    check_file(what, path, &found)
}

/// Refuses a path on which others may put something else in the place of what stands there. What is missing will be
/// made by this process.
pub fn check_way(what: &str, path: &Path) -> Result<()> {
    let failed = |e| Error::of_file("look at", path, e);
    let mut left = names_of(&std::path::absolute(path).map_err(failed)?);
    let mut at = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = left.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        let found = match std::fs::symlink_metadata(&next) {
            Ok(found) => found,
            // Whether it can be reached is for whoever opens it to say.
            Err(_) => return Ok(()),
        };
        if !is_trusted(found.uid()) {
            let what = if left.is_empty() { what.to_owned() } else { format!("above {what}, the directory") };
            return Err(foreign(&what, &next, found.uid()));
        }
        if found.is_symlink() {
            links += 1;
            if links > LINKS_MAX {
                return Err(failed(io::Error::from(rustix::io::Errno::LOOP)));
            }
            let target = std::fs::read_link(&next).map_err(failed)?;
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            left.extend(names_of(&target));
            continue;
        }
        // The group of a home is often the user's own, so only the file itself is held to more.
        let is_open = found.mode() & 0o002 != 0 && found.mode() & STICKY == 0;
        if found.is_dir() && is_open && !left.is_empty() && !mutant::is_on("trust-foreign-files") {
            return Err(open_to_others(&format!("above {what}, the directory"), &next, found.mode()));
        }
        at = next;
    }
    Ok(())
}

/// The names of a path, the last one first.
fn names_of(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        _ => None,
    };
    let mut names: Vec<OsString> = path.components().filter_map(name).collect();
    names.reverse();
    names
}

fn foreign(what: &str, path: &Path, owner: u32) -> Error {
    let own = rustix::process::geteuid().as_raw();
    let message = format!("{what} {} belongs to user {owner}: user {own} trusts only its own and root's", shown(path));
    let hint = match own {
        0 => format!("run this as user {owner}, without sudo, or with root's own settings: `sudo -H thalweg ...`"),
        _ => format!("name another one, or make it yours: `sudo chown {own} {}`", shown(path)),
    };
    Error::new(Exit::Refused, message).hint(hint)
}

fn open_to_others(what: &str, path: &Path, mode: u32) -> Error {
    let message = format!("{what} {} can be changed by other users (mode {:04o})", shown(path), mode & 0o7777);
    Error::new(Exit::Refused, message)
        .hint(format!("if nobody else has changed anything there: `chmod go-w {}`", shown(path)))
}

/// Opens a file for reading and finds its way, its owner and its mode good.
pub fn open_file(what: &str, path: &Path) -> Result<io::Result<File>> {
    check_way(what, path)?;
    let opened = File::open(path);
    if let Ok(file) = &opened {
        let found = file.metadata().map_err(|e| Error::of_file("look at", path, e))?;
        check_file(what, path, &found)?;
    }
    Ok(opened)
}

/// Opens a file that somebody gave to this user, whose owner it may be, but that nobody else may have changed since.
pub fn open_given(what: &str, path: &Path) -> Result<io::Result<File>> {
    let opened = File::open(path);
    if let Ok(file) = &opened {
        let found = file.metadata().map_err(|e| Error::of_file("look at", path, e))?;
        check_mode(what, path, &found)?;
    }
    Ok(opened)
}

/// Makes a directory, and those above it that are missing, with mode 0700. One that exists is taken if nobody else owns
/// it, may write to it, or may put another in its place.
pub fn make_private_directory(path: &Path) -> Result<()> {
    check_way("the directory", path)?;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|e| Error::of_file("make directory", path, e))?;
    if !path.is_dir() {
        return Err(Error::new(Exit::Failed, format!("{} is not a directory", shown(path))));
    }
    check_directory("the directory", path)
}

/// A directory of this user's alone, for small files that come and go.
pub struct PrivateDirectory {
    fd: OwnedFd,
}

impl PrivateDirectory {
    /// Makes it where it is missing, and refuses one that others could reach into.
    pub fn make(path: &Path) -> Result<PrivateDirectory> {
        make_private_directory(path)?;
        let opened = PrivateDirectory::open(path)?;
        opened.ok_or_else(|| Error::of_file("open directory", path, ErrorKind::NotFound.into()))
    }

    /// Opens it; `None` where there is none.
    pub fn open(path: &Path) -> Result<Option<PrivateDirectory>> {
        let failed = |e: io::Error| Error::of_file("open directory", path, e);
        let is_checked = !mutant::is_on("follow-a-planted-link");
        if is_checked {
            check_way("the directory", path)?;
        }
        let not_followed = if is_checked { OFlags::NOFOLLOW } else { OFlags::empty() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | not_followed;
        let fd = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(e) => return Err(failed(e.into())),
        };
        let directory = File::from(fd);
        if is_checked {
            check_file("the directory", path, &directory.metadata().map_err(failed)?)?;
        }
        Ok(Some(PrivateDirectory { fd: directory.into() }))
    }

    /// Gives `name` this content in one step. Until then it lies under `.NAME.RANDOM`, which nobody can foresee.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write_and(name, bytes, |_| Ok(()))
    }

    /// The same, so that a power loss leaves what there was before or all of this.
    pub fn write_durably(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write_and(name, bytes, File::sync_all)?;
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    fn write_and(&self, name: &str, bytes: &[u8], sync: fn(&File) -> io::Result<()>) -> io::Result<()> {
        let (staging, flags) = match mutant::is_on("follow-a-planted-link") {
            true => (format!(".{name}.new"), OFlags::TRUNC),
            false => (random_name(&format!(".{name}.")), OFlags::EXCL | OFlags::NOFOLLOW),
        };
        let flags = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, &staging, flags, Mode::from_raw_mode(0o600))?;
        let mut file = File::from(fd);
        let written = file.write_all(bytes).and_then(|()| sync(&file));
        let named = written.and_then(|()| Ok(rustix::fs::renameat(&self.fd, &staging, &self.fd, name)?));
        if named.is_err() {
            let _ = self.remove(OsStr::new(&staging));
        }
        named
    }

    /// At most `bytes_max` bytes of a file. Neither follows a link nor waits.
    pub fn read(&self, name: &OsStr, bytes_max: u64) -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.fd, name, flags, Mode::empty())?);
        let mut bytes = Vec::new();
        file.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// The names of up to `names_max` files.
    pub fn names(&self, names_max: usize) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd)? {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
            if names.len() == names_max {
                break;
            }
        }
        Ok(names)
    }
}

/// A name that nobody can foresee.
pub fn random_name(prefix: &str) -> String {
    format!("{prefix}{}", data_encoding::HEXLOWER.encode(&net::random_bytes::<8>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_planted_link_is_not_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let (own, victim) = (dir.path().join("own"), dir.path().join("victim"));
        fs::write(&victim, "theirs").unwrap();
        let directory = PrivateDirectory::make(&own).unwrap();
        for planted in ["7.json", ".7.json.new", ".7.new"] {
            symlink(&victim, own.join(planted)).unwrap();
        }
        directory.write("7.json", b"ours").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "theirs");
        assert_eq!(directory.read(OsStr::new("7.json"), 100).unwrap(), b"ours");
        assert!(directory.read(OsStr::new(".7.new"), 100).is_err());
    }

    #[test]
    fn a_directory_that_is_a_link_or_open_to_others_is_no_private_one() {
        let dir = tempfile::tempdir().unwrap();
        let (own, link) = (dir.path().join("own"), dir.path().join("link"));
        assert!(PrivateDirectory::open(&own).unwrap().is_none());
        PrivateDirectory::make(&own).unwrap();
        symlink(&own, &link).unwrap();
        assert!(PrivateDirectory::open(&link).is_err());
        for mode in [0o770, 0o707, 0o1777] {
            set_mode(&own, mode);
            let refused = PrivateDirectory::make(&own).err().unwrap();
            assert!(refused.hint.unwrap().contains("chmod go-w"), "{mode:o}");
        }
        set_mode(&own, 0o755);
        assert!(PrivateDirectory::open(&own).unwrap().is_some());
    }

    #[test]
    fn the_way_to_a_file_is_judged_name_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir_all(open.join("deep")).unwrap();
        fs::create_dir(dir.path().join("closed")).unwrap();
        let way = |path: &str| check_way("the file", &dir.path().join(path));
        assert!(way("open/deep/f").is_ok() && way("absent/f").is_ok());
        set_mode(&open, 0o777);
        let refused = way("open/deep/f").unwrap_err();
        assert!(refused.message.contains("above the file") && refused.message.contains("0777"), "{refused}");
        // A link that leads there is judged by where it leads, `..` in it included.
        symlink("../open/deep", dir.path().join("closed/in")).unwrap();
        assert!(way("closed/in/f").is_err());
        set_mode(&open, 0o1777);
        assert!(way("open/deep/f").is_ok() && way("closed/in/f").is_ok());
        symlink("loop", dir.path().join("loop")).unwrap();
        assert!(way("loop").is_err());
    }

    #[test]
    fn what_others_own_or_may_change_is_refused_with_the_command_that_mends_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "x").unwrap();
        let check = || open_file("the file", &path).map(|opened| opened.unwrap());
        for mode in [0o620, 0o602, 0o666] {
            set_mode(&path, mode);
            assert!(check().unwrap_err().hint.unwrap().contains("chmod go-w"), "{mode:o}");
        }
        set_mode(&path, 0o644);
        check().unwrap();
        open_file("the file", Path::new("/dev/null")).unwrap().unwrap();
        assert!(open_file("the file", &dir.path().join("absent")).unwrap().is_err());
        // Only root can give a file away.
        if rustix::process::geteuid().is_root() {
            chown(&path, Some(12345), None).unwrap();
            let refused = check().unwrap_err();
            assert!(refused.message.contains("belongs to user 12345"), "{refused}");
            assert!(check_directory("the directory", &path).is_err());
            open_given("the ticket", &path).unwrap().unwrap();
            set_mode(&path, 0o602);
            assert!(open_given("the ticket", &path).is_err());
        }
    }
}
