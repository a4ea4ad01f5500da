//! Who this peer is: an Ed25519 key pair, its file, and the small cryptographic tools the layers above need.
//!
//! Invariants:
//! - The private key appears in no `Debug` output and in no error.
//! - A key file is complete or absent under its name (but see `name_new`), and never readable by group or others.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use aws_lc_rs::{digest, hmac};
use model::Pin;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::error::{Error, ErrorKind};

/// A PKCS#8 Ed25519 key is 48 or 83 bytes long; a file much longer is something else.
const KEY_FILE_BYTES_MAX: u64 = 4096;

/// A long-lived Ed25519 key pair, by whose public half ([`Identity::pin`]) others know this peer. Clones share it.
#[derive(Clone)]
pub struct Identity {
    inner: Arc<Inner>,
}

struct Inner {
    /// Overwritten when the last clone goes. TLS has its own copy (`tls`), which the library overwrites.
    pkcs8: Zeroizing<Vec<u8>>,
    spki: Vec<u8>,
    pin: Pin,
}

impl Identity {
    /// Makes a key pair from the operating system's random numbers.
    pub fn generate() -> Result<Self, Error> {
        let invalid = |_| Error::new(ErrorKind::Io, "generate", "an Ed25519 key");
        let pair = Ed25519KeyPair::generate().map_err(invalid)?;
        let pkcs8 = pair.to_pkcs8v1().map_err(invalid)?;
        Self::from_pkcs8(pkcs8.as_ref())
    }

    /// Reads a key pair in PKCS#8 form (version 1 or 2, DER).
    pub fn from_pkcs8(pkcs8: &[u8]) -> Result<Self, Error> {
        let invalid = || Error::new(ErrorKind::IdentityInvalid, "read", "private key");
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8).map_err(|_| invalid())?;
        let spki: PublicKeyX509Der<'_> = pair.public_key().as_der().map_err(|_| invalid())?;
        let spki = spki.as_ref().to_vec();
        let pin = Pin(sha256(&spki));
        Ok(Self { inner: Arc::new(Inner { pkcs8: pkcs8.to_vec().into(), spki, pin }) })
    }

    /// The private key in PKCS#8 form. Secret.
    pub fn pkcs8(&self) -> &[u8] {
        &self.inner.pkcs8
    }

    /// Loads the key at `path`, or makes one there (mode 0600) if there is none.
    ///
    /// Two processes that start at once end up with the same key. Missing parent directories are not created.
    pub fn load_or_create(path: &Path) -> Result<Self, Error> {
        if let Some(identity) = load(path)? {
            return Ok(identity);
        }
        let identity = Self::generate()?;
        let created = create(path, &identity.inner.pkcs8)
            .map_err(|e| Error::from_io("create identity file", path.display(), e))?;
        if created {
            return Ok(identity);
        }
        // Somebody else was faster: theirs is the identity.
        load(path)?.ok_or_else(|| Error::from_io("read identity file", path.display(), io::ErrorKind::NotFound.into()))
    }

    /// SHA-256 of the public key's SubjectPublicKeyInfo.
    pub fn pin(&self) -> Pin {
        self.inner.pin
    }

    /// The public key as SubjectPublicKeyInfo (DER).
    pub fn spki(&self) -> &[u8] {
        &self.inner.spki
    }

    /// Signs what somebody else is to believe; the caller sees to it that the bytes mean nothing else.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&self.inner.pkcs8).expect("it was read before");
        pair.sign(message).as_ref().try_into().expect("an Ed25519 signature has 64 bytes")
    }
}

/// Every Ed25519 SubjectPublicKeyInfo begins so (RFC 8410); the key itself follows.
pub(crate) const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Whose key signed these bytes, if it did: the pin of the SubjectPublicKeyInfo.
pub fn signer(spki: &[u8], message: &[u8], signature: &[u8]) -> Option<Pin> {
    let key = spki.strip_prefix(&SPKI_PREFIX).filter(|key| key.len() == 32)?;
    let is_signed = UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok();
    is_signed.then(|| Pin(sha256(spki)))
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("pin", &self.inner.pin).finish_non_exhaustive()
    }
}

