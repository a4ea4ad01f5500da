//! `thalweg hub`: keeps jobs until they are done, and hands them to endpoints.

use crate::exit::Result;
use crate::interrupt::Interrupt;
use crate::output;
use crate::service;
use api::{Api, Files, Network, Reached};
use daemon::trust::make_private_directory;
use hub::{Hub, Options};
use model::Exit;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Keep a queue of jobs between endpoints, and see to it that each is done
///
/// Runs in the foreground until SIGTERM. Jobs are handed in with `thalweg submit` and `thalweg batch`, looked at with `thalweg
/// queue` and `thalweg job`. The hub opens no data: endpoints carry its jobs out, and go on while it is away. With --listen it is
/// reached from other hosts and by browsers: `thalweg token` makes what they need, `thalweg console` lets a browser in.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg hub --state-dir ~/.local/state/thalweg-hub\n\
\x20   thalweg endpoint add siteA --ticket-file ticketA --hub\n\
\x20   thalweg submit job.toml")]
pub struct Args {
    /// Where the hub keeps its identity, the endpoints that it knows, and hub.db; no other program's
    #[arg(long, value_name = "DIR", env = "THALWEG_STATE_DIR")]
    state_dir: PathBuf,
    /// Be reached here as well, with TLS and tokens: ADDR:PORT, such as [::]:7741; a loopback address also takes plain HTTP
    #[arg(long, value_name = "ADDR:PORT", env = "THALWEG_LISTEN")]
    listen: Option<SocketAddr>,
    /// A name by which browsers and programs reach the hub; may be repeated [default: this host's]
    #[arg(long, value_name = "NAME", requires = "listen", env = "THALWEG_HOST")]
    host: Vec<String>,
    /// A certificate with its chain, in PEM, in place of the hub's own, which is known by its pin
    #[arg(long, value_name = "FILE", requires_all = ["listen", "key_file"], env = "THALWEG_CERT_FILE")]
    cert_file: Option<PathBuf>,
    /// The private key of that certificate, in PEM, readable by this user only
    #[arg(long, value_name = "FILE", requires = "cert_file", env = "THALWEG_KEY_FILE")]
    key_file: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<Exit> {
    let socket = service::socket()?;
    if let Some(directory) = socket.parent() {
        make_private_directory(directory)?;
    }
    make_private_directory(&args.state_dir)?;
    let interrupt = Interrupt::watch()?;
    let hub = Hub::start(Options::new(args.state_dir))?;
    let files = args.cert_file.zip(args.key_file).map(|(certificate, key)| Files { certificate, key });
    let network = args.listen.map(|address| Network { address, names: args.host, files });
    let api = Api::start(hub.clone(), &socket, network)?;
    output::line(&format!("ready on {}, identity {}", output::shown(&socket), hub.pin()));
    if let Some(Reached { address, pin }) = &api.reached {
        output::line(&format!("ready on https://{address}, certificate {pin}"));
    }
    while !interrupt.wait(Duration::from_secs(3600)) {}
    drop(api);
    hub.stop();
    Ok(Exit::Done)
}
