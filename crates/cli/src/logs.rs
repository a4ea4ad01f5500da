//! The log on standard error: levels and targets by `THALWEG_LOG` (`info`, `debug`, `mover=trace,warn`).

use crate::args::Command;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Starts logging. An endpoint tells of its sessions; every other command only of what went wrong unseen.
pub fn start(command: &Command) {
    let level = match command {
        Command::Serve(args) if !args.stdio => "info",
        Command::Cp(args) if args.verbose > 1 => "debug",
        Command::Sync(args) if args.copy.verbose > 1 => "debug",
        _ => "error",
    };
    let filter = std::env::var("THALWEG_LOG").ok().and_then(|text| EnvFilter::try_new(text).ok());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|| EnvFilter::new(level)))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
    // A second start would be a mistake of this program alone, and harmless: the first log stays.
    let _ = log.try_init();
}
