//! The museum of deliberate bugs: each is switched on by name in a build that has them, and something has to notice.
//!
//! Most were there before the trials ran against them; others came with a hole that was mended, and for some that nothing
//! caught a test was written afterwards. A mutant that nothing catches is a hole in the trials, and is printed as one.

mod suites;

use crate::record::{MUTANT_PREFIX, Outcome, Tally};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Instant;
use suites::{Suites, output};

/// Who has to notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layer {
    /// `trial simulate`. This seed is known to notice it; where it does not any more, another is looked for.
    Simulation(u64),
    /// Another command of this program.
    Trial(&'static [&'static str]),
    /// Tests of the named package whose names hold the second word.
    Test(&'static str, &'static str),
}
use Layer::{Simulation, Test, Trial};

/// Flips of bits, enough to meet every stage.
const FLIPS: Layer = Trial(&["flips", "--flips", "300"]);
/// Seeds enough for an answer about an earlier attempt that comes late.
const QUEUE: Layer = Trial(&["queue", "--seeds", "300"]);
/// Two rounds of the kind that is raced most easily.
const ENROLMENTS: Layer = Trial(&["enrolments", "--rounds", "2", "--only", "the ticket without limits is revoked"]);
/// Of what noticed a mutant, as it is recorded.
const EVIDENCE_CHARACTERS: usize = 160;

impl Layer {
    fn name(self) -> String {
        match self {
            Simulation(_) => "simulation".to_owned(),
            Trial(words) => format!("`trial {}`", words.join(" ")),
            Test(package, filter) => format!("tests of {package} {filter}").trim_end().to_owned(),
        }
    }
}

