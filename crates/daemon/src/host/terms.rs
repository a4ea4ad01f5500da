//! What this endpoint lets a client do, and its contracts for clients that may manage them.
//!
//! Invariants: what others move here is told to nobody else; contracts change as a whole or not at all, and only those that whoever
//! changes them had read. Not here: holding jobs to contracts (`governor`).

use super::EndpointHost;
use super::rights::Rights;
use crate::error::Result;
use crate::governor::contracts::{ContractBook, Contracts, Held, Way};
use crate::governor::{Allotment, Governor};
use crate::transfer_log::plain_text;
use model::{Crc64, Exit, mutant};
use mover::session::{Grant, Roster};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;
use wire::limits::SHARES_TOLD_MAX;
use wire::message::{AskTerms, ShareRecord, Terms};
use wire::{CloseCode, Refusal, bounded};

type Refused<T> = std::result::Result<T, Refusal>;

/// What a client needs to see and to change what holds for all.
const MANAGES_NOTHING: &str = "this client may not manage rates here: its ticket was made without --manage-rates";

pub struct Rates {
    contracts: ContractBook,
    governor: OnceLock<Arc<Governor>>,
}

impl Rates {
    pub fn new(state_dir: &Path) -> Rates {
        Rates { contracts: ContractBook::new(state_dir), governor: OnceLock::new() }
    }

    /// Has the jobs of a roster held to the contracts from now on.
    pub fn govern(&self, contracts: Held, state_dir: &Path, roster: Arc<Roster>) -> Result<Arc<Governor>> {
        let governor = Governor::start(contracts, state_dir, roster)?;
        Ok(self.governor.get_or_init(|| Arc::new(governor)).clone())
    }
}

impl EndpointHost {
    pub(super) fn terms(&self, grant: &Grant, ask: &AskTerms) -> Refused<Terms> {
        if grant.warrant.is_some() {
            return Err(Refusal::new(CloseCode::Forbidden, "a warrant does not allow asking for terms"));
        }
        let rights = self.rights(grant)?;
        let may_manage = rights.may_manage || mutant::is_on("anybody-manages-rates");
        if ask.is_change && !may_manage {
            return Err(Refusal::new(CloseCode::Forbidden, MANAGES_NOTHING));
        }
        if ask.is_change {
            self.agree(grant, ask)?;
        }
        let Rights { may_read, may_write, scope, class_max, .. } = rights;
        let terms = Terms {
            number: ask.number,
            may_read,
            may_write: may_write && !self.is_read_only,
            path: model::name::join(&scope),
            class_max: class_max as u32,
            expires: self
                .clients
                .expires(grant.pin)
                .and_then(|at| at.duration_since(UNIX_EPOCH).ok())
                .map_or(0, |at| at.as_secs()),
            may_manage,
            ..Terms::default()
        };
        if !may_manage {
            return Ok(terms);
        }
        let contracts = written(&self.rates.contracts)?;
        let allotted = self.rates.governor.get().map_or_else(Vec::new, |governor| governor.allotted());
        let shares = allotted.iter().take(SHARES_TOLD_MAX).map(share).collect();
        Ok(Terms { version: Crc64::of(contracts.as_bytes()), contracts, shares, ..terms })
    }

    /// The governor takes them up at its next look.
    fn agree(&self, grant: &Grant, ask: &AskTerms) -> Refused<()> {
        // Held from what was read until it is written.
        let _one_at_a_time = self.rates.contracts.lock().map_err(|e| internal(&e.message))?;
        if Crc64::of(written(&self.rates.contracts)?.as_bytes()) != ask.version {
            return Err(Refusal::new(CloseCode::WrongState, "the contracts were changed since they were read"));
        }
        let wrong = |why: &str| Refusal::new(CloseCode::Forbidden, bounded(why.trim_end()));
        let contracts: Contracts = toml::from_str(&ask.contracts).map_err(|e| wrong(e.message()))?;
        contracts.understood().map_err(|e| wrong(&e.message))?;
        self.rates.contracts.write(&contracts).map_err(|e| match e.exit {
            Exit::Usage => wrong(&e.message),
            _ => internal(&e.message),
        })?;
        tracing::info!(
            client = plain_text(&grant.name),
            contracts = contracts.contract.len(),
            "contracts changed by a client"
        );
        Ok(())
    }
}

fn internal(why: &str) -> Refusal {
    Refusal::new(CloseCode::Internal, bounded(why))
}

fn written(book: &ContractBook) -> Refused<String> {
    let contracts = book.read().map_err(|e| internal(&e.message))?;
    toml::to_string(&contracts).map_err(|e| internal(&e.to_string()))
}

fn share(one: &Allotment) -> ShareRecord {
    ShareRecord {
        job_id: one.who.job.0.to_vec(),
        peer: one.who.peer.0.to_vec(),
        client: bounded(&plain_text(&one.who.name)).to_owned(),
        user: bounded(&plain_text(&one.who.user)).to_owned(),
        class: one.who.class as u32,
        is_sent: one.way == Way::Out,
        moves: one.moves as u64,
        rate: one.rate.unwrap_or(0),
        by: bounded(&one.by.to_string()).to_owned(),
    }
}
