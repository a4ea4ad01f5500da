//! The data streams of one job: to break them off, and to read what the kernel counted on them.
//!
//! A silent stream is told from a stalled one by who answers: behind a full receive window there is a kernel that
//! acknowledges probes, however long its program waits for a disk; behind a blocked path there is nobody.

use crate::limits::{
    STRAGGLER_TIMEOUT, STREAM_PROBES_MAX, STREAM_TIMEOUT, WAY_ALIVE, WAY_SILENCE, WAY_SILENCE_RECEIVING,
};
use model::mutant;
use model::paths::PATHS_MAX;
use model::progress::StreamFacts;
use net::{Aborter, TcpInfo};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a wait for the end of streams looks.
const END_INTERVAL: Duration = Duration::from_millis(20);

/// A stream that rests keeps the round trip of its last packets, which tells nothing of the path any more.
const QUIET_MS: u32 = 1_000;

#[derive(Default)]
pub struct StreamWatch {
    streams: Mutex<Streams>,
}

/// Those that are open, and what is kept of those that have ended: a job may have very many, one after the other.
#[derive(Default)]
struct Streams {
    open: Vec<Watched>,
    /// By the place of their path.
    ended: BTreeMap<usize, Ended>,
    /// Addresses between which streams came, at an endpoint; the place of a pair is its path's.
    ways: Vec<(IpAddr, IpAddr)>,
}

#[derive(Default)]
struct Ended {
    facts: StreamFacts,
    moved_bytes: u64,
    segments_sent: u64,
    progressed_at: Option<Instant>,
}

impl Streams {
    /// Forgets streams that have ended, but for their sums.
    fn prune(&mut self) {
        let Streams { open, ended, .. } = self;
        open.retain(|stream| {
            let is_alive = stream.aborter.is_alive();
            if !is_alive {
                let ended = ended.entry(stream.way).or_default();
                add_facts(&mut ended.facts, &stream.facts);
                ended.moved_bytes += stream.moved_bytes;
                ended.segments_sent += stream.segments_sent;
                ended.progressed_at = ended.progressed_at.max(Some(stream.progressed_at));
            }
            is_alive
        });
    }

    /// When something moved last, on each path on which there is or was a stream.
    fn progress(&self) -> BTreeMap<usize, Instant> {
        let ended = self.ended.iter().filter_map(|(way, ended)| Some((*way, ended.progressed_at?)));
        let mut last: BTreeMap<usize, Instant> = ended.collect();
        for stream in &self.open {
            last.entry(stream.way)
                .and_modify(|at| *at = (*at).max(stream.progressed_at))
                .or_insert(stream.progressed_at);
        }
        last
    }

    /// Paths on which nobody answers while another one goes on. `unanswered` tells of each open stream whether something that was
    /// sent on it is not acknowledged: not even by a kernel whose program waits for its disk.
    fn silent_ways(&self, now: Instant, unanswered: &[bool]) -> Vec<usize> {
        let last = self.progress();
        let idle = |at: &Instant| now.saturating_duration_since(*at);
        let is_silent = |(way, at): (&usize, &Instant)| {
            let others_go_on = last.iter().any(|(other, at)| other != way && idle(at) < WAY_ALIVE);
            let of_way = || self.open.iter().zip(unanswered).filter(|(stream, _)| stream.way == *way);
            let patience = match of_way().any(|(_, is_unanswered)| *is_unanswered) {
                true => WAY_SILENCE,
                false if of_way().any(|(stream, _)| stream.is_receiving) => WAY_SILENCE_RECEIVING,
                false => return None,
            };
            (others_go_on && idle(at) >= patience).then_some(*way)
        };
        if last.len() < 2 || mutant::is_on("wait-for-silent-paths") {
            Vec::new()
        } else {
            last.iter().filter_map(is_silent).collect()
        }
    }
}

fn add_facts(sum: &mut StreamFacts, facts: &StreamFacts) {
    sum.streams += facts.streams;
    sum.retransmits += facts.retransmits;
    sum.busy_us += facts.busy_us;
    sum.receive_window_limited_us += facts.receive_window_limited_us;
    sum.send_buffer_limited_us += facts.send_buffer_limited_us;
    if facts.rtt_us_min > 0 && (sum.rtt_us_min == 0 || facts.rtt_us_min < sum.rtt_us_min) {
        sum.rtt_us_min = facts.rtt_us_min;
    }
}

