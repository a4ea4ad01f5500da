//! Gives objects of a destination what their sources have besides content: owner, mode, extended attributes, ACLs.
//!
//! Invariants:
//! - What a staged object gets it has before its final name: owner first, then extended attributes, mode, ACL, and times
//!   last. One that is visible is closed to others while its owner changes.
//! - Set-user-id and set-group-id bits come with the owner and the group that they stand for, and from another host only
//!   where this process may give files away: nobody gets a program that runs as somebody else through the back door.
//! - Extended attributes beside those of users are set only by a process that may give files away.
//! - What cannot be applied is a warning. It never fails an object.
//! - Extended attributes and ACLs are removed only where all that the source has are known.

use super::attributes::{is_super, names, plain, value};
use super::owners::{Sort, number_of};
use model::change::cause;
use model::fidelity::{ACL_ACCESS, ACL_DEFAULT, Warning, Warnings, Xattr, named_in_acl};
use model::{Attributes, Entry, Fidelity, Kind};
use os::fs::{fchmod, fchown, fremovexattr, fsetxattr};
use rustix::fs::{Gid, Mode, Stat, Uid, XattrFlags, fstat};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, RwLock};

const SET_IDS: u32 = 0o6000;
const CAPABILITY: &[u8] = b"security.capability";
/// Names of users and groups that are kept of one job.
const OWNERS_MAX: usize = 128 << 10;

/// Which of the metadata that a job keeps this process can set, and what it could not.
#[derive(Default)]
pub struct Keeper {
    pub fidelity: Fidelity,
    /// What is described is of this host, and of the user's own choice.
    is_own: bool,
    is_super: bool,
    groups: Vec<u32>,
    /// Users and groups of the source whose number here is another.
    numbers: RwLock<HashMap<(Sort, u32), u32>>,
    warnings: Mutex<Warnings>,
}

/// As it is to be here; none where there is to be none.
type Acl<'a> = Option<Cow<'a, [u8]>>;

/// What is to be changed of one object.
struct Plan<'a> {
    uid: Option<u32>,
    gid: Option<u32>,
    set: Vec<&'a Xattr>,
    remove: Vec<CString>,
    acls: Vec<(&'static [u8], Acl<'a>)>,
    /// The mode in the end.
    mode: u32,
    causes: u32,
}

impl Keeper {
    pub fn new(fidelity: Fidelity, is_own: bool) -> Keeper {
        let mut groups: Vec<u32> =
            rustix::process::getgroups().unwrap_or_default().iter().map(|g| g.as_raw()).collect();
        groups.push(rustix::process::getegid().as_raw());
        // An ACL says what the mode means.
        let fidelity = Fidelity { mode: fidelity.mode || fidelity.acls, ..fidelity };
        Keeper { fidelity, is_own, is_super: is_super(), groups, ..Keeper::default() }
    }

    /// Objects may get another owner than this process.
    pub fn changes_owner(&self) -> bool {
        self.fidelity.owner || self.fidelity.group || self.fidelity.acls
    }

    /// Learns what a user or group of the source is called there. Root is root everywhere.
    pub fn learn(&self, sort: Sort, number: u32, name: &[u8]) {
        if self.fidelity.numeric_ids || number == 0 {
            return;
        }
        if let Some(here) = number_of(sort, name).filter(|here| *here != number) {
            let mut numbers = self.numbers.write().unwrap();
            if numbers.len() < OWNERS_MAX {
                numbers.insert((sort, number), here);
            }
        }
    }

    pub fn warn(&self, text: &str, path: &dyn Fn() -> Vec<u8>) {
        self.warnings.lock().unwrap().note(text, path);
    }

    pub fn take_warnings(&self) -> Vec<Warning> {
        self.warnings.lock().unwrap().take()
    }

