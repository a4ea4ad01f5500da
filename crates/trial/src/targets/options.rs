//! Options of a job as a peer sends them: taken as they are or refused, never adjusted.

use super::bytes::Bytes;
use mover::job_options::{options_from_wire, options_to_wire};
use wire::message::{Decisions, Depths, Options};

pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let mut small = || u32::from(bytes.u8());
    let (fsync, verify, digest, engine) = (small(), small(), small(), small());
    let shift = bytes.u8();
    let chunk_bytes = if shift < 64 { 1 << shift } else { bytes.u64() };
    let no_clobber = bytes.u8() & 1 == 1;
    let (chmod_files, chmod_directories) = (bytes.u32(), bytes.u32());
    let compare = u32::from(bytes.u8());
    let decisions = (compare > 0).then(|| Decisions { compare, ..Decisions::default() });
    let fidelity = u32::from(bytes.u8());
    let compression = u32::from(bytes.u8());
    let (shows_prefix, unfinished) = (bytes.u8() & 1 == 1, vec![bytes.u8(); usize::from(bytes.u8())]);
    let buffer = u32::from(bytes.u8());
    let class = u32::from(bytes.u8());
    // What says nothing is left out.
    let depths = Depths { read: bytes.u8().into(), write: bytes.u8().into() };
    let depths = (depths != Depths::default()).then_some(depths);
    let (is_slice, instead_of) =
        (bytes.u8() & 1 == 1, vec![vec![bytes.u8(); usize::from(bytes.u8())]; usize::from(bytes.u8())]);
    let sealed_list = vec![bytes.u8(); usize::from(bytes.u8())];
    let (run, range_start, range_end) =
        (vec![bytes.u8(); usize::from(bytes.u8())], u64::from(bytes.u8()), u64::from(bytes.u8()));
    let congestion = String::from_utf8_lossy(bytes.rest()).into_owned();
    let told = Options {
        fsync,
        verify,
        digest,
        chunk_bytes,
        no_clobber,
        chmod_files,
        chmod_directories,
        engine,
        selection: None,
        decisions,
        fidelity,
        compression,
        congestion,
        class,
        shows_prefix,
        unfinished,
        buffer,
        depths,
        sealed_list,
        is_slice,
        instead_of,
        run,
        range_start,
        range_end,
    };
    match options_from_wire(&told) {
        Ok(options) => assert_eq!(options_to_wire(&options), told, "options were adjusted"),
        Err(refusal) => assert!(!refusal.text.is_empty()),
    }
}
