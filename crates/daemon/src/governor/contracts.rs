//! What an endpoint has agreed to: the link's rate, and contracts that bound or guarantee the rates of some of its jobs.
//!
//! One file, `contracts.toml` in the state directory. Whoever may write there changes it, also beside a running endpoint, which
//! reads it again as soon as it is another one. Whoever changes it holds `contracts.lock` from reading to writing.
//!
//! Invariants:
//! - What cannot be kept is refused as a whole: an unknown key, a rate that is none, guarantees beyond the link.
//! - A file that cannot be used any more changes nothing for an endpoint that runs; the contracts before it go on to hold.
//!
//! Not here: holding jobs to it (`super`).

use crate::error::{Error, Result, not_toml, shown};
use crate::private_file::{self, Existing};
use crate::trust::make_private_directory;
use model::pace::Timetable;
use model::quantity::{Rate, parse_rate};
use model::{Class, Exit};
use mover::session::Who;
use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FILE_BYTES_MAX: u64 = 256 << 10;
const CONTRACTS_MAX: usize = 1000;
const NAME_BYTES_MAX: usize = 64;
/// Of an identity: fewer digits may be those of two.
const PIN_DIGITS_MIN: usize = 8;

/// Which way content goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    In,
    Out,
}

impl Way {
    pub const ALL: [Way; 2] = [Way::In, Way::Out];
}

/// One contract, as it is written.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// Of which jobs: those of a peer (the first digits of its identity), of a user (the ticket), of a class. All that are given
    /// have to be so; with none it is all jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Each direction separately, if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Way>,
    /// What they may have together at most: a rate, or a timetable of rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// What they get together before anybody else gets anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<String>,
    /// How their packets are marked: a code point for differentiated services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contracts {
    /// What the link carries, each way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub contract: BTreeMap<String, Contract>,
}

/// A contract, understood.
#[derive(Clone, PartialEq, Debug)]
pub struct Term {
    pub name: String,
    peer: Option<String>,
    user: Option<String>,
    class: Option<Class>,
    direction: Option<Way>,
    pub rate: Option<Timetable>,
    pub guarantee: Option<u64>,
    pub dscp: Option<u8>,
}

/// All of them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Terms {
    pub link: Option<u64>,
    pub terms: Vec<Term>,
}

impl Term {
    pub fn is_of(&self, who: &Who, way: Way) -> bool {
        self.direction.is_none_or(|direction| direction == way)
            && self.class.is_none_or(|class| class == who.class)
            && self.user.as_ref().is_none_or(|user| *user == who.user)
            && self.peer.as_ref().is_none_or(|peer| who.peer.to_string().starts_with(peer))
    }
}

impl Contracts {
    /// What is agreed in words that can be kept.
    ///
    /// # Errors
    /// With the contract's name.
    pub fn understood(&self) -> Result<Terms> {
        let link = self.link.as_deref().map(|text| rate_of("link", text)).transpose()?.flatten();
        if self.contract.len() > CONTRACTS_MAX {
            return Err(Error::new(Exit::Usage, format!("more than {CONTRACTS_MAX} contracts")));
        }
        let terms: Vec<_> =
            self.contract.iter().map(|(name, contract)| understood(name, contract)).collect::<Result<_>>()?;
        for way in Way::ALL {
            let held = terms.iter().filter(|term| term.direction.is_none_or(|direction| direction == way));
            let sum = held.filter_map(|term| term.guarantee).fold(0u64, u64::saturating_add);
            check_guarantees(sum, link)?;
        }
        Ok(Terms { link, terms })
    }
}

fn check_guarantees(sum: u64, link: Option<u64>) -> Result<()> {
    let rate = |bytes: u64| Rate { bytes_per_second: bytes as f64 };
    match link {
        _ if sum == 0 => Ok(()),
        None => Err(Error::new(Exit::Usage, "a rate cannot be guaranteed while the link's rate is not known")
            .hint("say what it carries: thalweg contract link 10Gbit")),
        Some(link) if sum > link => {
            let text = format!("the guarantees come to {}, and the link carries {}", rate(sum), rate(link));
            Err(Error::new(Exit::Usage, text)
                .hint("guarantee less, or correct the link's rate: `thalweg contract link`"))
        }
        Some(_) => Ok(()),
    }
}