    /// The owner and the group that an object is to get and does not have, as far as this process may give them.
    pub fn owner_of(
        &self,
        attributes: &Attributes,
        status: &Stat,
        refused: &mut dyn FnMut(&str),
    ) -> (Option<u32>, Option<u32>) {
        let (uid, gid) = (self.number(Sort::User, attributes.uid), self.number(Sort::Group, attributes.gid));
        let uid = Some(uid).filter(|uid| self.fidelity.owner && *uid != status.st_uid);
        let gid = Some(gid).filter(|gid| self.fidelity.group && *gid != status.st_gid);
        if uid.is_some() && !self.is_super {
            refused("the owner was not set: this user may not give files away");
        }
        let may_give = |gid: &u32| self.is_super || self.groups.contains(gid);
        if gid.is_some_and(|gid| !may_give(&gid)) {
            refused("the group was not set: this user is not in it");
        }
        (uid.filter(|_| self.is_super), gid.filter(may_give))
    }

    /// The mode that an object with this owner gets.
    pub fn mode_of(&self, entry: &Entry, (uid, gid): (u32, u32), refused: &mut dyn FnMut(&str)) -> u32 {
        let mode = entry.mode & 0o7777;
        let is_directory = entry.kind == Kind::Directory;
        let may_set = self.is_own || self.is_super;
        let is_same = |sort, theirs: fn(&Attributes) -> u32, here: u32| {
            entry.attributes.as_ref().is_some_and(|attributes| self.number(sort, theirs(attributes)) == here)
        };
        let keeps_user = may_set && is_same(Sort::User, |a| a.uid, uid);
        // For a directory it only says which group new files get.
        let keeps_group = is_directory || may_set && is_same(Sort::Group, |a| a.gid, gid);
        let kept = mode & !(if keeps_user { 0 } else { 0o4000 }) & !(if keeps_group { 0 } else { 0o2000 });
        if kept != mode && !is_directory {
            refused("it may not run as its owner or group here: the set-id bits were omitted");
        }
        kept
    }

    /// Gives an object what its source has. Returns what changed, as bits of `cause`.
    pub fn apply(
        &self,
        file: BorrowedFd<'_>,
        entry: &Entry,
        chmod: Option<u32>,
        is_visible: bool,
        path: &dyn Fn() -> Vec<u8>,
    ) -> u32 {
        let failed = |what: &str, e: Errno| self.warn(&format!("{what}: {}", plain(e)), path);
        let status = match fstat(file) {
            Ok(status) => status,
            Err(e) => {
                failed("it could not be looked at", e);
                return 0;
            }
        };
        let plan = self.plan(file, &status, entry, chmod, &mut |text| self.warn(text, path));
        let set_mode = |mode: u32| fchmod(file, Mode::from_raw_mode(mode));
        let (mut mode, mut last_mode) = (status.st_mode & 0o7777, plan.mode);
        if plan.uid.is_some() || plan.gid.is_some() {
            let narrow = mode & last_mode & 0o700;
            if is_visible && narrow != mode && set_mode(narrow).is_ok() {
                mode = narrow;
            }
            let is_directory = entry.kind == Kind::Directory;
            if let Err(e) = fchown(file, plan.uid.map(Uid::from_raw), plan.gid.map(Gid::from_raw)) {
                failed("owner or group could not be set", e);
                last_mode &= !(if is_directory { 0o4000 } else { SET_IDS });
            }
            mode &= !(if is_directory { 0 } else { SET_IDS });
        }
        if !(plan.set.is_empty() && plan.remove.is_empty()) {
            // The owner of a file that is read-only may not set attributes of it.
            if mode & 0o200 == 0 && set_mode(mode | 0o200).is_ok() {
                mode |= 0o200;
            }
            for xattr in &plan.set {
                if let Err(e) = fsetxattr(file, &*xattr.name, &xattr.value, XattrFlags::empty()) {
                    failed("an extended attribute could not be set", e);
                }
            }
            for name in &plan.remove {
                if let Err(e) = fremovexattr(file, name) {
                    failed("an extended attribute could not be removed", e);
                }
            }
        }
        if mode != last_mode
            && let Err(e) = set_mode(last_mode)
        {
            failed("the mode could not be set", e);
        }
        for (name, acl) in &plan.acls {
            let set = match acl {
                Some(acl) => fsetxattr(file, *name, acl, XattrFlags::empty()),
                None => fremovexattr(file, *name),
            };
            if let Err(e) = set {
                failed("the ACL could not be set", e);
            }
        }
        plan.causes
    }

