//! What a file gets of the directory that it is made in: its group, where that has the set-group-id bit, and its default ACL.
//!
//! Invariant: what was staged elsewhere has, once it is given this, what it would have if it had been made in its directory.
//!
//! Not here: what is kept of the source, which is set over it (`keep`).

use super::attributes::value;
use super::facts;
use os::fs::{fchmod, fchown, fremovexattr, fsetxattr};
use rustix::fs::{Gid, Mode, XattrFlags, fstat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

const ACCESS: &CStr = c"system.posix_acl_access";
const DEFAULT: &CStr = c"system.posix_acl_default";

/// Bytes before the entries of an ACL, and of each: its tag, its permissions, and whom it names.
const HEAD_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// Tags of entries that the mode speaks of (linux/posix_acl.h).
const OWNER: u16 = 0x01;
const GROUP: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

/// What the files in a directory get.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inherited {
    group: u32,
    acl: Option<Box<[u8]>>,
}

impl Inherited {
    pub fn of(directory: BorrowedFd<'_>) -> Inherited {
        let nothing = Inherited::nothing();
        let shared = fstat(directory).ok().filter(|status| status.st_mode & 0o2000 != 0);
        let acl = value(directory, DEFAULT).ok().flatten().filter(|acl| acl.len() > HEAD_BYTES);
        Inherited { group: shared.map_or(nothing.group, |status| status.st_gid), acl: acl.map(Vec::into_boxed_slice) }
    }

    /// Of a directory that gives nothing of its own.
    pub fn nothing() -> Inherited {
        Inherited { group: rustix::process::getegid().as_raw(), acl: None }
    }

    /// The permissions of a file that is made with these.
    pub fn mode_of(&self, asked: u32) -> u32 {
        // Where there is a default ACL the umask does not count.
        asked & self.acl.as_deref().map_or(!facts::umask(), permissions)
    }

    /// The same of a FIFO, socket or device that is made where files get what `staged` says: it is not given another ACL. Without its
    /// mask, which limits others too, the group has what the ACL gives it.
    pub fn mode_of_node(&self, staged: &Inherited, asked: u32) -> u32 {
        let mode = self.mode_of(asked);
        let Some(acl) = self.acl.as_deref().filter(|_| self.acl != staged.acl) else { return mode };
        mode & !facts::umask() & (0o707 | (bits_of(acl, GROUP).unwrap_or(0) << 3))
    }

    /// The group to be set of what is staged where files get what `staged` says.
    pub fn group_instead(&self, staged: &Inherited) -> Option<u32> {
        (self.group != staged.group).then_some(self.group)
    }

    /// Gives it to a file that was just made with `mode` where files get what `staged` says.
    pub fn give(&self, file: BorrowedFd<'_>, staged: &Inherited, mode: u32) -> Result<(), Errno> {
        let group = self.group_instead(staged).map_or(Ok(()), |group| fchown(file, None, Some(Gid::from_raw(group))));
        let acl = match (&self.acl, &staged.acl) {
            (here, there) if here == there => Ok(()),
            (Some(acl), _) => fsetxattr(file, ACCESS, &access(acl, mode), XattrFlags::empty()),
            (None, _) => match fremovexattr(file, ACCESS) {
                Ok(()) | Err(Errno::NODATA) => fchmod(file, Mode::from_raw_mode(self.mode_of(mode))),
                refused => refused,
            },
        };
        group.and(acl)
    }
}

fn tag_of(entry: &[u8]) -> u16 {
    u16::from_le_bytes([entry[0], entry[1]])
}

/// What the first entry of a tag permits.
fn bits_of(acl: &[u8], tag: u16) -> Option<u32> {
    let mut entries = acl[HEAD_BYTES..].chunks_exact(ENTRY_BYTES);
    entries.find(|entry| tag_of(entry) == tag).map(|entry| u32::from(entry[2]) & 7)
}

/// What an ACL lets its owner, its group and others do, as a mode.
fn permissions(acl: &[u8]) -> u32 {
    let of = |tag| bits_of(acl, tag);
    let (owner, group, others) = (of(OWNER), of(MASK).or(of(GROUP)), of(OTHERS));
    (owner.unwrap_or(0) << 6) | (group.unwrap_or(0) << 3) | others.unwrap_or(0)
}

/// The ACL that the kernel makes of a default one for a file of this mode.
fn access(default: &[u8], mode: u32) -> Vec<u8> {
    let mut acl = default.to_vec();
    let has_mask = acl[HEAD_BYTES..].chunks_exact(ENTRY_BYTES).any(|entry| tag_of(entry) == MASK);
    for entry in acl[HEAD_BYTES..].chunks_exact_mut(ENTRY_BYTES) {
        let shift = match tag_of(entry) {
            OWNER => 6,
            MASK => 3,
            GROUP if !has_mask => 3,
            OTHERS => 0,
            _ => continue,
        };
        entry[2] &= ((mode >> shift) & 7) as u8;
    }
    acl
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u8)]) -> Vec<u8> {
        let entry = |(tag, bits): &(u16, u8)| [&tag.to_le_bytes()[..], &[*bits, 0], &[0xff; 4]].concat();
        [vec![2, 0, 0, 0], entries.iter().flat_map(entry).collect()].concat()
    }

    #[test]
    fn a_default_acl_and_a_mode_limit_each_other() {
        // A named user (tag 2) has what the mask leaves.
        let full = acl(&[(OWNER, 7), (2, 7), (GROUP, 5), (MASK, 6), (OTHERS, 0)]);
        assert_eq!(permissions(&full), 0o760);
        assert_eq!(access(&full, 0o644), acl(&[(OWNER, 6), (2, 7), (GROUP, 5), (MASK, 4), (OTHERS, 0)]));
        let minimal = acl(&[(OWNER, 7), (GROUP, 5), (OTHERS, 1)]);
        assert_eq!(permissions(&minimal), 0o751);
        assert_eq!(access(&minimal, 0o664), acl(&[(OWNER, 6), (GROUP, 4), (OTHERS, 0)]));
        let given = Inherited { acl: Some(full.into()), ..Inherited::nothing() };
        assert_eq!(given.mode_of(0o666), 0o660, "whatever the umask");
        assert_eq!(given.mode_of_node(&given, 0o666), 0o660, "it has the ACL");
        let without = given.mode_of_node(&Inherited::nothing(), 0o666);
        assert_eq!(without, 0o640 & !facts::umask(), "the mask is not the group's");
    }
}
