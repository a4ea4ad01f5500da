//! The record layer and the exporter against an independent implementation: rustls's own, on the other side.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;

use net::{DataStream, Identity, ServerTls, accept_tls};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, ClientConnection};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme, StreamOwned, SupportedCipherSuite};

mod support;
use support::{pattern, soon, tcp_pair};

type Peer = StreamOwned<ClientConnection, TcpStream>;

/// Trusts everybody: authentication is not what these tests are about.
#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

fn config(suites: &[SupportedCipherSuite], alpn: &[u8]) -> Arc<ClientConfig> {
    let identity = Identity::generate().unwrap();
    let key = provider::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(identity.pkcs8())).unwrap();
    let key = CertifiedKey::new(vec![CertificateDer::from(identity.spki().to_vec())], key);
    let provider = CryptoProvider { cipher_suites: suites.to_vec(), ..provider::default_provider() };
    let mut config = ClientConfig::builder_with_provider(provider.into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key.into())));
    config.alpn_protocols = vec![alpn.to_vec()];
    config.into()
}

/// A rustls client and our server, connected.
fn connected(suite: SupportedCipherSuite) -> (Peer, DataStream) {
    connected_by(&[suite])
}

fn connected_by(suites: &[SupportedCipherSuite]) -> (Peer, DataStream) {
    let (mut near, far) = tcp_pair();
    let tls = ServerTls::new(&Identity::generate().unwrap()).unwrap();
    let accepting = thread::spawn(move || accept_tls(far, &tls, soon()).unwrap().into_data());
    let name = "peer.invalid".try_into().unwrap();
    let mut client = ClientConnection::new(config(suites, b"thalweg/1"), name).unwrap();
    while client.is_handshaking() || client.wants_write() {
        client.complete_io(&mut near).unwrap();
    }
    (StreamOwned::new(client, near), accepting.join().unwrap())
}

const SUITES: [SupportedCipherSuite; 3] = [
    provider::cipher_suite::TLS13_AES_128_GCM_SHA256,
    provider::cipher_suite::TLS13_AES_256_GCM_SHA384,
    provider::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
];

#[test]
fn every_cipher_carries_bytes_both_ways_and_closes_cleanly() {
    for suite in SUITES {
        let (mut peer, mut ours) = connected(suite);
        let (there, back) = (pattern(1, 1_000_003), pattern(2, 700_001));
        let (expected, sent) = (there.clone(), back.clone());
        let serving = thread::spawn(move || {
            let mut received = vec![0; expected.len()];
            ours.recv_exact(&mut received).unwrap();
            assert!(received == expected);
            ours.send(&[&sent[..100], &sent[100..]]).unwrap();
            assert_eq!(ours.recv(&mut received).unwrap(), 0);
            ours.close().unwrap();
        });
        peer.write_all(&there).unwrap();
        let mut received = vec![0; back.len()];
        peer.read_exact(&mut received).unwrap();
        assert!(received == back);
        peer.conn.send_close_notify();
        peer.flush().unwrap();
        // rustls tells a clean end from a cut one too.
        assert_eq!(peer.read(&mut received).unwrap(), 0);
        serving.join().unwrap();
    }
}

#[test]
fn a_client_that_is_faster_with_chacha20_gets_it() {
    let [aes_128, aes_256, chacha20] = SUITES;
    let (peer, _) = connected_by(&[chacha20, aes_128, aes_256]);
    assert_eq!(peer.conn.negotiated_cipher_suite(), Some(chacha20));
}

#[test]
fn exported_values_are_those_of_the_other_implementation() {
    for suite in SUITES {
        let (peer, ours) = connected(suite);
        for (label, context) in [("EXPORTER-thalweg", &b"a context"[..]), ("x", &[][..])] {
            let theirs = peer.conn.export_keying_material([0; 32], label.as_bytes(), Some(context)).unwrap();
            assert_eq!(ours.export(label.as_bytes(), context), theirs);
        }
    }
}

#[test]
fn key_updates_of_the_other_implementation_are_followed_and_answered() {
    for suite in SUITES {
        let (mut peer, mut ours) = connected(suite);
        let mut received = [0; 5];
        for round in 0..5 {
            // Asks for ours in return.
            peer.conn.refresh_traffic_keys().unwrap();
            peer.write_all(&[round; 5]).unwrap();
            ours.recv_exact(&mut received).unwrap();
            assert_eq!(received, [round; 5]);
            ours.send(&[&[round + 100; 5]]).unwrap();
            peer.read_exact(&mut received).unwrap();
            assert_eq!(received, [round + 100; 5]);
        }
    }
}

#[test]
fn a_peer_of_another_protocol_is_refused() {
    let (mut near, far) = tcp_pair();
    let tls = ServerTls::new(&Identity::generate().unwrap()).unwrap();
    let accepting = thread::spawn(move || accept_tls(far, &tls, soon()).map(|_| ()).unwrap_err());
    let mut client = ClientConnection::new(config(&SUITES[..1], b"h2"), "peer.invalid".try_into().unwrap()).unwrap();
    assert!((0..10).any(|_| client.complete_io(&mut near).is_err()));
    assert_eq!(accepting.join().unwrap().kind, net::ErrorKind::IncompatiblePeer);
}
