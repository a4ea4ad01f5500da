//! One conversation with a server that let us in: commands and their replies, and data connections.
//!
//! Invariants:
//! - Data connections lead to where the control connection goes, or to hosts that the user named, whichever side opens
//!   them. This side does, but in `Flow::Back`.
//! - A transfer is over when the server has said so *and* all of its data has passed, not by one of the two alone.

use super::facts::{self, Told};
use super::fault::{Fault, Result};
use super::inlet::Inlet;
use super::line::{Line, PATIENCE};
use super::reply::{Reply, extended_port, number, passive_address};
use crate::tree::{Attributes, NAMES_MAX};
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// After so long a writer looks for what the server may have said.
const HELD_UP: Duration = Duration::from_millis(500);
/// Commands that are under way at once. Fewer than replies are kept for (`line::HEARD_MAX`).
const AHEAD_MAX: usize = 256;
/// A listing of one directory over its data connection.
const LISTING_BYTES_MAX: usize = 512 << 20;

/// What a server can do beyond RFC 959, by its own word.
#[derive(Clone, Debug, Default)]
pub struct Features {
    /// Lines of facts: MLST and MLSD.
    pub facts: bool,
    /// How a time is set: `MFMT`, or `MDTM` with two arguments.
    pub set_time: Option<&'static str>,
    /// Checksums by CKSM, Adler-32 among them.
    pub checksums: bool,
    /// Parts of a file by ERET, and offsets on data connections that are kept: a GridFTP server.
    pub grid: bool,
    /// Names may be UTF-8.
    pub utf8: bool,
    /// It does not let in by the name of the user alone.
    pub asks_password: bool,
    /// It may be told to connect to this host: a GridFTP server, to which a known address of this host leads.
    pub calls: bool,
}

/// Where data connections may go.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// The other end of the control connection, as far as it is known.
    pub peer: Option<IpAddr>,
    /// This end of it.
    pub here: Option<IpAddr>,
    pub others: Vec<IpAddr>,
    pub allow_clear: bool,
}

/// Which way content goes in a conversation, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// Either way, each file on a data connection of its own.
    Streams,
    /// To the server in MODE E.
    There,
    /// From the server in MODE E, on a data connection that the server opens.
    Back,
}

pub struct Session {
    pub line: Line,
    pub can: Features,
    /// In MODE E: data connections that stay open from file to file.
    pub channels: Vec<TcpStream>,
    pub flow: Flow,
    /// Where the server is to connect to, until it has.
    pub inlet: Option<Inlet>,
    /// A server that says nothing for so long, while it is asked, says nothing any more.
    pub patience: Duration,
    reach: Reach,
    takes_epsv: bool,
}

pub fn command(word: &str, path: &[u8]) -> Vec<u8> {
    [word.as_bytes(), b" ", path].concat()
}

fn good(reply: Reply) -> Result<Reply> {
    if reply.is_good() { Ok(reply) } else { Err(Fault::of(&reply)) }
}

/// Whether a server says that it left out names of a directory, as Pure-FTPd does ("Output truncated to 10000 matches"). What stands in
/// quotation marks is a name.
fn is_truncated(reply: &Reply) -> bool {
    let says = |text: &str| text.split('"').step_by(2).any(|part| part.to_ascii_lowercase().contains("truncated"));
    says(&reply.text) || reply.lines.iter().any(|line| says(&String::from_utf8_lossy(line)))
}

impl Session {
    pub fn new(line: Line, reach: Reach) -> Session {
        Session {
            line,
            can: Features::default(),
            channels: Vec::new(),
            flow: Flow::Streams,
            inlet: None,
            patience: PATIENCE,
            takes_epsv: reach.peer.is_some(),
            reach,
        }
    }

    pub fn reply(&mut self) -> Result<Reply> {
        self.line.reply(self.patience)
    }

    /// The last reply to a command, whatever it says.
    pub fn last(&mut self) -> Result<Reply> {
        loop {
            let reply = self.reply()?;
            if !reply.is_preliminary() {
                return Ok(reply);
            }
        }
    }

    pub fn ask(&mut self, command: Vec<u8>) -> Result<Reply> {
        self.line.send(&[command])?;
        self.last().and_then(good)
    }

