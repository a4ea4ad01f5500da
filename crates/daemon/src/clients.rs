//! The clients that an endpoint knows, and how it comes to know one.
//!
//! One file each, `clients/PIN.toml` below the state directory, read again for every session: removing a file shuts its
//! client out from its next connection on.
//!
//! Invariants:
//! - A key gets in by being enrolled, or by presenting the endpoint's credential, which enrols it.
//! - A wrong, an empty and a missing credential get the same answer, and the comparison takes the same time.
//! - The credential outlives restarts and is in no `Debug` output.

use crate::error::{Error, Result, shown};
use crate::private_file::{self, Existing};
use crate::{paths, time};
use model::{Exit, Pin};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::SystemTime;
use tracing::{error, info};
use wire::{CloseCode, Refusal};

pub const CREDENTIAL_BYTES: usize = 32;
const FILE_BYTES_MAX: u64 = 4096;
const CLIENTS_MAX: usize = 100_000;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enrolment {
    pub pin: String,
    /// For logs: where it came from when it enrolled. A person may give it another name.
    pub name: String,
    /// RFC 3339.
    pub enrolled: String,
    pub may_write: bool,
}

pub struct ClientBook {
    directory: PathBuf,
    credential: [u8; CREDENTIAL_BYTES],
    /// Enrolled clients; may run behind when files are removed by hand.
    enrolled: AtomicUsize,
}

impl ClientBook {
    /// Opens the book in a state directory, and makes the credential on first use.
    pub fn open(state_dir: &Path) -> Result<ClientBook> {
        let directory = state_dir.join("clients");
        paths::make_private_directory(&directory)?;
        let listing = std::fs::read_dir(&directory).map_err(|e| Error::of_file("list", &directory, e))?;
        let enrolled = AtomicUsize::new(listing.take(CLIENTS_MAX).count());
        Ok(ClientBook { credential: credential(&state_dir.join("credential"))?, directory, enrolled })
    }

    /// What tickets carry. Secret.
    pub fn credential(&self) -> [u8; CREDENTIAL_BYTES] {
        self.credential
    }

    /// Whether this key is enrolled: one look at a directory, no reading.
    pub fn knows(&self, pin: Pin) -> bool {
        self.path(pin).exists()
    }

    /// Lets a peer in, enrolling it where its credential allows that. `name` says what to call a newcomer.
    pub fn authorise(
        &self,
        pin: Pin,
        credential: &[u8],
        name: impl FnOnce() -> String,
    ) -> std::result::Result<Enrolment, Refusal> {
        if let Some(known) = self.find(pin)? {
            return Ok(known);
        }
        // Digests have one length, so that the time of the comparison says nothing of the credential's.
        if !net::constant_time_eq(&net::sha256(credential), &net::sha256(&self.credential)) {
            let text =
                "this client is not enrolled here, and it brought no ticket of this endpoint that is still valid";
            return Err(Refusal::new(CloseCode::Authentication, text));
        }
        if self.enrolled.load(Relaxed) >= CLIENTS_MAX {
            error!(clients = CLIENTS_MAX, "no more clients can be enrolled");
            return Err(Refusal::new(CloseCode::Busy, "the endpoint has as many clients as it takes"));
        }
        self.enrol(pin, name())
    }

    fn enrol(&self, pin: Pin, name: String) -> std::result::Result<Enrolment, Refusal> {
        let enrolled = time::rfc3339(SystemTime::now());
        let newcomer = Enrolment { pin: pin.to_string(), name, enrolled, may_write: true };
        let text = toml::to_string(&newcomer).expect("texts and a truth value have a TOML form");
        match private_file::write(&self.path(pin), text.as_bytes(), Existing::Keep) {
            Ok(()) => {
                self.enrolled.fetch_add(1, Relaxed);
                info!(%pin, client = newcomer.name, "client enrolled");
                Ok(newcomer)
            }
            // Another connection of the same client was faster.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => self.find(pin)?.ok_or_else(unreadable),
            Err(e) => {
                error!(%pin, error = %e, "a client cannot be enrolled");
                Err(Refusal::new(CloseCode::Internal, "the endpoint cannot write this client down; see its log"))
            }
        }
    }

    fn find(&self, pin: Pin) -> std::result::Result<Option<Enrolment>, Refusal> {
        let path = self.path(pin);
        private_file::read(&path, FILE_BYTES_MAX, false)
            .and_then(|bytes| bytes.map(|bytes| parse(&path, &bytes, pin)).transpose())
            .map_err(|e| {
                error!(%pin, error = %e, "the file of a client cannot be used");
                unreadable()
            })
    }

    fn path(&self, pin: Pin) -> PathBuf {
        self.directory.join(format!("{pin}.toml"))
    }
}

fn unreadable() -> Refusal {
    Refusal::new(CloseCode::Internal, "the endpoint cannot read what it knows of this client; see its log")
}

