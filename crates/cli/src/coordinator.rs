//! What the hosts of an endpoint keep their records in, as `[cluster]` in the configuration says.
//!
//! Invariant: a password comes from a file that nobody else can read, and goes nowhere but to etcd.

use crate::exit::{Result, usage};
use crate::settings::cluster::{ClusterTable, Engine};
use cluster::coordinator::Coordinator;
use daemon::hosts::{HostBook, Shared};
use daemon::{Issue, Paths};
use std::path::Path;
use std::sync::{Arc, OnceLock};

static TABLE: OnceLock<Option<ClusterTable>> = OnceLock::new();

/// Keeps what the configuration says.
pub fn configure(table: Option<ClusterTable>) {
    let _ = TABLE.set(table);
}

/// The engine that was named.
pub fn engine() -> Option<Engine> {
    Some(TABLE.get()?.as_ref()?.engine)
}

/// The database, where one is named.
pub fn named() -> Result<Option<Arc<dyn Coordinator>>> {
    match TABLE.get().and_then(Option::as_ref) {
        Some(table) if table.engine == Engine::Etcd => open(table).map(Some),
        _ => Ok(None),
    }
}

/// What the host of a state directory has in common with others.
pub fn shared(state: &Path) -> Result<Option<Shared>> {
    let Some(coordinator) = named()? else { return Ok(None) };
    let shared = Shared::of(state, &coordinator)?;
    let hint = "start `thalweg serve` with this configuration: it makes the endpoint, or joins one with --join FILE";
    shared.map(Some).ok_or_else(|| usage("no endpoint has run with this state directory and etcd yet", hint))
}

/// The tickets of the endpoint of a state directory.
pub fn issue(paths: &Paths) -> Result<Issue> {
    Ok(shared(&paths.state)?.map_or_else(|| Issue::new(&paths.state), |shared| shared.issue()))
}

/// Its hosts.
pub fn book(paths: &Paths) -> Result<HostBook> {
    Ok(shared(&paths.state)?.map_or_else(|| HostBook::new(&paths.state), |shared| shared.book()))
}

#[cfg(feature = "etcd")]
fn open(table: &ClusterTable) -> Result<Arc<dyn Coordinator>> {
    const PASSWORD_BYTES_MAX: u64 = 4096;
    let password = |file: &String| -> Result<_> {
        let bytes = daemon::private_file::read(Path::new(file), PASSWORD_BYTES_MAX, true)?;
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.ok_or_else(|| {
            let what = format!("there is no password in {}", crate::output::shown(file));
            usage(what, "write the password of etcd's user there, with mode 0600")
        })?;
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    };
    let password = table.password_file.as_ref().map(password).transpose()?;
    let user = table.user.clone().zip(password.map(Into::into));
    let config = etcd::Config { urls: table.urls.clone(), user, ca_file: table.ca_file.clone().map(Into::into) };
    let etcd = etcd::Etcd::new(config).map_err(|fault| daemon::records::of_fault(&fault))?;
    Ok(Arc::new(etcd))
}

#[cfg(not(feature = "etcd"))]
fn open(_: &ClusterTable) -> Result<Arc<dyn Coordinator>> {
    Err(usage(
        "this build has no etcd, which [cluster] names",
        "build with --features full, or write engine = \"embedded\"",
    ))
}
