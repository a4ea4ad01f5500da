//! What a store may lack, and the fact that a report gives for it.

use std::fmt;
use store::Abilities;

/// Something that not every store can do. A store has all of them but those that its stand names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ability {
    /// Objects can be read from it.
    Source,
    /// Objects can be written to it.
    Sink,
    /// It answers questions about what it holds.
    Shelf,
    Directories,
    /// What is published can be seen afterwards.
    Keeps,
    /// What is written stays out of sight until it is published.
    Stages,
    /// The bytes of an object may come in any order.
    AnyOrder,
    /// Bytes that come out of order are refused.
    InOrder,
    /// An object is read as often as one likes, anywhere.
    Rereads,
    /// An object is read once, from its start to its end.
    ReadsOnce,
    /// What it holds can be changed by somebody else.
    Changes,
    Journals,
    /// What is staged can be read back.
    ReadsStaged,
    Symlinks,
    Nodes,
    HardLinks,
    Prune,
    /// What stands at a name can be compared, and gets another time.
    Touch,
    /// Permission bits are kept, and changed without content.
    Modes,
    /// Holes are passed over.
    Skip,
    /// Publishing replaces only the version that was decided on.
    Conditional,
    /// An object gets another name in one step.
    Renames,
    /// Paths are as long as one likes.
    LongPaths,
    /// Of a group one object is published after the other.
    OneByOne,
}

impl Ability {
    /// What is true of a store without it.
    pub fn lacking(self) -> &'static str {
        match self {
            Ability::Source => "nothing can be read from it",
            Ability::Sink => "nothing can be written to it",
            Ability::Shelf => "it answers no questions about what it holds",
            Ability::Directories => "it has no directories",
            Ability::Keeps => "it keeps nothing that could be looked at",
            Ability::Stages => "bytes leave it as they come",
            Ability::AnyOrder => "it takes the bytes of an object in order only",
            Ability::InOrder => "it takes the bytes of an object in any order",
            Ability::Rereads => "its objects are read once, in order",
            Ability::ReadsOnce => "its objects are read as often as one likes",
            Ability::Changes => "nobody else can change what it holds",
            Ability::Journals => "it keeps no journal of an attempt",
            Ability::ReadsStaged => "what it staged cannot be read back",
            Ability::Symlinks => "it has no symbolic links",
            Ability::Nodes => "it has no special files",
            Ability::HardLinks => "it has no files of several names",
            Ability::Prune => "it removes nothing",
            Ability::Touch => "what stands there is not compared or given another time",
            Ability::Modes => "it keeps no permission bits",
            Ability::Skip => "it takes every byte",
            Ability::Conditional => "it replaces whatever stands there",
            Ability::Renames => "it gives no object another name",
            Ability::LongPaths => "its paths have a longest length",
            Ability::OneByOne => "it publishes many of a group at once",
        }
    }
}

impl Ability {
    /// Whether a sink says of itself that it has it; `None` where its facts do not speak of it.
    pub(crate) fn is_in(self, can: &Abilities) -> Option<bool> {
        match self {
            Ability::Nodes => Some(can.nodes),
            Ability::HardLinks => Some(can.hard_links),
            Ability::Prune => Some(can.prune),
            Ability::Skip => Some(can.holes),
            Ability::ReadsStaged => Some(can.reread),
            _ => None,
        }
    }
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.lacking())
    }
}
