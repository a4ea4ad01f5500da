//! Messages and byte streams over one pair of pipes.
//!
//! `frame` is what goes through the pipes. Channels are opened by one side and stand for a TCP connection at either end. Each
//! direction of a channel has a window: nobody sends what the other side has no room for.
//!
//! Invariants:
//! - The thread that reads frames never waits for a channel's socket, nor for its own side's turn to write: two sides that
//!   are both busy sending cannot lock up.
//! - What the other side can make this one hold is bounded: channels, a window for each, the messages not yet taken.
//! - When the pipes end, every channel's connection ends too.
//!
//! Not here: what a message says, and encryption: the streams are TLS from end to end, and ssh has its own.

mod frame;

pub use frame::{read_message, write_message};

use frame::{DATA_BYTES_MAX, Frame, Kind, invalid, read_frame, write_frame};
use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// As much as OpenSSH itself lets one channel have under way.
const WINDOW_BYTES: usize = 2 << 20;
const CREDIT_STEP_BYTES: usize = WINDOW_BYTES / 8;
/// Channels that the side which opens them has at once: as many streams as a user may ask for, and room to spare.
const OPENED_MAX: usize = 96;
/// What the other side bears: it may learn late that one has ended.
const CHANNELS_MAX: usize = 256;
/// Of at most 2 MiB each. A terminal that is stopped for a minute holds up no link.
const MESSAGES_MAX: usize = 64;

/// Gives the connection that a channel opened by the other side is for.
pub type Accept = Box<dyn Fn() -> io::Result<TcpStream> + Send + Sync>;

/// One side of the link. Clones share it.
#[derive(Clone)]
pub struct Link {
    shared: Arc<Shared>,
}

struct Shared {
    /// Held while one frame is written: as long as the other side takes to read it.
    writer: Mutex<Option<Box<dyn Write + Send>>>,
    channels: Mutex<Channels>,
    next_channel: AtomicU32,
    accept: Option<Accept>,
}

#[derive(Default)]
struct Channels {
    by_number: HashMap<u32, Arc<Channel>>,
    is_closed: bool,
}

impl Link {
    /// Runs the link on a thread of its own. The receiver hands out messages, and ends with the link.
    pub fn start(
        mut reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
        accept: Option<Accept>,
    ) -> io::Result<(Link, Receiver<Vec<u8>>)> {
        let shared = Shared {
            writer: Mutex::new(Some(Box::new(writer))),
            channels: Mutex::default(),
            next_channel: AtomicU32::new(1),
            accept,
        };
        let link = Link { shared: Arc::new(shared) };
        let (messages, received) = sync_channel(MESSAGES_MAX);
        let for_thread = link.clone();
        let run = move || {
            if let Err(e) = for_thread.run(&mut reader, &messages) {
                tracing::debug!(error = %e, "link broken");
            }
            for_thread.close();
        };
        std::thread::Builder::new().name("link".into()).spawn(run)?;
        Ok((link, received))
    }

    pub fn send_message(&self, message: &[u8]) -> io::Result<()> {
        self.send(Kind::Message, 0, message)
    }

    /// Carries a connection to the other side, which connects it as its `accept` says. The channel's own thread says so to the
    /// other side: whoever has a connection carried waits for what comes out of it, and never for a link that hangs.
    pub fn carry(&self, socket: TcpStream) -> io::Result<()> {
        let number = self.shared.next_channel.fetch_add(1, Relaxed);
        let channel = self.add_channel(number, OPENED_MAX)?;
        let link = self.clone();
        let running = self.run_channel(channel, move || link.send(Kind::Open, number, &[]).map(|()| socket));
        running.inspect_err(|_| self.remove_channel(number))
    }

