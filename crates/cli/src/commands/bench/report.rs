//! `thalweg bench report`: the pages of a bundle written again from its raw samples.

use crate::exit::{Error, Result, error};
use crate::output::{line, note, shown};
use bench::report;
use model::Exit;
use std::path::{Path, PathBuf};

/// Regenerate the tables, plots and pages of a bundle from its raw samples
///
/// DIR contains `samples.csv`, and `summary.json` with what was measured where, as written by
/// `thalweg bench compare --out`, even of an earlier version. Everything else in it is replaced; added plots are kept
/// and shown.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg bench report results/today && xdg-open results/today/report.html")]
pub struct Args {
    /// The bundle
    dir: PathBuf,
    /// Leave the bundle alone and write the result here
    #[arg(long, value_name = "DIR", env = "THALWEG_OUT")]
    out: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<Exit> {
    let measured = read(&args.dir)?;
    let out = args.out.unwrap_or(args.dir);
    report::write(&measured, &out).map_err(|e| crate::commands::generate::of_bench(&e))?;
    line(report::summary_text(&measured).trim_end());
    note(&format!("wrote {}", shown(out.join("report.html"))));
    Ok(Exit::Done)
}

/// A bundle for a command that needs one.
pub fn read(dir: &Path) -> Result<bench::compare::Report, Error> {
    report::read(dir).map_err(|e| {
        let message = model::name::Escaped(e.chain().as_bytes()).to_string();
        match e.kind {
            bench::error::Kind::Usage => {
                error(Exit::Usage, message, "name an undamaged directory written by `thalweg bench` with --out")
            }
            _ => error(Exit::Failed, message, "check the path and the rights to it"),
        }
    })
}
