//! `thalweg serve`: an endpoint in the foreground.
//!
//! Standard output gets one line when the endpoint is ready; everything else is the log, on standard error.

use super::stdio;
use crate::args::values::{address, buffer, cache_bytes, memory_bytes};
use crate::exit::{Result, usage};
use crate::interrupt::Interrupt;
use crate::notify::Notify;
use crate::output;
use crate::settings::cluster::Engine;
use daemon::metrics::Place;
use daemon::transfer_log::{self, Chained};
use daemon::{Activity, CacheOptions, EndpointBook, Paths, Privileges, ServeOptions, Served};
use model::Exit;
use model::name::Escaped;
use model::quantity::{ByteCount, Rate};
use signal_hook::consts::SIGUSR1;
use signal_hook::iterator::Signals;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long sessions that were told to end, and the record of their jobs, are waited for.
const DRAIN_PATIENCE: Duration = Duration::from_secs(30);

/// Run an endpoint: let others send to and fetch from a directory on this host
///
/// Stays in the foreground. Creates its identity on the first start, writes the ticket file when ready, and prints one
/// line. Anyone with the ticket can add the endpoint; guard it like a password, or make limited ones with
/// `thalweg ticket new`. On the first Ctrl-C or SIGTERM it tells the clients and ends their sessions; they reconnect
/// and continue once an endpoint is running again. A second signal, at least 0.3 s later, ends it at once. On SIGUSR1
/// it reports what it is doing.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg serve --listen '[::]:7740' --root /data --ticket-file ticket")]
pub struct Args {
    /// Where to listen; '[::]:7740' accepts connections to any address of this host, including IPv4
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7740", value_parser = address, env = "THALWEG_LISTEN")]
    listen: String,
    /// The directory that clients see; nothing outside it can be reached. Not needed with [roots] in the configuration
    #[arg(long, value_name = "DIR", env = "THALWEG_ROOT")]
    root: Option<PathBuf>,
    /// What the endpoint calls itself [default: the host's name]
    #[arg(long, env = "THALWEG_NAME")]
    name: Option<String>,
    /// Where identity, known clients and logs are kept [default: $XDG_STATE_HOME/thalweg]
    #[arg(long, value_name = "DIR", env = "THALWEG_STATE_DIR")]
    state_dir: Option<PathBuf>,
    /// Write the ticket here once the endpoint is ready, readable by this user only
    #[arg(long, value_name = "FILE", env = "THALWEG_TICKET_FILE")]
    ticket_file: Option<PathBuf>,
    /// The address for clients to use, if it is not the one listened on; may be given several times
    #[arg(long, value_name = "ADDR[:PORT]", env = "THALWEG_ADVERTISE", value_delimiter = ',')]
    advertise: Vec<String>,
    /// Let clients fetch, not send
    #[arg(long, env = "THALWEG_READ_ONLY")]
    read_only: bool,
    /// Memory for the blocks of all streams of all clients; one stream takes 952 KiB
    #[arg(long, value_name = "SIZE", default_value = "96MiB", value_parser = memory_bytes, env = "THALWEG_MEMORY")]
    memory: usize,
    /// Let what clients send wait here, on fast local storage of this size, while the storage below the root cannot keep up:
    /// DIR:SIZE, such as /nvme/thalweg:2TiB
    #[arg(long, value_name = "DIR:SIZE", value_parser = buffer, env = "THALWEG_BUFFER")]
    buffer: Option<(PathBuf, u64)>,
    /// Be a cache of the named sets of these endpoints, which `thalweg endpoint add` made known here; --root is where it keeps them. What is
    /// asked for is fetched once for all who ask (docs/sets.md)
    #[arg(
        long,
        value_name = "NAME[,NAME...]",
        requires = "cache_size",
        conflicts_with_all = ["buffer", "join"],
        value_delimiter = ',',
        env = "THALWEG_CACHE"
    )]
    cache: Vec<String>,
    /// How much --cache keeps; what was used longest ago makes room
    #[arg(long, value_name = "SIZE", value_parser = cache_bytes, requires = "cache", env = "THALWEG_CACHE_SIZE")]
    cache_size: Option<u64>,
    /// Congestion control of the connections, such as bbr or cubic [default: the system's]
    #[arg(long, value_name = "NAME", env = "THALWEG_CC")]
    cc: Option<String>,
    /// Cipher, and after a slash the library that carries it, as in `thalweg cp`; clients that do not have it cannot connect
    #[arg(long, value_name = "CIPHER[/LIBRARY]", default_value = "auto", env = "THALWEG_CIPHER")]
    cipher: net::cipher::Wanted,
    /// Keep access to all files of this user, even if the kernel could confine the endpoint to its root and state
    #[arg(long)]
    no_landlock: bool,
    /// As root, read and write any user's files, and keep owners, set-id bits and devices for clients that ask for it;
    /// without it, root has only the rights of an ordinary user here
    #[arg(long = "super")]
    is_super: bool,
    /// Check that no line of the transfer log in the state directory was changed or removed, and exit
    #[arg(long, env = "THALWEG_VERIFY_LOG")]
    verify_log: bool,
    /// Let clients into other file systems mounted below the root
    #[arg(long)]
    cross_mounts: bool,
    /// Carry out no jobs between endpoints on behalf of clients, and give up the right to open connections
    #[arg(long, env = "THALWEG_NO_ORDERS")]
    no_orders: bool,
    /// Be one of several hosts of an endpoint: the token that `thalweg host invite` made there. The root is the directory that the others
    /// serve, of the same file system (docs/hosts.md)
    #[arg(long, value_name = "FILE", env = "THALWEG_JOIN")]
    join: Option<PathBuf>,
    /// Answer Prometheus at /metrics: a port on loopback, a numeric address with a port, or unix:PATH
    #[arg(long, value_name = "PORT|ADDR:PORT|unix:PATH", env = "THALWEG_METRICS")]
    metrics: Option<Place>,
    /// Be the remote side of a copy over ssh; thalweg starts this automatically, and it takes no other flag
    #[arg(long, hide = true, env = "THALWEG_STDIO")]
    pub stdio: bool,
}

