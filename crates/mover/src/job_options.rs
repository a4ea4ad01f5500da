//! The options of a job as they travel, and which of them a peer has to know.
//!
//! Invariant: what a peer asks is taken as it is or refused. Lists are bounded (`model::filter`, `model::selection`).

use model::filter::{Filter, Rule};
use model::follow::View;
use model::options::{
    Buffer, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, Compare, Compression, Deletion, Depths, Engine, Fsync, INSTEAD_OF_MAX,
    Slice, Verify, is_congestion_name,
};
use model::selection::{Bounds, LISTED_BYTES_MAX, LISTED_MAX, Listed};
use model::{Class, DigestAlgorithm, Extent, Fidelity, JobId, Name, Selection, TransferOptions};
use std::sync::Arc;
use store::STAGING_PREFIX;
use wire::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX, VIEW_PATTERNS_MAX};
use wire::message::{Decisions, Options, RuleRecord};
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

/// The values of an option by their numbers, which are those of the protocol.
struct Numbers<T: 'static> {
    first: u32,
    values: &'static [T],
}

impl<T: Copy + PartialEq + 'static> Numbers<T> {
    fn of(&self, value: T) -> u32 {
        let at = self.values.iter().position(|known| *known == value);
        self.first + at.expect("every value that travels has a number") as u32
    }

    fn value(&self, number: u32) -> Option<T> {
        self.values.get(number.checked_sub(self.first)? as usize).copied()
    }
}

const FSYNC: Numbers<Fsync> = Numbers { first: 1, values: &[Fsync::File, Fsync::Batch, Fsync::Never] };
const VERIFY: Numbers<Verify> = Numbers { first: 1, values: &[Verify::Stream, Verify::Reread] };
const DIGEST: Numbers<DigestAlgorithm> =
    Numbers { first: 1, values: &[DigestAlgorithm::Crc64Nvme, DigestAlgorithm::Blake3] };
const ENGINE: Numbers<Engine> = Numbers { first: 0, values: &[Engine::Auto, Engine::Plain, Engine::Uring] };
const COMPRESSION: Numbers<Compression> =
    Numbers { first: 0, values: &[Compression::None, Compression::Auto, Compression::Zstd, Compression::Lz4] };
const BUFFER: Numbers<Buffer> = Numbers { first: 0, values: &[Buffer::Auto, Buffer::Always, Buffer::Never] };
const COMPARE: Numbers<Compare> =
    Numbers { first: 0, values: &[Compare::Mtime, Compare::Exists, Compare::Size, Compare::Checksum] };

/// The options of a job as they travel.
pub fn options_to_wire(options: &TransferOptions) -> Options {
    const GIVEN: u32 = 0o10000;
    // Between hosts everything is verified; who asks for less is told before a job is opened.
    let verify = if options.verify == Verify::None { Verify::Stream } else { options.verify };
    Options {
        fsync: FSYNC.of(options.fsync),
        verify: VERIFY.of(verify),
        digest: DIGEST.of(options.digest),
        chunk_bytes: options.chunk_bytes,
        no_clobber: options.no_clobber,
        chmod_files: options.chmod.map_or(0, |(mode, _)| mode | GIVEN),
        chmod_directories: options.chmod.map_or(0, |(_, mode)| mode | GIVEN),
        engine: ENGINE.of(options.engine),
        depths: depths_to_wire(options.depths),
        selection: selection_to_wire(&options.selection),
        decisions: decisions_to_wire(options),
        fidelity: options.fidelity.to_bits(),
        compression: COMPRESSION.of(options.compression),
        congestion: options.congestion.clone().unwrap_or_default(),
        shows_prefix: options.view.is_some(),
        buffer: BUFFER.of(options.buffer),
        class: options.class.map_or(0, |class| class as u32),
        sealed_list: options.sealed_list.as_ref().map_or(Vec::new(), |name| name.as_bytes().to_vec()),
        is_slice: options.slice.is_some(),
        instead_of: options.slice.iter().flat_map(|slice| &slice.instead_of).map(|job| job.0.to_vec()).collect(),
        run: options.slice.as_ref().and_then(|slice| slice.run).map_or(Vec::new(), |run| run.0.to_vec()),
        range_start: options.slice.as_ref().and_then(|slice| slice.range).map_or(0, |range| range.start),
        range_end: options.slice.as_ref().and_then(|slice| slice.range).map_or(0, |range| range.end),
        unfinished: options.view.as_ref().map_or(Vec::new(), |view| view.unfinished.join(&b'/')),
    }
}

