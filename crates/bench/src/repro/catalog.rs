//! Every published figure and table, and whether it can be made here.

use super::context::Context;
use super::{
    cards, clients, cloud, facility, holders, hosts, latency, laws, loss, million, over_time, paths, planned,
    processors, rates, staging, tuning, verdicts,
};
use crate::error::{Error, Kind, Result};

/// What keeps an item from running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// Nothing: it runs here.
    Nothing,
    /// No item makes it: what there is, and what is lacking.
    Item(&'static str),
    /// Another command of this program makes it.
    Command(&'static str),
    Hardware(&'static str),
}

impl Needs {
    pub fn shown(self) -> String {
        match self {
            Needs::Nothing => "runs here".into(),
            Needs::Item(what) => format!("is not made here: {what}"),
            Needs::Command(command) => format!("is made by `{command}`"),
            Needs::Hardware(what) => format!("needs {what}"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Item {
    pub id: &'static str,
    pub title: &'static str,
    pub needs: Needs,
    /// None unless `needs` is `Nothing`.
    pub run: Option<fn(&mut Context) -> Result<()>>,
    /// Share of a budget, relative to the others; `COMPUTED` for what takes no time and no laboratory.
    pub weight: f64,
    /// At which the laboratory is held against its gates: the rate of the item's links where they are slower than 1 Gbit/s.
    pub gates_bits_per_second: u64,
    /// What the publication measured.
    pub published: &'static str,
    /// How it is done here instead.
    pub adapted: &'static str,
}

/// The weight of an item that is computed from a model.
const COMPUTED: f64 = 0.001;
const MBIT: u64 = 1_000_000;

impl Item {
    const fn at_most(self, gates_bits_per_second: u64) -> Item {
        Item { gates_bits_per_second, ..self }
    }

    pub fn is_computed(&self) -> bool {
        self.weight <= COMPUTED
    }
}

/// S0: "Reexamining Paradigms"; S1: the disk-to-disk model; S2: FDT, WDT and NDN; S3: the SC09 challenge; S4: the Fermilab
/// study.
pub const ITEMS: &[Item] = &[
    runs(
        "s0-f2",
        "TCP over latency, host as distributed and tuned",
        latency::run,
        3.0,
        "iperf3 at 10 to 100 ms one way over 100 Gbit/s, untuned and twice tuned",
        "one stream of ours and iperf3, at 2 Gbit/s, so that the windows of a host as distributed limit it as there",
    ),
    runs(
        "s0-f5",
        "bulk sweep by congestion control, TLS",
        paths::controls,
        3.0,
        "31 sets of 1 TiB or 1 Mi files, BBR, CUBIC, Reno, 74 ms one way, shared 100 Gbit/s, three runs",
        "six sizes, seconds for each run, 1 Gbit/s without other traffic",
    ),
    runs(
        "s0-f8",
        "bulk sweep at 10, 50 and 100 ms",
        paths::bulk,
        5.0,
        "31 sets of 1 TiB or 1 Mi files between two appliances, 100 Gbit/s, three runs",
        "nine sizes, seconds for each run, 1 Gbit/s; efficiency is against TCP that starts with the run, because a run \
         of seconds is in part its slow start",
    ),
    runs(
        "s0-loss",
        "what loss costs",
        loss::run,
        4.0,
        "nothing: the publication calls a loss of 1 in 22,000 negligible",
        "five probabilities, three congestion controls, two round trips, one, eight and automatic streams, 1 Gbit/s",
    ),
    runs(
        "s0-cpu",
        "processor cost",
        processors::run,
        2.0,
        "12 to 24 cores for 100 Gbit/s with TLS",
        "processor seconds per gigabyte of both ends on one machine, by user and system time",
    ),
    runs(
        "s2-f1",
        "stability of the path, 16 threads",
        over_time::stability,
        0.5,
        "FDT from memory to memory with 16 threads, 100 Gbit/s, 75 ms",
        "our own flow with 16 streams, 1 Gbit/s",
    ),
    runs(
        "s2-f2",
        "one thread below 1 ms over time",
        over_time::single_local,
        1.0,
        "FDT, WDT and NDN, one thread each",
        "this program and rsync, one stream each, 1 Gbit/s",
    ),
    runs(
        "s2-f3",
        "one thread at 75 ms over time",
        over_time::single_far,
        1.0,
        "FDT, WDT and NDN, one thread each: WDT and FDT alike, NDN drops",
        "this program and rsync, one stream each, 1 Gbit/s",
    ),
    runs(
        "s2-f4",
        "several threads at 75 ms over time",
        over_time::multiple_far,
        1.5,
        "NDN 15.8, FDT 15.2, WDT 7.2 Gbit/s of 100",
        "this program, globus-url-copy and rsync at 1 Gbit/s",
    ),
    runs(
        "s4-t1",
        "clients, windows and streams",
        clients::windows,
        2.0,
        "SC11: 50, 52, 70 Gbit/s sustained by a 2 MB window and then four clients per core with two streams each",
        "one to four clients, windows of 1 and 2 MiB and tuned, one, two and automatic streams, 36 ms, 1 Gbit/s",
    ),
    runs(
        "s4-t4",
        "three sets near and far",
        paths::study,
        2.0,
        "GridFTP with local and remote control, hosted service: large 92.7, medium 90.9, small 2.6 Gbit/s",
        "three sets in the same shape at round trips of 0.2, 36 and 100 ms, control and data on the same path",
    ),
    runs(
        "s4-t5",
        "client scaling",
        clients::scaling,
        2.0,
        "xrootd with 1, 2, 4 and 8 clients",
        "1, 2, 4 and 8 clients of this program, 36 ms, 1 Gbit/s",
    ),
    runs(
        "s4-f8",
        "control distance",
        paths::study,
        0.5,
        "table 4 as a figure",
        "as s4-t4: what distance costs when control and data share the path",
    ),
    runs(
        "s3-holders",
        "one set from three holders",
        holders::run,
        2.0,
        "SC09: 20 hosts at three sites send one set to four",
        "three holders of one file behind links of 250, 250 and 125 Mbit/s and 20 ms: together, one poisoned, one killed; \
         beside aria2c and xrdcp where they are installed",
    ),
    other("s0-f1", "drainage basin", Needs::Command("thalweg plan --graph MODEL --svg FILE")),
    other(
        "s0-f3",
        "appliances",
        Needs::Item("it shows machines that are sold; a model of any host is a file for `thalweg plan --graph`"),
    ),
    other(
        "s0-f4",
        "bulk sweep by congestion control, kernel TLS",
        Needs::Hardware("a kernel with TLS offload, and its use"),
    ),
    other(
        "s0-f6",
        "streaming sweep by congestion control",
        Needs::Item("growing files are sent (s0-f9), but no sweep of them by congestion control is written"),
    ),
    other("s0-f7", "topology", Needs::Command("thalweg lab draw")),
    runs(
        "s0-f9",
        "append streaming beside bulk",
        staging::growing,
        2.0,
        "28 sets that grow to 1 TiB at 10, 50 and 100 ms, 100 Gbit/s: 0.980 of the rate of finished files in production",
        "one file and 16 at 500 Mbit/s and 74 ms, beside a copy of the same files when they are finished",
    )
    .at_most(500 * MBIT),
    other("s0-f10", "storage throughput and latency", Needs::Command("thalweg bench storage")),
    runs(
        "s0-f11",
        "cloud object stores",
        cloud::run,
        3.0,
        "1 TiB between hosts and clouds, near and far: far / near 0.57 by its own program, 0.32 by aws-cli",
        "one object to versitygw and back at 1, 50 and 150 ms and 500 Mbit/s, beside the clients of S3 that are installed",
    )
    .at_most(500 * MBIT),
    runs(
        "s0-f12",
        "cluster",
        hosts::cluster,
        3.0,
        "several nodes of a site work on one transfer",
        "1 to 16 hosts held to 50 Mbit/s each, one file and many; one of four killed, stopped and cut off; \
         all members of etcd away for 60 s",
    ),
    other("s0-f13", "400 Gbit/s node", Needs::Hardware("400 Gbit/s, or the planner of hardware")),
    other(
        "s0-t1",
        "feature table",
        Needs::Item("it compares products by name; docs/coming-from.md says what of other programs there is"),
    ),
    other("s0-t2", "host tuning (tables 2, 3, 6)", Needs::Command("thalweg doctor")),
    other(
        "s0-t4",
        "latency classes",
        Needs::Item("`thalweg doctor` measures the round trip of a path; nothing sorts paths into classes"),
    ),
    other(
        "s0-t5",
        "volumes and times",
        Needs::Item("`thalweg plan SRC DST` gives the time of one copy, not of all volumes on all links"),
    ),
    other("s0-t7", "cloud services (tables 7-10)", Needs::Item("no prices and limits of cloud services are kept")),
    other("s0-predict", "prediction of another path", Needs::Command("thalweg bench plan-accuracy")),
    runs(
        "s0-stage",
        "staging: six sizes of a buffer",
        staging::sizes,
        4.0,
        "that a burst buffer takes the stalls of storage off the path",
        "a sink of 100 MB/s that stands still for 1.25 of every 5 s, 500 Mbit/s, 74 ms, chunks of 2 MiB; held against the model",
    )
    .at_most(500 * MBIT),
    runs(
        "s0-stage-both",
        "staging: stalls at both ends",
        staging::both_ends,
        4.0,
        "buffers at both ends, three legs that overlap",
        "a source that stands still for 1.5 of every 7.5 s, a sink for 2.5 of 10 s, six times the volume of a buffer",
    )
    .at_most(500 * MBIT),
    runs(
        "s0-stage-fast",
        "staging: a buffer that is not needed",
        staging::bypass,
        1.0,
        "nothing",
        "storage in memory without a link: automatic, never, always",
    ),
    runs(
        "s0-stage-share",
        "staging: one of four jobs hangs",
        staging::sharing,
        1.0,
        "several flows through one buffer",
        "three jobs beside one whose storage stands still all the time, or moves, 500 Mbit/s, 74 ms",
    )
    .at_most(500 * MBIT),
    other("s1-f7", "disks read alone", Needs::Command("thalweg bench storage")),
    runs(
        "s1-f8",
        "one disk over streams",
        laws::disk,
        COMPUTED,
        "one disk set of rotating disks over 1 to 32 streams",
        "computed from a model with the constants that the publication states; fits get points that scatter by 3 %",
    ),
    runs(
        "s1-f9",
        "several disks on one channel",
        laws::channel,
        COMPUTED,
        "one to four disk sets on one controller",
        "computed from a model with the constants that the publication states; fits get points that scatter by 3 %",
    ),
    runs(
        "s1-f10",
        "local copy over streams",
        laws::application,
        COMPUTED,
        "files of 1, 10 and 100 MB copied within the host, 1 to 16 streams",
        "computed from a model with the constants that the publication states; fits get points that scatter by 3 %",
    ),
    runs(
        "s1-f11",
        "processor over rate",
        laws::processors,
        COMPUTED,
        "processor use over rate, 12 cores",
        "computed from a model with the constants that the publication states; fits get points that scatter by 3 %",
    ),
    runs(
        "s1-f12",
        "TCP streams over rate",
        laws::connections,
        COMPUTED,
        "iperf over 1 to 8 connections on a card of 10 Gbit/s",
        "computed from a model with the constants that the publication states; fits get points that scatter by 3 %",
    ),
    runs(
        "s1-f14",
        "end-to-end flows",
        planned::flows,
        COMPUTED,
        "4 disk sets and 1, files of 1, 10 and 100 MB, 1 to 16 flows each, 2 x 10 Gbit/s",
        "computed from a model with the constants that the publication states",
    ),
    runs(
        "s1-f16",
        "planner against other rules",
        planned::rules,
        COMPUTED,
        "model, naive, Globus's rule and the best by hand, three sets of small files, 10 Gbit/s",
        "computed from a model with the constants that the publication states",
    ),
    runs(
        "s1-whatif",
        "what-if predictions",
        planned::what_if,
        COMPUTED,
        "a second card for files of 100 MB",
        "computed from a model with the constants that the publication states; built nowhere",
    ),
    runs(
        "facility",
        "the whole chain: instrument, buffers, path, store, hub",
        facility::run,
        1.0,
        "nothing: what a facility asks of the chain, a makespan of at most 1.15 of its slowest leg among it",
        "a store that stalls behind 74 ms, one volume undisturbed, and once with each process killed and the path cut",
    )
    .at_most(facility::BITS_PER_SECOND),
    runs(
        "facility-million",
        "a million small files into a cluster and from replicas",
        million::run,
        1.0,
        "nothing: what a facility asks of the chain",
        "files of 1 KiB over 1 Gbit/s and 74 ms, into one host and three that share storage, from one and from three; \
         by command and by a hub, undisturbed and with every process killed",
    ),
    runs(
        "rates",
        "rates and their cost beside two rivals, near and far",
        rates::run,
        6.0,
        "nothing: what copies are held against on every processor",
        "large, small and tiny files without delay; lognormal, small and tiny ones at 2 Gbit/s and 74 ms; in alternation",
    ),
    runs(
        "verdicts",
        "what limited a copy, by its own word",
        verdicts::run,
        2.0,
        "nothing: whether the verdict of a copy is right",
        "seven bottlenecks put in the way of copies, one after the other, 15 copies for each; needs FUSE",
    ),
    runs(
        "tuning",
        "streams that are tuned while copies run",
        tuning::run,
        3.0,
        "nothing: what tuning has to reach after a change, beside its like, and where nothing happens",
        "a link of 300 Mbit/s and 20 ms that gives a third, and then all of it at 60 ms, beside 1 to 16 fixed streams; \
         two tuned copies on one link; quiet copies, tuned and not, in turn",
    )
    .at_most(tuning::BITS_PER_SECOND),
    runs(
        "s3-f3",
        "per-host rates of 20 nodes",
        hosts::challenge,
        1.0,
        "SC09: 20, 3 and 2 hosts at three sites into four behind 20 Gbit/s: about 15 Gbit/s for an hour",
        "the same hosts and relations at 1/40 of the rates, one set of 4 GB",
    ),
    other(
        "s3-f4",
        "queue and prefetch",
        Needs::Item(
            "holders are asked by what each has left to send (docs/replicas.md); the lengths of queues are not drawn",
        ),
    ),
    other(
        "s3-f5",
        "log estimate against counters",
        Needs::Item("`thalweg log` and the counters of a card can be compared by hand; no item does"),
    ),
    other(
        "s3-bwc",
        "the bandwidth challenge",
        Needs::Item("it takes the links of a conference; s3-f3 has its hosts and relations at 1/40 of the rates"),
    ),
    other(
        "s3-hang",
        "freeze and recovery",
        Needs::Item("s0-f12 freezes a host until the copy has ended; the tests thaw one in the middle, no figure does"),
    ),
    other(
        "s4-f3",
        "LIMAN histogram",
        Needs::Item("endpoints copy to one another (docs/orders.md); a histogram of many such transfers is not drawn"),
    ),
    runs(
        "s4-t6",
        "extrapolation over four links",
        cards::run,
        2.0,
        "four links of 100 Gbit/s, computed from runs over one",
        "four links of 200 Mbit/s and 74 ms, and unequal ones, measured: one file and files of 1 MiB; \
         one of four links of 100 Mbit/s down for 20 s, at once and 5 s at a time",
    ),
    other("dmc", "data mover challenge", Needs::Item("one source to several sites takes a transfer for each of them")),
];

const fn runs(
    id: &'static str,
    title: &'static str,
    run: fn(&mut Context) -> Result<()>,
    weight: f64,
    published: &'static str,
    adapted: &'static str,
) -> Item {
    let gates_bits_per_second = 1000 * MBIT;
    Item { id, title, needs: Needs::Nothing, run: Some(run), weight, gates_bits_per_second, published, adapted }
}

const fn other(id: &'static str, title: &'static str, needs: Needs) -> Item {
    Item { id, title, needs, run: None, weight: 0.0, gates_bits_per_second: 0, published: "", adapted: "" }
}

/// The item of that name; otherwise an error with the nearest names.
pub fn find(id: &str) -> Result<&'static Item> {
    if let Some(item) = ITEMS.iter().find(|item| item.id.eq_ignore_ascii_case(id)) {
        return Ok(item);
    }
    let mut nearest: Vec<_> = ITEMS.iter().map(|item| (distance(&id.to_ascii_lowercase(), item.id), item.id)).collect();
    nearest.sort();
    let names: Vec<_> = nearest.iter().take(3).map(|(_, id)| *id).collect();
    let cause = format!("the nearest are {}; `thalweg bench repro list` shows all", names.join(", "));
    Err(Error::new(Kind::Usage, "find figure", format!("{id:?}"), cause))
}

/// Characters to insert, remove or replace.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, own) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(own != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_what_runs_says_how_it_was_adapted() {
        let mut ids: Vec<_> = ITEMS.iter().map(|item| item.id).collect();
        ids.sort_unstable();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]));
        for item in ITEMS {
            assert_eq!(item.run.is_some(), item.needs == Needs::Nothing, "{}", item.id);
            assert_eq!(item.run.is_some(), item.weight > 0.0 && !item.adapted.is_empty(), "{}", item.id);
        }
    }

    /// The first cells of the page's table of items, each with one name or several.
    #[test]
    fn the_manual_lists_what_runs_and_nothing_else() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/measuring.md");
        let page = std::fs::read_to_string(page).unwrap();
        let table = page.split("| item | runs |").nth(1).unwrap().split("\n\n").next().unwrap();
        let cells = table.lines().skip(2).filter_map(|row| row.split('|').nth(1));
        let listed: BTreeSet<&str> = cells.flat_map(|cell| cell.split(',')).map(str::trim).collect();
        let runs: BTreeSet<&str> = ITEMS.iter().filter(|item| item.run.is_some()).map(|item| item.id).collect();
        assert_eq!(listed, runs);
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        assert_eq!(find("S0-F8").unwrap().id, "s0-f8");
        let said = find("s0-f88").unwrap_err().chain();
        assert!(said.contains("s0-f8,"), "{said}");
        assert_eq!((distance("kitten", "sitting"), distance("", "ab")), (3, 2));
    }
}
