//! What is said of an object beside its content: which of it a job keeps, the values, and what could not be kept.
//!
//! Pure values. `Attributes` may count their bytes in a counter of their holder, so that whoever takes them from a peer can
//! bound what it holds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What of an object's metadata is kept beyond name, kind, modification time and permission bits less the umask.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fidelity {
    pub owner: bool,
    pub group: bool,
    /// Owners and groups are numbers; otherwise names decide where both sides know them.
    pub numeric_ids: bool,
    /// All mode bits as they are, whatever the umask.
    pub mode: bool,
    pub xattrs: bool,
    pub acls: bool,
    /// Several names of one file arrive as names of one file.
    pub hard_links: bool,
    /// Runs of zeros are holes.
    pub sparse: bool,
    pub devices: bool,
    /// FIFOs and sockets.
    pub specials: bool,
}

/// In the order of the bits.
const NAMES: [&str; 10] =
    ["owner", "group", "numeric-ids", "mode", "xattrs", "acls", "hard-links", "sparse", "devices", "specials"];

impl Fidelity {
    pub fn names(self) -> Vec<&'static str> {
        NAMES.into_iter().zip(self.flags()).filter_map(|(name, is_kept)| is_kept.then_some(name)).collect()
    }

    /// # Errors
    /// With words for the user.
    pub fn from_names(names: &[String]) -> Result<Fidelity, String> {
        let mut bits = 0;
        for name in names {
            let at = NAMES.iter().position(|known| known == name);
            bits |= 1 << at.ok_or_else(|| format!("{name:?} is not one of {}", NAMES.join(", ")))?;
        }
        Ok(Fidelity::from_bits(bits).expect("every name has a bit"))
    }

    /// As bits of the protocol (docs/protocol.md section 14).
    pub fn to_bits(self) -> u32 {
        self.flags().into_iter().enumerate().map(|(at, flag)| u32::from(flag) << at).sum()
    }

    /// `None` for bits that this version does not know.
    pub fn from_bits(bits: u32) -> Option<Fidelity> {
        let has = |at: u32| bits & 1 << at != 0;
        let fidelity = Fidelity {
            owner: has(0),
            group: has(1),
            numeric_ids: has(2),
            mode: has(3),
            xattrs: has(4),
            acls: has(5),
            hard_links: has(6),
            sparse: has(7),
            devices: has(8),
            specials: has(9),
        };
        (fidelity.to_bits() == bits).then_some(fidelity)
    }

    pub fn is_none(self) -> bool {
        self == Fidelity::default()
    }

    /// Entries carry attributes.
    pub fn has_attributes(self) -> bool {
        self.owner || self.group || self.mode || self.hard_links || self.has_xattrs()
    }

    /// Attributes that are read and written by name.
    pub fn has_xattrs(self) -> bool {
        self.xattrs || self.acls
    }

    fn flags(self) -> [bool; 10] {
        [
            self.owner,
            self.group,
            self.numeric_ids,
            self.mode,
            self.xattrs,
            self.acls,
            self.hard_links,
            self.sparse,
            self.devices,
            self.specials,
        ]
    }
}

/// Extended attributes of one object that travel, what they take in all, and one name and value.
pub const XATTRS_MAX: usize = 1024;
pub const XATTRS_BYTES_MAX: u64 = 128 << 10;
pub const XATTR_NAME_BYTES_MAX: usize = 255;
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;

/// An extended attribute. POSIX ACLs are two of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Xattr {
    pub name: Box<[u8]>,
    pub value: Box<[u8]>,
}

