//! Builds the fuzz workspace with coverage and runs one target of it.
//!
//! The instrumentation is LLVM's own pass, which the stable compiler has too; what it reports to is in libFuzzer.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use trial::targets::Target;

const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    "--cfg=fuzzing",
];
const RSS_MIB_MAX: u32 = 2048;
/// One input may take so long; the slowest honest one takes a tenth of a second.
const INPUT_SECONDS_MAX: u32 = 20;
/// To make a failing input smaller.
const MINIMISE_SECONDS: u32 = 20;

#[derive(Default)]
pub struct Ran {
    pub executions: u64,
    pub new_inputs: u64,
    pub coverage: u64,
    /// An input that fails, as a path from the root of the repository.
    pub broken: Option<String>,
}

/// Builds the program; returns its path.
pub fn build(folder: &Path, build: &Path) -> Result<PathBuf> {
    let host = host()?;
    // The versions of the product, so that what is fuzzed is what ships.
    let lock = folder.join("Cargo.lock");
    if !lock.exists() {
        std::fs::copy(folder.join("../Cargo.lock"), &lock).context("copy the lock file")?;
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // In the folder, so that the settings of the repository hold.
    cargo.current_dir(folder).args(["build", "--release", "--target", &host]);
    // With a target named, build scripts and macros are built without these flags.
    cargo.arg("--target-dir").arg(build).env("RUSTFLAGS", FLAGS.join(" ")).env_remove("CARGO_ENCODED_RUSTFLAGS");
    let status = cargo.status().context("run cargo")?;
    if !status.success() {
        bail!("the fuzz workspace was not built; it needs a C++ compiler (Debian: g++), `--plain` does not");
    }
    Ok(build.join(host).join("release/fuzz"))
}

fn host() -> Result<String> {
    let said = Command::new("rustc").arg("-vV").output().context("run rustc")?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc does not say its host")?;
    Ok(host.to_owned())
}

/// Runs one target; what it finds stays in `BUILD/found/TARGET`.
pub fn run(program: &Path, target: &Target, folder: &Path, build: &Path, seconds: u64) -> Result<Ran> {
    let (found, broken) = (build.join("found").join(target.name), build.join("broken").join(target.name));
    let regressions = folder.join("regressions").join(target.name);
    for directory in [&found, &broken, &regressions] {
        std::fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    }
    let mut command = fuzzer(program, target, seconds);
    command.arg("-print_final_stats=1").arg(format!("-artifact_prefix={}/", broken.display()));
    command.arg(&found).arg(folder.join("corpus").join(target.name)).arg(&regressions);
    let output = command.stdin(Stdio::null()).output().context("run libFuzzer")?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    std::fs::write(build.join(format!("{}.log", target.name)), &text).context("keep what libFuzzer said")?;
    let mut ran = Ran {
        executions: number_after(&text, "stat::number_of_executed_units:"),
        new_inputs: number_after(&text, "stat::new_units_added:"),
        coverage: text.lines().rev().find(|line| line.contains(" ft: ")).map_or(0, |line| number_after(line, " ft:")),
        broken: None,
    };
    if !output.status.success() {
        let last = text.lines().rev().find_map(|line| line.split_once("Test unit written to ").map(|(_, path)| path));
        let Some(input) = last.map(PathBuf::from) else {
            bail!(
                "libFuzzer ended with {} and no input; see {}.log in {}",
                output.status,
                target.name,
                build.display()
            );
        };
        ran.executions = ran.executions.max(1);
        ran.broken = Some(keep_small(program, target, &input, &regressions)?);
    }
    Ok(ran)
}

fn fuzzer(program: &Path, target: &Target, seconds: u64) -> Command {
    let mut command = Command::new(program);
    command.env("THALWEG_FUZZ_TARGET", target.name);
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-rss_limit_mb={RSS_MIB_MAX}"));
    command.arg(format!("-timeout={INPUT_SECONDS_MAX}")).arg(format!("-max_len={}", target.bytes_max));
    command
}

/// Makes a failing input smaller and puts it among the regressions.
fn keep_small(program: &Path, target: &Target, input: &Path, regressions: &Path) -> Result<String> {
    let name = input.file_name().context("an input has a name")?.to_string_lossy().into_owned();
    let kept = regressions.join(&name);
    std::fs::copy(input, &kept).with_context(|| format!("keep {}", input.display()))?;
    let small = input.with_extension("small");
    let mut command = fuzzer(program, target, u64::from(MINIMISE_SECONDS));
    command.arg("-minimize_crash=1").arg(format!("-exact_artifact_path={}", small.display())).arg(input);
    // It may not get smaller; then it stays as it was found.
    let _ = command.stdin(Stdio::null()).output();
    if small.exists() {
        std::fs::copy(&small, &kept).with_context(|| format!("keep {}", small.display()))?;
    }
    Ok(format!("fuzz/regressions/{}/{name}", target.name))
}

fn number_after(text: &str, label: &str) -> u64 {
    let Some((_, rest)) = text.rsplit_once(label) else { return 0 };
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_off_what_libfuzzer_says() {
        let said = "#7 DONE cov: 12 ft: 345 corp: 6/7b\nstat::number_of_executed_units: 89\n";
        assert_eq!(number_after(said, "stat::number_of_executed_units:"), 89);
        assert_eq!(number_after(said.lines().next().unwrap(), " ft:"), 345);
        assert_eq!(number_after(said, "stat::new_units_added:"), 0);
    }
}
