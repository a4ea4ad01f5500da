//! The written form of a transfer: one flat list of keys, in the words of the command line.
//!
//! Sizes are bytes, times are seconds, paths are written as `model::name::Escaped` writes them.
//!
//! Invariant: every field of the value is named in both directions by a pattern without a rest, so that a new one does not
//! compile before it has a key, or a reason to have none.

use super::{Bounds, RETRIES_DEFAULT, TransferSpec, VERSION};
use crate::filter::{Filter, Rule};
use crate::follow::{Follow, FollowEnd, LagAlarm, Until, View};
use crate::location::Location;
use crate::name::{Escaped, Name, unescape};
use crate::options::{
    CHUNK_BYTES_DEFAULT, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, Deletion, INSTEAD_OF_MAX, Slice, TransferOptions,
};
use crate::pace::Timetable;
use crate::paths::PathWish;
use crate::selection::{Choice, Listed};
use crate::{Extent, Fidelity, JobId};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

macro_rules! form {
    ($($key:ident: $type:ty),+ $(,)?) => {
        #[derive(Clone, Default, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub struct Form {
            version: u32,
            sources: Vec<String>,
            destination: String,
            $(#[serde(default, skip_serializing_if = "Option::is_none")] $key: Option<$type>,)+
        }
    };
}

form! {
    replica: Vec<String>,
    fsync: String,
    verify: String,
    digest: String,
    chunk_size: u64,
    no_clobber: bool,
    // Octal, of files and of directories.
    chmod: [String; 2],
    engine: String,
    depth: String,
    filter: Vec<String>,
    files: Vec<String>,
    min_size: u64,
    max_size: u64,
    newer_than: f64,
    older_than: f64,
    compare: String,
    update: bool,
    existing: bool,
    dry_run: bool,
    itemize: bool,
    delete: bool,
    // The source is the contents of a directory: the destination itself is to be like it.
    delete_at_root: bool,
    max_delete: u64,
    backup_dir: String,
    delta: bool,
    keep: Vec<String>,
    compress: String,
    bwlimit: String,
    max_transfer: u64,
    buffer: String,
    streams: u32,
    // Where the number begins that then follows the path.
    streams_first: u32,
    paths: String,
    cc: String,
    class: String,
    // Files are sent while they are written: when one is complete, and when all is over.
    until: String,
    end: Vec<String>,
    show: String,
    sealed_list: String,
    append_only: bool,
    lag_alarm: String,
    // The job is a slice of one that several hosts work on, and takes over from these.
    slice: Vec<String>,
    // What it shares with others of the same job, and how much of its one file it is to bring.
    run: String,
    range: [u64; 2],
    memory: usize,
    retries: u32,
    max_duration: f64,
    timeout: f64,
    fail_fast: bool,
}

impl From<TransferSpec> for Form {
    fn from(spec: TransferSpec) -> Form {
        let TransferSpec {
            sources,
            destination,
            replicas,
            choice,
            options,
            may_shorten_chunks,
            streams,
            streams_first,
            paths,
            congestion,
            memory_bytes,
            retries,
            bounds,
        } = spec;
        let is_length_asked = !may_shorten_chunks || options.chunk_bytes != CHUNK_BYTES_DEFAULT;
        let Choice { filter, size_bytes_min, size_bytes_max, newer_than, older_than, listed } = choice;
        let Bounds { duration_max, no_progress, is_fail_fast } = bounds;
        let rules: Vec<_> = filter.rules().iter().map(Rule::to_string).collect();
        Form {
            version: VERSION,
            sources: sources.iter().map(written).collect(),
            destination: written(&destination),
            replica: (!replicas.is_empty()).then(|| replicas.iter().map(written).collect()),
            chunk_size: is_length_asked.then_some(options.chunk_bytes),
            filter: (!rules.is_empty()).then_some(rules),
            files: listed.map(|listed| listed.paths.iter().map(|path| Escaped(path).to_string()).collect()),
            min_size: (size_bytes_min > 0).then_some(size_bytes_min),
            max_size: size_bytes_max,
            newer_than: newer_than.map(|span| span.as_secs_f64()),
            older_than: older_than.map(|span| span.as_secs_f64()),
            streams,
            streams_first,
            paths: unless(paths, PathWish::default()),
            cc: congestion,
            memory: memory_bytes,
            retries: (retries != RETRIES_DEFAULT).then_some(retries),
            max_duration: duration_max.map(|span| span.as_secs_f64()),
            timeout: no_progress.map(|span| span.as_secs_f64()),
            fail_fast: is_fail_fast.then_some(true),
            ..of_options(options)
        }
    }
}

