//! `thalweg top`: the transfers that this user has running, as their status files tell.
//!
//! A file whose process is gone, or is another one with the same number, is removed.

use crate::exit::{Result, of_file};
use crate::interrupt::Interrupt;
use crate::output::progress::on_screen;
use crate::output::{self, shown};
use crate::transfer::presence::{self, Status};
use daemon::Paths;
use model::Exit;
use std::fs;
use std::io::{ErrorKind, IsTerminal, Read};
use std::path::Path;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(1);
/// A status file is a few hundred bytes, and its paths at most some thousands.
const FILE_BYTES_MAX: u64 = 1 << 20;
const TRANSFERS_MAX: usize = 1000;

/// Show this user's running transfers: what moves, how fast, what limits it
///
/// On a terminal the list is drawn anew every second until Ctrl-C; elsewhere, and with --once, it is printed once. A
/// transfer appears when it has lasted a quarter of a second. `kill -USR1 PID` makes a transfer itself say how far it is.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg top\n\
\x20   thalweg top --once --json | jq .progress.bytes_per_second")]
pub struct Args {
    /// Print the list once and end
    #[arg(long, env = "THALWEG_ONCE")]
    once: bool,
    /// One JSON object for each transfer (docs/json.md)
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

pub fn run(args: Args) -> Result<Exit> {
    let directory = presence::directory(&Paths::from_env()?);
    let is_drawn = std::io::stdout().is_terminal() && !args.json;
    if args.once || !is_drawn {
        print(&args, &running(&directory)?);
        return Ok(Exit::Done);
    }
    let interrupt = Interrupt::watch()?;
    loop {
        let transfers = running(&directory)?;
        // Home, the list, and away with what was below it.
        let lines: Vec<String> = table(&transfers).into_iter().map(|line| format!("{line}\x1b[K")).collect();
        if !output::text(&format!("\x1b[H\x1b[2J{}\n", lines.join("\n"))) {
            return Ok(Exit::BrokenPipe);
        }
        if interrupt.wait(INTERVAL) {
            return Ok(Exit::Done);
        }
    }
}

fn print(args: &Args, transfers: &[Status]) {
    for transfer in transfers {
        if args.json {
            let text = serde_json::to_string(transfer).expect("plain values have a JSON form");
            if !output::line(&text) {
                return;
            }
        }
    }
    if !args.json {
        output::text(&(table(transfers).join("\n") + "\n"));
    }
}

/// A few lines for each transfer, the oldest first.
fn table(transfers: &[Status]) -> Vec<String> {
    let mut lines = vec![match transfers.len() {
        0 => "no transfer is running".to_owned(),
        n => format!("{} running", output::counted(n as u64, "transfer is", "transfers are")),
    }];
    for transfer in transfers {
        let Status { pid, command, attempt, .. } = transfer;
        let sources: Vec<String> = transfer.sources.iter().map(shown).collect();
        let again = if *attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
        lines.push(format!("{pid:>8}  {command} {} {}{again}", sources.join(" "), shown(&transfer.destination)));
        lines.push(format!("          {}", shown(&transfer.amounts)));
        lines.extend(on_screen(&transfer.pace).iter().map(|part| format!("          {}", shown(part))));
    }
    lines
}

/// The transfers whose processes live. Files of others are swept.
fn running(directory: &Path) -> Result<Vec<Status>> {
    let listing = match fs::read_dir(directory) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        listing => listing.map_err(|e| of_file("read", directory, &e))?,
    };
    let mut found = Vec::new();
    for file in listing.flatten().take(TRANSFERS_MAX).map(|entry| entry.path()) {
        let is_staging = file.extension().is_some_and(|kind| kind == "new");
        match read(&file) {
            Some(status) if presence::started_ticks(status.pid) == Some(status.started_ticks) => {
                if !is_staging {
                    found.push(status);
                }
            }
            // One that is being written right now is not whole.
            None if is_staging => {}
            _ => _ = fs::remove_file(&file),
        }
    }
    found.sort_by_key(|status| (status.started, status.pid));
    Ok(found)
}

fn read(file: &Path) -> Option<Status> {
    let mut text = String::new();
    fs::File::open(file).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pid: u32, started_ticks: u64) -> String {
        format!(
            r#"{{"v":1,"pid":{pid},"started_ticks":{started_ticks},"started":1,"command":"cp","direction":"push",
            "job":"j","sources":["a\u001b"],"destination":"lab:","attempt":2,"progress":null,"amounts":"1 of 2","pace":"fast"}}"#
        )
    }

    #[test]
    fn files_of_processes_that_are_gone_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        let own = std::process::id();
        let ticks = presence::started_ticks(own).unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("1.json", &status(own, ticks));
        write("2.json", &status(own, ticks + 1));
        write("3.json", "half a fi");
        write(".4.new", "half a fi");
        let found = running(dir.path()).unwrap();
        assert_eq!(found.len(), 1);
        let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".4.new", "1.json"]);
        let shown = table(&found);
        assert_eq!(shown[0], "1 transfer is running");
        assert!(shown[1].ends_with("cp a\\x1b lab:, attempt 2"), "{}", shown[1]);
        assert_eq!(table(&[]), ["no transfer is running"]);
        assert!(running(&dir.path().join("none")).unwrap().is_empty());
    }
}
