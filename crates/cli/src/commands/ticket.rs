//! `thalweg ticket`: tickets of this host's endpoint with limits, made, listed and revoked beside it.

use crate::exit::{self, Result};
use crate::output;
use daemon::Enrolment;
use daemon::issue::{Issued, SERVE_TICKET, write_ticket};
use daemon::limited::{Limits, scope_of};
use daemon::{Issue, Paths};
use model::quantity::parse_span;
use model::{Class, Exit, Pin};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Make, list or revoke tickets of an endpoint on this host
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    New(New),
    Ls(Ls),
    Clients(Clients),
    Revoke(Revoke),
}

/// Make a ticket limited to a path, a direction, a time, or a number of clients
///
/// Works while `thalweg serve` runs with the same state directory, or once it has run before. Anyone with the ticket
/// can enrol within its limits; guard it like a password. Clients enrolled with it depend on it: when it expires or is
/// revoked, their jobs end within seconds, and verified data is kept.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg ticket new --path results/2026 --read-only --expires 7d --uses 1 --ticket-file guest\n\
\x20   thalweg ticket new --path results/run7 --read-only --expires 7d --link --ticket-file -")]
struct New {
    #[command(flatten)]
    state: State,
    /// Write the ticket here, readable by this user only; `-` writes it to standard output
    #[arg(long, value_name = "FILE|-", env = "THALWEG_TICKET_FILE")]
    ticket_file: PathBuf,
    /// Allow only this directory or file below the root and what is below it [default: the whole root]
    #[arg(long, value_name = "PATH", default_value = ".", hide_default_value = true, env = "THALWEG_PATH")]
    path: OsString,
    /// Allow fetching, not sending
    #[arg(long, conflicts_with = "write_only", env = "THALWEG_READ_ONLY")]
    read_only: bool,
    /// Allow sending, not fetching
    #[arg(long, env = "THALWEG_WRITE_ONLY")]
    write_only: bool,
    /// Allow it for this long from now, such as 12h, 7d or 2w [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = parse_span, env = "THALWEG_EXPIRES")]
    expires: Option<Duration>,
    /// Clients that may enrol with it [default: 1,024 at one time]
    #[arg(long, value_name = "N", env = "THALWEG_USES")]
    uses: Option<u32>,
    /// The highest class that its jobs may have: high, normal or low
    #[arg(long, value_name = "CLASS", default_value = "high", hide_default_value = true, env = "THALWEG_CLASS_MAX")]
    class_max: Class,
    /// Write the ticket as a link that shows the address and the path, to share a directory by mail or chat
    #[arg(long, env = "THALWEG_LINK")]
    link: bool,
    /// Let its clients see what all jobs of the endpoint move, and change its contracts: for the hub that manages them
    #[arg(long, env = "THALWEG_MANAGE_RATES")]
    manage_rates: bool,
}

/// List the limited tickets: id, what they allow, expiry, how often they were used
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg ticket ls")]
struct Ls {
    #[command(flatten)]
    state: State,
    /// One JSON object for each ticket
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

/// List the enrolled clients: identity, the ticket they depend on, when they enrolled, their names in logs
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg ticket clients")]
struct Clients {
    #[command(flatten)]
    state: State,
    /// One JSON object for each client
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

/// Revoke a ticket and the clients enrolled with it, or revoke one client
///
/// A client revoked by its identity can enrol again only with a ticket made later.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg ticket revoke 3f09a1c2d4\n\
\x20   thalweg ticket revoke serve    # the ticket of `serve --ticket-file`, and all clients enrolled with it")]
struct Revoke {
    #[command(flatten)]
    state: State,
    /// A ticket's id, `serve`, or a client's identity
    what: String,
}

#[derive(clap::Args, Debug)]
struct State {
    /// The endpoint's state directory [default: $XDG_STATE_HOME/thalweg]
    #[arg(long, value_name = "DIR", env = "THALWEG_STATE_DIR")]
    state_dir: Option<PathBuf>,
}

impl State {
    fn paths(self) -> Result<Paths> {
        Ok(Paths::from_env()?.with_state(self.state_dir))
    }

