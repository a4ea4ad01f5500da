//! A receiver's words on objects, cut into messages that every peer may take: by elements and by bytes.
//!
//! Invariants:
//! - The digest of an object is in the message that says that the object is published.
//! - All extents of one object are in one `Want`.

use model::{Extent, Failure, FailureKind};
use wire::bounded;
use wire::limits::{EXTENTS_TOLD, LISTS_BODY_BYTES_MAX, RESENT_MAX, SETTLED_TOLD};
use wire::message::{
    DigestRecord, ExtentRecord, FailureRecord, Resend, Run, Settled, Want, failures_that_fit, runs_of,
};

use crate::job::bounded_path;

/// Runs, and extents, in one message that asks for them again.
const AGAIN_TOLD: usize = 1024;

// The longest run takes 24 bytes, the longest extent 35: `RESENT_MAX` of them would be too many bytes for a message.
const _: () = assert!(AGAIN_TOLD * (24 + 35) + 1024 < LISTS_BODY_BYTES_MAX && AGAIN_TOLD <= RESENT_MAX);

/// A failure of an object that the sender knows by its id, or by its path only.
pub fn record_of(object: u64, failure: &Failure) -> FailureRecord {
    let path = if object == 0 { bounded_path(&failure.path) } else { Vec::new() };
    FailureRecord { object, path, kind: failure.kind as u32, text: bounded(&failure.message).to_owned() }
}

/// A failure of this side, as it is told. What is missing here was removed from the destination by somebody: without a word on
/// where, it would read as a source that vanished.
pub fn at_destination(mut failure: Failure) -> Failure {
    if failure.kind == FailureKind::NotFound {
        failure.kind = FailureKind::WriteError;
        failure.message.push_str("; a directory of the destination was removed meanwhile");
    }
    failure
}

/// What is settled, as a job tells it.
#[derive(Default)]
pub struct Words {
    /// With the digests of those that travelled in chunks.
    pub published: Vec<(u64, Option<Vec<u8>>)>,
    pub skipped: Vec<u64>,
    pub failed: Vec<FailureRecord>,
}

impl Words {
    pub fn messages(self, job: u32) -> impl Iterator<Item = Settled> {
        let Words { mut published, mut skipped, mut failed } = self;
        std::iter::from_fn(move || {
            if published.is_empty() && skipped.is_empty() && failed.is_empty() {
                return None;
            }
            let ids: Vec<_> = published.drain(..published.len().min(SETTLED_TOLD)).collect();
            let here = skipped.drain(..skipped.len().min(SETTLED_TOLD)).collect();
            let failed = failed.drain(..failures_that_fit(&failed)).collect();
            let digest = |(object, digest): &(u64, Option<Vec<u8>>)| {
                Some(DigestRecord { object: *object, digest: digest.clone()? })
            };
            let digests = ids.iter().filter_map(digest).collect();
            let published = runs_of(ids.into_iter().map(|(id, _)| id).collect());
            Some(Settled { job, published, skipped: runs_of(here), failed, digests, buffered: Vec::new() })
        })
    }
}

/// Extents to be sent of one object. Of more than fit one message the last ones become one: what is held between them comes
/// again and is dropped.
pub fn wanted_extents(object: u64, gaps: &[Extent]) -> impl Iterator<Item = ExtentRecord> {
    let end = gaps.last().map_or(0, |gap| gap.end);
    let told = gaps.iter().take(EXTENTS_TOLD).enumerate();
    told.map(move |(at, gap)| {
        let end = if at + 1 == EXTENTS_TOLD { end } else { gap.end };
        ExtentRecord { object, start: gap.start, end }
    })
}

/// What is wanted of one batch; `runs` of at most as many objects as a batch has.
pub fn wants(job: u32, mut runs: Vec<Run>, extents: &[ExtentRecord]) -> Vec<Want> {
    let mut wants: Vec<Want> = Vec::new();
    for of_object in extents.chunk_by(|one, next| one.object == next.object) {
        match wants.last_mut() {
            Some(want) if want.extents.len() + of_object.len() <= EXTENTS_TOLD => want.extents.extend(of_object),
            _ => wants.push(Want { job, runs: std::mem::take(&mut runs), extents: of_object.to_vec() }),
        }
    }
    if !runs.is_empty() {
        wants.push(Want { job, runs, extents: Vec::new() });
    }
    wants
}

