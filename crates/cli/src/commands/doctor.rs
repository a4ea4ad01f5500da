//! `thalweg doctor`: looks at this host, and at an endpoint's side of things when one is named, and says what to mend.
//!
//! Invariant: nothing is changed unless `--apply` was given, and then every change is told before it is made and has an
//! undo. What is looked at and judged is `audit`'s.

use crate::args::ssh::SshArgs;
use crate::args::values;
use crate::exit::{self, Result, error, usage};
use crate::output::{self, shown};
use audit::apply::{self, Step};
use audit::checks::interfaces;
use audit::checks::peer::Peer;
use audit::profile::{self, Profile};
use audit::{Finding, Host, Kernel, Level, Question};
use daemon::{ConnectOptions, EndpointBook, Paths};
use model::Exit;
use model::name::Escaped;
use serde::Serialize;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;
use store::{Seen, Weight};

/// How long the endpoint's host may take to answer a probe, beyond three round trips.
const PROBE_PATIENCE: Duration = Duration::from_millis(400);
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// The kernel measures in microseconds; a path within one machine may take less.
const RTT_MIN: Duration = Duration::from_micros(1);

/// Audit this host for transfers, and the path to an endpoint: what is found, what it costs, how to fix it
///
/// Examines socket limits, congestion control, queue disciplines, interfaces, processors, clock, limits, memory and
/// file systems; with ENDPOINT also the other side's version and buffers and the packet size of the path. Findings are
/// judged for one path: its rate (--rate, or the fastest interface's) and its round trip time (--rtt, or measured).
/// --profile NAME also compares with a published set of settings: zettar or esnet.
///
/// Nothing is changed, except with --apply, as root: safe kernel settings that last until the next boot. Each change is
/// announced before it is made, with the command that undoes it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg doctor                                        this host, for a long path at its interface's rate\n\
\x20   thalweg doctor lab                                    also the other side, over the measured round trip\n\
\x20   thalweg doctor s3+lab://archive/                      a bucket: keys, rights, clock, checksums, conditions\n\
\x20   thalweg doctor gsiftp://door/data/                    a directory of a GridFTP, FTP or SFTP server\n\
\x20   thalweg doctor --rate 100Gbit --rtt 88ms              for a path that is planned\n\
\x20   thalweg doctor --profile zettar                       compared with published settings\n\
\x20   sudo thalweg doctor --rtt 88ms --apply | tee undo.sh  fix what is safe, keep the way back\n\n\
--profile zettar or esnet: compare with this published set of settings as well; any other name is a profile of the\n\
configuration file")]
pub struct Args {
    /// An endpoint that was added, or a place in a bucket or at a server, where a file is written and removed again
    #[arg(value_name = "ENDPOINT")]
    endpoint: Option<String>,
    /// The rate that the path should carry [default: that of the fastest interface]
    #[arg(long, value_name = "RATE", value_parser = rate, env = "THALWEG_RATE")]
    rate: Option<u64>,
    /// The path's round trip time, such as 74ms [default: measured to ENDPOINT, or 100ms]
    #[arg(long, value_name = "TIME", value_parser = round_trip, env = "THALWEG_RTT")]
    rtt: Option<Duration>,
    /// A directory to be read from or written to; may be given several times
    #[arg(long, value_name = "DIR", default_value = ".", value_delimiter = ',', env = "THALWEG_ROOT")]
    root: Vec<PathBuf>,
    /// Also list what is good
    #[arg(long, env = "THALWEG_ALL")]
    all: bool,
    /// For sftp:// and sshftp://, the ssh program and its arguments, such as 'ssh -p 2222' [default: ssh]
    #[arg(long, value_name = "COMMAND", env = "THALWEG_SSH")]
    ssh: Option<String>,
    /// One JSON object for each finding; the last is a summary
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    /// Fix what is safe and can be fixed from here; needs root
    #[arg(long)]
    apply: bool,
    /// Read /proc and /sys below this directory: a capture from another host
    #[arg(long, value_name = "DIR", hide = true, env = "THALWEG_HOST_ROOT")]
    host_root: Option<PathBuf>,
}

