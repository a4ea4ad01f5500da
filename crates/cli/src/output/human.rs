//! What a person reads when a copy is over: what failed, three lines of result, and on request the choices behind it.

use super::{counted, duration, shown};
use model::change::Subject;
use model::fidelity::Warning;
use model::name::Escaped;
use model::options::Verify;
use model::quantity::{ByteCount, Rate};
use model::{Change, Failure, FailureKind};
use mover::receiver::{BUFFERED, Tally};
use mover::{Ending, Removal, Report};
use plan::{StreamInputs, stream_table};
use transfer::{Direction, Ended};

/// Failures that are shown; the rest is counted.
pub const FAILURES_SHOWN: usize = 20;
/// Kinds of warnings that are shown.
const WARNINGS_SHOWN: usize = 10;

/// One line for each failure, and how many more there are.
pub fn failures(ended: &Ended, shown_max: usize) -> Vec<String> {
    let line = |failure: &Failure| {
        let (word, why) = match failure.kind {
            FailureKind::Special => ("skipped", failure.message.trim_start_matches("skip: ")),
            _ => ("failed", &failure.message[..]),
        };
        format!("{word}: {}: {}", Escaped(&failure.path), Escaped(why.as_bytes()))
    };
    let mut lines: Vec<_> = ended.failures.iter().take(shown_max).map(line).collect();
    let more = ended.failures.len().saturating_sub(shown_max) as u64 + ended.failures_not_kept;
    if more > 0 {
        let where_all = if ended.failures_not_kept == 0 { " (--report FILE lists them)" } else { "" };
        lines.push(format!("and {} more{where_all}", super::grouped(more)));
    }
    lines
}

/// What moved; how fast, how verified and how durable; what limited it, and what to do about that; and whether storage
/// was missing.
pub fn summary(ended: &Ended) -> Vec<String> {
    let has_moved = |report: &Report| {
        matches!(report.ending, Ending::Finished(_)) || ended.files_ok > 0 || report.snapshot.counts.bytes_sent > 0
    };
    // A copy that was refused has its error; there is no result to tell.
    if !ended.report.as_ref().is_some_and(has_moved) {
        return Vec::new();
    }
    let mut lines = vec![moved(ended)];
    lines.extend(not_removed(ended));
    lines.extend(warnings(ended));
    if ended.options.is_dry_run {
        lines.push("nothing was changed (--dry-run)".to_owned());
        return lines;
    }
    lines.extend(sources(ended));
    lines.extend([pace(ended), limit(ended)]);
    if !ended.bottleneck.advice.is_empty() {
        lines.push(format!("to go faster: {}", Escaped(ended.bottleneck.advice.as_bytes())));
    }
    if !ended.synthetic.is_empty() {
        lines.push(format!("synthetic {}: no storage was used there", ended.synthetic.join(" and ")));
    }
    lines
}

/// What each of several holders brought, and why one brought no more, or nothing.
fn sources(ended: &Ended) -> Vec<String> {
    let line = |(name, tally): &(String, Tally)| {
        let name = Escaped(name.as_bytes()).to_string();
        if let Some(why) = tally.dropped.as_ref().filter(|_| tally.bytes + tally.bad_chunks + tally.differing == 0) {
            let endpoint = name.split(':').next().unwrap_or_default();
            let own = why.strip_prefix(endpoint).and_then(|rest| rest.strip_prefix(": "));
            return format!("warning: nothing came from {name}: {}", Escaped(own.unwrap_or(why).as_bytes()));
        }
        let mut text = format!("from {name}: {}", ByteCount(tally.bytes));
        if tally.bad_chunks > 0 {
            text.push_str(&format!(
                "; wrong content in {}{}",
                counted(tally.bad_chunks, "part", "parts"),
                if ended.files_failed == 0 { ", fetched elsewhere" } else { "" }
            ));
        }
        if let Some(difference) = &tally.difference {
            text.push_str(&format!(
                "; {} not taken, another version ({difference})",
                counted(tally.differing, "file", "files")
            ));
        }
        if let Some(why) = &tally.dropped {
            text.push_str(&format!("; dropped: {}", Escaped(why.as_bytes())));
        }
        text
    };
    ended.sources.iter().map(line).collect()
}

