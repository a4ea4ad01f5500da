//! Ceilings of the machine, measured beside the race: what the network, the memory and the file system give alone.
//!
//! They do not add up: on one machine every stage takes from the same cores.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lab::Lab;
use lab::record::reasons_since;

use crate::account::{Machine, own_cpu_seconds};
use crate::error::{Error, Kind, Result};
use crate::process::{Gated, Ready, Server};
use crate::sample::{Sample, State, Usage};
use crate::storage::ceiling;
use crate::storage::measured::Measured;
use crate::tool::{Bed, Class, Host, version_of};
use crate::workspace::{Workspace, remove_tree};

const IPERF_PORT: u16 = 5201;
const IPERF_SECONDS: u32 = 4;
const STREAMS: [u32; 2] = [1, 2];
const THREADS: [usize; 2] = [1, 2];
const CREATED_FILES: u64 = 50_000;
const CREATED_FILE_BYTES: u64 = 1 << 10;
const WRITTEN_BYTES: u64 = 4 << 30;
const WRITE_BYTES: u64 = 128 << 10;
/// Storage that needs longer is measured by what it did until then.
const LIMIT: Duration = Duration::from_secs(60);

/// What is told about the ceilings beside their figures.
pub const IPERF_SETTINGS: &str = "iperf3 -s; iperf3 -c SERVER -t 4 -P STREAMS (clear text, memory to memory)";
pub const CREATE_SETTINGS: &str = "create + write 1 KiB + rename from a staging directory, own directories per thread";
pub const WRITE_SETTINGS: &str = "4 GiB in writes of 128 KiB, one file per thread";

pub fn iperf_version() -> Result<String> {
    version_of(Path::new("iperf3"), "--version", "iperf3")
}

/// One round of iperf3 with each stream count.
pub fn network(bed: &Bed, round: u32, cancel: &AtomicBool) -> Result<Vec<Sample>> {
    STREAMS.iter().map(|&streams| iperf(bed, streams, round, cancel)).collect()
}

/// One round of the file-system ceilings with each thread count.
pub fn storage(workspace: &Workspace, round: u32) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    let root = workspace.path().join("ceiling");
    for threads in THREADS {
        let name = format!("create + rename, {threads} thread{}", plural(threads));
        workspace.ballast(CREATED_FILES, CREATED_FILES * CREATED_FILE_BYTES)?.drop_now()?;
        let created = ceiling::publish(&root, threads, CREATED_FILES, CREATED_FILE_BYTES, LIMIT)?;
        remove_tree(&root)?;
        samples.push(sample_of(&name, round, &created));

        let name = format!("write, {threads} thread{}", plural(threads));
        workspace.ballast(1, WRITTEN_BYTES)?.drop_now()?;
        let written = ceiling::write(&root, threads, WRITTEN_BYTES, WRITE_BYTES, LIMIT)?;
        remove_tree(&root)?;
        samples.push(sample_of(&name, round, &written));
    }
    Ok(samples)
}

pub(crate) fn iperf(bed: &Bed, streams: u32, round: u32, cancel: &AtomicBool) -> Result<Sample> {
    let mut command = Command::new("iperf3");
    command.args(["-s", "-p", &IPERF_PORT.to_string(), "-B", &bed.server_address()]);
    let mut served = bed.at(Host::Server, Class::Network, &command)?;
    let log = bed.workspace.join("iperf3.log");
    let server = Server::start(&mut served, &Ready::Listens(IPERF_PORT), &log, cancel)?;
    let mut client = Command::new("iperf3");
    client.args(["-c", &bed.server_address(), "-p", &IPERF_PORT.to_string(), "-J"]);
    client.args(["-t", &IPERF_SECONDS.to_string(), "-P", &streams.to_string()]);
    let gated = Gated::prepare(&client, |gate| bed.at(Host::Client, Class::Network, gate), bed.workspace)?;
    let emulated = bed.lab.and_then(Lab::snapshot);
    let (machine, own) = (Machine::read(), own_cpu_seconds());
    let limit = Duration::from_secs(u64::from(IPERF_SECONDS) * 5);
    let finished = gated.run(limit, Some(&server), cancel)?;
    let after = Machine::read();
    let reasons = bed.lab.map(|lab| reasons_since(lab, emulated.as_ref())).unwrap_or_default();
    let report: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap_or_default();
    let received = &report["end"]["sum_received"];
    let (Some(bytes), Some(seconds)) = (received["bytes"].as_u64(), received["seconds"].as_f64()) else {
        let said = if finished.stderr.is_empty() { finished.stdout } else { finished.stderr };
        return Err(Error::new(Kind::Failed, "run", "iperf3", said.trim()));
    };
    let server_cpu_seconds = server.cpu_seconds();
    let used = finished.cpu_seconds + server_cpu_seconds + own_cpu_seconds() - own;
    let sample = Sample {
        seconds,
        bytes,
        client: Usage { cpu_seconds: finished.cpu_seconds, rss_bytes_max: finished.rss_bytes_max },
        server: Some(Usage { cpu_seconds: server_cpu_seconds, rss_bytes_max: finished.server_rss_bytes_max }),
        foreign_cpu_seconds: (after.busy_seconds - machine.busy_seconds - used).max(0.0),
        steal_seconds: after.steal_seconds - machine.steal_seconds,
        ..empty_sample(&format!("iperf3, {streams} stream{}", plural(streams as usize)), round)
    };
    Ok(unless_late(sample, &reasons))
}

/// Void where the emulated link was late: then the figure says more about the emulator than about the link.
pub(crate) fn unless_late(sample: Sample, reasons: &[String]) -> Sample {
    match reasons.is_empty() {
        true => sample,
        false => Sample { state: State::Void, note: reasons.join("; "), ..sample },
    }
}

/// A figure of `storage` as a sample of a race.
fn sample_of(name: &str, round: u32, measured: &Measured) -> Sample {
    Sample {
        seconds: measured.seconds,
        bytes: measured.bytes,
        files: measured.files,
        client: Usage { cpu_seconds: measured.cpu_seconds, rss_bytes_max: 0 },
        foreign_cpu_seconds: measured.foreign_cpu_seconds,
        steal_seconds: measured.steal_seconds,
        ..empty_sample(name, round)
    }
}

pub(crate) fn empty_sample(tool: &str, round: u32) -> Sample {
    Sample {
        condition: String::new(),
        set: "ceilings".into(),
        class: Class::Reference,
        tool: tool.into(),
        is_ours: false,
        round,
        state: if round == 0 { State::Discarded } else { State::Counted },
        seconds: 0.0,
        reported_seconds: None,
        bytes: 0,
        files: 0,
        client: Usage::default(),
        server: None,
        network: None,
        foreign_cpu_seconds: 0.0,
        steal_seconds: 0.0,
        bottleneck: None,
        note: String::new(),
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ceiling_over_a_link_that_was_late_is_void_in_every_round() {
        for round in [0, 1] {
            let sample = empty_sample("iperf3, 1 stream", round);
            assert_eq!(unless_late(sample.clone(), &[]), sample);
            let late = unless_late(sample, &["packets were late".into(), "and lost".into()]);
            assert_eq!((late.state, late.note.as_str()), (State::Void, "packets were late; and lost"));
        }
    }
}