pub fn run(args: Args, profile: Option<&str>) -> Result<Exit> {
    let location = args.endpoint.as_ref().map(|name| values::location(name.as_ref())).transpose()?;
    if let Some(location) = location.filter(|_| args.endpoint.as_ref().is_some_and(|name| name.contains("://"))) {
        let is_apply = args.apply.then(|| usage("nothing at a store is changed from here", "leave out --apply"));
        let _ = SshArgs::of_command(args.ssh.clone()).options();
        return is_apply.map_or_else(|| store(&location, args.json), Err);
    }
    let kernel = Kernel;
    let host = match &args.host_root {
        Some(root) => Host::captured(root, &kernel),
        None => Host::this(&kernel),
    };
    if args.apply && !host.is_root() {
        return Err(usage("--apply needs root", "run it with sudo; without --apply the changes are only shown"));
    }
    // A profile of the configuration's has had its effect; the name of a set is left for us.
    let profile = profile.and_then(profile::find);
    let mut path = path(&host, &args);
    let peer = match &args.endpoint {
        Some(name) => Some(visit(name, &args, &mut path)?),
        None => None,
    };
    let question = Question { path, roots: args.root.clone(), peer, profile };
    let findings = audit::audit(&host, &question);
    if args.json {
        let _ = findings.iter().all(|finding| output::line(&json(&Event::of(finding))));
    } else {
        show(&args, &question, profile, &findings);
    }
    let (made, ended) = if args.apply { mend(&args, &host, &findings) } else { (0, Ok(())) };
    if args.json {
        output::line(&json(&Done::of(&question, &findings, made)));
    }
    ended.map(|()| Exit::Done)
}

/// Looks at a place of a store as a transfer would use it.
fn store(location: &model::Location, is_json: bool) -> Result<Exit> {
    let finding = |seen: Seen| {
        let level = match seen.weight {
            Weight::Good => Level::Good,
            Weight::Note => Level::Note,
            Weight::Needed => Level::Needed,
        };
        let found = Finding::new(audit::Area::Storage, level, seen.subject, seen.found).costs(seen.cost);
        match seen.advice {
            Some(advice) => found.by_hand(advice),
            None => found,
        }
    };
    let seen = crate::stores::all().diagnose(location).map_err(|e| transfer::Error::from_open(&e))?;
    let findings: Vec<Finding> = seen.into_iter().map(finding).collect();
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let [needed, notes, good] = [Level::Needed, Level::Note, Level::Good].map(count);
    if is_json {
        findings.iter().for_each(|finding| _ = output::line(&json(&Event::of(finding))));
        output::line(&json(&StoreDone { v: 1, event: "done", needed, optional: 0, notes, good, changed: 0 }));
    } else {
        findings.iter().flat_map(lines).for_each(|line| _ = output::line(&line));
        output::line(&format!("{needed} needed, {notes} to know, {good} good"));
    }
    Ok(Exit::Done)
}

/// What the path is as far as this host tells.
fn path(host: &Host, args: &Args) -> audit::Path {
    let mut path = audit::Path::default();
    if let Some(rate) = args.rate {
        (path.bits_per_second, path.rate_from) = (rate, "asked for".into());
    } else if let Some((name, speed)) = interfaces::fastest(host).and_then(|i| Some((i.name, i.bits_per_second?))) {
        (path.bits_per_second, path.rate_from) = (speed, format!("the link of {name}"));
    }
    if let Some(rtt) = args.rtt {
        (path.rtt, path.rtt_from) = (rtt, "asked for".into());
    }
    path
}

