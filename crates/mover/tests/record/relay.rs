//! A man in the middle for tests: ends TLS on both sides and records the plaintext between them.
//!
//! The client is given the relay's pin, and the endpoint knows the relay's key as a client. A join is bound to the TLS
//! exporters of both its streams, so the relay proves it anew to the endpoint; what is recorded is the client's leg, with
//! that leg's exporter values. Bytes are recorded before they are passed on.
//!
//! Not here: what the bytes mean, apart from the two frames that open streams.

use crate::second_decoder::recording::{Event, Recording, Side, Stream, What};
use model::Pin;
use net::{
    ControlEnd, ControlEvent, ControlOptions, ControlSender, ControlStream, DataStream, DialOptions, Identity,
    Listener, ServerTls, Stopper,
};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LABEL: &[u8] = b"EXPORTER-thalweg-join";
const HEADER_BYTES: usize = 8;
const MESSAGE: u8 = 1;
const JOIN: u8 = 2;
const JOIN_PROVED_BYTES: usize = 28;
const PATIENCE: Duration = Duration::from_secs(10);

/// When the relay breaks a session off.
#[derive(Clone, Copy)]
pub struct Cut {
    /// Bytes of the client that pass on data streams.
    pub data_bytes_max: usize,
    /// The cut comes when the endpoint's control stream carries a message of this kind.
    pub after: fn(&wire::Message) -> bool,
}

pub struct Relay {
    pub address: String,
    pub pin: Pin,
    shared: Arc<Shared>,
    stopper: Stopper,
    accepting: JoinHandle<()>,
}

struct Shared {
    identity: Identity,
    endpoint: String,
    endpoint_pin: Pin,
    cut: Option<Cut>,
    /// Held while an event is appended, never while bytes are passed on.
    recording: Mutex<Recording>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Exporter values of control streams on the endpoint's leg, by session id.
    exporters: HashMap<Vec<u8>, [u8; 32]>,
    data_bytes: usize,
    is_cut: bool,
    senders: Vec<ControlSender>,
}

