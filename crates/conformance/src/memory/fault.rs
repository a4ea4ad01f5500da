//! Delays and faults by kind of call and count, and deliberate flaws.

use model::FailureKind;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

/// A kind of call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Call {
    Scan,
    Open,
    Read,
    Decide,
    /// A directory, link or special file is made.
    Make,
    Write,
    Begin,
    WriteAt,
    Journal,
    Checkpoint,
    SyncGroup,
    Publish,
    Reread,
}

#[derive(Default)]
pub struct Faults(Mutex<HashMap<Call, Orders>>);

/// What happens to calls of one kind.
#[derive(Default)]
struct Orders {
    calls: u64,
    delay: Duration,
    /// The first and the last call that fail, and how.
    failing: Option<(u64, u64, FailureKind)>,
}

impl Faults {
    pub fn fail(&self, call: Call, after: u64, times: u64, kind: FailureKind) {
        let mut all = self.0.lock().unwrap();
        let orders = all.entry(call).or_default();
        orders.failing = Some((orders.calls + after, (orders.calls + after).saturating_add(times), kind));
    }

    pub fn delay(&self, call: Call, by: Duration) {
        self.0.lock().unwrap().entry(call).or_default().delay = by;
    }

    pub fn calls(&self, call: Call) -> u64 {
        self.0.lock().unwrap().get(&call).map_or(0, |orders| orders.calls)
    }

    /// Counts a call, delays it and lets it fail, as was ordered.
    pub fn meet(&self, call: Call) -> store::Result<()> {
        let (delay, failing) = {
            let mut all = self.0.lock().unwrap();
            let orders = all.entry(call).or_default();
            let number = orders.calls;
            orders.calls += 1;
            let failing = orders.failing.filter(|(first, end, _)| (*first..*end).contains(&number));
            (orders.delay, failing)
        };
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        match failing {
            Some((.., kind)) => Err(store::Error::of_kind(kind, "reach storage", b"", "a fault was injected")),
            None => Ok(()),
        }
    }
}

macro_rules! flaws {
    ($($(#[$says:meta])* $flaw:ident => $check:literal,)*) => {
        /// A deliberate bug of the store.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Flaw {
            $($(#[$says])* $flaw,)*
        }

        impl Flaw {
            /// Each flaw with the check that it fails.
            pub const ALL: &[(Flaw, &str)] = &[$((Flaw::$flaw, $check),)*];
        }
    };
}

flaws! {
    ListsChildrenFirst => "scan-parents-first",
    CountsFromZero => "scan-ids-count",
    HidesEmptyFiles => "scan-is-complete",
    GoesOnListing => "scan-stops",
    ListsInAnotherOrder => "scan-repeats",
    FollowsLinks => "scan-shows-links",
    ReadsHalf => "read-at-offsets",
    ReadsBeyondTheEnd => "read-at-the-end",
    ReadsWholeFromTheEnd => "read-whole",
    SharesItsCursor => "read-by-several",
    ForgetsGenerationOfOpenFiles => "generation-holds",
    KeepsGenerations => "generation-changes",
    ChangesOpenFiles => "generation-guards-open-files",
    OpensWhatIsGone => "gone-is-not-found",
    PublishesWhenSealed => "small-is-invisible",
    PublishesWhenBegun => "large-is-invisible",
    KeepsAbandoned => "abandoned-leaves-nothing",
    KeepsDiscarded => "discarded-leaves-nothing",
    KeepsDiscardedUploads => "large-discarded-leaves-nothing",
    KeepsPublishedUploads => "close-leaves-no-staging",
    KeepsRefused => "failed-publish-leaves-nothing",
    SharesUploads => "attempts-stay-apart",
    SharesStaging => "jobs-stay-apart",
    RereadsHalf => "small-rereads",
    RereadsHalfOfUploads => "large-rereads",
    DropsSkipped => "skipped-reads-as-zeros",
    FillsGapsWithOnes => "unwritten-reads-as-zeros",
    LosesLastByte => "small-round-trip",
    LosesLastByteOfUploads => "large-round-trip",
    DropsEmptyFiles => "empty-files",
    IgnoresNoReplace => "no-replace-refuses",
    IgnoresNoReplaceOfUploads => "large-no-replace-refuses",
    RemovesBeforeReplacing => "replace-is-one-step",
    IgnoresTheDecision => "replace-only-what-was-decided-on",
    PublishesTheLastStaged => "publish-by-any-thread",
    LosesOneOfEachGroup => "publish-in-groups",
    TellsOfTheNextPlace => "publish-group-tells-each",
    GoesOnPublishing => "publish-group-stops",
    DecidesSame => "decide-absent",
    NeverDecidesSame => "decide-same",
    DecidesBySize => "decide-replace",
    DecidesGroupsBackwards => "decide-in-groups",
    RoundsTimes => "times-are-kept",
    ForgetsModes => "modes-are-kept",
    TakesNamesForText => "names-are-bytes",
    TellsNamesForPaths => "entries-have-paths",
    OpensNothingPublished => "published-is-readable",
    AppendsChunks => "chunks-in-any-order",
    TakesGaps => "chunks-out-of-order-are-refused",
    ReadsStagedFromTheStart => "staged-is-readable",
    ForgetsJournals => "journal-is-found-again",
    TellsOfNoJournal => "journal-is-foretold",
    NeverCutsJournals => "journal-is-cut",
    IgnoresStems => "journal-belongs-to-its-stem",
    KeepsJournals => "journal-ends-with-its-object",
    OverwritesJournals => "journal-survives-several-attempts",
    ForgetsSealedExtents => "sealed-extents-are-found-again",
    CutsWhatIsSettled => "settled-is-whole-and-invisible",
    MakesDirectoriesAnew => "directories-are-made",
    FinishesNothing => "directories-end-with-their-time",
    TakesAllForFresh => "fresh-is-what-this-job-made",
    MakesWhatItLooksFor => "looking-makes-nothing",
    ReplacesDirectories => "kinds-are-in-the-way",
    CutsDeepTrees => "deep-trees",
    EntersNothing => "enter-goes-down",
    MakesLinksTwice => "symlinks-are-made",
    MakesNodesTwice => "nodes-are-made",
    LinksWhateverIsThere => "hard-links-are-made",
    PrunesTheSpared => "prune-removes-the-rest",
    PrunesInRehearsals => "prune-rehearses",
    TouchesNothing => "touch-sets-the-time",
    AmendsNothing => "amend-changes-what-differs",
    LooksWithoutTimes => "look-tells-what-stands",
    LooksBehindLinks => "look-follows-no-link",
    ListsUnsorted => "list-is-in-order",
    GoesOnAnswering => "list-stops",
    ReadsOneOfAWalk => "walk-reads",
    MakesOverFiles => "make-makes-directories",
    RenamesOver => "rename-is-one-step",
    RemovesDirectories => "remove-takes-one",
    RemovesOtherVersions => "remove-takes-only-that-version",
    LeavesTrees => "remove-takes-trees",
    RemovesTheRoot => "the-root-stays",
}
