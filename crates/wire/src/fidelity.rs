//! What a job keeps besides content, as it travels, and the checks of it (docs/protocol.md section 14).
//!
//! Invariants:
//! - A receiver takes nothing that its job did not ask for: no owner, attribute or special file comes unasked.
//! - What the extended attributes of a job take is bounded; equal ones that follow each other are held once.
//! - Another name leads to a file that was described before as one that has several.

use crate::close::{CloseCode, Refusal};
use crate::limits::{OTHER_NAMES_MAX, OWNER_NAME_BYTES_MAX, OWNERS_TOLD_MAX, SHARED_FILES_MAX, XATTRS_HELD_BYTES_MAX};
use model::fidelity::{Recent, WARNINGS_MAX, Warning, XATTRS_BYTES_MAX, XATTRS_MAX, Xattr};
use model::{Attributes, Fidelity, Node};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Clone, PartialEq, prost::Message)]
pub struct AttributesRecord {
    #[prost(uint32, tag = "1")]
    pub uid: u32,
    #[prost(uint32, tag = "2")]
    pub gid: u32,
    /// The file has more names than this.
    #[prost(bool, tag = "3")]
    pub is_shared: bool,
    #[prost(message, repeated, tag = "4")]
    pub xattrs: Vec<XattrRecord>,
    /// There may be more of them: they could not all be read or sent.
    #[prost(bool, tag = "5")]
    pub are_incomplete: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct XattrRecord {
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Names {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    #[prost(message, repeated, tag = "2")]
    pub users: Vec<NameRecord>,
    #[prost(message, repeated, tag = "3")]
    pub groups: Vec<NameRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct NameRecord {
    #[prost(uint32, tag = "1")]
    pub id: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Warnings {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    #[prost(message, repeated, tag = "2")]
    pub warnings: Vec<WarningRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct WarningRecord {
    /// What could not be kept, and why.
    #[prost(string, tag = "1")]
    pub text: String,
    /// Of how many objects.
    #[prost(uint64, tag = "2")]
    pub count: u64,
    /// The first of them.
    #[prost(bytes = "vec", tag = "3")]
    pub path: Vec<u8>,
}

/// Kinds of entries that are special files.
const FIFO: u32 = 5;
const SOCKET: u32 = 6;
const CHARACTER_DEVICE: u32 = 7;
const BLOCK_DEVICE: u32 = 8;

/// Kind and number of an entry.
pub(crate) fn of_node(node: Node) -> (u32, u64) {
    match node {
        Node::Fifo => (FIFO, 0),
        Node::Socket => (SOCKET, 0),
        Node::CharacterDevice(number) => (CHARACTER_DEVICE, number),
        Node::BlockDevice(number) => (BLOCK_DEVICE, number),
    }
}

pub(crate) fn record_of(attributes: &Attributes) -> AttributesRecord {
    let record = |xattr: &Xattr| XattrRecord { name: xattr.name.to_vec(), value: xattr.value.to_vec() };
    AttributesRecord {
        uid: attributes.uid,
        gid: attributes.gid,
        is_shared: attributes.is_shared(),
        xattrs: attributes.xattrs.iter().map(record).collect(),
        are_incomplete: attributes.are_incomplete,
    }
}

/// The receiver's check of what one job keeps.
#[derive(Default)]
pub struct AttributeCheck {
    fidelity: Fidelity,
    held_bytes: Arc<AtomicU64>,
    recent: Recent,
    shared: HashSet<u64>,
    other_names: usize,
}

impl AttributeCheck {
    pub fn new(fidelity: Fidelity) -> AttributeCheck {
        AttributeCheck { fidelity, ..AttributeCheck::default() }
    }

    /// A special file, by the kind of its entry; `None` for other kinds.
    pub(crate) fn node(&self, kind: u32, number: u64) -> Option<Node> {
        match kind {
            FIFO if self.fidelity.specials => Some(Node::Fifo),
            SOCKET if self.fidelity.specials => Some(Node::Socket),
            CHARACTER_DEVICE if self.fidelity.devices => Some(Node::CharacterDevice(number)),
            BLOCK_DEVICE if self.fidelity.devices => Some(Node::BlockDevice(number)),
            _ => None,
        }
    }

    /// Takes the attributes of an entry. `is_file` says that it may be a file of several names.
    pub(crate) fn take(
        &mut self,
        id: u64,
        is_file: bool,
        record: Option<AttributesRecord>,
    ) -> Result<Option<Arc<Attributes>>, Refusal> {
        let Some(record) = record else { return Ok(None) };
        let malformed = |what: &str| Refusal::new(CloseCode::Malformed, &format!("entry {id}: {what}"));
        if !self.fidelity.has_attributes() || record.is_shared && !(is_file && self.fidelity.hard_links) {
            return Err(malformed("attributes that nobody asked for"));
        }
        let fidelity = self.fidelity;
        let is_good =
            |xattr: &XattrRecord| Xattr::fits(&xattr.name, &xattr.value) && Xattr::is_kept_by(&xattr.name, fidelity);
        if record.xattrs.len() > XATTRS_MAX || !record.xattrs.iter().all(is_good) {
            return Err(malformed("an extended attribute that nobody asked for, or too long"));
        }
        let xattr = |xattr: XattrRecord| Xattr { name: xattr.name.into(), value: xattr.value.into() };
        let xattrs = record.xattrs.into_iter().map(xattr).collect();
        let mut attributes = Attributes::new(record.uid, record.gid, 2 * u32::from(record.is_shared), xattrs);
        attributes.are_incomplete = record.are_incomplete;
        if attributes.bytes() > XATTRS_BYTES_MAX || attributes.xattrs.windows(2).any(|w| w[0].name == w[1].name) {
            return Err(malformed("too many extended attributes, or one of them twice"));
        }
        if record.is_shared {
            if self.shared.len() >= SHARED_FILES_MAX {
                return Err(Refusal::new(CloseCode::Limit, "the job has too many files of several names"));
            }
            self.shared.insert(id);
        }
        if let Some(held) = self.recent.find(&attributes) {
            return Ok(Some(held));
        }
        attributes.count_in(&self.held_bytes);
        if self.held_bytes.load(Relaxed) > XATTRS_HELD_BYTES_MAX {
            return Err(Refusal::new(CloseCode::Limit, "more extended attributes than a receiver holds"));
        }
        Ok(Some(self.recent.add(attributes)))
    }

    /// Takes another name of a file in.
    pub(crate) fn other_name(&mut self, id: u64, same_as: u64) -> Result<(), Refusal> {
        if !self.shared.contains(&same_as) {
            let text = format!("entry {id}: another name of what was not described as a file of several names");
            return Err(Refusal::new(CloseCode::Malformed, &text));
        }
        self.other_names += 1;
        if self.other_names > OTHER_NAMES_MAX {
            return Err(Refusal::new(CloseCode::Limit, "the job has too many other names of files"));
        }
        Ok(())
    }
}

/// Checks names of users and groups.
pub fn check_names(names: &Names) -> Result<(), Refusal> {
    let is_bad = |record: &NameRecord| {
        record.name.is_empty() || record.name.len() > OWNER_NAME_BYTES_MAX || record.name.contains(&0)
    };
    let is_long = names.users.len() > OWNERS_TOLD_MAX || names.groups.len() > OWNERS_TOLD_MAX;
    if is_long || names.users.iter().chain(&names.groups).any(is_bad) {
        return Err(Refusal::new(
            CloseCode::Malformed,
            "names of users or groups that are too many, empty or too long",
        ));
    }
    Ok(())
}

pub fn warnings_to_wire(job: u32, warnings: &[Warning]) -> Warnings {
    let record = |warning: &Warning| WarningRecord {
        text: crate::bounded(&warning.text).to_owned(),
        count: warning.count,
        path: warning.path[..warning.path.len().min(crate::limits::PATH_BYTES_MAX)].to_vec(),
    };
    Warnings { job, warnings: warnings.iter().take(WARNINGS_MAX).map(record).collect() }
}

/// Reads a peer's warnings, as far as they are kept. Their texts are shown escaped.
pub fn warnings_from_wire(told: &Warnings) -> impl Iterator<Item = Warning> + '_ {
    told.warnings.iter().take(WARNINGS_MAX).map(|record| Warning {
        text: model::name::Escaped(crate::bounded(&record.text).as_bytes()).to_string(),
        count: record.count.max(1),
        path: record.path[..record.path.len().min(crate::limits::PATH_BYTES_MAX)].to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::fidelity::XATTR_VALUE_BYTES_MAX;

    fn fidelity() -> Fidelity {
        Fidelity { owner: true, xattrs: true, hard_links: true, devices: true, ..Fidelity::default() }
    }

    fn record(name: &[u8], value: &[u8]) -> Option<AttributesRecord> {
        let xattrs = vec![XattrRecord { name: name.to_vec(), value: value.to_vec() }];
        Some(AttributesRecord { uid: 1, gid: 2, xattrs, ..AttributesRecord::default() })
    }

    #[test]
    fn only_what_was_asked_for_is_taken() {
        let taken = AttributeCheck::new(fidelity()).take(1, true, record(b"user.a", b"1")).unwrap().unwrap();
        assert_eq!((taken.uid, taken.gid, taken.xattr(b"user.a")), (1, 2, Some(&b"1"[..])));
        assert_eq!(super::record_of(&taken), record(b"user.a", b"1").unwrap());
        for name in [&b"system.posix_acl_access"[..], b"system.other", b"other", b"", b"user.\0", &[b'u'; 300]] {
            assert!(AttributeCheck::new(fidelity()).take(1, true, record(name, b"1")).is_err(), "{name:?}");
        }
        assert!(AttributeCheck::default().take(1, true, record(b"user.a", b"1")).is_err());
        let incomplete = record(b"user.a", b"1").map(|record| AttributesRecord { are_incomplete: true, ..record });
        let taken = AttributeCheck::new(fidelity()).take(1, true, incomplete.clone()).unwrap().unwrap();
        assert_eq!(Some(super::record_of(&taken)), incomplete);
        let long = vec![0; XATTR_VALUE_BYTES_MAX + 1];
        assert!(AttributeCheck::new(fidelity()).take(1, true, record(b"user.a", &long)).is_err());
        let check = AttributeCheck::new(fidelity());
        assert_eq!((check.node(FIFO, 0), check.node(BLOCK_DEVICE, 7)), (None, Some(Node::BlockDevice(7))));
    }

    #[test]
    fn equal_attributes_are_held_once_and_different_ones_bounded() {
        let mut check = AttributeCheck::new(fidelity());
        let mut held = Vec::new();
        for _ in 0..100 {
            held.push(check.take(1, true, record(b"user.a", &[1; 60_000])).unwrap().unwrap());
        }
        assert!(held.iter().all(|one| Arc::ptr_eq(one, &held[0])));
        let mut refused = None;
        for at in 0..10_000u32 {
            match check.take(1, true, record(b"user.a", &[&at.to_le_bytes()[..], &[0; 60_000]].concat())) {
                Ok(taken) => held.extend(taken),
                Err(refusal) => {
                    refused = Some(refusal.code);
                    break;
                }
            }
        }
        assert_eq!(refused, Some(CloseCode::Limit));
        drop((held, check));
    }

    #[test]
    fn another_name_is_of_a_file_that_has_several() {
        let mut check = AttributeCheck::new(fidelity());
        let shared = AttributesRecord { is_shared: true, ..AttributesRecord::default() };
        check.take(5, true, Some(shared.clone())).unwrap();
        assert!(check.take(6, false, Some(shared)).is_err());
        assert!(check.other_name(7, 5).is_ok());
        assert!(check.other_name(8, 6).is_err());
    }

    #[test]
    fn names_and_warnings_of_a_peer_are_bounded() {
        let names = |name: &[u8]| Names { users: vec![NameRecord { id: 1, name: name.to_vec() }], ..Names::default() };
        assert!(check_names(&names(b"alice")).is_ok());
        for bad in [&b""[..], b"a\0", &[b'x'; 257]] {
            assert!(check_names(&names(bad)).is_err());
        }
        let told =
            Warnings { job: 1, warnings: vec![WarningRecord { text: "\u{1b}[2J".into(), ..Default::default() }; 99] };
        let warnings: Vec<_> = warnings_from_wire(&told).collect();
        assert_eq!((warnings.len(), &warnings[0].text[..], warnings[0].count), (WARNINGS_MAX, "\\x1b[2J", 1));
    }
}
