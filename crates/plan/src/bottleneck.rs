//! What limited the rate: judged from where the lanes' time went at both ends.
//!
//! Lanes form a pipeline: the sender's read, seal and send, the receiver's receive, open, create, write, sync and
//! publish. Whatever limits the rate works all the time, and everybody else waits for it:
//!
//! | limit | sender's lanes | receiver's lanes |
//! |---|---|---|
//! | source | mostly in `Read` | wait in `Receive` |
//! | destination | wait in `Send`, `Credit` or `Scan` | mostly in `Create`, `Write`, `Sync` or `Publish` |
//! | network | wait in `Send` | wait in `Receive` |
//! | finding work | wait in `Scan` | wait in `Receive` |
//! | processors | on a processor nearly all the time they could be | or these |
//! | memory | wait in `Memory` | or these |
//!
//! Each possible cause gets a weight, roughly the share of time for which it explains what the lanes did, and the
//! heaviest is named. Three things blur the picture and are allowed for:
//! - With more lanes than processors a lane that waits for a processor seems to wait for its socket: a side whose
//!   processors are used up outweighs every wait.
//! - Reading and writing the page cache is processor time in a storage stage; `cpu_ns` tells it from a disk's wait.
//! - Two ends on one host share its processors, and neither seems to use them up: told by equal counts and a round trip
//!   that no network has.
//!
//! Not here: advice on what to change, and judging while a lane is stuck (that is a diagnosis, not a rate).

use crate::side::{Role, SATURATED, Side};
use crate::streams::milliseconds;
use model::progress::{Bottleneck, LaneTimes, Stage, StreamFacts};

/// Less lane time than this says nothing: one scheduling delay or one slow create would decide.
const TELLING_NS_MIN: f64 = 50e6;

/// A receiver that waited for data for longer than this share was not the one that held the sender up.
const SLACK: f64 = 0.2;

/// Share of a stream's busy time from which a TCP limit is named.
const TCP_LIMITED: f64 = 0.3;

/// No two hosts with a switch between them are closer; loopback and namespace pairs show 10 to 60 us.
const ONE_HOST_RTT_US_MAX: u64 = 100;

/// Names what limited the rate of a transfer.
///
/// For a copy within one process (`is_local`) the lanes have two clocks: the sender's tells `Scan`, `Read` and `Seal`,
/// the receiver's the stages at the destination.
///
/// `share` of the verdict: of the limiting side's lane time in that stage. For processors it is how far they were used
/// up or, where that does not show, how long the lanes worked. For the network it is the sender's time in `Send`.
pub fn bottleneck(sender: &LaneTimes, receiver: &LaneTimes, facts: &StreamFacts, is_local: bool) -> Bottleneck {
    let (sender, receiver) = match is_local {
        true => (Side::local(sender, receiver), None),
        false => (Side::new(Role::Sender, sender), Some(Side::new(Role::Receiver, receiver))),
    };
    let total_ns = receiver.as_ref().map_or(0.0, |side| side.total_ns).max(sender.total_ns);
    if total_ns < TELLING_NS_MIN {
        return Bottleneck { stage: "none", share: 0.0, sentence: "too short to tell what limited the rate".into() };
    }
    match receiver {
        Some(receiver) if sender.is_told() && receiver.is_told() => Pair { sender, receiver, facts }.judge(),
        Some(receiver) if receiver.is_told() => alone(&receiver),
        _ => alone(&sender),
    }
}

/// What may have limited the rate, lightest claim last: of equal weights the first one stands.
#[derive(Clone, Copy)]
enum Cause {
    Memory(Role),
    Processors(Role),
    Work(Role),
    Network,
    Scan,
    Credit,
}

fn heaviest(claims: &[(Cause, f64)]) -> Option<Cause> {
    let mut best: Option<(Cause, f64)> = None;
    for &(cause, weight) in claims {
        if weight > best.map_or(0.0, |(_, weight)| weight) {
            best = Some((cause, weight));
        }
    }
    best.map(|(cause, _)| cause)
}

struct Pair<'a> {
    sender: Side,
    receiver: Side,
    facts: &'a StreamFacts,
}

