//! `thalweg bench net`: what a path carries from memory to memory. The measurement is `bench::netload`.

mod show;

use crate::exit::{Error, Result, error, plain};
use crate::interrupt::Interrupt;
use crate::output::{line, note};
use bench::error::Kind;
use bench::netload::{self, Direction, Event, Hosts, Limits, Load, Outcome, PORT_DEFAULT, Server};
use lab::Lab;
use model::Exit;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::commands::lab::Wanted;
use show::Json;

/// Measure the throughput of a path from memory to memory: TCP streams, clear or encrypted like a transfer's
///
/// Start it with --serve on one host and with that host's name on the other, or both ends at once with --lab. The rate
/// is measured at the receiver; the sender's kernel reports retransmissions, the round trip, and what held it up.
///
/// The other side is not authenticated, and the payload is noise: --tls on costs as much as encryption costs a
/// transfer, but protects nothing. Serve only where strangers may load your network.
#[derive(clap::Args, Debug)]
#[command(group = clap::ArgGroup::new("ends").required(true).args(["serve", "host", "lab"]))]
#[command(after_help = "Examples:\n\
\x20   thalweg bench net --serve '[::]:7741'\n\
\x20   thalweg bench net far.example.org --streams 8 --seconds 20 --omit 5\n\
\x20   thalweg bench net --lab continent --lab-set wan.rate=1Gbit --streams 4 --tls on --out net-1g")]
pub struct Args {
    /// The serving host, HOST or HOST:PORT
    #[arg(value_name = "HOST[:PORT]")]
    host: Option<String>,
    /// Be the other end, in the foreground, for several clients [default: 127.0.0.1:7741]
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1", env = "THALWEG_SERVE")]
    serve: Option<String>,
    /// Both ends here, over a preset or file of `thalweg lab`, at its first and last site
    #[arg(long, value_name = "PRESET|FILE", env = "THALWEG_LAB")]
    lab: Option<OsString>,
    /// Changes to its links, such as --lab-set wan.rtt=50ms
    #[arg(long, value_name = "LINK.KEY=VALUE", requires = "lab", env = "THALWEG_LAB_SET")]
    lab_set: Vec<String>,
    /// TCP connections in each direction, each with a thread at both ends
    #[arg(long, value_name = "N", default_value_t = 1, env = "THALWEG_STREAMS")]
    streams: u32,
    /// How long to measure
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds, env = "THALWEG_SECONDS")]
    seconds: Duration,
    /// Send this long before that without counting, to exclude slow start
    #[arg(long, value_name = "S", default_value = "0", value_parser = seconds, env = "THALWEG_OMIT")]
    omit: Duration,
    /// Interval at which the counters are read
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds, env = "THALWEG_INTERVAL")]
    interval: Duration,
    /// Congestion control of the senders, such as bbr or cubic [default: the system's]
    #[arg(long, value_name = "NAME", env = "THALWEG_CONGESTION")]
    congestion: Option<String>,
    /// Maximum rate of each stream, such as 500Mbit
    #[arg(long, value_name = "RATE", value_parser = rate, env = "THALWEG_PACING")]
    pacing: Option<u64>,
    /// `off`: the throughput of the network; `on`: the throughput with encryption (keys are discarded: it protects
    /// nothing)
    #[arg(long, value_name = "on|off", default_value = "off", action = clap::ArgAction::Set, value_parser = switch, env = "THALWEG_TLS")]
    tls: bool,
    /// Cipher of --tls on, and after a slash the library that carries it at this end, as in `thalweg cp`
    #[arg(long, value_name = "CIPHER[/LIBRARY]", default_value = "auto", env = "THALWEG_CIPHER")]
    cipher: net::cipher::Wanted,
    /// From the server to this host
    #[arg(long, conflicts_with = "both", env = "THALWEG_REVERSE")]
    reverse: bool,
    /// Both directions at once
    #[arg(long, env = "THALWEG_BOTH")]
    both: bool,
    /// One JSON object per line instead of text (docs/bench-net.md)
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    /// Write a summary and all intervals of all streams to this directory
    #[arg(long, value_name = "DIR", env = "THALWEG_OUT")]
    out: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<Exit> {
    raise_descriptor_limit();
    net::cipher::want(args.cipher);
    if let Some(listen) = &args.serve {
        return serve(listen);
    }
    let json = args.json.then(Json::default);
    let ended = measure(&args, json.as_ref());
    if let (Some(json), Err(error)) = (&json, &ended) {
        json.error(error);
    }
    ended
}

