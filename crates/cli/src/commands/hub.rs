//! `thalweg hub`: keeps jobs until they are done, and hands them to endpoints.

use crate::exit::{Result, error};
use crate::interrupt::Interrupt;
use crate::output;
use crate::service;
use api::Api;
use daemon::trust::make_private_directory;
use hub::{Hub, Options};
use model::Exit;
use std::path::PathBuf;
use std::time::Duration;

/// Keep a queue of jobs between endpoints, and see to it that each is done
///
/// Runs in the foreground until SIGTERM. Jobs are handed in with `thalweg submit` and `thalweg batch`, looked at with `thalweg
/// queue` and `thalweg job`. The hub opens no data: endpoints carry its jobs out, and go on while it is away.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg hub --state-dir ~/.local/state/thalweg-hub\n\
\x20   thalweg endpoint add siteA --ticket-file ticketA --hub\n\
\x20   thalweg submit job.toml")]
pub struct Args {
    /// Where the hub keeps its identity, the endpoints that it knows, and hub.db; no other program's
    #[arg(long, value_name = "DIR", env = "THALWEG_STATE_DIR")]
    state_dir: PathBuf,
}

pub fn run(args: Args) -> Result<Exit> {
    let socket = service::socket()?;
    if let Some(directory) = socket.parent() {
        make_private_directory(directory)?;
    }
    make_private_directory(&args.state_dir)?;
    let interrupt = Interrupt::watch()?;
    let hub = Hub::start(Options::new(args.state_dir))?;
    let listening = |e: std::io::Error| {
        let text = format!("listen on {}: {}", output::shown(&socket), crate::exit::plain(&e));
        error(Exit::Failed, text, "one hub of a user runs at a time: stop the other one")
    };
    let api = Api::start(hub.clone(), &socket).map_err(listening)?;
    output::line(&format!("ready on {}, identity {}", output::shown(&socket), hub.pin()));
    while !interrupt.wait(Duration::from_secs(3600)) {}
    drop(api);
    hub.stop();
    Ok(Exit::Done)
}
