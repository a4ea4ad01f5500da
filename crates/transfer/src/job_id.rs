//! The id of a job: what was asked for, by whom. The same command has the same id, so that it finds its own past, and takes
//! over from an attempt of itself that still runs somewhere.
//!
//! Invariants:
//! - Two requests that may leave different things behind have different ids: a dry run never takes over from the real one.
//! - What only says how fast a job runs, how far this time, or what is told of it is no part of the id.
//! - Options at their defaults add nothing, so that ids stay what they are when an option is added.
//!
//! Not here: where staging is found again (`mover::receiver::resume`), which does not ask for the id.

use model::options::Compare;
use model::{Choice, JobId, Pin, TransferOptions};

/// `identity` asked for it; `sources` and `destination` are locations as text, local ones made absolute by the caller.
pub fn job_id(
    identity: Pin,
    sources: &[impl AsRef<[u8]>],
    destination: impl AsRef<[u8]>,
    choice: &Choice,
    options: &TransferOptions,
) -> JobId {
    let mut bytes = Vec::new();
    put(&mut bytes, b"thalweg job 1");
    put(&mut bytes, &identity.0);
    bytes.extend_from_slice(&(sources.len() as u64).to_le_bytes());
    for source in sources {
        put(&mut bytes, source.as_ref());
    }
    put(&mut bytes, destination.as_ref());
    put_options(&mut bytes, options);
    put_choice(&mut bytes, choice);
    let digest = net::sha256(&bytes);
    JobId::from_slice(&digest[..16]).expect("half of a SHA-256 is 16 bytes long")
}

/// Every option is named here: a new one does not compile before it has a place.
fn put_options(bytes: &mut Vec<u8>, options: &TransferOptions) {
    let TransferOptions {
        fsync,
        verify,
        digest,
        chunk_bytes,
        no_clobber,
        chmod,
        engine,
        depths: _,
        // Made of the choice, at a moment that is another one when the command is given again.
        selection: _,
        compare,
        keeps_newer,
        only_existing,
        is_dry_run,
        tells_changes: _,
        deletion,
        backup,
        is_delta,
        fidelity,
        compression: _,
        pace: _,
        payload_bytes_max: _,
        congestion: _,
        class: _,
        follow,
        view,
        // Who else hears of what is complete, on which way content comes and who waits for it is no part of what is asked for.
        sealed_list: _,
        buffer: _,
        wait: _,
        // A slice has an id of its own, which nobody can foresee.
        slice: _,
    } = options;
    for word in [fsync.name(), verify.name(), digest.name(), engine.name()] {
        put(bytes, word.as_bytes());
    }
    put(bytes, &chunk_bytes.to_le_bytes());
    put(bytes, &[u8::from(*no_clobber)]);
    let (files, directories) = chmod.map_or((u32::MAX, u32::MAX), |chmod| chmod);
    put(bytes, &files.to_le_bytes());
    put(bytes, &directories.to_le_bytes());
    if *compare != Compare::default() {
        put_named(bytes, "compare", [compare.name()]);
    }
    let flags =
        [("update", *keeps_newer), ("existing", *only_existing), ("dry-run", *is_dry_run), ("delta", *is_delta)];
    for (name, _) in flags.into_iter().filter(|(_, is_set)| *is_set) {
        put_named(bytes, name, NOTHING);
    }
    if let Some(deletion) = deletion {
        let max = deletion.removals_max.map_or(String::new(), |max| max.to_string());
        put_named(bytes, "delete", [if deletion.is_at_root { "root" } else { "" }, &max]);
    }
    if let Some(backup) = backup {
        put_named(bytes, "backup-dir", [backup]);
    }
    if let Some(follow) = follow {
        // What is compared, and when the user hears of lag, makes no other job.
        put_named(bytes, "follow", [format!("{:?}", follow.until), format!("{:?}", follow.ends)]);
    }
    if let Some(view) = view {
        put_named(bytes, "view", &view.unfinished);
    }
    if !fidelity.is_none() {
        put_named(bytes, "fidelity", [fidelity.to_bits().to_le_bytes()]);
    }
}

