//! The file of a hub's database: whether it is one, how it is opened, its format, and what its errors mean.

use crate::{Error, Result};
use model::Exit;
use rusqlite::{Connection, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// "TWHB".
const APPLICATION_ID: i64 = 0x5457_4842;
/// The n-th step leads from version n to version n + 1. A released step is never changed.
const MIGRATIONS: [&str; 3] =
    [include_str!("schema_1.sql"), include_str!("schema_2.sql"), include_str!("schema_3.sql")];
pub const VERSION: i64 = MIGRATIONS.len() as i64;
const BUSY_MAX: Duration = Duration::from_secs(10);
pub fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("hub.db")
}

/// What a file is.
pub enum Recognised {
    Empty,
    Hub,
    Newer(i64),
    Foreign,
}

impl Recognised {
    pub fn check(self, path: &Path) -> Result<()> {
        let shown = path.display();
        match self {
            Recognised::Empty | Recognised::Hub => Ok(()),
            Recognised::Newer(version) => Err(Error::new(
                Exit::Version,
                format!("{shown}: written by a newer version (format {version}; this program knows up to {VERSION})"),
            )
            .hint("use the newer version, or another --state-dir")),
            Recognised::Foreign => Err(Error::new(Exit::Failed, format!("{shown} is not the database of a hub"))
                .hint("name another --state-dir")),
        }
    }
}

pub fn recognise(connection: &Connection) -> rusqlite::Result<Recognised> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let objects: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match (pragma("application_id")?, pragma("user_version")?, objects) {
        (0, 0, 0) => Recognised::Empty,
        (APPLICATION_ID, version, _) if version > VERSION => Recognised::Newer(version),
        (APPLICATION_ID, 1.., _) => Recognised::Hub,
        _ => Recognised::Foreign,
    })
}

pub fn prepare(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_MAX)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "trusted_schema", false)?;
    let damage: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if damage != "ok" {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        return Err(rusqlite::Error::SqliteFailure(code, Some(damage)));
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    for step in MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or(0)) {
        transaction.execute_batch(step)?;
    }
    // Programs without need of it, older ones among them, pass it by.
    transaction.execute_batch("CREATE INDEX IF NOT EXISTS ended_jobs ON jobs (ended) WHERE ended IS NOT NULL")?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

pub fn of_sqlite(path: &Path, error: &rusqlite::Error) -> Error {
    use rusqlite::ErrorCode;
    let code = error.sqlite_error_code();
    let text = format!("{}: {error}", path.display());
    match code {
        Some(ErrorCode::DiskFull) => {
            Error::new(Exit::NoSpace, format!("{}: no space left; the queue is unchanged", path.display()))
                .hint("free some space where the hub keeps its state")
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Error::new(Exit::Fatal, text)
            .hint("restore hub.db from a backup; endpoints keep what they were given, and the hub asks them"),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Error::new(Exit::Temporary, text).hint("another program holds the database: wait for it, or end it")
        }
        _ => Error::new(Exit::Failed, text).hint("the hub's state directory must be on a working local file system"),
    }
}
