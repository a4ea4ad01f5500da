//! Who may do what: every deed that a client can ask of an endpoint, and the rights that it needs (docs/rights.md).
//!
//! Invariants:
//! - This is the one place that decides. A job is all the deeds that its direction, its paths and its options come to; it is
//!   opened when each of them is allowed.
//! - Whoever may only write learns nothing of what others sent and takes nothing of it away: what shows, compares with,
//!   replaces or removes what is there needs the right to read as well.
//!
//! Not here: which paths a ticket reaches (`scope`), how a destination keeps to the second invariant (`store::DropBox`).

use model::options::Compare;
use model::order::Kind;
use model::synthetic::{is_null, is_synthetic};
use model::{Class, Name, Pin, TransferOptions, mutant};
use mover::files::How;
use transfer::{MAY_ONLY_READ, MAY_ONLY_WRITE};
use wire::handshake::Direction;
use wire::{CloseCode, Refusal};

pub(crate) const IS_READ_ONLY: &str = "this endpoint is read-only";

/// What a client may at this moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rights {
    pub may_read: bool,
    pub may_write: bool,
    /// What it sends replaces nothing, and it does not learn what is there: nobody may read in whose name it is here.
    pub is_drop_box: bool,
    /// Whose readers' rights of sets count. A drop box reads nothing, and does not learn where a set lies.
    pub reader: Option<Pin>,
    /// Names below the root that what it asks for must begin with.
    pub scope: Vec<Name>,
    /// The highest class that its jobs may have.
    pub class_max: Class,
    /// Sees and changes the endpoint's contracts, and sees what all jobs move.
    pub may_manage: bool,
}

impl Rights {
    /// Whether a job may have the class that is asked for. Whoever asks for none gets what is allowed.
    pub fn check_class(&self, asked: Option<Class>) -> Result<(), Refusal> {
        match asked.filter(|class| *class > self.class_max && !mutant::is_on("any-class-for-all")) {
            None => Ok(()),
            Some(asked) => {
                let text =
                    format!("this client's jobs may have class {} at most, and {asked} was asked for", self.class_max);
                Err(Refusal::new(CloseCode::Forbidden, &text))
            }
        }
    }
}

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    Fetch,
    FetchGenerated,
    List,
    Digest,
    Sum,
    Send,
    Forget,
    KeepAttributes,
    DryRun,
    TellChanges,
    Delete,
    Backup,
    CompareExists,
    CompareSize,
    CompareChecksum,
    KeepNewer,
    OnlyExisting,
    NoClobber,
    Delta,
    HardLinks,
    Show,
    MakeDirectory,
    Remove,
    Rename,
}

/// What a client needs for a deed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    pub read: bool,
    pub write: bool,
}

const READ: Needs = Needs { read: true, write: false };
const WRITE: Needs = Needs { read: false, write: true };
const BOTH: Needs = Needs { read: true, write: true };

impl Deed {
    pub const ALL: [Deed; 24] = [
        Deed::Fetch,
        Deed::FetchGenerated,
        Deed::List,
        Deed::Digest,
        Deed::Sum,
        Deed::Send,
        Deed::Forget,
        Deed::KeepAttributes,
        Deed::DryRun,
        Deed::TellChanges,
        Deed::Delete,
        Deed::Backup,
        Deed::CompareExists,
        Deed::CompareSize,
        Deed::CompareChecksum,
        Deed::KeepNewer,
        Deed::OnlyExisting,
        Deed::NoClobber,
        Deed::Delta,
        Deed::HardLinks,
        Deed::Show,
        Deed::MakeDirectory,
        Deed::Remove,
        Deed::Rename,
    ];

    pub fn needs(self) -> Needs {
        match self {
            Deed::Fetch | Deed::FetchGenerated | Deed::List | Deed::Digest | Deed::Sum => READ,
            Deed::Send | Deed::Forget | Deed::KeepAttributes => WRITE,
            Deed::DryRun | Deed::TellChanges if mutant::is_on("write-only-may-look") => WRITE,
            Deed::Delete | Deed::Backup if mutant::is_on("write-only-may-remove") => WRITE,
            // These tell what is there, by what is done, left or failed.
            Deed::DryRun | Deed::TellChanges => BOTH,
            Deed::CompareExists | Deed::CompareSize | Deed::CompareChecksum => BOTH,
            Deed::KeepNewer | Deed::OnlyExisting | Deed::NoClobber | Deed::Delta | Deed::HardLinks => BOTH,
            Deed::MakeDirectory => BOTH,
            // These take away: what is shown takes the name of what was.
            Deed::Delete | Deed::Backup | Deed::Remove | Deed::Rename | Deed::Show => BOTH,
        }
    }

