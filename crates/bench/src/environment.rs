//! What a figure depends on besides the tools: the machine, the day, and the program that measured. One record for all who
//! write bundles.
//!
//! Invariant: nothing of it names a place of the machine.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// UTC, `2026-03-21 14:05`.
    pub started: String,
    pub cpu: String,
    pub cores: usize,
    pub memory_bytes: u64,
    /// Those of `FLAGS` that the processor has.
    pub processor_flags: Vec<String>,
    /// One thread copying between two blocks that no cache holds; 0 where it was not measured.
    pub memory_copy_bytes_per_second: f64,
    pub kernel: String,
    pub is_virtual: bool,
    /// Size of the pages that a tmpfs of this kernel uses, as the kernel words it.
    pub shmem_huge_pages: String,
    /// On the link between the two hosts; empty without one.
    pub congestion_control: String,
    /// What lies between the two hosts; empty without them.
    pub network: String,
    pub file_system: String,
    /// The program that measured.
    pub program: Option<Program>,
}

/// What decides how fast bytes are sealed, digested and copied.
const FLAGS: [&str; 14] = [
    "aes",
    "vaes",
    "pclmulqdq",
    "vpclmulqdq",
    "sse4_2",
    "avx2",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "sha_ni",
    "pmull",
    "sha2",
    "crc32",
    "sve",
];

/// A build of a program, told from every other.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Program {
    /// Of its file, hexadecimal.
    pub sha256: String,
    /// Of the source tree in which it lies, with `+` behind it where that has changes; none where it lies elsewhere, or where
    /// the tree has gone on since.
    pub commit: Option<String>,
}

impl Program {
    pub fn read(path: &Path) -> Option<Program> {
        let bytes = fs::read(path).ok()?;
        let sha256 = net::sha256(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Program { sha256, commit: commit_of(path) })
    }

    /// `commit 41a9ef4..., SHA-256 0a1b...`
    pub fn shown(&self) -> String {
        let commit = self.commit.as_ref().map_or(String::new(), |of| format!("commit {of}, "));
        format!("{commit}SHA-256 {}", self.sha256)
    }
}

/// Nothing of git is needed: without it, or without a tree, there is no commit.
fn commit_of(program: &Path) -> Option<String> {
    let tree = program.ancestors().skip(1).find(|directory| directory.join(".git").exists())?;
    let git = |args: &[&str]| {
        let output = Command::new("git").arg("-C").arg(tree).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let (commit, committed) = (git(&["rev-parse", "HEAD"])?, git(&["log", "-1", "--format=%ct"])?.parse::<u64>().ok()?);
    let built = program.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs();
    if built < committed {
        return None;
    }
    let is_changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if is_changed { commit + "+" } else { commit })
}

/// Of the program that this is. Its file is read once.
fn own_program() -> Option<Program> {
    static OWN: OnceLock<Option<Program>> = OnceLock::new();
    OWN.get_or_init(|| Program::read(&std::env::current_exe().ok()?)).clone()
}

/// The best of a few passes over blocks larger than any cache here, once for each process.
fn memory_copy_bytes_per_second() -> f64 {
    const BLOCK_BYTES: usize = 128 << 20;
    const PASSES: usize = 4;
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let source = vec![1_u8; BLOCK_BYTES];
        let mut target = vec![0_u8; BLOCK_BYTES];
        let pass = |target: &mut [u8]| {
            let began = Instant::now();
            target.copy_from_slice(black_box(&source));
            black_box(&target);
            began.elapsed().as_secs_f64()
        };
        // The first touches the memory and does not count.
        let seconds = (0..=PASSES).map(|_| pass(&mut target)).skip(1).fold(f64::INFINITY, f64::min);
        (BLOCK_BYTES as f64 / seconds.max(1e-9)).round()
    })
}

