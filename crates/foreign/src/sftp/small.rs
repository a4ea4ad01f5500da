//! Small files, sent by the group: all are opened at once, then all are written.

use super::packet::flags;
use super::server::Server;
use super::session::{Fault, Session};
use crate::tree::{Attributes, Faulty, Small};
use model::FailureKind;
use store::{Error, Result};

/// Less room than this is none: a server does not say why a write failed.
const ROOM_BYTES: u64 = 1 << 20;

impl Server {
    pub fn send_group(&self, group: &mut [(u64, Small)], sync: bool) -> Result<()> {
        let (session, limits) = self.session().map_err(|fault| fault.on("write file", b""))?;
        let how = |small: &Small| match small.is_sent {
            true => flags::WRITE,
            false => flags::WRITE | flags::CREATE | flags::EXCLUSIVE,
        };
        let syncs = |small: &Small| (sync || small.wants_sync) && !small.is_synced && session.can.fsync;
        let mut wanted: Vec<&mut Small> = group
            .iter_mut()
            .map(|(_, small)| small)
            .filter(|small| small.failure.is_none() && (!small.is_sent || syncs(small)))
            .collect();
        let opening: Vec<_> = wanted
            .iter()
            .map(|small| {
                let attributes = Attributes { mode: Some(small.mode | 0o200), ..Attributes::default() };
                session.open(&small.path, how(small), &attributes)
            })
            .collect();
        let handles: Vec<_> = opening.into_iter().map(|ticket| ticket.handle()).collect();
        let mut asked = Vec::new();
        for (small, handle) in wanted.iter().zip(&handles) {
            let Ok(handle) = handle else {
                asked.push(Vec::new());
                continue;
            };
            let mut tickets = Vec::new();
            if !small.is_sent {
                let blocks = small.bytes.chunks(limits.write_bytes).enumerate();
                tickets
                    .extend(blocks.map(|(at, block)| session.write(handle, (at * limits.write_bytes) as u64, block)));
                tickets.push(session.fsetstat(handle, &small.attributes));
            }
            tickets.extend(syncs(small).then(|| session.fsync(handle)));
            tickets.push(session.close(handle));
            asked.push(tickets);
        }
        let mut lost = None;
        for ((small, handle), tickets) in wanted.iter_mut().zip(handles).zip(asked) {
            let done = handle.map(drop).and_then(|()| {
                let all: Vec<_> = tickets.into_iter().map(|ticket| ticket.done()).collect();
                all.into_iter().collect::<super::session::Result<()>>()
            });
            match done {
                Ok(()) => {
                    small.is_synced |= syncs(small);
                    small.is_sent = true;
                    small.bytes = Vec::new();
                }
                Err(fault) => {
                    small.failure = Some(self.write_failed(&session, &fault, &small.path));
                    // It may be there in part.
                    let _ = session.remove(&small.path).done();
                    if matches!(fault, Fault::Lost(_)) {
                        lost = Some(fault.on("write file", b""));
                    }
                }
            }
        }
        lost.map_or(Ok(()), Err)
    }

    /// An error of a write, which may be that there is no room: the server does not say.
    pub fn write_failed(&self, session: &Session, fault: &Fault, path: &[u8]) -> Error {
        let error = fault.on("write file", path);
        let is_vague = matches!(fault, Fault::Status { .. }) && error.kind == FailureKind::WriteError;
        let above = path.iter().rposition(|byte| *byte == b'/').map(|at| &path[..at.max(1)]);
        match is_vague.then(|| session.room(path).or_else(|| session.room(above?))).flatten() {
            Some(room) if room.free_bytes < ROOM_BYTES => {
                Error::of_kind(FailureKind::NoSpace, "write file", path, "there is no room left on the server")
            }
            _ => error,
        }
    }
}
