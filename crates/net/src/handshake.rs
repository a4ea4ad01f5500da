//! The TLS handshake over a TCP socket: one total deadline, bounded bytes, and not a byte read beyond its end.
//!
//! Records are fetched one by one (header first), so that whatever follows the handshake is still in the kernel when
//! the record layer takes over, and so that a peer which does not speak TLS is recognised by its first bytes.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::crypto::tls13::OkmBlock;
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedConnectionCommon, UnbufferedStatus};
use rustls::{AlertDescription, CommonState, ExtractedSecrets, KeyLog, Tls13CipherSuite};

use crate::cipher::Suite;
use crate::error::{Error, ErrorKind};
use crate::record::{HEADER_BYTES, KeySchedule, RECORD_BYTES_MAX, RecordLayer};
use crate::socket::wait_until;
use crate::tls::{ALPN, ClientTls, PinMismatch, ServerTls};

/// What a peer may send before it is authenticated. A handshake of ours takes about 2 KiB in each direction.
const INCOMING_BYTES_MAX: usize = 64 * 1024;

/// What a finished handshake leaves behind.
pub(crate) struct Established {
    pub(crate) records: RecordLayer,
    pub(crate) exporter: Exporter,
    pub(crate) peer_spki: Vec<u8>,
    pub(crate) suite: Suite,
}

/// Performs the dialling side's handshake.
pub(crate) fn connect(tcp: &TcpStream, tls: &ClientTls, deadline: Instant) -> Result<Established, Failure> {
    let capture = Arc::new(ExporterCapture::default());
    let mut config = (*tls.config).clone();
    config.key_log = capture.clone();
    // The peer is identified by its key alone; this name never leaves this process.
    let name = ServerName::try_from("thalweg.invalid").expect("a valid name");
    let connection = UnbufferedClientConnection::new(Arc::new(config), name).map_err(Failure::Tls)?;
    establish(ClientSide(connection), tcp, deadline, &capture)
}

/// Performs the listening side's handshake.
pub(crate) fn accept(tcp: &TcpStream, tls: &ServerTls, deadline: Instant) -> Result<Established, Failure> {
    let capture = Arc::new(ExporterCapture::default());
    let mut config = (*tls.config).clone();
    config.key_log = capture.clone();
    let connection = UnbufferedServerConnection::new(Arc::new(config)).map_err(Failure::Tls)?;
    establish(ServerSide(connection), tcp, deadline, &capture)
}

/// Derives exported keying material (RFC 8446, 7.5).
///
/// rustls exports from its buffered connections only; from the others it gives away the exporter secret, through its
/// key log.
pub(crate) struct Exporter {
    suite: &'static Tls13CipherSuite,
    secret: OkmBlock,
}

impl Exporter {
    /// The length of the label is the caller's constant: at most 249 bytes.
    pub(crate) fn export(&self, label: &[u8], context: &[u8]) -> [u8; 32] {
        let hash = self.suite.common.hash_provider;
        let expander = self.suite.hkdf_provider.expander_for_okm(&self.secret);
        let mut derived = [0; OkmBlock::MAX_LEN];
        let derived = &mut derived[..expander.hash_len()];
        self.expand_label(&self.secret, label, hash.hash(&[]).as_ref(), derived);
        let mut exported = [0; 32];
        self.expand_label(&OkmBlock::new(derived), b"exporter", hash.hash(context).as_ref(), &mut exported);
        exported
    }

    /// HKDF-Expand-Label (RFC 8446, 7.1).
    fn expand_label(&self, secret: &OkmBlock, label: &[u8], context: &[u8], out: &mut [u8]) {
        const PREFIX: &[u8] = b"tls13 ";
        let label_bytes = u8::try_from(PREFIX.len() + label.len()).expect("an exporter label has at most 249 bytes");
        let out_bytes = (out.len() as u16).to_be_bytes();
        let context_bytes = [context.len() as u8];
        let info = [&out_bytes[..], &[label_bytes], PREFIX, label, &context_bytes, context];
        let expander = self.suite.hkdf_provider.expander_for_okm(secret);
        expander.expand_slice(&info, out).expect("at most one hash length is derived");
    }
}

