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
//! | finding work, or what is written where the source is followed | wait in `Scan` | wait in `Receive` |
//! | the destination, where a followed source has ended and all is sent, or a buffer is behind | wait in `Scan` | the buffer holds more than a second's worth, or names are given |
//! | durability | wait in `Credit` | wait in `Receive` while the thread that commits groups works |
//! | processors | on a processor nearly all the time they could be | or these |
//! | memory | wait in `Memory` | or these |
//! | a rate that was set | wait in `Limit` | wait in `Receive` |
//!
//! Each possible cause gets a weight, roughly the share of time for which it explains what the lanes did, and the
//! heaviest is named. Three things blur the picture and are allowed for:
//! - With more lanes than processors, or others on them, a lane that waits for a processor seems to wait for its socket
//!   or its storage: a side whose processors are used up outweighs every wait. The kernel's count of the time that a
//!   lane could have run and did not tells that from a real wait.
//! - Reading and writing the page cache is processor time in a storage stage; `cpu_ns` tells it from a disk's wait.
//! - Two ends on one host share its processors, and neither seems to use them up: told by equal counts, and by a round
//!   trip that no network has or by lanes at both ends that wait for a processor.
//! - Lanes without memory are not the limit where those that have some already fill the path or the processors.
//!
//! Not here: the words (`verdict`), and judging while a lane is stuck (that is a diagnosis, not a rate).

use crate::side::{Role, SATURATED, Side};
use crate::verdict::{self, Amounts, Words};
use model::progress::{Bottleneck, LaneTimes, Stage, StreamFacts};

/// What is known of a transfer, or of a part of it.
#[derive(Clone, Copy)]
pub struct Observed<'a> {
    pub sender: &'a LaneTimes,
    pub receiver: &'a LaneTimes,
    pub facts: &'a StreamFacts,
    /// A copy within one process: the lanes have two clocks. The sender's tells `Scan`, `Read`, `Seal` and `Digest`, the
    /// receiver's the stages at the destination.
    pub is_local: bool,
    /// The source is followed: lanes also wait for something to be written there.
    pub is_following: bool,
    /// Nothing more was written there in this time: what ends the following had come.
    pub has_ended: bool,
    pub amounts: Amounts,
}

/// Less lane time than this says nothing: one scheduling delay or one slow create would decide.
const TELLING_NS_MIN: f64 = 50e6;

/// From this share on, lanes that wait for a source that is followed wait for its writers, unless the destination is busy with
/// what it has.
const GROWING: f64 = 0.5;

/// From so much of one lane's time on that is not spent waiting, lanes still have something to send.
const SENDING_LANES: f64 = 0.5;

/// A receiver that waited for data for longer than this share was not the one that held the sender up.
const SLACK: f64 = 0.2;

/// Lanes that spend this share of their time waiting for their sockets leave nothing to others that wait for memory.
const SENDING: f64 = 0.7;

/// Names what limited the rate of a transfer.
///
/// `share` of the verdict: of the limiting side's lane time in that stage. For processors it is how far they were used
/// up or, where that does not show, how long the lanes worked. For the network it is the sender's time in `Send`, for what a
/// destination has left to do of a followed source that in `Scan`.
pub fn bottleneck(observed: &Observed<'_>) -> Bottleneck {
    let Observed { sender, receiver, facts, is_local, is_following, has_ended, amounts } = *observed;
    let waiting_bytes = receiver.fill.waiting_bytes;
    let words = Words { amounts, facts: *facts };
    let (sender, receiver) = match is_local {
        true => (Side::local(sender, receiver), None),
        false => (Side::new(Role::Sender, sender), Some(Side::new(Role::Receiver, receiver))),
    };
    let total_ns = receiver.as_ref().map_or(0.0, |side| side.total_ns).max(sender.total_ns);
    if total_ns < TELLING_NS_MIN {
        return verdict::none("too short to tell what limited the rate");
    }
    // Nothing is left to be found.
    let is_over = is_following && has_ended;
    if is_following && sender.share(Stage::Scan) >= GROWING {
        // More than arrives in a second.
        let is_behind = waiting_bytes as f64 > amounts.bytes as f64 / amounts.seconds.max(1.0);
        let is_held_up = receiver.as_ref().is_some_and(|side| side.is_told() && side.share(Stage::Receive) <= SLACK);
        let waiting = sender.share(Stage::Scan) + sender.share(Stage::Credit);
        let is_all_sent = is_over && waiting >= 1.0 - SENDING_LANES / sender.lanes;
        match () {
            () if is_all_sent || is_behind => return words.delivery(&sender, waiting_bytes),
            () if !is_over && !is_held_up => return words.growth(&sender),
            () => {}
        }
    }
    match receiver {
        Some(receiver) if sender.is_told() && receiver.is_told() => {
            Pair::new(sender, receiver, facts, is_over).judge(&words)
        }
        Some(receiver) if receiver.is_told() => alone(receiver, &words, is_over),
        _ => alone(sender, &words, is_over),
    }
}

/// What may have limited the rate, lightest claim last: of equal weights the first one stands.
#[derive(Clone, Copy)]
enum Cause {
    Limit,
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
    /// No lane waits for more to be found.
    is_over: bool,
    /// Share of the sender's time in which it waited for confirmation while nobody at the receiver worked.
    credit: f64,
    /// Share in which it did while some of the receiver's lanes worked, the others having nothing to do.
    confirming: f64,
}

