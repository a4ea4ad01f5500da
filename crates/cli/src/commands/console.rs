//! `thalweg console`: lets a browser in at a hub.

use crate::exit::{Result, error};
use crate::output;
use crate::service::jobs::text;
use crate::service::{HubArgs, Service};
use model::Exit;
use serde_json::json;

/// Print the address of the hub's console, with a code that lets a browser in
///
/// The code is good once, and for a minute. The browser may then do for twelve hours what this command may: all of it at this
/// user's own hub, what the token is good for at another.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg console")]
pub struct Args {
    /// A JSON object
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[command(flatten)]
    hub: HubArgs,
}

pub fn run(args: Args) -> Result<Exit> {
    let service = Service::new(&args.hub)?;
    let made = service.post("/session/code", "", None)?;
    let at = service.url().or_else(|| made["url"].as_str().map(output::shown));
    let deaf = || error(Exit::Failed, "no browser can reach the hub", "start it with --listen 127.0.0.1:7741");
    let url = format!("{}/#code={}", at.ok_or_else(deaf)?, text(&made, "code"));
    output::line(&if args.json { json!({"v": 1, "url": url, "seconds": made["seconds"]}).to_string() } else { url });
    output::note("open it within a minute; it works once");
    Ok(Exit::Done)
}
