//! The TLS 1.3 record layer (RFC 8446, section 5) of an established connection: seals and opens records in place.
//!
//! rustls performs the handshake and hands over the traffic keys, and derives the next ones at a key update. Its own
//! record layer allocates and copies each record in both directions; this one reads plaintext where the caller has it
//! and writes plaintext where the caller wants it. On the wire there is no difference.
//!
//! Invariants:
//! - A sequence number is used once per key: it advances before a sealed record can leave.
//! - A key seals fewer records than its cipher allows; then the next key is announced and used.
//!
//! Not here: sockets, buffers.

use rustls::ConnectionTrafficSecrets;
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;

use crate::aead::{Key, NONCE_BYTES, Plaintext, TAG_BYTES};
use crate::cipher::{self, Suite};

pub(crate) const HEADER_BYTES: usize = 5;
pub(crate) const PLAINTEXT_BYTES_MAX: usize = 1 << 14;
/// The inner content type and the AEAD's tag; the same for all three ciphers.
const TRAILER_BYTES: usize = 1 + TAG_BYTES;
/// What one record of ours takes on the wire at most: peers may pad theirs up to `PAYLOAD_BYTES_MAX`.
pub(crate) const SEALED_BYTES_MAX: usize = HEADER_BYTES + PLAINTEXT_BYTES_MAX + TRAILER_BYTES;
const PAYLOAD_BYTES_MAX: usize = PLAINTEXT_BYTES_MAX + 256;
/// What one record of a peer takes on the wire at most.
pub(crate) const RECORD_BYTES_MAX: usize = HEADER_BYTES + PAYLOAD_BYTES_MAX;

/// Records sealed under one AES-GCM key before the next key is used. RFC 8446, 5.5 allows 2^24.5 full-sized ones.
const RECORDS_PER_KEY_MAX: u64 = 1 << 23;
/// Records without payload that a peer may send one after the other; they cost us work and bring nothing.
const EMPTY_RECORDS_MAX: u32 = 32;

pub(crate) const KEY_UPDATE_RECORD_BYTES: usize = HEADER_BYTES + 5 + TRAILER_BYTES;
pub(crate) const ALERT_RECORD_BYTES: usize = HEADER_BYTES + 2 + TRAILER_BYTES;

const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

const ALERT_FATAL: u8 = 2;
const CLOSE_NOTIFY: u8 = 0;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// The peer broke the rules of the record layer, or ended the connection with an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("the peer sent a TLS record that does not authenticate")]
    BadRecordMac,
    #[error("the peer sent a TLS record of an unexpected type")]
    UnexpectedMessage,
    #[error("the peer sent a TLS record that is too long")]
    RecordOverflow,
    #[error("the peer sent a TLS message that cannot be parsed")]
    DecodeError,
    #[error("the peer ended the connection with TLS alert {0}")]
    AlertReceived(u8),
    #[error("the next traffic key cannot be derived")]
    Internal,
}

impl RecordError {
    /// The alert that tells the peer (RFC 8446, 6.2), if it should be told.
    pub(crate) fn alert(self) -> Option<u8> {
        match self {
            RecordError::UnexpectedMessage => Some(10),
            RecordError::BadRecordMac => Some(20),
            RecordError::RecordOverflow => Some(22),
            RecordError::DecodeError => Some(50),
            RecordError::Internal => Some(80),
            RecordError::AlertReceived(_) => None,
        }
    }
}

/// What an opened record was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// That many bytes of payload, at the start of where the record was opened to.
    Payload(usize),
    /// Something between the two record layers, dealt with.
    Internal,
    /// The peer's close_notify: nothing follows.
    CloseNotify,
}

/// Both directions of an established connection.
pub(crate) struct RecordLayer {
    tx: Direction,
    rx: Direction,
    schedule: KeySchedule,
    /// The peer asked for a key update of ours, which has to precede our next payload.
    is_key_update_due: bool,
    empty_records: u32,
    records_per_key_max: u64,
}

/// What rustls keeps for key updates.
pub(crate) enum KeySchedule {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

impl RecordLayer {
    pub(crate) fn new(secrets: rustls::ExtractedSecrets, schedule: KeySchedule) -> Result<Self, RecordError> {
        let (tx, rx) = (Direction::new(secrets.tx)?, Direction::new(secrets.rx)?);
        let records_per_key_max = RECORDS_PER_KEY_MAX;
        Ok(Self { tx, rx, schedule, is_key_update_due: false, empty_records: 0, records_per_key_max })
    }

