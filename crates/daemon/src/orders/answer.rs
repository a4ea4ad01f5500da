//! What clients say of jobs, and what they are told: requests in, messages out.
//!
//! Invariant: a client hears of its own jobs only, and the answer to a foreign id is that to one that was never given.

use super::record::{Ended, Failed, Peer, Record};
use super::{Ground, Job, Key, Orders, Refused, no_such_job, reach};
use crate::ticket::is_address;
use crate::warrant::now;
use model::name::{Escaped, unescape};
use model::order::{Kind, Reason, Role, Status, Steer};
use model::progress::Counts;
use model::{Class, JobId, Pin, TransferSpec};
use mover::session::{Grant, Mandate};
use std::net::SocketAddr;
use std::time::Instant;
use wire::limits::{ORDER_FAILURES_MAX, ORDER_TRANSFER_BYTES_MAX, ORDERS_TOLD_MAX, PATH_BYTES_MAX};
use wire::message::{Order, OrderAsk, OrderEnded, OrderEvents, OrderFailure, OrderNews, OrderSteer};
use wire::{CloseCode, Message, Refusal, bounded};

const NAME_BYTES_MAX: usize = 64;

impl Orders {
    /// Answers a request: messages that come before its end, and the attempt that the end names.
    pub fn answer(&self, host: &dyn Ground, grant: &Grant, message: Message) -> Refused<(Vec<Message>, u32)> {
        match message {
            Message::Order(order) => {
                let (record, mandate) = record_of(host, grant, order)?;
                Ok((Vec::new(), self.take_in(record, &mandate)?))
            }
            Message::OrderSteer(steer) => {
                self.steer_by(host, grant, steer)?;
                Ok((Vec::new(), 0))
            }
            Message::OrderAsk(ask) => Ok((self.tell(grant, &ask)?, 0)),
            _ => Err(malformed("no request about jobs")),
        }
    }

    fn steer_by(&self, host: &dyn Ground, grant: &Grant, asked: OrderSteer) -> Refused<()> {
        let key = (grant.pin, job_of(&asked.job_id)?);
        let steer = Steer::from_number(asked.steer).ok_or_else(|| malformed("steered in an unknown way"))?;
        if steer == Steer::Rate {
            return self.set_rate(key, &asked.bwlimit);
        }
        if steer == Steer::Class {
            let class = Class::from_number(asked.class);
            let is_known = class.is_some() || asked.class == 0;
            return if is_known { self.set_class(host, key, class) } else { Err(malformed("an unknown class")) };
        }
        if asked.warrant.is_empty() {
            return self.steer(key, steer, None);
        }
        let peer = self.lock().jobs.get(&key).and_then(|job| Pin::from_hex(&job.record.peer.pin));
        reach::check_warrant(&asked.warrant, grant.pin, host.pin(), peer.ok_or_else(no_such_job)?, key.1)?;
        self.steer(key, steer, Some(data_encoding::HEXLOWER.encode(&asked.warrant)))
    }

    fn tell(&self, grant: &Grant, ask: &OrderAsk) -> Refused<Vec<Message>> {
        let mut state = self.lock();
        if !ask.job_id.is_empty() {
            let key = (grant.pin, job_of(&ask.job_id)?);
            return Ok(told(key, state.jobs.get_mut(&key).ok_or_else(no_such_job)?, ask));
        }
        let mut own: Vec<(&Key, &mut Job)> =
            state.jobs.iter_mut().filter(|((owner, _), _)| *owner == grant.pin).collect();
        own.sort_by_key(|(_, job)| (std::cmp::Reverse(job.record.created), job.record.job.clone()));
        let brief = OrderAsk { wants_events: false, wants_order: false, ..ask.clone() };
        Ok(own.into_iter().take(ORDERS_TOLD_MAX).flat_map(|(key, job)| told(*key, job, &brief)).collect())
    }
}

fn malformed(text: &str) -> Refusal {
    Refusal::new(CloseCode::Malformed, text)
}

fn job_of(bytes: &[u8]) -> Refused<JobId> {
    JobId::from_slice(bytes).ok_or_else(|| malformed("a job id that is not 16 bytes long"))
}

