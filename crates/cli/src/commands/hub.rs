//! `thalweg hub`: keeps jobs until they are done, and hands them to endpoints.

use crate::exit::{Result, error};
use crate::interrupt::Interrupt;
use crate::output::{self, counted};
use crate::service::own_endpoint::OwnEndpoint;
use crate::service::{self, HubArgs, Service};
use api::{Api, Files, Network, Reached};
use clap::Subcommand;
use daemon::metrics::{Metrics, Page, Place};
use daemon::trust::make_private_directory;
use hub::{Channels, Head, Hub, Keep, Options};
use model::Exit;
use model::quantity::parse_bytes;
use model::quantity::parse_span;
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How often it is looked at whether the own endpoint lives.
const LOOK: Duration = Duration::from_secs(1);

/// Keep a queue of jobs between endpoints, and see to it that each is done
///
/// Runs in the foreground until SIGTERM. Jobs are handed in with `thalweg submit` and `thalweg batch`, looked at with `thalweg
/// queue` and `thalweg job`. The hub touches no data: endpoints carry its jobs out, and go on while it is away. With --listen it is
/// reached from other hosts and by browsers: `thalweg token` makes what they need, `thalweg console` lets a browser in.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Example:\n\
\x20   thalweg hub --state-dir ~/.local/state/thalweg-hub\n\
\x20   thalweg endpoint add siteA --ticket-file ticketA --hub\n\
\x20   thalweg submit job.toml")]
pub struct Args {
    /// Where the hub keeps its identity, the endpoints that it knows, and hub.db; shared with no other program
    #[arg(long, value_name = "DIR", env = "THALWEG_STATE_DIR", required = true)]
    state_dir: Option<PathBuf>,
    /// Serve this directory as well, as the endpoint `here`, by a process of its own
    #[arg(long, value_name = "DIR", env = "THALWEG_SERVE")]
    serve: Option<PathBuf>,
    /// How long ended jobs and events are kept, such as 90d or 26w
    #[arg(long, value_name = "TIME", value_parser = parse_span, default_value = "90d", env = "THALWEG_KEEP")]
    keep: Duration,
    /// The size of hub.db beyond which the oldest of them go sooner
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "4GiB", env = "THALWEG_KEEP_SIZE")]
    keep_size: u64,
    /// Be reached here as well, with TLS and tokens: ADDR:PORT, such as '[::]:7741'; a loopback address also takes plain HTTP
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
    /// A file of channels through which the hub reports what became of jobs (docs/hub.md)
    #[arg(long, value_name = "FILE", env = "THALWEG_CHANNELS")]
    channels: Option<PathBuf>,
    /// Answer Prometheus at /metrics: a port on loopback, a numeric address with a port, or unix:PATH
    #[arg(long, value_name = "PORT|ADDR:PORT|unix:PATH", env = "THALWEG_METRICS")]
    metrics: Option<Place>,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Look at the record of who did what
    #[command(subcommand)]
    Audit(Audit),
}

#[derive(Subcommand, Debug)]
enum Audit {
    /// Check that no line of the audit log was changed, removed or cut off, and print the newest digest
    ///
    /// Each line names the digest of the one before it, and a file beside the database says how far it had come. If somebody
    /// rewrote all of that, only a digest kept elsewhere shows it: the hub's own log names the newest one at each start.
    #[command(after_help = "Example:\n\x20   thalweg hub audit verify --state-dir ~/.local/state/thalweg-hub")]
    Verify(Verify),
    /// Print the audit log of the running hub: one JSON object a line
    #[command(after_help = "Example:\n\x20   thalweg hub audit ls")]
    Ls(Ls),
}

#[derive(clap::Args, Debug)]
struct Ls {
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(clap::Args, Debug)]
struct Verify {
    /// The hub's state directory; the hub may be running
    #[arg(long, value_name = "DIR", env = "THALWEG_STATE_DIR")]
    state_dir: PathBuf,
    /// A JSON object
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

fn socket_address(text: &str) -> std::result::Result<SocketAddr, String> {
    text.parse().map_err(|_| "an address to listen on is ADDR:PORT, such as 127.0.0.1:7741 or '[::]:7741'".to_owned())
}

pub fn run(args: Args) -> Result<Exit> {
    match args.action {
        Some(Action::Audit(Audit::Verify(verify))) => audit_verify(&verify),
        Some(Action::Audit(Audit::Ls(ls))) => audit_ls(&ls.hub),
        None => serve(args),
    }
}

fn audit_verify(args: &Verify) -> Result<Exit> {
    let found = hub::verify_audit(&args.state_dir)?;
    let (lines, Head { n, digest }) = (found.head.n + 1 - found.first, found.head);
    output::line(&match args.json {
        true => json!({"v": 1, "first": found.first, "last": n, "digest": digest}).to_string(),
        false => format!("{} in order, up to line {n}: {digest}", counted(lines as u64, "line", "lines")),
    });
    Ok(Exit::Done)
}

fn audit_ls(hub: &HubArgs) -> Result<Exit> {
    let service = Service::new(hub)?;
    let mut after = 0;
    loop {
        let lines = service.get(&format!("/audit?limit=1000&after={after}"))?;
        let lines = lines.as_array().map_or(&[][..], Vec::as_slice);
        for line in lines {
            if !output::line(&line.to_string()) {
                return Ok(Exit::Done);
            }
        }
        match lines.last().and_then(|line| line["n"].as_i64()) {
            Some(last) => after = last,
            None => return Ok(Exit::Done),
        }
    }
}

fn serve(args: Args) -> Result<Exit> {
    let state_dir = args.state_dir.expect("clap demands it");
    let socket = service::socket()?;
    if let Some(directory) = socket.parent() {
        make_private_directory(directory)?;
    }
    make_private_directory(&state_dir)?;
    let interrupt = Interrupt::watch()?;
    let channels = args.channels.as_deref().map(Channels::read).transpose()?.unwrap_or_default();
    let keep = Keep { age: args.keep, bytes: args.keep_size };
    let metrics = args.metrics.as_ref().map(Metrics::bind).transpose()?;
    let hub = Hub::start(Options { channels, keep, ..Options::new(state_dir) })?;
    let files = args.cert_file.zip(args.key_file).map(|(certificate, key)| Files { certificate, key });
    let network = args.listen.map(|address| Network { address, names: args.host, files });
    let api = Api::start(hub.clone(), &socket, network)?;
    output::line(&format!("ready on {}, identity {}", output::shown(&socket), hub.pin()));
    if let Some(Reached { address, pin }) = &api.reached {
        output::line(&format!("ready on https://{address}, certificate {pin}"));
    }
    if let Some(metrics) = metrics {
        if let Some(address) = metrics.local_addr() {
            output::line(&format!("metrics on http://{address}/metrics"));
        }
        let (hub, requests) = (hub.clone(), api.requests.clone());
        metrics.answer(move || {
            let mut page = Page::default();
            page.build_info();
            // Of a database that is busy, nothing is told for now.
            let _ = hub.tell_metrics(&mut page);
            requests.tell(&mut page);
            Some(page.into_text())
        })?;
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
        Some(why) => {
            Err(error(Exit::Failed, format!("the endpoint `here` ended: {why}"), "its own messages are printed above"))
        }
        None => Ok(Exit::Done),
    }
}