    /// How a user asks for it: the row of the manual's table.
    pub fn words(self) -> &'static str {
        match self {
            Deed::Fetch => "fetch files: `cp`, `sync`, `cat` from the endpoint",
            Deed::FetchGenerated => "fetch from `gen:`",
            Deed::List => "look: `ls`, `tree`, `stat`",
            Deed::Digest => "digests: `sum`, `check`",
            Deed::Sum => "sizes: `du`",
            Deed::Send => "send files: `cp`, `sync` to the endpoint",
            Deed::Forget => "send to `null:`",
            Deed::KeepAttributes => "send with owners, modes, attributes, special files",
            Deed::DryRun => "send with `--dry-run`",
            Deed::TellChanges => "send with `--itemize`",
            Deed::Delete => "send with `--delete`",
            Deed::Backup => "send with `--backup-dir`",
            Deed::CompareExists => "send with `--compare exists`",
            Deed::CompareSize => "send with `--compare size`",
            Deed::CompareChecksum => "send with `--compare checksum`",
            Deed::KeepNewer => "send with `--update`",
            Deed::OnlyExisting => "send with `--existing`",
            Deed::NoClobber => "send with `--no-clobber`",
            Deed::Delta => "send with `--delta`",
            Deed::HardLinks => "send with `--hard-links`",
            Deed::Show => "send with `--show prefix` or `--sealed-list`",
            Deed::MakeDirectory => "make directories: `mkdir`",
            Deed::Remove => "remove: `rm`",
            Deed::Rename => "rename: `mv`",
        }
    }

    /// Everything that a job comes to.
    pub fn of_job(direction: Direction, paths: &[Vec<u8>], options: &TransferOptions) -> Vec<Deed> {
        match direction {
            Direction::ServerSends if paths.iter().any(|path| is_synthetic(path)) => vec![Deed::FetchGenerated],
            Direction::ServerSends => vec![Deed::Fetch],
            // Nothing is there that could be looked at.
            Direction::ClientSends if paths.iter().any(|path| is_null(path)) => vec![Deed::Forget],
            Direction::ClientSends => std::iter::once(Deed::Send).chain(of_options(options)).collect(),
        }
    }

    /// The same with what is done beside copying.
    pub fn of_order(kind: Kind, direction: Direction, paths: &[Vec<u8>], options: &TransferOptions) -> Vec<Deed> {
        let more: &[Deed] = match (kind, direction) {
            (Kind::Check, _) => return vec![Deed::Digest],
            (Kind::Move, Direction::ServerSends) => &[Deed::Digest, Deed::Remove],
            (Kind::Move, Direction::ClientSends) => &[Deed::Digest],
            (Kind::Copy | Kind::Sync, _) => &[],
        };
        [&Deed::of_job(direction, paths, options), more].concat()
    }

    /// Looking is one right, whatever of it is told.
    pub fn of_reach(how: How) -> Deed {
        match how {
            How::Look => Deed::List,
            How::Take => Deed::Remove,
            How::Make { .. } => Deed::MakeDirectory,
        }
    }

    /// Why it is not allowed, in words for the client; `None` where it is.
    pub(crate) fn refused(self, rights: &Rights, is_read_only: bool) -> Option<String> {
        let Needs { read, write } = self.needs();
        if write && is_read_only {
            return Some(IS_READ_ONLY.to_owned());
        }
        if write && !rights.may_write {
            return Some(MAY_ONLY_READ.to_owned());
        }
        if read && !rights.may_read {
            let option = self.words().strip_prefix("send with ");
            return Some(match option {
                Some(option) => {
                    format!("{MAY_ONLY_WRITE}, and {} shows or changes what others sent", option.replace('`', ""))
                }
                None => MAY_ONLY_WRITE.to_owned(),
            });
        }
        None
    }
}

