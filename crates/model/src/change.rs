//! One change at a destination, as it is told to people: a line with rsync's letters.

/// What kind of object changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Subject {
    File = 1,
    Directory = 2,
    Symlink = 3,
    /// A FIFO or socket.
    Special = 4,
    Device = 5,
}

impl Subject {
    pub fn from_number(number: u32) -> Subject {
        match number {
            2 => Subject::Directory,
            3 => Subject::Symlink,
            4 => Subject::Special,
            5 => Subject::Device,
            _ => Subject::File,
        }
    }
}

/// Why something changed: a set of bits, which are part of the protocol (docs/protocol.md section 10).
pub mod cause {
    /// There was nothing.
    pub const NEW: u32 = 1 << 0;
    /// The digests differ.
    pub const CONTENT: u32 = 1 << 1;
    pub const SIZE: u32 = 1 << 2;
    pub const TIME: u32 = 1 << 3;
    /// It is removed: the source does not have it.
    pub const REMOVED: u32 = 1 << 4;
    /// Content is the same; only what is said of it changes.
    pub const KEPT: u32 = 1 << 5;
    pub const MODE: u32 = 1 << 6;
    pub const OWNER: u32 = 1 << 7;
    pub const GROUP: u32 = 1 << 8;
    pub const ACL: u32 = 1 << 9;
    pub const XATTR: u32 = 1 << 10;
    /// It becomes another name of a file.
    pub const LINKED: u32 = 1 << 11;
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Relative to the destination of the job.
    pub path: Vec<u8>,
    pub subject: Subject,
    /// Bits of `cause`.
    pub causes: u32,
}

impl Change {
    pub fn has(&self, cause: u32) -> bool {
        self.causes & cause != 0
    }

    /// What happened, in a word.
    pub fn action(&self) -> &'static str {
        match () {
            () if self.has(cause::REMOVED) => "delete",
            () if self.has(cause::KEPT) => "touch",
            () if self.has(cause::LINKED) => "link",
            () if self.has(cause::NEW) => "create",
            () => "replace",
        }
    }

    /// The eleven letters of `rsync --itemize-changes`; `is_sent` says that files leave this host.
    pub fn letters(&self, is_sent: bool) -> String {
        if self.has(cause::REMOVED) {
            return "*deleting  ".to_owned();
        }
        let (first, second) = match self.subject {
            Subject::File if self.has(cause::KEPT) => ('.', 'f'),
            Subject::File if self.has(cause::LINKED) => ('h', 'f'),
            Subject::Directory if self.has(cause::KEPT) => ('.', 'd'),
            Subject::File => (if is_sent { '<' } else { '>' }, 'f'),
            Subject::Directory => ('c', 'd'),
            Subject::Symlink => ('c', 'L'),
            Subject::Special => ('c', 'S'),
            Subject::Device => ('c', 'D'),
        };
        if self.has(cause::NEW) {
            return format!("{first}{second}+++++++++");
        }
        let letter = |cause, letter| if self.has(cause) { letter } else { '.' };
        let (content, size, time) = (letter(cause::CONTENT, 'c'), letter(cause::SIZE, 's'), letter(cause::TIME, 't'));
        let (mode, owner, group) = (letter(cause::MODE, 'p'), letter(cause::OWNER, 'o'), letter(cause::GROUP, 'g'));
        let (acl, xattr) = (letter(cause::ACL, 'a'), letter(cause::XATTR, 'x'));
        format!("{first}{second}{content}{size}{time}{mode}{owner}{group}.{acl}{xattr}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_those_of_rsync() {
        for (subject, causes, is_sent, letters, action) in [
            (Subject::File, cause::NEW, true, "<f+++++++++", "create"),
            (Subject::File, cause::SIZE | cause::TIME, false, ">f.st......", "replace"),
            (Subject::File, cause::CONTENT, false, ">fc........", "replace"),
            (Subject::File, cause::KEPT | cause::TIME, true, ".f..t......", "touch"),
            (Subject::Directory, cause::NEW, true, "cd+++++++++", "create"),
            (Subject::Symlink, cause::CONTENT, true, "cLc........", "replace"),
            (Subject::File, cause::KEPT | cause::MODE | cause::OWNER, true, ".f...po....", "touch"),
            (Subject::Directory, cause::KEPT | cause::GROUP | cause::ACL, false, ".d.....g.a.", "touch"),
            (Subject::File, cause::KEPT | cause::XATTR, false, ".f........x", "touch"),
            (Subject::File, cause::LINKED | cause::NEW, false, "hf+++++++++", "link"),
            (Subject::Device, cause::NEW, false, "cD+++++++++", "create"),
            (Subject::File, cause::REMOVED, true, "*deleting  ", "delete"),
        ] {
            let change = Change { path: b"x".to_vec(), subject, causes };
            assert_eq!((&change.letters(is_sent)[..], change.action()), (letters, action));
            assert_eq!(change.letters(is_sent).len(), 11);
        }
    }
}
