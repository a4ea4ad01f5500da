//! `trial memory`: what a frame makes the real endpoint hold, for each list of each message, in many sessions at once.
//!
//! A trial is one frame that is as long as its message may be, sent in every session at the same time: with as many elements as the
//! list may have, or with as many as the frame has room for, which is to be refused. It survived when the endpoint's memory grew
//! by no more than `GROWTH_BYTES_MAX` for each session (I12), and the endpoint still answers.
//!
//! Not here: what jobs and sessions hold for longer (`crowd`).

use crate::hostile::peer::{Peer, Target};
use crate::job::{Bed, Direction, Ground, GroundArgs, check_words};
use crate::record::{Outcome, Tally};
use crate::tree;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;
use std::time::Instant;
use wire::bounds::{List, kinds, lists};
use wire::frame::{self, FrameType};
use wire::limits::{CONTROL_BODY_BYTES_MAX, DECODED_BYTES_MAX};

/// One frame, the room for its second half, what is decoded of it, and what the allocator and the session's buffers add.
const GROWTH_BYTES_MAX: u64 = (2 * CONTROL_BODY_BYTES_MAX + DECODED_BYTES_MAX + (2 << 20)) as u64;
const WHAT_IS_REFUSED_BYTES_MAX: u64 = (2 * CONTROL_BODY_BYTES_MAX + (2 << 20)) as u64;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    ground: GroundArgs,
    /// Sessions that send the same frame at the same time
    #[arg(long, value_name = "N", default_value_t = 16)]
    sessions: u64,
    /// Only the lists of messages with this number
    #[arg(long, value_name = "NUMBER")]
    message: Option<u32>,
}

/// How full a frame is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The bound's number of elements, which share the frame.
    Full,
    /// Empty elements, as many as there is room for.
    Overfull,
}

pub fn run(args: &Args) -> Result<Tally> {
    let started = Instant::now();
    let ground = Ground::new(&args.ground, "1MiB", tree::fill_source)?;
    let mut bed = Bed::new(&ground, Direction::Push, tree::fill_older)?;
    let mut tally = Tally::new("trial memory");
    let mut worst = (0, String::new());
    for list in lists().into_iter().filter(|list| args.message.is_none_or(|number| number == list.path[0])) {
        for form in [Form::Full, Form::Overfull] {
            let name = format!("message {}, {}{}", list.path[0], list.what, form.suffix());
            let frame = frame_of(&list, form);
            let outcome = match of_fresh_endpoint(&mut bed, &frame, args.sessions)? {
                Ok(grown_bytes) => {
                    let of_session = grown_bytes / args.sessions;
                    let of_byte = of_session as f64 / frame.len() as f64;
                    let figure = format!("{} KiB for each frame, {of_byte:.1} for each byte", of_session >> 10);
                    tally.figures.insert(format!("grown by {name}"), figure);
                    worst = worst.max((of_session, name.clone()));
                    match of_session <= form.bound() {
                        true => Outcome::Survived,
                        false => Outcome::Violated(format!("I12: {} KiB more for each session", of_session >> 10)),
                    }
                }
                Err(why) => Outcome::Violated(why),
            };
            let replay = format!("trial memory --sessions {} --message {}", args.sessions, list.path[0]);
            tally.count(&format!("memory: {name}"), &["F002", "F011"], &outcome, &replay);
        }
    }
    tally.figures.insert("grown the most".to_owned(), format!("{} KiB for each frame by {}", worst.0 >> 10, worst.1));
    tally.seconds = started.elapsed().as_secs_f64();
    Ok(tally)
}

impl Form {
    fn suffix(self) -> &'static str {
        match self {
            Form::Full => "",
            Form::Overfull => ", too many",
        }
    }

    fn bound(self) -> u64 {
        match self {
            Form::Full => GROWTH_BYTES_MAX,
            Form::Overfull => WHAT_IS_REFUSED_BYTES_MAX,
        }
    }
}