impl Relay {
    pub fn start(identity: Identity, endpoint: &str, endpoint_pin: Pin, cut: Option<Cut>) -> Relay {
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let (address, stopper, pin) = (listener.local_addr().to_string(), listener.stopper(), identity.pin());
        let shared = Arc::new(Shared {
            identity,
            endpoint: endpoint.to_owned(),
            endpoint_pin,
            cut,
            recording: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let for_thread = shared.clone();
        let accepting = std::thread::spawn(move || accept(&for_thread, &listener));
        Relay { address, pin, shared, stopper, accepting }
    }

    /// Waits until every stream has ended.
    pub fn finish(self) -> Recording {
        self.stopper.stop();
        self.accepting.join().unwrap();
        std::mem::take(&mut self.shared.recording.lock().unwrap())
    }
}

/// Accepts until it is told to stop, then waits for the streams.
fn accept(shared: &Arc<Shared>, listener: &Listener) {
    let tls = ServerTls::new(&shared.identity).unwrap();
    std::thread::scope(|scope| {
        while let Ok(Some((tcp, _))) = listener.accept() {
            let (shared, tls) = (shared.clone(), tls.clone());
            scope.spawn(move || {
                // A client that is done may leave in the middle of a handshake.
                if let Ok(client) = net::accept_tls(tcp, &tls, Instant::now() + PATIENCE) {
                    shared.pass(client.into_data());
                }
            });
        }
    });
}

impl Shared {
    /// Passes one stream on until it ends.
    fn pass(&self, mut client: DataStream) {
        // A stream that ends before its first frame was dialled and not needed.
        let Ok(frame) = first_frame(&mut client) else { return };
        if self.state.lock().unwrap().is_cut {
            return;
        }
        let dial = DialOptions::new(&self.identity, self.endpoint_pin).unwrap();
        let mut server = net::dial(&self.endpoint, &dial).unwrap().into_data();
        let stream = self.open(&client, &frame);
        let onward = self.proved_anew(&server, &frame);
        self.record(stream, Side::Client, What::Bytes(frame.clone()));
        server.send(&[&onward]).unwrap();
        let (to_client, from_client) = client.into_control(ControlOptions::default()).unwrap();
        let (to_server, from_server) = server.into_control(ControlOptions::default()).unwrap();
        self.keep([&to_client, &to_server]);
        let is_control = frame[0] == MESSAGE;
        std::thread::scope(|scope| {
            scope.spawn(|| self.leg(stream, Side::Client, from_client, &to_server, is_control));
            scope.spawn(|| self.leg(stream, Side::Server, from_server, &to_client, is_control));
        });
    }

    /// Enters a stream into the recording.
    fn open(&self, client: &DataStream, frame: &[u8]) -> usize {
        let session = session_of(frame);
        let mut recording = self.recording.lock().unwrap();
        let number = recording.streams.len();
        let name = if frame[0] == MESSAGE { "control".to_owned() } else { format!("data{number}") };
        let exporter = client.export(LABEL, &session);
        recording.streams.push(Stream { name, client_pin: client.peer_pin().0, exporter });
        number
    }

    /// The first frame as the endpoint has to see it: a join with a proof of the relay's own streams.
    fn proved_anew(&self, server: &DataStream, frame: &[u8]) -> Vec<u8> {
        let session = session_of(frame);
        let exporter = server.export(LABEL, &session);
        let mut state = self.state.lock().unwrap();
        if frame[0] == MESSAGE {
            state.exporters.insert(session, exporter);
            self.changed.notify_all();
            return frame.to_vec();
        }
        let unknown = |state: &mut State| !state.exporters.contains_key(&session);
        state = self.changed.wait_timeout_while(state, PATIENCE, unknown).unwrap().0;
        let proved = &frame[HEADER_BYTES..HEADER_BYTES + JOIN_PROVED_BYTES];
        let proof = net::hmac_sha256(&state.exporters[&session], &[proved, &exporter]);
        [&frame[..HEADER_BYTES + JOIN_PROVED_BYTES], &proof].concat()
    }

    fn keep(&self, senders: [&ControlSender; 2]) {
        let mut state = self.state.lock().unwrap();
        state.senders.extend(senders.into_iter().cloned());
        if state.is_cut {
            state.senders.iter().for_each(ControlSender::abort);
        }
    }

    /// One direction of a stream: records what comes and passes it on, and records how it ended.
    fn leg(&self, stream: usize, from: Side, input: ControlStream, output: &ControlSender, is_control: bool) {
        let mut messages = wire::FrameReader::new();
        messages.authenticated();
        let end = input.run(|event| {
            let ControlEvent::Received(bytes) = event else { return ControlFlow::Continue(()) };
            if !is_control && from == Side::Client && !self.has_room_for(bytes.len()) {
                return ControlFlow::Break(());
            }
            self.record(stream, from, What::Bytes(bytes.to_vec()));
            // The other side may have left already; what it does not take was said all the same.
            if output.send(bytes.to_vec()).is_err() && !is_control {
                return ControlFlow::Break(());
            }
            if is_control && from == Side::Server {
                self.cut_after(&mut messages, bytes);
            }
            ControlFlow::Continue(())
        });
        match end {
            ControlEnd::PeerClosed | ControlEnd::Closed => {
                self.record(stream, from, What::Ended);
                output.close_after_flush();
            }
            _ => {
                self.record(stream, from, What::Cut);
                // A receiver of content leaves its stream without a word, when its sender may not have ended it yet.
                if is_control {
                    output.abort();
                }
            }
        }
    }

    /// False when the cut came while content waited for it.
    fn has_room_for(&self, bytes: usize) -> bool {
        let Some(cut) = self.cut else { return true };
        let mut state = self.state.lock().unwrap();
        while state.data_bytes + bytes > cut.data_bytes_max && !state.is_cut {
            state = self.changed.wait(state).unwrap();
        }
        state.data_bytes += bytes;
        !state.is_cut
    }

    fn cut_after(&self, messages: &mut wire::FrameReader, bytes: &[u8]) {
        let Some(cut) = self.cut else { return };
        let mut is_cut = false;
        let taken = messages.push(bytes, &mut |_, body| {
            is_cut |= wire::message::decode(body)?.is_some_and(|message| (cut.after)(&message));
            Ok(())
        });
        taken.unwrap();
        if is_cut {
            let mut state = self.state.lock().unwrap();
            state.is_cut = true;
            state.senders.iter().for_each(ControlSender::abort);
            self.changed.notify_all();
        }
    }

    fn record(&self, stream: usize, from: Side, what: What) {
        let mut recording = self.recording.lock().unwrap();
        if let (What::Bytes(bytes), Some(Event { stream: last, from: side, what: What::Bytes(held) })) =
            (&what, recording.events.last_mut())
            && (*last, *side) == (stream, from)
        {
            return held.extend_from_slice(bytes);
        }
        recording.events.push(Event { stream, from, what });
    }
}

fn first_frame(client: &mut DataStream) -> std::io::Result<Vec<u8>> {
    client.set_deadline(Some(Instant::now() + PATIENCE));
    let mut frame = vec![0; HEADER_BYTES];
    client.recv_exact(&mut frame)?;
    let length = u32::from_le_bytes([frame[4], frame[5], frame[6], frame[7]]);
    frame.resize(HEADER_BYTES + length as usize, 0);
    client.recv_exact(&mut frame[HEADER_BYTES..])?;
    client.set_deadline(None);
    assert!(frame[0] == MESSAGE || frame[0] == JOIN);
    Ok(frame)
}

/// The session that a hello opens or a join names.
fn session_of(frame: &[u8]) -> Vec<u8> {
    let body = &frame[HEADER_BYTES..];
    match wire::message::decode(body) {
        _ if frame[0] == JOIN => body[..16].to_vec(),
        Ok(Some(wire::Message::Hello(hello))) => hello.session,
        other => panic!("a stream opens with {other:?}"),
    }
}
