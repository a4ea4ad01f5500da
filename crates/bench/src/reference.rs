//! Ceilings of the machine, measured beside the race: what the network, the memory and the file system give alone.
//!
//! They do not add up: on one machine every stage takes from the same cores.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use crate::account::Machine;
use crate::error::{Error, Kind, Result};
use crate::process::{Gated, Ready, Server};
use crate::sample::{Sample, State, Usage};
use crate::tool::{Bed, Class, Host, version_of};
use crate::workspace::{Workspace, remove_tree};

const IPERF_PORT: u16 = 5201;
const IPERF_SECONDS: u32 = 4;
const STREAMS: [u32; 2] = [1, 2];
const THREADS: [usize; 2] = [1, 2];
const CREATED_FILES: u64 = 50_000;
const CREATED_FILE_BYTES: usize = 1 << 10;
const FILES_PER_DIR: u64 = 1_000;
const WRITTEN_BYTES: u64 = 4 << 30;
const WRITE_BYTES: usize = 128 << 10;

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
    for threads in THREADS {
        let files = CREATED_FILES / threads as u64 * threads as u64;
        let bytes = files * CREATED_FILE_BYTES as u64;
        let name = format!("create + rename, {threads} thread{}", plural(threads));
        workspace.ballast(CREATED_FILES, bytes)?.drop_now()?;
        samples.push(Ceiling { name, threads, files, bytes }.measure(workspace, round, |dir| create(dir, threads))?);

        let name = format!("write, {threads} thread{}", plural(threads));
        let ceiling = Ceiling { name, threads, files: threads as u64, bytes: WRITTEN_BYTES };
        workspace.ballast(1, WRITTEN_BYTES)?.drop_now()?;
        samples.push(ceiling.measure(workspace, round, |dir| write(dir, WRITTEN_BYTES / threads as u64))?);
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
    let (machine, own) = (Machine::read(), own_cpu_seconds());
    let limit = Duration::from_secs(u64::from(IPERF_SECONDS) * 5);
    let finished = gated.run(limit, Some(&server), cancel)?;
    let after = Machine::read();
    let report: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap_or_default();
    let received = &report["end"]["sum_received"];
    let (Some(bytes), Some(seconds)) = (received["bytes"].as_u64(), received["seconds"].as_f64()) else {
        let said = if finished.stderr.is_empty() { finished.stdout } else { finished.stderr };
        return Err(Error::new(Kind::Failed, "run", "iperf3", said.trim()));
    };
    let server_cpu_seconds = server.cpu_seconds();
    let used = finished.cpu_seconds + server_cpu_seconds + own_cpu_seconds() - own;
    Ok(Sample {
        seconds,
        bytes,
        client: Usage { cpu_seconds: finished.cpu_seconds, rss_bytes_max: finished.rss_bytes_max },
        server: Some(Usage { cpu_seconds: server_cpu_seconds, rss_bytes_max: finished.server_rss_bytes_max }),
        foreign_cpu_seconds: (after.busy_seconds - machine.busy_seconds - used).max(0.0),
        steal_seconds: after.steal_seconds - machine.steal_seconds,
        ..empty_sample(&format!("iperf3, {streams} stream{}", plural(streams as usize)), round)
    })
}

struct Ceiling {
    name: String,
    threads: usize,
    files: u64,
    bytes: u64,
}

impl Ceiling {
    /// Runs `work` on each thread in a directory of its own, started together.
    fn measure(&self, workspace: &Workspace, round: u32, work: impl Fn(&Path) -> Result<()> + Sync) -> Result<Sample> {
        let root = workspace.path().join("ceiling");
        let dirs: Vec<PathBuf> = (0..self.threads).map(|thread| root.join(thread.to_string())).collect();
        for dir in &dirs {
            fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
        }
        let start = Barrier::new(self.threads + 1);
        let (work, start) = (&work, &start);
        let (machine, own) = (Machine::read(), own_cpu_seconds());
        let (outcome, seconds) = thread::scope(|scope| {
            let run_one = |dir| {
                move || {
                    start.wait();
                    work(dir)
                }
            };
            let handles: Vec<_> = dirs.iter().map(|dir| scope.spawn(run_one(dir))).collect();
            start.wait();
            let started = Instant::now();
            let ended = handles.into_iter().map(|handle| handle.join().expect("a ceiling does not panic"));
            (ended.collect::<Result<Vec<()>>>(), started.elapsed().as_secs_f64())
        });
        outcome?;
        let (after, cpu_seconds) = (Machine::read(), own_cpu_seconds() - own);
        remove_tree(&root)?;
        Ok(Sample {
            seconds,
            bytes: self.bytes,
            files: self.files,
            client: Usage { cpu_seconds, rss_bytes_max: 0 },
            foreign_cpu_seconds: (after.busy_seconds - machine.busy_seconds - cpu_seconds).max(0.0),
            steal_seconds: after.steal_seconds - machine.steal_seconds,
            ..empty_sample(&self.name, round)
        })
    }
}

fn create(dir: &Path, threads: usize) -> Result<()> {
    let block = [0x5a; CREATED_FILE_BYTES];
    let open_dir = |path: PathBuf| -> Result<File> {
        fs::create_dir(&path).map_err(Error::io("create", &path))?;
        File::open(&path).map_err(Error::io("open", &path))
    };
    let staging = open_dir(dir.join("staging"))?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut target = None;
    for file in 0..CREATED_FILES / threads as u64 {
        if file % FILES_PER_DIR == 0 {
            target = Some(open_dir(dir.join(format!("d{}", file / FILES_PER_DIR)))?);
        }
        let target = target.as_ref().expect("opened with the first file");
        let (staged, name) = (format!("s{file}"), format!("f{file}"));
        let mut handle = File::from(
            rustix::fs::openat(&staging, &staged, flags, Mode::from_raw_mode(0o644))
                .map_err(Error::io("create", dir))?,
        );
        handle.write_all(&block).map_err(Error::io("write", dir))?;
        drop(handle);
        rustix::fs::renameat(&staging, &staged, target, &name).map_err(Error::io("rename", dir))?;
    }
    Ok(())
}

fn write(dir: &Path, bytes: u64) -> Result<()> {
    let path = dir.join("file");
    let block = vec![0x5a; WRITE_BYTES];
    let mut file = File::create(&path).map_err(Error::io("create", &path))?;
    for _ in 0..bytes / WRITE_BYTES as u64 {
        file.write_all(&block).map_err(Error::io("write", &path))?;
    }
    Ok(())
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
        note: String::new(),
    }
}

/// Of this process's threads, without its children.
pub(crate) fn own_cpu_seconds() -> f64 {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    usage.tv_sec as f64 + usage.tv_nsec as f64 / 1e9
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
