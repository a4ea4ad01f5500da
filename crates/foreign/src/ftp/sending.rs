//! Content on its way to a server, and what is asked of a file once it lies there.
//!
//! Invariant: a file counts as sent when all of its bytes were, the server said so after that and not before, and what it says of the file
//! agrees: its Adler-32 where it can compute one, else its size. What a lost conversation left in doubt is told as lost.

use super::extended::{self, whole};
use super::facts::stamp;
use super::fault::{Fault, Result};
use super::reply::{Reply, number};
use super::server::{Lease, Server};
use super::session::{Session, command};
use crate::tree::{Attributes, Faulty, Small};
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

/// A file that lies at the server, and what is to be true of it.
pub struct Sent<'a> {
    pub path: &'a [u8],
    pub size_bytes: u64,
    /// Not known of one that was not sent from its start to its end.
    pub adler: Option<u32>,
    pub attributes: &'a Attributes,
}

/// The end of a transfer to the server: all was written, and the server knows.
pub fn end(session: &mut Session, data: TcpStream) -> Result<()> {
    session.not_early()?;
    let closed = data.shutdown(Shutdown::Write);
    session.ended()?;
    closed.map_err(|e| session.line.lose(&format!("the data connection was lost: {e}")))
}

/// Why writing failed: what the server says of it tells more than the socket.
pub fn broken(session: &mut Session, data: TcpStream, error: &std::io::Error) -> Fault {
    drop(data);
    match session.last() {
        Ok(reply) if !reply.is_good() => Fault::of(&reply),
        Ok(_) => session.line.lose(&format!("the data connection was lost: {error}")),
        Err(fault) => fault,
    }
}

/// Sends files, each as far as it goes: to a GridFTP server behind one another on one data connection, to others singly. What fails singly
/// is kept in them.
///
/// # Errors
/// When a conversation was lost: what failed by it may be sent again.
pub fn send_some(server: &Arc<Server>, some: &mut [&mut Small]) -> Result<()> {
    if !server.can.grid {
        return send_singly(server, some);
    }
    match send_together(server, some) {
        Ok(mut lease) => settle_some(server, &mut lease, some),
        Err(_) => send_rest(server, some),
    }
}

/// Sends commands and content without waiting for an answer in between. After one refusal nothing that follows is believed: what the
/// server reads then may be the content of another file.
fn send_together(server: &Arc<Server>, some: &mut [&mut Small]) -> Result<Lease> {
    let mut lease = server.lease_extended(1)?;
    let commands: Vec<_> = some.iter().map(|one| command("STOR", &one.path)).collect();
    lease.line.send(&commands)?;
    let mut channel = lease.channels.swap_remove(0);
    for one in some.iter() {
        let written = extended::write(&mut channel, &whole(&one.bytes), &mut || lease.line.refused());
        written.inspect_err(|_| lease.line.is_lost = true)?;
    }
    for one in some.iter_mut() {
        lease.begun().and_then(|()| lease.ended()).inspect_err(|_| lease.line.is_lost = true)?;
        one.is_sent = true;
    }
    lease.channels.push(channel);
    Ok(lease)
}

/// After `send_together` was broken off: those that the server confirmed are compared, and get their times and modes, as any others.
/// Which of the rest lie there is not known: they get other names, and are sent singly.
fn send_rest(server: &Arc<Server>, some: &mut [&mut Small]) -> Result<()> {
    let settled = settle_sent(server, some);
    let mut rest: Vec<&mut Small> = Vec::new();
    let mut stale = Vec::new();
    for one in some.iter_mut().filter(|one| !one.is_sent) {
        stale.push(command("DELE", &one.path));
        one.path.extend_from_slice(b"-again");
        rest.push(one);
    }
    let sent = send_singly(server, &mut rest);
    let _ = server.lease().map(|mut lease| lease.ask_all(&stale));
    settled.and(sent)
}

/// As `settle_some`, in another conversation than the files were sent in.
fn settle_sent(server: &Arc<Server>, some: &mut [&mut Small]) -> Result<()> {
    if !some.iter().any(|one| one.is_sent) {
        return Ok(());
    }
    let mut lease = match server.lease() {
        Ok(lease) => lease,
        Err(fault) => {
            some.iter_mut().filter(|one| one.is_sent).for_each(|one| one.fail(&fault));
            return Err(fault);
        }
    };
    settle_some(server, &mut lease, some)
}

