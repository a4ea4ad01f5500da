//! Which certificate authorities a client believes: those of a file, or those of the host.
//!
//! `SSL_CERT_FILE` and `SSL_CERT_DIR` stand for the host's, as for OpenSSL.

use crate::error::{Error, ErrorKind, Result};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Trust {
    #[default]
    Host,
    /// A file of certificates in PEM.
    File(PathBuf),
}

impl Trust {
    pub(crate) fn client(&self) -> Result<Arc<ClientConfig>> {
        let failed = |text: String| Error::new(ErrorKind::Settings, text);
        let mut roots = RootCertStore::empty();
        match self {
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
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|e| failed(format!("no usable version of TLS: {e}")))?;
        Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
    }
}
