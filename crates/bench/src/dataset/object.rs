//! What a data set is made of.

/// One object of a set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Object {
    File {
        bytes: u64,
    },
    /// A file with holes, see `tree::is_hole`.
    Sparse {
        bytes: u64,
    },
    Link {
        target: Vec<u8>,
    },
}
