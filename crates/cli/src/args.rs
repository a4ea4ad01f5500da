//! What can be asked: the commands, and how their values read. Each command's flags stand in its own file.
//!
//! Every flag has a variable `THALWEG_FLAG_NAME`; the flag wins.

#[cfg(feature = "lab")]
use crate::commands::lab;
#[cfg(feature = "bench")]
use crate::commands::{bench, demo, generate};
use crate::commands::{cp, endpoint, filter, serve, sum, sync, ticket};
use crate::exit::{Result, usage};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use model::Location;
use model::options::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN};
use std::ffi::OsStr;
use std::time::Duration;

/// Moves files between storages: verified, encrypted, at the rate of the slowest part of the path
#[derive(Parser, Debug)]
#[command(name = "thalweg", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "On the host that keeps the data:\n\
\x20   thalweg serve --listen [::]:7740 --root /data --ticket-file ticket\n\
On the other host, with a copy of the file `ticket`:\n\
\x20   thalweg endpoint add lab --ticket-file ticket\n\
\x20   thalweg cp results/ lab:results/\n\
\x20   thalweg cp lab:results/ copy/")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    Serve(serve::Args),
    Endpoint(endpoint::Args),
    Ticket(ticket::Args),
    Cp(Box<cp::Args>),
    Sync(Box<sync::Args>),
    Filter(filter::Args),
    Sum(sum::Args),
    #[cfg(feature = "bench")]
    Gen(generate::Args),
    #[cfg(feature = "bench")]
    Demo(demo::Args),
    #[cfg(feature = "bench")]
    Bench(bench::Args),
    #[cfg(feature = "lab")]
    Lab(lab::Args),
}

/// Reads the command line, or answers it (help, version, what is wrong with it) and ends the process.
pub fn parse() -> Cli {
    let matches = without_values(Cli::command()).get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.exit())
}

/// The help names the variables, not what they are set to.
fn without_values(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| arg.hide_env_values(true)).mut_subcommands(without_values)
}

/// Reads `PATH`, `NAME:PATH`, `tw://ADDR:PORT/PATH` or `-`. Its bytes need not be text.
pub fn location(text: &OsStr) -> Result<Location> {
    Location::parse(text).map_err(|e| {
        usage(e.to_string(), "a location is PATH, NAME:PATH, tw://ADDR:PORT/PATH, `-`, gen:COUNTxSIZE or null:")
    })
}

/// Reads `640` or `640,750`: permission bits of files and of directories.
///
/// One number is for files; directories get it with the right to enter wherever there is one to read.
pub fn chmod(text: &str) -> Result<(u32, u32), String> {
    let octal = |text: &str| match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err(format!("{text:?} is not an octal mode from 000 to 777, such as 640 or 640,750")),
    };
    match text.split_once(',') {
        Some((files, directories)) => Ok((octal(files)?, octal(directories)?)),
        None => octal(text).map(|files| (files, files | (files & 0o444) >> 2)),
    }
}

/// Reads a chunk length such as `8MiB`.
pub fn chunk_bytes(text: &str) -> Result<u64, String> {
    let bytes = model::quantity::parse_bytes(text)?;
    if bytes.is_power_of_two() && (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&bytes) {
        return Ok(bytes);
    }
    Err("the chunk size must be a power of two from 1MiB to 1GiB".into())
}

/// Reads the memory for blocks: enough for one lane, or nothing would ever move.
pub fn memory_bytes(text: &str) -> Result<usize, String> {
    let bytes = usize::try_from(model::quantity::parse_bytes(text)?).unwrap_or(usize::MAX);
    if bytes >= mover::limits::LANE_BYTES {
        return Ok(bytes);
    }
    Err(format!("one stream alone takes {} of memory", model::quantity::ByteCount(mover::limits::LANE_BYTES as u64)))
}

/// Reads a time span of whole units: `90s`, `30m`, `12h`, `7d`, `2w`.
pub fn time_span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time span such as 12h, 7d or 2w");
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().ok().filter(|n| (1..=1_000_000).contains(n)).ok_or_else(wrong)?;
    Ok(Duration::from_secs(number * seconds))
}

/// Reads `HOST:PORT`; the port is 7740 where none is given.
pub fn address(text: &str) -> Result<String, String> {
    const PORT: u16 = 7740;
    let has_port = match text.rsplit_once(':') {
        Some((host, port)) => port.parse::<u16>().is_ok() && (host.ends_with(']') || !host.contains(':')),
        None => false,
    };
    match text {
        "" => Err("an address is HOST:PORT, such as [::]:7740".into()),
        _ if has_port => Ok(text.to_owned()),
        _ if text.contains(':') && !text.starts_with('[') => Ok(format!("[{text}]:{PORT}")),
        _ => Ok(format!("{text}:{PORT}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_a_variable_and_a_help_text() {
        fn check(command: &clap::Command, path: &str) {
            for arg in command.get_arguments().filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version")) {
                let name = format!("{path} {}", arg.get_id());
                assert!(arg.get_help().is_some() || arg.is_hide_set(), "{name} has no help");
                if let Some(long) = arg.get_long() {
                    let variable = arg.get_env().unwrap_or_else(|| panic!("{name} has no variable"));
                    let expected = format!("THALWEG_{}", long.to_ascii_uppercase().replace('-', "_"));
                    assert_eq!(variable.to_str(), Some(&expected[..]), "{name}");
                }
            }
            for sub in command.get_subcommands() {
                check(sub, &format!("{path} {}", sub.get_name()));
            }
        }
        Cli::command().debug_assert();
        check(&Cli::command(), "thalweg");
    }

    #[test]
    fn modes_are_octal_and_directories_can_be_entered_by_those_who_can_read() {
        assert_eq!(chmod("640"), Ok((0o640, 0o750)));
        assert_eq!(chmod("600,711"), Ok((0o600, 0o711)));
        assert!(chmod("888").is_err());
        assert!(chmod("4755").is_err());
        assert!(chmod("640,").is_err());
    }

    #[test]
    fn an_address_without_a_port_gets_the_usual_one() {
        for (text, address) in [
            ("127.0.0.1", "127.0.0.1:7740"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("::1", "[::1]:7740"),
            ("[::1]", "[::1]:7740"),
            ("[::]:99", "[::]:99"),
            ("host:1", "host:1"),
        ] {
            assert_eq!(super::address(text).as_deref(), Ok(address));
        }
    }

    #[test]
    fn time_spans_have_a_unit() {
        let seconds = |text| time_span(text).map(|span| span.as_secs());
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("7d"), Ok(604_800));
        assert_eq!(seconds("2w"), Ok(1_209_600));
        for wrong in ["", "7", "d", "0d", "-1d", "1y", "1.5h", "7\u{20ac}", "9999999999d"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn chunk_sizes_are_powers_of_two_within_bounds() {
        assert_eq!(chunk_bytes("8MiB"), Ok(8 << 20));
        assert!(chunk_bytes("3MiB").is_err());
        assert!(chunk_bytes("512KiB").is_err());
        assert!(chunk_bytes("2GiB").is_err());
    }
}
