//! `thalweg cp`: copies, and says what moved, how fast and how safely, and what limited it.

use crate::args::ssh::SshArgs;
use crate::args::values::BufferWish;
use crate::args::{elsewhere, values};
use crate::commands::plan::{follow, replay};
use crate::exit::{self, Result, usage};
use crate::fidelity::FidelityArgs;
use crate::interrupt::Interrupt;
use crate::limits::LimitArgs;
use crate::output;
use crate::output::human;
use crate::output::json::Events;
use crate::output::meant;
use crate::output::progress::Mode;
use crate::output::report::Report;
use crate::selection::{DecisionArgs, SelectionArgs, check_list_to_send};
use crate::transfer::orders::Ordered;
use crate::transfer::third_party::{self, Sending, TwoHosts};
use crate::transfer::{self, Finished, HostNames, Request, Ssh};
use ::transfer::Ended;
use daemon::reservation::{Hook, Reserved, Wanted};
use model::follow::{Follow, View};
use model::options::{Buffer, CHUNK_BYTES_DEFAULT, CHUNK_BYTES_MIN, Deletion, Depths, Engine, Fsync, Verify, Wait};
use model::pace::Timetable;
use model::{DigestAlgorithm, Exit, Fidelity, JobId, Location, Name, PathWish, TransferOptions, TransferSpec};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Copy files and trees to an endpoint, from one, or within this host
///
/// SRC and DST are paths on this host, NAME:PATH at an endpoint (relative to its root), `[USER@]HOST:PATH` on any host
/// that ssh reaches (relative to the home directory there), tw://ADDR:PORT/PATH, a store such as s3://BUCKET/KEY, davs://,
/// sftp:// or gsiftp:// (builds with all features), or `-` for standard input or output. As in rsync, `dir/` means the
/// contents of dir and `dir` the directory itself. DST is a directory, created if missing; only if a single file is copied
/// to a name without a trailing slash that is not a directory is DST the new name. Write a file called `a:b` as ./a:b.
/// gen:COUNTxSIZE generates files as they are read and null: discards what it receives, here or after NAME:, to measure a
/// path without storage.
///
/// Files that are already there with the same size and time are skipped. To resume an interrupted copy, give the same
/// command again. Every byte is verified before its file appears.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "thalweg cp [OPTIONS] <SRC>... <DST>",
    after_help = "Examples:\n\
\x20   thalweg cp results/ lab:results/          send the contents of a directory\n\
\x20   thalweg cp lab:data/run7.h5 .             fetch one file\n\
\x20   thalweg cp results/ user@host:results/    the same over ssh, without an endpoint there\n\
\x20   thalweg cp one:data/ two:data/            between two endpoints or two hosts, straight from one to the other\n\
\x20   thalweg cp -aHAXS /srv/ backup:srv/       with owners, hard links, ACLs, attributes and holes\n\
\x20   tar c . | thalweg cp - lab:backup.tar     send what a program writes"
)]
pub struct Args {
    /// What to copy, and finally the destination; several sources must be on the same side
    #[arg(required = true, value_name = "LOCATION")]
    locations: Vec<OsString>,
    /// Another holder of the same: parts of large files and whole small ones come from each, as fast as it can, and every part is
    /// compared with what the first holder has. Repeat it for each (docs/replicas.md)
    #[arg(long, value_name = "NAME:PATH", env = "THALWEG_REPLICA")]
    replica: Vec<OsString>,
    /// Send from several hosts, each a part: all hosts of the endpoint of SRC, N of them, or endpoints by name that see the same
    /// files [default between endpoints: all] (docs/hosts.md)
    #[arg(long, value_name = "all|N|NAME,...", value_delimiter = ',', env = "THALWEG_HOSTS")]
    hosts: Vec<String>,
    /// Receive at several hosts: the same for the endpoint of DST
    #[arg(long, value_name = "all|N|NAME,...", value_delimiter = ',', env = "THALWEG_TO_HOSTS")]
    to_hosts: Vec<String>,
    /// How files become durable before they appear: one by one, in groups, or without waiting
    #[arg(long, value_name = "file|batch|never", default_value = "batch", env = "THALWEG_FSYNC")]
    fsync: Fsync,
    /// Check what was sent, or also read it back from the destination's storage; none, only within this host, leaves
    /// copying to the kernel where possible
    #[arg(long, value_name = "stream|reread|none", default_value = "stream", env = "THALWEG_VERIFY")]
    verify: Verify,
    /// The digest that is verified and listed; blake3 is cryptographic
    #[arg(long, value_name = "crc64nvme|blake3", default_value = "crc64nvme", env = "THALWEG_DIGEST")]
    digest: DigestAlgorithm,
    /// Data streams [default: chosen from cores, buffers and distance; see --explain]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64), env = "THALWEG_STREAMS")]
    streams: Option<u32>,
    /// Network paths to use: all there are, a number of them, or pairs of addresses such as 10.1.0.1=10.1.0.2,10.2.0.1=10.2.0.2;
    /// with auto a second one is tried while the transfer runs and kept if it carries more
    #[arg(long, value_name = "auto|all|N|LOCAL=REMOTE", default_value = "auto", env = "THALWEG_PATHS")]
    paths: PathWish,
    /// Start with the settings of a plan: FILE as printed by `thalweg plan SRC DST --json`, or auto, from the
    /// destination's calibration. The number of streams is still tuned while the copy runs
    #[arg(long, value_name = "FILE|auto", conflicts_with = "streams", env = "THALWEG_PLAN")]
    plan: Option<OsString>,
    /// Memory for the blocks of all streams on this side; one stream takes 952 KiB
    #[arg(long, value_name = "SIZE", default_value = "96MiB", value_parser = values::memory_bytes, env = "THALWEG_MEMORY")]
    memory: usize,
    /// Congestion control of the sender, such as bbr or cubic [default: its system's]
    #[arg(long, value_name = "NAME", value_parser = values::congestion, env = "THALWEG_CC")]
    cc: Option<String>,
    /// Cipher, and after a slash the library that carries it: aes-128-gcm, aes-256-gcm or chacha20-poly1305; aws-lc or ring; such
    /// as auto/ring. auto measures both, in less than 2 ms; see --explain
    #[arg(long, value_name = "CIPHER[/LIBRARY]", default_value = "auto", env = "THALWEG_CIPHER")]
    cipher: net::cipher::Wanted,
    /// How storage is read and written; auto finds out which way suits it
    #[arg(long, value_name = "auto|pread|uring", default_value = "auto", env = "THALWEG_ENGINE")]
    engine: Engine,
    /// Blocks in flight for each stream where storage is read and written through io_uring, such as 8 or 4,32. With auto, a number
    /// other than 0 begins with io_uring on that side; 0 leaves it to the engine
    #[arg(long, value_name = "N[,N]", default_value = "0", env = "THALWEG_DEPTH")]
    depth: Depths,
    /// The unit of verification and resumption: a power of two from 1MiB to 1GiB [default: 8MiB, or 2MiB
    /// where a round trip to the other host takes 10 ms or more]
    #[arg(long, value_name = "SIZE", value_parser = values::chunk_bytes, env = "THALWEG_CHUNK_SIZE")]
    chunk_size: Option<u64>,
    /// Write what was measured and decided about the number of streams while the copy ran; `thalweg plan replay` makes the decisions
    /// again
    #[arg(long, value_name = "FILE", env = "THALWEG_TUNING_LOG")]
    tuning_log: Option<PathBuf>,
    /// Write a manifest of the files delivered by this run: digest, size and path; `thalweg sum -c` verifies it later
    #[arg(long, value_name = "FILE", env = "THALWEG_MANIFEST")]
    manifest: Option<PathBuf>,
    /// Write the paths that failed, one per line, with the reasons as comments
    #[arg(long, value_name = "FILE", env = "THALWEG_REPORT")]
    report: Option<PathBuf>,
    /// Whether content may wait in the far endpoint's buffer (`serve --buffer`) while storage cannot keep up there; DIR:SIZE is a
    /// buffer on this host, which reads slow sources ahead, or receives for slow storage (docs/buffers.md)
    #[arg(
        long,
        value_name = "auto|always|never|DIR:SIZE",
        default_value = "auto",
        value_parser = values::buffer_wish,
        env = "THALWEG_BUFFER"
    )]
    buffer: BufferWish,
    /// When to end: once everything is delivered, or as soon as the rest is verified and durable in the far endpoint's
    /// buffer (exit code 9); the endpoint then delivers it
    #[arg(long, value_name = "delivered|buffered", default_value = "delivered", env = "THALWEG_WAIT")]
    wait: Wait,
    /// Never replace an existing file
    #[arg(long, alias = "ignore-existing", env = "THALWEG_NO_CLOBBER")]
    no_clobber: bool,
    /// Permission bits of files and of directories, such as 640,750 [default: the source's, less the umask]
    #[arg(long, value_name = "FILES[,DIRS]", value_parser = values::chmod, env = "THALWEG_CHMOD")]
    chmod: Option<(u32, u32)>,
    /// How often to retry after a lost connection; progress resets the count
    #[arg(long, value_name = "N", default_value_t = 5, env = "THALWEG_RETRIES")]
    retries: u32,
    /// Let other programs use processors and disks first: 1 to 19, higher yields more [default without a number: 10]
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "10",
        value_parser = clap::value_parser!(i32).range(1..=19),
        env = "THALWEG_NICE"
    )]
    nice: Option<i32>,
    /// Reserve a network path first: a program that is asked before the copy begins and told when it is over (docs/rates.md)
    #[arg(long, value_name = "PROGRAM", conflicts_with = "detach", env = "THALWEG_RESERVE")]
    reserve: Option<PathBuf>,
    /// Newline-delimited JSON events on standard output (docs/json.md); the last one sums up
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    /// How progress is shown on standard error
    #[arg(
        long,
        value_name = "auto|bar|plain|none",
        default_value = "auto",
        hide_possible_values = true,
        env = "THALWEG_PROGRESS"
    )]
    progress: Mode,
    /// Afterwards, say what was chosen automatically, and why
    #[arg(long, env = "THALWEG_EXPLAIN")]
    explain: bool,
    /// Only errors
    #[arg(short, long, env = "THALWEG_QUIET")]
    quiet: bool,
    /// Also report automatic choices and every file that failed; given twice, logs each step
    #[arg(short, long, action = clap::ArgAction::Count, env = "THALWEG_VERBOSE")]
    pub verbose: u8,
    /// Between two endpoints: hand the job in, print its id and end; `thalweg job watch ID` comes back to it
    #[arg(long, env = "THALWEG_DETACH")]
    detach: bool,
    /// Accepted for habit: directories are always copied whole
    #[arg(short, long, env = "THALWEG_RECURSIVE")]
    recursive: bool,
    #[command(flatten)]
    ssh: SshArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    decisions: DecisionArgs,
    #[command(flatten)]
    fidelity: FidelityArgs,
    #[command(flatten)]
    limits: LimitArgs,
}

