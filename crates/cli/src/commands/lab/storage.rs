//! `thalweg lab storage`: storage to try things on.

use crate::exit::{Result, error};
use model::Exit;
use std::path::PathBuf;
use std::time::Duration;

/// Mount a directory with the slowness you specify, until Ctrl-C
///
/// Shows how a copy would run on storage that is not available here. Needs FUSE.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg lab storage /data/real /mnt/slow --read-latency 5ms --rate 200MiB")]
pub struct Args {
    /// The directory that holds the files
    backing: PathBuf,
    /// Where the slow view of it appears; an existing empty directory
    mount: PathBuf,
    /// From a read to its data, such as 5ms or 300us
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = time, env = "THALWEG_READ_LATENCY")]
    read_latency: Duration,
    /// From a write, or a sync, to its acknowledgement
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = time, env = "THALWEG_WRITE_LATENCY")]
    write_latency: Duration,
    /// For operations that change a name: create, rename, remove
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = time, env = "THALWEG_CREATE_LATENCY")]
    create_latency: Duration,
    /// Reads and writes together, in bytes per second, such as 200MiB [default: unlimited]
    #[arg(long, value_name = "SIZE", value_parser = model::quantity::parse_bytes, env = "THALWEG_RATE")]
    rate: Option<u64>,
    /// Stand still now and then: 5s/20s for 5 of every 20 seconds
    #[arg(long, value_name = "TIME/TIME", value_parser = stall, env = "THALWEG_STALL")]
    stall: Option<(Duration, Duration)>,
    /// How much of the first period is over at the start; with 0 it begins by standing still
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = time, requires = "stall", env = "THALWEG_PHASE")]
    phase: Duration,
    /// Let the kernel cache what was read
    #[arg(long, env = "THALWEG_PAGE_CACHE")]
    page_cache: bool,
    /// Treat README and readme as one name, like storage shared with other systems
    #[arg(long, env = "THALWEG_FOLD_CASE")]
    fold_case: bool,
    /// For several mounts of BACKING, as hosts see shared storage: changes show at once, locks hold within one mount
    #[arg(long, env = "THALWEG_LOCAL_LOCKS")]
    local_locks: bool,
}

fn stall(text: &str) -> std::result::Result<(Duration, Duration), String> {
    let wrong = || format!("{text:?} is not a stall such as 5s/20s (5 s in every 20 s)");
    let (length, period) = text.split_once('/').ok_or_else(wrong)?;
    let (length, period) = (time(length)?, time(period)?);
    if length < period { Ok((length, period)) } else { Err(wrong()) }
}

#[cfg(not(feature = "fuse"))]
pub fn run(_: &Args) -> Result<Exit> {
    Err(error(Exit::Usage, "this build has no slow storage", "build with --features full"))
}

#[cfg(feature = "fuse")]
pub fn run(storage: &Args) -> Result<Exit> {
    use crate::interrupt::Interrupt;
    use crate::output::{line, shown};
    use lab::storage::{SlowStorage, Stall, StorageProfile, is_available};
    if !is_available() {
        return Err(error(
            Exit::Failed,
            "this host has no FUSE (/dev/fuse cannot be opened)",
            "load the kernel module fuse",
        ));
    }
    let interrupt = Interrupt::watch()?;
    let profile = StorageProfile {
        read_latency: storage.read_latency,
        write_latency: storage.write_latency,
        create_latency: storage.create_latency,
        bytes_per_second: storage.rate,
        stall: storage.stall.map(|(length, period)| Stall { length, period, phase: storage.phase }),
        page_cache: storage.page_cache,
        folds_case: storage.fold_case,
        is_shared: storage.local_locks,
    };
    let failed = |e: std::io::Error| crate::exit::of_file("mount slow storage at", &storage.mount, &e);
    let mounted = SlowStorage::mount(&storage.backing, &storage.mount, profile).map_err(failed)?;
    line(&format!("ready at {}", shown(mounted.mountpoint())));
    while !interrupt.wait(Duration::from_secs(3600)) {}
    mounted.unmount().map_err(failed)?;
    Ok(Exit::Done)
}

/// Reads `300us`, `5ms`, `2s`.
fn time(text: &str) -> std::result::Result<Duration, String> {
    ::lab::scenario::quantity::parse_duration(text).map_err(|error| error.to_string())
}
