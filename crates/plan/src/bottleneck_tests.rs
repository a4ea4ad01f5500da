//! The judgement against made-up lane times: known causes, mixtures, and whatever a peer may claim.

use crate::{Amounts, Observed, VERDICTS};
use model::progress::Stage::*;
use model::progress::{Bottleneck, Fill, LaneTimes, Stage, StreamFacts};
use proptest::prelude::*;

const NO_FACTS: StreamFacts = StreamFacts {
    streams: 0,
    rtt_us_min: 0,
    retransmits: 0,
    busy_us: 0,
    receive_window_limited_us: 0,
    send_buffer_limited_us: 0,
};

fn bottleneck(sender: &LaneTimes, receiver: &LaneTimes, facts: &StreamFacts, is_local: bool) -> Bottleneck {
    let amounts = Amounts { files: 1000, bytes: 100 << 20, seconds: 10.0 };
    crate::bottleneck(&Observed { sender, receiver, facts, is_local, is_following: false, amounts })
}

/// As the one before, of a source that is followed.
fn following(sender: &LaneTimes, receiver: &LaneTimes) -> Bottleneck {
    let amounts = Amounts { files: 1, bytes: 1 << 20, seconds: 10.0 };
    let facts = &NO_FACTS;
    crate::bottleneck(&Observed { sender, receiver, facts, is_local: false, is_following: true, amounts })
}

#[test]
fn a_source_that_grows_slowly_is_named_and_one_that_storage_holds_up_is_not() {
    let receiver = side(10, &[(Receive, 40), (Write, 60)]);
    let slow = following(&side(5, &[(Scan, 90), (Read, 8), (Send, 2)]), &receiver);
    assert_eq!(slow.stage, "scan");
    assert!(slow.sentence.contains("what is written at the source: lanes waited 90 %"), "{}", slow.sentence);
    let held_up = following(&side(9, &[(Scan, 10), (Read, 4), (Send, 86)]), &side(15, &[(Receive, 3), (Write, 97)]));
    assert_eq!(held_up.stage, "write", "{}", held_up.sentence);
}

/// Two lanes on two processors for ten seconds: `cpu` and the stages in percent of the lanes' time.
fn side(cpu: u64, stages: &[(Stage, u64)]) -> LaneTimes {
    side_of(2, 2, cpu, stages)
}

fn side_of(lanes: u32, processors: u32, cpu: u64, stages: &[(Stage, u64)]) -> LaneTimes {
    let percent_ns = u64::from(lanes) * 100_000_000;
    let mut times = LaneTimes { lanes, processors, cpu_ns: cpu * percent_ns, ..LaneTimes::default() };
    stages.iter().for_each(|(stage, percent)| times.stage_ns[*stage as usize] += percent * percent_ns);
    times
}

/// With lanes that wanted a processor and had none for `percent` of their time.
fn waiting(percent: u64, times: LaneTimes) -> LaneTimes {
    LaneTimes { cpu_wait_ns: percent * times.total_ns() / 100, ..times }
}

/// With a thread beside the lanes that makes groups durable and names them.
fn committing(sync: u64, publish: u64, times: LaneTimes) -> LaneTimes {
    let percent_ns = times.total_ns() / u64::from(times.lanes) / 100;
    LaneTimes { commit_sync_ns: sync * percent_ns, commit_publish_ns: publish * percent_ns, ..times }
}

/// Shares of the busy time in percent.
fn facts(rtt_us: u64, receive_window: u64, send_buffer: u64, retransmits: u64) -> StreamFacts {
    StreamFacts {
        streams: 2,
        rtt_us_min: rtt_us,
        retransmits,
        busy_us: 20_000_000,
        receive_window_limited_us: receive_window * 200_000,
        send_buffer_limited_us: send_buffer * 200_000,
    }
}

struct Case {
    what: &'static str,
    sender: LaneTimes,
    receiver: LaneTimes,
    facts: StreamFacts,
    stage: &'static str,
    share_percent: f64,
    says: &'static str,
}