/// Name of the switch, the bug in words, and the layer that catches it.
pub const MUTANTS: &[(&str, &str, Layer)] = &[
    ("drop-directory-sync", "names are never made durable", Simulation(2)),
    ("publish-before-sync", "a group is renamed before its content is durable", Simulation(3)),
    ("skip-file-sync", "with --fsync file, a small file is renamed unsynced", Simulation(1)),
    ("skip-large-sync", "a large file is renamed unsynced", Simulation(1)),
    ("acknowledge-before-sync", "a small file is acknowledged when it is renamed", Simulation(5)),
    ("settle-names-unsynced", "a group is settled before its names are durable", Simulation(14)),
    ("finish-without-name-sync", "a job is finished without a last wait for names", Simulation(3)),
    ("forget-changed-directory", "a lane does not say which directory it changed", Simulation(1)),
    ("forget-new-directories", "the parent of a new directory is not synced", Simulation(70)),
    ("forget-large-name", "the directory of a large file is not synced", Simulation(1)),
    (
        "settle-large-names-unsynced",
        "with --fsync file, a large file is settled before its name is durable",
        Simulation(8),
    ),
    ("trust-names-that-are-there", "a file found at the destination counts as durable", Simulation(7139)),
    ("ignore-failed-sync", "an error of the group's sync is dropped", Simulation(141)),
    ("retry-failed-sync", "a sync that failed is given a second try", Simulation(14)),
    ("retry-failed-name-sync", "a failed sync of names is forgotten", Simulation(265)),
    ("remove-before-replacing", "the old object is removed, then the new one is named", Simulation(8)),
    ("reuse-staging-name", "a lane stages every file under one name", Simulation(3)),
    (
        "take-old-epoch",
        "what an earlier use of a segment left in it is taken",
        Test("store", "an_earlier_use_of_a_segment"),
    ),
    ("spool-unverified", "what a power loss left in a spool is not compared", Test("store", "after_a_power_loss")),
    ("grant-beyond-quota", "a spool takes more than its quota", Test("store", "never_more_is_held_than_the_quota")),
    (
        "buffered-before-sync",
        "content is called buffered before it is synced",
        Test("mover", "buffered_is_said_of_what_is_synced"),
    ),
    (
        "release-too-early",
        "a chunk leaves the spool before its staging is durable",
        Test("mover", "stays_until_it_is_durable"),
    ),
    (
        "delivered-when-buffered",
        "a sender that leaves is told that everything is durable at its place",
        Test("mover", "a_sender_that_leaves_is_told"),
    ),
    (
        "drain-only-with-sender",
        "what waits is not delivered while its sender is away",
        Test("mover", "goes_on_without_its_sender"),
    ),
    (
        "sent-by-nobody",
        "what was read ahead is not noted with the lane that sends it",
        Test("mover", "takes_no_credit_until_it_leaves"),
    ),
    (
        "take-over-in-mid-frame",
        "a stream is taken over from a stuck lane in the middle of a frame",
        Test("mover", "a_stuck_lane_finds_the_rest"),
    ),
    ("leave-staging", "the end of a job leaves its staging", Simulation(1)),
    (
        "publish-what-is-not-sealed",
        "a file of one chunk is published though its sender did not see it unchanged",
        Test("mover", "an_object_of_one_chunk"),
    ),
    ("adopt-unlike-chunks", "what stands at a name is taken over without comparing it", Simulation(33)),
    ("commit-before-verify", "a digest that differs is accepted", Simulation(43)),
    ("publish-what-was-taken-back", "what the sender took back is published", Simulation(320)),
    ("complete-with-the-seal", "a large file is complete with its last chunk, gaps or not", Simulation(7)),
    ("take-fin-for-the-end", "a broken stream ends a chunk as if it were whole", Simulation(2)),
    (
        "decode-before-counting",
        "a message's lists are counted when they have been decoded",
        Test("wire", "takes_no_more_than_is_said"),
    ),
    ("walk-the-whole-run", "a run costs what it names, open or not", Test("mover", "a_run_costs_what_is_open_of_it")),
    ("take-twice", "two lanes may write one small object", Test("mover", "one_lane_at_a_time")),
    ("settle-twice", "an object can be settled twice", Test("mover", "an_object_is_settled_once")),
    ("forget-broken-chunk", "what a broken stream carried is not asked for again", Simulation(619)),
    ("forget-dead-lane", "what a dead lane had in flight is not sent again", Simulation(2)),
    ("wait-on-a-broken-stream", "a lane that waits for work does not see that its stream broke", Simulation(112)),
    (
        "drop-the-seal-of-a-duplicate",
        "the last word on an object is lost when its chunk came twice",
        Simulation(16_659),
    ),
    ("finish-early", "the sender says that it is done before everything is settled", Simulation(2)),
    ("ignore-changed-file", "a small file that changed while it was read is sent as good", Simulation(18)),
    ("ignore-changed-chunks", "a large file that changed while it was read is sealed", Simulation(90)),
    ("resume-another-version", "staging of another version of the source is continued", FLIPS),
    ("trust-log-after-reboot", "unsynced chunks count after a power loss, unread", Simulation(39)),
    ("ignore-reboot", "a power loss is taken for a killed process", Test("mover", "resume")),
    ("trust-a-journal-alone", "a log whose data is gone is continued", Test("store", "large")),
    ("accept-torn-records", "a record of the extent log is taken without its checksum", Test("ledger", "extent_log")),
    ("skip-reread", "--verify reread reads nothing", FLIPS),
    ("replace-what-appeared", "a name that another writer made meanwhile is replaced", Test("store", "appeared")),
    ("follow-links", "a directory that became a link is followed", Test("store", "swapped_for_a_link")),
    ("resolve-anywhere", "a peer's path is resolved as text", Test("store", "beneath")),
    ("share-staging", "staging that others may enter is used", Test("store", "staging")),
    ("take-what-was-not-asked", "a client takes whatever its endpoint sends", Test("mover", "asked")),
    ("filters-hold-at-the-sender-only", "rules, bounds and lists are the sender's alone", Test("mover", "asked")),
    (
        "terms-of-removal-alone",
        "a host that copies to another one writes in a dry run, replaces what is spared, and lists where it likes",
        Test("ssh", "spares_what_the_command_spares"),
    ),
    (
        "write-only-may-look",
        "a write-only ticket gets dry runs and lists of changes",
        Test("daemon", "a_client_that_may_only_write"),
    ),
    (
        "write-only-may-remove",
        "a write-only ticket removes and backs up what others sent",
        Test("daemon", "a_client_that_may_only_write"),
    ),
    ("no-share-for-others", "one client may take all places and all memory", Test("mover", "who_is_alone_gets_most")),
    ("idle-lanes-keep-memory", "a lane that does nothing keeps its memory", Test("mover", "on_which_nothing_moves")),
    (
        "idle-jobs-keep-sessions",
        "a session whose jobs stand still keeps its place",
        Test("mover", "whose_jobs_stand_still"),
    ),
    (
        "follow-the-clock-back",
        "a ticket gets the time by which the clock is set back",
        Test("daemon", "a_clock_that_is_set_back"),
    ),
    ("uncharged-connections", "open connections are charged to nobody", Test("daemon", "connections_are_charged")),
    ("uncharged-directories", "what is described is charged to nobody", Test("mover", "beyond_a_share")),
    ("take-short-completions", "an io_uring write that was cut short counts as whole", Simulation(2)),
    ("ignore-failed-completions", "an error of an io_uring write is dropped", Simulation(1441)),
    ("forget-amended", "what is set of a file that was there is not synced where no journal does it", Simulation(28)),
    (
        "forget-backup-directory",
        "a directory of backups is not durable before something is moved into it",
        Simulation(201),
    ),
    (
        "leave-what-was-given-away",
        "staging of another owner, left by a crash, fails its file for good",
        Simulation(180),
    ),
    ("take-any-end-for-the-end", "a connection that just ends is a declared end", Test("net", "close_notify")),
    ("ignore-reserved-bits", "reserved bits of a frame are not looked at", Test("wire", "hostile_headers")),
    (
        "last-pace-wins",
        "of two limits of a rate the later one holds, and not the smaller",
        Test("mover", "of_several_limits"),
    ),
    ("low-never-gives-way", "low jobs do not give way to high ones", Test("plan", "low_falls")),
    (
        "idle-share-is-lost",
        "what a job does not use of its share is nobody's",
        Test("daemon", "what_nobody_uses_is_had_at_once"),
    ),
    ("any-class-for-all", "a client may have a class that its ticket does not allow", Test("daemon", "class_beyond")),
    (
        "anybody-manages-rates",
        "a client changes contracts without a ticket for that",
        Test("daemon", "of_rates_only_if_it_manages"),
    ),
    (
        "anybody-is-a-host",
        "a client that is no host learns what other clients may",
        Test("daemon", "and_a_client_is_no_host"),
    ),
    (
        "200-means-renewed",
        "a lease of etcd that is gone counts as renewed, because the answer is no error",
        Test("etcd", "nothing_of_it_is_believed"),
    ),
    ("timeout-means-done", "what etcd did not answer counts as done", Test("etcd", "an_answer_that_was_lost")),
    ("event-log-without-end", "the event log grows without bound", Test("daemon", "the_log_is_bounded")),
    ("clocks-are-right", "logs of several hosts are merged by their clocks alone", Test("daemon", "no_effect_comes")),
    ("overlook-expiry", "a ticket does not expire", Test("daemon", "tickets_expire")),
    ("claim-success", "a run that left files out exits with 0", Test("transfer", "a_run_with_failures")),
    ("sweep-what-is-used", "staging in use is swept", Test("store", "a_dead_lane")),
    (
        "slice-without-names",
        "a slice stages files without names, which nobody can take away",
        Test("store", "late_host"),
    ),
    ("void-slice-goes-on", "a slice that was taken over may be begun again", Test("store", "slice")),
    (
        "rmdir-once",
        "a slice's staging counts as gone though its host made more meanwhile",
        Test("store", "while_it_goes"),
    ),
    ("commit-without-epoch", "whoever lost a bundle may still commit it", Test("cluster", "no_schedule")),
    ("steal-keeps-epoch", "a bundle that is taken away stays its owner's too", Test("cluster", "no_schedule")),
    (
        "name-what-is-written-to",
        "a file of several hosts gets its name while one of them may still write to it",
        Test("thalweg", "one_file_is_sent_by_all_hosts"),
    ),
    ("sweep-other-hosts", "staging of another host is swept by its locks", Test("store", "another_host")),
    ("any-reader", "a set is opened to whoever is not among its readers", Test("store", "opens_to_its_readers_alone")),
    (
        "drop-box-makes-sets",
        "a client that may only write closes a directory to those who read it",
        Test("store", "nobody_who_sends_makes_a_set"),
    ),
    (
        "cache-by-name",
        "a cache keeps content under its path",
        Test("daemon", "known_by_its_digest_and_not_by_its_name"),
    ),
    ("serve-rot", "a cache serves what rotted on its disk", Test("daemon", "rot_is_fetched_again")),
    ("cross-mounts", "a mount below the root of an endpoint is entered", Test("store", "mounted")),
    (
        "follow-a-planted-link",
        "a status file is written under a name that can be foreseen",
        Test("daemon", "a_planted_link"),
    ),
    (
        "ftp-pasv-abroad",
        "an FTP server sends data connections to whatever host it likes",
        Test("foreign", "an_address_abroad_is_refused"),
    ),
    (
        "ftp-cut-is-end",
        "a data connection that ends is the end of a file, whatever the server says",
        Test("foreign", "a_file_that_is_cut"),
    ),
    (
        "ftp-early-word-counts",
        "an FTP server's word that a file is complete counts before all of it was sent",
        Test("foreign", "a_word_that_comes_before"),
    ),
    (
        "ftp-short-is-whole",
        "nobody compares how much of a file lies at an FTP server",
        Test("foreign", "a_file_that_does_not_lie_there_whole"),
    ),
    ("trust-foreign-files", "files that others own or may change are believed", Test("daemon", "trust")),
    (
        "move-onto-itself",
        "a move removes a source that is its own destination",
        Test("transfer", "is_not_its_own_copy"),
    ),
    (
        "forget-doubt-of-backups",
        "a second wait vouches for a backup directory whose first one failed",
        Simulation(1_141_754_900),
    ),
    ("forget-doubt", "what was staged when a wait for the file system failed is published", Simulation(1_028_850_075)),
    (
        "seal-at-first-close",
        "a file of several writers is complete when one of them closes it",
        Test("store", "two_writers"),
    ),
    (
        "marker-overtakes",
        "a marker is described before what it covers has arrived",
        Test("mover", "a_marker_completes"),
    ),
    ("drop-late-writes", "what is written after a file was published is lost", Test("mover", "published_again")),
    ("ignore-overflow", "lost hints of the kernel are not made up for by listing", Test("store", "overflow")),
    (
        "keep-what-was-not-synced",
        "staging of a growing file whose sync failed is gone on with",
        Trial(&["simulate", "--growing", "--first", "48", "--seeds", "1"]),
    ),
    (
        "trust-the-size",
        "a file that was rewritten at its size counts as unchanged",
        Test("mover", "published_again_also_at_equal_size"),
    ),
    ("trust-the-inode", "a second name of a file is taken for its new one", Test("store", "two_names_of_a_file")),
    (
        "close-chunk-at-its-boundary",
        "a growing file of one chunk is digested as if it went on",
        Test("mover", "end_at_a_chunk_s_boundary"),
    ),
    (
        "forget-taken-back",
        "what left the sender's book for a buffer is not sent again when it is asked for",
        Test("mover", "lies_in_a_buffer_is_sent_again"),
    ),
    ("seal-before-settling", "a growing file appears uncompared", Test("mover", "patched")),
    ("show-past-the-frontier", "a reader of a growing file sees a hole", Test("store", "posix::view")),
    ("patch-the-prefix", "bytes change that a reader of a growing file has seen", Test("store", "posix::view")),
    ("shrink-the-prefix", "a growing file becomes shorter under its reader", Test("store", "posix::view")),
    (
        "list-a-file-twice",
        "a list of what is complete names a file that is not there any more",
        Test("mover", "follow::list"),
    ),
    ("take-size-0-at-its-word", "a file of /proc is copied as an empty one", Test("store", "file_of_the_kernel")),
    ("variable-arms-removal", "a variable or a setting for all commands arms rm", Test("thalweg", "arms")),
    ("enrol-after-revocation", "an enrolment in flight outlives the ticket that was revoked", ENROLMENTS),
    ("review-may-die", "a panic ends the review of rights for good", Test("daemon", "serve::review")),
    ("fail-open-review", "rights that cannot be looked up are believed for ever", Test("mover", "reviews")),
    (
        "warrant-of-any-holder",
        "an endpoint may use a warrant that was given to another",
        Test("daemon", "nobody_gets_in_by_a_warrant"),
    ),
    ("warrant-of-any-path", "a warrant opens every path at its audience", Test("daemon", "a_warrant_allows_its_job")),
    (
        "mix-replicas",
        "what one holder left becomes part of another one's version",
        Test("mover", "what_an_earlier_attempt_left_counts"),
    ),
    (
        "count-what-was-emptied",
        "a chunk counts that went into staging which was emptied since",
        Test("mover", "what_came_before_staging_was_emptied"),
    ),
    ("older-serial", "a holder that is behind takes a set back to an older state", Test("daemon", "never_goes_back")),
    ("chunk-before-tree", "a holder is believed what it sends", Test("mover", "not_the_leads_proves_nothing")),
    ("no-tail-guard", "a slow path takes the last chunk of a job", Test("mover", "the_last_units_go_to_the_fast_lane")),
    (
        "wait-for-silent-paths",
        "a path that fell silent keeps what it had in flight",
        Test("mover", "a_silent_path_ends"),
    ),
    (
        "believe-any-address",
        "an address that an endpoint tells is dialled, whatever it means here",
        Test("mover", "addresses_that_mean_something_else"),
    ),
    (
        "hand-in-any-warrant",
        "an endpoint uses a warrant for whoever hands it in",
        Test("daemon", "for_nobody_but_its_issuer"),
    ),
    (
        "sign-what-is-told",
        "a client signs a warrant for what an endpoint says that its job is",
        Test("daemon", "an_endpoint_that_lies"),
    ),
    (
        "orders-without-shares",
        "jobs of one ticket keep those of others from beginning",
        Test("daemon", "orders::tests"),
    ),
    ("scheduler-may-die", "a panic keeps jobs from beginning for good", Test("daemon", "a_scheduler_that_panics")),
    ("orders-fail-open", "a job goes on for ever while rights cannot be looked up", Test("daemon", "orders::run")),
    ("failures-of-any-length", "the end of a job is too long to be read again", Test("daemon", "orders::run")),
    ("revoke-without-shares", "one ticket takes back so many warrants that others cannot", Test("daemon", "warrant::")),
    ("overlook-a-removed-log", "a log that was removed is written on", Test("daemon", "transfer_log::")),
    ("flush-the-log", "each refused change has a line in the log", Test("daemon", "refused_changes")),
    ("queue-dispatches-again-on-silence", "a job is given to somebody else when its executor is silent", QUEUE),
    ("queue-any-attempt", "what is said of an earlier attempt counts for the present one", QUEUE),
    ("queue-overlapping-destinations", "two jobs write to one place at once", QUEUE),
    ("queue-forgets-followers", "jobs that come after one are not told of its end", QUEUE),
    (
        "queue-charges-jobs",
        "a share is charged for jobs, whatever they moved",
        Test("queue", "charged_for_what_it_moves"),
    ),
    ("schedule-forgets-slots", "a slot has a second turn when the clock goes back", QUEUE),
    ("schedule-overlaps", "a job begins while the one before is open", QUEUE),
    (
        "schedule-twice-at-the-hour-change",
        "a time of day that the clocks repeat begins two jobs",
        Test("hub", "what_the_clocks_skip"),
    ),
    (
        "audit-gaps",
        "a line that is missing from the audit log is overlooked",
        Test("hub", "changed_removed_or_cut_off"),
    ),
    (
        "queue-cancels-without-revoking",
        "an order that is cancelled keeps its warrant",
        Test("queue", "deadlines_end_what_waits"),
    ),
    ("share-what-one-may-not", "somebody shares what only others may", Test("hub", "a_share_passes_on")),
    ("queue-head-of-line", "only the oldest job of all may begin", Test("queue", "a_head_that_cannot_run")),
    (
        "queue-never-yields",
        "a high job waits for a slot as long as low ones last",
        Test("queue", "a_low_job_makes_room"),
    ),
    (
        "queue-retries-a-missing-path",
        "a job that can never succeed is tried again",
        Test("queue", "each_class_of_refusal"),
    ),
    (
        "hub-answers-before-it-is-durable",
        "what could not be written down is answered as if it had been",
        Test("hub", "a_full_disk_refuses_a_group_whole"),
    ),
    ("rule-compares-text", "a rule for x also allows xy", Test("hub", "a_rule_covers_a_path")),
    ("host-unchecked", "the hub answers to a name that is not its own", Test("api", "a_name_that_is_not_the_hubs")),
    ("origin-unchecked", "a page of others changes something", Test("api", "what_a_browser_sends_by_itself")),
    (
        "stream-outlives-its-token",
        "events are told without a right to them",
        Test("api", "a_stream_ends_with_the_right"),
    ),
];

