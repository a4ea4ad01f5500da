//! The words of a judgement: one sentence that names the limit, and what to do about it.
//!
//! Not here: deciding what the limit was (`bottleneck`).

use crate::side::{Role, SATURATED, Side};
use crate::streams::milliseconds;
use model::progress::{Bottleneck, Stage, StreamFacts};
use model::quantity::{ByteCount, Rate};

/// What was delivered meanwhile; zeros when that is not known.
#[derive(Clone, Copy, Default, Debug)]
pub struct Amounts {
    pub files: u64,
    pub bytes: u64,
    pub seconds: f64,
}

/// Stages of a verdict that are no stage of a lane.
pub const VERDICTS: [&str; 6] = ["network", "buffers", "cpu", "cpu-sender", "cpu-receiver", "none"];

/// Share of a stream's busy time from which a TCP limit is named.
const TCP_LIMITED: f64 = 0.3;

/// A gain below this is none.
const GAIN_MIN: f64 = 1.05;

/// No two hosts with a switch between them are closer; loopback and namespace pairs show 10 to 60 us.
const ONE_HOST_RTT_US_MAX: u64 = 100;

/// The streams end on the host on which they begin. What carries them on from there, as an ssh connection does, is not
/// seen in the kernel's counts.
pub(crate) fn is_within_host(facts: &StreamFacts) -> bool {
    (1..=ONE_HOST_RTT_US_MAX).contains(&facts.rtt_us_min)
}

/// The streams filled the receiver's window.
pub(crate) fn is_window_small(facts: &StreamFacts) -> bool {
    of_busy(facts, facts.receive_window_limited_us) >= TCP_LIMITED
}

/// The streams had sent all that their send buffers may hold.
pub(crate) fn is_send_buffer_small(facts: &StreamFacts) -> bool {
    of_busy(facts, facts.send_buffer_limited_us) >= TCP_LIMITED
}

/// Share of the time in which the streams had something to send.
fn of_busy(facts: &StreamFacts, us: u64) -> f64 {
    if facts.busy_us == 0 { 0.0 } else { (us as f64 / facts.busy_us as f64).min(1.0) }
}

/// What the sentences draw on beside the sides.
pub(crate) struct Words {
    pub amounts: Amounts,
    pub facts: StreamFacts,
}

