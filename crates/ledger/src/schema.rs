//! Opens the SQLite file: creates, recognises, migrates and checks it.
//!
//! Invariants:
//! - A file that is not a sound ledger of a known version is refused and not written to.
//! - A migration is one transaction together with the version it leads to.

use crate::error::{Cause, Kind};
use crate::limits::{CHECK_BYTES_MAX, Settings};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// "TWLG".
const APPLICATION_ID: i64 = 0x5457_4c47;
/// The n-th step leads from version n to version n + 1. A released step is never changed.
const MIGRATIONS: [&str; 2] = [include_str!("schema_1.sql"), include_str!("schema_2.sql")];
const VERSION: i64 = MIGRATIONS.len() as i64;
/// The smallest page of SQLite.
const FILE_BYTES_MIN: u64 = 512;
/// Prepared statements kept; there are about 30.
const STATEMENTS_MAX: usize = 64;

pub(crate) fn open(path: &Path, settings: &Settings) -> Result<Connection, Cause> {
    refuse_emptied(path)?;
    create_private(path)?;
    // An absolute path cannot be taken for a URI.
    let path = std::path::absolute(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(&path, flags)?;
    connection.busy_timeout(settings.busy_max)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // Until the file is accepted, closing it writes nothing to it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    let version = recognise(&mut connection)?;
    if version > 0 && path.metadata()?.len() <= CHECK_BYTES_MAX {
        check(&connection)?;
    }
    if version == 0 && (1..FILE_BYTES_MIN).contains(&path.metadata()?.len()) {
        // SQLite takes a file of one byte for an empty one.
        return Err(Kind::Corrupt.into());
    }
    if version == 0 {
        // Has to come before the first table.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    use_write_ahead_log(&connection, settings)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "journal_size_limit", 16 << 20)?;
    // An endpoint that is confined to its own directories has no other place for them.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // The writer does it, and looks at the errors.
    connection.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
    bound_size(&connection, settings.file_bytes_max)?;
    if version < VERSION {
        migrate(&mut connection)?;
    }
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(connection)
}

/// Opens a ledger that is there, to look at it alone: nothing is made and no row is written. A writer may be at work.
pub(crate) fn open_to_read(path: &Path, settings: &Settings) -> Result<Connection, Cause> {
    if let Err(error) = path.metadata() {
        return Err(match error.kind() {
            io::ErrorKind::NotFound => Cause { kind: Kind::Absent, source: Some(Arc::new(error)) },
            _ => error.into(),
        });
    }
    refuse_emptied(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(std::path::absolute(path)?, flags)?;
    connection.busy_timeout(settings.busy_max)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    match recognise(&mut connection)? {
        // Made, and not yet filled: there is no history.
        0 => Err(Kind::Absent.into()),
        _ => Ok(connection),
    }
}

/// Looks for damage in the whole file.
fn check(connection: &Connection) -> Result<(), Cause> {
    let finding: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    match finding.as_str() {
        "ok" => Ok(()),
        _ => Err(Cause { kind: Kind::Corrupt, source: Some(Arc::new(Finding(finding))) }),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Finding(String);

/// Held while a file is made. Closing a descriptor of a file takes away the locks that this process holds on it, so no
/// other thread may hand the file to SQLite between the creation and the close below. Held for two system calls.
static CREATION: Mutex<()> = Mutex::new(());

/// SQLite gives the -wal and -shm files the permissions of the main file, so these are all that is needed.
fn create_private(path: &Path) -> Result<(), Cause> {
    let _creation = CREATION.lock().unwrap_or_else(PoisonError::into_inner);
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(()),
    }
}

/// SQLite deletes the write-ahead log of an empty file. A ledger's file is never empty once it has a log, so this one
/// was emptied by something else, and the log may be all that is left of it.
fn refuse_emptied(path: &Path) -> Result<(), Cause> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    // The log first: another process that creates the ledger at this moment makes the file before the log.
    let has_log = Path::new(&log).metadata().is_ok_and(|log| log.len() > 0);
    match has_log && path.metadata().is_ok_and(|file| file.len() == 0) {
        true => Err(Kind::Corrupt.into()),
        false => Ok(()),
    }
}

/// The version of the file; 0 for one that is still empty.
fn recognise(connection: &mut Connection) -> Result<i64, Cause> {
    // One transaction: another process may be creating the tables.
    let transaction = connection.transaction()?;
    let application: i64 = transaction.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let objects: i64 = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    match (application, version, objects) {
        (0, 0, 0) => Ok(0),
        (APPLICATION_ID, 1..=VERSION, _) => Ok(version),
        (APPLICATION_ID, found, _) if found > VERSION => Err(Kind::NewerVersion { found, known: VERSION }.into()),
        _ => Err(Kind::Foreign.into()),
    }
}

fn use_write_ahead_log(connection: &Connection, settings: &Settings) -> Result<(), Cause> {
    let since = Instant::now();
    loop {
        // SQLite does not call its busy handler here, and two processes may create the same ledger at once.
        match connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0)) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(_) => return Err(Kind::Io.into()),
            Err(error) => {
                let cause = Cause::from(error);
                if cause.kind != Kind::Busy || since.elapsed() >= settings.busy_max {
                    return Err(cause);
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }
}

fn bound_size(connection: &Connection, file_bytes_max: u64) -> Result<(), Cause> {
    let page_bytes: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let pages = (file_bytes_max / page_bytes.max(512) as u64).clamp(1, u64::from(u32::MAX) - 1);
    connection.pragma_update_and_check(None, "max_page_count", pages as i64, |_| Ok(()))?;
    Ok(())
}

fn migrate(connection: &mut Connection) -> Result<(), Cause> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Read again under the lock: another process may have been faster.
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    for step in MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or(0)) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(())
}