pub fn run(args: Args) -> Result<Exit> {
    if args.stdio {
        return stdio::run();
    }
    if args.verify_log {
        return verify_log(&Paths::from_env()?.with_state(args.state_dir).transfer_log());
    }
    let stored = crate::stores::roots();
    crate::stores::grant(args.memory);
    if args.root.is_some() && !stored.is_empty() {
        return Err(usage(
            "serve was given both a directory and [roots] at stores",
            "omit --root, or run two endpoints, each with a --config and a --state-dir of its own",
        ));
    }
    if args.root.is_none() && stored.is_empty() {
        return Err(usage("serve needs a directory to serve", "name it: thalweg serve --root DIR"));
    }
    if args.ticket_file.as_ref().is_some_and(|file| file.as_os_str() == "-") {
        return Err(usage(
            "serve writes its ticket to a file, not to standard output, which services keep in their logs",
            "name a file; `thalweg ticket new --ticket-file -` prints a limited ticket",
        ));
    }
    let paths = Paths::from_env()?.with_state(args.state_dir.clone());
    check_engine(args.join.is_some(), &paths)?;
    let cache = cache(&args, &paths)?;
    // Of an endpoint of stores it is an empty one.
    let root = args.root.unwrap_or_else(|| paths.state.join("no-root"));
    let options = ServeOptions {
        name: args.name,
        ticket_file: args.ticket_file.clone(),
        advertise: args.advertise,
        read_only: args.read_only || cache.is_some(),
        cache,
        buffer: args.buffer,
        congestion: args.cc,
        memory_bytes: args.memory,
        confine: !args.no_landlock,
        crosses_mounts: args.cross_mounts,
        join: args.join,
        coordinator: crate::coordinator::named()?,
        takes_orders: !args.no_orders,
        metrics: args.metrics,
        stored,
        privileges: if args.is_super { Privileges::Super } else { Privileges::None },
        ..ServeOptions::new(args.listen, root, paths.state)
    };
    net::cipher::want(args.cipher);
    let notify = Notify::from_env();
    // Before any thread: a thread that is there already would not be confined.
    let served = Served::start(options)?;
    let interrupt = Interrupt::watch()?;
    watch_for_snapshots(served.activity());
    let mut ready = format!("ready on {}, identity {}", served.local_addr(), served.pin());
    match &args.ticket_file {
        Some(file) => ready.push_str(&format!(", ticket in {}", Escaped(file.as_os_str().as_bytes()))),
        None => ready.push_str(", no ticket (give --ticket-file to enrol clients)"),
    }
    output::line(&ready);
    let watch = notify.ready(&ready, served.pulse(), &interrupt, DRAIN_PATIENCE);
    served.run_until(interrupt.flag(), DRAIN_PATIENCE)?;
    if let Some(watch) = watch.filter(|_| interrupt.is_set()) {
        // It has only to say so; a failure of its own is none of the endpoint's.
        let _ = watch.join();
    }
    Ok(Exit::Done)
}

