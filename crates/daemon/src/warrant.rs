//! Warrants: signed by a client for an endpoint that works in its name, and checked by the endpoint that is worked at.
//!
//! Invariants:
//! - A warrant opens nothing that its issuer could not do itself at that moment: its issuer's enrolment is looked up for every
//!   job, every question and every review.
//! - A warrant is worth nothing without the private key of its holder: the handshake has proved that key.
//!
//! Not here: the bytes (`model::warrant`), and what a deed needs (`host::rights`).

use crate::error::{self, Error};
use crate::host::rights::Deed;
use crate::private_file::{self, Existing};
use crate::time::{now_or_later, rfc3339};
use model::warrant::{CLOCK_SECONDS, LIFETIME_SECONDS_MAX, Signed, Verbs};
use model::{Pin, Warrant, mutant};
use mover::session::Mandate;
use net::Identity;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wire::{CloseCode, Refusal};

const NOT_VALID: &str = "the warrant is damaged, or was not signed by the key that it names";
const REVOKED: &str = "the warrant was revoked by the client that gave it; what is verified is kept";
/// Revoked warrants that are remembered, of all and of one account.
const REVOKED_MAX: usize = 100_000;
const REVOKED_OF_ACCOUNT_MAX: usize = 10_000;
const ACCOUNT_BYTES_MAX: u64 = 256;
/// Well beyond any year that makes sense, and before the last that the clock's type has.
const SHOWN_SECONDS_MAX: u64 = 1 << 40;

/// A warrant as it travels.
pub fn sign(identity: &Identity, warrant: Warrant) -> Vec<u8> {
    let signature = identity.sign(&warrant.signed_bytes());
    let issuer = identity.spki().try_into().expect("an Ed25519 key's SubjectPublicKeyInfo has 44 bytes");
    Signed { warrant, issuer, signature }.encode()
}

/// What a job of these deeds needs of a warrant.
pub fn verbs_of(deeds: &[Deed]) -> Verbs {
    let needs = |of: fn(&Deed) -> bool| deeds.iter().any(of);
    Verbs { read: needs(|deed| deed.needs().read), write: needs(|deed| deed.needs().write), delete: needs(takes_away) }
}

fn takes_away(deed: &Deed) -> bool {
    matches!(deed, Deed::Delete | Deed::Backup | Deed::Remove | Deed::Rename)
}

/// Checks all of a warrant that does not change: who signed it, who uses it, for whom.
pub fn check(bytes: &[u8], holder: Pin, audience: Pin) -> Result<Mandate, Refusal> {
    let refused = |text: &str| Refusal::new(CloseCode::Authentication, text);
    let Signed { warrant, issuer, signature } = Signed::decode(bytes).ok_or_else(|| refused(NOT_VALID))?;
    let issuer =
        net::identity::signer(&issuer, &warrant.signed_bytes(), &signature).ok_or_else(|| refused(NOT_VALID))?;
    if warrant.holder != holder && !mutant::is_on("warrant-of-any-holder") {
        return Err(refused("the warrant was given to another endpoint"));
    }
    if warrant.audience != audience {
        return Err(refused("the warrant is for another endpoint"));
    }
    if warrant.expires.saturating_sub(warrant.not_before) > LIFETIME_SECONDS_MAX + CLOCK_SECONDS {
        return Err(refused("the warrant would be valid for more than 7 days"));
    }
    let mandate = Mandate { warrant, issuer };
    check_time(&mandate)?;
    Ok(mandate)
}

pub fn check_time(mandate: &Mandate) -> Result<(), Refusal> {
    // Whoever sets the clock back gives no warrant more time.
    let (now, warrant) = (seconds(now_or_later()), &mandate.warrant);
    // The issuer chose the times, and may have chosen some that no date can be made of.
    let shown = |seconds: u64| rfc3339(UNIX_EPOCH + Duration::from_secs(seconds.min(SHOWN_SECONDS_MAX)));
    let refused = |what: String| Refusal::new(CloseCode::Authentication, &what);
    let clock = format!("and the endpoint's clock says {}", shown(now));
    if now >= warrant.expires {
        return Err(refused(format!(
            "the warrant expired at {}, {clock}; what is verified is kept",
            shown(warrant.expires)
        )));
    }
    if now + CLOCK_SECONDS < warrant.not_before {
        return Err(refused(format!("the warrant is valid from {} on, {clock}", shown(warrant.not_before))));
    }
    Ok(())
}