    /// Asks many things, with the commands under way together.
    pub fn ask_all(&mut self, commands: &[Vec<u8>]) -> Vec<Result<Reply>> {
        let mut replies = Vec::with_capacity(commands.len());
        for some in commands.chunks(AHEAD_MAX) {
            match self.line.send(some) {
                Ok(()) => replies.extend(some.iter().map(|_| self.last().and_then(good))),
                // One that cannot be said is refused alone: nothing was sent, and halves are tried.
                Err(Fault::Name(_)) if some.len() > 1 => {
                    let (first, rest) = some.split_at(some.len() / 2);
                    replies.extend(self.ask_all(first));
                    replies.extend(self.ask_all(rest));
                }
                Err(fault) => replies.extend(some.iter().map(|_| Err(fault.clone()))),
            }
        }
        replies
    }

    /// As `ask_all`, of what takes the server so much longer than any other answer.
    pub fn ask_all_within(&mut self, commands: &[Vec<u8>], longer: Duration) -> Vec<Result<Reply>> {
        let usual = self.patience;
        self.patience = usual + longer;
        let replies = self.ask_all(commands);
        self.patience = usual;
        replies
    }

    /// What it can do. Servers without FEAT can do what RFC 959 has.
    pub fn learn(&mut self) -> Result<()> {
        let lines = match self.ask(b"FEAT".to_vec()) {
            Ok(reply) => reply.lines,
            Err(Fault::Refused { .. }) => Vec::new(),
            Err(fault) => return Err(fault),
        };
        let lines: Vec<String> = lines.iter().map(|line| String::from_utf8_lossy(line).trim().to_uppercase()).collect();
        let has = |word: &str| lines.iter().any(|line| line.split_whitespace().next() == Some(word));
        let has_address = self.reach.here.is_some();
        let is_globus = has("SPAS") || has("PARALLEL");
        self.adopt(Features {
            facts: has("MLST") || has("MLSD"),
            set_time: match () {
                () if has("MFMT") => Some("MFMT"),
                () if has("MDTM") => Some("MDTM"),
                () => None,
            },
            checksums: lines.iter().any(|line| line.starts_with("CKSM ") && line.contains("ADLER32")),
            grid: is_globus,
            utf8: has("UTF8"),
            asks_password: false,
            calls: is_globus && has_address,
        });
        self.set_up(Vec::new())
    }

    /// What `learn` found, here or in another conversation with the same server.
    pub fn adopt(&mut self, can: Features) {
        self.line.is_telnet = can.grid;
        self.can = can;
    }

    /// Asks this, and for what holds in every conversation, all in one.
    pub fn set_up(&mut self, mut commands: Vec<Vec<u8>>) -> Result<()> {
        const UTF8: &[u8] = b"OPTS UTF8 ON";
        // Names are bytes here; some servers recode them until they are told.
        commands.extend(self.can.utf8.then(|| UTF8.to_vec()));
        commands.push(b"TYPE I".to_vec());
        let replies = self.ask_all(&commands);
        let needed = commands.iter().zip(replies).filter(|(command, _)| &command[..] != UTF8);
        needed.map(|(_, reply)| reply).try_for_each(|reply| reply.map(drop))
    }

    /// Asks where to connect to; `hear_passive` takes the answer.
    pub fn passive_command(&self) -> Vec<u8> {
        if self.takes_epsv { b"EPSV".to_vec() } else { b"PASV".to_vec() }
    }

    pub fn hear_passive(&mut self) -> Result<SocketAddr> {
        let reply = self.last()?;
        let address = match reply.code {
            229 => extended_port(&reply.text).zip(self.reach.peer).map(|(port, peer)| SocketAddr::new(peer, port)),
            227 => passive_address(&reply.text),
            _ if self.takes_epsv && !reply.is_good() => {
                self.takes_epsv = false;
                return self.passive();
            }
            _ => return Err(Fault::of(&reply)),
        };
        self.checked(address.ok_or(Fault::Malformed("it says where to connect to in no known way"))?)
    }

    pub fn passive(&mut self) -> Result<SocketAddr> {
        let command = self.passive_command();
        self.line.send(&[command])?;
        self.hear_passive()
    }

