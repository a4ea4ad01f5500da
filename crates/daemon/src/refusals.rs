//! The log of peers that were turned away: one line a second for each reason, and how many lines that left out.
//!
//! Invariant: what a stranger does costs a bounded number of log lines; reasons are a closed set.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::warn;
use wire::CloseCode;

const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct RefusalLog {
    /// By reason: when the last line was written, and how many were left out since.
    lines: Mutex<HashMap<&'static str, (Instant, u64)>>,
}

impl RefusalLog {
    pub fn note(&self, reason: &'static str, peer: SocketAddr, why: &dyn Display) {
        if let Some(suppressed) = self.may_log(reason, Instant::now()) {
            warn!(reason, %peer, %why, suppressed, "peer refused");
        }
    }

    /// Lines left out since the last one of this reason; `None` to leave this one out too.
    fn may_log(&self, reason: &'static str, now: Instant) -> Option<u64> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        match lines.get_mut(reason) {
            Some((last, suppressed)) if now.duration_since(*last) < INTERVAL => {
                *suppressed += 1;
                None
            }
            _ => Some(lines.insert(reason, (now, 0)).map_or(0, |(_, suppressed)| suppressed)),
        }
    }
}

/// A word for a failed handshake.
pub fn of_handshake(kind: &net::ErrorKind) -> &'static str {
    use net::ErrorKind::*;
    match kind {
        TimedOut => "handshake-timeout",
        Reset => "handshake-broken",
        NotTls => "not-tls",
        IncompatiblePeer => "incompatible",
        RefusedByPeer => "refused-by-peer",
        HandshakeInvalid => "handshake-invalid",
        _ => "handshake-failed",
    }
}

/// A word for a session that was refused.
pub fn of_session(code: CloseCode) -> &'static str {
    match code {
        CloseCode::Done => "done",
        CloseCode::Malformed => "malformed",
        CloseCode::WrongState => "wrong-state",
        CloseCode::Limit => "limit",
        CloseCode::Version => "version",
        CloseCode::Authentication => "authentication",
        CloseCode::Busy => "busy",
        CloseCode::NotFound => "not-found",
        CloseCode::Forbidden => "forbidden",
        CloseCode::NoSpace => "no-space",
        CloseCode::Internal => "internal",
        CloseCode::Cancelled => "cancelled",
        CloseCode::NoProgress => "no-progress",
        CloseCode::Reached => "reached",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_for_each_reason_and_the_rest_is_counted() {
        let log = RefusalLog::default();
        let start = Instant::now();
        assert_eq!(log.may_log("a", start), Some(0));
        for ms in 0..999 {
            assert_eq!(log.may_log("a", start + Duration::from_millis(ms)), None);
        }
        assert_eq!(log.may_log("b", start), Some(0));
        assert_eq!(log.may_log("a", start + INTERVAL), Some(999));
        assert_eq!(log.may_log("a", start + INTERVAL * 2), Some(0));
    }
}
