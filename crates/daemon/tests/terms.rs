//! What an endpoint tells its clients of its terms, and who may change them.

use daemon::endpoints::Replace;
use daemon::governor::contracts::ContractBook;
use daemon::hand_in::{Desk, Terms};
use daemon::limited::{Limits, scope_of};
use daemon::{EndpointBook, Error, Issue, ServeOptions, Served, Ticket, enrol};
use model::{Class, Exit};
use net::Identity;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

struct Place {
    dir: TempDir,
    served: Served,
}

/// A client, and the endpoint as it knows it.
struct Somebody(Identity, EndpointBook);

impl Somebody {
    fn terms(&self, change: Option<(&str, u64)>) -> Result<Terms, Error> {
        Desk::open(&self.1.get("lab")?, &self.0)?.terms(change, &|| false)
    }
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("root/in")).unwrap();
        let served = Served::start(ServeOptions::new("127.0.0.1:0", dir.path().join("root"), dir.path().join("state")));
        Place { served: served.unwrap(), dir }
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn ticket(&self, may_manage: bool) -> Ticket {
        let limits = Limits {
            scope: scope_of(b"in").unwrap(),
            may_read: true,
            may_write: false,
            expires: Some(SystemTime::now() + Duration::from_secs(3600)),
            uses_max: None,
            class_max: Class::Normal,
            may_manage,
        };
        Issue::new(self.state()).create(limits).unwrap().1
    }

    fn somebody(&self, name: &str, ticket: &Ticket) -> Somebody {
        let one = Somebody(Identity::generate().unwrap(), EndpointBook::new(self.dir.path().join(name)));
        enrol(ticket, "lab", &one.0, &one.1, Replace::SameIdentity).unwrap();
        one
    }
}

#[test]
fn a_client_is_told_what_it_may_and_of_rates_only_if_it_manages_them() {
    let place = Place::new();
    let plain = place.somebody("plain", &place.ticket(false));
    let told = plain.terms(None).unwrap();
    assert_eq!(
        (told.may_read, told.may_write, &told.path[..], told.class_max),
        (true, false, &b"in"[..], Class::Normal as u32)
    );
    let in_an_hour = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() + 3600;
    assert!((in_an_hour - 60..=in_an_hour).contains(&told.expires), "{told:?}");
    assert!(!told.may_manage && told.contracts.is_empty() && told.version == 0, "{told:?}");
    let refused = plain.terms(Some(("link = '1Gbit'", 0))).unwrap_err();
    assert!(refused.exit == Exit::Refused && refused.message.contains("--manage-rates"), "{}", refused.message);
    // Neither may whoever has a ticket without limits, before it redeems one for that.
    let Somebody(identity, book) = place.somebody("unlimited", &place.served.ticket());
    let unlimited = Somebody(identity, book);
    let told = unlimited.terms(None).unwrap();
    assert!(told.may_write && told.path.is_empty() && told.expires == 0 && !told.may_manage, "{told:?}");
    enrol(&place.ticket(true), "lab", &unlimited.0, &unlimited.1, Replace::SameIdentity).unwrap();
    assert!(unlimited.terms(None).unwrap().may_manage);
}

#[test]
fn contracts_change_as_a_whole_from_the_version_that_was_read_or_not_at_all() {
    let place = Place::new();
    let manager = place.somebody("manager", &place.ticket(true));
    let book = ContractBook::new(&place.state());
    let first = manager.terms(None).unwrap();
    let agreed = "link = '1Gbit'\n[contract.office]\nrate = '80Mbit'\n";
    let second = manager.terms(Some((agreed, first.version))).unwrap();
    assert_eq!(book.read().unwrap().contract["office"].rate.as_deref(), Some("80Mbit"));
    assert!(second.version != first.version && second.contracts.contains("office"), "{second:?}");
    for (contracts, version, exit, said) in [
        ("", first.version, Exit::Failed, "changed since"),
        ("[contract.a]\nrate = 'fast'", second.version, Exit::Refused, "fast"),
        ("lnik = '1M'", second.version, Exit::Refused, "unknown field `lnik`"),
        ("[contract.a]\nguarantee = '2Gbit'", second.version, Exit::Refused, "not known"),
    ] {
        let error = manager.terms(Some((contracts, version))).unwrap_err();
        assert!(error.exit == exit && error.message.contains(said), "{contracts}: {:?} {}", error.exit, error.message);
    }
    // What could not be read again would keep the endpoint from starting.
    let long = format!("[contract.a]\nuser = '{}'\nrate = '1M'", "u".repeat(270 << 10));
    let error = manager.terms(Some((&long, second.version))).unwrap_err();
    assert!(error.exit == Exit::Refused && error.message.contains("longer than 256 KiB"), "{}", error.message);
    assert_eq!(book.read().unwrap().contract["office"].rate.as_deref(), Some("80Mbit"));
    // Beside the endpoint somebody else changes them: what was read is old.
    let mut others = book.read().unwrap();
    others.link = Some("2Gbit".into());
    book.write(&others).unwrap();
    assert!(manager.terms(Some(("", second.version))).is_err());
    let third = manager.terms(None).unwrap();
    let ended = manager.terms(Some(("", third.version))).unwrap();
    assert!(ended.contracts.trim().is_empty() && book.read().unwrap().contract.is_empty(), "{ended:?}");
}