#[derive(Args)]
pub struct Arguments {
    /// Only these
    names: Vec<String>,
    /// All that simulation catches, and no others
    #[arg(long, conflicts_with = "names")]
    simulation: bool,
    /// Seeds that simulation may take to notice one
    #[arg(long, default_value_t = 20_000)]
    seeds: u64,
    /// Test programs that are there, as `cargo test --no-run --features model/mutants --message-format json` lists them: they run
    /// as they are, instead of cargo
    #[arg(long, value_name = "FILE")]
    programs: Option<PathBuf>,
}

/// Under which name a tally records what became of a mutant.
pub fn figure(name: &str) -> String {
    format!("{MUTANT_PREFIX}{name}")
}

pub fn run(arguments: &Arguments) -> Result<Tally> {
    let began = Instant::now();
    let mut tally = Tally::new("trial museum");
    let unknown = arguments.names.iter().find(|name| MUTANTS.iter().all(|(known, ..)| known != name));
    if let Some(name) = unknown {
        bail!("no mutant is called {name}; `trial museum --help` and docs/reliability.md list them");
    }
    let is_wanted = |(name, _, layer): &&(&str, &str, Layer)| {
        let is_named = arguments.names.is_empty() || arguments.names.iter().any(|wanted| wanted == name);
        is_named && (!arguments.simulation || matches!(layer, Simulation(_)))
    };
    let chosen: Vec<_> = MUTANTS.iter().filter(is_wanted).collect();
    let search = Search { seeds: arguments.seeds, suites: Suites::new(arguments.programs.as_deref())? };
    search.check_healthy(&chosen)?;
    let mut caught = 0;
    for (name, bug, layer) in chosen.iter().copied() {
        let evidence = search.catch(name, *layer)?;
        caught += usize::from(evidence.is_some());
        let said = match &evidence {
            Some(evidence) => format!("caught by {}: {evidence}", layer.name()),
            None => format!("MISSED by {}", layer.name()),
        };
        println!("{name} ({bug}): {said}");
        tally.figures.insert(figure(name), said);
        let outcome = match evidence {
            Some(_) => Outcome::Survived,
            None => Outcome::Violated(format!("nothing notices {name}")),
        };
        tally.count("mutants caught", &[], &outcome, &format!("cargo run --release -p trial -- museum {name}"));
    }
    tally.figures.insert("mutants caught".into(), format!("{caught} of {}", chosen.len()));
    tally.seconds = began.elapsed().as_secs_f64();
    Ok(tally)
}