/// Reads a peer's options; anything out of range is refused, never adjusted.
pub fn options_from_wire(options: &Options) -> Result<TransferOptions, Refusal> {
    let refused = |what: &str| Refusal::new(CloseCode::Malformed, &format!("unknown {what} in the options of a job"));
    let range = CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX;
    if !options.chunk_bytes.is_power_of_two() || !range.contains(&options.chunk_bytes) {
        return Err(refused("chunk length"));
    }
    let chmod = match (options.chmod_files, options.chmod_directories) {
        (0, 0) => None,
        (files @ 0o10000..=0o10777, directories @ 0o10000..=0o10777) => Some((files & 0o777, directories & 0o777)),
        _ => return Err(refused("permission bits")),
    };
    let mut taken = TransferOptions {
        fsync: FSYNC.value(options.fsync).ok_or_else(|| refused("durability"))?,
        verify: VERIFY.value(options.verify).ok_or_else(|| refused("verification"))?,
        digest: DIGEST.value(options.digest).ok_or_else(|| refused("digest"))?,
        chunk_bytes: options.chunk_bytes,
        no_clobber: options.no_clobber,
        chmod,
        engine: ENGINE.value(options.engine).ok_or_else(|| refused("engine"))?,
        compression: COMPRESSION.value(options.compression).ok_or_else(|| refused("compression"))?,
        selection: Arc::new(selection_from_wire(options.selection.as_ref())?),
        fidelity: Fidelity::from_bits(options.fidelity).ok_or_else(|| refused("metadata"))?,
        congestion: match options.congestion.as_str() {
            "" => None,
            name if is_congestion_name(name) => Some(name.to_owned()),
            _ => return Err(refused("congestion control")),
        },
        class: match options.class {
            0 => None,
            number => Some(Class::from_number(number).ok_or_else(|| refused("class"))?),
        },
        depths: depths_from_wire(options.depths)?,
        view: view_from_wire(options)?,
        sealed_list: list_from_wire(&options.sealed_list)?,
        buffer: BUFFER.value(options.buffer).ok_or_else(|| refused("use of buffers"))?,
        slice: slice_from_wire(options).ok_or_else(|| refused("slice"))?,
        ..TransferOptions::default()
    };
    decisions_from_wire(options.decisions.as_ref(), &mut taken)?;
    Ok(taken)
}

fn slice_from_wire(options: &Options) -> Option<Option<Arc<Slice>>> {
    let instead_of: Option<Vec<_>> = options.instead_of.iter().map(|job| JobId::from_slice(job)).collect();
    let instead_of = instead_of.filter(|jobs| jobs.len() <= INSTEAD_OF_MAX)?;
    let run = match &options.run[..] {
        [] => None,
        run => Some(JobId::from_slice(run)?),
    };
    let range = match (options.range_start, options.range_end) {
        (0, 0) => None,
        (start, end) if start < end && run.is_some() => Some(Extent::new(start, end)),
        _ => return None,
    };
    let slice = Slice { instead_of, run, range };
    (options.is_slice || slice == Slice::default()).then(|| options.is_slice.then(|| Arc::new(slice)))
}

fn list_from_wire(name: &[u8]) -> Result<Option<Name>, Refusal> {
    let refused = || Refusal::new(CloseCode::Malformed, "a list of what is complete with a name that is refused");
    if name.is_empty() {
        return Ok(None);
    }
    let name = Name::new(name).ok().filter(|name| !name.as_bytes().starts_with(STAGING_PREFIX));
    name.map(Some).ok_or_else(refused)
}

