//! `thalweg fetch`: a named set, brought from whoever has it and compared with what its publisher signed. `holders` finds those who
//! have it.

mod holders;

use crate::args::ssh::SshArgs;
use crate::args::values;
use crate::exit::{self, Result, error, usage};
use crate::output::human;
use crate::output::json::Events;
use crate::output::progress::Mode;
use crate::output::{self, shown};
use crate::place::Places;
use crate::transfer::{self, Finished, Reachable, Request, Ssh};
use ::transfer::Means;
use daemon::sets::{Finder, Kept, Trust, close, offer};
use daemon::{EndpointBook, Paths};
use model::name::Escaped;
use model::set::catalogue::{PAGE_BYTES_MAX, PageLine};
use model::set::note::digest_of;
use model::set::signed::PublicKey;
use model::set::{Catalogue, Note, Readers, Signed};
use model::{DigestAlgorithm, Exit, Location, TransferSpec};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// A key's public half is shorter.
const PUBLIC_KEY_BYTES_MAX: u64 = 4096;

/// Fetch a named set from whoever has it, compared with what its publisher signed
///
/// Asks every holder for the set's note and takes the latest that the right key signed; one with a lower serial than was seen before is
/// refused. Every chunk is compared with the catalogue before it counts, so a holder that is wrong costs its own share and no more.
/// Files that are already there with the size and time of the catalogue are skipped. The same command continues after an interruption,
/// and brings what is new after the set was published again. An endpoint can serve what was fetched to others in turn.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg fetch example.org/climate/cmip3 copy/ --from lab:cmip3 --signer climate.key.pub\n\
\x20   thalweg fetch example.org/climate/cmip3 copy/ --from lab:cmip3 --from kit:mirror/cmip3\n\
\x20   thalweg fetch blake3:5f0c... copy/ --from lab:cmip3          this one catalogue, whoever signed it")]
pub struct Args {
    /// The name of the set, or blake3: and the digest that `thalweg publish` printed
    #[arg(value_name = "NAME|blake3:HEX")]
    set: String,
    /// The directory that it goes to, made if it is missing [default: one of the set's name, here]
    #[arg(value_name = "DIR")]
    directory: Option<OsString>,
    /// A holder: an endpoint, or the set's directory there. Repeat it for each; endpoints that the note names and this host knows are
    /// asked too
    #[arg(long, value_name = "NAME[:PATH]", env = "THALWEG_FROM")]
    from: Vec<OsString>,
    /// The public key of the publisher [default: the one that signed what was fetched before; of a new set, whichever signed it]
    #[arg(long, value_name = "FILE", env = "THALWEG_SIGNER")]
    signer: Option<PathBuf>,
    /// How often to retry after all holders were lost; progress resets the count
    #[arg(long, value_name = "N", default_value_t = 5, env = "THALWEG_RETRIES")]
    retries: u32,
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
    /// Only errors
    #[arg(short, long, env = "THALWEG_QUIET")]
    quiet: bool,
    #[command(flatten)]
    ssh: SshArgs,
}

/// What the set is, as far as it is known before it is fetched.
struct Found {
    catalogue: Catalogue,
    names: Vec<String>,
    /// As a holder showed it. Of a catalogue that is asked for by its digest only one that says who may read it.
    note: Option<Vec<u8>>,
    /// Not everybody may read it: endpoints that serve the copy have to know.
    is_private: bool,
}