/// How far something that notices is looked for, and in which builds of the tests.
struct Search {
    seeds: u64,
    suites: Suites,
}

impl Search {
    /// A suite that fails anyway catches nothing, and neither does one that runs nothing. Each seed of the simulation is held
    /// against a run without the mutant as it is tried.
    fn check_healthy(&self, chosen: &[&(&str, &str, Layer)]) -> Result<()> {
        let mut layers: Vec<Layer> = Vec::new();
        for (_, _, layer) in chosen {
            if !matches!(layer, Simulation(_)) && !layers.contains(layer) {
                layers.push(*layer);
            }
        }
        for layer in layers {
            if let Some(evidence) = self.catch("none", layer)? {
                bail!("without any mutant, {} says: {evidence}", layer.name());
            }
        }
        Ok(())
    }

    /// What noticed the mutant; none when nothing did.
    fn catch(&self, name: &str, layer: Layer) -> Result<Option<String>> {
        match layer {
            Simulation(known) => by_simulation(name, known, self.seeds),
            Trial(words) => by_trial(name, words),
            Test(package, filter) => self.suites.failing_test(name, package, filter),
        }
    }
}

/// A seed that is violated under the mutant and is not without it: the one that is known, or the first. Mode `liveness` looks
/// for all that `safety` does.
fn by_simulation(name: &str, known: u64, seeds: u64) -> Result<Option<String>> {
    if let Some(evidence) = by_seed(name, known)? {
        return Ok(Some(evidence));
    }
    let mut first = 1;
    while first <= seeds {
        let left = (seeds + 1 - first).to_string();
        let words = ["simulate", "--stop", "--mode", "liveness", "--first", &first.to_string(), "--seeds", &left];
        let Some(evidence) = by_trial(name, &words)? else { break };
        let seed = seed_of(&evidence).with_context(|| format!("{evidence:?} names no seed"))?;
        if by_seed(name, seed)?.is_some() {
            return Ok(Some(format!("{evidence} (seed {known} does not notice it any more)")));
        }
        first = seed + 1;
    }
    Ok(None)
}