fn check(cases: Vec<Case>, is_local: bool) {
    for Case { what, sender, receiver, facts, stage, share_percent, says } in cases {
        let found = bottleneck(&sender, &receiver, &facts, is_local);
        assert_eq!(found.stage, stage, "{what}: {}", found.sentence);
        assert!((found.share * 100.0 - share_percent).abs() < 0.6, "{what}: {found:?}");
        assert!(found.sentence.contains(says), "{what}: {}", found.sentence);
    }
}

#[test]
fn each_of_eight_injected_bottlenecks_is_named() {
    check(
        vec![
            Case {
                what: "slow read",
                sender: side(12, &[(Read, 92), (Seal, 6), (Send, 2)]),
                receiver: side(14, &[(Receive, 88), (Open, 5), (Write, 7)]),
                facts: facts(40, 0, 0, 0),
                stage: "read",
                share_percent: 92.0,
                says: "the source's storage: the sender's lanes spent 92 % of the time reading",
            },
            Case {
                what: "slow write",
                sender: side(9, &[(Read, 4), (Seal, 5), (Send, 91)]),
                receiver: side(15, &[(Receive, 3), (Open, 6), (Write, 91)]),
                facts: facts(40, 85, 0, 0),
                stage: "write",
                share_percent: 91.0,
                says: "the destination's storage: the receiver's lanes spent 91 % of the time writing",
            },
            Case {
                what: "slow create",
                sender: side(12, &[(Scan, 20), (Read, 14), (Send, 60), (Credit, 6)]),
                receiver: side(22, &[(Receive, 6), (Open, 3), (Create, 71), (Write, 8), (Publish, 12)]),
                facts: facts(40, 60, 0, 0),
                stage: "create",
                share_percent: 71.0,
                says: "71 % of the time creating files (publish 12 %)",
            },
            Case {
                what: "thin link",
                sender: side(6, &[(Read, 2), (Seal, 3), (Send, 95)]),
                receiver: side(8, &[(Receive, 93), (Open, 3), (Write, 4)]),
                facts: facts(20_000, 2, 3, 412),
                stage: "network",
                share_percent: 95.0,
                says: "waited 95 % of the time for the socket (buffers were large enough, the path was full, \
                       412 segments sent again, RTT 20 ms)",
            },
            Case {
                what: "long link with small buffers",
                sender: side(6, &[(Read, 3), (Seal, 4), (Send, 93)]),
                receiver: side(8, &[(Receive, 90), (Open, 4), (Write, 6)]),
                facts: facts(74_000, 0, 97, 0),
                stage: "buffers",
                share_percent: 93.0,
                says: "waited 93 % of the time for the socket (send buffer full for 97 %, RTT 74 ms)",
            },
            Case {
                what: "CPU stolen",
                sender: waiting(62, side(34, &[(Read, 30), (Digest, 10), (Seal, 46), (Send, 14)])),
                receiver: side(15, &[(Receive, 86), (Open, 6), (Write, 8)]),
                facts: facts(40, 0, 0, 0),
                stage: "cpu-sender",
                share_percent: 96.0,
                says: "waited 62 % of the time for one, and had one for 34 %: something else uses the processors",
            },
            Case {
                what: "slow digest",
                sender: side(96, &[(Read, 6), (Digest, 84), (Seal, 7), (Send, 3)]),
                receiver: side(20, &[(Receive, 80), (Open, 6), (Digest, 5), (Write, 9)]),
                facts: facts(40, 0, 0, 0),
                stage: "digest",
                share_percent: 96.0,
                says: "used 96 % of what they could have had, most of it digests (84 %)",
            },
            Case {
                what: "memory permits",
                sender: side(10, &[(Read, 6), (Seal, 8), (Send, 4), (Memory, 82)]),
                receiver: side(12, &[(Receive, 85), (Open, 6), (Write, 9)]),
                facts: facts(40, 0, 0, 0),
                stage: "memory",
                share_percent: 82.0,
                says: "the sender's lanes waited 82 % of the time for more memory",
            },
        ],
        false,
    );
}

