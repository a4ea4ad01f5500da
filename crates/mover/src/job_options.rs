//! Selections and decisions as they travel with a job, and which of them a peer has to know.
//!
//! Invariant: what a peer asks is taken as it is or refused. Lists are bounded (`model::filter`, `model::selection`).

use model::filter::{Filter, Rule};
use model::options::{Compare, Deletion, Depths};
use model::selection::{Bounds, LISTED_BYTES_MAX, LISTED_MAX, Listed};
use model::{DigestAlgorithm, Fidelity, Selection, TransferOptions};
use std::sync::Arc;
use store::STAGING_PREFIX;
use wire::limits::PATH_BYTES_MAX;
use wire::message::{Decisions, RuleRecord};
use wire::{CloseCode, Refusal};

/// Whether a receiver elsewhere has to know more than every version does.
pub fn needs_sync_receiver(options: &TransferOptions) -> bool {
    decisions_to_wire(options).is_some()
}

/// Whether a sender elsewhere has to.
pub fn needs_sync_sender(options: &TransferOptions) -> bool {
    !options.selection_at_source().is_everything() || options.compare == Compare::Checksum || options.is_delta
}

/// Whether a receiver elsewhere has to know what is kept beside the ordinary.
pub fn needs_fidelity_receiver(options: &TransferOptions) -> bool {
    !for_receiver(options).fidelity.is_none()
}

/// Whether a sender elsewhere has to.
pub fn needs_fidelity_sender(options: &TransferOptions) -> bool {
    !for_sender(options).fidelity.is_none()
}

/// What a receiver is told: of the selection only what protects from deletion and the bounds that it applies.
pub fn for_receiver(options: &TransferOptions) -> TransferOptions {
    let selection = match options.deletion {
        Some(_) => options.selection.clone(),
        None => Arc::default(),
    };
    // This side sends, and sets its own streams.
    TransferOptions { selection, congestion: None, ..options.clone() }
}

/// What a sender is told: nothing of what becomes of what it sends.
pub fn for_sender(options: &TransferOptions) -> TransferOptions {
    TransferOptions {
        selection: options.selection_at_source(),
        compare: Compare::default(),
        keeps_newer: false,
        only_existing: false,
        is_dry_run: false,
        tells_changes: false,
        deletion: None,
        backup: None,
        is_delta: false,
        slice: None,
        // Holes are made where they are written.
        fidelity: Fidelity { sparse: false, ..options.fidelity },
        ..options.clone()
    }
}

pub fn depths_to_wire(depths: Depths) -> Option<wire::message::Depths> {
    let Depths { read, write } = depths;
    (depths != Depths::default()).then_some(wire::message::Depths { read, write })
}

pub fn depths_from_wire(told: Option<wire::message::Depths>) -> Result<Depths, Refusal> {
    let told = told.unwrap_or_default();
    if told.read.max(told.write) > Depths::MAX {
        return Err(Refusal::new(CloseCode::Malformed, "more blocks in flight than an engine has"));
    }
    Ok(Depths { read: told.read, write: told.write })
}

pub fn selection_to_wire(selection: &Selection) -> Option<wire::message::Selection> {
    if selection.is_everything() {
        return None;
    }
    let rule = |rule: &Rule| RuleRecord { takes: rule.takes, pattern: rule.pattern.clone() };
    let bounds = &selection.bounds;
    Some(wire::message::Selection {
        rules: selection.filter.rules().iter().map(rule).collect(),
        size_bytes_min: bounds.size_bytes_min,
        size_bytes_end: bounds.size_bytes_end,
        has_modified_since: bounds.modified_since.is_some(),
        modified_since: bounds.modified_since.unwrap_or(0),
        has_modified_before: bounds.modified_before.is_some(),
        modified_before: bounds.modified_before.unwrap_or(0),
        is_listed: selection.listed.is_some(),
        listed: selection.listed.as_ref().map(|listed| listed.paths.clone()).unwrap_or_default(),
    })
}

pub fn selection_from_wire(told: Option<&wire::message::Selection>) -> Result<Selection, Refusal> {
    let Some(told) = told else { return Ok(Selection::default()) };
    let refused = |why: &str| Refusal::new(CloseCode::Malformed, why);
    let rules = told.rules.iter().map(|rule| Rule { takes: rule.takes, pattern: rule.pattern.clone() }).collect();
    let bytes: usize = told.listed.iter().map(Vec::len).sum();
    let is_long = told.listed.iter().any(|path| path.len() > PATH_BYTES_MAX);
    if told.listed.len() > LISTED_MAX || bytes > LISTED_BYTES_MAX || is_long {
        return Err(refused("a list of too many or too long paths"));
    }
    let listed = told.is_listed.then(|| Listed::new(told.listed.clone())).transpose();
    Ok(Selection {
        filter: Filter::new(rules).map_err(|why| refused(&why))?,
        bounds: Bounds {
            size_bytes_min: told.size_bytes_min,
            size_bytes_end: told.size_bytes_end,
            modified_since: told.has_modified_since.then_some(told.modified_since),
            modified_before: told.has_modified_before.then_some(told.modified_before),
        },
        listed: listed.map_err(|(_, e)| refused(&format!("a list with a path that is refused: {e}")))?,
    })
}