/// Rules keep their order, which has a meaning.
fn put_choice(bytes: &mut Vec<u8>, choice: &Choice) {
    let Choice { filter, size_bytes_min, size_bytes_max, newer_than, older_than, listed } = choice;
    if !filter.is_empty() {
        put_named(bytes, "filter", filter.rules().iter().map(ToString::to_string));
    }
    let numbers = [
        ("min-size", Some(*size_bytes_min).filter(|size| *size > 0)),
        ("max-size", *size_bytes_max),
        ("newer-than", newer_than.map(|span| span.as_secs())),
        ("older-than", older_than.map(|span| span.as_secs())),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            put_named(bytes, name, [number.to_le_bytes()]);
        }
    }
    if let Some(listed) = listed {
        put_named(bytes, "files-from", &listed.paths);
    }
}

const NOTHING: [&[u8]; 0] = [];

/// An option that is not at its default: its name, and how many values it has, and these.
fn put_named(bytes: &mut Vec<u8>, name: &str, values: impl IntoIterator<Item = impl AsRef<[u8]>>) {
    put(bytes, name.as_bytes());
    let mut list = Vec::new();
    values.into_iter().for_each(|value| put(&mut list, value.as_ref()));
    put(bytes, &list);
}

/// Parts carry their length, so that no two requests run together into the same bytes.
fn put(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
    bytes.extend_from_slice(part);
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::DigestAlgorithm;
    use model::filter::{Filter, Rule};
    use model::follow::{Follow, Until, View};
    use model::options::{Buffer, Compression, Deletion, Engine, Fsync, Verify, Wait};
    use model::pace::Timetable;
    use model::selection::Listed;
    use std::sync::Arc;
    use std::time::Duration;

    fn plain_id(pin: Pin, sources: &[&str], destination: &str, options: &TransferOptions) -> JobId {
        job_id(pin, sources, destination, &Choice::default(), options)
    }

    #[test]
    fn the_same_request_has_the_same_id_and_any_change_another() {
        let pin = Pin([7; 32]);
        let options = TransferOptions::default();
        let id = plain_id(pin, &["/a", "/b"], "lab:x", &options);
        assert_eq!(id, plain_id(pin, &["/a", "/b"], "lab:x", &options));
        let others = [
            plain_id(Pin([8; 32]), &["/a", "/b"], "lab:x", &options),
            plain_id(pin, &["/a/b"], "lab:x", &options),
            plain_id(pin, &["/b", "/a"], "lab:x", &options),
            plain_id(pin, &["/a"], "/blab:x", &options),
            plain_id(pin, &["/a", "/b", "lab:x"], "", &options),
            plain_id(pin, &["/a", "/b"], "lab:x", &TransferOptions { no_clobber: true, ..options.clone() }),
            plain_id(pin, &["/a", "/b"], "lab:x", &TransferOptions { chunk_bytes: 1 << 20, ..options.clone() }),
            plain_id(pin, &["/a", "/b"], "lab:x", &TransferOptions { chmod: Some((0o600, 0o700)), ..options.clone() }),
        ];
        for (n, other) in others.iter().enumerate() {
            assert_ne!(*other, id, "{n}");
            assert!(!others[..n].contains(other), "{n}");
        }
    }

    type Asked = (Choice, TransferOptions);

    /// One change of each option. The patterns have no rest: a new option does not compile before it is here.
    fn changes() -> Vec<(&'static str, Asked)> {
        let TransferOptions {
            fsync: _,
            verify: _,
            digest: _,
            chunk_bytes: _,
            no_clobber: _,
            chmod: _,
            engine: _,
            depths: _,
            selection: _,
            compare: _,
            keeps_newer: _,
            only_existing: _,
            is_dry_run: _,
            tells_changes: _,
            deletion: _,
            backup: _,
            is_delta: _,
            fidelity: _,
            compression: _,
            pace: _,
            payload_bytes_max: _,
            congestion: _,
            class: _,
            follow: _,
            view: _,
            sealed_list: _,
            buffer: _,
            wait: _,
            slice: _,
        } = TransferOptions::default();
        let Choice { filter: _, size_bytes_min: _, size_bytes_max: _, newer_than: _, older_than: _, listed: _ } =
            Choice::default();
        let changed = |name, change: &dyn Fn(&mut TransferOptions)| {
            let mut options = TransferOptions::default();
            change(&mut options);
            assert_ne!(options, TransferOptions::default(), "{name}");
            (name, (Choice::default(), options))
        };
        let chosen = |name, change: &dyn Fn(&mut Choice)| {
            let mut choice = Choice::default();
            change(&mut choice);
            assert!(!choice.is_everything(), "{name}");
            (name, (choice, TransferOptions::default()))
        };
        let rules =
            |rules: &[&str]| Filter::new(rules.iter().map(|rule| Rule::parse(rule).unwrap()).collect()).unwrap();
        let listed = |paths: &[&str]| Listed::new(paths.iter().map(|path| path.as_bytes().to_vec()).collect()).ok();
        let removal = |is_at_root, removals_max| Some(Deletion { is_at_root, removals_max });
        let span = Some(Duration::from_secs(7));
        vec![
            changed("fsync", &|o| o.fsync = Fsync::Never),
            changed("verify", &|o| o.verify = Verify::Reread),
            changed("digest", &|o| o.digest = DigestAlgorithm::Blake3),
            changed("chunk_bytes", &|o| o.chunk_bytes = 1 << 20),
            changed("no_clobber", &|o| o.no_clobber = true),
            changed("chmod", &|o| o.chmod = Some((0o600, 0o700))),
            changed("engine", &|o| o.engine = Engine::Plain),
            changed("follow", &|o| o.follow = Some(Arc::new(Follow::new(Until::Never, Vec::new())))),
            changed("view", &|o| o.view = Some(Arc::default())),
            changed("view of names", &|o| o.view = Some(Arc::new(View { unfinished: vec![b"*.tmp"[..].into()] }))),
            chosen("one rule", &|c| c.filter = rules(&["- a"])),
            chosen("two rules", &|c| c.filter = rules(&["- a", "+ b"])),
            chosen("two rules in another order", &|c| c.filter = rules(&["+ b", "- a"])),
            chosen("size_bytes_min", &|c| c.size_bytes_min = 7),
            chosen("size_bytes_max", &|c| c.size_bytes_max = Some(7)),
            chosen("the largest size is 0", &|c| c.size_bytes_max = Some(0)),
            chosen("newer_than", &|c| c.newer_than = span),
            chosen("older_than", &|c| c.older_than = span),
            chosen("one path", &|c| c.listed = listed(&["a"])),
            chosen("two paths", &|c| c.listed = listed(&["a", "b"])),
            chosen("no path", &|c| c.listed = listed(&[])),
            changed("compare", &|o| o.compare = Compare::Checksum),
            changed("keeps_newer", &|o| o.keeps_newer = true),
            changed("only_existing", &|o| o.only_existing = true),
            changed("is_dry_run", &|o| o.is_dry_run = true),
            changed("deletion", &|o| o.deletion = removal(false, None)),
            changed("deletion at the root", &|o| o.deletion = removal(true, None)),
            changed("bounded deletion", &|o| o.deletion = removal(false, Some(0))),
            changed("backup", &|o| o.backup = Some(b"old".to_vec())),
            changed("is_delta", &|o| o.is_delta = true),
            changed("fidelity", &|o| o.fidelity.xattrs = true),
        ]
    }

    #[test]
    fn every_option_that_changes_what_is_left_behind_changes_the_id() {
        let id = |(choice, options): &Asked| job_id(Pin([7; 32]), &["/a"], "lab:x", choice, options);
        let mut seen = vec![("nothing", id(&Asked::default()))];
        for (name, asked) in changes() {
            let found = id(&asked);
            for (other, known) in &seen {
                assert_ne!(found, *known, "{name} and {other} are one job");
            }
            seen.push((name, found));
        }
    }

    #[test]
    fn a_job_that_is_given_another_rate_or_tells_more_or_runs_later_is_the_same_job() {
        let id = |options: &TransferOptions| plain_id(Pin([7; 32]), &["/a"], "lab:x", options);
        let choice = Choice { newer_than: Some(Duration::from_secs(7)), ..Choice::default() };
        let other = TransferOptions {
            selection: Arc::new(choice.at(77)),
            tells_changes: true,
            compression: Compression::Zstd,
            pace: Some(Arc::new(Timetable::parse("1M").unwrap())),
            payload_bytes_max: Some(1),
            congestion: Some("bbr".into()),
            buffer: Buffer::Always,
            wait: Wait::Buffered,
            class: Some(model::Class::Low),
            ..TransferOptions::default()
        };
        assert_eq!(id(&other), id(&TransferOptions::default()));
    }

    #[test]
    fn ids_stay_what_they_are_between_versions() {
        let id = plain_id(Pin([1; 32]), &["/data"], "lab:in", &TransferOptions::default());
        assert_eq!(id.to_string(), "9ef1d6c01cfd5334fa7a65dbd1440f4d");
    }
}