impl Words {
    pub fn network(&self, sender: &Side) -> Bottleneck {
        let facts = &self.facts;
        let window = of_busy(facts, facts.receive_window_limited_us);
        let buffer = of_busy(facts, facts.send_buffer_limited_us);
        // Without a distance no buffer is too small for it.
        let is_far = !is_within_host(facts);
        let is_window = is_far && is_window_small(facts) && window >= buffer;
        let is_buffer = is_far && is_send_buffer_small(facts) && !is_window;
        let mut details = Vec::new();
        if is_window {
            details.push(format!("receive window full for {}", percent(window)));
        } else if is_buffer {
            details.push(format!("send buffer full for {}", percent(buffer)));
        } else if is_far && facts.busy_us > 0 {
            details.push("buffers were large enough, the path was full".to_owned());
        }
        match facts.retransmits {
            0 => {}
            1 => details.push("1 segment sent again".to_owned()),
            n => details.push(format!("{n} segments sent again")),
        }
        if is_far && facts.rtt_us_min > 0 {
            details.push(format!("RTT {}", milliseconds(facts.rtt_us_min)));
        }
        let share = sender.share(Stage::Send);
        let details = if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) };
        let waited = percent(share);
        if is_window || is_buffer {
            let (end, setting) =
                if is_window { ("receiver", "net.ipv4.tcp_rmem") } else { ("sender", "net.ipv4.tcp_wmem") };
            let sentence = format!(
                "limited by socket buffers too small for this distance: \
                 the sender's lanes waited {waited} of the time for the socket{details}"
            );
            let advice = format!("raise the third value of {setting} at the {end}, or use more streams (--streams)");
            return verdict("buffers", share, sentence, advice);
        }
        let sentence =
            format!("limited by the network: the sender's lanes waited {waited} of the time for the socket{details}");
        verdict("network", share, sentence, self.carried())
    }

    /// Adds what a link twice as fast would bring, given how far the busiest of everything else was used.
    pub fn with_link_gain(&self, mut found: Bottleneck, busiest: f64) -> Bottleneck {
        let gain = match found.stage {
            "none" => return found,
            "network" => (1.0 / busiest.max(0.5)).clamp(1.0, 2.0),
            _ => 1.0,
        };
        let text = match gain {
            gain if gain < GAIN_MIN => "a faster link would not help".to_owned(),
            gain if gain > 1.95 => "a link twice as fast would help in full".to_owned(),
            gain => format!("a link twice as fast would help up to {gain:.1} times, then the ends are the limit"),
        };
        let separator = if found.advice.is_empty() { "" } else { "; " };
        found.advice = format!("{text}{separator}{}", found.advice);
        found.link_gain = Some(gain);
        found
    }

    /// One side was waiting for the other, which has not told of itself.
    pub fn other_side(&self, side: &Side, stage: Stage) -> Bottleneck {
        let share = side.share(stage);
        let (waited, who) = (percent(share), side.role.possessive());
        let other = if side.role == Role::Receiver { "before the receiver" } else { "after the sender" };
        let sentence = format!(
            "limited {other}: {who} lanes waited {waited} of the time for the socket, \
             and the other side has not told of its own"
        );
        verdict(stage.name(), share, sentence, String::new())
    }

    /// `shared`: how far both ends use up the processors of the one host they are on, else 0.
    pub fn processors(&self, side: &Side, shared: f64) -> Bottleneck {
        let is_starved = side.is_starved() && shared == 0.0;
        let stage_name = match side.role {
            _ if side.is_digesting() && !is_starved => Stage::Digest.name(),
            Role::Sender => "cpu-sender",
            Role::Receiver => "cpu-receiver",
            Role::Local => "cpu",
        };
        let (who, busy, used) = (side.role.possessive(), side.busy(), side.saturation());
        let (stage, share) = side.largest_work();
        let most = format!("most of it {} ({})", doing(stage), percent(share));
        let (worked, on_processor) = (percent(busy), percent(side.cpu));
        let (share, sentence) = if is_starved {
            let share = busy.max(if side.is_contended() { side.demand() } else { 0.0 });
            (share, format!("{who} processors: {}", starved(side)))
        } else if used >= SATURATED {
            let lanes = if side.lanes == 1.0 { "its 1 lane".to_owned() } else { format!("its {} lanes", side.lanes) };
            (used, format!("{who} processors: {lanes} used {} of what they could have had, {most}", percent(used)))
        } else if shared > 0.0 {
            let used = percent(shared);
            (shared, format!("the processors that both ends share, {used} used: {who} lanes worked {worked}, {most}"))
        } else {
            (
                busy,
                format!(
                    "{who} processors: its lanes worked {worked} of the time, {most}, on a processor for {on_processor}"
                ),
            )
        };
        let advice = match stage_name {
            _ if is_starved => "stop or move what else runs there; a container's processor limit looks the same",
            "digest" => "--digest crc64nvme takes a fraction of the time that blake3 takes",
            _ => "more or faster processors there would help",
        };
        verdict(stage_name, share, format!("limited by {sentence}"), advice.to_owned())
    }

    pub fn storage(&self, side: &Side) -> Bottleneck {
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
        let depth = "if its latency is high but it handles many requests at once, more streams (--streams) would help";
        let (files, bytes) = (self.files_per_second(), self.bytes_per_second());
        let advice = match stage {
            Stage::Read => format!("storage there delivered {bytes}; {depth}"),
            Stage::Write => format!("storage there took {bytes}; {depth}"),
            Stage::Create => format!("storage there creates {files}; fewer, larger files or more streams would help"),
            Stage::Publish => format!("storage there gives names to {files}; fewer, larger files would help"),
            Stage::Sync => {
                format!("storage there makes {files}, {bytes}, durable; --fsync never does not wait for that")
            }
            _ => String::new(),
        };
        verdict(stage.name(), share, sentence, advice)
    }

    pub fn memory(&self, side: &Side) -> Bottleneck {
        let share = side.share(Stage::Memory);
        let who = side.role.possessive();
        let sentence = format!("limited by memory: {who} lanes waited {} of the time for more memory", percent(share));
        let command = if side.role == Role::Receiver { "of the receiving end" } else { "of the sending end" };
        let advice = format!("raise --memory {command}, or its host's share for this program; each stream takes 1 MiB");
        verdict(Stage::Memory.name(), share, sentence, advice)
    }

    /// The user set a rate.
    pub fn limit(&self, side: &Side) -> Bottleneck {
        let share = side.limited();
        let sentence = format!(
            "limited by the rate that was set (--bwlimit, or an endpoint's classes and contracts): the sender's lanes waited {} \
             of the time for their turn",
            percent(share)
        );
        verdict(Stage::Limit.name(), share, sentence, self.carried())
    }

    pub fn scan(&self, side: &Side) -> Bottleneck {
        let share = side.share(Stage::Scan);
        let answers = if side.role == Role::Local { "" } else { " or the receiver's answers to it" };
        let waited = percent(share);
        let sentence = format!("limited by finding work: lanes waited {waited} of the time for the listing{answers}");
        let advice = "fewer or larger files and directories would help".to_owned();
        verdict(Stage::Scan.name(), share, sentence, advice)
    }

    /// The source is followed.
    pub fn growth(&self, side: &Side) -> Bottleneck {
        let share = side.share(Stage::Scan);
        let waited = percent(share);
        let sentence = format!("limited by what is written at the source: lanes waited {waited} of the time for more");
        verdict(Stage::Scan.name(), share, sentence, String::new())
    }

    /// The source is followed, and what was written there is sent: what is left is the destination's.
    pub fn delivery(&self, side: &Side, waiting_bytes: u64) -> Bottleneck {
        let share = side.share(Stage::Scan);
        let (stage, left) = match waiting_bytes {
            0 => (Stage::Publish, "what arrived has yet to get its final names".to_owned()),
            bytes => (Stage::Write, format!("{} wait in its buffer", ByteCount(bytes))),
        };
        let waited = percent(share);
        let sentence = format!(
            "limited by the destination's storage: lanes had nothing to send for {waited} of the time, and {left}"
        );
        verdict(stage.name(), share, sentence, String::new())
    }

    pub fn credit(&self, side: &Side) -> Bottleneck {
        let share = side.share(Stage::Credit);
        let waited = percent(share);
        let sentence = format!(
            "limited by what the receiver has not confirmed: the sender's lanes waited {waited} of the time for credit"
        );
        verdict(
            Stage::Credit.name(),
            share,
            sentence,
            "faster names and syncs at the destination would help".to_owned(),
        )
    }

    fn files_per_second(&self) -> String {
        match self.amounts {
            Amounts { files, seconds, .. } if seconds > 0.0 => {
                format!("{:.0} files a second", files as f64 / seconds)
            }
            _ => "files slowly".to_owned(),
        }
    }

    fn bytes_per_second(&self) -> String {
        match self.amounts {
            Amounts { bytes, seconds, .. } if seconds > 0.0 => {
                format!("{} a second", ByteCount((bytes as f64 / seconds) as u64))
            }
            _ => "data slowly".to_owned(),
        }
    }

    fn carried(&self) -> String {
        match self.amounts {
            Amounts { bytes, seconds, .. } if seconds > 0.0 => format!("it carried {}", Rate::over(bytes, seconds)),
            _ => String::new(),
        }
    }
}

