//! What is moved from where to where, and how much of it.

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Sizes of files; one of the whole amount comes before them.
const FILE_BYTES: [u64; 5] = [KIB, 16 * KIB, 256 * KIB, 8 * MIB, GIB];
/// Of one transfer: more would measure the making of names for minutes.
const FILES_MAX: u64 = 50_000;
/// Set beside the program's own choice, over the path alone.
const STREAMS: [u32; 3] = [1, 4, 16];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    Push,
    Pull,
    WriteThere,
    ReadThere,
    WriteHere,
    ReadHere,
}

/// What belongs together: an item reads what the one before it has written.
pub const GROUPS: [&[Item]; 3] =
    [&[Item::Push, Item::Pull], &[Item::WriteThere, Item::ReadThere], &[Item::WriteHere, Item::ReadHere]];

impl Item {
    pub fn name(self) -> &'static str {
        match self {
            Item::Push => "memory here to memory there",
            Item::Pull => "memory there to memory here",
            Item::WriteThere => "memory here to storage there",
            Item::ReadThere => "storage there to memory here",
            Item::WriteHere => "memory there to storage here",
            Item::ReadHere => "storage here to memory there",
        }
    }

    /// What the caller did not give, where the item could not be tried.
    pub fn needs(self) -> &'static str {
        match self {
            Item::Push | Item::Pull => "nothing",
            Item::WriteThere | Item::ReadThere => "name a directory at the endpoint, as in NAME:DIR",
            Item::WriteHere | Item::ReadHere => "name a directory here with --root DIR",
        }
    }
}

/// `COUNTxBYTES` and a number of streams for each transfer, the largest first.
pub fn sets(group: &[Item], amount: u64) -> Vec<(String, Option<u32>)> {
    let whole = format!("1x{amount}");
    let mut sets = vec![(whole.clone(), None)];
    if group[0] == Item::Push {
        sets.extend(STREAMS.map(|streams| (whole.clone(), Some(streams))));
    }
    let sizes = FILE_BYTES.iter().rev().filter(|&&bytes| bytes * 2 <= amount);
    sets.extend(sizes.map(|bytes| (format!("{}x{bytes}", (amount / bytes).min(FILES_MAX)), None)));
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_the_amount_or_as_many_files_as_are_worth_it() {
        let sets = sets(GROUPS[1], GIB * 2);
        assert_eq!(sets[0], (format!("1x{}", 2 * GIB), None));
        assert_eq!(sets[1], (format!("2x{GIB}"), None));
        assert_eq!(sets[5], (format!("{FILES_MAX}x{KIB}"), None));
        assert_eq!(sets.len(), 1 + FILE_BYTES.len());
    }

    #[test]
    fn streams_are_compared_over_the_path_alone_and_small_amounts_have_no_large_files() {
        let sets = sets(GROUPS[0], 20 * MIB);
        let streams: Vec<_> = sets.iter().filter_map(|(_, streams)| *streams).collect();
        assert_eq!(streams, STREAMS);
        assert!(sets.iter().all(|(set, _)| !set.ends_with(&format!("x{GIB}"))));
    }
}