fn send_singly(server: &Arc<Server>, some: &mut [&mut Small]) -> Result<()> {
    let mut send = || {
        let mut lease = server.lease()?;
        let mut address = lease.passive()?;
        let last = some.len().saturating_sub(1);
        for (at, one) in some.iter_mut().enumerate() {
            let session = &mut *lease;
            let mut commands = vec![command("STOR", &one.path)];
            commands.extend((at < last).then(|| session.passive_command()));
            match session.line.send(&commands) {
                Err(fault @ Fault::Name(_)) => {
                    one.fail(&fault);
                    continue;
                }
                sent => sent?,
            }
            let mut data = session.connect(address)?;
            let sent = match session.begun() {
                Err(fault) => Err(fault),
                Ok(()) => match data.write_all(&one.bytes) {
                    Ok(()) => end(session, data),
                    Err(e) => Err(broken(session, data, &e)),
                },
            };
            match sent {
                Ok(()) => one.is_sent = true,
                Err(fault) if session.line.is_lost => return Err(fault),
                Err(fault) => one.fail(&fault),
            }
            if at < last {
                address = session.hear_passive()?;
            }
        }
        settle_some(server, &mut lease, some)
    };
    let Err(fault) = send() else { return Ok(()) };
    some.iter_mut().filter(|one| one.failure.is_none()).for_each(|one| one.fail(&fault));
    if fault.is_lost() { Err(fault) } else { Ok(()) }
}

/// Compares what was sent, and gives it its times and modes.
fn settle_some(server: &Arc<Server>, lease: &mut Lease, some: &mut [&mut Small]) -> Result<()> {
    let sent: Vec<Sent<'_>> = some
        .iter()
        .filter(|one| one.is_sent)
        .map(|one| Sent {
            path: &one.path,
            size_bytes: one.size_bytes,
            adler: Some(adler(&one.bytes)),
            attributes: &one.attributes,
        })
        .collect();
    let mut settled = settle(server, lease, &sent).into_iter();
    let mut lost = None;
    for one in some.iter_mut().filter(|one| one.is_sent) {
        match settled.next().unwrap_or(Ok(())) {
            Ok(()) => one.bytes = Vec::new(),
            Err(fault) => {
                one.fail(&fault);
                lost = lost.or(Some(fault).filter(Faulty::is_lost));
            }
        }
    }
    lost.map_or(Ok(()), Err)
}

pub fn adler(bytes: &[u8]) -> u32 {
    let mut adler = simd_adler32::Adler32::new();
    adler.write(bytes);
    adler.finish()
}

/// Gives files their times and modes, and compares what the server says of them with what was sent.
pub fn settle(server: &Server, session: &mut Session, sent: &[Sent<'_>]) -> Vec<Result<()>> {
    let checks = session.can.checksums;
    let ask = |one: &Sent<'_>| {
        let mut commands = vec![match one.adler.filter(|_| checks) {
            Some(_) => command("CKSM ADLER32 0 -1", one.path),
            None => command("SIZE", one.path),
        }];
        commands.extend(set_commands(session, one.path, one.attributes));
        commands
    };
    let commands: Vec<Vec<Vec<u8>>> = sent.iter().map(ask).collect();
    let mut replies = session.ask_all(&commands.concat()).into_iter();
    let mut settled = Vec::with_capacity(sent.len());
    for (one, commands) in sent.iter().zip(&commands) {
        let mut own = replies.by_ref().take(commands.len());
        let compared = compare(one, checks, own.next().unwrap_or(Err(Fault::Absent)));
        settled.push(compared.and_then(|()| was_set(server, one.attributes, own.collect())));
    }
    settled
}

fn compare(sent: &Sent<'_>, checks: bool, said: Result<Reply>) -> Result<()> {
    let text = said?.text;
    let differs =
        |what: &str| Err(Fault::Differs(format!("what lies at the server is not what was sent: its {what} is {text}")));
    match sent.adler.filter(|_| checks) {
        Some(adler) if u32::from_str_radix(&text, 16) != Ok(adler) => differs("Adler-32"),
        None if number(&text) != Some(sent.size_bytes) && !model::mutant::is_on("ftp-short-is-whole") => {
            differs("size")
        }
        _ => Ok(()),
    }
}

/// The commands that give a path its time and its mode.
pub fn set_commands(session: &Session, path: &[u8], attributes: &Attributes) -> Vec<Vec<u8>> {
    let time = attributes.modified.zip(session.can.set_time);
    let time = time.map(|(time, word)| command(&format!("{word} {}", stamp(time)), path));
    let mode = attributes.mode.map(|mode| command(&format!("SITE CHMOD {:04o}", mode & 0o7777), path));
    time.into_iter().chain(mode).collect()
}

/// What came of `set_commands`. A time that is not kept is no failure, but told.
pub fn was_set(server: &Server, attributes: &Attributes, mut replies: Vec<Result<Reply>>) -> Result<()> {
    if attributes.mode.is_some() {
        replies.pop().unwrap_or(Err(Fault::Unable("the server sets no permission bits")))?;
    }
    if attributes.modified.is_some() {
        match replies.pop() {
            Some(Ok(_)) => {}
            Some(Err(fault @ Fault::Lost(_))) => return Err(fault),
            _ => server.note_no_times(),
        }
    }
    Ok(())
}

impl Small {
    fn fail(&mut self, fault: &Fault) {
        self.failure = Some(fault.on("write file", &self.path));
    }
}
