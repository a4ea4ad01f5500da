//! The stores of this program: this host's own, and object stores, SFTP, GridFTP and WebDAV servers where the build has them.
//!
//! Invariant: a process has one set of them, so that a bucket is looked at once however often a command names it.

#[cfg(any(feature = "object", feature = "dav", feature = "foreign"))]
use crate::settings::stores::StoreKind;
use crate::settings::stores::StoreTable;
#[cfg(feature = "dav")]
use dav::Stop;
use model::{Location, Name};
#[cfg(all(feature = "object", not(feature = "dav")))]
use object::Stop;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use store::Stores;

static TABLES: OnceLock<BTreeMap<String, StoreTable>> = OnceLock::new();
/// Set once the user wants the command to stop.
static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
static ROOTS: OnceLock<BTreeMap<Name, Location>> = OnceLock::new();

/// Keeps what the configuration says of stores, before any is opened.
pub fn configure(tables: BTreeMap<String, StoreTable>, roots: BTreeMap<Name, Location>) {
    let _ = (TABLES.set(tables), ROOTS.set(roots));
}

/// Waiting for a server ends with this flag, for stores that are opened from here on.
pub fn stop_by(flag: &Arc<AtomicBool>) {
    let _ = STOP.set(flag.clone());
}

/// What buckets may hold of content beside the blocks of streams: as much as those (`--memory`).
pub fn grant(memory_bytes: usize) {
    #[cfg(feature = "object")]
    buckets().grant(memory_bytes as u64);
    #[cfg(not(feature = "object"))]
    let _ = memory_bytes;
}

#[cfg(any(feature = "object", feature = "dav"))]
fn stop() -> Stop {
    STOP.get().cloned().map_or_else(Stop::default, Stop::by)
}

/// What an endpoint is to serve from stores.
pub fn roots() -> daemon::StoredRoots {
    daemon::StoredRoots::new(ROOTS.get().cloned().unwrap_or_default(), all())
}

/// Whoever opens any may hold keys from then on.
pub fn all() -> Stores {
    daemon::forbid_dumps();
    let stores = Stores::default().with("s3", object_opener()).with("sftp", foreign_opener());
    let ftp = ftp_opener();
    let stores =
        ["ftp", "gsiftp", "sshftp"].into_iter().fold(stores, |stores, scheme| stores.with(scheme, ftp.clone()));
    let sites = site_opener();
    ["davs", "dav", "https", "http"].into_iter().fold(stores, |stores, scheme| stores.with(scheme, sites.clone()))
}

#[cfg(feature = "foreign")]
fn foreign_opener() -> Arc<dyn store::open::Opener> {
    crate::transfer::sftp::servers()
}

#[cfg(not(feature = "foreign"))]
fn foreign_opener() -> Arc<dyn store::open::Opener> {
    Arc::new(NotBuilt("SFTP"))
}

#[cfg(feature = "foreign")]
fn ftp_opener() -> Arc<dyn store::open::Opener> {
    static SERVERS: OnceLock<Arc<foreign::ftp::FtpServers>> = OnceLock::new();
    let of_server = |(_, table): (&String, &StoreTable)| foreign::ftp::FtpConfig {
        endpoint: table.endpoint.clone().unwrap_or_default(),
        allow_clear: table.allow_clear,
        credentials_file: table.credentials_file.clone(),
        data_hosts: table.redirect_hosts.clone(),
    };
    let tables = || TABLES.get().into_iter().flatten().filter(|(_, table)| table.kind == StoreKind::GridFtp);
    let open = || foreign::ftp::FtpServers::new(tables().map(of_server).collect(), crate::transfer::sftp::grid_dial());
    SERVERS.get_or_init(|| Arc::new(open())).clone()
}

#[cfg(not(feature = "foreign"))]
fn ftp_opener() -> Arc<dyn store::open::Opener> {
    Arc::new(NotBuilt("GridFTP and FTP"))
}

#[cfg(feature = "object")]
fn object_opener() -> Arc<dyn store::open::Opener> {
    buckets()
}