/// Bytes from the operating system's random number generator.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).expect("the library aborts rather than fail to produce random bytes");
    bytes
}

/// SHA-256 of `bytes`.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, bytes);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// HMAC-SHA-256 of the concatenation of `parts`. Parts are not delimited: give them fixed lengths.
pub fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let mut context = hmac::Context::with_key(&key);
    for part in parts {
        context.update(part);
    }
    context.sign().as_ref().try_into().expect("HMAC-SHA-256 has 32 bytes")
}

/// Compares in a time that depends on the lengths only.
pub fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(a, b).is_ok()
}

/// Reads the key file; `None` if there is none. What is judged (mode, size) is the file that was opened.
fn load(path: &Path) -> Result<Option<Identity>, Error> {
    const OPERATION: &str = "read identity file";
    let failed = |e| Error::from_io(OPERATION, path.display(), e);
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(Error::new(ErrorKind::IdentityExposed { mode }, OPERATION, path.display()));
    }
    if !metadata.is_file() || metadata.len() > KEY_FILE_BYTES_MAX {
        return Err(Error::new(ErrorKind::IdentityInvalid, OPERATION, path.display()));
    }
    // Made long enough at once: what grows leaves copies behind.
    let mut pkcs8 = Zeroizing::new(Vec::with_capacity(KEY_FILE_BYTES_MAX as usize));
    file.take(KEY_FILE_BYTES_MAX).read_to_end(&mut pkcs8).map_err(failed)?;
    match Identity::from_pkcs8(&pkcs8) {
        Ok(identity) => Ok(Some(identity)),
        Err(e) => Err(Error { operation: OPERATION, subject: path.display().to_string().into(), ..e }),
    }
}

/// Writes the key under a private name, makes it durable and gives it its own; `false` if `path` exists by now.
fn create(path: &Path, pkcs8: &[u8]) -> io::Result<bool> {
    let mut staging_name = path.file_name().unwrap_or_default().to_os_string();
    staging_name.push(format!(".{}", random_suffix()));
    let staging = path.with_file_name(staging_name);
    let _cleanup = RemoveOnDrop(staging.clone());
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staging)?;
    file.write_all(pkcs8)?;
    file.sync_all()?;
    match name_new(&staging, path) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        Err(e) => return Err(e),
    }
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()?;
    Ok(true)
}

/// Gives a file a name that is free, else fails with `AlreadyExists`: nothing replaces what another process was faster to make.
/// The name it had is the caller's to remove, and may be gone.
///
/// A file system without hard links renames the file instead; where a rename cannot be kept from replacing either, the new name
/// lies there empty for a moment.
pub fn name_new(file: &Path, name: &Path) -> io::Result<()> {
    or_rename(fs::hard_link(file, name), file, name)
}

fn or_rename(linked: io::Result<()>, file: &Path, name: &Path) -> io::Result<()> {
    match linked {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::EOPNOTSUPP | libc::ENOSYS)) => {}
        linked => return linked,
    }
    match renameat_with(CWD, file, CWD, name, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(name)?;
            fs::rename(file, name).inspect_err(|_| drop(fs::remove_file(name)))
        }
        renamed => renamed.map_err(io::Error::from),
    }
}

fn random_suffix() -> String {
    random_bytes::<8>().iter().map(|byte| format!("{byte:02x}")).collect()
}

