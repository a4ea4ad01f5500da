//! `thalweg top`: the transfers that this user has running, as their status files tell.
//!
//! A file whose process is gone, or is another one with the same number, is removed.

use crate::exit::{Result, of_file};
use crate::interrupt::Interrupt;
use crate::output::progress::on_screen;
use crate::output::{self, shown};
use crate::transfer::presence::{self, Status};
use daemon::Paths;
use daemon::trust::PrivateDirectory;
use model::Exit;
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(1);
/// A status file is a few hundred bytes, and its paths at most some thousands.
const FILE_BYTES_MAX: u64 = 1 << 20;
const TRANSFERS_MAX: usize = 1000;

/// Show this user's running transfers: progress, rate and bottleneck
///
/// On a terminal the list is updated every second until Ctrl-C; elsewhere, and with --once, it is printed once. A
/// transfer appears after a quarter of a second. `kill -USR1 PID` makes a transfer print its progress itself.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg top\n\
\x20   thalweg top --once --json | jq .progress.bytes_per_second")]
pub struct Args {
    /// Print the list once and exit
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

/// The transfers whose processes live. What those that are gone have left is swept, and nothing else.
fn running(path: &Path) -> Result<Vec<Status>> {
    let Some(directory) = PrivateDirectory::open(path)? else { return Ok(Vec::new()) };
    let names = directory.names(TRANSFERS_MAX).map_err(|e| of_file("read", path, &e))?;
    let mut found = Vec::new();
    for name in names {
        let Some(pid) = process_of(&name) else { continue };
        let read = directory.read(&name, FILE_BYTES_MAX).ok();
        let status = read.and_then(|bytes| serde_json::from_slice::<Status>(&bytes).ok());
        let is_whole = !name.as_encoded_bytes().starts_with(b".");
        match (status, presence::started_ticks(pid)) {
            (Some(status), Some(ticks)) if status.started_ticks == ticks && status.pid == pid => {
                found.extend(is_whole.then_some(status));
            }
            // One that is being written right now is not whole.
            (None, Some(_)) if !is_whole => {}
            _ => _ = directory.remove(&name),
        }
    }
    found.sort_by_key(|status| (status.started, status.pid));
    Ok(found)
}

/// Whose file it is, by its name: `PID.json`, or `.PID.json.RANDOM` while it is written (`.PID.new` in earlier versions).
fn process_of(name: &OsStr) -> Option<u32> {
    let name = name.to_str()?;
    let (pid, rest) = name.strip_prefix('.').unwrap_or(name).split_once('.')?;
    let is_ours = match name.starts_with('.') {
        true => rest == "new" || rest.starts_with("json."),
        false => rest == "json",
    };
    pid.parse().ok().filter(|_| is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
        write(&format!("{own}.json"), &status(own, ticks));
        write("1.json", &status(1, ticks + 1));
        write("3.json", "half a fi");
        write(&format!(".{own}.json.0123"), "half a fi");
        write(&format!(".{}.json.0123", u32::MAX), "half a fi");
        write(".4294967295.new", "half a fi");
        write("theirs.json", "not ours");
        let found = running(dir.path()).unwrap();
        assert_eq!(found.len(), 1);
        let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [&format!(".{own}.json.0123"), &format!("{own}.json"), "theirs.json"]);
        let shown = table(&found);
        assert_eq!(shown[0], "1 transfer is running");
        assert!(shown[1].ends_with("cp a\\x1b lab:, attempt 2"), "{}", shown[1]);
        assert_eq!(table(&[]), ["no transfer is running"]);
        assert!(running(&dir.path().join("none")).unwrap().is_empty());
    }

    #[test]
    fn a_directory_that_others_chose_is_not_swept() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("theirs")).unwrap();
        fs::write(dir.path().join("theirs/1.json"), "{}").unwrap();
        std::os::unix::fs::symlink("theirs", dir.path().join("transfers")).unwrap();
        assert!(running(&dir.path().join("transfers")).is_err());
        assert!(dir.path().join("theirs/1.json").exists());
    }
}
