//! What endpoints let the hub do, and the contracts of those that it manages: asked of them when somebody looks.
//!
//! Invariant: the hub keeps none of it; contracts lie at their endpoints, and hold there without the hub. Not here: rates (`daemon::governor`).

use crate::access::Principal;
use crate::hub::{Hub, only_admin};
use crate::order::shown;
use crate::{Error, Result};
use daemon::governor::contracts::{Contract, Contracts};
use daemon::hand_in::{ShareRecord, Terms};
use model::name::Escaped;
use model::pace::Timetable;
use model::{Class, Exit, JobId, Pin, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// An endpoint of an earlier version does not answer at all.
const PATIENCE: Duration = Duration::from_secs(10);

/// The terms of one endpoint.
#[derive(Clone, Debug, Serialize)]
pub struct TermsView {
    pub may_read: bool,
    pub may_write: bool,
    /// Below the endpoint's root; empty for all of it.
    pub path: String,
    pub class_max: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// The hub sees and changes what follows.
    pub may_manage: bool,
    /// Of the contracts, for whoever changes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    pub contracts: BTreeMap<String, ContractView>,
    pub shares: Vec<ShareView>,
}

/// A contract, and its rate as a number where that is one rate at all times.
#[derive(Clone, Debug, Serialize)]
pub struct ContractView {
    #[serde(flatten)]
    pub contract: Contract,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second_max: Option<u64>,
}

impl From<Contract> for ContractView {
    fn from(contract: Contract) -> ContractView {
        let rate = contract.rate.as_deref().filter(|rate| !rate.contains(','));
        let bytes_per_second_max = rate.and_then(|rate| Timetable::parse(rate).ok()?.rate_at(0));
        ContractView { contract, bytes_per_second_max }
    }
}

/// A job that runs there, whoever asked for it.
#[derive(Clone, Debug, Serialize)]
pub struct ShareView {
    pub order: String,
    pub peer: String,
    pub client: String,
    pub user: String,
    pub class: &'static str,
    pub direction: &'static str,
    pub bytes_per_second: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    pub by: String,
}

/// What of the contracts is to be otherwise. A contract that is `null` ends; a link that is `null` is not known any more.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContractChange {
    /// The version that was read.
    pub version: String,
    #[serde(default, deserialize_with = "given")]
    pub link: Option<Option<String>>,
    #[serde(default)]
    pub contracts: BTreeMap<String, Option<Contract>>,
}

/// Tells `null` from what is not there.
fn given<'de, D: serde::Deserializer<'de>>(value: D) -> std::result::Result<Option<Option<String>>, D::Error> {
    Option::deserialize(value).map(Some)
}

impl Hub {
    pub fn terms(&self, who: &Principal, endpoint: &str) -> Result<TermsView> {
        only_admin(who)?;
        view(&self.ask_terms(endpoint, None)?)
    }

    /// The endpoint follows within a second.
    pub fn change_contracts(&self, who: &Principal, endpoint: &str, change: ContractChange) -> Result<TermsView> {
        only_admin(who)?;
        let target = format!("{endpoint} {}", change.contracts.keys().cloned().collect::<Vec<_>>().join(" "));
        let changed = self.agree(endpoint, change);
        self.record(who, "contract change", &target, changed)
    }

    fn agree(&self, endpoint: &str, change: ContractChange) -> Result<TermsView> {
        let told = self.ask_terms(endpoint, None)?;
        let mut contracts = contracts_of(&told)?;
        if format!("{:016x}", told.version) != change.version {
            return Err(Error::new(Exit::Inconclusive, format!("the contracts of {endpoint} were changed meanwhile"))
                .hint("look at them again"));
        }
        if let Some(link) = change.link {
            contracts.link = link;
        }
        for (name, contract) in change.contracts {
            match contract {
                Some(contract) => _ = contracts.contract.insert(name, contract),
                None => _ = contracts.contract.remove(&name),
            }
        }
        contracts.understood()?;
        let text = toml::to_string(&contracts).map_err(|e| Error::new(Exit::Fatal, e.to_string()))?;
        view(&self.ask_terms(endpoint, Some((&text, told.version)))?)
    }

    fn ask_terms(&self, endpoint: &str, change: Option<(&str, u64)>) -> Result<Terms> {
        let desk = self.desk(endpoint)?;
        let until = Instant::now() + PATIENCE;
        desk.terms(change, &|| Instant::now() >= until).map_err(|e| match e.exit {
            Exit::Interrupted => Error::new(Exit::Temporary, format!("{endpoint} tells nothing of its terms"))
                .hint("an endpoint of an earlier version does not know the question: install the present one there"),
            _ => e,
        })
    }
}

fn contracts_of(terms: &Terms) -> Result<Contracts> {
    toml::from_str(&terms.contracts).map_err(|_| {
        Error::new(Exit::Version, "the endpoint's contracts cannot be read: they are of a later version")
            .hint("change them at the endpoint with `thalweg contract`")
    })
}

fn class_of(number: u32) -> &'static str {
    Class::from_number(number).unwrap_or_default().name()
}

fn view(terms: &Terms) -> Result<TermsView> {
    let Contracts { link, contract: contracts } = contracts_of(terms)?;
    let moment = |seconds: u64| Timestamp { seconds: seconds as i64, nanoseconds: 0 }.rfc3339();
    Ok(TermsView {
        may_read: terms.may_read,
        may_write: terms.may_write,
        path: Escaped(&terms.path).to_string(),
        class_max: class_of(terms.class_max),
        expires: (terms.expires > 0).then(|| moment(terms.expires.min(1 << 40))),
        may_manage: terms.may_manage,
        version: terms.may_manage.then(|| format!("{:016x}", terms.version)),
        link,
        contracts: contracts.into_iter().map(|(name, contract)| (name, contract.into())).collect(),
        shares: terms.shares.iter().map(share).collect(),
    })
}

fn share(record: &ShareRecord) -> ShareView {
    ShareView {
        order: JobId::from_slice(&record.job_id).map_or_else(String::new, |id| id.to_string()),
        peer: Pin::from_slice(&record.peer).map_or_else(String::new, |pin| pin.to_string()),
        client: shown(&record.client),
        user: shown(&record.user),
        class: class_of(record.class),
        direction: if record.is_sent { "out" } else { "in" },
        bytes_per_second: record.moves,
        rate: (record.rate > 0).then_some(record.rate),
        by: shown(&record.by),
    }
}