struct Watched {
    aborter: Aborter,
    /// Place of its path among those of the job.
    way: usize,
    /// More has come than went.
    is_receiving: bool,
    /// The last sample; it stays when the stream is gone.
    facts: StreamFacts,
    moved_bytes: u64,
    segments_sent: u64,
    /// Samples with data under way, and those in which all that the send buffer may hold was, with windows to spare.
    samples: u64,
    short_samples: u64,
    /// As the last check saw them, and when that was more than before.
    progressed_bytes: u64,
    progressed_at: Instant,
    /// At the last sample.
    is_waiting: bool,
    /// Since when something waits and nothing is taken.
    stands_since: Instant,
    /// What its packets are marked with.
    dscp: u8,
    /// What it had before it was given another congestion control.
    own_congestion: Option<String>,
}

/// What all streams together have moved, and how long packets take on those that are open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flow {
    pub streams_open: u32,
    /// Acknowledged by the other side's kernel, or received by this one's; records and handshakes included.
    pub moved_bytes: u64,
    /// Those that were sent again included.
    pub segments_sent: u64,
    /// Round trip as the sending or the receiving end has it, and its variation, 0 where the kernel keeps none: means
    /// over the streams.
    pub rtt_us: u64,
    pub rtt_var_us: u64,
}

/// Whether the others went on for long after a stream stood still.
fn is_straggler(stands_since: Instant, others_last: Instant) -> bool {
    others_last.saturating_duration_since(stands_since) >= STRAGGLER_TIMEOUT
}

impl Watched {
    /// Looks whether anything moved on the stream; one that has nothing to move does not stand still.
    fn note_progress(&mut self, now: Instant) -> Option<TcpInfo> {
        let info = self.aborter.watched_tcp_info()?;
        let progressed_bytes = info.bytes_acked + info.bytes_received;
        self.is_receiving = info.bytes_received > info.bytes_acked;
        if progressed_bytes != self.progressed_bytes {
            (self.progressed_bytes, self.progressed_at) = (progressed_bytes, now);
            self.stands_since = now;
        } else if !is_waiting(&info) {
            self.stands_since = now;
        }
        Some(info)
    }

    fn sample(&mut self, info: &TcpInfo) {
        if info.unacked_segments > 0 {
            self.samples += 1;
            self.short_samples += u64::from(has_sent_all(info));
        }
        // The kernel counts a send buffer as the limit only if it ran empty within the same call that filled it.
        let short_us = info.busy_us.saturating_mul(self.short_samples) / self.samples.max(1);
        self.facts = StreamFacts {
            streams: 1,
            rtt_us_min: u64::from(info.rtt_us_min),
            retransmits: u64::from(info.retransmitted_segments_total),
            busy_us: info.busy_us,
            receive_window_limited_us: info.rwnd_limited_us,
            send_buffer_limited_us: info.sndbuf_limited_us.max(short_us),
        };
    }
}

/// Everything handed to the kernel is under way, and three quarters of neither window are used.
fn has_sent_all(info: &TcpInfo) -> bool {
    let unacked = u64::from(info.unacked_segments);
    let (window, under_way) = (u64::from(info.send_window_bytes), unacked * u64::from(info.mss_bytes));
    let has_room = unacked * 4 < u64::from(info.cwnd_segments) * 3 && (window == 0 || under_way * 4 < window * 3);
    info.not_sent_bytes == 0 && has_room
}

/// Something was handed to the kernel that the other end has not acknowledged.
fn is_waiting(info: &TcpInfo) -> bool {
    info.unacked_segments > 0 || info.not_sent_bytes > 0
}

/// Whether nobody acknowledges what is sent on a stream. `heard_ms` is how long ago the same peer was heard on its control
/// stream: a network that is gone for both is judged there.
fn is_silent(info: &TcpInfo, heard_ms: u32) -> bool {
    let timeout_ms = heard_ms.saturating_add(STREAM_TIMEOUT.as_millis() as u32);
    is_waiting(info) && is_unanswered(info) && info.last_ack_received_ms > timeout_ms
}