fn moved(ended: &Ended) -> String {
    let mut text = format!(
        "{} {}, {} to {}",
        if ended.options.is_dry_run { "would copy" } else { "copied" },
        counted(ended.files_ok, "file", "files"),
        ByteCount(ended.bytes),
        if ended.destination == "-" { "standard output".to_owned() } else { shown(&ended.destination) }
    );
    // Of a copy that was stopped it is of files that are not counted here.
    if (1..=ended.bytes).contains(&ended.resumed_bytes) {
        text.push_str(&format!(" ({} of it was there already)", ByteCount(ended.resumed_bytes)));
    }
    if ended.files_skipped > 0 {
        text.push_str(&format!("; {} skipped", super::grouped(ended.files_skipped)));
    }
    if ended.options.deletion.is_some() {
        text.push_str(&format!("; {} removed", super::grouped(ended.removed)));
    }
    if ended.files_failed > 0 {
        text.push_str(&format!("; {} failed", super::grouped(ended.files_failed)));
    }
    text
}

/// Why nothing was removed although that was asked for.
fn not_removed(ended: &Ended) -> Option<String> {
    let why = match ended.report.as_ref()?.removal {
        Removal::ListingNotWhole => "nothing was removed: the source could not be listed as a whole",
        _ => return None,
    };
    Some(why.to_owned())
}

/// What could not be kept of objects that arrived: how many, and the first of them.
pub fn warnings(ended: &Ended) -> Vec<String> {
    let Some(report) = &ended.report else { return Vec::new() };
    let line = |warning: &Warning| {
        let others = match warning.count {
            1 => String::new(),
            count => format!(" (and {} more)", super::grouped(count - 1)),
        };
        format!("warning: {}{others}: {}", Escaped(&warning.path), warning.text)
    };
    let mut lines: Vec<_> = report.warnings.iter().take(WARNINGS_SHOWN).map(line).collect();
    if let more @ 1.. = report.warnings.len().saturating_sub(WARNINGS_SHOWN) {
        lines.push(format!("and {} of other kinds (--json lists them)", counted(more as u64, "warning", "warnings")));
    }
    lines
}

/// A change as `rsync --itemize-changes` shows it.
pub fn change(change: &Change, is_sent: bool) -> String {
    let slash = if change.subject == Subject::Directory { "/" } else { "" };
    format!("{} {}{slash}", change.letters(is_sent), Escaped(&change.path))
}

fn pace(ended: &Ended) -> String {
    let is_finished = ended.report.as_ref().is_some_and(|r| matches!(r.ending, Ending::Finished(_)));
    if ended.files_ok == 0 && ended.bytes == 0 {
        // There is no rate, and nothing that was verified or made durable.
        let what = if is_finished && ended.files_failed == 0 { "no file had to be copied" } else { "no file arrived" };
        return format!("in {}; {what}", duration(ended.seconds));
    }
    // One that was stopped has sent parts of files as well.
    let rate = if is_finished { ended.rate() } else { Rate::over(ended.sent_bytes, ended.seconds) };
    let mut text = format!("in {} at {rate} ({}/s)", duration(ended.seconds), ByteCount(rate.bytes_per_second as u64));
    let per_second = ended.files_ok as f64 / ended.seconds.max(1e-9);
    if ended.files_ok >= 100 {
        text.push_str(&format!(", {} files/s", super::grouped(per_second as u64)));
    }
    let report = ended.report.as_ref();
    if ended.direction != Direction::Local {
        text.push_str("; TLS 1.3");
        // Those of a fetch are not known.
        if let Some(streams @ 1..) = report.map(|r| r.streams) {
            text.push_str(&format!(", {}", counted(streams.into(), "stream", "streams")));
        }
    }
    if let Some(ratio) = ended.compression_ratio() {
        let wire = ByteCount(ended.wire_bytes.unwrap_or(0));
        text.push_str(&format!("; compressed {ratio:.2}:1, {wire} on the wire"));
    }
    text.push_str(&verified(ended));
    text.push_str(match report.map(|report| &report.durable[..]) {
        Some("file") => "; durable, file by file",
        Some("batch") => "; durable",
        _ if ended.synthetic.contains(&"destination") => "; not kept",
        Some("store") => "; confirmed by the store",
        Some("memory") => "; in memory, not durable",
        Some("never") => "; durability not waited for",
        Some(BUFFERED) => "; the rest in the endpoint's buffer",
        _ => "; not finished",
    });
    text
}