/// What the configuration says of this host has to be what it is.
fn check_engine(joins: bool, paths: &Paths) -> Result<()> {
    let has_head = joins || daemon::hosts::has_head(&paths.state);
    match crate::coordinator::engine() {
        Some(Engine::Head) if !has_head => Err(usage(
            "[cluster] engine = \"head\" says that this host belongs to another one, but it has not joined any",
            "give the token that `thalweg host invite` made there with --join FILE",
        )),
        Some(Engine::Embedded) if has_head => Err(usage(
            "[cluster] engine = \"embedded\" says that this host keeps the list of hosts, but it belongs to another",
            "write engine = \"head\", or use another --state-dir",
        )),
        _ => Ok(()),
    }
}

/// Looked up before this process gives up the directory that says so.
fn cache(args: &Args, paths: &Paths) -> Result<Option<CacheOptions>> {
    let Some(size_bytes) = args.cache_size else { return Ok(None) };
    if args.root.is_none() {
        return Err(usage(
            "a cache needs a directory to keep sets in",
            "name it: thalweg serve --root DIR --cache NAME",
        ));
    }
    let book = EndpointBook::new(paths.endpoints());
    let origins = args.cache.iter().map(|name| book.get(name)).collect::<Result<Vec<_>>>()?;
    Ok(Some(CacheOptions { origins, size_bytes }))
}

/// The newest digest is for comparison with one that was noted elsewhere: lines missing at the end break no chain.
fn verify_log(path: &Path) -> Result<Exit> {
    let Chained { files, lines, unchained, head } = transfer_log::verify(path)?;
    let (files, lines) = (output::counted(files.into(), "file", "files"), output::counted(lines, "line", "lines"));
    output::line(&format!("{lines} in {files} follow each other; the digest of the newest is {head}"));
    if unchained > 0 {
        let unchained = output::counted(unchained, "line names", "lines name");
        output::note(&format!("{unchained} no line before it: torn, or written by a release before digests"));
    }
    Ok(Exit::Done)
}

/// Tells what the endpoint is doing whenever SIGUSR1 comes. Without the thread the signal is still caught and harms
/// nothing.
fn watch_for_snapshots(activity: Activity) {
    let Ok(mut signals) = Signals::new([SIGUSR1]) else { return };
    let run = move || {
        for _ in signals.forever() {
            snapshot(&activity).iter().for_each(|line| output::note(line));
        }
    };
    let _ = std::thread::Builder::new().name("snapshot".into()).spawn(run);
}

fn snapshot(activity: &Activity) -> Vec<String> {
    let jobs = activity.jobs();
    let sessions = output::counted(activity.sessions() as u64, "session", "sessions");
    let mut lines = vec![format!("snapshot: {sessions}, {}", output::counted(jobs.len() as u64, "job", "jobs"))];
    lines.extend(jobs.iter().map(|job| {
        let files = output::counted(job.files, "file", "files");
        let what = if job.direction == "in" { "sends" } else { "fetches" };
        let (bytes, seconds) = (ByteCount(job.bytes), output::duration(job.seconds));
        format!("snapshot: {} {what}: {files}, {bytes} delivered in {seconds}, job {}", job.client, job.job)
    }));
    lines.extend(activity.allotted().iter().filter_map(|one| {
        let rate = Rate { bytes_per_second: one.rate? as f64 };
        Some(format!("snapshot: job {} of class {} may have {rate}: {}", one.who.job, one.who.class, one.by))
    }));
    lines
}
