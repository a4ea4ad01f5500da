//! The judgement against made-up lane times: known causes, mixtures, and whatever a peer may claim.

mod mixtures;

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
    let (is_following, has_ended) = (false, false);
    crate::bottleneck(&Observed { sender, receiver, facts, is_local, is_following, has_ended, amounts })
}

/// As the one before, of a source that is followed; 1 MiB arrived in 10 s.
fn following(sender: &LaneTimes, receiver: &LaneTimes, has_ended: bool) -> Bottleneck {
    let amounts = Amounts { files: 1, bytes: 1 << 20, seconds: 10.0 };
    let (facts, is_local, is_following) = (&NO_FACTS, false, true);
    crate::bottleneck(&Observed { sender, receiver, facts, is_local, is_following, has_ended, amounts })
}

#[test]
fn a_source_is_not_the_limit_while_the_destination_is_busy_with_what_it_has() {
    let idle = side(5, &[(Scan, 95), (Read, 3), (Send, 2)]);
    let holding = |waiting_bytes| LaneTimes {
        fill: Fill { capacity_bytes: 368 << 20, waiting_bytes },
        ..side(10, &[(Receive, 60), (Write, 40)])
    };
    let found = |waiting_bytes, has_ended| following(&idle, &holding(waiting_bytes), has_ended);
    assert_eq!(found(0, false).stage, "scan");
    // What passes through a buffer in a second is on its way, and more is held up there.
    assert_eq!(found(100 << 10, false).stage, "scan");
    let held = found(29 << 20, false);
    assert_eq!(held.stage, "write");
    assert!(held.sentence.contains("destination's storage: lanes had nothing to send for 95 % of the time"));
    assert!(held.sentence.contains("29.0 MiB wait in its buffer"), "{}", held.sentence);
    // Once nothing more is written, the source is it in no case.
    assert_eq!(found(1, true).stage, "write");
    let named = found(0, true);
    assert_eq!(named.stage, "publish");
    assert!(named.sentence.contains("has yet to get its final names"), "{}", named.sentence);
    // Lanes that write all the time hold up whoever waits for their answers.
    let busy = following(&idle, &side(15, &[(Receive, 3), (Write, 97)]), false);
    assert_eq!(busy.stage, "write", "{}", busy.sentence);
}

#[test]
fn a_source_that_grows_slowly_is_named_and_one_that_storage_holds_up_is_not() {
    let receiver = side(10, &[(Receive, 40), (Write, 60)]);
    let slow = following(&side(5, &[(Scan, 90), (Read, 8), (Send, 2)]), &receiver, false);
    assert_eq!(slow.stage, "scan");
    assert!(slow.sentence.contains("what is written at the source: lanes waited 90 %"), "{}", slow.sentence);
    let writes = side(15, &[(Receive, 3), (Write, 97)]);
    let held_up = following(&side(9, &[(Scan, 10), (Read, 4), (Send, 86)]), &writes, false);
    assert_eq!(held_up.stage, "write", "{}", held_up.sentence);
}

#[test]
fn of_a_source_that_has_ended_the_destination_is_the_limit_once_no_lane_sends_any_more() {
    let receiver = side_of(8, 8, 5, &[(Receive, 95), (Write, 5)]);
    let found = |stages: &[(Stage, u64)], has_ended| following(&side_of(8, 8, 2, stages), &receiver, has_ended);
    let (reads, sends) = ([(Scan, 87), (Read, 13)], [(Scan, 87), (Send, 13)]);
    assert_eq!((found(&reads, true).stage, found(&sends, true).stage), ("read", "network"));
    assert_eq!(found(&[(Scan, 60), (Credit, 40)], true).stage, "publish");
    // As long as it grows, what is written there is what the others wait for.
    assert_eq!(found(&reads, false).stage, "scan");
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
                says: "waited 62 % of the time for a processor, and had one for 34 %: something else",
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
