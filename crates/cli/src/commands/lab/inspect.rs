//! `thalweg lab exec`, `status` and `set`: to a laboratory that another process holds.

use super::error::of_lab;
use crate::exit::{Result, error, of_file, usage};
use crate::output::{duration, line, note};
use lab::control::{Request, ask};
use lab::lease::Lease;
use lab::record::Record;
use lab::scenario::Scenario;
use model::Exit;
use model::quantity::Rate;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;

/// Run a command on a host
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg lab exec a -- ping -c 3 b")]
pub struct Exec {
    /// The site, or one of its hosts
    site: String,
    /// The laboratory, if there are several
    #[arg(long, value_name = "NAME", env = "THALWEG_LAB")]
    lab: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Show running laboratories and what they did
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg lab status far")]
pub struct Status {
    /// Which [default: all]
    name: Option<String>,
    /// One line of JSON for each
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

/// Change a link while the laboratory is up
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg lab set wan rtt=100ms loss=0.01% forward.rate=1Gbit")]
pub struct Set {
    /// The link
    link: String,
    /// rtt, delay, rate, queue, loss, loss-burst, jitter, reorder, duplicate, corrupt, down; with `forward.` or `backward.` for one direction
    #[arg(required = true, value_name = "KEY=VALUE")]
    words: Vec<String>,
    /// The laboratory, if there are several
    #[arg(long, value_name = "NAME", env = "THALWEG_LAB")]
    lab: Option<String>,
}

/// The laboratories whose holder lives, with their names.
pub fn living() -> Vec<(Lease, String)> {
    let alive = Lease::all().into_iter().filter(Lease::is_holder_alive);
    let mut named: Vec<_> = alive.filter_map(|lease| Some((lease.clone(), scenario(&lease)?.name))).collect();
    named.sort_by(|a, b| a.1.cmp(&b.1));
    named
}

/// The one that is meant: by name, by token, or the only one.
pub fn find(wanted: Option<&str>) -> Result<(Lease, String)> {
    let mut found = living();
    let all: Vec<_> = found.iter().map(|(lease, name)| format!("{name} ({})", lease.token)).collect();
    found.retain(|(lease, name)| wanted.is_none_or(|wanted| wanted == name || wanted == lease.token));
    match (found.len(), wanted) {
        (1, _) => Ok(found.remove(0)),
        (0, None) => Err(error(Exit::Failed, "no laboratory is up", "build one: `thalweg lab up continent`")),
        (0, Some(name)) => {
            Err(usage(format!("no laboratory {name:?} is up"), format!("there are: {}", all.join(", "))))
        }
        _ => Err(usage("several laboratories are up", format!("name one: {}", all.join(", ")))),
    }
}

pub fn exec(args: &Exec) -> Result<Exit> {
    let (lease, _) = find(args.lab.as_deref())?;
    let hosts = lease.hosts();
    let first_of_site = format!("{}1", args.site);
    let by_name = |name: &String| hosts.iter().find(|host| *host == name);
    let Some(host) = by_name(&args.site).or_else(|| by_name(&first_of_site)) else {
        return Err(usage(format!("there is no host {:?}", args.site), format!("there are {}", hosts.join(", "))));
    };
    lab::unprivileged::join(lease.pid()).map_err(of_lab)?;
    let mut command = lease.command(host).map_err(of_lab)?;
    Err(of_file("run", "ip", &command.args(&args.command).exec()))
}

pub fn status(args: &Status) -> Result<Exit> {
    let wanted = args.name.as_deref();
    let shown = match wanted {
        Some(_) => vec![find(wanted)?],
        None => living(),
    };
    if shown.is_empty() && !args.json {
        line("no laboratory is up");
    }
    for (lease, name) in &shown {
        let record = match ask(lease, &Request::Status) {
            Ok(record) => record,
            Err(error) if wanted.is_some() => return Err(of_lab(error)),
            Err(_) => {
                note(&format!("{name} ({}) is held by process {} for a command of its own", lease.token, lease.pid()));
                continue;
            }
        };
        if args.json {
            line(&serde_json::to_string(&record).map_err(|e| of_file("show", "the record", &e.into()))?);
        } else {
            for text in lines(&record) {
                line(&text);
            }
        }
    }
    Ok(Exit::Done)
}

pub fn set(args: &Set) -> Result<Exit> {
    let (lease, _) = find(args.lab.as_deref())?;
    let request = Request::Set { link: args.link.clone(), words: args.words.clone() };
    let record = ask(&lease, &request).map_err(of_lab)?;
    for direction in record.links.iter().filter(|direction| direction.link == args.link) {
        line(&format!("{}  {} -> {}  {}", direction.link, direction.from, direction.to, direction.settings));
    }
    Ok(Exit::Done)
}

fn scenario(lease: &Lease) -> Option<Scenario> {
    Scenario::from_toml(&lease.read_text("scenario.toml")?).ok()
}

fn lines(record: &Record) -> Vec<String> {
    let mut lines = vec![
        format!("{} ({}), up for {}", record.name, record.token, duration(record.seconds)),
        format!(
            "  back end {} ({}), {}, {} hosts, MTU {}, seed {}",
            record.backend,
            record.backend_reason,
            record.congestion_control,
            record.host_settings,
            record.mtu_bytes,
            record.seed
        ),
    ];
    for host in &record.hosts {
        lines.push(format!("  {:8} {}  (namespace {})", host.name, host.addresses.join(" "), host.namespace));
    }
    for direction in &record.links {
        let counts = &direction.counts;
        let rate = Rate { bytes_per_second: direction.bits_per_second_max / 8.0 };
        lines.push(format!(
            "  {}  {} -> {}  {}  {} packets, best second {rate}, lost {} (asked for {}), queue full {}, while down {}",
            direction.link,
            direction.from,
            direction.to,
            direction.settings,
            counts.packets,
            counts.lost_made,
            counts.lost_asked,
            counts.queue_drops,
            counts.down_drops,
        ));
    }
    let late = &record.lateness;
    lines.push(format!(
        "  lateness p50 {:.0} us, p99 {:.0} us, p99.9 {:.0} us of {} releases; emulator {:.1} % of a processor",
        late.p50_us,
        late.p99_us,
        late.p999_us,
        late.samples,
        100.0 * record.emulator_cpu_share
    ));
    lines.extend(record.void.iter().map(|reason| format!("  void: {reason}")));
    lines
}
