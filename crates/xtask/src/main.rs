//! The verbs of `cargo run -p xtask`: `ci`, `tidy`, `console`, `deb`, `static` and `previous`.

use std::process::ExitCode;

use anyhow::Context;
use xtask::{ci, console, deb, deb_trial, previous, static_binary, tidy};

const USAGE: &str = "usage: cargo run -p xtask -- ci [--quick | --full] [--seed N] [--out FOLDER] \
    | tidy | console [PROGRAM [FOLDER]] | deb [--try [--quick]] | static | previous";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["ci", more @ ..] => match ci_options(more) {
            Some(options) => ci::run(options).context("run continuous integration"),
            None => return misused(),
        },
        ["console", more @ ..] if more.len() <= 2 => {
            console::run(more.first().copied(), more.get(1).copied()).context("try the console")
        }
        ["deb"] => deb::build(deb::Purpose::Release).map(|_| true).context("build the package"),
        ["deb", "--try"] => deb_trial::run(deb::Purpose::Release).context("try the package"),
        ["deb", "--try", "--quick"] => deb_trial::run(deb::Purpose::Trial).context("try the package"),
        ["previous"] => previous::run().context("build the program of the earlier commit"),
        ["static"] => static_binary::run().context("build the static program"),
        ["tidy"] => tidy::run().context("check the tree"),
        _ => return misused(),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn ci_options(mut words: &[&str]) -> Option<ci::Options> {
    let mut options = ci::Options { extent: ci::Extent::Usual, seed: None, out: None };
    loop {
        words = match words {
            [] => return Some(options),
            ["--quick", rest @ ..] => {
                options.extent = ci::Extent::Quick;
                rest
            }
            ["--full", rest @ ..] => {
                options.extent = ci::Extent::Full;
                rest
            }
            ["--seed", seed, rest @ ..] => {
                options.seed = Some(seed.parse().ok()?);
                rest
            }
            ["--out", folder, rest @ ..] => {
                options.out = Some(folder.into());
                rest
            }
            _ => return None,
        };
    }
}

fn misused() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
