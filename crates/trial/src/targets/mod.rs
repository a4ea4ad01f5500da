//! The bodies of the fuzz targets: each takes any bytes, and panics when the code under test breaks a promise.
//!
//! libFuzzer drives them from the workspace in `fuzz/`; a plain test replays the corpus and everything ever found.
//! Invariant: the same bytes give the same verdict, in bounded time and memory, on any host.

mod bytes;
mod configuration;
mod credentials;
mod frames;
mod ftp;
mod http;
mod keys;
mod ledger;
mod locations;
mod manifests;
mod markers;
pub mod mutate;
mod options;
mod parcels;
mod session;
mod sftp;
mod tickets;
mod xml;

pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Longest input that libFuzzer makes; longer ones find nothing that shorter ones do not.
    pub bytes_max: usize,
}

pub const TARGETS: &[Target] = &[
    Target { name: "frames", run: frames::run, bytes_max: 4096 },
    Target { name: "session", run: session::run, bytes_max: 512 },
    Target { name: "ledger", run: ledger::run, bytes_max: 2048 },
    Target { name: "manifests", run: manifests::run, bytes_max: 1024 },
    Target { name: "locations", run: locations::run, bytes_max: 512 },
    Target { name: "configuration", run: configuration::run, bytes_max: 4096 },
    Target { name: "tickets", run: tickets::run, bytes_max: 1024 },
    Target { name: "options", run: options::run, bytes_max: 128 },
    Target { name: "ftp", run: ftp::run, bytes_max: 1024 },
    Target { name: "http", run: http::run, bytes_max: 1024 },
    Target { name: "xml", run: xml::run, bytes_max: 2048 },
    Target { name: "sftp", run: sftp::run, bytes_max: 1024 },
    Target { name: "markers", run: markers::run, bytes_max: 5120 },
    Target { name: "keys", run: keys::run, bytes_max: 512 },
    Target { name: "credentials", run: credentials::run, bytes_max: 1024 },
];

pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
