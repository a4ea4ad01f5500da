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
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What a server sums up in a second, at least.
const SUMMED_BYTES_A_SECOND: u64 = 20 << 20;

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
        // There was no turn, and nothing was sent: singly they would wait as long again.
        Err(fault @ Fault::Crowded(_)) => {
            some.iter_mut().for_each(|one| one.fail(&fault));
            Err(fault)
        }
        // Nothing was sent, for the sake of a name that cannot be said: it takes few others along.
        Err(Fault::Name(_)) if some.len() > 1 => {
            let (first, rest) = some.split_at_mut(some.len() / 2);
            let sent = [send_some(server, first), send_some(server, rest)];
            sent.into_iter().collect()
        }
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
        server.stir();
    }
    for one in some.iter_mut() {
        lease.begun().and_then(|()| lease.ended()).inspect_err(|_| lease.line.is_lost = true)?;
        one.is_sent = true;
        server.stir();
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
            server.stir();
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

/// What a server takes to sum up files, before it answers.
fn summing(sent: &[Sent<'_>]) -> Duration {
    let summed = sent.iter().filter(|one| one.adler.is_some()).map(|one| one.size_bytes);
    Duration::from_secs(summed.fold(0, u64::saturating_add) / SUMMED_BYTES_A_SECOND)
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
    let longer = if checks { summing(sent) } else { Duration::ZERO };
    let is_long = usize::from(!longer.is_zero());
    server.summing.fetch_add(is_long, Relaxed);
    let mut replies = session.ask_all_within(&commands.concat(), longer).into_iter();
    server.summing.fetch_sub(is_long, Relaxed);
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

#[cfg(test)]
mod tests {
    use super::super::server::tests::{crowd, data, server, stirs, tame};
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;
    use std::sync::{LazyLock, OnceLock};

    fn small(path: &[u8]) -> Small {
        Small {
            path: path.to_vec(),
            mode: 0o644,
            attributes: Attributes::default(),
            bytes: b"abc".to_vec(),
            size_bytes: 3,
            wants_sync: false,
            is_sent: false,
            is_synced: false,
            failure: None,
        }
    }

    const GRID: &str = "211-Features\r\n SPAS\r\n CKSM ADLER32:10;\r\n211 End";

    #[test]
    fn each_small_file_that_goes_lets_others_wait_on() {
        static DATA: LazyLock<(TcpListener, String)> = LazyLock::new(data);
        let plain = server(|command| match command.split(' ').next() {
            Some("EPSV") => DATA.1.as_str(),
            Some("STOR") => "150 go",
            Some("DATA") => {
                DATA.0.accept().unwrap().0.read_to_end(&mut Vec::new()).unwrap();
                "226 whole"
            }
            Some("CKSM") => "213 024d0127",
            _ => tame(command),
        });
        let grid = server(|command| match command.split(' ').next() {
            Some("EPSV") => DATA.1.as_str(),
            Some("STOR") => "150 go",
            Some("DATA") => "226 whole",
            Some("FEAT") => GRID,
            _ => tame(command),
        });
        let (plain, grid) = (plain.ok().unwrap(), grid.ok().unwrap());
        let (mut one, mut two) = (small(b"/one"), small(b"/two"));
        let before = stirs(&plain);
        send_singly(&plain, &mut [&mut one, &mut two]).unwrap();
        assert!(one.is_sent && two.is_sent && one.failure.is_none() && two.failure.is_none());
        assert_eq!(stirs(&plain) - before, 3, "two files went, and the conversation came back");
        let before = stirs(&grid);
        let _lease = send_together(&grid, &mut [&mut small(b"/one"), &mut small(b"/two")]).unwrap();
        assert_eq!(stirs(&grid) - before, 4, "two files went, and were confirmed");
    }

    #[test]
    fn a_name_that_cannot_be_said_takes_no_other_file_along() {
        static DATA: LazyLock<(TcpListener, String)> = LazyLock::new(data);
        let grid = server(|command| match command.split(' ').next() {
            Some("EPSV") => DATA.1.as_str(),
            Some("STOR") => "150 go",
            Some("DATA") => "226 whole",
            Some("FEAT") => GRID,
            Some("CKSM") => "213 024d0127",
            _ => tame(command),
        });
        let (mut one, mut odd, mut two) = (small(b"/one"), small("/\u{e9}/odd".as_bytes()), small(b"/two"));
        send_some(&grid.ok().unwrap(), &mut [&mut one, &mut odd, &mut two]).unwrap();
        assert!(odd.failure.is_some() && one.failure.is_none() && two.failure.is_none());
        assert_eq!((&one.path[..], &two.path[..]), (&b"/one"[..], &b"/two"[..]), "sent again under another name");
    }

    #[test]
    fn small_files_that_have_no_turn_are_told_so_and_do_not_wait_for_one_again() {
        let server = server(|command| if command == "FEAT" { GRID } else { tame(command) });
        let mut server = server.ok().unwrap();
        let _lease = crowd(&mut server);
        let mut file = small(b"/f");
        assert!(matches!(send_some(&server, &mut [&mut file]), Err(Fault::Crowded(_))));
        assert!(file.failure.is_some() && !file.is_sent);
        assert_eq!(file.path, b"/f", "it was not sent again under another name");
    }

    #[test]
    fn a_server_that_is_given_longer_is_known_to_sum_up() {
        static SERVER: OnceLock<Arc<Server>> = OnceLock::new();
        let server = server(|command| match command.starts_with("CKSM") {
            true if SERVER.get().is_some_and(|server| server.summing.load(Relaxed) == 1) => "213 00000001",
            true => "550 nobody knows",
            false => tame(command),
        });
        let server = SERVER.get_or_init(|| server.ok().unwrap());
        let attributes = Attributes::default();
        let settled = |size_bytes| {
            let sent = Sent { path: b"/f", size_bytes, adler: Some(1), attributes: &attributes };
            settle(server, &mut server.lease().unwrap(), &[sent]).remove(0)
        };
        settled(SUMMED_BYTES_A_SECOND).unwrap();
        assert!(matches!(settled(1), Err(Fault::Refused { .. })));
    }

    /// Longer than any other answer may take.
    #[test]
    fn a_server_is_given_the_time_that_a_checksum_takes() {
        let server = server(|command| match command.starts_with("CKSM") {
            true => {
                std::thread::sleep(Duration::from_millis(700));
                "213 00000001"
            }
            false => tame(command),
        });
        let server = server.ok().unwrap();
        let attributes = Attributes::default();
        let settled = |size_bytes| {
            let mut lease = server.lease().unwrap();
            lease.patience = Duration::from_millis(100);
            let sent = Sent { path: b"/f", size_bytes, adler: Some(1), attributes: &attributes };
            settle(&server, &mut lease, &[sent]).remove(0)
        };
        settled(SUMMED_BYTES_A_SECOND * 60).unwrap();
        assert!(matches!(settled(SUMMED_BYTES_A_SECOND / 2), Err(Fault::Lost(_))));
        let sent = |adler, size_bytes| Sent { path: b"/f", size_bytes, adler, attributes: &attributes };
        assert_eq!(summing(&[sent(Some(1), 7 << 30), sent(Some(1), 3 << 30)]), Duration::from_secs(512));
        assert_eq!(summing(&[sent(None, 7 << 30)]), Duration::ZERO);
    }
}