impl Args {
    pub fn sources(&self) -> Result<&[OsString]> {
        Ok(values::sources_and_destination(&self.locations)?.0)
    }

    pub fn locations(&self) -> &[OsString] {
        &self.locations
    }

    /// A list says what of the source is taken.
    pub fn is_listed(&self) -> bool {
        self.selection.is_listed()
    }
}

/// What a command asks beyond copying.
pub struct More {
    pub command: &'static str,
    pub deletion: Option<Deletion>,
    pub backup: Option<Vec<u8>>,
    pub follow: Option<Follow>,
    pub view: Option<View>,
    pub sealed_list: Option<Name>,
}

pub fn run(args: Args) -> Result<Exit> {
    run_with(&args, &More { command: "cp", deletion: None, backup: None, follow: None, view: None, sealed_list: None })
}

pub fn run_with(args: &Args, more: &More) -> Result<Exit> {
    let started = Instant::now();
    let Named { mut sources, mut replicas, destination } = named(args)?;
    if args.is_listed() {
        replicas.iter_mut().for_each(Location::name_contents);
        let [source] = &mut sources[..] else {
            return Err(usage("a list of files applies to one source", "give a command for each source"));
        };
        source.name_contents();
    }
    let mut request = request(args, more, sources, destination)?;
    if !replicas.is_empty() {
        // What comes from one holder is compared with what another one has: a checksum would not do.
        request.spec.options.digest = DigestAlgorithm::Blake3;
        request.spec.replicas = replicas;
    }
    let planned = follow::plan(args.plan.as_ref(), &mut request)?;
    if let Some(nice) = args.nice {
        give_way(nice)?;
    }
    if let Some(hosts) = TwoHosts::of(&request)? {
        let flags = elsewhere::given_flags::<Args>("cp", &third_party::left_out());
        return match flags.and_then(|flags| hosts.run(&request, flags, request.progress != Mode::None)) {
            Err(error) if args.json => carry_out(args, &request, |_, _| Err(error)),
            ended => ended,
        };
    }
    if args.detach
        && let Some(ordered) = Ordered::of(&request)?
    {
        return ordered.detach(&request, args.json);
    }
    let mut expected = Vec::new();
    let exit = carry_out(args, &request, |interrupt, events| {
        let reserved = reserve(args, &request, interrupt)?;
        let ran = transfer::run(&request, started, interrupt, events);
        let released = reserved.map_or(Ok(()), Reserved::release);
        let mut finished = ran?;
        if let Err(e) = released {
            finished.add_error(e);
        }
        follow::note(args.plan.as_ref(), planned.as_ref(), &request, &mut finished);
        replay::keep(args.tuning_log.as_deref(), &mut finished);
        expected = follow::expected(planned.as_ref(), &request, &finished.ended, interrupt);
        if let (true, Some(report)) = (args.json, &mut finished.ended.report) {
            report.notes.append(&mut expected);
        }
        Ok(finished)
    })?;
    if !args.quiet {
        expected.iter().for_each(|line| output::note(line));
    }
    Ok(exit)
}

