//! A control stream: full duplex, one thread runs its loop, any thread queues bytes to send.
//!
//! Invariants:
//! - The loop never waits for anything but its poll, and always reads, however much waits to be sent: two peers that
//!   flood each other cannot lock up.
//! - Queued bytes are bounded. Only senders wait for room, and never the loop's own thread.
//! - Once the loop is gone (also by a panic of its handler) every sender is told so.
//! - A stream whose end was asked for ends, whatever the peer does or leaves undone.
//!
//! Not here: frames, pings (the handler sends them on a tick), what to do when the stream ends.

use std::io;
use std::net::Shutdown;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::connection::Connection;
use crate::inbound::{Inbound, Taken};
use crate::queue::{Budget, Phase, Queue, SendError};
use crate::record::{HEADER_BYTES, PLAINTEXT_BYTES_MAX, RecordError, RecordLayer, SEALED_BYTES_MAX};
use crate::socket::timespec;
use crate::stream::{Aborter, DataStream, Socket};

/// How long a stream that has said close_notify waits for the peer to say it too.
const LINGER_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
pub struct ControlOptions {
    /// Bytes that may wait to be sent. One message may exceed it if nothing else waits.
    pub queued_bytes_max: usize,
    /// The stream ends with `TimedOut` when nothing was received for this long.
    pub idle_timeout: Duration,
    /// Time between two ticks. Ticks missed while the handler was busy are not made up for.
    pub tick: Duration,
    /// How long a stream whose end was asked for goes on: for what is queued to leave, and for the peer to close too.
    pub end_timeout: Duration,
}

impl Default for ControlOptions {
    fn default() -> Self {
        Self {
            queued_bytes_max: 8 << 20,
            idle_timeout: Duration::from_secs(30),
            tick: Duration::from_secs(1),
            // All that may be queued leaves in it at 2.3 Mbit/s, so that no peer that reads is cut off; one that does not keeps a
            // thread, and what it was not sent, no longer than silence would.
            end_timeout: Duration::from_secs(30),
        }
    }
}

/// What the loop tells its handler.
#[derive(Debug)]
pub enum ControlEvent<'a> {
    /// The peer's next bytes, in order, cut anywhere, never empty.
    Received(&'a [u8]),
    /// `tick` has passed since the last one.
    Tick,
}

/// Why the loop ended.
#[derive(Debug)]
pub enum ControlEnd {
    /// The peer said close_notify first. What was queued here was sent, as far as the peer took it within 5 s.
    PeerClosed,
    /// `close_after_flush` or `leave_after_flush` was asked for; everything queued and close_notify have left.
    Closed,
    /// The handler broke the loop off.
    Stopped,
    /// [`Aborter::abort`] or [`ControlSender::abort`].
    Aborted,
    /// The connection ended without close_notify.
    Truncated,
    /// Nothing was received for the idle timeout.
    TimedOut,
    /// The peer did not take what was queued in the time that an end may take, whatever it sent meanwhile.
    Unread,
    /// The connection failed, or the peer broke TLS (`InvalidData`).
    Io(io::Error),
}

/// Queues bytes for the control stream, from any thread.
#[derive(Clone)]
pub struct ControlSender {
    queue: Arc<Queue>,
    aborter: Aborter,
}

impl ControlSender {
    /// Queues `bytes`. Waits while too many are queued, except on the loop's own thread, where that is an error.
    pub fn send(&self, bytes: Vec<u8>) -> Result<(), SendError> {
        self.queue.push(bytes, true)
    }

    /// The same without waiting, for whoever must not be held up by a peer that does not read.
    ///
    /// # Errors
    /// `Full` when there is no room.
    pub fn try_send(&self, bytes: Vec<u8>) -> Result<(), SendError> {
        self.queue.push(bytes, false)
    }

    /// Takes nothing more, and lets the loop end when everything queued and close_notify are sent. Does not wait.
    pub fn close_after_flush(&self) {
        self.queue.finish_by_sender();
    }

    /// The same, and the loop does not wait for the peer to close too: for whoever has heard everything it wants to hear, and
    /// would wait one round trip for nothing. What the peer still says is lost.
    pub fn leave_after_flush(&self) {
        self.queue.leave();
    }

    /// Breaks the connection off without sending what is queued.
    pub fn abort(&self) {
        self.aborter.abort();
    }

    pub fn queued_bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// Charges what waits from here on to an account, beyond a first part that costs nothing: where it is used up, there is no
    /// room. At most once.
    pub fn charge_to(&self, budget: Arc<dyn Budget>) {
        self.queue.charge_to(budget);
    }
}

