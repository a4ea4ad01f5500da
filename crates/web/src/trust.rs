//! Which certificate authorities a client believes: those of a file, or those of the host; or the one key that it believes.
//!
//! `SSL_CERT_FILE` and `SSL_CERT_DIR` stand for the host's, as for OpenSSL.

use crate::error::{Error, ErrorKind, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Trust {
    #[default]
    Host,
    /// A file of certificates in PEM.
    File(PathBuf),
    /// One key, whatever its certificate says: SHA-256 of its SubjectPublicKeyInfo.
    Pin([u8; 32]),
}

impl Trust {
    pub(crate) fn client(&self) -> Result<Arc<ClientConfig>> {
        let failed = |text: String| Error::new(ErrorKind::Settings, text);
        let mut roots = RootCertStore::empty();
        match self {
            Trust::Pin(pin) => return pinned(*pin),
            Trust::Host => {
                let loaded = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(loaded.certs);
                if roots.is_empty() {
                    let why = loaded.errors.first().map_or(String::new(), |error| format!(": {error}"));
                    return Err(failed(format!("this host has no certificate authorities{why}")));
                }
            }
            Trust::File(path) => {
                let shown = path.display();
                let read = CertificateDer::pem_file_iter(path).map_err(|e| failed(format!("read {shown}: {e}")))?;
                for certificate in read {
                    let certificate = certificate.map_err(|e| failed(format!("read {shown}: {e}")))?;
                    roots
                        .add(certificate)
                        .map_err(|e| failed(format!("{shown} holds a certificate that is none: {e}")))?;
                }
                if roots.is_empty() {
                    return Err(failed(format!("{shown} holds no certificate")));
                }
            }
        }
        let provider = Arc::new(default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|e| failed(format!("no usable version of TLS: {e}")))?;
        Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
    }
}

fn pinned(pin: [u8; 32]) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(default_provider());
    let config =
        ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&rustls::version::TLS13]);
    let config = config.map_err(|e| Error::new(ErrorKind::Settings, format!("no usable version of TLS: {e}")))?;
    let verifier = Arc::new(Pinned { pin, algorithms: provider.signature_verification_algorithms });
    Ok(Arc::new(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
}

/// Believes whoever has the key, by TLS 1.3 alone.
#[derive(Debug)]
struct Pinned {
    pin: [u8; 32],
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
        match aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &key).as_ref() == self.pin {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(rustls::Error::General("its key is not the pinned one".to_owned())),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
