//! The stores of this program: this host's own, and object stores where the build has them.
//!
//! Invariant: a process has one set of them, so that a bucket is looked at once however often a command names it.

use crate::settings::stores::StoreTable;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use store::Stores;

static TABLES: OnceLock<BTreeMap<String, StoreTable>> = OnceLock::new();

/// Keeps what the configuration says of stores, before any is opened.
pub fn configure(tables: BTreeMap<String, StoreTable>) {
    let _ = TABLES.set(tables);
}

pub fn all() -> Stores {
    Stores::default().with("s3", opener())
}

#[cfg(feature = "object")]
fn opener() -> Arc<dyn store::open::Opener> {
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
    };
    let tables = || TABLES.get().into_iter().flatten().map(|(name, table)| (name.clone(), config(table))).collect();
    BUCKETS.get_or_init(|| Arc::new(object::Buckets::new(tables()))).clone()
}

#[cfg(not(feature = "object"))]
fn opener() -> Arc<dyn store::open::Opener> {
    Arc::new(NotBuilt)
}

/// Stands for what this build leaves out.
#[cfg(not(feature = "object"))]
struct NotBuilt;

#[cfg(not(feature = "object"))]
impl NotBuilt {
    fn refused<T>(&self) -> Result<T, store::OpenError> {
        Err(store::OpenError::Refused {
            why: store::open::Refused::Request,
            text: "this build has no object stores".to_owned(),
            advice: "build with --features full".to_owned(),
        })
    }
}

#[cfg(not(feature = "object"))]
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
        _: &store::open::SinkWish<'_>,
    ) -> Result<store::open::OpenSink, store::OpenError> {
        self.refused()
    }

    fn shelf(&self, _: &model::Location, _: store::How) -> Result<Box<dyn store::Shelf>, store::OpenError> {
        self.refused()
    }
}
