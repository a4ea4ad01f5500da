//! An endpoint of the hub's own: `serve` as a process beside it, for a hub and its data on one machine.
//!
//! It has a state directory below the hub's, and is known to the hub as `here`. It ends with the hub; that of a hub that was killed
//! goes on until the next hub puts its own in its place, which goes on with what it was at. Not here: what an endpoint does (`commands::serve`).

use crate::args::elsewhere::withhold_variables;
use crate::exit::{Result, error, plain};
use crate::output;
use daemon::StateLock;
use daemon::trust::make_private_directory;
use hub::{Hub, Principal};
use model::Exit;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What the hub calls it.
const NAME: &str = "here";

/// Variables that are for it as well. All others were meant for the hub.
const VARIABLES: [&str; 4] = ["THALWEG_CONFIG", "THALWEG_PROFILE", "THALWEG_SYSTEM_CONFIG", "THALWEG_LOG"];

/// For one that is in the way to end: it has a minute itself.
const PATIENCE: Duration = Duration::from_secs(90);

pub struct OwnEndpoint {
    child: Child,
}

impl OwnEndpoint {
    pub fn start(hub: &Hub, root: &Path) -> Result<OwnEndpoint> {
        let failed = |e: &std::io::Error| error(Exit::Failed, format!("start an endpoint: {}", plain(e)), "try again");
        let state = hub.state_dir().join(NAME);
        make_private_directory(&state)?;
        make_room(&state)?;
        let ticket = state.join("ticket");
        let mut command = Command::new(std::env::current_exe().map_err(|e| failed(&e))?);
        command.args(["serve", "--listen", "127.0.0.1:0", "--name", NAME, "--root"]).arg(root);
        command.arg("--state-dir").arg(&state).arg("--ticket-file").arg(&ticket);
        withhold_variables(&mut command, &VARIABLES);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(|e| failed(&e))?;
        let mut ready = String::new();
        let said = child.stdout.take().map(|said| BufReader::new(said).read_line(&mut ready));
        if !matches!(said, Some(Ok(read)) if read > 0) {
            let _ = child.wait();
            let text = format!("the endpoint for {} did not start", output::shown(root));
            return Err(error(Exit::Failed, text, "its own messages are printed above"));
        }
        let endpoint = OwnEndpoint { child };
        let text = std::fs::read_to_string(&ticket).map_err(|e| failed(&e))?;
        hub.add_endpoint(&Principal::local(0), NAME, &text, true)?;
        Ok(endpoint)
    }

    /// Why it ended, if it did.
    pub fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok()?.map(|status| status.to_string())
    }
}

/// Ends the endpoint that a hub before this one left here.
fn make_room(state: &Path) -> Result<()> {
    let began = Instant::now();
    let mut is_told = false;
    while let Err(e) = StateLock::take(state) {
        let pid = std::fs::read_to_string(state.join("lock")).ok().and_then(|text| text.trim().parse().ok());
        if !std::mem::replace(&mut is_told, true) {
            end(pid.unwrap_or(0));
        }
        if began.elapsed() > PATIENCE {
            return Err(e);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn end(pid: i32) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

impl Drop for OwnEndpoint {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            end(self.child.id() as i32);
        }
        let _ = self.child.wait();
    }
}
