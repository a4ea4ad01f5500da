//! `thalweg publish`: makes a directory a named, signed set that others fetch by its name.

use crate::args::values;
use crate::exit::{self, Result, error, usage};
use crate::interrupt::Interrupt;
use crate::output::{self, counted};
use daemon::Paths;
use daemon::sets::{Finder, Kept, Publication, publish, recall};
use model::options::CHUNK_BYTES_DEFAULT;
use model::quantity::ByteCount;
use model::set::catalogue::PageLine;
use model::set::note::Readers;
use model::set::{Catalogue, Mirror};
use model::{Exit, Location};
use net::Identity;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Make a directory a set that others fetch by its name, whoever has it
///
/// Reads every file below DIR and writes, into DIR/.thalweg-set, a catalogue of their BLAKE3 digests and a signed note with a serial that
/// rises each time. Serve DIR, or a directory above it, with `thalweg serve`; whoever fetches the set compares every byte with the
/// catalogue, so it may come from anybody. Later publications read only the files whose size or time has changed.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg publish /data/cmip3 --as example.org/climate/cmip3 --key climate.key\n\
\x20   thalweg fetch example.org/climate/cmip3 copy/ --from lab:cmip3 --signer climate.key.pub      elsewhere")]
pub struct Args {
    /// The directory that holds the files of the set
    #[arg(value_name = "DIR")]
    directory: OsString,
    /// The name of the set, such as example.org/climate/cmip3
    #[arg(long = "as", visible_alias = "name", value_name = "NAME", env = "THALWEG_AS")]
    name: String,
    /// The key that signs, made if the file is missing; the public half is in FILE.pub [default: this host's identity]
    #[arg(long, value_name = "FILE", env = "THALWEG_KEY")]
    key: Option<PathBuf>,
    /// The key that signed until now, where --key takes over: a change needs both
    #[arg(long, value_name = "FILE", env = "THALWEG_PREVIOUS_KEY")]
    previous_key: Option<PathBuf>,
    /// Who may reach it at endpoints: every client that they know, or only clients with these identities [default: as it was published
    /// before; a new set is public]
    #[arg(long, value_name = "public|PIN,PIN...", value_parser = readers, env = "THALWEG_READERS")]
    readers: Option<Readers>,
    /// An endpoint that has the set too; repeat it for each
    #[arg(long, value_name = "NAME,ADDRESS,PIN", value_parser = mirror, env = "THALWEG_MIRROR")]
    mirror: Vec<Mirror>,
    /// The unit of verification: a power of two from 1MiB to 1GiB [default: 8MiB]
    #[arg(long, value_name = "SIZE", value_parser = values::chunk_bytes, env = "THALWEG_CHUNK_SIZE")]
    chunk_size: Option<u64>,
    /// Read every file again, also those whose size and time have not changed
    #[arg(long, env = "THALWEG_CHECKSUM")]
    checksum: bool,
    /// Only errors and the digest
    #[arg(short, long, env = "THALWEG_QUIET")]
    quiet: bool,
}

fn readers(text: &str) -> Result<Readers, String> {
    Readers::parse(text)
        .ok_or_else(|| "give `public`, or identities of 64 hexadecimal digits with commas between them".to_owned())
}

fn mirror(text: &str) -> Result<Mirror, String> {
    Mirror::parse(text).ok_or_else(|| "give a name, an address and an identity with commas between them".to_owned())
}

