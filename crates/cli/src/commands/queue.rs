//! `thalweg queue`: the open jobs of the hub, and why each waits.

use crate::exit::Result;
use crate::output::{self, counted};
use crate::service::jobs::waiting_line;
use crate::service::{HubArgs, Service};
use model::Exit;
use serde_json::json;

/// Show the open jobs of the hub, the oldest first, and why each waits
///
/// One line each: id, class, owner, source, destination, state and reason.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg queue")]
pub struct Args {
    /// Show at most this many
    #[arg(long, value_name = "N", default_value_t = 1000, env = "THALWEG_LIMIT")]
    limit: usize,
    /// One JSON object for each job
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[command(flatten)]
    hub: HubArgs,
}

pub fn run(args: Args) -> Result<Exit> {
    let service = Service::new(&args.hub)?;
    let mut left = args.limit;
    service.jobs("&status=open&order=oldest", &mut |job| {
        if left == 0 {
            return false;
        }
        left -= 1;
        let mut value = job.clone();
        value["v"] = json!(1);
        output::line(&if args.json { value.to_string() } else { waiting_line(job) })
    })?;
    if !args.json {
        let summary = service.get("/summary")?;
        let open = summary["open"].as_object().into_iter().flatten();
        let mut counts: Vec<(String, u64)> =
            open.map(|(status, count)| (output::shown(status), count.as_u64().unwrap_or(0))).collect();
        counts.sort();
        let total = counts.iter().map(|(_, count)| count).sum();
        let parts: Vec<_> = counts.iter().map(|(status, count)| format!("{count} {status}")).collect();
        let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
        output::note(&format!("{} open{parts}", counted(total, "job", "jobs")));
    }
    Ok(Exit::Done)
}