/// The keys of the options alone.
fn of_options(options: TransferOptions) -> Form {
    let TransferOptions {
        fsync,
        verify,
        digest,
        // Written by whoever knows whether it was asked for.
        chunk_bytes: _,
        no_clobber,
        chmod,
        engine,
        depths,
        // Made of the choice when the transfer starts.
        selection: _,
        compare,
        keeps_newer,
        only_existing,
        is_dry_run,
        tells_changes,
        deletion,
        backup,
        is_delta,
        fidelity,
        compression,
        pace,
        payload_bytes_max,
        // Made of the transfer's own when it starts.
        congestion: _,
        class,
        follow,
        view,
        sealed_list,
        buffer,
        // Whoever stays for less says so when it asks.
        wait: _,
        slice,
    } = options;
    let default = TransferOptions::default();
    let kept = fidelity.names();
    Form {
        fsync: unless(fsync, default.fsync),
        verify: unless(verify, default.verify),
        digest: unless(digest, default.digest),
        no_clobber: no_clobber.then_some(true),
        chmod: chmod.map(|(files, directories)| [files, directories].map(|bits| format!("{bits:o}"))),
        engine: unless(engine, default.engine),
        depth: unless(depths, default.depths),
        compare: unless(compare, default.compare),
        update: keeps_newer.then_some(true),
        existing: only_existing.then_some(true),
        dry_run: is_dry_run.then_some(true),
        itemize: tells_changes.then_some(true),
        delete: deletion.map(|_| true),
        delete_at_root: deletion.and_then(|deletion| deletion.is_at_root.then_some(true)),
        max_delete: deletion.and_then(|deletion| deletion.removals_max),
        backup_dir: backup.map(|path| Escaped(&path).to_string()),
        delta: is_delta.then_some(true),
        keep: (!kept.is_empty()).then(|| kept.into_iter().map(str::to_owned).collect()),
        compress: unless(compression, default.compression),
        bwlimit: pace.map(|pace| pace.to_string()),
        max_transfer: payload_bytes_max,
        buffer: unless(buffer, default.buffer),
        class: class.map(|class| class.name().to_owned()),
        run: slice.as_ref().and_then(|slice| Some(slice.run?.to_string())),
        range: slice.as_ref().and_then(|slice| slice.range.map(|range| [range.start, range.end])),
        slice: slice.map(|slice| slice.instead_of.iter().map(ToString::to_string).collect()),
        ..of_following(follow.as_deref(), view.is_some(), sealed_list)
    }
}

fn of_following(follow: Option<&Follow>, is_shown: bool, sealed_list: Option<Name>) -> Form {
    let text = |bytes: &[u8]| Escaped(bytes).to_string();
    let ends: Vec<_> = follow.iter().flat_map(|follow| &follow.ends).map(|end| text(&end.to_bytes())).collect();
    Form {
        until: follow.map(|follow| text(&follow.until.to_bytes())),
        end: (!ends.is_empty()).then_some(ends),
        show: is_shown.then(|| SHOWN.to_owned()),
        sealed_list: sealed_list.map(|name| text(name.as_bytes())),
        append_only: follow.and_then(|follow| follow.is_append_only.then_some(true)),
        lag_alarm: follow.and_then(|follow| Some(follow.alarm?.written())),
        ..Form::default()
    }
}

impl TryFrom<Form> for TransferSpec {
    type Error = String;