/// Why a handshake ended.
#[derive(Debug)]
pub(crate) enum Failure {
    Io(io::Error),
    Tls(rustls::Error),
    /// The first bytes are not those of a TLS record.
    NotTls,
    TooLong,
    /// The peer did not agree on our protocol's name.
    NoAlpn,
    /// The connection is in a state that a handshake does not lead to.
    Unexpected(&'static str),
}

impl Failure {
    pub(crate) fn into_error(self, operation: &'static str, peer: SocketAddr) -> Error {
        let kind = match &self {
            Failure::Io(_) => None,
            Failure::Tls(e) => Some(kind_of(e)),
            Failure::NotTls => Some(ErrorKind::NotTls),
            Failure::NoAlpn => Some(ErrorKind::IncompatiblePeer),
            Failure::TooLong | Failure::Unexpected(_) => Some(ErrorKind::HandshakeInvalid),
        };
        match (self, kind) {
            (Failure::Io(e), _) => Error::from_io(operation, peer, e),
            (failure, kind) => Error::caused(kind.unwrap_or(ErrorKind::Io), operation, peer, failure),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Io(e) => e.fmt(f),
            Failure::Tls(e) => e.fmt(f),
            Failure::NotTls => f.write_str("the first bytes are not those of a TLS record"),
            Failure::TooLong => write!(f, "the handshake is longer than {INCOMING_BYTES_MAX} bytes"),
            Failure::NoAlpn => write!(f, "the peer does not know protocol {}", String::from_utf8_lossy(ALPN)),
            Failure::Unexpected(state) => write!(f, "the handshake ended with {state}"),
        }
    }
}

impl StdError for Failure {}

fn kind_of(error: &rustls::Error) -> ErrorKind {
    match error {
        rustls::Error::InvalidCertificate(rustls::CertificateError::Other(other)) => {
            match other.0.downcast_ref::<PinMismatch>() {
                Some(mismatch) => ErrorKind::IdentityChanged { expected: mismatch.expected, found: mismatch.found },
                None => ErrorKind::HandshakeInvalid,
            }
        }
        // A client without a key is offered the choice only once it has got this far.
        rustls::Error::PeerIncompatible(_) | rustls::Error::NoApplicationProtocol => ErrorKind::IncompatiblePeer,
        rustls::Error::AlertReceived(
            AlertDescription::ProtocolVersion
            | AlertDescription::HandshakeFailure
            | AlertDescription::InsufficientSecurity
            | AlertDescription::NoApplicationProtocol
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::UnsupportedExtension
            | AlertDescription::MissingExtension,
        ) => ErrorKind::IncompatiblePeer,
        rustls::Error::AlertReceived(_) => ErrorKind::RefusedByPeer,
        _ => ErrorKind::HandshakeInvalid,
    }
}

/// The two kinds of unbuffered connections, which share no public trait.
trait Side {
    type Data;
    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
    fn state(&self) -> &CommonState;
    fn into_secrets(self) -> Result<(ExtractedSecrets, KeySchedule), rustls::Error>;
}

struct ClientSide(UnbufferedClientConnection);

impl Side for ClientSide {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        UnbufferedConnectionCommon::<ClientConnectionData>::process_tls_records(&mut self.0, incoming)
    }

    fn state(&self) -> &CommonState {
        &self.0
    }

    fn into_secrets(self) -> Result<(ExtractedSecrets, KeySchedule), rustls::Error> {
        let (secrets, schedule) = self.0.dangerous_into_kernel_connection()?;
        Ok((secrets, KeySchedule::Client(schedule)))
    }
}

struct ServerSide(UnbufferedServerConnection);

