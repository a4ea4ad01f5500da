//! `thalweg contract`: what an endpoint of this host has agreed to, changed beside it.

use crate::exit::{Error, Result, usage};
use crate::output;
use daemon::governor::board::{self, Row};
use daemon::governor::contracts::{Contract, ContractBook, Contracts, Way};
use daemon::{EndpointBook, Paths};
use model::pace::Timetable;
use model::quantity::{Rate, parse_rate};
use model::{Class, Exit, Pin};
use serde_json::json;
use std::path::PathBuf;

/// Bound and guarantee rates of an endpoint on this host
///
/// A contract covers the jobs of a peer, a user (a ticket), a class, or several of these at once, and bounds what they may
/// have together, by the time of the week if you like. It holds for every such job of the endpoint, whoever asked for it. A
/// running endpoint follows a change within a second.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg contract link 10Gbit\n\
\x20   thalweg contract add office --direction out --rate \"Mon-08:00,2Gbit Fri-18:00,off\"\n\
\x20   thalweg contract add mirror --peer 3f09a1c2d4 --rate 500Mbit\n\
\x20   thalweg contract ls")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    Add(Box<Add>),
    /// List the contracts, and the link's rate
    #[command(after_help = "Example:\n\x20   thalweg contract ls")]
    Ls(Ls),
    /// Show what each running job moves, what it may have, and why
    #[command(after_help = "Example:\n\x20   thalweg contract shares")]
    Shares(Ls),
    /// End a contract
    #[command(after_help = "Example:\n\x20   thalweg contract rm office")]
    Rm(Rm),
    /// Say what the link carries, each way, so that shares of it can be kept and guaranteed
    #[command(after_help = "Example:\n\x20   thalweg contract link 10Gbit")]
    Link(Link),
}

/// Add a contract, or replace the one of this name
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg contract add nightly --class low --rate \"07:00,100Mbit 20:00,off\"\n\
\x20   thalweg contract add beamline --user 3f09a1c2d4 --direction in --guarantee 4Gbit")]
struct Add {
    #[command(flatten)]
    state: State,
    /// What to call it: letters, digits, `-`, `_` and `.`
    name: String,
    /// Jobs of this peer: an endpoint that this user knows, or the beginning of an identity
    #[arg(long, value_name = "ENDPOINT|IDENTITY")]
    peer: Option<String>,
    /// Jobs of the clients of this ticket: its id, or `serve`
    #[arg(long, value_name = "TICKET")]
    user: Option<String>,
    /// Jobs of this class: high, normal or low
    #[arg(long, value_name = "CLASS")]
    class: Option<Class>,
    /// Only what comes `in` or goes `out` [default: both, separately]
    #[arg(long, value_name = "in|out", value_parser = way, env = "THALWEG_DIRECTION")]
    direction: Option<Way>,
    /// What they may have together: a rate or a timetable, as for `cp --bwlimit`
    #[arg(long, value_name = "RATE|TIMETABLE", value_parser = rates)]
    rate: Option<String>,
    /// What they get before anybody else gets anything
    #[arg(long, value_name = "RATE", value_parser = one_rate, env = "THALWEG_GUARANTEE")]
    guarantee: Option<String>,
    /// Mark what is sent with this code point for differentiated services, 0 to 63
    #[arg(long, value_name = "N", env = "THALWEG_DSCP")]
    dscp: Option<u8>,
}

#[derive(clap::Args, Debug)]
struct Ls {
    #[command(flatten)]
    state: State,
    /// One JSON object for each contract
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct Rm {
    #[command(flatten)]
    state: State,
    /// The contract
    name: String,
}

#[derive(clap::Args, Debug)]
struct Link {
    #[command(flatten)]
    state: State,
    /// Such as 10Gbit, or `off` where it is not known
    #[arg(value_name = "RATE", value_parser = one_rate)]
    rate: String,
}

#[derive(clap::Args, Debug)]
struct State {
    /// The endpoint's state directory [default: $XDG_STATE_HOME/thalweg]
    #[arg(long, value_name = "DIR", env = "THALWEG_STATE_DIR")]
    state_dir: Option<PathBuf>,
}

impl State {
    fn directory(&self) -> Result<PathBuf> {
        Ok(Paths::from_env()?.with_state(self.state_dir.clone()).state)
    }