/// The loop of a control stream, to be run on a thread of its own.
pub struct ControlStream {
    socket: Arc<Socket>,
    records: RecordLayer,
    inbound: Inbound,
    queue: Arc<Queue>,
    outgoing: Box<[u8]>,
    /// Sealed and not yet taken by the socket: a range of `outgoing`.
    unsent: std::ops::Range<usize>,
    options: ControlOptions,
    is_close_sent: bool,
    is_peer_closed: bool,
    last_received: Instant,
    next_tick: Instant,
    /// From when on the end is not waited for any more; it only comes nearer.
    end_deadline: Option<Instant>,
}

impl Connection {
    /// Goes on as a control stream. See [`DataStream::into_control`] if the peer first says what it wants.
    pub fn into_control(self, options: ControlOptions) -> io::Result<(ControlSender, ControlStream)> {
        self.into_data().into_control(options)
    }
}

impl DataStream {
    /// Goes on as a control stream, with whatever has been received but not been taken yet.
    pub fn into_control(self, options: ControlOptions) -> io::Result<(ControlSender, ControlStream)> {
        self.check_sendable()?;
        ControlStream::new(self, options)
    }
}

/// Whether the loop goes on, or how it ended.
type Flow = ControlFlow<ControlEnd>;

impl ControlStream {
    fn new(mut stream: DataStream, options: ControlOptions) -> io::Result<(ControlSender, Self)> {
        let aborter = stream.aborter();
        stream.widen();
        let DataStream { socket, records, inbound, outgoing, .. } = stream;
        let queue = Arc::new(Queue::new(options.queued_bytes_max)?);
        let now = Instant::now();
        let control = Self {
            socket,
            records,
            inbound,
            queue: queue.clone(),
            outgoing,
            unsent: 0..0,
            options,
            is_close_sent: false,
            is_peer_closed: false,
            last_received: now,
            next_tick: now + options.tick,
            end_deadline: None,
        };
        Ok((ControlSender { queue, aborter }, control))
    }

    /// A handle for other threads, with which they end the loop or sample the connection's TCP_INFO.
    pub fn aborter(&self) -> Aborter {
        Aborter { socket: Arc::downgrade(&self.socket) }
    }