/// What was sent again, or several probes, had no answer. While the window is closed, probes are sent, and answered, ever more rarely.
fn is_unanswered(info: &TcpInfo) -> bool {
    let are_probes_lost = info.probes >= STREAM_PROBES_MAX;
    are_probes_lost || info.unacked_segments > 0 && info.retransmits > 0
}

impl StreamWatch {
    /// Breaks off the streams on which nobody answers, and those that are stuck while others go on; returns how many.
    pub fn end_stuck(&self, heard_ms: u32, now: Instant) -> usize {
        let mut streams = self.streams.lock().unwrap();
        let infos: Vec<_> = streams.open.iter_mut().map(|stream| stream.note_progress(now)).collect();
        let unanswered: Vec<_> = infos.iter().map(|info| info.as_ref().is_some_and(is_unanswered)).collect();
        let silent = streams.silent_ways(now, &unanswered);
        let last = streams.progress().into_values().max().unwrap_or(now);
        let stuck = streams.open.iter().zip(infos).filter(|(stream, info)| {
            let is_stuck = |info: &TcpInfo| is_waiting(info) && is_straggler(stream.stands_since, last);
            silent.contains(&stream.way) || info.is_some_and(|info| is_silent(&info, heard_ms) || is_stuck(&info))
        });
        stuck.inspect(|(stream, _)| stream.aborter.abort()).count()
    }

    /// Breaks off the streams on which the peer has moved nothing for so long, and of which nothing waits to be read here.
    pub fn end_idle(&self, idle: Duration) {
        let now = Instant::now();
        for stream in self.streams.lock().unwrap().open.iter_mut() {
            stream.note_progress(now);
            let is_idle = now.saturating_duration_since(stream.progressed_at) >= idle;
            if is_idle && stream.aborter.is_alive() && stream.aborter.unread_bytes() == 0 {
                stream.aborter.abort();
            }
        }
    }

    /// The place of the path that leads from one address to another.
    pub fn way_between(&self, local: IpAddr, remote: IpAddr) -> usize {
        let mut streams = self.streams.lock().unwrap();
        let found = streams.ways.iter().position(|way| *way == (local, remote));
        // A client with more addresses than that has the rest of its streams taken for one path.
        found.unwrap_or_else(|| {
            if streams.ways.len() < PATHS_MAX {
                streams.ways.push((local, remote));
            }
            streams.ways.len() - 1
        })
    }

    /// Its streams are or were on more than one path.
    pub fn has_several_ways(&self) -> bool {
        let streams = self.streams.lock().unwrap();
        streams.open.iter().map(|stream| stream.way).chain(streams.ended.keys().copied()).any(|way| way > 0)
    }

    /// Breaks off the streams of one path.
    pub fn abort_on(&self, way: usize) {
        let streams = self.streams.lock().unwrap();
        streams.open.iter().filter(|stream| stream.way == way).for_each(|stream| stream.aborter.abort());
    }

    /// When anything moved last, as far as was looked.
    pub fn last_progress(&self) -> Option<Instant> {
        self.streams.lock().unwrap().progress().into_values().max()
    }

    /// The path on which something moved last.
    pub fn latest_way(&self) -> Option<usize> {
        self.streams.lock().unwrap().progress().into_iter().max_by_key(|(_, at)| *at).map(|(way, _)| way)
    }

    pub fn add(&self, aborter: Aborter, way: usize) {
        let now = Instant::now();
        let mut streams = self.streams.lock().unwrap();
        streams.prune();
        streams.open.push(Watched {
            aborter,
            way,
            is_receiving: false,
            facts: StreamFacts::default(),
            moved_bytes: 0,
            segments_sent: 0,
            samples: 0,
            short_samples: 0,
            progressed_bytes: 0,
            progressed_at: now,
            is_waiting: false,
            stands_since: now,
            dscp: 0,
            own_congestion: None,
        });
    }

    /// Streams that are still there.
    pub fn count(&self) -> usize {
        self.streams.lock().unwrap().open.iter().filter(|stream| stream.aborter.tcp_info().is_some()).count()
    }

    /// Waits until every stream has ended, at most for `patience`.
    pub fn wait_for_end(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let is_any_alive = || self.streams.lock().unwrap().open.iter().any(|stream| stream.aborter.is_alive());
        while is_any_alive() && Instant::now() < deadline {
            std::thread::park_timeout(END_INTERVAL);
        }
    }

    pub fn abort(&self) {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.open.iter().for_each(|stream| stream.aborter.abort());
    }