    fn book(&self) -> Result<ContractBook> {
        Ok(ContractBook::new(&self.directory()?))
    }
}

pub fn run(args: Args) -> Result<Exit> {
    match args.action {
        Action::Add(add) => self::add(*add),
        Action::Ls(ls) => list(&ls),
        Action::Shares(ls) => shares(&ls),
        Action::Rm(Rm { state, name }) => change(&state, |contracts| match contracts.contract.remove(&name) {
            Some(_) => Ok(()),
            None => Err(unknown(&name)),
        }),
        Action::Link(Link { state, rate }) => change(&state, |contracts| {
            contracts.link = parse_rate(&rate).is_ok_and(|rate| rate.is_some()).then_some(rate);
            Ok(())
        }),
    }
}

fn unknown(name: &str) -> Error {
    let text = format!("there is no contract {}", output::shown(name));
    crate::exit::error(Exit::Failed, text, "`thalweg contract ls` lists them")
}

fn change(state: &State, change: impl FnOnce(&mut Contracts) -> Result<()>) -> Result<Exit> {
    state.book()?.change(change)?;
    Ok(Exit::Done)
}

fn add(add: Add) -> Result<Exit> {
    let Add { state, name, peer, user, class, direction, rate, guarantee, dscp } = add;
    let peer = peer.map(|peer| identity_of(&peer)).transpose()?;
    let class = class.map(|class| class.name().to_owned());
    let contract = Contract { peer, user, class, direction, rate, guarantee, dscp };
    change(&state, |contracts| {
        contracts.contract.insert(name, contract);
        Ok(())
    })
}

/// An endpoint's name stands for its identity; what is none stays what it is.
fn identity_of(peer: &str) -> Result<String> {
    let is_identity = peer.len() >= 8 && peer.chars().all(|c| c.is_ascii_hexdigit());
    if is_identity || Pin::from_hex(peer).is_some() {
        return Ok(peer.to_ascii_lowercase());
    }
    let known = EndpointBook::new(Paths::from_env()?.endpoints()).get(peer);
    known.map(|endpoint| endpoint.pin.to_string()).map_err(|_| {
        usage(
            format!("{} is neither an endpoint that you know nor an identity", output::shown(peer)),
            "`thalweg endpoint ls` lists the endpoints, `thalweg ticket clients` the identities of the clients here",
        )
    })
}

fn list(ls: &Ls) -> Result<Exit> {
    let Contracts { link, contract } = ls.state.book()?.read()?;
    if ls.json {
        output::line(&json!({"v": 1, "link": link}).to_string());
    } else if let Some(link) = &link {
        output::line(&format!("the link carries {link} each way"));
    }
    for (name, contract) in &contract {
        let Contract { peer, user, class, direction, rate, guarantee, dscp } = contract;
        let way = direction.map(|way| if way == Way::In { "in" } else { "out" });
        if ls.json {
            let line = json!({"v": 1, "name": name, "peer": peer, "user": user, "class": class, "direction": way,
                "rate": rate, "guarantee": guarantee, "dscp": dscp});
            output::line(&line.to_string());
            continue;
        }
        let dscp = dscp.map(|dscp| dscp.to_string());
        let told = [
            ("peer", peer.as_deref()),
            ("user", user.as_deref()),
            ("class", class.as_deref()),
            ("direction", way),
            ("rate", rate.as_deref()),
            ("guarantee", guarantee.as_deref()),
            ("dscp", dscp.as_deref()),
        ];
        let told = told.iter().filter_map(|(key, value)| value.map(|value| format!("{key} {}", output::shown(value))));
        output::line(&format!("{name}\t{}", told.collect::<Vec<_>>().join("\t")));
    }
    if contract.is_empty() && !ls.json {
        output::note("no contract; `thalweg contract add NAME` makes one");
    }
    Ok(Exit::Done)
}

fn shares(ls: &Ls) -> Result<Exit> {
    let rows = board::read(&ls.state.directory()?)?;
    for row in &rows {
        let Row { job, client, user, class, direction, moves, rate, by } = row;
        if ls.json {
            let line = json!({"v": 1, "job": job, "client": client, "user": user, "class": class, "direction": direction,
                "bytes_per_second": moves, "rate": rate, "by": by});
            output::line(&line.to_string());
            continue;
        }
        let way = if *direction == Way::In { "in" } else { "out" };
        let said = |bytes: u64| Rate { bytes_per_second: bytes as f64 };
        let may = match rate {
            Some(rate) => format!("moves {}, may have {}: {by}", said(*moves), said(*rate)),
            None => "not held".to_owned(),
        };
        output::line(&format!("{job}\t{way}\t{class}\t{}\t{may}", output::shown(client)));
    }
    if rows.is_empty() && !ls.json {
        output::note("no job is running there");
    }
    Ok(Exit::Done)
}

fn way(text: &str) -> std::result::Result<Way, String> {
    match text {
        "in" => Ok(Way::In),
        "out" => Ok(Way::Out),
        _ => Err(format!("{text:?} is neither in nor out")),
    }
}

fn rates(text: &str) -> std::result::Result<String, String> {
    Timetable::parse(text).map(|_| text.to_owned())
}

fn one_rate(text: &str) -> std::result::Result<String, String> {
    parse_rate(text).map(|_| text.to_owned())
}
