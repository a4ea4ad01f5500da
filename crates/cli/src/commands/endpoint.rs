//! `thalweg endpoint`: the endpoints that this user knows, by name, address and identity.

use crate::exit::{self, Result, error};
use crate::output;
use daemon::endpoints::Replace;
use daemon::ticket::TICKET_TEXT_BYTES_MAX;
use daemon::trust::open_given;
use daemon::{EndpointBook, Paths, Ticket, enrol};
use model::Exit;
use std::io::Read;
use std::path::PathBuf;

/// Add, list or remove the endpoints this user knows
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    Add(Add),
    Ls(Ls),
    Rm(Rm),
}

/// Enrol at an endpoint with its ticket, and call it NAME from then on
///
/// The ticket is read from a file or from standard input, never from the command line, where others could see it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg endpoint add lab --ticket-file ticket\n\
\x20   ssh lab cat ticket | thalweg endpoint add lab --ticket-file -")]
struct Add {
    /// What to call it: letters, digits, `.`, `_` and `-`
    name: String,
    /// The ticket that `thalweg serve` wrote; `-` reads it from standard input
    #[arg(long, value_name = "FILE|-", env = "THALWEG_TICKET_FILE")]
    ticket_file: PathBuf,
    /// Replace an endpoint of this name even if the ticket has another identity
    #[arg(long)]
    replace: bool,
    /// Have the running hub redeem the ticket: its jobs can then use the endpoint
    #[cfg(feature = "hub")]
    #[arg(long, env = "THALWEG_HUB")]
    hub: bool,
    #[cfg(feature = "hub")]
    #[command(flatten)]
    which: crate::service::HubArgs,
}

/// List the known endpoints: name, addresses, identity
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg endpoint ls")]
struct Ls {
    /// One JSON object for each endpoint
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

/// Forget an endpoint
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg endpoint rm lab")]
struct Rm {
    /// Its name here
    name: String,
}

pub fn run(args: Args) -> Result<Exit> {
    let paths = Paths::from_env()?;
    let book = EndpointBook::new(paths.endpoints());
    match args.action {
        Action::Add(add) => add_endpoint(&paths, &book, add),
        Action::Ls(ls) => list(&book, &ls),
        Action::Rm(rm) => {
            book.remove(&rm.name)?;
            output::note(&format!("removed endpoint {}", rm.name));
            Ok(Exit::Done)
        }
    }
}

fn add_endpoint(paths: &Paths, book: &EndpointBook, add: Add) -> Result<Exit> {
    #[cfg(feature = "hub")]
    if add.hub {
        return add_to_hub(&add);
    }
    let ticket = read_ticket(&add.ticket_file)?;
    let replace = if add.replace { Replace::Always } else { Replace::SameIdentity };
    let enrolled = enrol(&ticket, &add.name, &paths.identity()?, book, replace)?;
    let rights = if enrolled.is_read_only { ", read only" } else { "" };
    output::note(&format!("added endpoint {} ({}) at {}{rights}", add.name, enrolled.own_name, enrolled.address));
    output::note(&format!("identity {}", enrolled.endpoint.pin));
    if enrolled.hosts > 1 {
        output::note(&format!("it has {} hosts, which share copies between endpoints", enrolled.hosts));
    }
    let example = if enrolled.is_read_only { "ls" } else { "cp FILE" };
    output::note(&format!("try: thalweg {example} {}:", add.name));
    Ok(Exit::Done)
}

/// The ticket goes to the hub over this user's own socket, or over TLS.
#[cfg(feature = "hub")]
fn add_to_hub(add: &Add) -> Result<Exit> {
    let ticket = read_ticket(&add.ticket_file)?.to_text();
    let body = serde_json::json!({"name": add.name, "ticket": ticket, "replace": add.replace}).to_string();
    let added = crate::service::Service::new(&add.which)?.post("/endpoints", &body, None)?;
    output::note(&format!(
        "the hub knows endpoint {} from now on",
        output::shown(added["name"].as_str().unwrap_or_default())
    ));
    output::note(&format!("identity {}", output::shown(added["pin"].as_str().unwrap_or_default())));
    Ok(Exit::Done)
}

fn read_ticket(file: &PathBuf) -> Result<Ticket> {
    let mut text = Vec::new();
    let limit = TICKET_TEXT_BYTES_MAX as u64 + 1;
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().lock().take(limit).read_to_end(&mut text),
        // Who may change the file chooses which endpoint is believed.
        false => open_given("the ticket", file)?.and_then(|opened| opened.take(limit).read_to_end(&mut text)),
    };
    read.map_err(|e| exit::of_file("read ticket", file, &e))?;
    let parsed = Ticket::parse(&String::from_utf8_lossy(&text));
    parsed.map_err(|e| error(Exit::Usage, format!("read ticket {}: {e}", output::shown(file)), e.hint()))
}

fn list(book: &EndpointBook, ls: &Ls) -> Result<Exit> {
    let endpoints = book.list()?;
    for endpoint in &endpoints {
        if ls.json {
            output::line(&output::json::endpoint(endpoint));
        } else {
            output::line(&format!("{}\t{}\t{}", endpoint.name, endpoint.addresses.join(","), endpoint.pin));
        }
    }
    if endpoints.is_empty() && !ls.json {
        output::note("no endpoint is known yet; `thalweg endpoint add NAME --ticket-file FILE` adds one");
    }
    Ok(Exit::Done)
}