fn parse(path: &Path, bytes: &[u8], pin: Pin) -> Result<Enrolment> {
    let wrong = |what: &str| Error::new(Exit::Failed, format!("{}: {}", shown(path), what.trim_end()));
    let text = std::str::from_utf8(bytes).map_err(|_| wrong("not text"))?;
    let known: Enrolment = toml::from_str(text).map_err(|e| wrong(e.message()))?;
    if known.pin != pin.to_string() {
        return Err(wrong("the pin in the file is not that of the file"));
    }
    Ok(known)
}

/// Loads the credential, or makes it. Two processes that start at once end up with the same one.
fn credential(path: &Path) -> Result<[u8; CREDENTIAL_BYTES]> {
    let load = || -> Result<Option<[u8; CREDENTIAL_BYTES]>> {
        let Some(bytes) = private_file::read(path, CREDENTIAL_BYTES as u64, true)? else { return Ok(None) };
        let whole = bytes.try_into().map_err(|_| {
            Error::new(Exit::Failed, format!("{} is not a whole credential", shown(path)))
                .hint("move it away: a new one is made, tickets handed out before enrol nobody any more")
        })?;
        Ok(Some(whole))
    };
    if let Some(credential) = load()? {
        return Ok(credential);
    }
    let fresh = net::random_bytes();
    match private_file::write(path, &fresh, Existing::Keep) {
        Ok(()) => Ok(fresh),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            load()?.ok_or_else(|| Error::of_file("read", path, io::ErrorKind::NotFound.into()))
        }
        Err(e) => Err(Error::of_file("write", path, e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn book() -> (tempfile::TempDir, ClientBook) {
        let dir = tempfile::tempdir().unwrap();
        let book = ClientBook::open(dir.path()).unwrap();
        (dir, book)
    }

    #[test]
    fn the_credential_enrols_and_the_key_alone_gets_in_afterwards() {
        let (dir, book) = book();
        let pin = Pin([5; 32]);
        assert!(!book.knows(pin));
        let newcomer = book.authorise(pin, &book.credential(), || "n".into()).unwrap();
        assert!(newcomer.may_write && book.knows(pin));
        let again = ClientBook::open(dir.path()).unwrap();
        assert_eq!(again.authorise(pin, b"", || unreachable!()).unwrap(), newcomer);
        assert_eq!(again.credential(), book.credential());
        for file in [dir.path().join("credential"), book.path(pin)] {
            assert_eq!(std::fs::metadata(file).unwrap().mode() & 0o7777, 0o600);
        }
        std::fs::remove_file(book.path(pin)).unwrap();
        assert!(again.authorise(pin, b"", || unreachable!()).is_err());
    }

    #[test]
    fn wrong_and_missing_credentials_get_one_answer() {
        let (_dir, book) = book();
        let mut nearly = book.credential();
        nearly[31] ^= 1;
        let mut longer = book.credential().to_vec();
        longer.push(0);
        let answers: Vec<_> = [&b""[..], b"x", &nearly, &longer, &[0; 4000]]
            .map(|credential| book.authorise(Pin([1; 32]), credential, || unreachable!()).unwrap_err())
            .to_vec();
        assert!(answers.iter().all(|a| *a == answers[0] && a.code == CloseCode::Authentication));
        assert!(!book.knows(Pin([1; 32])));
    }

    #[test]
    fn a_full_book_takes_nobody_but_those_it_knows() {
        let (_dir, book) = book();
        book.authorise(Pin([1; 32]), &book.credential(), || "n".into()).unwrap();
        book.enrolled.store(CLIENTS_MAX, Relaxed);
        let refused = book.authorise(Pin([2; 32]), &book.credential(), || unreachable!()).unwrap_err();
        assert_eq!(refused.code, CloseCode::Busy);
        assert!(book.authorise(Pin([1; 32]), b"", || unreachable!()).is_ok());
    }

    #[test]
    fn a_file_that_is_not_understood_lets_nobody_in() {
        let (_dir, book) = book();
        let pin = Pin([1; 32]);
        book.authorise(pin, &book.credential(), || "n".into()).unwrap();
        let text = std::fs::read_to_string(book.path(pin)).unwrap();
        for change in [format!("{text}quota = 7\n"), text.replace("0101", "0202"), String::new()] {
            std::fs::write(book.path(pin), change).unwrap();
            let refused = book.authorise(pin, &book.credential(), || unreachable!()).unwrap_err();
            assert_eq!(refused.code, CloseCode::Internal);
        }
        std::fs::write(book.path(pin), text.replace("may_write = true", "may_write = false")).unwrap();
        assert!(!book.authorise(pin, b"", || unreachable!()).unwrap().may_write);
    }

    #[test]
    fn a_damaged_credential_is_an_error_and_kept() {
        let (dir, _book) = book();
        std::fs::write(dir.path().join("credential"), b"short").unwrap();
        let error = ClientBook::open(dir.path()).err().unwrap();
        assert!(error.hint.is_some(), "{error}");
        assert_eq!(std::fs::read(dir.path().join("credential")).unwrap(), b"short");
    }
}