#[test]
fn mixtures_and_other_limits_are_told_apart() {
    check(
        vec![
            Case {
                what: "slow digest at the receiver",
                sender: side(30, &[(Read, 15), (Digest, 14), (Seal, 6), (Send, 65)]),
                receiver: side(94, &[(Receive, 4), (Open, 20), (Digest, 60), (Write, 16)]),
                facts: facts(5_000, 50, 0, 0),
                stage: "digest",
                share_percent: 94.0,
                says: "the receiver's processors: its 2 lanes used 94 % of what they could have had, most of it digests",
            },
            Case {
                what: "CPU stolen, and the kernel does not tell who waited",
                sender: side(34, &[(Read, 30), (Seal, 56), (Send, 14)]),
                receiver: side(15, &[(Receive, 86), (Open, 6), (Write, 8)]),
                facts: facts(40, 0, 0, 0),
                stage: "cpu-sender",
                share_percent: 86.0,
                says: "worked 86 % of the time and had one for 34 %, while digest and encryption alone took 56 %",
            },
            Case {
                what: "CPU stolen from a receiver that seems to wait for its storage",
                sender: side(4, &[(Read, 2), (Seal, 3), (Send, 95)]),
                receiver: waiting(78, side(9, &[(Receive, 20), (Open, 8), (Digest, 3), (Write, 69)])),
                facts: facts(5_000, 70, 0, 0),
                stage: "cpu-receiver",
                share_percent: 87.0,
                says: "something else uses the processors",
            },
            Case {
                what: "slow write on a host with other work",
                sender: waiting(5, side(9, &[(Read, 4), (Seal, 5), (Send, 91)])),
                receiver: waiting(25, side(12, &[(Receive, 3), (Open, 6), (Write, 91)])),
                facts: facts(40, 85, 0, 0),
                stage: "write",
                share_percent: 91.0,
                says: "writing",
            },
            Case {
                what: "both ends on one host, far apart in a laboratory",
                sender: waiting(45, side_of(8, 2, 11, &[(Read, 6), (Seal, 6), (Send, 88)])),
                receiver: waiting(62, side_of(8, 2, 14, &[(Receive, 60), (Open, 10), (Write, 30)])),
                facts: facts(100_000, 0, 0, 0),
                stage: "cpu-receiver",
                share_percent: 76.0,
                says: "something else uses the processors",
            },
            Case {
                what: "memory for one lane of eight, and that one fills the path",
                sender: side_of(8, 2, 2, &[(Read, 1), (Seal, 1), (Send, 11), (Memory, 87)]),
                receiver: side_of(8, 2, 2, &[(Receive, 97), (Open, 1), (Write, 2)]),
                facts: facts(20_000, 2, 3, 9),
                stage: "network",
                share_percent: 11.0,
                says: "the path was full",
            },
            Case {
                what: "memory for one lane of eight over a long way",
                sender: side_of(8, 2, 2, &[(Read, 1), (Seal, 1), (Send, 11), (Memory, 87)]),
                receiver: side_of(8, 2, 2, &[(Receive, 97), (Open, 1), (Write, 2)]),
                facts: facts(100_000, 2, 93, 0),
                stage: "memory",
                share_percent: 87.0,
                says: "the sender's lanes waited 87 %",
            },
            Case {
                what: "one thread renames what many lanes have staged",
                sender: side(6, &[(Read, 4), (Credit, 88), (Send, 8)]),
                receiver: committing(18, 70, side(10, &[(Receive, 86), (Create, 8), (Write, 6)])),
                facts: facts(40, 0, 0, 0),
                stage: "publish",
                share_percent: 68.4,
                says: "giving files their final names (sync 18 %)",
            },
            Case {
                what: "one lane creates, the other has nothing to do",
                sender: side(1, &[(Read, 1), (Credit, 98), (Send, 1)]),
                receiver: side(4, &[(Receive, 50), (Open, 2), (Create, 30), (Publish, 18)]),
                facts: facts(40, 0, 0, 0),
                stage: "create",
                share_percent: 30.0,
                says: "creating files (publish 18 %)",
            },
            Case {
                what: "groups are committed all the time, behind a thin link",
                sender: side(3, &[(Scan, 2), (Read, 2), (Seal, 2), (Send, 94)]),
                receiver: committing(90, 5, side(6, &[(Receive, 92), (Create, 4), (Write, 4)])),
                facts: facts(20_000, 2, 3, 11),
                stage: "network",
                share_percent: 94.0,
                says: "the path was full",
            },
            Case {
                what: "reading the page cache is processor time",
                sender: side(93, &[(Read, 52), (Seal, 43), (Send, 5)]),
                receiver: side(40, &[(Receive, 60), (Open, 20), (Write, 20)]),
                facts: facts(5_000, 0, 0, 0),
                stage: "cpu-sender",
                share_percent: 93.0,
                says: "most of it reading (52 %)",
            },
            Case {
                what: "both ends on one host, writing the page cache",
                sender: side(31, &[(Read, 22), (Seal, 30), (Send, 48)]),
                receiver: side(64, &[(Receive, 14), (Open, 16), (Write, 70)]),
                facts: facts(35, 20, 0, 0),
                stage: "cpu-receiver",
                share_percent: 95.0,
                says: "the processors that both ends share, 95 % used: the receiver's lanes worked 86 %",
            },
            Case {
                what: "both ends on one host, waits caused by the other's use of the processors",
                sender: side_of(4, 2, 18, &[(Read, 17), (Seal, 23), (Send, 60)]),
                receiver: side_of(4, 2, 30, &[(Receive, 55), (Open, 15), (Write, 30)]),
                facts: facts(35, 5, 0, 0),
                stage: "cpu-receiver",
                share_percent: 96.0,
                says: "most of it writing (30 %)",
            },
            Case {
                what: "many lanes over distance, processors used up",
                sender: side_of(64, 2, 2, &[(Read, 1), (Seal, 1), (Send, 98)]),
                receiver: side_of(64, 2, 3, &[(Receive, 96), (Open, 1), (Write, 3)]),
                facts: facts(100_000, 0, 60, 0),
                stage: "cpu-receiver",
                share_percent: 96.0,
                says: "its 64 lanes used 96 %",
            },
            Case {
                what: "the receiver's processor, with time for others on it",
                sender: side(30, &[(Read, 12), (Seal, 20), (Send, 68)]),
                receiver: side(72, &[(Receive, 8), (Open, 24), (Write, 68)]),
                facts: facts(5_000, 60, 0, 0),
                stage: "cpu-receiver",
                share_percent: 92.0,
                says: "its lanes worked 92 % of the time, most of it writing (68 %), on one for 72 %",
            },
            Case {
                what: "CPU stolen in part",
                sender: side(46, &[(Read, 22), (Seal, 50), (Send, 28)]),
                receiver: side(25, &[(Receive, 74), (Open, 12), (Write, 14)]),
                facts: facts(5_000, 0, 0, 0),
                stage: "cpu-sender",
                share_percent: 72.0,
                says: "encryption and sending (50 %), on one for 46 %",
            },
            Case {
                what: "slow write behind a receive window that has not closed yet",
                sender: side(6, &[(Read, 1), (Seal, 3), (Send, 96)]),
                receiver: side(22, &[(Receive, 8), (Open, 6), (Write, 86)]),
                facts: facts(5_000, 12, 10, 0),
                stage: "write",
                share_percent: 86.0,
                says: "writing",
            },
            Case {
                what: "receive window too small for the distance",
                sender: side(6, &[(Read, 3), (Seal, 4), (Send, 93)]),
                receiver: side(8, &[(Receive, 90), (Open, 4), (Write, 6)]),
                facts: facts(74_000, 88, 4, 0),
                stage: "buffers",
                share_percent: 93.0,
                says: "(receive window full for 88 %, RTT 74 ms)",
            },
            Case {
                what: "thin link, receiver half busy",
                sender: side(22, &[(Read, 6), (Seal, 10), (Send, 84)]),
                receiver: side(30, &[(Receive, 42), (Open, 18), (Write, 40)]),
                facts: facts(12_000, 4, 6, 90),
                stage: "network",
                share_percent: 84.0,
                says: "90 segments sent again",
            },
            Case {
                what: "slow write with stutters, no kernel counters",
                sender: side(20, &[(Scan, 4), (Read, 9), (Seal, 11), (Send, 70), (Credit, 6)]),
                receiver: side(26, &[(Receive, 24), (Open, 12), (Create, 4), (Write, 52), (Publish, 8)]),
                facts: NO_FACTS,
                stage: "write",
                share_percent: 52.0,
                says: "writing (open 12 %)",
            },
            Case {
                what: "slow read with stutters",
                sender: side(38, &[(Scan, 5), (Read, 58), (Seal, 22), (Send, 15)]),
                receiver: side(34, &[(Receive, 58), (Open, 18), (Write, 24)]),
                facts: facts(300, 0, 0, 0),
                stage: "read",
                share_percent: 58.0,
                says: "58 % of the time reading (seal 22 %)",
            },
            Case {
                what: "durability",
                sender: side(8, &[(Scan, 24), (Read, 4), (Seal, 4), (Send, 40), (Credit, 28)]),
                receiver: side(15, &[(Receive, 12), (Open, 4), (Create, 6), (Write, 8), (Sync, 66), (Publish, 4)]),
                facts: facts(40, 55, 0, 0),
                stage: "sync",
                share_percent: 66.0,
                says: "making data durable",
            },
            Case {
                what: "renames",
                sender: side(8, &[(Read, 14), (Send, 86)]),
                receiver: side(20, &[(Receive, 8), (Open, 4), (Create, 28), (Write, 8), (Publish, 52)]),
                facts: facts(40, 70, 0, 0),
                stage: "publish",
                share_percent: 52.0,
                says: "final names (create 28 %)",
            },
            Case {
                what: "slow listing",
                sender: side(14, &[(Scan, 71), (Read, 16), (Send, 13)]),
                receiver: side(24, &[(Receive, 68), (Open, 4), (Create, 18), (Write, 4), (Publish, 6)]),
                facts: facts(40, 0, 0, 0),
                stage: "scan",
                share_percent: 71.0,
                says: "waited 71 % of the time for the listing",
            },
            Case {
                what: "the receiver confirms late",
                sender: side(14, &[(Scan, 6), (Read, 8), (Seal, 8), (Send, 10), (Credit, 68)]),
                receiver: side(16, &[(Receive, 84), (Open, 8), (Write, 8)]),
                facts: facts(40, 0, 0, 0),
                stage: "credit",
                share_percent: 68.0,
                says: "for credit",
            },
            Case {
                what: "memory at the receiver",
                sender: side(10, &[(Read, 6), (Seal, 8), (Send, 86)]),
                receiver: side(12, &[(Receive, 8), (Open, 6), (Write, 14), (Memory, 72)]),
                facts: facts(40, 80, 0, 0),
                stage: "memory",
                share_percent: 72.0,
                says: "the receiver's lanes waited 72 %",
            },
            Case {
                what: "the receiver has told nothing",
                sender: side(10, &[(Read, 6), (Seal, 8), (Send, 86)]),
                receiver: LaneTimes::default(),
                facts: facts(40, 0, 0, 0),
                stage: "send",
                share_percent: 86.0,
                says: "limited after the sender",
            },
            Case {
                what: "the sender has told nothing",
                sender: LaneTimes::default(),
                receiver: side(10, &[(Receive, 90), (Write, 10)]),
                facts: NO_FACTS,
                stage: "receive",
                share_percent: 90.0,
                says: "limited before the receiver",
            },
        ],
        false,
    );
}

