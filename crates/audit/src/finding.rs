//! What the audit says of one thing.

use crate::here::Here;
use crate::host::Host;

/// What a finding is about, in the order they are shown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Area {
    Sockets,
    Network,
    Peer,
    Machine,
    Storage,
    Profile,
}

/// How much it matters for the path that was asked about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// The path cannot be filled, or something will fail, while it is so.
    Needed,
    /// Better otherwise, and no transfer fails for it.
    Optional,
    /// Worth knowing; there is nothing to do, or nothing that can be done from here.
    Note,
    Good,
}

/// A finding: what was found, what it costs, and how to mend it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub area: Area,
    pub level: Level,
    /// What it is about: a setting's name, `eth0 rings`, `clock`.
    pub subject: String,
    pub found: String,
    /// Empty where nothing is lost.
    pub cost: String,
    pub mend: Option<Mend>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mend {
    /// For a shell.
    pub command: String,
    pub here: Here,
    /// It holds for everything on the machine, not for transfers alone.
    pub is_shared: bool,
    /// Where the command is one that the program can carry out, and undo, on its own.
    pub change: Option<Change>,
}

/// A value for a sysctl.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    pub sysctl: String,
    pub value: String,
}

impl Finding {
    pub fn new(area: Area, level: Level, subject: impl Into<String>, found: impl Into<String>) -> Finding {
        Finding { area, level, subject: subject.into(), found: found.into(), cost: String::new(), mend: None }
    }

    pub fn costs(mut self, cost: impl Into<String>) -> Finding {
        self.cost = cost.into();
        self
    }

    /// Something that only a person does.
    pub fn by_hand(mut self, command: impl Into<String>) -> Finding {
        let command = command.into();
        self.mend = Some(Mend { command, here: Here::ByHand, is_shared: false, change: None });
        self
    }

    /// A sysctl that should have another value.
    pub fn sysctl(mut self, host: &Host, name: &str, value: impl Into<String>) -> Finding {
        let value = value.into();
        let quoted = if value.contains(' ') { format!("'{value}'") } else { value.clone() };
        // Buffers and congestion control belong to a network namespace, the rest to the machine.
        let is_shared = !name.starts_with("net.ipv4.");
        let here = match host.may_set(name) {
            Here::Yes if is_shared && host.container().is_some() => Here::WholeHost,
            here => here,
        };
        self.mend = Some(Mend {
            command: format!("sysctl -w {name}={quoted}"),
            here,
            is_shared,
            change: Some(Change { sysctl: name.to_owned(), value }),
        });
        self
    }
}

impl Area {
    pub fn word(self) -> &'static str {
        match self {
            Area::Sockets => "sockets",
            Area::Network => "network",
            Area::Peer => "peer",
            Area::Machine => "machine",
            Area::Storage => "storage",
            Area::Profile => "profile",
        }
    }
}

impl Level {
    pub fn word(self) -> &'static str {
        match self {
            Level::Needed => "needed",
            Level::Optional => "optional",
            Level::Note => "note",
            Level::Good => "good",
        }
    }
}