/// What the arguments name.
struct Named {
    sources: Vec<Location>,
    /// Other holders of the one source.
    replicas: Vec<Location>,
    destination: Location,
}

/// Where no source stands alone, the first of the holders is the one that the others are compared with.
fn named(args: &Args) -> Result<Named> {
    let has_source = args.locations.len() > 1 || args.replica.is_empty();
    let locations = if has_source { args.locations.clone() } else { [&args.replica[..1], &args.locations].concat() };
    let replicas = if has_source { &args.replica[..] } else { &args.replica[1..] };
    let (sources, destination) = values::sources_and_destination(&locations)?;
    let read = |locations: &[OsString]| locations.iter().map(|one| values::location(one)).collect::<Result<Vec<_>>>();
    Ok(Named { sources: read(sources)?, replicas: read(replicas)?, destination: values::location(destination)? })
}

fn reserve(args: &Args, request: &Request, interrupt: &Interrupt) -> Result<Option<Reserved>> {
    let Some(program) = &args.reserve else { return Ok(None) };
    let TransferSpec { sources, destination, options, .. } = &request.spec;
    let sources: Vec<_> = sources.iter().map(ToString::to_string).collect();
    let wanted = Wanted {
        job: JobId(net::random_bytes()).to_string(),
        source: sources.join(" "),
        destination: destination.to_string(),
        rate: options.pace.as_deref().and_then(Timetable::rate_min),
        class: options.class.unwrap_or_default().name().to_owned(),
    };
    Hook::new(program).reserve(&wanted, &|| interrupt.is_set()).map(Some)
}

