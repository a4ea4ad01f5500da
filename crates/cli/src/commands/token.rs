//! `thalweg token`: what programs and other hosts need to ask a hub.

use crate::exit::{Result, of_file};
use crate::output::{self, counted};
use crate::service::jobs::text;
use crate::service::{HubArgs, Service};
use daemon::private_file::{self, Existing};
use model::Exit;
use model::quantity::parse_span;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// Make, list or remove tokens of a hub
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    New(New),
    Ls(Ls),
    Rm(Rm),
}

/// Make a token, and write it to a file: it is shown nowhere else
///
/// Its holder is `token:NAME` for the hub. Unless it has the scope admin, its jobs may touch only what rules allow that name:
/// `thalweg rule add`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg token new ci --scopes read,submit,steer --expires 30d --token-file ci.token\n\
\x20   thalweg rule add 'allow token:ci read siteA:results'")]
struct New {
    /// What to call its holder: letters, digits, `.`, `_` and `-`
    name: String,
    /// What it is good for: read, submit, steer (pause, change, cancel) or admin, with commas between them
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true, env = "THALWEG_SCOPES")]
    scopes: Vec<String>,
    /// For how long, such as 12h or 30d; a year at most
    #[arg(long, value_name = "TIME", value_parser = parse_span, env = "THALWEG_EXPIRES")]
    expires: Duration,
    /// Write the token here, readable by this user only
    #[arg(long, value_name = "FILE", env = "THALWEG_TOKEN_FILE")]
    token_file: PathBuf,
    #[command(flatten)]
    hub: HubArgs,
}

/// List the tokens: name, scopes, when each was made and expires
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg token ls")]
struct Ls {
    /// One JSON object for each token
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[command(flatten)]
    hub: HubArgs,
}

/// Remove a token and the rules for its holder; jobs that nothing allows any more are cancelled
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg token rm ci")]
struct Rm {
    /// Its name
    name: String,
    #[command(flatten)]
    hub: HubArgs,
}

pub fn run(args: Args) -> Result<Exit> {
    match args.action {
        Action::New(new) => create(&new),
        Action::Ls(ls) => list(&ls),
        Action::Rm(rm) => {
            let removed = Service::new(&rm.hub)?.delete(&format!("/tokens/{}", in_path(&rm.name)))?;
            output::note(&format!("removed token {}{}", output::shown(&rm.name), cancelled(&removed)));
            Ok(Exit::Done)
        }
    }
}

fn create(new: &New) -> Result<Exit> {
    let service = Service::new(&new.hub)?;
    // The name is taken first: a token that cannot be written anywhere would be lost.
    private_file::write(&new.token_file, b"", Existing::Keep).map_err(|e| of_file("make", &new.token_file, &e))?;
    let body = json!({"name": new.name, "scopes": new.scopes, "seconds": new.expires.as_secs()}).to_string();
    let made = service.post("/tokens", &body, None).inspect_err(|_| _ = std::fs::remove_file(&new.token_file))?;
    let token = format!("{}\n", made["token"].as_str().unwrap_or_default());
    private_file::write(&new.token_file, token.as_bytes(), Existing::Replace)
        .map_err(|e| of_file("write", &new.token_file, &e))?;
    output::note(&format!("wrote the token of {} to {}", text(&made, "principal"), output::shown(&new.token_file)));
    Ok(Exit::Done)
}

fn list(ls: &Ls) -> Result<Exit> {
    let tokens = Service::new(&ls.hub)?.get("/tokens")?;
    for token in tokens.as_array().into_iter().flatten() {
        if ls.json {
            let mut value = token.clone();
            value["v"] = json!(1);
            output::line(&value.to_string());
            continue;
        }
        let scopes: Vec<_> =
            token["scopes"].as_array().into_iter().flatten().filter_map(|word| word.as_str()).collect();
        let state = if token["is_expired"] == true { "expired" } else { "expires" };
        let (name, created, expires) = (text(token, "name"), text(token, "created"), text(token, "expires"));
        output::line(&format!("{name}\t{}\tmade {created}\t{state} {expires}", output::shown(scopes.join(","))));
    }
    Ok(Exit::Done)
}

/// What ended with it, behind a sentence.
pub fn cancelled(removed: &serde_json::Value) -> String {
    match removed["cancelled"].as_u64().unwrap_or(0) {
        0 => String::new(),
        count => format!("; {} that nothing allows any more cancelled", counted(count, "job", "jobs")),
    }
}

/// A word as a part of a target.
fn in_path(word: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    word.bytes().map(|b| if is_plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
