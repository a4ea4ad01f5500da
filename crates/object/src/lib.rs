//! Object stores as storage: S3 and what speaks its protocol.
//!
//! `Buckets` opens `s3://BUCKET/KEY` and `s3+NAME://BUCKET/KEY` for `store::open`. Below it a `Bucket` makes single requests,
//! signed and repeated where that helps; `source`, `sink` and `shelf` make of them what the traits of `store` ask for.
//!
//! Invariants:
//! - An object gets its name by one request, on the condition that what stands there is what was decided on; and a success is
//!   believed only when the store says it in so many words.
//! - Every body that is sent carries its CRC64-NVME, and a checksum in the answer is compared with it; what a retry sends comes from
//!   memory, never again from the source.
//! - No secret is in a text that is shown, and none goes to another host than the one that was configured.
//!
//! Not here: HTTP (`web`), and when something is copied or removed (`mover`).

mod config;
mod credentials;
mod sign;
mod key;
mod failure;
mod bucket;
mod version;
mod calls;
mod width;
mod at_once;
mod metadata;
mod listing;
mod cursors;
mod known;
mod crowd;
mod source;
mod ranges;
mod ahead;
mod reading;
mod compared;
mod job;
mod sink;
mod lane;
mod upload_log;
mod filling;
mod upload;
mod copying;
mod resume;
mod publish;
mod diagnosis;
mod removal;
mod walk;
mod shelf;
mod open;

pub use bucket::Bucket;
pub use calls::Upload;
pub use config::{Addressing, StoreConfig};
pub use open::{Buckets, Place};
pub use web::Stop;

/// What makes values of what others say, for whoever tries it with any bytes.
pub mod said {
    pub use super::credentials::{Keys, OF_PROCESS, OF_ROLE, from_json};
    pub use super::key::{of_name, of_path, to_name, to_names, to_path};
}