impl Environment {
    pub fn read() -> Environment {
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
            line.split_once(':').map(|(_, value)| value.trim().to_owned())
        };
        let cpu = ["model name", "cpu family", "model"].map(|name| field(name).unwrap_or_else(|| "?".into()));
        let total = read("/proc/meminfo").split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
        let shmem = read("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
        let chosen = shmem.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
        Environment {
            started: utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())),
            cpu: format!("{} (family {}, model {})", cpu[0], cpu[1], cpu[2]),
            cores: crate::dataset::cores(),
            memory_bytes: total.unwrap_or(0) << 10,
            processor_flags: flags(&cpuinfo),
            memory_copy_bytes_per_second: memory_copy_bytes_per_second(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            is_virtual: cpuinfo.split_whitespace().any(|flag| flag == "hypervisor"),
            shmem_huge_pages: chosen,
            congestion_control: String::new(),
            network: String::new(),
            file_system: String::new(),
            program: own_program(),
        }
    }

    /// In steps of a tenth; empty where it was not measured.
    pub(crate) fn memory_copy_shown(&self) -> String {
        if self.memory_copy_bytes_per_second <= 0.0 {
            return String::new();
        }
        let steps = (self.memory_copy_bytes_per_second.ln() / 1.1_f64.ln()).round();
        format!("about {:.0} GB/s", 1.1_f64.powf(steps) / 1e9)
    }

    /// What every bundle says of the machine and of the program that measured, as lines of a list.
    pub fn lines(&self) -> Vec<String> {
        let kind = if self.is_virtual { "virtual machine" } else { "host" };
        let mut lines =
            vec![format!("{kind}, {} x {}, {}", self.cores, self.cpu, model::quantity::ByteCount(self.memory_bytes))];
        if !self.processor_flags.is_empty() {
            lines.push(format!("the processor's abilities: {}", self.processor_flags.join(" ")));
        }
        if self.memory_copy_bytes_per_second > 0.0 {
            let rate = self.memory_copy_bytes_per_second / 1e9;
            lines.push(format!("memory: one thread copies {rate:.1} GB/s"));
        }
        lines.push(format!("Linux {}", self.kernel));
        if let Some(program) = &self.program {
            lines.push(format!("measured by thalweg, {}", program.shown()));
        }
        lines
    }
}

fn flags(cpuinfo: &str) -> Vec<String> {
    let names = |line: &&str| line.starts_with("flags") || line.starts_with("Features");
    let line = cpuinfo.lines().find(names).and_then(|line| line.split_once(':')).map_or("", |(_, flags)| flags);
    let found: Vec<&str> = line.split_whitespace().collect();
    FLAGS.iter().filter(|flag| found.contains(flag)).map(|flag| (*flag).to_owned()).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Civil date from days since 1970, after the era arithmetic that every proleptic Gregorian conversion uses.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", rest / 3_600, rest / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_names_the_program_by_its_bytes_and_no_place() {
        let environment = Environment::read();
        let program = environment.program.clone().unwrap();
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let digest: String = net::sha256(&own).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(program.sha256, digest);
        assert!(environment.memory_copy_bytes_per_second > 1e8, "{environment:?}");
        let told = serde_json::to_string(&environment).unwrap() + &environment.lines().join(" ");
        assert!(!told.contains(env!("CARGO_MANIFEST_DIR")) && told.contains(&digest), "{told}");
    }

    #[test]
    fn only_flags_that_decide_rates_are_kept() {
        let text = "processor : 0\nflags : fpu aes sse4_2 avx512f vpclmulqdq hypervisor\n";
        assert_eq!(flags(text), ["aes", "vpclmulqdq", "sse4_2", "avx512f"]);
        assert!(flags("processor : 0\n").is_empty());
    }

    #[test]
    fn a_program_outside_of_a_source_tree_has_no_commit_and_one_inside_has() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::write(&program, "x").unwrap();
        assert_eq!(Program::read(&program).unwrap().commit, None);
        let git = |args: &[&str]| {
            let identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"];
            Command::new("git")
                .arg("-C")
                .arg(dir.path())
                .args(identity)
                .args(args)
                .output()
                .is_ok_and(|o| o.status.success())
        };
        if !git(&["init", "-q"]) {
            // Without git there is nothing to tell.
            return;
        }
        assert!(git(&["add", "."]) && git(&["commit", "-q", "-m", "m"]));
        let later = SystemTime::now() + std::time::Duration::from_secs(60);
        fs::File::options().write(true).open(&program).unwrap().set_modified(later).unwrap();
        let commit = Program::read(&program).unwrap().commit.unwrap();
        assert_eq!(commit.len(), 40, "{commit}");
        fs::write(&program, "y").unwrap();
        fs::File::options().write(true).open(&program).unwrap().set_modified(later).unwrap();
        assert_eq!(Program::read(&program).unwrap().commit, Some(commit + "+"));
        fs::File::options().write(true).open(&program).unwrap().set_modified(UNIX_EPOCH).unwrap();
        assert_eq!(Program::read(&program).unwrap().commit, None);
    }

    #[test]
    fn seconds_become_the_civil_date() {
        assert_eq!(utc(0), "1970-01-01 00:00");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00");
        assert_eq!(utc(1_774_101_900), "2026-03-21 14:05");
    }
}