/// What opens `s3://`.
#[cfg(feature = "object")]
pub fn buckets() -> Arc<object::Buckets> {
    static BUCKETS: OnceLock<Arc<object::Buckets>> = OnceLock::new();
    let config = |table: &StoreTable| object::StoreConfig {
        endpoint: table.endpoint.clone(),
        region: table.region.clone(),
        addressing: table.is_by_host.map(|is_by_host| match is_by_host {
            true => object::Addressing::Host,
            false => object::Addressing::Path,
        }),
        allow_clear: table.allow_clear,
        ca_file: table.ca_file.clone().map(Into::into),
        credentials_file: table.credentials_file.clone().map(Into::into),
        aws_profile: table.aws_profile.clone(),
        anonymous: table.is_anonymous,
        copy_bytes_max: None,
    };
    let known = || TABLES.get().into_iter().flatten().filter(|(_, table)| table.kind == StoreKind::S3);
    let tables = || known().map(|(name, table)| (name.clone(), config(table))).collect();
    let open = || {
        let buckets = object::Buckets::new(tables()).stopped_by(stop());
        // Without a directory of one's own nothing is gone on with.
        match daemon::Paths::from_env() {
            Ok(paths) => {
                buckets.keep_uploads_in(paths.state.join("uploads")).keep_known_in(paths.state.join("objects"))
            }
            Err(_) => buckets,
        }
    };
    BUCKETS.get_or_init(|| Arc::new(open())).clone()
}

#[cfg(not(feature = "object"))]
fn object_opener() -> Arc<dyn store::open::Opener> {
    Arc::new(NotBuilt("object stores"))
}

#[cfg(feature = "dav")]
fn site_opener() -> Arc<dyn store::open::Opener> {
    static SITES: OnceLock<Arc<dav::Sites>> = OnceLock::new();
    let of_site = |(_, table): (&String, &StoreTable)| dav::SiteConfig {
        endpoint: table.endpoint.clone().unwrap_or_default(),
        ca_file: table.ca_file.clone().map(Into::into),
        token_file: table.token_file.clone().map(Into::into),
        allow_clear: table.allow_clear,
        redirect_hosts: table.redirect_hosts.clone(),
    };
    let tables = || TABLES.get().into_iter().flatten().filter(|(_, table)| table.kind == StoreKind::Dav);
    SITES.get_or_init(|| Arc::new(dav::Sites::new(tables().map(of_site).collect(), stop()))).clone()
}

#[cfg(not(feature = "dav"))]
fn site_opener() -> Arc<dyn store::open::Opener> {
    Arc::new(NotBuilt("WebDAV"))
}

/// Stands for what this build leaves out.
#[cfg(not(all(feature = "object", feature = "foreign", feature = "dav")))]
struct NotBuilt(&'static str);

#[cfg(not(all(feature = "object", feature = "foreign", feature = "dav")))]
impl NotBuilt {
    fn refused<T>(&self) -> Result<T, store::OpenError> {
        Err(store::OpenError::Refused {
            why: store::open::Refused::Request,
            text: format!("this build has no {}", self.0),
            advice: "build with --features full".to_owned(),
        })
    }
}

#[cfg(not(all(feature = "object", feature = "foreign", feature = "dav")))]
impl store::open::Opener for NotBuilt {
    fn source(
        &self,
        _: &[model::Location],
        _: &model::TransferOptions,
    ) -> Result<store::open::OpenSource, store::OpenError> {
        self.refused()
    }

    fn sink(
        &self,
        _: &model::Location,
        _: &store::open::SinkRequest<'_>,
    ) -> Result<store::open::OpenSink, store::OpenError> {
        self.refused()
    }

    fn shelf(&self, _: &model::Location, _: store::How) -> Result<Box<dyn store::Shelf>, store::OpenError> {
        self.refused()
    }

    fn shelf_below(
        &self,
        _: &model::Location,
        _: &[u8],
        _: store::How,
    ) -> Result<Box<dyn store::Shelf>, store::OpenError> {
        self.refused()
    }

    fn diagnose(&self, _: &model::Location) -> Result<Vec<store::Seen>, store::OpenError> {
        self.refused()
    }
}