pub fn decisions_to_wire(options: &TransferOptions) -> Option<Decisions> {
    let decisions = Decisions {
        compare: match options.compare {
            Compare::Mtime => 0,
            Compare::Exists => 1,
            Compare::Size => 2,
            Compare::Checksum => 3,
        },
        keeps_newer: options.keeps_newer,
        only_existing: options.only_existing,
        is_dry_run: options.is_dry_run,
        tells_changes: options.tells_changes,
        deletes: options.deletion.is_some(),
        deletes_at_root: options.deletion.is_some_and(|deletion| deletion.is_at_root),
        has_removals_max: options.deletion.is_some_and(|deletion| deletion.removals_max.is_some()),
        removals_max: options.deletion.and_then(|deletion| deletion.removals_max).unwrap_or(0),
        backup: options.backup.clone().unwrap_or_default(),
        is_delta: options.is_delta,
    };
    (decisions != Decisions::default()).then_some(decisions)
}

/// Reads a peer's decisions into `options`.
pub fn decisions_from_wire(told: Option<&Decisions>, options: &mut TransferOptions) -> Result<(), Refusal> {
    let Some(told) = told else { return Ok(()) };
    let refused = |why: &str| Refusal::new(CloseCode::Malformed, why);
    options.compare = match told.compare {
        0 => Compare::Mtime,
        1 => Compare::Exists,
        2 => Compare::Size,
        3 => Compare::Checksum,
        _ => return Err(refused("unknown comparison in the options of a job")),
    };
    if !told.deletes && (told.deletes_at_root || told.has_removals_max)
        || !told.has_removals_max && told.removals_max > 0
    {
        return Err(refused("bounds of a deletion that is not asked for"));
    }
    if told.is_delta && options.digest != DigestAlgorithm::Blake3 {
        return Err(refused("chunks are compared by another digest than BLAKE3"));
    }
    options.is_delta = told.is_delta;
    options.keeps_newer = told.keeps_newer;
    options.only_existing = told.only_existing;
    options.is_dry_run = told.is_dry_run;
    options.tells_changes = told.tells_changes;
    let removals_max = told.has_removals_max.then_some(told.removals_max);
    options.deletion = told.deletes.then_some(Deletion { is_at_root: told.deletes_at_root, removals_max });
    options.backup = match &told.backup[..] {
        [] => None,
        path => {
            check_backup(path).map_err(|why| refused(&why))?;
            Some(path.to_vec())
        }
    };
    Ok(())
}

/// Whether a path may be that of a backup directory.
///
/// # Errors
/// With words for the user.
pub fn check_backup(path: &[u8]) -> Result<(), String> {
    let names = model::name::relative_path(path).map_err(|_| "a backup directory is a path below the destination")?;
    if names.is_empty() || path.len() > PATH_BYTES_MAX {
        return Err("a backup directory is a path below the destination".to_owned());
    }
    if names.iter().any(|name| name.as_bytes().starts_with(STAGING_PREFIX)) {
        return Err("a backup directory cannot be in the staging of transfers".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{options_from_wire, options_to_wire};

    fn options() -> TransferOptions {
        let selection = Selection {
            filter: Filter::new(vec![Rule::take("*.c"), Rule::leave("/x/")]).unwrap(),
            bounds: Bounds { size_bytes_min: 1, modified_since: Some(-5), ..Bounds::default() },
            listed: Some(Listed::new(vec![b"a/\xff".to_vec()]).unwrap()),
        };
        TransferOptions {
            selection: Arc::new(selection),
            compare: Compare::Checksum,
            keeps_newer: true,
            only_existing: true,
            is_dry_run: true,
            tells_changes: true,
            deletion: Some(Deletion { is_at_root: true, removals_max: Some(0) }),
            backup: Some(b"old/x".to_vec()),
            is_delta: true,
            depths: Depths { read: 4, write: 32 },
            digest: DigestAlgorithm::Blake3,
            ..TransferOptions::default()
        }
    }

    #[test]
    fn options_travel_unchanged() {
        assert_eq!(options_from_wire(&options_to_wire(&options())), Ok(options()));
        let plain = options_to_wire(&TransferOptions::default());
        assert!(plain.selection.is_none() && plain.decisions.is_none());
    }

    #[test]
    fn each_side_is_told_what_it_needs() {
        let sender = for_sender(&options());
        assert_eq!((sender.selection.bounds, sender.deletion), (Bounds::default(), None));
        assert!(!needs_sync_receiver(&sender) && needs_sync_sender(&options()));
        let receiver = for_receiver(&options());
        assert_eq!(receiver.selection, options().selection);
        assert!(for_receiver(&TransferOptions { deletion: None, ..options() }).selection.is_everything());
        assert!(!needs_sync_sender(&TransferOptions::default()) && !needs_sync_receiver(&TransferOptions::default()));
    }

    #[test]
    fn strange_options_are_refused() {
        let good = options_to_wire(&options());
        type Change = fn(&mut Decisions, &mut wire::message::Selection);
        let changes: [Change; 7] = [
            |decisions, _| decisions.compare = 4,
            |decisions, _| decisions.backup = b"../x".to_vec(),
            |decisions, _| decisions.backup = b".thalweg-staging-0/x".to_vec(),
            |decisions, _| decisions.deletes = false,
            |_, selection| selection.rules[0].pattern = "[".to_owned(),
            |_, selection| selection.listed.push(b"/etc".to_vec()),
            |_, selection| selection.listed = vec![b"x".to_vec(); LISTED_MAX + 1],
        ];
        let weak = wire::message::Options { digest: 1, ..good.clone() };
        assert!(options_from_wire(&weak).is_err());
        for change in changes {
            let mut bad = good.clone();
            change(bad.decisions.as_mut().unwrap(), bad.selection.as_mut().unwrap());
            assert!(options_from_wire(&bad).is_err(), "{:?}", bad.decisions);
        }
    }
}