    /// Marks what the open streams send from here.
    pub fn mark(&self, dscp: u8) {
        self.streams.lock().unwrap().open.iter_mut().filter(|stream| stream.dscp != dscp).for_each(|stream| {
            stream.aborter.set_dscp(dscp);
            stream.dscp = dscp;
        });
    }

    /// Has every open stream use that congestion control, or what it had of itself. What may not be used changes nothing. True when a
    /// stream was given it.
    pub fn use_congestion(&self, name: Option<&str>) -> bool {
        let mut has_changed = false;
        for stream in self.streams.lock().unwrap().open.iter_mut().filter(|stream| stream.aborter.is_alive()) {
            match name {
                Some(name) if stream.own_congestion.is_none() => {
                    let own = stream.aborter.congestion();
                    if stream.aborter.set_congestion(name).is_ok() {
                        (stream.own_congestion, has_changed) = (own, true);
                    }
                }
                Some(_) => {}
                None => {
                    if let Some(own) = stream.own_congestion.take() {
                        let _ = stream.aborter.set_congestion(&own);
                    }
                }
            }
        }
        has_changed
    }

    /// Once no more than so many streams have something to send, these begin that congestion control anew: what they learned of the path
    /// beside the others holds no more. True when that was done.
    pub fn restart_congestion(&self, name: &str, count: usize) -> bool {
        let streams = self.streams.lock().unwrap();
        let waiting = || streams.open.iter().filter(|stream| stream.is_waiting && stream.aborter.is_alive());
        if !(1..=count).contains(&waiting().count()) {
            return false;
        }
        for stream in waiting() {
            if let Some(own) = &stream.own_congestion {
                let _ = stream.aborter.set_congestion(own);
                let _ = stream.aborter.set_congestion(name);
            }
        }
        true
    }

    /// Sums over all streams, those that are gone by their last sample.
    pub fn facts(&self) -> StreamFacts {
        self.sample(None).0
    }

