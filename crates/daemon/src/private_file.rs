//! Small files that nobody else may read or change: written whole or not at all, mode 0600.

use crate::error::{Error, Result, shown};
use crate::trust;
use model::Exit;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What to do when the name is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    Replace,
    /// Fails with `AlreadyExists`.
    Keep,
}

/// Writes `bytes` under a private name beside `path`, makes them durable, and gives them the final name in one step.
pub fn write(path: &Path, bytes: &[u8], existing: Existing) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut staging_name = std::ffi::OsString::from(".");
    staging_name.push(name);
    staging_name.push(format!(".{}", data_encoding::HEXLOWER.encode(&net::random_bytes::<8>())));
    let staging = RemoveOnDrop(path.with_file_name(staging_name));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staging.0)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    match existing {
        Existing::Replace => std::fs::rename(&staging.0, path)?,
        Existing::Keep => net::identity::name_new(&staging.0, path)?,
    }
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sync_directory(directory)
}

/// Makes durable which names a directory has.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Reads at most `bytes_max`; `None` when there is no such file. A file that others own or can write, or read where
/// `is_secret`, is refused, and so is one that is too long.
pub fn read(path: &Path, bytes_max: u64, is_secret: bool) -> Result<Option<Vec<u8>>> {
    let failed = |e| Error::of_file("read", path, e);
    // Without blocking, so that a FIFO under this name cannot hold the program up.
    let flags = (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC).bits() as i32;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    let metadata = file.metadata().map_err(failed)?;
    if !trust::is_trusted(metadata.uid()) {
        trust::check_file("the file", path, &metadata)?;
    }
    let mode = metadata.mode() & 0o7777;
    let forbidden = if is_secret { 0o077 } else { 0o022 };
    if mode & forbidden != 0 {
        let message = format!(
            "{} can be {} by others (mode {mode:04o})",
            shown(path),
            if is_secret { "read" } else { "changed" }
        );
        return Err(Error::new(Exit::Refused, message).hint("set its mode to 0600 if nobody else touched it"));
    }
    if !metadata.is_file() || metadata.len() > bytes_max {
        return Err(Error::new(Exit::Failed, format!("{} was not written by this program", shown(path))));
    }
    // Made long enough at once: what grows leaves copies behind, and some are secrets.
    let mut bytes = Vec::with_capacity(metadata.len() as usize + 64);
    file.take(bytes_max).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(bytes))
}

struct RemoveOnDrop(PathBuf);

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        // After a rename there is nothing to remove.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_are_private_whole_and_leave_nothing_beside_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        write(&path, b"one", Existing::Keep).unwrap();
        assert_eq!(write(&path, b"two", Existing::Keep).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(read(&path, 100, true).unwrap().unwrap(), b"one");
        write(&path, b"two", Existing::Replace).unwrap();
        assert_eq!(read(&path, 100, true).unwrap().unwrap(), b"two");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(read(&path, 2, true).is_err());
        assert!(read(&dir.path().join("absent"), 2, true).unwrap().is_none());
    }

    #[test]
    fn what_others_could_have_touched_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        write(&path, b"x", Existing::Keep).unwrap();
        for (mode, secret, open) in
            [(0o640, false, true), (0o640, true, false), (0o620, false, false), (0o604, true, false)]
        {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&path, 100, secret).is_ok(), open, "{mode:o} {secret}");
        }
        assert!(read(dir.path(), 100, false).is_err());
    }
}