#[test]
fn a_local_copy_is_judged_from_both_clocks_of_its_lanes() {
    let case = |what, sender, receiver, stage, share_percent, says| Case {
        what,
        sender,
        receiver,
        facts: NO_FACTS,
        stage,
        share_percent,
        says,
    };
    check(
        vec![
            case(
                "slow read: the receiver's clock stands in `Publish` meanwhile",
                side(12, &[(Scan, 2), (Read, 88), (Publish, 10)]),
                side(12, &[(Open, 3), (Create, 3), (Write, 3), (Publish, 91)]),
                "read",
                88.0,
                "the source's storage: the lanes spent 88 %",
            ),
            case(
                "slow write",
                side(20, &[(Read, 8), (Seal, 4), (Send, 86), (Publish, 2)]),
                side(20, &[(Open, 12), (Write, 86), (Publish, 2)]),
                "write",
                86.0,
                "the destination's storage: the lanes spent 86 %",
            ),
            case(
                "slow create",
                side(20, &[(Scan, 4), (Read, 12), (Publish, 84)]),
                side(20, &[(Receive, 1), (Open, 15), (Create, 66), (Write, 8), (Publish, 10)]),
                "create",
                66.0,
                "creating files",
            ),
            case(
                "renames, one clock for each stage",
                side(20, &[(Scan, 4), (Read, 12)]),
                side(20, &[(Create, 20), (Write, 8), (Publish, 56)]),
                "publish",
                56.0,
                "final names",
            ),
            case(
                "page cache to page cache",
                side(97, &[(Read, 30), (Seal, 10), (Send, 60)]),
                side(97, &[(Open, 40), (Write, 60)]),
                "cpu",
                97.0,
                "this host's processors: its 2 lanes used 97 %",
            ),
            case(
                "a digest slower than everything else",
                side(97, &[(Read, 14), (Digest, 70), (Send, 16)]),
                side(97, &[(Open, 90), (Write, 10)]),
                "digest",
                97.0,
                "most of it digests (70 %)",
            ),
            case(
                "the last group becomes durable",
                side(12, &[(Credit, 70), (Read, 12), (Publish, 18)]),
                committing(66, 2, side(12, &[(Receive, 72), (Digest, 2), (Create, 14), (Write, 12)])),
                "sync",
                66.0,
                "making data durable",
            ),
            case(
                "slow listing",
                side(20, &[(Scan, 75), (Read, 10), (Publish, 15)]),
                side(20, &[(Open, 85), (Create, 10), (Write, 5)]),
                "scan",
                75.0,
                "for the listing",
            ),
        ],
        true,
    );
}