/// Runs a transfer that was written down, with flags of `cp` that say how it is shown.
#[cfg(feature = "hub")]
pub fn run_spec(
    command: &'static str,
    spec: TransferSpec,
    flags: Vec<String>,
    buffer: Option<(PathBuf, u64)>,
    progress: Mode,
) -> Result<Exit> {
    let started = Instant::now();
    let args = read_elsewhere(flags)?;
    check_buffer(buffer.as_ref(), &spec.sources, &spec.destination)?;
    let ssh = Ssh { options: args.ssh.options(), is_allowed: args.ssh.is_allowed(), is_quiet: args.quiet };
    let progress = progress.resolved(args.json, args.quiet);
    let hosts = HostNames { from: args.hosts.clone(), to: args.to_hosts.clone() };
    let request = Request { command, spec, buffer, catalogue: None, manifest: None, progress, ssh, hosts };
    carry_out(&args, &request, |interrupt, events| transfer::run(&request, started, interrupt, events))
}

fn check_buffer(buffer: Option<&(PathBuf, u64)>, sources: &[Location], destination: &Location) -> Result<()> {
    if buffer.is_some() && sources.iter().any(Location::is_remote) == destination.is_remote() {
        return Err(usage(
            "--buffer DIR:SIZE is for copies between this host and another",
            "omit it; between two endpoints each uses a buffer of its own (`serve --buffer`)",
        ));
    }
    Ok(())
}

