//! Runs the libraries without the product's command line: `bench gen SPEC DIR [MANIFEST]` and
//! `bench compare SETS ROUNDS OUT [THALWEG]`, with sets separated by semicolons.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use bench::tool::Variant;
use bench::{compare, dataset, report};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut progress = |line: &str| eprintln!("{line}");
    let outcome = match words[..] {
        ["gen", spec, dir, ref rest @ ..] => {
            let options =
                dataset::Options { manifest: rest.first().map(PathBuf::from), ..dataset::Options::new(spec, dir) };
            dataset::run(&options, &mut progress).map(|outcome| println!("{outcome:?}"))
        }
        ["compare", sets, rounds, out, ref rest @ ..] => {
            let options = compare::Options {
                sets: sets.split(';').filter(|set| !set.is_empty()).map(str::to_owned).collect(),
                rounds: rounds.parse().expect("ROUNDS is a number"),
                out: Some(out.into()),
                variants: rest.iter().map(Variant::new).collect(),
                ..compare::Options::default()
            };
            compare::run(&options, &AtomicBool::new(false), &mut progress)
                .map(|report| print!("{}", report::summary_text(&report)))
        }
        _ => {
            eprintln!("usage: bench gen SPEC DIR [MANIFEST] | bench compare SETS ROUNDS OUT [THALWEG]");
            std::process::exit(2);
        }
    };
    if let Err(error) = outcome {
        eprintln!("error: {}", error.chain());
        std::process::exit(1);
    }
}
