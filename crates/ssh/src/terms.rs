//! What a host may send here that was told to by somebody else's command.
//!
//! Invariant: the sending host's own words widen nothing.

use super::message::{BoundTerms, ChmodTerms, CopyTerms, SparedTerms};
use daemon::error::{Error, Result};
use daemon::host::forbidden;
use model::filter::{Filter, Rule};
use model::options::Compare;
use model::selection::{Bounds, Listed};
use model::{Exit, Selection, TransferOptions, mutant};
use mover::receiver::Asked;
use std::sync::Arc;
use wire::Refusal;
use wire::message::Open;

/// What a client may send that somebody else gave the command to.
pub struct Terms {
    sources: Vec<Vec<u8>>,
    selection: Arc<Selection>,
    may_delete: bool,
    backup: Option<Vec<u8>>,
    fidelity: u32,
    spares: SparedTerms,
    chmod: Option<ChmodTerms>,
}

impl Terms {
    pub fn of(told: &CopyTerms) -> Result<Terms> {
        let wrong = |why: &str| Error::new(Exit::Fatal, format!("the terms of a copy: {why}"));
        let rules = told.rules.iter().map(|rule| Rule::parse(rule)).collect::<Option<Vec<_>>>();
        let filter = Filter::new(rules.ok_or_else(|| wrong("no filter rule"))?).map_err(|why| wrong(&why))?;
        let listed = told.listed.as_ref().map(|paths| Listed::new(paths.iter().map(|path| path.0.clone()).collect()));
        let listed = listed.transpose().map_err(|_| wrong("a list of paths outside the source"))?;
        Ok(Terms {
            sources: told.sources.iter().map(|path| path.0.clone()).collect(),
            selection: Arc::new(Selection { filter, bounds: bounds(told.bounds), listed }),
            may_delete: told.may_delete,
            backup: told.backup.as_ref().map(|path| path.0.clone()),
            fidelity: told.fidelity,
            spares: told.spares,
            chmod: told.chmod,
        })
    }

    /// Refuses a job that takes away, replaces, makes or keeps more than the command said.
    pub(super) fn check(&self, open: &Open, options: &TransferOptions) -> std::result::Result<(), Refusal> {
        let Some(what) = self.beyond(options).filter(|_| !mutant::is_on("terms-of-removal-alone")) else {
            return Ok(());
        };
        let why = format!("the sending host asks {what}, which the command did not request");
        Err(forbidden(&open.paths[0], &why))
    }

    /// An option that is added later has to be looked at here: whether it changes what is at the destination.
    fn beyond(&self, options: &TransferOptions) -> Option<&'static str> {
        let TransferOptions {
            deletion,
            backup,
            fidelity,
            is_dry_run,
            no_clobber,
            compare,
            keeps_newer,
            only_existing,
            view,
            sealed_list,
            slice,
            chmod,
            // How what is sent is cut, protected, stored and told.
            fsync: _,
            verify: _,
            digest: _,
            chunk_bytes: _,
            engine: _,
            depths: _,
            tells_changes: _,
            is_delta: _,
            compression: _,
            pace: _,
            payload_bytes_max: _,
            congestion: _,
            class: _,
            buffer: _,
            // Within the sender alone.
            follow: _,
            wait: _,
            // The command's own is held instead.
            selection: _,
        } = options;
        let spares = self.spares;
        [
            (deletion.is_some() && !self.may_delete, "for --delete"),
            (backup.is_some() && *backup != self.backup, "for --backup-dir"),
            (fidelity.to_bits() & !self.fidelity != 0, "for owners, modes, attributes or special files"),
            (self.chmod.is_some_and(|told| told.bits != *chmod), "for other permission bits"),
            (spares.everything && !is_dry_run, "to write, in a dry run"),
            (
                spares.what_is_there && !(*no_clobber || *compare == Compare::Exists),
                "to replace what is there (the command said --no-clobber or --compare exists)",
            ),
            (spares.what_is_newer && !keeps_newer, "to replace what is newer (the command said --update)"),
            (spares.what_is_missing && !only_existing, "to make what is not there (the command said --existing)"),
            // No command between two hosts has them, and a list would be a file of any name.
            (view.is_some() || sealed_list.is_some() || slice.is_some(), "for --show, --sealed-list or a slice"),
        ]
        .into_iter()
        .find_map(|(is_beyond, what)| is_beyond.then_some(what))
    }

    pub(super) fn asked(&self) -> Asked {
        Asked::of(&self.sources, self.selection.clone())
    }
}