    /// Runs the loop on the calling thread until the stream ends. `Break` from the handler ends it at once.
    pub fn run(mut self, mut handler: impl FnMut(ControlEvent<'_>) -> ControlFlow<()>) -> ControlEnd {
        self.queue.adopt_thread();
        self.last_received = Instant::now();
        self.next_tick = self.last_received + self.options.tick;
        loop {
            if let ControlFlow::Break(end) = self.turn(&mut handler) {
                return end;
            }
        }
    }

    /// One round: send what the socket takes, receive what it has (one buffer at most), tick, wait.
    fn turn(&mut self, handler: &mut impl FnMut(ControlEvent<'_>) -> ControlFlow<()>) -> Flow {
        self.queue.clear_wake();
        self.transmit()?;
        let has_received = self.receive(handler)?;
        let now = Instant::now();
        if now >= self.next_tick {
            self.next_tick = now + self.options.tick;
            stop_if_asked(handler(ControlEvent::Tick))?;
        }
        self.end_if_closed(now)?;
        if has_received {
            return Flow::Continue(());
        }
        // Judged only after a look at the socket: a handler may take its time.
        if !self.is_peer_closed && now >= self.last_received + self.options.idle_timeout {
            return Flow::Break(ControlEnd::TimedOut);
        }
        self.wait(now)
    }

    /// Seals and sends until the queue is empty or the socket full; close_notify follows the last byte.
    fn transmit(&mut self) -> Flow {
        loop {
            while !self.unsent.is_empty() {
                match self.socket.send(&self.outgoing[self.unsent.clone()]) {
                    Ok(sent) => self.unsent.start += sent,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Flow::Continue(()),
                    Err(e) => return self.end_by(e),
                }
            }
            match self.seal_queued() {
                Ok(0) => return Flow::Continue(()),
                Ok(sealed) => self.unsent = 0..sealed,
                Err(e) => return Flow::Break(ControlEnd::Io(io::Error::other(e))),
            }
        }
    }

    /// Fills `outgoing` with records made of queued bytes; returns their length.
    fn seal_queued(&mut self) -> Result<usize, RecordError> {
        if self.is_close_sent {
            return Ok(0);
        }
        let mut sealed = self.records.seal_due(&mut self.outgoing)?;
        while self.outgoing.len() - sealed >= SEALED_BYTES_MAX {
            let out = &mut self.outgoing[sealed..];
            let taken = self.queue.take(&mut out[HEADER_BYTES..HEADER_BYTES + PLAINTEXT_BYTES_MAX]);
            match taken.bytes {
                0 if taken.phase == Phase::Open => break,
                0 => {
                    sealed += self.records.seal_close_notify(out)?;
                    self.is_close_sent = true;
                    end_within(&mut self.end_deadline, LINGER_MAX);
                    break;
                }
                bytes => sealed += self.records.seal_gathered(bytes, out)?,
            }
        }
        Ok(sealed)
    }

    /// Receives once and hands over what is complete; whether there was anything.
    fn receive(
        &mut self,
        handler: &mut impl FnMut(ControlEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<ControlEnd, bool> {
        // What a data stream left behind comes before what the socket has.
        let handed_over = self.hand_over(handler)?;
        if self.is_peer_closed {
            return ControlFlow::Continue(false);
        }
        match self.socket.recv(self.inbound.space()) {
            Ok(bytes) => {
                self.inbound.extend(bytes);
                self.last_received = Instant::now();
                self.hand_over(handler)?;
                ControlFlow::Continue(true)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => ControlFlow::Continue(handed_over),
            Err(e) => self.end_by(e).map_continue(|()| false),
        }
    }

    fn hand_over(
        &mut self,
        handler: &mut impl FnMut(ControlEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<ControlEnd, bool> {
        let mut handed_over = false;
        while !self.is_peer_closed {
            match self.inbound.take_in_place(&mut self.records) {
                Ok((Taken::Bytes(_), bytes)) => stop_if_asked(handler(ControlEvent::Received(bytes)))?,
                Ok((Taken::NeedMore, _)) => break,
                Ok((Taken::Closed, _)) => {
                    self.is_peer_closed = true;
                    self.queue.finish();
                    end_within(&mut self.end_deadline, LINGER_MAX);
                }
                Err(e) => return ControlFlow::Break(ControlEnd::Io(self.socket.fail(&mut self.records, e))),
            }
            handed_over = true;
        }
        ControlFlow::Continue(handed_over)
    }

    /// Ends the loop once both sides have closed, or one of them has waited long enough for the other.
    fn end_if_closed(&mut self, now: Instant) -> Flow {
        let was_finished_by_sender = self.queue.was_finished_by_sender();
        // Whatever the peer still sends: it may send for ever, and take nothing.
        if was_finished_by_sender && self.end_deadline.is_none() {
            end_within(&mut self.end_deadline, self.options.end_timeout);
        }
        let is_flushed = self.is_close_sent && self.unsent.is_empty();
        let is_too_late = self.end_deadline.is_some_and(|deadline| now >= deadline);
        let is_over = (self.is_peer_closed || self.queue.is_leaving()) && is_flushed || is_too_late;
        match (is_over, was_finished_by_sender) {
            (false, _) => Flow::Continue(()),
            // The peer took nothing more within the time that a close may take.
            (true, true) if !is_flushed => Flow::Break(ControlEnd::Unread),
            (true, true) => Flow::Break(ControlEnd::Closed),
            (true, false) => Flow::Break(ControlEnd::PeerClosed),
        }
    }

    fn wait(&mut self, now: Instant) -> Flow {
        let idle_deadline = Some(self.last_received + self.options.idle_timeout).filter(|_| !self.is_peer_closed);
        let deadlines = [Some(self.next_tick), idle_deadline, self.end_deadline];
        let deadline = deadlines.into_iter().flatten().min().unwrap_or(self.next_tick);
        let timeout = timespec(deadline.saturating_duration_since(now));

        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, !self.is_peer_closed);
        events.set(PollFlags::OUT, !self.unsent.is_empty());
        let mut fds = [PollFd::new(self.queue.wake_fd(), PollFlags::IN), PollFd::new(&self.socket.tcp, events)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Flow::Continue(()),
            Err(e) => Flow::Break(ControlEnd::Io(e.into())),
        }
    }

    fn end_by(&self, error: io::Error) -> Flow {
        Flow::Break(match error.kind() {
            _ if self.socket.is_aborted() => ControlEnd::Aborted,
            // A peer that said close_notify need not take what we still had to say.
            _ if self.is_peer_closed && !self.queue.was_finished_by_sender() => ControlEnd::PeerClosed,
            io::ErrorKind::UnexpectedEof => ControlEnd::Truncated,
            _ => ControlEnd::Io(error),
        })
    }
}

impl Drop for ControlStream {
    fn drop(&mut self) {
        self.queue.close();
        if self.is_close_sent && self.unsent.is_empty() {
            // The peer has been told already; this only brings the FIN forward if an aborter holds the socket.
            let _ = self.socket.tcp.shutdown(Shutdown::Write);
        }
    }
}

/// Brings the end nearer, if it is not as near already.
fn end_within(deadline: &mut Option<Instant>, time: Duration) {
    let latest = Instant::now() + time;
    *deadline = Some(deadline.map_or(latest, |deadline| deadline.min(latest)));
}

fn stop_if_asked(flow: ControlFlow<()>) -> Flow {
    flow.map_break(|()| ControlEnd::Stopped)
}