/// Asks an endpoint, and measures the way to it.
fn visit(name: &str, args: &Args, path: &mut audit::Path) -> Result<Peer> {
    let name = name.strip_suffix(':').unwrap_or(name);
    let paths = Paths::from_env()?;
    let endpoint = EndpointBook::new(paths.endpoints()).get(name)?;
    let client = daemon::connect(&endpoint, &paths.identity()?, &ConnectOptions::default())?;
    let told = |e| exit::Error::from_connect(name, &e);
    let (welcome, features_lacking) = (client.welcome().map_err(told)?, client.features_lacking().map_err(told)?);
    client.close();
    let reached =
        endpoint.addresses.iter().filter_map(|address| net::resolve(address).ok()).flatten().find_map(round_trip_to);
    if let (Some((_, rtt)), None) = (reached, args.rtt) {
        (path.rtt, path.rtt_from) = (rtt, format!("measured to {name}"));
    }
    let probe = |(address, rtt): (SocketAddr, Duration)| net::path_mtu::probe(address, PROBE_PATIENCE + rtt * 3).ok();
    Ok(Peer {
        name: name.to_owned(),
        agent: Escaped(welcome.agent.as_bytes()).to_string(),
        own_agent: mover::session::AGENT.into(),
        features_lacking,
        processors: welcome.processors,
        streams_max: welcome.streams_max,
        send_buffer_bytes_max: welcome.send_buffer_bytes_max,
        is_read_only: welcome.is_read_only,
        path_mtu: reached.and_then(probe),
    })
}

/// The address, if it answers, and the round trip that the kernel measured in the handshake.
fn round_trip_to(address: SocketAddr) -> Option<(SocketAddr, Duration)> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_PATIENCE).ok()?;
    let info = net::TcpInfo::sample(&stream).ok()?;
    Some((address, Duration::from_micros(info.rtt_us.into()).max(RTT_MIN)))
}

/// Carries out what is safe. Returns how many changes were made, and whether all were made as they were meant.
fn mend(args: &Args, host: &Host, findings: &[Finding]) -> (usize, Result<()>) {
    let steps = apply::steps(host, findings);
    let mut done: Vec<&Step> = Vec::new();
    let mut failed: Vec<String> = Vec::new();
    for step in &steps {
        output::note(&format!("changing {}: {} -> {}", step.change.sysctl, step.before, step.change.value));
        if let Err(e) = apply::carry_out(host, step) {
            failed.push(format!("{}: {}", step.change.sysctl, exit::plain(&e)));
        }
        if apply::has_changed(host, step) {
            done.push(step);
        }
    }
    if !args.json {
        let text = match done.len() {
            0 => "# nothing was changed: there is nothing safe left to change here".to_owned(),
            n => {
                format!("# {} until the next boot; to undo:", output::counted(n as u64, "change holds", "changes hold"))
            }
        };
        output::line(&text);
    }
    for step in &done {
        let shown = if args.json {
            json(&Undo { v: 1, event: "changed", command: step.command(), undo: step.undo() })
        } else {
            step.undo()
        };
        output::line(&shown);
    }
    if failed.is_empty() {
        return (done.len(), Ok(()));
    }
    let hint = "the kernel may lack this setting or bound its value; what has changed is listed with the way back";
    (done.len(), Err(error(Exit::Failed, format!("not changed as meant: {}", failed.join("; ")), hint)))
}

