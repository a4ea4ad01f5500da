//! A job that an endpoint carries out in somebody's name: where it stands, in the words of scripts and of the protocol.
//!
//! Not here: what is to be done (`spec`), in whose name (`warrant`), who does it (`daemon`).

use std::fmt;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $number:literal, $word:literal);+ $(;)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u32)]
        pub enum $name { $($variant = $number),+ }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$variant),+];

            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }

            pub fn from_number(number: u32) -> Option<$name> {
                Self::ALL.iter().copied().find(|one| *one as u32 == number)
            }

            pub fn from_word(word: &str) -> Option<$name> {
                Self::ALL.iter().copied().find(|one| one.word() == word)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

words! {
    /// Where a job stands. The numbers are the protocol's.
    Status {
        Queued = 1, "queued";
        Waiting = 2, "waiting";
        Running = 3, "running";
        Stopping = 4, "stopping";
        Paused = 5, "paused";
        Succeeded = 6, "succeeded";
        Partial = 7, "partial";
        Failed = 8, "failed";
        Cancelled = 9, "cancelled";
    }
}

impl Status {
    /// It changes only when somebody asks for it.
    pub fn is_end(self) -> bool {
        matches!(self, Status::Succeeded | Status::Partial | Status::Failed | Status::Cancelled)
    }
}

words! {
    /// What a job waits for.
    Reason {
        None = 0, "";
        Retry = 1, "retry";
        Endpoint = 2, "endpoint";
        Space = 3, "space";
        Credentials = 4, "credentials";
        Unreachable = 5, "unreachable";
    }
}

words! {
    /// What a job is to come to.
    Steer {
        Pause = 1, "pause";
        Resume = 2, "resume";
        Cancel = 3, "cancel";
        Retry = 4, "retry";
        Remove = 5, "rm";
        Rate = 6, "rate";
        Class = 7, "class";
    }
}

words! {
    /// Which end of the transfer carries it out.
    Role {
        Sends = 1, "sends";
        Fetches = 2, "fetches";
    }
}

words! {
    /// What is done beside copying.
    Kind {
        Copy = 1, "copy";
        Sync = 2, "sync";
        Move = 3, "move";
        Check = 4, "check";
    }
}