#[test]
fn a_faster_link_is_promised_what_the_rest_can_carry() {
    let slow_write = (side(9, &[(Read, 4), (Seal, 5), (Send, 91)]), side(15, &[(Receive, 3), (Open, 6), (Write, 91)]));
    let idle_ends = (side(6, &[(Read, 2), (Seal, 3), (Send, 95)]), side(8, &[(Receive, 93), (Open, 3), (Write, 4)]));
    let half_busy = (side(22, &[(Read, 6), (Seal, 10), (Send, 84)]), side(30, &[(Receive, 40), (Write, 60)]));
    let full_path = facts(20_000, 2, 3, 412);
    for (what, (sender, receiver), facts, gain, says) in [
        ("capped storage", &slow_write, facts(40, 85, 0, 0), 1.0, "a faster link would not help; storage there took"),
        ("small buffers", &idle_ends, facts(74_000, 0, 97, 0), 1.0, "a faster link would not help; raise the third"),
        ("thin link", &idle_ends, full_path, 2.0, "a link twice as fast would help in full; it carried 83.9 Mbit/s"),
        ("thin link, busy storage", &half_busy, full_path, 1.0 / 0.6, "would help up to 1.7 times, then the ends"),
    ] {
        let found = bottleneck(sender, receiver, &facts, false);
        assert!(found.link_gain.is_some_and(|found| (found - gain).abs() < 1e-9), "{what}: {found:?}");
        assert!(found.advice.contains(says), "{what}: {}", found.advice);
    }
    // What was predicted for the capped storage: over a link of twice the rate its lanes wait as before.
    let (sender, receiver) = &slow_write;
    let doubled = bottleneck(sender, receiver, &facts(40, 85, 0, 0), false);
    assert_eq!((doubled.stage, doubled.link_gain), ("write", Some(1.0)));
    let local = bottleneck(sender, receiver, &NO_FACTS, true);
    assert_eq!(local.link_gain, None, "no link, no promise");
}