fn show(args: &Args, question: &Question<'_>, profile: Option<&Profile>, findings: &[Finding]) {
    // Standard output is the script that undoes changes, when there are any.
    let print = |text: &str| if args.apply { output::note(text) } else { _ = output::line(text) };
    print(&format!("for {}: {}", question.path.text(), question.path.bdp_text()));
    if let Some(profile) = profile {
        print(&format!("profile {}: {}", profile.name, profile.source));
    }
    for level in [Level::Needed, Level::Optional, Level::Note, Level::Good] {
        for finding in findings.iter().filter(|finding| finding.level == level) {
            if level != Level::Good || args.all {
                lines(finding).iter().for_each(|line| print(line));
            }
        }
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let more = if args.all { "" } else { " (--all lists them)" };
    print(&format!(
        "{} needed, {} optional, {} to know, {} good{more}",
        count(Level::Needed),
        count(Level::Optional),
        count(Level::Note),
        count(Level::Good)
    ));
}

/// What was found, why it costs, how to fix it.
fn lines(finding: &Finding) -> Vec<String> {
    let mut lines = vec![format!("{:<9}{}: {}", finding.level.word(), finding.subject, finding.found)];
    if !finding.cost.is_empty() {
        lines.push(format!("         {}", finding.cost));
    }
    if let Some(mend) = &finding.mend {
        let shared = if mend.is_shared { "; it affects the whole machine" } else { "" };
        lines.push(format!("         fix: {}   [{}{shared}]", mend.command, mend.here));
    }
    lines
}

/// Reads `100Mbit`, `10Gbit/s`: bits a second, decimal.
fn rate(text: &str) -> Result<u64, String> {
    let wrong = || format!("{:?} is not a rate such as 100Mbit or 10Gbit", shown(text));
    let units = [("Tbit", 1e12), ("Gbit", 1e9), ("Mbit", 1e6), ("kbit", 1e3)];
    let bare = text.strip_suffix("/s").unwrap_or(text);
    let (number, unit) = units.iter().find_map(|(unit, b)| Some((bare.strip_suffix(unit)?, b))).ok_or_else(wrong)?;
    let bits = number.parse::<f64>().ok().map(|n| n * unit).filter(|b| (1e3..=1e14).contains(b)).ok_or_else(wrong)?;
    Ok(bits as u64)
}

/// Reads `300us`, `74ms`, `0.1s`.
fn round_trip(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{:?} is not a time such as 300us, 74ms or 0.1s", shown(text));
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (number, unit) = units.iter().find_map(|(unit, s)| Some((text.strip_suffix(unit)?, s))).ok_or_else(wrong)?;
    let seconds =
        number.parse::<f64>().ok().map(|n| n * unit).filter(|s| (1e-6..=60.0).contains(s)).ok_or_else(wrong)?;
    Ok(Duration::from_secs_f64(seconds))
}

#[derive(Serialize)]
struct Event<'a> {
    v: u32,
    event: &'static str,
    area: &'static str,
    level: &'static str,
    subject: &'a str,
    found: &'a str,
    cost: &'a str,
    command: Option<&'a str>,
    here: Option<&'static str>,
    is_shared: bool,
    can_apply: bool,
}

impl Event<'_> {
    fn of(finding: &Finding) -> Event<'_> {
        let mend = finding.mend.as_ref();
        Event {
            v: 1,
            event: "finding",
            area: finding.area.word(),
            level: finding.level.word(),
            subject: &finding.subject,
            found: &finding.found,
            cost: &finding.cost,
            command: mend.map(|mend| mend.command.as_str()),
            here: mend.map(|mend| mend.here.word()),
            is_shared: mend.is_some_and(|mend| mend.is_shared),
            can_apply: mend.is_some_and(|mend| mend.change.is_some() && mend.here == audit::Here::Yes),
        }
    }
}

#[derive(Serialize)]
struct Undo {
    v: u32,
    event: &'static str,
    command: String,
    undo: String,
}

#[derive(Serialize)]
struct StoreDone {
    v: u32,
    event: &'static str,
    needed: usize,
    optional: usize,
    notes: usize,
    good: usize,
    changed: usize,
}

#[derive(Serialize)]
struct Done {
    v: u32,
    event: &'static str,
    bits_per_second: u64,
    rtt_us: u64,
    bdp_bytes: u64,
    needed: usize,
    optional: usize,
    notes: usize,
    good: usize,
    changed: usize,
}

impl Done {
    fn of(question: &Question<'_>, findings: &[Finding], changed: usize) -> Done {
        let count = |level| findings.iter().filter(|finding| finding.level == level).count();
        Done {
            v: 1,
            event: "done",
            bits_per_second: question.path.bits_per_second,
            rtt_us: question.path.rtt.as_micros() as u64,
            bdp_bytes: question.path.bdp_bytes(),
            needed: count(Level::Needed),
            optional: count(Level::Optional),
            notes: count(Level::Note),
            good: count(Level::Good),
            changed,
        }
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain values have a JSON form")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_decimal_bits() {
        assert_eq!(rate("10Gbit"), Ok(10_000_000_000));
        assert_eq!(rate("2.5Mbit/s"), Ok(2_500_000));
        for wrong in ["", "10", "10GB", "0Gbit", "-1Gbit", "infGbit"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn round_trips_have_a_unit() {
        assert_eq!(round_trip("74ms"), Ok(Duration::from_millis(74)));
        assert_eq!(round_trip("300us"), Ok(Duration::from_micros(300)));
        assert_eq!(round_trip("0.1s"), Ok(Duration::from_millis(100)));
        for wrong in ["", "74", "ms", "-1ms", "0ms", "1h", "nans", "1e9s"] {
            assert!(round_trip(wrong).is_err(), "{wrong}");
        }
    }
}
