//! `static`: the product as one file that needs no library of the host it runs on, and its size.
//!
//! With the musl target where the toolchain has it; else against the C library's static archive, which works as well with
//! one difference that is said: names of hosts are resolved by files and DNS only, as static programs of glibc do.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::deb::{output, run as run_command};
use crate::workspace::Workspace;

/// What an embedded host is asked to hold at most (R49).
const BYTES_MAX: u64 = 25 << 20;

/// Builds it, proves that it is static and runs, and prints its size.
pub fn run() -> Result<bool> {
    let workspace = Workspace::read()?;
    let host = output(Command::new("rustc").arg("-vV"))?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).context("the toolchain's host")?.to_owned();
    let musl = host.replace("-gnu", "-musl");
    let has_musl = has_target(&musl)? && has_program("musl-gcc");
    let target = if has_musl { &musl } else { &host };
    if !has_musl {
        println!("no musl: the target {musl} and musl-gcc are not both installed; built against the static C library");
    }
    let out = workspace.target.join("static");
    let mut build = Command::new("cargo");
    build
        .args(["build", "--profile", "dist", "--locked", "-p", "thalweg", "--features", "full"])
        .args(["--target", target, "--target-dir"])
        .arg(&out);
    // With a target named, flags reach the product alone, and not what runs while it is built.
    build.env("RUSTFLAGS", "-C target-feature=+crt-static").current_dir(&workspace.root);
    run_command(&mut build)?;
    let program = out.join("thalweg");
    fs::copy(out.join(target).join("dist/thalweg"), &program)?;
    run_command(Command::new("strip").arg(&program))?;
    report(&program)
}

fn report(program: &Path) -> Result<bool> {
    let headers = output(Command::new("readelf").args(["--program-headers", "--dynamic", "--wide"]).arg(program))?;
    ensure!(!headers.contains("INTERP") && !headers.contains("(NEEDED)"), "it needs libraries of its host");
    let version = output(Command::new(program).arg("--version"))?;
    let bytes = fs::metadata(program)?.len();
    println!("{}: {}, static, {:.1} MiB", program.display(), version.trim(), bytes as f64 / f64::from(1 << 20));
    if bytes > BYTES_MAX {
        println!("more than {} MiB", BYTES_MAX >> 20);
    }
    Ok(bytes <= BYTES_MAX)
}

fn has_target(target: &str) -> Result<bool> {
    let directory = output(Command::new("rustc").args(["--print", "target-libdir", "--target", target]))?;
    Ok(Path::new(directory.trim()).exists())
}

fn has_program(name: &str) -> bool {
    Command::new(name).arg("--version").output().is_ok_and(|ran| ran.status.success())
}