fn of_options(options: &TransferOptions) -> impl Iterator<Item = Deed> {
    let fidelity = &options.fidelity;
    let keeps_attributes = fidelity.has_attributes() || fidelity.devices || fidelity.specials;
    [
        (keeps_attributes, Deed::KeepAttributes),
        (options.is_dry_run, Deed::DryRun),
        (options.tells_changes, Deed::TellChanges),
        (options.deletion.is_some(), Deed::Delete),
        (options.backup.is_some(), Deed::Backup),
        (options.compare == Compare::Exists, Deed::CompareExists),
        (options.compare == Compare::Size, Deed::CompareSize),
        (options.compare == Compare::Checksum, Deed::CompareChecksum),
        (options.keeps_newer, Deed::KeepNewer),
        (options.only_existing, Deed::OnlyExisting),
        (options.no_clobber, Deed::NoClobber),
        (options.is_delta, Deed::Delta),
        (fidelity.hard_links, Deed::HardLinks),
        (options.view.is_some() || options.sealed_list.is_some(), Deed::Show),
    ]
    .into_iter()
    .filter_map(|(is_asked, deed)| is_asked.then_some(deed))
}

/// An option that is added later has to be looked at here: whether it shows or changes what others sent.
const _: fn(TransferOptions) = |options| {
    let TransferOptions {
        // Of the client's own content: how it is sent, verified, made durable, and what modes it gets.
        depths: _,
        fsync: _,
        verify: _,
        digest: _,
        chunk_bytes: _,
        chmod: _,
        engine: _,
        compression: _,
        pace: _,
        congestion: _,
        class: _,
        payload_bytes_max: _,
        // Of a sender alone: it does not travel.
        follow: _,
        wait: _,
        // On which way it comes to its place.
        buffer: _,
        // What is taken; at a receiver it only protects from removal.
        selection: _,
        no_clobber: _,
        compare: _,
        keeps_newer: _,
        only_existing: _,
        is_dry_run: _,
        tells_changes: _,
        deletion: _,
        backup: _,
        is_delta: _,
        fidelity: _,
        view: _,
        sealed_list: _,
        // It ends what was written there in the name of other slices, whose ids nobody guesses.
        slice: _,
    } = options;
};

/// The manual's table.
pub fn table() -> String {
    let rights = |may_read: bool, may_write| Rights {
        may_read,
        may_write,
        is_drop_box: !may_read,
        reader: None,
        scope: Vec::new(),
        class_max: Class::High,
        may_manage: false,
    };
    let mut text = "| | any ticket | `--read-only` | `--write-only` | any, at `serve --read-only` |\n".to_owned();
    text.push_str("|---|---|---|---|---|\n");
    for deed in Deed::ALL {
        let cell = |rights: Rights, is_read_only| match deed.refused(&rights, is_read_only) {
            None => "yes",
            Some(_) => "no",
        };
        let cells = [
            cell(rights(true, true), false),
            cell(rights(true, false), false),
            cell(rights(false, true), false),
            cell(rights(true, true), true),
        ];
        text.push_str(&format!("| {} | {} |\n", deed.words(), cells.join(" | ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_has_the_table_of_the_program() {
        let manual = include_str!("../../../../docs/rights.md");
        assert!(manual.contains(&table()), "docs/rights.md lacks this table:\n{}", table());
    }

    #[test]
    fn every_deed_is_in_the_table_once() {
        for (at, deed) in Deed::ALL.into_iter().enumerate() {
            assert_eq!(deed as usize, at, "{deed:?}");
            assert_eq!(table().matches(&format!("| {} |", deed.words())).count(), 1, "{deed:?}");
        }
        assert_eq!(Deed::Rename as usize + 1, Deed::ALL.len(), "the last one is missing");
    }

    #[test]
    fn a_class_beyond_what_a_ticket_allows_is_refused() {
        let of = |class_max| Rights {
            may_read: true,
            may_write: true,
            is_drop_box: false,
            reader: None,
            scope: Vec::new(),
            class_max,
            may_manage: false,
        };
        for max in Class::ALL {
            for asked in Class::ALL {
                assert_eq!(of(max).check_class(Some(asked)).is_ok(), asked <= max, "{asked} of {max}");
            }
            assert!(of(max).check_class(None).is_ok());
        }
    }
}