pub(crate) fn none(sentence: &str) -> Bottleneck {
    verdict("none", 0.0, sentence.to_owned(), String::new())
}

/// How little of the processors lanes got that others use.
fn starved(side: &Side) -> String {
    let on_processor = percent(side.cpu);
    if side.is_contended() {
        let waited = percent(side.cpu_wait);
        return format!(
            "its lanes waited {waited} of the time for a processor, and had one for {on_processor}: \
             something else uses the processors"
        );
    }
    let (worked, computing) = (percent(side.busy()), percent(side.computing()));
    format!(
        "its lanes had work {worked} of the time, but a processor for only {on_processor}, while digest and encryption \
         alone took {computing}: something else uses the processors"
    )
}

fn verdict(stage: &'static str, share: f64, sentence: String, advice: String) -> Bottleneck {
    Bottleneck { stage, share: share.clamp(0.0, 1.0), sentence, advice, link_gain: None }
}

fn doing(stage: Stage) -> &'static str {
    match stage {
        Stage::Read => "reading",
        Stage::Seal => "encryption and sending",
        Stage::Open => "receiving and decryption",
        Stage::Digest => "digests",
        Stage::Create => "creating files",
        Stage::Write => "writing",
        Stage::Sync => "making data durable",
        Stage::Publish => "giving files their final names",
        Stage::Scan | Stage::Send | Stage::Credit | Stage::Receive | Stage::Memory | Stage::Limit => "waiting",
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
