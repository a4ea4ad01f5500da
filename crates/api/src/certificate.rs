//! What the hub proves with who it is: a key of its own with a certificate that it signed itself, known by its pin; or files.
//!
//! The own key is of the P-256 kind, because browsers take no Ed25519. It is made once and kept as `tls.pem` in the state directory,
//! mode 0600, so that whoever accepted the certificate once is not asked again. The pin is that of the key and outlives certificates.

use hub::private_file::{self, Existing};
use hub::{Error, Result};
use model::{Exit, Pin};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

const FILE_BYTES_MAX: u64 = 1 << 20;
/// How often it is looked whether the files are others.
const LOOK: Duration = Duration::from_secs(10);

/// A certificate of an authority with its key, in PEM.
#[derive(Clone, Debug)]
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

pub struct Proof {
    pub config: Arc<ServerConfig>,
    pub pin: Pin,
}

/// From files, or of the hub's own key.
pub fn proof(state_dir: &Path, names: &[String], files: Option<&Files>) -> Result<Proof> {
    match files {
        Some(Files { certificate, key }) => {
            let chain = std::fs::read(certificate).map_err(|e| Error::of_file("read", certificate, e))?;
            let secret = private_file::read(key, FILE_BYTES_MAX, true)?;
            let secret = secret.ok_or_else(|| Error::of_file("read", key, std::io::ErrorKind::NotFound.into()))?;
            of_pem(&chain, &secret, certificate)
        }
        None => {
            let path = state_dir.join("tls.pem");
            let pem = own(&path, names)?;
            of_pem(&pem, &pem, &path)
        }
    }
}

/// Takes files that were renewed into use, as long as connections are accepted.
pub async fn renew(files: Files, tls: watch::Sender<TlsAcceptor>) {
    let stamp =
        |path: &Path| std::fs::metadata(path).map(|found| (found.ino(), found.mtime(), found.mtime_nsec())).ok();
    let stamps = || (stamp(&files.certificate), stamp(&files.key));
    let mut known = stamps();
    while !tls.is_closed() {
        sleep(LOOK).await;
        let now = stamps();
        if now == known {
            continue;
        }
        match proof(Path::new(""), &[], Some(&files)) {
            Ok(proof) => {
                tracing::info!(pin = %proof.pin, "the certificate was renewed");
                _ = tls.send(TlsAcceptor::from(proof.config));
                known = now;
            }
            // One of the two may not be written yet.
            Err(e) => tracing::warn!(error = %e.message, "the certificate was not renewed; the old one stays in use"),
        }
    }
}

/// The file with the own key and a certificate for these names, made or renewed where it is needed.
fn own(path: &Path, names: &[String]) -> Result<Vec<u8>> {
    let failed = |e: rcgen::Error| {
        Error::new(Exit::Failed, format!("{}: no certificate: {e}", path.display()))
            .hint("remove the file; clients then have to be told the new pin")
    };
    let title = format!("names: {}\n", names.join(" "));
    let known = private_file::read(path, FILE_BYTES_MAX, true)?;
    if let Some(pem) = known.as_ref().filter(|pem| pem.starts_with(title.as_bytes())) {
        return Ok(pem.clone());
    }
    let key = match &known {
        // Another name makes another certificate, of the same key.
        Some(pem) => rcgen::KeyPair::from_pem(&String::from_utf8_lossy(pem)),
        None => rcgen::KeyPair::generate(),
    };
    let key = key.map_err(failed)?;
    let mut params = rcgen::CertificateParams::new(names.to_vec()).map_err(failed)?;
    params.distinguished_name.push(rcgen::DnType::CommonName, "Thalweg hub");
    let certificate = params.self_signed(&key).map_err(failed)?;
    let pem = format!("{title}{}{}", key.serialize_pem(), certificate.pem());
    private_file::write(path, pem.as_bytes(), Existing::Replace).map_err(|e| Error::of_file("write", path, e))?;
    Ok(pem.into_bytes())
}

fn of_pem(chain: &[u8], key: &[u8], shown: &Path) -> Result<Proof> {
    let failed = |why: String| {
        Error::new(Exit::Failed, format!("{}: {why}", shown.display()))
            .hint("give a certificate with its chain and the key that belongs to it, both in PEM")
    };
    let chain: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.map_err(|e| failed(format!("no certificate: {e}")))?;
    let first = chain.first().ok_or_else(|| failed("no certificate".to_owned()))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| failed("no private key".to_owned()))?;
    let parsed = ParsedCertificate::try_from(first).map_err(|e| failed(e.to_string()))?;
    let pin = Pin(net::sha256(&parsed.subject_public_key_info()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key));
    let mut config = config.map_err(|e| failed(e.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Proof { config: Arc::new(config), pin })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_key_stays_the_same_under_another_name_and_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let names = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let first = proof(dir.path(), &names("localhost 127.0.0.1"), None).unwrap();
        let path = dir.path().join("tls.pem");
        let before = std::fs::read(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        proof(dir.path(), &names("localhost 127.0.0.1"), None).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), before, "the same certificate, which may have been accepted");
        let other = proof(dir.path(), &names("hub.example"), None).unwrap();
        assert_eq!(other.pin, first.pin);
        assert_ne!(std::fs::read(&path).unwrap(), before);
        // The file serves as files of an authority do; one that others can read does not.
        let files = Files { certificate: path.clone(), key: path.clone() };
        assert_eq!(proof(dir.path(), &[], Some(&files)).unwrap().pin, first.pin);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(proof(dir.path(), &[], Some(&files)).err().unwrap().exit, Exit::Refused);
        std::fs::write(&path, "nothing").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(proof(dir.path(), &[], Some(&files)).err().unwrap().message.contains("no certificate"));
    }
}