/// What one seed notices under the mutant and does not without it.
fn by_seed(name: &str, seed: u64) -> Result<Option<String>> {
    let alone = ["simulate", "--mode", "liveness", "--first", &seed.to_string(), "--seeds", "1"];
    let Some(evidence) = by_trial(name, &alone)? else { return Ok(None) };
    Ok(by_trial("none", &alone)?.is_none().then_some(evidence))
}

fn seed_of(evidence: &str) -> Option<u64> {
    let (_, rest) = evidence.split_once("seed ")?;
    rest.split(':').next()?.parse().ok()
}

/// This program under a mutant: what it says is violated.
fn by_trial(name: &str, words: &[&str]) -> Result<Option<String>> {
    let program = std::env::current_exe().context("find this program")?;
    let output = output(Command::new(program).args(words).env("THALWEG_MUTANT", name))?;
    judged(&output).map_err(|why| anyhow::anyhow!("`trial {}` under {name} was no trial: {why}", words.join(" ")))
}

/// What a run of this program found; none: nothing.
///
/// # Errors
/// Says how it ended where it was no trial at all: a wrong option, no place to work in, a deadline, no fault that fired.
pub fn judged(output: &Output) -> Result<Option<String>, String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let violation = text.lines().find_map(|line| line.strip_prefix("VIOLATED "));
    match (output.status.code(), violation) {
        (Some(0), _) => Ok(None),
        // A seed of which no fault came in time is no trial, and no violation.
        (Some(1), None) if text.contains(" 0 violated, ") => Ok(None),
        (Some(1), Some(line)) => {
            Ok(Some(line.split("; again").next().unwrap_or(line).chars().take(EVIDENCE_CHARACTERS).collect()))
        }
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{}: {}", output.status, said.lines().last().unwrap_or("it said nothing")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_was_no_trial_is_no_catch() {
        let ended = |script: &str| judged(&Command::new("sh").args(["-c", script]).output().unwrap());
        assert_eq!(ended("echo fine"), Ok(None));
        assert_eq!(ended("echo 'VIOLATED a: b; again: c'; exit 1"), Ok(Some("a: b".to_owned())));
        assert!(ended("exit 1").is_err());
        assert_eq!(ended("echo 'a (F001): 0 fired, 0 survived, 0 violated, 1 inert'; exit 1"), Ok(None));
        assert_eq!(seed_of("simulated kill: seed 12: I3: object"), Some(12));
        assert!(ended("echo 'trial: no tmpfs' >&2; exit 2").unwrap_err().contains("no tmpfs"));
        assert!(ended("exit 124").is_err());
    }

    /// Names in the code and names in the list are the same.
    #[test]
    fn every_switch_in_the_code_is_in_the_list_once() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut switches = std::collections::BTreeSet::new();
        for name in [
            "ledger", "model", "mover", "store", "wire", "net", "transfer", "daemon", "ssh", "cli", "plan", "queue",
            "cluster", "etcd", "foreign", "hub", "api",
        ] {
            gather(&crates.join(name).join("src"), &mut switches);
        }
        let listed: std::collections::BTreeSet<_> = MUTANTS.iter().map(|(name, ..)| (*name).to_owned()).collect();
        assert_eq!(listed.len(), MUTANTS.len(), "a mutant is listed twice");
        assert_eq!(switches, listed);
        assert!(MUTANTS.len() >= 40);
    }

    fn gather(dir: &std::path::Path, switches: &mut std::collections::BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                gather(&path, switches);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let found = text.split("is_on(\"").skip(1).filter_map(|rest| rest.split('"').next());
                switches.extend(found.map(str::to_owned));
            }
        }
    }
}