fn understood(name: &str, contract: &Contract) -> Result<Term> {
    let Contract { peer, user, class, direction, rate, guarantee, dscp } = contract;
    let wrong = |what: String| Error::new(Exit::Usage, format!("the contract {name}: {what}"));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_plain) {
        return Err(Error::new(Exit::Usage, "the name of a contract has 1 to 64 letters, digits, `-`, `_` and `.`"));
    }
    let is_pin = |peer: &String| {
        (PIN_DIGITS_MIN..=64).contains(&peer.len()) && peer.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
    };
    if let Some(peer) = peer.as_ref().filter(|peer| !is_pin(peer)) {
        return Err(wrong(format!("the peer {peer:?} is not an identity"))
            .hint("give at least its first 8 digits; `thalweg endpoint ls` and `thalweg ticket ls` show them"));
    }
    let class = class.as_deref().map(str::parse).transpose().map_err(&wrong)?;
    let table = rate.as_deref().map(Timetable::parse).transpose().map_err(&wrong)?;
    let guarantee = guarantee.as_deref().map(|text| rate_of(&format!("the contract {name}"), text)).transpose()?;
    let guarantee = guarantee.flatten();
    let lowest = table.as_ref().and_then(Timetable::rate_min);
    if guarantee.zip(lowest).is_some_and(|(guarantee, lowest)| guarantee > lowest) {
        return Err(wrong("it guarantees more than it allows".to_owned()));
    }
    if dscp.is_some_and(|dscp| dscp > 63) {
        return Err(wrong("a code point (dscp) is from 0 to 63".to_owned()));
    }
    if lowest.is_none() && guarantee.is_none() && dscp.is_none() {
        return Err(wrong("it says nothing: it has no rate, no guarantee and no dscp".to_owned()));
    }
    let (peer, user) = (peer.clone(), user.clone());
    Ok(Term { name: name.to_owned(), peer, user, class, direction: *direction, rate: table, guarantee, dscp: *dscp })
}

fn rate_of(what: &str, text: &str) -> Result<Option<u64>> {
    let wrong = |why: String| Error::new(Exit::Usage, format!("{what}: {why}"));
    parse_rate(text.trim()).map_err(wrong)
}

/// The file.
#[derive(Clone, Debug)]
pub struct ContractBook {
    path: PathBuf,
}

impl ContractBook {
    pub fn new(state_dir: &Path) -> ContractBook {
        ContractBook { path: state_dir.join("contracts.toml") }
    }

    /// What is in it; nothing where there is none.
    pub fn read(&self) -> Result<Contracts> {
        let Some(bytes) = private_file::read(&self.path, FILE_BYTES_MAX, false)? else {
            return Ok(Contracts::default());
        };
        let wrong = |why: &str| {
            Error::new(Exit::Usage, format!("{}: {why}", shown(&self.path)))
                .hint("correct the file, or remove it; `thalweg contract` writes it")
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| wrong("it is not UTF-8"))?;
        let read: Contracts = toml::from_str(text).map_err(|e| wrong(&not_toml(text, &e)))?;
        let mut error = match read.understood() {
            Ok(_) => return Ok(read),
            Err(error) => error,
        };
        error.message = format!("{}: {}", shown(&self.path), error.message);
        Err(error)
    }

    /// Writes what can be kept, in the place of what was there.
    pub fn write(&self, contracts: &Contracts) -> Result<()> {
        contracts.understood()?;
        let text = toml::to_string(contracts).map_err(|e| Error::new(Exit::Fatal, format!("write contracts: {e}")))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(Error::new(Exit::Usage, format!("contracts are longer than {} KiB", FILE_BYTES_MAX >> 10))
                .hint("remove some, or give their users shorter names"));
        }
        self.make_directory()?;
        private_file::write(&self.path, text.as_bytes(), Existing::Replace)
            .map_err(|e| Error::of_file("write", &self.path, e))
    }

    /// Changes what is in it; nobody else does so meanwhile.
    pub fn change(&self, change: impl FnOnce(&mut Contracts) -> Result<()>) -> Result<()> {
        let _one_at_a_time = self.lock()?;
        let mut contracts = self.read()?;
        change(&mut contracts)?;
        self.write(&contracts)
    }

    /// Waits until nobody else changes the contracts. Nobody does while what is returned lives.
    pub fn lock(&self) -> Result<File> {
        self.make_directory()?;
        let path = self.path.with_extension("lock");
        let failed = |e| Error::of_file("lock", &path, e);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).or_else(|e| match e.kind() {
            // Another user's, in a directory that is this one's.
            std::io::ErrorKind::PermissionDenied => std::fs::remove_file(&path).and_then(|()| options.open(&path)),
            _ => Err(e),
        });
        let file = file.map_err(failed)?;
        retry_on_intr(|| flock(&file, FlockOperation::LockExclusive)).map_err(|e| failed(e.into()))?;
        Ok(file)
    }

    /// The endpoint may not have run yet.
    fn make_directory(&self) -> Result<()> {
        let missing = self.path.parent().filter(|state_dir| !state_dir.exists());
        missing.map_or(Ok(()), make_private_directory)
    }

    /// Which file it is at this moment, as far as the file system tells.
    fn version(&self) -> Option<(u64, i64, i64)> {
        use std::os::unix::fs::MetadataExt;
        std::fs::symlink_metadata(&self.path).ok().map(|file| (file.ino(), file.mtime(), file.mtime_nsec()))
    }
}

/// The contracts of a running endpoint.
pub struct Held {
    book: ContractBook,
    version: Option<(u64, i64, i64)>,
    terms: Arc<Terms>,
}

impl Held {
    pub fn open(state_dir: &Path) -> Result<Held> {
        let book = ContractBook::new(state_dir);
        let version = book.version();
        let terms = Arc::new(book.read()?.understood()?);
        Ok(Held { book, version, terms })
    }