#[test]
fn nothing_is_said_of_what_was_too_short() {
    let none = LaneTimes::default();
    let mut short = LaneTimes { lanes: 2, processors: 2, ..none.clone() };
    short.stage_ns[Read as usize] = 49_000_000;
    for (sender, receiver, is_local) in [(&none, &none, false), (&short, &none, false), (&short, &short, true)] {
        let found = bottleneck(sender, receiver, &NO_FACTS, is_local);
        assert_eq!((found.stage, found.share), ("none", 0.0));
        assert!(found.sentence.contains("too short to tell"));
    }
}

fn any_times() -> impl Strategy<Value = LaneTimes> {
    let ns = prop_oneof![Just(0), 0u64..20_000_000_000, any::<u64>()];
    let few = prop_oneof![0u32..8, any::<u32>()];
    (prop::array::uniform14(ns.clone()), prop::array::uniform4(ns), few.clone(), few).prop_map(
        |(stage_ns, [cpu_ns, cpu_wait_ns, commit_sync_ns, commit_publish_ns], lanes, processors)| LaneTimes {
            lanes,
            processors,
            stage_ns,
            cpu_ns,
            cpu_wait_ns,
            commit_sync_ns,
            commit_publish_ns,
            fill: Fill::default(),
        },
    )
}

