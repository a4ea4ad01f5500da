//! What becomes of an object, from what was described, what stands at its name, and what the user wants. Pure.

use model::change::{Subject, cause};
use model::options::Compare;
use model::{Entry, Kind, Node, TransferOptions};
use store::{Decision, PublishRule};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Skip,
    /// Same size: the digests decide.
    Compare,
    Publish(PublishRule),
}

/// Decides about a file or link.
pub fn step(options: &TransferOptions, entry: &Entry, is_open_ended: bool, found: &Decision) -> Step {
    let may_compare = options.compare == Compare::Checksum && entry.kind == Kind::File && !is_open_ended;
    match found {
        Decision::Absent if options.only_existing => Step::Skip,
        Decision::Absent => Step::Publish(PublishRule::NoReplace),
        Decision::Same if may_compare && !options.no_clobber => Step::Compare,
        Decision::Same => Step::Skip,
        Decision::Replace { .. } if options.no_clobber || options.compare == Compare::Exists => Step::Skip,
        Decision::Replace { size_bytes, there } if entry.kind == Kind::File && there.is_file => {
            let is_same_size = *size_bytes == entry.size_bytes() && !is_open_ended;
            match options.compare {
                _ if options.keeps_newer && there.modified > entry.generation.modified => Step::Skip,
                Compare::Size if is_same_size => Step::Skip,
                Compare::Checksum if is_same_size && may_compare => Step::Compare,
                _ => Step::Publish(PublishRule::Replace),
            }
        }
        Decision::Replace { .. } => Step::Publish(PublishRule::Replace),
    }
}

/// Whether a file that is skipped gets what its source has besides content: it has the content.
pub fn is_amended(options: &TransferOptions, entry: &Entry, found: &Decision) -> bool {
    let is_asked = options.fidelity.has_attributes() && entry.kind == Kind::File;
    if !is_asked || options.no_clobber || options.compare == Compare::Exists {
        return false;
    }
    match found {
        Decision::Absent => false,
        Decision::Same => true,
        Decision::Replace { size_bytes, there } => {
            let is_newer = options.keeps_newer && there.modified > entry.generation.modified;
            options.compare == Compare::Size && there.is_file && !is_newer && *size_bytes == entry.size_bytes()
        }
    }
}

/// Why an object that is published changes: bits of `cause`.
pub fn causes(entry: &Entry, found: &Decision) -> u32 {
    match found {
        Decision::Absent => cause::NEW,
        Decision::Same => cause::CONTENT,
        Decision::Replace { size_bytes, there } if there.is_file && entry.kind == Kind::File => {
            let bit = |differs: bool, cause: u32| if differs { cause } else { 0 };
            bit(*size_bytes != entry.size_bytes(), cause::SIZE)
                | bit(there.modified != entry.generation.modified, cause::TIME)
        }
        Decision::Replace { .. } => cause::CONTENT,
    }
}

pub fn subject(kind: &Kind) -> Subject {
    match kind {
        Kind::Directory => Subject::Directory,
        Kind::File => Subject::File,
        Kind::Symlink(_) => Subject::Symlink,
        Kind::HardLink(_) => Subject::File,
        Kind::Node(Node::Fifo | Node::Socket) => Subject::Special,
        Kind::Node(Node::CharacterDevice(_) | Node::BlockDevice(_)) => Subject::Device,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Generation, Name, ObjectId, Timestamp};
    use store::There;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanoseconds: 0 }
    }

    fn entry() -> Entry {
        let generation = Generation { size_bytes: 5, modified: at(100), ..Generation::default() };
        let name = Name::new(b"f").unwrap();
        Entry {
            id: ObjectId(1),
            parent: ObjectId::ROOT,
            name,
            kind: Kind::File,
            mode: 0o644,
            generation,
            attributes: None,
        }
    }

    fn there(size_bytes: u64, seconds: i64) -> Decision {
        Decision::Replace { size_bytes, there: There { is_file: true, modified: at(seconds) } }
    }

    #[test]
    fn each_way_of_comparing_decides_as_its_name_says() {
        use Compare::*;
        let replace = Step::Publish(PublishRule::Replace);
        for (compare, found, expected) in [
            (Mtime, there(5, 99), replace),
            (Mtime, there(4, 100), replace),
            (Mtime, Decision::Same, Step::Skip),
            (Size, there(5, 99), Step::Skip),
            (Size, there(4, 100), replace),
            (Exists, there(4, 99), Step::Skip),
            (Exists, Decision::Absent, Step::Publish(PublishRule::NoReplace)),
            (Checksum, Decision::Same, Step::Compare),
            (Checksum, there(5, 99), Step::Compare),
            (Checksum, there(4, 100), replace),
        ] {
            let options = TransferOptions { compare, ..TransferOptions::default() };
            assert_eq!(step(&options, &entry(), false, &found), expected, "{compare} {found:?}");
        }
    }

    #[test]
    fn what_is_newer_or_there_or_not_there_can_be_left_alone() {
        let options = TransferOptions::default;
        let update = TransferOptions { keeps_newer: true, ..options() };
        assert_eq!(step(&update, &entry(), false, &there(4, 101)), Step::Skip);
        assert_eq!(step(&update, &entry(), false, &there(4, 100)), Step::Publish(PublishRule::Replace));
        let existing = TransferOptions { only_existing: true, ..options() };
        assert_eq!(step(&existing, &entry(), false, &Decision::Absent), Step::Skip);
        assert_eq!(step(&existing, &entry(), false, &there(4, 1)), Step::Publish(PublishRule::Replace));
        let no_clobber = TransferOptions { no_clobber: true, compare: Compare::Checksum, ..options() };
        assert_eq!(step(&no_clobber, &entry(), false, &Decision::Same), Step::Skip);
        assert_eq!(step(&no_clobber, &entry(), false, &there(5, 1)), Step::Skip);
    }

    #[test]
    fn an_object_of_unknown_end_is_never_compared_by_digest() {
        let options = TransferOptions { compare: Compare::Checksum, ..TransferOptions::default() };
        assert_eq!(step(&options, &entry(), true, &there(5, 1)), Step::Publish(PublishRule::Replace));
    }

    #[test]
    fn what_is_skipped_is_amended_only_where_it_has_the_content_and_may_change() {
        let fidelity = model::Fidelity { mode: true, ..Default::default() };
        let options = || TransferOptions { fidelity, ..TransferOptions::default() };
        assert!(is_amended(&options(), &entry(), &Decision::Same));
        assert!(!is_amended(&TransferOptions::default(), &entry(), &Decision::Same));
        assert!(!is_amended(&TransferOptions { no_clobber: true, ..options() }, &entry(), &Decision::Same));
        let size = || TransferOptions { compare: Compare::Size, ..options() };
        assert!(is_amended(&size(), &entry(), &there(5, 1)) && !is_amended(&size(), &entry(), &there(4, 100)));
        assert!(!is_amended(&TransferOptions { keeps_newer: true, ..size() }, &entry(), &there(5, 101)));
        assert!(!is_amended(&options(), &entry(), &Decision::Absent));
    }

    #[test]
    fn causes_are_what_differs() {
        assert_eq!(causes(&entry(), &there(4, 100)), cause::SIZE);
        assert_eq!(causes(&entry(), &there(5, 1)), cause::TIME);
        assert_eq!(causes(&entry(), &Decision::Absent), cause::NEW);
    }
}
