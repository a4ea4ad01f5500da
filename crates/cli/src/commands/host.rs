//! `thalweg host`: the hosts of an endpoint that this host heads, or that all of them keep together, changed beside it.

use crate::exit::{Error, Result};
use crate::output;
use daemon::Paths;
use daemon::hosts::{HostBook, Listed};
use daemon::issue::write_ticket;
use model::Exit;
use serde_json::json;
use std::path::PathBuf;

/// Make an endpoint of several hosts that share a file system
///
/// The hosts serve the same directory, and clients see one endpoint: `thalweg cp` between two endpoints uses all of them. The host on
/// which this command is given heads the others: clients enrol with it. See docs/hosts.md.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg host init                                      on the first host, where `thalweg serve` has run\n\
\x20   thalweg host invite far2 --token-file token            once for each further host\n\
\x20   thalweg serve --root /data --listen '[::]:7740' --join token   on that host, with a copy of the token\n\
\x20   thalweg host ls")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    Init(Init),
    Invite(Invite),
    Ls(Ls),
    Drain(Named),
    Resume(Resumed),
    Rm(Removed),
}

/// Make the endpoint of this host the head of several
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\x20   thalweg host init")]
struct Init {
    #[command(flatten)]
    state: State,
}

/// Make a token with which one more host can join: `thalweg serve --join FILE`
///
/// A token is good for one host, until that is removed. Whoever has it can read everything below the root; guard it like a
/// password.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\x20   thalweg host invite far2 --token-file token")]
struct Invite {
    #[command(flatten)]
    state: State,
    /// What to call the host: letters, digits, `.`, `_` and `-`
    name: String,
    /// Write the token here, readable by this user only
    #[arg(long, value_name = "FILE", env = "THALWEG_TOKEN_FILE")]
    token_file: PathBuf,
}

/// List the hosts: name, what they do, addresses, jobs, and when they were last heard
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\x20   thalweg host ls")]
struct Ls {
    #[command(flatten)]
    state: State,
    /// One JSON object for each host
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

/// Have a host finish what it has and get no more, as before an upgrade
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\x20   thalweg host drain far2")]
struct Named {
    #[command(flatten)]
    state: State,
    /// The host
    name: String,
}

/// Let a drained host work again
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\x20   thalweg host resume far2")]
struct Resumed {
    #[command(flatten)]
    state: State,
    /// The host
    name: String,
}

/// Remove a host: within seconds it lets none of the endpoint's clients in any more
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\x20   thalweg host rm far2")]
struct Removed {
    #[command(flatten)]
    state: State,
    /// The host
    name: String,
}

#[derive(clap::Args, Debug)]
struct State {
    /// The endpoint's state directory [default: $XDG_STATE_HOME/thalweg]
    #[arg(long, value_name = "DIR", env = "THALWEG_STATE_DIR")]
    state_dir: Option<PathBuf>,
}

impl State {
    fn book(&self) -> Result<HostBook> {
        crate::coordinator::book(&Paths::from_env()?.with_state(self.state_dir.clone()))
    }
}

pub fn run(args: Args) -> Result<Exit> {
    match args.action {
        Action::Init(Init { state }) => {
            let book = state.book()?;
            let name = book.init()?;
            if book.is_shared() {
                output::note(&format!("this host already belongs to the endpoint, as {name}"));
                return Ok(Exit::Done);
            }
            output::note(&format!("this host heads the endpoint, as {name}"));
            output::note("next: thalweg host invite NAME --token-file FILE");
        }
        Action::Invite(Invite { state, name, token_file }) => invite(&state.book()?, &name, &token_file)?,
        Action::Ls(ls) => list(&ls)?,
        Action::Drain(Named { state, name }) => {
            state.book()?.drain(&name, true)?;
            output::note(&format!("{name} gets no more within 5 s; `thalweg host ls` shows when it has finished"));
        }
        Action::Resume(Resumed { state, name }) => state.book()?.drain(&name, false)?,
        Action::Rm(Removed { state, name }) => state.book()?.remove(&name)?,
    }
    Ok(Exit::Done)
}

fn invite(book: &HostBook, name: &str, file: &PathBuf) -> Result<()> {
    let token = book.invite(name)?;
    if let Err(e) = write_ticket(file, &token.to_text()) {
        let _ = book.remove(name);
        return Err(Error::of_file("write token", file, e));
    }
    output::note(&format!("on {name}: thalweg serve --join FILE, with a copy of {}", output::shown(file)));
    Ok(())
}

fn list(ls: &Ls) -> Result<()> {
    let hosts = ls.state.book()?.list()?;
    for host in &hosts {
        let (addresses, jobs) =
            host.seen.as_ref().map_or((&[][..], None), |seen| (&seen.addresses[..], Some(seen.jobs)));
        let silent = host.seen.as_ref().map(daemon::hosts::book::Seen::silent_seconds);
        let word = word(host);
        if ls.json {
            let line = json!({"v": 1, "name": host.name, "head": host.is_head(), "state": word, "addresses": addresses,
                "jobs": jobs, "silent_seconds": silent});
            output::line(&line.to_string());
            continue;
        }
        let jobs = jobs.map_or_else(String::new, |jobs| output::counted(jobs.into(), "job", "jobs"));
        let heard = silent.map_or_else(String::new, |seconds| format!("heard {seconds} s ago"));
        output::line(&format!("{}\t{word}\t{}\t{jobs}\t{heard}", host.name, addresses.join(",")));
    }
    if hosts.is_empty() && !ls.json {
        output::note("this endpoint is one host; `thalweg host init` makes it the head of several");
    }
    Ok(())
}

fn word(host: &Listed) -> &'static str {
    match (host.is_head(), host.is_draining, &host.seen) {
        (true, false, _) => "head",
        (true, true, _) => "draining",
        (false, _, None) if host.pin.is_some() => "silent",
        (false, _, None) => "invited",
        (false, true, Some(seen)) if seen.jobs == 0 => "drained",
        (false, true, _) => "draining",
        (false, false, _) => "active",
    }
}