    fn issue(self) -> Result<Issue> {
        crate::coordinator::issue(&self.paths()?)
    }
}

pub fn run(args: Args) -> Result<Exit> {
    match args.action {
        Action::New(new) => create(new),
        Action::Ls(ls) => list(ls),
        Action::Clients(clients) => list_clients(clients),
        Action::Revoke(revoke) => {
            let removed = revoke.state.issue()?.revoke(&revoke.what)?;
            let clients = output::counted(removed as u64, "client", "clients");
            output::note(&format!("revoked {}: {clients} removed", output::shown(&revoke.what)));
            if Pin::from_hex(&revoke.what).is_some() {
                output::note(
                    "tickets made before now no longer enrol this identity; whoever has one of them can enrol another \
                     identity with it, until it is revoked too",
                );
            }
            if revoke.what == SERVE_TICKET {
                output::note("`thalweg serve` makes another ticket at its next start");
            }
            Ok(Exit::Done)
        }
    }
}

fn create(new: New) -> Result<Exit> {
    let limits = Limits {
        scope: scope_of(new.path.as_bytes())?,
        may_read: !new.write_only,
        may_write: !new.read_only,
        expires: new.expires.map(|span| SystemTime::now() + span),
        uses_max: new.uses,
        class_max: new.class_max,
        may_manage: new.manage_rates,
    };
    let paths = new.state.paths()?;
    if daemon::hosts::has_head(&paths.state) {
        return Err(exit::usage(
            "this host belongs to an endpoint that another host heads: a ticket made here would let nobody in",
            "make the ticket at the head",
        ));
    }
    let issue = crate::coordinator::issue(&paths)?;
    let (limited, ticket) = issue.create(limits)?;
    let path = limited.limits.scope.iter().map(|name| name.as_bytes()).collect::<Vec<_>>().join(&b'/');
    let text = if new.link { ticket.to_link(&path) } else { ticket.to_text() };
    let is_written = match new.ticket_file.as_os_str() == "-" {
        true if output::line(&text) => Ok(()),
        true => Err(std::io::ErrorKind::BrokenPipe.into()),
        false => write_ticket(&new.ticket_file, &text),
    };
    if let Err(e) = is_written {
        // A ticket that nobody has is none.
        issue.revoke(&limited.id)?;
        return Err(exit::of_written("write ticket", &new.ticket_file, &e));
    }
    let until = limited.expires_text().map_or_else(|| "until it is revoked".into(), |text| format!("until {text}"));
    output::note(&format!("ticket {}: {} {}, {until}", limited.id, ways(&limited.limits), limited.path_text()));
    Ok(Exit::Done)
}

fn list(ls: Ls) -> Result<Exit> {
    let issued = ls.state.issue()?.list()?;
    for Issued { ticket, uses } in &issued {
        if ls.json {
            output::line(&output::json::ticket(ticket, *uses));
            continue;
        }
        let uses = match ticket.limits.uses_max {
            Some(max) => format!("{uses}/{max} uses"),
            None => output::counted((*uses).into(), "client", "clients"),
        };
        let expires = match (ticket.expires_text(), ticket.is_expired(SystemTime::now())) {
            (None, _) => "no end".to_owned(),
            (Some(at), false) => format!("until {at}"),
            (Some(at), true) => format!("expired {at}"),
        };
        let (ways, path) = (ways(&ticket.limits), ticket.path_text());
        output::line(&format!("{}\t{ways}\t{path}\t{expires}\t{uses}", ticket.id));
    }
    if issued.is_empty() && !ls.json {
        output::note("no limited ticket; `thalweg ticket new --ticket-file FILE` makes one");
    }
    Ok(Exit::Done)
}

fn list_clients(args: Clients) -> Result<Exit> {
    for client in args.state.issue()?.clients()? {
        if args.json {
            output::line(&output::json::client(&client));
            continue;
        }
        let Enrolment { pin, name, enrolled, ticket, .. } = &client;
        let ticket = ticket.as_deref().unwrap_or(SERVE_TICKET);
        output::line(&format!("{pin}\t{ticket}\t{enrolled}\t{}", output::shown(name)));
    }
    Ok(Exit::Done)
}

fn ways(limits: &Limits) -> &'static str {
    match (limits.may_read, limits.may_write) {
        (true, false) => "read",
        (false, true) => "write",
        _ => "read and write",
    }
}
