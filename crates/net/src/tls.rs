//! TLS 1.3 with raw public keys (RFC 7250): the settings of both sides and their verifiers.
//!
//! Invariants:
//! - Both sides prove possession of an Ed25519 key; the dialling side accepts one key only, the pinned one.
//! - One protocol version, no resumption, no early data, no certificates, no process-wide provider.
//!
//! Not here: whether a listening side wants to deal with the key that dialled (see [`crate::connection::Connection::peer_pin`]).

use std::fmt;
use std::sync::Arc;

use model::Pin;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs as provider};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime, alg_id};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, OtherError, ServerConfig,
    SignatureScheme, version,
};

use crate::cipher;
use crate::error::{Error, ErrorKind};
use crate::identity::{Identity, constant_time_eq, sha256};

/// Name of the protocol, agreed on by ALPN.
pub const ALPN: &[u8] = b"thalweg/1";

/// The dialling side's settings: who we are and whom we expect. Clones share them.
#[derive(Clone)]
pub struct ClientTls {
    pub(crate) config: Arc<ClientConfig>,
}

impl ClientTls {
    pub fn new(identity: &Identity, pin: Pin) -> Result<Self, Error> {
        let verifier = Arc::new(PinnedServer { pin, verifier: SignatureVerifier::new() });
        let mut config = ClientConfig::builder_with_provider(Arc::new(crypto_provider()))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|e| Error::caused(ErrorKind::Io, "set up", "TLS", e))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified_key(identity)?)));
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        config.enable_early_data = false;
        config.enable_secret_extraction = true;
        Ok(Self { config: Arc::new(config) })
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").finish_non_exhaustive()
    }
}

/// The listening side's settings: who we are. Whoever proves possession of a key gets through. Clones share them.
#[derive(Clone)]
pub struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
}

impl ServerTls {
    pub fn new(identity: &Identity) -> Result<Self, Error> {
        let verifier = Arc::new(AnyClient { verifier: SignatureVerifier::new() });
        let mut config = ServerConfig::builder_with_provider(Arc::new(crypto_provider()))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|e| Error::caused(ErrorKind::Io, "set up", "TLS", e))?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified_key(identity)?)));
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        config.send_half_rtt_data = false;
        config.ignore_client_order = cipher::chosen().overrules_client();
        config.enable_secret_extraction = true;
        Ok(Self { config: Arc::new(config) })
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").finish_non_exhaustive()
    }
}

/// The cause inside rustls's error when a server presents another key than the pinned one.
#[derive(Debug, thiserror::Error)]
#[error("the server presented key {found}")]
pub(crate) struct PinMismatch {
    pub(crate) expected: Pin,
    pub(crate) found: Pin,
}

fn crypto_provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: cipher::chosen().offered(),
        // The hybrid group first: what is recorded today stays secret from a quantum computer.
        kx_groups: vec![provider::kx_group::X25519MLKEM768, provider::kx_group::X25519, provider::kx_group::SECP256R1],
        ..provider::default_provider()
    }
}

fn certified_key(identity: &Identity) -> Result<Arc<CertifiedKey>, Error> {
    let pkcs8 = PrivatePkcs8KeyDer::from(identity.pkcs8());
    let key = provider::sign::any_eddsa_type(&pkcs8)
        .map_err(|e| Error::caused(ErrorKind::IdentityInvalid, "use", "private key", e))?;
    Ok(Arc::new(CertifiedKey::new(vec![CertificateDer::from(identity.spki().to_vec())], key)))
}

/// Verifies handshake signatures by Ed25519 keys, the only kind there is here.
#[derive(Debug)]
struct SignatureVerifier {
    algorithms: WebPkiSupportedAlgorithms,
}

impl SignatureVerifier {
    fn new() -> Self {
        Self { algorithms: provider::default_provider().signature_verification_algorithms }
    }

    /// What rustls calls a certificate is the peer's SubjectPublicKeyInfo. It has to be the 44 bytes of an Ed25519 key:
    /// one encoding per key, so that a key has one pin.
    fn check_key(&self, spki: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        // SEQUENCE of an algorithm identifier and a BIT STRING without unused bits.
        let algorithm = alg_id::ED25519.as_ref();
        let key_bytes = spki
            .as_ref()
            .strip_prefix(&[0x30, 0x2a, 0x30, algorithm.len() as u8])
            .and_then(|rest| rest.strip_prefix(algorithm)?.strip_prefix(&[0x03, 0x21, 0x00]));
        match key_bytes {
            Some(key) if key.len() == 32 && others.is_empty() => Ok(()),
            _ => Err(CertificateError::BadEncoding.into()),
        }
    }

    fn verify_signature(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let spki = SubjectPublicKeyInfoDer::from(spki.as_ref());
        rustls::crypto::verify_tls13_signature_with_raw_key(message, &spki, signature, &self.algorithms)
    }
}

fn schemes() -> Vec<SignatureScheme> {
    vec![SignatureScheme::ED25519]
}

fn no_tls12() -> Result<HandshakeSignatureValid, rustls::Error> {
    Err(rustls::Error::General("there is no TLS 1.2 here".to_owned()))
}

/// Accepts one server key.
#[derive(Debug)]
struct PinnedServer {
    pin: Pin,
    verifier: SignatureVerifier,
}

impl ServerCertVerifier for PinnedServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verifier.check_key(end_entity, intermediates)?;
        let found = Pin(sha256(end_entity));
        if constant_time_eq(&found.0, &self.pin.0) {
            return Ok(ServerCertVerified::assertion());
        }
        let mismatch = PinMismatch { expected: self.pin, found };
        Err(CertificateError::Other(OtherError(Arc::new(mismatch))).into())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Accepts every client key whose possession is proved.
#[derive(Debug)]
struct AnyClient {
    verifier: SignatureVerifier,
}

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.verifier.check_key(end_entity, intermediates)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