    /// Writes the control records that have to precede the next payload, if any, and returns their length.
    ///
    /// Must be asked before each batch of `seal_payload` calls; `out` has room for `KEY_UPDATE_RECORD_BYTES`.
    pub(crate) fn seal_due(&mut self, out: &mut [u8]) -> Result<usize, RecordError> {
        if !self.is_key_update_due && self.tx.sequence < self.records_per_key_max {
            return Ok(0);
        }
        // KeyUpdate, 1 byte long, update_not_requested.
        let sealed = self.tx.seal(HANDSHAKE, Plaintext::Elsewhere(&[KEY_UPDATE, 0, 0, 1, 0]), out)?;
        self.tx = Direction::new(self.schedule.next_tx()?)?;
        self.is_key_update_due = false;
        Ok(sealed)
    }

    /// Seals `plaintext` (at most `PLAINTEXT_BYTES_MAX`) into a record at the start of `out` and returns its length.
    pub(crate) fn seal_payload(&mut self, plaintext: &[u8], out: &mut [u8]) -> Result<usize, RecordError> {
        self.tx.seal(APPLICATION_DATA, Plaintext::Elsewhere(plaintext), out)
    }

    /// As `seal_payload`, for `plaintext_bytes` that were gathered at `out[HEADER_BYTES..]`.
    pub(crate) fn seal_gathered(&mut self, plaintext_bytes: usize, out: &mut [u8]) -> Result<usize, RecordError> {
        self.tx.seal(APPLICATION_DATA, Plaintext::InPlace(plaintext_bytes), out)
    }

    pub(crate) fn seal_close_notify(&mut self, out: &mut [u8]) -> Result<usize, RecordError> {
        // RFC 8446, 6: the level of close_notify is ignored; 1 (warning) is what everybody sends.
        self.tx.seal(ALERT, Plaintext::Elsewhere(&[1, CLOSE_NOTIFY]), out)
    }

    pub(crate) fn seal_alert(&mut self, description: u8, out: &mut [u8]) -> Result<usize, RecordError> {
        self.tx.seal(ALERT, Plaintext::Elsewhere(&[ALERT_FATAL, description]), out)
    }

    /// Opens `record` (as measured by [`record_bytes`]) into the start of `out`, or in place if `out` is too short.
    ///
    /// Returns what it was and, if it was opened in place, where in `record` its payload starts.
    pub(crate) fn open(&mut self, record: &mut [u8], out: &mut [u8]) -> Result<(Opened, Place), RecordError> {
        let ciphertext_bytes = record.len() - HEADER_BYTES - TAG_BYTES;
        let (nonce, header) = (self.rx.next_nonce(), header_of(record));
        let (body, tag) = record[HEADER_BYTES..].split_at_mut(ciphertext_bytes);
        let mut out = out.get_mut(..ciphertext_bytes);
        let opened = self.rx.key.open(nonce, header, body, tag, out.as_deref_mut());
        opened.map_err(|_| RecordError::BadRecordMac)?;
        let (place, inner) = out.map_or((Place::Record, body), |out| (Place::Out, out));
        let (content_type, payload_bytes) = strip_padding(inner)?;
        let opened = match content_type {
            APPLICATION_DATA => {
                self.count_empty(payload_bytes)?;
                Opened::Payload(payload_bytes)
            }
            HANDSHAKE => self.handle_handshake(&inner[..payload_bytes])?,
            ALERT => match inner[..payload_bytes] {
                [_, CLOSE_NOTIFY] => Opened::CloseNotify,
                [_, description] => return Err(RecordError::AlertReceived(description)),
                _ => return Err(RecordError::DecodeError),
            },
            _ => return Err(RecordError::UnexpectedMessage),
        };
        Ok((opened, place))
    }

    fn count_empty(&mut self, payload_bytes: usize) -> Result<(), RecordError> {
        self.empty_records = if payload_bytes == 0 { self.empty_records + 1 } else { 0 };
        if self.empty_records > EMPTY_RECORDS_MAX { Err(RecordError::UnexpectedMessage) } else { Ok(()) }
    }

