//! A directory of a server as a transfer would use it: how far it is, whether it can be listed and written, what is kept of a file.
//!
//! Invariant: one scratch file is written, below a name that no scan shows, and removed; nothing else is touched.

use super::attributes::Attributes;
use super::held::Small;
use super::remote::{Faulty, Remote, Rename, join};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Seen;

const LOOKS: usize = 5;
/// From there on an endpoint is worth its while for many small files.
const FAR: Duration = Duration::from_millis(20);
const BODY: &[u8] = b"thalweg doctor";
/// Of the scratch file: no server's own idea of now.
const MODIFIED: u32 = 1_000_000_000;
const AGAIN: &str = "try again, and ask whoever runs the server if it stays so";

fn told(fault: &impl Faulty) -> String {
    let message = fault.on("look at", b"").message();
    message.strip_prefix("look at: ").unwrap_or(&message).to_owned()
}

/// What is found at a directory.
pub fn seen<R: Remote>(server: &Arc<R>, path: &[u8]) -> Vec<Seen> {
    let mut seen = server.seen();
    match server.look_behind(path) {
        Ok(there) if there.is_directory() => {}
        Ok(_) => {
            let advice = "name the directory that it is in";
            seen.push(Seen::needed("path", "it is a file", "nothing is tried in it", advice));
            return seen;
        }
        Err(fault) => {
            let advice = "name a directory that is there, or make it: thalweg mkdir";
            seen.push(Seen::needed("path", told(&fault), "nothing is tried in it", advice));
            return seen;
        }
    }
    seen.extend(seen_way(server, path));
    seen.push(match server.children(path, false) {
        Ok(children) if children.odd.is_empty() => Seen::good("list", "allowed"),
        Ok(children) => Seen::note("list", children.odd.join("; "), "such names are not copied", "rename them there"),
        Err(fault) => Seen::needed("list", told(&fault), "nothing can be compared or fetched as a tree", AGAIN),
    });
    seen.extend(seen_file(server, path));
    seen
}

/// How long the server takes for the least that it can be asked.
fn seen_way<R: Remote>(server: &Arc<R>, path: &[u8]) -> Option<Seen> {
    let looked = |_| {
        let begun = Instant::now();
        server.look_behind(path).ok().map(|_| begun.elapsed())
    };
    let mut times: Vec<Duration> = (0..LOOKS).map(looked).collect::<Option<_>>()?;
    times.sort();
    let median = times[LOOKS / 2];
    let found = format!("{:.1} ms from question to answer", median.as_secs_f64() * 1e3);
    Some(match median > FAR {
        true => Seen::note(
            "way",
            found,
            "each directory and each group of small files takes some of these",
            "run `thalweg serve` there, if that may be (docs/operating.md)",
        ),
        false => Seen::good("way", found),
    })
}

fn seen_file<R: Remote>(server: &Arc<R>, path: &[u8]) -> Vec<Seen> {
    let scratch = |what: &str| join(path, format!("{}{}-{what}", R::STAGED_PREFIX, server.attempts().mark).as_bytes());
    let (first, second) = (scratch("doctor"), scratch("doctored"));
    let attributes = Attributes { modified: Some(MODIFIED), ..Attributes::default() };
    let small = Small {
        path: first.clone(),
        mode: 0o600,
        attributes,
        bytes: BODY.to_vec(),
        size_bytes: BODY.len() as u64,
        wants_sync: false,
        is_sent: false,
        is_synced: false,
        failure: None,
    };
    let mut group = [(0, small)];
    let sent = server.send(&mut group, false).and(group[0].1.failure.take().map_or(Ok(()), Err));
    if let Err(error) = sent {
        let _ = server.remove(&first);
        let advice = "ask whoever runs the server for the right to write there, or name another directory";
        return vec![Seen::needed("put", error.message(), "nothing can be written", advice)];
    }
    let mut seen = vec![Seen::good("put", "allowed"), seen_content(server, &first)];
    seen.push(match server.look(&first) {
        Ok(there) if there.modified == Some(MODIFIED) => Seen::good("times", "are set"),
        Ok(_) => Seen::note(
            "times",
            "the server does not let times be set",
            "a later sync sees every file as changed",
            "use --compare size",
        ),
        Err(fault) => Seen::needed("times", told(&fault), "what was written cannot be compared", AGAIN),
    });
    let rename = Rename { from: &first, to: &second, is_over: false };
    let renamed = server.rename_all(&[rename]).remove(0);
    seen.push(match &renamed {
        Ok(()) => Seen::good("rename", "allowed"),
        Err(fault) => Seen::needed("rename", told(fault), "nothing that was written gets its name", AGAIN),
    });
    let last = if renamed.is_ok() { &second } else { &first };
    seen.push(match server.remove(last) {
        Ok(()) => Seen::good("delete", "allowed"),
        Err(fault) => {
            let found = format!("{}; {} stays there", told(&fault), super::remote::shown(last));
            Seen::needed("delete", found, "nothing can be removed or moved", "ask whoever runs the server to allow it")
        }
    });
    seen
}

fn seen_content<R: Remote>(server: &Arc<R>, path: &[u8]) -> Seen {
    let mut content = Vec::new();
    let cost = "nothing can be read";
    match server.read_all(path, BODY.len() as u64, &mut |bytes| content.extend_from_slice(bytes)) {
        Ok(()) if content == BODY => Seen::good("get", "allowed"),
        Ok(()) => Seen::needed("get", "what was written comes back as something else", cost, "do not use this server"),
        Err(error) => Seen::needed("get", error.message(), cost, AGAIN),
    }
}