    /// An address that a data connection leads to, if it may.
    pub fn checked(&self, address: SocketAddr) -> Result<SocketAddr> {
        let ip = address.ip().to_canonical();
        let is_known = self.reach.peer.is_some_and(|peer| peer.to_canonical() == ip) || self.reach.others.contains(&ip);
        if !is_known && !model::mutant::is_on("ftp-pasv-abroad") {
            return Err(Fault::Abroad(format!(
                "the server sends data connections to {ip}, which is not the host that was named: if that host is one of its own, list \
                 it as redirect_hosts = [\"{ip}\"] in the server's table"
            )));
        }
        if !ip.is_loopback() && !self.reach.allow_clear {
            return Err(Fault::Abroad(
                "its data connections are not encrypted: write allow_clear = true into the server's table to accept that".to_owned(),
            ));
        }
        Ok(address)
    }

    pub fn connect(&mut self, address: SocketAddr) -> Result<TcpStream> {
        let open = || {
            let data = TcpStream::connect_timeout(&address, CONNECT_PATIENCE)?;
            data.set_nodelay(true)?;
            data.set_read_timeout(Some(PATIENCE))?;
            data.set_write_timeout(Some(PATIENCE))?;
            Ok(data)
        };
        let open: std::io::Result<TcpStream> = open();
        open.map_err(|e| self.line.lose(&format!("connect to {address} for data: {e}")))
    }

    /// Changes how content goes; to the server in MODE E so many data connections are there afterwards.
    pub fn set_flow(&mut self, flow: Flow, channels: usize) -> Result<()> {
        if flow != self.flow {
            (self.channels, self.inlet) = (Vec::new(), None);
            let mode = |flow: Flow| if flow == Flow::Streams { "MODE S" } else { "MODE E" };
            let mut commands: Vec<Vec<u8>> = Vec::new();
            if mode(flow) != mode(self.flow) {
                commands.push(mode(flow).into());
            }
            let mut inlet = self.reach.here.filter(|_| flow == Flow::Back).map(Inlet::open).transpose()?;
            commands.extend(inlet.as_ref().map(|inlet| inlet.command.clone()));
            let asked = Instant::now();
            self.ask_all(&commands).into_iter().try_for_each(|reply| reply.map(drop))?;
            if let Some(inlet) = &mut inlet {
                inlet.patience += 4 * asked.elapsed();
            }
            (self.flow, self.inlet) = (flow, inlet);
        }
        if self.channels.len() < channels {
            self.channels.clear();
            let address = self.passive()?;
            for _ in 0..channels {
                let channel = self.connect(address)?;
                let _ = channel.set_write_timeout(Some(HELD_UP));
                self.channels.push(channel);
            }
        }
        Ok(())
    }

    /// Begins a transfer by its last command; those before it prepare it.
    pub fn begin(&mut self, commands: &[Vec<u8>]) -> Result<TcpStream> {
        let address = self.passive()?;
        self.line.send(commands)?;
        let data = self.connect(address)?;
        let mut refused = None;
        for _ in 1..commands.len() {
            refused = self.last().and_then(good).err().or(refused);
        }
        self.begun()?;
        match refused {
            None => Ok(data),
            Some(fault) => {
                // It goes from another place than was meant.
                self.line.lose("a transfer began otherwise than it was asked for");
                Err(fault)
            }
        }
    }

    /// Hears that a transfer begins.
    pub fn begun(&mut self) -> Result<()> {
        let reply = self.reply()?;
        match reply.is_preliminary() {
            true => Ok(()),
            false => Err(Fault::of(&reply)),
        }
    }

    /// All was written, and the end is not yet said: a server that has an opinion by now is wrong about the file, or refuses it.
    pub fn not_early(&mut self) -> Result<()> {
        while self.line.early().is_some_and(|early| early.is_preliminary()) {
            self.reply()?;
        }
        match self.line.early().map(|early| early.is_good()) {
            None => Ok(()),
            Some(true) if model::mutant::is_on("ftp-early-word-counts") => Ok(()),
            Some(true) => Err(self.line.lose("the server says that a file is complete before all of it was sent")),
            Some(false) => self.ended(),
        }
    }