pub fn run(args: &Args) -> Result<Exit> {
    let started = Instant::now();
    let places = Places::new(&args.ssh)?;
    let interrupt = &places.interrupt;
    let paths = Paths::from_env()?;
    let events = args.json.then(|| Arc::new(Events::default()));
    let request = request(args, Vec::new())?;
    let mut finished = match fetch(args, &paths, started, &places, events.clone()) {
        Ok(finished) => finished,
        Err(e) => Finished::before_the_start(&request, e),
    };
    if !args.json && !args.quiet {
        let ended = &finished.ended;
        let lines = human::failures(ended, human::FAILURES_SHOWN).into_iter().chain(human::summary(ended));
        lines.for_each(|line| output::note(&line));
    }
    if interrupt.is_set() && finished.error.is_some() {
        finished.error = Some(transfer::stopped(interrupt));
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

fn fetch(
    args: &Args,
    paths: &Paths,
    started: Instant,
    places: &Places,
    events: Option<Arc<Events>>,
) -> Result<Finished> {
    let interrupt = &places.interrupt;
    let ssh = Ssh { options: args.ssh.options(), is_allowed: args.ssh.is_allowed(), is_quiet: args.quiet };
    let means = || Means {
        stores: crate::stores::all(),
        stop: interrupt.flag().clone(),
        ..Means::new(Reachable::new(ssh.clone()))
    };
    let named = digest(&args.set)?;
    let name = match named {
        // Of a catalogue that nobody has to have signed only pages are kept, each under its digest.
        Some(_) => holders::BY_DIGEST.to_owned(),
        None => args.set.clone(),
    };
    let kept = Kept::open(paths, &name)?;
    let trust = match &args.signer {
        Some(file) => Trust::Signer(signer(file)?),
        None => Trust::First,
    };
    let has_it = |holder: &Location| {
        let finder = Finder { kept: &kept, holders: std::slice::from_ref(holder), means: &means };
        match named {
            Some(digest) => finder.has_page(holder, digest),
            None => finder.judged(holder, &trust).map(drop),
        }
    };
    let holders = holders::find(&args.from, &kept, &EndpointBook::new(paths.endpoints()), places, &has_it)?;
    let finder = Finder { kept: &kept, holders: &holders, means: &means };
    let found = match named {
        Some(digest) => {
            let (catalogue, names) = finder.catalogue(PageLine { digest, bytes: PAGE_BYTES_MAX })?;
            let note = owner(paths, &finder, &trust, &digest)?;
            Found { catalogue, names, is_private: note.is_some(), note }
        }
        None => by_name(args, &finder, &trust)?,
    };
    let mut request = request(args, holders)?;
    if let Some(note) = found.note.as_ref().filter(|_| found.is_private) {
        close(&kept, &request.spec.destination, note)?;
    }
    request.spec.options.chunk_bytes = found.catalogue.chunk_bytes;
    request.catalogue = Some(Arc::new(found.catalogue));
    let finished = transfer::run(&request, started, interrupt, events)?;
    if let Some(note) = found.note.filter(|_| finished.error.is_none()) {
        offer(&kept, &request.spec.destination, found.names, &note)?;
    }
    Ok(finished)
}

/// The note of the set with readers of its own that a catalogue asked for by its digest belongs to, if a holder says so. It is not kept:
/// a digest says nothing of whose signature counts. One that is not to be trusted closes the copy too, where there is no other.
fn owner(paths: &Paths, finder: &Finder<'_>, trust: &Trust, digest: &[u8; 32]) -> Result<Option<Vec<u8>>> {
    let mut doubtful = None;
    for holder in finder.holders {
        let Ok(bytes) = finder.note_bytes(holder)? else { continue };
        let note = Signed::parse(&bytes).and_then(|signed| Note::parse(&signed.text)).ok();
        let is_private = |note: &Note| note.catalogue == *digest && note.readers != Readers::Public;
        let Some(note) = note.filter(is_private) else { continue };
        let kept = Kept::open(paths, &note.name)?;
        match kept.judge(&bytes, trust) {
            Ok(_) => return Ok(Some(bytes)),
            Err(e) => {
                // A later one is known: it says who may read the set now.
                let later = if e.exit == Exit::Refused { kept.note()? } else { None };
                if let Some((later, _)) = later {
                    return Ok(Some(later.write().into_bytes()));
                }
                doubtful = doubtful.or(Some(bytes));
            }
        }
    }
    Ok(doubtful)
}

fn by_name(args: &Args, finder: &Finder<'_>, trust: &Trust) -> Result<Found> {
    let is_first = finder.kept.note()?.is_none();
    let latest = finder.note(trust)?;
    let note = latest.note;
    latest.refused.iter().for_each(|e| output::note(&format!("not taken: {}", e.message)));
    if is_first && *trust == Trust::First && !args.quiet {
        output::note(&format!("taken on trust: the key that signed {}: {}", note.name, Escaped(note.key.as_bytes())));
    }
    let (catalogue, names) = finder.catalogue(PageLine { digest: note.catalogue, bytes: note.catalogue_bytes })?;
    let told = (note.files, note.bytes, note.chunk_bytes);
    if told != (catalogue.files().len() as u64, catalogue.bytes(), catalogue.chunk_bytes) {
        return Err(error(
            Exit::Integrity,
            format!("the note of {} and its catalogue tell of different files", note.name),
            "ask its publisher to publish it again",
        ));
    }
    Ok(Found { catalogue, names, note: Some(latest.bytes), is_private: note.readers != Readers::Public })
}

fn digest(set: &str) -> Result<Option<[u8; 32]>> {
    let Some(hex) = set.strip_prefix("blake3:") else { return Ok(None) };
    let hint = "give the 64 hexadecimal digits that `thalweg publish` printed";
    digest_of(hex).map(Some).ok_or_else(|| usage(format!("{} is no digest", shown(set)), hint))
}

fn signer(file: &Path) -> Result<PublicKey> {
    let bytes = std::fs::File::open(file).and_then(|file| {
        use std::io::Read;
        let mut text = String::new();
        file.take(PUBLIC_KEY_BYTES_MAX).read_to_string(&mut text).map(|_| text)
    });
    let text = bytes.map_err(|e| exit::of_file("read", file, &e))?;
    PublicKey::parse(text.trim_end()).ok_or_else(|| {
        usage(
            format!("{} holds no public key of a publisher", shown(file)),
            "`thalweg publish --key FILE` writes it to FILE.pub",
        )
    })
}

fn request(args: &Args, mut holders: Vec<Location>) -> Result<Request> {
    let directory = match &args.directory {
        Some(directory) => directory.clone(),
        None if digest(&args.set)?.is_some() => {
            return Err(usage("a digest names no directory", "name the directory that it goes to"));
        }
        None => OsString::from(args.set.rsplit('/').next().unwrap_or_default()),
    };
    let mut destination = values::location(&directory)?;
    if !matches!(destination, Location::Local(_)) {
        return Err(usage(format!("{destination} is not on this host"), "fetch where the files are to be"));
    }
    destination.name_contents();
    let replicas = holders.split_off(holders.len().min(1));
    let mut spec = TransferSpec::new(holders, destination);
    spec.replicas = replicas;
    spec.options.digest = DigestAlgorithm::Blake3;
    spec.retries = args.retries;
    Ok(Request {
        command: "fetch",
        spec,
        buffer: None,
        catalogue: None,
        manifest: None,
        progress: args.progress.resolved(args.json, args.quiet),
        ssh: Ssh { options: args.ssh.options(), is_allowed: args.ssh.is_allowed(), is_quiet: args.quiet },
        hosts: Default::default(),
    })
}