    /// After the handshake a peer may update its key, and a foreign server may send tickets, which are ignored.
    fn handle_handshake(&mut self, mut messages: &[u8]) -> Result<Opened, RecordError> {
        self.count_empty(0)?;
        while let [kind, a, b, c, rest @ ..] = messages {
            let body_bytes = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            let (body, rest) = rest.split_at_checked(body_bytes).ok_or(RecordError::DecodeError)?;
            match (*kind, body) {
                // A new key starts with a new record, so nothing may follow in this one.
                (KEY_UPDATE, [request @ (0 | 1)]) if rest.is_empty() => {
                    self.rx = Direction::new(self.schedule.next_rx()?)?;
                    self.is_key_update_due |= *request == 1;
                }
                (NEW_SESSION_TICKET, _) if matches!(self.schedule, KeySchedule::Client(_)) => {}
                _ => return Err(RecordError::UnexpectedMessage),
            }
            messages = rest;
        }
        if messages.is_empty() { Ok(Opened::Internal) } else { Err(RecordError::DecodeError) }
    }
}

/// Where a record was opened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Out,
    Record,
}

/// Length on the wire of the record that starts `bytes`, or `None` while its header is incomplete.
pub(crate) fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, RecordError> {
    let [content_type, _, _, high, low, ..] = *bytes else { return Ok(None) };
    let payload_bytes = usize::from(u16::from_be_bytes([high, low]));
    match content_type {
        APPLICATION_DATA if payload_bytes > PAYLOAD_BYTES_MAX => Err(RecordError::RecordOverflow),
        APPLICATION_DATA if payload_bytes < TRAILER_BYTES => Err(RecordError::DecodeError),
        APPLICATION_DATA => Ok(Some(HEADER_BYTES + payload_bytes)),
        CHANGE_CIPHER_SPEC | ALERT | HANDSHAKE => Err(RecordError::UnexpectedMessage),
        _ => Err(RecordError::DecodeError),
    }
}

impl KeySchedule {
    fn next_tx(&mut self) -> Result<(u64, ConnectionTrafficSecrets), RecordError> {
        match self {
            KeySchedule::Client(connection) => connection.update_tx_secret(),
            KeySchedule::Server(connection) => connection.update_tx_secret(),
        }
        .map_err(|_| RecordError::Internal)
    }

    fn next_rx(&mut self) -> Result<(u64, ConnectionTrafficSecrets), RecordError> {
        match self {
            KeySchedule::Client(connection) => connection.update_rx_secret(),
            KeySchedule::Server(connection) => connection.update_rx_secret(),
        }
        .map_err(|_| RecordError::Internal)
    }
}

/// One key with its counter.
struct Direction {
    key: Key,
    iv: [u8; NONCE_BYTES],
    sequence: u64,
}

impl Direction {
    fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Self, RecordError> {
        let (suite, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Suite::Aes128Gcm, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Suite::Aes256Gcm, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (Suite::Chacha20Poly1305, key, iv),
            _ => return Err(RecordError::Internal),
        };
        let library = cipher::chosen().library(suite);
        let key = Key::new(suite, library, key.as_ref()).map_err(|_| RecordError::Internal)?;
        let iv = iv.as_ref().try_into().map_err(|_| RecordError::Internal)?;
        Ok(Self { key, iv, sequence })
    }

    fn next_nonce(&mut self) -> [u8; NONCE_BYTES] {
        let mut nonce = self.iv;
        for (byte, counter) in nonce[NONCE_BYTES - 8..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= counter;
        }
        self.sequence = self.sequence.checked_add(1).expect("a key is replaced long before 2^64 records");
        nonce
    }

    fn seal(&mut self, content_type: u8, plaintext: Plaintext<'_>, out: &mut [u8]) -> Result<usize, RecordError> {
        let plaintext_bytes = plaintext.len();
        assert!(plaintext_bytes <= PLAINTEXT_BYTES_MAX, "one record was asked to hold {plaintext_bytes} bytes");
        let payload_bytes = plaintext_bytes + TRAILER_BYTES;
        let [high, low] = (payload_bytes as u16).to_be_bytes();
        let header = [APPLICATION_DATA, 3, 3, high, low];
        let (nonce, record) = (self.next_nonce(), &mut out[..HEADER_BYTES + payload_bytes]);
        record[..HEADER_BYTES].copy_from_slice(&header);
        let sealed = self.key.seal(nonce, header, plaintext, content_type, &mut record[HEADER_BYTES..]);
        sealed.map_err(|_| RecordError::Internal)?;
        Ok(HEADER_BYTES + payload_bytes)
    }
}

fn header_of(record: &[u8]) -> [u8; HEADER_BYTES] {
    record[..HEADER_BYTES].try_into().expect("a record begins with its header")
}

