//! The verbs of `cargo run -p xtask`: `ci [--quick]` and `tidy`.

use std::process::ExitCode;

use anyhow::Context;
use xtask::{ci, tidy};

const USAGE: &str = "usage: cargo run -p xtask -- ci [--quick] | tidy";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["ci"] => ci::run(ci::Extent::Everything).context("run continuous integration"),
        ["ci", "--quick"] => ci::run(ci::Extent::Quick).context("run continuous integration"),
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