/// Reads flags that were given elsewhere. What they say of every connection of this process holds from here on.
pub fn read_elsewhere(flags: Vec<String>) -> Result<Args> {
    let words = flags.into_iter().map(OsString::from).chain(["--", "SRC", "DST"].map(OsString::from));
    let args: Args = elsewhere::parse_words("cp", words)?;
    net::cipher::want(args.cipher);
    Ok(args)
}

/// Runs a copy from here for a command that was given on another host.
pub fn run_elsewhere(args: Args, sending: &Sending) -> Result<Exit> {
    let started = Instant::now();
    args.nice.map_or(Ok(()), give_way)?;
    let (sources, destination) = sending.locations();
    let more = More { command: "cp", deletion: None, backup: None, follow: None, view: None, sealed_list: None };
    let mut request = request(&args, &more, sources, destination)?;
    request.spec.choice.listed = sending.listed.clone().or(request.spec.choice.listed);
    carry_out(&args, &request, |interrupt, events| sending.run(&request, started, interrupt, events))
}

fn carry_out(
    args: &Args,
    request: &Request,
    run: impl FnOnce(&Interrupt, Option<Arc<Events>>) -> Result<Finished>,
) -> Result<Exit> {
    net::cipher::want(args.cipher);
    let events = args.json.then(|| Arc::new(Events::default()));
    let unwritten = |file: &Path, e: std::io::Error| exit::of_written("write report", file, &e);
    let opened = args.report.as_deref().map(|file| Report::open(file).map_err(|e| unwritten(file, e))).transpose();
    let run = || run(&Interrupt::watch()?, events.clone());
    let (report, ran) = match opened {
        Ok(report) => (report, run()),
        Err(e) => (None, Err(e)),
    };
    let mut finished = ran.unwrap_or_else(|error| Finished::before_the_start(request, error));
    let reported = report.map_or(Ok(()), |report| report.finish(&finished.ended, finished.is_whole(request)));
    if let (Some(file), Err(e)) = (&args.report, reported) {
        finished.add_error(unwritten(file, e));
    }
    if output::nobody_reads() {
        // As `cat` ends when its reader has seen enough: that is no failure to talk about.
        return Ok(Exit::BrokenPipe);
    }
    if !args.json && !args.quiet {
        tell(args, &finished.ended);
        meant::notes(request, &finished.ended).iter().for_each(|line| output::note(line));
    }
    if let Some(error) = &finished.error {
        output::error(error);
    }
    if let Some(events) = &events {
        if let Some(error) = &finished.error {
            events.error(error, None);
        }
        events.done(&finished.ended, &finished.durable, finished.exit());
    }
    Ok(finished.exit())
}

