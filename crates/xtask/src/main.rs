//! The verbs of `cargo run -p xtask`: `ci [--quick]`, `tidy`, `deb [--try]`, `static` and `previous`.

use std::process::ExitCode;

use anyhow::Context;
use xtask::{ci, deb, deb_trial, previous, static_binary, tidy};

const USAGE: &str = "usage: cargo run -p xtask -- ci [--quick] | tidy | deb [--try] | static | previous";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["ci"] => ci::run(ci::Extent::Everything).context("run continuous integration"),
        ["ci", "--quick"] => ci::run(ci::Extent::Quick).context("run continuous integration"),
        ["deb"] => deb::build().map(|_| true).context("build the package"),
        ["deb", "--try"] => deb_trial::run().context("try the package"),
        ["previous"] => previous::run().context("build the program of the earlier commit"),
        ["static"] => static_binary::run().context("build the static program"),
        ["tidy"] => tidy::run().context("check the tree"),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
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