/// Whether a warrant allows a deed at a path. What its issuer may do is looked at apart.
pub fn check_deed(mandate: &Mandate, deed: Deed, path: &[u8]) -> Result<(), String> {
    let Verbs { read, write, delete } = mandate.warrant.verbs;
    let needs = deed.needs();
    if needs.read && !read || needs.write && !write || takes_away(&deed) && !delete {
        return Err(format!("the warrant does not allow its holder to {}", deed.words().replace('`', "")));
    }
    if !mandate.warrant.covers(path) && !mutant::is_on("warrant-of-any-path") {
        return Err("the warrant is for another path".to_owned());
    }
    Ok(())
}

pub fn now() -> u64 {
    seconds(SystemTime::now())
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The warrants that their issuers took back: a file each, `warrants/ISSUER.ID` below the state directory, which holds the
/// account that it is counted in.
pub struct TakenBack {
    directory: PathBuf,
    /// How many there are, by accounts; nothing as long as nobody took any back.
    counts: Mutex<Option<HashMap<String, usize>>>,
}

impl TakenBack {
    pub fn new(state_dir: &Path) -> TakenBack {
        TakenBack { directory: state_dir.join("warrants"), counts: Mutex::default() }
    }

    /// Remembers it for as long as any warrant may hold that holds now, and further while there is room: an id does not tell
    /// when its warrant begins, and the clock of its issuer may be far ahead.
    pub fn add(&self, account: &str, issuer: Pin, id: [u8; 16]) -> error::Result<()> {
        let path = self.path(issuer, id);
        if path.exists() {
            return Ok(());
        }
        crate::trust::make_private_directory(&self.directory)?;
        let mut counted = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = match counted.take() {
            Some(counts) => counts,
            None => self.count(&|_| false)?,
        };
        if !has_room(&counts, account) {
            // Nobody makes room at the cost of what others took back, unless there is none at all.
            let is_full = counts.values().sum::<usize>() >= REVOKED_MAX;
            counts = self.count(&|of| is_full || of == account)?;
        }
        if !has_room(&counts, account) {
            *counted = Some(counts);
            let text = "as many warrants of this ticket are revoked as the endpoint remembers: have the ticket revoked";
            return Err(Error::new(model::Exit::Temporary, text));
        }
        match private_file::write(&path, account.as_bytes(), Existing::Keep) {
            Ok(()) => *counts.entry(account.to_owned()).or_default() += 1,
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::of_file("write", &path, e)),
        }
        *counted = Some(counts);
        Ok(())
    }

    pub fn check(&self, mandate: &Mandate) -> Result<(), Refusal> {
        match self.path(mandate.issuer, mandate.warrant.id).try_exists() {
            Ok(false) => Ok(()),
            Ok(true) => Err(Refusal::new(CloseCode::Authentication, REVOKED)),
            Err(_) => Err(Refusal::new(CloseCode::Internal, "the endpoint cannot read which warrants were revoked")),
        }
    }

    fn path(&self, issuer: Pin, id: [u8; 16]) -> PathBuf {
        self.directory.join(format!("{issuer}.{}", data_encoding::HEXLOWER.encode(&id)))
    }

    /// Counts them by accounts, and forgets those of the accounts that are named whose warrants have expired.
    fn count(&self, forgets: &dyn Fn(&str) -> bool) -> error::Result<HashMap<String, usize>> {
        let failed = |e| Error::of_file("list", &self.directory, e);
        let lifetime = Duration::from_secs(LIFETIME_SECONDS_MAX + 2 * CLOCK_SECONDS);
        let mut counts = HashMap::new();
        for entry in std::fs::read_dir(&self.directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let account =
                private_file::read(&entry.path(), ACCOUNT_BYTES_MAX, false).ok().flatten().unwrap_or_default();
            let account = String::from_utf8_lossy(&account).into_owned();
            let age = entry.metadata().and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
            let is_over = forgets(&account) && age.is_some_and(|age| age > lifetime);
            if !(is_over && std::fs::remove_file(entry.path()).is_ok()) {
                *counts.entry(account).or_default() += 1;
            }
        }
        Ok(counts)
    }
}

