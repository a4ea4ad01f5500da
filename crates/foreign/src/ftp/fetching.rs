//! Small files on their way here: from a GridFTP server that can connect to this host behind one another, asked for
//! together; from others each on a data connection that this side opens.
//!
//! Invariants:
//! - A file counts as fetched when the server has said that it sent it, and told what it is after that.
//! - Of what comes together nothing counts that comes after something odd. What does not come so is fetched singly: only
//!   there is a refusal believed.
//!
//! Not here: files that are read from an offset on (`reading`).

use super::extended;
use super::fault::{Fault, Result};
use super::server::Server;
use super::session::{Session, command};
use crate::tree::{Faulty, generation};
use model::Generation;
use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;

/// Files that are asked for at once in one conversation. With what is asked of them that is fewer commands than may be
/// under way.
const TOGETHER_MAX: usize = 32;
/// As many are worth a conversation that has to begin.
const SHARE_MIN: usize = 8;

pub type Fetched = Result<(Vec<u8>, Generation)>;

/// A small file that is wanted, and what came of it.
pub struct Wanted {
    pub path: Vec<u8>,
    pub bytes_max: usize,
    pub fetched: Option<Fetched>,
}

/// Fetches files in several conversations at once.
pub fn fetch(server: &Arc<Server>, all: &mut [Wanted]) {
    let calls = server.may_call(all.len());
    server.spread(all, if calls { SHARE_MIN } else { 1 }, |some| {
        let mut rest: Vec<&mut Wanted> = some.iter_mut().collect();
        let together = if calls { fetch_together(server, &mut rest) } else { Ok(()) };
        rest.retain(|one| one.fetched.is_none());
        match together {
            // There was no turn: singly they would wait as long again.
            Err(fault @ Fault::Crowded(_)) => rest.iter_mut().for_each(|one| one.fetched = Some(Err(fault.clone()))),
            _ if rest.is_empty() => {}
            _ => fetch_singly(server, &mut rest),
        }
    });
}

/// Fetches files behind one another over a data connection that the server opens. What does not come so is left.
///
/// # Errors
/// When there was no conversation, or it was given up by what came in it.
fn fetch_together(server: &Arc<Server>, some: &mut [&mut Wanted]) -> Result<()> {
    let fetched = server.lease_called().and_then(|mut lease| {
        let session = &mut *lease;
        let received = some.chunks_mut(TOGETHER_MAX).try_for_each(|some| receive_some(server, session, some));
        // One that brings nothing has lost its data connection, whatever it says.
        session.line.is_lost |= received.is_err() || !has_come(some);
        received
    });
    let has_come = has_come(some);
    match &fetched {
        Err(Fault::Crowded(_)) => {}
        // A connection that is lost on the way says nothing of the next one.
        Err(fault) if !has_come || matches!(fault, Fault::Refused { .. }) => server.note_called(false),
        _ if has_come => server.note_called(true),
        // Files that are refused say nothing of connections.
        _ => {}
    }
    fetched
}

fn has_come(some: &[&mut Wanted]) -> bool {
    some.iter().any(|one| matches!(one.fetched, Some(Ok(_))))
}

fn receive_some(server: &Server, session: &mut Session, some: &mut [&mut Wanted]) -> Result<()> {
    let mut commands = Vec::new();
    for one in some.iter_mut() {
        let retrieve = command("RETR", &one.path);
        match session.line.can_say(&retrieve) {
            Ok(()) => {
                commands.push(retrieve);
                commands.extend(session.look_commands(&one.path));
            }
            Err(fault) => one.fetched = Some(Err(fault)),
        }
    }
    session.line.send(&commands)?;
    for one in some.iter_mut().filter(|one| one.fetched.is_none()) {
        let bytes = receive_next(session, one.bytes_max)?;
        let there = session.hear_attributes();
        if let (Some(bytes), Ok(there)) = (bytes, there) {
            one.fetched = Some(Ok((bytes, generation(&server.name, &one.path, &there))));
        }
        server.stir();
    }
    Ok(())
}