impl<'a> Pair<'a> {
    fn new(sender: Side, mut receiver: Side, facts: &'a StreamFacts, is_over: bool) -> Pair<'a> {
        let working = (receiver.busy() * receiver.lanes).min(1.0);
        let credit = sender.share(Stage::Credit);
        let credit = credit - receiver.charge_commit(credit, Stage::Receive);
        let confirming = credit.min(working);
        Pair { sender, receiver, facts, is_over, credit: credit - confirming, confirming }
    }

    fn judge(&self, words: &Words) -> Bottleneck {
        let (sender, receiver) = (&self.sender, &self.receiver);
        let shared = self.shared_saturation();
        let is_exhausted = sender.exhaustion() > 0.0 || receiver.exhaustion() > 0.0 || shared > 0.0;
        // Where processors are used up, waking up late looks like waiting for the socket.
        let wait = |weight: f64| if is_exhausted { 0.0 } else { weight };
        let memory = |side: &Side| if self.is_path_full() { 0.0 } else { wait(side.share(Stage::Memory)) };
        let busier = if sender.busy() > receiver.busy() { Role::Sender } else { Role::Receiver };
        let cause = heaviest(&[
            (Cause::Limit, sender.limited()),
            (Cause::Memory(Role::Sender), memory(sender)),
            (Cause::Memory(Role::Receiver), memory(receiver)),
            (Cause::Work(Role::Receiver), receiver.busy().max(self.confirming)),
            (Cause::Work(Role::Sender), sender.busy()),
            (Cause::Processors(Role::Receiver), receiver.exhaustion()),
            (Cause::Processors(Role::Sender), sender.exhaustion()),
            (Cause::Processors(busier), shared),
            (Cause::Network, wait(self.network())),
            (Cause::Scan, if self.is_over { 0.0 } else { wait(self.upstream_wait(Stage::Scan)) }),
            (Cause::Credit, wait(self.credit)),
        ]);
        let found = match cause {
            Some(Cause::Limit) => words.limit(sender),
            Some(Cause::Memory(role)) => words.memory(self.side(role)),
            Some(Cause::Processors(role)) => words.processors(self.side(role), shared),
            Some(Cause::Work(role)) if shared > 0.0 || self.side(role).is_limited_by_processors() => {
                words.processors(self.side(role), shared)
            }
            Some(Cause::Work(role)) => words.storage(self.side(role)),
            Some(Cause::Network) => words.network(sender),
            Some(Cause::Scan) => words.scan(sender),
            Some(Cause::Credit) => words.credit(sender),
            None => verdict::none("nothing stood out as the limit"),
        };
        words.with_link_gain(found, self.busiest(shared))
    }

    fn side(&self, role: Role) -> &Side {
        if role == Role::Receiver { &self.receiver } else { &self.sender }
    }

    /// How far the busiest thing beside the network was used: what a faster link would run into.
    fn busiest(&self, shared: f64) -> f64 {
        let of = |side: &Side| side.busy().max(side.saturation());
        of(&self.sender).max(of(&self.receiver)).max(shared)
    }

    /// Use of the processors by both sides together, if they sit on one host and use them up.
    fn shared_saturation(&self) -> f64 {
        let (sender, receiver) = (&self.sender, &self.receiver);
        let is_one_host = verdict::is_within_host(self.facts) || (sender.is_contended() && receiver.is_contended());
        if !is_one_host || sender.processors != receiver.processors || sender.processors == 0.0 {
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
        let is_window_open = self.facts.busy_us > 0 && !verdict::is_window_small(self.facts);
        let (wait, slack) = (self.sender.share(Stage::Send), self.receiver.share(Stage::Receive));
        let weight = if is_window_open { self.upstream_wait(Stage::Send) } else { wait.min(slack) };
        if self.is_path_full() { weight.max(wait / self.with_memory()) } else { weight }
    }

    /// Share of the sender's lane time that was not spent waiting for memory.
    fn with_memory(&self) -> f64 {
        (1.0 - self.sender.share(Stage::Memory)).max(1e-6)
    }

    /// The lanes that had memory mostly waited for a path whose buffers were large enough: more lanes would not help.
    fn is_path_full(&self) -> bool {
        let sending = self.sender.share(Stage::Send) / self.with_memory();
        let is_large = !verdict::is_window_small(self.facts) && !verdict::is_send_buffer_small(self.facts);
        sending >= SENDING && self.receiver.share(Stage::Receive) > SLACK && self.facts.busy_us > 0 && is_large
    }
}

/// Judges from one side: a local copy has only one, and a peer may not have told of itself.
fn alone(mut side: Side, words: &Words, is_over: bool) -> Bottleneck {
    if side.role == Role::Local {
        side.charge_commit(1.0, Stage::Credit);
    }
    let side = &side;
    let is_exhausted = side.exhaustion() > 0.0;
    let neighbour = if side.role == Role::Receiver { Stage::Receive } else { Stage::Send };
    let wait = |stage| if is_exhausted { 0.0 } else { side.share(stage) };
    let cause = heaviest(&[
        (Cause::Limit, side.limited()),
        (Cause::Memory(side.role), wait(Stage::Memory)),
        (Cause::Work(side.role), side.busy()),
        (Cause::Processors(side.role), side.exhaustion()),
        (Cause::Network, wait(neighbour)),
        (Cause::Scan, if is_over { 0.0 } else { wait(Stage::Scan) }),
        (Cause::Credit, wait(Stage::Credit)),
    ]);
    match cause {
        Some(Cause::Limit) => words.limit(side),
        Some(Cause::Memory(_)) => words.memory(side),
        Some(Cause::Processors(_)) => words.processors(side, 0.0),
        Some(Cause::Work(_)) if side.is_limited_by_processors() => words.processors(side, 0.0),
        Some(Cause::Work(_)) => words.storage(side),
        Some(Cause::Network) => words.other_side(side, neighbour),
        Some(Cause::Scan) => words.scan(side),
        Some(Cause::Credit) => words.credit(side),
        None => verdict::none("nothing stood out as the limit"),
    }
}