/// The extended attributes in which Linux keeps POSIX ACLs.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// The users and groups that a POSIX ACL names, in the form that the kernel hands over (`linux/posix_acl_xattr.h`: a version
/// of four bytes, then tag, rights and number of eight bytes each): where the number stands, whether it is a group's, and
/// the number.
pub fn named_in_acl(acl: &[u8]) -> impl Iterator<Item = (usize, bool, u32)> + '_ {
    const USER: u16 = 0x02;
    const GROUP: u16 = 0x08;
    let entries = acl.get(4..).unwrap_or_default().chunks_exact(8).enumerate();
    entries.filter_map(|(index, entry)| {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        let number = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        (tag == USER || tag == GROUP).then_some((4 + 8 * index + 4, tag == GROUP, number))
    })
}

impl Xattr {
    /// Whether a job with this fidelity keeps it.
    pub fn is_kept_by(name: &[u8], fidelity: Fidelity) -> bool {
        let is_plain = [&b"user."[..], b"trusted.", b"security."].iter().any(|space| name.starts_with(space));
        let is_acl = name == ACL_ACCESS || name == ACL_DEFAULT;
        is_plain && fidelity.xattrs || is_acl && fidelity.acls
    }

    /// It has a name and is not too long.
    pub fn fits(name: &[u8], value: &[u8]) -> bool {
        let is_name = !name.is_empty() && name.len() <= XATTR_NAME_BYTES_MAX && !name.contains(&0);
        is_name && value.len() <= XATTR_VALUE_BYTES_MAX
    }

    /// What it takes, its share of the holder's memory included.
    pub fn bytes(&self) -> u64 {
        (self.name.len() + self.value.len()) as u64 + XATTR_EXTRA_BYTES
    }

    pub fn is_acl(&self) -> bool {
        *self.name == *ACL_ACCESS || *self.name == *ACL_DEFAULT
    }

    /// Anybody may give it to files that they may write; every other kind says something to the system.
    pub fn is_of_users(&self) -> bool {
        self.name.starts_with(b"user.")
    }
}

/// What is said of one object. Shared by all that say the same.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct Attributes {
    pub uid: u32,
    pub gid: u32,
    /// Names that the object has; where that is not asked, 0. From a peer it is 2 for more than one.
    pub links: u32,
    /// In the order of their names.
    pub xattrs: Vec<Xattr>,
    /// Not all of them could be read or sent: one that is missing here may be there all the same.
    pub are_incomplete: bool,
    charge: Charge,
}

/// What one extended attribute takes beside its name and its value.
const XATTR_EXTRA_BYTES: u64 = 16;

impl Attributes {
    pub fn new(uid: u32, gid: u32, links: u32, mut xattrs: Vec<Xattr>) -> Attributes {
        xattrs.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Attributes { uid, gid, links, xattrs, are_incomplete: false, charge: Charge::default() }
    }

    /// Several names may lead to the object.
    pub fn is_shared(&self) -> bool {
        self.links > 1
    }

    /// What its extended attributes take.
    pub fn bytes(&self) -> u64 {
        self.xattrs.iter().map(Xattr::bytes).sum()
    }

    /// Counts its bytes in `held` for as long as it lives.
    pub fn count_in(&mut self, held: &Arc<AtomicU64>) {
        let bytes = self.bytes();
        if bytes > 0 {
            held.fetch_add(bytes, Relaxed);
            self.charge = Charge(Some((held.clone(), bytes)));
        }
    }

    pub fn xattr(&self, name: &[u8]) -> Option<&[u8]> {
        self.xattrs.iter().find(|xattr| *xattr.name == *name).map(|xattr| &xattr.value[..])
    }
}

/// Sets of attributes that came last: of equal ones that follow each other, all but the first are known.
#[derive(Default)]
pub struct Recent {
    held: VecDeque<Arc<Attributes>>,
}

/// Sets that a new one is compared with.
const COMPARED: usize = 64;

impl Recent {
    /// One that is equal, if there is.
    pub fn find(&self, attributes: &Attributes) -> Option<Arc<Attributes>> {
        self.held.iter().find(|held| ***held == *attributes).cloned()
    }

    pub fn add(&mut self, attributes: Attributes) -> Arc<Attributes> {
        let attributes = Arc::new(attributes);
        self.held.truncate(COMPARED - 1);
        self.held.push_front(attributes.clone());
        attributes
    }
}