pub fn run(args: &Args) -> Result<Exit> {
    let directory = values::location(&args.directory)?;
    if !matches!(directory, Location::Local(_)) {
        return Err(usage(
            format!("{directory} is not on this host"),
            "publish where the files are; what is published there is fetched from there",
        ));
    }
    let interrupt = Interrupt::watch()?;
    let paths = Paths::from_env()?;
    let identity = paths.state.join("identity.key");
    for key in args.key.iter().chain(&args.previous_key).chain([&identity]) {
        check_outside(key, &directory)?;
    }
    let kept = Kept::open(&paths, &args.name)?;
    let key = match &args.key {
        Some(file) => key(file)?,
        None => paths.identity()?,
    };
    let key_before = args.previous_key.as_deref().map(existing_key).transpose()?;
    recall(&kept, &directory)?;
    let before = catalogue_before(&kept);
    let readers_before = kept.note()?.map_or(Readers::Public, |(_, note)| note.readers);
    let published = publish(
        &kept,
        &Publication {
            directory,
            readers: args.readers.clone().unwrap_or(readers_before),
            mirrors: args.mirror.clone(),
            chunk_bytes: args.chunk_size.unwrap_or(CHUNK_BYTES_DEFAULT),
            key: &key,
            key_before: key_before.as_ref(),
            reads_all: args.checksum,
            is_stopped: interrupt.flag(),
        },
        before.as_ref(),
    )?;
    let note = &published.note;
    if let Some(file) = &args.key {
        write_public(file, &note.key)?;
    }
    for line in &published.left_out {
        output::note(&format!("left out: {line}"));
    }
    if !args.quiet {
        let files = counted(note.files, "file", "files");
        let unread = match published.unchanged {
            0 => String::new(),
            count => format!("; {} not read again", counted(count, "file", "files")),
        };
        output::note(&format!(
            "published {} with serial {}: {files}, {}{unread}",
            note.name,
            note.serial,
            ByteCount(note.bytes)
        ));
        output::note(&format!("key: {}", note.key));
    }
    output::line(&format!("blake3:{}", model::set::page_name(&note.catalogue)));
    Ok(if published.left_out.is_empty() { Exit::Done } else { Exit::Partial })
}

/// What was published last, as far as it is kept whole.
fn catalogue_before(kept: &Kept) -> Option<Catalogue> {
    let (_, note) = kept.note().ok()??;
    let finder = Finder { kept, holders: &[], means: &transfer::Means::local };
    let found = finder.catalogue(PageLine { digest: note.catalogue, bytes: note.catalogue_bytes });
    found.ok().map(|(catalogue, _)| catalogue)
}

/// Everybody who fetches the set gets what lies below its directory: a key that signs is not to be among it.
fn check_outside(key: &Path, directory: &Location) -> Result<()> {
    // A key that is yet to be made lies where its directory does.
    let made_in = || {
        let above = key.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(above.canonicalize().ok()?.join(key.file_name()?))
    };
    let found = key.canonicalize().ok().or_else(made_in);
    let directory = Path::new(OsStr::from_bytes(directory.path())).canonicalize();
    match (found, directory) {
        (Some(found), Ok(directory)) if found.starts_with(&directory) => Err(usage(
            format!("the private key {} is in the directory that is to be published", output::shown(key)),
            "move it elsewhere and name it there, or publish another directory: whoever has the key acts in your name",
        )),
        // A missing file is reported where it is opened.
        _ => Ok(()),
    }
}

fn key(file: &Path) -> Result<Identity> {
    Identity::load_or_create(file).map_err(|e| daemon::Error::from_net("key", &e))
}

/// The key that signed before is not made where it is missing.
fn existing_key(file: &Path) -> Result<Identity> {
    match std::fs::symlink_metadata(file) {
        Ok(_) => key(file),
        Err(e) => Err(exit::of_file("read", file, &e)),
    }
}

/// Writes the public half beside a key that has none there yet.
fn write_public(file: &Path, key: &str) -> Result<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(".pub");
    let path = PathBuf::from(name);
    let written =
        OpenOptions::new().write(true).create_new(true).open(&path).and_then(|mut file| writeln!(file, "{key}"));
    match written {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(error(
            Exit::Failed,
            format!("write {}: {}", output::shown(&path), exit::plain(&e)),
            "the set is published; its key is printed above",
        )),
        _ => Ok(()),
    }
}
