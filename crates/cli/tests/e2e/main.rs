//! The program from end to end: the real binary, over loopback, with homes of its own, in directories that are removed.
//!
//! `THALWEG_BIN` names another binary than the one just built. What needs root is left out for other users, and says so.

mod bed;
mod copies;
mod syncs;
mod fidelities;
mod limits;
mod files;
mod histories;
mod pipes;
mod resumption;
mod manifests;
mod refusals;
mod faults;
mod events;
mod laboratories;
mod streams;
mod paths;
mod loads;
mod endpoints;
mod ssh;
mod sshd;
mod caches;
mod compatibility;
mod mistakes;
mod mounts;
mod manual;
mod configurations;
mod audits;
mod presences;
mod tickets;
mod trusts;
mod within;
mod secrets;
mod demonstrations;
mod races;
mod real_stores;
mod live;
mod sweeps;
mod attribution;
mod measurements;
mod bundles;
mod plans;
mod follows;
mod object_stores;
mod hosts;
mod coordinators;
mod outages;
mod listings;
mod upgrades;
mod orders;
mod dav_servers;
mod buffers;
mod rates;
mod readers;
mod scrapes;
mod replicas;
mod sets;
#[cfg(feature = "hub")]
mod errands;
#[cfg(feature = "hub")]
mod hub_access;
#[cfg(feature = "hub")]
mod hub_hosts;
#[cfg(feature = "hub")]
mod hub_upgrades;
#[cfg(feature = "hub")]
mod hubs;
#[cfg(feature = "hub")]
mod observations;
#[cfg(feature = "hub")]
mod recurrences;
mod ftp_servers;
mod sftp_servers;
mod matrix;