impl Pair<'_> {
    fn judge(&self) -> Bottleneck {
        let (sender, receiver) = (&self.sender, &self.receiver);
        let exhausted = |side: &Side| if side.saturation() >= SATURATED { side.saturation() } else { 0.0 };
        let shared = self.shared_saturation();
        let is_exhausted = exhausted(sender) > 0.0 || exhausted(receiver) > 0.0 || shared > 0.0;
        // Where processors are used up, waking up late looks like waiting for the socket.
        let wait = |weight: f64| if is_exhausted { 0.0 } else { weight };
        let busier = if sender.busy() > receiver.busy() { Role::Sender } else { Role::Receiver };
        let cause = heaviest(&[
            (Cause::Memory(Role::Sender), sender.share(Stage::Memory)),
            (Cause::Memory(Role::Receiver), receiver.share(Stage::Memory)),
            (Cause::Work(Role::Receiver), receiver.busy()),
            (Cause::Work(Role::Sender), sender.busy()),
            (Cause::Processors(Role::Receiver), exhausted(receiver)),
            (Cause::Processors(Role::Sender), exhausted(sender)),
            (Cause::Processors(busier), shared),
            (Cause::Network, wait(self.network())),
            (Cause::Scan, wait(self.upstream_wait(Stage::Scan))),
            (Cause::Credit, wait(self.upstream_wait(Stage::Credit))),
        ]);
        match cause {
            Some(Cause::Memory(role)) => memory(self.side(role)),
            Some(Cause::Processors(role)) => processors(self.side(role), shared),
            Some(Cause::Work(role)) if shared > 0.0 || self.side(role).is_limited_by_processors() => {
                processors(self.side(role), shared)
            }
            Some(Cause::Work(role)) => storage(self.side(role)),
            Some(Cause::Network) => self.network_verdict(),
            Some(Cause::Scan) => scan(sender),
            Some(Cause::Credit) => credit(sender),
            None => nothing(),
        }
    }

    fn side(&self, role: Role) -> &Side {
        if role == Role::Receiver { &self.receiver } else { &self.sender }
    }

    /// Use of the processors by both sides together, if they sit on one host and use them up.
    fn shared_saturation(&self) -> f64 {
        let rtt_us = self.facts.rtt_us_min;
        let (sender, receiver) = (&self.sender, &self.receiver);
        let is_near = rtt_us > 0 && rtt_us <= ONE_HOST_RTT_US_MAX;
        if !is_near || sender.processors != receiver.processors || sender.processors == 0.0 {
            return 0.0;
        }
        let used = sender.cpu * sender.lanes + receiver.cpu * receiver.lanes;
        let saturation = (used / sender.processors.min(sender.lanes + receiver.lanes)).min(1.0);
        if saturation >= SATURATED { saturation } else { 0.0 }
    }

    /// A wait of the sender that the receiver did not cause: whole if the receiver had time to spare, else only as far
    /// as both were waiting.
    fn upstream_wait(&self, stage: Stage) -> f64 {
        let (wait, slack) = (self.sender.share(stage), self.receiver.share(Stage::Receive));
        if slack > SLACK { wait } else { wait.min(slack) }
    }

    /// The sender waited for its sockets, and the receiver neither let its window close nor worked all the time.
    fn network(&self) -> f64 {
        let is_window_open = self.facts.busy_us > 0 && self.of_busy(self.facts.receive_window_limited_us) < TCP_LIMITED;
        let (wait, slack) = (self.sender.share(Stage::Send), self.receiver.share(Stage::Receive));
        if is_window_open { self.upstream_wait(Stage::Send) } else { wait.min(slack) }
    }

    /// Share of the time in which the streams had something to send.
    fn of_busy(&self, us: u64) -> f64 {
        if self.facts.busy_us == 0 { 0.0 } else { (us as f64 / self.facts.busy_us as f64).min(1.0) }
    }

    fn network_verdict(&self) -> Bottleneck {
        let facts = self.facts;
        let window = self.of_busy(facts.receive_window_limited_us);
        let buffer = self.of_busy(facts.send_buffer_limited_us);
        let mut details = Vec::new();
        if window >= TCP_LIMITED && window >= buffer {
            details.push(format!("receive window full for {}", percent(window)));
        } else if buffer >= TCP_LIMITED {
            details.push(format!("send buffer full for {}", percent(buffer)));
        } else if facts.busy_us > 0 {
            details.push("buffers were large enough, the path was full".to_owned());
        }
        match facts.retransmits {
            0 => {}
            1 => details.push("1 segment sent again".to_owned()),
            n => details.push(format!("{n} segments sent again")),
        }
        if facts.rtt_us_min > 0 {
            details.push(format!("RTT {}", milliseconds(facts.rtt_us_min)));
        }
        let share = self.sender.share(Stage::Send);
        let details = if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) };
        let waited = percent(share);
        let sentence =
            format!("limited by the network: the sender's lanes waited {waited} of the time for the socket{details}");
        verdict("network", share, sentence)
    }
}

