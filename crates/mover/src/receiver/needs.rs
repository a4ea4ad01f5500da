//! What a job needs of its destination, held against what that says it can do, before anything is described.
//!
//! Invariant: no job is begun that would have to leave something undone for want of an ability.

use model::options::{Compare, Verify};
use model::quantity::ByteCount;
use model::{FailureKind, TransferOptions};
use store::{Error, SinkFacts};

/// # Errors
/// Names what the destination cannot do, and the option that asks for it.
pub fn check(options: &TransferOptions, facts: &SinkFacts) -> store::Result<()> {
    let can = facts.can;
    let needs = [
        (options.deletion.is_some() && !can.prune, "remove what its source does not have (--delete)"),
        (options.compare == Compare::Checksum && !can.compare, "be compared by content (--compare checksum)"),
        (options.verify == Verify::Reread && !can.reread, "read back what was written (--verify reread)"),
        (options.view.is_some() && !can.views, "show what has arrived of a file (--show prefix)"),
        (options.sealed_list.is_some() && !can.views, "keep a list of what is complete (--sealed-list)"),
        (options.fidelity.hard_links && !can.hard_links, "give a file several names (--hard-links)"),
        (options.backup.is_some() && !can.backup, "put aside what is replaced or removed (--backup-dir)"),
    ];
    let lacking = |what: &str| {
        let why = format!("this kind of destination ({}) cannot {what}", facts.file_system);
        Err(Error::of_kind(FailureKind::Other, "begin", b"", &why))
    };
    if let Some((_, what)) = needs.iter().find(|(is_lacking, _)| *is_lacking) {
        return lacking(what);
    }
    match facts.part_rule {
        Some(rule) if !(rule.bytes_min..=rule.bytes_max).contains(&options.chunk_bytes) => {
            let (min, max) = (ByteCount(rule.bytes_min), ByteCount(rule.bytes_max));
            lacking(&format!(
                "take chunks of {}, only from {min} to {max} (--chunk-size)",
                ByteCount(options.chunk_bytes)
            ))
        }
        _ => Ok(()),
    }
}

/// # Errors
/// When an object of this size makes more parts than the destination takes of one.
pub fn check_parts(options: &TransferOptions, facts: &SinkFacts, size_bytes: u64) -> store::Result<()> {
    match facts.part_rule {
        Some(rule) if size_bytes.div_ceil(options.chunk_bytes) > rule.count_max => {
            let count = rule.count_max;
            let why = format!("this destination takes at most {count} parts of a file: use longer ones (--chunk-size)");
            Err(Error::of_kind(FailureKind::Other, "write file", b"", &why))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Fidelity;
    use model::options::Deletion;
    use store::{Abilities, Order, PartRule};

    const FACTS: SinkFacts = SinkFacts {
        file_system: "bucket",
        is_memory_backed: false,
        cannot_sync: false,
        free_bytes: u64::MAX,
        free_inodes: None,
        order: Order::Any,
        part_rule: None,
        shares_on: None,
        confirms: false,
        can: Abilities::NONE,
    };

    #[test]
    fn a_job_is_refused_what_its_destination_cannot_do_and_nothing_else() {
        let refused =
            |options: &TransferOptions, can| check(options, &SinkFacts { can, ..FACTS }).err().map(|e| e.to_string());
        let options = TransferOptions::default;
        let keeping = |fidelity| TransferOptions { fidelity, ..options() };
        let deletion = Some(Deletion { is_at_root: true, removals_max: None });
        for (asking, named) in [
            (TransferOptions { deletion, ..options() }, "--delete"),
            (TransferOptions { compare: Compare::Checksum, ..options() }, "--compare checksum"),
            (TransferOptions { verify: Verify::Reread, ..options() }, "--verify reread"),
            (TransferOptions { backup: Some(b"old".to_vec()), ..options() }, "--backup-dir"),
            (keeping(Fidelity { hard_links: true, ..Fidelity::default() }), "--hard-links"),
        ] {
            let why = refused(&asking, Abilities::NONE).expect(named);
            assert!(why.contains(named) && why.contains("bucket"), "{why}");
            assert_eq!(refused(&asking, Abilities::ALL), None, "{named}");
        }
        // Special files fail one by one, and attributes that cannot be changed are warnings.
        let plain = [options(), keeping(Fidelity { mode: true, specials: true, ..Fidelity::default() })];
        assert!(plain.iter().all(|options| refused(options, Abilities::NONE).is_none()));
    }

    #[test]
    fn chunks_are_the_parts_that_a_destination_takes() {
        let rule = PartRule { bytes_min: 5 << 20, bytes_max: 64 << 20, count_max: 4 };
        let facts = SinkFacts { part_rule: Some(rule), ..FACTS };
        let of = |chunk_bytes| TransferOptions { chunk_bytes, ..TransferOptions::default() };
        assert!(check(&of(4 << 20), &facts).is_err() && check(&of(128 << 20), &facts).is_err());
        assert!(check(&of(8 << 20), &facts).is_ok() && check(&of(4 << 20), &FACTS).is_ok());
        assert!(check_parts(&of(8 << 20), &facts, 32 << 20).is_ok());
        let why = check_parts(&of(8 << 20), &facts, (32 << 20) + 1).unwrap_err();
        assert!(why.to_string().contains("--chunk-size"), "{why}");
    }
}