    /// Ends everything; the other side's reader finds the end of its input.
    pub fn close(&self) {
        let mut channels = lock(&self.shared.channels);
        channels.is_closed = true;
        let open = std::mem::take(&mut channels.by_number);
        drop(channels);
        open.into_values().for_each(|channel| channel.abort());
        // After the channels: whoever waits here is one of them, whose write fails or ends.
        lock(&self.shared.writer).take();
    }

    fn run(&self, reader: &mut impl Read, messages: &SyncSender<Vec<u8>>) -> io::Result<()> {
        while let Some(frame) = read_frame(reader)? {
            match frame.kind {
                // Nobody listens any more: there is nobody who could mind.
                Kind::Message => _ = messages.send(frame.body),
                Kind::Open => self.accept_channel(frame.channel)?,
                Kind::Data | Kind::End | Kind::Credit | Kind::Abort => {
                    let channel = lock(&self.shared.channels).by_number.get(&frame.channel).cloned();
                    // One that ended here may be spoken of until the other side knows.
                    if let Some(channel) = channel {
                        channel.receive(frame)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn accept_channel(&self, number: u32) -> io::Result<()> {
        if self.shared.accept.is_none() {
            return Err(invalid("a channel that nobody expects"));
        }
        let channel = self.add_channel(number, CHANNELS_MAX)?;
        let link = self.clone();
        self.run_channel(channel, move || match &link.shared.accept {
            Some(accept) => accept(),
            None => Err(io::ErrorKind::NotConnected.into()),
        })
    }

    fn add_channel(&self, number: u32, channels_max: usize) -> io::Result<Arc<Channel>> {
        let mut channels = lock(&self.shared.channels);
        if channels.is_closed {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if channels.by_number.len() >= channels_max || channels.by_number.contains_key(&number) {
            return Err(invalid("too many channels, or two with one number"));
        }
        let channel = Arc::new(Channel::new(number));
        channels.by_number.insert(number, channel.clone());
        Ok(channel)
    }

    fn remove_channel(&self, number: u32) {
        lock(&self.shared.channels).by_number.remove(&number);
    }

    /// Gives a channel its two threads.
    fn run_channel(
        &self,
        channel: Arc<Channel>,
        connect: impl FnOnce() -> io::Result<TcpStream> + Send + 'static,
    ) -> io::Result<()> {
        let link = self.clone();
        let run = move || {
            match connect().and_then(|socket| link.pump(&channel, &socket)) {
                Ok(()) => {}
                Err(e) => {
                    tracing::debug!(error = %e, "channel broken off");
                    channel.abort();
                    let _ = link.send(Kind::Abort, channel.number, &[]);
                }
            }
            link.remove_channel(channel.number);
        };
        std::thread::Builder::new().name("channel".into()).spawn(run).map(drop)
    }

    /// Moves bytes both ways until both directions have ended.
    fn pump(&self, channel: &Channel, socket: &TcpStream) -> io::Result<()> {
        socket.set_nodelay(true)?;
        channel.attach(socket.try_clone()?);
        std::thread::scope(|scope| {
            let inward = std::thread::Builder::new().name("channel-in".into());
            let inward =
                inward.spawn_scoped(scope, || self.pump_in(channel, socket).inspect_err(|_| channel.abort()))?;
            let outward = self.pump_out(channel, socket).inspect_err(|_| channel.abort());
            let inward = inward.join().unwrap_or_else(|_| Err(io::Error::other("a channel's thread failed")));
            outward.and(inward)
        })
    }

    fn pump_out(&self, channel: &Channel, mut socket: &TcpStream) -> io::Result<()> {
        let mut buffer = vec![0; DATA_BYTES_MAX];
        loop {
            let room = channel.wait_for_credit()?.min(DATA_BYTES_MAX);
            match socket.read(&mut buffer[..room]) {
                Ok(0) => return self.send(Kind::End, channel.number, &[]),
                Ok(bytes) => {
                    channel.use_credit(bytes);
                    self.send(Kind::Data, channel.number, &buffer[..bytes])?;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn pump_in(&self, channel: &Channel, mut socket: &TcpStream) -> io::Result<()> {
        let mut owed = 0;
        while let Some(bytes) = channel.next()? {
            socket.write_all(&bytes)?;
            owed += bytes.len();
            if owed >= CREDIT_STEP_BYTES {
                channel.give_room(owed);
                self.send(Kind::Credit, channel.number, &(owed as u32).to_le_bytes())?;
                owed = 0;
            }
        }
        // A peer that has closed already needs no word.
        let _ = socket.shutdown(Shutdown::Write);
        Ok(())
    }

    fn send(&self, kind: Kind, channel: u32, body: &[u8]) -> io::Result<()> {
        match &mut *lock(&self.shared.writer) {
            Some(writer) => write_frame(writer, kind, channel, body),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

struct Channel {
    number: u32,
    state: Mutex<ChannelState>,
    changed: Condvar,
}

#[derive(Default)]
struct ChannelState {
    incoming: VecDeque<Vec<u8>>,
    /// Received, and its room not given back.
    held_bytes: usize,
    is_ended: bool,
    is_aborted: bool,
    credit_bytes: usize,
    /// A second handle of the connection, to end it.
    socket: Option<TcpStream>,
}

impl Channel {
    fn new(number: u32) -> Channel {
        let state = ChannelState { credit_bytes: WINDOW_BYTES, ..ChannelState::default() };
        Channel { number, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn attach(&self, socket: TcpStream) {
        let mut state = lock(&self.state);
        if state.is_aborted {
            let _ = socket.shutdown(Shutdown::Both);
        }
        state.socket = Some(socket);
    }

    /// Takes a frame from the other side. An error is the other side's fault, and ends the link.
    fn receive(&self, frame: Frame) -> io::Result<()> {
        let mut state = lock(&self.state);
        match frame.kind {
            Kind::Data => {
                state.held_bytes += frame.body.len();
                if frame.body.is_empty() || state.held_bytes > WINDOW_BYTES || state.is_ended {
                    return Err(invalid("no data, or more than there is room for"));
                }
                // Small ones share a buffer: the window bounds their bytes, and not what each takes besides.
                match state.incoming.back_mut() {
                    Some(last) if last.len() + frame.body.len() <= DATA_BYTES_MAX => last.extend(frame.body),
                    _ => state.incoming.push_back(frame.body),
                }
            }
            Kind::End => state.is_ended = true,
            Kind::Credit => {
                let bytes =
                    frame.body.try_into().map(u32::from_le_bytes).map_err(|_| invalid("a credit of no number"))?;
                state.credit_bytes += bytes as usize;
                if state.credit_bytes > WINDOW_BYTES {
                    return Err(invalid("more room than was taken"));
                }
            }
            _ => {
                drop(state);
                self.abort();
                return Ok(());
            }
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    fn wait_for_credit(&self) -> io::Result<usize> {
        let waits = |state: &mut ChannelState| state.credit_bytes == 0 && !state.is_aborted;
        let state = self.changed.wait_while(lock(&self.state), waits).unwrap_or_else(PoisonError::into_inner);
        if state.is_aborted { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(state.credit_bytes) }
    }

    fn use_credit(&self, bytes: usize) {
        lock(&self.state).credit_bytes -= bytes;
    }

    fn give_room(&self, bytes: usize) {
        lock(&self.state).held_bytes -= bytes;
    }

    /// The next bytes for the socket; `None` at their end.
    fn next(&self) -> io::Result<Option<Vec<u8>>> {
        let waits = |state: &mut ChannelState| state.incoming.is_empty() && !state.is_ended && !state.is_aborted;
        let mut state = self.changed.wait_while(lock(&self.state), waits).unwrap_or_else(PoisonError::into_inner);
        if state.is_aborted {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(state.incoming.pop_front())
    }

    fn abort(&self) {
        let mut state = lock(&self.state);
        state.is_aborted = true;
        if let Some(socket) = &state.socket {
            let _ = socket.shutdown(Shutdown::Both);
        }
        drop(state);
        self.changed.notify_all();
    }
}

/// What is kept under these locks is right after each statement: a panic elsewhere does not harm it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::frame::MESSAGE_BYTES_MAX;
    use super::*;
    use std::net::TcpListener;

    /// A link whose remote side connects channels to a listener, with both ends' messages.
    fn linked() -> (Link, Receiver<Vec<u8>>, Link, Receiver<Vec<u8>>, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (near_reads, far_writes) = io::pipe().unwrap();
        let (far_reads, near_writes) = io::pipe().unwrap();
        let (near, near_messages) = Link::start(near_reads, near_writes, None).unwrap();
        let accept: Accept = Box::new(move || TcpStream::connect(address));
        let (far, far_messages) = Link::start(far_reads, far_writes, Some(accept)).unwrap();
        (near, near_messages, far, far_messages, listener)
    }

    /// A connection that the link carries, and where it comes out.
    fn carried(link: &Link, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let here = TcpListener::bind("127.0.0.1:0").unwrap();
        let inner = TcpStream::connect(here.local_addr().unwrap()).unwrap();
        link.carry(here.accept().unwrap().0).unwrap();
        (inner, listener.accept().unwrap().0)
    }

    #[test]
    fn messages_and_streams_arrive_whole_and_ends_are_passed_on() {
        let (near, near_messages, far, far_messages, listener) = linked();
        near.send_message(b"ask").unwrap();
        assert_eq!(far_messages.recv().unwrap(), b"ask");
        far.send_message(b"answer").unwrap();
        assert_eq!(near_messages.recv().unwrap(), b"answer");
        let (mut a, mut b) = carried(&near, &listener);
        let sent: Vec<u8> = (0..5 * WINDOW_BYTES).map(|n| (n * 7 % 251) as u8).collect();
        let mut received = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                a.write_all(&sent).unwrap();
                a.shutdown(Shutdown::Write).unwrap();
            });
            b.read_to_end(&mut received).unwrap();
        });
        assert!(received == sent);
        b.write_all(b"back").unwrap();
        drop(b);
        let mut back = Vec::new();
        a.read_to_end(&mut back).unwrap();
        assert_eq!(back, b"back");
    }

    #[test]
    fn a_stream_that_nobody_reads_holds_up_no_other() {
        let (near, _near_messages, _far, _far_messages, listener) = linked();
        let (mut stuck, _unread) = carried(&near, &listener);
        stuck.set_nonblocking(true).unwrap();
        let mut put = 0;
        // More than windows and kernel buffers take: at some time nothing goes in any more.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let mut last = std::time::Instant::now();
        while last.elapsed().as_millis() < 300 && std::time::Instant::now() < deadline {
            match stuck.write(&[7; 65536]) {
                Ok(bytes) => (put, last) = (put + bytes, std::time::Instant::now()),
                Err(_) => std::thread::yield_now(),
            }
        }
        assert!(put >= WINDOW_BYTES, "{put}");
        let (mut a, mut b) = carried(&near, &listener);
        a.write_all(b"through").unwrap();
        let mut through = [0; 7];
        b.read_exact(&mut through).unwrap();
        assert_eq!(&through, b"through");
    }

    /// Pipes whose other end has gone silently: what is written never comes through.
    struct Stuck {
        writes: std::sync::mpsc::Sender<()>,
        goes_on: Receiver<()>,
    }

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.writes.send(());
            // Until the test lets go.
            let _ = self.goes_on.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_link_that_hangs_holds_up_nobody_who_has_a_connection_carried() {
        let ((writes, written), (let_go, goes_on)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let (silent, _open) = io::pipe().unwrap();
        let (near, _messages) = Link::start(silent, Stuck { writes, goes_on }, None).unwrap();
        let one = || net::pair().unwrap();
        let ((mut first, carried), (second, other)) = (one(), one());
        near.carry(carried).unwrap();
        first.write_all(b"on its way").unwrap();
        // Somebody writes, and does not come back.
        written.recv().unwrap();
        near.carry(other).unwrap();
        drop(let_go);
        near.close();
        for mut socket in [first, second] {
            assert_eq!(socket.read(&mut [0]).unwrap_or(0), 0);
        }
    }

    #[test]
    fn few_messages_wait_for_whoever_takes_none_and_none_for_whoever_does_not_listen() {
        const SENT: usize = MESSAGES_MAX + 32;
        let (reads, mut writes) = io::pipe().unwrap();
        let written = Arc::new(AtomicU32::new(0));
        let counted = written.clone();
        let message = vec![0u8; MESSAGE_BYTES_MAX];
        let writer = std::thread::spawn(move || {
            for _ in 0..SENT {
                write_message(&mut writes, &message).unwrap();
                counted.fetch_add(1, Relaxed);
            }
        });
        let (_near, messages) = Link::start(reads, io::sink(), None).unwrap();
        let mut before = 0;
        while before == 0 || written.load(Relaxed) != before {
            before = written.load(Relaxed);
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        // One more is with the thread that reads, and the next one in the pipe.
        assert!(before as usize <= MESSAGES_MAX + 2, "{before}");
        drop(messages);
        writer.join().unwrap();
    }

    #[test]
    fn the_end_of_the_pipes_ends_every_connection() {
        let (near, near_messages, _far, far_messages, listener) = linked();
        let (mut a, mut b) = carried(&near, &listener);
        near.close();
        assert_eq!(a.read(&mut [0]).unwrap_or(0), 0);
        assert_eq!(b.read(&mut [0]).unwrap_or(0), 0);
        assert!(far_messages.recv().is_err() && near_messages.recv().is_err());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let spare = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(near.carry(spare).is_err() && near.send_message(b"x").is_err());
    }

    #[test]
    fn what_no_honest_side_sends_ends_the_link() {
        let frame = |kind: u32, channel: u32, length: u32| [kind, channel, length].map(u32::to_le_bytes).concat();
        for bytes in [
            frame(7, 0, 0),
            frame(1, 0, MESSAGE_BYTES_MAX as u32 + 1),
            frame(3, 1, DATA_BYTES_MAX as u32 + 1),
            frame(2, 1, 0),
            frame(1, 0, 9),
            vec![1, 0, 0],
        ] {
            let (near, near_messages) = Link::start(io::Cursor::new(bytes.clone()), io::sink(), None).unwrap();
            assert!(near_messages.recv().is_err(), "{bytes:?}");
            assert!(near.send_message(b"x").is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn data_beyond_the_window_is_refused() {
        let channel = Channel::new(1);
        let data = || Frame { kind: Kind::Data, channel: 1, body: vec![0; DATA_BYTES_MAX] };
        for _ in 0..WINDOW_BYTES / DATA_BYTES_MAX {
            channel.receive(data()).unwrap();
        }
        assert!(channel.receive(data()).is_err());
        let channel = Channel::new(1);
        let small = |length| Frame { kind: Kind::Data, channel: 1, body: vec![7; length] };
        assert!(channel.receive(small(0)).is_err(), "nothing takes no room, and could go on for ever");
        (0..DATA_BYTES_MAX).for_each(|_| channel.receive(small(1)).unwrap());
        channel.receive(small(2)).unwrap();
        assert_eq!(lock(&channel.state).incoming.iter().map(Vec::len).collect::<Vec<_>>(), [DATA_BYTES_MAX, 2]);
        let credit = |bytes: u32| Frame { kind: Kind::Credit, channel: 1, body: bytes.to_le_bytes().to_vec() };
        channel.use_credit(5);
        channel.receive(credit(5)).unwrap();
        assert!(channel.receive(credit(1)).is_err());
    }
}