/// Judges from one side: a local copy has only one, and a peer may not have told of itself.
fn alone(side: &Side) -> Bottleneck {
    let exhausted = if side.saturation() >= SATURATED { side.saturation() } else { 0.0 };
    let (neighbour, wait) = match side.role {
        Role::Receiver => (Stage::Receive, side.share(Stage::Receive)),
        _ => (Stage::Send, side.share(Stage::Send)),
    };
    let cause = heaviest(&[
        (Cause::Memory(side.role), side.share(Stage::Memory)),
        (Cause::Work(side.role), side.busy()),
        (Cause::Processors(side.role), exhausted),
        (Cause::Network, wait),
        (Cause::Scan, side.share(Stage::Scan)),
        (Cause::Credit, side.share(Stage::Credit)),
    ]);
    match cause {
        Some(Cause::Memory(_)) => memory(side),
        Some(Cause::Processors(_)) => processors(side, 0.0),
        Some(Cause::Work(_)) if side.is_limited_by_processors() => processors(side, 0.0),
        Some(Cause::Work(_)) => storage(side),
        Some(Cause::Network) => {
            let (waited, who) = (percent(wait), side.role.possessive());
            let other = if side.role == Role::Receiver { "before the receiver" } else { "after the sender" };
            let sentence = format!(
                "limited {other}: {who} lanes waited {waited} of the time for the socket, \
                 and the other side has not told of its own"
            );
            verdict(neighbour.name(), wait, sentence)
        }
        Some(Cause::Scan) => scan(side),
        Some(Cause::Credit) => credit(side),
        None => nothing(),
    }
}

/// `shared`: how far both ends use up the processors of the one host they are on, else 0.
fn processors(side: &Side, shared: f64) -> Bottleneck {
    let stage_name = match side.role {
        Role::Sender => "cpu-sender",
        Role::Receiver => "cpu-receiver",
        Role::Local => "cpu",
    };
    let (who, busy, used) = (side.role.possessive(), side.busy(), side.saturation());
    let (stage, share) = side.largest_work();
    let most = format!("most of it {} ({})", doing(stage), percent(share));
    let (worked, on_processor) = (percent(busy), percent(side.cpu));
    let (share, sentence) = if side.is_starved() {
        let computing = percent(side.computing());
        let why = format!("while digest and encryption alone took {computing}: something else uses the processors");
        (busy, format!("{who} processors: its lanes worked {worked} of the time and had one for {on_processor}, {why}"))
    } else if used >= SATURATED {
        let lanes = if side.lanes == 1.0 { "its 1 lane".to_owned() } else { format!("its {} lanes", side.lanes) };
        (used, format!("{who} processors: {lanes} used {} of what they could have had, {most}", percent(used)))
    } else if shared > 0.0 {
        let used = percent(shared);
        (shared, format!("the processors that both ends share, {used} used: {who} lanes worked {worked}, {most}"))
    } else {
        (busy, format!("{who} processors: its lanes worked {worked} of the time, {most}, on one for {on_processor}"))
    };
    verdict(stage_name, share, format!("limited by {sentence}"))
}

fn storage(side: &Side) -> Bottleneck {
    let (stage, share) = side.largest_at_storage();
    let place = if stage == Stage::Read { "source's" } else { "destination's" };
    let lanes = if side.role == Role::Local { "the" } else { side.role.possessive() };
    let others: Vec<String> = side
        .work()
        .filter(|(other, share)| *other != stage && *share >= 0.1)
        .map(|(other, share)| format!("{} {}", other.name(), percent(share)))
        .collect();
    let others = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
    let sentence = format!(
        "limited by the {place} storage: {lanes} lanes spent {} of the time {}{others}",
        percent(share),
        doing(stage)
    );
    verdict(stage.name(), share, sentence)
}

fn memory(side: &Side) -> Bottleneck {
    let share = side.share(Stage::Memory);
    let who = side.role.possessive();
    let sentence =
        format!("limited by memory: {who} lanes waited {} of the time for the right to hold more", percent(share));
    verdict(Stage::Memory.name(), share, sentence)
}

fn scan(side: &Side) -> Bottleneck {
    let share = side.share(Stage::Scan);
    let answers = if side.role == Role::Local { "" } else { " or the receiver's answers to it" };
    let waited = percent(share);
    let sentence = format!("limited by finding work: lanes waited {waited} of the time for the listing{answers}");
    verdict(Stage::Scan.name(), share, sentence)
}

fn credit(side: &Side) -> Bottleneck {
    let share = side.share(Stage::Credit);
    let waited = percent(share);
    let sentence = format!(
        "limited by what the receiver has not confirmed: the sender's lanes waited {waited} of the time for credit"
    );
    verdict(Stage::Credit.name(), share, sentence)
}

fn nothing() -> Bottleneck {
    verdict("none", 0.0, "nothing stood out as the limit".to_owned())
}

fn verdict(stage: &'static str, share: f64, sentence: String) -> Bottleneck {
    Bottleneck { stage, share: share.clamp(0.0, 1.0), sentence }
}

fn doing(stage: Stage) -> &'static str {
    match stage {
        Stage::Read => "reading",
        Stage::Seal => "digest and encryption",
        Stage::Open => "decryption and digest",
        Stage::Create => "creating files",
        Stage::Write => "writing",
        Stage::Sync => "making data durable",
        Stage::Publish => "giving files their final names",
        Stage::Scan | Stage::Send | Stage::Credit | Stage::Receive | Stage::Memory => "waiting",
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