fn has_room(counts: &HashMap<String, usize>, account: &str) -> bool {
    let of_account = counts.get(account).copied().unwrap_or(0);
    let is_fair = of_account < REVOKED_OF_ACCOUNT_MAX || mutant::is_on("revoke-without-shares");
    is_fair && counts.values().sum::<usize>() < REVOKED_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::JobId;
    use model::warrant::MAGIC;

    struct Scene {
        client: Identity,
        holder: Pin,
        audience: Pin,
    }

    fn scene() -> Scene {
        Scene { client: Identity::generate().unwrap(), holder: Pin([1; 32]), audience: Pin([2; 32]) }
    }

    impl Scene {
        fn warrant(&self) -> Warrant {
            let verbs = Verbs { write: true, ..Verbs::default() };
            let (not_before, expires) = (now(), now() + 60);
            let (holder, audience) = (self.holder, self.audience);
            Warrant {
                holder,
                audience,
                job: JobId([3; 16]),
                verbs,
                not_before,
                expires,
                id: [4; 16],
                paths: vec![b"in".to_vec()],
            }
        }

        fn check(&self, bytes: &[u8]) -> Result<Mandate, Refusal> {
            check(bytes, self.holder, self.audience)
        }
    }

    #[test]
    fn a_warrant_is_its_issuers_for_one_holder_and_one_audience() {
        let scene = scene();
        let bytes = sign(&scene.client, scene.warrant());
        let mandate = scene.check(&bytes).unwrap();
        assert_eq!((mandate.issuer, &mandate.warrant), (scene.client.pin(), &scene.warrant()));
        assert!(check(&bytes, Pin([9; 32]), scene.audience).unwrap_err().text.contains("given to another endpoint"));
        assert!(check(&bytes, scene.holder, Pin([9; 32])).unwrap_err().text.contains("for another endpoint"));
    }

    #[test]
    fn every_flipped_bit_spoils_it() {
        let scene = scene();
        let bytes = sign(&scene.client, scene.warrant());
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            let refused = scene.check(&other).unwrap_err();
            assert_eq!(refused, Refusal::new(CloseCode::Authentication, NOT_VALID), "bit {bit}");
        }
    }

    #[test]
    fn it_holds_in_its_hours_and_no_longer_than_a_week() {
        let scene = scene();
        let check =
            |not_before, expires| scene.check(&sign(&scene.client, Warrant { not_before, expires, ..scene.warrant() }));
        let now = now();
        assert!(check(now, now + 60).is_ok() && check(now + CLOCK_SECONDS / 2, now + 400).is_ok());
        assert!(check(now - 60, now).unwrap_err().text.contains("expired at"));
        assert!(check(now + CLOCK_SECONDS + 60, now + 4000).unwrap_err().text.contains("is valid from"));
        assert!(check(now, now + LIFETIME_SECONDS_MAX + CLOCK_SECONDS + 60).unwrap_err().text.contains("7 days"));
        assert!(check(0, u64::MAX).unwrap_err().text.contains("7 days"));
    }

    /// Anybody can sign one, and is told so before it is known who that is.
    #[test]
    fn one_that_begins_when_no_clock_can_show_it_is_refused_as_any_that_has_not_begun() {
        let scene = scene();
        for not_before in [u64::MAX - 1, i64::MAX as u64] {
            let warrant = Warrant { not_before, expires: not_before + 1, ..scene.warrant() };
            let refused = scene.check(&sign(&scene.client, warrant)).unwrap_err();
            assert!(refused.text.contains("is valid from"), "{}", refused.text);
        }
    }

    #[test]
    fn it_allows_its_verbs_at_its_paths() {
        let scene = scene();
        let mandate = |verbs| Mandate { warrant: Warrant { verbs, ..scene.warrant() }, issuer: scene.client.pin() };
        let write = mandate(Verbs { write: true, ..Verbs::default() });
        assert!(check_deed(&write, Deed::Send, b"in/x").is_ok());
        assert!(check_deed(&write, Deed::Send, b"inner").unwrap_err().contains("another path"));
        for deed in Deed::ALL {
            let is_allowed = check_deed(&write, deed, b"in").is_ok();
            assert_eq!(is_allowed, !deed.needs().read && !takes_away(&deed), "{deed:?}");
        }
        let all_but_deleting = mandate(Verbs { read: true, write: true, delete: false });
        let left = Deed::ALL.into_iter().filter(|deed| check_deed(&all_but_deleting, *deed, b"in").is_err());
        assert_eq!(left.collect::<Vec<_>>(), [Deed::Delete, Deed::Backup, Deed::Remove, Deed::Rename]);
        assert_eq!(verbs_of(&[Deed::Send]), Verbs { write: true, ..Verbs::default() });
        assert_eq!(verbs_of(&[Deed::Send, Deed::Delete]), Verbs { read: true, write: true, delete: true });
    }

    #[test]
    fn what_was_taken_back_is_refused_to_whoever_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let (scene, book) = (scene(), TakenBack::new(dir.path()));
        let mandate = Mandate { warrant: scene.warrant(), issuer: scene.client.pin() };
        book.check(&mandate).unwrap();
        // Somebody else's id is somebody else's warrant.
        book.add("a", Pin([9; 32]), mandate.warrant.id).unwrap();
        book.check(&mandate).unwrap();
        book.add("a", mandate.issuer, mandate.warrant.id).unwrap();
        book.add("a", mandate.issuer, mandate.warrant.id).unwrap();
        assert_eq!(TakenBack::new(dir.path()).check(&mandate).unwrap_err().text, REVOKED);
        assert_ne!(&[0; 8], MAGIC);
    }

    /// Its issuer's clock was ahead, say: it begins when any other that was revoked with it has expired.
    #[test]
    fn what_was_taken_back_before_it_begins_stays_so_when_it_does() {
        let dir = tempfile::tempdir().unwrap();
        let (scene, book) = (scene(), TakenBack::new(dir.path()));
        let mandate = Mandate { warrant: scene.warrant(), issuer: scene.client.pin() };
        let take_back_long_ago = |account: &str, issuer, id| {
            book.add(account, issuer, id).unwrap();
            let file = std::fs::File::options().write(true).open(book.path(issuer, id)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(40 * 86_400)).unwrap();
        };
        take_back_long_ago("a", mandate.issuer, mandate.warrant.id);
        take_back_long_ago("greedy", Pin([1; 32]), [0; 16]);
        // The endpoint starts again, and others use up their room.
        let book = TakenBack::new(dir.path());
        book.add("greedy", Pin([1; 32]), [1; 16]).unwrap();
        book.counts.lock().unwrap().as_mut().unwrap().insert("greedy".into(), REVOKED_OF_ACCOUNT_MAX);
        book.add("greedy", Pin([1; 32]), [2; 16]).unwrap();
        assert_eq!(book.counts.lock().unwrap().as_ref().unwrap()["greedy"], 2, "what has expired makes room");
        assert_eq!(book.check(&mandate).unwrap_err().text, REVOKED);
    }

    #[test]
    fn what_is_taken_back_again_takes_no_room_and_nothing_is_counted_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let book = TakenBack::new(dir.path());
        let again = || book.add("full", Pin([1; 32]), [0; 16]).unwrap();
        again();
        book.counts.lock().unwrap().as_mut().unwrap().insert("full".into(), REVOKED_OF_ACCOUNT_MAX);
        again();
        let counts = book.counts.lock().unwrap();
        assert_eq!(counts.as_ref().unwrap()["full"], REVOKED_OF_ACCOUNT_MAX, "the directory was read");
    }

    #[test]
    fn one_account_leaves_room_for_what_others_take_back() {
        let dir = tempfile::tempdir().unwrap();
        let book = TakenBack::new(dir.path());
        book.add("greedy", Pin([1; 32]), [0; 16]).unwrap();
        book.counts.lock().unwrap().as_mut().unwrap().insert("greedy".into(), REVOKED_OF_ACCOUNT_MAX);
        // Counted anew, there is room.
        book.add("greedy", Pin([1; 32]), [1; 16]).unwrap();
        assert_eq!(book.counts.lock().unwrap().as_ref().unwrap()["greedy"], 2);
        for n in 2..REVOKED_OF_ACCOUNT_MAX as u16 {
            let [low, high] = n.to_le_bytes();
            std::fs::write(book.path(Pin([1; 32]), [low, high, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]), "greedy")
                .unwrap();
        }
        let book = TakenBack::new(dir.path());
        assert!(book.add("greedy", Pin([2; 32]), [9; 16]).unwrap_err().message.contains("of this ticket"));
        book.add("modest", Pin([3; 32]), [9; 16]).unwrap();
    }
}