    /// The same of one path or of all, and what it amounts to at this moment.
    pub fn sample(&self, of: Option<usize>) -> (StreamFacts, Flow) {
        let mut streams = self.streams.lock().unwrap();
        let is_of = |way: usize| of.is_none_or(|of| of == way);
        let (mut sum, mut flow) = (StreamFacts::default(), Flow::default());
        for (_, ended) in streams.ended.iter().filter(|(way, _)| is_of(**way)) {
            add_facts(&mut sum, &ended.facts);
            flow.moved_bytes += ended.moved_bytes;
            flow.segments_sent += ended.segments_sent;
        }
        let mut moving = 0;
        for stream in streams.open.iter_mut().filter(|stream| is_of(stream.way)) {
            if let Some(info) = stream.aborter.tcp_info() {
                flow.streams_open += 1;
                // A receiver sends nothing whose round trip tells of the queue; what arrives echoes its time stamps.
                let is_receiving = info.bytes_received > info.bytes_acked;
                let quiet_ms = if is_receiving { info.last_data_received_ms } else { info.last_ack_received_ms };
                if quiet_ms < QUIET_MS {
                    moving += 1;
                    flow.rtt_us += u64::from(if is_receiving { info.receive_rtt_us } else { info.rtt_us });
                    flow.rtt_var_us += u64::from(if is_receiving { 0 } else { info.rtt_var_us });
                }
                stream.moved_bytes = info.bytes_acked + info.bytes_received;
                stream.segments_sent = u64::from(info.segments_sent);
                stream.is_waiting = is_waiting(&info);
                stream.sample(&info);
            }
            flow.moved_bytes += stream.moved_bytes;
            flow.segments_sent += stream.segments_sent;
            add_facts(&mut sum, &stream.facts);
        }
        let moving = moving.max(1);
        (flow.rtt_us, flow.rtt_var_us) = (flow.rtt_us / moving, flow.rtt_var_us / moving);
        (sum, flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Something is sent, and the last word came that long ago.
    fn waiting(last_ack_received_ms: u32) -> TcpInfo {
        TcpInfo { unacked_segments: 5, retransmits: 6, last_ack_received_ms, ..TcpInfo::default() }
    }

    /// A stream on a path, last moved so long ago.
    fn on(way: usize, idle: Duration, is_receiving: bool, now: Instant) -> Watched {
        let at = now.checked_sub(idle).unwrap();
        Watched {
            aborter: Aborter::default(),
            way,
            dscp: 0,
            own_congestion: None,
            is_receiving,
            facts: StreamFacts::default(),
            moved_bytes: 0,
            segments_sent: 0,
            samples: 0,
            short_samples: 0,
            progressed_bytes: 0,
            progressed_at: at,
            is_waiting: false,
            stands_since: at,
        }
    }

    #[test]
    fn a_silent_path_ends_only_while_another_goes_on() {
        let now = Instant::now() + Duration::from_secs(100);
        let silent = |streams: &[(usize, u64, bool, bool)]| {
            let open =
                streams.iter().map(|(way, idle, receives, _)| on(*way, Duration::from_secs(*idle), *receives, now));
            let waiting: Vec<_> = streams.iter().map(|(.., is_waiting)| *is_waiting).collect();
            Streams { open: open.collect(), ..Streams::default() }.silent_ways(now, &waiting)
        };
        assert_eq!(silent(&[(0, 0, false, true), (1, 4, false, true)]), [1]);
        assert_eq!(silent(&[(0, 0, false, true), (1, 3, false, true)]), [0; 0]);
        // One of its streams goes on.
        assert_eq!(silent(&[(0, 0, false, true), (1, 9, false, true), (1, 0, false, true)]), [0; 0]);
        // Nothing was sent that could be acknowledged.
        assert_eq!(silent(&[(0, 0, false, true), (1, 60, false, false)]), [0; 0]);
        // A receiver waits longer: the sender may have nothing for it.
        assert_eq!(silent(&[(0, 0, true, false), (1, 19, true, false)]), [0; 0]);
        assert_eq!(silent(&[(0, 0, true, false), (1, 20, true, false)]), [1]);
        // All stand still: that is storage, or the whole network.
        assert_eq!(silent(&[(0, 9, false, true), (1, 9, false, true)]), [0; 0]);
        assert_eq!(silent(&[(0, 60, false, true)]), [0; 0]);
    }

    #[test]
    fn streams_that_have_ended_are_kept_as_one_sum() {
        let watch = StreamWatch::default();
        for _ in 0..1000 {
            watch.add(Aborter::default(), 0);
            let mut streams = watch.streams.lock().unwrap();
            assert_eq!(streams.open.len(), 1);
            streams.open[0].moved_bytes = 7;
            streams.open[0].facts = StreamFacts { streams: 1, retransmits: 2, rtt_us_min: 5, ..StreamFacts::default() };
        }
        let (facts, flow) = watch.sample(None);
        assert_eq!((facts.streams, facts.retransmits, facts.rtt_us_min, flow.moved_bytes), (1000, 2000, 5, 7000));
    }

    #[test]
    fn a_stream_is_silent_when_it_alone_is_not_answered() {
        assert!(is_silent(&waiting(21_000), 500));
        assert!(!is_silent(&waiting(19_000), 500));
        // The whole network is gone: the control stream judges.
        assert!(!is_silent(&waiting(21_000), 20_000));
        // Nothing is sent: nobody has to answer.
        assert!(!is_silent(&TcpInfo { last_ack_received_ms: 900_000, ..TcpInfo::default() }, 0));
        // Acknowledged only late, but nothing had to be sent again.
        assert!(!is_silent(&TcpInfo { retransmits: 0, ..waiting(21_000) }, 0));
    }

    #[test]
    fn a_closed_window_whose_probes_are_answered_is_a_stall_and_no_silence() {
        let stalled =
            TcpInfo { not_sent_bytes: 4 << 20, probes: 1, last_ack_received_ms: 110_000, ..TcpInfo::default() };
        assert!(!is_silent(&stalled, 0));
        assert!(is_silent(&TcpInfo { probes: STREAM_PROBES_MAX, ..stalled }, 0));
    }

    #[test]
    fn a_stream_that_stands_still_is_a_straggler_only_while_others_go_on() {
        let start = Instant::now();
        assert!(is_straggler(start, start + STRAGGLER_TIMEOUT));
        // All stopped within a minute of each other: that is the disk.
        assert!(!is_straggler(start, start + STRAGGLER_TIMEOUT / 2));
        assert!(!is_straggler(start + STRAGGLER_TIMEOUT, start));
    }
}