/// Before any thread: they inherit it. The kernel derives the disk's priority from it too.
fn give_way(nice: i32) -> Result<()> {
    let before = rustix::process::getpriority_process(None).unwrap_or(0);
    // Whoever started us with less keeps it so: nobody but root could go back up.
    let set = rustix::process::setpriority_process(None, nice.max(before));
    set.map_err(|e| exit::error(Exit::Failed, format!("lower the priority: {}", exit::plain(&e)), "omit --nice"))
}

fn request(args: &Args, more: &More, sources: Vec<Location>, destination: Location) -> Result<Request> {
    let mut options = options(args, more);
    let has_no_tree = |location: &Location| *location == Location::Pipe || location.is_synthetic();
    let is_without_tree = sources.iter().chain([&destination]).any(has_no_tree);
    if is_without_tree {
        // Nothing but content is said of such objects.
        options.fidelity = Fidelity::default();
    }
    let choice = args.selection.choice()?;
    let lane_bytes = mover::compression::sender_lane_bytes(options.compression);
    if args.memory < lane_bytes {
        return Err(usage(
            format!("one stream with compression takes {} of memory", model::quantity::ByteCount(lane_bytes as u64)),
            "raise --memory, or omit -z",
        ));
    }
    if sources.iter().any(Location::is_remote) {
        check_list_to_send(&choice)?;
    }
    let buffer = match &args.buffer {
        BufferWish::Here(path, bytes) => Some((path.clone(), *bytes)),
        BufferWish::How(_) => None,
    };
    check_buffer(buffer.as_ref(), &sources, &destination)?;
    Ok(Request {
        command: more.command,
        spec: TransferSpec {
            sources,
            destination,
            replicas: Vec::new(),
            choice,
            options,
            may_shorten_chunks: args.chunk_size.is_none() && !args.decisions.delta,
            streams: args.streams,
            streams_first: None,
            paths: args.paths.clone(),
            congestion: args.cc.clone(),
            memory_bytes: Some(args.memory),
            // An instrument goes on, whatever the network does meanwhile.
            retries: if more.follow.is_some() { u32::MAX } else { args.retries },
            bounds: args.limits.bounds(),
        },
        buffer,
        catalogue: None,
        manifest: args.manifest.clone(),
        progress: args.progress.resolved(args.json, args.quiet),
        ssh: Ssh { options: args.ssh.options(), is_allowed: args.ssh.is_allowed(), is_quiet: args.quiet },
        hosts: HostNames { from: args.hosts.clone(), to: args.to_hosts.clone() },
    })
}

fn options(args: &Args, more: &More) -> TransferOptions {
    let chunk_bytes = if args.decisions.delta { CHUNK_BYTES_MIN } else { CHUNK_BYTES_DEFAULT };
    let mut options = TransferOptions {
        fsync: args.fsync,
        verify: args.verify,
        digest: args.digest,
        chunk_bytes: args.chunk_size.unwrap_or(chunk_bytes),
        no_clobber: args.no_clobber,
        chmod: args.chmod,
        engine: args.engine,
        depths: args.depth,
        deletion: more.deletion,
        backup: more.backup.clone(),
        follow: more.follow.clone().map(Arc::new),
        view: more.view.clone().map(Arc::new),
        sealed_list: more.sealed_list.clone(),
        fidelity: args.fidelity.fidelity(),
        buffer: match args.buffer {
            BufferWish::How(how) => how,
            BufferWish::Here(..) => Buffer::Auto,
        },
        wait: args.wait,
        ..TransferOptions::default()
    };
    args.decisions.apply(&mut options, args.quiet, args.json);
    args.limits.apply(&mut options);
    options
}

/// What a person reads at the end.
fn tell(args: &Args, ended: &Ended) {
    let kept = if args.verbose > 0 { usize::MAX } else { human::FAILURES_SHOWN };
    for line in human::failures(ended, kept).iter().chain(&human::summary(ended)) {
        output::note(line);
    }
    if args.explain || args.verbose > 0 {
        human::notes(ended).iter().for_each(|line| output::note(line));
    }
    if args.explain {
        human::streams(ended).iter().for_each(|line| output::note(line));
    }
}