struct RemoveOnDrop(PathBuf);

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        // The file may never have been created, and a leftover of 48 private bytes harms nobody.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_pair_survives_its_pkcs8_form() {
        let identity = Identity::generate().unwrap();
        let copy = Identity::from_pkcs8(identity.pkcs8()).unwrap();
        assert_eq!(copy.pin(), identity.pin());
        assert_eq!(identity.pin().0, sha256(identity.spki()));
        assert_ne!(Identity::generate().unwrap().pin(), identity.pin());
        assert_eq!(Identity::from_pkcs8(b"not a key").unwrap_err().kind, ErrorKind::IdentityInvalid);
    }

    #[test]
    fn a_signature_is_of_one_key_and_one_message() {
        let identity = Identity::generate().unwrap();
        let signature = identity.sign(b"word");
        assert_eq!(signer(identity.spki(), b"word", &signature), Some(identity.pin()));
        assert_eq!(signer(identity.spki(), b"ward", &signature), None);
        assert_eq!(signer(Identity::generate().unwrap().spki(), b"word", &signature), None);
        assert_eq!(signer(&identity.spki()[1..], b"word", &signature), None);
    }

    #[test]
    fn debug_shows_the_pin_and_nothing_secret() {
        let identity = Identity::generate().unwrap();
        let shown = format!("{identity:?}");
        assert!(shown.contains(&identity.pin().to_string()) && shown.len() < 120, "{shown}");
    }

    #[test]
    fn a_file_is_made_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity");
        let first = Identity::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(Identity::load_or_create(&path).unwrap().pin(), first.pin());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_gets_a_free_name_also_where_there_are_no_hard_links() {
        let dir = tempfile::tempdir().unwrap();
        let [file, name] = ["file", "name"].map(|name| dir.path().join(name));
        for errno in [libc::EPERM, libc::EOPNOTSUPP] {
            let refused = || Err(io::Error::from_raw_os_error(errno));
            fs::write(&file, b"first").unwrap();
            or_rename(refused(), &file, &name).unwrap();
            fs::write(&file, b"second").unwrap();
            let taken = or_rename(refused(), &file, &name).unwrap_err();
            assert_eq!((taken.kind(), fs::read(&name).unwrap()), (io::ErrorKind::AlreadyExists, b"first".to_vec()));
            fs::remove_file(&name).unwrap();
        }
        let other = or_rename(Err(io::ErrorKind::StorageFull.into()), &file, &name).unwrap_err();
        assert!(other.kind() == io::ErrorKind::StorageFull && !name.exists());
    }

    #[test]
    fn processes_that_start_at_once_agree() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity");
        let start = std::sync::Barrier::new(8);
        let pins: Vec<Pin> = std::thread::scope(|scope| {
            let starting = || {
                start.wait();
                Identity::load_or_create(&path).unwrap().pin()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(starting)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(pins.iter().all(|pin| *pin == pins[0]));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity");
        Identity::load_or_create(&path).unwrap();
        for mode in [0o640, 0o604, 0o660] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = Identity::load_or_create(&path).unwrap_err();
            assert_eq!(error.kind, ErrorKind::IdentityExposed { mode });
            assert!(error.to_string().contains("0600"), "{error}");
        }
    }

    #[test]
    fn a_file_with_something_else_in_it_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity");
        fs::write(&path, b"something else").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(Identity::load_or_create(&path).unwrap_err().kind, ErrorKind::IdentityInvalid);
        assert_eq!(fs::read(&path).unwrap(), b"something else");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(Identity::load_or_create(dir.path()).unwrap_err().kind, ErrorKind::IdentityInvalid);
    }

    #[test]
    fn a_missing_directory_is_an_error_with_its_path() {
        let error = Identity::load_or_create(Path::new("/nonexistent/identity")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/identity"), "{error}");
    }

    #[test]
    fn digests_match_published_vectors() {
        let hex = |bytes: [u8; 32]| Pin(bytes).to_string();
        assert_eq!(hex(sha256(b"abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        // RFC 4231, test case 2.
        let mac = hmac_sha256(b"Jefe", &[b"what do ya want ", b"for nothing?"]);
        assert_eq!(hex(mac), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        assert!(constant_time_eq(b"same", b"same") && !constant_time_eq(b"same", b"sane"));
        assert!(!constant_time_eq(b"short", b"longer"));
        assert_ne!(random_bytes::<16>(), random_bytes::<16>());
    }
}