/// A stream needs a descriptor, in a laboratory two, and the usual limit is 1,024 until one asks for more.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Without it fewer streams are possible, which is said when they are too many.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn measure(args: &Args, json: Option<&Json>) -> Result<Exit> {
    let load = load(args);
    // Asked again by the measurement; here before a laboratory is built.
    load.check().map_err(|problem| crate::exit::usage(problem, "`thalweg bench net --help` lists the bounds"))?;
    let mut on_event = |event: Event<'_>| match (json, event) {
        (Some(json), Event::Started(peers)) => json.start(&load, peers),
        (Some(json), Event::Interval(interval)) => json.interval(interval),
        (None, Event::Started(peers)) => note(&show::start(&load, peers)),
        (None, Event::Interval(interval)) => say(&show::interval(interval)),
    };
    let outcome = match (&args.lab, &args.host) {
        (Some(wanted), _) => {
            let scenario = Wanted::new(wanted, args.lab_set.clone()).read()?;
            lab::unprivileged::become_root().map_err(|e| of_net(&e.into()))?;
            let interrupt = Interrupt::watch()?;
            let lab = Lab::up(scenario).map_err(|e| of_net(&e.into()))?;
            netload::run_in(&lab, &Hosts::of(&lab), &load, interrupt.flag(), &mut on_event)
        }
        (None, host) => {
            let interrupt = Interrupt::watch()?;
            let address = address(host.as_deref().unwrap_or_default());
            netload::run(&address, &load, interrupt.flag(), &mut on_event)
        }
    };
    let outcome = outcome.map_err(|e| of_net(&e))?;
    if let Some(dir) = &args.out {
        netload::write(&outcome, &regenerate(), dir).map_err(|e| of_net(&e))?;
    }
    present(&outcome, json);
    Ok(Exit::Done)
}

fn load(args: &Args) -> Load {
    let direction = match (args.reverse, args.both) {
        (true, _) => Direction::Reverse,
        (_, true) => Direction::Both,
        _ => Direction::Forward,
    };
    Load {
        streams: args.streams,
        duration: args.seconds,
        omitted: args.omit,
        interval: args.interval,
        direction,
        congestion: args.congestion.clone(),
        pacing_bits_per_second: args.pacing,
        is_encrypted: args.tls,
        ..Load::default()
    }
}

fn present(outcome: &Outcome, json: Option<&Json>) {
    match json {
        Some(json) => json.done(outcome),
        None => say(&show::outcome(outcome)),
    }
}

fn say(lines: &[String]) {
    for text in lines {
        line(text);
    }
}

/// Serves until a signal.
fn serve(listen: &str) -> Result<Exit> {
    let interrupt = Interrupt::watch()?;
    let server = Server::bind(&address(listen), Limits::default()).map_err(|e| of_net(&e))?;
    line(&format!("ready on {}", server.local_addr()));
    if server.local_addr().ip().is_loopback() {
        note(&format!("only this host can reach it; `--serve [::]:{PORT_DEFAULT}` takes connections from anywhere"));
    }
    let stopper = server.stopper();
    let watched = interrupt.clone();
    let watch = move || {
        while !watched.wait(Duration::from_secs(3600)) {}
        stopper.stop();
    };
    std::thread::Builder::new()
        .spawn(watch)
        .map_err(|e| error(Exit::Failed, format!("watch for signals: {}", plain(&e)), "try again"))?;
    server.serve(|served| note(&show::served(&served))).map_err(|e| of_net(&e))?;
    Ok(Exit::Done)
}

/// The command without where the program lies.
fn regenerate() -> String {
    ["thalweg".into()].into_iter().chain(std::env::args().skip(1)).collect::<Vec<_>>().join(" ")
}

/// `HOST:PORT`, with the usual port where none is given.
fn address(text: &str) -> String {
    let has_port = text
        .rsplit_once(':')
        .is_some_and(|(host, port)| port.parse::<u16>().is_ok() && (host.ends_with(']') || !host.contains(':')));
    match text {
        _ if has_port => text.to_owned(),
        _ if text.contains(':') && !text.starts_with('[') => format!("[{text}]:{PORT_DEFAULT}"),
        _ => format!("{text}:{PORT_DEFAULT}"),
    }
}

/// Reads `10` or `0.5`, and what laboratories understand: `500ms`.
fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string()),
        Err(_) => lab::scenario::quantity::parse_duration(text).map_err(|e| e.to_string()),
    }
}

fn rate(text: &str) -> Result<u64, String> {
    let rate = lab::scenario::quantity::parse_rate(text).map_err(|e| e.to_string())?;
    rate.ok_or_else(|| "a rate is needed, such as 500Mbit".into())
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("say `on` or `off`".into()),
    }
}

/// An error of the measurement with what to do about it.
fn of_net(e: &bench::error::Error) -> Error {
    let (exit, hint) = match e.kind {
        Kind::Unreachable => (
            Exit::Unreachable,
            "start the other end on that host: `thalweg bench net --serve '[::]:7741'`, and open the port in its firewall",
        ),
        Kind::Incompatible => {
            (Exit::Version, "run the same version of `thalweg bench net` on both hosts, and check the port")
        }
        Kind::Refused => (Exit::Refused, "ask for less, or wait until its other clients are done"),
        Kind::Usage => (Exit::Usage, "see `thalweg bench net --help`"),
        Kind::Cancelled => (Exit::Interrupted, "start it again when you like"),
        Kind::Failed => (Exit::Failed, "the reason is above; the other end may say more"),
        _ => return crate::commands::generate::of_bench(e),
    };
    error(exit, e.chain(), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_get_the_usual_port_and_times_may_have_a_unit() {
        assert_eq!(["h", "h:1", "::1", "[::]:5"].map(address), ["h:7741", "h:1", "[::1]:7741", "[::]:5"]);
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds("250ms"), Ok(Duration::from_millis(250)));
        assert!(seconds("-1").is_err() && seconds("soon").is_err() && rate("fast").is_err());
        assert_eq!(rate("1Gbit"), Ok(1_000_000_000));
    }
}
