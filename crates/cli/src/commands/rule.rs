//! `thalweg rule`: what the jobs of those who are no administrators of a hub may touch.

use super::token::cancelled;
use crate::exit::{Result, error};
use crate::output;
use crate::service::jobs::text;
use crate::service::{HubArgs, Service};
use model::Exit;
use serde_json::{Value, json};

/// Allow holders of tokens to use endpoints of a hub, or take that back
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

/// Add a rule: `allow WHO VERBS [until MOMENT] ENDPOINT:PATH`
///
/// WHO is token:NAME, or unix:UID for a user of the hub's host. VERBS are list, read, write, delete (what is not at the source) and
/// manage, with commas between them. The rule covers PATH and what is below it. With `until` and a moment such as
/// 2027-03-01T06:00:00Z it expires.
///
/// Whoever is not an administrator can share in this way what they may do themselves where they have `manage`, for at most
/// 90 days.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg rule add 'allow token:ci read,write siteA:results'\n\
\x20   thalweg rule add 'allow token:guest read until 2027-03-01T06:00:00Z siteA:results/run7'")]
struct Add {
    /// The rule, in quotes
    #[arg(value_name = "RULE")]
    rule: String,
    #[command(flatten)]
    hub: HubArgs,
}

/// List the rules: id and text
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg rule ls")]
struct Ls {
    /// One JSON object for each rule
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[command(flatten)]
    hub: HubArgs,
}

/// Remove a rule; jobs that nothing allows any more are cancelled
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg rule rm 3")]
struct Rm {
    /// Its id, or its text as `rule ls` shows it
    #[arg(value_name = "ID|RULE")]
    rule: String,
    #[command(flatten)]
    hub: HubArgs,
}

pub fn run(args: Args) -> Result<Exit> {
    match args.action {
        Action::Add(add) => {
            let added = Service::new(&add.hub)?.post("/rules", &json!({"rule": add.rule}).to_string(), None)?;
            output::note(&format!("rule {}: {}", added["id"], text(&added, "rule")));
        }
        Action::Ls(ls) => {
            let rules = Service::new(&ls.hub)?.get("/rules")?;
            for rule in rules.as_array().into_iter().flatten() {
                let mut value = rule.clone();
                value["v"] = json!(1);
                let line = format!("{}\t{}", rule["id"], text(rule, "rule"));
                output::line(&if ls.json { value.to_string() } else { line });
            }
        }
        Action::Rm(rm) => {
            let service = Service::new(&rm.hub)?;
            let id = match rm.rule.parse::<u64>() {
                Ok(id) => id,
                Err(_) => id_of(&service.get("/rules")?, &rm.rule)?,
            };
            let removed = service.delete(&format!("/rules/{id}"))?;
            output::note(&format!("removed rule {id}{}", cancelled(&removed)));
        }
    }
    Ok(Exit::Done)
}

fn id_of(rules: &Value, text: &str) -> Result<u64> {
    let found = rules.as_array().into_iter().flatten().find(|rule| rule["rule"] == text);
    let absent =
        || error(Exit::Failed, format!("there is no rule {}", output::shown(text)), "`thalweg rule ls` lists them");
    found.and_then(|rule| rule["id"].as_u64()).ok_or_else(absent)
}
