//! The control connection: commands go out at once, and what the server says is heard by a thread.
//!
//! Invariants:
//! - What a command holds cannot end it: a line break in a name is refused before anything is sent.
//! - A reply that nobody asked for ends the conversation, but for the word of a server that it closes.

use super::fault::{Fault, Result};
use super::reply::{Malformed, Parser, Reply};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// A server that says nothing for so long, while it is asked, says nothing any more.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// Replies that came and were not taken. Then the thread waits.
const HEARD_MAX: usize = 1024;
/// What a server says when it closes the connection unasked.
const CLOSING: u16 = 421;

pub struct Line {
    name: String,
    output: Box<dyn Write + Send>,
    heard: Receiver<std::result::Result<Reply, Malformed>>,
    /// What was looked at before it was asked for.
    early: VecDeque<Reply>,
    /// Commands without their last reply.
    asked: usize,
    pub is_lost: bool,
    /// The server reads commands as telnet would: without a word it leaves out whatever is not ASCII.
    pub is_telnet: bool,
}

fn is_ascii_of_telnet(byte: u8) -> bool {
    matches!(byte, 7..=12 | b' '..=b'~')
}

impl Line {
    pub fn start(
        name: &str,
        mut input: Box<dyn Read + Send>,
        output: Box<dyn Write + Send>,
        mut parser: Parser,
    ) -> std::io::Result<Line> {
        let (tell, heard) = sync_channel(HEARD_MAX);
        let listen = move || {
            let mut block = [0; 4096];
            loop {
                let Ok(count @ 1..) = input.read(&mut block) else { return };
                let mut bytes = &block[..count];
                while !bytes.is_empty() {
                    let told = match parser.feed(bytes) {
                        Ok((taken, reply)) => {
                            bytes = &bytes[taken..];
                            reply.map(Ok)
                        }
                        Err(why) => Some(Err(why)),
                    };
                    let is_over = matches!(told, Some(Err(_)));
                    if told.is_some_and(|told| tell.send(told).is_err()) || is_over {
                        return;
                    }
                }
            }
        };
        std::thread::Builder::new().name("ftp".to_owned()).spawn(listen)?;
        // The greeting is the reply to nothing.
        Ok(Line {
            name: name.to_owned(),
            output,
            heard,
            early: VecDeque::new(),
            asked: 1,
            is_lost: false,
            is_telnet: false,
        })
    }

    /// Sends commands, all in one.
    pub fn send(&mut self, commands: &[Vec<u8>]) -> Result<()> {
        if self.asked == 0 && self.early().is_some_and(|early| early.code != CLOSING) {
            self.is_lost = true;
            return Err(Fault::Malformed("it answers what nobody asked"));
        }
        let mut bytes = Vec::new();
        for command in commands {
            self.can_say(command)?;
            bytes.extend_from_slice(command);
            bytes.extend_from_slice(b"\r\n");
        }
        if self.output.write_all(&bytes).and_then(|()| self.output.flush()).is_err() {
            // It may have said why.
            self.asked += 1;
            return Err(match self.reply(Duration::from_secs(1)) {
                Err(fault) => fault,
                Ok(reply) => self.lose(&format!("the connection to {} was lost: {}", self.name, reply.text)),
            });
        }
        self.asked += commands.len();
        Ok(())
    }

    /// Whether a command arrives as it is.
    pub fn can_say(&self, command: &[u8]) -> Result<()> {
        if command.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(Fault::Name("FTP cannot carry a line break in a name"));
        }
        if self.is_telnet && command.iter().any(|byte| !is_ascii_of_telnet(*byte)) {
            return Err(Fault::Name(
                "this server passes over whatever is not ASCII in a name, as Globus's does: it would get another name",
            ));
        }
        Ok(())
    }

    /// The reply that has come already, if one has; it is still there afterwards.
    pub fn early(&mut self) -> Option<&Reply> {
        if self.early.is_empty() {
            self.early.extend(self.heard.try_recv().ok().and_then(std::result::Result::ok));
        }
        self.early.front()
    }

    /// Whether what the server said last of all is a refusal; the replies before it stay to be heard.
    pub fn refused(&mut self) -> Result<()> {
        self.early.extend(self.heard.try_iter().filter_map(std::result::Result::ok));
        self.early.back().filter(|reply| reply.code >= 400).map_or(Ok(()), |reply| Err(Fault::of(reply)))
    }

    /// The next reply.
    pub fn reply(&mut self, patience: Duration) -> Result<Reply> {
        let heard = match self.early.pop_front() {
            Some(reply) => Ok(Ok(reply)),
            None => self.heard.recv_timeout(patience),
        };
        let reply = match heard {
            Ok(Ok(reply)) => reply,
            Ok(Err(Malformed(why))) => {
                self.is_lost = true;
                return Err(Fault::Malformed(why));
            }
            Err(RecvTimeoutError::Timeout) => {
                let seconds = patience.as_secs();
                return Err(self.lose(&format!("{} has said nothing for {seconds} s", self.name)));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(self.lose(&format!("the connection to {} was lost", self.name)));
            }
        };
        if reply.code == CLOSING {
            return Err(self.lose(&format!("{} closes the connection: {}", self.name, reply.text)));
        }
        if self.asked == 0 {
            self.is_lost = true;
            return Err(Fault::Malformed("it answers what nobody asked"));
        }
        if !reply.is_preliminary() {
            self.asked -= 1;
        }
        Ok(reply)
    }

    /// Replies of which none was taken are on their way.
    pub fn is_busy(&self) -> bool {
        self.asked > 0
    }

    pub fn lose(&mut self, why: &str) -> Fault {
        self.is_lost = true;
        Fault::Lost(why.into())
    }
}
