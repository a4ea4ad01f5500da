//! The log on standard error: levels and targets by `THALWEG_LOG` (`info`, `debug`, `mover=trace,warn`).

use crate::args::Command;
use std::io::IsTerminal;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Starts logging. An endpoint tells of its sessions; every other command only of what went wrong unseen.
pub fn start(command: &Command) {
    let level = match command {
        Command::Serve(args) if !args.stdio => LevelFilter::INFO,
        #[cfg(feature = "hub")]
        Command::Hub(_) => LevelFilter::INFO,
        Command::Cp(args) if args.verbose > 1 => LevelFilter::DEBUG,
        Command::Sync(args) if args.copy.verbose > 1 => LevelFilter::DEBUG,
        _ => LevelFilter::ERROR,
    };
    let named = std::env::var("THALWEG_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
    let filter = named.unwrap_or_else(|| Targets::new().with_default(level));
    // A second start would be a mistake of this program alone, and harmless: the first log stays.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
}