/// What vouches for the content, and what of it nothing does.
fn verified(ended: &Ended) -> String {
    let unread = ended.report.as_ref().map(|report| report.unread).unwrap_or_default();
    let shared = match unread.shared_bytes {
        0 if unread.store_bytes >= ended.bytes && unread.store_bytes > 0 => {
            return "; copied by the stores themselves, compared by their checksums".to_owned();
        }
        0 if unread.store_bytes > 0 => {
            format!(", {} of it copied and compared by the stores themselves", ByteCount(unread.store_bytes))
        }
        0 => String::new(),
        bytes if bytes >= ended.bytes => return "; cloned: its blocks are shared with the source".to_owned(),
        bytes => format!(", {} of it cloned and not read", ByteCount(bytes)),
    };
    match ended.options.verify {
        _ if super::is_unverified(ended) => format!("; not verified by the store{shared}"),
        Verify::Stream => format!("; verified by {}{shared}", ended.options.digest),
        Verify::Reread => format!("; verified by {} and read back", ended.options.digest),
        Verify::None if unread.kernel_bytes > 0 => format!("; copied by the kernel, not verified{shared}"),
        Verify::None => format!("; not verified{shared}"),
    }
}

fn limit(ended: &Ended) -> String {
    Escaped(ended.bottleneck.sentence.as_bytes()).to_string()
}

/// What the program chose automatically, and why.
pub fn notes(ended: &Ended) -> Vec<String> {
    let Some(report) = &ended.report else { return Vec::new() };
    let mut lines: Vec<_> = report.notes.iter().map(|note| format!("note: {}", Escaped(note.as_bytes()))).collect();
    let mut said = |what: &str, text: &str| {
        if !text.is_empty() {
            lines.push(format!("note: {what} {}", Escaped(text.as_bytes())));
        }
    };
    said("storage engine at the destination:", &report.engine);
    said("congestion control:", &report.congestion);
    lines
}

/// How many streams these two hosts would get over paths of other lengths.
pub fn streams(ended: &Ended) -> Vec<String> {
    let Some(report) = ended.report.as_ref().filter(|_| ended.direction != Direction::Local) else { return Vec::new() };
    let (here, there) = (&report.snapshot.here, &report.snapshot.there);
    let inputs = StreamInputs {
        rtt_us: report.snapshot.stream_facts.rtt_us_min,
        send_buffer_bytes_max: net::socket::granted_send_buffer_bytes_max().unwrap_or(4 << 20),
        receive_buffer_bytes_max: None,
        processors_here: here.processors,
        processors_there: there.processors,
        asked: None,
        planned: None,
        streams_max: plan::STREAMS_CHOSEN_MAX,
        is_sequential: false,
        congestion: report.congestion.clone(),
        paths: 1,
        path: 0,
    };
    let row = |(rtt, choice): (String, plan::StreamChoice)| format!("  {rtt:>8}  {}", choice.reason);
    let mut lines = vec!["streams between these two hosts, by round trip time:".to_owned()];
    lines.extend(stream_table(&inputs).into_iter().map(row));
    lines
}