/// The next file of those that were asked for together, unless it is refused before any of it comes.
fn receive_next(session: &mut Session, bytes_max: usize) -> Result<Option<Vec<u8>>> {
    let patience = session.inlet.as_ref().map_or(session.patience, |inlet| inlet.patience);
    let reply = session.line.reply(patience)?;
    match reply.is_preliminary() {
        true => {}
        false if reply.is_good() => return Err(Fault::Malformed("it has sent a file before it said that it would")),
        // It could not connect, or not once more.
        false if matches!(reply.code, 425 | 426) => return Err(Fault::of(&reply)),
        false => return Ok(None),
    }
    let mut channel = match &session.inlet {
        Some(inlet) => {
            let (channel, from) = inlet.accept()?;
            session.checked(from)?;
            let timed = channel.set_read_timeout(Some(session.patience));
            timed.map_err(|e| Fault::Lost(format!("the data connection: {e}").into()))?;
            channel
        }
        None => session.channels.pop().ok_or(Fault::Malformed("its data connection is gone"))?,
    };
    let bytes = extended::read(&mut channel, bytes_max)?;
    session.ended()?;
    if let Some(inlet) = session.inlet.take() {
        inlet.close()?;
    }
    session.channels.push(channel);
    Ok(Some(bytes))
}

/// Fetches files one after the other in one conversation. What it takes to connect for the next one is asked together
/// with each.
fn fetch_singly(server: &Arc<Server>, some: &mut [&mut Wanted]) {
    let mut fetch = || {
        let mut lease = server.lease()?;
        let mut address = lease.passive()?;
        let last = some.len().saturating_sub(1);
        for (at, one) in some.iter_mut().enumerate() {
            let session = &mut *lease;
            let mut commands = vec![command("RETR", &one.path)];
            commands.extend(session.look_commands(&one.path));
            commands.extend((at < last).then(|| session.passive_command()));
            match session.line.send(&commands) {
                Err(fault @ Fault::Name(_)) => {
                    one.fetched = Some(Err(fault));
                    continue;
                }
                sent => sent?,
            }
            let data = session.connect(address)?;
            let bytes = receive(session, data, one.bytes_max);
            let there = session.hear_attributes();
            if at < last {
                address = session.hear_passive()?;
            }
            let read = match (bytes, there) {
                // Of the two the one that says that nothing is there is clearer.
                (Err(Fault::Refused { .. }), Err(absent)) if absent.is_absent() => Err(absent),
                (bytes, there) => bytes.and_then(|bytes| Ok((bytes, generation(&server.name, &one.path, &there?)))),
            };
            one.fetched = Some(read);
            server.stir();
        }
        Ok::<(), Fault>(())
    };
    if let Err(fault) = fetch() {
        some.iter_mut().for_each(|one| _ = one.fetched.get_or_insert_with(|| Err(fault.clone())));
    }
}

/// All of a transfer that has no more bytes than this.
fn receive(session: &mut Session, mut data: TcpStream, bytes_max: usize) -> Result<Vec<u8>> {
    session.begun()?;
    let mut bytes = Vec::with_capacity(bytes_max.min(1 << 20));
    let read = data.by_ref().take(bytes_max as u64 + 1).read_to_end(&mut bytes);
    drop(data);
    let ended = session.ended();
    read.map_err(|e| session.line.lose(&format!("the data connection was lost: {e}")))?;
    // Of a file that has grown nobody waits for the end: its generation tells.
    if bytes.len() > bytes_max {
        bytes.truncate(bytes_max);
        return Ok(bytes);
    }
    if !model::mutant::is_on("ftp-cut-is-end") {
        ended?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::server::tests::{data, server, stirs, tame};
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;
    use std::sync::LazyLock;

    #[test]
    fn each_small_file_that_comes_lets_others_wait_on() {
        static DATA: LazyLock<(TcpListener, String)> = LazyLock::new(data);
        let server = server(|command| match command.split(' ').next() {
            Some("EPSV") => DATA.1.as_str(),
            Some("RETR") => "150 here it comes",
            Some("DATA") => {
                DATA.0.accept().unwrap().0.write_all(b"abc").unwrap();
                "226 whole"
            }
            _ => tame(command),
        });
        let server = server.ok().unwrap();
        let before = stirs(&server);
        let mut all = [&b"/one"[..], b"/two"].map(|path| Wanted { path: path.to_vec(), bytes_max: 9, fetched: None });
        fetch_singly(&server, &mut all.iter_mut().collect::<Vec<_>>());
        for one in all {
            assert_eq!(one.fetched.unwrap().unwrap().0, b"abc");
        }
        assert_eq!(stirs(&server) - before, 3, "two files came, and the conversation came back");
    }
}
