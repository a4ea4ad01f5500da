//! Rights are looked at again while sessions and jobs run, so that what expired or was revoked ends (F028, F029).
//!
//! Invariants:
//! - One session that cannot be reviewed, because a thread of it panicked and left its locks behind, keeps no other from
//!   being reviewed, and is cut off itself: a review fails closed.
//! - A host that cannot tell (`CloseCode::Internal`: files that cannot be read at this moment) is believed `DOUBTS_MAX`
//!   times one after the other, no longer.
//! - No lock is held while the host is asked, and none is given up because another thread panicked with it.

use super::Session;
use super::asks::Asked;
use super::host::{Grant, Host};
use super::server::Server;
use crate::limits::DOUBTS_MAX;
use model::files::{Access, Question};
use model::mutant;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use wire::handshake::Direction;
use wire::{CloseCode, Refusal};

const UNKNOWN: &str = "the endpoint repeatedly could not look up this client's rights; what is verified is kept";

impl Server {
    /// Asks the host again whether those who are here may go on, and ends sessions and jobs that may not. A peer that was
    /// told so by an earlier review and is still there is cut off. Returns how many sessions had to be cut off because
    /// their review panicked, which is a bug.
    pub fn review(&self) -> usize {
        let sessions: Vec<_> = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let is_broken = |session: &&Arc<Session>| {
            let reviewed = catch_unwind(AssertUnwindSafe(|| review_session(&*self.host, session)));
            reviewed.inspect_err(|_| session.cut_off()).is_err()
        };
        sessions.iter().filter(is_broken).count()
    }
}

fn review_session(host: &dyn Host, session: &Session) {
    let Some(grant) = session.grant.get() else { return };
    match may_go_on(host, session, grant) {
        Ok(true) => {}
        Ok(false) => return,
        Err(refusal) => return session.dismiss(&refusal),
    }
    let refused = |direction, paths: &[Vec<u8>]| {
        let refusal = host.may_go_on(grant, Some((direction, paths))).err();
        // Whether the host can tell is counted above, for the whole session.
        refusal.filter(|refusal| refusal.code != CloseCode::Internal)
    };
    // A rename is one step: where it has been made, what has the name now may be closed to whoever made it.
    let is_open = |asked: &Arc<Asked>| !matches!(asked.question, Question::Rename { .. });
    for asked in session.asks.all().into_iter().filter(is_open) {
        let direction = match asked.question.access() {
            Access::Look => Direction::ServerSends,
            Access::Make | Access::Take => Direction::ClientSends,
        };
        let paths: Vec<_> = asked.question.paths().into_iter().map(<[u8]>::to_vec).collect();
        if let Some(refusal) = refused(direction, &paths) {
            asked.refuse(refusal);
        }
    }
    for running in session.running() {
        let Some((direction, paths)) = running.asked.get() else { continue };
        if let Some(refusal) = refused(*direction, paths) {
            running.job.cancel(refusal.code, &refusal.text);
            running.watch.abort();
        }
    }
}

/// False where the host cannot tell, and what runs may run on for the moment.
fn may_go_on(host: &dyn Host, session: &Session, grant: &Grant) -> Result<bool, Refusal> {
    match host.may_go_on(grant, None) {
        Ok(()) => {
            session.doubts.store(0, Relaxed);
            Ok(true)
        }
        Err(refusal) if refusal.code != CloseCode::Internal => Err(refusal),
        Err(_) if mutant::is_on("fail-open-review") => Ok(false),
        Err(_) if session.doubts.fetch_add(1, Relaxed) + 1 < DOUBTS_MAX => Ok(false),
        Err(_) => Err(Refusal::new(CloseCode::Internal, UNKNOWN)),
    }
}

impl Session {
    /// Ends the connections of a session without a word: its own threads end it then.
    fn cut_off(&self) {
        self.control.abort();
        for running in self.running() {
            running.watch.abort();
        }
    }
}
