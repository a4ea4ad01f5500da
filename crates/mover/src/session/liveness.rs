//! What the control loop does once a second for each job, besides telling times: ends silent streams and stuck jobs.
//!
//! Not here: the two judgements (`watch`, `crate::stall`); replacing lanes, which is the client's (`client`).

use super::Session;
use super::running::Running;
use crate::limits::LANE_BYTES;
use std::time::{Duration, Instant};
use wire::CloseCode;

pub fn check(session: &Session, running: &Running, heard_ms: u32) {
    let now = Instant::now();
    // The lanes of ended streams fail, and what they had in flight moves to others.
    running.watch.end_stuck(heard_ms, now);
    let headway = running.job.headway();
    let mut moved = running.moved.lock().unwrap();
    if moved.0 != headway.mark {
        *moved = (headway.mark, now);
    }
    drop(moved);
    let stuck = running.stall.lock().unwrap().stuck_for(headway, now);
    if stuck >= session.no_progress_timeout() {
        let why = why(stuck, running.job.waits_for_listing(), running.job.waits_for_memory());
        running.job.cancel(CloseCode::NoProgress, &why);
        running.watch.abort();
    }
}

fn why(stuck: Duration, is_listing_owed: bool, is_memory_short: bool) -> String {
    let seconds = stuck.as_secs();
    let time = if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds / 60) };
    match (is_listing_owed, is_memory_short) {
        (true, _) => format!(
            "nothing moved for {time}: the other side answers but does not get on with listing the source; look there \
             for hanging storage, or for a stuck program"
        ),
        (false, true) => format!(
            "nothing moved for {time}: no stream got the {} of memory it needs (--memory of `serve` or `cp`)",
            model::quantity::ByteCount(LANE_BYTES as u64)
        ),
        (false, false) => {
            format!("nothing moved for {time}, although both sides answer: hanging storage, or a stuck program")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_how_long_and_what_to_look_at() {
        let of = |seconds, is_listing_owed, is_memory_short| {
            why(Duration::from_secs(seconds), is_listing_owed, is_memory_short)
        };
        assert!(of(900, false, false).starts_with("nothing moved for 15 min, although both sides answer"));
        assert!(of(3, false, true).contains("--memory"));
        let listing = of(3, true, true);
        assert!(listing.starts_with("nothing moved for 3 s") && listing.contains("listing the source"));
    }
}