/// What is asked for again because other holders bring the rest.
pub fn resends(job: u32, mut runs: Vec<Run>, mut extents: Vec<ExtentRecord>) -> impl Iterator<Item = Resend> {
    std::iter::from_fn(move || {
        if runs.is_empty() && extents.is_empty() {
            return None;
        }
        let runs = runs.drain(..runs.len().min(AGAIN_TOLD)).collect();
        let extents = extents.drain(..extents.len().min(AGAIN_TOLD)).collect();
        Some(Resend { job, runs, extents, why: "other holders bring the rest".to_owned() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::FailureKind;
    use wire::limits::{ENTRIES_MAX, PATH_BYTES_MAX, TEXT_BYTES_MAX};
    use wire::message;

    /// The largest id: it takes the most bytes.
    const FAR: u64 = u64::MAX / 4;

    fn failure(object: u64) -> FailureRecord {
        let (path, message) = (vec![b'p'; 2 * PATH_BYTES_MAX], "x".repeat(2 * TEXT_BYTES_MAX));
        record_of(object, &Failure { path, kind: FailureKind::Other, message })
    }

    #[test]
    fn however_much_is_settled_at_once_each_message_fits_and_nothing_is_left_out() {
        let ids = |first: u64| (first..first + 2 * 20_000).step_by(2);
        let words = Words {
            published: ids(FAR).map(|id| (id, Some(vec![7; 32]))).collect(),
            skipped: ids(FAR + 100_000).collect(),
            failed: (0..5000).map(|at| failure(FAR + 200_000 + at)).collect(),
        };
        let (mut published, mut skipped, mut failed) = (0, 0, 0);
        for settled in words.messages(u32::MAX) {
            published += settled.published.iter().map(|run| run.count).sum::<u64>();
            skipped += settled.skipped.iter().map(|run| run.count).sum::<u64>();
            failed += settled.failed.len();
            let of_digests: Vec<_> = settled.digests.iter().map(|record| record.object).collect();
            assert_eq!(runs_of(of_digests), settled.published, "a digest is told with its object");
            message::fits(&message::encode(settled)).unwrap();
        }
        assert_eq!((published, skipped, failed), (20_000, 20_000, 5000));
        assert_eq!(Words::default().messages(1).count(), 0);
    }

    #[test]
    fn wants_of_parts_fit_and_name_an_object_once() {
        let gaps: Vec<_> = (0..100_000u64).map(|at| Extent::new((at << 41) + (1 << 40), (at + 1) << 41)).collect();
        let many: Vec<_> = wanted_extents(FAR, &gaps).collect();
        assert_eq!((many.len(), many[EXTENTS_TOLD - 1].end), (EXTENTS_TOLD, gaps[99_999].end));
        let few = |object| wanted_extents(object, &gaps[..1000]);
        let all: Vec<_> = many.iter().copied().chain((0..40).flat_map(|at| few(FAR + 1 + at))).collect();
        let runs = runs_of((0..ENTRIES_MAX as u64).map(|at| FAR + 100 + 2 * at).collect());
        let wants = wants(u32::MAX, runs, &all);
        assert_eq!(wants.iter().map(|want| want.runs.len()).sum::<usize>(), ENTRIES_MAX);
        assert_eq!(wants.iter().map(|want| want.extents.len()).sum::<usize>(), all.len());
        let mut seen = std::collections::HashSet::new();
        for want in wants {
            let objects: std::collections::HashSet<_> = want.extents.iter().map(|record| record.object).collect();
            assert!(objects.into_iter().all(|object| seen.insert(object)), "an object in two messages");
            message::fits(&message::encode(want)).unwrap();
        }
    }

    #[test]
    fn however_much_is_asked_for_again_each_message_fits_and_nothing_is_left_out() {
        let place = |at: u64| FAR + (at << 40);
        let record = |at: u64| ExtentRecord { object: FAR + at / 3, start: place(at), end: place(at + 1) };
        let extents: Vec<_> = (0..3 * RESENT_MAX as u64).map(record).collect();
        let runs = runs_of((0..2 * RESENT_MAX as u64).map(|at| FAR + 2 * at).collect());
        let told: Vec<_> = resends(u32::MAX, runs.clone(), extents.clone()).collect();
        assert!(told.iter().flat_map(|again| &again.runs).eq(&runs));
        assert!(told.iter().flat_map(|again| &again.extents).eq(&extents));
        for again in told {
            message::fits(&message::encode(again)).unwrap();
        }
        assert_eq!(resends(1, Vec::new(), Vec::new()).count(), 0);
    }
}