fn view_from_wire(options: &Options) -> Result<Option<Arc<View>>, Refusal> {
    let told = options.unfinished.split(|byte| *byte == b'/').filter(|_| !options.unfinished.is_empty());
    let unfinished: Vec<Box<[u8]>> = told.map(Box::from).collect();
    if !unfinished.iter().all(|pattern| (1..=NAME_BYTES_MAX).contains(&pattern.len()))
        || unfinished.len() > VIEW_PATTERNS_MAX
        || !options.shows_prefix && !unfinished.is_empty()
    {
        return Err(Refusal::new(
            CloseCode::Malformed,
            "names of growing files that are too many, too long or not used",
        ));
    }
    Ok(options.shows_prefix.then(|| Arc::new(View { unfinished })))
}

fn depths_to_wire(depths: Depths) -> Option<wire::message::Depths> {
    let Depths { read, write } = depths;
    (depths != Depths::default()).then_some(wire::message::Depths { read, write })
}

fn depths_from_wire(told: Option<wire::message::Depths>) -> Result<Depths, Refusal> {
    let told = told.unwrap_or_default();
    if told.read.max(told.write) > Depths::MAX {
        return Err(Refusal::new(CloseCode::Malformed, "more blocks in flight than an engine has"));
    }
    Ok(Depths { read: told.read, write: told.write })
}

fn selection_to_wire(selection: &Selection) -> Option<wire::message::Selection> {
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

fn selection_from_wire(told: Option<&wire::message::Selection>) -> Result<Selection, Refusal> {
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

fn decisions_to_wire(options: &TransferOptions) -> Option<Decisions> {
    let decisions = Decisions {
        compare: COMPARE.of(options.compare),
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
fn decisions_from_wire(told: Option<&Decisions>, options: &mut TransferOptions) -> Result<(), Refusal> {
    let Some(told) = told else { return Ok(()) };
    let refused = |why: &str| Refusal::new(CloseCode::Malformed, why);
    let compare = COMPARE.value(told.compare);
    options.compare = compare.ok_or_else(|| refused("unknown comparison in the options of a job"))?;
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
    fn ordinary_options_travel_unchanged_and_strange_ones_are_refused() {
        let fidelity = Fidelity { acls: true, hard_links: true, ..Fidelity::default() };
        let chmod = Some((0o640, 0o750));
        let options = TransferOptions {
            chmod,
            no_clobber: true,
            compression: Compression::Zstd,
            fidelity,
            congestion: Some("bbr".into()),
            class: Some(Class::High),
            view: Some(Arc::new(View { unfinished: vec![b"*.tmp"[..].into(), b"a?"[..].into()] })),
            sealed_list: Some(Name::new(b"DONE").unwrap()),
            ..TransferOptions::default()
        };
        let wire = options_to_wire(&options);
        assert_eq!(options_from_wire(&wire), Ok(options));
        for change in [
            |o: &mut Options| o.chunk_bytes = 3 << 20,
            |o: &mut Options| o.chunk_bytes = 1 << 40,
            |o: &mut Options| o.fsync = 0,
            |o: &mut Options| o.compression = 4,
            |o: &mut Options| o.chmod_files = 0o14777,
            |o: &mut Options| o.fidelity = 1 << 20,
            |o: &mut Options| o.congestion = "../bbr".into(),
            |o: &mut Options| o.congestion = "b".repeat(16),
            |o: &mut Options| o.class = 4,
            |o: &mut Options| o.shows_prefix = false,
            |o: &mut Options| o.unfinished = vec![b'*'; 256],
            |o: &mut Options| o.unfinished = b"*/".repeat(16),
        ] {
            let mut bad = wire.clone();
            change(&mut bad);
            assert!(options_from_wire(&bad).is_err());
        }
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
