//! `thalweg hub`: keeps jobs until they are done, and hands them to endpoints.

use crate::args::values::time_span;
use crate::exit::{Result, error};
use crate::interrupt::Interrupt;
use crate::output;
use crate::service;
use crate::service::own_endpoint::OwnEndpoint;
use api::{Api, Files, Network, Reached};
use daemon::trust::make_private_directory;
use hub::{Hub, Keep, Options};
use model::Exit;
use model::quantity::parse_bytes;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How often it is looked at whether the own endpoint lives.
const LOOK: Duration = Duration::from_secs(1);

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
    /// Serve this directory as well, as the endpoint `here`, by a process of its own
    #[arg(long, value_name = "DIR", env = "THALWEG_SERVE")]
    serve: Option<PathBuf>,
    /// How long ended jobs and events are kept, such as 90d or 26w
    #[arg(long, value_name = "TIME", value_parser = time_span, default_value = "90d", env = "THALWEG_KEEP")]
    keep: Duration,
    /// The size of hub.db beyond which the oldest of them go sooner
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "4GiB", env = "THALWEG_KEEP_SIZE")]
    keep_size: u64,
    /// Be reached here as well, with TLS and tokens: ADDR:PORT, such as [::]:7741; a loopback address also takes plain HTTP
    #[arg(long, value_name = "ADDR:PORT", value_parser = socket_address, env = "THALWEG_LISTEN")]
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

fn socket_address(text: &str) -> std::result::Result<SocketAddr, String> {
    text.parse().map_err(|_| "an address to listen on is ADDR:PORT, such as 127.0.0.1:7741 or [::]:7741".to_owned())
}

pub fn run(args: Args) -> Result<Exit> {
    let socket = service::socket()?;
    if let Some(directory) = socket.parent() {
        make_private_directory(directory)?;
    }
    make_private_directory(&args.state_dir)?;
    let interrupt = Interrupt::watch()?;
    let hub =
        Hub::start(Options { keep: Keep { age: args.keep, bytes: args.keep_size }, ..Options::new(args.state_dir) })?;
    let files = args.cert_file.zip(args.key_file).map(|(certificate, key)| Files { certificate, key });
    let network = args.listen.map(|address| Network { address, names: args.host, files });
    let api = Api::start(hub.clone(), &socket, network)?;
    output::line(&format!("ready on {}, identity {}", output::shown(&socket), hub.pin()));
    if let Some(Reached { address, pin }) = &api.reached {
        output::line(&format!("ready on https://{address}, certificate {pin}"));
    }
    let mut own = args.serve.map(|root| OwnEndpoint::start(&hub, &root)).transpose()?;
    let mut ended = None;
    while !interrupt.wait(LOOK) && ended.is_none() {
        ended = own.as_mut().and_then(OwnEndpoint::ended);
    }
    drop(own);
    drop(api);
    hub.stop();
    match ended {
        Some(why) => Err(error(Exit::Failed, format!("the endpoint `here` ended: {why}"), "what it said stands above")),
        None => Ok(Exit::Done),
    }
}