/// What an endpoint grows by that has seen nothing else: memory that it has and does not use would hide it.
fn of_fresh_endpoint(bed: &mut Bed<'_>, frame: &[u8], sessions: u64) -> Result<Result<u64, String>> {
    if !bed.serve(None)? {
        bail!("the endpoint did not start: {}", bed.buried()?.map_or(String::new(), |ended| ended.errors));
    }
    let process = bed.endpoint.as_ref().context("it is not running")?.id;
    let process = PathBuf::from("/proc").join(process.to_string());
    let grown = grown(&Target::of(bed)?, &process, frame, sessions);
    let Some(ended) = bed.stop()? else { return Ok(Err("hang: the endpoint did not end".to_owned())) };
    Ok(check_words(&ended.errors).and(grown))
}

/// By how much the endpoint's peak is above what it had before, when so many peers send a frame at once.
fn grown(target: &Target, process: &std::path::Path, frame: &[u8], sessions: u64) -> Result<u64, String> {
    let peers: Result<Vec<Peer<'_>>, String> = (0..sessions).map(|_| target.session()).collect();
    let mut peers = peers?;
    let failed = |e: anyhow::Error| format!("the endpoint is gone: {e:#}");
    // From here on the peak is that of now.
    fs::write(process.join("clear_refs"), "5").map_err(|e| format!("reset the endpoint's peak: {e}"))?;
    let before = status(process, "VmRSS:").map_err(failed)?;
    // All but the last byte first, so that all frames are decoded at about the same time.
    let (most, last) = frame.split_at(frame.len() - 1);
    std::thread::scope(|scope| {
        let sending = peers.iter_mut().map(|peer| scope.spawn(|| drop(peer.control.send(&[most]))));
        sending.collect::<Vec<_>>().into_iter().for_each(|thread| drop(thread.join()));
    });
    std::thread::scope(|scope| {
        let asked = peers.iter_mut().map(|peer| {
            scope.spawn(|| {
                let _ = peer.control.send(&[last]);
                peer.is_answered_or_ended()
            })
        });
        let asked: Vec<_> = asked.collect();
        asked.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a peer of this trial failed".to_owned())?)
    })?;
    Ok(status(process, "VmHWM:").map_err(failed)?.saturating_sub(before))
}

/// Bytes of a line of the process's status.
fn status(process: &std::path::Path, what: &str) -> Result<u64> {
    let status = fs::read_to_string(process.join("status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(what)).context("the kernel does not say")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("the kernel says something else")?;
    Ok(kib << 10)
}

/// The frame of a list in a message that has nothing else.
fn frame_of(list: &List, form: Form) -> Vec<u8> {
    let body_bytes_max = kinds().find(|(number, _)| *number == list.path[0]).map_or(0, |(_, bytes)| bytes);
    // Tags and lengths of what is around.
    let room = body_bytes_max - 8 * list.path.len();
    let (tag, above) = list.path.split_last().expect("a list is in a message");
    let element_bytes = match form {
        Form::Full => (room / list.elements_max).saturating_sub(6),
        Form::Overfull => 0,
    };
    let mut one = Vec::new();
    if list.is_of_numbers {
        varint(u64::from(*tag) << 3, &mut one);
        one.push(1);
    } else {
        // One field that nobody knows takes what is left for an element.
        let mut unknown = Vec::new();
        if element_bytes >= 8 {
            delimited(1000, &vec![0; element_bytes - 5], &mut unknown);
        }
        delimited(*tag, &unknown, &mut one);
    }
    let count = if form == Form::Full { list.elements_max } else { room / one.len() };
    let content = above.iter().rev().fold(one.repeat(count), |content, tag| {
        let mut out = Vec::new();
        delimited(*tag, &content, &mut out);
        out
    });
    frame::encode(FrameType::Message, &content)
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn delimited(tag: u32, content: &[u8], out: &mut Vec<u8>) {
    varint(u64::from(tag) << 3 | 2, out);
    varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_frames_are_taken_and_overfull_ones_refused() {
        for list in lists() {
            let [full, overfull] = [Form::Full, Form::Overfull].map(|form| frame_of(&list, form));
            let read = |frame: &[u8]| wire::message::decode(&frame[frame::HEADER_BYTES..]);
            assert!(matches!(read(&full), Ok(Some(_))), "{:?}: {:?}", list.path, read(&full).err());
            assert!(read(&overfull).is_err() && overfull.len() <= CONTROL_BODY_BYTES_MAX + 8, "{:?}", list.path);
        }
    }
}
