//! `thalweg plan fit`: reads measured points and prints the law through them.

use super::values::{read_text, shown_rate};
use crate::exit::{Result, usage};
use crate::output::{line, note, shown};
use model::Exit;
use model::quantity::parse_bytes;
use plan::fit::{self, FittedLaw, Point, SmallFiles, Unfit};
use plan::graph::Law;
use serde_json::{Value, json};
use std::path::PathBuf;

const ROWS_MAX: usize = 100_000;
/// A relative error above which a form says less than the points do.
const RMS_MAX: f64 = 0.1;

/// Fit a law of a model to measured points
///
/// CSV has two columns: n,bytes_per_second for F1, F2 and F4, and size,bytes_per_second for small-files. A first line of
/// words is a heading; lines that begin with # are comments. The result is what a model writes as `capacity`, with the root
/// of the mean squared relative error.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg plan fit small-files sweep.csv\n\
\x20   thalweg plan fit F1 disk.csv --json\n\
\x20   thalweg plan fit F4 connections.csv")]
pub struct Args {
    /// small-files: seconds a file and rate; F1: falls with n; F2: rises and falls; F4: rises up to a level
    #[arg(value_name = "FORM")]
    form: Form,
    /// The measured points
    #[arg(value_name = "CSV")]
    csv: PathBuf,
    /// Print the answer as one JSON object
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    SmallFiles,
    #[value(name = "F1")]
    F1,
    #[value(name = "F2")]
    F2,
    #[value(name = "F4")]
    F4,
}

pub fn run(args: &Args) -> Result<Exit> {
    let points = points(args)?;
    let unfit = |e: Unfit| usage(format!("{}: {e}", shown(&args.csv)), e.cure());
    if args.form == Form::SmallFiles {
        let fit = SmallFiles::fit(&points).map_err(unfit)?;
        show_small_files(args, &fit);
        doubt(fit.rms, "measure again, each size for longer");
        return Ok(Exit::Done);
    }
    let fitted = match args.form {
        Form::F1 => fit::falling(&points, "n"),
        Form::F2 => fit::rising(&points, "n"),
        _ => fit::bent(&points, "n"),
    };
    let fitted = fitted.map_err(unfit)?;
    show_law(args, &fitted);
    if let Some(doubt) = fitted.doubt {
        note(doubt);
    }
    doubt(fitted.rms, "try another one, or write them into the model as they are (F5)");
    Ok(Exit::Done)
}

/// Says where a form is not that of the points.
fn doubt(rms: f64, cure: &str) {
    if rms > RMS_MAX {
        note(&format!("the form does not fit these points: {cure}"));
    }
}

fn show_small_files(args: &Args, fit: &SmallFiles) {
    if args.json {
        let SmallFiles { a_seconds, b_bytes_per_second, p, rms, max } = fit;
        let answer = json!({"v": 1, "a_seconds": a_seconds, "b_bytes_per_second": b_bytes_per_second, "p": p, "rms": rms, "max": max});
        line(&answer.to_string());
        return;
    }
    line(&format!("a file    {:.2} us, {:.0} files/s", fit.a_seconds * 1e6, 1.0 / fit.a_seconds));
    line(&format!("bytes     {}", shown_rate(fit.b_bytes_per_second)));
    line(&format!("overlap   p = {} (1: none)", fit.p));
    line(&errors(fit.rms, fit.max));
}

fn show_law(args: &Args, fitted: &FittedLaw) {
    if args.json {
        let mut answer = serde_json::to_value(&fitted.law).expect("plain values have a JSON form");
        if let Value::Object(keys) = &mut answer {
            keys.remove("knob");
            keys.remove("scale");
            keys.extend([
                ("v".to_owned(), json!(1)),
                ("rms".to_owned(), json!(fitted.rms)),
                ("max".to_owned(), json!(fitted.max)),
            ]);
        }
        line(&answer.to_string());
        return;
    }
    line(&match &fitted.law {
        Law::F1 { beta, alpha, .. } => format!("rate      {} / (n + {alpha:.4})", shown_rate(*beta)),
        Law::F2 { lambda, sigma, kappa, .. } => {
            format!("rate      {} x n / (1 + {sigma:.5} (n - 1) + {kappa:.6} n (n - 1))", shown_rate(*lambda))
        }
        Law::F4 { nic, theta, .. } => {
            format!("rate      the least of {} and n x {}", shown_rate(*nic), shown_rate(*theta))
        }
        _ => String::new(),
    });
    line(&errors(fitted.rms, fitted.max));
}

fn errors(rms: f64, max: f64) -> String {
    format!("error     {:.1} % rms, {:.0} % at most", 100.0 * rms, 100.0 * max)
}

fn points(args: &Args) -> Result<Vec<Point>> {
    let text = read_text(&args.csv)?;
    let rows: Vec<(usize, &str)> = (1..).zip(text.lines().map(str::trim)).collect();
    let mut rows: Vec<_> = rows.into_iter().filter(|(_, row)| !row.is_empty() && !row.starts_with('#')).collect();
    let is_heading = |row: &str| row.split(',').all(|word| word.trim().starts_with(|c: char| c.is_ascii_alphabetic()));
    if rows.first().is_some_and(|(_, row)| is_heading(row)) {
        rows.remove(0);
    }
    if rows.len() > ROWS_MAX {
        return Err(usage(format!("{}: more than {ROWS_MAX} rows", shown(&args.csv)), "leave some out"));
    }
    let read = |(number, row): (usize, &str)| {
        let first = if args.form == Form::SmallFiles { "size" } else { "n" };
        let wrong = || {
            let what = format!("{}:{number}: {row:?} is not {first},bytes_per_second", shown(&args.csv));
            usage(what, "give a row of two numbers for each point, such as 8,1200000000")
        };
        let (at, rate) = row.split_once(',').ok_or_else(wrong)?;
        let at = match args.form {
            Form::SmallFiles => parse_bytes(at.trim()).map_err(|_| wrong())? as f64,
            _ => at.trim().parse().map_err(|_| wrong())?,
        };
        Ok(Point { at, bytes_per_second: rate.trim().parse().map_err(|_| wrong())? })
    };
    rows.into_iter().map(read).collect()
}
