//! What slices of a job that several hosts work on are called in staging.
//!
//! Not here: when one is taken away (`fence`), and what is swept (`sweep`).

use model::{JobId, Name};

/// A slice's staging, in that of a host.
pub const SLICE_PREFIX: &[u8] = b"slice-";
/// The mark of one that was taken over, beside the staging of hosts.
pub const VOID_PREFIX: &[u8] = b"void-";

/// What slices of one run stage together of one object, beside the staging of hosts.
pub const RANGES_PREFIX: &[u8] = b"ranges-";

pub fn slice_name(job: JobId) -> Name {
    name(SLICE_PREFIX, job)
}

pub fn void_name(job: JobId) -> Name {
    name(VOID_PREFIX, job)
}

fn name(prefix: &[u8], job: JobId) -> Name {
    Name::new(&[prefix, job.to_string().as_bytes()].concat()).expect("letters and digits are a name")
}