/// Checks an order, and all that it asks of this endpoint; with the warrant that came with it.
fn record_of(host: &dyn Ground, grant: &Grant, order: Order) -> Refused<(Record, Mandate)> {
    if grant.warrant.is_some() {
        return Err(Refusal::new(CloseCode::Forbidden, "a warrant does not allow handing in jobs"));
    }
    let job = job_of(&order.job_id)?;
    let peer = Pin::from_slice(&order.peer_pin).ok_or_else(|| malformed("a pin that is not 32 bytes long"))?;
    let role = Role::from_number(order.role).ok_or_else(|| malformed("an unknown role in an order"))?;
    let kind = Kind::from_number(order.kind).ok_or_else(|| malformed("an unknown kind of order"))?;
    // Names are not looked up: a confined endpoint could not, and whoever answers for a name may have changed.
    let numeric = |address: &Vec<u8>| {
        let text = std::str::from_utf8(address).ok().filter(|text| is_address(text))?;
        text.parse::<SocketAddr>().is_ok().then(|| text.to_owned())
    };
    let addresses: Option<Vec<_>> = order.addresses.iter().map(numeric).collect();
    let addresses = addresses.filter(|addresses| !addresses.is_empty());
    let addresses = addresses.ok_or_else(|| malformed("an order without numeric addresses of the other endpoint"))?;
    let is_name = |name: &str| (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control);
    if !is_name(&order.peer_name) || !is_name(&order.own_name) || order.transfer.len() > ORDER_TRANSFER_BYTES_MAX {
        return Err(malformed("an order whose names or transfer are too long"));
    }
    let spec: TransferSpec = serde_json::from_str(&order.transfer)
        .map_err(|e| Refusal::new(CloseCode::Forbidden, &format!("the transfer cannot be read: {e}")))?;
    reach::check(kind, role, &spec)?;
    if peer == host.pin() && kind != Kind::Check {
        check_apart(&spec)?;
    }
    let mandate = reach::check_warrant(&order.warrant, grant.pin, host.pin(), peer, job)?;
    host.may_order(grant.pin, kind, role, &spec)?;
    let peer = Peer { name: order.peer_name, pin: peer.to_string(), addresses };
    let record = Record {
        v: Record::VERSION,
        job: job.to_string(),
        owner: grant.pin.to_string(),
        owner_name: grant.name.clone(),
        account: grant.account.clone(),
        role: role.word().to_owned(),
        kind: kind.word().to_owned(),
        peer,
        own_name: order.own_name,
        transfer: order.transfer,
        warrant: data_encoding::HEXLOWER.encode(&order.warrant),
        created: now(),
        attempt: 1,
        status: Status::Queued.word().to_owned(),
        reason: Reason::None.word().to_owned(),
        text: String::new(),
        ended: None,
    };
    Ok((record, mandate))
}

/// Both ends are here. A client of an earlier commit does not look.
fn check_apart(spec: &TransferSpec) -> Refused<()> {
    let apart = transfer::check_apart_there(&spec.sources, &spec.destination, spec.options.deletion.is_some());
    apart.map_err(|e| Refusal::new(CloseCode::Forbidden, &e.text))
}

fn told((_, id): Key, job: &mut Job, ask: &OrderAsk) -> Vec<Message> {
    let number = ask.number;
    let mut messages: Vec<Message> = vec![news(number, id, job).into()];
    let ended = job.record.ended.as_ref().filter(|_| job.record.status().is_end());
    // A list does not say what failed: its client has yet to ask for that.
    let is_all = |ended: &Ended| ask.wants_events || ended.code == 0 && ended.files_failed == 0;
    if ended.is_some_and(is_all) {
        job.live.told.get_or_insert_with(Instant::now);
    }
    if let Some(ended) = ended.filter(|_| ask.wants_events) {
        messages.push(events(number, id, ended).into());
    }
    if ended.is_some() || ask.wants_order {
        let nothing = Ended::default();
        let order = ask.wants_order.then(|| order_of(&job.record));
        messages.push(end(number, id, ended.unwrap_or(&nothing), order).into());
    }
    messages
}

fn news(number: u32, id: JobId, job: &Job) -> OrderNews {
    let record = &job.record;
    let (source, destination) = job.ends.clone();
    // Of an end that was read from its file there is no sample.
    let of_end = record.ended.as_ref().filter(|_| record.status().is_end()).map(|ended| Counts {
        files_done: ended.files_done,
        files_skipped: ended.files_skipped,
        files_failed: ended.files_failed,
        bytes_done: ended.bytes,
        ..Counts::default()
    });
    let counts = job.live.sample.as_ref().map(|sample| sample.counts).or(of_end).unwrap_or_default();
    let running = job.live.sample.as_ref().filter(|_| job.live.is_running);
    OrderNews {
        number,
        job_id: id.0.to_vec(),
        status: record.status() as u32,
        reason: record.reason() as u32,
        text: bounded(&record.text).to_owned(),
        attempt: record.attempt,
        kind: record.kind() as u32,
        source,
        destination,
        created: record.created,
        files_listed: counts.files_listed,
        files_done: counts.files_done,
        files_skipped: counts.files_skipped,
        files_failed: counts.files_failed,
        bytes_listed: counts.bytes_listed,
        bytes_done: counts.bytes_done,
        bytes_per_second: running.map_or(0, |sample| sample.rate_now.bytes_per_second as u64),
        is_listing_complete: job.live.sample.as_ref().is_some_and(|sample| sample.is_listing_complete),
        until: job.live.until,
        role: record.role() as u32,
        // What was there before is there, whether this attempt, an earlier one or somebody else brought it.
        bytes_reached: running.map_or(0, |sample| sample.reached_bytes().saturating_add(sample.counts.bytes_skipped)),
        bottleneck: match running {
            Some(sample) => bounded(&sample.pace()).to_owned(),
            None if job.live.is_running => format!("connecting to {}", record.peer.name),
            None => String::new(),
        },
    }
}