/// Bytes that are counted somewhere until this is dropped. Says nothing of the attributes themselves.
#[derive(Default, Debug)]
struct Charge(Option<(Arc<AtomicU64>, u64)>);

impl PartialEq for Charge {
    fn eq(&self, _: &Charge) -> bool {
        true
    }
}

impl Eq for Charge {}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some((held, bytes)) = &self.0 {
            held.fetch_sub(*bytes, Relaxed);
        }
    }
}

/// Something that could not be kept of objects which arrived all the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    /// What, and why.
    pub text: String,
    /// Objects that it happened to.
    pub count: u64,
    /// The first of them, relative to the destination of the job.
    pub path: Vec<u8>,
}

/// Warnings by their text: objects are counted, and the first of each kind is named.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Warnings {
    kept: Vec<Warning>,
}

/// Kinds of warnings that are told apart.
pub const WARNINGS_MAX: usize = 64;

impl Warnings {
    /// What has no room of its own is counted with the last.
    pub fn add(&mut self, warning: Warning) {
        let is_full = self.kept.len() == WARNINGS_MAX;
        match self.kept.iter_mut().find(|kept| kept.text == warning.text) {
            Some(kept) => kept.count = kept.count.saturating_add(warning.count),
            None if is_full => self.kept[WARNINGS_MAX - 1].count += warning.count.min(1 << 40),
            None => self.kept.push(warning),
        }
    }

    pub fn note(&mut self, text: &str, path: &dyn Fn() -> Vec<u8>) {
        match self.kept.iter_mut().find(|kept| kept.text == text) {
            Some(kept) => kept.count += 1,
            None => self.add(Warning { text: text.to_owned(), count: 1, path: path() }),
        }
    }

    pub fn take(&mut self) -> Vec<Warning> {
        std::mem::take(&mut self.kept)
    }

    pub fn all(&self) -> &[Warning] {
        &self.kept
    }

    /// Objects, each as often as something of it could not be kept.
    pub fn count(&self) -> u64 {
        self.kept.iter().map(|warning| warning.count).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xattr(name: &str, value: &[u8]) -> Xattr {
        Xattr { name: name.as_bytes().into(), value: value.into() }
    }

    #[test]
    fn bits_read_back_and_unknown_ones_are_refused() {
        for bits in 0..1 << 10 {
            assert_eq!(Fidelity::from_bits(bits).map(Fidelity::to_bits), Some(bits));
        }
        assert_eq!(Fidelity::from_bits(1 << 10), None);
        assert!(Fidelity::from_bits(0).unwrap().is_none());
    }

    #[test]
    fn attributes_are_counted_while_they_live_and_compare_without_that() {
        let held = Arc::new(AtomicU64::new(0));
        let mut counted = Attributes::new(1, 2, 1, vec![xattr("user.b", b"22"), xattr("user.a", b"1")]);
        counted.count_in(&held);
        assert_eq!(held.load(Relaxed), counted.bytes());
        assert_eq!(counted, Attributes::new(1, 2, 1, vec![xattr("user.a", b"1"), xattr("user.b", b"22")]));
        assert_eq!(counted.xattr(b"user.b"), Some(&b"22"[..]));
        drop(counted);
        assert_eq!(held.load(Relaxed), 0);
    }

    #[test]
    fn warnings_are_counted_by_their_text_and_bounded() {
        let mut warnings = Warnings::default();
        for at in 0..100 {
            warnings.note("the owner could not be set", &|| vec![b'a' + at]);
        }
        assert_eq!((warnings.count(), warnings.all().len(), &warnings.all()[0].path[..]), (100, 1, &b"a"[..]));
        for at in 0..100 {
            warnings.note(&at.to_string(), &Vec::new);
        }
        assert_eq!((warnings.count(), warnings.all().len()), (200, WARNINGS_MAX));
    }
}