    /// What `apply` would change.
    pub fn differences(&self, file: BorrowedFd<'_>, entry: &Entry, chmod: Option<u32>) -> Result<u32, Errno> {
        let status = fstat(file)?;
        Ok(self.plan(file, &status, entry, chmod, &mut |_| {}).causes)
    }

    /// Owner and mode of an object that has no content are as described; where they differ it is made anew, as for its time.
    pub fn is_as_described(&self, status: &Stat, entry: &Entry) -> bool {
        let owner = entry.attributes.as_ref().map(|attributes| self.owner_of(attributes, status, &mut |_| {}));
        let mode = self.mode_of(entry, (status.st_uid, status.st_gid), &mut |_| {});
        let has_mode = !self.fidelity.mode || matches!(entry.kind, Kind::Symlink(_)) || mode == status.st_mode & 0o7777;
        matches!(owner, None | Some((None, None))) && has_mode
    }

    fn number(&self, sort: Sort, theirs: u32) -> u32 {
        self.numbers.read().unwrap().get(&(sort, theirs)).copied().unwrap_or(theirs)
    }

    /// An ACL with the numbers that its users and groups have here.
    fn acl_here<'a>(&self, acl: &'a [u8]) -> Cow<'a, [u8]> {
        let mut here = Cow::Borrowed(acl);
        for (at, is_group, theirs) in named_in_acl(acl) {
            let number = self.number(if is_group { Sort::Group } else { Sort::User }, theirs);
            if number != theirs {
                here.to_mut()[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
        }
        here
    }

    fn plan<'a>(
        &self,
        file: BorrowedFd<'_>,
        status: &Stat,
        entry: &'a Entry,
        chmod: Option<u32>,
        refused: &mut dyn FnMut(&str),
    ) -> Plan<'a> {
        let mut plan = Plan {
            uid: None,
            gid: None,
            set: Vec::new(),
            remove: Vec::new(),
            acls: Vec::new(),
            mode: status.st_mode & 0o7777,
            causes: 0,
        };
        let bit = |is_so: bool, cause: u32| if is_so { cause } else { 0 };
        if let Some(attributes) = &entry.attributes {
            (plan.uid, plan.gid) = self.owner_of(attributes, status, refused);
            plan.causes |= bit(plan.uid.is_some(), cause::OWNER) | bit(plan.gid.is_some(), cause::GROUP);
            if self.fidelity.xattrs {
                self.plan_xattrs(file, attributes, &mut plan, refused);
            }
            if self.fidelity.acls {
                self.plan_acls(file, entry, attributes, &mut plan);
            }
        }
        let owner = (plan.uid.unwrap_or(status.st_uid), plan.gid.unwrap_or(status.st_gid));
        match chmod {
            Some(mode) => plan.mode = mode,
            None if self.fidelity.mode => plan.mode = self.mode_of(entry, owner, refused),
            // They stood for the owner before.
            None if entry.kind != Kind::Directory && plan.causes & (cause::OWNER | cause::GROUP) != 0 => {
                plan.mode &= !SET_IDS;
            }
            None => {}
        }
        plan.causes |= bit(plan.mode != status.st_mode & 0o7777, cause::MODE);
        plan
    }

    fn plan_xattrs<'a>(
        &self,
        file: BorrowedFd<'_>,
        attributes: &'a Attributes,
        plan: &mut Plan<'a>,
        refused: &mut dyn FnMut(&str),
    ) {
        let gives_away = plan.uid.is_some() || plan.gid.is_some();
        let mut has_changed = false;
        for xattr in attributes.xattrs.iter().filter(|xattr| !xattr.is_acl()) {
            if !xattr.is_of_users() && !self.is_super {
                refused("extended attributes other than user.* were omitted: only root may set them");
                continue;
            }
            let name = CString::new(&*xattr.name).ok();
            let there = name.and_then(|name| value(file, &name).ok().flatten());
            let differs = there.as_deref() != Some(&*xattr.value);
            // The kernel takes capabilities away with the owner or the group.
            if differs || gives_away && &*xattr.name == CAPABILITY {
                plan.set.push(xattr);
            }
            has_changed |= differs;
        }
        let is_extra =
            |name: &CString| name.to_bytes().starts_with(b"user.") && attributes.xattr(name.to_bytes()).is_none();
        if !attributes.are_incomplete {
            plan.remove = names(file).unwrap_or_default().into_iter().filter(is_extra).collect();
        }
        if has_changed || !plan.remove.is_empty() {
            plan.causes |= cause::XATTR;
        }
    }

    fn plan_acls<'a>(&self, file: BorrowedFd<'_>, entry: &Entry, attributes: &'a Attributes, plan: &mut Plan<'a>) {
        let kinds: &[(&'static [u8], &CStr)] =
            &[(ACL_ACCESS, c"system.posix_acl_access"), (ACL_DEFAULT, c"system.posix_acl_default")];
        let kinds = if entry.kind == Kind::Directory { kinds } else { &kinds[..1] };
        for (name, c_name) in kinds {
            let wanted = attributes.xattr(name).map(|acl| self.acl_here(acl));
            if wanted.is_none() && attributes.are_incomplete {
                continue;
            }
            let there = value(file, c_name).ok().flatten();
            // A file system without ACLs reads as an empty one.
            let there = there.filter(|there| !there.is_empty());
            if wanted.as_deref() != there.as_deref() {
                plan.acls.push((name, wanted));
                plan.causes |= cause::ACL;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Generation, Name, ObjectId};
    use std::os::fd::AsFd;
    use std::sync::Arc;

    fn entry(kind: Kind, mode: u32, attributes: Attributes) -> Entry {
        Entry {
            id: ObjectId(1),
            parent: ObjectId::ROOT,
            name: Name::new(b"f").unwrap(),
            kind,
            mode,
            generation: Generation::default(),
            attributes: Some(Arc::new(attributes)),
        }
    }

    fn keeper(is_own: bool, is_super: bool) -> Keeper {
        let fidelity = Fidelity { owner: true, group: true, mode: true, xattrs: true, ..Fidelity::default() };
        Keeper { fidelity, is_own, is_super, ..Keeper::default() }
    }

    #[test]
    fn set_id_bits_come_with_their_owner_and_not_from_others() {
        let file = |mode| entry(Kind::File, mode, Attributes::new(5, 6, 0, Vec::new()));
        let mut said = 0;
        let mut mode = |keeper: &Keeper, mode, owner| keeper.mode_of(&file(mode), owner, &mut |_| said += 1);
        assert_eq!(mode(&keeper(true, false), 0o6755, (5, 6)), 0o6755);
        assert_eq!(mode(&keeper(true, false), 0o6755, (1, 6)), 0o2755);
        assert_eq!(mode(&keeper(true, false), 0o6755, (5, 1)), 0o4755);
        assert_eq!(mode(&keeper(false, true), 0o7755, (5, 6)), 0o7755);
        assert_eq!(mode(&keeper(false, false), 0o7755, (5, 6)), 0o1755);
        assert_eq!(said, 3);
        let nobodys = Entry { attributes: None, ..file(0o6755) };
        assert_eq!(keeper(true, true).mode_of(&nobodys, (5, 6), &mut |_| {}), 0o755);
        let directory = entry(Kind::Directory, 0o7775, Attributes::new(5, 6, 0, Vec::new()));
        assert_eq!(keeper(false, false).mode_of(&directory, (1, 2), &mut |_| {}), 0o3775);
    }

    #[test]
    fn owners_are_given_only_by_those_who_may_and_groups_also_by_their_members() {
        let status = fstat(tempfile::tempfile().unwrap()).unwrap();
        let (uid, gid) = (status.st_uid + 1, status.st_gid + 1);
        let attributes = Attributes::new(uid, gid, 0, Vec::new());
        let mut said = Vec::new();
        let mut owner = |keeper: &Keeper| keeper.owner_of(&attributes, &status, &mut |text| said.push(text.to_owned()));
        assert_eq!(owner(&keeper(true, true)), (Some(uid), Some(gid)));
        assert_eq!(owner(&Keeper { groups: vec![gid], ..keeper(true, false) }), (None, Some(gid)));
        assert_eq!(owner(&keeper(true, false)), (None, None));
        assert_eq!(owner(&Keeper::default()), (None, None));
        assert_eq!(said.len(), 3, "{said:?}");
    }

    #[test]
    fn names_decide_whose_an_object_is_and_root_stays_root() {
        let listed = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        if !needs::met(listed.starts_with("root:x:0:"), "/etc/passwd does not begin with root") {
            return;
        }
        let root = crate::posix::owners::name_of(Sort::User, 0).unwrap();
        let there = keeper(true, true);
        there.learn(Sort::User, 4711, &root);
        there.learn(Sort::User, 0, b"whoever");
        there.learn(Sort::User, 4712, b"no such user, surely");
        assert_eq!([4711, 0, 4712].map(|number| there.number(Sort::User, number)), [0, 0, 4712]);
    }

    #[test]
    fn users_and_groups_of_an_acl_get_their_numbers_here() {
        let keeper = Keeper::default();
        keeper.numbers.write().unwrap().extend([((Sort::User, 7), 70), ((Sort::Group, 8), 80)]);
        let acl = |entries: [(u16, u32); 4]| {
            let entry = |(tag, number): (u16, u32)| [&tag.to_le_bytes()[..], &[4, 0], &number.to_le_bytes()].concat();
            [&2u32.to_le_bytes()[..], &entries.map(entry).concat()].concat()
        };
        let theirs = acl([(1, u32::MAX), (2, 7), (2, 8), (8, 8)]);
        assert_eq!(*keeper.acl_here(&theirs), acl([(1, u32::MAX), (2, 70), (2, 8), (8, 80)]));
        // Whatever it is that a peer sends, the kernel judges it.
        for bytes in 0..theirs.len() {
            assert_eq!(keeper.acl_here(&theirs[..bytes]).len(), bytes);
        }
    }

    #[test]
    fn a_capability_outlasts_a_change_of_the_owner() {
        if !needs::root() {
            return;
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let fd = file.as_file().as_fd();
        // Version 2 of the attribute, with CAP_NET_BIND_SERVICE (linux/capability.h).
        let capability: Vec<u8> = [[0, 0, 0, 2], [0, 4, 0, 0], [0; 4], [0; 4], [0; 4]].concat();
        let set = fsetxattr(fd, CAPABILITY, &capability, XattrFlags::empty());
        if !needs::met(set.is_ok(), format!("files in the temporary directory take no capability: {set:?}")) {
            return;
        }
        let status = fstat(fd).unwrap();
        let xattrs = vec![Xattr { name: CAPABILITY.into(), value: capability.clone().into() }];
        let mode = status.st_mode & 0o7777;
        let entry = entry(Kind::File, mode, Attributes::new(status.st_uid + 1, status.st_gid, 0, xattrs));
        let keeper = keeper(true, true);
        assert_eq!(keeper.differences(fd, &entry, None), Ok(cause::OWNER));
        assert_eq!(keeper.apply(fd, &entry, None, true, &Vec::new), cause::OWNER);
        assert_eq!(value(fd, c"security.capability"), Ok(Some(capability)));
        assert_eq!(keeper.differences(fd, &entry, None), Ok(0));
    }

    #[test]
    fn attributes_of_a_read_only_file_are_set_and_others_of_users_go() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let fd = file.as_file().as_fd();
        let set = fsetxattr(fd, "user.extra", b"1", XattrFlags::empty());
        if !needs::met(set.is_ok(), format!("the temporary directory has no extended attributes: {set:?}")) {
            return;
        }
        let xattr = |name: &[u8], value: &[u8]| Xattr { name: name.into(), value: value.into() };
        let status = fstat(fd).unwrap();
        let xattrs = vec![xattr(b"user.kept", b"2"), xattr(b"security.other", b"3")];
        let entry = entry(Kind::File, 0o400, Attributes::new(status.st_uid, status.st_gid, 0, xattrs));
        let keeper = Keeper { is_super: false, ..Keeper::new(keeper(true, false).fidelity, true) };
        let expected = cause::XATTR | cause::MODE;
        assert_eq!(keeper.differences(fd, &entry, None), Ok(expected));
        assert_eq!(keeper.apply(fd, &entry, None, true, &Vec::new), expected);
        assert_eq!(keeper.differences(fd, &entry, None), Ok(0));
        let is_ours = |name: &CString| name.to_bytes().starts_with(b"user.");
        let names: Vec<_> = names(fd).unwrap().into_iter().filter(is_ours).collect();
        assert_eq!(names, [c"user.kept".to_owned()]);
        assert_eq!(value(fd, c"user.kept"), Ok(Some(b"2".to_vec())));
        assert_eq!(fstat(fd).unwrap().st_mode & 0o7777, 0o400);
        let warnings = keeper.take_warnings();
        assert!(warnings.len() == 1 && warnings[0].text.contains("only root may set them"), "{warnings:?}");
    }

    #[test]
    fn where_not_all_attributes_are_known_those_that_came_are_set_and_none_is_removed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let fd = file.as_file().as_fd();
        let set = fsetxattr(fd, "user.there", b"1", XattrFlags::empty());
        if !needs::met(set.is_ok(), format!("the temporary directory has no extended attributes: {set:?}")) {
            return;
        }
        let part = |(tag, rights, number): (u16, u8, u32)| {
            [&tag.to_le_bytes()[..], &[rights, 0], &number.to_le_bytes()].concat()
        };
        let none = u32::MAX;
        let parts = [(1, 6, none), (2, 4, 4711), (4, 0, none), (0x10, 4, none), (0x20, 0, none)];
        let acl = [&2u32.to_le_bytes()[..], &parts.map(part).concat()].concat();
        let set = fsetxattr(fd, ACL_ACCESS, &acl, XattrFlags::empty());
        let has_acl = needs::met(set.is_ok(), format!("the temporary directory has no ACLs: {set:?}"));
        let acl_there = || value(fd, c"system.posix_acl_access").ok().flatten();
        let acl_before = acl_there();
        let status = fstat(fd).unwrap();
        let described = |are_incomplete| {
            let xattr = Xattr { name: (*b"user.new").into(), value: (*b"2").into() };
            let mut attributes = Attributes::new(status.st_uid, status.st_gid, 0, vec![xattr]);
            attributes.are_incomplete = are_incomplete;
            entry(Kind::File, status.st_mode & 0o7777, attributes)
        };
        let keeper = Keeper::new(Fidelity { xattrs: true, acls: true, ..Fidelity::default() }, true);
        assert_eq!(keeper.apply(fd, &described(true), None, true, &Vec::new), cause::XATTR);
        assert_eq!(keeper.differences(fd, &described(true), None), Ok(0));
        let found = [c"user.there", c"user.new"].map(|name| value(fd, name).unwrap());
        assert_eq!(found, [Some(b"1".to_vec()), Some(b"2".to_vec())]);
        assert_eq!(acl_there(), acl_before);
        // Where all are known, what else is there goes.
        let expected = cause::XATTR | if has_acl { cause::ACL } else { 0 };
        assert_eq!(keeper.differences(fd, &described(false), None), Ok(expected));
        assert!(keeper.take_warnings().is_empty());
    }
}