impl Side for ServerSide {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        UnbufferedConnectionCommon::<ServerConnectionData>::process_tls_records(&mut self.0, incoming)
    }

    fn state(&self) -> &CommonState {
        &self.0
    }

    fn into_secrets(self) -> Result<(ExtractedSecrets, KeySchedule), rustls::Error> {
        let (secrets, schedule) = self.0.dangerous_into_kernel_connection()?;
        Ok((secrets, KeySchedule::Server(schedule)))
    }
}

fn establish<S: Side>(
    mut side: S,
    tcp: &TcpStream,
    deadline: Instant,
    capture: &ExporterCapture,
) -> Result<Established, Failure> {
    tcp.set_nonblocking(true).map_err(Failure::Io)?;
    let mut transport = Transport { tcp, deadline, received_bytes: 0 };
    drive(&mut side, &mut transport)?;

    let state = side.state();
    if state.alpn_protocol() != Some(ALPN) {
        return Err(Failure::NoAlpn);
    }
    let peer_spki = state.peer_certificates().and_then(|keys| keys.first()).map(|key| key.as_ref().to_vec());
    let peer_spki = peer_spki.ok_or(Failure::Unexpected("no peer key"))?;
    let suite = state.negotiated_cipher_suite().and_then(|suite| suite.tls13());
    let suite = suite.ok_or(Failure::Unexpected("no TLS 1.3 cipher"))?;
    let agreed = Suite::of(suite.common.suite).ok_or(Failure::Unexpected("a cipher that was not offered"))?;
    let secret = capture.take().ok_or(Failure::Unexpected("no exporter secret"))?;
    let (secrets, schedule) = side.into_secrets().map_err(Failure::Tls)?;
    let records = RecordLayer::new(secrets, schedule).map_err(|_| Failure::Unexpected("unusable keys"))?;
    Ok(Established { records, exporter: Exporter { suite, secret }, peer_spki, suite: agreed })
}

/// Runs the handshake until application data may flow both ways and all that is due has been sent.
fn drive<S: Side>(side: &mut S, transport: &mut Transport<'_>) -> Result<(), Failure> {
    let (mut incoming, mut outgoing) = (Vec::new(), Vec::new());
    loop {
        let UnbufferedStatus { discard, state, .. } = side.process(&mut incoming);
        let mut is_blocked = false;
        match state {
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                append(&mut outgoing, |out| data.encode(out))?;
            }
            Ok(ConnectionState::TransmitTlsData(data)) => {
                transport.send(&outgoing)?;
                outgoing.clear();
                data.done();
            }
            Ok(ConnectionState::BlockedHandshake) => is_blocked = true,
            // On the dialling side the last flight may still have to leave; that comes as the states above.
            Ok(ConnectionState::WriteTraffic(_)) => is_blocked = true,
            Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                return Err(Failure::Io(io::ErrorKind::UnexpectedEof.into()));
            }
            Ok(_) => return Err(Failure::Unexpected("early data")),
            Err(e) => {
                incoming.drain(..discard);
                send_alert(side, &mut incoming, transport);
                return Err(Failure::Tls(e));
            }
        }
        incoming.drain(..discard);
        if is_blocked {
            if !side.state().is_handshaking() && !side.state().wants_write() {
                return if incoming.is_empty() { Ok(()) } else { Err(Failure::Unexpected("left-over bytes")) };
            }
            transport.receive_record(&mut incoming)?;
        }
    }
}