    fn try_from(form: Form) -> Result<TransferSpec, String> {
        if form.version != VERSION {
            return Err(format!("a transfer of version {}: this program knows version {VERSION}", form.version));
        }
        if form.sources.is_empty() {
            return Err("a transfer with no source".to_owned());
        }
        let default = TransferOptions::default();
        let deletion = deletion(&form)?;
        let (follow, view) = following(&form)?;
        let options = TransferOptions {
            fsync: word(form.fsync, default.fsync)?,
            verify: word(form.verify, default.verify)?,
            digest: word(form.digest, default.digest)?,
            chunk_bytes: form.chunk_size.map_or(Ok(default.chunk_bytes), chunk_bytes)?,
            no_clobber: form.no_clobber.unwrap_or(false),
            chmod: form.chmod.map(permissions).transpose()?,
            engine: word(form.engine, default.engine)?,
            depths: word(form.depth, default.depths)?,
            selection: Arc::default(),
            compare: word(form.compare, default.compare)?,
            keeps_newer: form.update.unwrap_or(false),
            only_existing: form.existing.unwrap_or(false),
            is_dry_run: form.dry_run.unwrap_or(false),
            tells_changes: form.itemize.unwrap_or(false),
            deletion,
            backup: form.backup_dir.as_deref().map(bytes).transpose()?,
            is_delta: form.delta.unwrap_or(false),
            fidelity: form.keep.map_or(Ok(default.fidelity), |names| Fidelity::from_names(&names))?,
            compression: word(form.compress, default.compression)?,
            pace: form.bwlimit.as_deref().map(Timetable::parse).transpose()?.map(Arc::new),
            payload_bytes_max: form.max_transfer,
            congestion: None,
            class: form.class.as_deref().map(str::parse).transpose()?,
            follow: follow.map(Arc::new),
            view: view.map(Arc::new),
            sealed_list: form.sealed_list.as_deref().map(name).transpose()?,
            buffer: word(form.buffer, default.buffer)?,
            wait: default.wait,
            slice: slice(form.slice, form.run, form.range)?,
        };
        Ok(TransferSpec {
            sources: form.sources.iter().map(|text| location(text)).collect::<Result<_, _>>()?,
            destination: location(&form.destination)?,
            replicas: form.replica.iter().flatten().map(|text| location(text)).collect::<Result<_, _>>()?,
            choice: Choice {
                filter: filter(form.filter.unwrap_or_default())?,
                size_bytes_min: form.min_size.unwrap_or(0),
                size_bytes_max: form.max_size,
                newer_than: form.newer_than.map(span).transpose()?,
                older_than: form.older_than.map(span).transpose()?,
                listed: form.files.map(listed).transpose()?,
            },
            options,
            may_shorten_chunks: form.chunk_size.is_none(),
            streams: form.streams,
            streams_first: form.streams_first,
            paths: word(form.paths, PathWish::default())?,
            congestion: form.cc,
            memory_bytes: form.memory,
            retries: form.retries.unwrap_or(RETRIES_DEFAULT),
            bounds: Bounds {
                duration_max: form.max_duration.map(span).transpose()?,
                no_progress: form.timeout.map(span).transpose()?,
                is_fail_fast: form.fail_fast.unwrap_or(false),
            },
        })
    }
}

/// A word, unless it is the default.
fn unless<T: PartialEq + Display>(word: T, default: T) -> Option<String> {
    (word != default).then(|| word.to_string())
}

fn word<T: FromStr<Err = String>>(text: Option<String>, default: T) -> Result<T, String> {
    text.map_or(Ok(default), |text| text.parse())
}

fn bytes(text: &str) -> Result<Vec<u8>, String> {
    unescape(text.as_bytes()).ok_or_else(|| format!("{text:?} holds an escape that is none: a backslash is \\\\"))
}

/// A path that would be read as something else stands behind `./`, as on the command line.
fn written(location: &Location) -> String {
    let text = location.to_string();
    let is_path = |path: &[u8]| matches!(Location::parse(OsStr::from_bytes(path)), Ok(Location::Local(_)));
    match location {
        Location::Local(path) if !is_path(path) => format!("./{text}"),
        _ => text,
    }
}

fn location(text: &str) -> Result<Location, String> {
    let bytes = bytes(text)?;
    Location::parse(OsStr::from_bytes(&bytes)).map_err(|e| e.to_string())
}