fn events(number: u32, id: JobId, ended: &Ended) -> OrderEvents {
    let record = |failed: &Failed| OrderFailure {
        path: unescape(failed.path.as_bytes()).unwrap_or_else(|| failed.path.clone().into_bytes()),
        kind: failed.kind,
        text: bounded(&failed.text).to_owned(),
    };
    let fits = |failure: &OrderFailure| failure.path.len() <= PATH_BYTES_MAX;
    let failures: Vec<_> = ended.failures.iter().map(record).filter(fits).take(ORDER_FAILURES_MAX).collect();
    let untold = ended.failures_untold + (ended.failures.len() - failures.len()) as u64;
    OrderEvents { number, job_id: id.0.to_vec(), failures, untold }
}

fn end(number: u32, id: JobId, ended: &Ended, order: Option<Order>) -> OrderEnded {
    OrderEnded {
        number,
        job_id: id.0.to_vec(),
        code: ended.code as u32,
        text: bounded(&ended.text).to_owned(),
        hint: bounded(&ended.hint).to_owned(),
        files_done: ended.files_done,
        files_skipped: ended.files_skipped,
        files_failed: ended.files_failed,
        directories: ended.directories,
        bytes: ended.bytes,
        bytes_sent: ended.bytes_sent,
        removed: ended.removed,
        milliseconds: ended.milliseconds,
        bottleneck: Escaped(bounded(&ended.bottleneck).as_bytes()).to_string(),
        durable: ended.durable.clone(),
        order,
    }
}

/// The order as it could be given again, but for its warrant, which is the client's to make.
fn order_of(record: &Record) -> Order {
    let pin = Pin::from_hex(&record.peer.pin).map_or_else(Vec::new, |pin| pin.0.to_vec());
    Order {
        number: 0,
        job_id: JobId::from_hex(&record.job).map_or_else(Vec::new, |job| job.0.to_vec()),
        role: record.role() as u32,
        peer_pin: pin,
        peer_name: record.peer.name.clone(),
        addresses: record.peer.addresses.iter().map(|address| address.clone().into_bytes()).collect(),
        warrant: Vec::new(),
        transfer: record.transfer.clone(),
        kind: record.kind() as u32,
        own_name: record.own_name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orders::record::tests::record;
    use model::Location;
    use model::quantity::Rate;
    use std::time::Duration;
    use transfer::Sample;

    #[test]
    fn an_order_within_one_endpoint_that_would_go_into_its_own_source_is_refused() {
        let at = |path: &str| Location::Named { name: "e".to_owned(), path: path.as_bytes().to_vec() };
        assert!(check_apart(&TransferSpec::new(vec![at("a/")], at("b/"))).is_ok());
        let refused = check_apart(&TransferSpec::new(vec![at("a/")], at("a/copy/"))).unwrap_err();
        assert_eq!(refused.code, CloseCode::Forbidden);
    }

    #[test]
    fn an_attempt_has_reached_what_it_found_there_and_before_its_first_byte_it_says_what_it_does() {
        let mut job = Job::new(record());
        let told = |job: &Job| {
            let OrderNews { bytes_reached, bottleneck, .. } = news(1, JobId([1; 16]), job);
            (bytes_reached, bottleneck)
        };
        assert_eq!(told(&job), (0, String::new()), "it has not begun");
        job.live.is_running = true;
        assert_eq!(told(&job), (0, format!("connecting to {}", job.record.peer.name)));
        let found = Counts { bytes_listed: 100, bytes_skipped: 60, ..Counts::default() };
        let counts = Counts { bytes_sent: 5, bytes_resumed: 20, ..found };
        job.live.sample = Some(Sample::told(counts, true, Rate::over(0, 1.0), Duration::from_secs(1)));
        assert_eq!(told(&job).0, 85);
    }
}
