//! The control connection: commands go out at once, and what the server says is heard by a thread.
//!
//! Invariants:
//! - What a command holds cannot end it: a line break in a name is refused before anything is sent.
//! - A reply that nobody asked for ends the conversation, but for the word of a server that it closes.

use super::fault::{Fault, Result};
use super::reply::{Malformed, Parser, Reply};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// A server that says nothing for so long, while it is asked, says nothing any more.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// Replies that came and were not taken. Then the thread waits.
const HEARD_MAX: usize = 1024;
/// What they may take together: far more than is asked for at once. Then the conversation ends.
const HEARD_BYTES_MAX: usize = 16 << 20;
/// Preliminary replies (1xx) in a row. GridFTP servers send one or two markers every 5 s while a file is on its way, of
/// each stripe: at two this is a month.
const PRELIMINARY_MAX: usize = 1 << 20;
/// What a server says when it closes the connection unasked.
const CLOSING: u16 = 421;

pub struct Line {
    name: String,
    output: Box<dyn Write + Send>,
    heard: Receiver<std::result::Result<Reply, Malformed>>,
    /// What replies take that were not taken.
    heard_bytes: Arc<AtomicUsize>,
    /// What was looked at before it was asked for.
    early: VecDeque<Reply>,
    /// Commands without their last reply.
    asked: usize,
    /// Preliminary replies since the last final one.
    preliminary: usize,
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
        let heard_bytes = Arc::new(AtomicUsize::new(0));
        let all_bytes = heard_bytes.clone();
        let listen = move || {
            let mut block = [0; 4096];
            loop {
                let Ok(count @ 1..) = input.read(&mut block) else { return };
                let mut bytes = &block[..count];
                while !bytes.is_empty() {
                    let told = match parser.feed(bytes) {
                        Ok((taken, reply)) => {
                            bytes = &bytes[taken..];
                            reply.map(|reply| {
                                let own = reply.bytes();
                                match all_bytes.fetch_add(own, Relaxed) + own > HEARD_BYTES_MAX {
                                    true => Err(Malformed("it says more than it was asked")),
                                    false => Ok(reply),
                                }
                            })
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
            heard_bytes,
            early: VecDeque::new(),
            asked: 1,
            preliminary: 0,
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
        let room = HEARD_MAX - self.early.len();
        if room == 0 {
            self.is_lost = true;
            return Err(Fault::Malformed("it answers more than it was asked"));
        }
        self.early.extend(self.heard.try_iter().take(room).filter_map(std::result::Result::ok));
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
        self.heard_bytes.fetch_sub(reply.bytes(), Relaxed);
        if reply.code == CLOSING {
            return Err(self.lose(&format!("{} closes the connection: {}", self.name, reply.text)));
        }
        if self.asked == 0 {
            self.is_lost = true;
            return Err(Fault::Malformed("it answers what nobody asked"));
        }
        match reply.is_preliminary() {
            true => self.preliminary += 1,
            false => (self.asked, self.preliminary) = (self.asked - 1, 0),
        }
        if self.preliminary > PRELIMINARY_MAX {
            self.is_lost = true;
            return Err(Fault::Malformed("it says again and again that it will answer"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, sink};

    /// A server that says this, whatever it is asked.
    fn line(said: Vec<u8>) -> Line {
        Line::start("far", Box::new(Cursor::new(said)), Box::new(sink()), Parser::default()).unwrap()
    }

    #[test]
    fn no_more_is_kept_of_what_nobody_hears_than_may_be_asked() {
        let mut line = line(b"150 here\r\n".repeat(4 * HEARD_MAX));
        while line.refused().is_ok() && line.early.len() <= HEARD_MAX {
            std::thread::yield_now();
        }
        assert_eq!((line.early.len(), line.is_lost), (HEARD_MAX, true));
    }

    #[test]
    fn long_replies_that_nobody_hears_end_the_conversation() {
        const SAID: usize = 64;
        let long = [&b"150-here\r\n"[..], &b" \r\n".repeat(40_000), b"150 end\r\n"].concat();
        let mut line = line(long.repeat(SAID));
        while line.heard_bytes.load(Relaxed) <= HEARD_BYTES_MAX {
            std::thread::yield_now();
        }
        let fault = (0..SAID).find_map(|_| line.reply(Duration::from_secs(20)).err());
        assert!(matches!(fault, Some(Fault::Malformed(_))) && line.is_lost, "{fault:?}");
    }

    #[test]
    fn long_replies_that_are_heard_may_be_many() {
        const SAID: usize = 64;
        let long = [&b"150-here\r\n"[..], &b" \r\n".repeat(40_000), b"150 end\r\n"].concat();
        let (said, mut server) = std::io::pipe().unwrap();
        let mut line = Line::start("far", Box::new(said), Box::new(sink()), Parser::default()).unwrap();
        for _ in 0..SAID {
            server.write_all(&long).unwrap();
            assert_eq!(line.reply(Duration::from_secs(20)).unwrap().lines.len(), 40_000);
        }
        assert_eq!(line.heard_bytes.load(Relaxed), 0);
    }

    #[test]
    fn a_server_that_only_says_that_it_will_answer_is_not_heard_for_ever() {
        const SAID: usize = 4;
        let mut line = line(b"150 here\r\n".repeat(SAID));
        line.preliminary = PRELIMINARY_MAX - 2;
        let fault = (0..SAID).find_map(|_| line.reply(Duration::from_secs(20)).err());
        assert!(matches!(fault, Some(Fault::Malformed(_))) && line.is_lost, "{fault:?}");
    }
}