proptest! {
    #[test]
    fn whatever_a_peer_tells_the_verdict_is_one_line_and_its_share_a_share(
        sender in any_times(), receiver in any_times(), is_local: bool,
        rtt_us_min in prop_oneof![0u64..200, any::<u64>()], limits: [u64; 4],
    ) {
        let facts = StreamFacts {
            streams: 1, rtt_us_min, retransmits: limits[0], busy_us: limits[1],
            receive_window_limited_us: limits[2], send_buffer_limited_us: limits[3],
        };
        let found = bottleneck(&sender, &receiver, &facts, is_local);
        prop_assert!((0.0..=1.0).contains(&found.share));
        prop_assert!(!found.sentence.is_empty() && !found.sentence.contains('\n'));
        prop_assert!(!found.advice.contains('\n') && found.link_gain.is_none_or(|gain| (1.0..=2.0).contains(&gain)));
        prop_assert!(VERDICTS.contains(&found.stage) || Stage::ALL.iter().any(|stage| stage.name() == found.stage));
    }
}

#[test]
fn a_rate_that_was_set_is_what_limited_it() {
    let sender = side(6, &[(Read, 2), (Digest, 1), (Seal, 2), (Send, 5), (Limit, 90)]);
    let receiver = side(5, &[(Receive, 92), (Open, 3), (Write, 5)]);
    check(
        vec![Case {
            what: "a rate",
            sender: sender.clone(),
            receiver: receiver.clone(),
            facts: facts(74_000, 0, 0, 0),
            stage: "limit",
            share_percent: 90.0,
            says: "--bwlimit",
        }],
        false,
    );
    // Lanes for which nothing is left to send say nothing.
    let sender = side(6, &[(Read, 1), (Send, 2), (Limit, 47), (Credit, 50)]);
    assert_eq!(bottleneck(&sender, &receiver, &NO_FACTS, false).stage, "limit");
    // A copy within one process has the sender's clock for it.
    let receiver = side(6, &[(Create, 1), (Write, 4)]);
    assert_eq!(bottleneck(&sender, &receiver, &NO_FACTS, true).stage, "limit");
}