/// The content type is the last byte that is not 0; returns it and the length of what precedes it.
fn strip_padding(inner: &[u8]) -> Result<(u8, usize), RecordError> {
    let payload_bytes = inner.iter().rposition(|byte| *byte != 0).ok_or(RecordError::UnexpectedMessage)?;
    if payload_bytes > PLAINTEXT_BYTES_MAX {
        return Err(RecordError::RecordOverflow);
    }
    Ok((inner[payload_bytes], payload_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{accept_tls, connect_tls};
    use crate::identity::Identity;
    use crate::tls::{ClientTls, ServerTls};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    /// The two ends of one connection, without their sockets.
    fn layers() -> (RecordLayer, RecordLayer) {
        let (client, server) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let tls = (ClientTls::new(&client, server.pin()).unwrap(), ServerTls::new(&server).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let deadline = Instant::now() + Duration::from_secs(20);
        let accepting = std::thread::spawn(move || accept_tls(far, &tls.1, deadline).unwrap());
        let near = connect_tls(near, &tls.0, deadline).unwrap();
        (near.established.records, accepting.join().unwrap().established.records)
    }

    fn open(layer: &mut RecordLayer, record: &[u8]) -> Result<(Opened, Vec<u8>), RecordError> {
        let mut record = record.to_vec();
        assert_eq!(record_bytes(&record), Ok(Some(record.len())));
        let (opened, place) = layer.open(&mut record, &mut [])?;
        assert_eq!(place, Place::Record);
        let payload_bytes = if let Opened::Payload(bytes) = opened { bytes } else { 0 };
        Ok((opened, record[HEADER_BYTES..HEADER_BYTES + payload_bytes].to_vec()))
    }

    fn seal(layer: &mut RecordLayer, content_type: u8, plaintext: &[u8]) -> Vec<u8> {
        let mut out = vec![0; SEALED_BYTES_MAX];
        let bytes = layer.tx.seal(content_type, Plaintext::Elsewhere(plaintext), &mut out).unwrap();
        out.truncate(bytes);
        out
    }

    #[test]
    fn payload_of_every_length_opens_in_both_places() {
        let (mut near, mut far) = layers();
        for bytes in [0, 1, 15, 16, 17, 1000, PLAINTEXT_BYTES_MAX - 1, PLAINTEXT_BYTES_MAX] {
            let plaintext: Vec<u8> = (0..bytes).map(|i| i as u8).collect();
            let mut record = seal(&mut near, APPLICATION_DATA, &plaintext);
            let mut out = vec![0; bytes + 1];
            assert_eq!(far.open(&mut record, &mut out), Ok((Opened::Payload(bytes), Place::Out)));
            assert!(out[..bytes] == plaintext);

            let mut record = vec![0; SEALED_BYTES_MAX];
            record[HEADER_BYTES..HEADER_BYTES + bytes].copy_from_slice(&plaintext);
            let sealed = near.seal_gathered(bytes, &mut record).unwrap();
            assert_eq!(open(&mut far, &record[..sealed]), Ok((Opened::Payload(bytes), plaintext)));
        }
    }

    #[test]
    fn a_changed_repeated_or_reordered_record_is_refused() {
        let (mut near, mut far) = layers();
        let records: Vec<_> = (0..3).map(|i| seal(&mut near, APPLICATION_DATA, &[i; 100])).collect();
        for position in (0..records[0].len() * 8).filter(|bit| !(24..40).contains(bit)) {
            let mut changed = records[0].clone();
            changed[position / 8] ^= 1 << (position % 8);
            if record_bytes(&changed).is_ok() {
                // A refused record still counts, so the counter is put back for the next try.
                assert_eq!(open(&mut far, &changed), Err(RecordError::BadRecordMac), "bit {position}");
                far.rx.sequence = 0;
            }
        }
        assert!(open(&mut far, &records[0]).is_ok());
        assert_eq!(open(&mut far, &records[0]), Err(RecordError::BadRecordMac));
        far.rx.sequence = 1;
        assert_eq!(open(&mut far, &records[2]), Err(RecordError::BadRecordMac));
    }

    #[test]
    fn padding_is_stripped_and_nothing_but_padding_is_refused() {
        let (mut near, mut far) = layers();
        // With content type 0, the last bytes given are the real type and its padding.
        let padded = seal(&mut near, 0, &[b'a', b'b', 0, APPLICATION_DATA, 0, 0, 0]);
        assert_eq!(open(&mut far, &padded), Ok((Opened::Payload(3), b"ab\0".to_vec())));
        let nothing = seal(&mut near, 0, &[0; 50]);
        assert_eq!(open(&mut far, &nothing), Err(RecordError::UnexpectedMessage));
    }

    #[test]
    fn a_key_that_has_sealed_enough_is_replaced() {
        let (mut near, mut far) = layers();
        near.records_per_key_max = 3;
        let mut updates = 0;
        for i in 0..20 {
            let mut out = vec![0; KEY_UPDATE_RECORD_BYTES];
            let sealed = near.seal_due(&mut out).unwrap();
            if sealed > 0 {
                assert_eq!(open(&mut far, &out[..sealed]).unwrap().0, Opened::Internal);
                updates += 1;
            }
            let record = seal(&mut near, APPLICATION_DATA, &[i]);
            assert_eq!(open(&mut far, &record), Ok((Opened::Payload(1), vec![i])));
        }
        assert_eq!(updates, 6);
    }

    #[test]
    fn a_requested_key_update_precedes_the_next_payload() {
        let (mut near, mut far) = layers();
        let request = seal(&mut near, HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 1]);
        near.tx = Direction::new(near.schedule.next_tx().unwrap()).unwrap();
        assert_eq!(open(&mut far, &request).unwrap().0, Opened::Internal);
        let mut out = vec![0; KEY_UPDATE_RECORD_BYTES];
        let sealed = far.seal_due(&mut out).unwrap();
        assert_eq!(sealed, KEY_UPDATE_RECORD_BYTES);
        assert_eq!(far.seal_due(&mut []), Ok(0));
        assert_eq!(open(&mut near, &out).unwrap().0, Opened::Internal);
        let there = seal(&mut near, APPLICATION_DATA, b"there");
        assert_eq!(open(&mut far, &there).unwrap().1, b"there");
        let back = seal(&mut far, APPLICATION_DATA, b"back");
        assert_eq!(open(&mut near, &back).unwrap().1, b"back");
    }

    #[test]
    fn messages_that_have_no_place_after_the_handshake_are_refused() {
        let refused: [(u8, &[u8], RecordError); 8] = [
            (HANDSHAKE, &[1, 0, 0, 1, 0], RecordError::UnexpectedMessage),
            (HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 2], RecordError::UnexpectedMessage),
            (HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 0, KEY_UPDATE, 0, 0, 1, 0], RecordError::UnexpectedMessage),
            (HANDSHAKE, &[NEW_SESSION_TICKET, 0, 0, 1, 0], RecordError::UnexpectedMessage),
            (HANDSHAKE, &[KEY_UPDATE, 0, 0], RecordError::DecodeError),
            (ALERT, &[2], RecordError::DecodeError),
            (ALERT, &[2, 80], RecordError::AlertReceived(80)),
            (CHANGE_CIPHER_SPEC, &[1], RecordError::UnexpectedMessage),
        ];
        for (content_type, message, error) in refused {
            let (mut client, mut server) = layers();
            let record = seal(&mut client, content_type, message);
            assert_eq!(open(&mut server, &record), Err(error), "{message:?}");
        }
    }

    #[test]
    fn records_without_payload_are_borne_for_a_while_only() {
        let (mut near, mut far) = layers();
        for _ in 0..2 {
            for _ in 0..EMPTY_RECORDS_MAX {
                let record = seal(&mut near, APPLICATION_DATA, &[]);
                assert_eq!(open(&mut far, &record).unwrap().0, Opened::Payload(0));
            }
            let record = seal(&mut near, APPLICATION_DATA, b"x");
            assert_eq!(open(&mut far, &record).unwrap().0, Opened::Payload(1));
        }
        let results: Vec<_> =
            (0..=EMPTY_RECORDS_MAX).map(|_| open(&mut far, &seal(&mut near, APPLICATION_DATA, &[]))).collect();
        assert_eq!(results.last(), Some(&Err(RecordError::UnexpectedMessage)));
    }

    #[test]
    fn headers_outside_the_rules_are_refused() {
        assert_eq!(record_bytes(&[23, 3, 3, 0]), Ok(None));
        assert_eq!(record_bytes(&[23, 3, 3, 0x41, 0x00]), Ok(Some(RECORD_BYTES_MAX)));
        assert_eq!(record_bytes(&[23, 3, 3, 0x41, 0x01]), Err(RecordError::RecordOverflow));
        assert_eq!(record_bytes(&[23, 3, 3, 0, 16]), Err(RecordError::DecodeError));
        assert_eq!(record_bytes(&[20, 3, 3, 0, 1]), Err(RecordError::UnexpectedMessage));
        assert_eq!(record_bytes(b"GET /"), Err(RecordError::DecodeError));
    }
}