    /// What holds now.
    pub fn now(&mut self) -> Arc<Terms> {
        let version = self.book.version();
        if version != self.version {
            self.version = version;
            match self.book.read().and_then(|contracts| contracts.understood()) {
                Ok(terms) => {
                    self.terms = Arc::new(terms);
                    tracing::info!(contracts = self.terms.terms.len(), "contracts read");
                }
                Err(e) => tracing::error!(error = %e, "the contracts cannot be used: those before them hold"),
            }
        }
        self.terms.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{JobId, Pin};

    fn who() -> Who {
        let (job, peer) = (JobId([1; 16]), Pin([0xab; 32]));
        Who { job, peer, user: "serve".into(), name: "n".into(), class: Class::Low }
    }

    fn read(text: &str) -> Result<Terms> {
        let contracts: Contracts = toml::from_str(text).map_err(|e| Error::new(Exit::Usage, e.to_string()))?;
        contracts.understood()
    }

    #[test]
    fn a_contract_is_of_the_jobs_that_have_all_it_names() {
        let terms =
            read("[contract.a]\npeer = 'abababab'\nclass = 'low'\ndirection = 'out'\nrate = '80Mbit'\n").unwrap();
        let term = &terms.terms[0];
        assert!(term.is_of(&who(), Way::Out) && !term.is_of(&who(), Way::In));
        assert!(!term.is_of(&Who { class: Class::High, ..who() }, Way::Out));
        assert!(!term.is_of(&Who { peer: Pin([0xac; 32]), ..who() }, Way::Out));
        assert_eq!(term.rate.as_ref().unwrap().rate_at(0), Some(10_000_000));
        let all = read("[contract.a]\ndscp = 8\n").unwrap();
        assert!(Way::ALL.iter().all(|way| all.terms[0].is_of(&who(), *way)));
    }

    #[test]
    fn what_cannot_be_kept_is_refused_with_a_reason() {
        for (text, why) in [
            ("link = 'NaN'", "NaN"),
            ("link = '-5M'", "-5M"),
            ("lnik = '1M'", "unknown field `lnik`"),
            ("[contract.a]\nrate = '0'", "says nothing"),
            ("[contract.a]\nrate = '100B'", "1 KiB/s or more"),
            ("link = '100B'", "1 KiB/s or more"),
            ("link = 'inf'", "inf"),
            ("[contract.a]\nrate = 'off'", "says nothing"),
            ("[contract.a]\nrate = '25:00,1M'", "25:00"),
            ("[contract.a]\nraet = '1M'", "unknown field `raet`"),
            ("[contract.a]\nrate = '1M'\npeer = 'siteB'", "not an identity"),
            ("[contract.a]\nrate = '1M'\nclass = 'urgent'", "urgent"),
            ("[contract.a]\nrate = '1M'\ndirection = 'up'", "up"),
            ("[contract.'a b']\nrate = '1M'", "name of a contract"),
            ("[contract.a]\ndscp = 64", "0 to 63"),
            ("[contract.a]\nguarantee = '1M'", "not known"),
            ("link = '10M'\n[contract.a]\nguarantee = '6M'\n[contract.b]\nguarantee = '6M'", "101 Mbit/s"),
            ("link = '10M'\n[contract.a]\nguarantee = '6M'\nrate = '08:00,5M 20:00,off'", "more than it allows"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(read("link = '10M'\n[contract.a]\nguarantee = '6M'\ndirection = 'in'\n[contract.b]\nguarantee = '6M'\ndirection = 'out'").is_ok());
    }

    #[test]
    fn of_those_who_change_the_contracts_at_once_nobody_loses_what_another_one_wrote() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for name in 0..8 {
                let book = ContractBook::new(dir.path());
                scope.spawn(move || {
                    let add = |contracts: &mut Contracts| {
                        let contract = Contract { rate: Some("1M".into()), ..Contract::default() };
                        contracts.contract.insert(format!("c{name}"), contract);
                        Ok(())
                    };
                    book.change(add).unwrap();
                });
            }
        });
        assert_eq!(ContractBook::new(dir.path()).read().unwrap().contract.len(), 8);
    }

    #[test]
    fn an_endpoint_that_runs_keeps_what_it_had_when_the_file_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let book = ContractBook::new(dir.path());
        let mut held = Held::open(dir.path()).unwrap();
        assert_eq!(*held.now(), Terms::default());
        let contract = Contract { rate: Some("1M".into()), ..Contract::default() };
        let contracts = Contracts { link: Some("1Gbit".into()), contract: [("a".to_owned(), contract)].into() };
        book.write(&contracts).unwrap();
        assert_eq!(book.read().unwrap(), contracts);
        let terms = held.now();
        assert_eq!((terms.link, terms.terms.len()), (Some(125_000_000), 1));
        std::fs::remove_file(dir.path().join("contracts.toml")).unwrap();
        private_file::write(&dir.path().join("contracts.toml"), b"link = 0", Existing::Replace).unwrap();
        assert_eq!(held.now(), terms);
        assert!(Held::open(dir.path()).is_err());
    }
}