    /// Hears that a transfer is complete.
    pub fn ended(&mut self) -> Result<()> {
        self.last().and_then(good).map(drop)
    }

    /// The commands that `hear_attributes` takes the replies to. Without facts the name is tried as a file and as a
    /// directory.
    pub fn look_commands(&self, path: &[u8]) -> Vec<Vec<u8>> {
        match self.can.facts {
            true => vec![command("MLST", path)],
            false => ["SIZE", "MDTM", "CWD"].map(|word| command(word, path)).into(),
        }
    }

    /// What a path is that was asked for by `look_commands`.
    pub fn hear_attributes(&mut self) -> Result<Attributes> {
        let count = self.look_commands(b"").len();
        Session::attributes((0..count).map(|_| self.last().and_then(good)).collect())
    }

    /// What a path is, from the replies to `look_commands`.
    fn attributes(replies: Vec<Result<Reply>>) -> Result<Attributes> {
        let mut replies = replies.into_iter();
        let first = replies.next().unwrap_or(Err(Fault::Absent));
        let (Some(time), Some(directory)) = (replies.next(), replies.next()) else {
            let reply = first.map_err(Fault::into_absent)?;
            let told = reply.lines.iter().find_map(|line| facts::of_facts(line));
            return told.map(|told| told.attributes).ok_or(Fault::Malformed("it answers MLST with no facts"));
        };
        let text = |reply: Result<Reply>| reply.ok().map(|reply| reply.text);
        match (first, directory) {
            (Err(fault), _) | (_, Err(fault)) if !matches!(fault, Fault::Refused { .. }) => Err(fault),
            (_, Ok(_)) => Ok(Attributes { size_bytes: Some(0), mode: Some(0o040_755), modified: Some(0), owner: None }),
            (Ok(size), Err(_)) => Ok(Attributes {
                size_bytes: Some(number(&size.text).ok_or(Fault::Malformed("it answers SIZE with no number"))?),
                mode: Some(0o100_644),
                modified: text(time).and_then(|text| facts::seconds(&text)).or(Some(0)),
                owner: None,
            }),
            (Err(size), Err(_)) => Err(size.into_absent()),
        }
    }

    pub fn look_all(&mut self, paths: &[&[u8]]) -> Vec<Result<Attributes>> {
        let commands: Vec<_> = paths.iter().flat_map(|path| self.look_commands(path)).collect();
        let count = commands.len() / paths.len().max(1);
        let mut replies = self.ask_all(&commands).into_iter();
        paths.iter().map(|_| Session::attributes(replies.by_ref().take(count).collect())).collect()
    }

    /// Lists a directory; lines that cannot be understood are told as they are.
    pub fn list(&mut self, path: &[u8], now: u32) -> Result<Vec<std::result::Result<Told, Vec<u8>>>> {
        let mut data = match self.can.facts {
            true => self.begin(&[command("MLSD", path)])?,
            // A path may look like an option or a pattern.
            false => {
                self.ask(command("CWD", path))?;
                self.begin(&[b"LIST -a".to_vec()])?
            }
        };
        let mut text = Vec::new();
        let read = data.by_ref().take(LISTING_BYTES_MAX as u64).read_to_end(&mut text);
        drop(data);
        read.map_err(|e| self.line.lose(&format!("the listing was cut: {e}")))?;
        let last = self.last().and_then(good)?;
        if is_truncated(&last) {
            return Err(Fault::of(&last));
        }
        if text.len() == LISTING_BYTES_MAX {
            return Err(Fault::Malformed("it lists more than 512 MiB in one directory"));
        }
        let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with(b"total "));
        let read = |line| if self.can.facts { facts::of_facts(line) } else { facts::of_list(line, now) };
        // What is kept of a line may be far longer than the line.
        let told: Vec<_> = lines.take(NAMES_MAX + 1).map(|line| read(line).ok_or_else(|| line.to_vec())).collect();
        match told.len() > NAMES_MAX {
            true => Err(Fault::Malformed("it lists more than 2,000,000 names in one directory")),
            false => Ok(told),
        }
    }
}
