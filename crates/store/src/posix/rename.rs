//! A rename that replaces nothing.
//!
//! Invariant: where the file system does not know how to refuse a name that is taken (NFS, older Lustre, some of FUSE), the name is
//! looked at, and renamed to if it is free. The window in between is the file system's, and said in the manual.

use os::fs::renameat_with;
use rustix::fs::{AtFlags, RenameFlags, statat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

/// Gives what has one name another that is free.
pub fn to_free_name(
    (from, name): (BorrowedFd<'_>, &CStr),
    (to, new_name): (BorrowedFd<'_>, &CStr),
) -> Result<(), Errno> {
    let rename = |flags| renameat_with(from, name, to, new_name, flags);
    unless_taken(&rename, &|| statat(to, new_name, AtFlags::SYMLINK_NOFOLLOW).map(|_| ()))
}

fn unless_taken(
    rename: &dyn Fn(RenameFlags) -> Result<(), Errno>,
    look: &dyn Fn() -> Result<(), Errno>,
) -> Result<(), Errno> {
    match rename(RenameFlags::NOREPLACE) {
        Err(Errno::INVAL) => match look() {
            Err(Errno::NOENT) => rename(RenameFlags::empty()),
            _ => Err(Errno::EXIST),
        },
        renamed => renamed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_taken_name_cannot_be_refused_it_is_looked_at_first() {
        let nfs = |flags: RenameFlags| if flags.is_empty() { Ok(()) } else { Err(Errno::INVAL) };
        assert_eq!(unless_taken(&nfs, &|| Err(Errno::NOENT)), Ok(()));
        assert_eq!(unless_taken(&nfs, &|| Ok(())), Err(Errno::EXIST));
        assert_eq!(unless_taken(&nfs, &|| Err(Errno::ACCESS)), Err(Errno::EXIST), "what cannot be seen may be there");
        // What is refused for another reason stays refused.
        assert_eq!(unless_taken(&|_| Err(Errno::INVAL), &|| Err(Errno::NOENT)), Err(Errno::INVAL));
        assert_eq!(unless_taken(&|_| Err(Errno::EXIST), &|| panic!("nobody looks")), Err(Errno::EXIST));
    }
}