/// Tells the peer why, as far as the socket takes it without waiting.
fn send_alert<S: Side>(side: &mut S, incoming: &mut Vec<u8>, transport: &Transport<'_>) {
    let mut outgoing = Vec::new();
    loop {
        let UnbufferedStatus { discard, state, .. } = side.process(incoming);
        let Ok(ConnectionState::EncodeTlsData(mut data)) = state else { break };
        if append(&mut outgoing, |out| data.encode(out)).is_err() {
            break;
        }
        // rustls keeps positions in this buffer; to show it another one would be a panic.
        incoming.drain(..discard);
    }
    // The connection has failed; that the alert may fail too changes nothing.
    let _ = rustix::net::send(transport.tcp, &outgoing, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

fn append(
    outgoing: &mut Vec<u8>,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> Result<(), Failure> {
    let used = outgoing.len();
    let required = match encode(&mut []) {
        Ok(_) => 0,
        Err(EncodeError::InsufficientSize(e)) => e.required_size,
        Err(EncodeError::AlreadyEncoded) => return Err(Failure::Unexpected("a repeated record")),
    };
    outgoing.resize(used + required, 0);
    if required > 0 {
        encode(&mut outgoing[used..]).map_err(|_| Failure::Unexpected("a record of changing length"))?;
    }
    Ok(())
}

/// The socket with what is left of its time and bytes.
struct Transport<'a> {
    tcp: &'a TcpStream,
    deadline: Instant,
    received_bytes: usize,
}

impl Transport<'_> {
    fn send(&self, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            match rustix::net::send(self.tcp, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(Failure::Io(e.into())),
            }
        }
        Ok(())
    }

    /// Appends exactly one record to `incoming`.
    fn receive_record(&mut self, incoming: &mut Vec<u8>) -> Result<(), Failure> {
        let start = incoming.len();
        self.receive_exact(incoming, HEADER_BYTES)?;
        let [content_type, major, _, high, low] = incoming[start..] else {
            unreachable!("receive_exact appends what it was asked for");
        };
        // change_cipher_spec, alert, handshake, application data; every TLS version has 3 as its major version.
        if !(20..=23).contains(&content_type) || major != 3 {
            return Err(Failure::NotTls);
        }
        let payload_bytes = usize::from(u16::from_be_bytes([high, low]));
        if HEADER_BYTES + payload_bytes > RECORD_BYTES_MAX {
            return Err(Failure::NotTls);
        }
        self.receive_exact(incoming, payload_bytes)
    }

    fn receive_exact(&mut self, incoming: &mut Vec<u8>, bytes: usize) -> Result<(), Failure> {
        self.received_bytes += bytes;
        if self.received_bytes > INCOMING_BYTES_MAX {
            return Err(Failure::TooLong);
        }
        let mut filled = incoming.len();
        incoming.resize(filled + bytes, 0);
        while filled < incoming.len() {
            match rustix::net::recv(self.tcp, &mut incoming[filled..], RecvFlags::empty()) {
                Ok((_, 0)) => return Err(Failure::Io(io::ErrorKind::UnexpectedEof.into())),
                Ok((_, received)) => filled += received,
                Err(Errno::AGAIN) => self.wait(PollFlags::IN)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(Failure::Io(e.into())),
            }
            // A peer that always has another byte ready is never waited for.
            if Instant::now() >= self.deadline {
                return Err(Failure::Io(io::ErrorKind::TimedOut.into()));
            }
        }
        Ok(())
    }

    fn wait(&self, events: PollFlags) -> Result<(), Failure> {
        wait_until(self.tcp, events, Some(self.deadline)).map_err(Failure::Io)
    }
}

/// Takes the exporter secret out of one connection's key schedule.
#[derive(Default)]
struct ExporterCapture {
    /// Held only to store or take the secret.
    secret: Mutex<Option<OkmBlock>>,
}

impl ExporterCapture {
    const LABEL: &'static str = "EXPORTER_SECRET";

    fn take(&self) -> Option<OkmBlock> {
        self.secret.lock().expect("nobody panics while holding it").take()
    }
}

impl KeyLog for ExporterCapture {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if label == Self::LABEL {
            *self.secret.lock().expect("nobody panics while holding it") = Some(OkmBlock::new(secret));
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == Self::LABEL
    }
}

impl fmt::Debug for ExporterCapture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExporterCapture")
    }
}