fn chunk_bytes(size: u64) -> Result<u64, String> {
    let is_one = size.is_power_of_two() && (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&size);
    is_one.then_some(size).ok_or_else(|| format!("chunk-size {size} is no power of two from 1 MiB to 1 GiB"))
}

fn permissions([files, directories]: [String; 2]) -> Result<(u32, u32), String> {
    let bits = |text: &str| {
        let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o777 && !text.starts_with('+'));
        bits.ok_or_else(|| format!("chmod {text:?} is no octal number of permission bits"))
    };
    Ok((bits(&files)?, bits(&directories)?))
}

fn filter(rules: Vec<String>) -> Result<Filter, String> {
    let rule = |text: &String| Rule::parse(text).ok_or_else(|| format!("{text:?} is no filter rule"));
    Filter::new(rules.iter().map(rule).collect::<Result<_, _>>()?)
}

fn listed(paths: Vec<String>) -> Result<Listed, String> {
    let paths = paths.iter().map(|path| bytes(path)).collect::<Result<Vec<_>, _>>()?;
    Listed::new(paths).map_err(|(path, why)| format!("files: {}: {why}", Escaped(&path)))
}

fn slice(
    texts: Option<Vec<String>>,
    run: Option<String>,
    range: Option<[u64; 2]>,
) -> Result<Option<Arc<Slice>>, String> {
    let job = |text: &String| JobId::from_hex(text).ok_or_else(|| format!("slice {text:?} is no job"));
    let run = run.as_ref().map(job).transpose()?;
    let range = match range {
        Some([start, end]) if start >= end || run.is_none() => return Err(format!("{start} to {end} is no range")),
        range => range.map(|[start, end]| Extent::new(start, end)),
    };
    let Some(texts) = texts else {
        return run.map_or(Ok(None), |_| Err("a run without a slice".to_owned()));
    };
    let instead_of: Vec<_> = texts.iter().map(job).collect::<Result<_, _>>()?;
    match instead_of.len() <= INSTEAD_OF_MAX {
        true => Ok(Some(Arc::new(Slice { instead_of, run, range }))),
        false => Err(format!("a slice takes over from {INSTEAD_OF_MAX} others at most")),
    }
}

fn span(seconds: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{seconds} is no time in seconds"))
}

/// What can be seen of a file that grows, where anything can.
const SHOWN: &str = "prefix";

fn following(form: &Form) -> Result<(Option<Follow>, Option<View>), String> {
    let until = form.until.as_deref().map(|text| Until::from_bytes(&bytes(text)?)).transpose()?;
    let view = match form.show.as_deref() {
        None => None,
        Some(SHOWN) => Some(View::of(until.as_ref())),
        Some(other) => return Err(format!("show {other:?} is not {SHOWN}")),
    };
    let ends = form.end.iter().flatten().map(|text| FollowEnd::from_bytes(&bytes(text)?));
    let ends = ends.collect::<Result<Vec<_>, _>>()?;
    let is_append_only = form.append_only.unwrap_or(false);
    let alarm = form.lag_alarm.as_deref().map(LagAlarm::parse).transpose()?;
    let is_idle = ends.is_empty() && !is_append_only && alarm.is_none() && view.is_none() && form.sealed_list.is_none();
    match until {
        Some(until) => Ok((Some(Follow { until, ends, is_append_only, alarm }), view)),
        None if is_idle => Ok((None, None)),
        None => Err("end, show, sealed-list, append-only and lag-alarm mean nothing without until".to_owned()),
    }
}

fn name(text: &str) -> Result<Name, String> {
    Name::new(&bytes(text)?).map_err(|_| format!("{text:?} is not the name of a file"))
}

fn deletion(form: &Form) -> Result<Option<Deletion>, String> {
    let is_at_root = form.delete_at_root.unwrap_or(false);
    match form.delete.unwrap_or(false) {
        true => Ok(Some(Deletion { is_at_root, removals_max: form.max_delete })),
        false if is_at_root || form.max_delete.is_some() => {
            Err("delete-at-root and max-delete mean nothing without delete".to_owned())
        }
        false => Ok(None),
    }
}