/// A sending host counts ages by its own clock, and says itself when its files were modified: days are all that is held.
fn bounds(told: BoundTerms) -> Bounds {
    const CLOCKS_APART_SECONDS: i64 = 86_400;
    Bounds {
        size_bytes_min: told.size_bytes_min,
        size_bytes_end: told.size_bytes_end,
        modified_since: told.modified_since.map(|since| since.saturating_sub(CLOCKS_APART_SECONDS)),
        modified_before: told.modified_before.map(|before| before.saturating_add(CLOCKS_APART_SECONDS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::PathBytes;
    use model::entry::{Entry, Generation, Kind, Timestamp};
    use model::{End, Name, ObjectId};
    use wire::listing::Described;

    /// The list and the bounds of the command hold where the files arrive, whatever the sending host made of its flags.
    #[test]
    fn a_host_that_copies_here_sends_what_is_listed_and_within_the_bounds() {
        let bounds = BoundTerms { size_bytes_end: 100, modified_since: Some(1_000_000), ..BoundTerms::default() };
        let told = CopyTerms {
            sources: vec![PathBytes(b"a/".to_vec())],
            rules: Vec::new(),
            may_delete: false,
            backup: None,
            fidelity: 0,
            bounds,
            listed: Some(vec![PathBytes(b"kept".to_vec()), PathBytes(b"d/e".to_vec())]),
            spares: SparedTerms::default(),
            chmod: None,
        };
        let sends = |name: &str, size_bytes: u64, seconds: i64| {
            let modified = Timestamp { seconds, nanoseconds: 0 };
            let entry = Entry {
                id: ObjectId(1),
                parent: ObjectId::ROOT,
                name: Name::new(name.as_bytes()).unwrap(),
                kind: Kind::File,
                mode: 0o644,
                generation: Generation { size_bytes, modified, ..Generation::default() },
                attributes: None,
            };
            let described = Described::Entry { entry, end: End::Known, replaces: None };
            Terms::of(&told).unwrap().asked().check(&[described]).map_err(|refusal| refusal.text)
        };
        // Clocks may be a day apart.
        assert_eq!((sends("kept", 99, 1_000_000), sends("kept", 99, 920_000)), (Ok(()), Ok(())));
        for (name, size_bytes, seconds) in [("other", 9, 1_000_000), ("kept", 100, 1_000_000), ("kept", 9, 900_000)] {
            assert!(sends(name, size_bytes, seconds).unwrap_err().contains("which was not asked for"), "{name}");
        }
        let listed = Some(vec![PathBytes(b"../x".to_vec())]);
        assert!(Terms::of(&CopyTerms { listed, ..told.clone() }).is_err());
        // What an older program says has neither.
        let text = serde_json::to_string(&CopyTerms { listed: None, ..told.clone() }).unwrap();
        let older = text.replace(&format!(",\"bounds\":{}", serde_json::to_string(&bounds).unwrap()), "");
        assert_ne!(text, older);
        let older: CopyTerms = serde_json::from_str(&older).unwrap();
        assert_eq!((older.bounds, older.listed), (BoundTerms::default(), None));
    }

    fn told() -> CopyTerms {
        CopyTerms {
            sources: vec![PathBytes(b"a/report".to_vec())],
            rules: Vec::new(),
            may_delete: false,
            backup: None,
            fidelity: 0,
            bounds: BoundTerms::default(),
            listed: None,
            spares: SparedTerms::default(),
            chmod: None,
        }
    }

    #[test]
    fn a_host_that_copies_here_sets_the_permission_bits_of_the_command_and_no_others() {
        let open = Open { paths: vec![b"to".to_vec()], ..Open::default() };
        let (private, everybodys) = (Some((0o600, 0o700)), Some((0o666, 0o777)));
        for (bits, chmod, is_refused) in [
            (Some(None), None, false),
            (Some(None), everybodys, true),
            (Some(private), private, false),
            (Some(private), everybodys, true),
            (Some(private), None, true),
            // A command of an older program says nothing of them.
            (None, everybodys, false),
        ] {
            let told = CopyTerms { chmod: bits.map(|bits| ChmodTerms { bits }), ..told() };
            let arrived: CopyTerms = serde_json::from_str(&serde_json::to_string(&told).unwrap()).unwrap();
            assert_eq!(arrived, told);
            let options = TransferOptions { chmod, ..TransferOptions::default() };
            let checked = Terms::of(&arrived).unwrap().check(&open, &options);
            let is_for_bits = checked.is_err_and(|refusal| refusal.text.contains("permission bits"));
            assert_eq!(is_for_bits, is_refused, "{bits:?} {chmod:?}");
        }
    }

    /// A sending host that forgets a flag of the command, or thinks of one that nobody gave, is refused.
    #[test]
    fn a_host_that_copies_here_spares_what_the_command_spares_and_lists_nothing() {
        let told = told();
        let open = Open { paths: vec![b"to".to_vec()], ..Open::default() };
        let check = |spares, options: &TransferOptions| {
            Terms::of(&CopyTerms { spares, ..told.clone() }).unwrap().check(&open, options).map_err(|no| no.text)
        };
        let (nothing, plain) = (SparedTerms::default(), TransferOptions::default);
        assert_eq!(check(nothing, &plain()), Ok(()));
        let list = Some(Name::new(b".bashrc").unwrap());
        for options in [
            TransferOptions { sealed_list: list, ..plain() },
            TransferOptions { view: Some(Arc::default()), ..plain() },
            TransferOptions { slice: Some(Arc::default()), ..plain() },
        ] {
            assert!(check(nothing, &options).unwrap_err().contains("did not request"), "{options:?}");
        }
        for (spares, options, why) in [
            (SparedTerms { everything: true, ..nothing }, TransferOptions { is_dry_run: true, ..plain() }, "dry run"),
            (
                SparedTerms { what_is_there: true, ..nothing },
                TransferOptions { no_clobber: true, ..plain() },
                "clobber",
            ),
            (
                SparedTerms { what_is_there: true, ..nothing },
                TransferOptions { compare: Compare::Exists, ..plain() },
                "clobber",
            ),
            (SparedTerms { what_is_newer: true, ..nothing }, TransferOptions { keeps_newer: true, ..plain() }, "newer"),
            (
                SparedTerms { what_is_missing: true, ..nothing },
                TransferOptions { only_existing: true, ..plain() },
                "not there",
            ),
        ] {
            assert_eq!(check(spares, &options), Ok(()));
            assert!(check(spares, &plain()).unwrap_err().contains(why), "{why}");
        }
    }
}
