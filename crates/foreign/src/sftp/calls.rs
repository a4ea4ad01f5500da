//! The requests by their names, and what is built of one or two of them.

use super::packet::{Input, Output, Reply, flags, request};
use super::session::{Fault, Result, Session, Ticket};
use crate::tree::Attributes;

/// What every server takes.
const BLOCK_BYTES: u64 = 32 << 10;
/// More is not asked for at once: OpenSSH grants 255 KiB.
const BLOCK_BYTES_MAX: u64 = 255 << 10;

/// Content of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    pub read_bytes: usize,
    pub write_bytes: usize,
}

/// Room on a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    pub free_bytes: u64,
    pub free_inodes: Option<u64>,
}

impl Session {
    fn extended(&self, name: &[u8]) -> Output {
        let _ = self;
        Output::new(request::EXTENDED).string(name)
    }

    /// What one request may carry. A server that does not say gets what all take.
    pub fn limits(&self) -> Limits {
        let told = self.can.limits.then(|| self.send(self.extended(b"limits@openssh.com")).wait());
        let read = |body: &[u8]| {
            let mut input = Input(body);
            input.u64()?;
            Ok::<_, super::packet::Malformed>((input.u64()?, input.u64()?))
        };
        let fit = |told: u64| if told == 0 { BLOCK_BYTES } else { told.clamp(1 << 10, BLOCK_BYTES_MAX) } as usize;
        match told {
            Some(Ok(Reply::Extended(body))) if read(&body).is_ok() => {
                let (reads, writes) = read(&body).unwrap_or_default();
                Limits { read_bytes: fit(reads), write_bytes: fit(writes) }
            }
            _ => Limits { read_bytes: BLOCK_BYTES as usize, write_bytes: BLOCK_BYTES as usize },
        }
    }

    pub fn room(&self, path: &[u8]) -> Option<Room> {
        if !self.can.statvfs {
            return None;
        }
        let answer = self.send(self.extended(b"statvfs@openssh.com").string(path)).wait();
        let Ok(Reply::Extended(body)) = answer else { return None };
        let mut input = Input(&body);
        let mut numbers = [0; 8];
        for number in &mut numbers {
            *number = input.u64().ok()?;
        }
        let [_, fragment, _, _, free, inodes, _, free_inodes] = numbers;
        let free_inodes = (inodes > 0).then_some(free_inodes);
        Some(Room { free_bytes: fragment.saturating_mul(free), free_inodes })
    }

    pub fn open(&self, path: &[u8], how: u32, attributes: &Attributes) -> Ticket {
        self.send(Output::new(request::OPEN).string(path).u32(how).attributes(attributes))
    }

    pub fn open_to_read(&self, path: &[u8]) -> Ticket {
        self.open(path, flags::READ, &Attributes::default())
    }

    /// Nobody waits for the answer: what was to be safe was synced.
    pub fn close(&self, handle: &[u8]) -> Ticket {
        self.send(Output::new(request::CLOSE).string(handle))
    }

    pub fn read(&self, handle: &[u8], offset: u64, bytes: usize) -> Ticket {
        self.send(Output::new(request::READ).string(handle).u64(offset).u32(bytes as u32))
    }

    pub fn write(&self, handle: &[u8], offset: u64, bytes: &[u8]) -> Ticket {
        let head = Output::new(request::WRITE).string(handle).u64(offset).u32(bytes.len() as u32);
        self.send_with(head, bytes)
    }

    pub fn fstat(&self, handle: &[u8]) -> Ticket {
        self.send(Output::new(request::FSTAT).string(handle))
    }

    pub fn fsetstat(&self, handle: &[u8], attributes: &Attributes) -> Ticket {
        self.send(Output::new(request::FSETSTAT).string(handle).attributes(attributes))
    }

    pub fn fsync(&self, handle: &[u8]) -> Ticket {
        self.send(self.extended(b"fsync@openssh.com").string(handle))
    }

    pub fn lstat(&self, path: &[u8]) -> Ticket {
        self.send(Output::new(request::LSTAT).string(path))
    }

    /// As `lstat`, behind links.
    pub fn stat(&self, path: &[u8]) -> Ticket {
        self.send(Output::new(request::STAT).string(path))
    }

    pub fn setstat(&self, path: &[u8], attributes: &Attributes) -> Ticket {
        self.send(Output::new(request::SETSTAT).string(path).attributes(attributes))
    }

    pub fn mkdir(&self, path: &[u8]) -> Ticket {
        self.send(Output::new(request::MKDIR).string(path).attributes(&Attributes::default()))
    }

    pub fn rmdir(&self, path: &[u8]) -> Ticket {
        self.send(Output::new(request::RMDIR).string(path))
    }

    pub fn remove(&self, path: &[u8]) -> Ticket {
        self.send(Output::new(request::REMOVE).string(path))
    }

    pub fn opendir(&self, path: &[u8]) -> Ticket {
        self.send(Output::new(request::OPENDIR).string(path))
    }

    pub fn readdir(&self, handle: &[u8]) -> Ticket {
        self.send(Output::new(request::READDIR).string(handle))
    }

    pub fn readlink(&self, path: &[u8]) -> Ticket {
        self.send(Output::new(request::READLINK).string(path))
    }

    /// The target comes first, as OpenSSH and those who follow it have it, and not as the draft does.
    pub fn symlink(&self, target: &[u8], path: &[u8]) -> Ticket {
        self.send(Output::new(request::SYMLINK).string(target).string(path))
    }

    /// Gives a name that nothing may have yet.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Ticket {
        self.send(Output::new(request::RENAME).string(from).string(to))
    }

    /// Gives a name in one step, whatever has it.
    pub fn rename_over(&self, from: &[u8], to: &[u8]) -> Ticket {
        self.send(self.extended(b"posix-rename@openssh.com").string(from).string(to))
    }
}

pub fn target_of(ticket: Ticket) -> Result<Vec<u8>> {
    match &mut ticket.names()?[..] {
        [(target, _)] if !target.is_empty() && target.len() <= 4096 && !target.contains(&0) => {
            Ok(std::mem::take(target))
        }
        _ => Err(Fault::Malformed("it told no target of a link, or one that is none")),
    }
}
